"""A second implementation of the language for tests: walks the syntax tree with NumPy, in the plainest way.

It shares nothing with the checker, the elaborator or the IR. Derivatives are differences. It knows what the random
programs use, and not the rest of the language.
"""

# ruff: noqa: E501 - a row of a table, or a program, is a line

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import reduce
from typing import Any

import numpy as np
import scipy.special as sp
from msgspec.structs import replace

from difflang.base.source import Source
from difflang.syntax import tree
from difflang.syntax.parse import parse
from difflang.syntax.tree_queries import all_nodes
from support.reference_enums import constructors, fitting, variants_of

Value = Any
Scope = dict[str, Value]


def vector(f: Callable[..., Value]) -> Callable[..., Value]:
    """A reduction with `axis` and `keepdims` as NumPy has them."""
    return lambda x, **how: f(
        np.asarray(x), **{k: v if isinstance(v, (bool, tuple)) else int(v) for k, v in how.items()}
    )


def greater(f: Callable[..., Value], reduce: Callable[..., Value]) -> Callable[..., Value]:
    return lambda *xs, **how: f(*xs) if len(xs) == 2 else vector(reduce)(*xs, **how)


def softmax(x: Value) -> Value:
    return np.exp(x) / np.sum(np.exp(x))


BUILTINS: dict[str, Callable[..., Value]] = {
    "sin": np.sin, "cos": np.cos, "tanh": np.tanh, "atan": np.arctan, "sigmoid": sp.expit, "erf": sp.erf, "abs": np.abs, "asinh": np.arcsinh,
    "softplus": lambda x: np.logaddexp(0, x), "relu": lambda x: np.maximum(x, 0), "expm1": np.expm1, "exp2": np.exp2, "exp": np.exp, "log": np.log,
    "sqrt": np.sqrt, "hypot": np.hypot, "atan2": np.arctan2, "clamp": np.clip, "where": np.where, "stop": lambda x: x, "f64": lambda x: np.asarray(x, float)[()],
    "f32": lambda x: np.asarray(x, np.float32)[()], "max": greater(np.maximum, np.max), "min": greater(np.minimum, np.min), "sum": vector(np.sum),
    "prod": vector(np.prod), "mean": vector(np.mean), "std": vector(np.std), "norm": vector(lambda x: math.sqrt(np.sum(x * x))), "any": vector(np.any),
    "logsumexp": vector(sp.logsumexp), "dot": lambda x, y: np.sum(x * y), "reverse": lambda x: x[::-1], "fill": lambda n, x: np.full(n, x),
    "transpose": np.transpose, "reshape": lambda x, shape: np.reshape(x, [int(n) for n in shape]), "outer": np.outer, "softmax": softmax,
    "stack": lambda *xs, axis=0: np.stack(xs, int(axis)), "concat": lambda *xs: np.concatenate(xs), "zip": lambda *xs: list(zip(*xs, strict=True)),
    "i32": lambda x: np.asarray(x, np.int32)[()], "map": lambda f, xs: array_of([f(x) for x in xs]), "roll": lambda xs, n: np.roll(xs, int(n)), "enumerate": lambda xs: list(enumerate(xs)),
    "reduce": lambda f, start, xs: reduce(f, xs, start),
}  # fmt: skip

NOTHING = {"max": -math.inf, "min": math.inf, "any": False, "all": True}  # of nothing

ARITHMETIC: dict[str, Callable[[Value, Value], Value]] = {
    "+": lambda a, b: added(a, b, 1), "-": lambda a, b: added(a, b, -1), "*": lambda a, b: times(a, b), "/": lambda a, b: np.divide(a, b), "//": lambda a, b: a // b,
    "%": lambda a, b: a % b, "@": lambda a, b: a @ b, "^": lambda a, b: np.asarray(a, float) ** b, "max": lambda a, b: b if b > a else a, "min": lambda a, b: b if b < a else a,
}  # fmt: skip
REPEATED: dict[str, np.ufunc] = {"+": np.add, "-": np.subtract, "*": np.multiply, "max": np.maximum, "min": np.minimum}
QUESTIONS: dict[str, Callable[[Value, Value], Value]] = {
    "==": lambda a, b: a == b, "!=": lambda a, b: a != b, "<": lambda a, b: a < b, "<=": lambda a, b: a <= b, ">": lambda a, b: a > b, ">=": lambda a, b: a >= b,
}  # fmt: skip


