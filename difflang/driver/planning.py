"""What the loops under a derivative keep, so that a program stays under a limit on its memory.

A loop may keep what every step needs, or so many of its states, from which the others are computed again: `@checkpoint`
chosen by the compiler. How many bytes a choice takes is asked of the prediction, how many steps it takes again is the
closed form of `ops.schedule`; which choices go together in the least time is an integer program. Straight code has no
choice yet: it needs what it needs. What a program says of a loop itself is left as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeVar

import numpy as np

from difflang.base.amounts import human
from difflang.base.diagnostics import Diagnostic, DifflangError, Label
from difflang.base.source import Source, Span
from difflang.driver.pipeline import finished
from difflang.driver.room import LITTLE, Room
from difflang.ir.graph import Eqn, Graph, inner_first
from difflang.ops.derivative import vjp
from difflang.ops.loop import loop
from difflang.ops.schedule import advances, reaches

if TYPE_CHECKING:
    from difflang.lower.buffers import Account

Keep = tuple[int, int]
ALL: Keep = (0, 0)
FEWEST = 2  # states
SLOTS = tuple(dict.fromkeys([round(FEWEST * 1.15**i) for i in range(56)]))  # up to some thousands, a seventh apart
UNKNOWN = 4096  # steps, of a loop of which nobody knows how many
TRIES = 12  # integer programs, where choices take more room together than one by one
CHECKS = 3  # sharper limits for the plan, where XLA takes more room than was predicted
PLACES = 3  # lines that a refusal shows


@dataclass(frozen=True, slots=True)
class Choice:
    """What a loop keeps: `slots` states, or, without a number, what every step needs."""

    span: Span
    slots: int

    def __str__(self) -> str:
        return f"keeps {self.slots} of its states" if self.slots else "keeps what every step needs"


@dataclass(frozen=True, eq=False, slots=True)
class Plan:
    """A program to be compiled, and what it is predicted to need: as it is, and if every loop kept all."""

    graph: Graph
    account: Account
    before: Account
    choices: tuple[Choice, ...] = ()
    greedy: bool = False  # the integer program was not solved


class Compiled(Protocol):
    """What XLA made of a program."""

    @property
    def bytes(self) -> int: ...


T = TypeVar("T", bound=Compiled)


def limit_of(graph: Graph, budget: int = 0) -> int:
    """The least limit on the memory of a derivative in reverse in a graph, that of the caller included; 0 for none."""
    limits = [e.attrs.get("limit", 0) for g in inner_first(graph)[0] for e in g.eqns if e.op is vjp]
    return min([n for n in (*limits, budget) if n], default=0) if limits else 0


def planned(graph: Graph, limit: int, room: Room = LITTLE) -> Plan:
    """The program of a graph under a limit of so many bytes, 0 for none, as predicted. Errors: DL1012."""
    planner = Planner(graph, room)
    return planner.plan(limit) or planner.refuse(limit)


def fitted(graph: Graph, limit: int, room: Room, make: Callable[[Graph], T]) -> tuple[Plan, T]:
    """The plan of a program under a limit of so many bytes, 0 for none, and what `make` compiles it to.

    Where XLA takes more than was predicted, the plan is made again for less. Errors: DL1012.
    """
    planner = Planner(graph, room)
    aim = limit
    for _ in range(CHECKS):
        plan = planner.plan(aim) or planner.smallest
        made = make(plan.graph)
        if not limit or made.bytes <= limit:
            return plan, made
        if plan is planner.smallest:
            planner.refuse(limit, made.bytes)
        aim = min(aim, plan.account.peak) * limit // made.bytes
    made = make(planner.smallest.graph)
    return (planner.smallest, made) if made.bytes <= limit else planner.refuse(limit, made.bytes)


class Planner:
    """Choices for the loops of one graph, and what they come to."""

    def __init__(self, graph: Graph, room: Room) -> None:
        self.graph, self.room = graph, room
        self.loops = free_loops(graph)
        self.known: dict[tuple[Keep, ...], tuple[Graph, Account]] = {}

    def chosen(self, keeps: Mapping[Eqn, Keep]) -> tuple[Graph, Account]:
        """The finished graph and its account."""
        from difflang.runtime.memory import predicted

        key = tuple([keeps.get(e, ALL) for e in self.loops])
        if key not in self.known:
            done = finished(with_keeps(self.graph, keeps), self.room)
            self.known[key] = done, predicted(done)
        return self.known[key]

    def with_choices(self, keeps: Mapping[Eqn, Keep], *, greedy: bool = False) -> Plan:
        graph, account = self.chosen(keeps)
        choices = tuple([Choice(e.span, keeps[e][0]) for e in self.loops if e in keeps])
        return Plan(graph, account, self.chosen({})[1], choices, greedy)

    @cached_property
    def fewest(self) -> dict[Eqn, Keep]:
        return dict.fromkeys(self.loops, (FEWEST, 0))

    @cached_property
    def smallest(self) -> Plan:
        """The plan that takes the least, of those where all loops keep as little as they can, or all as usual."""
        return min((self.with_choices({}), self.with_choices(self.fewest)), key=lambda p: p.account.peak)

    @cached_property
    def tables(self) -> list[Table]:
        return [self.table(e, self.fewest, self.chosen(self.fewest)[1].peak) for e in self.loops]

    def plan(self, limit: int) -> Plan | None:
        """The plan of least time under a limit, as predicted; None where there is none."""
        if not limit or self.chosen({})[1].peak <= limit:
            return self.with_choices({})
        if self.smallest.account.peak > limit:
            return None
        return self.searched(limit, one_by_one=False) or self.searched(limit, one_by_one=True) or self.fallback

    def searched(self, limit: int, *, one_by_one: bool) -> Plan | None:
        """The first plan under a limit of those that integer programs give.

        Choices that take more together than by themselves, in loops within loops, leave less room to the next program,
        or are dearer in it `one_by_one`.
        """
        tables, room = self.tables, limit - self.chosen(self.fewest)[1].peak
        for _ in range(TRIES):
            picks, greedy = solved(tables, room)
            if picks is None:
                return None
            keeps = {e: t.keeps[i] for e, t, i in zip(self.loops, tables, picks, strict=True)}
            plan = self.with_choices(keeps, greedy=greedy)
            over = plan.account.peak - limit
            if over <= 0:
                return plan
            if one_by_one:
                tables = [t.dearer(i, (over + 1) / len(picks)) for t, i in zip(tables, picks, strict=True)]
            else:
                room -= over
        return None

    @property
    def fallback(self) -> Plan:
        """What fits if anything does, though a quicker plan may fit as well."""
        return replace(self.smallest, greedy=True)

    def refuse(self, limit: int, least: int = 0) -> NoReturn:
        """Errors: DL1012."""
        raise refusal(self.graph, limit, self.smallest.account, least or self.smallest.account.peak)

    def table(self, eqn: Eqn, fewest: Mapping[Eqn, Keep], least: int) -> Table:
        """What a loop's choices take beside the fewest states of all others: in bytes, and in time."""
        length = eqn.attrs["length"]
        slots = [s for s in SLOTS if not isinstance(length, int) or s < length]
        probe = slots[-1] if slots else FEWEST
        slope = (self.chosen({**fewest, eqn: (probe, 0)})[1].peak - least) / max(1, probe - FEWEST)
        whole = self.chosen({**fewest, eqn: ALL})[1].peak - least
        work = bytes_made(eqn)
        times = [taken_again(length, s) * work for s in slots]
        return Table([*[(s, 0) for s in slots], ALL], [*[slope * (s - FEWEST) for s in slots], whole], [*times, 0.0])


