"""Parsing of API options: sizes, memory budgets, orders of derivatives."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from difflang.base.byte_sizes import parse_bytes, suggest_byte_sizes
from difflang.base.source import Span
from difflang.base.wording import with_article
from difflang.driver.type_specs import MOST
from difflang.elaborate.derivatives.scalar_derivative import HIGHEST_ORDER
from difflang.runtime import pytrees
from difflang.runtime.argument_conversion import format_number
from difflang.types.type_errors import make_error


def class_with_article(value: object) -> str:
    """The class of a value with its article, for a message."""
    return with_article(type(value).__name__)


def parse_budget(budget: Any) -> int:
    """Parse `"64 MiB"`, or a number of bytes; None gives 0, for no limit. Errors: DL1207."""
    if budget is None:
        return 0
    # A text has a unit; a number is in bytes.
    text = isinstance(budget, str)
    try:
        found = parse_bytes(budget) if text else operator.index(budget)
    except TypeError:
        found = None
    if not found or found < 0 or isinstance(budget, bool):
        way = f"write {suggest_byte_sizes(budget)}" if text else 'write `"64 MiB"`, or a whole number of bytes'
        raise make_error("DL1207", f"{budget!r} is not an amount of memory", help=way)
    return found


def parse_size(name: str, value: Any, declared: Span | None, *, least: int = -MOST) -> int:
    """The value of a `dim`, or of a size in a type, which is at `least` 0.

    Errors: DL1206 if it is not an integer, DL1205 if it is out of range.
    """
    labels = [(declared, "declared here")] if declared is not None else []
    what = "a dim" if least < 0 else "a size"
    try:
        # A bool is an int in Python, but no size.
        if isinstance(value, bool):
            raise TypeError
        size = operator.index(value)
    except TypeError:
        message = (
            f"`{name}` is {what}, an integer known before the program runs, but {class_with_article(value)} was given"
        )
        raise make_error("DL1206", message, *labels, help=size_conversion_hint(name, value)) from None
    if not least <= size < MOST:
        way = f"it is an i32, from {least:,} to {MOST - 1:,}"
        raise make_error(
            "DL1205", f"`{name}` is {what}, and {format_number(size)} is out of its range", *labels, help=way
        )
    return size


def size_conversion_hint(name: str, value: Any) -> str:
    """A hint how to convert a value to a size."""
    if pytrees.has_tracers([value]):
        return (
            f'keep it a Python number: `jax.jit(f, static_argnames="{name}")`, or None in the `in_axes` of `jax.vmap`'
        )
    if not isinstance(value, (float, np.floating)) or not abs(value) < MOST:
        return ""
    return f"write `{'int' if value % 1 == 0 else 'round'}({name})`"


def parse_jet_order(value: Any) -> int:
    """The order of a `jet`. Errors: DL0405."""
    known = operator.index(value) if hasattr(value, "__index__") and not isinstance(value, bool) else -1
    if not 0 <= known <= HIGHEST_ORDER:
        raise make_error("DL0405", f"`jet` has no order {value!r}", help=f"the order is from 0 to {HIGHEST_ORDER}")
    return known
