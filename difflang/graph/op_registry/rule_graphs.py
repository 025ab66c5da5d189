"""Derivative and batching rules over the graph builder, as the compiler calls them: on values of its own graphs.

Such a rule is run once for each list of types, in a graph of its own, which is verified: its type, and that it is
linear in the tangent or cotangent. A use copies its equations, each to where its operands are defined. So a mistake in
a rule is found before the compiler sees it, and reverse mode and all further orders follow from the equations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, cast

from msgspec import Struct

from difflang.analysis.linearity import NotLinear, prove_linear
from difflang.base.diagnostics import DifflangError
from difflang.base.source import NO_SPAN, Span
from difflang.base.wording import count_of, with_article
from difflang.graph.builder import GraphBuilder
from difflang.graph.graph_errors import graph_error
from difflang.graph.graph_view import Value
from difflang.ir.builder import Builder
from difflang.ir.graph import Attr, Eqn, Graph
from difflang.ir.graph import Value as IrValue
from difflang.ir.op import BatchedOp, BatchRule, MaybeValue, UndefinedPrimal
from difflang.ir.symbolic_dims import Dim
from difflang.ir.tensor_types import Tensor, Type, stacked_type
from difflang.ir.text_printer import eqn_text

UNKNOWN = "of an operand that an op is transposed in, a rule knows only `type`, `dtype` and `shape`"
UserRule = Callable[..., Any]  # (builder, *values, **attributes) -> value or values
# A value, one of which a rule may only ask the type, or a value for each result of an op.
Operand = IrValue | UndefinedPrimal | tuple[MaybeValue, ...] | None


class UnknownOperand(Struct, frozen=True):
    """An operand that an op is transposed in: its value is not known, only its `type`, `dtype` and `shape`."""

    ir: Tensor

    @property
    def type(self) -> str:
        return str(self.ir)

    @property
    def dtype(self) -> str:
        return self.ir.dtype.name

    @property
    def shape(self) -> tuple[int | str, ...]:
        return tuple([n if isinstance(n, int) else str(n) for n in self.ir.shape])


class RuleGraph(Struct, frozen=True, eq=False):
    """A rule for certain types: its graph, whose results are those of the rule that are not zero."""

    graph: Graph
    present: tuple[bool, ...]


class GraphRule:
    """A rule of a user as the compiler calls it. `linear` says whether it is linear in its first argument.

    `expected` gives the types of its results for arguments and attributes. `what` names it: `the jvp of swish in x`.
    `facts` are what it gets between the builder and the values.
    """

    def __init__(
        self,
        what: str,
        rule: UserRule,
        names: Sequence[str],
        expected: Callable[..., Sequence[Type]],
        *,
        linear: bool,
        facts: Mapping[str, Any] | None = None,
    ) -> None:
        self.what, self.rule, self.names = what, rule, tuple(names)
        self.expected, self.linear, self.facts = expected, linear, facts or {}
        self.graphs: dict[Any, RuleGraph] = {}

    def __call__(self, *arguments: Operand, **attrs: Attr) -> Any:
        """The results on values, emitted where these are defined. Errors: DL1271."""
        values = flatten_values(arguments)
        span = max(values, key=lambda v: v.home.depth).home.span
        found = self.graph_for(arguments, attrs, span)
        made = iter(copy_in_place(found.graph, values))
        results = [next(made) if here else None for here in found.present]
        return results[0] if len(results) == 1 else results

    def graph_for(self, arguments: Sequence[Operand], attrs: dict[str, Attr], span: Span) -> RuleGraph:
        key = (tuple(map(argument_type, arguments)), tuple(attrs.items()))
        if key not in self.graphs:
            self.graphs[key] = self.build(arguments, attrs, span)
        return self.graphs[key]

    def build(self, arguments: Sequence[Operand], attrs: dict[str, Attr], span: Span) -> RuleGraph:
        """The verified graph of the rule. Errors: DL1271, at the equation of the program that needs it."""
        builder = GraphBuilder(Builder())
        shown = [argument_view(builder, x, name) for x, name in zip(arguments, self.argument_names(), strict=False)]
        params = tuple(builder.home.params)
        results = self.run(builder, shown, attrs, span)
        wanted = self.expected(arguments, attrs)
        if len(results) != len(wanted):
            self.fail(f"gives {count_of(len(results), 'value')}, not {len(wanted)}", span)
        kept: list[IrValue] = []
        for result, type in zip(results, wanted, strict=True):
            if result is None:
                continue
            if not isinstance(result, Value):
                way = "a rule gives values of the builder that it gets first, or None"
                self.fail(f"gives {with_article(result.__class__.__name__)}, not a value", span, way)
            own = self.own(builder, result, span)
            if own.type != type:
                self.fail(f"gives {own.type}, not {type}", span)
            kept.append(own)
        graph = builder.home.finish(kept, params)
        if self.linear:
            self.check_linear(graph, len(flatten_values(arguments[:1])), span)
        return RuleGraph(graph, tuple([r is not None for r in results]))

    def argument_names(self) -> list[str]:
        return [*self.names, *[self.names[-1]] * 1000]

    def run(self, builder: GraphBuilder, shown: Sequence[Any], attrs: dict[str, Attr], span: Span) -> tuple[Any, ...]:
        try:
            found = self.rule(builder, *self.facts.values(), *shown, **attrs)
        except DifflangError as error:
            first = error.diagnostics[0]
            unknown = any(isinstance(x, UnknownOperand) for x in shown)
            way = UNKNOWN if unknown else "\n".join(first.helps)
            self.fail(f"failed: {first.message}", span, way, cause=error)
        except (Exception, SystemExit) as error:  # noqa: BLE001  whatever a rule of the user raises
            self.fail(f"failed: {error.__class__.__name__}: {error}", span, self.usage(), cause=error)
        return tuple(cast(Sequence[Any], found)) if isinstance(found, (tuple, list)) else (found,)

    def own(self, builder: GraphBuilder, result: Value, span: Span) -> IrValue:
        try:
            return builder.own(result)
        except DifflangError as error:
            self.fail(f"failed: {error.diagnostics[0].message}", span)

    def usage(self) -> str:
        return f"it is called as `rule(b, {', '.join([*self.facts, *self.names])})`, where `b` builds its equations"

    def check_linear(self, graph: Graph, count: int, span: Span) -> None:
        mask = [i < count for i in range(len(graph.params))]
        try:
            prove_linear(graph, mask)
        except NotLinear as fault:
            at = f": `{eqn_text(fault.eqn)}`" if fault.eqn is not None else ""
            way = f"each term has the factor `{self.names[0]}` once; other values may be anything"
            self.fail(f"is not linear in `{self.names[0]}`{at}", span, way)

    def fail(self, problem: str, span: Span, help: str = "", cause: BaseException | None = None) -> NoReturn:
        label = () if span is NO_SPAN else ((span, "needed here"),)
        raise graph_error("DL1271", f"{self.what} {problem}", *label, help=help) from cause


def flatten_values(arguments: Sequence[Operand]) -> list[IrValue]:
    """The values among the arguments of a rule."""
    found: list[IrValue] = []
    for x in arguments:
        if isinstance(x, IrValue):
            found.append(x)
        elif isinstance(x, tuple):
            found += [v for v in x if v is not None]
    return found


def argument_type(x: Operand) -> Any:
    if isinstance(x, (tuple, list)):
        return tuple([argument_type(v) for v in x])
    return None if x is None else (x.type, isinstance(x, UndefinedPrimal))


def argument_view(builder: GraphBuilder, x: Operand, name: str) -> Any:
    """An argument as the rule sees it: a parameter of its graph, or the type of what it cannot read."""
    match x:
        case None:
            return None
        case UndefinedPrimal():
            return UnknownOperand(x.type)
        case IrValue():
            return Value(builder.home.param(x.type, name), builder)
        case _:
            return tuple([argument_view(builder, v, name) for v in x])


def copy_in_place(graph: Graph, values: Sequence[IrValue]) -> list[IrValue]:
    """The results of a graph on values, each equation in the builder of its innermost operand; constants outermost."""
    outermost = min(values, key=lambda v: v.home.depth).home
    env = dict(zip(graph.params, values, strict=True))
    for eqn in graph.eqns:
        operands = [env[v] for v in eqn.operands]
        home = max([v.home for v in operands], key=lambda b: b.depth, default=outermost)
        types = tuple([r.type for r in eqn.results])
        made = home.append(eqn.op, tuple(map(home.capture, operands)), types, eqn.regions, **eqn.attrs)
        env.update(zip(eqn.results, made, strict=True))
    return [env[r] for r in graph.results]


def batch_rule_of(name: str, rule: UserRule, names: Sequence[str]) -> BatchRule:
    """The batching rule: the user's `(b, batched, *operands)`, where batched operands have the batch axis in front.

    It gives the results with the batch axis in front, or None where a loop over the batch does.
    """

    def batch(eqn: Eqn, batched: tuple[bool, ...], size: Dim) -> BatchedOp | None:
        results = tuple([stacked_type(r.type, size) for r in eqn.results])
        what = f"the batching rule of `{name}`"
        own = GraphRule(what, rule, names, lambda *_: results, linear=False, facts={"batched": batched})
        types = [stacked_type(v.type, size) if w else v.type for v, w in zip(eqn.operands, batched, strict=True)]
        probe = Builder()
        if not all(own.graph_for([probe.param(t) for t in types], dict(eqn.attrs), eqn.span).present):
            return None

        def run(*operands: IrValue) -> tuple[IrValue, ...]:
            found = own(*operands, **eqn.attrs)
            return tuple(found) if isinstance(found, list) else (found,)

        return run

    return batch
