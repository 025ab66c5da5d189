"""Lazy top-level values of a loaded or imported file: a `let` is evaluated when its value is first needed.

Statements, `var`s and what depends on them need a run of the file. Nothing is printed here; files are read as far as
the given access allows.
"""

from __future__ import annotations

from typing import Any

from difflang.elaborate.module_imports import ModuleFile
from difflang.host.call_frames import HostFrame
from difflang.host.data.file_access import FileAccess
from difflang.host.let_dependencies import free_file_names, lone_type_names
from difflang.host.python_loops.traced_values import Untranslatable
from difflang.host.run_statements import HostRunner
from difflang.ir.tensor_types import DTYPES
from difflang.syntax import tree
from difflang.syntax.tree_queries import pattern_names
from difflang.types.module_scope import GlobalName, HostVars
from difflang.types.type_errors import make_error


class LazyGlobals(HostVars):
    """A module's top-level names, evaluated on demand. Errors: DL1209 for a value that only running the file gives."""

    def __init__(self, runner: HostRunner, items: tuple[tree.Item, ...]) -> None:
        super().__init__()
        module = runner.module
        self.items_of_file = items
        # Name -> indices of the statements that bind it.
        self.binding_items: dict[str, list[int]] = {}
        self.evaluated: set[int] = set()
        self.runner = runner
        # Each `let` has its own random stream, so its numbers do not depend on the order of evaluation.
        self.numbers = {i: n for n, i in enumerate(i for i, item in enumerate(items) if isinstance(item, tree.Let))}
        for i, item in enumerate(items):
            if isinstance(item, (tree.Let, tree.Var)):
                for name in pattern_names(item.pattern):
                    self.binding_items.setdefault(name, []).append(i)
                for name in lone_type_names(item.type):
                    if name not in DTYPES and name not in module.records:
                        self.binding_items.setdefault(name, [i])
        module.host = self

    def get(self, name: str, default: Any = None) -> Any:
        """The variable with this name, evaluated first if necessary."""
        if (
            name in self.binding_items
            and not self.runner.is_local(name)
            and not self.evaluated.issuperset(self.binding_items[name])
        ):
            self.evaluate(name)
        return super().get(name, default)

    def leaves(self, name: GlobalName) -> tuple[Any, ...]:
        """The arrays of a value, of this module or of one that it imports."""
        return self.runner.read(name).leaves or ()

    def evaluate(self, name: str) -> None:
        # The names of the loop hide those of the file; and the loop may never come to where it needs this one.
        if self.runner.translations.translating:
            raise Untranslatable
        for i in self.binding_items[name]:
            item = self.items_of_file[i]
            if isinstance(item, tree.Var):
                message = f"`{name}` is a variable: it has a value only while the file runs"
                way = f"make it a parameter of the function, or `let {name}`"
                raise make_error("DL1209", message, (item.span, "declared here"), help=way)
            self.bind(i, item)

    def bind(self, i: int, item: tree.Node) -> None:
        if i in self.evaluated:
            return
        # Marked first: a `let` may mention its own name through a function.
        self.evaluated.add(i)
        try:
            for other in free_file_names(item):
                earlier = [j for j in self.binding_items.get(other, ()) if j < i]
                if earlier and not any(isinstance(self.items_of_file[j], tree.Var) for j in earlier):
                    for j in earlier:
                        self.bind(j, self.items_of_file[j])
            with self.runner.in_frame(HostFrame(None)), self.runner.random_stream(self.numbers[i]):
                self.runner.statement(item)
        except BaseException:
            self.evaluated.discard(i)
            raise


def install_lazy_globals(imported: tuple[ModuleFile, ...], runner: HostRunner) -> None:
    """Make the top-level values of imported files available to their functions, wherever these run."""
    for number, file in enumerate(imported):
        access = FileAccess(file.folder, runner.access.allowed)
        LazyGlobals(runner.fork_for_module(file.module, access, number), file.items)
