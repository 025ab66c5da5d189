"""Packages that only some programs need, and that are imported when one does."""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from typing import Any

from difflang.base.diagnostics import DifflangError
from difflang.base.source import Span
from difflang.types.module_scope import Module
from difflang.types.type_errors import mistake

EXTRAS = {
    "matplotlib": "plot", "safetensors": "safetensors", "pygls": "lsp", "flatbuffers": "export",
    "orbax-checkpoint": "orbax",
}  # fmt: skip


def needs(module: Module, package: str, span: Span) -> None:
    """Something in a program needs a package, if it is run."""
    module.needs.setdefault(package, span)


def all_there(module: Module) -> None:
    """Look for what a program needs before it begins. Errors: DL0709."""
    for package, span in module.needs.items():
        if find_spec(package) is None:
            raise lacking(package, span)


def needed(name: str, span: Span) -> Any:
    """A module of an optional package. Errors: DL0709 with how it is installed."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise lacking(name.partition(".")[0], span) from None


def lacking(package: str, span: Span | None = None) -> DifflangError:
    way = f"install it: `pip install 'difflang[{EXTRAS[package]}]'`"
    places = ((span, ""),) if span is not None else ()
    return mistake("DL0709", f"this needs the package {package}, which is not installed", *places, help=way)