def array_of(items: list[Value]) -> Value:
    """An array of numbers, or of the dicts of records and enums."""
    found = np.empty(len(items), object) if items and isinstance(items[0], dict) else np.array(items)
    found[:] = items
    return found


def of_items(x: Value) -> bool:
    return isinstance(x, np.ndarray) and x.dtype == object


def added(a: Value, b: Value, sign: int) -> Value:
    if of_items(a):
        return array_of([added(x, y, sign) for x, y in zip(a, b, strict=True)])
    if isinstance(a, dict):  # value + change of it
        return a | {k: added(a[k], v, sign) for k, v in b.items()}
    return a + sign * b


def times(a: Value, b: Value) -> Value:
    if of_items(b):
        return array_of([times(a, v) for v in b])
    if isinstance(b, dict):
        return {k: a * v for k, v in b.items()}
    return a * b


# ---- Derivatives by differences


def moved(x: Value, dx: Value, h: float) -> Value:
    return added(x, times(h, dx), 1)


def directional(f: Callable[[Value], Value], x: Value, dx: Value, h: float = 2e-3) -> Value:
    far, near, ahead, beyond = (f(moved(x, dx, s * h)) for s in (-2, -1, 1, 2))
    return (far - beyond + 8 * (ahead - near)) / (12 * h)


def gradient(f: Callable[[Value], Value], x: Value) -> Value:
    if of_items(x):
        return array_of([gradient(lambda v, i=i: f(replaced(x, (i,), v)), item) for i, item in enumerate(x)])
    if isinstance(x, dict):
        return {k: gradient(lambda v, k=k: f(x | {k: v}), x[k]) for k in x if is_float(x[k])}
    x = np.asarray(x, float)
    basis = np.eye(x.size).reshape(x.size, *x.shape)
    return np.array([directional(f, x, e) for e in basis]).reshape(x.shape)[()]


def replaced(array: Value, where: tuple[Value, ...], value: Value) -> Value:
    found = np.array(array, copy=True)
    found[where] = value
    return found


def is_float(x: Value) -> bool:
    return not isinstance(x, str) and np.asarray(x).dtype.kind == "f"


def hessian(f: Callable[[Value], Value], x: Value) -> Value:
    return np.array([directional(lambda y: gradient(f, y), x, e) for e in np.eye(x.size)])


def pullback(f: Callable[[Value], Value], x: Value) -> Value:
    return f(x), lambda ct: gradient(lambda v: np.sum(ct * f(v)), x)


TRANSFORMS: dict[str, Callable[[Callable[..., Value]], Callable[..., Value]]] = {
    "grad": lambda f: lambda x: gradient(f, x), "value_and_grad": lambda f: lambda x: (f(x), gradient(f, x)), "jvp": lambda f: lambda x, dx: (f(x), directional(f, x, dx)),
    "vjp": lambda f: lambda x: pullback(f, x), "hvp": lambda f: lambda x, dx: directional(lambda y: gradient(f, y), x, dx), "hessian": lambda f: lambda x: hessian(f, x), "vmap": lambda f: lambda *xs: np.array([f(*items) for items in zip(*xs, strict=True)]),
}  # fmt: skip


# ---- The walk


