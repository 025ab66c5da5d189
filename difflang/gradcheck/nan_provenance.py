"""NaN provenance: finds the operation that made the first NaN or infinity that reaches a result.

The graph is interpreted, recording each operation that makes a non-finite number from finite ones. Then it runs again
with all such numbers made after some time replaced by ones. The earliest time with which a result is still not finite
is found by bisection. So a NaN that `where` leaves out, or an infinity that is divided by, is no fault.
`--check-nans` reports its source line.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from difflang.base.diagnostics import Diagnostic, DifflangError, Label
from difflang.ir.graph import Eqn, Graph, Value, graphs_postorder
from difflang.ir.interpreter import StepLimitExceeded, evaluate, evaluate_eqn, run_equations
from difflang.ops.control.map import map_
from difflang.ops.elementwise.roots_and_distances import positive
from difflang.ops.loop.loop_op import loop

FLOATS = "fcV"  # V is bfloat16
TOO_LONG = 4  # a rerun may take so many times the steps of the first: a replaced number may keep a loop running


class NonFiniteOrigin(Struct, frozen=True):
    """An operation that makes a non-finite number, its operands and result, and the index of the first such number.

    `steps` are the loops and maps around it, innermost last, with the number of the step in each, from 1.
    """

    eqn: Eqn
    operands: tuple[Any, ...]
    result: Any
    index: tuple[int, ...]
    steps: tuple[tuple[Eqn, int], ...]

    @property
    def value(self) -> Any:
        return self.result[self.index]

    def operand(self, number: int) -> Any:
        """The operand's number at that index; None if the result there depends on more than one of its numbers."""
        x = self.operands[number]
        if not isinstance(x, np.ndarray) or (x.shape and not self.eqn.op.elementwise):
            return None
        return x[self.index] if x.shape else x[()]


class NonFiniteRun:
    """One run in which non-finite numbers made after a time are replaced.

    With `nan_only` only NaN counts: made from infinities too, or given by a rule where no derivative exists.
    """

    def __init__(self, after: int | None = None, most: int | None = None, nan_only: bool = False) -> None:
        self.after, self.most, self.nan_only = after, most, nan_only
        self.time = 0
        self.origins: dict[int, NonFiniteOrigin] = {}
        self.of_rules: set[Value] = set()  # NaN constants of rules, which are not in the user's source
        self.enclosing: list[list[Any]] = []  # equations with regions, and the number of runs of the first region

    def run_graph(self, graph: Graph, *arrays: Any) -> list[Any]:
        if self.enclosing and self.enclosing[-1][0].regions[0] is graph:
            self.enclosing[-1][1] += 1
        return run_equations(graph, arrays, self.step)

    def step(self, eqn: Eqn, operands: list[Any]) -> list[Any]:
        self.time += 1
        if self.most is not None and self.time > self.most:
            raise StepLimitExceeded
        if eqn.regions:
            self.enclosing.append([eqn, 0])
            try:
                return evaluate_eqn(eqn, operands, run=self.run_graph)
            finally:
                self.enclosing.pop()
        found = evaluate_eqn(eqn, operands)
        if operands:
            return [self.record_or_replace(eqn, operands, x) for x in found]
        if self.nan_only and "nan" not in eqn.span.text and all(map(is_nan, found)):
            self.of_rules.update(eqn.results)
        return found

    def record_or_replace(self, eqn: Eqn, operands: list[Any], x: Any) -> Any:
        """A result, recorded or replaced where it is not finite but its operands are."""
        array = np.asarray(x)
        known = [y for v, y in zip(eqn.operands, operands, strict=True) if v not in self.of_rules]
        bad = newly_nonfinite(array, known, self.nan_only)
        if not bad.any():
            return x
        # By one, as zero would make new infinities by division.
        if self.after is not None and self.time > self.after:
            return np.where(bad, np.ones_like(array), array)
        place = tuple(int(i) for i in np.unravel_index(int(np.argmax(bad)), array.shape))
        enclosing = tuple((e, count) for e, count in self.enclosing if e.op in (loop, map_))
        self.origins.setdefault(self.time, NonFiniteOrigin(eqn, tuple(operands), array, place, enclosing))
        return x


def newly_nonfinite(x: Any, operands: Sequence[Any], nan_only: bool) -> Any:
    """Where a result is not finite but its operands are; with `nan_only`, where it is NaN and they are not."""
    # Operands of the same shape are compared element by element, others as a whole.
    if x.dtype.kind not in FLOATS or np.isfinite(x).all():
        return np.zeros(x.shape, bool)
    bad = np.isnan if nan_only else not_finite
    found = bad(x)
    for operand in operands:
        if isinstance(operand, np.ndarray) and operand.dtype.kind in FLOATS:
            had = bad(operand)
            found = found & ~(had if operand.shape in ((), x.shape) else had.any())
    return found


