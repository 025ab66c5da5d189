"""Statements: blocks, `let` and `var`, assignments and updates, nested functions, `yield`, `assert`."""

from __future__ import annotations

from difflang.base.diagnostics import DifflangError
from difflang.base.source import Span
from difflang.elaborate.calls.lambdas import prove_linear_arguments
from difflang.elaborate.calls.signatures import constrain_function
from difflang.elaborate.context import AlreadyReported, ElabContext, elaborate, elaborates
from difflang.elaborate.effects import YieldItem
from difflang.elaborate.expressions.broadcasting import as_array
from difflang.elaborate.expressions.elementwise import elementwise
from difflang.elaborate.expressions.names import bind_pattern, closure_values, generic_bindings
from difflang.elaborate.mesh_axes import lay_out_declared
from difflang.elaborate.patterns.enum_ascription import ascribe_enum
from difflang.elaborate.patterns.sum_types import may_replace
from difflang.elaborate.reports.all_unknown_names import with_other_unknown_names
from difflang.elaborate.reports.size_claims import with_differing_sizes
from difflang.elaborate.runtime_checks import emit_check
from difflang.elaborate.scope import LocalBinding
from difflang.elaborate.statements.assignment_targets import (
    SCATTER_OPS,
    assign_elements,
    assign_indexed,
    combine_update,
    log_write,
)
from difflang.elaborate.statements.branches import record_yield
from difflang.elaborate.statements.decorators import apply_binding_decorators, apply_decorators
from difflang.elaborate.statements.desugar_jumps import UnsetResult, desugar_loop, misplaced_jump
from difflang.elaborate.statements.loops import loop_expression
from difflang.elaborate.statements.lvalues import Lvalue, elaborate_lvalue, lvalue_value
from difflang.elaborate.statements.printing import emit_print
from difflang.elaborate.statements.regions import drop_static
from difflang.elaborate.statements.write_logs import log_for_target
from difflang.elaborate.terms import (
    UNIT_TERM,
    Array,
    Closure,
    PoisonTerm,
    RecordTerm,
    Term,
    TextTerm,
    Tuple,
    UnsetTerm,
    term_from_leaves,
    type_of,
)
from difflang.elaborate.trampoline import Walk
from difflang.ir.symbolic_dims import Poly
from difflang.ir.tensor_types import BOOL, Tensor
from difflang.syntax import tree
from difflang.syntax.tree_queries import pattern_names, target_variables
from difflang.types.function_code import FnCode
from difflang.types.join_types import contains_kind
from difflang.types.language_types import ClosureType, FnType, TextType, leaf_types, show_type
from difflang.types.module_name_errors import immutable_name_error, unknown_variable_error
from difflang.types.type_errors import declared_type_error, make_error, nesting_error, resized_array_help

NO_MESSAGE = "this assertion does not hold"
VALUELESS = (tree.Let, tree.Var, tree.Assign, tree.Update, tree.Save, tree.Assert, tree.Fn, tree.Yield)


@elaborates(tree.Block)
def elaborate_block(cx: ElabContext, e: tree.Block) -> Walk[Term]:
    """The statements in order; the value of the last one. After an error the remaining statements are checked too."""
    failed = False
    value: Term = UNIT_TERM
    with cx.child_scope():
        for stmt in e.stmts:
            cx.unifier.differing = None
            try:
                value = yield elaborate_statement(cx, stmt, last=stmt is e.stmts[-1])
            except DifflangError as error:
                for each in with_other_unknown_names(cx, with_differing_sizes(cx.unifier, error), stmt):
                    cx.session.report(each)
                failed = True
                poison_names(cx, stmt)
            except RecursionError:
                cx.session.report(nesting_error(stmt.span))
                failed = True
                poison_names(cx, stmt)
            except AlreadyReported:
                failed = True
                poison_names(cx, stmt)
    if failed:
        raise AlreadyReported
    return value


def poison_names(cx: ElabContext, stmt: tree.Node) -> None:
    """Bind the names of a failed statement to poison, so that their uses are not reported."""
    if isinstance(stmt, (tree.Let, tree.Var)):
        for name in pattern_names(stmt.pattern):
            cx.scope.bind(name, PoisonTerm(), mutable=True)
    if isinstance(stmt, tree.Fn):
        cx.scope.bind(stmt.name, PoisonTerm())
    if isinstance(stmt, (tree.Assign, tree.Update)):
        for name in target_variables(stmt.target):
            if cx.scope.find(name) is None:
                cx.scope.bind(name, PoisonTerm(), mutable=True)


