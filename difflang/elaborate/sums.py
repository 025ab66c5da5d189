"""Values that the run chooses from several, made of one type: an enum of any variant, a function that is one of some.

A value of a known variant is its fields alone. Where it meets another one it becomes a tag, its own fields, and zeros
in the place of what the other variants hold; `cond` chooses between whole values, so no one ever reads those zeros.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from difflang.base.diagnostics import DifflangError, InternalError
from difflang.base.source import Span
from difflang.check.closures import VariantCode
from difflang.check.modules import Module
from difflang.check.reports import Undecided, mistake
from difflang.check.sums import alike, joint, kin, told_by, unknown, whole
from difflang.check.types import (
    ClosureType,
    FnType,
    LangType,
    RecordType,
    SumType,
    TupleType,
    VariantType,
    leaf_types,
    show_type,
)
from difflang.check.unify import Unifier, differences
from difflang.elaborate.context import Binding, Context
from difflang.elaborate.terms import (
    UNIT_TERM,
    Closure,
    Record,
    Sum,
    Term,
    Tuple,
    Variant,
    made_of_sizes,
    rebuild,
    rebuilt_record,
    rebuilt_variant,
    type_of,
)
from difflang.ir.builder import Builder
from difflang.ir.dims import Dim, Poly
from difflang.ir.graph import Value
from difflang.syntax import tree


def constructor(decl: tree.Enum, index: int, module: Module) -> Term:
    """A variant by its name: a value, or where it has fields a function of them."""
    if decl.variants[index].fields:
        return Closure(VariantCode(decl, index, module), ())
    nothing_told = (None,) * len(decl.generics)
    return Variant(VariantType(decl, index, (), (), nothing_told, home=module.records.get), ())


def held_as(builder: Builder, term: Term, type: LangType) -> Term:
    """The value, held as a value of a type that has more options; see `joint`."""
    match term, type:
        case Sum(), SumType() if isinstance(type.options[0], TupleType):
            return Sum(term.tag, each(builder, term.parts, type.options))
        case _, SumType():
            return among(builder, term, type)
        case Tuple(), TupleType():
            return Tuple(each(builder, term.items, type.items))
        case Record(), RecordType():
            return rebuilt_record(type, each(builder, term.fields, type.fields))
        case Variant(), VariantType():
            return rebuilt_variant(type, each(builder, term.fields, type.fields))
        case Closure(), ClosureType():
            return Closure(term.code, each(builder, term.captures, type.captures))
        case _:
            return term


def as_written(cx: Context, written: tree.TypeExpr, term: Term) -> Term:
    """A value that fits a written type, and that holds too little to tell all of it: `None` as a `Maybe[3]`."""
    type = type_of(term)
    if not unknown(type):
        return term
    try:
        return held_as(cx.builder, term, told_by(type, replace(cx.annotations, rigid=False).type(written)))
    except (DifflangError, Undecided):  # the written type leaves it open too
        return term


def each(builder: Builder, terms: tuple[Term, ...], types: tuple[LangType, ...]) -> tuple[Term, ...]:
    return tuple([held_as(builder, term, type) for term, type in zip(terms, types, strict=True)])


def among(builder: Builder, term: Term, type: SumType) -> Sum:
    """One of several, from one that is known or from fewer."""
    parts = term.parts if isinstance(term, Sum) else (term,)
    places = [place(builder, type, type_of(part)) for part in parts]
    if len(set(places)) < len(places):
        raise InternalError(f"two options of {type_of(term)} are one of {type}")
    held: list[Term] = []
    for i, option in enumerate(type.options):
        known = next((part for part, at in zip(parts, places, strict=True) if at == i), None)
        held.append(nothing(builder, option) if known is None else held_as(builder, known, option))
    if isinstance(term, Sum):
        return Sum(marked(builder, term, type), tuple(held))
    return Sum(builder.const(type.marks[places[0]], type.tag), tuple(held))


def place(builder: Builder, type: SumType, option: LangType) -> int:
    """Which of the options a value of one of them is: the one that it adds nothing to."""
    if isinstance(option, VariantType):
        return type.marks.index(option.index)
    assert isinstance(builder.solver, Unifier)
    for i, other in enumerate(type.options):
        if isinstance(option, ClosureType) and alike(builder.solver, other, option) == other:
            return i
    raise InternalError(f"{option} is not {type}")


def marked(builder: Builder, term: Sum, type: SumType) -> Value:
    """The tag as the other type counts."""
    old = term.type
    moves = [(m, type.marks[place(builder, type, o)]) for m, o in zip(old.marks, old.options, strict=True)]
    tag = term.tag
    if all(m == n for m, n in moves):
        return tag
    found = builder.const(moves[-1][1], type.tag)
    for before, after in moves[:-1]:
        here = builder.one("eq", builder.own(term.tag), builder.const(before, type.tag))
        found = builder.one("select", here, builder.const(after, type.tag), found)
    return found


def nothing(builder: Builder, type: LangType) -> Term:
    """What stands in the place of an option that a value is not."""
    return rebuild(type, [builder.const(0, t) for t in leaf_types(type)])


# ---- Where values of several types meet


def meeting(cx: Context, a: LangType, b: LangType, span: Span, what: str = "this") -> LangType:
    """The type that both are held as. Errors: DL0327 where there is none."""
    found = joint(cx.unifier, a, b)
    if found is None and kin(cx.unifier, a, b):
        raise cx.not_yet("a string chosen at run time is", span, "choose on the host")
    if found is None:
        message = f"{what} is {show_type(a)} on one way here and {show_type(b)} on another"
        raise mistake("DL0327", message, (span, "the ways meet here"))
    return found


def agree(cx: Context, predicate: Value, then: Term, other: Term, ends: tuple[Span, Span], word: str) -> bool:
    """Whether a branch has a value: both sides give one, of one type. Errors: Undecided where a use takes one side."""
    if then is UNIT_TERM or other is UNIT_TERM:
        return False
    a, b = type_of(then), type_of(other)
    if joint(cx.unifier, a, b) is not None:
        return True
    found = differences(cx.unifier, a, b)
    if cx.root.definition and (made_of_sizes(predicate) or any(FnType in map(type, pair) for pair in found)):
        raise Undecided
    if kin(cx.unifier, a, b):
        raise cx.not_yet("a string chosen at run time is", ends[0], "choose on the host")
    message = (
        "the two sides of this `if` give different types" if word == "`if`" else "two choices give different types"
    )
    raise mistake(
        "DL0327",
        message,
        (ends[0], f"this gives {show_type(a)}"),
        (ends[1], f"this gives {show_type(b)}"),
    )


MOST_ROUNDS = 8


def grown(cx: Context, variables: list[Binding], after: Sequence[Term | Dim], rounds: int, span: Span) -> bool:
    """Whether some variables of a loop become one of more options in its body: they are held as that from its start.

    Errors: DL0507 where the options never end.
    """
    found = False
    for binding, term in zip(variables, after, strict=True):
        if isinstance(binding.term, (int, Poly)) or isinstance(term, (int, Poly)):
            continue
        before = type_of(binding.term)
        type = meeting(cx, before, type_of(term), span, f"`{binding.name}`")
        if type == before:
            continue
        if rounds == MOST_ROUNDS:
            raise mistake(
                "DL0507",
                f"`{binding.name}` grows with every step of the loop",
                (span, f"it is {show_type(type)} by the last step looked at"),
                help="keep the numbers that change in variables, and make the function of them after the loop",
            )
        binding.term, found = held_as(cx.builder, binding.term, whole(cx.unifier, type)), True
    return found


def stays(builder: Builder, term: Term | Dim, before: Term | Dim) -> Term:
    """What a variable of a loop is after a step, held as it was before."""
    assert not isinstance(term, (int, Poly)) and not isinstance(before, (int, Poly))
    return held_as(builder, term, type_of(before))
