"""Values that the run chooses from several, made of one type: an enum of any variant, a function that is one of some.

A value of a known variant is its fields alone. Where it meets another one it becomes a tag, its own fields, and zeros
in the place of what the other variants hold; `cond` chooses between whole values, so no one ever reads those zeros.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from difflang.base.diagnostics import DifflangError, InternalError
from difflang.base.source import Span
from difflang.elaborate.context import Context
from difflang.elaborate.scope import Binding
from difflang.elaborate.terms import (
    UNIT_TERM,
    Closure,
    Never,
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
from difflang.ir.graph import Value
from difflang.ir.symbolic_dims import Dim, Poly
from difflang.ir.tensor_types import Tensor
from difflang.syntax import tree
from difflang.types.function_code import VariantCode
from difflang.types.join_types import alike, joint, kin, options_of, whole
from difflang.types.language_types import (
    ClosureType,
    FnType,
    LangType,
    RecordType,
    SumType,
    TextType,
    TupleType,
    VariantType,
    leaf_types,
    show_type,
)
from difflang.types.module_scope import Module
from difflang.types.type_errors import Undecided, mistake
from difflang.types.unify import Unifier, differences


def constructor(decl: tree.Enum, index: int, module: Module) -> Term:
    """A variant by its name: a value, or where it has fields a function of them."""
    if decl.variants[index].fields:
        return Closure(VariantCode(decl, index, module), ())
    nothing_told = (None,) * len(decl.generics)
    return Variant(VariantType(decl, index, (), (), nothing_told, home=module.records.get), ())


def held_as(builder: Builder, term: Term, type: LangType) -> Term:
    """The value, held as a value of a type that has more options; see `joint`."""
    match term, type:
        case Never(), _:
            return nothing(builder, type)
        case _, SumType():
            return among(builder, term, type)
        case Tuple(), TupleType():
            return Tuple(each(builder, term.items, type.items), type.of)
        case Record(), RecordType():
            return rebuilt_record(type, each(builder, term.fields, type.fields))
        case Variant(), VariantType():
            return rebuilt_variant(type, each(builder, term.fields, type.fields))
        case Closure(), ClosureType():
            return Closure(term.code, each(builder, term.captures, type.captures))
        case _:
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
        if alike(builder.solver, other, option) == other:
            return i
    raise InternalError(f"{option} is not {type}")


def marked(builder: Builder, term: Sum, type: SumType) -> Value:
    """The tag as the other type counts."""
    old = term.type
    return recounted(
        builder,
        term.tag,
        [(m, type.marks[place(builder, type, o)]) for m, o in zip(old.marks, old.options, strict=True)],
    )


def recounted(builder: Builder, tag: Value, moves: Sequence[tuple[int, int]]) -> Value:
    """A tag with other numbers in the place of those that it can be."""
    if all(m == n for m, n in moves):
        return tag
    assert isinstance(tag.type, Tensor)
    found = builder.const(moves[-1][1], tag.type)
    for before, after in moves[:-1]:
        here = builder.one("eq", builder.own(tag), builder.const(before, tag.type))
        found = builder.one("select", here, builder.const(after, tag.type), found)
    return found


def nothing(builder: Builder, type: LangType) -> Term:
    """What stands in the place of an option that a value is not."""
    return rebuild(type, [builder.const(0, t) for t in leaf_types(type)])


# ---- Where values of several types meet


def meeting(cx: Context, a: LangType, b: LangType, span: Span, what: str = "this") -> LangType:
    """The type that both are held as. Errors: DL0327 where there is none."""
    found = joint(cx.unifier, a, b)
    if found is None and kin(cx.unifier, a, b):
        one, another = texts_of(cx, a, b)
        raise chosen_text((span, f"{what} is {one} on one way here and {another} on another"))
    if found is None:
        to_be_told(cx, a, b)
        message = f"{what} is {show_type(a)} on one way here and {show_type(b)} on another"
        raise mistake("DL0327", message, (span, "the ways meet here"))
    return found


def takes_place(cx: Context, old: LangType, new: LangType) -> bool:
    """Whether a value may stand where another one stood. Errors: Undecided where only a use of the definition tells."""
    if kin(cx.unifier, old, new):
        return True
    to_be_told(cx, old, new)
    return False


def to_be_told(cx: Context, a: LangType, b: LangType) -> None:
    """Errors: Undecided for types that differ in nothing but functions of which a definition knows only the type."""
    found = differences(cx.unifier, a, b) if cx.root.definition else []
    if found and all(functions(m, n) for m, n in found):
        raise Undecided


def functions(a: LangType, b: LangType) -> bool:
    """Whether two types are of functions, or of changes of a record that holds some."""
    match a, b:
        case RecordType(tangent=True), RecordType(tangent=True):
            return a.decl is b.decl and a.names != b.names
        case _:
            options = (*options_of(a), *options_of(b))
            return all(isinstance(o, (FnType, ClosureType)) for o in options)


def agree(cx: Context, predicate: Value, then: Term, other: Term, ends: tuple[Span, Span], word: str) -> bool:
    """Whether a branch has a value: both sides give one, of one type. Errors: Undecided where a use takes one side."""
    if then is UNIT_TERM or other is UNIT_TERM:
        return False
    a, b = type_of(then), type_of(other)
    if joint(cx.unifier, a, b) is not None:
        return True
    if cx.root.definition and made_of_sizes(predicate):
        raise Undecided
    to_be_told(cx, a, b)
    if kin(cx.unifier, a, b):
        one, another = texts_of(cx, a, b)
        raise chosen_text((ends[0], f"{one} on this side"), (ends[1], f"{another} on this one"))
    message = (
        "the two sides of this `if` give different types" if word == "`if`" else "two choices give different types"
    )
    raise mistake(
        "DL0327",
        message,
        (ends[0], f"this gives {show_type(a)}"),
        (ends[1], f"this gives {show_type(b)}"),
    )


def texts_of(cx: Context, a: LangType, b: LangType) -> list[str]:
    """The texts that two types differ in, as a program writes them."""
    pairs = [pair for pair in differences(cx.unifier, a, b) if all(isinstance(t, TextType) for t in pair)]
    return [as_written(t) for t in (pairs[0] if pairs else (TextType(), TextType())) if isinstance(t, TextType)]


def as_written(text: TextType) -> str:
    """A text in quotes, with dots in the place of what the run fills in."""
    said = text.value if not text.parts else "".join([p if isinstance(p, str) else "{…}" for p in text.parts])
    return "a `str`" if said is None else json.dumps(said, ensure_ascii=False)


def chosen_text(*labels: tuple[Span, str]) -> DifflangError:
    """A text is a part of the type of what holds it: everything about it is known before the run."""
    way = "choose it on the host, or let a variant of an enum stand for it, and write the text where it is printed"
    return mistake("DL0327", "a `str` is known before the run, which cannot choose one", *labels, help=way)


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
