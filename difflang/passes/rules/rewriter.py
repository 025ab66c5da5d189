"""The rewriter, and the two kinds of rules that it applies: pairs of programs, and functions with a guard."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence

from msgspec import Struct, field

from difflang.ir.graph import Attr, Eqn, Graph, Value, Values
from difflang.ir.op import OPS, result_types
from difflang.ir.structural_equality import attr_key, attrs_key
from difflang.ir.tensor_types import COMPLEXES, Tensor, Type
from difflang.ops.arrays.constants import const as const_op

Replacement = Sequence[Value] | None
Rewrite = Callable[["Rewriter", Eqn], Replacement]
OperandGuard = tuple[int, str]  # the operand of that number was made by the op of that name


class Rewriter:
    """The graph under construction: rules inspect it and emit into it."""

    def __init__(self, rules: Mapping[str, OpRules]) -> None:
        self.rules = rules
        self.eqns: list[Eqn] = []
        self.makers: dict[Value, Eqn] = {}

    def add(self, eqn: Eqn) -> Sequence[Value]:
        """The equation's results: its own, or those of the equations that replace it."""
        rules = self.rules.get(eqn.op.name)
        if rules is not None:
            # Most rules need an operand made by a certain op. They are indexed by that op, so few rules are tried.
            for rewrite in rules.always:
                if (found := rewrite(self, eqn)) is not None:
                    return found
            for place, makers in rules.by_operand.items():
                made = self.makers.get(eqn.operands[place])
                for rewrite in makers.get(made.op.name, ()) if made is not None else ():
                    if (found := rewrite(self, eqn)) is not None:
                        return found
        self.keep(eqn)
        return eqn.results

    def keep(self, eqn: Eqn) -> None:
        """Append an equation as it is."""
        self.eqns.append(eqn)
        for result in eqn.results:
            self.makers[result] = eqn

    def maker(self, value: Value, name: str) -> Eqn | None:
        """The equation that made a value, if its op has that name."""
        eqn = self.makers.get(value)
        return eqn if eqn is not None and eqn.op.name == name else None

    def number(self, value: Value) -> complex | None:
        """The number that fills an array, if it is a constant with a known value."""
        eqn = self.maker(value, "const")
        number = eqn.attrs["value"] if eqn is not None else None
        return number if isinstance(number, (int, float, complex)) else None

    def emit(self, like: Eqn, name: str, *operands: Value, regions: tuple[Graph, ...] = (), **attrs: Attr) -> Values:
        """The results of another equation in place of `like`; it is rewritten in turn."""
        op = OPS[name]
        types = result_types(op, [v.type for v in operands], regions, attrs)
        home = like.results[0].home
        results = tuple([Value(t, home) for t in types])
        return tuple(self.add(Eqn(op, operands, results, attrs, regions, like.span)))

    def const(self, like: Eqn, value: complex, type: Type) -> Value:
        return self.emit(like, "const", value=value, type=type)[0]

    def splice(self, body: Graph, operands: Sequence[Value]) -> list[Value]:
        """The results of a region on operands of this graph."""
        to = dict(zip(body.params, operands, strict=True))
        for eqn in body.eqns:
            results = tuple([Value(r.type, r.home, r.hint) for r in eqn.results])
            new = Eqn(eqn.op, tuple([to[v] for v in eqn.operands]), results, eqn.attrs, eqn.regions, eqn.span)
            to.update(zip(eqn.results, self.add(new), strict=True))
        return [to[r] for r in body.results]


# ---- Rules that are pairs of programs


class VariablePattern(Struct, frozen=True):
    """Matches any value: the param of that number."""

    number: int


class ConstantPattern(Struct, frozen=True):
    """Matches a constant array with this number, compared by kind and bits."""

    key: Hashable


class OpPattern(Struct, frozen=True):
    """Matches an equation with one result."""

    name: str
    attrs: Hashable
    operands: tuple[Pattern, ...]


