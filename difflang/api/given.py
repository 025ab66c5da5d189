"""Plain things that people give beside arguments: sizes, amounts of memory, orders."""

from __future__ import annotations

import operator
from typing import Any

from difflang.base.amounts import amount
from difflang.check.reports import mistake
from difflang.elaborate.jets import HIGHEST_ORDER


def article(value: object) -> str:
    """What a value is, in words."""
    return f"{'an' if (name := type(value).__name__)[:1] in 'aeiouAEIOU' else 'a'} {name}"


def bytes_in(budget: str | int) -> int:
    """`"64 MiB"`, or so many bytes."""
    if (found := budget if isinstance(budget, int) else amount(budget)) is None:
        raise mistake("DL1207", f"{budget!r} is no amount of memory", help='write `"64 MiB"`, or a number of bytes')
    return found


def size_of(name: str, value: Any) -> int:
    """The value of a `dim`."""
    try:
        if isinstance(value, bool):
            raise TypeError
        return operator.index(value)
    except TypeError:
        raise mistake(
            "DL1206", f"`{name}` is a dim: a Python integer is needed, known before the program runs"
        ) from None


def order_of(value: Any) -> int:
    """The order of a `jet`. Errors: DL0405."""
    known = operator.index(value) if hasattr(value, "__index__") and not isinstance(value, bool) else -1
    if not 0 <= known <= HIGHEST_ORDER:
        raise mistake("DL0405", f"there is no jet of order {value!r}", help=f"orders are 0 to {HIGHEST_ORDER}")
    return known