def elaborate_statement(cx: ElabContext, stmt: tree.Node, *, last: bool) -> Walk[Term]:
    if isinstance(stmt, tree.Loop):
        alone = desugar_loop(stmt)
        return (yield loop_expression(cx, stmt)) if alone is None else (yield elaborate(cx, alone))
    value = yield elaborate(cx, stmt)
    if (
        not last
        and not isinstance(stmt, (*VALUELESS, tree.Call, tree.Pipe, tree.If, tree.Block, tree.Match, tree.Checkpoint))
        and value is not UNIT_TERM
    ):
        raise cx.error("DL0323", "this value is not used", stmt.span, "", "bind it with `let`, or remove it")
    return UNIT_TERM if isinstance(stmt, VALUELESS) else value


# ---- let, var


@elaborates(tree.Let, tree.Var)
def let_statement(cx: ElabContext, e: tree.Let | tree.Var) -> Walk[Term]:
    apply_binding_decorators(cx, e)
    if isinstance(e.value, tree.Loop):
        value = yield loop_expression(cx, e.value)
    else:
        value = yield elaborate(cx, e.value)
    if isinstance(value, Tuple) and not value.items and isinstance(e.value, (tree.If, tree.Match)):
        raise branch_without_value_error(e.value)
    if e.type is not None:
        value = yield check_declared_type(cx, e.type, value, e.value.span, "the value")
    mutable = isinstance(e, tree.Var)
    if mutable:
        # A `var` may change in a loop or branch, so nothing static may be assumed of it.
        value = drop_static(value)
    bind_pattern(cx, e.pattern, value, e.value.span, mutable=mutable)
    return UNIT_TERM


def branch_without_value_error(e: tree.If | tree.Match) -> DifflangError:
    """The report of a branch without a value where one is bound."""
    if isinstance(e, tree.Match):
        way = "end every case with a value"
        return make_error("DL0327", "this `match` has no value to bind", (e.subject.span, ""), help=way)
    way = "add an `else`, and end each side with a value"
    return make_error("DL0327", "this `if` has no value to bind", (e.condition.span, ""), help=way)


def check_declared_type(cx: ElabContext, written: tree.TypeExpr, value: Term, span: Span, what: str) -> Walk[Term]:
    """The value, checked against a written type; binds new sizes in the type."""
    if isinstance(value, PoisonTerm):
        raise AlreadyReported
    known = set(cx.annotations.bound)
    if not cx.annotations.match(written, type_of(value)):
        raise declared_type_error(written, type_of(value), span, what)
    value = lay_out_declared(cx, written, ascribe_enum(cx.annotations, written, value))
    for name, size in cx.annotations.bound.items():
        if name not in known and isinstance(size, (int, Poly)):
            cx.scope.bind(name, size)
    if isinstance(written, tree.TypeFn):
        value = constrain_function(written, value, span, cx.annotations, what, what)
        yield prove_linear_arguments(cx, [value])
        return value
    if not isinstance(value, Array):
        return value
    facts = value.static, value.literal, value.upper_bound
    return Array(value.value, *facts, origin=written.span, lower_triangular=value.lower_triangular)


# ---- Assignment


def write_lvalue(cx: ElabContext, at: Lvalue, value: Term, span: Span) -> None:
    """Assign to an lvalue. Values are immutable, so every value around it is rebuilt too."""
    if isinstance(at.node, tree.Name):
        rebind_variable(cx, at.node, value, span)
        return
    assert at.base is not None
    if at.subs is not None and (log := log_for_target(cx, at.node)) is not None:
        log_write(cx, log, at.subs, value, span)
    elif at.subs is not None:
        if isinstance(at.node, tree.Member) and at.subs.mask is None:
            check_same_type(cx, lvalue_value(cx, at), value, span, f"the field `{at.node.name}`")
        write_lvalue(cx, at.base, assign_elements(cx, lvalue_value(cx, at.base), at.subs, value, span), span)
    elif isinstance(at.node, tree.Member) and at.value is not None:
        old = lvalue_value(cx, at.base)
        assert isinstance(old, RecordTerm)
        check_same_type(cx, at.value, value, span, f"the field `{at.node.name}`")
        write_lvalue(cx, at.base, old.with_field(at.node.name, value), span)


@elaborates(tree.Assign)
def assign_statement(cx: ElabContext, e: tree.Assign) -> Walk[Term]:
    value = yield elaborate(cx, e.value)
    yield assign_targets(cx, e.target, value, e.value.span)
    return UNIT_TERM


