"""A derivative as text: the records that it needs, its head, its statements, its result; laid out and checked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct, field

from difflang.base.source import Source, Span
from difflang.driver.check_and_run import CheckedProgram, check_program
from difflang.driver.elaborate_call import CallArgument, ElaboratedCall
from difflang.elaborate.calls.builtin_functions import BUILTINS, TRANSFORM_NAMES
from difflang.elaborate.terms import leaf_hints
from difflang.ir.graph import Graph, Value
from difflang.ir.symbolic_dims import dim_names
from difflang.ir.tensor_types import DTYPES
from difflang.passes.dce import dce
from difflang.syntax import tree
from difflang.syntax.formatter.format_program import format_program
from difflang.syntax.parser_tables import load_tables
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
from difflang.unparse.fragments import CannotUnparse, Fragment, name_fragment
from difflang.unparse.unparser import NamePool, Unparser

RecordOrVariant = RecordType | VariantType
SHORT = 32  # characters of a source text that a comment repeats


class DerivativeText(Struct, eq=False):
    """A derivative on its way to text."""

    checked: CheckedProgram
    decl: tree.Fn
    name: str
    arguments: tuple[CallArgument, ...]
    entry: ElaboratedCall
    graph: Graph
    result_names: Sequence[str]  # what the parts of the result are called
    caption: str  # a line that says what this is
    records: list[tuple[str, RecordOrVariant]] = field(
        default_factory=list[tuple[str, RecordOrVariant]]
    )  # records and variants, as written
    patterns: list[str] = field(default_factory=list[str])  # of the arguments whose variant is known
    body: str = ""
    unchecked: bool = False

    def render_body(self) -> DerivativeText:
        """This, with the statements and the result. Errors: Unspelled."""
        self.refuse_numbers()
        result = grad_record_as_tuple(self.entry.type)
        self.graph, site = self.without_failure()
        hidden = frozenset([a.name for a in self.arguments])
        speller = Unparser(self.reserved_names(), self.source_comment, self.result_hints(result), hidden=hidden)
        self.bind_params(speller)
        speller.graph(self.graph)
        if site is not None:
            self.assert_site(speller, site)
        value = self.value(speller, result)
        self.body = "\n".join([*speller.lines, value])
        self.unchecked = speller.unchecked[0]
        return self

    # ---- what stands around it

    def first_lines(self) -> list[str]:
        """The default float, and what this is."""
        module = self.checked.module
        lines = [f"float {module.default_float}"] if module.default_float.name != "f32" else []
        return [*lines, f"# {self.caption}: {module.source.name}, line {self.decl.name_span.position[0]}."]

    def required_declarations(self) -> Iterator[tree.Record | tree.Enum]:
        """The records and enums that it needs, those in others first."""
        for type in [a.type for a in self.arguments] + [t for _, t in self.global_values()] + [self.entry.type]:
            yield from declarations_in(type)

    def global_values(self) -> list[tuple[GlobalName, LangType]]:
        """The values of the file that it uses: they become parameters."""
        return [(g, g.var.type) for g in self.entry.globals if g.var is not None]

    def source_comment(self, span: Span) -> str:
        """The line that a statement comes from."""
        if not span or span.source.name.startswith("<"):
            return ""
        home = "" if span.source is self.decl.span.source else f"{span.source.name.rsplit('/', 1)[-1]} "
        text = " ".join(span.text.split())
        return f"{home}line {span.position[0]}" + (f": {text}" if len(text) <= SHORT else "")

    # ---- names and values

    def reserved_names(self) -> NamePool:
        """The names that nothing new is called by: those of the language and of the program."""
        used = {
            *BUILTINS,
            *TRANSFORM_NAMES,
            *DTYPES,
            *load_tables().lexis.words.values(),
            *load_tables().lexis.words,
            self.name,
            "pi",
            "e",
            "inf",
            "nan",
        }
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
        """Errors: Unspelled for a parameter that hides a number which derivatives are written with."""
        for given in [*self.arguments, *[g for g, _ in self.global_values()]]:
            if given.name in ("nan", "inf"):
                way = f"rename it: derivatives use the name `{given.name}` for a number"
                raise CannotUnparse(f"it uses another value named `{given.name}`", self.decl.name_span, way)

    def bind_params(self, speller: Unparser) -> None:
        """Arguments are what their names say; of tuples, their parts get names."""
        values = iter(self.graph.params)
        for argument in self.arguments:
            if argument.size is not None:
                continue
            texts = self.name_parts(speller, argument.type, argument.name)
            for text, type in zip(texts, leaf_types(argument.type), strict=True):
                speller.env[next(values)] = name_fragment(text, type)
        for known, type in self.global_values():
            if any(a.name == known.name for a in self.arguments):
                raise CannotUnparse(f"it uses two values named `{known.name}`", self.decl.name_span, "rename one")
            for text, leaf in zip(self.name_parts(speller, type, known.name), leaf_types(type), strict=True):
                speller.env[next(values)] = name_fragment(text, leaf)

    def name_parts(self, speller: Unparser, type: LangType, text: str) -> list[str]:
        """What the arrays in an argument are called."""
        if isinstance(type, TupleType):
            names = [speller.names.fresh(f"{text.replace('.', '_')}_{i}") for i in range(len(type.items))]
            if names:
                speller.emit(f"let ({', '.join(names)}) = {text}")
            return [p for t, n in zip(type.items, names, strict=True) for p in self.name_parts(speller, t, n)]
        if isinstance(type, VariantType):
            names = [speller.names.fresh(f"{text.replace('.', '_')}_{n}") for n in type.names]
            self.patterns.append(f"{type.name}({', '.join(names)})" if names else type.name)
            self.records.append((self.patterns[-1], type))
            return [p for t, n in zip(type.fields, names, strict=True) for p in self.name_parts(speller, t, n)]
        if isinstance(type, RecordType):
            self.records.append((text, type))
            fields = zip(type.names, type.fields, strict=True)
            return [p for n, t in fields for p in self.name_parts(speller, t, f"{text}.{n}")]
        return leaf_hints(type, text)

    def result_hints(self, result: LangType) -> dict[Value, str]:
        """What the parts of the result are called, and the loops' variables that become them."""
        found: dict[Value, str] = {}
        items = result.items if isinstance(result, TupleType) and len(self.result_names) > 1 else (result,)
        values = iter(self.graph.results)
        for wanted, item in zip(self.result_names, items, strict=False):
            for leaf, hint in zip(leaf_types(item), leaf_hints(item, wanted), strict=True):
                del leaf
                value = next(values)
                if wanted and not value.hint:
                    found.setdefault(value, hint.replace(".", "_"))
        return found

    def value(self, speller: Unparser, result: LangType) -> str:
        values = iter(self.graph.results)
        return value_text(result, lambda: speller.full_shape(next(values)), self.records)

    # ---- checks

    def without_failure(self) -> tuple[Graph, Value | None]:
        """The graph without what says why a check failed; which one it was stays."""
        if not self.entry.fails:
            return self.graph, None
        *values, site, _, _ = self.graph.results
        graph = dce(self.graph.with_results([*values, site]))
        *values, site = graph.results
        made = {r: e for e in graph.eqns for r in e.results}
        never = site in made and made[site].op.name == "const" and made[site].attrs["value"] == 0
        return graph, None if never else site

    def assert_site(self, speller: Unparser, site: Value) -> None:
        """The checks of the function, as one at its end."""
        words = speller.words(site)
        speller.emit(f'assert {words.at(6)} == 0, "a check of `{self.decl.name}` fails"')

    def verified_text(self, text: str) -> str:
        """The text laid out, once it is known to be a program. Errors: Unspelled."""
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
    """A derivative that was spelled, or one for each case of variants. Errors: Unspelled."""
    first = cases[0]
    declared = dict.fromkeys(d for case in cases for d in case.required_declarations())
    known = {g.name: show_type(type) for case in cases for g, type in case.global_values()}
    taken = {a.name: "dim" if a.size is not None else function_type_text(a.type) for a in first.arguments} | known
    params = ", ".join([f"{name}: {type}" for name, type in taken.items()])
    body = first.body
    if first.patterns:
        chosen = [a.name for a in first.arguments if isinstance(a.type, VariantType)]
        bodies = [f"{{\n{case.body}\n}}" if "\n" in case.body else case.body for case in cases]
        arms = [f"{tuple_text(case.patterns)} => {body}" for case, body in zip(cases, bodies, strict=True)]
        body = "\n".join([f"match {tuple_text(chosen)} {{", *arms, "}"])
    head = "@unchecked\n" * any(case.unchecked for case in cases)
    lines = "\n".join([*first.first_lines(), *[d.span.text.removeprefix("pub ") for d in declared]])
    result = show_type(grad_record_as_tuple(first.entry.type))
    return first.verified_text(f"{lines}\n\n{head}fn {first.name}({params}) -> {result} {{\n{body}\n}}\n")


