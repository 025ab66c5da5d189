"""Type-checks host statements without running them: values are known by type only, sizes by name."""

from __future__ import annotations

import itertools
from collections.abc import Generator, Hashable, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from difflang.base.diagnostics import DifflangError
from difflang.elaborate.calls.signatures import is_dim
from difflang.elaborate.context import AlreadyReported, Session
from difflang.elaborate.module_declarations import check_declaration, check_definition, check_rule
from difflang.elaborate.reports.all_unknown_names import with_other_unknown_names
from difflang.elaborate.statements.desugar_jumps import refuse_unreachable
from difflang.elaborate.statements.jump_analysis import JUMPS, else_statements, ends_in_jump
from difflang.elaborate.trampoline import Walk, run_walk
from difflang.host.builtins import UNIT_VALUE, BuiltinCall, HostBuiltin
from difflang.host.call_frames import HostFrame
from difflang.host.compiled_units import HostUnit
from difflang.host.data.read_values import READ_BUILTINS, START_OR_LOAD, FileRead
from difflang.host.expected_type import ExpectedType
from difflang.host.let_dependencies import lone_type_names, refuse_variables
from difflang.host.loop_iterables import HostIterable, collected_type, common_item_type
from difflang.host.match import bind_pattern, matches, possible_cases
from difflang.host.statement_walk import HostWalk
from difflang.host.values import HostValue, resolve_texts
from difflang.ir import symbolic_dims
from difflang.ir.symbolic_dims import Dim, Poly
from difflang.ir.tensor_types import BOOL, I32, Tensor
from difflang.syntax import tree
from difflang.syntax.tree_queries import all_nodes, body_value, mentioned_names, pattern_names, target_variables
from difflang.types.annotations import AnnotationResolver
from difflang.types.join_types import erase_texts, least_common_type
from difflang.types.language_types import UNIT, TextType, TupleType, show_type
from difflang.types.module_scope import HostNumber, HostVar, ModuleScope
from difflang.types.suggested_fixes import add_helps
from difflang.types.text_templates import check_format
from difflang.types.type_errors import DeferCheck, make_error, nesting_error
from difflang.types.unify import Unifier

if TYPE_CHECKING:
    from difflang.elaborate.module_imports import ModuleFile

# The value after an error: its uses are not reported again.
UNKNOWN_VALUE = HostValue(TupleType(()), None)


class BodyEnded(Exception):
    """A function returns here on every path, whatever stands below."""


