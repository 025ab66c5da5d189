"""Statements: blocks, `let` and `var`, assignments and in-place updates, nested functions."""

from __future__ import annotations

from difflang.base.diagnostics import DifflangError
from difflang.base.source import Span
from difflang.elaborate.arrays.indexed_assignment import SCATTERS, combined, written
from difflang.elaborate.arrays.indexing import Subscripts, read, subscripts
from difflang.elaborate.calls.apply import bind_pattern
from difflang.elaborate.calls.signatures import held_to
from difflang.elaborate.context import Context, Reported, walk, walks
from difflang.elaborate.expressions.operators import array, elementwise
from difflang.elaborate.expressions.primary_expressions import captured, types_around
from difflang.elaborate.patterns.enum_ascription import told
from difflang.elaborate.patterns.sum_type_arrays import is_array_of_sums, items, tags
from difflang.elaborate.patterns.sum_types import takes_place
from difflang.elaborate.reports.all_unknown_names import with_others
from difflang.elaborate.runtime_checks import check
from difflang.elaborate.scope import Binding
from difflang.elaborate.statements.decorators import obey
from difflang.elaborate.statements.desugar_jumps import Unset, loop_without_jumps, misplaced
from difflang.elaborate.statements.loop_writes import logged, note
from difflang.elaborate.statements.loops import loop_expression
from difflang.elaborate.statements.lvalues import Place, current, place
from difflang.elaborate.statements.printing import say
from difflang.elaborate.statements.yield_histories import Yielded, add
from difflang.elaborate.terms import (
    UNIT_TERM,
    Array,
    Closure,
    Never,
    Poison,
    Record,
    Term,
    Text,
    Tuple,
    rebuild,
    type_of,
)
from difflang.elaborate.trampoline import Walk
from difflang.ir.symbolic_dims import Poly
from difflang.ir.tensor_types import BOOL, Tensor
from difflang.syntax import tree
from difflang.syntax.tree_queries import bound_names, targets
from difflang.types.function_code import FnCode
from difflang.types.join_types import holds
from difflang.types.language_types import ClosureType, FnType, TextType, leaf_types, show_type
from difflang.types.module_name_errors import no_variable, not_variable
from difflang.types.type_errors import mistake, not_this_type, too_deep

NO_MESSAGE = "this assertion does not hold"
VALUELESS = (tree.Let, tree.Var, tree.Assign, tree.Update, tree.Save, tree.Assert, tree.Fn, tree.Yield)


@walks(tree.Block)
def block(cx: Context, e: tree.Block) -> Walk[Term]:
    """The statements in order; the value of the last one. A wrong statement is reported, and the rest goes on."""
    failed = False
    value: Term = UNIT_TERM
    with cx.block():
        for stmt in e.stmts:
            try:
                value = yield statement(cx, stmt, last=stmt is e.stmts[-1])
            except DifflangError as error:
                for each in with_others(cx, error, stmt):
                    cx.session.report(each)
                failed = True
                poison(cx, stmt)
            except RecursionError:
                cx.session.report(too_deep(stmt.span))
                failed = True
                poison(cx, stmt)
            except Reported:
                failed = True
                poison(cx, stmt)
    if failed:
        raise Reported
    return value


def poison(cx: Context, stmt: tree.Node) -> None:
    """Names that a wrong statement was to bind say nothing more."""
    if isinstance(stmt, (tree.Let, tree.Var)):
        for name in bound_names(stmt.pattern):
            cx.scope.bind(name, Poison(), mutable=True)
    if isinstance(stmt, tree.Fn):
        cx.scope.bind(stmt.name, Poison())
    if isinstance(stmt, (tree.Assign, tree.Update)):
        for name in targets(stmt.target):
            if cx.scope.find(name) is None:
                cx.scope.bind(name, Poison(), mutable=True)


