"""Compares the engines: both modes and the value, interpreted and compiled, with results in extended precision."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from difflang.ad.expand_derivatives import differentiate, expand_derivatives
from difflang.base.diagnostics import DifflangError
from difflang.gradcheck.decision_replay import PathDiverged, ReplayMode, ReplayRun, coarsest_precision
from difflang.gradcheck.directional_derivatives import (
    DirectionalDerivative,
    GraphAtPoint,
    Mask,
    PreciseRun,
    jvp_graph,
    vjp_graph,
)
from difflang.gradcheck.fault_localization import (
    FaultSearch,
    Program,
    RecordedOperands,
    bisect_fault,
    compare_with_exact,
)
from difflang.gradcheck.finite_differences import Row
from difflang.gradcheck.report import DerivativeComparison, DerivativeFault, Kink, unlocated_fault
from difflang.ir.builder import Builder, build_region
from difflang.ir.graph import Eqn, Graph, Value
from difflang.ir.tensor_types import I32, History, Tensor
from difflang.ops.ad_interface import zeros
from difflang.ops.loop.loop_op import loop
from difflang.passes.dce import dce

ROUNDINGS = 16  # a decision that this many roundings can change is made by rounding
TRIES = 24  # perturbed runs: each pushes a number at an edge the wrong way with probability 1/2


class CheckPipeline(Struct, frozen=True):
    """The stages of a graph on its way to a program."""

    derived: Callable[[Graph], Graph] = expand_derivatives  # without derivative equations, with declared rules
    finished: Callable[[Graph], Graph] = differentiate  # as it is compiled
    compile: Callable[[Graph], Program] | None = None


class CheckState(Protocol):
    """The gradient check that runs the comparisons, and collects their results."""

    pipeline: CheckPipeline
    rng: np.random.Generator
    kinks: list[Kink]
    notes: dict[str, None]

    def add_comparison(self, found: DerivativeComparison, over: str = "") -> DerivativeComparison: ...
    def accept_difference(self, found: DerivativeComparison, why: str) -> None: ...


class FinalizedProgram(Struct, frozen=True):
    """A finished graph, and its compiled program if there is one."""

    mode: str
    graph: Graph
    compiled: Program | None


class ModePrograms(Struct, frozen=True):
    """The programs of one function: forward mode, reverse mode, the value. Each is compiled once."""

    work: CheckState
    push: FinalizedProgram
    pull: FinalizedProgram
    value: FinalizedProgram

    @classmethod
    def compile_modes(cls, work: CheckState, graph: Graph, wrt: Mask, over: str) -> ModePrograms:
        def ready(mode: str, graph: Graph) -> FinalizedProgram:
            done = work.pipeline.finished(graph)
            return FinalizedProgram(
                mode + over, done, work.pipeline.compile(done) if work.pipeline.compile is not None else None
            )

        forward, reverse = jvp_graph(graph, wrt), vjp_graph(graph, wrt)
        return cls(work, ready("forward mode", forward), ready("reverse mode", reverse), ready("value", graph))

    def find_fault(
        self, subject: GraphAtPoint, direction: DirectionalDerivative, value: bool
    ) -> DerivativeFault | None:
        """The first fault of any of them; the value is checked only on request."""
        fault = self.check_program(self.value, subject.primal) if value else None
        return fault or self.check_program(self.push, direction.push) or self.check_program(self.pull, direction.pull)

    def check_program(self, ready: FinalizedProgram, exact: PreciseRun) -> DerivativeFault | None:
        program = PreciseRun.evaluate(ready.graph, exact.exact)
        size = program.all_sensitivities(self.work.rng)
        found = self.compare((ready.mode, "interpreted"), program.native_results, program, exact, size)
        if found.worst is not None and not decided_by_rounding(self.work, program, found):
            before = self.compare(
                (ready.mode, "derived"), exact.native_results, exact, exact, exact.all_sensitivities(self.work.rng)
            )
            what = "something" if before.worst is not None else "the optimized program"
            return replace(unlocated_fault(found, found.worst), component=what)
        return self.check_compiled(ready, program, exact, size) if ready.compiled is not None else None

    def check_compiled(
        self, ready: FinalizedProgram, program: PreciseRun, exact: PreciseRun, size: Row
    ) -> DerivativeFault | None:
        assert ready.compiled is not None and self.work.pipeline.compile is not None
        try:
            got = list(ready.compiled(*program.arrays))
        except DifflangError as error:
            if not all(d.code.startswith("DL08") for d in error.diagnostics):
                raise
            self.work.notes[f"{ready.mode} is not supported when compiled: {error.diagnostics[0].message}"] = None
            return None
        found = self.compare((ready.mode, "compiled"), got, program, exact, size)
        if found.worst is None:
            return None
        met: RecordedOperands = {}
        ReplayRun(recorded_operands=met)(program.graph, *program.arrays)
        # First equations by themselves, then histories, which no program returns; last, truncated programs.
        fault = FaultSearch(met, self.work.rng).find_lowering_fault(
            program.graph, self.work.pipeline.compile
        ) or self.find_history_fault(program)
        if fault is None and decided_by_rounding(self.work, program, found):
            return None
        return (
            fault
            or bisect_fault(program.graph, "the program", self.truncation_test(program))
            or unlocated_fault(found, found.worst)
        )

    def find_history_fault(self, program: PreciseRun) -> DerivativeFault | None:
        """The first equation whose histories differ between the compiled program and the interpreter."""
        wrong = self.truncation_test(program)
        for eqn, reading in history_probes(program.graph):
            answer = wrong(reading)
            if answer is not None and answer.worst is not None:
                return DerivativeFault(eqn, "its lowering", ("XLA", "the reference"), answer.worst)
        return None

    def truncation_test(self, program: PreciseRun) -> Callable[[Graph], DerivativeComparison | None]:
        compile = self.work.pipeline.compile
        assert compile is not None

        def wrong(graph: Graph) -> DerivativeComparison | None:
            wide = PreciseRun.evaluate(graph, program.exact)
            got = list(compile(graph)(*wide.arrays))
            return compare_with_exact(
                ("it", "compiled"), got, wide, wide.results, wide.all_sensitivities(self.work.rng)
            )

        return wrong

    def compare(
        self, names: tuple[str, str], got: Sequence[Any], program: PreciseRun, exact: PreciseRun, size: Row
    ) -> DerivativeComparison:
        return self.work.add_comparison(compare_with_exact(names, got, program, exact.results, size))


def decided_by_rounding(work: CheckState, program: PreciseRun, *found: DerivativeComparison) -> bool:
    """Whether a few roundings on the way could change a decision of the path: then a difference is no fault."""
    amount = ROUNDINGS * coarsest_precision(program.graph)[0]
    try:
        for _ in range(TRIES):
            program.replay(program.exact, ReplayMode(watch=True, shake=work.rng, amount=amount))
    except PathDiverged as crossed:
        work.kinks.append(Kink(crossed.eqn, "depends on rounding"))
        for row in found:
            work.accept_difference(row, "where rounding decides")
        return True
    return False


# ---- Histories, which cannot be results of a program: a probe reads them inside the program

INDEX = Tensor(I32)


def history_probes(graph: Graph) -> list[tuple[Eqn, Graph]]:
    """Each equation that gives histories of floats, and a graph up to it that returns sums of their items."""
    maker = {r: e for e in graph.eqns for r in e.results}
    found: list[tuple[Eqn, Graph]] = []
    for eqn in graph.eqns:
        limits = {
            r: limit for r in eqn.results if is_readable_history(r) and (limit := loop_limit_of(r, maker)) is not None
        }
        if limits:
            found.append((eqn, build_history_probe(graph, limits)))
    return found


def is_readable_history(value: Value) -> bool:
    item = value.type.item if isinstance(value.type, History) else None
    return isinstance(item, Tensor) and item.tangent is not None


def loop_limit_of(history: Value, maker: dict[Value, Eqn]) -> Value | None:
    """The limit of the loop that wrote a history: only a loop of the same limit may read it."""
    while (eqn := maker.get(history)) is not None:
        sources = [v for v in eqn.operands if isinstance(v.type, History)]
        if not sources:
            return eqn.operands[0] if eqn.operands and eqn.operands[0].type == INDEX else None
        history = sources[0]
    return None


def build_history_probe(graph: Graph, limits: dict[Value, Value]) -> Graph:
    """The graph that gives a decayed sum of each of these histories."""
    part = dce(graph.with_results([*limits, *limits.values()]))
    builder = Builder()
    found = builder.inline(part, *[builder.param(p.type, p.hint) for p in part.params])
    pairs = zip(found[: len(limits)], found[len(limits) :], strict=True)
    return builder.finish([decayed_sum(builder, history, limit) for history, limit in pairs])


def decayed_sum(builder: Builder, history: Value, limit: Value) -> Value:
    """The sum of a history's items with weights that halve towards the first, so that their order matters."""
    assert isinstance(history.type, History)
    item = history.type.item
    step = build_region([INDEX, item, item], lambda _, s, x: [s * 0.5 + x])
    _, found = loop(
        limit, zeros(builder, item), history,
        regions=(step,), consts=0, carry=1, length=None, exact=False, reverse=False,
    )  # fmt: skip
    return found
