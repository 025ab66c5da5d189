"""Ops on histories, `empty_history` (zero of every length) and `add_history` (item by item).

Only loops produce and read histories. `history_value` describes them in a compiled program.
"""

from __future__ import annotations

from itertools import zip_longest
from typing import Any

import numpy as np

from difflang.ir.op import OPS, Op, TypeSolver
from difflang.ir.tensor_types import History, Type
from difflang.ops.ad_interface import require_same_types
from difflang.ops.loop.history_value import EmptyHistory, HistorySum


def empty_history_type(same: TypeSolver, *, type: Type) -> Type:
    same.require(isinstance(type, History), "{} is not a history", type)
    return type


def add_history_type(same: TypeSolver, x: Type, y: Type) -> Type:
    same.require(isinstance(x, History), "{} is not a history", x)
    require_same_types(same, "add_history", [y], [x])
    return x


def add_item_lists(x: Any, y: Any) -> Any:
    if not isinstance(x, list):
        return np.add(x, y)
    pairs: list[Any] = list(zip_longest(x, y))
    return [b if a is None else a if b is None else add_item_lists(a, b) for a, b in pairs]


empty_history = OPS.declare(
    Op(
        "empty_history",
        empty_history_type,
        lambda type: [],
        lambda jax, type: EmptyHistory(),
        inactive=True,
        doc="""A history without items: it reads zero everywhere.""",
    )
)
add_history = OPS.declare(
    Op(
        "add_history",
        add_history_type,
        add_item_lists,
        lambda jax, x, y: HistorySum(x, y),
        jvp=(lambda d, z, x, y: d, lambda d, z, x, y: d),
        transpose=(lambda ct, x, y: ct, lambda ct, x, y: ct),
        doc="""The sum of two histories, item by item; of truths, whether one holds. The shorter one is continued by
        zeros.""",
    )
)
