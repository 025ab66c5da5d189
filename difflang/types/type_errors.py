"""Reports of type errors, type names of other languages, and `DeferCheck` for definitions checked at their calls."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from math import inf

from difflang.base.diagnostics import Diagnostic, DifflangError, Fix, Label
from difflang.base.fixes import did_you_mean, replacement_fix
from difflang.base.package_data import stdlib_enum_of_variant, stdlib_module_of_name
from difflang.base.source import Span
from difflang.ir.symbolic_dims import Poly
from difflang.ir.tensor_types import DTYPES, DType, Tensor
from difflang.syntax import tree
from difflang.syntax.import_fixes import add_name_import
from difflang.types.dtype_variables import DTYPE_BOUNDS, DTypeVar, prune_dtype
from difflang.types.language_types import UNIT, LangType, RecordType, SumType, VariantType, array_axes, show_type
from difflang.types.suggested_fixes import declared_dtype_fix


class DeferCheck(Exception):
    """A definition leaves too much open to be checked; its calls are checked instead."""


def make_error(
    code: str, message: str, *labels: tuple[Span, str], help: str = "", fixes: tuple[Fix, ...] = ()
) -> DifflangError:
    marks = tuple(Label(span, text) for span, text in labels)
    return DifflangError(Diagnostic(code, message, marks, (help,) if help else (), fixes=fixes))


def nesting_error(span: Span) -> DifflangError:
    """The report of types or patterns nested deeper than Python's stack."""
    line = Span(span.source, span.start, min(span.end, span.start + len(span.text.split("\n", 1)[0])))
    way = "move an inner part into a function or a record"
    return make_error("DL1002", "this is nested too deep", (line, ""), help=way)


MAX_LEAVES = 65_536  # arrays in one value: each is an argument of the executable


def leaf_limit_error(span: Span) -> DifflangError:
    """The report of a value with too many arrays: nesting doubles them in a few lines."""
    message = f"a value has at most {MAX_LEAVES:,} parts"
    return make_error("DL1008", message, (span, "this has more"), help="put similar values into an array")


def unbound_size_error(span: Span, name: str) -> DifflangError:
    way = f"a size is bound where the type of a parameter first names it, or by a parameter `{name}: dim`"
    return make_error("DL0203", f"the size `{name}` is not bound here", (span, ""), help=way)


def unbound_yield_error(span: Span, name: str) -> DifflangError:
    """The report of an unbound size in the result of a function whose loop yields."""
    way = f"the size of a yielded array is the size of its loop: `for i in 0..{name}`, with a parameter `{name}: dim`"
    more = "other loops yield a history, which only loops of the same function can read"
    label = Label(span, "")
    return DifflangError(Diagnostic("DL0203", f"the size `{name}` is not bound here", (label,), (way, more)))


def unsolvable_size_error(written: tree.TypeExpr, names: Sequence[str]) -> DifflangError:
    """The report of a size formula with several unknown names."""
    some = " and ".join(f"`{n}`" for n in names)
    way = f"name each size alone in the type of a parameter, or take it as `{names[0]}: dim`"
    return make_error(
        "DL0204", f"{some} cannot be inferred from this size", (written.span, "this is one number"), help=way
    )


def undetermined_generic_error(name: str, given: Span, declared: Span, *used: Span) -> DifflangError:
    """The report of a generic that is used but that the argument's variant leaves open."""
    way = f"take `{name}` from another parameter, or declare it where the value is created, as in `let x: T[3] = …`"
    labels = (given, f"this fits any `{name}`"), (declared, "declared here"), *[(u, "used here") for u in used]
    return make_error("DL0204", f"`{name}` cannot be inferred from this value", *labels, help=way)


def declaration_kind(decl: tree.Record | tree.Enum) -> str:
    return "enum" if isinstance(decl, tree.Enum) else "record"


def variant_names(decl: tree.Record | tree.Enum | None) -> list[str]:
    return [v.name for v in decl.variants] if isinstance(decl, tree.Enum) else []


