"""Reports of unknown names: suggestions, imports that would define them, equivalents of other languages' names."""

from __future__ import annotations

import math
import re

from difflang.base.diagnostics import Fix
from difflang.base.fixes import did_you_mean
from difflang.base.fixes import replacement_fix as written
from difflang.base.package_data import stdlib_module_of_name, stdlib_modules, stdlib_modules_of_name
from difflang.base.source import Span
from difflang.elaborate.calls.builtin_registry import BUILTINS, TRANSFORM_NAMES
from difflang.elaborate.context import ElabContext
from difflang.syntax import tree
from difflang.syntax.import_fixes import add_module_import, add_name_import
from difflang.types.module_name_errors import OTHER_NAMES
from difflang.types.module_scope import ModuleScope
from difflang.types.type_errors import make_error

CONSTANTS = {"pi": math.pi, "e": math.e, "inf": math.inf, "nan": math.nan}


def unknown_name_error(cx: ElabContext, id: str, span: Span) -> Exception:
    if id in TRANSFORM_NAMES:
        return cx.error("DL0205", f"`{id}` takes a function: `{id}(f)`", span)
    module = cx.module
    if id in module.modules:
        return cx.error(
            "DL0201", f"`{id}` is a module, not a value", span, "", f"name something from the module: `{id}.…`"
        )
    prelude = module.prelude.fns if module.prelude is not None else {}
    known = [
        *cx.scope.visible_names(),
        *module.host,
        *module.fns,
        *module.records,
        *module.variants,
        *module.imported,
        *module.modules,
        *prelude,
        *BUILTINS,
        *TRANSFORM_NAMES,
        *CONSTANTS,
    ]
    way, fixes = did_you_mean(id, known, span)
    if not fixes:
        way = library_name_help(id) or way
    if id in HOST_ONLY_NAMES:
        return cx.error(
            "DL0322", f"`{id}` is a host function: compiled functions cannot use it", span, "", HOST_ONLY_NAMES[id]
        )
    if isinstance(enum := module.records.get(id), tree.Enum):
        names = ", ".join(v.name for v in enum.variants)
        return cx.error(
            "DL0201", f"`{id}` is an enum, not a value", span, "", f"write a variant without the enum: {names}"
        )
    # A known foreign name: the spelling suggestion would mislead.
    if id in PACKAGE_NAMES or substitute_for(id):
        fixes = equivalent_name_fixes(id, module, span)
    if id in PACKAGE_NAMES and (alone := drop_package_prefix(span)):
        fixes = alone
    if id in PACKAGE_NAMES:
        way = f"there are no packages: call functions of `{id}` that exist in difflang directly, as in `sum(x)`"
    if id in stdlib_modules():
        alone = ", but `sin`, `sqrt` and similar functions need no import" if id == "math" else ""
        way = f"it is a module of the standard library: `import {id}`{alone}"
        fixes = (*drop_package_prefix(span), add_module_import(span.source, id))
    if refers_to_own_lambda(id, span):
        way, fixes = f"a lambda cannot call itself: declare `fn {id}(…) -> … {{ … }}` in its place", ()
    if bound := top_level_binding(id, span):
        way = "bind it above what uses it: statements, functions, and host functions that call these"
        return make_error("DL0201", f"`{id}` is not bound yet here", (span, ""), (bound, "bound here"), help=way)
    return cx.error("DL0201", f"there is no `{id}` here", span, "", substitute_for(id) or way, fixes)


def top_level_binding(id: str, span: Span) -> Span | None:
    """Where the file binds a name that is not bound yet at `span`; None if it does not, or in the same statement."""
    text = span.source.text
    found = re.search(rf"^(?:pub[ \t]+)?(?:let|var)[ \t][^=\n]*\b({id})\b[^=\n]*=", text, re.MULTILINE)
    # A statement goes on in lines that begin with a space or a bracket.
    if found is None or (found.start() <= span.start and not re.search(r"\n\w", text[found.start() : span.start])):
        return None
    return Span(span.source, *found.span(1))


def refers_to_own_lambda(id: str, span: Span) -> bool:
    """Whether a name is used in the lambda that it is bound to: on the same line, or within its braces."""
    text = span.source.text[: span.start]
    bound = list(re.finditer(rf"\b(?:let|var)[ \t]+{id}\b[^=\n]*=[ \t]*\|", text))
    inside = text[bound[-1].end() :] if bound else "\n"
    return "\n" not in inside or inside.count("{") > inside.count("}")


