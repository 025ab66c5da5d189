"""JAX's own differentiation, out of reach of the package: the names, and a guard that makes them raise.

The compiler differentiates by its own passes. Tests use JAX's derivatives as an oracle, so what decides is the module
of the frame that calls: `difflang`, or a program's own source lines, but not the rooms that let JAX differentiate
through us.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import jax
import jax.ad_checkpoint
import jax.custom_derivatives

FUNCTIONS = (
    "checkpoint",
    "custom_gradient",
    "fwd_and_bwd",
    "grad",
    "hessian",
    "jacfwd",
    "jacobian",
    "jacrev",
    "jvp",
    "linear_transpose",
    "linearize",
    "remat",
    "value_and_grad",
    "vjp",
)
CLASSES = ("custom_jvp", "custom_vjp")
NAMES = frozenset((*FUNCTIONS, *CLASSES, "custom_root", "custom_linear_solve"))
# Submodules whose whole content is differentiation.
MODULES = frozenset({"jax.ad_checkpoint", "jax.custom_derivatives", "jax.interpreters.ad", "jax.experimental.jet"})
ALLOWED_ROOMS = ("difflang.embed", "difflang.bridge")
LENDERS = ("functools", "contextlib")  # they call on somebody else's behalf


class JaxDifferentiation(AssertionError):
    """The package asked JAX for a derivative."""


def forbidden_caller(frame: FrameType | None) -> str | None:
    """The name of the room that calls, if it may not."""
    while frame is not None and frame.f_globals.get("__name__") in LENDERS:
        frame = frame.f_back
    if frame is None:
        return None
    name = frame.f_globals.get("__name__") or ""
    if any(name == room or name.startswith(room + ".") for room in ALLOWED_ROOMS):
        return None
    ours = name == "difflang" or name.startswith("difflang.") or frame.f_code.co_filename.endswith(".dfl")
    return (name or frame.f_code.co_filename) if ours else None


def refuse(what: str) -> None:
    """Raise if the function that called our caller is one of the package's."""
    room = forbidden_caller(sys._getframe(2))
    if room is not None:
        raise JaxDifferentiation(f"{room} called {what}")


def guarded(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, for everybody but the package."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        refuse(name)
        return function(*args, **kwargs)

    return call


def homes() -> list[Any]:
    """The public modules of JAX that hand out these functions."""
    return [jax, jax.ad_checkpoint]


@contextmanager
def installed() -> Iterator[None]:
    """The guard, for as long as the block lasts."""
    undo: list[tuple[Any, str, Any]] = []
    for home in homes():
        for name in FUNCTIONS:
            if hasattr(home, name):
                undo.append((home, name, getattr(home, name)))
                setattr(home, name, guarded(f"jax.{name}", getattr(home, name)))
    for name in CLASSES:
        # The class itself must stay, for isinstance; only its making is watched.
        made = getattr(jax, name)
        assert inspect.isclass(made)
        undo.append((made, "__init__", made.__init__))
        made.__init__ = guarded(f"jax.{name}", made.__init__)
    try:
        yield
    finally:
        for owner, name, value in reversed(undo):
            setattr(owner, name, value)