def unknown_type_error(
    place: Span,
    name: str,
    known: Sequence[str],
    generics: Collection[str],
    bounds: Collection[str],
    enum: str | None,
) -> DifflangError:
    """The report of a name that is no type; `enum` has it as a variant, if one that can be used here does."""
    if name in DTYPES:
        way = f"sizes go in brackets: `{name}[n, m]`"
        return make_error("DL0202", f"the type `{name}` takes no parentheses", (place, ""), help=way)
    way, fixes = did_you_mean(name, [*DTYPES, "str", "key", *generics, *known], place)
    if elsewhere := FOREIGN_TYPE_NAMES.get(name.lower()):
        way = f"did you mean `{elsewhere}`?"
        fixes = (
            () if name.lower() in AMBIGUOUS_TYPE_NAMES or place.text != name else (replacement_fix(place, elsewhere),)
        )
    way = way or f"declare it: `record {name} {{ … }}`"
    if enum := enum or stdlib_enum_of_variant().get(name):
        way, fixes = f"`{name}` is a variant of `{enum}`, which is the type", ()
    elif (module := stdlib_module_of_name().get(name)) is not None:
        way, fixes = f"import it: `import {module} ({name})`", add_name_import(place, name)
    # Later cases are more specific and override the guess by spelling.
    if name in generics:
        way, fixes = f"`{name}` is a complete type here; with `{name}: float`, it is an element type", ()
    if name in bounds:
        way, fixes = f"`{name}` is a bound, as in `fn f[T: {name}](x: T)`; for one type, write f32 or f64", ()
    return make_error("DL0202", f"there is no type `{name}`", (place, ""), help=way, fixes=fixes)


def recursive_type_error(decl: tree.Record | tree.Enum) -> DifflangError:
    """The report of a recursive type, whose values have no static size."""
    way = (
        "keep the values in arrays, with one row for each, and store the row number of another value "
        "instead of the value"
    )
    label = (decl.name_span, "a value of this type contains another one")
    return make_error(
        "DL0354",
        f"the {declaration_kind(decl)} `{decl.name}` contains itself, so its size would be infinite",
        label,
        help=way,
    )


def annotation_text(written: tree.TypeExpr) -> str:
    return written.span.text


def missing_value_hint(text: str) -> str:
    """The help for code without a value where one is expected, by its first words."""
    bound = re.match(r"(?:let|var)\s+(\w+)\b", text)
    if bound is not None:
        return f"end with the value: write `{bound[1]}` on a line below"
    if text.startswith("if ") and not re.search(r"\belse\b", text):
        return "an `if` without `else` has no value: add `else { … }`"
    return "end with the value: a declaration, a loop or an `if` without `else` has none"


def declared_type_error(written: tree.TypeExpr, found: LangType, span: Span, what: str, way: str = "") -> DifflangError:
    """The report of a value whose type is not the declared one."""
    if found == UNIT:
        way = missing_value_hint(span.text)
    fixes = declared_dtype_fix(written, found.dtype, span) if isinstance(found, Tensor) else ()
    if fixes:
        way = f"there is no implicit conversion: {fixes[0].title}"
    way = array_of_items_help(written, found, span) or way
    return make_error(
        "DL0304",
        f"{what} is declared {annotation_text(written)} but is {show_type(found)}",
        (span, f"this is {show_type(found)}"),
        (written.span, "declared here"),
        help=way,
        fixes=fixes,
    )


