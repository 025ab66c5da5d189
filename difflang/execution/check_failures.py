"""Programs that can fail: what usually runs says which check failed; the full program says what it was about."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from difflang.base.check_sites import OVER_I32, UNDER_I32, CheckSite, CheckTable, IndexTarget
from difflang.base.diagnostics import Diagnostic, DifflangError, Label
from difflang.base.source import Span
from difflang.ir.graph import Eqn, Graph, graphs_postorder
from difflang.ir.interpreter import TextSink
from difflang.ir.tensor_types import I32, Tensor
from difflang.passes.dce import dce

ArrayProgram = Callable[..., Sequence[Any]]
MAX_ARRAY_TEXT = 40  # characters of an array as it is written that a message repeats
DETAIL_RESULTS = 2  # the last results of a program that can fail: what a failure was about
FAILURE_RESULTS = 1 + DETAIL_RESULTS  # with the number of a check before them


def with_check_number(graph: Graph) -> Graph:
    """The same program without what its failures were about: its last result is the number of a check, or zero."""
    return dce(graph.with_results(graph.results[:-DETAIL_RESULTS]))


def drop_proved_checks(graph: Graph) -> Graph | None:
    """A program that can fail without its failure, if every check in it has been proved; else None."""
    site = graph.results[-FAILURE_RESULTS]
    made = next((e for e in graph.eqns if site in e.results), None)
    if made is None or made.op.name != "const" or made.attrs["value"] != 0:
        return None
    return dce(graph.with_results(graph.results[:-FAILURE_RESULTS]))


def explain_failure(
    checks: CheckTable,
    site: int,
    program: Graph,
    full: Callable[[Graph, TextSink], ArrayProgram],
    arrays: Sequence[Any],
) -> DifflangError:
    """The error that a failure is: `full` runs the program again for the numbers in it, and for its messages."""
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
    """The error that a failed check is, by the numbers that it was about, and its message if it was filled in."""
    if found.capacity:
        return capacity_error(found, first)
    if found.max_steps:
        return step_limit_error(found.span, found.max_steps, found.message)
    if found.message:
        message = said or found.message
        return DifflangError(Diagnostic("DL0901", message, (Label(found.span, "this does not hold"),)))
    return DifflangError(index_diagnostic(found, first, second))


def index_diagnostic(found: CheckSite, first: int, room: int) -> Diagnostic:
    """The report of an index: what it goes into and how long that is, what the index is, and the loops' variables."""
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


def length_text(size: int) -> str:
    return "is empty" if size <= 0 else "has one place, 0" if size == 1 else f"has {size} places, 0 to {size - 1}"


def step_limit_error(span: Span, most: int, calls: str = "") -> DifflangError:
    """The error that a loop is which takes more steps than are allowed, or what calls itself as often."""
    what = f"{calls} calls itself more than {most:,} times" if calls else f"this loop takes more than {most:,} steps"
    first = Span(span.source, span.start, span.start + len(span.text.split("\n")[0]))
    label = Label(first, f"step {most + 1:,} would be next")
    return DifflangError(
        Diagnostic(
            "DL0909", what, (label,), ("raise the limit with `--max-steps`, or find out why the loop ends late",)
        )
    )


def failure_warning(site: CheckSite) -> Diagnostic:
    """The report of a check that failed where nothing can be raised: what it was about is not known any more."""
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
    """The error that a recursion without end is, or what would keep too much."""
    if site.capacity == "frames":
        code, message = "DL1007", f"{site.message} nests calls more than {reached:,} deep"
        way = "it must reach a case that does not call itself; a tail call needs no memory"
    elif site.capacity == "items":
        code, message = "DL1006", "there is not enough memory for all values that this loop yields"
        way = "every item is kept if a derivative reads it in a branch or in a nested loop"
    else:
        what = f"the saved states of {site.message} over more than {reached:,} steps"
        code, message, way = "DL1006", f"there is not enough memory for {what}", "`jvp` saves no states"
    return DifflangError(Diagnostic(code, message, (Label(site.span),), (way,)))


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
