"""Scopes of host code: the names of blocks, shadowing, and restoring what they hid at the end of a block."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from difflang.base.source import Span
from difflang.host.values import HostValue
from difflang.ir.tensor_types import DTYPES
from difflang.syntax import tree
from difflang.types.module_name_errors import access_error
from difflang.types.module_scope import GlobalName, HostVar, ModuleScope

SavedBinding = tuple[HostVar | None, HostValue | None]


class HostScopes:
    """Top-level names and, while a block runs, the names bound in it: types in the module, values here."""

    def __init__(self, module: ModuleScope) -> None:
        self.module = module
        self.values: dict[str, HostValue] = {}
        self.depth = 0
        # For each open block, the bindings that it hides.
        self.shadowed: list[dict[str, SavedBinding]] = []
        self.blocks: list[Span] = []

    def is_free(self, name: str) -> bool:
        """Whether the file does not define a name, so that it can only be a builtin."""
        m = self.module
        declared = (m.fns, m.records, m.variants, m.imported, m.modules, m.invalid_names)
        return m.host.get(name) is None and not any(name in names for names in declared)

    def varies(self, name: str) -> bool:
        """Whether a name is a variable."""
        var = self.module.host.get(name)
        return var is not None and var.mutable

    def named_module(self, e: tree.Node) -> ModuleScope | None:
        """The module that an expression names, unless a value of that name hides it."""
        if not isinstance(e, tree.Name) or self.module.host.get(e.id) is not None:
            return None
        return self.module.modules.get(e.id)

    def host_function(self, e: tree.Node) -> GlobalName | None:
        """The `host fn` called as `f(x)`, `m.f(x)` or `x.f()`; None for anything else. Errors: DL0724 for a private
        one.
        """
        found = self.called_name(e)
        decl = found.module.fns.get(found.name) if found is not None else None
        if found is None or decl is None or not decl.host:
            return None
        if found.module is not self.module and (error := access_error(found.module, found.name, e.span)):
            raise error
        return found

    def called_name(self, e: tree.Node) -> GlobalName | None:
        """The top-level name that is called as `f(x)`, `m.f(x)` or `x.f()`."""
        m = self.module
        if isinstance(e, tree.Member) and (other := self.named_module(e.base)) is not None:
            return GlobalName(other, e.name)
        records = [r for r in m.records.values() if isinstance(r, tree.Record)]
        fields = {f.name for r in records for f in r.fields} if isinstance(e, tree.Member) else ()
        name = e.name if isinstance(e, tree.Member) else e.id if isinstance(e, tree.Name) else ""
        if m.host.get(name) is not None or name in fields:
            return None
        return GlobalName(m, name) if name in m.fns else m.imported.get(name)

    def has_no_text(self, e: tree.Node) -> bool:
        """Whether the value of an expression has no text, whatever its parts are: a comparison, a call of a built-in,
        or one of a function that is declared to return an array.
        """
        if isinstance(e, (tree.Assert, tree.Binary)):
            return True
        fn = e.fn if isinstance(e, (tree.Call, tree.Pipe)) else None
        if fn is None or (isinstance(fn, tree.Name) and self.is_free(fn.id)):
            return fn is not None
        found = self.called_name(fn)
        decl = found.module.fns.get(found.name) if found is not None else None
        return (
            decl is not None
            and isinstance(decl.result, (tree.TypeName, tree.TypeApply))
            and decl.result.path[0] in DTYPES
        )

    @contextmanager
    def scope(self, block: Span) -> Generator[None, None, None]:
        """A scope whose bindings end with the block; outer variables keep what was assigned to them.

        Only code inside `block` sees the bindings.
        """
        self.depth += 1
        self.shadowed.append({})
        self.blocks.append(block)
        try:
            yield
        finally:
            self.depth -= 1
            self.blocks.pop()
            for name, kept in self.shadowed.pop().items():
                self.restore_name(name, kept)

    def restore_name(self, name: str, kept: SavedBinding) -> None:
        var, value = kept
        self.module.host.pop(name, None)
        self.values.pop(name, None)
        if var is not None:
            self.module.host[name] = var
        if value is not None:
            self.values[name] = value

    def bind_var(self, var: HostVar) -> None:
        """Bind a name in the innermost block, saving the binding that it hides."""
        # Top-level bindings are permanent: only blocks restore.
        if self.shadowed:
            old = self.shadowed[-1].setdefault(var.name, self.current_binding(var.name))
            var.block, var.hides = self.blocks[-1], old[0]
        self.module.host[var.name] = var

    def current_binding(self, name: str) -> SavedBinding:
        """The current binding of a name, without evaluating it as `LazyGlobals.get` would."""
        return dict.get(self.module.host, name), self.values.get(name)

    def is_local(self, name: str) -> bool:
        """Whether an open block has bound a name."""
        return any(name in block for block in self.shadowed)

    @contextmanager
    def top_level(self) -> Generator[None, None, None]:
        """Inside, only the names of the file are visible, not those of the blocks around a call."""
        blocks, self.shadowed = self.shadowed, []
        places, self.blocks = self.blocks, []
        # The outermost block that hides a name has saved its top-level binding.
        first: dict[str, dict[str, SavedBinding]] = {}
        for block in blocks:
            for name in block:
                first.setdefault(name, block)
        here = {name: self.current_binding(name) for name in first}
        for name, block in first.items():
            self.restore_name(name, block[name])
        try:
            yield
        finally:
            for name, block in first.items():
                block[name] = self.current_binding(name)
                self.restore_name(name, here[name])
            self.shadowed, self.blocks = blocks, places
