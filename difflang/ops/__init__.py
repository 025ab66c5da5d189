"""Every op, one declaration each. Importing this package fills the registry `difflang.ir.op.OPS`."""

from difflang.ops import (
    arithmetic,
    call,
    compare,
    cond,
    constants,
    derivative,
    elementwise,
    history,
    index,
    linalg,
    linear,
    loop,
    map,
    reduce,
    roots,
    shape,
)

__all__ = [
    "arithmetic",
    "call",
    "compare",
    "cond",
    "constants",
    "derivative",
    "elementwise",
    "history",
    "index",
    "linalg",
    "linear",
    "loop",
    "map",
    "reduce",
    "roots",
    "shape",
]
