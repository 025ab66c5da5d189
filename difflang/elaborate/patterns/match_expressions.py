"""`match`: which case a value is of, and a branch to it; the same for whatever a tag chooses from."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

from difflang.base.source import Span
from difflang.elaborate.context import Context, Reported, walk, walks
from difflang.elaborate.expressions.operators import elementwise
from difflang.elaborate.scope import Binding
from difflang.elaborate.statements.branches import branch, carried, decided
from difflang.elaborate.statements.printing import known_text
from difflang.elaborate.terms import Array, Poison, Sum, Term, Text, Tuple, Variant, type_of
from difflang.elaborate.trampoline import Walk
from difflang.ir.graph import Value
from difflang.ir.tensor_types import I32, Tensor
from difflang.syntax import tree
from difflang.types.dtype_variables import literal_dtype
from difflang.types.language_types import LangType, show_type
from difflang.types.match_patterns import Anything, Begins, Coverage, Fit, Patterns
from difflang.types.module_scope import Module
from difflang.types.type_errors import mistake
from difflang.types.unify import Unifier


class Arm(Struct, frozen=True):
    """One of several pieces of a program, of which one is run."""

    body: Callable[[], Walk[Term]]
    span: Span


def switch(
    cx: Context, arms: Sequence[Arm], below: Callable[[int], Value], variables: list[Binding], word: str, first: int = 0
) -> Walk[Term]:
    """The arm that is taken, found by halves: `below(i)` says whether it stands before arm `i`."""
    if len(arms) == 1:
        return (yield arms[0].body())
    middle = len(arms) // 2
    mine, yours = arms[:middle], arms[middle:]
    predicate = Array(below(first + middle))
    then = yield branch(cx, lambda: switch(cx, mine, below, variables, word, first), variables, mine[0].span)
    last = first + middle
    other = yield branch(cx, lambda: switch(cx, yours, below, variables, word, last), variables, yours[0].span)
    span = arms[0].span.to(arms[-1].span) if arms[0].span.source is arms[-1].span.source else arms[0].span
    return decided(cx, predicate, then, other, variables, span, (mine[-1].span, yours[0].span), word)


def by_tag(
    cx: Context, tag: Value, marks: Sequence[int], arms: Sequence[Arm], variables: list[Binding], word: str
) -> Walk[Term]:
    """The arm that a tag says; `marks` rise."""

    def below(place: int) -> Value:
        span = arms[0].span
        return cx.emit("lt", span, tag, cx.emit("const", span, value=marks[place], type=Tensor(I32)))

    return switch(cx, arms, below, variables, word)


# ---- match


@walks(tree.Match)
def match_(cx: Context, e: tree.Match) -> Walk[Term]:
    subject = yield walk(cx, e.subject)
    if isinstance(subject, Poison):
        raise Reported
    if isinstance(subject, Sum) and subject.type.tag.shape:
        found, way = f"this is {show_type(type_of(subject))}", "go through it: `for s in shapes { match s { … } }`"
        raise cx.error("DL0353", "one value is matched, not an array of them", e.subject.span, found, way)
    fits = rows(cx.unifier, cx.module, e, type_of(subject))
    tests: list[Value] = []
    arms: list[Arm] = []
    for fit, case in zip(fits, e.cases, strict=True):
        test = holds(cx, fit, subject, case.pattern.span)
        if test is False:
            cx.root.chosen = True
            continue
        arms.append(Arm(body_of(cx, fit, subject, case), case.body.span))
        if test is True:
            break
        tests.append(test)
    if len(arms) < len(fits):
        cx.root.chosen = True
    variables = carried(cx, *[case.body for case in e.cases])
    return (yield switch(cx, arms, numbered(cx, tests[: len(arms) - 1], e.span), variables, "`match`"))


def rows(unifier: Unifier, module: Module, e: tree.Match, type: LangType) -> list[Fit]:
    """The patterns of a match, read. Errors: DL035x where one does not fit, is missing, or is never reached."""
    patterns = Patterns(unifier, module)
    fits = [patterns.read(case.pattern, type) for case in e.cases]
    coverage = Coverage(unifier, e.subject.span)
    for i, (fit, case) in enumerate(zip(fits, e.cases, strict=True)):
        if not coverage.useful([[f] for f in fits[:i]], [fit], [type]):
            same = next((c for f, c in zip(fits[:i], e.cases, strict=False) if f == fit), None)
            labels = [(case.pattern.span, "")] + ([(same.pattern.span, "the same here")] if same is not None else [])
            raise mistake("DL0352", "no value gets to this case", *labels, help="the cases before it take them all")
    missing = [witness for (witness,) in coverage.missing([[f] for f in fits], [type])]
    if missing:
        raise left_out(e, missing)
    return fits


def left_out(e: tree.Match, missing: Sequence[str]) -> Exception:
    some = ", ".join(f"`{m}`" for m in missing[:4]) + (f" and {len(missing) - 4} more" if len(missing) > 4 else "")
    ways = " or ".join(f"`{m} => …`" for m in missing[:2]) if len(missing) <= 2 else f"`{missing[0]} => …`, …"
    one = missing == ["_"]
    message = "this `match` does not take every value" if one else f"this `match` leaves out {some}"
    way = "add a case `_ => …`" if one else f"add {ways}, or `_ => …` for all the rest"
    return mistake("DL0350", message, (e.subject.span, f"`{e.subject.span.text}` may be that"), help=way)


def body_of(cx: Context, fit: Fit, subject: Term, case: tree.Case) -> Callable[[], Walk[Term]]:
    """The walk of a case, the names of its pattern bound."""

    def body() -> Walk[Term]:
        with cx.block():
            bind(cx, fit, subject, case.pattern.span)
            return (yield walk(cx, case.body))

    return body


def numbered(cx: Context, tests: Sequence[Value], span: Span) -> Callable[[int], Value]:
    """The first test that holds, as a number, compared; the only test itself."""
    if len(tests) < 2:
        return lambda _: tests[0]
    index = cx.integer(len(tests), span).value
    for i in reversed(range(len(tests))):
        index = cx.emit("select", span, tests[i], cx.integer(i, span).value, index)
    return lambda place: cx.emit("lt", span, index, cx.integer(place, span).value)


# ---- A value against a pattern


def holds(cx: Context, fit: Fit, term: Term, span: Span) -> Value | bool:
    """Whether a value fits, where it is known before the run as a Python truth value."""
    if isinstance(fit, Anything):
        return True
    kind, what = fit.key
    answers: list[Value | bool] = []
    match term:
        case Variant(type=type):
            if what != type.index:
                return False
        case Sum(type=type):
            if what not in type.marks:
                return False
            assert isinstance(what, int)
            answers.append(cx.emit("eq", span, term.tag, cx.emit("const", span, value=what, type=type.tag)))
        case Array() | Text() if kind == "literal":
            return equal(cx, term, what, span)
        case _:
            pass
    parts = parts_of(fit, term)
    answers += [holds(cx, item, part, span) for item, part in zip(fit.items, parts, strict=True)]
    if False in answers:
        return False
    values = [a for a in answers if isinstance(a, Value)]
    if not values:
        return True
    whole = values[0]
    for value in values[1:]:
        whole = cx.emit("logical_and", span, whole, value)
    return whole


def equal(cx: Context, term: Array | Text, literal: object, span: Span) -> Value | bool:
    """Whether a number, a truth value or a text is the one that is written."""
    if isinstance(term, Text):
        return known_text(term, span, "a text that is matched") == literal
    if isinstance(literal, bool):
        if isinstance(term.static, bool):
            return term.static == literal
        return term.value if literal else cx.emit("logical_not", span, term.value)
    assert isinstance(literal, (int, float))
    number = cx.literal(literal, span, literal_dtype(literal, cx.module.default_float), literal)
    answer = elementwise(cx, "eq", span, (term, number))
    assert isinstance(answer, Array)
    return answer.static if isinstance(answer.static, bool) else answer.value


def parts_of(fit: Begins, term: Term) -> tuple[Term, ...]:
    """What a pattern's parts are held against."""
    match term:
        case Variant(fields=fields):
            return fields
        case Sum(parts=parts):
            part = parts[term.type.marks.index(fit.key[1])]
            assert isinstance(part, Variant)
            return part.fields
        case Tuple(items=items):
            return items
        case _:
            return ()


def bind(cx: Context, fit: Fit, term: Term, span: Span) -> None:
    """Bind the names of a pattern to the parts of a value that fits it."""
    if isinstance(fit, Anything):
        cx.scope.bind(fit.name, term, span=span)
        return
    for item, part in zip(fit.items, parts_of(fit, term), strict=True):
        bind(cx, item, part, span)
