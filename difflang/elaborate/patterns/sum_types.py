"""Sum types: values whose enum variant, or whose function, only the run selects.

A value of a known variant is its fields alone. Joined with another variant it becomes a tag, its own fields, and zeros
for the fields of the other variants. `cond` selects whole values, so those zeros are never read.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from difflang.base.diagnostics import DifflangError, InternalError
from difflang.base.source import Span
from difflang.base.text_numbers import text_number
from difflang.elaborate.context import ElabContext
from difflang.elaborate.runtime_checks import emit_check
from difflang.elaborate.scope import LocalBinding
from difflang.elaborate.terms import (
    UNIT_TERM,
    Array,
    Closure,
    RecordTerm,
    SumTerm,
    Term,
    TextTerm,
    Tuple,
    UnsetTerm,
    VariantTerm,
    is_size_condition,
    record_of_fields,
    term_from_leaves,
    type_of,
    variant_of_fields,
)
from difflang.ir.builder import Builder
from difflang.ir.graph import Value
from difflang.ir.symbolic_dims import Dim, Poly
from difflang.ir.tensor_types import Tensor
from difflang.syntax import tree
from difflang.types.function_code import VariantCode
from difflang.types.join_types import (
    add_all_variants,
    is_assignable,
    join_options,
    least_common_type,
    same_option,
    sum_options,
)
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
from difflang.types.module_scope import ModuleScope
from difflang.types.type_errors import DeferCheck, make_error
from difflang.types.unify import Unifier, type_differences


def variant_constructor(decl: tree.Enum, index: int, module: ModuleScope) -> Term:
    """A variant by its name: a value, or a function of its fields if it has any."""
    if decl.variants[index].fields:
        return Closure(VariantCode(decl, index, module), ())
    unknown_args = (None,) * len(decl.generics)
    return VariantTerm(VariantType(decl, index, (), (), unknown_args, home=module.records.get), ())


def widen_to_type(builder: Builder, term: Term, type: LangType) -> Term:
    """The value as one of a type that has more options; see `least_common_type`."""
    match term, type:
        case UnsetTerm(), _:
            return zero_term(builder, type)
        case _, SumType():
            return inject_option(builder, term, type)
        case Tuple(), TupleType():
            return Tuple(widen_each(builder, term.items, type.items), type.closure)
        case RecordTerm(), RecordType():
            return record_of_fields(type, widen_each(builder, term.fields, type.fields))
        case VariantTerm(), VariantType():
            return variant_of_fields(type, widen_each(builder, term.fields, type.fields))
        case TextTerm(number=None), TextType(number=Tensor() as number):
            return TextTerm(None, (), builder.const(text_number(term.value or ""), number))
        case Closure(), ClosureType():
            return Closure(term.code, widen_each(builder, term.captures, type.captures))
        case _:
            return term


def widen_each(builder: Builder, terms: tuple[Term, ...], types: tuple[LangType, ...]) -> tuple[Term, ...]:
    return tuple([widen_to_type(builder, term, type) for term, type in zip(terms, types, strict=True)])


def inject_option(builder: Builder, term: Term, type: SumType) -> SumTerm:
    """Inject a value of one option, or of fewer options, into a sum type."""
    parts = term.parts if isinstance(term, SumTerm) else (term,)
    places = [option_index(builder, type, type_of(part)) for part in parts]
    # Two options joined into one would need a merge of their fields.
    if len(set(places)) < len(places):
        raise InternalError(f"two options of {type_of(term)} are one of {type}")
    held: list[Term] = []
    for i, option in enumerate(type.options):
        known = next((part for part, at in zip(parts, places, strict=True) if at == i), None)
        held.append(zero_term(builder, option) if known is None else widen_to_type(builder, known, option))
    if isinstance(term, SumTerm):
        return SumTerm(convert_tag(builder, term, type), tuple(held))
    return SumTerm(builder.const(type.tag_values[places[0]], type.tag), tuple(held))


def option_index(builder: Builder, type: SumType, option: LangType) -> int:
    """The index of an option in a sum type: the option whose join with it adds nothing."""
    if isinstance(option, VariantType):
        return type.tag_values.index(option.index)
    assert isinstance(builder.solver, Unifier)
    for i, other in enumerate(type.options):
        if join_options(builder.solver, other, option) == other:
            return i
    way = "keep a number or an enum in the items, and choose the function by `match`"
    message = "these arrays of functions cannot be one: each holds one function for all its items"
    raise make_error("DL0317", message, (builder.span, ""), help=way)


def convert_tag(builder: Builder, term: SumTerm, type: SumType) -> Value:
    """The tag renumbered for another sum type."""
    old = term.type
    return renumber_tag(
        builder,
        term.tag,
        [
            (m, type.tag_values[option_index(builder, type, o)])
            for m, o in zip(old.tag_values, old.options, strict=True)
        ],
    )


def renumber_tag(builder: Builder, tag: Value, moves: Sequence[tuple[int, int]]) -> Value:
    """A tag with its values replaced according to pairs of old and new value."""
    if all(m == n for m, n in moves):
        return tag
    assert isinstance(tag.type, Tensor)
    # A chain of selects: tags have few values.
    found = builder.const(moves[-1][1], tag.type)
    for before, after in moves[:-1]:
        here = builder.one("eq", builder.capture(tag), builder.const(before, tag.type))
        found = builder.one("select", here, builder.const(after, tag.type), found)
    return found


def zero_term(builder: Builder, type: LangType) -> Term:
    """Zeros for an option that the tag does not select."""
    return term_from_leaves(type, [builder.const(0, t) for t in leaf_types(type)])


# ---- Joining types of branches and loop variables


def join_types(cx: ElabContext, a: LangType, b: LangType, span: Span, what: str = "this") -> LangType:
    """The least common type of two. Errors: DL0327 where there is none."""
    found = least_common_type(cx.unifier, a, b)
    if found is None and is_assignable(cx.unifier, a, b):
        one, another = differing_texts(cx, a, b)
        raise runtime_choice_of_text((span, f"{what} is {one} on one path and {another} on another"))
    if found is None:
        refuse_undecided(cx, a, b)
        message = f"{what} is {show_type(a)} on one path and {show_type(b)} on another"
        raise make_error("DL0327", message, (span, "the paths join here"))
    return found


def may_replace(cx: ElabContext, old: LangType, new: LangType) -> bool:
    """Whether a new value may replace an old one. Errors: DeferCheck where only a call of the definition tells."""
    if is_assignable(cx.unifier, old, new):
        return True
    refuse_undecided(cx, old, new)
    return False


def refuse_undecided(cx: ElabContext, a: LangType, b: LangType) -> None:
    """Errors: DeferCheck for types that differ only in functions of which a definition knows just the type."""
    found = type_differences(cx.unifier, a, b) if cx.root.definition_only else []
    if found and all(are_function_types(m, n) for m, n in found):
        raise DeferCheck


def are_function_types(a: LangType, b: LangType) -> bool:
    """Whether two types are of functions, or of tangents of a record that holds functions."""
    match a, b:
        case RecordType(tangent=True), RecordType(tangent=True):
            return a.decl is b.decl and a.names != b.names
        case _:
            options = (*sum_options(a), *sum_options(b))
            return all(isinstance(o, (FnType, ClosureType)) for o in options)


def branches_have_value(
    cx: ElabContext, predicate: Value, then: Term, other: Term, ends: tuple[Span, Span], word: str
) -> bool:
    """Whether a branch has a value: both sides have one, of one type. Errors: DeferCheck, DL0327."""
    if then is UNIT_TERM or other is UNIT_TERM:
        return False
    a, b = type_of(then), type_of(other)
    if least_common_type(cx.unifier, a, b) is not None:
        return True
    # A condition on sizes selects one side per instance, so the types need not agree.
    if cx.root.definition_only and is_size_condition(predicate):
        raise DeferCheck
    refuse_undecided(cx, a, b)
    if is_assignable(cx.unifier, a, b):
        one, another = differing_texts(cx, a, b)
        raise runtime_choice_of_text((ends[0], f"{one} on this side"), (ends[1], f"{another} on this one"))
    message = (
        "the two sides of this `if` have different types" if word == "`if`" else "two branches have different types"
    )
    raise make_error(
        "DL0327", message, (ends[0], f"this gives {show_type(a)}"), (ends[1], f"this gives {show_type(b)}")
    )


def differing_texts(cx: ElabContext, a: LangType, b: LangType) -> list[str]:
    """The two texts in which types differ, as a program writes them."""
    pairs = [pair for pair in type_differences(cx.unifier, a, b) if all(isinstance(t, TextType) for t in pair)]
    return [quoted_text(t) for t in (pairs[0] if pairs else (TextType(), TextType())) if isinstance(t, TextType)]


def quoted_text(text: TextType) -> str:
    """A text in quotes, with `{…}` for its run-time parts."""
    said = text.value if not text.parts else "".join([p if isinstance(p, str) else "{…}" for p in text.parts])
    return "a `str`" if said is None else json.dumps(said, ensure_ascii=False)


def runtime_choice_of_text(*labels: tuple[Span, str]) -> DifflangError:
    """The report of a choice at run time where a text has run-time parts, so that it has no number."""
    message = "a condition of the run cannot choose a text with values of the run in it"
    way = "choose a text without them, and put them in where it is printed; an `if` of host code can choose any text"
    return make_error("DL0327", message, *labels, help=way)


# A loop variable may gain options this often before it counts as endless, such as a closure over itself.
MAX_WIDENINGS = 8


def widen_loop_variables(
    cx: ElabContext, variables: list[LocalBinding], after: Sequence[Term | Dim], rounds: int, span: Span
) -> bool:
    """Widen loop variables that gain options in the body, from the loop's start; True if any did.

    Errors: DL0507 if they gain options without end.
    """
    found = False
    for binding, term in zip(variables, after, strict=True):
        if isinstance(binding.term, (int, Poly)) or isinstance(term, (int, Poly)):
            continue
        before = type_of(binding.term)
        type = join_types(cx, before, type_of(term), span, f"`{binding.name}`")
        if type == before:
            continue
        if rounds == MAX_WIDENINGS:
            raise make_error(
                "DL0507",
                f"`{binding.name}` grows with every step of the loop",
                (span, f"its type is {show_type(type)} after the last step that was examined"),
                help="keep the changing numbers in variables, and create the function after the loop",
            )
        binding.term, found = widen_to_type(cx.builder, binding.term, add_all_variants(cx.unifier, type)), True
    return found


def keep_loop_type(builder: Builder, term: Term | Dim, before: Term | Dim) -> Term:
    """The value of a loop variable after a step, widened to its type before the loop."""
    assert not isinstance(term, (int, Poly)) and not isinstance(before, (int, Poly))
    return widen_to_type(builder, term, type_of(before))


# ---- Values with the same option


def check_same_option(cx: ElabContext, a: SumTerm, b: Term, span: Span, there: Value | None = None) -> None:
    """A run-time check that two values have one variant or function, unless proved; only where `there` is true."""
    if isinstance(b, SumTerm) and b.tag is a.tag:
        return
    options = b.parts if isinstance(b, SumTerm) else (b,)
    marks = [option_tag(cx, a.type, type_of(o)) for o in options]
    cx.builder.span = span
    if isinstance(b, SumTerm):
        tag = renumber_tag(cx.builder, b.tag, [*zip(b.type.tag_values, marks, strict=True)])
    else:
        tag = cx.emit("const", span, value=marks[0], type=a.type.tag)
    what, same = "variants" if a.type.variants else "functions", cx.emit("eq", span, a.tag, tag)
    if there is not None:
        same = cx.emit("logical_or", span, cx.emit("logical_not", span, there), same)
    if axes := tuple(range(len(a.type.tag.shape))):
        same = cx.emit("reduce_all", span, same, axes=axes)
    emit_check(cx, Array(same), f"these values have two different {what}", span)


def option_tag(cx: ElabContext, type: SumType, option: LangType) -> int:
    """The tag of an option in a type, or -1 if the type does not have it."""
    if isinstance(option, VariantType):
        return option.index
    pairs = zip(type.tag_values, type.options, strict=True)
    return next((mark for mark, other in pairs if same_option(cx.unifier, other, option)), -1)
