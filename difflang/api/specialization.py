"""Specializations of a function: the program for arguments of certain types, and the ways that calls find it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

from difflang.api.loaded import Given, Loaded
from difflang.api.results import field_of, maker
from difflang.api.signature import Signature
from difflang.audit.report import Report
from difflang.base.diagnostics import printable, render
from difflang.check.closures import DerivativeCode
from difflang.check.reports import mistake
from difflang.check.types import ClosureType
from difflang.driver import check_grad, trace
from difflang.driver.check_grad import Options
from difflang.driver.draws import seed_words
from difflang.driver.enough import with_enough_room
from difflang.driver.entry import Entry
from difflang.driver.guard import WORD, explain, guarded, untold, without_proved
from difflang.driver.guard import Program as Runs
from difflang.driver.planning import fitted, limit_of
from difflang.driver.room import LITTLE, Elastic, Room
from difflang.embed.primitive import apply
from difflang.embed.program import Program, Road, poisoned
from difflang.ir.evaluate import Says, evaluate
from difflang.ir.graph import Graph
from difflang.ops.say import printing
from difflang.ops.voice import Voice
from difflang.passes.dce import dce
from difflang.runtime import trees
from difflang.runtime.compile import Executable, compile
from difflang.runtime.waiting import Waiter

UNKNOWN = object()


@dataclass(frozen=True, slots=True)
class Made:
    """A finished graph, and what runs it."""

    graph: Graph
    executable: Executable

    @property
    def bytes(self) -> int:
        return self.executable.bytes


class Specialization:
    """A function for arguments of certain types: its program, and the way from given leaves to a value.

    `function` makes what is given back where a result is a function.
    """

    def __init__(
        self, loaded: Loaded, name: str, signature: Signature, type: ClosureType, given: Given, function: Any
    ) -> None:
        typed = loaded.typed(name, signature, given)
        self.loaded, self.name = loaded, name
        self.order, self.keys = typed.order, typed.keys
        self.plain = typed.order == tuple(range(len(given.leaves)))  # the program takes the leaves as they come
        self.entry: Entry = loaded.entry(name, type, typed.arguments)
        with loaded.lock:
            self.constants = loaded.constants(self.entry)
        self.random = self.entry.random
        self.rooms, self.type = loaded.rooms, type
        self.voice = Voice(to_stdout)
        self.program = Elastic(self.compiled, self.rooms.get(type, LITTLE))
        self.waiter = Waiter()
        self.direct = self.plain and not self.random and not self.constants  # nothing stands before the program
        like = moved_like(type, signature, given)
        self.make = maker(self.entry.type, loaded.records, lambda type, leaves: function(loaded, type, leaves), like)

    def compiled(self, room: Room) -> Made:
        """The finished graph, and what runs it without the numbers of a failure."""
        with self.loaded.lock:
            if limit := limit_of(self.entry.graph):
                return fitted(self.entry.graph, limit, room, self.made)[1]
            graph = self.loaded.finished(self.entry.graph, room)
        return self.made(graph)

    def made(self, graph: Graph) -> Made:
        proved = without_proved(graph) if self.entry.fails else None
        self.fails = self.entry.fails and proved is None
        graph = graph if proved is None else proved
        in_order = self.loaded.checked.session.in_order
        return Made(graph, compile(guarded(graph) if self.fails else graph, says=self.voice, in_order=in_order))

    @property
    def graph(self) -> Graph:
        return self.program.made.graph

    @property
    def executable(self) -> Executable:
        return self.program.made.executable

    def grows(self, number: int, *, interpreted: bool = False) -> bool:
        """Whether a check failed for want of room that there is now."""
        more = self.program.grows(self.loaded.checked.session, number, interpreted=interpreted)
        if more:
            self.rooms[self.type] = self.program.room
            self.forget()
        return more

    def keep_up(self) -> None:
        """Another specialization may have needed more room: inside JAX nobody would find out."""
        room = self.rooms.get(self.type, self.program.room)
        if room != self.program.room:
            self.program = Elastic(self.compiled, room)
            self.forget()

    def forget(self) -> None:
        """The programs that JAX sees have the room they were made with."""
        for name in ("whole", "within", "bare"):
            vars(self).pop(name, None)

    def arrays(self, leaves: Sequence[Any], key: Any) -> list[Any]:
        """What the program takes."""
        arrays = list(leaves) if self.plain else [leaves[i] for i in self.order]
        for i in self.keys:
            arrays[i] = key_words(arrays[i])
        if self.random:
            arrays.append(self.key(key, arrays))
        elif key is not None:
            raise mistake("DL1207", "a key is given, and this function draws nothing")
        return [*arrays, *self.constants]

    def key(self, key: Any, arrays: Sequence[Any]) -> Any:
        if key is not None:
            return key_words(key)
        if trees.traced(arrays) or trees.in_trace():
            raise mistake(
                "DL1208", "a random function inside a JAX transformation needs a key", help="give it one: `key=key`"
            )
        return self.loaded.next_key()

    def run(self, leaves: Sequence[Any], key: Any = None) -> Any:
        self.keep_up()
        arrays = self.arrays(leaves, key)
        if trees.traced(arrays):
            return self.make(iter(self.inside(arrays)))
        met = self.voice.met
        results = self.over_devices(arrays) if trees.over_devices(arrays) else self.executable(*arrays)
        return self.value(results, arrays, met)

    def of_host(self, leaves: Sequence[Any]) -> Any:
        """The same where the leaves are numbers and NumPy arrays, and all that the program takes."""
        met, executable = self.voice.met, self.program.made.executable
        arrays = [convert(x) for convert, x in zip(executable.converters, leaves, strict=True)]
        return self.value(executable.on_arrays(arrays), arrays, met)

    def inside(self, arrays: Sequence[Any]) -> list[Any]:
        """The results as a part of a program of JAX, whose transformations go by our rules."""
        converted = [c(x) for c, x in zip(self.executable.converters, arrays, strict=True)]
        results = apply(self.within, converted)
        return results[:-1] if self.fails else results

    def over_devices(self, arrays: Sequence[Any]) -> list[Any]:
        """The results of arrays that lie on several devices: XLA splits the program as the arrays are split."""
        return apply(self.whole, [c(x) for c, x in zip(self.executable.converters, arrays, strict=True)])

    @cached_property
    def whole(self) -> Program:
        """What `executable` runs, for wherever its arguments are."""
        graph = printing(self.entry.graph)
        if not self.fails:
            return Program(dce(graph.with_results(graph.results[:-WORD])) if self.entry.fails else graph, self.road)
        return Program(guarded(graph), self.road)

    @cached_property
    def within(self) -> Program:
        """The program that JAX's transformations see. A check that fails makes its floats and their derivatives NaN."""
        if not self.fails:
            return self.whole
        graph, last = self.whole.graph, len(self.whole.graph.results) - 1
        return Program(poisoned(graph, last), self.road, last)

    def run_checked(self, leaves: Sequence[Any], key: Any) -> tuple[list[Any], Any]:
        """The word of a failure, and the value."""
        self.keep_up()
        arrays = self.arrays(leaves, key)
        found = apply(self.bare, [c(x) for c, x in zip(self.executable.converters, arrays, strict=True)])
        if not self.entry.fails:
            return [np.int32(0)] * WORD, self.make(iter(found))
        return found[-WORD:], self.make(iter(found[:-WORD]))

    @cached_property
    def bare(self) -> Program:
        """The program with the whole word of a failure, nothing of which is told otherwise."""
        return Program(printing(self.entry.graph), self.road)

    @cached_property
    def road(self) -> Road:
        return Road(lambda graph: self.loaded.finished(graph, self.program.room), self.voice, self.told)

    def told(self, number: int) -> None:
        """Say on the error stream that a check failed where nothing can be raised."""
        site = self.loaded.checked.session.sites[number - 1]
        sys.stderr.write(f"{printable(render([untold(site)]))}\n")

    def value(self, results: list[Any], arrays: Sequence[Any], met: int) -> Any:
        """The value that the program's results are, JAX's concrete arrays, if no check failed.

        When it began, `met` texts had been printed.
        """
        while self.fails and (number := self.waiter.item(results.pop())):
            if not self.grows(number):
                here = trees.on_host(arrays) if trees.over_devices(arrays) else arrays
                raise explain(self.loaded.checked.session, number, self.explaining(Executable), here)
            self.voice.again(met)
            results = self.executable(*arrays)
        self.voice.settle()
        return self.make(iter(results))

    def explaining(self, runs: Callable[[Graph, None, Says], Runs]) -> Callable[[Says], Runs]:
        """What runs the program once more, for the whole failure and the messages of checks."""
        with self.loaded.lock:
            graph = self.loaded.finished(self.entry.graph, self.program.room, explained=True)
        return lambda says: runs(graph, None, says)

    def audited(self, leaves: Sequence[Any], key: Any, options: Options) -> Report:
        """The audit of its derivative at arguments. Errors: as a call's, and what `check_grad.audited` refuses."""
        arrays = self.arrays(leaves, key)
        if trees.traced(arrays):
            raise mistake("DL1206", "an audit takes arrays, not values inside a JAX transformation")
        converted = [np.asarray(c(x)) for c, x in zip(self.executable.converters, arrays, strict=True)]
        if self.fails:
            silent = compile(self.executable.graph) if self.graph.effectful else self.executable
            self.value(list(silent(*converted)), converted, self.voice.met)
        inputs = len(converted) - len(self.constants)
        entry = with_enough_room(self.loaded.checked.session, self.entry, converted)
        return check_grad.audited(self.loaded.module, self.name, entry, converted, inputs, options)

    def traced(self, leaves: Sequence[Any], key: Any, options: trace.Options) -> trace.Trace:
        """The trace of a call, on the interpreter. Errors: as a call's, and what `trace.of_entry` refuses."""
        arrays = self.arrays(leaves, key)
        if trees.traced(arrays):
            raise mistake("DL1206", "a trace takes arrays, not values inside a JAX transformation")
        converted = [np.asarray(c(x)) for c, x in zip(self.executable.converters, arrays, strict=True)]
        inputs = len(converted) - len(self.constants) - self.random
        return trace.of_entry(self.loaded.checked.session, self.name, self.entry, converted, inputs, options)

    def interpret(self, leaves: Sequence[Any], key: Any) -> Any:
        """The same in NumPy, by the reference of each op."""
        arrays = self.arrays(leaves, key)
        if trees.traced(arrays):
            raise mistake("DL1206", "the interpreter takes arrays, not values inside a JAX transformation")
        converted = [np.asarray(c(x)) for c, x in zip(self.executable.converters, arrays, strict=True)]
        met = self.voice.met
        results = self.interpreted(converted)
        while self.fails and (site := results[-3].item()):
            if not self.grows(site, interpreted=True):
                full = self.explaining(lambda graph, _, says: partial(evaluate, graph, says=says))
                raise explain(self.loaded.checked.session, site, full, converted)
            self.voice.again(met)
            results = self.interpreted(converted)
        return self.make(iter(results))

    def interpreted(self, arrays: Sequence[Any]) -> list[Any]:
        results = [np.asarray(x) for x in evaluate(self.graph, *arrays, says=self.voice)]
        self.voice.settle()
        return results


