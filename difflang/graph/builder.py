"""A graph under construction: every op of the registry is a method, arithmetic works on values, branches and loops are
functions.

Equations are checked one by one as they are added. `new_graph` finishes one that begins with nothing, `edits` one that
becomes a part of another graph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

import numpy as np

from difflang.base.diagnostics import DifflangError
from difflang.base.error_codes import nearest_word
from difflang.base.wording import with_article
from difflang.graph.builder_attributes import (
    attribute_for,
    attribute_names,
    number_for,
    size_from_text,
    type_from_spec,
)
from difflang.graph.graph_errors import graph_error
from difflang.graph.graph_view import Equation, GraphView, Value
from difflang.ir.builder import Builder
from difflang.ir.graph import Graph as IrGraph
from difflang.ir.graph import Value as IrValue
from difflang.ir.op import OPS, Op, TypeMismatch
from difflang.ir.symbolic_dims import Poly
from difflang.ir.tensor_types import Tensor, Type
from difflang.ir.verify import TYPE_RULE_ERRORS
from difflang.ops.arrays.constants import array_constant
from difflang.ops.control.cond import cond
from difflang.ops.loop.loop_op import loop
from difflang.ops.loop.step_transpose import INDEX
from difflang.runtime.argument_conversion import DTYPE_BY_NUMPY

Region = Callable[..., Any]  # (builder of the region, *values) -> its results


class GraphBuilder:
    """Adds equations to a graph. `b.sin(x)` emits the op `sin`; its attributes are keywords, as in the text of a graph.

    Among the operands of an op, a Python number is a constant of the type of the first value. Sizes are never
    broadcast and element types never converted: `b.broadcast` and `b.convert` do that. A value from outside may be used
    in a branch or in the step of a loop; it becomes an operand of the equation.
    """

    in_backward = False

    def __init__(self, home: Builder, base: GraphView | None = None, outer: GraphBuilder | None = None) -> None:
        self.home, self.base, self.outer = home, base, outer
        self.inputs: dict[str, Value] = {}
        # The values of the finished graph `base` that are used here, each with the parameter that stands for it.
        self.borrowed: dict[IrValue, IrValue] = {}
        self.region: GraphBuilder | None = None  # what is being built inside this graph now
        self.closed = False

    def __repr__(self) -> str:
        return f"<graph under construction: {len(self.home.eqns)} equations>"

    def __getattr__(self, name: str) -> Any:
        """The input of that name, of this graph or one around it, else the op. Errors: AttributeError."""
        builder: GraphBuilder | None = self if "inputs" in vars(self) else None
        while builder is not None:
            if name in builder.inputs:
                return builder.inputs[name]
            builder = builder.outer
        if name in OPS:
            return partial(self.emit, OPS[name])
        near = nearest_word(name, OPS)
        raise AttributeError(f"there is no op `{name}`" + (f"; did you mean `{near}`?" if near else ""))

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *OPS})

    # ---- Equations

    def const(self, value: Any, type: str | Value | None = None) -> Value:
        """A constant: a NumPy array, or a number of a type, which is that of a value if one is passed.

        A text is a size, such as `n` or what `x.shape` gives: `b.const(x.shape[0], y)`.
        Errors: DL1205 for a number that the type does not hold, DL1210 for a number without a type.
        """
        self.require_open()
        if isinstance(value, (np.ndarray, np.generic)) and type is None:
            return self.array(np.asarray(value))
        if isinstance(value, str):
            value = size_from_text(value)
        elif not isinstance(value, (bool, int, float, complex, np.generic)):
            way = "an array of NumPy is one without a type: `b.const(np.array([1.0, 2.0]))`"
            what = with_article(value.__class__.__name__)
            raise graph_error("DL1205", f"{what} is not a number for a constant", help=way)
        if type is None:
            raise graph_error("DL1210", f"the constant {value!r} has no type", help=f'write `b.const({value}, "f64")`')
        wanted = type.ir.type if isinstance(type, Value) else type_from_spec(type)
        number = value if isinstance(value, Poly) else number_for(value, wanted)
        return Value(self.home.one("const", value=number, type=wanted), self)

    def array(self, numbers: np.ndarray[Any, Any]) -> Value:
        dtype = DTYPE_BY_NUMPY.get(numbers.dtype)
        if dtype is None:
            raise graph_error("DL1210", f"an array of {numbers.dtype} is no constant: it has no element type here")
        return Value(array_constant(self.home, numbers, Tensor(dtype, numbers.shape)), self)

    def sum(self, x: Value, axes: Sequence[int] | None = None) -> Value:
        """The sum along some axes, by default along all. Errors: DL1250 for axes that the value does not have."""
        rank = len(require_value(x, "what is summed").shape)
        return self.emit_named("reduce_sum", x, axes=tuple(range(rank)) if axes is None else axes)

    def named(self, name: str, value: Value) -> Value:
        """The value, which is called `name` from now on. Errors: DL1250 for a value of another graph."""
        require_value(value, "what gets a name")
        require_name(name, value)
        if not any(value.ir in eqn.results for eqn in self.home.eqns):
            raise graph_error("DL1250", f"`%{value.name}: {value.type}` is not computed here", help="`rename` may help")
        value.ir.hint = name
        return value

    def emit_named(self, name: str, *operands: Any, **attributes: Any) -> Any:
        """The result of the op of that name, for operators: in the region that is being built, if there is one."""
        builder = self
        while builder.region is not None:
            builder = builder.region
        return builder.emit(OPS[name], *operands, **attributes)

    def emit(self, op: Op, *operands: Any, regions: Sequence[GraphView] = (), **attributes: Any) -> Any:
        """Add an equation. Errors: DL1250 if the op refuses its operands, or a value belongs to another graph."""
        self.require_open()
        attrs = {name: attribute_for(op, name, value) for name, value in attributes.items()}
        values = self.operands(op, operands)
        return self.emit_values(op, values, tuple([region.ir for region in regions]), attrs)

    def emit_values(
        self, op: Op, values: Sequence[IrValue], regions: tuple[IrGraph, ...], attrs: dict[str, Any]
    ) -> Any:
        try:
            results = self.home.emit(op, values, regions, **attrs)
        except TYPE_RULE_ERRORS as fault:
            raise refused(op, values, fault) from None
        for result in results:
            if isinstance(result.type, Tensor) and any(isinstance(n, int) and n < 0 for n in result.type.shape):
                raise refused(op, values, TypeMismatch(f"its result would be an {result.type}"))
        found = tuple([Value(r, self) for r in results])
        return found[0] if len(found) == 1 else found

    def operands(self, op: Op, operands: Sequence[Any]) -> list[IrValue]:
        """The operands in this graph; numbers become constants."""
        first = next((x.ir.type for x in operands if isinstance(x, Value)), None)
        return [self.own(x) if isinstance(x, Value) else self.own_number(op, x, first) for x in operands]

    def own_number(self, op: Op, number: Any, like: Type | None) -> IrValue:
        if like is None or not isinstance(number, (bool, int, float, complex, np.generic)):
            what = with_article(type(number).__name__)
            message = f"{what} is no operand of `{op}`" if like is not None else f"no operand of `{op}` is a value"
            raise graph_error("DL1250", message, help="an operand is a value of the graph: `b.const(…)` makes one")
        return self.home.const(number_for(number, like), like)

    def own(self, value: Value) -> IrValue:
        """A value as this graph sees it. Errors: DL1250 if it belongs to another graph."""
        found = value.ir
        home: Builder | None = self.home
        while home is not None and home is not found.home:
            home = home.outer
        if home is not None:
            return self.home.capture(found)
        return self.home.capture(self.borrow(value))

    def borrow(self, value: Value) -> IrValue:
        """The parameter that stands for a value of the finished graph that is edited."""
        root = self
        while root.outer is not None:
            root = root.outer
        if root.base is None or not root.base.defines(value.ir):
            message = f"`%{value.name}: {value.type}` belongs to another graph"
            raise graph_error("DL1250", message, help="use values of this graph, or of a graph around it")
        if value.ir not in root.borrowed:
            root.borrowed[value.ir] = root.home.param(value.ir.type, value.ir.hint)
        return root.borrowed[value.ir]

    def require_open(self) -> None:
        if self.closed:
            raise graph_error("DL1250", "this graph is finished: no equation can be added")

    # ---- Regions

    def cond(self, pred: Value, then: Region, other: Region, *operands: Any) -> Any:
        """What `then(b, *operands)` gives where `pred` is true, else what `other(b, *operands)` gives.

        `b` builds the branch. Only the branch that is taken runs. Errors: DL1250 if the results have different types.
        """
        self.require_open()
        branches = [self.inner(), self.inner()]
        self.own(require_value(pred, "the condition"))
        results = [b.results(f, operands) for b, f in zip(branches, (then, other), strict=True)]
        require_same_types("the branches give", *results)
        captured = dict.fromkeys([v for b in branches for v in b.home.captures])
        regions = [b.finish(r, captured) for b, r in zip(branches, results, strict=True)]
        return self.emit_values(cond, [self.own(pred), *captured], tuple(regions), {})

    def loop(self, count: int | Value, step: Region, *carry: Value) -> Any:
        """The carry after `count` steps, each of which is `step(b, i, *carry)`: one value, or as many as were passed.

        `b` builds the step, and `i` counts from 0. `count` is a number, or a value of type i32[].
        Errors: DL1250 if a step gives another number of values, or values of other types, than it takes.
        """
        self.require_open()
        exact = not isinstance(count, Value)
        if exact and (type(count) is not int or count < 0):
            raise graph_error("DL1250", f"a loop takes 0 or more steps, not {count!r}")
        limit = self.own(count) if isinstance(count, Value) else self.home.const(number_for(count, INDEX), INDEX)
        start = [self.own(require_value(x, "the carry of a loop")) for x in carry]
        inner = self.inner()
        index = inner.home.param(INDEX, "i")
        states = [inner.home.param(v.type, v.hint) for v in start]
        results = inner.results(step, [Value(v, inner) for v in (index, *states)])
        require_same_types("a step of this loop takes and gives", start, results)
        captured = list(inner.home.captures)
        region = inner.finish(results, dict.fromkeys(captured), [index], states)
        attrs = {
            "consts": len(captured), "carry": len(start), "length": count if exact else None, "exact": exact,
            "reverse": False,
        }  # fmt: skip
        _, *found = self.emit_tuple(loop, [limit, *captured, *start], (region,), attrs)
        return found[0] if len(found) == 1 else tuple(found)

    def emit_tuple(
        self, op: Op, values: Sequence[IrValue], regions: tuple[IrGraph, ...], attrs: dict[str, Any]
    ) -> tuple[Value, ...]:
        found = self.emit_values(op, values, regions, attrs)
        return (found,) if isinstance(found, Value) else found

    def inner(self) -> GraphBuilder:
        """The builder of a region."""
        return GraphBuilder(Builder(self.home), outer=self)

    def results(self, body: Region, operands: Sequence[Any]) -> list[IrValue]:
        """The results of this region, which `body` builds from operands of the graph around it."""
        assert self.outer is not None
        require_function(body, "a region")
        inside = [Value(self.own(x), self) if isinstance(x, Value) else x for x in operands]
        self.outer.region = self
        try:
            found = body(self, *inside)
        finally:
            self.outer.region = None
        several = cast(Sequence[Any], found) if isinstance(found, (tuple, list)) else (found,)
        return [self.own(require_value(x, "the result of a region")) for x in several]

    def finish(
        self,
        results: Sequence[IrValue],
        captured: dict[IrValue, None],
        before: Sequence[IrValue] = (),
        after: Sequence[IrValue] = (),
    ) -> IrGraph:
        """The finished region: its parameters are captured values, between those given."""
        params = [*before, *[self.home.capture(v) for v in captured], *after]
        self.closed = True
        return self.home.finish(results, params)

    # ---- As a scope of values

    @property
    def depth(self) -> int:
        return self.home.depth

    def name_of(self, value: IrValue) -> str:
        if self.base is not None and self.base.defines(value):
            return self.base.name_of(value)
        return value.hint or "value"

    def maker_of(self, value: IrValue) -> Equation | None:
        if self.base is not None and self.base.defines(value):
            return self.base.maker_of(value)
        found = next((eqn for eqn in self.home.eqns if value in eqn.results), None)
        return None if found is None else Equation(found, self)

    def region_view(self, region: IrGraph) -> GraphView:
        return GraphView(region)


def require_value(x: Any, what: str) -> Value:
    """Errors: DL1250 for anything but a value."""
    if not isinstance(x, Value):
        found = with_article(type(x).__name__)
        way = "`==` compares objects of Python: `b.eq(x, y)` compares values" if isinstance(x, bool) else ""
        way = way or "`b.const(…)` makes a value"
        raise graph_error("DL1250", f"{what} is a value of the graph, not {found}", help=way)
    return x


def require_function(f: Any, what: str) -> None:
    """Errors: DL1250 for anything but a function."""
    if not callable(f):
        found = with_article(type(f).__name__)
        raise graph_error("DL1250", f"{what} is a function of a builder, not {found}", help="write `lambda b, v: …`")


def require_name(name: Any, value: Value) -> None:
    """Errors: DL1250 for anything but a text that is not empty."""
    if not isinstance(name, str) or not name:
        raise graph_error("DL1250", f"{name!r} is no name for `%{value.name}`")


def require_same_types(what: str, values: Sequence[IrValue], others: Sequence[IrValue]) -> None:
    """Errors: DL1250 if two lists of values differ in a type, or in their number."""
    one, two = [", ".join([str(v.type) for v in each]) or "nothing" for each in (values, others)]
    if one != two:
        raise graph_error("DL1250", f"{what} different types: {one} and {two}")


def refused(op: Op, values: Sequence[IrValue], fault: Exception) -> DifflangError:
    """The error of an op that does not take its operands or its attributes."""
    types = ", ".join([str(v.type) for v in values]) or "no operands"
    if isinstance(fault, TypeMismatch):
        way = "sizes are not broadcast and element types not converted: `b.broadcast` and `b.convert` do that"
        return graph_error("DL1250", f"`{op}` does not take {types}: {fault}", help=way)
    named = ", ".join([f"`{name}`" for name in attribute_names(op)])
    way = f"its attributes are {named}" if named else "it has no attributes"
    return graph_error("DL1250", f"`{op}` does not take {types} with these attributes", help=way)