def assign_targets(cx: ElabContext, target: tree.Expr, value: Term, span: Span) -> Walk[None]:
    """Assign a value to a target, or a tuple's items to several targets."""
    if isinstance(value, PoisonTerm):
        raise AlreadyReported
    if isinstance(target, tree.Name):
        rebind_variable(cx, target, value, span)
    elif isinstance(target, tree.TupleExpr):
        if not isinstance(value, Tuple) or len(value.items) != len(target.items):
            found = f"this is {show_type(type_of(value))}"
            raise cx.error("DL0321", f"expected a tuple of {len(target.items)} here", span, found)
        for item, part in zip(target.items, value.items, strict=True):
            yield assign_targets(cx, item, part, span)
    else:
        write_lvalue(cx, (yield elaborate_lvalue(cx, target)), value, span)


@elaborates(tree.Update)
def update_statement(cx: ElabContext, e: tree.Update) -> Walk[Term]:
    """`x += e`. On an indexed target it accumulates over positions, repeated ones too."""
    # As in an assignment, `e` comes first: the update applies to the target as `e` leaves it.
    value = yield elaborate(cx, e.value)
    at: Lvalue = yield elaborate_lvalue(cx, e.target)
    spans = (e.target.span, e.value.span)
    if at.subs is not None and at.base is not None and (log := log_for_target(cx, e.target)) is not None:
        log_write(cx, log, at.subs, negate_update(cx, e, value), e.value.span)
    # One scatter-add is correct for repeated positions; read, add and write would lose all but one.
    elif at.subs is not None and at.base is not None and is_single_scatter(cx, e, at):
        op = "+" if e.op == "-" else e.op
        write_lvalue(cx, at.base, assign_indexed(cx, at.subs, negate_update(cx, e, value), e.value.span, op), e.span)
    else:
        write_lvalue(cx, at, combine_update(cx, e.op, lvalue_value(cx, at), value, e.span, spans), e.span)
    return UNIT_TERM


def negate_update(cx: ElabContext, e: tree.Update, value: Term) -> Term:
    """The value to add: negated for `-=`."""
    return elementwise(cx, "neg", e.span, (value,), (e.value.span,)) if e.op == "-" else value


def is_single_scatter(cx: ElabContext, e: tree.Update, at: Lvalue) -> bool:
    """Whether an update is one scatter: repeated positions each count, and a masked target cannot be read.

    Errors: DL0207 for repeated positions of an array of records.
    """
    assert at.subs is not None and at.base is not None
    several = any(p.where is not None for p in at.subs.parts)
    if not isinstance(lvalue_value(cx, at.base), Array):
        if several:
            way = "update a field of them, `ps.w[places] += e`, or one item at a time in a loop"
            raise cx.error("DL0207", f"`{e.op}=` updates one record or enum at a time", e.target.span, "", way)
        return False
    return at.subs.mask is not None or e.op in ("+", "-") or (e.op in SCATTER_OPS and several)


def rebind_variable(cx: ElabContext, target: tree.Name, value: Term, span: Span) -> None:
    binding = cx.scope.find(target.id)
    if binding is None:
        raise unknown_target_error(cx, target)
    if isinstance(binding.term, PoisonTerm):
        raise AlreadyReported
    if binding.is_captured:
        message = f"a lambda cannot assign to `{target.id}`, which stands outside it"
        raise cx.error("DL0208", message, target.span, "", "give back the new value, and assign it outside")
    if not binding.mutable:
        labels = [(target.span, "assigned here")] + ([(binding.span, "bound here")] if binding.span else [])
        raise immutable_name_error(target.id, labels, cx.scope.hidden_variable(target.id))
    # Items of a comprehension are computed in parallel.
    if not cx.scope.is_assignable(target.id):
        labels = [(target.span, "assigned here")] + ([(binding.span, "outside it")] if binding.span else [])
        message = f"a comprehension cannot assign to `{target.id}`: its items have no order"
        raise make_error("DL0208", message, *labels, help="use a `for` loop")
    assert not isinstance(binding.term, (int, Poly))
    if isinstance(value, Array) and isinstance(binding.term, Array):
        value = with_old_origin(cx, value, binding.term, span)
    check_same_type(cx, binding.term, value, span, f"`{target.id}`", binding)
    binding.term = drop_static(value)