def is_nan(x: Any) -> bool:
    return isinstance(x, np.ndarray) and x.dtype.kind in FLOATS and bool(np.isnan(x).all() and x.size)


def not_finite(x: Any) -> Any:
    return ~np.isfinite(x)


def count_nonfinite(results: Sequence[Any]) -> int:
    """The number of non-finite numbers in results."""
    arrays = [np.asarray(r) for r in results if not isinstance(r, list)]
    return sum(int(not_finite(a).sum()) for a in arrays if a.dtype.kind in FLOATS)


def find_nonfinite_origin(graph: Graph, *arrays: Any) -> NonFiniteOrigin | None:
    """The first operation to blame for a non-finite result of a finished graph; None if there is none.

    Non-finite arguments and literals are no fault here, but an operation that makes NaN from them is.
    Cost: a logarithmic number of runs in the number of such operations.
    """
    with np.errstate(all="ignore"):
        return search_origin(graph, arrays, nan_only=False) or search_origin(graph, arrays, nan_only=True)


def search_origin(graph: Graph, arrays: Sequence[Any], nan_only: bool) -> NonFiniteOrigin | None:
    first = NonFiniteRun(nan_only=nan_only)
    first.run_graph(graph, *arrays)
    times = list(first.origins)

    def count_remaining(after: int) -> int:
        """The number of non-finite results if none is made after a time."""
        try:
            return count_nonfinite(NonFiniteRun(after, TOO_LONG * first.time, nan_only).run_graph(graph, *arrays))
        except StepLimitExceeded:
            return 0

    # What remains with every such number replaced comes from arguments and literals.
    least = count_remaining(0)
    if not times or count_remaining(times[-1]) <= least:
        return None
    # The later the time, the more non-finite numbers remain: so the first relevant time is found by bisection.
    low, high = 0, len(times) - 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if count_remaining(times[middle]) > least else (middle + 1, high)
    return first.origins[times[low]]


def find_nan_argument(graph: Graph, arrays: Sequence[Any]) -> tuple[Value, tuple[int, ...]] | None:
    """The first NaN in an argument from which a result is computed that is NaN: the param and the index in it.

    A result that only passes elements on, as in `print(x[1])`, does not count. Cost: a logarithmic number of runs in
    the number of such NaN.
    """
    passed = moved_values(graph)
    graph = graph.with_results([r for r in graph.results if r not in passed])
    places = [np.flatnonzero(np.isnan(x)) if x.dtype.kind in FLOATS else np.zeros(0, int) for x in arrays]

    def count_nan(kept: int) -> int:
        """The number of results that are NaN if all but the first NaN of the arguments are ones."""
        given = [x.copy() for x in arrays]
        for x, nan in zip(given, places, strict=True):
            np.put(x, nan[kept:], 1)
            kept = max(kept - len(nan), 0)
        with np.errstate(all="ignore"):
            found = [np.asarray(r) for r in evaluate(graph, *given) if not isinstance(r, list)]
        return sum(int(np.isnan(x).sum()) for x in found if x.dtype.kind in FLOATS)

    low, high = 0, sum(map(len, places))
    if not high or count_nan(high) <= (least := count_nan(0)):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if count_nan(middle) > least else (middle, high)
    for param, x, nan in zip(graph.params, arrays, places, strict=True):
        if low < len(nan):
            return param, tuple(int(i) for i in np.unravel_index(nan[low], x.shape))
        low -= len(nan)
    return None


def moved_values(graph: Graph) -> set[Value]:
    """The params of a graph, and what only moves their elements."""
    passed = set(graph.params)
    for eqn in graph.eqns:
        if {"data movement", "bit exact"} <= {*eqn.op.traits} and eqn.operands[0] in passed:
            passed.update(eqn.results)
    return passed


# ---- Reports


# By the op that made the number.
HINTS = {
    "log": "keep its argument above 0, as in `log(max(x, 1e-12))`",
    "div": "keep the divisor away from 0, as in `x / max(y, 1e-12)`",
    "sqrt": "keep its argument at 0 or above, as in `sqrt(max(x, 0.0))`",
    "rsqrt": "keep the argument of `sqrt` above 0, as in `sqrt(x + 1e-12)`: its slope at 0 is infinite",
    "positive": "keep the argument of `log` above 0, as in `log(max(x, 1e-12))`: its slope at 0 is infinite",
    "one_if_zero": "a length has no second derivative at 0: use its square, `norm(x)^2`, or keep it away from 0",
    "exp": "subtract the largest first, or use `softmax`, `logsumexp` or `expm1`",
    "pow": "keep the base above 0",
    "power_less": "keep the base above 0: the slope at 0 of a root is infinite",
}


NAN_ARGUMENT_HELP = (
    "a missing cell of a table is nan: leave such items out, or put a number there, `where(isnan(x), 0.0, x)`"
)
CONVENTIONS = "docs/conventions.md lists the values at points where no derivative exists"
NOT_REPRODUCED = "a result is not finite when compiled, but is finite when computed step by step"
NOT_REPRODUCED_HINTS = (
    ("a `rule … by inverse` that does not invert produces NaN: `difflang test` compares it with its function"),
    ("a sum of numbers near the largest of their type may overflow in another order: scale them, or use f64"),
)

