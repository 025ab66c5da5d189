"""Which call of the user's led to a check of the library that failed: the line that its error shows besides its own.

The program is run again for the numbers of a failure. For that run the check gets a number of its own in what each of
the user's calls leads to.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from difflang.base.diagnostics import DifflangError, Label
from difflang.base.source import Span
from difflang.ir.graph import Eqn, Graph, graphs_postorder
from difflang.ir.tensor_types import I32, Tensor

CHECK_NUMBER_TYPE = Tensor(I32)  # what a failure says of its check
SYNTHETIC_SOURCES = ("<call>", "<command line>")  # calls from outside, which are no line of anybody's
MAX_CALL_SITES = 32  # calls that are told apart: each is a copy of what it leads to


class CallSiteBlame:
    """The calls outside the library that lead to one check of it, and the program in which they can be told apart."""

    def __init__(self, program: Graph, number: int, check: Span, free: int) -> None:
        self.program, self.number, self.check = program, number, check
        self.first_free_number = free  # no check has this number, or a greater one
        self.order = graphs_postorder(program)[0] if check.in_library else []
        self.reaching: set[Graph] = set()  # that lead to it with no call of the user's in between
        self.calls: dict[Eqn, None] = {}
        for graph in self.order:
            for eqn in graph.eqns:
                if self.is_call(eqn):
                    self.calls[eqn] = None
                elif self.reaches_check(eqn) or self.is_failure(eqn):
                    self.reaching.add(graph)
        # One call is to blame, unless the check is in the program itself: a call there was written out.
        self.by_number = len(self.calls) > 1 or program in self.reaching

    def reaches_check(self, eqn: Eqn) -> bool:
        return bool(eqn.regions) and not self.reaching.isdisjoint(eqn.regions)

    def is_call(self, eqn: Eqn) -> bool:
        """Whether it is a call in a text of the user's that leads to the check."""
        return (
            "name" in eqn.attrs
            and not eqn.span.in_library
            and eqn.span.source.name not in SYNTHETIC_SOURCES
            and self.reaches_check(eqn)
        )

    def is_failure(self, eqn: Eqn) -> bool:
        """Whether it is the number of the check."""
        if eqn.op.name != "const" or eqn.results[0].type != CHECK_NUMBER_TYPE:
            return False
        return eqn.attrs["value"] == self.number and eqn.span == self.check

    def number_call_sites(self) -> Graph:
        """The program, in which the check's number says from which call it was reached."""
        if not self.by_number or len(self.calls) > MAX_CALL_SITES:
            return self.program
        numbers: dict[Eqn | None, int] = {None: self.number}
        numbers |= {call: self.first_free_number + i for i, call in enumerate(self.calls)}
        new: dict[Eqn | None, dict[Graph, Graph]] = {call: {} for call in numbers}  # what each call leads to, and none
        for graph in self.order:
            for call in numbers if graph in self.reaching else (None,):
                new[call][graph] = graph.with_eqns([self.renumber(eqn, call, numbers[call], new) for eqn in graph.eqns])
        return new[None][self.program]

    def renumber(self, eqn: Eqn, call: Eqn | None, number: int, new: Mapping[Eqn | None, Mapping[Graph, Graph]]) -> Eqn:
        """An equation where a call leads: a call in it leads on by itself."""
        if self.is_failure(eqn):
            return replace(eqn, attrs={**eqn.attrs, "value": number})
        inside = new[eqn if eqn in self.calls else call]
        return eqn.with_regions([inside.get(r, new[None][r]) for r in eqn.regions]) if eqn.regions else eqn

    def blamed(self, error: DifflangError, number: int) -> DifflangError:
        """The error of the check, with the call that led to it; `number` is what that run gave."""
        spans = [eqn.span for eqn in self.calls]
        at = number - self.first_free_number if self.by_number else 0
        if not 0 <= at < len(spans):
            return error
        first, *others = error.diagnostics
        return type(error)(replace(first, labels=(*first.labels, Label(spans[at], "called here"))), *others)
