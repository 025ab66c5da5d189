"""The `recur` op: a recursive call, of a function whose graph is not complete yet.

It is in no registry and in no finished graph: when a group of mutually recursive functions is complete,
`recursion.stack_machine` makes one loop of it. It cannot be differentiated before that.
"""

from __future__ import annotations

from typing import NoReturn

from difflang.base.diagnostics import Diagnostic, DifflangError, InternalError, Label
from difflang.base.source import Span
from difflang.ir.graph import Eqn
from difflang.ir.op import EquationRules, Op, TypeSolver
from difflang.ir.tensor_types import Tensor, Type
from difflang.ops.ad_interface import Ad


def recur_type(
    same: TypeSolver, *types: Type, results: tuple[Tensor, ...], function: int, word: bool
) -> tuple[Type, ...]:
    return results


def reject_unfinished(*_: object, **__: object) -> NoReturn:
    raise InternalError("a recursive call was not turned into a loop")


def recursion_in_rule_error(span: Span) -> DifflangError:
    """A recursive call inside the function's own derivative rule. Errors: DL1108."""
    message = "a function calls itself inside a rule, but a rule cannot be suspended and resumed"
    fix = "call it outside, and pass its value in"
    return DifflangError(Diagnostic("DL1108", message, (Label(span, "this calls it"),), (fix,)))


def recursion_in_derivative_error(span: Span) -> DifflangError:
    """A recursive call inside a derivative of the same function. Errors: DL0410."""
    message = "a function calls itself inside a derivative: the order of the derivative is known only at run time"
    fixes = "call it outside the derivative, and pass its value in", "let a size, `n: dim`, determine the depth"
    return DifflangError(Diagnostic("DL0410", message, (Label(span, "this calls it"),), fixes))


def recursion_in_checkpoint_error(span: Span) -> DifflangError:
    """A recursive call in what reverse mode should recompute, a block or the steps of a loop. Errors: DL0801."""
    message = "a function calls itself inside a `checkpoint`: this is not implemented yet"
    fixes = (
        "call it outside the block or loop, and pass its value in",
        "`checkpoint` around the first call, outside the function, recomputes all of it",
    )
    return DifflangError(Diagnostic("DL0801", message, (Label(span, "this calls it"),), fixes))


def reject_derivative(ad: Ad, eqn: Eqn, *_: object) -> NoReturn:
    raise recursion_in_derivative_error(eqn.span)


recur = Op(
    "recur",
    recur_type,
    reject_unfinished,
    reject_unfinished,
    derivative=EquationRules(linearize=reject_derivative, transpose=reject_derivative),
    doc="""recur(*arguments, *failure): the results of function number `function` of the group that is being made.
    With `word` the last three operands are the failure so far: where there is one, nothing is called.""",
)
