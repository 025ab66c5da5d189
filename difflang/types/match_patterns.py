"""Patterns of a `match` against the type of what is matched, and whether the cases are all there and all needed."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from difflang.base.diagnostics import DifflangError
from difflang.base.fixes import instead, meant
from difflang.base.source import Span
from difflang.ir.tensor_types import BOOL, Tensor
from difflang.syntax import tree
from difflang.types.dtype_variables import pruned
from difflang.types.join_types import every_variant, options_of
from difflang.types.language_types import LangType, TextType, TupleType, VariantType, show_type
from difflang.types.module_scope import Module
from difflang.types.type_errors import in_range, mistake
from difflang.types.unify import Unifier

Key = tuple[str, object]  # what a value begins with: a variant, a literal, a tuple
TUPLE: Key = ("tuple", None)
MOST_STEPS = 20_000


class Anything(Struct, frozen=True):
    """Fits every value; `_` has no name."""

    name: str


class Begins(Struct, frozen=True):
    """Fits values that begin like this, and whose parts fit."""

    key: Key
    items: tuple[Fit, ...]


Fit = Anything | Begins
WILD = Anything("_")


class Beginning(Struct, frozen=True):
    """One way in which values of a type begin: how it is written, and the types of the parts, if they are known."""

    key: Key
    shown: str
    parts: tuple[LangType | None, ...]


def beginnings(unifier: Unifier, type: LangType | None) -> tuple[Beginning, ...]:
    """All the ways in which values of a type begin; none where they cannot be listed."""
    match type:
        case Tensor(shape=()) if pruned(type.dtype) is BOOL:
            return tuple([Beginning(("literal", b), str(b).lower(), ()) for b in (True, False)])
        case TupleType(items=items):
            return (Beginning(TUPLE, "", items),)
        case None:
            return ()
        case _:
            return tuple([of_variant(type, v, i) for i, v in enumerate(declared(unifier, type))])


def of_variant(type: LangType, fields: VariantType | tree.Variant, index: int) -> Beginning:
    parts = fields.fields if isinstance(fields, VariantType) else (None,) * len(fields.fields)
    return Beginning(("variant", index), fields.name, parts)


def enum_of(type: LangType | None) -> VariantType | None:
    """A variant of the enum that a type is."""
    first = options_of(type)[0] if type is not None else None
    return first if isinstance(first, VariantType) else None


def declared(unifier: Unifier, type: LangType) -> list[VariantType | tree.Variant]:
    """Every variant of the enum that a type is: as the type has it, else as declared."""
    of = enum_of(type)
    if of is None:
        return []
    every = every_variant(unifier, of, rigid=True)
    found: list[VariantType | tree.Variant] = list(of.decl.variants)
    for options in (() if every is None else options_of(every), options_of(type)):
        for option in options:
            if isinstance(option, VariantType):
                found[option.index] = option
    return found


# ---- Reading


class Patterns(Struct):
    """Reads patterns against types, in a module."""

    unifier: Unifier
    module: Module

    def read(self, pattern: tree.CasePattern, type: LangType | None) -> Fit:
        """What a pattern asks of a value. Errors: DL0351 for an unknown variant, DL0353 for another structure."""
        match pattern:
            case tree.NamePattern(name=name):
                return self.name(pattern, name, type)
            case tree.VariantPattern(path=(name,), items=items):
                return self.variant(pattern, name, items, type)
            case tree.VariantPattern(path=(first, name)) if (of := enum_of(type)) and of.decl.name == first:
                alone = pattern.span.text.removeprefix(first).lstrip(".")
                message, fixes = "a variant stands alone, without its enum", (instead(pattern.span, alone),)
                raise mistake("DL0351", message, (pattern.span, ""), help=f"write `{alone}`", fixes=fixes)
            case tree.VariantPattern(path=path, items=items):
                first, name = path[:-1], path[-1]
                other = self.module.modules.get(".".join(first))
                if other is None or type is None or not self.is_of(other, name, type):
                    message = f"no variant is called `{'.'.join(pattern.path)}` here"
                    raise mistake("DL0351", message, (pattern.span, ""), help=f"its own name is enough: `{name}`")
                return self.variant(pattern, name, items, type)
            case tree.LiteralPattern():
                return self.literal(pattern, type)
            case tree.TupleCasePattern(items=items):
                types: Sequence[LangType | None] = [None] * len(items)
                if type is not None:
                    if not isinstance(type, TupleType) or len(type.items) != len(items):
                        raise another(pattern, type)
                    types = type.items
                return Begins(TUPLE, tuple([self.read(p, t) for p, t in zip(items, types, strict=True)]))

    def is_of(self, other: Module, name: str, type: LangType) -> bool:
        """Whether another module has a variant of that name, of the enum that is matched."""
        of, found = enum_of(type), other.variants.get(name)
        return of is not None and found is not None and found[0] is of.decl

    def name(self, pattern: tree.NamePattern, name: str, type: LangType | None) -> Fit:
        """A variant without fields, or a name for the whole."""
        of = enum_of(type)
        if of is not None and (name in (names := [v.name for v in of.decl.variants]) or name[:1].isupper()):
            if name not in names:
                raise no_variant(pattern.span, name, of)
            return self.variant(pattern, name, (), type)
        if of is None and name in self.module.variants and type is not None:
            raise another(pattern, type)
        return Anything(name)

    def variant(
        self, pattern: tree.CasePattern, name: str, items: Sequence[tree.CasePattern], type: LangType | None
    ) -> Fit:
        if type is None:
            return Begins(("variant", name), tuple([self.read(p, None) for p in items]))
        of = enum_of(type)
        if of is None:
            raise another(pattern, type)
        index = next((i for i, v in enumerate(of.decl.variants) if v.name == name), None)
        if index is None:
            raise no_variant(pattern.span, name, of)
        fields = declared(self.unifier, type)[index]
        parts = of_variant(type, fields, index).parts
        if len(parts) != len(items):
            raise other_count(pattern, of, index, fields, len(items))
        return Begins(("variant", index), tuple([self.read(p, t) for p, t in zip(items, parts, strict=True)]))

    def literal(self, pattern: tree.LiteralPattern, type: LangType | None) -> Fit:
        value = literal_value(pattern.value)
        if type is not None and not (isinstance(type, TextType) if isinstance(value, str) else may_be(type, value)):
            raise another(pattern, type)
        if isinstance(type, Tensor) and isinstance(value, int) and (dtype := pruned(type.dtype)).is_integer:
            in_range(value, dtype, pattern.span)
        return Begins(("literal", value), ())


def may_be(type: LangType, value: object) -> bool:
    """Whether values of a type can be this number or truth value."""
    if not isinstance(type, Tensor) or type.shape:
        return False
    dtype = pruned(type.dtype)
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
            message = "a case is a number, a text, a variant or a name, and no complex number"
            raise mistake("DL0321", message, (e.span, ""), help="ask for its parts: `if z == 1j { … }`")


def another(pattern: tree.CasePattern, type: LangType) -> DifflangError:
    """A pattern that fits no value of the type."""
    message = f"no value that is {show_type(type)} looks like this"
    found = enum_of(type)
    way = f"its variants are {', '.join(v.name for v in found.decl.variants)}" if found is not None else ""
    return mistake("DL0353", message, (pattern.span, ""), help=way)


def no_variant(span: Span, name: str, of: VariantType) -> DifflangError:
    names = [v.name for v in of.decl.variants]
    way, fixes = meant(name, names, span)
    way = way or f"it has {', '.join(names)}; a name for any value is in lower case"
    labels = ((span, ""), (of.decl.name_span, "declared here"))
    return mistake("DL0351", f"`{of.decl.name}` has no variant `{name}`", *labels, help=way, fixes=fixes)


def other_count(
    pattern: tree.CasePattern, of: VariantType, index: int, fields: VariantType | tree.Variant, count: int
) -> DifflangError:
    variant = of.decl.variants[index]
    names = fields.names if isinstance(fields, VariantType) else [f.name for f in variant.fields]
    what = f"{len(names)} value{'s' * (len(names) != 1)}" if names else "nothing"
    shown = f"{variant.name}({', '.join(names)})" if names else variant.name
    return mistake(
        "DL0353",
        f"`{variant.name}` holds {what}, and the pattern has {count}",
        (pattern.span, ""),
        (variant.span, "declared here"),
        help=f"write `{shown}`",
    )


# ---- Are all there, and all needed?


class Coverage(Struct):
    """Questions about rows of patterns, each for the values of some columns. Source: Maranget 2007."""

    unifier: Unifier
    span: Span
    steps: int = 0

    def step(self) -> None:
        self.steps += 1
        if self.steps > MOST_STEPS:
            way = "match one level at a time, in functions of their own"
            raise mistake("DL1002", "these patterns are too many to go through", (self.span, ""), help=way)

    def missing(self, rows: Sequence[Sequence[Fit]], types: Sequence[LangType | None]) -> list[list[str]]:
        """Values that no row fits, as they would be written: for each beginning one, where its parts allow it."""
        self.step()
        if not types:
            return [] if rows else [[]]
        heads = {first.key for first, *_ in rows if isinstance(first, Begins)}
        all_of_them = beginnings(self.unifier, types[0])
        found: list[list[str]] = []
        for head in all_of_them if heads else ():
            inside = narrowed(rows, head.key, len(head.parts)) if head.key in heads else defaults(rows)
            parts = head.parts if head.key in heads else ()
            for witness in self.missing(inside, [*parts, *types[1:]]):
                inner = witness[: len(parts)] or ["_"] * len(head.parts)
                found.append([written(head, inner), *witness[len(parts) :]])
        if all_of_them and heads:
            return found
        return [["_", *witness] for witness in self.missing(defaults(rows), types[1:])]

    def useful(self, rows: Sequence[Sequence[Fit]], row: Sequence[Fit], types: Sequence[LangType | None]) -> bool:
        """Whether a row fits a value that none of the rows before it does."""
        self.step()
        if not types:
            return not rows
        first, *rest = row
        if isinstance(first, Begins):
            parts = next((b.parts for b in beginnings(self.unifier, types[0]) if b.key == first.key), ())
            parts = parts or (None,) * len(first.items)
            inside = narrowed(rows, first.key, len(first.items))
            return self.useful(inside, [*first.items, *rest], [*parts, *types[1:]])
        heads = {f.key for f, *_ in rows if isinstance(f, Begins)}
        all_of_them = beginnings(self.unifier, types[0])
        if not all_of_them or any(b.key not in heads for b in all_of_them):
            return self.useful(defaults(rows), rest, types[1:])
        return any(
            self.useful(narrowed(rows, b.key, len(b.parts)), [*[WILD] * len(b.parts), *rest], [*b.parts, *types[1:]])
            for b in all_of_them
        )


def narrowed(rows: Sequence[Sequence[Fit]], key: Key, count: int) -> list[list[Fit]]:
    """The rows for values that begin like this, their parts in the place of the first column."""
    found: list[list[Fit]] = []
    for first, *rest in rows:
        if isinstance(first, Anything):
            found.append([*[WILD] * count, *rest])
        elif first.key == key:
            found.append([*first.items, *rest])
    return found


def defaults(rows: Sequence[Sequence[Fit]]) -> list[list[Fit]]:
    """The rows that ask nothing of the first column, without it."""
    return [rest for first, *rest in rows if isinstance(first, Anything)]


def written(head: Beginning, parts: Sequence[str]) -> str:
    return f"{head.shown}({', '.join(parts)})" if parts else head.shown
