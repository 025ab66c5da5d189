"""Names from other languages and host-only functions, each with the help that says what to write instead."""

from __future__ import annotations

from difflang.base.package_data import stdlib_module_of_name
from difflang.types.module_name_errors import OTHER_NAMES

HOST_ONLY_NAMES = {
    **dict.fromkeys(
        ("load", "read_csv", "read_npy", "read_npz", "read_safetensors", "read_json"),
        "read the file at the top level, and pass the array as an argument",
    ),
    **dict.fromkeys(
        ("save", "write_csv", "write_npy", "write_npz", "write_safetensors", "write_json"),
        "return the value, and write it from host statements",
    ),
    **dict.fromkeys(
        ("plot", "scatter", "histogram", "image"), "return the numbers, and plot them from host statements"
    ),
    "arg": "call it at the top level, and pass the value; the angle of a complex number is `angle(z)`",
    "clock": "measure the time of the call in host statements",
    "progress": "use it in the header of a host loop: `for i in progress(0..100) { … }`",
}
PACKAGE_NAMES = ("np", "numpy", "jnp", "jax", "torch", "math", "tf")
SUBSTITUTES = {
    "len": "the size of an axis has a name in the type: `x: f32[n]` makes `n` a number",
    "range": "write a range as `0..n`",
    **dict.fromkeys(("None", "null", "nil"), "a function without a result returns `()`"),
    "str": 'interpolate the value into a text: `"{x}"`',
    **dict.fromkeys(("list", "array", "tensor"), "write an array as `[1.0, 2.0]` or `zeros(n)`"),
    "input": (
        'read values from the command line, `difflang run FILE:f --set x=2.0`, or from files: `read_csv("a.csv")`'
    ),
    "True": "write `true`",
    "False": "write `false`",
    "D": "a tangent has no literal: take it from a derivative, or use `zeros_like(x)`",
    "arange": "write `iota(n)`",
    "append": ("an array has a fixed size: `concat(x, [y])` makes a longer one, and `yield` in a loop adds one item"),
    **dict.fromkeys(("randn", "randint", "gauss"), "draw with `normal(n)`, `uniform(n)` or `permutation(n)`"),
    **dict.fromkeys(("rand", "random"), "draw with `uniform(n)`"),
    **dict.fromkeys(("ln", "logn"), "write `log(x)`"),
    **dict.fromkeys(("gammaln", "loggamma"), "write `lgamma(x)`"),
    "psi": "write `digamma(x)`",
    "einsum": "write a comprehension: `[for i, k => sum(for j => a[i, j] * b[j, k])]`",
    "type": "`difflang check` reports types where they do not fit; a declared one is checked: `let x: f32[n] = e`",
    "matmul": "write `x @ y`",
    "power": "write `x ^ y`",
    "pow": "write `x ^ y`",
    "maximum": "write `max(x, y)`",
    "minimum": "write `min(x, y)`",
    "clip": "write `clamp(x, low, high)`",
    "concatenate": "write `concat(x, y)`",
    "float": "convert with the type's name: `f32(x)`",
    "int": "convert with the type's name: `i32(x)`",
    **dict.fromkeys(("re", "Re"), "write `real(z)` for the real part"),
    **dict.fromkeys(("im", "Im"), "write `imag(z)` for the imaginary part and `1j` for the imaginary unit"),
}


def substitute_for(name: str) -> str | None:
    """The help for an unknown name: an import of the standard library, or what to write instead."""
    module = stdlib_module_of_name().get(name)
    return f"import it: `import {module} ({name})`" if module is not None else SUBSTITUTES.get(name)


def library_name_help(name: str) -> str:
    """The help for a name of another library that the standard library has by another name."""
    other = OTHER_NAMES.get(name, "")
    module = stdlib_module_of_name().get(other)
    return f"the library's name is `{other}`: `import {module} ({other})`" if module is not None else ""
