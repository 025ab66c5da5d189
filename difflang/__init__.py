"""difflang: a small language for differentiable programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from difflang.api import Extern as Extern
    from difflang.api import Failure as Failure
    from difflang.api import Function as Function
    from difflang.api import Module as Module
    from difflang.api import checkify as checked
    from difflang.api import extern as extern
    from difflang.api import load as load
    from difflang.api import loads as loads
    from difflang.api.compile_source import compile as compile
    from difflang.api.compile_source import define as define
    from difflang.api.import_hook import importing as importing
    from difflang.api.import_hook import install_import_hook as install_import_hook
    from difflang.base.diagnostics import DifflangError as DifflangError
    from difflang.base.diagnostics import InternalError as InternalError
    from difflang.base.errors import ArgumentError as ArgumentError
    from difflang.base.errors import ArtifactError as ArtifactError
    from difflang.base.errors import AssertionFailure as AssertionFailure
    from difflang.base.errors import CheckError as CheckError
    from difflang.base.errors import DataError as DataError
    from difflang.base.errors import DifferentiationError as DifferentiationError
    from difflang.base.errors import DifflangWarning as DifflangWarning
    from difflang.base.errors import DTypeError as DTypeError
    from difflang.base.errors import GradientMismatch as GradientMismatch
    from difflang.base.errors import IndexFailure as IndexFailure
    from difflang.base.errors import LimitError as LimitError
    from difflang.base.errors import NonFiniteError as NonFiniteError
    from difflang.base.errors import OpLawError as OpLawError
    from difflang.base.errors import ParseError as ParseError
    from difflang.base.errors import ShapeError as ShapeError
    from difflang.base.recently_used import set_program_cache_size as set_program_cache_size

_EXPORTS = {
    **dict.fromkeys(("Extern", "Failure", "Function", "Module", "checked", "extern", "load", "loads"), "difflang.api"),
    **dict.fromkeys(("compile", "define"), "difflang.api.compile_source"),
    **dict.fromkeys(("importing", "install_import_hook"), "difflang.api.import_hook"),
    "set_program_cache_size": "difflang.base.recently_used",
    **dict.fromkeys(("DifflangError", "InternalError"), "difflang.base.diagnostics"),
    **dict.fromkeys(
        (
            *("ParseError", "CheckError", "ShapeError", "DTypeError", "DifferentiationError", "DataError"),
            *(
                "ArgumentError",
                "ArtifactError",
                "IndexFailure",
                "AssertionFailure",
                "GradientMismatch",
                "LimitError",
                "NonFiniteError",
                "OpLawError",
                "DifflangWarning",
            ),
        ),
        "difflang.base.errors",
    ),
}

__all__ = [
    "ArgumentError", "ArtifactError", "AssertionFailure", "CheckError", "DTypeError", "DataError",
    "DifferentiationError", "DifflangError", "DifflangWarning", "Extern", "Failure", "Function", "GradientMismatch",
    "IndexFailure", "InternalError", "LimitError", "Module", "NonFiniteError", "OpLawError", "ParseError", "ShapeError",
    "checked", "compile", "define", "extern", "importing", "install_import_hook", "load", "loads",
    "set_program_cache_size",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Import a public name of the package on first access.

    No garbage is collected meanwhile: a tenth of the time would go into scanning modules, which all stay.
    """
    from importlib import import_module

    from difflang.base.gc_pause import pause_gc

    if name not in _EXPORTS and name not in ("bridge", "graph", "runtime"):
        raise AttributeError(f"module 'difflang' has no attribute {name!r}")
    with pause_gc():
        if name not in _EXPORTS:
            return import_module(f"difflang.{name}")
        return getattr(import_module(_EXPORTS[name]), name)


def _set_xla_flags() -> None:
    """Set XLA's flags before it reads them."""
    from difflang.base.xla_flags import set_xla_flags

    set_xla_flags()


_set_xla_flags()


def load_ipython_extension(shell: Any) -> None:
    """`%load_ext difflang`."""
    from difflang.notebook import register_magics

    register_magics(shell)


def unload_ipython_extension(shell: Any) -> None:
    """`%unload_ext difflang`."""
    from difflang.notebook import unregister_magics

    unregister_magics(shell)


def __dir__() -> list[str]:
    return sorted([*globals(), *_EXPORTS])
