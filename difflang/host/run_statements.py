"""Runs host statements: units compiled once and called, files read, results printed."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Generator, Hashable, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from msgspec.structs import replace

from difflang.base.diagnostics import Diagnostic, printable
from difflang.base.source import Span
from difflang.elaborate.context import Session
from difflang.elaborate.trampoline import Walk
from difflang.execution.check_failures import too_many_steps
from difflang.execution.engine import Engine
from difflang.execution.line_profiler import Profile
from difflang.execution.random_keys import draws_from
from difflang.host.assertion_errors import failed
from difflang.host.builtins import UNIT_VALUE, Given, Hosted
from difflang.host.call_frames import Frame
from difflang.host.compiled_units import Unit, Units
from difflang.host.data.file_access import Access
from difflang.host.expected_type import Wanted
from difflang.host.loop_iterables import Over, item_type, stacked, yielded_type
from difflang.host.match import bind, cases_of, fitting
from difflang.host.progress_bar import progress
from difflang.host.statement_walk import Host
from difflang.host.values import HostValue, show
from difflang.ir.interpreter import numpy_dtype
from difflang.ir.symbolic_dims import Dim
from difflang.ops.control.print_sink import Voice
from difflang.syntax import tree
from difflang.types.annotations import Annotations
from difflang.types.language_types import TextType, leaf_types, show_type
from difflang.types.module_scope import Global, HostNumber, Module
from difflang.types.type_errors import mistake

MOST_CALLS = 10_000  # `host fn`s inside one another


class Left(Exception):
    """A loop, a step of it or a function is left."""

    def __init__(self, stmt: tree.Node, value: HostValue) -> None:
        self.stmt, self.value = stmt, value


class Runner(Host):
    """Carries out host statements in order."""

    definition = False

    def __init__(
        self,
        session: Session,
        module: Module,
        engine: Engine,
        access: Access,
        seed: int,
        write: Callable[[str], None],
        warn: Callable[[list[Diagnostic]], None] = lambda _: None,
        told: Mapping[str, str] = MappingProxyType({}),
        hosts: dict[Module, Host] | None = None,
    ) -> None:
        super().__init__(session, module, hosts)
        self.access, self.write, self.warn = access, write, warn
        self.units = Units(session, engine, Voice(self.printed))
        self.pictures: list[Path] = []  # that were drawn, for who shows them
        self.told = told  # the arguments of the program, as the command line spells them
        self.started = time.perf_counter()
        self.draws = self.own_draws = draws_from(seed)  # one key a random unit

    def printed(self, text: str) -> None:
        """Write a text; nothing in it reaches the terminal but as text."""
        self.write(printable(text))

    def take_over(self, units: Units) -> None:
        """Run what was compiled for others. From now on it prints here."""
        self.units, units.voice.write = units, self.printed

    def beside(self, module: Module, access: Access, number: int) -> Runner:
        """Carries out what is asked of a module that is not run, and draws from a key of its own."""
        engine = self.units.engine
        other = Runner(self.session, module, engine, access, 0, self.write, self.warn, self.told, self.hosts)
        other.units, other.started, other.pictures = self.units, self.started, self.pictures
        other.draws = other.own_draws = self.own_draws.apart(number)
        return other

    @contextmanager
    def drawing_from(self, number: int) -> Generator[None, None, None]:
        """Draws come from a stream of that number, whatever was drawn before, and count for nothing afterwards."""
        outer, self.draws = self.draws, self.own_draws.apart(number)
        try:
            yield
        finally:
            self.draws = outer

    def run(self, items: tuple[tree.Item, ...]) -> None:
        """Every statement, up to the first that fails. Errors: DifflangError."""
        for item in items:
            self.statement(item)

    @property
    def profile(self) -> Profile | None:
        return self.units.engine.profile

    def do(self, stmt: tree.Node, *, last: bool = False, wanted: Wanted | None = None) -> Walk[HostValue]:
        walk = super().do(stmt, last=last, wanted=wanted)
        return walk if self.profile is None else self.timed(self.profile, stmt.span, walk)

    def timed(self, profile: Profile, span: Span, walk: Walk[HostValue]) -> Walk[HostValue]:
        with profile.at(span):
            return (yield walk)

    # ---- units

    def unit(self, node: tree.Node, body: Any, key: Hashable = None) -> tuple[list[HostValue], Unit]:
        try:
            return self.carried_out(node, body, key)
        except (MemoryError, RuntimeError) as error:
            if not isinstance(error, MemoryError) and "RESOURCE_EXHAUSTED" not in str(error):  # how XLA says it
                raise
            way = "smaller arrays, or fewer of them at a time"
            raise mistake("DL1006", "there is not enough memory for this", (node.span, ""), help=way) from error

    def carried_out(self, node: tree.Node, body: Any, key: Hashable) -> tuple[list[HostValue], Unit]:
        unit = self.units.find(node, key, self.module, self.demand)
        if unit is None:
            with self.profile.doing("compile") if self.profile is not None else nullcontext():
                unit = self.made(node, body, key)
        arguments = [leaf for name in unit.reads for leaf in self.read(name).leaves or ()]
        return self.units.execute(unit, arguments, self.draws.next() if unit.random else None), unit

    def made(self, node: tree.Node, body: Any, key: Hashable) -> Unit:
        """A unit that is walked and compiled now, and what is to be said of it."""
        said = len(self.session.diagnostics)
        unit = self.staged(node, body)
        self.warn(self.session.diagnostics[said:])
        del self.session.diagnostics[said:]
        unit = replace(unit, program=self.units.program(unit))
        self.warn(self.units.notes(unit))
        self.units.keep(node, key, unit)
        return unit

    def demand(self, number: HostNumber) -> Dim:
        value = self.read(number.of)
        return int(value.number if number.leaf is None else np.asarray((value.leaves or ())[number.leaf]))

    def read(self, name: Global) -> HostValue:
        """The value of a top-level name, of this module or of one that it imports."""
        return self.hosts[name.module].values[name.name]

    def settle(self) -> None:
        """Wait for what was begun: JAX gives results before they are there."""
        for leaf in [leaf for host in self.hosts.values() for v in host.values.values() for leaf in v.leaves or ()]:
            getattr(leaf, "block_until_ready", int)()

    # ---- host functions and text

    def perform(self, function: Hosted, given: Given) -> HostValue:
        function.check(self, given)
        return function.run(self, given)

    def show(self, e: tree.Expr) -> Walk[str]:
        return show((yield self.value_of(e)), "", e.span)

    def text(self, e: tree.Str) -> Walk[HostValue]:
        pieces: list[str] = []
        for part in e.parts:
            pieces.append(
                part if isinstance(part, str) else show((yield self.value_of(part.value)), part.format, part.span)
            )
        return HostValue(TextType("".join(pieces)), ())

    # ---- control flow

    def branch(self, e: tree.If, condition: HostValue, wanted: Wanted | None) -> Walk[HostValue]:
        if condition.number:
            return (yield self.do_block(e.then, wanted))
        return (yield self.control(e.orelse, wanted)) if e.orelse is not None else UNIT_VALUE

    def match(self, e: tree.Match, subject: HostValue, wanted: Wanted | None) -> Walk[HostValue]:
        fit, case = next((fit, case) for fit, case in cases_of(self, e, subject) if fitting(fit, subject))
        with self.scope(case.span):
            bind(self, fit, subject, case.pattern.span)
            return (yield self.do(case.body, last=True, wanted=wanted))

    def logic(self, e: tree.Binary) -> Walk[HostValue]:
        left = yield self.condition(e.lhs)
        return left if bool(left.number) is (e.op == "or") else (yield self.condition(e.rhs))

    def repeat(self, e: tree.While) -> Walk[None]:
        for count in itertools.count():
            if not (yield self.condition(e.condition)).number:
                break
            self.counted(count, e)
            if not (yield self.step(e)):
                break

    def go_through(self, e: tree.For, over: Over, shown: bool) -> Walk[None]:
        length = over.length
        assert isinstance(length, int)
        for count, item in enumerate(progress(over.items(), length) if shown else over.items()):
            self.counted(count, e)
            with self.scope(e.span):
                self.bind(e.pattern, item, False, e.iterable.span)
                if not (yield self.step(e)):
                    break

    def counted(self, steps: int, e: tree.For | tree.While) -> None:
        """Another step of a loop. Errors: DL0909 where so many are allowed."""
        if self.session.most_steps and steps >= self.session.most_steps:
            raise too_many_steps(e.span, self.session.most_steps)

    def step(self, e: tree.For | tree.While) -> Walk[bool]:
        """One step of a loop; whether it goes on."""
        try:
            yield self.do_block(e.body)
        except Left as left:
            if isinstance(left.stmt, tree.Return):
                raise
            return isinstance(left.stmt, tree.Continue)
        return True

    def gathered(self, e: tree.For | tree.While, items: list[HostValue], over: Over | None) -> HostValue:
        if items:
            held = item_type([item.type for item in items], e.body.span)
            rows = [self.held(e.body, item, held) for item in items]
            return stacked(rows, yielded_type(held, len(items), e.body.span))
        type = yielded_type(self.module.yielded[e], 0, e.body.span)
        if any(not isinstance(n, int) for t in leaf_types(type) for n in t.shape):
            raise mistake("DL0305", "this loop took no step, and what it yields has a size that only a step tells",
                          (e.body.span, f"it yields {show_type(self.module.yielded[e])}"))  # fmt: skip
        return HostValue(type, tuple(np.zeros(t.shape, numpy_dtype(t.dtype)) for t in leaf_types(type)))  # type: ignore[arg-type]

    def asserted(self, e: tree.Assert) -> Walk[None]:
        for part in self.each_alone(e.condition):
            work = self.work(part)
            with self.scope(e.span):
                if work is not None:
                    yield self.lift(work)
                condition = (work and work.rest) or part
                drawn = self.draws.made
                if not (yield self.condition(condition)).number:
                    raise (yield failed(self, e, condition, drawn))

    def each_alone(self, e: tree.Expr) -> list[tree.Expr]:
        """The conditions that the host joins by `and` itself, one after the other."""
        work = self.work(e)
        if work is None or work.rest is not None or not isinstance(e, tree.Binary) or e.op != "and":
            return [e]
        return [*self.each_alone(e.lhs), *self.each_alone(e.rhs)]

    def leave(self, stmt: tree.Return | tree.Break | tree.Continue, value: HostValue) -> None:
        raise Left(stmt, value)

    def enter(self, e: tree.Node, decl: tree.Fn, names: Annotations, values: list[HostValue]) -> Walk[HostValue]:
        if len(self.frames) > MOST_CALLS:
            way = "a recursion must reach an `if` that ends it"
            message = f"host functions call each other more than {MOST_CALLS:,} deep"
            raise mistake("DL1003", message, (e.span, f"`{decl.name}` once more"), help=way)
        try:
            found = yield self.inside(e, Frame(decl, names), [forgotten(v) for v in values])
        except Left as left:
            found = left.value
        return forgotten(found)


def forgotten(value: HostValue) -> HostValue:
    """The value, its number not part of what is compiled: else a body were compiled for each."""
    return HostValue(value.type, value.leaves)
