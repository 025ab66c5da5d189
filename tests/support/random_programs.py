"""Random well-typed programs of the language: a function `f` of three numbers and an integer to a number.

Every expression stays of moderate size and away from singular points, so that derivatives can be compared with
differences. A program is drawn from a seed; the same seed gives the same program with other names, with statements
that nothing uses, or with parts of expressions bound by a `let` first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random

F, I, B = "f64", "i32", "bool"
SIZES = (1, 2, 3)
HEADER = """float f64
record P[n] { x: f64, v: f64[n], k: i32, tag: str }
fn lift(g: (f64) -> f64, x: f64) -> f64 = 0.5 * g(0.5 * x)
fn scaled(k: f64) -> (f64) -> f64 = |t| 0.5 * k * t
fn energy(v: f64[n]) -> f64 = sum(v * v) / f64(n + 1)
fn blend[T: float](a: T[..s], b: T[..s]) -> T[..s] = (a + b) / 2
fn tail(v: f64[n + 1]) -> f64[n] = v[1..]
fn matvec(m: f64[a, b], v: f64[b]) -> f64[a] = [for i => sum(for j => m[i, j] * v[j]) / f64(b)]
fn moved(p: P[n], s: f64) -> P[n] {
  var q = p
  q.x = 0.5 * q.x + 0.3 * s
  q.v[0] += 0.2 * s
  if p.tag == "twice" { q.x *= 1.5 }
  q
}
"""


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


class Writer:
    """Writes one program. `prefix` names its variables, `dead` adds what nothing uses, `floated` binds parts first."""

    def __init__(self, seed: int, *, prefix: str = "a", dead: bool = False, floated: bool = False) -> None:
        self.draw, self.noise = Random(seed), Random(seed + 1)
        self.prefix, self.dead, self.floated = prefix, dead, floated
        self.count = 0
        self.names = Names()
        self.lines: list[str] = []
        self.indent = 1
        self.level = 0  # nested loops and branches
        self.inside = 0  # nested derivative operators

    def program(self, name: str = "f", size: int = 8) -> str:
        """The text of one function after `HEADER`."""
        params = [self.fresh(F, "x") for _ in range(3)] + [self.fresh(I, "k")]
        for _ in range(size):
            self.statement()
        total = [f"{self.weight()} * {n}" for n in self.names.of(F)]
        total += [f"mean({n})" for t in self.names.known for n in self.names.known[t] if t.startswith("f64[")]
        total += [f"0.2 * ({n}.x + mean({n}.v))" for t in self.names.known if t.startswith("P") for n in self.names.of(t)]
        head = f"fn {name}({params[0]}: f64, {params[1]}: f64, {params[2]}: f64, {params[3]}: i32) -> f64 {{"
        return "\n".join([head, *self.lines, f"  ({' + '.join(total)}) / {len(total)}", "}", ""])

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
        one = lambda: self.scalar(depth - 1)  # noqa: E731
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
        ]  # fmt: skip
        text = self.draw.choice(forms)()
        return f"({text})"

    def atom(self, depth: int) -> str:
        return f"({self.scalar(depth - 2)})"

    def unary(self) -> str:
        return self.draw.choice(["sin", "cos", "tanh", "atan", "sigmoid", "softplus", "erf", "abs", "relu", "asinh", "expm1", "exp2"])

    def reduction(self) -> str:
        return self.draw.choice(["mean", "max", "min", "logsumexp", "0.3 * sum", "0.2 * prod", "0.5 * norm", "std"])

    def size(self) -> int:
        return self.draw.choice(SIZES)

    def array(self, depth: int, n: int = 0) -> str:
        """A vector of `n` numbers, of any size without `n`."""
        n = n or self.size()
        known = self.names.of(vector(n))
        if depth <= 0:
            items = ", ".join(self.scalar(0) for _ in range(n))
            return self.draw.choice(known) if known and self.draw.random() < 0.7 else f"[{items}]"
        one = lambda: self.array(depth - 1, n)  # noqa: E731
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
        one = lambda: self.grid(depth - 1, n, m)  # noqa: E731
        forms: list[Callable[[], str]] = [
            lambda: f"0.5 * ({one()} + {self.array(depth - 1, m)})", lambda: f"({one()} * {self.scalar(depth - 1)})", lambda: f"transpose({self.grid(depth - 1, m, n)})",
            lambda: f"outer({self.array(depth - 1, n)}, {self.array(depth - 1, m)})", lambda: f"{self.array(depth - 1, n)}[.., newaxis] * {self.array(depth - 1, m)}",
            lambda: f"reshape({self.grid(depth - 1, m, n)}, [{n}, {m}])", lambda: f"stack({self.array(depth - 1, n)}, {self.array(depth - 1, n)}, axis = 1)" if m == 2 else one(),
        ]  # fmt: skip
        return f"({self.draw.choice(forms)()})"

    def comprehension(self, depth: int, n: int) -> str:
        form = self.draw.randrange(4)
        if form == 0:
            with self.binding((I, "i")) as (i,):
                return f"[for {i} in 0..{n} => {self.scalar(depth - 1)} * f64({i} + 1) / {n + 1}]"
        xs, ys = self.array(depth - 1, n), self.array(depth - 1, n)
        if form == 1:
            with self.binding((F, "v")) as (v,):
                return f"[for {v} in {xs} => {self.scalar(depth - 1)} + 0.5 * {v}]"
        if form == 2:
            with self.binding((F, "v"), (F, "w")) as (v, w):
                return f"[for ({v}, {w}) in zip({xs}, {ys}) => {self.scalar(depth - 1)} * {w}]"
        with self.binding((I, "i")) as (i,):
            return f"[for {i} => 0.5 * {self.held(xs)}[{i}] + 0.3 * {self.scalar(depth - 1)}]"

    def held(self, text: str) -> str:
        return text if text.isidentifier() else f"({text})"

    def filtered(self, depth: int) -> str:
        n = self.size()
        xs = self.array(depth - 1, n)
        which = self.draw.choice(["sum", "prod", "max"])
        with self.binding((I, "i"), (I, "j")) as (i, j):
            condition = self.draw.choice([f"{i} != {j}", f"{i} <= {j}", f"{i} + {j} > 0 and {self.boolean(0)}", self.boolean(0)])
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
        known = self.names.of(I)
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
        with self.binding((F, "t")) as (t,):
            return f"|{t}| 0.5 * {t} + {self.scalar(depth)}" if self.draw.random() < 0.7 else f"|{t}: f64| {{ let u = {t} * 0.7\n {self.scalar(depth)} * u }}"

    def lambda_call(self, depth: int) -> str:
        g, a = self.function(depth - 1), self.scalar(depth - 1)
        known = self.names.of("fn")
        return self.pick(
            lambda: f"({g})({a})", lambda: f"lift({g}, {a})", lambda: f"scaled({self.scalar(0)})({a})", lambda: f"({a} |> {g})",
            lambda: f"{self.draw.choice(known)}({a})" if known else f"lift(sin, {a})",
        )  # fmt: skip

    def derivative(self, depth: int) -> str:
        if self.inside >= 2:
            return self.scalar(depth - 1)
        self.inside += 1
        g, a, n = self.function(depth - 1), self.scalar(depth - 1), self.size()
        with self.binding((vector(n), "w")) as (w,):
            h = f"|{w}| energy({w}) + {self.scalar(depth - 1)}"
        at = self.array(depth - 1, n)
        text = self.pick(
            lambda: f"0.4 * grad({g})({a})", lambda: f"0.4 * ({g})'({a})", lambda: f"0.2 * ({g})''({a})", lambda: f"0.3 * mean(grad({h})({at}))",
            lambda: f"(jvp({g})({a}, 0.7) |> |(p, q)| 0.5 * p + 0.3 * q)", lambda: f"(value_and_grad({g})({a}) |> |(p, q)| 0.5 * p - 0.2 * q)",
            lambda: f"(vjp({h})({at}) |> |(p, pull)| 0.3 * p + 0.2 * sum(pull(0.5)))", lambda: f"0.2 * grad({h})({at})[{self.index(n)}]",
        )  # fmt: skip
        self.inside -= 1
        return text

    def from_record(self, depth: int) -> str:
        known = [(n, t) for t in self.names.known if t.startswith("P") for n in self.names.of(t)]
        if not known:
            return self.scalar(depth - 1)
        name, _ = self.draw.choice(known)
        return self.pick(
            lambda: f"{name}.x", lambda: f"mean({name}.v)", lambda: f"moved({name}, {self.scalar(depth - 1)}).x", lambda: f"({name} with (x = {self.scalar(depth - 1)})).x",
            lambda: f"({name} + 0.1 * grad(|q| 0.5 * q.x^2 + energy(q.v))({name})).x",
        )  # fmt: skip

    # ---- statements

    def statement(self) -> None:
        if self.dead and self.noise.random() < 0.4:
            self.unused()
        forms: list[Callable[[], None]] = [self.let, self.let, self.let, self.variable, self.variable, self.array_variable, self.record_variable, self.assign,
                                           self.update_element, self.update_field, self.function_, self.nested]  # fmt: skip
        if self.level < 2:
            forms += [self.if_, self.for_, self.for_, self.while_]
        self.draw.choice(forms)()

    def unused(self) -> None:
        """Statements without an effect on the result; their numbers come from a stream of their own."""
        known = self.noise.choice(self.names.of(F))
        self.put(self.noise.choice([f"let unused = sin({known}) / {known}", f"let unused = [{known}, 2.0]", f"let unused = |t| t / {known}",
                                    f"var unused = {known}"]))  # fmt: skip

    def let(self) -> None:
        a, b = self.scalar(2), self.scalar(2)
        if self.floated:
            self.put(f"let part = {a}")
            a = "part"
        form = self.draw.randrange(4)
        if form == 3:
            text = self.array(2, n := self.size())
            self.put(f"let {self.fresh(vector(n), 'v')} = {text}")
        elif form == 2:
            one, two = self.fresh(F), self.fresh(F)
            self.put(f"let ({one}, {two}) = ({a}, 0.5 * {b})")
        else:
            self.put(f"let {self.fresh(F)}{': f64' if form else ''} = 0.5 * ({a} + {b})")

    def variable(self) -> None:
        a = self.scalar(2)
        self.put(f"var {self.fresh(F, 'm', mutable=True)} = {a}")

    def array_variable(self) -> None:
        n, m = self.size(), self.size()
        if self.draw.random() < 0.3:
            text = self.grid(1, n, m)
            self.put(f"var {self.fresh(matrix(n, m), 'g', mutable=True)} = {text}")
        else:
            text = self.array(2, n)
            self.put(f"var {self.fresh(vector(n), 'v', mutable=True)} = {text}")

    def record_variable(self) -> None:
        n = self.size()
        x, v, tag = self.scalar(1), self.array(1, n), self.draw.choice(["once", "twice"])
        self.put(f'var {self.fresh(f"P[{n}]", "r", mutable=True)} = P(x = {x}, v = {v}, k = {self.integer()}, tag = "{tag}")')

    def assign(self) -> None:
        known = self.names.of(F, mutable=True)
        if not known:
            return self.variable()
        a, e = self.draw.choice(known), self.scalar(2)
        b = self.draw.choice(known)
        swap = f"({a}, {b}) = ({b}, {a})" if a != b else f"{a} = {e}"
        self.put(self.draw.choice([f"{a} = {e}", f"{a} += 0.3 * {e}", f"{a} = 0.5 * {a} + 0.4 * {e}", f"{a} max= {e}", f"{a} *= 0.7", f"{a} /= 1.5",
                                   f"{a} -= 0.3 * {e}", f"{a} min= 0.5 + {e}", swap]))  # fmt: skip
        return None

    def update_element(self) -> None:
        known = [(t, n) for t in list(self.names.known) if t.startswith("f64[") for n in self.names.of(t, mutable=True)]
        if not known:
            return self.array_variable()
        type, a = self.draw.choice(known)
        sizes = [int(s) for s in type[4:-1].split(",")]
        if len(sizes) == 2:
            n, m = sizes
            self.put(self.pick(
                lambda: f"{a}[{self.index(n)}, {self.index(m)}] = {self.scalar(2)}", lambda: f"{a}[{self.index(n)}] = {self.array(1, m)}",
                lambda: f"{a}[.., {self.index(m)}] += 0.3 * {self.array(1, n)}", lambda: f"{a}[{self.index(n)}] *= 0.6",
            ))  # fmt: skip
            return None
        (n,) = sizes
        low = self.draw.randrange(n)
        where = ", ".join(str(self.draw.randrange(n)) for _ in range(2))
        self.put(self.pick(
            lambda: f"{a}[{self.index(n)}] = {self.scalar(2)}", lambda: f"{a}[{self.index(n)}] += 0.4 * {self.scalar(2)}", lambda: f"{a}[{self.index(n)}] max= {self.scalar(1)}",
            lambda: f"{a}[{low}..] = {self.array(1, n - low)}", lambda: f"{a}[{low}..] += 0.3 * {self.scalar(1)}", lambda: f"{a}[[{where}]] += 0.2 * {self.array(1, 2)}",
            lambda: f"{a}[0.. by 2] *= 0.5", lambda: f"{a}[[{where}]] = {self.array(1, 2)}", lambda: f"{a} = 0.5 * {self.array(1, n)}", lambda: f"{a}[{self.index(n)}] *= {self.scalar(1)}",
        ))  # fmt: skip
        return None

    def update_field(self) -> None:
        known = [(t, n) for t in list(self.names.known) if t.startswith("P") for n in self.names.of(t, mutable=True)]
        if not known:
            return self.record_variable()
        type, r = self.draw.choice(known)
        n = int(type[2:-1])
        self.put(self.pick(
            lambda: f"{r}.x = {self.scalar(2)}", lambda: f"{r}.v[{self.index(n)}] += 0.3 * {self.scalar(2)}", lambda: f"{r}.v = {self.array(1, n)}",
            lambda: f"{r} = moved({r}, {self.scalar(1)})", lambda: f"{r}.x *= 0.8", lambda: f"{r}.k += 1", lambda: f"{r} += -0.1 * grad(|q| 0.5 * q.x^2 + energy(q.v))({r})",
        ))  # fmt: skip
        return None

    def function_(self) -> None:
        text = self.function(2)
        self.put(f"let {self.fresh('fn', 'g')} = {text}")

    def nested(self) -> None:
        with self.binding((F, "t")) as (t,):
            body = self.scalar(2)
        self.put(f"fn {self.fresh('fn', 'h')}({t}: f64) -> f64 = 0.5 * {t} + {body}")

    def some(self) -> None:
        for _ in range(self.draw.randint(1, 3)):
            self.statement()

    def if_(self) -> None:
        with self.block(f"if {self.boolean(1)} {{", ""):
            self.some()
        if self.draw.random() < 0.6:
            with self.block("} else {"):
                self.some()
        else:
            self.put("}")

    def for_(self) -> None:
        form, n = self.draw.randrange(5), self.size()
        text, xs, ys = self.fresh(vector(n), "y") if form == 4 else "", self.array(1, n), self.array(1, n)
        if text:
            self.names.known[vector(n)].remove(text)
        outer = self.names
        self.names = outer.inner()
        limit = self.integer()
        if form in (0, 4):
            head = f"for {self.fresh(I, 'i')} in 0..{n} {{"
        elif form == 1:
            head = f"for {self.fresh(I, 'i')} in 0..{limit} {{"
        elif form == 2:
            head = f"for {self.fresh(F, 'e')} in {xs} {{"
        else:
            head = f"for ({self.fresh(F, 'e')}, {self.fresh(F, 'e')}) in zip({xs}, {ys}) {{"
        with self.block(f"let {text} = {head}" if text else head):
            self.some()
            self.assign()
            if text:
                self.put(f"yield {self.scalar(1)}")
        self.names = outer
        if text:
            self.names.add(vector(n), text)

    def while_(self) -> None:
        start = self.scalar(1)
        s = self.fresh(F, "s", mutable=True)
        c = f"{self.prefix}c{self.count}"
        self.put(f"var {s} = {start}")
        self.put(f"var {c} = 0")
        limit = self.draw.choice(["1.1", "1.9"])
        with self.block(f"while {s}^2 < {limit} and {c} < 6 {{"):
            self.some()
            self.put(f"{s} = 1.1 * {s} + 0.3 * {self.scalar(1)} + 0.2")
            self.put(f"{c} += 1")


def random_program(seed: int, name: str = "f", **how: object) -> str:
    """One function, after `HEADER`. The options are those of `Writer`."""
    return Writer(seed, **how).program(name)  # type: ignore[arg-type]