@dataclass(frozen=True, slots=True)
class Table:
    """The choices of a loop: what each keeps, how many more bytes that takes, and how much is computed again."""

    keeps: list[Keep]
    bytes: list[float]
    times: list[float]

    def dearer(self, pick: int, more: float) -> Table:
        """The same, a choice taking so many more bytes."""
        return replace(self, bytes=[b + more * (i == pick) for i, b in enumerate(self.bytes)])


def solved(tables: Sequence[Table], room: float) -> tuple[list[int] | None, bool]:
    """One choice of each table, in the least time within so many bytes, and whether it was found greedily."""
    from scipy.optimize import Bounds, LinearConstraint, milp

    if not tables or sum([min(t.bytes) for t in tables]) > room:
        return None, False
    sizes = [len(t.keeps) for t in tables]
    one = np.zeros((len(tables), sum(sizes)))
    for row, (start, size) in enumerate(zip(np.cumsum([0, *sizes[:-1]]), sizes, strict=True)):
        one[row, start : start + size] = 1
    times, bytes = np.concatenate([t.times for t in tables]), np.concatenate([t.bytes for t in tables])
    scale = max(1.0, float(np.max(times)))
    within: Any = [LinearConstraint(one, 1, 1), LinearConstraint(bytes[None, :] / 1024, -np.inf, room / 1024)]
    found: Any = milp(times / scale, constraints=within, integrality=np.ones(len(times)), bounds=Bounds(0, 1))
    if found.x is None:
        return greedily(tables, room), True
    picks = np.split(np.round(found.x), np.cumsum(sizes)[:-1])
    return [int(np.argmax(p)) for p in picks], False