class HostChecker(HostWalk):
    """Reports the errors in a file's statements to the session and continues after each."""

    definition = True

    def __init__(self, session: Session, module: ModuleScope, hosts: dict[ModuleScope, HostWalk] | None = None) -> None:
        super().__init__(session, module, hosts)
        # Results of calls by function and argument types.
        self.call_results: dict[Hashable, HostValue] = {}
        # Functions whose recursive call was assumed to return nothing.
        self.assumed_unit: set[tree.Fn] = set()

    def imported(self, file: ModuleFile) -> None:
        """Check a file that another one imports. Library declarations were checked before release."""
        if not file.library:
            self.check(file.checked_items)
            return
        for item in file.checked_items:
            self.statement(item)

    def check(self, items: tuple[tree.Item, ...], *, echo: bool = False) -> HostValue:
        """Check all items in the order of the file: a function may use the top-level names above it.

        With `echo` each expression is printed, so none counts as unused. The result is the last item's value.
        """
        value = UNIT_VALUE
        for i, item in enumerate(items):
            value = self.item(item, items[:i], echo=echo)
        return value

    def item(self, item: tree.Item, above: tuple[tree.Item, ...], *, echo: bool = False) -> HostValue:
        """Check one item, after all those `above` it in the file; its value."""
        if isinstance(item, tree.Fn) and item.host:
            self.host_definition(item)
        elif isinstance(item, tree.Fn):
            check_definition(self.module, item, self.session)
        elif isinstance(item, tree.Rule):
            check_rule(self.module, item, self.session)
        elif isinstance(item, (tree.Record, tree.Enum)):
            check_declaration(self.module, item, self.session)
        elif isinstance(item, (tree.Test, tree.Bench)):
            self.check_isolated(above, item.body, "test" if isinstance(item, tree.Test) else "benchmark")
        return self.statement(item, last=echo)

    def check_isolated(self, above: tuple[tree.Item, ...], block: tree.Block, what: str, *, echo: bool = False) -> None:
        """Check a block that runs without the rest of the file, with only the declarations and `let`s above it.

        With `echo` each of its expressions is printed, so none counts as unused.
        """
        if refuse_variables(self.session, above, block, what):
            with self.nested(block.span), self.scope(block.span):
                for stmt in block.stmts:
                    self.statement(stmt, last=echo or stmt is block.stmts[-1])

    def host_definition(self, decl: tree.Fn) -> None:
        """Check a `host fn` by its parameters' declared types; if some have none, each call is checked instead."""
        names = replace(self.current_context().annotations, generics={g.name: g.bound for g in decl.generics})
        values: list[HostValue] = []
        try:
            refuse_memory_attributes(decl)
            for param in decl.params:
                if param.type is None:
                    return
                values.append(HostValue(names.type(param.type), None))
                if is_dim(param.type):
                    names.dim(tree.TypeName(param.span, (param.name,)))
        except DifflangError as error:
            self.session.report(error)
            return
        except DeferCheck:
            return
        try:
            run_walk(self.enter(decl, decl, names, values))
        except DifflangError as error:
            self.session.report(error)
        except (AlreadyReported, DeferCheck):
            pass

    def do(self, stmt: tree.Node, *, last: bool = False, expected: ExpectedType | None = None) -> Walk[HostValue]:
        """Check one statement; after an error the names that it binds are marked invalid."""
        try:
            return (yield super().do(stmt, last=last, expected=expected))
        except DifflangError as error:
            for each in with_other_unknown_names(self.current_context(), error, stmt):
                self.session.report(each)
        except RecursionError:
            self.session.report(nesting_error(stmt.span))
        except (AlreadyReported, DeferCheck):
            pass
        if isinstance(stmt, (tree.Let, tree.Var)):
            names = dict.fromkeys(pattern_names(stmt.pattern))
            for name in [*names, *lone_type_names(stmt.type)]:
                if name not in self.module.host or name in names:
                    self.mark_invalid(name, stmt)
        elif isinstance(stmt, tree.Fn) and self.depth:
            self.mark_invalid(stmt.name, stmt)
        elif isinstance(stmt, (tree.Assign, tree.Update)):
            for name in target_variables(stmt.target):
                if name not in self.module.host and name not in self.module.declared:
                    # One report for a name that was never declared.
                    self.mark_invalid(name, stmt)
        return UNKNOWN_VALUE

    def mark_invalid(self, name: str, stmt: tree.Node) -> None:
        """Mark a name as the result of an error, so that its uses are not reported."""
        self.bind_var(HostVar(name, Tensor(I32), mutable=True, invalid=True, span=stmt.span))

    def do_block(self, block: tree.Block, expected: ExpectedType | None = None) -> Walk[HostValue]:
        for stmt, after in itertools.pairwise(block.stmts):
            if isinstance(stmt, JUMPS):
                refuse_unreachable(stmt, (after,))
        return (yield super().do_block(block, expected))

    def unit(self, node: tree.Node, body: Any, key: Hashable = None) -> tuple[list[HostValue], HostUnit]:
        unit = self.staged(node, body)
        found = [HostValue(t, None, s) for t, s in zip(unit.types, unit.statics, strict=True)]
        return list(map(resolve_texts, found)), unit

    def perform(self, function: HostBuiltin, given: BuiltinCall) -> HostValue:
        if function.name in READ_BUILTINS and given.expected_type is not None:
            bound = (given.expected_type.names or self.current_context().annotations).bound
            sizes = {n: size for n, size in bound.items() if isinstance(size, int)}
            self.session.file_reads.append(FileRead(given, self.module, self.frames[-1].decl, sizes))
        return HostValue(function.check(self, given), None)

    def text(self, e: tree.Str) -> Walk[HostValue]:
        for part in e.parts:
            if not isinstance(part, str):
                value = yield self.value_of(part.value)
                check_format(value.type, part)
        return HostValue(TextType(), None)

    def demand(self, number: HostNumber) -> Dim:
        name = number.global_name.name
        return symbolic_dims.dim_name(name if number.leaf is None else f"number {number.leaf} of {name}")

    # ---- Control flow: every branch is checked once

    def condition(self, e: tree.Expr) -> Walk[HostValue]:
        try:
            return (yield super().condition(e))
        except DeferCheck:  # depends on a text known only at run time
            return HostValue(Tensor(BOOL), None)

    def branch(self, e: tree.If, condition: HostValue, expected: ExpectedType | None) -> Walk[HostValue]:
        # Inside a function the sizes of this call may decide the condition: only the taken branch need be right.
        if isinstance(condition.static, bool) and self.frames[-1].decl is not None:
            taken = e.then if condition.static else e.orelse
            return UNIT_VALUE if taken is None else (yield self.control(taken, expected))
        with self.maybe_skipped():
            first = yield self.do_block(e.then, expected)
            if e.orelse is None:
                return UNIT_VALUE
            second = yield self.control(e.orelse, expected)
        if any(v is UNKNOWN_VALUE for v in (first, second)):
            return UNKNOWN_VALUE
        if ends_in_jump(e.then.stmts) != ends_in_jump(else_statements(e.orelse)):
            return second if ends_in_jump(e.then.stmts) else first
        return join_branches([(e.then, first), (e.orelse, second)], "the branches have different types")

    def match(self, e: tree.Match, subject: HostValue, expected: ExpectedType | None) -> Walk[HostValue]:
        cases = possible_cases(self, e, subject)
        # As in `branch`.
        if isinstance(subject.static, (bool, int, float)) and self.frames[-1].decl is not None:
            cases = [(fit, case) for fit, case in cases if matches(fit, subject)][:1]
        found: list[tuple[tree.Expr, HostValue]] = []
        with self.maybe_skipped() if len(cases) > 1 else nullcontext():
            for fit, case in cases:
                with self.scope(case.span):
                    bind_pattern(self, fit, subject, case.pattern.span)
                    found.append((case.body, (yield self.do(case.body, last=True, expected=expected))))
        if any(value is UNKNOWN_VALUE for _, value in found):
            return UNKNOWN_VALUE
        going_on = [(body, value) for body, value in found if not ends_in_jump(else_statements(body))]
        if going_on:
            return join_branches(going_on, "the cases have different types")
        if not self.frames[-1].open_branches:
            raise BodyEnded
        return UNIT_VALUE

    @contextmanager
    def maybe_returns(self) -> Generator[None, None, None]:
        """Inside the block a `return` is not certain to run."""
        frame = self.frames[-1]
        frame.open_branches += 1
        try:
            yield
        finally:
            frame.open_branches -= 1

    @contextmanager
    def maybe_skipped(self) -> Generator[None, None, None]:
        """Inside the block code may not run: a package needed only there is reported when it is reached."""
        before = dict(self.module.needs)
        with self.maybe_returns():
            yield
        self.module.needs.clear()
        self.module.needs.update(before)

    def logic(self, e: tree.Binary) -> Walk[HostValue]:
        yield self.condition(e.lhs)
        return (yield self.condition(e.rhs))

    def repeat(self, e: tree.While) -> Walk[None]:
        yield self.condition(e.condition)
        with self.maybe_returns():
            yield self.do_block(e.body)

    def go_through(self, e: tree.For, over: HostIterable, shown: bool) -> Walk[None]:
        with self.scope(e.span), self.maybe_returns():
            self.bind(e.pattern, HostValue(over.item, None), False, e.iterable.span)
            yield self.do_block(e.body)

    def gathered(self, e: tree.Loop, items: list[HostValue], over: HostIterable | None) -> HostValue:
        if not items:
            raise AlreadyReported  # the yielded value had an error
        type = common_item_type([erase_texts(item.type) for item in items], e.span)
        line, column = e.span.position
        length = over.length if over is not None and yields_every_step(e) else None
        self.module.loop_yield_types[e] = type
        if length is None:
            length = symbolic_dims.dim_name(f"steps of line {line}:{column}")
        return HostValue(collected_type(type, length, e.body.span), None)

    def asserted(self, e: tree.Assert) -> Walk[None]:
        yield self.condition(e.condition)
        if e.message is not None:
            yield self.value_of(e.message)

    # ---- Host functions

    def leave(self, stmt: tree.Return | tree.Break | tree.Continue, value: HostValue) -> None:
        if isinstance(stmt, tree.Return):
            self.frames[-1].returned.append(value)
            if not self.frames[-1].open_branches:
                raise BodyEnded

    def value_of(self, e: tree.Expr, expected: ExpectedType | None = None) -> Walk[HostValue]:
        try:
            value = yield super().value_of(e, expected)
        except DeferCheck:  # a text known only at run time decides: check both branches
            if not isinstance(e, (tree.If, tree.Match)):
                raise
            value = yield self.control(e, expected)
        if value is UNKNOWN_VALUE:
            raise AlreadyReported
        return value

    def enter(self, e: tree.Node, decl: tree.Fn, names: AnnotationResolver, values: list[HostValue]) -> Walk[HostValue]:
        """The result of a call; its body is checked once for each combination of argument types."""
        # A recursive call has no result yet: its body is being checked.
        if any(frame.decl is decl for frame in self.frames):
            return self.recursive(decl, names)
        types = [p.type for p in decl.params if p.type is not None and not is_dim(p.type)]
        free = {p.name for p in decl.params if is_dim(p.type)}.difference(*map(mentioned_names, types))
        inside = replace(names, bound={**names.bound, **{name: symbolic_dims.dim_name(name) for name in free}})
        sizes = [inside.bound.get(p.name) if is_dim(p.type) else None for p in decl.params]
        # Texts are erased, or each text argument would be checked separately.
        values = [
            HostValue(erase_texts(v.type), None, size if isinstance(size, (int, Poly)) else None)
            for v, size in zip(values, sizes, strict=True)
        ]
        key = (decl, tuple(v.type for v in values))
        if key not in self.call_results:
            # Set first, so that an error inside is not reported once per call.
            self.call_results[key] = UNKNOWN_VALUE
            self.call_results[key] = yield self.result(e, HostFrame(decl, inside), values)
        found = self.call_results[key]
        # The body does not depend on a number that is no size of an array; the type of the result may.
        if found is UNKNOWN_VALUE or decl.result is None or free.isdisjoint(mentioned_names(decl.result)):
            return found
        return self.declared_result(decl.result, names)

    def recursive(self, decl: tree.Fn, names: AnnotationResolver) -> HostValue:
        """The result of a recursive call: the declared type, else nothing."""
        if decl.result is None:
            self.assumed_unit.add(decl)
            return UNIT_VALUE
        return self.declared_result(decl.result, names)

    def declared_result(self, written: tree.TypeExpr, names: AnnotationResolver) -> HostValue:
        """A value of the type that a function declares for its result; a size that it names first stays open."""
        return HostValue(replace(names, bound=dict(names.bound), rigid=True).type(written), None)

    def result(self, e: tree.Node, frame: HostFrame, values: list[HostValue]) -> Walk[HostValue]:
        """The common type of all returns of a body. Errors: DL0304, DL0327."""
        assert frame.decl is not None
        decl = frame.decl
        try:
            value = yield self.body_value(e, frame, values)
            ended = False
        except BodyEnded:
            value, ended = UNKNOWN_VALUE, True
        stmts = decl.body.stmts if isinstance(decl.body, tree.Block) else (decl.body,)
        ended = ended or ends_in_jump(stmts)
        found = [*frame.returned, *([] if ended else [value])]
        # The error has been reported.
        if not found or any(v is UNKNOWN_VALUE for v in found):
            return UNKNOWN_VALUE
        end = body_value(decl.body).span
        if frame.expected_result is not None and not ended:
            frame.expected_result.match_value(value.type, self.current_context().annotations, end)
        type = erase_texts(found[0].type)
        for other in found[1:]:
            both = least_common_type(Unifier(), type, erase_texts(other.type))
            if both is None and decl.result is None:
                types = f"{show_type(type)} and {show_type(other.type)}"
                message = f"`{decl.name}` returns values of different types"
                raise make_error("DL0327", message, (end, types), (decl.name_span, "declared here"))
            type = both or type
        if decl in self.assumed_unit and type != UNIT:
            message = f"`{decl.name}` calls itself, but does not declare its result"
            way = f"declare it: `-> {show_type(type)}`"
            raise make_error("DL0304", message, (decl.name_span, ""), (end, f"it returns {show_type(type)}"), help=way)
        return HostValue(type, None)


