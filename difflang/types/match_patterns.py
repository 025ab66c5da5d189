"""Type checking of `match` patterns, and whether the cases are exhaustive and all reachable (Maranget 2007)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct, field

from difflang.base.diagnostics import DifflangError
from difflang.base.fixes import did_you_mean, replacement_fix
from difflang.base.source import Span
from difflang.ir.tensor_types import BOOL, Tensor
from difflang.syntax import tree
from difflang.types.dtype_variables import prune_dtype
from difflang.types.join_types import all_variants, sum_options
from difflang.types.language_types import LangType, TupleType, VariantType, is_one_text, show_type
from difflang.types.module_scope import ModuleScope
from difflang.types.type_errors import check_literal_range, make_error
from difflang.types.unify import Unifier

# The constructor of a value: a variant, a literal or a tuple.
ConstructorKey = tuple[str, object]
TUPLE_KEY: ConstructorKey = ("tuple", None)
# Exhaustiveness is exponential in the worst case: more steps than this are an error.
MAX_STEPS = 20_000


class IrrefutablePattern(Struct, frozen=True):
    """A pattern that fits every value and binds it to `name`, unless that is `_`."""

    name: str


class ConstructorPattern(Struct, frozen=True):
    """A pattern that fits values with this constructor whose parts fit."""

    key: ConstructorKey
    items: tuple[CheckedPattern, ...]


CheckedPattern = IrrefutablePattern | ConstructorPattern
WILDCARD = IrrefutablePattern("_")


class Constructor(Struct, frozen=True):
    """A constructor of a type: its text in messages, and the types of its parts, if known."""

    key: ConstructorKey
    text: str
    parts: tuple[LangType | None, ...]


def constructors_of(unifier: Unifier, type: LangType | None) -> tuple[Constructor, ...]:
    """All constructors of a type; none if they cannot be listed."""
    match type:
        case Tensor(shape=()) if prune_dtype(type.dtype) is BOOL:
            return tuple([Constructor(("literal", b), str(b).lower(), ()) for b in (True, False)])
        case TupleType(items=items):
            return (Constructor(TUPLE_KEY, "", items),)
        case None:
            return ()
        case _:
            return tuple([variant_constructor(type, v, i) for i, v in enumerate(declared_variants(unifier, type))])


def variant_constructor(type: LangType, fields: VariantType | tree.Variant, index: int) -> Constructor:
    parts = fields.fields if isinstance(fields, VariantType) else (None,) * len(fields.fields)
    return Constructor(("variant", index), fields.name, parts)


def first_variant(type: LangType | None) -> VariantType | None:
    """A variant of the enum, if a type is one."""
    first = sum_options(type)[0] if type is not None else None
    return first if isinstance(first, VariantType) else None


def declared_variants(unifier: Unifier, type: LangType) -> list[VariantType | tree.Variant]:
    """Every variant of an enum: with the types that `type` gives it, else as declared."""
    of = first_variant(type)
    if of is None:
        return []
    # Names for unknown sizes: the witness text needs no values.
    every = all_variants(unifier, of, rigid=True)
    found: list[VariantType | tree.Variant] = list(of.decl.variants)
    for options in (() if every is None else sum_options(every), sum_options(type)):
        for option in options:
            if isinstance(option, VariantType):
                found[option.index] = option
    return found


# ---- Checking patterns


class PatternChecker(Struct):
    """Checks patterns against types, with the names of a module."""

    unifier: Unifier
    module: ModuleScope
    variants: dict[int, tuple[LangType, list[VariantType | tree.Variant], dict[str, int]]] = field(
        default_factory=dict[int, Any]
    )

    def variants_of(self, type: LangType, of: VariantType) -> tuple[list[VariantType | tree.Variant], dict[str, int]]:
        """Every variant of an enum, and their numbers by name; found once for all cases of a `match`."""
        if id(type) not in self.variants:
            numbers = {v.name: i for i, v in enumerate(of.decl.variants)}
            self.variants[id(type)] = (type, declared_variants(self.unifier, type), numbers)
        return self.variants[id(type)][1:]

    def read(self, pattern: tree.CasePattern, type: LangType | None) -> CheckedPattern:
        """The checked form of a pattern. Errors: DL0351 for an unknown variant, DL0353 for another structure."""
        match pattern:
            case tree.NamePattern(name=name):
                return self.name(pattern, name, type)
            case tree.VariantPattern(path=(name,), items=items):
                return self.variant(pattern, name, items, type)
            case tree.VariantPattern(path=(first, name)) if (of := first_variant(type)) and of.decl.name == first:
                alone = pattern.span.text.removeprefix(first).lstrip(".")
                message, fixes = "a variant is written without its enum", (replacement_fix(pattern.span, alone),)
                raise make_error("DL0351", message, (pattern.span, ""), help=f"write `{alone}`", fixes=fixes)
            case tree.VariantPattern(path=path, items=items):
                first, name = path[:-1], path[-1]
                other = self.module.modules.get(".".join(first))
                if other is None or type is None or not self.is_variant_of(other, name, type):
                    message = f"there is no variant `{'.'.join(pattern.path)}` here"
                    raise make_error("DL0351", message, (pattern.span, ""), help=f"write only its name: `{name}`")
                return self.variant(pattern, name, items, type)
            case tree.LiteralPattern():
                return self.literal(pattern, type)
            case tree.TupleCasePattern(items=items):
                # Inside an unknown variant the types are unknown; the parts are still checked for structure.
                types: Sequence[LangType | None] = [None] * len(items)
                if type is not None:
                    if not isinstance(type, TupleType) or len(type.items) != len(items):
                        raise pattern_type_error(pattern, type)
                    types = type.items
                return ConstructorPattern(
                    TUPLE_KEY, tuple([self.read(p, t) for p, t in zip(items, types, strict=True)])
                )

    def is_variant_of(self, other: ModuleScope, name: str, type: LangType) -> bool:
        """Whether another module has a variant of that name in the matched enum."""
        of, found = first_variant(type), other.variants.get(name)
        return of is not None and found is not None and found[0] is of.decl

    def name(self, pattern: tree.NamePattern, name: str, type: LangType | None) -> CheckedPattern:
        """A name pattern: a variant without fields, or a binding of the whole value."""
        of = first_variant(type)
        names = self.variants_of(type, of)[1] if of is not None and type is not None else {}
        if of is not None and (name in names or name[:1].isupper()):
            if name not in names:
                raise unknown_variant_error(pattern.span, name, of)
            return self.variant(pattern, name, (), type)
        if of is None and name in self.module.variants and type is not None:
            raise pattern_type_error(pattern, type)
        return IrrefutablePattern(name)

    def variant(
        self, pattern: tree.CasePattern, name: str, items: Sequence[tree.CasePattern], type: LangType | None
    ) -> CheckedPattern:
        if type is None:
            return ConstructorPattern(("variant", name), tuple([self.read(p, None) for p in items]))
        of = first_variant(type)
        if of is None:
            raise pattern_type_error(pattern, type)
        variants, names = self.variants_of(type, of)
        index = names.get(name)
        if index is None:
            raise unknown_variant_error(pattern.span, name, of)
        fields = variants[index]
        parts = variant_constructor(type, fields, index).parts
        if len(parts) != len(items):
            raise field_count_error(pattern, of, index, fields, len(items))
        return ConstructorPattern(
            ("variant", index), tuple([self.read(p, t) for p, t in zip(items, parts, strict=True)])
        )

    def literal(self, pattern: tree.LiteralPattern, type: LangType | None) -> CheckedPattern:
        value = literal_value(pattern.value)
        if type is not None and not (is_one_text(type) if isinstance(value, str) else admits_literal(type, value)):
            raise pattern_type_error(pattern, type)
        if isinstance(type, Tensor) and isinstance(value, int) and (dtype := prune_dtype(type.dtype)).is_integer:
            check_literal_range(value, dtype, pattern.span)
        return ConstructorPattern(("literal", value), ())


def admits_literal(type: LangType, value: object) -> bool:
    """Whether values of a type can equal this number or bool."""
    if not isinstance(type, Tensor) or type.shape:
        return False
    dtype = prune_dtype(type.dtype)
    candidates = getattr(dtype, "candidates", (dtype,))
    if isinstance(value, bool):
        return dtype is BOOL
    return any(d.is_float or (isinstance(value, int) and d.is_integer) for d in candidates)


def literal_value(e: tree.Expr) -> object:
    match e:
        case tree.Int(value=value) | tree.Float(value=value) | tree.Bool(value=value):
            return value
        case tree.Unary(operand=tree.Int(value=value) | tree.Float(value=value)):
            return -value
        case tree.Str(parts=parts):
            return "".join(p for p in parts if isinstance(p, str))
        case _:
            message = "a case is a number, a text, a variant or a name; it cannot be a complex number"
            raise make_error("DL0321", message, (e.span, ""), help="compare its parts: `if z == 1j { … }`")


def pattern_type_error(pattern: tree.CasePattern, type: LangType) -> DifflangError:
    """The report of a pattern that fits no value of the type."""
    message = f"a value of type {show_type(type)} cannot match this"
    found = first_variant(type)
    way = f"its variants are {', '.join(v.name for v in found.decl.variants)}" if found is not None else ""
    return make_error("DL0353", message, (pattern.span, ""), help=way)


def unknown_variant_error(span: Span, name: str, of: VariantType) -> DifflangError:
    names = [v.name for v in of.decl.variants]
    way, fixes = did_you_mean(name, names, span)
    way = way or f"it has {', '.join(names)}; a name that matches any value is in lower case"
    labels = ((span, ""), (of.decl.name_span, "declared here"))
    return make_error("DL0351", f"`{of.decl.name}` has no variant `{name}`", *labels, help=way, fixes=fixes)


def field_count_error(
    pattern: tree.CasePattern, of: VariantType, index: int, fields: VariantType | tree.Variant, count: int
) -> DifflangError:
    variant = of.decl.variants[index]
    names = fields.names if isinstance(fields, VariantType) else [f.name for f in variant.fields]
    what = f"{len(names)} value{'s' * (len(names) != 1)}" if names else "nothing"
    shown = f"{variant.name}({', '.join(names)})" if names else variant.name
    return make_error(
        "DL0353",
        f"`{variant.name}` holds {what}, but the pattern has {count}",
        (pattern.span, ""),
        (variant.span, "declared here"),
        help=f"write `{shown}`",
    )


# ---- Exhaustiveness and reachability


class ExhaustivenessChecker(Struct):
    """The algorithms on pattern matrices, a row for each case. Source: Maranget 2007, Warnings for pattern matching."""

    unifier: Unifier
    span: Span
    steps: int = 0

    def step(self) -> None:
        self.steps += 1
        if self.steps > MAX_STEPS:
            way = "match one level at a time, in separate functions"
            raise make_error("DL1002", "these patterns are too many to check", (self.span, ""), help=way)

    def missing_cases(
        self, rows: Sequence[Sequence[CheckedPattern]], types: Sequence[LangType | None]
    ) -> list[list[str]]:
        """Examples of values that no row fits, as source text, one for each missing constructor."""
        self.step()
        if not types:
            return [] if rows else [[]]
        heads = {first.key for first, *_ in rows if isinstance(first, ConstructorPattern)}
        all_of_them = constructors_of(self.unifier, types[0])
        found: list[list[str]] = []
        groups = rows_by_head(rows, heads)
        for head in all_of_them if heads else ():
            inside = (
                specialize_rows(groups[head.key], head.key, len(head.parts))
                if head.key in heads
                else default_rows(rows)
            )
            parts = head.parts if head.key in heads else ()
            for witness in self.missing_cases(inside, [*parts, *types[1:]]):
                inner = witness[: len(parts)] or ["_"] * len(head.parts)
                found.append([case_text(head, inner), *witness[len(parts) :]])
        if all_of_them and heads:
            return found
        return [["_", *witness] for witness in self.missing_cases(default_rows(rows), types[1:])]

    def is_useful(
        self, rows: Sequence[Sequence[CheckedPattern]], row: Sequence[CheckedPattern], types: Sequence[LangType | None]
    ) -> bool:
        """Whether a row fits a value that no earlier row fits."""
        self.step()
        if not types:
            return not rows
        first, *rest = row
        if isinstance(first, ConstructorPattern):
            parts = next((b.parts for b in constructors_of(self.unifier, types[0]) if b.key == first.key), ())
            parts = parts or (None,) * len(first.items)
            inside = specialize_rows(rows, first.key, len(first.items))
            return self.is_useful(inside, [*first.items, *rest], [*parts, *types[1:]])
        heads = {f.key for f, *_ in rows if isinstance(f, ConstructorPattern)}
        all_of_them = constructors_of(self.unifier, types[0])
        if not all_of_them or any(b.key not in heads for b in all_of_them):
            return self.is_useful(default_rows(rows), rest, types[1:])
        return any(
            self.is_useful(
                specialize_rows(rows, b.key, len(b.parts)), [*[WILDCARD] * len(b.parts), *rest], [*b.parts, *types[1:]]
            )
            for b in all_of_them
        )


def rows_by_head(
    rows: Sequence[Sequence[CheckedPattern]], heads: Iterable[ConstructorKey]
) -> dict[ConstructorKey, list[Sequence[CheckedPattern]]]:
    """For each constructor the rows that may fit it, in order: else each of many would go through all rows."""
    groups: dict[ConstructorKey, list[Sequence[CheckedPattern]]] = {head: [] for head in heads}
    for row in rows:
        first = row[0]
        for group in (groups[first.key],) if isinstance(first, ConstructorPattern) else groups.values():
            group.append(row)
    return groups


def specialize_rows(
    rows: Sequence[Sequence[CheckedPattern]], key: ConstructorKey, count: int
) -> list[list[CheckedPattern]]:
    """The rows that fit a constructor, with its parts in place of the first column."""
    found: list[list[CheckedPattern]] = []
    for first, *rest in rows:
        if isinstance(first, IrrefutablePattern):
            found.append([*[WILDCARD] * count, *rest])
        elif first.key == key:
            found.append([*first.items, *rest])
    return found


def default_rows(rows: Sequence[Sequence[CheckedPattern]]) -> list[list[CheckedPattern]]:
    """The rows with a wildcard in the first column, without that column."""
    return [rest for first, *rest in rows if isinstance(first, IrrefutablePattern)]


def case_text(head: Constructor, parts: Sequence[str]) -> str:
    return f"{head.text}({', '.join(parts)})" if parts else head.text
