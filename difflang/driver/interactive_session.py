"""A program that grows input by input: each is checked with what stands already, then carried out.

What is declared again replaces what had its name, also for the functions that use it. An input that is wrong, or fails,
leaves the rest as it was. How inputs come by and what is shown of them is for the doors to say.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from difflang.base.diagnostics import Diagnostic, DifflangError
from difflang.base.session_interrupts import atomic
from difflang.base.source import Source
from difflang.driver.check_and_run import CheckedProgram
from difflang.elaborate.context import AlreadyReported, Session
from difflang.elaborate.module_declarations import check_block_names, enter_declaration, load_prelude
from difflang.elaborate.module_imports import ImportSearch, ModuleFile, follow_imports
from difflang.execution.check_failures import ArrayProgram
from difflang.execution.engine import Engine
from difflang.host.call_frames import HostFrame
from difflang.host.check_statements import UNKNOWN_VALUE, HostChecker
from difflang.host.data.file_access import FileAccess
from difflang.host.lazy_globals import install_lazy_globals
from difflang.host.run_statements import HostRunner
from difflang.host.statement_walk import HostWalk
from difflang.host.values import HostValue
from difflang.ir.tensor_types import DTYPES
from difflang.syntax import tree
from difflang.syntax.parse import parse
from difflang.syntax.tree_queries import pattern_names
from difflang.types.language_types import UNIT
from difflang.types.module_scope import GlobalName, ModuleScope

STRETCH = 0.1  # seconds between two looks at whether Ctrl-C was pressed, where joining a thread is not woken by it
LAST = "_"  # the name of the last value
DECLARATIONS = (tree.Fn, tree.Record, tree.Enum, tree.Rule)
TABLES = (
    "fns", "records", "variants", "rules", "invalid_names", "host", "used", "loop_yield_types", "arguments", "needs", "declared",
    "modules", "imported",
)  # fmt: skip


class SessionState(Struct, frozen=True, eq=False):
    """All that inputs have made, for going back to it."""

    tables: dict[str, dict[Any, Any]]
    values: dict[str, HostValue]
    drawn: int
    inputs: tuple[str, ...]


class SessionSnapshot(Struct, frozen=True, eq=False):
    """What inputs had made at some time, for functions that are called from elsewhere: later inputs leave it alone."""

    checked: CheckedProgram
    runner: HostRunner

    def leaves(self, name: GlobalName) -> tuple[Any, ...]:
        """The arrays of a top-level value."""
        return self.runner.read(name).leaves or ()


class InteractiveSession:
    """The module that inputs make, and the host that carries them out."""

    def __init__(
        self,
        engine: Engine,
        access: FileAccess,
        seed: int,
        write: Callable[[str], None],
        warn: Callable[[list[Diagnostic]], None],
        default_float: str = "f32",
        paths: tuple[Path, ...] = (),
    ) -> None:
        self.module = ModuleScope(Source("<session>", ""), DTYPES[default_float], prelude=load_prelude())
        self.search = ImportSearch(access.folder, paths)
        self.file = ModuleFile(self.module, (), None, access.folder)
        self.files: dict[Path | None, ModuleFile] = {None: self.file}
        self.warn = warn
        self.checkers: dict[ModuleScope, HostWalk] = {}
        self.runner = HostRunner(Session(), self.module, engine, access, seed, write, warn)
        if engine.name == "xla":
            self.runner.units.call = call_in_thread
        self.checked = Session()
        self.inputs: tuple[str, ...] = ()
        self.past: list[SessionState] = []
        self.count = 0

    # ---- Inputs

    def run_input(self, text: str, name: str = "") -> HostValue | None:
        """Check a text, then carry it out; the value of an expression that it ends with.

        Errors: DifflangError. What is wrong changes nothing; what fails keeps what stood above it.
        """
        items = self.parsed(text, name)
        before = self.state()
        try:
            self.check(items)
            self.past.append(before)
            self.inputs += (text.lstrip("\n"),)
        except BaseException:
            self.restore(before)
            raise
        self.runner.session.issued_warnings |= self.checked.issued_warnings  # that was said
        try:
            return self.execute(items)
        except BaseException:
            self.reset_elaboration()
            raise

    def parsed(self, text: str, name: str = "") -> tuple[tree.Item, ...]:
        """Errors: DL01."""
        self.count += 1
        found = parse(Source(name or f"<input {self.count}>", text))
        if found.diagnostics:
            raise DifflangError(*found.diagnostics)
        return found.module.items

    def type_of(self, text: str) -> HostValue:
        """What a text would give, by its type alone: nothing is carried out, nothing stays. Errors: DifflangError."""
        before = self.state()
        try:
            return self.check(self.parsed(text))
        finally:
            self.restore(before)

    def check(self, items: tuple[tree.Item, ...]) -> HostValue:
        """Declare and check items; what the last one gives. Errors: DifflangError."""
        session = self.checked = Session()
        self.unbind_names(items)
        for item in items:
            enter_declaration(self.module, item, session)
        check_block_names(items, session)
        self.checkers[self.module] = checker = HostChecker(session, self.module, self.checkers)
        self.link_imports([item for item in items if isinstance(item, tree.Import)], session)
        for host in self.checkers.values():
            host.session = session
        checker.values = {n: HostValue(v.type, None, v.static) for n, v in self.runner.values.items()}
        known = dict(self.module.host)
        value = checker.check(items, echo=True)
        self.module.host.clear()
        self.module.host.update(known)
        if session.errors or value is UNKNOWN_VALUE:
            raise DifflangError(*session.diagnostics)
        self.warn(session.diagnostics)
        return value

    def execute(self, items: tuple[tree.Item, ...]) -> HostValue | None:
        value: HostValue | None = None
        session = self.runner.session
        said = len(session.diagnostics)
        try:
            for item in items:
                value = self.runner.statement(item, last=True)
                if value.type != UNIT:
                    self.runner.bind_name(LAST, value, False, item.span)
        except AlreadyReported:
            raise DifflangError(*session.diagnostics[said:]) from None
        return value if value is not None and value.type != UNIT else None

    # ---- Names

    def unbind_names(self, items: tuple[tree.Item, ...]) -> None:
        """Let go of what has the names that items are about to take."""
        module = self.module
        names = [n for item in items if isinstance(item, (tree.Let, tree.Var)) for n in pattern_names(item.pattern)]
        declared = [item for item in items if isinstance(item, DECLARATIONS)]
        for name in [item.name for item in declared if not isinstance(item, tree.Rule)]:
            module.host.pop(name, None)
            self.runner.values.pop(name, None)
            module.rules.pop(name, None)
            names.append(name)
        for rule in [item for item in declared if isinstance(item, tree.Rule)]:
            module.rules.pop(rule.name, None)
        taken = (module.fns, module.records, module.variants, module.host, module.used)
        again = any(name in table for name in names for table in taken)
        for name in names:
            old = module.records.get(name)
            for variant in [v for v, (enum, _) in module.variants.items() if enum is old or v == name]:
                del module.variants[variant]
            for table in (
                module.fns,
                module.records,
                module.invalid_names,
                module.declared,
                module.used,
                module.imported,
            ):
                table.pop(name, None)  # type: ignore[call-overload]
            module.modules.pop(name, None)
        if again or declared:
            self.reset_elaboration()

    def link_imports(self, imports: list[tree.Import], session: Session) -> None:
        """Read the modules that imports name, and let them have their values. Mistakes are reported to the session."""
        if not imports:
            return
        first = replace_items(self.file, tuple(imports))
        *new, _ = follow_imports(first, self.search, session, None, self.files)
        for file in new:
            HostChecker(session, file.module, self.checkers).imported(file)
        for file in new:
            file.module.host.clear()
        install_lazy_globals(tuple(new), self.runner)

    @atomic
    def reset_elaboration(self) -> None:
        """Elaborate everything anew from here on: functions may mean something else."""
        session = Session()
        self.runner.units.session = session
        self.runner.units.by_node.clear()
        for host in self.runner.hosts.values():
            host.session = session
        self.runner.frames[:] = [HostFrame(None)]
        self.runner.shadowed.clear()
        self.runner.blocks.clear()
        self.runner.depth = 0

    # ---- Going back

    def state(self) -> SessionState:
        tables = {name: dict(getattr(self.module, name)) for name in TABLES}
        return SessionState(tables, dict(self.runner.values), self.runner.draws.count, self.inputs)

    @atomic
    def restore(self, state: SessionState) -> None:
        for name, kept in state.tables.items():
            table = getattr(self.module, name)
            table.clear()
            table.update(kept)
        self.runner.values.clear()
        self.runner.values.update(state.values)
        self.runner.draws.count = state.drawn
        self.inputs = state.inputs
        del self.past[len(self.inputs) :]
        self.reset_elaboration()

    def undo(self) -> str | None:
        """Go back to before the last input that was carried out; its text."""
        if not self.past:
            return None
        text = self.inputs[-1]
        self.restore(self.past[-1])
        return text

    @property
    def program(self) -> CheckedProgram:
        """What there is, as what looks at programs takes it."""
        return CheckedProgram(self.module, (), self.checked)

    def snapshot(self) -> SessionSnapshot:
        """All that stands now."""
        module, session, host = self.module.snapshot(), Session(), self.runner
        session.issued_warnings |= host.session.issued_warnings
        engine = host.units.engine
        runner = HostRunner(session, module, engine, host.access, 0, host.write, self.warn, hosts=dict(host.hosts))
        runner.values.update(host.values)
        return SessionSnapshot(CheckedProgram(module, (), session), runner)


def replace_items(file: ModuleFile, items: tuple[tree.Item, ...]) -> ModuleFile:
    """The same module with other imports to follow."""
    return replace(file, items=items, done=False)


def call_in_thread(program: ArrayProgram, arrays: Sequence[Any]) -> list[Any]:
    """Call a compiled program in a thread of its own, and wait where Ctrl-C is heard.

    Nobody can stop XLA: a program that is given up computes on, and nobody asks for what it finds. It shares nothing
    with what comes after it.
    """
    found: list[list[Any]] = []
    failures: list[BaseException] = []

    def work() -> None:
        try:
            results = list(program(*arrays))
            for result in results:
                getattr(result, "block_until_ready", int)()
            found.append(results)
        except BaseException as error:  # noqa: BLE001 - raised again by who waits
            failures.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(STRETCH)
    if failures:
        raise failures[0]
    return found[0]