def statement(cx: Context, stmt: tree.Node, *, last: bool) -> Walk[Term]:
    if isinstance(stmt, (tree.For, tree.While)):
        alone = loop_without_jumps(stmt)
        return (yield loop_expression(cx, stmt)) if alone is None else (yield walk(cx, alone))
    value = yield walk(cx, stmt)
    if (
        not last
        and not isinstance(stmt, (*VALUELESS, tree.Call, tree.Pipe, tree.If, tree.Block, tree.Match, tree.Checkpoint))
        and value is not UNIT_TERM
    ):
        raise cx.error("DL0323", "nothing uses this value", stmt.span, "", "bind it with `let`, or take it away")
    return UNIT_TERM if isinstance(stmt, VALUELESS) else value


# ---- let, var


@walks(tree.Let, tree.Var)
def let(cx: Context, e: tree.Let | tree.Var) -> Walk[Term]:
    if isinstance(e.value, (tree.For, tree.While)):
        value = yield loop_expression(cx, e.value)
    else:
        value = yield walk(cx, e.value)
    if isinstance(value, Tuple) and not value.items and isinstance(e.value, (tree.If, tree.Match)):
        raise no_value(e.value)
    if e.type is not None:
        value = yield declared(cx, e.type, value, e.value.span, "the value")
    mutable = isinstance(e, tree.Var)
    if mutable:
        value = forgetting(value)
    bind_pattern(cx, e.pattern, value, e.value.span, mutable=mutable)
    return UNIT_TERM


def no_value(e: tree.If | tree.Match) -> DifflangError:
    """A branch that nothing comes of, where a value is to be bound."""
    if isinstance(e, tree.Match):
        way = "give every case a value at its end"
        return mistake("DL0327", "this `match` has no value to bind", (e.subject.span, ""), help=way)
    way = "give it an `else`, and a value at the end of each side"
    return mistake("DL0327", "this `if` has no value to bind", (e.condition.span, ""), help=way)


def declared(cx: Context, written: tree.TypeExpr, value: Term, span: Span, what: str) -> Walk[Term]:
    """The value, of the type that is written; new sizes in it are bound."""
    from difflang.elaborate.derivatives import linear_functions

    if isinstance(value, Poison):
        raise Reported
    known = set(cx.annotations.bound)
    if not cx.annotations.match(written, type_of(value)):
        raise not_this_type(written, type_of(value), span, what)
    value = told(cx.annotations, written, value)
    for name, size in cx.annotations.bound.items():
        if name not in known and isinstance(size, (int, Poly)):
            cx.scope.bind(name, size)
    if isinstance(written, tree.TypeFn) and written.linear:
        value = held_to(written, value, span, cx.annotations, what)
        yield linear_functions.prove_given(cx, [value])
        return value
    return (
        Array(value.value, value.static, value.literal, value.below, written.span)
        if isinstance(value, Array)
        else value
    )


def forgetting(value: Term) -> Term:
    """What is known of a value before the run does not hold for a variable."""
    if isinstance(value, Array):
        return Array(value.value, origin=value.origin)
    if isinstance(value, Tuple):
        return Tuple(tuple(map(forgetting, value.items)), value.of)
    return value


# ---- Assignment


def write(cx: Context, at: Place, value: Term, span: Span) -> None:
    """Make a place stand for a new value: every value around it is new as well."""
    if isinstance(at.node, tree.Name):
        rebind(cx, at.node, value, span)
        return
    assert at.base is not None
    if at.subs is not None and (log := logged(cx, at.node)) is not None:
        note(cx, log, at.subs, value, span)
    elif at.subs is not None:
        write(cx, at.base, written(cx, at.subs, value, span), span)
    elif isinstance(at.node, tree.Member) and at.value is not None:
        old = current(cx, at.base)
        assert isinstance(old, Record)
        same_type(cx, at.value, value, span, f"the field `{at.node.name}`")
        write(cx, at.base, old.with_field(at.node.name, value), span)