def tuple_text(texts: Sequence[str]) -> str:
    return texts[0] if len(texts) == 1 else f"({', '.join(texts)})"


def grad_record_as_tuple(type: LangType) -> LangType:
    """A record of several gradients, which no program declares, as a tuple."""
    if isinstance(type, RecordType) and type.decl.name == "grad":
        return TupleType(type.fields)
    if isinstance(type, TupleType):
        return TupleType(tuple(map(grad_record_as_tuple, type.items)))
    return type


def value_text(
    type: LangType, leaf: Callable[[], Fragment], given: Sequence[tuple[str, RecordOrVariant]], like: str = ""
) -> str:
    """A value of that type: tuples as such, a change of a record by the fields that differ from none.

    `like` is a value of the program whose change it is.
    """
    match type:
        case TupleType(items=items):
            return f"({', '.join([value_text(t, leaf, given) for t in items])})"
        case RecordType(tangent=tangent) | VariantType(tangent=tangent):
            like = like or (primal_of_tangent(type, given) if tangent else "")
            inner = f"{like}." if like and isinstance(type, RecordType) else ""
            pairs = zip(type.names, type.fields, strict=True)
            fields = ", ".join(
                [f"{n} = {value_text(t, leaf, given, f'{inner}{n}' if inner else '')}" for n, t in pairs]
            )
            if tangent:
                return f"zeros_like({like})" + (f" with ({fields})" if fields else "")
            return f"{type.name if isinstance(type, VariantType) else type.decl.name}" + (
                f"({fields})" if fields else ""
            )
        case _:
            if isinstance(type, SumType) or len(leaf_types(type)) != 1:
                raise CannotUnparse(f"a result of type {show_type(type)}")
            return leaf().text


def primal_of_tangent(type: RecordOrVariant, given: Sequence[tuple[str, RecordOrVariant]]) -> str:
    """A record or variant of the arguments, or of a part of one, whose change that is: the outermost one."""
    for text, found in sorted(given, key=lambda each: each[0].count(".")):
        if tangent_type(found) == type:
            return text
    raise CannotUnparse(f"a tangent of a {type.decl.name} that is not an argument")


def declarations_in(type: LangType) -> Iterator[tree.Record | tree.Enum]:
    """The records and enums in a type, those in others first."""
    match type:
        case RecordType() | VariantType():
            for each in type.fields:
                yield from declarations_in(each)
            if type.decl.name != "grad":
                yield type.decl
        case TupleType():
            for each in type.items:
                yield from declarations_in(each)
        case _:
            return


def declared_names(decl: tree.Record | tree.Enum) -> list[str]:
    return [decl.name, *([v.name for v in decl.variants] if isinstance(decl, tree.Enum) else [])]
