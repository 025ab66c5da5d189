"""A derivative as text: the records that it needs, its head, its statements, its result; laid out and checked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct, field

from difflang.base.source import Source, Span
from difflang.check.modules import Global
from difflang.check.types import LangType, RecordType, TupleType, leaf_types, show_type, tangent_type
from difflang.driver.entry import Argument, Entry
from difflang.driver.given import shown
from difflang.driver.program import Checked, check
from difflang.elaborate.builtins import BUILTINS, TRANSFORMS
from difflang.elaborate.terms import leaf_hints
from difflang.ir.dims import names
from difflang.ir.graph import Graph, Value
from difflang.ir.types import DTYPES
from difflang.passes.dce import dce
from difflang.spell.body import Names, Speller
from difflang.spell.words import Unspelled, Words, name
from difflang.syntax import tree
from difflang.syntax.format import format
from difflang.syntax.tables import tables

SHORT = 32  # characters of a source text that a comment repeats


class Written(Struct, eq=False):
    """A derivative on its way to text."""

    checked: Checked
    decl: tree.Fn
    name: str
    arguments: tuple[Argument, ...]
    entry: Entry
    graph: Graph
    wanted: Sequence[str]  # what the parts of the result are called
    what: str  # a line that says what this is
    records: list[tuple[str, RecordType]] = field(default_factory=list[tuple[str, RecordType]])  # the program's own

    def text(self) -> str:
        """The program. Errors: Unspelled."""
        self.refuse_numbers()
        result = as_tuple(self.entry.type)
        self.graph, site = self.without_failure()
        hidden = frozenset([a.name for a in self.arguments])
        speller = Speller(self.names(), self.note, self.hints(result), hidden=hidden)
        self.know_params(speller)
        speller.graph(self.graph)
        if site is not None:
            self.assert_site(speller, site)
        value = self.value(speller, result)
        body = "\n".join([*speller.lines, value])
        head = "@unchecked\n" * speller.unchecked[0]
        text = f"{self.preface()}{head}fn {self.name}({self.params()}) -> {show_type(result)} {{\n{body}\n}}\n"
        return self.proved(text)

    # ---- what stands around it

    def preface(self) -> str:
        """The default float, what this is, and the records."""
        module = self.checked.module
        lines = [f"float {module.default_float}"] if module.default_float.name != "f32" else []
        lines.append(f"# {self.what}: {module.source.name}, line {self.decl.name_span.position[0]}.")
        found: dict[tree.Record, None] = {}
        for type in [a.type for a in self.arguments] + [t for _, t in self.known()] + [self.entry.type]:
            for record in records_in(type):
                found.setdefault(record)
        lines += [record_text(r) for r in found]
        return "\n".join(lines) + "\n\n"

    def params(self) -> str:
        taken = [(a.name, "dim" if a.size is not None else shown(a.type)) for a in self.arguments]
        taken += [(g.name, show_type(type)) for g, type in self.known()]
        return ", ".join(f"{name}: {type}" for name, type in taken)

    def known(self) -> list[tuple[Global, LangType]]:
        """The values of the file that it uses: they become parameters."""
        return [(g, g.var.type) for g in self.entry.globals if g.var is not None]

    def note(self, span: Span) -> str:
        """The line that a statement comes from."""
        if not span or span.source.name.startswith("<"):
            return ""
        home = "" if span.source is self.decl.span.source else f"{span.source.name.rsplit('/', 1)[-1]} "
        text = " ".join(span.text.split())
        return f"{home}line {span.position[0]}" + (f": {text}" if len(text) <= SHORT else "")

    # ---- names and values

    def names(self) -> Names:
        """The names that nothing new is called by: those of the language and of the program."""
        used = {
            *BUILTINS,
            *TRANSFORMS,
            *DTYPES,
            *tables().lexis.words.values(),
            *tables().lexis.words,
            self.name,
            "pi",
            "e",
            "inf",
            "nan",
        }
        used |= (
            {g.name for g, _ in self.known()}
            | {a.name for a in self.arguments}
            | {r.name for a in self.arguments for r in records_in(a.type)}
        )
        for argument in self.arguments:
            for leaf in leaf_types(argument.type):
                used |= {n for d in leaf.shape for n in names(d)}
        prelude = self.checked.module.prelude
        return Names(used | set(prelude.fns if prelude is not None else ()))

    def refuse_numbers(self) -> None:
        """Errors: Unspelled for a parameter that hides a number which derivatives are written with."""
        for given in [*self.arguments, *[g for g, _ in self.known()]]:
            if given.name in ("nan", "inf"):
                way = f"rename it: derivatives are written with the number `{given.name}`"
                raise Unspelled(f"it uses something called `{given.name}`", self.decl.name_span, way)

    def know_params(self, speller: Speller) -> None:
        """Arguments are what their names say; of tuples, their parts get names."""
        values = iter(self.graph.params)
        for argument in self.arguments:
            if argument.size is not None:
                continue
            texts = self.parts(speller, argument.type, argument.name)
            for text, type in zip(texts, leaf_types(argument.type), strict=True):
                speller.env[next(values)] = name(text, type)
        for known, type in self.known():
            if any(a.name == known.name for a in self.arguments):
                raise Unspelled(f"it uses two values called `{known.name}`", self.decl.name_span, "rename one")
            for text, leaf in zip(self.parts(speller, type, known.name), leaf_types(type), strict=True):
                speller.env[next(values)] = name(text, leaf)

    def parts(self, speller: Speller, type: LangType, text: str) -> list[str]:
        """What the arrays in an argument are called."""
        if isinstance(type, TupleType):
            names = [speller.names.fresh(f"{text.replace('.', '_')}_{i}") for i in range(len(type.items))]
            if names:
                speller.say(f"let ({', '.join(names)}) = {text}")
            return [p for t, n in zip(type.items, names, strict=True) for p in self.parts(speller, t, n)]
        if isinstance(type, RecordType):
            self.records.append((text, type))
            fields = zip(type.names, type.fields, strict=True)
            return [p for n, t in fields for p in self.parts(speller, t, f"{text}.{n}")]
        return leaf_hints(type, text)

    def hints(self, result: LangType) -> dict[Value, str]:
        """What the parts of the result are called, and the loops' variables that become them."""
        found: dict[Value, str] = {}
        items = result.items if isinstance(result, TupleType) and len(self.wanted) > 1 else (result,)
        values = iter(self.graph.results)
        for wanted, item in zip(self.wanted, items, strict=False):
            for leaf, hint in zip(leaf_types(item), leaf_hints(item, wanted), strict=True):
                del leaf
                value = next(values)
                if wanted and not value.hint:
                    found.setdefault(value, hint.replace(".", "_"))
        return found

    def value(self, speller: Speller, result: LangType) -> str:
        values = iter(self.graph.results)
        return built(result, lambda: speller.exact(next(values)), self.records)

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

    def assert_site(self, speller: Speller, site: Value) -> None:
        """The checks of the function, as one at its end."""
        words = speller.words(site)
        speller.say(f'assert {words.at(6)} == 0, "a check of `{self.decl.name}` fails"')

    def proved(self, text: str) -> str:
        """The text laid out, once it is known to be a program. Errors: Unspelled."""
        laid_out = format(Source(f"<{self.name}>", text))
        wrong = check(Source(f"<{self.name}>", laid_out)).errors
        if wrong:
            for argument in self.arguments:
                if argument.name in BUILTINS:
                    way = f"rename it: derivatives are written with the function `{argument.name}`"
                    raise Unspelled(f"a parameter is called `{argument.name}`", self.decl.name_span, way)
            raise Unspelled(f"what was written does not check ({wrong[0].message})")
        return laid_out