# The notation of operations that are not written as functions, including those of derivatives.
FORMS = {
    "add": "{} + {}",
    "sub": "{} - {}",
    "mul": "{} * {}",
    "div": "{} / {}",
    "pow": "{}^{}",
    "power_less": "{}^({} - 1)",
    "rsqrt": "1 / sqrt({})",
    "positive": "1 / {}",
}


def check_finite(ready: Callable[[], Graph], results: Sequence[Any], arrays: Sequence[Any]) -> None:
    """Check that results are finite, unless literals or infinite arguments were not. Errors: DL0908."""
    # Compiled code may add in another order, and overflow where the interpreter does not: then no origin is found.
    if not count_nonfinite([np.asarray(r) for r in results]):
        return
    graph, given = ready(), [np.asarray(a) for a in arrays]
    found = find_nonfinite_origin(graph, *given)
    if found is not None:
        raise DifflangError(nan_diagnostic(found, graph))
    if (argument := find_nan_argument(graph, given)) is not None:
        raise DifflangError(nan_argument_diagnostic(*argument, graph))
    if not count_nonfinite(evaluate(storing_all_states(graph), *given)):
        raise DifflangError(Diagnostic("DL0908", NOT_REPRODUCED, (), NOT_REPRODUCED_HINTS))


def storing_all_states(graph: Graph) -> Graph:
    """The same program without reversible loops, so that no inverse of a step matters."""
    done: dict[Graph, Graph] = {}
    for g in graphs_postorder(graph)[0]:
        eqns = [
            Eqn(e.op, e.operands, e.results, {k: v for k, v in e.attrs.items() if k != "reversible"},
                tuple([done[region] for region in e.regions]), e.span)
            for e in g.eqns
        ]  # fmt: skip
        done[g] = Graph(g.params, tuple(eqns), g.results, g.name)
    return done[graph]


def nan_diagnostic(found: NonFiniteOrigin, graph: Graph) -> Diagnostic:
    value, name = number_text(found.value), found.eqn.op.name
    # A select does not compute: a derivative rule selects this number where no derivative exists.
    nowhere = "select" in found.eqn.op.traits
    places = [(found.eqn.span, "this has no derivative here" if nowhere else f"{format_operation(found)} is {value}")]
    places += [(e.span, f"in step {count} of this loop") for e, count in reversed(found.steps)]
    labels = [Label(span, text) for span, text in places if span.is_known]
    place = f" at {list(found.index)}" if found.index else ""
    spelled = FORMS[name].format("x", "y") if name in FORMS else name
    given = f"`{spelled}` gives {value}{place} here"
    given = f"the derivative does not exist here and is set to {value}" if nowhere else given
    way = HINTS.get("positive" if name == "div" and is_log_derivative(found.eqn, graph) else name)
    ways = (CONVENTIONS,) if nowhere else (way,) if way else ()
    return Diagnostic("DL0908", f"{given}, which makes a result not finite", tuple(labels), ways)


def nan_argument_diagnostic(param: Value, index: tuple[int, ...], graph: Graph) -> Diagnostic:
    """The report of an argument that is NaN already, at the first equation that reads it."""
    reads = (e.span for e in graph.eqns if param in e.operands and e.span.is_known)
    labels = [Label(span, "it is read here") for span in itertools.islice(reads, 1)]
    name, place = f"the argument `{param.hint}`" if param.hint else "an argument", f" at {list(index)}" if index else ""
    return Diagnostic("DL0908", f"{name} is nan{place}, which makes a result nan", tuple(labels), (NAN_ARGUMENT_HELP,))


def is_log_derivative(quotient: Eqn, graph: Graph) -> bool:
    """Whether a division is not the user's, but comes from the derivative of a logarithm."""
    made = [e.results[0] for g in graphs_postorder(graph)[0] for e in g.eqns if e.op is positive]
    return quotient.operands[1] in made and "log" in quotient.span.text


def format_operation(found: NonFiniteOrigin) -> str:
    """The operation with its operands as numbers, or as shapes of arrays."""
    numbers = [found.operand(i) for i in range(len(found.operands))]
    parts = [
        number_text(x) if x is not None else str(list(whole.shape)) if isinstance(whole, np.ndarray) else "a history"
        for x, whole in zip(numbers, found.operands, strict=True)
    ]
    name = found.eqn.op.name
    return FORMS[name].format(*parts) if name in FORMS else f"{name}({', '.join(parts)})"


def number_text(x: Any) -> str:
    if np.iscomplexobj(x):
        return f"{complex(x):.6g}"
    return str(x) if x.dtype.kind in "biu" else f"{float(x):.6g}"
