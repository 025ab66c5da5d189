"""What runs, in the program's own numbers: both modes and the value, interpreted and compiled, against exact ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from difflang.ad.expand_derivatives import differentiate, expanded
from difflang.base.diagnostics import DifflangError
from difflang.gradcheck.decision_replay import Crossed, Mode, Run, precision_of
from difflang.gradcheck.directional_derivatives import Direction, Mask, Subject, Wide, pulled, pushed
from difflang.gradcheck.fault_localization import Met, Program, Search, against_wide, first_wrong
from difflang.gradcheck.finite_differences import Row
from difflang.gradcheck.histories import readers
from difflang.gradcheck.report import Comparison, Fault, Kink, unplaced
from difflang.ir.graph import Graph

ROUNDINGS = 16  # decisions that so many roundings on the way turn are made by rounding
TRIES = 24  # of shaking: half of them push a number at an edge the wrong way


class Roads(Struct, frozen=True):
    """How a graph becomes a program: without derivative equations, rules kept; as it is compiled; and compiled."""

    derived: Callable[[Graph], Graph] = expanded
    finished: Callable[[Graph], Graph] = differentiate
    compile: Callable[[Graph], Program] | None = None


class Work(Protocol):
    """The audit that asks, and where its answers go."""

    roads: Roads
    rng: np.random.Generator
    kinks: list[Kink]
    notes: dict[str, None]

    def add(self, found: Comparison, over: str = "") -> Comparison: ...
    def forgive(self, found: Comparison, why: str) -> None: ...


class Ready(Struct, frozen=True):
    """A finished graph, and what runs it, if it is compiled."""

    mode: str
    graph: Graph
    compiled: Program | None


class Programs(Struct, frozen=True):
    """The programs of one function: forward mode, reverse mode, the value. Each is compiled once."""

    work: Work
    push: Ready
    pull: Ready
    value: Ready

    @classmethod
    def of(cls, work: Work, graph: Graph, wrt: Mask, over: str) -> Programs:
        def ready(mode: str, graph: Graph) -> Ready:
            done = work.roads.finished(graph)
            return Ready(mode + over, done, work.roads.compile(done) if work.roads.compile is not None else None)

        forward, reverse = pushed(graph, wrt), pulled(graph, wrt)
        return cls(work, ready("forward mode", forward), ready("reverse mode", reverse), ready("value", graph))

    def fault(self, subject: Subject, direction: Direction, value: bool) -> Fault | None:
        """The first thing wrong with any of them, the value only if that is wanted."""
        fault = self.asked(self.value, subject.primal) if value else None
        return fault or self.asked(self.push, direction.push) or self.asked(self.pull, direction.pull)

    def asked(self, ready: Ready, exact: Wide) -> Fault | None:
        program = Wide.of(ready.graph, exact.exact)
        size = program.all_sizes(self.work.rng)
        found = self.against((ready.mode, "interpreted"), program.own, program, exact, size)
        if found.worst is not None and not by_rounding(self.work, program, found):
            before = self.against((ready.mode, "derived"), exact.own, exact, exact, exact.all_sizes(self.work.rng))
            what = "something" if before.worst is not None else "what the optimizer makes of it"
            return replace(unplaced(found, found.worst), what=what)
        return self.compiled(ready, program, exact, size) if ready.compiled is not None else None

    def compiled(self, ready: Ready, program: Wide, exact: Wide, size: Row) -> Fault | None:
        assert ready.compiled is not None and self.work.roads.compile is not None
        try:
            got = list(ready.compiled(*program.arrays))
        except DifflangError as error:
            if not all(d.code.startswith("DL08") for d in error.diagnostics):
                raise
            self.work.notes[f"{ready.mode}, compiled, is not there yet: {error.diagnostics[0].message}"] = None
            return None
        found = self.against((ready.mode, "compiled"), got, program, exact, size)
        if found.worst is None:
            return None
        met: Met = {}
        Run(met=met)(program.graph, *program.arrays)
        fault = Search(met, self.work.rng).lowering(program.graph, self.work.roads.compile) or self.unread(program)
        if fault is None and by_rounding(self.work, program, found):
            return None
        return fault or first_wrong(program.graph, "the program", self.shorter(program)) or unplaced(found, found.worst)

    def unread(self, program: Wide) -> Fault | None:
        """The first equation whose histories, read, are not what the interpreter reads."""
        wrong = self.shorter(program)
        for eqn, reading in readers(program.graph):
            answer = wrong(reading)
            if answer is not None and answer.worst is not None:
                return Fault(eqn, "its lowering", ("XLA", "the reference"), answer.worst)
        return None

    def shorter(self, program: Wide) -> Callable[[Graph], Comparison | None]:
        compile = self.work.roads.compile
        assert compile is not None

        def wrong(graph: Graph) -> Comparison | None:
            wide = Wide.of(graph, program.exact)
            got = list(compile(graph)(*wide.arrays))
            return against_wide(("it", "compiled"), got, wide, wide.results, wide.all_sizes(self.work.rng))

        return wrong

    def against(self, names: tuple[str, str], got: Sequence[Any], program: Wide, exact: Wide, size: Row) -> Comparison:
        return self.work.add(against_wide(names, got, program, exact.results, size))


def by_rounding(work: Work, program: Wide, *found: Comparison) -> bool:
    """Whether a rounding or two on the way would decide the path otherwise: then that is no fault."""
    amount = ROUNDINGS * precision_of(program.graph)[0]
    try:
        for _ in range(TRIES):
            program.again(program.exact, Mode(watch=True, shake=work.rng, amount=amount))
    except Crossed as crossed:
        work.kinks.append(Kink(crossed.eqn, "decides by rounding"))
        for row in found:
            work.forgive(row, "where rounding decides")
        return True
    return False