def is_language_name(module: ModuleScope, name: str) -> bool:
    """Whether a name is a built-in, an operator, a constant or in the prelude."""
    prelude = module.prelude.fns if module.prelude is not None else {}
    return name in BUILTINS or name in TRANSFORM_NAMES or name in CONSTANTS or name in prelude


MEMBER_ACCESS = re.compile(r"\.([A-Za-z_]\w*)\b(?!\.)")
# Names of other languages with an exact equivalent.
EQUIVALENT_NAMES = {
    "True": "true",
    "False": "false",
    "arange": "iota",
    "clip": "clamp",
    "concatenate": "concat",
    "maximum": "max",
    "minimum": "min",
    "ln": "log",
    "re": "real",
    "Re": "real",
    "im": "imag",
    "Im": "imag",
}


def drop_package_prefix(span: Span) -> tuple[Fix, ...]:
    """A fix from `np.sum` to `sum`, if there is such a function."""
    member = MEMBER_ACCESS.match(span.source.text, span.end)
    name = EQUIVALENT_NAMES.get(member[1], member[1]) if member is not None else ""
    if member is None or (name not in BUILTINS and name not in CONSTANTS):
        return ()
    return (written(Span(span.source, span.start, member.end()), name),)


def equivalent_name_fixes(id: str, module: ModuleScope, span: Span) -> tuple[Fix, ...]:
    """Fixes for a name that another language or one module of the standard library has."""
    if id in EQUIVALENT_NAMES:
        return (written(span, EQUIVALENT_NAMES[id]),)
    (home, *others) = stdlib_modules_of_name().get(id, ("",))
    if not home or others:
        return ()
    for qualifier, imported in module.modules.items():
        if imported.name == home and imported.source.library:
            return (written(span, f"{qualifier}.{id}"),)
    return add_name_import(span, id)


def transform_argument_help(operator: str) -> str:
    """The help for extra arguments beside the function of a transform."""
    if operator == "vmap":
        return "`vmap` maps over the first axis of all its arguments; capture the others: `vmap(|x| f(x, y))(xs)`"
    return f"write the parameter of the derivative in brackets: `{operator}[x](f)`"


def derivative_of_call_help(operator: str, e: tree.Expr) -> str:
    """The help for `grad(f(x))`, where a call stands in place of the function."""
    if not isinstance(e, tree.Call) or "\n" in e.span.text:
        return ""
    call = f"{operator}({e.fn.span.text})({', '.join(a.span.text for a in e.args)})"
    return f"apply the operator to the function, not to its value: `{call}`"


def hidden_builtin_help(cx: ElabContext, decl: tree.Fn) -> str:
    """The help for a call of a function of this file, or imported into it, that hides a built-in function; or ""."""
    name, module = decl.name, cx.module
    prelude = module.prelude.fns if module.prelude is not None else {}
    if name not in BUILTINS and name not in HOST_ONLY_NAMES and name not in prelude:
        return ""
    if module.fns.get(name) is decl and prelude.get(name) is not decl:
        return f"this function hides the built-in `{name}`: give it another name to call that one"
    if name in module.imported:
        return f"the imported `{name}` hides the built-in one: import the module alone, and write `module.{name}(…)`"
    return ""


# ---- Names of other languages


READING = "load read_csv read_npy read_npz read_safetensors read_json read_parquet read_arrow"
OPENING = "open_npy open_parquet open_arrow"
WRITING = "save write_csv write_npy write_npz write_safetensors write_json write_parquet write_arrow"
HOST_ONLY_NAMES = {
    **dict.fromkeys(
        (*READING.split(), *OPENING.split()), "read the file at the top level, and pass the array as an argument"
    ),
    **dict.fromkeys(WRITING.split(), "return the value, and write it from host statements"),
    **dict.fromkeys(
        ("plot", "scatter", "histogram", "image"), "return the numbers, and plot them from host statements"
    ),
    "arg": "call it at the top level, and pass the value; the angle of a complex number is `angle(z)`",
    "codes": "call it in host statements, and pass the numbers",
    "clock": "measure the time of the call in host statements",
    "batches": "use it in the header of a host loop: `for batch in batches(x, 256) { … }`",
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