Pattern = VariablePattern | ConstantPattern | OpPattern


def pattern_from_graph(graph: Graph) -> Pattern:
    """A pattern that matches the one result of a small graph."""
    made: dict[Value, Pattern] = {p: VariablePattern(i) for i, p in enumerate(graph.params)}
    for eqn in graph.eqns:
        if eqn.op is const_op:
            made[eqn.results[0]] = ConstantPattern(attr_key(eqn.attrs["value"]))
        else:
            operands = tuple(made[v] for v in eqn.operands)
            made[eqn.results[0]] = OpPattern(eqn.op.name, attrs_key(eqn.attrs), operands)
    return made[graph.results[0]]


class ProgramPairRewrite(Struct, eq=False):
    """A rewrite by two programs: a match of the first, whose last equation is `root`, is replaced by the second."""

    root: OpPattern
    rhs: Graph
    complex: bool  # whether they are equal on complex numbers too

    @property
    def operand_guard(self) -> OperandGuard | None:
        """The first operand that must be the result of an equation, and the op of that equation."""
        found = self.root.operands
        names = [
            "const" if isinstance(p, ConstantPattern) else p.name if isinstance(p, OpPattern) else "" for p in found
        ]
        return next(((i, name) for i, name in enumerate(names) if name), None)

    def __call__(self, rewriter: Rewriter, eqn: Eqn) -> Sequence[Value] | None:
        type = eqn.results[0].type
        if not self.complex and isinstance(type, Tensor) and type.dtype in COMPLEXES:
            return None
        bound: dict[int, Value] = {}
        if self.root.attrs != (attrs_key(eqn.attrs) if eqn.attrs else ()):
            return None
        for pattern, operand in zip(self.root.operands, eqn.operands, strict=True):
            if not matches(pattern, operand, rewriter, bound):
                return None
        env = {p: bound[i] for i, p in enumerate(self.rhs.params) if i in bound}
        for other in self.rhs.eqns:
            attrs = dict(other.attrs)
            if "type" in attrs:
                attrs["type"] = eqn.results[0].type
            (env[other.results[0]],) = rewriter.emit(eqn, other.op.name, *[env[v] for v in other.operands], **attrs)
        return [env[r] for r in self.rhs.results]


def matches(pattern: Pattern, value: Value, rewriter: Rewriter, bound: dict[int, Value]) -> bool:
    if isinstance(pattern, VariablePattern):
        return bound.setdefault(pattern.number, value) is value
    eqn = rewriter.makers.get(value)
    if eqn is None:
        return False
    if isinstance(pattern, ConstantPattern):
        return eqn.op is const_op and attr_key(eqn.attrs["value"]) == pattern.key
    if eqn.op.name != pattern.name or attrs_key(eqn.attrs) != pattern.attrs:
        return False
    pairs = zip(pattern.operands, eqn.operands, strict=True)
    return all(matches(p, v, rewriter, bound) for p, v in pairs)


# ---- Rules that are functions


class GuardedRule(Struct, frozen=True):
    """A rewrite that looks at attributes or types, with sample programs whose last equation it must rewrite."""

    ops: tuple[str, ...]
    rewrite: Rewrite
    samples: tuple[Callable[[], Graph], ...]
    operand_guard: OperandGuard | None = None

    def __str__(self) -> str:
        return getattr(self.rewrite, "__name__", "rewrite")


class OpRules(Struct, frozen=True):
    """The rules for equations of one op: those that always run, and those that need an operand made by some op."""

    always: list[Rewrite] = field(default_factory=list)
    by_operand: dict[int, dict[str, list[Rewrite]]] = field(default_factory=dict)

    def add(self, rewrite: Rewrite, need: OperandGuard | None) -> None:
        if need is None:
            self.always.append(rewrite)
        else:
            self.by_operand.setdefault(need[0], {}).setdefault(need[1], []).append(rewrite)
