"""Host statements, at the top level and in `host fn`s: what checking them and running them have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from difflang.base.diagnostics import DifflangError
from difflang.base.source import Span
from difflang.check.annotations import Annotations
from difflang.check.closures import FnCode
from difflang.check.modules import Global, HostVar, Module
from difflang.check.qualified import no_variable
from difflang.check.reports import mistake
from difflang.check.types import RangeType, TextType, TupleType, show_type
from difflang.check.unify import Unifier
from difflang.driver.files import READERS
from difflang.driver.scopes import Scopes
from difflang.driver.units import Staging, Unit, stage
from difflang.driver.values import HostValue
from difflang.elaborate.arguments import Args
from difflang.elaborate.context import Context, Reported, Session, walk
from difflang.elaborate.jumps import early_return
from difflang.elaborate.names import targets
from difflang.elaborate.statements import VALUELESS, declared
from difflang.elaborate.terms import UNIT_TERM, Term
from difflang.elaborate.trampoline import Walk
from difflang.ir.dims import Dim, Poly
from difflang.ir.types import I32, Tensor
from difflang.syntax import tree

DECLARATIONS = (tree.Fn, tree.Record, tree.Enum, tree.Rule, tree.Extern, tree.Test, tree.Bench, tree.Import)
HOST_FUNCTIONS = ("print", "progress", *READERS)
UNIT_VALUE = HostValue(TupleType(()), ())


class Host(Scopes, ABC):
    """Goes through host statements. `definition` says that types are all there is: nothing is computed."""

    definition: bool

    def __init__(self, session: Session, module: Module, hosts: dict[Module, Host] | None = None) -> None:
        super().__init__(module)
        self.session = session
        self.hosts = {} if hosts is None else hosts  # of every module of the program
        self.hosts[module] = self
        self.staging: list[Staging] = []

    # ---- what the two do differently

    @abstractmethod
    def unit(self, node: tree.Node, body: Any) -> tuple[list[HostValue], Unit]: ...

    @abstractmethod
    def read(self, kind: str, e: tree.Call, path: str, member: str | None, written: tree.TypeExpr) -> HostValue: ...

    @abstractmethod
    def print(self, e: tree.Call) -> None: ...

    @abstractmethod
    def demand(self, name: Global) -> Dim: ...

    @abstractmethod
    def branch(self, e: tree.If, condition: HostValue) -> HostValue: ...

    @abstractmethod
    def repeat(self, e: tree.While) -> None: ...

    @abstractmethod
    def go_through(self, e: tree.For, over: HostValue, shown: bool) -> None: ...

    @abstractmethod
    def asserted(self, e: tree.Assert, condition: HostValue) -> None: ...

    # ---- statements

    def statement(self, stmt: tree.Node, *, last: bool = False) -> HostValue:
        """Carry out one statement; the value of an expression. Errors: DifflangError, Reported."""
        match stmt:
            case tree.Fn() if self.depth:
                raise self.not_yet(
                    "a function declared inside a host block is", stmt.span, "declare it at the top level"
                )
            case tree.Let() | tree.Var():
                self.let(stmt)
            case tree.Assign() | tree.Update():
                self.assign(stmt)
            case tree.For():
                self.for_(stmt)
            case tree.While():
                with self.nested(stmt.span):
                    self.repeat(stmt)
            case tree.Assert():
                self.asserted(stmt, self.condition(stmt.condition))
            case tree.Return():
                return self.evaluate(stmt.value) if stmt.value is not None else UNIT_VALUE
            case tree.Break() | tree.Continue() | tree.Yield() | tree.Save():
                raise self.not_yet("this statement on the host is", stmt.span, "put the loop into a function")
            case _ if isinstance(stmt, DECLARATIONS):
                pass
            case _:
                return self.expression(stmt, last=last)
        return UNIT_VALUE

    def expression(self, e: tree.Node, *, last: bool) -> HostValue:
        if isinstance(e, tree.If):
            with self.nested(e.span):
                return self.branch(e, self.condition(e.condition))
        if isinstance(e, tree.Block):
            return self.block(e)
        if not last and not isinstance(e, (tree.Call, tree.Pipe, tree.Match, *VALUELESS)):
            raise mistake(
                "DL0323", "nothing uses this value", (e.span, ""), help="print it: `print(…)`, or bind it with `let`"
            )
        return self.evaluate(e)

    def block(self, block: tree.Block) -> HostValue:
        """The statements of a block; the names it declares end with it."""
        value = UNIT_VALUE
        with self.scope():
            for stmt in block.stmts:
                value = self.statement(stmt, last=stmt is block.stmts[-1])
        return value

    @contextmanager
    def nested(self, span: Span) -> Generator[None, None, None]:
        if self.depth >= 100:
            raise mistake(
                "DL1002",
                "control flow is nested deeper than 100 levels",
                (span, ""),
                help="move an inner part into a function",
            )
        self.depth += 1
        try:
            yield
        finally:
            self.depth -= 1

    # ---- let, var, assignment

    def let(self, e: tree.Let | tree.Var) -> None:
        mutable = isinstance(e, tree.Var)
        kind = called_name(e.value)
        if kind in READERS and isinstance(e.value, tree.Call) and self.is_free(kind):
            path, member = self.file_arguments(e.value)
            if e.type is None:
                raise mistake(
                    "DL0707",
                    "what is read from a file needs a declared type",
                    (e.value.span, ""),
                    help=f"`let {e.pattern.span.text}: f32[n, 4] = {e.value.span.text}`",
                )
            self.bind(e.pattern, self.read(kind, e.value, path, member, e.type), mutable, e.value.span)
        elif isinstance(e.value, (tree.For, tree.While)):
            raise self.not_yet("a host loop that yields is", e.value.span, "put the loop into a function")
        elif self.on_host(e.value):
            self.bind(e.pattern, self.evaluate(e.value), mutable, e.value.span)
        else:
            self.bind(e.pattern, self.typed(e, e.value, e.type), mutable, e.value.span)

    def typed(self, node: tree.Node, e: tree.Expr, written: tree.TypeExpr | None) -> HostValue:
        """An expression of a written type; sizes that the type names for the first time are bound."""
        sizes: dict[str, Dim] = {}

        def body(cx: Context) -> Walk[list[Term]]:
            value = yield walk(cx, e)
            if written is not None:
                known = set(cx.annotations.bound)
                value = yield declared(cx, written, value, e.span, "the value")
                new = {n: d for n, d in cx.annotations.bound.items() if n not in known}
                sizes.update({n: d for n, d in new.items() if isinstance(d, (int, Poly))})
            return [value]

        (value,), unit = self.unit(node, body)
        for name, size in sizes.items():
            self.bind_size(name, size, node.span)
        del unit
        return value

    def bind_size(self, name: str, size: Dim, span: Span) -> None:
        self.shadow(name)
        self.module.host[name] = HostVar(name, Tensor(I32), static=size, span=span)

    def bind(self, pattern: tree.Pattern, value: HostValue, mutable: bool, span: Span) -> None:
        if isinstance(pattern, tree.TuplePattern):
            if not isinstance(value.type, TupleType) or len(value.type.items) != len(pattern.items):
                raise mistake(
                    "DL0321",
                    f"a tuple of {len(pattern.items)} is expected here",
                    (pattern.span, ""),
                    (span, f"this is {show_type(value.type)}"),
                )
            for i, item in enumerate(pattern.items):
                self.bind(item, value.part(i), mutable, span)
        elif pattern.name != "_":
            self.not_in_use(pattern)
            self.shadow(pattern.name)
            static = None if mutable else value.static
            self.module.host[pattern.name] = HostVar(pattern.name, value.type, mutable, static, pattern.span)
            self.values[pattern.name] = value

    def not_in_use(self, pattern: tree.NamePattern) -> None:
        """A function keeps the value it was written under: nothing else takes the name of a value that one reads."""
        old, used = self.module.host.get(pattern.name), self.module.used.get(pattern.name)
        if old is None or used is None or old.span == pattern.span or old.span is None:
            return
        raise mistake(
            "DL0212",
            f"`{pattern.name}` is bound again, and a function uses it as it was",
            (pattern.span, "bound again here"),
            (used, "used here"),
            (old.span, "bound here first"),
            help="give the new value another name, or pass it to the function",
        )

    def assign(self, e: tree.Assign | tree.Update) -> None:
        """An assignment to top-level variables, as one unit: their new values are its results."""
        names = list(dict.fromkeys(targets(e.target)))
        if isinstance(e, tree.Assign) and self.on_host(e.value):
            self.assign_value(e.target, self.evaluate(e.value), e.value.span)
            return
        for name in names:
            self.assignable(name, e.target.span)

        def body(cx: Context) -> Walk[list[Term]]:
            for name in names:
                term = cx.global_term(Global(self.module, name))
                cx.scope.bind(name, term, mutable=True, span=self.module.host[name].span)
            yield walk(cx, e)
            terms = [cx.scope.names[name].term for name in names]
            return [t for t in terms if not isinstance(t, (int, Poly))]

        values, _ = self.unit(e, body)
        for name, value in zip(names, values, strict=True):
            self.values[name] = HostValue(self.module.host[name].type, value.leaves)

    def assignable(self, name: str, span: Span) -> HostVar:
        var = self.module.host.get(name)
        if var is None:
            raise no_variable(self.module, name, span)
        if var.broken:
            raise Reported
        if not var.mutable:
            labels = [(span, "assigned here")] + ([(var.span, "bound here")] if var.span is not None else [])
            raise mistake("DL0208", f"`{name}` is not a variable", *labels, help=f"declare it with `var {name} = …`")
        return var

    def assign_value(self, target: tree.Expr, value: HostValue, span: Span) -> None:
        if (
            isinstance(target, tree.TupleExpr)
            and isinstance(value.type, TupleType)
            and len(value.type.items) == len(target.items)
        ):
            for i, item in enumerate(target.items):
                self.assign_value(item, value.part(i), span)
            return
        if not isinstance(target, tree.Name):
            raise self.not_yet(
                "assigning what a host function gives to a part of a value is", target.span, "bind it with `let` first"
            )
        var = self.assignable(target.id, target.span)
        if var.type != value.type:
            raise mistake(
                "DL0304",
                f"`{target.id}` is {show_type(var.type)} and keeps that type",
                (span, f"this is {show_type(value.type)}"),
            )
        self.values[target.id] = value

    # ---- loops and conditions

    def for_(self, e: tree.For) -> None:
        shown = called_name(e.iterable) == "progress" and self.is_free("progress")
        iterable = e.iterable
        if shown and isinstance(iterable, tree.Call):
            if (
                len(iterable.args) != 1
                or iterable.args[0].name is not None
                or isinstance(iterable.args[0].value, tree.Comprehension)
            ):
                raise mistake("DL0319", "`progress` is called as `progress(0..n)`", (iterable.span, ""))
            iterable = iterable.args[0].value
        assert not isinstance(iterable, tree.Comprehension)
        over = self.evaluate(iterable)
        if not isinstance(over.type, RangeType) and not (isinstance(over.type, Tensor) and over.type.shape):
            raise mistake(
                "DL0329",
                "a host loop goes through a range or an array",
                (iterable.span, f"this is {show_type(over.type)}"),
            )
        with self.nested(e.span):
            self.go_through(e, over, shown)

    def condition(self, e: tree.Expr) -> HostValue:
        value = self.evaluate(e)
        if not isinstance(value.type, Tensor) or value.type.dtype.name != "bool" or value.type.shape:
            raise mistake("DL0313", "a condition is a bool", (e.span, f"this is {show_type(value.type)}"))
        return value

    # ---- expressions

    def on_host(self, e: tree.Node) -> bool:
        """Whether the host itself evaluates an expression: a string made of values, a call of a host function."""
        if isinstance(e, tree.Str):
            return any(not isinstance(p, str) for p in e.parts)
        name = called_name(e)
        return (name in HOST_FUNCTIONS and self.is_free(name)) or self.host_function(e) is not None

    def is_free(self, name: str) -> bool:
        return name not in self.module.host and name not in self.module.fns and name not in self.module.imported

    def evaluate(self, e: tree.Node) -> HostValue:
        """The value of an expression. Errors: DifflangError, Reported."""
        if not self.on_host(e):
            return self.typed(e, e, None)  # type: ignore[arg-type]
        if isinstance(e, tree.Str):
            return self.text(e)
        assert isinstance(e, tree.Call)
        if (function := self.host_function(e)) is not None:
            return self.host_call(e, function)
        name = called_name(e)
        if name == "print":
            self.print(e)
            return UNIT_VALUE
        raise mistake(
            "DL0707",
            f"`{name}` stands alone on the right of a `let` with a declared type"
            if name in READERS
            else "`progress` stands in the head of a loop",
            (e.span, ""),
        )

    @abstractmethod
    def text(self, e: tree.Str) -> HostValue: ...

    def file_arguments(self, e: tree.Call) -> tuple[str, str | None]:
        """The path, and the name of an array in it."""
        values = [self.evaluate(a.value) for a in e.args if not isinstance(a.value, tree.Comprehension)]
        texts = [v.type.value for v in values if isinstance(v.type, TextType)]
        if len(texts) != len(e.args) or not 1 <= len(texts) <= 2:
            raise mistake("DL0319", f'`{called_name(e)}` is called as `{called_name(e)}("file")`', (e.span, ""))
        return texts[0] or "", texts[1] if len(texts) == 2 else None

    def host_call(self, e: tree.Call, function: Global) -> HostValue:
        """A call of a `host fn`: its statements, in its module, with the arguments under the parameters' names."""
        there, decl = self.hosts[function.module], function.module.fns[function.name]
        if len(e.args) != len(decl.params) or any(a.name is not None for a in e.args):
            raise mistake(
                "DL0319",
                f"`{decl.name}` takes {len(decl.params)} arguments, by position",
                (e.span, ""),
                (decl.name_span, "declared here"),
            )
        values = [self.evaluate(a.value) for a in e.args if not isinstance(a.value, tree.Comprehension)]
        signature = Annotations(Unifier(), there.module.records.get, {}, {g.name: g.bound for g in decl.generics})
        for param, value, arg in zip(decl.params, values, e.args, strict=True):
            if param.type is not None and not signature.match(param.type, value.type):
                raise mistake(
                    "DL0304",
                    f"the argument `{param.name}` does not fit",
                    (arg.span, f"this is {show_type(value.type)}"),
                    (param.span, "declared here"),
                )
        with self.nested(e.span), there.top_level(), there.scope():
            for name, size in signature.bound.items():
                if isinstance(size, (int, Poly)):
                    there.bind_size(name, size, decl.name_span)
            for param, value in zip(decl.params, values, strict=True):
                there.bind(tree.NamePattern(param.span, param.name), value, False, e.span)
            body = decl.body
            if not isinstance(body, tree.Block):
                return there.evaluate(body)
            early = early_return(body)
            if early is not None:
                raise self.not_yet("an early `return` of a `host fn` is", early.span, "let it be its last statement")
            return there.block(body)

    def call(self, cx: Context, code: FnCode, args: Args) -> Walk[Term]:
        """A host function called inside a larger expression."""
        raise self.not_yet(
            "a host function inside a larger expression is", args.span, "bind its result with `let` first"
        )
        yield UNIT_TERM

    def staged(self, node: tree.Node, body: Any) -> tuple[Unit, Staging]:
        return stage(self.session, self.module, node, body, self, self.demand, definition=self.definition)

    def not_yet(self, what: str, span: Span, way: str = "") -> DifflangError:
        return mistake("DL0801", f"{what} not there yet", (span, ""), help=way)


def called_name(e: tree.Node) -> str:
    """The name that a call calls, or nothing."""
    return e.fn.id if isinstance(e, tree.Call) and isinstance(e.fn, tree.Name) else ""
