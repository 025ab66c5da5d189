"""Reports of functions that are not linear, or not proved linear, where they must be."""

from __future__ import annotations

from difflang.analysis.linearity import LinearityFault, NotLinear
from difflang.base.diagnostics import DifflangError
from difflang.base.source import Span
from difflang.elaborate.reports.op_messages import surface_name
from difflang.elaborate.terms import Array, Closure, OpaqueTerm, Term, type_of
from difflang.ir.graph import Eqn
from difflang.ir.tensor_types import Tensor
from difflang.syntax import tree
from difflang.syntax.tree_queries import body_value
from difflang.types.function_code import LambdaCode
from difflang.types.language_types import show_type
from difflang.types.type_errors import make_error


def lambda_parameter_names(decl: tree.Lambda) -> str:
    return ", ".join(p.pattern.span.text for p in decl.params)


def not_linear_error(fault: NotLinear, decl: tree.Lambda) -> DifflangError:
    """The report of a lambda with a nonlinear step."""
    if not decl.params:
        way = "name the linear parameter, as in `linear |dx| 2.0 * dx`"
        return make_error(
            "DL1101",
            "this lambda has no parameter to be linear in",
            (decl.span, "this lambda has no parameters"),
            help=way,
        )
    names = lambda_parameter_names(decl)
    place = (
        fault.eqn.span
        if fault.eqn is not None and fault.fault is not LinearityFault.RESULT
        else body_value(decl.body).span
    )
    # Equations that a pass or derivative created have no source text.
    if not place.text:
        place = body_value(decl.body).span
    labels = [(place, nonlinear_step(fault, names))]
    # The nonlinear step is in a called function: also show the call inside the lambda.
    if not decl.span.contains(place):
        outer = fault.outer.span if fault.outer is not None else decl.span
        labels.append((outer if outer.text else decl.span, "called from here"))
    labels.append((decl.params[0].span.to(decl.params[-1].span), "linear in this parameter"))
    return make_error("DL1101", f"this is not linear in `{names}`", *labels, help=linearity_help(fault, names))


def nonlinear_step(fault: NotLinear, names: str) -> str:
    """The label of a nonlinear step."""
    match fault.fault:
        case LinearityFault.FUNCTION:
            return nonlinear_function_step(fault.eqn, fault.operand, names)
        case LinearityFault.PRODUCT:
            return f"both factors depend on `{names}`"
        case LinearityFault.OFFSET:
            return f"one part of this depends on `{names}`, and another part does not"
        case LinearityFault.CONDITION:
            return f"{untangented_result(fault.eqn)} depends on `{names}`"
        case LinearityFault.CHOICE:
            return f"this depends on `{names}` on one path, but not on the other"
        case LinearityFault.RESULT:
            return f"this does not depend on `{names}`, but is not zero"


def untangented_result(eqn: Eqn | None) -> str:
    """The name for an equation's result without a tangent."""
    integer = eqn is not None and isinstance(t := eqn.results[0].type, Tensor) and t.dtype.is_integer
    return "an integer" if integer else "a condition"


def nonlinear_function_step(eqn: Eqn | None, operand: int | None, names: str) -> str:
    name = surface_name(eqn.op.name) if eqn is not None else "this"
    if name == "/" and operand == 1:
        return f"this divides by a value that depends on `{names}`"
    if name == "recur":
        return "this function calls itself, and the call is not known to be linear"
    return f"`{name}` is not linear in values that depend on `{names}`"


def linearity_help(fault: NotLinear, names: str) -> str:
    if fault.fault in (LinearityFault.OFFSET, LinearityFault.RESULT):
        return f"remove the part that does not depend on `{names}`: a linear function is zero at zero"
    if fault.fault is LinearityFault.CONDITION:
        return "make this decision with a value from outside the lambda"
    return f"the derivative of a function f along `{names}` is `jvp(f)(x, {names})`; its second item is linear"


def not_a_vector_error(decl: tree.Lambda, found: str, span: Span) -> DifflangError:
    message = f"a linear function takes values that can be scaled and added, not {found}"
    way = "take it from outside the lambda"
    applied = [] if span == decl.span else [(span, "")]
    return make_error("DL1101", message, (decl.params[0].span, f"passed {found}"), *applied, help=way)


def not_proved_linear_error(term: Term, span: Span, message: str) -> DifflangError:
    """The report of a function not proved linear where a linear one is required."""
    if not isinstance(term, (Closure, OpaqueTerm)):
        return make_error(
            "DL1102",
            message,
            (span, f"this is {show_type(type_of(term))}"),
            help=matrix_function_help(term, span, linear=True),
        )
    text = span.text
    written = f"linear {text}" if text.startswith("|") and "\n" not in text else f"linear |dx| {name_or_f(text)}(dx)"
    way = f"write `{written}`, and difflang checks that it is linear"
    return make_error("DL1102", message, (span, "this is not declared linear"), help=way)


def matrix_function_help(term: Term, span: Span, *, linear: bool) -> str:
    """The help for a matrix where a function is expected."""
    if not isinstance(term, Array) or len(term.tensor.shape) != 2:
        return ""
    matrix = span.text if span.text.isidentifier() else f"({span.text})"
    return f"the product with a matrix is `{'linear ' * linear}|v| {matrix} @ v`"


def name_or_f(text: str) -> str:
    return text if text.isidentifier() else "f"


def unknown_domain_error(code: LambdaCode, span: Span) -> DifflangError:
    names = lambda_parameter_names(code.decl)
    message = "to transpose a linear function, its parameter type must be known"
    return make_error(
        "DL1103",
        message,
        (span, ""),
        (code.decl.span, f"the type of `{names}` is not written"),
        help=f"declare it: `linear |{names}: f32[n]| …`",
    )


def unknown_variant_error(what: str, span: Span, way: str) -> DifflangError:
    """The report of a linear equation whose number of unknowns depends on a variant that only the run selects."""
    message = f"{what} contains an enum or a function whose variant is known only at run time"
    return make_error("DL1107", message, (span, "another variant has different numbers"), help=way)
