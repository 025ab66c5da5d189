"""A call of a function whose graph is not there yet, since it stands in that graph or in one that it calls.

It is in no registry and in no finished graph: when a group of functions that call each other is complete,
`passes.machine` makes one loop of it. A derivative cannot be taken before that.
"""

from __future__ import annotations

from typing import Any, NoReturn

from difflang.base.diagnostics import Diagnostic, DifflangError, InternalError, Label
from difflang.base.source import Span
from difflang.ir.graph import Eqn
from difflang.ir.op import Op, Solver
from difflang.ir.types import Tensor, Type


def recur_type(same: Solver, *types: Type, results: tuple[Tensor, ...], function: int, word: bool) -> tuple[Type, ...]:
    return results


def unfinished(*_: Any, **__: Any) -> NoReturn:
    raise InternalError("a function that calls itself was not made a loop of")


def not_alone(span: Span, what: str) -> DifflangError:
    """A call that stands where the function cannot be left and entered again. Errors: DL0801."""
    way = "call it outside, and pass its value on"
    return DifflangError(Diagnostic("DL0801", f"{what} is not there yet", (Label(span, "this calls it"),), (way,)))


def underived(ad: Any, eqn: Eqn, *_: Any) -> NoReturn:
    raise not_alone(eqn.span, "the derivative of a function that calls itself, taken inside it,")


recur = Op(
    "recur",
    recur_type,
    unfinished,
    unfinished,
    linearize=underived,
    transpose_region=underived,
    doc="""recur(*arguments, *failure): the results of function number `function` of the group that is being made.
    With `word` the last three operands are the failure so far: where there is one, nothing is called.""",
)
