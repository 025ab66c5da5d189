"""An interactive session: each input is checked against the program so far, then run.

A new declaration replaces the one with its name, also for functions that use it. An input that is wrong or fails
leaves the rest unchanged. The REPL, the notebook kernel and Python decide where inputs come from and what is shown.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from difflang.base.diagnostics import Diagnostic, DifflangError
from difflang.base.process_termination import atomic
from difflang.base.source import Source
from difflang.driver.checked_program import CheckedProgram
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

# Seconds between two checks for Ctrl-C, on systems where it does not wake a thread that joins another.
STRETCH = 0.1
LAST = "_"  # the name that refers to the last value
DECLARATIONS = (tree.Fn, tree.Record, tree.Enum, tree.Rule)
# The tables of a module that inputs change, to be saved and restored.
TABLES = (
    "fns", "records", "variants", "rules", "invalid_names", "host", "used", "loop_yield_types", "arguments", "needs",
    "declared", "modules", "imported", "axes",
)  # fmt: skip


class SessionState(Struct, frozen=True, eq=False):
    """Everything that inputs have made, for undoing them."""

    tables: dict[str, dict[Any, Any]]
    values: dict[str, HostValue]
    drawn: int
    inputs: tuple[str, ...]


class SessionSnapshot(Struct, frozen=True, eq=False):
    """The state of the session at one time, for functions called from Python: later inputs do not change it."""

    checked: CheckedProgram
    runner: HostRunner

    def leaves(self, name: GlobalName) -> tuple[Any, ...]:
        """The arrays of a top-level value."""
        return self.runner.read(name).leaves or ()


RuleVerifier = Callable[[SessionSnapshot, Sequence[tree.Rule]], Iterable[Diagnostic]]
"""The errors and warnings about new rules of a session."""


class InteractiveSession:
    """The module that inputs build up, and the runner that executes them."""

    def __init__(
        self,
        engine: Engine,
        access: FileAccess,
        seed: int,
        write: Callable[[str], None],
        warn: Callable[[list[Diagnostic]], None],
        default_float: str = "f32",
        paths: tuple[Path, ...] = (),
        verify: RuleVerifier = lambda snapshot, rules: (),
    ) -> None:
        self.module = ModuleScope(Source("<session>", ""), DTYPES[default_float], prelude=load_prelude())
        self.search = ImportSearch(access.folder, paths)
        self.file = ModuleFile(self.module, (), None, access.folder)
        self.files: dict[Path | None, ModuleFile] = {None: self.file}
        self.warn, self.verify = warn, verify
        self.checkers: dict[ModuleScope, HostWalk] = {}
        self.runner = HostRunner(Session(), self.module, engine, access, seed, write, warn)
        if engine.name == "xla":
            self.runner.units.call = call_in_thread
        self.checked = Session()
        self.inputs: tuple[str, ...] = ()
        self.past: list[SessionState] = []
        self.count = 0

    # ---- Inputs

    def locate(self, name: str, folder: Path) -> None:
        """Let inputs of this name read, write and import files of a folder, as a file there does."""
        self.runner.access.loaded[name] = folder

    def run_input(self, text: str, name: str = "") -> HostValue | None:
        """Check a text, then run it; the value of an expression at its end.

        Errors: DifflangError. A failed check changes nothing; a failed run keeps the effects of the statements above.
        """
        items = self.parsed(text, name)
        before = self.state()
        try:
            self.check(items)
            self.verify_rules(items)
            self.past.append(before)
            self.inputs += (text.lstrip("\n"),)
        except BaseException:
            self.restore(before)
            raise
        # Running elaborates again: do not repeat the warnings of checking.
        self.runner.session.issued_warnings |= self.checked.issued_warnings
        try:
            return self.execute(items)
        except BaseException:
            self.reset_elaboration()
            raise

    def bind_value(self, name: str, value: HostValue) -> None:
        """Bind a name to a value from outside, as a `let` of an input does. Errors: DL01 for what is no name."""
        items = self.parsed(f"let {name} = 0")
        self.past.append(self.state())
        self.inputs += (f"# {name} is a value from outside",)
        self.unbind_names(items)
        self.runner.bind_name(name, value, False, items[0].span)

    def verify_rules(self, items: tuple[tree.Item, ...]) -> None:
        """Errors: those of new rules that differ from their functions."""
        if rules := [item for item in items if isinstance(item, tree.Rule)]:
            found = list(self.verify(self.snapshot(), rules))
            if any(d.severity == "error" for d in found):
                raise DifflangError(*found)
            self.warn(found)

    def parsed(self, text: str, name: str = "") -> tuple[tree.Item, ...]:
        """Errors: DL01."""
        self.count += 1
        found = parse(Source(name or f"<input {self.count}>", text))
        if found.diagnostics:
            raise DifflangError(*found.diagnostics)
        return found.module.items

    def type_of(self, text: str) -> HostValue:
        """The value of a text by its type alone: nothing runs, and nothing is kept. Errors: DifflangError."""
        before = self.state()
        try:
            return self.check(self.parsed(text))
        finally:
            self.restore(before)

    def check(self, items: tuple[tree.Item, ...]) -> HostValue:
        """Declare and check items; the value of the last one. Errors: DifflangError."""
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
        known = self.module.host.copy()
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
        """Remove the old meanings of names that items are about to define."""
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
        for name in [name for item in items if isinstance(item, tree.Axes) for name in item.names]:
            module.axes.pop(name, None)
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
        """Load the modules that imports name, and make their values available. Errors are reported to the session."""
        if not imports:
            return
        first = replace_items(self.file, tuple(imports), self.runner.access.folder_of(imports[0].span))
        *new, _ = follow_imports(first, self.search, session, None, self.files)
        for file in new:
            HostChecker(session, file.module, self.checkers).imported(file)
        for file in new:
            file.module.host.clear()
        install_lazy_globals(tuple(new), self.runner)

    @atomic
    def reset_elaboration(self) -> None:
        """Discard all compiled code: a new declaration may change what functions mean."""
        session = Session()
        self.runner.units.session = session
        self.runner.units.by_node.clear()
        self.runner.translations.clear()
        for host in self.runner.hosts.values():
            host.session = session
        self.runner.frames[:] = [HostFrame(None)]
        self.runner.shadowed.clear()
        self.runner.blocks.clear()
        self.runner.depth = 0

    # ---- Undo and snapshots

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
        """Undo the last input that ran; its text."""
        if not self.past:
            return None
        text = self.inputs[-1]
        self.restore(self.past[-1])
        return text

    @property
    def program(self) -> CheckedProgram:
        """The session as a checked program, for tools that take one."""
        return CheckedProgram(self.module, (), self.checked)

    def snapshot(self) -> SessionSnapshot:
        """A snapshot of the current state."""
        module, session, host = self.module.snapshot(), Session(), self.runner
        session.issued_warnings |= host.session.issued_warnings
        engine = host.units.engine
        runner = HostRunner(session, module, engine, host.access, 0, host.write, self.warn, hosts=dict(host.hosts))
        runner.values.update(host.values)
        return SessionSnapshot(CheckedProgram(module, (), session), runner)


def replace_items(file: ModuleFile, items: tuple[tree.Item, ...], folder: Path) -> ModuleFile:
    """The same module with other imports to load, relative to a folder."""
    return replace(file, items=items, folder=folder, done=False)


def call_in_thread(program: ArrayProgram, arrays: Sequence[Any]) -> list[Any]:
    """Call a compiled program in a thread, and wait where Ctrl-C can interrupt.

    XLA cannot be stopped: an abandoned program computes on, and its results are dropped. It shares no state with later
    programs.
    """
    found: list[list[Any]] = []
    failures: list[BaseException] = []

    def work() -> None:
        try:
            results = list(program(*arrays))
            for result in results:
                getattr(result, "block_until_ready", int)()
            found.append(results)
        except BaseException as error:  # noqa: BLE001 - raised again in the waiting thread
            failures.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(STRETCH)
    if failures:
        raise failures[0]
    return found[0]
