"""What is said of functions that are not linear where they should be."""

from __future__ import annotations

from difflang.analysis.linearity import Fault, NotLinear
from difflang.base.diagnostics import DifflangError
from difflang.base.source import Span
from difflang.elaborate.reports.op_messages import spelled
from difflang.elaborate.terms import Array, Closure, Opaque, Term, type_of
from difflang.ir.graph import Eqn
from difflang.ir.tensor_types import Tensor
from difflang.syntax import tree
from difflang.syntax.tree_queries import last
from difflang.types.function_code import LambdaCode
from difflang.types.language_types import show_type
from difflang.types.type_errors import mistake


def parameters(decl: tree.Lambda) -> str:
    return ", ".join(p.pattern.span.text for p in decl.params)


def not_linear(fault: NotLinear, decl: tree.Lambda) -> DifflangError:
    """The step of a lambda that is not linear."""
    if not decl.params:
        way = "name what it is linear in, as in `linear |dx| 2.0 * dx`"
        return mistake("DL1101", "this is linear in nothing", (decl.span, "it takes nothing"), help=way)
    names = parameters(decl)
    place = fault.eqn.span if fault.eqn is not None and fault.fault is not Fault.RESULT else last(decl.body).span
    if not place.text:
        place = last(decl.body).span
    labels = [(place, step(fault, names))]
    if not decl.span.holds(place):
        outer = fault.outer.span if fault.outer is not None else decl.span
        labels.append((outer if outer.text else decl.span, "reached from here"))
    labels.append((decl.params[0].span.to(decl.params[-1].span), "linear in this"))
    return mistake("DL1101", f"this is not linear in `{names}`", *labels, help=way_out(fault, names))


def step(fault: NotLinear, names: str) -> str:
    """What is wrong with it."""
    match fault.fault:
        case Fault.FUNCTION:
            return function_step(fault.eqn, fault.operand, names)
        case Fault.PRODUCT:
            return f"both factors depend on `{names}`"
        case Fault.OFFSET:
            return f"part of this depends on `{names}`, and part is a value of its own"
        case Fault.CONDITION:
            return f"{made(fault.eqn)} is made of `{names}`"
        case Fault.CHOICE:
            return f"this depends on `{names}` on one path, and on another it is a value of its own"
        case Fault.RESULT:
            return f"this does not depend on `{names}`, and is not zero"


def made(eqn: Eqn | None) -> str:
    """What an equation makes that has no tangent."""
    integer = eqn is not None and isinstance(t := eqn.results[0].type, Tensor) and t.dtype.is_integer
    return "an integer" if integer else "a condition"


def function_step(eqn: Eqn | None, operand: int | None, names: str) -> str:
    name = spelled(eqn.op.name) if eqn is not None else "this"
    if name == "/" and operand == 1:
        return f"this divides by what depends on `{names}`"
    if name == "recur":
        return "this calls the function that it stands in, and a call of that is not known to be linear"
    return f"`{name}` is not linear in what depends on `{names}`"


def way_out(fault: NotLinear, names: str) -> str:
    if fault.fault in (Fault.OFFSET, Fault.RESULT):
        return f"leave out what does not depend on `{names}`: a linear function is zero at zero"
    if fault.fault is Fault.CONDITION:
        return "decide before, by a value from outside the lambda"
    return f"the change of a function f along `{names}` is `jvp(f)(x, {names})`; its second item is linear"


def not_a_vector(decl: tree.Lambda, found: str, span: Span) -> DifflangError:
    message = f"a linear function takes what can be scaled and added, not {found}"
    way = "take it from outside the lambda"
    applied = [] if span == decl.span else [(span, "")]
    return mistake("DL1101", message, (decl.params[0].span, f"given {found}"), *applied, help=way)


def plain_function(term: Term, span: Span, message: str) -> DifflangError:
    """A function that nobody has proved to be linear, where a linear one is asked for."""
    if not isinstance(term, (Closure, Opaque)):
        return mistake(
            "DL1102", message, (span, f"this is {show_type(type_of(term))}"), help=of_matrix(term, span, linear=True)
        )
    text = span.text
    written = f"linear {text}" if text.startswith("|") and "\n" not in text else f"linear |dx| {called(text)}(dx)"
    way = f"write `{written}`: then it is checked"
    return mistake("DL1102", message, (span, "this is not declared linear"), help=way)


def of_matrix(term: Term, span: Span, *, linear: bool) -> str:
    """How a matrix is a function."""
    if not isinstance(term, Array) or len(term.tensor.shape) != 2:
        return ""
    matrix = span.text if span.text.isidentifier() else f"({span.text})"
    return f"the product with a matrix is `{'linear ' * linear}|v| {matrix} @ v`"


def called(text: str) -> str:
    return text if text.isidentifier() else "f"


def unknown_domain(code: LambdaCode, span: Span) -> DifflangError:
    names = parameters(code.decl)
    message = "a linear function is turned round by what it takes, and nobody says that"
    return mistake(
        "DL1103",
        message,
        (span, ""),
        (code.decl.span, f"the type of `{names}` is not written"),
        help=f"write it: `linear |{names}: f32[n]| …`",
    )
