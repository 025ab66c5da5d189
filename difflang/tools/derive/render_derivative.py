"""Renders a derived program: records, signature, statements and result, formatted and type-checked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct, field

from difflang.base.source import Source, Span
from difflang.base.wording import with_article
from difflang.driver.checked_program import CheckedProgram, check_program
from difflang.driver.elaborate_call import CallArgument, ElaboratedCall
from difflang.elaborate.calls.builtin_registry import BUILTINS, TRANSFORM_NAMES
from difflang.elaborate.mesh_axes import declared_layouts, names_axes
from difflang.elaborate.terms import leaf_hints
from difflang.ir.graph import Graph, Value
from difflang.ir.symbolic_dims import Dim, dim_names
from difflang.ir.tensor_types import DTYPES, Tensor
from difflang.ops.arrays.constants import const
from difflang.ops.arrays.reshard import Split, split_type_text
from difflang.passes.dce import dce
from difflang.syntax import tree
from difflang.syntax.formatter.format_program import format_program
from difflang.syntax.parser_tables import load_tables
from difflang.syntax.tree_queries import all_nodes
from difflang.tools.derive.enum_arrays import is_plain_enum_array, name_leaves, tangent_items
from difflang.tools.derive.opaque_parameters import function_type_text
from difflang.types.language_types import (
    LangType,
    RecordType,
    SumType,
    TupleType,
    VariantType,
    leaf_types,
    show_type,
    tangent_type,
)
from difflang.types.module_scope import GlobalName
from difflang.unparse.fragments import CannotUnparse, name_fragment
from difflang.unparse.unparser import NamePool, Unparser

RecordOrVariant = RecordType | VariantType
Tangible = RecordOrVariant | SumType
SHORT = 32  # the longest source text that a comment repeats


class DerivativeText(Struct, eq=False):
    """A derived program being rendered."""

    checked: CheckedProgram
    decl: tree.Fn
    name: str
    arguments: tuple[CallArgument, ...]
    entry: ElaboratedCall
    graph: Graph
    result_names: Sequence[str]  # names for the parts of the result
    caption: str  # the comment at its top
    # Records and variants among the arguments, each with the text that refers to it.
    records: list[tuple[str, Tangible]] = field(default_factory=list[tuple[str, Tangible]])
    # Patterns of arguments with a known variant.
    patterns: list[str] = field(default_factory=list[str])
    body: str = ""
    unchecked: bool = False

    def render_body(self) -> DerivativeText:
        """Render the statements and the result. Errors: CannotUnparse."""
        self.refuse_numbers()
        result = grad_record_as_tuple(self.entry.type)
        self.graph, site = self.without_failure()
        hidden = frozenset([a.name for a in self.arguments])
        unparser = Unparser(self.reserved_names(), self.source_comment, self.result_hints(result), hidden=hidden)
        self.bind_params(unparser)
        unparser.graph(self.graph)
        if site is not None:
            # One `assert` for all checks of the function.
            unparser.emit(f'assert {unparser.words(site).at(6)} == 0, "a check of `{self.decl.name}` fails"')
        value = self.value(unparser, result)
        self.body = "\n".join([*unparser.lines, value])
        self.unchecked = unparser.unchecked[0]
        return self

    # ---- Head and declarations

    def first_lines(self) -> list[str]:
        """The `float` line, and the caption."""
        module = self.checked.module
        lines = [f"float {module.default_float}"] if module.default_float.name != "f32" else []
        lines += [f"axes {', '.join(module.axes)}"] if self.names_axes else []
        return [*lines, f"# {self.caption}: {module.source.name}, line {self.decl.name_span.position[0]}."]

    @property
    def names_axes(self) -> bool:
        """Whether axes of a mesh are in the types of the function, or moved in its body."""
        module = self.checked.module
        return bool(module.axes) and (names_axes(module, self.decl) or "reshard(" in self.body)

    @property
    def splits(self) -> dict[str, Split]:
        """How the function declares its arrays split, by their names: `w`, `m_w`; its result has its own name."""
        if not self.names_axes:
            return {}
        declared = [
            (argument.name, argument.type, param.type)
            for param, argument in zip(self.decl.params, self.arguments, strict=False)
            if argument.size is None
        ]
        result = self.entry.type
        if not self.result_names[0] and isinstance(result, TupleType):  # its first part is the function's value
            declared.append((self.decl.name, result.items[0], self.decl.result))
        return {
            hint.replace(".", "_"): layout[0]
            for name, type, written in declared
            if written is not None
            for hint, layout in zip(
                leaf_hints(type, name), declared_layouts(self.checked.module, written, type), strict=True
            )
            if layout is not None
        }

    def split_type(self, name: str, type: LangType) -> str:
        """The type of an argument or a result, split as declared; a tangent is split as what it belongs to."""
        if isinstance(type, TupleType) and len(type.items) > 1:
            return tuple_text([self.split_type(f"{name}_{i}", item) for i, item in enumerate(type.items)])
        split = self.splits.get(name) or self.splits.get(name.removeprefix("d_"))
        return split_type_text(type, split) if split and isinstance(type, Tensor) else function_type_text(type)

    @property
    def result_type(self) -> str:
        """The type of the result: a gradient is split as what it belongs to."""
        result = grad_record_as_tuple(self.entry.type)
        names = [name or self.decl.name for name in self.result_names]
        if self.result_names[0] or not isinstance(result, TupleType):
            return self.split_types(names, result)
        value, tangents = result.items
        return tuple_text([self.split_type(names[0], value), self.split_types(names[1:], tangents)])

    def split_types(self, names: Sequence[str], type: LangType) -> str:
        """The type of several parts of a result, or of one."""
        parts = type.items if isinstance(type, TupleType) and len(names) > 1 else (type,)
        if len(parts) != len(names):  # gradients with products in each
            return function_type_text(type)
        return tuple_text([self.split_type(name, part) for name, part in zip(names, parts, strict=True)])

    def required_declarations(self) -> Iterator[tree.Record | tree.Enum]:
        """The records and enums that it uses, in dependency order."""
        for type in [a.type for a in self.arguments] + [t for _, t in self.global_values()] + [self.entry.type]:
            yield from declarations_in(type)

    def global_values(self) -> list[tuple[GlobalName, LangType]]:
        """The values of the file that it uses: they become parameters."""
        return [(g, g.var.type) for g in self.entry.globals if g.var is not None]

    def source_comment(self, span: Span) -> str:
        """A comment with the source line of a statement."""
        if not span or span.source.name.startswith("<"):
            return ""
        home = "" if span.source is self.decl.span.source else f"{span.source.name.rsplit('/', 1)[-1]} "
        text = " ".join(span.text.split())
        return f"{home}line {span.position[0]}" + (f": {text}" if len(text) <= SHORT else "")

    # ---- Names and values

    def reserved_names(self) -> NamePool:
        """The names that no generated variable may have: those of the language and of the program."""
        lexis = load_tables().lexis
        used = {*BUILTINS, *TRANSFORM_NAMES, *DTYPES, *lexis.words.values(), *lexis.words, self.name}
        used |= {"pi", "e", "inf", "nan"}
        # Variant and field names are not reserved by the language, but the text uses them.
        used |= (
            {g.name for g, _ in self.global_values()}
            | {a.name for a in self.arguments}
            | {n for a in self.arguments for d in declarations_in(a.type) for n in declared_names(d)}
        )
        for argument in self.arguments:
            for leaf in leaf_types(argument.type):
                used |= {n for d in leaf.shape for n in dim_names(d)}
        prelude = self.checked.module.prelude
        return NamePool(used | set(prelude.fns if prelude is not None else ()))

    def refuse_numbers(self) -> None:
        """Errors: CannotUnparse for a parameter that hides a constant used in derivatives."""
        for given in [*self.arguments, *[g for g, _ in self.global_values()]]:
            if given.name in ("nan", "inf"):
                way = f"rename it: derivatives use the name `{given.name}` for a number"
                raise CannotUnparse(f"it uses another value named `{given.name}`", self.decl.name_span, way)

    def bind_params(self, unparser: Unparser) -> None:
        """Bind the graph's params to the arguments' names; the items of tuples get names of their own."""
        values = iter(self.graph.params)
        for argument in self.arguments:
            if argument.size is not None:
                continue
            texts = self.name_parts(unparser, argument.type, argument.name)
            for text, type in zip(texts, leaf_types(argument.type), strict=True):
                unparser.env[next(values)] = name_fragment(text, type)
        for known, type in self.global_values():
            if any(a.name == known.name for a in self.arguments):
                raise CannotUnparse(f"it uses two values named `{known.name}`", self.decl.name_span, "rename one")
            for text, leaf in zip(self.name_parts(unparser, type, known.name), leaf_types(type), strict=True):
                unparser.env[next(values)] = name_fragment(text, leaf)

    def name_parts(self, unparser: Unparser, type: LangType, text: str) -> list[str]:
        """The texts that refer to the leaves of an argument."""
        if isinstance(type, TupleType):
            names = [unparser.names.fresh(f"{text.replace('.', '_')}_{i}") for i in range(len(type.items))]
            if names:
                unparser.emit(f"let ({', '.join(names)}) = {text}")
            return [p for t, n in zip(type.items, names, strict=True) for p in self.name_parts(unparser, t, n)]
        if isinstance(type, VariantType):
            names = [unparser.names.fresh(f"{text.replace('.', '_')}_{n}") for n in type.names]
            self.patterns.append(f"{type.name}({', '.join(names)})" if names else type.name)
            self.records.append((self.patterns[-1], type))
            return [p for t, n in zip(type.fields, names, strict=True) for p in self.name_parts(unparser, t, n)]
        if isinstance(type, RecordType):
            self.records.append((text, type))
            fields = zip(type.names, type.fields, strict=True)
            return [p for n, t in fields for p in self.name_parts(unparser, t, f"{text}.{n}")]
        if isinstance(type, SumType) and is_plain_enum_array(type):
            self.records.append((text, type))
            return name_leaves(unparser, type, text)
        return leaf_hints(type, text)

    def result_hints(self, result: LangType) -> dict[Value, str]:
        """Name hints for the parts of the result, which the loop variables behind them share."""
        found: dict[Value, str] = {}
        items = result.items if isinstance(result, TupleType) and len(self.result_names) > 1 else (result,)
        values = iter(self.graph.results)
        for name, item in zip(self.result_names, items, strict=False):
            for hint in leaf_hints(item, name):
                value = next(values)
                if name and not value.hint:
                    found.setdefault(value, hint.replace(".", "_"))
        return found

    def value(self, unparser: Unparser, result: LangType) -> str:
        values = iter(self.graph.results)

        def leaf(index: Sequence[str]) -> str:
            text = unparser.full_shape(next(values)).text
            if not index:
                return text
            if not text.isidentifier():
                name = unparser.names.fresh("items")
                unparser.emit(f"let {name} = {text}")
                text = name
            return f"{text}[{', '.join(index)}]"

        return ValueText(leaf, unparser.names.fresh, self.records).of(result)

    # ---- Runtime checks and verification

    def without_failure(self) -> tuple[Graph, Value | None]:
        """The graph without the details of a failed check, and the value of its site; None if no check can fail."""
        if not self.entry.fails:
            return self.graph, None
        *values, site, _, _ = self.graph.results
        graph = dce(self.graph.with_results([*values, site]))
        *values, site = graph.results
        made = {r: e for e in graph.eqns for r in e.results}
        # The optimizer may have proved that no check fails.
        never = site in made and made[site].op is const and made[site].attrs["value"] == 0
        return graph, None if never else site

    def verified_text(self, text: str) -> str:
        """The formatted text, after it has been parsed and checked. Errors: CannotUnparse."""
        laid_out = format_program(Source(f"<{self.name}>", text))
        wrong = check_program(Source(f"<{self.name}>", laid_out)).errors
        if wrong:
            for argument in self.arguments:
                if argument.name in BUILTINS:
                    way = f"rename it: derivatives use the name `{argument.name}` for a function"
                    raise CannotUnparse(f"a parameter is named `{argument.name}`", self.decl.name_span, way)
            raise CannotUnparse(f"the result does not check ({wrong[0].message})")
        return laid_out


def render_program(cases: Sequence[DerivativeText]) -> str:
    """The program of a rendered derivative, or of one for each case of variants. Errors: CannotUnparse."""
    first = cases[0]
    declared = dict.fromkeys(d for case in cases for d in case.required_declarations())
    known = {g.name: show_type(type) for case in cases for g, type in case.global_values()}
    taken = {a.name: "dim" if a.size is not None else first.split_type(a.name, a.type) for a in first.arguments} | known
    params = ", ".join([f"{name}: {type}" for name, type in taken.items()])
    body = first.body
    if first.patterns:
        chosen = [a.name for a in first.arguments if isinstance(a.type, VariantType)]
        bodies = [f"{{\n{case.body}\n}}" if "\n" in case.body else case.body for case in cases]
        arms = [f"{tuple_text(case.patterns)} => {body}" for case, body in zip(cases, bodies, strict=True)]
        body = "\n".join([f"match {tuple_text(chosen)} {{", *arms, "}"])
    head = "@unchecked\n" * any(case.unchecked for case in cases)
    lines = "\n".join([*first.first_lines(), *map(declaration_text, declared)])
    return first.verified_text(f"{lines}\n\n{head}fn {first.name}({params}) -> {first.result_type} {{\n{body}\n}}\n")


def declaration_text(decl: tree.Record | tree.Enum) -> str:
    """The text of a declaration beside those that it names: `nn.Norm[c]` is `Norm[c]` there."""
    text, start = decl.span.text, decl.span.start
    named = [n for n in all_nodes(decl) if isinstance(n, (tree.TypeName, tree.TypeApply)) and len(n.path) > 1]
    for node in sorted(named, key=lambda n: -n.span.start):
        at, module = node.span.start - start, ".".join(node.path[:-1]) + "."
        text = text[:at] + text[at:].removeprefix(module)
    return text.removeprefix("pub ")


def tuple_text(texts: Sequence[str]) -> str:
    return texts[0] if len(texts) == 1 else f"({', '.join(texts)})"


def grad_record_as_tuple(type: LangType) -> LangType:
    """A record of several gradients, which no program declares, as a tuple."""
    if isinstance(type, RecordType) and type.decl.name == "grad":
        return TupleType(type.fields)
    if isinstance(type, TupleType):
        return TupleType(tuple(map(grad_record_as_tuple, type.items)))
    return type


class ValueText(Struct, frozen=True):
    """The text of a value: tuples as such, a record's tangent by its nonzero fields, an array of records by its items.

    `leaf` gives the text of the next leaf at an index, `fresh` a name that nothing has.
    """

    leaf: Callable[[Sequence[str]], str]
    fresh: Callable[[str], str]
    given: Sequence[tuple[str, Tangible]]

    def of(self, type: LangType, index: tuple[str, ...] = (), like: str = "") -> str:
        """The text of a value of that type; `like` is that of the primal value whose tangent it is."""
        match type:
            case TupleType(items=items):
                return f"({', '.join([self.of(t, index) for t in items])})"
            case RecordType(tangent=True) | VariantType(tangent=True):
                return self.tangent(type, index, like)
            case RecordType(axes=axes):
                return self.items(type, axes[len(index) :], index)
            case VariantType():
                return self.call(type.name, type, index)
            case SumType() if is_plain_enum_array(type) and type.variants[0].tangent and not index:
                text = like or primal_of_tangent(type, self.given)
                primal = next(found for at, found in self.given if at == text)
                assert isinstance(primal, SumType)
                return tangent_items(type, text, primal, self.leaf, self.fresh)
            case _:
                if isinstance(type, SumType) or len(leaf_types(type)) != 1:
                    raise CannotUnparse(f"a result of type {show_type(type)}")
                return self.leaf(index)

    def tangent(self, type: RecordOrVariant, index: tuple[str, ...], like: str) -> str:
        if index:
            raise CannotUnparse(f"a tangent of {with_article(type.decl.name)} in an array of records")
        like = like or primal_of_tangent(type, self.given)
        inside = f"{like}." if isinstance(type, RecordType) else ""
        pairs = zip(type.names, type.fields, strict=True)
        fields = ", ".join([f"{n} = {self.of(t, (), inside and f'{inside}{n}')}" for n, t in pairs])
        return f"zeros_like({like})" + (f" with ({fields})" if fields else "")

    def items(self, type: RecordType, axes: Sequence[Dim], index: tuple[str, ...]) -> str:
        """A record, or a comprehension for each axis of an array of them."""
        names = [self.fresh("i") for _ in axes]
        text = self.call(type.decl.name, type, (*index, *names))
        for name, size in reversed([*zip(names, axes, strict=True)]):
            text = f"[for {name} in 0..{size} => {text}]"
        return text

    def call(self, name: str, type: RecordOrVariant, index: tuple[str, ...]) -> str:
        pairs = zip(type.names, type.fields, strict=True)
        fields = ", ".join([f"{n} = {self.of(t, index)}" for n, t in pairs])
        return f"{name}({fields})" if fields or isinstance(type, RecordType) else name


def primal_of_tangent(type: Tangible, given: Sequence[tuple[str, Tangible]]) -> str:
    """The text of a record or variant among the arguments whose tangent has this type: the outermost one."""
    for text, found in sorted(given, key=lambda each: each[0].count(".")):
        if tangent_type(found) == type:
            return text
    raise CannotUnparse(f"a tangent of {with_article(show_type(type))} that is not an argument")


def declarations_in(type: LangType) -> Iterator[tree.Record | tree.Enum]:
    """The records and enums in a type, in dependency order."""
    match type:
        case RecordType() | VariantType():
            for each in type.fields:
                yield from declarations_in(each)
            if type.decl.name != "grad":
                yield type.decl
        case TupleType(items=parts) | SumType(options=parts):
            for each in parts:
                yield from declarations_in(each)
        case _:
            return


def declared_names(decl: tree.Record | tree.Enum) -> list[str]:
    return [decl.name, *([v.name for v in decl.variants] if isinstance(decl, tree.Enum) else [])]
