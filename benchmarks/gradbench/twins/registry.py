"""Where the twins are registered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

Function = Callable[..., Any]


class Twin(NamedTuple):
    """A function of an eval in JAX.

    `prepare(input)` gives what is known before tracing, and the arguments; `make(known)` the function to compile;
    `finish(result)` the output as the protocol has it.
    """

    prepare: Function
    make: Function
    finish: Function


TWINS: dict[tuple[str, str], Twin] = {}  # by eval and function


def twin(eval_name: str, function: str, *, prepare: Function, finish: Function) -> Callable[[Function], Function]:
    """Register the maker of a twin."""

    def add(make: Function) -> Function:
        TWINS[eval_name, function] = Twin(prepare, make, finish)
        return make

    return add


def f64(value: Any) -> np.ndarray:
    """An array of doubles."""
    return np.asarray(value, dtype=np.float64)