class Reference:
    """Runs the functions of a program."""

    def __init__(self, source: str) -> None:
        items = parse(Source("reference", source)).module.items
        self.records = {r.name: r for r in items if isinstance(r, tree.Record)}
        self.variants = variants_of(items)
        self.top: Scope = constructors(self.variants)
        self.top |= {f.name: self.closure(f, {}) for f in items if isinstance(f, tree.Fn)}

    def closure(self, fn: tree.Fn, around: Scope) -> Callable[..., Value]:
        def run(*args: Value) -> Value:
            scope = dict(around)
            for param, arg in zip(fn.params, args, strict=True):
                scope[param.name] = arg
                bind_sizes(param.type, arg, scope)
            try:
                return self.value(fn.body, [scope])
            except Left as left:
                return left.value

        return run

    def lambda_(self, e: tree.Lambda, around: Scope) -> Callable[..., Value]:
        def run(*args: Value) -> Value:
            scopes = [dict(around)]
            for param, arg in zip(e.params, args, strict=True):
                bind(param.pattern, arg, scopes[0])
            return self.value(e.body, scopes)

        return run

    def look(self, name: str, scopes: list[Scope]) -> Value:
        for scope in reversed(scopes):
            if name in scope:
                return scope[name]
        return self.top[name] if name in self.top else BUILTINS[name]

    def value(self, e: tree.Node, scopes: list[Scope]) -> Value:
        return getattr(self, type(e).__name__.lower())(e, scopes)

    # ---- expressions

    def int(self, e: tree.Int, _: list[Scope]) -> Value:
        return e.value

    float = bool = int

    def str(self, e: tree.Str, _: list[Scope]) -> Value:
        return "".join(p for p in e.parts if isinstance(p, str))

    def name(self, e: tree.Name, scopes: list[Scope]) -> Value:
        return self.look(e.id, scopes)

    def unary(self, e: tree.Unary, scopes: list[Scope]) -> Value:
        x = self.value(e.operand, scopes)
        return np.logical_not(x) if e.op == "not" else -x

    def binary(self, e: tree.Binary, scopes: list[Scope]) -> Value:
        a, b = self.value(e.lhs, scopes), self.value(e.rhs, scopes)
        if e.op in ("and", "or"):
            return (np.logical_and if e.op == "and" else np.logical_or)(a, b)
        return ARITHMETIC[e.op](a, b)

    def compare(self, e: tree.Compare, scopes: list[Scope]) -> Value:
        values = [self.value(x, scopes) for x in (e.first, *[r[1] for r in e.rest])]
        found: Value = True
        for (op, _, _), a, b in zip(e.rest, values, values[1:], strict=False):
            found = np.logical_and(found, QUESTIONS[op](a, b))
        return found

    def tupleexpr(self, e: tree.TupleExpr, scopes: list[Scope]) -> Value:
        return tuple(self.value(x, scopes) for x in e.items)

    def arrayexpr(self, e: tree.ArrayExpr, scopes: list[Scope]) -> Value:
        return array_of([self.value(x, scopes) for x in e.items])

    def lambda__(self, e: tree.Lambda, scopes: list[Scope]) -> Value:
        return self.lambda_(e, flat(scopes))

    def pipe(self, e: tree.Pipe, scopes: list[Scope]) -> Value:
        x = self.value(e.value, scopes)
        f = self.value(e.fn, scopes)
        takes = len(e.fn.params) if isinstance(e.fn, tree.Lambda) else 1
        return f(x) if takes == 1 else f(*x)

    def prime(self, e: tree.Prime, scopes: list[Scope]) -> Value:
        f = self.value(e.base, scopes)
        return lambda x: directional(f, x, 1.0)

    def member(self, e: tree.Member, scopes: list[Scope]) -> Value:
        base = self.value(e.base, scopes)
        return np.array([item[e.name] for item in base]) if of_items(base) else base[e.name]

    def with_(self, e: tree.With, scopes: list[Scope]) -> Value:
        found = self.value(e.base, scopes)
        for a in e.fields:
            found = with_field(found, a.name or "", self.value(a.value, scopes))
        return found

    def call(self, e: tree.Call, scopes: list[Scope]) -> Value:
        named = {a.name: self.value(a.value, scopes) for a in e.args if a.name is not None}
        if isinstance(e.fn, tree.Member):
            return self.look(e.fn.name, scopes)(self.value(e.fn.base, scopes))
        name = e.fn.id if isinstance(e.fn, tree.Name) else ""
        if name in self.records:
            return {f.name: named[f.name] for f in self.records[name].fields}
        if len(e.args) == 1 and isinstance(e.args[0].value, tree.Comprehension):
            found = list(self.items(e.args[0].value, scopes))
            return BUILTINS[name](np.array(found)) if found or name in ("sum", "prod") else NOTHING[name]
        args = [self.value(a.value, scopes) for a in e.args if a.name is None]
        if name in TRANSFORMS:
            return TRANSFORMS[name](*args)
        return self.value(e.fn, scopes)(*args, **named)

    def index(self, e: tree.Index, scopes: list[Scope]) -> Value:
        return np.asarray(self.value(e.base, scopes))[self.where(e, scopes)]

    def where(self, e: tree.Index, scopes: list[Scope]) -> tuple[Value, ...]:
        return tuple(self.subscript(s, scopes) for s in e.subscripts)

    def subscript(self, s: tree.Node, scopes: list[Scope]) -> Value:
        if isinstance(s, (tree.Slice, tree.Range)):
            return slice(*[None if x is None else int_of(self.value(x, scopes)) for x in (s.start, s.stop, s.step)])
        if isinstance(s, tree.Name) and s.id == "newaxis":
            return None
        return np.asarray(self.value(s, scopes))

    def if__(self, e: tree.If, scopes: list[Scope]) -> Value:
        if self.value(e.condition, scopes):
            return self.value(e.then, scopes)
        return self.value(e.orelse, scopes) if e.orelse is not None else None

    def match(self, e: tree.Match, scopes: list[Scope]) -> Value:
        subject = self.value(e.subject, scopes)
        tried = ((case, fitting(case.pattern, subject, self.variants)) for case in e.cases)
        case, found = next((c, f) for c, f in tried if f is not None)
        return self.value(case.body, [*scopes, found])

    def arraycomprehension(self, e: tree.ArrayComprehension, scopes: list[Scope]) -> Value:
        return array_of(list(self.items(e.comprehension, scopes)))

    def items(self, e: tree.Comprehension, scopes: list[Scope], depth: int = 0) -> Iterable[Value]:
        if depth == len(e.iterators):
            if e.condition is None or self.value(e.condition, scopes):
                yield self.value(e.body, scopes)
            return
        iterator = e.iterators[depth]
        over = self.extent(e, iterator, scopes) if iterator.source is None else self.value(iterator.source, scopes)
        for item in over:
            inner: Scope = {}
            bind(iterator.pattern, item, inner)
            yield from self.items(e, [*scopes, inner], depth + 1)

    def extent(self, e: tree.Comprehension, iterator: tree.Iterator, scopes: list[Scope]) -> Iterable[Value]:
        name = iterator.pattern.name  # type: ignore[union-attr]
        for part in all_nodes(e):
            if isinstance(part, tree.Index):
                for axis, s in enumerate(part.subscripts):
                    if isinstance(s, tree.Name) and s.id == name:
                        return range(self.value(part.base, scopes).shape[axis])
        raise KeyError(name)

    def range(self, e: tree.Range, scopes: list[Scope]) -> Value:
        return range(int_of(self.value(e.start, scopes)), int_of(self.value(e.stop, scopes)))

    # ---- statements

    def block(self, e: tree.Block, scopes: list[Scope]) -> Value:
        inner, value = [*scopes, {}], None
        for stmt in e.stmts:
            value = self.value(stmt, inner)
        return value

    def let(self, e: tree.Let | tree.Var, scopes: list[Scope]) -> None:
        bind(e.pattern, self.value(e.value, scopes), scopes[-1])

    var = let

    def fn(self, e: tree.Fn, scopes: list[Scope]) -> None:
        scopes[-1][e.name] = self.closure(e, flat(scopes))

    def assign(self, e: tree.Assign, scopes: list[Scope]) -> None:
        self.store(e.target, self.value(e.value, scopes), scopes)

    def update(self, e: tree.Update, scopes: list[Scope]) -> None:
        base, index = e.target, e.target
        if isinstance(e.target, tree.Member) and isinstance(index := e.target.base, tree.Index):
            base = replace(e.target, base=index.base)  # `ps[i].x` is `ps.x[i]`
        elif isinstance(index, tree.Index):
            base = index.base
        if e.op in REPEATED and isinstance(index, tree.Index) and not of_items(found := self.value(base, scopes)):
            array = np.array(found, copy=True)
            REPEATED[e.op].at(array, self.where(index, scopes), self.value(e.value, scopes))
            self.store(base, array, scopes)
            return
        old = self.value(e.target, scopes)
        self.store(e.target, ARITHMETIC[e.op](old, self.value(e.value, scopes)), scopes)

    def store(self, target: tree.Node, value: Value, scopes: list[Scope]) -> None:
        match target:
            case tree.Name(id=name):
                next(s for s in reversed(scopes) if name in s)[name] = value
            case tree.TupleExpr(items=items):
                for item, part in zip(items, value, strict=True):
                    self.store(item, part, scopes)
            case tree.Member(base=base, name=name):
                self.store(base, with_field(self.value(base, scopes), name, value), scopes)
            case tree.Index(base=base):
                self.store(base, replaced(self.value(base, scopes), self.where(target, scopes), value), scopes)
            case _:
                raise TypeError(type(target))

    def for_(self, e: tree.For, scopes: list[Scope]) -> Value:
        found: list[Value] = []
        for item in self.value(e.iterable, scopes):
            inner: Scope = {"yielded": found}
            bind(e.pattern, item, inner)
            if not self.goes_on(e.body, [*scopes, inner]):
                break
        return array_of(found)

    def yield_(self, e: tree.Yield, scopes: list[Scope]) -> None:
        self.look("yielded", scopes).append(self.value(e.value, scopes))

    def while_(self, e: tree.While, scopes: list[Scope]) -> None:
        while self.value(e.condition, scopes) and self.goes_on(e.body, scopes):
            pass

    def goes_on(self, body: tree.Block, scopes: list[Scope]) -> bool:
        """Take a step of a loop; whether it was not left."""
        try:
            self.value(body, scopes)
        except Skipped:
            pass
        except Stopped:
            return False
        return True

    def break_(self, e: tree.Break, scopes: list[Scope]) -> None:
        raise Stopped

    def continue_(self, e: tree.Continue, scopes: list[Scope]) -> None:
        raise Skipped

    def return_(self, e: tree.Return, scopes: list[Scope]) -> None:
        assert e.value is not None
        raise Left(self.value(e.value, scopes))


