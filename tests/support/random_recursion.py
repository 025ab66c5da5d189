"""Random functions that call themselves, or each other in a pair: trees, tails, loops and lambdas that call, early ends.

A call passes on what stays of moderate size and counts down, so that no run takes more than a dozen calls. How deep it
goes is known beforehand for a `dim` and for a size; otherwise the run decides, also by the data.
"""

# ruff: noqa: E501 - a row of a table, or a program, is a line

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from support.random_expressions import INT, F, Names, Recursive, vector
from support.random_statements import Statements

RESULTS = (F, F, F, vector(2), "Q", "S", "pair")
PARAMS = (vector(2), "Q", "S", "P[2]", "fn", INT)
WRITTEN = {"pair": "(f64, f64)", "fn": "(f64) -> f64"}


class Recursion(Statements):
    """Writes such functions `above` the others."""

    above: list[str]

    def group(self, name: str) -> None:
        """One function that calls itself or two that call each other, to be called from what is written later."""
        if self.draw.random() < 0.15:
            self.along_an_array(f"{name}v")
            return
        known, wide = self.draw.random() < 0.25, self.draw.random() < 0.5
        most = 2 if wide else 4
        names = [f"{name}{letter}" for letter in "pq"[: self.draw.choice([1, 1, 2])]]
        group = [Recursive(n, self.params(), self.draw.choice(RESULTS), known, most) for n in names]
        for i, function in enumerate(group):
            with self.body(function) as at:
                self.declared(function, [*group[i + 1 :], *group[: i + 1]], at, wide=wide)
        self.recursive += group

    def params(self) -> tuple[str, ...]:
        more = self.draw.sample(PARAMS, self.draw.choice([0, 1, 1, 2]))
        return (F, *more)

    @contextmanager
    def body(self, function: Recursive) -> Iterator[str]:
        """The body of a function of its own, which knows its parameters alone: the name of what it counts by."""
        outer = self.names, self.lines, self.indent, self.level, self.order, self.result, self.calls
        self.names, self.lines, self.indent, self.level, self.order = Names(), [], 1, 1, 2
        self.result, self.calls = function.result, int(self.draw.random() < 0.3)
        params = [f"{self.fresh(t, 'x')}: {WRITTEN.get(t, t)}" for t in function.params]
        at = self.fresh(INT, "k")
        params.append(f"{at}: {'dim' if function.known else INT}")
        yield at
        result = WRITTEN.get(function.result, function.result)
        self.above += [f"fn {function.name}({', '.join(params)}) -> {result} {{", *self.lines, "}"]
        self.names, self.lines, self.indent, self.level, self.order, self.result, self.calls = outer

    def declared(self, function: Recursive, group: Sequence[Recursive], at: str, *, wide: bool) -> None:
        """What a function does: it ends, or goes on in one of the forms."""
        again = Again(self, function, group, at)
        forms = [again.tail, again.linear, again.chosen, again.bound, again.branch, again.match]
        if wide:
            forms += [again.tree, again.loop, again.loop, again.comprehension, again.lambda_, again.tree]
        if function.known:
            forms.append(again.slope)
        form = self.draw.choice(forms)
        ends, base = self.ends(function, at), self.value(function.result, 1)
        if self.draw.random() < 0.5:
            self.put(f"if {ends} {{ return {base} }}")
            if self.draw.random() < 0.5:
                self.statement()
            self.put(form())
            return
        with self.block(f"if {ends} {{ {base} }} else {{"):
            if self.draw.random() < 0.5:
                self.statement()
            self.put(form())

    def ends(self, function: Recursive, at: str) -> str:
        if function.known:
            return f"{at} == 0"
        x = self.names.of(F)[0]
        return self.pick(lambda: f"{at} <= 0", lambda: f"{at} < 1 or abs({x}) > 0.9", lambda: f"not ({at} > 0 and {x} < 0.8)", lambda: f"{at} <= 0 or {self.boolean(0)}")  # fmt: skip

    def along_an_array(self, name: str) -> None:
        """Recursion on a size: each is a function of its own."""
        function = Recursive(name, (F, vector(3)), F, known=True, most=-1)
        outer, self.names = self.names, Names()
        x, v, first = self.fresh(F, "x"), f"{self.prefix}w", self.fresh(F, "e")
        rest = self.draw.choice([f"{v}[1..]", f"0.7 * {v}[1..]", f"sin({v}[1..])", f"{v}[1..] * {x}"])
        call = f"{name}({self.squeezed()}, {rest})"
        self.above += [f"fn {name}({x}: f64, {v}: f64[n]) -> f64 {{", f"  let {first} = {v}[0]",
                       f"  if n == 1 {{ return {self.scalar(1)} }}", f"  {self.mixed(F, call)}", "}"]  # fmt: skip
        self.names = outer
        self.recursive.append(function)

    def squeezed(self) -> str:
        """A number that is never large, however often it is passed on."""
        e = self.scalar(1)
        return self.draw.choice([f"0.7 * sin({e})", f"tanh({e})", f"0.8 * atan({e})", f"sin({e}) + 0.3"])

    def given(self, type: str) -> str:
        """An argument of a call. What is called with is of finitely many types: functions go on as they are."""
        if type == F:
            return self.squeezed()
        if type == vector(2):
            return f"0.8 * sin({self.array(1, 2)})"
        if type in ("fn", "S") and (known := self.names.of(type)):
            return known[0]  # of other variants it would be another function, with a loop of its own in this one's
        if type == "P[2]" and (known := self.names.of(type)):
            return self.draw.choice([known[0], f"moved({known[0]}, {self.squeezed()})"])
        return self.value(type, 1)

    def mixed(self, type: str, text: str) -> str:
        """A value of a type made of another and something new."""
        if type == F:
            return self.pick(
                lambda: f"0.5 * {text} + 0.4 * {self.scalar(1)}", lambda: f"{self.unary()}({text}) * {self.squeezed()}", lambda: f"0.6 * {text} * {self.scalar(1)}",
                lambda: f"max({text}, 0.4 + {self.scalar(1)})", lambda: f"({text} - 0.3 * {self.scalar(1)})", lambda: f"lift({self.function(1)}, {text})",
            )  # fmt: skip
        if type == vector(2):
            return self.pick(
                lambda: f"0.5 * ({text} + {self.array(1, 2)})", lambda: f"{text} * {self.squeezed()}", lambda: f"reverse({text})",
                lambda: f"concat([{self.squeezed()}], ({text})[1..])", lambda: f"softmax({text})",
            )  # fmt: skip
        if type == "Q":
            return self.pick(lambda: f"turning({text}, {self.scalar(1)})", lambda: f"({text}) with (x = {self.scalar(1)})", lambda: f"({text}) with (v = {self.array(1, 2)}, k = {self.integer()})")  # fmt: skip
        if type == "S":
            return f"turned({text}, {self.scalar(1)})"
        return f"({text} |> |(p, q)| ({self.pick(lambda: '0.5 * q', lambda: '0.5 * p', lambda: '0.6 * p * q')} + 0.3 * {self.scalar(1)}, 0.5 * q))"

    def made(self, type: str, number: str) -> str:
        """A value of a type that holds a number."""
        match type:
            case "Q":
                return f"Q(x = {number}, v = {self.array(0, 2)}, k = {self.integer()})"
            case "S":
                return f"One({number})"
            case "pair":
                return f"({number}, {self.scalar(0)})"
            case _:
                return number if type == F else f"[{number}, {self.scalar(0)}]"