@walks(tree.Assign)
def assign(cx: Context, e: tree.Assign) -> Walk[Term]:
    value = yield walk(cx, e.value)
    yield store(cx, e.target, value, e.value.span)
    return UNIT_TERM


def store(cx: Context, target: tree.Expr, value: Term, span: Span) -> Walk[None]:
    """Assign a value to a place, or a tuple's items to places."""
    if isinstance(value, Poison):
        raise Reported
    if isinstance(target, tree.Name):
        rebind(cx, target, value, span)
    elif isinstance(target, tree.TupleExpr):
        if not isinstance(value, Tuple) or len(value.items) != len(target.items):
            found = f"this is {show_type(type_of(value))}"
            raise cx.error("DL0321", f"a tuple of {len(target.items)} is expected here", span, found)
        for item, part in zip(target.items, value.items, strict=True):
            yield store(cx, item, part, span)
    else:
        write(cx, (yield place(cx, target)), value, span)


@walks(tree.Update)
def update(cx: Context, e: tree.Update) -> Walk[Term]:
    """`x += e`; on an indexed place an accumulation over positions, repeated ones too.

    As in an assignment `e` comes first: what it writes in a block stays written, and is what is added to.
    """
    value = yield walk(cx, e.value)
    at: Place = yield place(cx, e.target)
    spans = (e.target.span, e.value.span)
    if at.subs is not None and at.base is not None and (log := logged(cx, e.target)) is not None:
        note(cx, log, at.subs, negated(cx, e, value), e.value.span)
    elif at.subs is not None and at.base is not None and accumulates(e.op, at.subs):
        op = "+" if e.op == "-" else e.op
        write(cx, at.base, written(cx, at.subs, negated(cx, e, value), e.value.span, op), e.span)
    else:
        write(cx, at, combined(cx, e.op, current(cx, at), value, e.span, spans), e.span)
    return UNIT_TERM


def negated(cx: Context, e: tree.Update, value: Term) -> Term:
    """What is added in place of what is subtracted."""
    return elementwise(cx, "neg", e.span, (value,), (e.value.span,)) if e.op == "-" else value


def accumulates(op: str, subs: Subscripts) -> bool:
    """Whether an update is one write: a place that is named again counts each time, and a mask cannot be read."""
    if subs.mask is not None or op in ("+", "-"):
        return True
    return op in SCATTERS and any(p.where is not None for p in subs.parts)


def rebind(cx: Context, target: tree.Name, value: Term, span: Span) -> None:
    binding = cx.scope.find(target.id)
    if binding is None:
        raise assigned_unknown(cx, target)
    if isinstance(binding.term, Poison):
        raise Reported
    if not binding.mutable:
        labels = [(target.span, "assigned here")] + ([(binding.span, "bound here")] if binding.span else [])
        raise not_variable(target.id, labels)
    if not cx.scope.assignable(target.id):
        labels = [(target.span, "assigned here")] + ([(binding.span, "outside it")] if binding.span else [])
        message = f"a comprehension cannot assign `{target.id}`: its items have no order"
        raise mistake("DL0208", message, *labels, help="use a `for` loop")
    assert not isinstance(binding.term, (int, Poly))
    if isinstance(value, Array) and isinstance(binding.term, Array):
        value = widened(cx, value, binding.term, span)
    same_type(cx, binding.term, value, span, f"`{target.id}`", binding)
    binding.term = forgetting(value)


def assigned_unknown(cx: Context, target: tree.Name) -> DifflangError:
    if target.id in cx.module.host:
        return cx.error(
            "DL0208", f"a function cannot assign the top-level `{target.id}`", target.span, "", "return the new value"
        )
    known = [name for name in cx.scope.visible() if (found := cx.scope.find(name)) is not None and found.mutable]
    bodies = [fn.body for fn in cx.module.fns.values()]
    own = [
        s.target for body in bodies if isinstance(body, tree.Block) for s in body.stmts if isinstance(s, tree.Assign)
    ]
    return no_variable(cx.module, target.id, target.span, known, lasting=target in own)


