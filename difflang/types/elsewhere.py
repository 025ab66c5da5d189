"""What types are called in other languages, so that a report can say what was meant."""

from __future__ import annotations

from collections.abc import Mapping

FOREIGN_TYPE_NAMES: Mapping[str, str] = {
    **dict.fromkeys(("float32", "number", "single"), "f32"),
    **dict.fromkeys(("float64", "double"), "f64"),
    **dict.fromkeys(("float16", "half"), "f16"),
    **dict.fromkeys(("int", "int32", "integer"), "i32"),
    **dict.fromkeys(("int64", "long"), "i64"),
    "bfloat16": "bf16",
    "boolean": "bool",
    "string": "str",
    **dict.fromkeys(("array", "ndarray", "tensor", "vector", "vec", "list"), "f32[n]"),
    "matrix": "f32[n, m]",
}

# Those of which it takes a person to say what was meant: the axes, or the kind of number.
AMBIGUOUS_TYPE_NAMES = ("number", "array", "ndarray", "tensor", "vector", "vec", "list", "matrix")
