"""Errors of `--check-nans`: the source line that made the first NaN or infinity of a result, with hints."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from difflang.base.diagnostics import Diagnostic, DifflangError, Label
from difflang.base.source import NO_SPAN
from difflang.gradcheck.nan_provenance import NonFiniteOrigin, count_nonfinite, find_nonfinite_origin
from difflang.ir.graph import Eqn, Graph, graphs_postorder
from difflang.ir.interpreter import evaluate
from difflang.ops.elementwise.roots_and_distances import positive

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
    """Check that results are finite, unless arguments or literals were not. Errors: DL0908."""
    # Compiled code may add in another order, and overflow where the interpreter does not: then no origin is found.
    if not count_nonfinite([np.asarray(r) for r in results]):
        return
    graph, given = ready(), [np.asarray(a) for a in arrays]
    found = find_nonfinite_origin(graph, *given)
    if found is not None:
        raise DifflangError(nan_diagnostic(found, graph))
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
    labels = [Label(span, text) for span, text in places if span is not NO_SPAN]
    place = f" at {list(found.index)}" if found.index else ""
    spelled = FORMS[name].format("x", "y") if name in FORMS else name
    given = (
        f"the derivative does not exist here and is set to {value}"
        if nowhere
        else f"`{spelled}` gives {value}{place} here"
    )
    way = HINTS.get("positive" if name == "div" and is_log_derivative(found.eqn, graph) else name)
    ways = (CONVENTIONS,) if nowhere else (way,) if way else ()
    return Diagnostic("DL0908", f"{given}, which makes a result not finite", tuple(labels), ways)


def is_log_derivative(quotient: Eqn, graph: Graph) -> bool:
    """Whether a division is not the user's, but comes from the derivative of a logarithm."""
    made = [e.results[0] for g in graphs_postorder(graph)[0] for e in g.eqns if e.op is positive]
    return quotient.operands[1] in made and "log" in quotient.span.text


def format_operation(found: NonFiniteOrigin) -> str:
    """The operation with its operands as numbers, or as shapes of arrays."""
    count = range(len(found.operands))
    parts = [number_text(x) if (x := found.operand(i)) is not None else shape_text(found.operands[i]) for i in count]
    name = found.eqn.op.name
    return FORMS[name].format(*parts) if name in FORMS else f"{name}({', '.join(parts)})"


def shape_text(x: Any) -> str:
    return f"{list(x.shape)}" if isinstance(x, np.ndarray) else "a history"


def number_text(x: Any) -> str:
    if np.iscomplexobj(x):
        return f"{complex(x):.6g}"
    return str(x) if x.dtype.kind in "biu" else f"{float(x):.6g}"
