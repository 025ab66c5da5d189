"""Host bindings: `let`, `var` and assignments outside compiled functions, and how their expressions become units."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator
from typing import Any

from msgspec.structs import replace

from difflang.base.diagnostics import DifflangError
from difflang.base.process_termination import atomic
from difflang.base.source import Span
from difflang.elaborate.context import AlreadyReported, ElabContext, Session, elaborate
from difflang.elaborate.patterns.sum_types import widen_to_type
from difflang.elaborate.reports.operand_mismatches import tuple_pattern_error
from difflang.elaborate.statements.basic_statements import branch_without_value_error
from difflang.elaborate.statements.regions import drop_static
from difflang.elaborate.terms import Term, type_of
from difflang.elaborate.trampoline import Walk
from difflang.host.compiled_units import HostUnit, UnitStaging, host_context, stage_unit
from difflang.host.expected_type import ExpectedType
from difflang.host.hoist_host_calls import HoistedExpr
from difflang.host.scopes import HostScopes
from difflang.host.values import HostValue, number_texts
from difflang.ir.symbolic_dims import Dim, Poly
from difflang.ir.tensor_types import I32, Tensor, is_scalar_integer
from difflang.syntax import tree
from difflang.syntax.tree_queries import target_variables
from difflang.types.annotations import AnnotationResolver
from difflang.types.join_types import add_all_variants, contains_kind, erase_texts, has_unknown_args, least_common_type
from difflang.types.language_types import ClosureType, LangType, TextType, TupleType, show_type
from difflang.types.module_name_errors import immutable_name_error, unknown_variable_error
from difflang.types.module_scope import GlobalName, HostNumber, HostVar, ModuleScope
from difflang.types.suggested_fixes import add_helps, float_initializer_hint
from difflang.types.type_errors import make_error, rebound_name_error, resized_array_help
from difflang.types.unify import Unifier

TEMPORARY = "(held)"  # no name of a program has parentheses


class HostBindings(HostScopes, ABC):
    """Binds and assigns the names of host code. `definition` means type checking only: nothing is computed."""

    definition: bool

    def __init__(self, session: Session, module: ModuleScope) -> None:
        super().__init__(module)
        self.session = session
        self.staging: list[UnitStaging] = []

    @abstractmethod
    def unit(self, node: tree.Node, body: Any, key: Hashable = None) -> tuple[list[HostValue], HostUnit]: ...

    @abstractmethod
    def demand(self, number: HostNumber) -> Dim: ...

    @abstractmethod
    def work(self, e: tree.Node) -> HoistedExpr | None: ...

    @abstractmethod
    def value_of(self, e: tree.Expr, expected: ExpectedType | None = None) -> Walk[HostValue]: ...

    @property
    @abstractmethod
    def signature(self) -> AnnotationResolver | None: ...

    @abstractmethod
    def lift(self, work: HoistedExpr) -> Walk[None]: ...

    # ---- Compiled expressions

    def compiled_value(self, e: tree.Node, expected: ExpectedType | None) -> HostValue:
        """The value of an expression without host calls."""

        def body(cx: ElabContext) -> Walk[list[Term]]:
            value = yield elaborate(cx, e)
            if expected is not None:
                value = yield expected.ascribe(cx, value, e.span)
                self.staging[-1].binds |= expected.binds
            return [value]

        (value,), unit = self.unit(e, body, expected.key if expected is not None else None)
        if expected is not None:
            expected.bind(dict(unit.binds))
        return value

    def staged(self, node: tree.Node, body: Any) -> HostUnit:
        return stage_unit(
            self.session, self.module, node, body, self, self.demand,
            definition=self.definition, signature=self.signature,
        )  # fmt: skip

    def current_context(self) -> ElabContext:
        """The context at the current statement, for types written there."""
        return host_context(
            self.session, self.module, self.demand, None, definition=self.definition, signature=self.signature
        )

    def type_of(self, expected: ExpectedType) -> LangType:
        """The expected type; a size that it names for the first time stays open. Errors: DL02, DL03."""
        names = expected.names or self.current_context().annotations
        return replace(names, bound=dict(names.bound), rigid=True).type(expected.annotation)

    # ---- let, var

    def let(self, e: tree.Let | tree.Var) -> Walk[None]:
        if e.attributes:
            message = f"`@{e.attributes[0].name}` has no effect on a value of the host"
            raise make_error(
                "DL0209", message, (e.attributes[0].span, ""), help="put it into a function, which is compiled"
            )
        expected = ExpectedType(e.type) if e.type is not None else None
        value = yield self.value_of(e.value, expected)
        if isinstance(e.value, (tree.If, tree.Match)) and value.type == TupleType(()):
            raise branch_without_value_error(e.value)
        for name, size in expected.sizes.items() if expected is not None else ():
            self.check_size_agrees(name, size, e)
            self.bind_size(name, size, e.span)
        if isinstance(e, tree.Var):
            value = self.held(e.value, value, self.with_all_variants(value.type, expected))
        self.bind(e.pattern, value, isinstance(e, tree.Var), e.value.span)

    def check_size_agrees(self, name: str, size: Dim, e: tree.Let | tree.Var) -> None:
        """Check that a number known only at run time equals the size its name stands for. Errors: DL0304, DL0305."""
        old, value = self.module.host.get(name), self.values.get(name)
        if old is None or old.static is not None or old.invalid or not is_scalar_integer(old.type):
            return
        declared = [(old.span, "declared here")] if old.span is not None else []
        if old.mutable:
            way = f"give the size a different name, and compare it: `assert m == {name}`"
            message = f"`{name}` is a variable, not a size"
            raise make_error("DL0305", message, (e.value.span, f"{name} is {size} here"), *declared, help=way)
        if value is not None and value.leaves is not None and int(value.number) != size:
            message = f"`{name}` is {value.number}, but it is {size} here"
            raise make_error("DL0304", message, (e.value.span, f"{name} is {size} here"), *declared)

    def bind_size(self, name: str, size: Dim, span: Span) -> None:
        self.bind_var(HostVar(name, Tensor(I32), static=size, span=span))

    @atomic
    def bind(self, pattern: tree.Pattern, value: HostValue, mutable: bool, span: Span) -> None:
        """Bind the names of a pattern. Errors: DL0321, DL0212."""
        if isinstance(pattern, tree.TuplePattern):
            if not isinstance(value.type, TupleType) or len(value.type.items) != len(pattern.items):
                parts = len(value.type.items) if isinstance(value.type, TupleType) else None
                raise tuple_pattern_error(pattern, parts, (span, f"this is {show_type(value.type)}"))
            for i, item in enumerate(pattern.items):
                self.bind(item, value.part(i), mutable, span)
        elif pattern.name != "_":
            self.refuse_rebinding(pattern)
            if self.session.type_notes is not None:
                self.session.type_notes.put(pattern.span, value.type, None)
            self.bind_name(pattern.name, value, mutable, pattern.span)

    @atomic
    def bind_name(self, name: str, value: HostValue, mutable: bool, span: Span) -> None:
        static = None if mutable else value.static
        type = erase_texts(value.type) if mutable and self.definition else value.type
        self.bind_var(HostVar(name, type, mutable, static, span))
        self.values[name] = HostValue(value.type, value.leaves) if mutable else value

    def refuse_rebinding(self, pattern: tree.NamePattern) -> None:
        """Forbid rebinding a value that a function reads: the function keeps the value it was defined with."""
        used = self.module.used.get(pattern.name)
        old = self.module.host.get(pattern.name) if used is not None else None
        if old is None or used is None or old.span == pattern.span or old.span is None:
            return
        raise rebound_name_error(pattern.name, pattern.span, used, old.span)

    # ---- Assignment

    def assign(self, e: tree.Assign | tree.Update) -> Walk[None]:
        """Assign to top-level variables in one unit, whose results are their new values."""
        if isinstance(e, tree.Assign) and not self.parts(e.target) and self.work(e.value) is not None:
            value = yield self.value_of(e.value)
            self.assign_value(e.target, value, e.value.span)
            return
        work = self.work(e)
        if work is None:
            self.assign_compiled(e)
            return
        with self.scope(e.span):
            yield self.lift(work)
            assert isinstance(work.compiled, (tree.Assign, tree.Update))
            self.assign_compiled(work.compiled)

    def parts(self, target: tree.Expr) -> bool:
        """Whether the target includes a part of a value (a field or an element), rather than whole variables only."""
        items = target.items if isinstance(target, tree.TupleExpr) else (target,)
        return any(not isinstance(i, tree.Name) for i in items)

    def assign_compiled(self, e: tree.Assign | tree.Update) -> None:
        names = list(dict.fromkeys(target_variables(e.target)))
        for name in names:
            self.lookup_variable(name, e.target.span)

        def body(cx: ElabContext) -> Walk[list[Term]]:
            for name in names:
                term = cx.global_term(GlobalName(self.module, name))
                cx.scope.bind(name, term, mutable=True, span=self.module.host[name].span)
            try:
                yield elaborate(cx, e)
                terms = [(n, cx.scope.names[n].term) for n in names]
                return [
                    self.as_variable_type(cx, n, t, e.value.span) for n, t in terms if not isinstance(t, (int, Poly))
                ]
            except DifflangError as error:
                if any(d.code not in ("DL0304", "DL0311") for d in error.diagnostics):
                    raise
                bound = [self.module.host[name].span for name in names]
                raise add_helps(error, [float_initializer_hint(span) for span in bound if span]) from None

        values, _ = self.unit(e, body)
        self.update_variables(names, values)

    @atomic
    def update_variables(self, names: list[str], values: list[HostValue]) -> None:
        for name, value in zip(names, values, strict=True):
            self.update_variable(name, value)

    @atomic
    def update_variable(self, name: str, value: HostValue) -> None:
        """Give a variable a new value of its type. The content of a text and the identity of a function belong to the
        type.

        While the program is checked, the variable's type covers every function that it has held.
        """
        var = self.module.host[name]
        texts = contains_kind(var.type, (TextType,))
        if (texts and not self.definition) or contains_kind(var.type, (ClosureType,)):
            var = self.module.host[name] = replace(var, type=value.type, static=None)
        self.values[name] = HostValue(value.type if texts else var.type, value.leaves)

    def lookup_variable(self, name: str, span: Span) -> HostVar:
        """The variable with this name. Errors: DL0201, DL0208."""
        var = self.module.host.get(name)
        if var is None:
            known = [n for n, other in self.module.host.items() if other.mutable]
            raise unknown_variable_error(self.module, name, span, known, top_level=self.depth == 0)
        if var.invalid:
            raise AlreadyReported
        if not var.mutable:
            labels = [(span, "assigned here")] + ([(var.span, "bound here")] if var.span is not None else [])
            hidden = var.hides
            while hidden is not None and not hidden.mutable:
                hidden = hidden.hides
            raise immutable_name_error(name, labels, None if hidden is None else hidden.span)
        return var

    def assign_value(self, target: tree.Expr, value: HostValue, span: Span) -> None:
        """Assign a value that the host already has to variables. Errors: DL0304, DL0321."""
        pairs = list(self.pair_targets(target, value, span))
        types = [self.variable_type(Unifier(), name.id, part.type, span) for name, part in pairs]
        held = [self.held(name, part, type) for (name, part), type in zip(pairs, types, strict=True)]
        # All at once, after every check: an interrupted tuple assignment must not change half of its targets.
        self.update_variables([name.id for name, _ in pairs], held)

    def pair_targets(self, target: tree.Expr, value: HostValue, span: Span) -> Iterator[tuple[tree.Name, HostValue]]:
        """The target variables, each with its part of the value. Errors: DL0201, DL0208, DL0321."""
        if isinstance(target, tree.TupleExpr):
            if not isinstance(value.type, TupleType) or len(value.type.items) != len(target.items):
                raise make_error("DL0321", f"expected a tuple of {len(target.items)} here", (target.span, ""),
                              (span, f"this is {show_type(value.type)}"))  # fmt: skip
            for i, item in enumerate(target.items):
                yield from self.pair_targets(item, value.part(i), span)
        else:
            assert isinstance(target, tree.Name)
            self.lookup_variable(target.id, target.span)
            yield target, value

    # ---- Variables that hold any variant of an enum

    def with_all_variants(self, type: LangType, expected: ExpectedType | None) -> LangType:
        """The type of a variable with this first value: it admits all variants of the value's and the written type."""
        if expected is not None and has_unknown_args(type):
            type = least_common_type(Unifier(), type, self.type_of(expected)) or type
        return add_all_variants(Unifier(), type)

    def variable_type(self, unifier: Unifier, name: str, type: LangType, span: Span) -> LangType:
        """The type in which a variable holds a new value: its own, except for texts and functions. Errors: DL0304."""
        own = self.module.host[name].type
        texts, known = contains_kind(own, (TextType,)), erase_texts(own)
        both = least_common_type(unifier, known, erase_texts(type))
        if both == known or (both is not None and texts and not self.definition):
            return type if texts else own
        if both is not None and contains_kind(both, (ClosureType,)):
            return both if self.definition else type
        if both is not None and texts:
            message = f"`{name}` holds texts, so it keeps the variant that it started with"
            raise make_error(
                "DL0304", message, (span, f"this is {show_type(type)}"), help="bind the new value with `let`"
            )
        open_type = both is not None and has_unknown_args(own)
        declared = f"declare its type: `var {name}: {show_type(type)} = …`"
        way = declared if open_type else resized_array_help(name, own, type)
        message = f"`{name}` is {show_type(own)} and keeps that type"
        raise make_error("DL0304", message, (span, f"this is {show_type(type)}"), help=way)

    def as_variable_type(self, cx: ElabContext, name: str, term: Term, span: Span) -> Term:
        """The new value, widened to the variable's type."""
        return widen_to_type(cx.builder, drop_static(term), self.variable_type(cx.unifier, name, type_of(term), span))

    def held(self, node: tree.Node, value: HostValue, type: LangType) -> HostValue:
        """A value converted to a sum type with more options, or to numbers of its texts."""
        value = number_texts(value, type)
        if type == value.type:
            return value
        held = GlobalName(self.module, TEMPORARY)

        def body(cx: ElabContext) -> Walk[list[Term]]:
            return [widen_to_type(cx.builder, cx.global_term(held), type)]
            yield  # makes this a generator, as `unit` expects

        with self.scope(node.span):
            self.bind_name(TEMPORARY, value, False, node.span)
            (found,), _ = self.unit(node, body, (TEMPORARY, value.type, type))
        return found
