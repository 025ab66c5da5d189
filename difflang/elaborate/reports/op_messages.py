"""The names of ops in messages, and the help texts for operands that an op rejects."""

from __future__ import annotations

from difflang.base.source import Span
from difflang.ir.tensor_types import DType

# Ops with another spelling in the language.
SURFACE_NAMES = {
    "add": "+",
    "sub": "-",
    "neg": "-",
    "mul": "*",
    "div": "/",
    "floor_div": "//",
    "rem": "%",
    "pow": "^",
    "integer_pow": "^",
    "dot_general": "@",
    "logical_and": "and",
    "logical_or": "or",
    "logical_not": "not",
    "eq": "==",
    "ne": "!=",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "select": "where",
    **{f"reduce_{name}": name for name in ("sum", "prod", "max", "min", "all", "any")},
}

SQUARE_HELP = "it takes a square matrix or a stack of these; for other matrices use `qr` or `svd`"
SOLVE_HELP = (
    "the first argument is a square matrix, the second a vector or a matrix with as many rows; if there are more "
    "equations than unknowns, use `qr`"
)
KERNEL_HELP = "a kernel is [spatial axes, channels in, channels out]; `groups` divides the number of channels in"
# The operand shapes of ops, for size mismatches.
SHAPE_HELPS = {
    **dict.fromkeys(("det", "slogdet", "inv", "cholesky", "lu", "eigh", "expm"), SQUARE_HELP),
    **dict.fromkeys(("solve", "solve_triangular"), SOLVE_HELP),
    **dict.fromkeys(("conv1d", "conv2d", "conv3d"), KERNEL_HELP),
    "concat": ("all sizes except along the axis must be equal: choose another axis, `axis = 1`, or reshape one part"),
}

DIVISION = "div"
REAL_PART_HELP = "convert it to a real number: `real({0})`, `abs({0})`"


def surface_name(name: str) -> str:
    """The spelling of an op in the language."""
    return SURFACE_NAMES.get(name, name)


def quote_source(span: Span, otherwise: str = "x") -> str:
    """The source of a short expression, for use in a help text."""
    text = span.text
    return text if 0 < len(text) <= 24 and "\n" not in text else otherwise


def expects_float(refused: str) -> bool:
    return "takes a float" in refused or "takes f32" in refused


def refusal_help(name: str, refused: str, span: Span, float: DType) -> str:
    """The help for rejected operands: a conversion for another element type, the expected shape for other sizes.

    `float` is the default float of the file.
    """
    text = quote_source(span)
    if "takes a bool" in refused:
        return f"compare it: `{text} != 0`" if text.isidentifier() else f"compare it: `({text}) != 0`"
    if refused.endswith(("not c64", "not c128")):
        return REAL_PART_HELP.format(text)
    if "takes a complex number" in refused:
        wide = "f64" in refused.split("not ")[-1] or float.name == "f64"
        return f"convert it: `{'c128' if wide else 'c64'}({text})`"
    if name == DIVISION and expects_float(refused):
        return f"`//` divides integers; for a fraction, convert both: `{float}({text})`"
    if expects_float(refused):
        return f"convert it: `{float}({text})`"
    if "takes an integer" in refused or "not bool" in refused:
        return f"convert it: `i32({text})`"
    return SHAPE_HELPS.get(name, "")
