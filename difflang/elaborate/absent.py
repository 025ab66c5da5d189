"""What is said of a name that stands for nothing: where it is, what it is called here, what is near."""

from __future__ import annotations

import math

from difflang.base.codes import nearest
from difflang.base.source import Span
from difflang.elaborate.builtins import BUILTINS, TRANSFORMS
from difflang.elaborate.context import Context

HOST_ONLY = {
    **dict.fromkeys(
        ("load", "read_csv", "read_npy", "read_npz", "read_safetensors", "read_json"),
        "read at the top level, and pass the array as an argument",
    ),
    **dict.fromkeys(
        ("save", "write_csv", "write_npy", "write_npz", "write_safetensors", "write_json"),
        "give the value back, and write it from host statements",
    ),
    **dict.fromkeys(("plot", "scatter", "histogram", "image"), "give the numbers back, and draw from host statements"),
    "arg": "ask at the top level, and pass the value; the angle of a complex number is `angle(z)`",
    "clock": "time the call in host statements",
    "progress": "it stands in the head of a host loop: `for i in progress(0..100) { … }`",
}
PACKAGES = ("np", "numpy", "jnp", "jax", "torch", "math", "tf")
ELSEWHERE = {
    "len": "the size of an axis is a name in the type: `x: f32[n]` makes `n` a number",
    "range": "a range is written `0..n`",
    "None": "a function without a result gives `()`",
    "True": "it is written `true`",
    "False": "it is written `false`",
    "arange": "write `iota(n)`",
    "matmul": "write `x @ y`",
    "power": "write `x ^ y`",
    "pow": "write `x ^ y`",
    "maximum": "write `max(x, y)`",
    "minimum": "write `min(x, y)`",
    "clip": "write `clamp(x, low, high)`",
    "concatenate": "write `concat(x, y)`",
    "float": "convert with the type's name: `f32(x)`",
    "int": "convert with the type's name: `i32(x)`",
    **dict.fromkeys(("re", "Re"), "the real part is `real(z)`"),
    **dict.fromkeys(("im", "Im"), "the imaginary part is `imag(z)`; the imaginary unit is written `1j`"),
}
CONSTANTS = {"pi": math.pi, "e": math.e, "inf": math.inf, "nan": math.nan}


def unknown_name(cx: Context, id: str, span: Span) -> Exception:
    if id in TRANSFORMS:
        return cx.error("DL0205", f"`{id}` is applied to a function: `{id}(f)`", span)
    module = cx.module
    if id in module.modules:
        return cx.error("DL0201", f"`{id}` is a module, not a value", span, "", f"name something in it: `{id}.…`")
    prelude = module.prelude.fns if module.prelude is not None else {}
    known = [
        *cx.scope.visible(),
        *module.host,
        *module.fns,
        *module.records,
        *module.imported,
        *module.modules,
        *prelude,
        *BUILTINS,
        *TRANSFORMS,
        *CONSTANTS,
    ]
    near = nearest(id, known)
    way = f"did you mean `{near}`?" if near else ""
    if id in HOST_ONLY:
        return cx.error("DL0322", f"`{id}` is for the host: a function cannot use it", span, "", HOST_ONLY[id])
    if id in PACKAGES:
        way = f"there are no packages: the functions of `{id}` that exist stand alone, as in `sum(x)`"
    return cx.error("DL0201", f"there is no `{id}` here", span, "", ELSEWHERE.get(id, way))
