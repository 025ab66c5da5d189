"""Packages that only some programs need, and that are imported when one does."""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from typing import Any

from difflang.base.diagnostics import DifflangError
from difflang.base.source import Span
from difflang.types.module_scope import ModuleScope
from difflang.types.type_errors import make_error

EXTRAS = {
    "matplotlib": "plot", "safetensors": "safetensors", "pygls": "lsp", "flatbuffers": "export",
    "orbax-checkpoint": "orbax",
}  # fmt: skip


def require_package(module: ModuleScope, package: str, span: Span) -> None:
    """Something in a program needs a package, if it is run."""
    module.needs.setdefault(package, span)


def check_installed(module: ModuleScope) -> None:
    """Look for what a program needs before it begins. Errors: DL0709."""
    for package, span in module.needs.items():
        if find_spec(package) is None:
            raise missing_package_error(package, span)


def import_optional(name: str, span: Span) -> Any:
    """A module of an optional package. Errors: DL0709 with how it is installed."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise missing_package_error(name.partition(".")[0], span) from None


def missing_package_error(package: str, span: Span | None = None) -> DifflangError:
    way = f"install it: `pip install 'difflang[{EXTRAS[package]}]'`"
    places = ((span, ""),) if span is not None else ()
    return make_error("DL0709", f"this requires the package {package}, which is not installed", *places, help=way)
