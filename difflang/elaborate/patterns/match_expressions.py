"""`match` expressions: tests of the patterns, and a switch over the cases."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from difflang.base.source import Span
from difflang.base.text_numbers import text_number
from difflang.elaborate.context import AlreadyReported, ElabContext, elaborate, elaborates
from difflang.elaborate.expressions.elementwise import elementwise
from difflang.elaborate.statements.branches import MatchArm, binary_switch
from difflang.elaborate.statements.printing import static_text
from difflang.elaborate.statements.regions import assigned_variables
from difflang.elaborate.terms import Array, PoisonTerm, SumTerm, Term, TextTerm, Tuple, VariantTerm, type_of
from difflang.elaborate.trampoline import Walk
from difflang.ir.graph import Value
from difflang.syntax import tree
from difflang.types.dtype_variables import literal_dtype
from difflang.types.language_types import LangType, show_type
from difflang.types.match_patterns import (
    CheckedPattern,
    ConstructorPattern,
    ExhaustivenessChecker,
    IrrefutablePattern,
    PatternChecker,
)
from difflang.types.module_scope import ModuleScope
from difflang.types.type_errors import make_error
from difflang.types.unify import Unifier


@elaborates(tree.Match)
def match_expression(cx: ElabContext, e: tree.Match) -> Walk[Term]:
    subject = yield elaborate(cx, e.subject)
    if isinstance(subject, PoisonTerm):
        raise AlreadyReported
    if isinstance(subject, SumTerm) and subject.type.tag.shape:
        found, way = f"this is {show_type(type_of(subject))}", "go through it: `for s in shapes { match s { … } }`"
        raise cx.error("DL0353", "`match` takes one value, not an array", e.subject.span, found, way)
    # All patterns are checked, also those that a known variant makes unreachable.
    fits = read_cases(cx.unifier, cx.module, e, type_of(subject))
    tests: list[Value] = []
    arms: list[MatchArm] = []
    for fit, case in zip(fits, e.cases, strict=True):
        test = pattern_matches(cx, fit, subject, case.pattern.span)
        if test is False:
            cx.root.chosen = True
            continue
        arms.append(MatchArm(case_body(cx, fit, subject, case), case.body.span))
        if test is True:
            break
        tests.append(test)
    if len(arms) < len(fits):
        cx.root.chosen = True
    variables = assigned_variables(cx, *[case.body for case in e.cases])
    return (
        yield binary_switch(cx, arms, first_matching_test(cx, tests[: len(arms) - 1], e.span), variables, "`match`")
    )


def read_cases(unifier: Unifier, module: ModuleScope, e: tree.Match, type: LangType) -> list[CheckedPattern]:
    """The checked patterns of a match. Errors: DL035x where one does not fit, is missing, or is never reached."""
    patterns = PatternChecker(unifier, module)
    fits = [patterns.read(case.pattern, type) for case in e.cases]
    coverage = ExhaustivenessChecker(unifier, e.subject.span)
    heads: set[object] = set()
    for i, (fit, case) in enumerate(zip(fits, e.cases, strict=True)):
        # A constructor that no case before it begins with is reachable; so hundreds of variants take linear time.
        head = fit.key if isinstance(fit, ConstructorPattern) else None
        fresh = head is not None and heads.isdisjoint((head, None))
        heads.add(head)
        if not fresh and not coverage.is_useful([[f] for f in fits[:i]], [fit], [type]):
            same = next((c for f, c in zip(fits[:i], e.cases, strict=False) if f == fit), None)
            labels = [(case.pattern.span, "")] + ([(same.pattern.span, "the same value")] if same is not None else [])
            raise make_error(
                "DL0352", "this case is unreachable", *labels, help="the cases before it already match every such value"
            )
    missing = [witness for (witness,) in coverage.missing_cases([[f] for f in fits], [type])]
    if missing:
        raise missing_cases_error(e, missing)
    return fits


def missing_cases_error(e: tree.Match, missing: Sequence[str]) -> Exception:
    some = ", ".join(f"`{m}`" for m in missing[:4]) + (f" and {len(missing) - 4} more" if len(missing) > 4 else "")
    ways = " or ".join(f"`{m} => …`" for m in missing[:2]) if len(missing) <= 2 else f"`{missing[0]} => …`, …"
    one = missing == ["_"]
    message = "this `match` does not cover every value" if one else f"this `match` does not cover {some}"
    way = "add a case `_ => …`" if one else f"add {ways}, or `_ => …` for all other values"
    value = "a value that no case names" if one else "this value"
    return make_error("DL0350", message, (e.subject.span, f"`{e.subject.span.text}` may have {value}"), help=way)


def case_body(cx: ElabContext, fit: CheckedPattern, subject: Term, case: tree.Case) -> Callable[[], Walk[Term]]:
    """The elaboration of a case, with the names of its pattern bound."""

    def body() -> Walk[Term]:
        with cx.child_scope():
            bind_pattern(cx, fit, subject, case.pattern.span)
            return (yield elaborate(cx, case.body))

    return body


def first_matching_test(cx: ElabContext, tests: Sequence[Value], span: Span) -> Callable[[int], Value]:
    """The `is_before` of a switch: compares the index of the first test that holds; a lone test is used directly."""
    if len(tests) < 2:
        return lambda _: tests[0]
    index = cx.integer_array(len(tests), span).value
    for i in reversed(range(len(tests))):
        index = cx.emit("select", span, tests[i], cx.integer_array(i, span).value, index)
    return lambda place: cx.emit("lt", span, index, cx.integer_array(place, span).value)


# ---- Matching a value against a pattern


def pattern_matches(cx: ElabContext, fit: CheckedPattern, term: Term, span: Span) -> Value | bool:
    """The test whether a value fits: a Python bool if it is known at compile time, else a run-time value."""
    if isinstance(fit, IrrefutablePattern):
        return True
    kind, what = fit.key
    answers: list[Value | bool] = []
    match term:
        case VariantTerm(type=type):
            if what != type.index:
                return False
        case SumTerm(type=type):
            if what not in type.tag_values:
                return False
            assert isinstance(what, int)
            answers.append(cx.emit("eq", span, term.tag, cx.emit("const", span, value=what, type=type.tag)))
        case Array() | TextTerm() if kind == "literal":
            return equals_literal(cx, term, what, span)
        case _:
            pass
    parts = subpattern_terms(fit, term)
    answers += [pattern_matches(cx, item, part, span) for item, part in zip(fit.items, parts, strict=True)]
    if False in answers:
        return False
    values = [a for a in answers if isinstance(a, Value)]
    if not values:
        return True
    whole = values[0]
    for value in values[1:]:
        whole = cx.emit("logical_and", span, whole, value)
    return whole


def equals_literal(cx: ElabContext, term: Array | TextTerm, literal: object, span: Span) -> Value | bool:
    """The test whether a number, a bool or a text equals a literal."""
    if isinstance(term, TextTerm) and term.number is not None:
        number = cx.emit("const", span, value=text_number(str(literal)), type=term.number.type)
        return cx.emit("eq", span, term.number, number)
    if isinstance(term, TextTerm):
        return static_text(term, span, "a matched text") == literal
    if isinstance(literal, bool):
        if isinstance(term.static, bool):
            return term.static == literal
        return term.value if literal else cx.emit("logical_not", span, term.value)
    assert isinstance(literal, (int, float))
    number = cx.literal_array(literal, span, literal_dtype(literal, cx.module.default_float), literal)
    answer = elementwise(cx, "eq", span, (term, number))
    assert isinstance(answer, Array)
    return answer.static if isinstance(answer.static, bool) else answer.value


def subpattern_terms(fit: ConstructorPattern, term: Term) -> tuple[Term, ...]:
    """The parts of a value that a pattern's items match."""
    match term:
        case VariantTerm(fields=fields):
            return fields
        case SumTerm(parts=parts):
            part = parts[term.type.tag_values.index(fit.key[1])]
            assert isinstance(part, VariantTerm)
            return part.fields
        case Tuple(items=items):
            return items
        case _:
            return ()


def bind_pattern(cx: ElabContext, fit: CheckedPattern, term: Term, span: Span) -> None:
    """Bind the names of a pattern to the parts of a value that fits it."""
    if isinstance(fit, IrrefutablePattern):
        cx.scope.bind(fit.name, term, span=span)
        return
    for item, part in zip(fit.items, subpattern_terms(fit, term), strict=True):
        bind_pattern(cx, item, part, span)