def greedily(tables: Sequence[Table], room: float) -> list[int]:
    """From the fewest bytes on, whatever saves the most time for its bytes, while there is room."""
    picks = [int(np.argmin(t.bytes)) for t in tables]
    while True:
        left = room - sum([t.bytes[i] for t, i in zip(tables, picks, strict=True)])
        steps = [
            ((t.times[i] - t.times[j]) / max(1.0, t.bytes[j] - t.bytes[i]), row, j)
            for row, (t, i) in enumerate(zip(tables, picks, strict=True))
            for j in range(len(t.keeps))
            if t.times[j] < t.times[i] and t.bytes[j] - t.bytes[i] <= left
        ]
        if not steps:
            return picks
        _, row, j = max(steps)
        picks[row] = j


def taken_again(length: object, slots: int) -> float:
    """How many steps are taken on the way back beside those that are differentiated."""
    steps = length if isinstance(length, int) else UNKNOWN
    return float(advances(np, np.int32(min(steps, 2**30)), reaches(slots)[slots]))


def bytes_made(eqn: Eqn) -> float:
    """What a step of a loop makes, as a measure of its work."""
    total = 0.0
    todo = [(eqn.regions[0], 1.0)]
    while todo:
        graph, times = todo.pop()
        for e in graph.eqns:
            total += times * sum([getattr(r.type, "bytes", 0) for r in e.results])
            length = e.attrs.get("length")
            todo += [(r, times * (length if isinstance(length, int) else 1)) for r in e.regions]
    return total


def free_loops(graph: Graph) -> list[Eqn]:
    """The loops under a derivative in reverse of which the program does not say what they keep, in order."""
    found: dict[Eqn, None] = {}
    for inner in inner_first(graph)[0]:
        for eqn in inner.eqns:
            if eqn.op is vjp:
                under = inner_first(eqn.regions[0])[0]
                found |= {e: None for g in under for e in g.eqns if e.op is loop and e.attrs.get("keep", ALL) == ALL}
    return list(found)


def with_keeps(graph: Graph, keeps: Mapping[Eqn, Keep]) -> Graph:
    """The graph whose loops keep that."""
    done: dict[Graph, Graph] = {}
    for inner in inner_first(graph)[0]:
        eqns: list[Eqn] = []
        for e in inner.eqns:
            new = e.with_regions([done[r] for r in e.regions]) if e.regions else e
            if keeps.get(e, ALL) != ALL:
                new = Eqn(e.op, e.operands, e.results, {**e.attrs, "keep": keeps[e]}, new.regions, e.span)
            eqns.append(new)
        done[inner] = inner if all(a is b for a, b in zip(eqns, inner.eqns, strict=True)) else inner.with_eqns(eqns)
    return done[graph]


# ------------------------------------------------------------------------------------------------ where there is none


def refusal(graph: Graph, limit: int, account: Account, least: int) -> DifflangError:
    """Errors: DL1012, with the lines that need the most at the peak."""
    here: dict[tuple[str, int], int] = {}
    for b in account.at_the_peak():
        if b.place is not None:
            here[b.place] = here.get(b.place, 0) + b.bytes
    lines = lines_of(graph)
    most = sorted([(n, place) for place, n in here.items() if place in lines], reverse=True)[:PLACES]
    return DifflangError(
        Diagnostic(
            "DL1012",
            f"this derivative does not fit in {human(limit)}: it takes {human(least)} at least",
            tuple([Label(lines[place], f"{human(n)} for this line, when most is there") for n, place in most]),
            (f"the smallest limit that can be kept is {human(least, up=True)}",),
        )
    )


def lines_of(graph: Graph) -> dict[tuple[str, int], Span]:
    """The lines of a program that equations come from, each as a span."""
    found: dict[tuple[str, int], Span] = {}
    for inner in inner_first(graph)[0]:
        for e in inner.eqns:
            if e.span.source.text:
                line = e.span.position[0]
                found.setdefault((e.span.source.name, line), whole_line(e.span.source, line))
    return found


def whole_line(source: Source, line: int) -> Span:
    """The text of a line, without the space around it."""
    start = source.starts[line - 1]
    end = source.starts[line] if line < len(source.starts) else len(source.text)
    text = source.text[start:end]
    begin = start + len(text) - len(text.lstrip())
    return Span(source, begin, max(begin, start + len(text.rstrip())))
