"""What can be read of a graph: its values, its equations, its regions, in the order in which they are printed.

Nothing here changes or runs a graph: `computational_graph` does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Any, NoReturn, Protocol, Self, cast

from difflang.base.error_codes import nearest_word
from difflang.base.source import BackwardSpan, Span
from difflang.base.wording import count_of
from difflang.graph.graph_errors import graph_error
from difflang.graph.value_operators import EmittingScope, ValueOperators
from difflang.ir.graph import Attr, Eqn
from difflang.ir.graph import Graph as IrGraph
from difflang.ir.graph import Value as IrValue
from difflang.ir.symbolic_dims import Poly
from difflang.ir.tensor_types import DType, History, Tensor
from difflang.ir.text_printer import ValueNames, eqn_text, graph_to_text
from difflang.tools.cost import count_operations


class ValueScope(EmittingScope, Protocol):
    """What values belong to: a finished graph, or one under construction."""

    in_backward: bool  # whether all of it computes cotangents

    def name_of(self, value: IrValue) -> str: ...
    def maker_of(self, value: IrValue) -> Equation | None: ...
    def region_view(self, region: IrGraph) -> GraphView: ...


class Immutable:
    """A graph or a part of one, which never changes: a copy is the thing itself. Errors: TypeError if it is pickled."""

    __slots__ = ()

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError("graphs and their values are not pickled: write `g.to_json()`, read `dg.Graph.from_json(text)`")


class Value(Immutable, ValueOperators):
    """An input of a graph or a result of an equation. Two are equal if they are one value of one graph.

    `+ - * / ** < <= > >=`, `-x` and `abs` emit equations where the value belongs to a builder.
    """

    __slots__ = ()

    scope: ValueScope

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Value) and other.ir is self.ir

    def __hash__(self) -> int:
        return hash(self.ir)

    def __repr__(self) -> str:
        return f"<%{self.name}: {self.type}>"

    @property
    def name(self) -> str:
        """Its name in the text of the graph, without the `%`."""
        return self.scope.name_of(self.ir)

    @property
    def type(self) -> str:
        """Its type as text, such as `f64[3]` or `history[f64[3]]`."""
        return str(self.ir.type)

    @property
    def dtype(self) -> str:
        """Its element type, such as `f64`."""
        type = self.ir.type
        while isinstance(type, History):
            type = type.item
        return type.dtype.name

    @property
    def shape(self) -> tuple[int | str | None, ...]:
        """Its sizes: a number, a name such as `n`, or None for the length of a history, which only a run knows."""
        type = self.ir.type
        unknown: tuple[None, ...] = ()
        while isinstance(type, History):
            type, unknown = type.item, (*unknown, None)
        return (*unknown, *[n if isinstance(n, int) else str(n) for n in type.shape])

    @property
    def equation(self) -> Equation | None:
        """The equation that makes it; None for an input."""
        return self.scope.maker_of(self.ir)

    @property
    def span(self) -> Span | None:
        """The source position of what makes it; None for an input, and where no source is known."""
        maker = self.equation
        return None if maker is None else maker.span

    @property
    def source_line(self) -> str | None:
        """The line of the source that it comes from."""
        return line_of(self.span)


class Equation(Immutable):
    """One use of an op in a graph: `outputs = op(inputs, **attributes)`, with the graphs inside it as `regions`."""

    __slots__ = ("ir", "scope")

    def __init__(self, ir: Eqn, scope: ValueScope) -> None:
        self.ir, self.scope = ir, scope

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Equation) and other.ir is self.ir

    def __hash__(self) -> int:
        return hash(self.ir)

    def __repr__(self) -> str:
        outputs = ", ".join([f"%{v.name}: {v.type}" for v in self.outputs])
        inputs = ", ".join([f"%{v.name}" for v in self.inputs])
        return f"<{f'{outputs} = ' if outputs else ''}{f'{self.op} {inputs}'.rstrip()}>"

    def __str__(self) -> str:
        return eqn_text(self.ir)

    @property
    def op(self) -> str:
        """The name of its op."""
        return self.ir.op.name

    @property
    def inputs(self) -> tuple[Value, ...]:
        return tuple([Value(v, self.scope) for v in self.ir.operands])

    @property
    def outputs(self) -> tuple[Value, ...]:
        return tuple([Value(v, self.scope) for v in self.ir.results])

    @property
    def attributes(self) -> Mapping[str, Any]:
        """What it knows before a run: numbers, texts and tuples of them. Types and symbolic sizes are texts."""
        return MappingProxyType({name: plain_attribute(value) for name, value in self.ir.attrs.items()})

    @property
    def regions(self) -> tuple[GraphView, ...]:
        """The graphs inside it, such as the two branches of a `cond`. They read nothing from outside but its inputs."""
        views = tuple([self.scope.region_view(region) for region in self.ir.regions])
        for view in views:
            view.in_backward = self.is_backward
        return views

    @property
    def cost(self) -> int | str:
        """How many operations a run of it takes, as its op declares: a formula where sizes have names.

        Of the branches of a conditional the most expensive counts, of a loop of unknown length one step.
        """
        found = count_operations(IrGraph((), (self.ir,), ()))
        return found.count if isinstance(found.count, int) else str(found)

    @property
    def is_backward(self) -> bool:
        """Whether it computes cotangents, or a value again for them: reverse mode added it."""
        return self.scope.in_backward or isinstance(self.ir.span, BackwardSpan)

    @property
    def span(self) -> Span | None:
        """Its position in the source; None where no source is known."""
        return self.ir.span if self.ir.span.is_known else None

    @property
    def source_line(self) -> str | None:
        """The line of the source that it comes from."""
        return line_of(self.span)


class GraphView(Immutable):
    """The inputs, equations and outputs of a graph, or of a region of one."""

    in_backward = False
    depth = -1  # among the operands of an operator, a graph under construction goes first

    def __init__(self, ir: IrGraph, hidden_outputs: int = 0) -> None:
        self._ir, self._hidden_outputs = ir, hidden_outputs

    @property
    def ir(self) -> IrGraph:
        """The graph as passes see it."""
        return self._ir

    @property
    def name(self) -> str:
        """The function that it comes from, or an empty text."""
        return self._ir.name

    @property
    def inputs(self) -> tuple[Value, ...]:
        return tuple([Value(v, self) for v in self._ir.params])

    @property
    def outputs(self) -> tuple[Value, ...]:
        """Its results, but for the three that say which check of the program has failed."""
        return tuple([Value(v, self) for v in self._ir.results[: len(self._ir.results) - self._hidden_outputs]])

    @property
    def equations(self) -> tuple[Equation, ...]:
        """The equations in their order, without those in regions."""
        return tuple([Equation(eqn, self) for eqn in self._ir.eqns])

    def walk(self) -> Iterator[Equation]:
        """Every equation in order, those of a region after the equation that it is in; a shared region each time."""
        # An explicit stack: graphs nest deeper than Python recurses.
        todo = [iter(self.equations)]
        while todo:
            equation = next(todo[-1], None)
            if equation is None:
                todo.pop()
                continue
            yield equation
            todo += [iter(region.equations) for region in reversed(equation.regions)]

    def __getitem__(self, name: str) -> Value:
        """The value of that printed name, `x`, `%x` or `y#1`: of the graph itself, else of the one region that has it.

        Errors: KeyError, with the nearest name; for a name of several regions, which have names of their own.
        """
        if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError("`g[name]` takes the name of a value, and `g.equations` are the equations of a graph")
        key = name.removeprefix("%")
        if key in self._names.by_name:
            return Value(self._names.by_name[key], self)
        regions = dict.fromkeys([r.ir for equation in self.walk() for r in equation.regions])
        views = [view for region in regions if key in (view := self.region_view(region))._names.by_name]
        if len(views) == 1:
            return views[0][key]
        if views:
            raise KeyError(f"{count_of(len(views), 'region')} have a value `{key}`: take it from one, `eqn.regions[0]`")
        near = nearest_word(key, self._names.by_name)
        raise KeyError(f"the graph has no value `{key}`" + (f"; did you mean `{near}`?" if near else ""))

    def __repr__(self) -> str:
        inputs = ", ".join([f"{v.name}: {v.type}" for v in self.inputs])
        outputs = ", ".join([v.type for v in self.outputs])
        what = count_of(len(self._ir.eqns), "equation")
        return f"<graph {self.name}({shortened(inputs)}) -> {shortened(outputs) or '()'}: {what}>"

    def __str__(self) -> str:
        return self.text()

    def text(self, *, spans: bool = False) -> str:
        """The graph as text, which `parse` reads; with `spans`, each equation shows its position in the source."""
        return graph_to_text(self._ir, spans)

    # ---- As a scope of values

    @cached_property
    def _names(self) -> PrintedNames:
        return PrintedNames(self._ir)

    def name_of(self, value: IrValue) -> str:
        return self._names.names[value]

    def defines(self, value: IrValue) -> bool:
        """Whether a value is one of this graph itself, not of a region."""
        return value in self._names.names

    def maker_of(self, value: IrValue) -> Equation | None:
        maker = self._names.makers.get(value)
        return None if maker is None else Equation(maker, self)

    def region_view(self, region: IrGraph) -> GraphView:
        return self.__class__(region)

    def emit_named(self, name: str, *operands: Any, **attributes: Any) -> NoReturn:
        way = "`g.replace(value, with_=lambda b, v: …)` adds equations, and `dg.build(…)` builds a new graph"
        raise graph_error("DL1250", f"`{name}` adds an equation, but this graph is finished", help=way)


class PrintedNames:
    """The printed names of a graph's values, and the equation that makes each."""

    def __init__(self, graph: IrGraph) -> None:
        printed = ValueNames()
        self.makers = {result: eqn for eqn in graph.eqns for result in eqn.results}
        # In the order in which the printer meets them, which numbers them.
        self.names = {v: printed.name_of(v).removeprefix("%") for v in (*graph.params, *self.makers)}
        self.by_name = {name: value for value, name in self.names.items()}


def plain_attribute(value: Attr) -> Any:
    """An attribute without classes of the IR: their text is what a builder takes."""
    match value:
        case tuple():
            return tuple([plain_attribute(item) for item in cast(tuple[Attr, ...], value)])
        case DType() | Tensor() | History() | Poly():
            return str(value)
        case _:
            return value


def line_of(span: Span | None) -> str | None:
    """The text of the line where a span begins; None without its text."""
    if span is None or span.end > len(span.source.text):
        return None
    return span.source.line(span.position[0]).strip()


def shortened(text: str, most: int = 60) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