def widened(cx: Context, value: Array, old: Array, span: Span) -> Array:
    """A variable keeps its place in the story of shapes."""
    return Array(value.value, value.static, value.literal, value.below, old.origin)


def same_type(cx: Context, old: Term, new: Term, span: Span, what: str, binding: Binding | None = None) -> None:
    """A place keeps its type; of an enum it may hold any variant, of functions one after another."""
    if not takes_place(cx, type_of(old), type_of(new)):
        labels = [(span, f"this is {show_type(type_of(new))}")]
        if binding is not None and binding.span is not None:
            labels.append((binding.span, f"{what} is {show_type(type_of(old))}"))
        raise mistake("DL0304", f"{what} is {show_type(type_of(old))} and keeps that type", *labels)


# ---- The rest


@walks(tree.Fn)
def nested_fn(cx: Context, e: tree.Fn) -> Walk[Term]:
    obey(cx, e.attributes, e.span)
    names, terms, known = captured(cx, e)
    mine = tuple((n, t) for n, t in zip(names, terms, strict=True) if n not in {p.name for p in e.params})
    code = FnCode(e, cx.module, tuple(n for n, _ in mine), known, types_around(cx, e))
    cx.scope.bind(e.name, Closure(code, tuple(t for _, t in mine)), span=e.name_span)
    return UNIT_TERM
    yield


@walks(tree.Return, tree.Break, tree.Continue)
def leave(cx: Context, e: tree.Return | tree.Break | tree.Continue) -> Walk[Term]:
    """Errors: DL0509 for a jump that is still there: see `jumps` for those that are not."""
    raise misplaced(e)
    yield


@walks(Unset)
def unset(cx: Context, e: Unset) -> Walk[Term]:
    """What a function's result is before a loop has set it. No one reads it."""
    if cx.root.result is None:
        return Never()
    type = cx.annotations.type(cx.root.result)
    if holds(type, (ClosureType, FnType, TextType)):
        return Never()
    return rebuild(
        type, [cx.emit("const", e.span, value=0.0 if t.dtype.differentiable else 0, type=t) for t in leaf_types(type)]
    )
    yield


@walks(tree.Yield)
def yield_(cx: Context, e: tree.Yield) -> Walk[Term]:
    add(cx, Yielded((yield walk(cx, e.value))), e.span)
    return UNIT_TERM


@walks(tree.Assert)
def assert_(cx: Context, e: tree.Assert) -> Walk[Term]:
    condition = yield walk(cx, e.condition)
    if isinstance(condition, Array) and condition.static is True:
        return UNIT_TERM
    if isinstance(condition, Array) and condition.static is False and not cx.root.definition:
        raise cx.error("DL0503", "this assertion does not hold", e.condition.span, "known before the program runs")
    condition = array(cx, condition, e.condition.span, "a condition")
    if not cx.unifier.same(condition.tensor, Tensor(BOOL)):
        found = f"this is {show_type(condition.tensor)}"
        raise cx.error("DL0313", "an assertion is a bool", e.condition.span, found, "reduce it with `all`")
    message = (yield walk(cx, e.message)) if e.message is not None else Text(NO_MESSAGE)
    if not isinstance(message, Text):
        found = f"this is {show_type(type_of(message))}"
        raise cx.error("DL0313", "the message of an assertion is a text", (e.message or e).span, found)
    failed = check(cx, condition, message.value or NO_MESSAGE, e.condition.span)
    if failed is not None and message.parts:
        bad, site = failed
        say(cx, bad, message, e.condition.span, site)
    return UNIT_TERM


@walks(tree.Index)
def index(cx: Context, e: tree.Index) -> Walk[Term]:
    base = yield walk(cx, e.base)
    if is_array_of_sums(base):
        return items(cx, base, (yield subscripts(cx, e, tags(base))))
    subs: Subscripts = yield subscripts(cx, e, base)
    return read(cx, subs)
