"""Random well-typed expressions of the language, of moderate size and away from singular points."""

# ruff: noqa: E501 - a row of a table, or a program, is a line

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random

F, INT = "f64", "i32"
SIZES = (1, 2, 3)


@dataclass(slots=True)
class Names:
    """The variables in scope by type; a `var` may be assigned."""

    known: dict[str, list[str]] = field(default_factory=dict)
    mutable: set[str] = field(default_factory=set)

    def add(self, type: str, name: str, *, mutable: bool = False) -> None:
        self.known.setdefault(type, []).append(name)
        if mutable:
            self.mutable.add(name)

    def inner(self) -> Names:
        return Names({t: list(n) for t, n in self.known.items()}, set(self.mutable))

    def fixed(self) -> Names:
        return Names({t: list(n) for t, n in self.known.items()})

    def of(self, type: str, *, mutable: bool = False) -> list[str]:
        return [n for n in self.known.get(type, []) if not mutable or n in self.mutable]


def vector(n: int) -> str:
    return f"f64[{n}]"


def matrix(n: int, m: int) -> str:
    return f"f64[{n}, {m}]"


@dataclass(frozen=True, slots=True)
class Recursive:
    """A function that calls itself: the types of what it takes before the count, if it counts, and of its result."""

    name: str
    params: tuple[str, ...]
    result: str
    known: bool  # how deep it goes is known beforehand
    most: int  # how deep at most, without a count -1


