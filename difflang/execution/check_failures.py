"""Failed run-time checks (bounds, asserts, capacities): their error messages, and the calls that led to them.

The program that usually runs gives only the number of the failed check; a second run gives the details.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from difflang.base.check_sites import OVER_I32, UNDER_I32, CheckSite, CheckTable, IndexTarget
from difflang.base.diagnostics import Diagnostic, DifflangError, Label
from difflang.base.source import Span
from difflang.base.wording import length_text
from difflang.ir.graph import Eqn, Graph, graphs_postorder
from difflang.ir.interpreter import TextSink
from difflang.ir.tensor_types import I32, Tensor
from difflang.ops.arrays.constants import const
from difflang.passes.dce import dce

ArrayProgram = Callable[..., Sequence[Any]]
MAX_ARRAY_TEXT = 40  # a message repeats the text of an array up to so many characters
DETAIL_RESULTS = 2  # the last results of a program that can fail: details of the failure
FAILURE_RESULTS = 1 + DETAIL_RESULTS  # with the number of the check before them


def with_check_number(graph: Graph) -> Graph:
    """The same program without the details of failures: its last result is the number of a check, or zero."""
    return dce(graph.with_results(graph.results[:-DETAIL_RESULTS]))


def drop_proved_checks(graph: Graph) -> Graph | None:
    """A program that can fail without its failure, if every check in it has been proved; else None."""
    site = graph.results[-FAILURE_RESULTS]
    made = next((e for e in graph.eqns if site in e.results), None)
    if made is None or made.op is not const or made.attrs["value"] != 0:
        return None
    return dce(graph.with_results(graph.results[:-FAILURE_RESULTS]))


def explain_failure(
    checks: CheckTable,
    site: int,
    program: Graph,
    full: Callable[[Graph, TextSink], ArrayProgram],
    arrays: Sequence[Any],
) -> DifflangError:
    """The error of a failure: `full` runs the program again for its details and messages."""
    heard: dict[int, str] = {}

    def record_message(number: int, text: str) -> None:
        heard.setdefault(number, text)

    found = checks.sites[site - 1]
    callers = CallSiteBlame(program, site, found.span, len(checks.sites) + 1)
    number, first, second = [
        int(n) for n in list(full(callers.number_call_sites(), record_message)(*arrays))[-FAILURE_RESULTS:]
    ]
    return callers.blamed(failure_error(found, first, second, heard.get(site)), number)


def failure_error(found: CheckSite, first: int, second: int, said: str | None = None) -> DifflangError:
    """The error of a failed check, with its details, and its message if it was formatted at run time."""
    if found.capacity:
        return capacity_error(found, first)
    if found.max_steps:
        return step_limit_error(found.span, found.max_steps, found.message)
    if found.message:
        message = said or found.message
        return DifflangError(Diagnostic("DL0901", message, (Label(found.span, "this does not hold"),)))
    return DifflangError(index_diagnostic(found, first, second))


def index_diagnostic(found: CheckSite, first: int, room: int) -> Diagnostic:
    """The diagnostic of an index: the array and its length, the index, and the variables of the loops."""
    into, number = found.index_target, f"{first}" + {UNDER_I32: " or less", OVER_I32: " or more"}.get(first, "")
    if into is None or not into.array.text.strip():
        text = f"this axis holds indices 0 to {room - 1}" if room > 0 else "this axis is empty"
        return Diagnostic("DL0902", f"index {number} is out of range", (Label(found.span, text),))
    size = room if into.range_length is None else room + into.range_length - 1
    exact = number == str(first)
    what = f"index {number}"
    if into.range_length is not None:
        what = (
            f"the range {number}..{first + into.range_length}"
            if exact
            else f"a range of {into.range_length} from {number}"
        )
    message = f"{what} is out of range: {array_text(into)} {length_text(size)}"
    holds = (
        "one of these is" if into.is_index_array else "this begins at" if into.range_length is not None else "this is"
    )
    alone = exact and not into.is_index_array
    counted = [
        Label(span, f"`{span.text}` is {first - more}" if alone and more is not None else f"`{span.text}` counts here")
        for span, more in into.counters
    ]
    return Diagnostic("DL0902", message, (Label(found.span, f"{holds} {number}"), *counted))


def array_text(into: IndexTarget) -> str:
    """The array, or the axis of it, as the program writes it."""
    text = " ".join(into.array.text.split())
    text = f"`{text}`" if len(text) <= MAX_ARRAY_TEXT else "this array"
    return text if into.axis is None else f"axis {into.axis} of {text}"


def step_limit_error(span: Span, most: int, calls: str = "") -> DifflangError:
    """The error of a loop with too many steps, or of a recursion with too many calls."""
    s = "" if most == 1 else "s"
    what = (
        f"{calls} calls itself more than {most:,} time{s}" if calls else f"this loop takes more than {most:,} step{s}"
    )
    first = Span(span.source, span.start, span.start + len(span.text.split("\n")[0]))
    label = Label(first, f"step {most + 1:,} would be next")
    return DifflangError(
        Diagnostic(
            "DL0909", what, (label,), ("raise the limit with `--max-steps`, or find out why the loop ends late",)
        )
    )


def failure_warning(site: CheckSite) -> Diagnostic:
    """The warning for a check that failed where nothing can be raised, without details."""
    if site.max_steps:
        return replace(step_limit_error(site.span, site.max_steps, site.message).diagnostics[0], severity="warning")
    if site.capacity:
        what = f"the capacity for {site.message or 'what a loop yields'} is too small"
        way = (
            "call it outside JAX with such arguments first; use `.clear_cache()` to retrace a function "
            "that `jax.jit` has traced"
        )
        return Diagnostic("DL1007", what, (Label(site.span),), (way,), severity="warning")
    label = Label(site.span, "this does not hold" if site.message else "the index is outside this axis")
    way = "`difflang.checked(f)` returns the failure beside the result"
    code, what = ("DL0901", site.message) if site.message else ("DL0902", "an index is out of range")
    return Diagnostic(code, what, (label,), (way,), severity="warning")


def capacity_error(site: CheckSite, reached: int) -> DifflangError:
    """The error of a recursion without end, or of a loop that would save too much."""
    if site.capacity == "frames":
        code, message = "DL1007", f"calls of {site.message} are nested more than {reached:,} deep"
        way = "it must reach a case that does not call itself; a tail call needs no memory"
    elif site.capacity == "items":
        code, message = "DL1006", "there is not enough memory for all values that this loop yields"
        way = "every item is kept if a derivative reads it in a branch or in a nested loop"
    else:
        what = f"the saved states of {site.message} over more than {reached:,} steps"
        code, message, way = "DL1006", f"there is not enough memory for {what}", "`jvp` saves no states"
    return DifflangError(Diagnostic(code, message, (Label(site.span),), (way,)))


# ---- The calls that led to a check

CHECK_NUMBER_TYPE = Tensor(I32)
SYNTHETIC_SOURCES = ("<call>", "<command line>")  # calls from outside, which have no source line
MAX_CALL_SITES = 32  # with more call sites they are not distinguished: each copies the functions that it leads to


class CallSiteBlame:
    """The user's calls that lead to one check in the library, and a program that tells which one failed."""

    def __init__(self, program: Graph, number: int, check: Span, free: int) -> None:
        self.program, self.number, self.check = program, number, check
        self.first_free_number = free  # no check has this number or a greater one
        self.order = graphs_postorder(program)[0] if check.in_library else []
        self.reaching: set[Graph] = set()  # library functions that lead to the check
        self.calls: dict[Eqn, None] = {}
        for graph in self.order:
            for eqn in graph.eqns:
                if self.is_call(eqn):
                    self.calls[eqn] = None
                elif self.reaches_check(eqn) or self.is_failure(eqn):
                    self.reaching.add(graph)
        # A single call is to blame by itself, unless the check is in the program itself, where a call was inlined.
        self.by_number = len(self.calls) > 1 or program in self.reaching

    def reaches_check(self, eqn: Eqn) -> bool:
        return bool(eqn.regions) and not self.reaching.isdisjoint(eqn.regions)

    def is_call(self, eqn: Eqn) -> bool:
        """Whether it is a call in the user's source that leads to the check."""
        return (
            "name" in eqn.attrs
            and not eqn.span.in_library
            and eqn.span.source.name not in SYNTHETIC_SOURCES
            and self.reaches_check(eqn)
        )

    def is_failure(self, eqn: Eqn) -> bool:
        """Whether it is the constant with the number of the check."""
        if eqn.op is not const or eqn.results[0].type != CHECK_NUMBER_TYPE:
            return False
        return eqn.attrs["value"] == self.number and eqn.span == self.check

    def number_call_sites(self) -> Graph:
        """The program with a number of its own for the check on the path from each call."""
        if not self.by_number or len(self.calls) > MAX_CALL_SITES:
            return self.program
        numbers: dict[Eqn | None, int] = {None: self.number}
        numbers |= {call: self.first_free_number + i for i, call in enumerate(self.calls)}
        # For each call, and for none: copies of the functions that lead to the check, with that number.
        new: dict[Eqn | None, dict[Graph, Graph]] = {call: {} for call in numbers}
        for graph in self.order:
            for call in numbers if graph in self.reaching else (None,):
                new[call][graph] = graph.with_eqns([self.renumber(eqn, call, numbers[call], new) for eqn in graph.eqns])
        return new[None][self.program]

    def renumber(self, eqn: Eqn, call: Eqn | None, number: int, new: Mapping[Eqn | None, Mapping[Graph, Graph]]) -> Eqn:
        """An equation on the path from `call`; a user's call inside has copies of its own."""
        if self.is_failure(eqn):
            return replace(eqn, attrs={**eqn.attrs, "value": number})
        inside = new[eqn if eqn in self.calls else call]
        return eqn.with_regions([inside.get(r, new[None][r]) for r in eqn.regions]) if eqn.regions else eqn

    def blamed(self, error: DifflangError, number: int) -> DifflangError:
        """The error of the check with a label at the call that led to it, by the number that the run gave."""
        spans = [eqn.span for eqn in self.calls]
        at = number - self.first_free_number if self.by_number else 0
        if not 0 <= at < len(spans):
            return error
        first, *others = error.diagnostics
        return type(error)(replace(first, labels=(*first.labels, Label(spans[at], "called here"))), *others)
