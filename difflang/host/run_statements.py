"""Runs host statements in order: calls compiled units, reads files, prints results."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Generator, Hashable, Iterable, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from msgspec.structs import replace

from difflang.base.diagnostics import Diagnostic, DifflangError, InternalError, Label, printable
from difflang.base.source import Span
from difflang.elaborate.context import Session
from difflang.elaborate.trampoline import Walk, run_walk
from difflang.execution.check_failures import step_limit_error
from difflang.execution.engine import Engine
from difflang.execution.line_profiler import LineProfile
from difflang.execution.random_keys import key_stream
from difflang.host.assertion_errors import comparison_labels, first_false_conjunct
from difflang.host.builtins import UNIT_VALUE, BuiltinCall, HostBuiltin
from difflang.host.call_frames import HostFrame
from difflang.host.compiled_units import HostUnit
from difflang.host.data.file_access import FileAccess
from difflang.host.data.mapped_files import check_files, release_pages
from difflang.host.expected_type import ExpectedType
from difflang.host.loop_iterables import HostIterable, collected_type, common_item_type, stack_values
from difflang.host.match import bind_pattern, matches, possible_cases
from difflang.host.progress_bar import with_progress
from difflang.host.python_loops.traced_host import VisibleBlock
from difflang.host.python_loops.translated_loop import (
    LoopCache,
    TranslatedLoop,
    has_plain_items,
    rest_of,
)
from difflang.host.statement_walk import HostWalk
from difflang.host.unit_cache import UnitCache
from difflang.host.values import HostValue, format_value, joined_text
from difflang.ir.symbolic_dims import Dim
from difflang.ir.tensor_types import numpy_dtype
from difflang.ops.control.print_sink import PrintSink
from difflang.syntax import tree
from difflang.types.annotations import AnnotationResolver
from difflang.types.language_types import TextType, leaf_types, show_type
from difflang.types.module_scope import GlobalName, HostNumber, ModuleScope
from difflang.types.type_errors import make_error

MOST_CALLS = 10_000  # the depth of nested `host fn` calls
# Bytes whose writing takes longer than a wait for them. So it is known at once if such an array does not fit: a later
# program that reads it and has several results may wait for ever (XLA on the CPU, jaxlib 0.10).
LARGE_RESULT = 1 << 28


class EarlyExit(Exception):
    """Control leaves a loop, one of its steps, or a function."""

    def __init__(self, stmt: tree.Node, value: HostValue) -> None:
        self.stmt, self.value = stmt, value


class HostRunner(HostWalk):
    """Runs host statements in order."""

    definition = False

    def __init__(
        self,
        session: Session,
        module: ModuleScope,
        engine: Engine,
        access: FileAccess,
        seed: int,
        write: Callable[[str], None],
        warn: Callable[[list[Diagnostic]], None] = lambda _: None,
        program_args: Mapping[str, str] = MappingProxyType({}),
        hosts: dict[ModuleScope, HostWalk] | None = None,
    ) -> None:
        super().__init__(session, module, hosts)
        self.access, self.write, self.warn = access, write, warn
        self.units = UnitCache(session, engine, PrintSink(self.print_text))
        self.translations = LoopCache()
        # The files of the plots drawn, for a notebook to show.
        self.pictures: list[Path] = []
        # The program's arguments as texts of the command line.
        self.program_args = program_args
        self.started = time.perf_counter()
        # Each execution of a random unit draws one key.
        self.draws = self.own_draws = key_stream(seed)

    def print_text(self, text: str) -> None:
        """Write a text with its control characters escaped: nothing in it can steer the terminal."""
        self.write(printable(text))

    def adopt_units(self, units: UnitCache) -> None:
        """Use the compiled units of another runner, which print here from now on."""
        self.units, units.voice.write = units, self.print_text

    def fork_for_module(self, module: ModuleScope, access: FileAccess, number: int) -> HostRunner:
        """A runner for an imported module, which draws from a random stream of its own."""
        engine = self.engine
        other = HostRunner(
            self.session, module, engine, access, 0, self.write, self.warn, self.program_args, self.hosts
        )
        other.units, other.started, other.pictures = self.units, self.started, self.pictures
        other.translations = self.translations
        other.draws = other.own_draws = self.own_draws.substream(number)
        return other

    @contextmanager
    def random_stream(self, number: int) -> Generator[None, None, None]:
        """Inside, draws come from the stream with this number, independently of other draws before and after."""
        outer, self.draws = self.draws, self.own_draws.substream(number)
        try:
            yield
        finally:
            self.draws = outer

    def run(self, items: tuple[tree.Item, ...]) -> None:
        """Run every statement, up to the first that fails. Errors: DifflangError."""
        for item in items:
            self.statement(item)

    def statement(self, stmt: tree.Node, *, last: bool = False) -> HostValue:
        with memory_errors(stmt.span):
            return super().statement(stmt, last=last)

    @property
    def engine(self) -> Engine:
        return self.units.engine

    @property
    def profile(self) -> LineProfile | None:
        return self.engine.profile

    def do(self, stmt: tree.Node, *, last: bool = False, expected: ExpectedType | None = None) -> Walk[HostValue]:
        walk = super().do(stmt, last=last, expected=expected)
        return walk if self.profile is None else self.timed(self.profile, stmt.span, walk)

    def timed(self, profile: LineProfile, span: Span, walk: Walk[HostValue]) -> Walk[HostValue]:
        with profile.at(span):
            return (yield walk)

    # ---- Units

    def unit(self, node: tree.Node, body: Any, key: Hashable = None) -> tuple[list[HostValue], HostUnit]:
        with memory_errors(node.span):
            return self.execute_unit(node, body, key)

    def execute_unit(self, node: tree.Node, body: Any, key: Hashable) -> tuple[list[HostValue], HostUnit]:
        unit = self.units.find(node, key, self.module, self.demand)
        if unit is None:
            with self.profile.doing("compile") if self.profile is not None else nullcontext():
                unit = self.made(node, body, key)
        arguments = [leaf for name in unit.reads for leaf in self.read(name).leaves or ()]
        mappings = check_files(arguments, node.span)
        results = self.units.execute(unit, arguments, self.draws.next() if unit.random else None)
        sizes = [getattr(leaf, "nbytes", 0) for value in results for leaf in value.leaves or ()]
        if mappings or max(sizes, default=0) >= LARGE_RESULT:
            wait_for(results)
        for mapping in mappings:
            release_pages(mapping)
        return results, unit

    def made(self, node: tree.Node, body: Any, key: Hashable) -> HostUnit:
        """Stage and compile a unit now, passing its warnings on."""
        said = len(self.session.diagnostics)
        unit = self.staged(node, body)
        self.warn(self.session.diagnostics[said:])
        del self.session.diagnostics[said:]
        unit = replace(unit, program=self.units.program(unit))
        self.warn(self.units.notes(unit))
        self.units.keep(node, key, unit)
        return unit

    def demand(self, number: HostNumber) -> Dim:
        value = self.read(number.global_name)
        return int(value.number if number.leaf is None else np.asarray((value.leaves or ())[number.leaf]))

    def read(self, name: GlobalName) -> HostValue:
        """The value of a top-level name, of this module or of one that it imports."""
        return self.hosts[name.module].values[name.name]

    def wait_for_results(self) -> None:
        """Wait until all computations have finished: JAX returns before its results are ready."""
        wait_for([value for host in self.hosts.values() for value in host.values.values()])

    # ---- Host functions and strings

    def perform(self, function: HostBuiltin, given: BuiltinCall) -> HostValue:
        function.check(self, given)
        return function.run(self, given)

    def show(self, e: tree.Expr) -> Walk[str]:
        return format_value((yield self.value_of(e)), "", e.span)

    def text(self, e: tree.Str) -> Walk[HostValue]:
        pieces: list[str] = []
        for part in e.parts:
            pieces.append(
                part
                if isinstance(part, str)
                else format_value((yield self.value_of(part.value)), part.format, part.span)
            )
        return HostValue(TextType(joined_text(pieces, e.span)), ())

    # ---- Control flow

    def branch(self, e: tree.If, condition: HostValue, expected: ExpectedType | None) -> Walk[HostValue]:
        if condition.number:
            return (yield self.do_block(e.then, expected))
        return (yield self.control(e.orelse, expected)) if e.orelse is not None else UNIT_VALUE

    def match(self, e: tree.Match, subject: HostValue, expected: ExpectedType | None) -> Walk[HostValue]:
        fit, case = next((fit, case) for fit, case in possible_cases(self, e, subject) if matches(fit, subject))
        with self.scope(case.span):
            bind_pattern(self, fit, subject, case.pattern.span)
            return (yield self.do(case.body, last=True, expected=expected))

    def logic(self, e: tree.Binary) -> Walk[HostValue]:
        left = yield self.condition(e.lhs)
        return left if bool(left.number) is (e.op == "or") else (yield self.condition(e.rhs))

    def repeat(self, e: tree.While) -> Walk[None]:
        for count in itertools.count():
            if (loop := self.translation(e, count)) is not None:
                loop.run(self, count)
                break
            if not (yield self.condition(e.condition)).number:
                break
            self.check_step_limit(count, e)
            if not (yield self.step(e)):
                break

    def go_through(self, e: tree.For, over: HostIterable, shown: bool) -> Walk[None]:
        length = over.length
        assert isinstance(length, int)
        for count, item in enumerate(with_progress(over.items(), length) if shown else over.items()):
            if not shown and (loop := self.translation(e, count, over)) is not None:
                loop.run(self, count, rest_of(over, count))
                break
            self.check_step_limit(count, e)
            with self.scope(e.span):
                self.bind(e.pattern, item, False, e.iterable.span)
                if not (yield self.step(e)):
                    break

    def translation(self, e: tree.Loop, count: int, over: HostIterable | None = None) -> TranslatedLoop | None:
        """The loop from this step on as Python. Not where every statement is measured or inspected."""
        engine = self.engine
        if engine.profile is not None or engine.check_nans or engine.machine is not None:
            return None
        return self.translations.at_step(self, e, count, over) if over is None or has_plain_items(over) else None

    def check_step_limit(self, steps: int, e: tree.Loop) -> None:
        """Errors: DL0909 if a loop has used up its steps."""
        if self.session.most_steps and steps >= self.session.most_steps:
            raise step_limit_error(e.span, self.session.most_steps)

    def step(self, e: tree.Loop) -> Walk[bool]:
        """Run one step of a loop; whether the loop continues."""
        try:
            yield self.do_block(e.body)
        except EarlyExit as left:
            if isinstance(left.stmt, tree.Return):
                raise
            return isinstance(left.stmt, tree.Continue)
        return True

    def gathered(self, e: tree.Loop, items: list[HostValue], over: HostIterable | None) -> HostValue:
        if items:
            held = common_item_type([item.type for item in items], e.body.span)
            rows = [self.held(e.body, item, held) for item in items]
            return stack_values(rows, collected_type(held, len(items), e.body.span))
        type = collected_type(self.module.loop_yield_types[e], 0, e.body.span)
        if any(not isinstance(n, int) for t in leaf_types(type) for n in t.shape):
            raise make_error("DL0305", "this loop took no step, so the size of the values it yields is not known",
                          (e.body.span, f"it yields {show_type(self.module.loop_yield_types[e])}"))  # fmt: skip
        return HostValue(type, tuple(np.zeros(t.shape, numpy_dtype(t.dtype)) for t in leaf_types(type)))  # type: ignore[arg-type]

    @property
    def draw_key(self) -> Callable[[], np.ndarray]:
        return self.draws.next

    def asserted(self, e: tree.Assert) -> Walk[None]:
        for part in self.split_conjunction(e.condition):
            work = self.work(part)
            with self.scope(e.span):
                if work is not None:
                    yield self.lift(work)
                condition = (work and work.compiled) or part
                drawn = self.draws.count
                if not (yield self.condition(condition)).number:
                    raise (yield self.assertion_error(e, condition, drawn))

    def assertion_error(self, e: tree.Assert, condition: tree.Expr, drawn: int) -> Walk[DifflangError]:
        """The error of an assertion whose condition was just found false; `drawn` random units had run before it.

        The sides are computed again with the condition's random key. `condition` is the compiled part of it: results
        of host calls stand in it under names, so that the calls do not run again.
        """
        found: tuple[Label, ...] = ()
        part, after = condition, self.draws.count
        if self.work(condition) is None:
            part = condition if after > drawn else (yield first_false_conjunct(self, condition))
            # The values must be those that the condition saw: draw its random keys again.
            self.draws.count = drawn
            found = comparison_labels(self, part)
            self.draws.count = after
        message = (yield self.show(e.message)) if e.message is not None else "this assertion does not hold"
        return DifflangError(Diagnostic("DL0901", message, found or (Label(part.span, "this is false"),)))

    def fail_assertion(self, e: tree.Assert, blocks: list[VisibleBlock]) -> None:
        """Raise the error of an assertion that a translated loop found false, among the names in `blocks`."""
        with ExitStack() as scopes:
            for block in blocks:
                scopes.enter_context(self.scope(block.block))
                for var, value in block.names:
                    self.bind_var(replace(var, type=value.type))
                    self.values[var.name] = value
            run_walk(self.asserted(e))
        raise InternalError("an assertion that a translated loop found false holds")

    def split_conjunction(self, e: tree.Expr) -> list[tree.Expr]:
        """The conditions joined by `and`, if the host evaluates it itself; else the condition alone."""
        work = self.work(e)
        if work is None or work.compiled is not None or not isinstance(e, tree.Binary) or e.op != "and":
            return [e]
        return [*self.split_conjunction(e.lhs), *self.split_conjunction(e.rhs)]

    def leave(self, stmt: tree.Return | tree.Break | tree.Continue, value: HostValue) -> None:
        raise EarlyExit(stmt, value)

    def enter(self, e: tree.Node, decl: tree.Fn, names: AnnotationResolver, values: list[HostValue]) -> Walk[HostValue]:
        if len(self.frames) > MOST_CALLS:
            way = "a recursion must reach an `if` that ends it"
            message = f"host functions call each other more than {MOST_CALLS:,} deep"
            raise make_error("DL1003", message, (e.span, f"another call of `{decl.name}`"), help=way)
        try:
            found = yield self.body_value(e, HostFrame(decl, names), [without_static(v) for v in values])
        except EarlyExit as left:
            found = left.value
        return without_static(found)


@contextmanager
def memory_errors(span: Span) -> Generator[None]:
    """Inside, a lack of memory is an error at `span`: DL1006."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        # XLA reports it as a RuntimeError with this status.
        if not isinstance(error, MemoryError) and "RESOURCE_EXHAUSTED" not in str(error):
            raise
        way = "use smaller arrays, or fewer at a time"
        raise make_error("DL1006", "there is not enough memory for this", (span, ""), help=way) from error


def without_static(value: HostValue) -> HostValue:
    """The value without its static number, which would make each number compile a body of its own."""
    return HostValue(value.type, value.leaves)


def wait_for(values: Iterable[HostValue]) -> None:
    """Wait until values are computed: JAX returns before its results are ready."""
    for leaf in [leaf for value in values for leaf in value.leaves or ()]:
        getattr(leaf, "block_until_ready", int)()