class Again:
    """The ways in which a function goes on: each gives the expression that it ends with."""

    def __init__(self, writer: Recursion, function: Recursive, group: Sequence[Recursive], at: str) -> None:
        self.to, self.function, self.group, self.at = writer, function, group, at
        self.result = function.result
        self.next = 0

    def call(self) -> tuple[str, str]:
        """A call within the group, of each of its functions in turn, and its type."""
        callee = self.group[self.next % len(self.group)]
        self.next += 1
        down = [f"{self.at} - 1"] if self.function.known else [f"{self.at} - 1", f"{self.at} - 1", f"{self.at} - 2", f"{self.at} // 2"]  # fmt: skip
        args = [self.to.given(t) for t in callee.params]
        return f"{callee.name}({', '.join([*args, self.to.draw.choice(down)])})", callee.result

    def value(self) -> str:
        """A call as a value of the result's type."""
        text, type = self.call()
        return text if type == self.result else self.to.made(self.result, self.to.measured(type, text))

    def number(self) -> str:
        text, type = self.call()
        return self.to.measured(type, text)

    # ---- once

    def tail(self) -> str:
        return self.value()

    def linear(self) -> str:
        return self.to.mixed(self.result, self.value())

    def chosen(self) -> str:
        then, other = self.value(), self.linear()
        return f"if {self.to.boolean(1)} {{ {then} }} else {{ {other} }}"

    def bound(self) -> str:
        """What is known before the call is used after it."""
        number = self.number()
        y = self.to.fresh(F, "y")
        self.to.put(f"let {y} = {number}")
        if self.to.draw.random() < 0.6:
            self.to.statement()
        return self.to.mixed(self.result, self.to.made(self.result, y))

    def branch(self) -> str:
        first = self.to.scalar(1)
        y = self.to.fresh(F, "m", mutable=True)
        self.to.put(f"var {y} = {first}")
        with self.to.block(f"if {self.to.boolean(1)} {{", ""):
            if self.to.draw.random() < 0.5:
                self.to.assign()
            self.to.put(f"{y} {self.to.draw.choice(['=', '+= 0.4 *'])} {self.number()}")
        with self.to.block("} else {"):
            self.to.assign()
        return self.to.mixed(self.result, self.to.made(self.result, y))

    def match(self) -> str:
        subject, last = self.to.sum(1), self.to.value(self.result, 1)
        with self.to.binding((F, "t")) as (t,):
            one = self.linear()
        with self.to.binding((F, "t"), (vector(2), "w")) as (u, w):
            two = self.value()
        return f"match {subject} {{ One({t}) => {one}, Two({u}, {w}, _) => {two}, Nil => {last} }}"

    # ---- twice

    def tree(self) -> str:
        one, two = self.number(), self.number()
        return self.to.made(self.result, f"(0.5 * {one} {self.to.draw.choice(['+', '-', '*'])} 0.6 * {two})")

    def loop(self) -> str:
        """A loop of two steps, or as many as the run says, that calls at each."""
        first = self.to.scalar(1)
        m = self.to.fresh(F, "m", mutable=True)
        self.to.put(f"var {m} = {first}")
        limit = "2" if self.function.known else self.to.draw.choice(["2", f"{self.at} % 3", f"min({self.at}, 2)"])
        over, (name, hint) = self.to.draw.choice([(f"0..{limit}", (INT, "i")), (self.to.array(1, 2), (F, "e"))])
        outer, self.to.names = self.to.names, self.to.names.inner()
        head = f"for {self.to.fresh(name, hint)} in {over} {{"
        self.to.loops.append("for")
        with self.to.block(head):
            if self.to.draw.random() < 0.5:
                self.to.statement()
            self.to.put(f"{m} {self.to.draw.choice(['= 0.5 *', '+= 0.4 *', '-= 0.3 *', 'max='])} {self.number()}")
            if self.to.draw.random() < 0.3:
                self.to.leave()
        self.to.loops.pop()
        self.to.names = outer
        return self.to.mixed(self.result, self.to.made(self.result, m))

    def comprehension(self) -> str:
        over, (name, hint) = self.to.draw.choice([("0..2", (INT, "i")), (self.to.array(1, 2), (F, "e"))])
        reduced = self.to.draw.choice(["0.5 * sum", "max", "prod", "mean"])
        with self.to.binding((name, hint)) as (e,):
            body = f"for {e} in {over} => {self.number()}"
        if reduced == "mean":
            return self.to.made(self.result, f"mean([{body}])")
        return self.to.made(self.result, f"{reduced}({body})")

    def lambda_(self) -> str:
        with self.to.binding((F, "t")) as (t,):
            body = f"|{t}| 0.3 * {t} + {self.number()}"
        g = self.to.fresh("own", "g")  # not passed on: what is called with would have no end of types
        self.to.put(f"let {g} = {body}")
        e = self.to.squeezed()
        uses = [
            lambda: f"0.5 * ({g}({e}) + {g}({self.to.scalar(0)}))", lambda: f"lift({g}, {e})", lambda: f"mean(map({g}, {self.to.array(1, 2)}))",
            lambda: f"mean(vmap({g})({self.to.array(1, 2)}))", lambda: f"(if {self.to.boolean(0)} {{ {g} }} else {{ sin }})({e})",
        ]  # fmt: skip
        if self.function.known:  # a function that the run chooses knows no count beforehand
            uses.pop()
        return self.to.made(self.result, self.to.pick(*uses))

    def slope(self) -> str:
        """A derivative through the call: where each depth is a function of its own."""
        with self.to.binding((F, "t")) as (t,):
            body = f"|{t}| 0.5 * {t} + {self.number()}"
        return self.to.made(self.result, f"0.4 * grad({body})({self.to.squeezed()})")
