"""How many operations on numbers a function and its gradient take, as formulas in the sizes. Nothing is run.

What is counted is the graph after the passes, op by op as each declares it; what only moves numbers counts nothing.
XLA fuses these and adds none, so the two formulas compare well; they are no times.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from difflang.ad.expand_derivatives import differentiate
from difflang.base.diagnostics import DifflangError
from difflang.base.source import Source
from difflang.driver.check_and_run import Checked
from difflang.driver.elaborate_call import elaborated
from difflang.elaborate.context import Session
from difflang.elaborate.recorded_types import Notes
from difflang.ir import symbolic_dims
from difflang.ir.graph import Eqn, Graph, Value, inner_first
from difflang.ir.op import TypeMismatch
from difflang.ir.symbolic_dims import Dim, UnknownSize
from difflang.ir.tensor_types import Tensor
from difflang.ops.control.print_effect import printing
from difflang.passes.pipelines import optimize, tidied
from difflang.passes.substitute_dims import sized
from difflang.syntax import tree
from difflang.tools.derive.derive import Asked, Options
from difflang.types.function_code import FnCode
from difflang.types.language_types import ClosureType
from difflang.types.type_errors import Undecided

MOST_TERMS = 6  # of a formula that is shown whole
MOST = 2000  # equations: who points at a name does not wait for more
TYPICAL = 100  # stands for every size where two formulas are compared


class Cost(Struct, frozen=True):
    """How many operations, or bytes, and whether there are loops of unknown length, of which one step is counted."""

    count: Dim
    per_step: bool = False

    def __str__(self) -> str:
        """As a formula of the language; of a long one the terms of the highest degree."""
        terms = symbolic_dims.terms_of(self.count)
        if len(terms) > MOST_TERMS:
            degree = max(len(monomial) for monomial, _ in terms)
            terms = tuple([term for term in terms if len(term[0]) == degree][:MOST_TERMS])
        texts = [f"{count:,}" if not monomial else product(count, monomial) for monomial, count in terms]
        return " + ".join(texts or ["0"]).replace("+ -", "- ") + (" + …" if len(terms) < self.length else "")

    @property
    def length(self) -> int:
        return len(symbolic_dims.terms_of(self.count))


def product(count: int, monomial: symbolic_dims.Monomial) -> str:
    """`2*n^3`."""
    powers = Counter(map(symbolic_dims.grouped_atom, monomial))
    texts = [name if power == 1 else f"{name}^{power}" for name, power in powers.items()]
    return "*".join([str(count)] * (count != 1) + texts)


def costs(checked: Checked, decl: tree.Fn, pause: Callable[[], None]) -> tuple[Cost, Cost] | None:
    """What the function takes, and what its gradient in the first parameter takes.

    None where that depends on more than its sizes' names, or is long. Errors: what `pause` raises, at any step.
    """
    asked = Asked(checked, decl, Options())
    session = Session(notes=Notes(Source("", ""), pause))
    try:
        module = checked.module
        asked.arguments = asked.taken()
        function = ClosureType(FnCode(decl, module), ())
        plain = prepared(elaborated(session, module, decl.name, function, asked.arguments).graph)
        if length(plain) > MOST:
            return None
        pause()
        gradient = differentiate(prepared(asked.entry(session).graph))
        pause()
        return None if length(gradient) > MOST else (counted(optimize(plain)), counted(optimize(gradient)))
    except (DifflangError, Undecided, TypeMismatch, UnknownSize):
        return None


def prepared(graph: Graph) -> Graph:
    return tidied(sized(printing(graph), symbolic_dims.name))


def length(graph: Graph) -> int:
    return sum(len(inner.eqns) for inner in inner_first(graph)[0])


def counted(graph: Graph, of_one: Callable[[Eqn], Dim] | None = None) -> Cost:
    """The operations of a graph, or what else there is `of_one` equation, regions as often as they are run.

    Of several ways the longest counts.
    """
    of_one = of_one or own
    done: dict[Graph, Cost] = {}
    for inner in inner_first(graph)[0]:
        total, per_step = 0, False
        for eqn in inner.eqns:
            cost = inside(eqn, [done[region] for region in eqn.regions]) if eqn.regions else Cost(of_one(eqn))
            total, per_step = total + cost.count, per_step or cost.per_step
        done[inner] = Cost(total, per_step)
    return done[graph]


def inside(eqn: Eqn, regions: list[Cost]) -> Cost:
    """What an equation with regions takes: a loop all of them in each step, anything else one of them."""
    once = max(regions, key=lambda cost: typical(cost.count))
    if eqn.op.layout is None or not eqn.op.layout(eqn).repeats:
        return Cost(once.count, any(cost.per_step for cost in regions))
    step: Dim = 0
    for cost in regions:
        step = step + cost.count
    times: Dim | None = eqn.attrs["length"] if eqn.attrs.get("exact", True) else None
    return Cost(step * (1 if times is None else times), times is None or any(cost.per_step for cost in regions))


def typical(dim: Dim) -> int:
    found = symbolic_dims.substitute(dim, lambda _: TYPICAL)
    assert isinstance(found, int)
    return found


def own(eqn: Eqn) -> Dim:
    """What an equation without regions takes: as its op declares; else one an element, and nothing for a move."""
    op = eqn.op
    if op.cost is not None:
        return whole(op.cost(*[v.type for v in eqn.operands], **eqn.attrs))
    if op.carries or op.effect or not eqn.operands:
        return 0
    total: Dim = 0
    for result in eqn.results:
        elements: Dim = 1
        for size in result.type.shape if isinstance(result.type, Tensor) else ():
            elements = elements * size
        total = total + elements
    return total


def whole(count: Any) -> Dim:
    """A count as NumPy multiplies it, as a size."""
    return count if isinstance(count, symbolic_dims.Poly) else int(count)


def touched(eqn: Eqn) -> Dim:
    """The bytes that an equation without regions reads and writes, if nothing of it is fused with others.

    Of an array that it looks things up in, or changes at some places, these places alone.
    """
    op, results = eqn.op, sum(map(bytes_of, eqn.results))
    if op.effect or not eqn.operands:
        return 0
    rest = [bytes_of(v) for v in dict.fromkeys(eqn.operands[1:])]
    if op.updates:
        return sum(rest) + 2 * max(rest, default=0)
    if op.looks_up or (op.window is not None and op.window(eqn) is not None):
        return sum(rest) + 2 * results
    return sum(map(bytes_of, dict.fromkeys(eqn.operands))) + results


def bytes_of(value: Value) -> int:
    """How many an array has whose sizes are numbers; what a loop saves is counted where it is read and written."""
    return value.type.bytes if isinstance(value.type, Tensor) else 0


__all__ = ["Cost", "costs", "counted", "touched"]