def as_tuple(type: LangType) -> LangType:
    """A record of several gradients, which no program declares, as a tuple."""
    if isinstance(type, RecordType) and type.decl.name == "grad":
        return TupleType(type.fields)
    if isinstance(type, TupleType):
        return TupleType(tuple(map(as_tuple, type.items)))
    return type


def built(type: LangType, leaf: Callable[[], Words], given: Sequence[tuple[str, RecordType]], like: str = "") -> str:
    """A value of that type: tuples as such, a change of a record by the fields that differ from none.

    `like` is a value of the program whose change it is.
    """
    match type:
        case TupleType(items=items):
            return f"({', '.join([built(t, leaf, given) for t in items])})"
        case RecordType(tangent=tangent):
            like = like or (point_like(type, given) if tangent else "")
            pairs = zip(type.names, type.fields, strict=True)
            fields = ", ".join([f"{n} = {built(t, leaf, given, f'{like}.{n}' if like else '')}" for n, t in pairs])
            return f"zeros_like({like}) with ({fields})" if tangent else f"{type.decl.name}({fields})"
        case _:
            if len(leaf_types(type)) != 1:
                raise Unspelled(f"a result of type {show_type(type)}")
            return leaf().text


def point_like(type: RecordType, given: Sequence[tuple[str, RecordType]]) -> str:
    """A record of the arguments, or of a part of one, whose change that is: the outermost one."""
    for text, found in sorted(given, key=lambda each: each[0].count(".")):
        if tangent_type(found) == type:
            return text
    raise Unspelled(f"a change of a {type.decl.name} that is no argument")


def records_in(type: LangType) -> Iterator[tree.Record]:
    """The records in a type, those in others first."""
    match type:
        case RecordType():
            for each in type.fields:
                yield from records_in(each)
            if type.decl.name != "grad":
                yield type.decl
        case TupleType():
            for each in type.items:
                yield from records_in(each)
        case _:
            return


def record_text(record: tree.Record) -> str:
    return record.span.text.removeprefix("pub ")