def unknown_target_error(cx: ElabContext, target: tree.Name) -> DifflangError:
    if target.id in cx.module.host:
        what, way = "a function", "return the new value"
        if not cx.root.is_function:
            what, way = "an expression that is compiled as a whole", "give back the new value, and assign it outside"
        message = f"{what} cannot assign to the top-level variable `{target.id}`"
        return cx.error("DL0208", message, target.span, "", way)
    known = [name for name in cx.scope.visible_names() if (found := cx.scope.find(name)) is not None and found.mutable]
    bodies = [fn.body for fn in cx.module.fns.values()]
    own = [
        s.target for body in bodies if isinstance(body, tree.Block) for s in body.stmts if isinstance(s, tree.Assign)
    ]
    return unknown_variable_error(cx.module, target.id, target.span, known, top_level=target in own)


def with_old_origin(cx: ElabContext, value: Array, old: Array, span: Span) -> Array:
    """The new value with the origin of the variable's declared type."""
    return Array(value.value, value.static, value.literal, value.upper_bound, old.origin)


def check_same_type(
    cx: ElabContext, old: Term, new: Term, span: Span, what: str, binding: LocalBinding | None = None
) -> None:
    """Check that an lvalue keeps its type; an enum may change its variant, a function its code."""
    if not may_replace(cx, type_of(old), type_of(new)):
        labels, way = [(span, f"this is {show_type(type_of(new))}")], ""
        if binding is not None and binding.span is not None:
            labels.append((binding.span, f"{what} is {show_type(type_of(old))}"))
            way = resized_array_help(binding.span.text, type_of(old), type_of(new))
        raise make_error("DL0304", f"{what} is {show_type(type_of(old))} and keeps that type", *labels, help=way)


# ---- Functions, jumps, yield, assert


@elaborates(tree.Fn)
def nested_fn(cx: ElabContext, e: tree.Fn) -> Walk[Term]:
    apply_decorators(cx, e.attributes, e.span)
    names, terms, known = closure_values(cx, e)
    mine = tuple((n, t) for n, t in zip(names, terms, strict=True) if n not in {p.name for p in e.params})
    code = FnCode(e, cx.module, tuple(n for n, _ in mine), known, generic_bindings(cx, e))
    cx.scope.bind(e.name, Closure(code, tuple(t for _, t in mine)), span=e.name_span)
    return UNIT_TERM
    yield


@elaborates(tree.Return, tree.Break, tree.Continue)
def refuse_jump(cx: ElabContext, e: tree.Return | tree.Break | tree.Continue) -> Walk[Term]:
    """Errors: DL0509 for a jump that `desugar_jumps` did not remove."""
    raise misplaced_jump(e)
    yield


@elaborates(UnsetResult)
def unset_result(cx: ElabContext, e: UnsetResult) -> Walk[Term]:
    """The initial value of a function's result before a loop sets it. It is never read."""
    if cx.root.result is None:
        return UnsetTerm()
    type = cx.annotations.type(cx.root.result)
    if contains_kind(type, (ClosureType, FnType, TextType)):
        return UnsetTerm()
    return term_from_leaves(
        type, [cx.emit("const", e.span, value=0.0 if t.dtype.differentiable else 0, type=t) for t in leaf_types(type)]
    )
    yield


@elaborates(tree.Yield)
def yield_statement(cx: ElabContext, e: tree.Yield) -> Walk[Term]:
    record_yield(cx, YieldItem((yield elaborate(cx, e.value))), e.span)
    return UNIT_TERM


@elaborates(tree.Assert)
def assert_statement(cx: ElabContext, e: tree.Assert) -> Walk[Term]:
    condition = yield elaborate(cx, e.condition)
    if isinstance(condition, Array) and condition.static is True:
        return UNIT_TERM
    if isinstance(condition, Array) and condition.static is False and not cx.root.definition_only:
        raise cx.error("DL0503", "this assertion does not hold", e.condition.span, "known before the program runs")
    condition = as_array(cx, condition, e.condition.span, "a condition")
    if not cx.unifier.same(condition.tensor, Tensor(BOOL)):
        found = f"this is {show_type(condition.tensor)}"
        raise cx.error("DL0313", "an assertion must be a bool", e.condition.span, found, "reduce it with `all`")
    message = (yield elaborate(cx, e.message)) if e.message is not None else TextTerm(NO_MESSAGE)
    if not isinstance(message, TextTerm):
        found = f"this is {show_type(type_of(message))}"
        raise cx.error("DL0313", "the message of an assertion must be a text", (e.message or e).span, found)
    failed = emit_check(cx, condition, message.value or NO_MESSAGE, e.condition.span)
    if failed is not None and message.parts:
        bad, site = failed
        emit_print(cx, bad, message, e.condition.span, site)
    return UNIT_TERM