class Table:
    """The specializations of a function, and the short ways to them for arguments given by position.

    Most calls are like the one before: the last specialization for a structure is tried first, since its compiled
    program compares the types of arrays itself, faster than anything written here.
    """

    __slots__ = ("concrete", "found", "hosted", "known", "last")

    def __init__(self) -> None:
        self.found: dict[Any, Specialization] = {}
        self.last: dict[Any, Specialization] = {}  # by structure
        self.known: dict[Any, Specialization] = {}  # by structure and types
        self.hosted = set[Any]()  # those keys of Python numbers and NumPy arrays only, before which nothing stands
        self.concrete: frozenset[type] = frozenset()  # the class of JAX's concrete arrays

    def call(self, args: tuple[Any, ...]) -> Any:
        """The value for such arguments; `UNKNOWN` where a closer look is needed."""
        if self.concrete.issuperset(map(type, args)):
            leaves, structure, concrete = args, len(args), True
        else:
            leaves, structure = trees.tree_flatten(args)
            concrete = self.concrete.issuperset(map(type, leaves))
        last = self.last.get(structure)
        if last is None:
            return UNKNOWN
        compiled = last.program.made.executable.compiled
        if concrete and last.direct and compiled is not None:
            met = last.voice.met
            try:
                results = compiled(*leaves)
            except (TypeError, ValueError):  # other types, or on another device
                pass
            else:
                return last.value(results, leaves, met)
        key = trees.quick(leaves, structure)
        known = self.known.get(key)
        if known is None:
            return UNKNOWN
        self.last[structure] = known
        return known.of_host(leaves) if key in self.hosted else known.run(leaves)

    def learn(self, found: Specialization, args: tuple[Any, ...]) -> None:
        """Let the next call with such arguments take a short way."""
        self.concrete = found.executable.plain
        arrays = self.concrete.issuperset(map(type, args))
        leaves, structure = (args, len(args)) if arrays else trees.tree_flatten(args)
        quick = trees.quick(leaves, structure)
        if quick is not None and not trees.traced(leaves):
            self.known[quick] = self.last[structure] = found
            if found.direct and trees.from_host(leaves):
                self.hosted.add(quick)


