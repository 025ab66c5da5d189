"""Which call of the user's led to a check of the library that failed: the line that its error shows besides its own.

The program is run again for the numbers of a failure. For that run the check gets a number of its own in what each of
the user's calls leads to.
"""

from __future__ import annotations

from msgspec.structs import replace

from difflang.base.diagnostics import DifflangError, Label
from difflang.base.source import Span
from difflang.ir.graph import Eqn, Graph, inner_first
from difflang.ir.types import I32, Tensor

NUMBER = Tensor(I32)  # what a failure says of its check
MOST = 32  # calls that are told apart: each is a copy of what it leads to


class Callers:
    """The calls outside the library that lead to one check of it, and the program in which they can be told apart."""

    def __init__(self, program: Graph, number: int, check: Span, free: int) -> None:
        self.program, self.number, self.check = program, number, check
        self.free = free  # no check has this number, or a greater one
        self.order = inner_first(program)[0] if check.of_library else []
        self.reaching: set[Graph] = set()  # graphs from which no call of the user's leads to it
        self.calls: dict[Eqn, None] = {}
        for graph in self.order:
            for eqn in graph.eqns:
                if self.is_call(eqn):
                    self.calls[eqn] = None
                elif self.leads(eqn) or self.is_failure(eqn):
                    self.reaching.add(graph)

    def leads(self, eqn: Eqn) -> bool:
        return bool(eqn.regions) and not self.reaching.isdisjoint(eqn.regions)

    def is_call(self, eqn: Eqn) -> bool:
        """Whether it is a call of the user's that leads to the check."""
        return "name" in eqn.attrs and not eqn.span.of_library and self.leads(eqn)

    def is_failure(self, eqn: Eqn) -> bool:
        """Whether it is the number of the check."""
        if eqn.op.name != "const" or eqn.results[0].type != NUMBER:
            return False
        return eqn.attrs["value"] == self.number and eqn.span == self.check

    def told_apart(self) -> Graph:
        """The program, in which the check's number says from which call it was reached."""
        if not 1 < len(self.calls) <= MOST:
            return self.program
        numbers = {eqn: self.free + i for i, eqn in enumerate(self.calls)}
        new: dict[Graph, Graph] = {}
        for graph in self.order:
            led = {e: self.numbered(numbers[e]) if e in numbers else new for e in graph.eqns if e.regions}
            eqns = [e.with_regions([led[e].get(r, new[r]) for r in e.regions]) if e in led else e for e in graph.eqns]
            new[graph] = graph.with_eqns(eqns)
        return new[self.program]

    def numbered(self, number: int) -> dict[Graph, Graph]:
        """What leads to the check, which has another number there."""
        new: dict[Graph, Graph] = {}
        for graph in self.order:
            if graph in self.reaching:
                eqns = [replace(e, attrs={**e.attrs, "value": number}) if self.is_failure(e) else e for e in graph.eqns]
                new[graph] = graph.with_eqns([e.with_regions([new.get(r, r) for r in e.regions]) for e in eqns])
        return new

    def blamed(self, error: DifflangError, number: int) -> DifflangError:
        """The error of the check, with the call that led to it; `number` is what that run gave."""
        spans = [eqn.span for eqn in self.calls]
        at = number - self.free if len(spans) > 1 else 0
        if not 0 <= at < len(spans):
            return error
        first, *others = error.diagnostics
        return type(error)(replace(first, labels=(*first.labels, Label(spans[at], "called here"))), *others)
