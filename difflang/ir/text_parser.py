"""The parser of IR text, as `ir/text_printer.py` prints it. An error gives a diagnostic at its source position."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import NoReturn, TypeVar

from difflang.base.diagnostics import Diagnostic, DifflangError, Label
from difflang.base.source import Source, Span
from difflang.ir.builder import Builder
from difflang.ir.graph import Attr, Eqn, Graph, Value, Values
from difflang.ir.op import OPS
from difflang.ir.symbolic_dims import Dim, floor_div
from difflang.ir.symbolic_dims import dim_name as dim_name
from difflang.ir.tensor_types import DTYPES, History, Tensor, Type
from difflang.ir.verify import MalformedGraph, check_graph

T = TypeVar("T")
# Of nested regions, tuples and parentheses: the parser recurses, and must fail before Python's stack does.
MAX_DEPTH = 200

STRING = r'"(?:\\.|[^"\\\n])*"'
# The order of the alternatives matters: a float begins like an int.
TOKEN = re.compile(
    rf"""(?P<skip>[ \t\r\n]+|;[^\n]*)
    |(?P<value>%(?:{STRING}|[^\W\d][\w.]*|\d+)(?:\#\d+)?)
    |(?P<graph>@[^\W\d][\w.]*)
    |(?P<string>{STRING})
    |(?P<float>-?(?:\d+\.\d*(?:e[+-]?\d+)?|\d+e[+-]?\d+|(?:inf|nan)(?!\w)))
    |(?P<int>-?\d+)
    |(?P<word>[^\W\d][\w.']*)
    |(?P<mark>//|[][(){{}},:=+*<>-])
    |(?P<bad>.)""",
    re.VERBOSE | re.DOTALL,
)


def graph_from_text(text: str, name: str = "<ir>") -> Graph:
    """The graph that a text describes, its last definition. Errors: DifflangError. Cost: linear."""
    return IrTextParser(Source(name, text)).parse_graphs()


def type_from_text(text: str) -> Type:
    """Errors: DifflangError."""
    return IrTextParser(Source("<type>", text)).parse_all(IrTextParser.type)


def dim_from_text(text: str) -> Dim:
    """Errors: DifflangError."""
    return IrTextParser(Source("<size>", text)).parse_all(IrTextParser.dim)


class IrTextParser:
    """A recursive-descent parser of one text, with one method for each construct."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.tokens: list[tuple[str, str, int]] = []
        for found in TOKEN.finditer(source.text):
            if (kind := found.lastgroup or "bad") != "skip":
                self.tokens.append((kind, found.group(), found.start()))
        self.tokens += [("end", "", len(source.text))] * 2  # two, so that one can look ahead
        self.at = 0
        self.depth = 0
        self.graphs: dict[str, Graph] = {}
        self.types: dict[tuple[str, ...], Type] = {}

    # ---- Tokens

    def fail(self, message: str, at: int | None = None) -> NoReturn:
        _, text, start = self.tokens[self.at if at is None else at]
        self.fail_at(message, Span(self.source, start, start + len(text)))

    def fail_at(self, message: str, span: Span) -> NoReturn:
        raise DifflangError(Diagnostic("DL1203", message, (Label(span),)))

    def peek(self, text: str) -> bool:
        return self.tokens[self.at][1] == text

    def skip(self, text: str) -> bool:
        if self.tokens[self.at][1] == text:
            self.at += 1
            return True
        return False

    def expect(self, text: str) -> None:
        if not self.skip(text):
            self.fail(f"expected `{text}` here, found {self.current_token()}")

    def current_token(self) -> str:
        kind, text, _ = self.tokens[self.at]
        return "the end" if kind == "end" else f"`{text[:40]}`"

    def take(self, kind: str, what: str) -> str:
        if self.tokens[self.at][0] != kind:
            self.fail(f"expected {what} here, found {self.current_token()}")
        self.at += 1
        return self.tokens[self.at - 1][1]

    def parse_all(self, read: Callable[[IrTextParser], T]) -> T:
        answer = read(self)
        if self.tokens[self.at][0] != "end":
            self.fail(f"expected the end here, found {self.current_token()}")
        return answer

    def comma_separated(self, read: Callable[[], T], end: str) -> list[T]:
        """Items separated by commas, up to `end`."""
        things: list[T] = []
        while not self.skip(end):
            things.append(read())
            if not self.skip(","):
                self.expect(end)
                break
        return things

    def parse_nested(self, read: Callable[[], T]) -> T:
        if self.depth == MAX_DEPTH:
            self.fail("this is nested too deeply")
        self.depth += 1
        answer = read()
        self.depth -= 1
        return answer

    # ---- Graphs

    def parse_graphs(self) -> Graph:
        graph = None
        while graph is None or self.tokens[self.at][0] != "end":
            self.expect("graph")
            start = self.at
            name = self.take("graph", "a name like `@main`")[1:]
            if name in self.graphs:
                self.fail(f"`@{name}` is defined twice", start)
            graph = self.graph_body(self.string() if self.tokens[self.at][0] == "string" else name)
            self.graphs[name] = graph
        try:
            check_graph(graph)
        except MalformedGraph as fault:
            span = fault.eqn.span if fault.eqn else Span(self.source, 0, min(5, len(self.source.text)))
            self.fail_at(fault.message, span)
        return graph

    def graph_body(self, name: str) -> Graph:
        home = Builder()
        scope: dict[str, Value] = {}
        self.expect("(")
        params = tuple(self.comma_separated(lambda: self.definition(scope, home), ")"))
        self.expect("{")
        eqns: list[Eqn] = []
        while not self.skip("yield"):
            eqns.append(self.equation(scope, home))
        results = self.operands(scope)
        self.expect("}")
        return Graph(params, tuple(eqns), results, name)

    def definition(self, scope: dict[str, Value], home: Builder) -> Value:
        at = self.at
        text = self.take("value", "a value like `%x`")
        self.expect(":")
        type = self.type()
        if text in scope:
            self.fail(f"`{text}` is defined twice", at)
        value = scope[text] = Value(type, home, self.hint(text, at))
        return value

    def hint(self, text: str, at: int) -> str:
        if text[1] == '"':
            return self.unescape(text[1 : text.rindex('"') + 1], at)
        return "" if text[1].isdigit() else text[1:].partition("#")[0]

    def operands(self, scope: dict[str, Value]) -> Values:
        values: list[Value] = []
        while self.tokens[self.at][0] == "value" and self.tokens[self.at + 1][1] != ":":
            text = self.tokens[self.at][1]
            if text not in scope:
                self.fail(f"`{text}` is not defined above")
            values.append(scope[text])
            self.at += 1
            if not self.skip(","):
                return tuple(values)
            if self.tokens[self.at][0] != "value":
                self.fail(f"expected a value here, found {self.current_token()}")
        return tuple(values)

    def equation(self, scope: dict[str, Value], home: Builder) -> Eqn:
        start = self.tokens[self.at][2]
        heads: list[int] = []
        types: list[Type] = []
        while self.tokens[self.at][0] == "value":
            heads.append(self.at)
            self.at += 1
            self.expect(":")
            types.append(self.type())
            if not self.skip(","):
                break
        if heads:
            self.expect("=")
        at = self.at
        op = OPS.get(self.take("word", "an op"))
        if op is None:
            way = "; if a module of Python declares it, import that first"
            self.fail(f"there is no op called `{self.tokens[at][1]}`{way}", at)
        operands = self.operands(scope)
        attrs = self.attrs() if self.skip("{") else {}
        regions: list[Graph] = []
        while self.tokens[self.at][0] in ("graph", "string") or self.peek("("):
            regions.append(self.parse_nested(self.region))
        # Results enter the scope only now, so an equation cannot read its own results.
        results: list[Value] = []
        for head, type in zip(heads, types, strict=True):
            text = self.tokens[head][1]
            if text in scope:
                self.fail(f"`{text}` is defined twice", head)
            scope[text] = Value(type, home, self.hint(text, head))
            results.append(scope[text])
        _, last, end = self.tokens[self.at - 1]
        return Eqn(op, operands, tuple(results), attrs, tuple(regions), Span(self.source, start, end + len(last)))

    def region(self) -> Graph:
        kind, text, _ = self.tokens[self.at]
        if kind == "string":
            return self.graph_body(self.string())
        if kind != "graph":
            return self.graph_body("")
        self.at += 1
        if self.peek("("):
            return self.graph_body(text[1:])
        if text[1:] not in self.graphs:
            self.fail(f"the graph `{text}` is not defined above", self.at - 1)
        return self.graphs[text[1:]]

    # ---- Attributes, types, sizes

    def attrs(self) -> dict[str, Attr]:
        attrs: dict[str, Attr] = {}
        for name, value in self.comma_separated(self.attribute, "}"):
            if name in attrs:
                self.fail(f"attribute {name} is given twice", self.at - 1)
            attrs[name] = value
        return attrs

    def attribute(self) -> tuple[str, Attr]:
        name = self.take("word", "an attribute")
        self.expect("=")
        return name, self.attr()

    def attr(self) -> Attr:
        kind, text, _ = self.tokens[self.at]
        if kind == "word":
            return self.word(text)
        if kind == "string":
            return self.string()
        if kind in ("int", "float"):
            return self.number()
        self.expect("(")
        return self.parse_nested(lambda: tuple(self.comma_separated(self.attr, ")")))

    def word(self, text: str) -> Attr:
        if text in DTYPES and self.tokens[self.at + 1][1] != "[":
            self.at += 1
            return DTYPES[text]
        if text in ("none", "true", "false"):
            self.at += 1
            return {"none": None, "true": True, "false": False}[text]
        if text in ("dim", "complex"):
            self.at += 1
            self.expect("(")
            if text == "dim":
                size = self.dim()
                self.expect(")")
                return size
            parts = self.comma_separated(self.number, ")")
            if len(parts) != 2:
                self.fail("a complex number needs two parts", self.at - 1)
            return complex(*parts)
        return self.type()

    def number(self) -> int | float:
        kind, text, _ = self.tokens[self.at]
        if kind not in ("int", "float"):
            self.fail(f"expected a number here, found {self.current_token()}")
        self.at += 1
        try:
            return int(text) if kind == "int" else float(text)
        except ValueError:
            self.fail("this number is too long", self.at - 1)

    def string(self) -> str:
        return self.unescape(self.take("string", "a string"), self.at - 1)

    def unescape(self, text: str, at: int) -> str:
        try:
            return json.loads(text, strict=False)
        except ValueError:
            self.fail("this string contains an invalid escape", at)

    def type(self) -> Type:
        at = self.at
        text = self.take("word", "a type")
        self.expect("[")
        if text == "history":
            item = self.parse_nested(self.type)
            self.expect("]")
            return History(item)
        if text not in DTYPES:
            self.fail(f"there is no element type called `{text}`", at)
        shape = tuple(self.comma_separated(self.dim, "]"))
        if any(isinstance(size, int) and size < 0 for size in shape):
            self.fail("a size is not negative", at)
        return Tensor(DTYPES[text], shape)

    def dim(self) -> Dim:
        """A sum of products and quotients: `//` binds as `*` does."""
        total = -self.product() if self.skip("-") else self.product()
        while True:
            if self.skip("+"):
                total = total + self.product()
            elif self.skip("-"):
                total = total - self.product()
            else:
                return total

    def product(self) -> Dim:
        product = self.factor()
        while True:
            at = self.at + 1
            if self.skip("*"):
                product = product * self.factor()
            elif self.skip("//"):
                divisor = self.factor()
                if divisor == 0:
                    self.fail("division of a size by zero", at)
                product = floor_div(product, divisor)
            else:
                return product

    def factor(self) -> Dim:
        kind, text, _ = self.tokens[self.at]
        if kind == "word":
            self.at += 1
            return dim_name(text)
        if kind == "int":
            number = self.number()
            assert isinstance(number, int)
            return number
        self.expect("(")
        size = self.parse_nested(self.dim)
        self.expect(")")
        return size