def array_of_items_help(written: tree.TypeExpr, found: LangType, span: Span) -> str:
    """The help for an array of records or enums where one is declared, and for one without items."""
    is_numbers = isinstance(written, tree.TypeApply) and ".".join(written.path) in DTYPES
    if span.text == "[]" and not is_numbers:
        return "`[for _ in 0..0 => item]` is an array without items, of the type of an item"
    if isinstance(found, (RecordType, VariantType, SumType)) and not array_axes(found) and not is_numbers:
        return one_item_help(written, found, span)
    if not isinstance(found, (RecordType, SumType)) or not array_axes(found):
        return ""
    args = found.args if isinstance(found, RecordType) else found.variants[0].args if found.variants else ()
    # With one bracket more, an array is declared: its sizes differ.
    if not isinstance(written, (tree.TypeName, tree.TypeApply)) or isinstance(written, tree.TypeApply) != bool(args):
        return ""
    item = f"`{span.text}[i]` is one of them, and " if span.text.isidentifier() else ""
    return f"{item}`{found}` declares an array of them"


def one_item_help(written: tree.TypeExpr, found: RecordType | VariantType | SumType, span: Span) -> str:
    """The help for one record or enum where an array of them, with one axis, is declared."""
    decl = next((v.decl for v in (found.variants if isinstance(found, SumType) else (found,))), None)
    match written:
        case tree.TypeArray(item=tree.TypeApply(path=path), axes=(axis,)):
            pass
        case tree.TypeApply(path=path, args=(axis,)) if decl is not None and not decl.generics:  # the brackets are axes
            pass
        case _:
            return ""
    several = isinstance(axis, tree.TypeInt) and axis.value != 1
    if several or decl is None or path[-1] != decl.name or "\n" in span.text:
        return ""
    return f"`[{span.text}]` is an array with this one item"


def resized_array_help(name: str, old: LangType, new: LangType) -> str:
    """The help for a variable that gets an array of another size; "" for any other value."""
    if not array_axes(old) or len(array_axes(old)) != len(array_axes(new)) or array_axes(old) == array_axes(new):
        return ""
    return f"an array keeps its size; a loop makes one of its items: `let {name} = for i in 0..n {{ yield … }}`"


def axes_in_two_brackets_error(written: tree.TypeArray, inner: tree.TypeApply) -> DifflangError:
    """The report of `f32[m][k]` and `Body[n][k]`, whose axes belong into one bracket."""
    axes = ", ".join(part.span.text for part in (*written.axes, *inner.args))
    whole = f"{'.'.join(inner.path)}[{axes}]"
    way = f"write `D({whole})`" if isinstance(written.item, tree.TypeCall) else f"write `{whole}`"
    place = Span(written.span.source, written.item.span.end, written.span.end)
    message = f"the axes of `{'.'.join(inner.path)}` are in two brackets"
    return make_error("DL0355", message, (place, "these are axes too"), help=way)


def item_spread_error(written: tree.TypeExpr, spread: tree.AnyShape) -> DifflangError:
    """The report of `Body[..s]`: an array of records has a known number of axes."""
    message = f"`..{spread.name}` stands for axes of numbers, not of texts, records or enums"
    return make_error("DL0355", message, (spread.span, ""), help=f"name each axis of `{written.span.text}`")


def argument_kind_error(decl: tree.Record | tree.Enum, given: Span, found: object, use: Span) -> DifflangError:
    """The report of an argument of the wrong kind: a size for an element type, i32 for a float."""
    is_a = "a size" if isinstance(found, (int, Poly)) else "an element type" if isinstance(found, DType) else "a type"
    bound = next((g.bound for g in decl.generics if g.span == use), None) or ""
    accepted = DTYPE_BOUNDS.get(bound, ())
    reason = f"here it is one of {', '.join(map(str, accepted))}" if accepted else "it is used here"
    message = f"the {declaration_kind(decl)} `{decl.name}` does not take `{given.text}` here"
    way = f"it is `{declaration_head(decl)}`"
    if isinstance(found, Poly) and given.text.isidentifier():  # a name that nothing declares is a size
        way = f"write a type here; or declare `{given.text}` for any: `fn f[{given.text}{bound and f': {bound}'}](…)`"
    return make_error("DL0301", message, (given, f"this is {is_a}"), (use, reason), help=way)


