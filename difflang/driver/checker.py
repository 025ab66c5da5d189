"""Checks host statements without running them: every value is known by its type only, sizes by name."""

from __future__ import annotations

from typing import Any

from difflang.base.diagnostics import DifflangError
from difflang.check.modules import Global, HostVar
from difflang.check.reports import Undecided, mistake, too_deep
from difflang.check.types import TextType, TupleType, show_type
from difflang.driver.host import Host
from difflang.driver.load import check_definition, check_rule
from difflang.driver.units import Unit, context
from difflang.driver.values import HostValue
from difflang.elaborate.context import Reported
from difflang.elaborate.names import bound_names, nodes
from difflang.ir import dims
from difflang.ir.dims import Dim, Poly
from difflang.ir.types import I32, Tensor
from difflang.syntax import tree


class Checker(Host):
    """Reports what is wrong with a file's statements to the session and goes on."""

    definition = True

    def check(self, items: tuple[tree.Item, ...]) -> None:
        """Every item in the order of the file: a function may use the top-level names above it."""
        for item in items:
            if isinstance(item, tree.Fn) and item.host:
                self.host_definition(item)
            elif isinstance(item, tree.Fn):
                check_definition(self.module, item, self.session)
            elif isinstance(item, tree.Rule):
                check_rule(self.module, item, self.session)
            self.attempt(item)

    def host_definition(self, decl: tree.Fn) -> None:
        """A `host fn` by itself, its parameters known by their types; without those, each call is checked instead."""
        cx = context(self.session, self.module, self.demand, None, definition=True)
        with self.scope():
            try:
                for param in decl.params:
                    if param.type is None:
                        return
                    pattern = tree.NamePattern(param.span, param.name)
                    self.bind(pattern, HostValue(cx.annotations.type(param.type), None), False, param.span)
                for name, size in cx.annotations.bound.items():
                    if isinstance(size, Poly) and name not in self.module.host:
                        self.bind_size(name, size, decl.name_span)
            except DifflangError as error:
                self.session.report(error)
                return
            except Undecided:
                return
            body = decl.body if isinstance(decl.body, tree.Block) else tree.Block(decl.body.span, (decl.body,))
            self.block(body)

    def attempt(self, stmt: tree.Node, *, last: bool = False) -> HostValue:
        """One statement; what it was to bind is broken if it is wrong."""
        try:
            return self.statement(stmt, last=last)
        except DifflangError as error:
            self.session.report(error)
        except RecursionError:
            self.session.report(too_deep(stmt.span))
        except (Reported, Undecided):
            pass
        if isinstance(stmt, (tree.Let, tree.Var)):
            names = dict.fromkeys(bound_names(stmt.pattern))
            for name in [*names, *sizes_in(stmt.type)]:
                if name not in self.module.host or name in names:
                    self.module.host[name] = HostVar(name, Tensor(I32), mutable=True, broken=True, span=stmt.span)
        return HostValue(TupleType(()), None)

    def block(self, block: tree.Block) -> HostValue:
        value = HostValue(TupleType(()), None)
        with self.scope():
            for stmt in block.stmts:
                value = self.attempt(stmt, last=stmt is block.stmts[-1])
        return value

    def unit(self, node: tree.Node, body: Any) -> tuple[list[HostValue], Unit]:
        unit, _ = self.staged(node, body)
        return [HostValue(t, None, s) for t, s in zip(unit.types, unit.statics, strict=True)], unit

    def read(self, kind: str, e: tree.Call, path: str, member: str | None, written: tree.TypeExpr) -> HostValue:
        """What will be read, as declared; a size named for the first time stands for whatever the file has."""
        cx = context(self.session, self.module, self.demand, None, definition=True)
        known = set(cx.annotations.bound)
        type = cx.annotations.type(written)
        if not isinstance(type, Tensor):
            raise mistake("DL0704", "an array is read from a file", (written.span, f"not {show_type(type)}"))
        for name, size in cx.annotations.bound.items():
            if name not in known and isinstance(size, Poly):
                self.bind_size(name, size, written.span)
        return HostValue(type, None)

    def print(self, e: tree.Call) -> None:
        for arg in e.args:
            if arg.name is not None or isinstance(arg.value, tree.Comprehension):
                raise mistake("DL0319", "`print` takes values by position", (arg.span, ""))
            self.evaluate(arg.value)

    def text(self, e: tree.Str) -> HostValue:
        for part in e.parts:
            if not isinstance(part, str):
                self.evaluate(part.value)
        return HostValue(TextType(), None)

    def demand(self, name: Global) -> Dim:
        return dims.name(name.name)

    def branch(self, e: tree.If, condition: HostValue) -> HostValue:
        first = self.block(e.then)
        if isinstance(e.orelse, tree.Block):
            self.block(e.orelse)
        elif e.orelse is not None:
            self.expression(e.orelse, last=True)
        return first

    def repeat(self, e: tree.While) -> None:
        self.condition(e.condition)
        self.block(e.body)

    def go_through(self, e: tree.For, over: HostValue, shown: bool) -> None:
        item = Tensor(I32)
        if isinstance(over.type, Tensor):
            item = Tensor(over.type.dtype, over.type.shape[1:])
        with self.scope():
            self.bind(e.pattern, HostValue(item, None), False, e.iterable.span)
            self.block(e.body)

    def asserted(self, e: tree.Assert, condition: HostValue) -> None:
        if e.message is not None:
            self.evaluate(e.message)


def sizes_in(written: tree.TypeExpr | None) -> list[str]:
    """The lone names in a written type: what it may have bound."""
    if written is None:
        return []
    return [part.path[0] for part in nodes(written) if isinstance(part, tree.TypeName) and len(part.path) == 1]
