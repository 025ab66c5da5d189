"""A graph as a function of Python calls it: compiled, as a part of JAX's programs, interpreted, and told of failures.

What reads arguments and makes values of results is lent by the doors.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Iterator, MutableMapping, Sequence
from contextlib import AbstractContextManager
from functools import cached_property, partial
from typing import Any

import numpy as np
from msgspec import Struct

from difflang.base.check_sites import Checks
from difflang.base.diagnostics import Diagnostic, DifflangError, printable, render
from difflang.base.gc_pause import paused
from difflang.embed.derived_programs import Program, Road, poisoned
from difflang.embed.jax_primitive import apply
from difflang.execution.check_failures import WORD, explain, guarded, untold, without_proved
from difflang.execution.check_failures import Program as Runs
from difflang.execution.random_keys import seed_words
from difflang.ir.graph import Graph
from difflang.ir.interpreter import Says, evaluate
from difflang.lower.capacity import LITTLE, Elastic, Room, with_room
from difflang.lower.lowering_pipeline import finished
from difflang.ops.control.print_effect import printing
from difflang.ops.control.print_sink import Voice
from difflang.passes.dce import dce
from difflang.passes.substitute_dims import has_names
from difflang.plan.budget_search import limit_of, planned
from difflang.plan.compile_within_limit import fitted
from difflang.runtime import pytrees
from difflang.runtime.adaptive_wait import Waiter
from difflang.runtime.compile import Executable, compile


def ready(graph: Graph, room: Room = LITTLE) -> Graph:
    """The graph as it is lowered: under a limit on memory, with what its loops keep chosen by prediction."""
    with paused():
        limit = limit_of(graph)
        return planned(graph, limit, room).graph if limit else finished(graph, room)


class Made(Struct, frozen=True):
    """A finished graph, and what runs it. Where it may still fail, its last three results are a failure."""

    graph: Graph
    executable: Executable
    fails: bool

    @property
    def bytes(self) -> int:
        return self.executable.bytes

    @property
    def orders(self) -> bool:
        return self.executable.orders


class Surroundings(Struct, frozen=True, eq=False):
    """What programs of one file have in common. `rooms` are those of functions that needed more than a little."""

    checks: Checks
    lock: AbstractContextManager[Any]
    rooms: MutableMapping[Any, Room]


class Running:
    """An elaborated graph on its way to run. If it can fail, its last three results are a failure.

    `of` is what it shares its room with, `said` how many bytes its derivatives may take, 0 for any; `make` makes the
    value that the leaves of a result are.
    """

    make: Callable[[Iterator[Any]], Any]
    make_unlimited: Callable[[Iterator[Any]], Any]  # of what `unlimited` gives: it may have other room

    def __init__(self, around: Surroundings, graph: Graph, can_fail: bool, of: Hashable, said: int) -> None:
        self.around, self.elaborated, self.can_fail, self.of, self.said = around, graph, can_fail, of, said
        self.limit = limit_of(graph)
        self.programs: dict[int, Elastic[Made]] = {}  # by the limit they are made under
        self.voice = Voice(to_stdout)
        self.waiter = Waiter()

    @property
    def program(self) -> Elastic[Made]:
        """What XLA runs. Errors: DL1012."""
        return self.under(self.limit)

    @property
    def unlimited(self) -> Elastic[Made]:
        """What the interpreter runs: limits are on XLA's memory."""
        return self.under(0)

    def under(self, limit: int) -> Elastic[Made]:
        """The program under a limit, which is made by whoever asks first. Errors: DL1012."""
        if limit not in self.programs:
            with self.around.lock:
                if limit not in self.programs:
                    room = self.around.rooms.get(self.of, LITTLE)
                    self.programs[limit] = Elastic(partial(self.compiled, limit), room)
        return self.programs[limit]

    def compiled(self, limit: int, room: Room) -> Made:
        """The finished graph, and what runs it without the numbers of a failure."""
        with self.around.lock, paused():
            if limit:
                return fitted(self.elaborated, limit, room, self.made)[1]
            graph = finished(self.elaborated, room)
        return self.made(graph)

    def made(self, graph: Graph, *, sparing: bool = False) -> Made:
        proved = without_proved(graph) if self.can_fail else None
        fails = self.can_fail and proved is None
        graph = graph if proved is None else proved
        runs = guarded(graph) if fails else graph
        in_order = self.around.checks.in_order
        return Made(graph, compile(runs, says=self.voice, in_order=in_order, sparing=sparing), fails)

    @property
    def graph(self) -> Graph:
        return self.program.made.graph

    @property
    def executable(self) -> Executable:
        return self.program.made.executable

    @property
    def fails(self) -> bool:
        """Whether a check may fail."""
        return self.program.made.fails

    def grows(self, program: Elastic[Made], number: int, *, interpreted: bool = False) -> bool:
        """Whether a check failed for want of room that there is now."""
        more = program.grows(self.around.checks, number, interpreted=interpreted)
        if more and program is self.programs.get(self.limit):
            self.around.rooms[self.of] = program.room
            self.forget()
        return more

    def keep_up(self, *, raises: bool = True) -> None:
        """Another program of the function may have needed more room: where nothing `raises` nobody would find out.

        Under a limit no more is taken than is needed here.
        """
        if self.limit and raises and not pytrees.in_trace():
            return
        room = self.around.rooms.get(self.of, self.program.room)
        if room != self.program.room:
            self.programs[self.limit] = Elastic(partial(self.compiled, self.limit), room)
            self.forget()

    def forget(self) -> None:
        """The programs that JAX sees have the room they were made with."""
        for name in ("whole", "within", "bare"):
            vars(self).pop(name, None)

    def converted(self, arrays: Sequence[Any]) -> list[Any]:
        """The arrays at the door, of the types that the program takes."""
        return [c(x) for c, x in zip(self.executable.converters, arrays, strict=True)]

    # ---- calls

    def called(self, arrays: Sequence[Any]) -> Any:
        """The value for such arrays, wherever they are."""
        if pytrees.traced(arrays):
            return self.make(iter(self.inside(arrays)))
        met = self.voice.met
        results = self.over_devices(arrays) if pytrees.over_devices(arrays) else self.executable(*arrays)
        return self.value(results, arrays, met)

    def of_host(self, leaves: Sequence[Any]) -> Any:
        """The same where the leaves are numbers and NumPy arrays, and all that the program takes."""
        met, executable = self.voice.met, self.program.made.executable
        arrays = [convert(x) for convert, x in zip(executable.converters, leaves, strict=True)]
        return self.value(executable.on_arrays(arrays), arrays, met)

    def value(self, results: list[Any], arrays: Sequence[Any], met: int) -> Any:
        """The value that the program's results are, JAX's concrete arrays, if no check failed.

        When it began, `met` texts had been printed.
        """
        while self.fails and (number := self.waiter.item(results.pop())):
            if not self.grows(self.program, number):
                given = pytrees.on_host(arrays) if pytrees.over_devices(arrays) else arrays
                raise self.failure(number, Executable, given, self.program.room)
            self.voice.again(met)
            results = self.executable(*arrays)
        self.voice.settle()
        return self.make(iter(results))

    def failure(
        self, number: int, runs: Callable[[Graph, None, Says], Runs], arrays: Sequence[Any], room: Room
    ) -> DifflangError:
        """The error that a failed check is: the program is run once more, under no limit, for all there is to say."""

        def full(graph: Graph, says: Says) -> Runs:
            with self.around.lock, paused():
                explained = finished(graph, room, explained=True)
            return runs(explained, None, says)

        return explain(self.around.checks, number, self.elaborated, full, arrays)

    def interpreted(self, arrays: Sequence[Any]) -> Any:
        """The value in NumPy, by the reference of each op."""
        program = self.unlimited
        converted = self.concrete(arrays, "the interpreter")
        met = self.voice.met
        results = self.evaluated(program.made, converted)
        while program.made.fails and (site := results[-3].item()):
            if not self.grows(program, site, interpreted=True):
                raise self.failure(site, by_interpreter, converted, program.room)
            self.voice.again(met)
            results = self.evaluated(program.made, converted)
        return self.make_unlimited(iter(results))

    def evaluated(self, made: Made, arrays: Sequence[Any]) -> list[Any]:
        results = [np.asarray(x) for x in evaluate(made.graph, *arrays, says=self.voice)]
        self.voice.settle()
        return results

    def concrete(self, arrays: Sequence[Any], who: str) -> list[Any]:
        """The arrays in NumPy. Errors: DL1206 for values inside a JAX transformation."""
        if pytrees.traced(arrays):
            message = f"{who} takes arrays, not values inside a JAX transformation"
            raise DifflangError(Diagnostic("DL1206", message))
        converters = self.unlimited.made.executable.converters
        return [np.asarray(c(x)) for c, x in zip(converters, arrays, strict=True)]

    # ---- inside JAX

    def inside(self, arrays: Sequence[Any]) -> list[Any]:
        """The results as a part of a program of JAX, whose transformations go by our rules."""
        results = apply(self.within, self.converted(arrays))
        return results[:-1] if self.fails else results

    def over_devices(self, arrays: Sequence[Any]) -> list[Any]:
        """The results of arrays that lie on several devices: XLA splits the program as the arrays are split."""
        return apply(self.whole, self.converted(arrays))

    @cached_property
    def whole(self) -> Program:
        """What `executable` runs, for wherever its arguments are."""
        graph = self.seen
        if not self.fails:
            return Program(dce(graph.with_results(graph.results[:-WORD])) if self.can_fail else graph, self.road)
        return Program(guarded(graph), self.road)

    @cached_property
    def within(self) -> Program:
        """The program that JAX's transformations see. A check that fails makes its floats and their derivatives NaN."""
        if not self.fails:
            return self.whole
        graph, last = self.whole.graph, len(self.whole.graph.results) - 1
        return Program(poisoned(graph, last), self.road, last)

    def checked(self, arrays: Sequence[Any]) -> tuple[list[Any], Any]:
        """The word of a failure, and the value."""
        found = apply(self.bare, self.converted(arrays))
        if not self.can_fail:
            return [np.int32(0)] * WORD, self.make(iter(found))
        return found[-WORD:], self.make(iter(found[:-WORD]))

    @cached_property
    def bare(self) -> Program:
        """The program with the whole word of a failure, nothing of which is told otherwise."""
        return Program(self.seen, self.road)

    @property
    def seen(self) -> Graph:
        """The graph as JAX sees it: what it gives has sizes in numbers."""
        graph = printing(self.elaborated)
        if not any(has_names(r.type) for r in graph.results):
            return graph
        return with_room(graph, self.program.room, arrays=True)

    @cached_property
    def road(self) -> Road:
        return Road(lambda graph: ready(graph, self.program.room), self.voice, self.told, self.said)

    def told(self, number: int) -> None:
        """Say on the error stream that a check failed where nothing can be raised."""
        site = self.around.checks.sites[number - 1]
        sys.stderr.write(f"{printable(render([untold(site)]))}\n")


def by_interpreter(graph: Graph, _: None, says: Says) -> Runs:
    return partial(evaluate, graph, says=says)


def to_stdout(text: str) -> None:
    """Write what a program prints where Python's `print` would."""
    sys.stdout.write(f"{printable(text)}\n")


def key_words(key: Any) -> Any:
    """A random key from what was given: a seed, or a key."""
    if isinstance(key, int) and not isinstance(key, bool):
        return seed_words(key)
    return pytrees.key_data(key)
