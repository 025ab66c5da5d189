"""Runs host statements: units compiled once and called, files read, results printed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from difflang.base.diagnostics import Diagnostic, DifflangError, Label
from difflang.check.modules import Global, Module
from difflang.check.reports import mistake
from difflang.check.types import RangeType, TextType, show_type
from difflang.driver.engine import Engine
from difflang.driver.files import Access, read
from difflang.driver.host import UNIT_VALUE, Host
from difflang.driver.progress import progress
from difflang.driver.units import Unit, Units, context
from difflang.driver.values import HostValue, show
from difflang.elaborate.context import Session
from difflang.ir.dims import Dim, Poly
from difflang.ir.evaluate import numpy_dtype
from difflang.ir.op import OPS
from difflang.ir.types import I32, Tensor
from difflang.syntax import tree


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
        hosts: dict[Module, Host] | None = None,
    ) -> None:
        super().__init__(session, module, hosts)
        self.units, self.access, self.write, self.warn = Units(session, engine), access, write, warn
        self.seed = np.array([seed >> 32 & 0xFFFFFFFF, seed & 0xFFFFFFFF], np.uint32)
        self.calls = 0  # random units run so far: each draws anew

    def beside(self, module: Module, access: Access, number: int) -> Runner:
        """Carries out what is asked of an imported module, and draws from a key of its own."""
        other = Runner(self.session, module, self.units.engine, access, 0, self.write, self.warn, self.hosts)
        other.seed = OPS["fold_in"].reference(self.seed, np.uint32(2**32 - 1 - number))
        return other

    def run(self, items: tuple[tree.Item, ...]) -> None:
        """Every statement, up to the first that fails. Errors: DifflangError."""
        for item in items:
            self.statement(item)

    # ---- units

    def unit(self, node: tree.Node, body: Any) -> tuple[list[HostValue], Unit]:
        try:
            return self.carried_out(node, body)
        except (MemoryError, RuntimeError) as error:
            if not isinstance(error, MemoryError) and "RESOURCE_EXHAUSTED" not in str(error):  # how XLA says it
                raise
            way = "smaller arrays, or fewer of them at a time"
            raise mistake("DL1006", "there is not enough memory for this", (node.span, ""), help=way) from error

    def carried_out(self, node: tree.Node, body: Any) -> tuple[list[HostValue], Unit]:
        unit, given = self.units.find(node, self.module, self.demand), []
        if unit is None:
            said = len(self.session.diagnostics)
            unit, staging = self.staged(node, body)
            self.warn(self.session.diagnostics[said:])
            del self.session.diagnostics[said:]
            given = [leaf for _, leaves in staging.given for leaf in leaves or ()]
            unit = replace(unit, program=self.units.engine.program(unit.graph, guard=unit.fails))
            if unit.reusable and not self.binds_sizes(node):
                self.units.keep(node, unit)
        arguments = [leaf for name in unit.reads for leaf in self.value_of(name).leaves or ()]
        key = self.next_key() if unit.random else None
        return self.units.execute(unit, [*arguments, *given], key), unit

    def binds_sizes(self, node: tree.Node) -> bool:
        return isinstance(node, (tree.Let, tree.Var)) and node.type is not None

    def next_key(self) -> np.ndarray:
        self.calls += 1
        return OPS["fold_in"].reference(self.seed, np.uint32(self.calls - 1))

    def demand(self, name: Global) -> Dim:
        return int(self.value_of(name).number)

    def value_of(self, name: Global) -> HostValue:
        """The value of a top-level name, of this module or of one that it imports."""
        return self.hosts[name.module].values[name.name]

    # ---- files and text

    def read(self, kind: str, e: tree.Call, path: str, member: str | None, written: tree.TypeExpr) -> HostValue:
        place = self.access.resolve(path, e.span)
        if not isinstance(written, tree.TypeApply) or not (dtype := self.dtype(written)):
            raise mistake("DL0704", "an array is read from a file", (written.span, "declare its type: `f32[n, 4]`"))
        array = read(kind, place, path, member, dtype, len(written.args), e.span)
        found = Tensor(dtype, array.shape)
        cx = context(self.session, self.module, self.demand, None, definition=False)
        known = set(cx.annotations.bound)
        if not cx.annotations.match(written, found):
            raise mistake(
                "DL0705",
                f"`{path}` does not have the declared shape",
                (e.span, f"the file holds {show_type(found)}"),
                (written.span, f"declared {written.span.text}"),
            )
        for name, size in cx.annotations.bound.items():
            if name not in known and isinstance(size, (int, Poly)):
                self.bind_size(name, size, written.span)
        return HostValue(found, (array,))

    def dtype(self, written: tree.TypeApply) -> Any:
        cx = context(self.session, self.module, self.demand, None, definition=False)
        return cx.annotations.element(written.path[0]) if len(written.path) == 1 else None

    def print(self, e: tree.Call) -> None:
        texts = [self.show(a.value) for a in e.args if not isinstance(a.value, tree.Comprehension)]
        self.write(" ".join(texts))

    def show(self, e: tree.Expr) -> str:
        return show(self.evaluate(e), "", e.span)

    def text(self, e: tree.Str) -> HostValue:
        pieces = [p if isinstance(p, str) else show(self.evaluate(p.value), p.format, p.span) for p in e.parts]
        return HostValue(TextType("".join(pieces)), ())

    # ---- control flow

    def branch(self, e: tree.If, condition: HostValue) -> HostValue:
        if condition.number:
            return self.block(e.then)
        if isinstance(e.orelse, tree.Block):
            return self.block(e.orelse)
        return self.expression(e.orelse, last=True) if e.orelse is not None else UNIT_VALUE

    def repeat(self, e: tree.While) -> None:
        while self.condition(e.condition).number:
            self.block(e.body)

    def go_through(self, e: tree.For, over: HostValue, shown: bool) -> None:
        items = list(self.items(over))
        for item in progress(items) if shown else items:
            with self.scope():
                self.bind(e.pattern, item, False, e.iterable.span)
                self.block(e.body)

    def items(self, over: HostValue) -> Iterator[HostValue]:
        assert over.leaves is not None
        if isinstance(over.type, RangeType):
            start, stop, *step = [int(np.asarray(leaf)) for leaf in over.leaves]
            for i in range(start, stop, *step):
                yield HostValue(Tensor(I32), (np.int32(i),))
            return
        assert isinstance(over.type, Tensor)
        item = Tensor(over.type.dtype, over.type.shape[1:])
        rows = np.asarray(over.leaves[0])
        for row in rows:
            yield HostValue(item, (np.asarray(row, numpy_dtype(item.dtype)),))

    def asserted(self, e: tree.Assert, condition: HostValue) -> None:
        if condition.number:
            return
        message = self.show(e.message) if e.message is not None else "this assertion does not hold"
        raise DifflangError(Diagnostic("DL0901", message, (Label(e.condition.span, "this is false"),)))