class Stopped(Exception):
    """`break`."""


class Skipped(Exception):
    """`continue`."""


class Left(Exception):
    """`return`."""

    def __init__(self, value: Value) -> None:
        self.value = value


for _name in ("With", "If", "For", "While", "Yield", "Lambda", "Break", "Continue", "Return"):  # words of Python
    _mine = {"If": "if__", "Lambda": "lambda__"}.get(_name, f"{_name.lower()}_")
    setattr(Reference, _name.lower(), getattr(Reference, _mine))


def with_field(value: Value, name: str, field: Value) -> Value:
    """A record, or an array of records, with another field."""
    if of_items(value):
        return array_of([item | {name: x} for item, x in zip(value, field, strict=True)])
    return value | {name: field}


def int_of(x: Value) -> int:
    return int(np.asarray(x))


def flat(scopes: list[Scope]) -> Scope:
    """What a function captures: every name as it is now."""
    found: Scope = {}
    for scope in scopes:
        found |= scope
    return found


def bind(pattern: tree.Pattern, value: Value, scope: Scope) -> None:
    if isinstance(pattern, tree.NamePattern):
        scope[pattern.name] = value
        return
    for item, part in zip(pattern.items, value, strict=True):
        bind(item, part, scope)


def bind_sizes(written: tree.TypeExpr | None, value: Value, scope: Scope) -> None:
    """`n` of `f64[n]`, and of `f64[n + 1]`."""
    if not isinstance(written, tree.TypeApply) or isinstance(value, dict):
        return
    for arg, size in zip(written.args, np.shape(value), strict=False):
        match arg:
            case tree.TypeName(path=(name,)):
                scope[name] = size
            case tree.DimBinary(op="+", lhs=tree.TypeName(path=(name,)), rhs=tree.TypeInt(value=offset)):
                scope[name] = size - offset
            case _:
                pass