def yields_every_step(loop: tree.Loop) -> bool:
    """Whether a loop yields exactly one value in every step."""
    yields = [s for s in loop.body.stmts if isinstance(s, tree.Yield)]
    rest = [s for s in loop.body.stmts if not isinstance(s, tree.Yield)]
    return len(yields) == 1 and not any(
        isinstance(n, (tree.Yield, tree.Break, tree.Continue)) for s in rest for n in all_nodes(s)
    )


OPEN_SIZES = "a file binds the sizes of its type that have no value yet: give them one before, `let n = …`"


def join_branches(branches: Sequence[tuple[tree.Node, HostValue]], message: str) -> HostValue:
    """The common value of several branches; nothing if one of them has none. Errors: DL0327."""
    if any(value.type == UNIT for _, value in branches):
        return UNIT_VALUE
    (first, value), *others = branches
    type = erase_texts(value.type)
    for branch, other in others:
        both = least_common_type(Unifier(), type, erase_texts(other.type))
        if both is None:
            here = (body_value(branch).span, f"this is {show_type(other.type)}")
            error = make_error("DL0327", message, here, (body_value(first).span, f"this is {show_type(type)}"))
            raise add_helps(error, [OPEN_SIZES, START_OR_LOAD] if any(reads_file(b) for b, _ in branches) else [])
        type = both
    return HostValue(type, None)


def reads_file(branch: tree.Node) -> bool:
    """Whether the value of a branch is read from a file."""
    value = body_value(branch)
    return isinstance(value, tree.Call) and isinstance(value.fn, tree.Name) and value.fn.id in READ_BUILTINS


def refuse_memory_attributes(decl: tree.Fn) -> None:
    """Errors: DL0219, DL0220 for memory attributes, which only a compiled function can have."""
    for attribute in decl.attributes:
        if attribute.name in ("checkpoint", "memory"):
            code = "DL0219" if attribute.name == "checkpoint" else "DL0220"
            message = f"`@{attribute.name}` applies to compiled functions, but a `host fn` is not compiled"
            raise make_error(
                code, message, (attribute.span, ""), help="put it before the function that is differentiated"
            )
