"""What is said of a name that stands for nothing: where it is, what it is called here, what is near."""

from __future__ import annotations

import math
import re

from difflang.base.diagnostics import Fix
from difflang.base.fixes import instead as written
from difflang.base.fixes import meant
from difflang.base.package_data import stdlib_homes, stdlib_modules
from difflang.base.source import Span
from difflang.elaborate.calls.builtin_functions import BUILTINS, TRANSFORMS
from difflang.elaborate.context import Context
from difflang.elaborate.reports.foreign_names import HOST_ONLY, PACKAGES, instead
from difflang.syntax import tree
from difflang.syntax.import_fixes import module_imported, name_imported
from difflang.types.module_scope import Module

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
        *module.variants,
        *module.imported,
        *module.modules,
        *prelude,
        *BUILTINS,
        *TRANSFORMS,
        *CONSTANTS,
    ]
    way, fixes = meant(id, known, span)
    if id in HOST_ONLY:
        return cx.error("DL0322", f"`{id}` is for the host: a function cannot use it", span, "", HOST_ONLY[id])
    if isinstance(enum := module.records.get(id), tree.Enum):
        names = ", ".join(v.name for v in enum.variants)
        return cx.error("DL0201", f"`{id}` is an enum, not a value", span, "", f"its variants stand alone: {names}")
    if id in PACKAGES or instead(id):
        fixes = elsewhere(id, module, span)
    if id in PACKAGES and (alone := without_package(span)):
        fixes = alone
    if id in PACKAGES:
        way = f"there are no packages: the functions of `{id}` that exist stand alone, as in `sum(x)`"
    if id in stdlib_modules():
        alone = ", but `sin`, `sqrt` and the like stand alone" if id == "math" else ""
        way = f"it is a module of the standard library: `import {id}`{alone}"
        fixes = (*without_package(span), module_imported(span.source, id))
    if in_its_own_lambda(id, span):
        way, fixes = f"a lambda does not call itself: declare it, `fn {id}(…) -> … {{ … }}`, where it stands", ()
    return cx.error("DL0201", f"there is no `{id}` here", span, "", instead(id) or way, fixes)


def in_its_own_lambda(id: str, span: Span) -> bool:
    """Whether a name is used in the lambda that it is bound to: on its line, or in its braces."""
    text = span.source.text[: span.start]
    bound = list(re.finditer(rf"\b(?:let|var)[ \t]+{id}\b[^=\n]*=[ \t]*\|", text))
    inside = text[bound[-1].end() :] if bound else "\n"
    return "\n" not in inside or inside.count("{") > inside.count("}")


def stands_alone(module: Module, name: str) -> bool:
    """Whether a name that a program looks for in a module is one of the language."""
    prelude = module.prelude.fns if module.prelude is not None else {}
    return name in BUILTINS or name in TRANSFORMS or name in CONSTANTS or name in prelude


# Names of other languages for which one text stands that means the same.
MEMBER = re.compile(r"\.([A-Za-z_]\w*)\b(?!\.)")
SAME = {
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


def without_package(span: Span) -> tuple[Fix, ...]:
    """`sum` for `np.sum`, where there is such a function."""
    member = MEMBER.match(span.source.text, span.end)
    name = SAME.get(member[1], member[1]) if member is not None else ""
    if member is None or (name not in BUILTINS and name not in CONSTANTS):
        return ()
    return (written(Span(span.source, span.start, member.end()), name),)


def elsewhere(id: str, module: Module, span: Span) -> tuple[Fix, ...]:
    """What to write for a name that another language has, or a module of the library."""
    if id in SAME:
        return (written(span, SAME[id]),)
    (home, *others) = stdlib_homes().get(id, ("",))
    if not home or others:
        return ()
    for qualifier, imported in module.modules.items():
        if imported.name == home and imported.source.library:
            return (written(span, f"{qualifier}.{id}"),)
    return name_imported(span, id)


def beside_function(operator: str) -> str:
    """Where that belongs which is written beside the function that is transformed."""
    if operator == "vmap":
        return "it goes along the first axis of all that it is given; the rest is captured: `vmap(|x| f(x, y))(xs)`"
    return f"what it is taken in stands in brackets: `{operator}[x](f)`"


def called_too_soon(operator: str, e: tree.Expr) -> str:
    """How a derivative is written where a function was called in its place."""
    if not isinstance(e, tree.Call) or "\n" in e.span.text:
        return ""
    return f"a derivative is of the function: `{operator}({e.fn.span.text})({', '.join(a.span.text for a in e.args)})`"
