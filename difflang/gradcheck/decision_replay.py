"""Records the decisions of an interpreted run and replays them, so that nearby runs take the same path.

A derivative is that of the path taken. Operations without a tangent (comparisons, integers, `floor`) decide the path. A
nearby run either keeps these decisions or stops at the first one that would differ.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import ml_dtypes
import numpy as np
from msgspec import Struct, field

from difflang.ad.expand_derivatives import differentiate
from difflang.gradcheck.extended_precision import EPSILON, Array, cast
from difflang.ir.graph import Eqn, Graph, graphs_postorder
from difflang.ir.interpreter import evaluate_eqn, run_equations
from difflang.ir.tensor_types import Tensor
from difflang.ops.arrays.constants import stop

DOUBLE = float(np.finfo(np.float64).eps)  # the spacing of f64 at 1


class PathDiverged(Exception):
    """A replayed run came to a decision that differs from the recorded one."""

    def __init__(self, eqn: Eqn) -> None:
        super().__init__(str(eqn.op))
        self.eqn = eqn


class ReplayMode(Struct, frozen=True):
    """How a run replays an earlier one.

    `watch`: it stops where a decision would differ, instead of keeping the recorded one. `keep_stops`: results of
    `stop` are kept too, for a comparison of a function with itself a step further. `shake`: each float result is
    perturbed by a random relative amount.
    """

    watch: bool = False
    keep_stops: bool = False
    shake: np.random.Generator | None = None
    amount: float = 0.0


class ReplayRun(Struct):
    """One run of a graph, in its own or in wide numbers."""

    path: Sequence[list[Array]] | None = None  # the decisions to replay
    mode: ReplayMode = ReplayMode()
    origin: Mapping[Eqn, Eqn] = field(default_factory=dict[Eqn, Eqn])
    recorded_operands: dict[Eqn, list[list[Array]]] | None = None  # the operands of equations, if they are recorded
    decisions: list[list[Array]] = field(default_factory=list[list[Array]])  # the decisions of this run
    epsilon: float = EPSILON  # of the least precise reference so far
    times: dict[Eqn, int] = field(default_factory=dict[Eqn, int])

    def __call__(self, graph: Graph, *arrays: Array) -> list[Array]:
        """The graph's results. Errors: PathDiverged."""
        with np.errstate(all="ignore"):
            return self.run_graph(graph, *arrays)

    def run_graph(self, graph: Graph, *arrays: Array) -> list[Array]:
        return run_equations(graph, arrays, self.step)

    def step(self, eqn: Eqn, operands: list[Array]) -> list[Array]:
        source = self.origin.get(eqn, eqn)
        if self.recorded_operands is not None:
            self.remember(source, operands)
        if eqn.op.inactive and eqn.operands:
            return self.decide(eqn, source, operands)
        return self.perturb(self.evaluate_equation(eqn, operands))

    def evaluate_equation(self, eqn: Eqn, operands: list[Array]) -> list[Array]:
        """The results by the op's reference, in f64 if that has no wide numbers. A derivative is expanded first."""
        if eqn.op.is_derivative:
            return self.run_graph(differentiate(Graph(eqn.operands, (eqn,), eqn.results)), *operands)
        try:
            found = evaluate_eqn(eqn, operands, self.run_graph)
        except TypeError as error:
            if eqn.regions:
                raise
            self.epsilon = max(self.epsilon, DOUBLE, getattr(error, "epsilon", 0.0))
            narrow = [x.astype(np.float64) if x.dtype == np.longdouble else x for x in operands]
            found = evaluate_eqn(eqn, narrow)
        return [cast(x, r.type) for x, r in zip(found, eqn.results, strict=True)]

    def decide(self, eqn: Eqn, source: Eqn, operands: list[Array]) -> list[Array]:
        # Decisions are matched by their order: two runs on the same path make the same ones.
        at, path = len(self.decisions), self.path
        kept = None if path is None or (eqn.op is stop and not self.mode.keep_stops) else path[at]
        if kept is None:
            found = self.evaluate_equation(eqn, operands)
        else:
            found = [cast(x, r.type) for x, r in zip(kept, eqn.results, strict=True)]
            if self.mode.watch and eqn.op is not stop:
                there = self.evaluate_equation(eqn, operands)
                same = [np.array_equal(a, b, equal_nan=a.dtype.kind in "fc") for a, b in zip(found, there, strict=True)]
                if not all(same):
                    raise PathDiverged(source)
        self.decisions.append(found)
        return found

    def perturb(self, arrays: list[Array]) -> list[Array]:
        rng = self.mode.shake
        return arrays if rng is None else [perturb_array(x, rng, self.mode.amount) for x in arrays]

    def remember(self, eqn: Eqn, operands: list[Array]) -> None:
        """Record the operands of an equation at its first, second, fourth, eighth ... run."""
        # Powers of two sample a long loop from its beginning to its end in logarithmic memory.
        assert self.recorded_operands is not None
        count = self.times.get(eqn, 0)
        self.times[eqn] = count + 1
        if count & (count + 1) == 0:
            self.recorded_operands.setdefault(eqn, []).append(operands)


def perturb_array(array: Array, rng: np.random.Generator, amount: float) -> Array:
    """The array with each element perturbed up or down by at most a relative amount."""
    if isinstance(array, list):
        return [perturb_array(x, rng, amount) for x in array]
    if array.dtype.kind not in "fcV":
        return array
    factor = 1 + amount * random_signs(rng, array.shape)
    # The error of each part of a complex number is relative to the whole number.
    if array.dtype.kind == "c":
        factor = factor + 1j * amount * random_signs(rng, array.shape)
    return np.asarray(array * factor).astype(array.dtype)


def random_signs(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Random numbers of either sign with magnitudes between a half and one."""
    # Never near zero: every value has to be perturbed noticeably.
    even = rng.random(shape)
    return even - (even < 0.5)


def coarsest_precision(graph: Graph) -> tuple[float, float]:
    """The spacing of the coarsest floats in a graph and its regions, and the greatest of their least normal numbers."""
    spacing, least = DOUBLE, float(np.finfo(np.float64).tiny)
    for current in graphs_postorder(graph)[0]:
        types = {v.type for v in (*current.params, *[r for e in current.eqns for r in e.results])}
        for dtype in {t.dtype for t in types if isinstance(t, Tensor) and t.dtype.differentiable}:
            info = ml_dtypes.finfo(np.real(np.zeros((), dtype.numpy)).dtype)
            spacing, least = max(spacing, float(info.eps)), max(least, float(info.tiny))
    return spacing, least