def to_stdout(text: str) -> None:
    """Write what a program prints where Python's `print` would."""
    sys.stdout.write(f"{printable(text)}\n")


def moved_like(type: ClosureType, signature: Signature, given: Given) -> Any:
    """What a gradient, or a value and a gradient, is to be like: the arguments that it is taken in."""
    code = type.code
    if not isinstance(code, DerivativeCode) or code.operator not in ("grad", "value_and_grad", "hvp"):
        return None
    _, values = trees.slots(given.leaves, given.structure)
    named = dict(zip([n for n in given.names if n not in dict(given.dims)], values, strict=True))
    found: list[Any] = []
    for first, *path in code.wrt:
        value = named.get(signature.names[first] if isinstance(first, int) else first)
        for name in path:
            value = field_of(value, str(name))
        found.append(value)
    if len(found) > 1:
        found = [trees.Fields({str(w[-1]): x for w, x in zip(code.wrt, found, strict=True)})]
    return (None, *found) if code.operator == "value_and_grad" else found[0]


def operator_of(type: ClosureType) -> str:
    """The derivative operator that made a function, or nothing."""
    return type.code.operator if isinstance(type.code, DerivativeCode) else ""


def key_words(key: Any) -> Any:
    """A random key from what was given: a seed, or a key."""
    if isinstance(key, int) and not isinstance(key, bool):
        return seed_words(key)
    return trees.key_data(key)
