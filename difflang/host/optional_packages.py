"""Optional Python packages, imported when a program first needs them, and the error if one is not installed."""

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
    "orbax.checkpoint": "orbax", "pyarrow": "parquet",
}  # fmt: skip
"""The extra of `difflang` that installs each optional package, by the name that Python imports."""


def require_package(module: ModuleScope, package: str, span: Span) -> None:
    """Record that running the module needs a package."""
    module.needs.setdefault(package, span)


def check_installed(module: ModuleScope) -> None:
    """Check before a run that the packages it needs are installed. Errors: DL0709."""
    for package, span in module.needs.items():
        if not is_installed(package):
            raise missing_package_error(package, span)


def is_installed(package: str) -> bool:
    """Whether Python can import a package."""
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # the package around it is missing
        return False


def import_optional(name: str, span: Span) -> Any:
    """Import a module of an optional package. Errors: DL0709 with the command that installs it."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise missing_package_error(name.partition(".")[0], span) from None


def missing_package_error(package: str, span: Span | None = None) -> DifflangError:
    way = f"install it: `pip install 'difflang[{EXTRAS[package]}]'`"
    places = ((span, ""),) if span is not None else ()
    return make_error("DL0709", f"this requires the package {package}, which is not installed", *places, help=way)