def declaration_head(decl: tree.Record | tree.Enum) -> str:
    """The head of a declaration: its name and generics."""
    args = ", ".join(g.name for g in decl.generics)
    return f"{decl.name}[{args}]" if args else decl.name


def rebound_name_error(name: str, again: Span | None, used: Span, first: Span | None) -> DifflangError:
    """The report of a top-level name that a function uses and that was rebound before a call."""
    places = ((again, "bound again here"), (used, "used here"), (first, "bound here first"))
    labels = [(place, text) for place, text in places if place is not None]
    message = f"`{name}` is bound again after a function used it"
    return make_error("DL0212", message, *labels, help="give the new value another name, or pass it to the function")


# From these numbers on, half a step beyond the largest, rounding gives infinity.
OVERFLOW_BOUNDS = {"f16": 2.0**16 * (1 - 2.0**-12), "bf16": 2.0**128 * (1 - 2.0**-9), "f32": 2.0**128 * (1 - 2.0**-25)}
OVERFLOW_BOUNDS["c64"] = OVERFLOW_BOUNDS["f32"]


def check_literal_range(number: float, dtype: DType, span: Span) -> None:
    """Check that a literal is in the range of its element type. Errors: DL0316."""
    if not dtype.is_integer:
        end = OVERFLOW_BOUNDS.get(dtype.name, inf)
        if end <= abs(number) < inf:
            label = (span, f"the largest {dtype} is {end:.2g}")
            way = f"declare its type: `{'c128' if dtype.is_complex else 'f64'}(…)`"
            raise make_error("DL0316", f"{number:g} does not fit in {dtype}", label, help=way)
        return
    signed = dtype.kind == "int"
    least, most = (-(2 ** (dtype.bits - 1)), 2 ** (dtype.bits - 1) - 1) if signed else (0, 2**dtype.bits - 1)
    if not least <= number <= most:
        wider = "i64" if dtype.bits < 64 and -(2**63) <= number < 2**63 else "u64" if 2**63 <= number < 2**64 else ""
        way = f"declare a wider type, as in `let x: {wider} = {number}`" if wider else ""
        shown = str(number) if abs(number) < 10**30 else "this number"
        label = (span, f"{dtype} ranges from {least} to {most}")
        raise make_error("DL0316", f"{shown} does not fit in {dtype}", label, help=way)


def condition_type_error(type: LangType, span: Span) -> DifflangError:
    """The report of a condition that is not a scalar bool."""
    what, way = f"this is {show_type(type)}", "compare something that it contains"
    if isinstance(type, Tensor):
        dtype = prune_dtype(type.dtype)
        dtype = dtype.default if isinstance(dtype, DTypeVar) else dtype
        if dtype.name == "bool":
            way = "reduce it: `any(…)` is true if one element is true, `all(…)` if all are"
        elif type.shape:
            way = "compare its elements, and reduce the result with `any` or `all`"
        else:
            what = f"this is a number, {dtype}"
            text = span.text if span.text.isidentifier() else "…"
            way = f"compare it, as in `{text} != {'0' if dtype.is_integer else '0.0'}`"
    return make_error("DL0313", "a condition must be a bool", (span, what), help=way)


FOREIGN_TYPE_NAMES: Mapping[str, str] = {
    **dict.fromkeys(("float32", "number", "single"), "f32"),
    **dict.fromkeys(("float64", "double"), "f64"),
    **dict.fromkeys(("float16", "half"), "f16"),
    **dict.fromkeys(("int", "int32", "integer"), "i32"),
    **dict.fromkeys(("int64", "long"), "i64"),
    "bfloat16": "bf16",
    "boolean": "bool",
    "string": "str",
    **dict.fromkeys(("array", "ndarray", "tensor", "vector", "vec", "list"), "f32[n]"),
    "matrix": "f32[n, m]",
}

# Names without an automatic fix: only the author knows the axes or the kind of number.
AMBIGUOUS_TYPE_NAMES = ("number", "array", "ndarray", "tensor", "vector", "vec", "list", "matrix")