class Expressions:
    """Writes expressions of every type over the variables in scope."""

    def __init__(self, seed: int, *, prefix: str = "a", dead: bool = False, floated: bool = False) -> None:
        self.draw, self.noise = Random(seed), Random(seed + 1)
        self.prefix, self.dead, self.floated = prefix, dead, floated
        self.count = 0
        self.names = Names()
        self.lines: list[str] = []
        self.indent = 1
        self.level = 0  # nested loops and branches
        self.loops: list[str] = []  # what loops stand around
        self.order = 0  # of the derivatives around
        self.result = F  # of the function around
        self.recursive: list[Recursive] = []
        self.calls = 0  # how many more of them there may be

    # ---- helpers

    def fresh(self, type: str, hint: str = "", *, mutable: bool = False) -> str:
        self.count += 1
        name = f"{self.prefix}{hint}{self.count}"
        self.names.add(type, name, mutable=mutable)
        return name

    def put(self, line: str) -> None:
        self.lines.append("  " * self.indent + line)

    def weight(self) -> str:
        return f"{self.draw.uniform(0.3, 1.2):.2f}"

    def pick(self, *choices: Callable[[], str]) -> str:
        return self.draw.choice(choices)()

    @contextmanager
    def block(self, head: str, close: str = "}") -> Iterator[None]:
        """Statements in braces; what they bind ends with them."""
        self.put(head)
        outer, self.names = self.names, self.names.inner()
        self.indent, self.level = self.indent + 1, self.level + 1
        yield
        self.indent, self.level, self.names = self.indent - 1, self.level - 1, outer
        if close:
            self.put(close)

    @contextmanager
    def binding(self, *typed: tuple[str, str]) -> Iterator[list[str]]:
        """Names in the body of a lambda or a comprehension, where nothing is assigned."""
        outer, self.names = self.names, self.names.fixed()
        yield [self.fresh(t, h) for t, h in typed]
        self.names = outer

    # ---- expressions

    def scalar(self, depth: int = 2) -> str:
        known = self.names.of(F)
        if depth <= 0:
            return self.draw.choice(known) if known and self.draw.random() < 0.8 else self.weight()
        one = lambda: self.scalar(depth - 1)
        forms: list[Callable[[], str]] = [
            lambda: f"0.5 * ({one()} + {one()})", lambda: f"({one()} - 0.6 * {one()})", lambda: f"0.7 * {one()} * {one()}",
            lambda: f"{one()} / (1.5 + {self.atom(depth)}^2)", lambda: f"0.3 * {self.atom(depth)}^{self.draw.choice([2, 3])}",
            lambda: f"(1.5 + {self.atom(depth)}^2)^-1", lambda: f"(1.2 + {self.atom(depth)}^2)^(0.3 * {self.atom(depth)})",
            lambda: f"{self.unary()}({one()})", lambda: f"{one()} |> {self.unary()}", lambda: f"exp(-{self.atom(depth)}^2)",
            lambda: f"log(1.5 + {self.atom(depth)}^2)", lambda: f"sqrt(1 + {self.atom(depth)}^2)", lambda: f"{self.atom(depth)}.sin()",
            lambda: f"{self.draw.choice(['max', 'min', 'hypot', 'atan2'])}({one()}, 0.4 + {one()})",
            lambda: f"clamp({one()}, -0.9, 0.8)", lambda: f"where({self.boolean(depth - 1)}, {one()}, {one()})",
            lambda: f"if {self.boolean(depth - 1)} {{ {one()} }} else {{ {one()} }}", lambda: f"(if true {{ {one()} }} else {{ 1 / 0.0 }})",
            lambda: f"{self.reduction()}({self.array(depth - 1)})", lambda: f"energy({self.array(depth - 1)})",
            lambda: self.element(depth), lambda: self.filtered(depth), lambda: self.lambda_call(depth), lambda: self.derivative(depth),
            lambda: f"f64(f32({self.integer()}) * 0.25)", lambda: self.from_record(depth), lambda: f"({one()} % 1.7)",
            lambda: f"0.4 * dot({self.array(depth - 1, 2)}, {self.array(depth - 1, 2)})", lambda: f"{{ let u = {one()}\n u * 0.8 }}",
            lambda: f"stop({one()}) * 0 + {one()}", lambda: f"0.1 * f64({self.integer()}) * {one()}",
            lambda: self.from_sum(depth), lambda: self.from_records(depth),
        ]  # fmt: skip
        if self.recursive and self.calls and self.order < 2:
            forms += [lambda: self.recursion(depth)] * 3
        text = self.draw.choice(forms)()
        return f"({text})"

    def atom(self, depth: int) -> str:
        return f"({self.scalar(depth - 2)})"

    def unary(self) -> str:
        return self.draw.choice(
            ["sin", "cos", "tanh", "atan", "sigmoid", "softplus", "erf", "abs", "relu", "asinh", "expm1", "exp2"]
        )

    def reduction(self) -> str:
        return self.draw.choice(["mean", "max", "min", "logsumexp", "0.3 * sum", "0.2 * prod", "0.5 * norm", "spread"])

    def size(self) -> int:
        return self.draw.choice(SIZES)

    def array(self, depth: int, n: int = 0) -> str:
        """A vector of `n` numbers, of any size without `n`."""
        n = n or self.size()
        known = self.names.of(vector(n))
        if depth <= 0:
            items = ", ".join(self.scalar(0) for _ in range(n))
            return self.draw.choice(known) if known and self.draw.random() < 0.7 else f"[{items}]"
        one = lambda: self.array(depth - 1, n)
        m = self.size()
        forms: list[Callable[[], str]] = [
            lambda: f"0.5 * ({one()} + {one()})", lambda: f"{one()} * {self.scalar(depth - 1)}", lambda: f"({one()} - 0.5 * {one()}^2)",
            lambda: f"{self.unary()}({one()})", lambda: f"tail({self.array(depth - 1, n + 1)})" if n < 3 else one(),
            lambda: f"blend({one()}, {one()})", lambda: f"reverse({one()})", lambda: f"fill({n}, {self.scalar(depth - 1)})",
            lambda: f"0.5 * ({self.grid(depth - 1, n, m)} @ {self.array(depth - 1, m)})", lambda: f"0.5 * ({self.array(depth - 1, m)} @ {self.grid(depth - 1, m, n)})",
            lambda: f"matvec({self.grid(depth - 1, n, m)}, {self.array(depth - 1, m)})", lambda: f"mean({self.grid(depth - 1, m, n)}, axis = 0)",
            lambda: f"max({self.grid(depth - 1, n, m)}, axis = 1)", lambda: f"{self.grid(depth - 1, m, n)}[{self.index(m)}]",
            lambda: f"{self.grid(depth - 1, n, m)}[.., {self.index(m)}]", lambda: f"softmax({one()})", lambda: self.comprehension(depth, n),
            lambda: f"where({one()} > 0.1, {one()}, 0.3)", lambda: f"map({self.function(depth - 1)}, {one()})",
            lambda: f"concat({self.array(depth - 1, n - 1)}, [{self.scalar(depth - 1)}])" if n > 1 else one(),
            lambda: f"{one()}[[{', '.join(str(self.draw.randrange(n)) for _ in range(n))}]]", lambda: f"vmap({self.function(depth - 1)})({one()})",
            lambda: f"concat({self.array(depth - 1, m)}, {one()})[{m}..]",
            lambda: f"if {self.boolean(0)} {{ {one()} }} else {{ {one()} }}",
        ]  # fmt: skip
        return f"({self.draw.choice(forms)()})"

    def grid(self, depth: int, n: int, m: int) -> str:
        known = self.names.of(matrix(n, m))
        if known and self.draw.random() < 0.5:
            return self.draw.choice(known)
        if depth <= 0:
            return "[" + ", ".join(self.array(0, m) for _ in range(n)) + "]"
        one = lambda: self.grid(depth - 1, n, m)
        forms: list[Callable[[], str]] = [
            lambda: f"0.5 * ({one()} + {self.array(depth - 1, m)})", lambda: f"({one()} * {self.scalar(depth - 1)})", lambda: f"transpose({self.grid(depth - 1, m, n)})",
            lambda: f"outer({self.array(depth - 1, n)}, {self.array(depth - 1, m)})", lambda: f"{self.array(depth - 1, n)}[.., newaxis] * {self.array(depth - 1, m)}",
            lambda: f"reshape({self.grid(depth - 1, m, n)}, [{n}, {m}])", lambda: f"stack({self.array(depth - 1, n)}, {self.array(depth - 1, n)}, axis = 1)" if m == 2 else one(),
        ]  # fmt: skip
        return f"({self.draw.choice(forms)()})"

    def comprehension(self, depth: int, n: int) -> str:
        form = self.draw.randrange(4)
        if form == 0:
            with self.binding((INT, "i")) as (i,):
                return f"[for {i} in 0..{n} => {self.scalar(depth - 1)} * f64({i} + 1) / {n + 1}]"
        xs, ys = self.array(depth - 1, n), self.array(depth - 1, n)
        if form == 1:
            with self.binding((F, "v")) as (v,):
                return f"[for {v} in {xs} => {self.scalar(depth - 1)} + 0.5 * {v}]"
        if form == 2:
            with self.binding((F, "v"), (F, "w")) as (v, w):
                return f"[for ({v}, {w}) in zip({xs}, {ys}) => {self.scalar(depth - 1)} * {w}]"
        with self.binding((INT, "i")) as (i,):
            return f"[for {i} => 0.5 * {self.held(xs)}[{i}] + 0.3 * {self.scalar(depth - 1)}]"

    def held(self, text: str) -> str:
        return text if text.isidentifier() else f"({text})"

    def filtered(self, depth: int) -> str:
        n = self.size()
        xs = self.array(depth - 1, n)
        which = self.draw.choice(["sum", "prod", "max"])
        with self.binding((INT, "i"), (INT, "j")) as (i, j):
            condition = self.draw.choice(
                [f"{i} != {j}", f"{i} <= {j}", f"{i} + {j} > 0 and {self.boolean(0)}", self.boolean(0)]
            )
            start = "0.3 * " if which == "sum" else ""
            extra = f"max(0.7, {which}(" if which == "max" else f"0.3 * {which}("
            body = f"for {i} in 0..{n}, {j} in 0..2 if {condition} => {start}{self.held(xs)}[{i}] * {self.scalar(0)}"
            return f"{extra}{body}){')' if which == 'max' else ''}"

    def boolean(self, depth: int) -> str:
        a, b = self.scalar(depth), self.scalar(depth)
        return self.pick(
            lambda: f"{a} < {b}", lambda: f"0.1 <= {a} < 0.9", lambda: f"({a} > 0.3 or not ({b} > 0.2))", lambda: f"({a} > {b} and {b} < 0.5)",
            lambda: f"{self.integer()} % 2 == 0", lambda: f"any({self.array(0)} > {a})", lambda: f"{self.integer()} < {self.integer()}",
        )  # fmt: skip

    def integer(self) -> str:
        """A number in 0 .. 5, as a rule known only to the run."""
        known = self.names.of(INT)
        return self.draw.choice(known) if known else "2"

    def index(self, n: int) -> str:
        """A valid index of an axis of `n` places."""
        return self.pick(lambda: str(self.draw.randrange(n)), lambda: f"{self.integer()} % {n}", lambda: "-1")

    def element(self, depth: int) -> str:
        n, m = self.size(), self.size()
        if self.draw.random() < 0.3:
            return f"{self.grid(depth - 1, n, m)}[{self.index(n)}, {self.index(m)}]"
        if n > 1 and self.draw.random() < 0.4:
            at = f"{self.integer()} % {n - 1}"
            return f"mean({self.held(self.array(depth - 1, n))}[{at}..{at} + 2])"
        return f"{self.held(self.array(depth - 1, n))}[{self.index(n)}]"

    def function(self, depth: int) -> str:
        """A function of one number as an argument."""
        known = self.names.of("fn")
        if known and self.draw.random() < 0.3:
            return self.draw.choice(known)
        if depth > 0 and self.draw.random() < 0.2:
            return (
                f"(if {self.boolean(depth - 1)} {{ {self.function(depth - 1)} }} else {{ {self.function(depth - 1)} }})"
            )
        with self.binding((F, "t")) as (t,):
            return (
                f"|{t}| 0.5 * {t} + {self.scalar(depth)}"
                if self.draw.random() < 0.7
                else f"|{t}: f64| {{ let u = {t} * 0.7\n {self.scalar(depth)} * u }}"
            )

    def sum(self, depth: int) -> str:
        """An enum, of a variant that is known or not."""
        known = self.names.of("S")
        if known and self.draw.random() < 0.5:
            return self.draw.choice(known)
        return self.pick(
            lambda: f"One({self.scalar(depth)})", lambda: f"Two({self.scalar(depth)}, {self.array(depth, 2)}, {self.integer()} % 3)", lambda: "Nil",
            lambda: f"(if {self.boolean(depth)} {{ One({self.scalar(depth)}) }} else {{ Two({self.scalar(0)}, {self.array(0, 2)}, 0) }})",
            lambda: f"turned({self.sum(depth - 1) if depth > 0 else 'Nil'}, {self.scalar(depth)})",
        )  # fmt: skip

    def from_sum(self, depth: int) -> str:
        subject = self.sum(depth - 1)
        with self.binding((F, "t"), (vector(2), "w")) as (t, w):
            body = self.scalar(depth - 1)
        return self.pick(
            lambda: f"reading({subject})", lambda: f"match {subject} {{ One({t}) => 0.5 * {t}, Two({t}, {w}, _) => {body}, Nil => {self.scalar(0)} }}",
            lambda: f"0.4 * [reading({subject}), {self.scalar(0)}][{self.integer()} % 2]",
            lambda: f"reading([{subject}, {self.sum(0)}][{self.integer()} % 2])",
        )  # fmt: skip

    # ---- arrays of records and enums

    def of_arrays(self, item: str) -> list[str]:
        return [n for size in SIZES for n in self.names.of(f"{item}[{size}]")]

    def record(self, depth: int) -> str:
        known = self.names.of("Q")
        if known and self.draw.random() < 0.3:
            return self.draw.choice(known)
        made = f"Q(x = {self.scalar(depth)}, v = {self.array(depth, 2)}, k = {self.integer()})"
        return made if self.draw.random() < 0.7 else f"turning({made}, {self.scalar(0)})"

    def items(self, item: str, depth: int, n: int) -> str:
        """An array of `n` records `Q` or enums `S`."""
        known, one_of = self.names.of(f"{item}[{n}]"), self.record if item == "Q" else self.sum
        if known and self.draw.random() < 0.4:
            return self.draw.choice(known)
        listed = lambda: "[" + ", ".join(one_of(0) for _ in range(n)) + "]"
        if depth <= 0:
            return listed()
        turn, all_of = ("turning", "turning_all") if item == "Q" else ("turned", "turned_all")
        one, m = (lambda: self.items(item, depth - 1, n)), self.size()
        forms: list[Callable[[], str]] = [
            listed, listed, lambda: self.mapped_items(item, depth, n, turn), lambda: self.mapped_items(item, depth, n, turn),
            lambda: f"reverse({one()})", lambda: f"{all_of}({one()}, {self.scalar(depth - 1)})", lambda: f"roll({one()}, {self.integer()})",
            lambda: f"concat({self.items(item, depth - 1, n - 1)}, [{one_of(0)}])" if n > 1 else one(), lambda: f"concat({self.items(item, 0, m)}, {one()})[{m}..]",
            lambda: f"({one()})[[{', '.join(self.index(n).replace('-1', '0') for _ in range(n))}]]", lambda: f"where({self.array(0, n)} > {self.scalar(0)}, {one()}, {one()})",
            lambda: f"(if {self.boolean(0)} {{ {one()} }} else {{ {one()} }})", lambda: f"({one()} with (x = {self.array(depth - 1, n)}))" if item == "Q" else one(),
        ]  # fmt: skip
        return self.draw.choice(forms)()

    def mapped_items(self, item: str, depth: int, n: int, turn: str) -> str:
        form, over = self.draw.randrange(3), self.items(item, depth - 1, n)
        if form == 0:
            with self.binding((INT, "i")) as (i,):
                return f"[for {i} in 0..{n} => {self.record(0) if item == 'Q' else self.sum(0)}]"
        with self.binding((item, "q")) as (q,):
            body = f"{turn}({q}, {self.scalar(depth - 1)})"
            return f"[for {q} in {over} => {body}]" if form == 1 else f"map(|{q}| {body}, {over})"

    def from_records(self, depth: int) -> str:
        """A number made of an array of records or enums."""
        n = self.size()
        if self.draw.random() < 0.35:
            over = self.items("S", depth - 1, n)
            return self.pick(
                lambda: f"mean(map(reading, {over}))", lambda: f"reading(({over})[{self.index(n)}])", lambda: f"reading(picked({over}, {self.integer()}))",
            )  # fmt: skip
        over, a = self.items("Q", depth - 1, n), self.scalar(0)
        forms: list[Callable[[], str]] = [
            lambda: f"mean(({over}).x)", lambda: f"weighed(({over})[{self.index(n)}])", lambda: f"weighed_all({over})",
            lambda: f"reduce(|a, q| 0.5 * a + 0.4 * weighed(q), {a}, {over})", lambda: f"({over})[{self.index(n)}].v[{self.index(2)}]",
            lambda: f"mean(({over}).v[.., {self.index(2)}])", lambda: f"weighed(picked({over}, {self.integer()}))",
        ]  # fmt: skip
        if self.order < 2:
            forms += [
                lambda: f"0.3 * mean(grad(weighed_all)({over}).x)", lambda: f"0.3 * grad(|q| {a} * weighed_all(q))({over})[{self.index(n)}].x",
                lambda: f"weighed_all({over} + -0.1 * grad(weighed_all)({over}))",
            ]  # fmt: skip
        return self.draw.choice(forms)()

    def lambda_call(self, depth: int) -> str:
        g, a = self.function(depth - 1), self.scalar(depth - 1)
        known = self.names.of("fn")
        return self.pick(
            lambda: f"({g})({a})", lambda: f"lift({g}, {a})", lambda: f"scaled({self.scalar(0)})({a})", lambda: f"({a} |> {g})",
            lambda: f"{self.draw.choice(known)}({a})" if known else f"lift(sin, {a})",
        )  # fmt: skip

    def derivative(self, depth: int) -> str:
        """Derivatives of order 1 to 3, those that stand in one another counted together."""
        if self.order >= 3:
            return self.scalar(depth - 1)
        order = self.draw.choice([1, 1, 1, 2, 2, 3][: (6, 5, 3)[self.order]])
        self.order += order
        g, a, n = self.function(depth - 1), self.scalar(depth - 1), self.size()
        with self.binding((vector(n), "w")) as (w,):
            h = f"|{w}| energy({w}) + {self.scalar(depth - 1)}"
        at = self.array(depth - 1, n)
        first: tuple[Callable[[], str], ...] = (
            lambda: f"0.4 * grad({g})({a})", lambda: f"0.4 * ({g})'({a})", lambda: f"0.3 * mean(grad({h})({at}))",
            lambda: f"(jvp({g})({a}, 0.7) |> |(p, q)| 0.5 * p + 0.3 * q)", lambda: f"(value_and_grad({g})({a}) |> |(p, q)| 0.5 * p - 0.2 * q)",
            lambda: f"(vjp({h})({at}) |> |(p, pull)| 0.3 * p + 0.2 * sum(pull(0.5)))", lambda: f"0.2 * grad({h})({at})[{self.index(n)}]",
        )  # fmt: skip
        second: tuple[Callable[[], str], ...] = (
            lambda: f"0.2 * ({g})''({a})", lambda: f"0.2 * grad(grad({g}))({a})", lambda: f"(jvp(grad({g}))({a}, 0.7) |> |(p, q)| 0.3 * p + 0.1 * q)",
            lambda: f"0.1 * sum(hvp({h})({at}, {self.array(0, n)}))", lambda: f"0.1 * mean(hessian({h})({at}))", lambda: f"0.2 * grad(|u| (jvp({g})(u, 0.6) |> |(p, q)| 0.5 * p + q))({a})",
            lambda: f"0.1 * mean(grad(|u| sum(grad({h})(u)^2))({at}))",
        )  # fmt: skip
        third: tuple[Callable[[], str], ...] = (
            lambda: f"0.05 * ({g})'''({a})", lambda: f"0.05 * grad(|u| ({g})''(u))({a})", lambda: f"0.05 * mean(grad(|u| sum(hvp({h})(u, 0.5 * u)))({at}))",
            lambda: f"0.05 * (jvp(|u| grad(grad({g}))(u))({a}, 0.7) |> |(p, q)| p + q)",
        )  # fmt: skip
        text = self.pick(*(first, second, third)[order - 1])
        self.order -= order
        return text

    def from_record(self, depth: int) -> str:
        known = [(n, t) for t in self.names.known if t.startswith("P[") for n in self.names.of(t)]
        if not known:
            return self.scalar(depth - 1)
        name, _ = self.draw.choice(known)
        return self.pick(
            lambda: f"{name}.x", lambda: f"mean({name}.v)", lambda: f"moved({name}, {self.scalar(depth - 1)}).x", lambda: f"({name} with (x = {self.scalar(depth - 1)})).x",
            lambda: f"({name} + 0.1 * grad(|q| 0.5 * q.x^2 + energy(q.v))({name})).x",
        )  # fmt: skip

    # ---- functions that call themselves

    def recursion(self, depth: int) -> str:
        """A call from outside, as a number."""
        self.calls -= 1
        return self.called(self.draw.choice(self.recursive), depth - 1)

    def called(self, function: Recursive, depth: int) -> str:
        args = [self.value(t, depth) for t in function.params]
        if function.most >= 0:
            known = str(self.draw.randint(1, function.most))
            told = function.known or self.draw.random() < 0.3
            args.append(known if told else f"1 + {self.integer()} % {function.most}")
        return self.measured(function.result, f"{function.name}({', '.join(args)})")

    def value(self, type: str, depth: int) -> str:
        """An expression of any type: also of a pair."""
        match type:
            case "f64":
                return self.scalar(depth)
            case "i32":
                return self.integer()
            case "S":
                return self.sum(depth)
            case "fn":
                return self.function(depth)
            case "pair":
                return f"({self.scalar(depth)}, 0.5 * {self.scalar(0)})"
            case "Q":
                return self.record(depth)
            case "P[2]":
                tag = self.draw.choice(["once", "twice"])
                return f'P(x = {self.scalar(depth)}, v = {self.array(depth, 2)}, k = {self.integer()}, tag = "{tag}")'
            case _:
                return self.array(depth, int(type[4:-1]))

    def measured(self, type: str, text: str) -> str:
        """A number that depends on all of a value."""
        match type:
            case "f64":
                return text
            case "S":
                return f"reading({text})"
            case "pair":
                return f"({text} |> |(p, q)| 0.7 * p - 0.4 * q)"
            case "Q":
                return f"weighed({text})"
            case _:
                return f"mean({text})"
