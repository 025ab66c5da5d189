"""Constructor calls of records and enum variants: checks each field against its declared type."""

from __future__ import annotations

from msgspec.structs import replace

from difflang.base.diagnostics import DifflangError
from difflang.base.source import Span
from difflang.elaborate.calls.application import applies
from difflang.elaborate.calls.call_args import CallArgs
from difflang.elaborate.calls.lambdas import prove_linear_arguments
from difflang.elaborate.calls.signatures import constrain_function, match_arguments
from difflang.elaborate.context import ElabContext
from difflang.elaborate.patterns.enum_ascription import ascribe_enum
from difflang.elaborate.terms import RecordTerm, Term, Tuple, VariantTerm, leaves, type_of
from difflang.elaborate.trampoline import Walk
from difflang.syntax import tree
from difflang.types.annotations import AnnotationResolver
from difflang.types.function_code import RecordCode, VariantCode
from difflang.types.language_types import LangType, RecordType, VariantType
from difflang.types.type_errors import MAX_LEAVES, declared_type_error, leaf_limit_error


@applies(RecordCode)
def construct_record(cx: ElabContext, code: RecordCode, captures: tuple[Term, ...], args: CallArgs) -> Walk[Term]:
    """`P(x = 1.0, tag = "a")`: every field by name, or all by position in their order."""
    decl, home = code.decl, code.module.records.get
    annotations = AnnotationResolver(cx.unifier, home, {}, {g.name: g.bound for g in decl.generics})
    fields = yield check_fields(cx, args, decl.name, decl.name_span, decl.fields, annotations)
    names, types = tuple(f.name for f in decl.fields), tuple(map(type_of, fields))
    type = RecordType(decl, names, types, tuple(annotations.bound.get(g.name) for g in decl.generics))
    return check_part_count(RecordTerm(type, fields), args.span)


def check_part_count(whole: Tuple | RecordTerm, span: Span) -> Tuple | RecordTerm:
    """Check the size of a nested value. Errors: DL1008 for one of too many arrays."""
    inside = whole.items if isinstance(whole, Tuple) else whole.fields
    if any(isinstance(part, (Tuple, RecordTerm)) for part in inside) and len(leaves(whole)) > MAX_LEAVES:
        raise leaf_limit_error(span)
    return whole


@applies(VariantCode)
def construct_variant(cx: ElabContext, code: VariantCode, captures: tuple[Term, ...], args: CallArgs) -> Walk[Term]:
    """`Circle(r = 1.0)`, by the rules of `construct_record`."""
    decl, variant, home = code.decl, code.decl.variants[code.index], code.module.records.get
    annotations = AnnotationResolver(cx.unifier, home, {}, {g.name: g.bound for g in decl.generics})
    fields = yield check_fields(cx, args, variant.name, variant.span, variant.fields, annotations)
    names, types = tuple(f.name for f in variant.fields), tuple(map(type_of, fields))
    order = tuple(annotations.bound.get(g.name) for g in decl.generics)
    return VariantTerm(VariantType(decl, code.index, names, types, order, home=home), fields)


def check_fields(
    cx: ElabContext,
    args: CallArgs,
    what: str,
    declared: Span,
    fields: tuple[tree.Field, ...],
    annotations: AnnotationResolver,
) -> Walk[tuple[Term, ...]]:
    """A value of the declared type for each field; binds the declaration's generics. Errors: DL0304, DL0319."""
    given = match_arguments(cx, args, what, [f.name for f in fields], {}, declared, "field")
    found: list[Term] = []
    for written in fields:
        term, span = given[written.name]
        if not annotations.match(written.type, type_of(term)):
            raise field_mismatch(annotations, written, type_of(term), span)
    for written in fields:
        term, span = given[written.name]
        if isinstance(written.type, tree.TypeFn):
            # A second pass: function types may name sizes that later fields bind.
            term = constrain_function(written.type, term, span, annotations, f"`{written.name}`")
            yield prove_linear_arguments(cx, [term])
        found.append(ascribe_enum(annotations, written.type, term))
    return tuple(found)


def field_mismatch(annotations: AnnotationResolver, written: tree.Field, found: LangType, span: Span) -> DifflangError:
    bound = ", ".join(f"{n} = {d}" for n, d in annotations.bound.items())
    error = declared_type_error(written.type, found, span, f"the field `{written.name}`")
    (report,) = error.diagnostics
    return DifflangError(replace(report, helps=(f"the other fields imply {bound}",) if bound else report.helps))
