"""Runs blocks in isolation from the rest of their file: tests, examples, benchmarks.

Each block starts afresh: with the `let`s that it needs, evaluated in the order of the file, and with random numbers
from the seed. So its result does not depend on what ran before. Compiled code is shared.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType

from difflang.base.diagnostics import Diagnostic, DifflangError
from difflang.driver.checked_program import CheckedProgram
from difflang.elaborate.context import AlreadyReported
from difflang.execution.engine import Engine
from difflang.host.assertion_errors import add_statement_label
from difflang.host.data.file_access import FileAccess
from difflang.host.lazy_globals import install_lazy_globals
from difflang.host.let_dependencies import required_lets
from difflang.host.run_statements import HostRunner
from difflang.host.unit_cache import UnitCache
from difflang.host.values import HostValue
from difflang.ops.control.print_sink import PrintSink
from difflang.syntax import tree
from difflang.types.module_scope import HostVars


class IsolatedBlocks:
    """Runs blocks of one checked file."""

    def __init__(
        self,
        checked: CheckedProgram,
        engine: Engine,
        access: FileAccess,
        seed: int,
        program_args: Mapping[str, str] = MappingProxyType({}),
        warn: Callable[[list[Diagnostic]], None] = lambda _: None,
    ) -> None:
        self.checked, self.engine, self.access, self.seed = checked, engine, access, seed
        self.program_args, self.warn = program_args, warn
        self.units = UnitCache(checked.session, engine, PrintSink(lambda _: None))

    @contextmanager
    def open_block(
        self, preceding: Sequence[tree.Item], node: tree.Node, write: Callable[[str], None]
    ) -> Generator[HostRunner, None, None]:
        """A runner in a new scope, with the required `let`s of `preceding` evaluated. Errors: DifflangError."""
        module, session = self.checked.module, self.checked.session
        said, errors = len(session.diagnostics), session.errors
        module.host = HostVars()
        runner = HostRunner(session, module, self.engine, self.access, self.seed, write, self.warn, self.program_args)
        runner.adopt_units(self.units)
        install_lazy_globals(self.checked.imported, runner)
        try:
            runner.run(tuple(required_lets(module, preceding, node)))
            with runner.scope(node.span):
                yield runner
        except AlreadyReported:
            raise DifflangError(*session.diagnostics[said:]) from None
        finally:
            # The session is shared: leave nothing of this block in it.
            del session.diagnostics[said:]
            session.errors = errors
            module.host = HostVars()


def run_statement(runner: HostRunner, stmt: tree.Node, *, last: bool) -> HostValue:
    """Run a statement; an error elsewhere gets a label on it. Errors: DifflangError, AlreadyReported."""
    try:
        return runner.statement(stmt, last=last)
    except DifflangError as error:
        raise add_statement_label(error, stmt) from error.__cause__
