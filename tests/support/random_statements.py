"""Random statements of the language, in the body of a function."""

# ruff: noqa: E501 - a row of a table, or a program, is a line

from __future__ import annotations

from collections.abc import Callable

from support.random_expressions import INT, Expressions, F, matrix, vector


class Statements(Expressions):
    """Writes statements over the variables in scope, which they may assign."""

    def statement(self) -> None:
        if self.dead and self.noise.random() < 0.4:
            self.unused()
        forms: list[Callable[[], None]] = [self.let, self.let, self.let, self.variable, self.variable, self.array_variable, self.record_variable, self.assign,
                                           self.update_element, self.update_field, self.update_enum, self.update_items, self.function_, self.nested]  # fmt: skip
        if self.level < 2:
            forms += [self.if_, self.match_, self.for_, self.for_, self.for_, self.while_, self.writes]
        elif self.level < 3:
            forms += [self.if_]
        if self.loops and self.loops[-1] != "yield":
            forms += [self.leave, self.leave]
        if "yield" not in self.loops and self.draw.random() < 0.15:
            forms.append(self.return_)
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
        self.put(
            f'var {self.fresh(f"P[{n}]", "r", mutable=True)} = P(x = {x}, v = {v}, k = {self.integer()}, tag = "{tag}")'
        )

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
        where = ", ".join(self.draw.choice([str(self.draw.randrange(n)), f"{self.integer()} % {n}"]) for _ in range(2))
        self.put(self.pick(
            lambda: f"{a}[{self.index(n)}] = {self.scalar(2)}", lambda: f"{a}[{self.index(n)}] += 0.4 * {self.scalar(2)}", lambda: f"{a}[{self.index(n)}] max= {self.scalar(1)}",
            lambda: f"{a}[{low}..] = {self.array(1, n - low)}", lambda: f"{a}[{low}..] += 0.3 * {self.scalar(1)}", lambda: f"{a}[[{where}]] += 0.2 * {self.array(1, 2)}",
            lambda: f"{a}[0.. by 2] *= 0.5", lambda: f"{a}[[{where}]] = {self.array(1, 2)}", lambda: f"{a} = 0.5 * {self.array(1, n)}", lambda: f"{a}[{self.index(n)}] *= {self.scalar(1)}",
            lambda: f"{a}[[{where}]] max= {self.array(1, 2)}", lambda: f"{a}[[{where}]] min= 0.3 + {self.array(1, 2)}", lambda: f"{a}[[{where}]] *= 0.7 + 0.2 * {self.array(1, 2)}",
        ))  # fmt: skip
        return None

    def update_field(self) -> None:
        known = [(t, n) for t in list(self.names.known) if t.startswith("P[") for n in self.names.of(t, mutable=True)]
        if not known:
            return self.record_variable()
        type, r = self.draw.choice(known)
        n = int(type[2:-1])
        self.put(self.pick(
            lambda: f"{r}.x = {self.scalar(2)}", lambda: f"{r}.v[{self.index(n)}] += 0.3 * {self.scalar(2)}", lambda: f"{r}.v = {self.array(1, n)}",
            lambda: f"{r} = moved({r}, {self.scalar(1)})", lambda: f"{r}.x *= 0.8", lambda: f"{r}.k += 1", lambda: f"{r} += -0.1 * grad(|q| 0.5 * q.x^2 + energy(q.v))({r})",
        ))  # fmt: skip
        return None

    def update_enum(self) -> None:
        known = self.names.of("S", mutable=True)
        if not known:
            text = self.sum(1)
            self.put(f"var {self.fresh('S', 'e', mutable=True)} = {text}")
            return
        e = self.draw.choice(known)
        self.put(self.pick(
            lambda: f"{e} = turned({e}, {self.scalar(1)})", lambda: f"{e} = {self.sum(1)}", lambda: f"{e} = {e} + -0.1 * grad(reading)({e})",
            lambda: f"{e} = match {e} {{ One(t) => Two(t, {self.array(1, 2)}, {self.integer()} % 3), other => turned(other, {self.scalar(1)}) }}",
        ))  # fmt: skip

    def update_items(self) -> None:
        """An array of records or enums is made, or changed in some of its items."""
        item = self.draw.choice("QQS")
        known = [(n, name) for n in (1, 2, 3) for name in self.names.of(f"{item}[{n}]", mutable=True)]
        if not known:
            text = self.items(item, 2, n := self.size())
            self.put(f"var {self.fresh(f'{item}[{n}]', 'q', mutable=True)} = {text}")
            return
        n, a = self.draw.choice(known)
        low, i = self.draw.randrange(n), self.index(n)
        forms: list[Callable[[], str]] = [
            lambda: f"{a} = {self.items(item, 1, n)}", lambda: f"{a}[{low}..] = {self.items(item, 1, n - low)}",
            lambda: f"{a}[{i}] = {self.record(1) if item == 'Q' else self.sum(1)}",
        ]  # fmt: skip
        if item == "Q":
            forms += [
                lambda: f"{a}[{i}].x += 0.3 * {self.scalar(1)}", lambda: f"{a}[{i}].v[{self.index(2)}] = {self.scalar(1)}", lambda: f"{a}[{i}].v = {self.array(1, 2)}",
                lambda: f"{a}.x = {self.array(1, n)}", lambda: f"{a}[{i}] = turning({a}[{i}], {self.scalar(1)})", lambda: f"{a}[{low}..].x *= 0.7", lambda: f"{a}[{i}].k += 1",
                lambda: f"{a}[[{low}, {self.integer()} % {n}]].x += 0.2 * {self.array(0, 2)}", lambda: f"{a}[{i}] += -0.1 * grad(weighed)({a}[{i}])",
                lambda: f"{a} += -0.1 * grad(weighed_all)({a})",
            ]  # fmt: skip
        self.put(self.draw.choice(forms)())

    def match_(self) -> None:
        """A statement with a case for each variant; some of them do nothing."""
        subject = self.sum(1)
        with self.block(f"match {subject} {{"):
            for variant, fields in (("One", ((F, "t"),)), ("Two", ((F, "t"), (vector(2), "w"), (INT, "j"))), ("_", ())):
                outer, self.names = self.names, self.names.inner()
                bound = [self.fresh(t, h) for t, h in fields]
                with self.block(f"{variant}({', '.join(bound)}) => {{" if bound else f"{variant} => {{"):
                    if self.draw.random() < 0.8:
                        self.some()
                self.names = outer

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

    def leave(self) -> None:
        """A loop is left, or one step of it, on some condition; sometimes after a statement or beside others."""
        with self.block(f"if {self.boolean(1)} {{", ""):
            if self.draw.random() < 0.4:
                self.assign()
            self.put(self.draw.choice(["break", "continue"]))
        if self.draw.random() < 0.3:
            with self.block("} else {"):
                self.some()
        else:
            self.put("}")

    def return_(self) -> None:
        with self.block(f"if {self.boolean(1)} {{"):
            if self.draw.random() < 0.4:
                self.assign()
            self.put(f"return {self.value(self.result, 1)}")

    def for_(self) -> None:
        form, n = self.draw.randrange(6), self.size()
        records = self.items("Q", 1, n) if form == 5 else ""
        text, xs, ys = self.fresh(vector(n), "y") if form == 4 else "", self.array(1, n), self.array(1, n)
        if text:
            self.names.known[vector(n)].remove(text)
        outer = self.names
        self.names = outer.inner()
        limit = self.draw.choice([self.integer(), self.integer(), f"{self.integer()} % 2", "0"])
        if form in (0, 4):
            head = f"for {self.fresh(INT, 'i')} in 0..{n} {{"
        elif form == 1:
            head = f"for {self.fresh(INT, 'i')} in 0..{limit} {{"
        elif form == 2:
            head = f"for {self.fresh(F, 'e')} in {xs} {{"
        elif form == 5:
            head = f"for ({self.fresh(F, 'e')}, {self.fresh('Q', 'q')}) in zip({xs}, {records}) {{"
        else:
            head = f"for ({self.fresh(F, 'e')}, {self.fresh(F, 'e')}) in zip({xs}, {ys}) {{"
        self.loops.append("yield" if text else "for")
        with self.block(f"let {text} = {head}" if text else head):
            self.some()
            self.assign()
            if text:
                self.put(f"yield {self.scalar(1)}")
        self.loops.pop()
        self.names = outer
        if text:
            self.names.add(vector(n), text)

    def writes(self) -> None:
        """A loop that only writes into an array, to places that may meet."""
        n = self.size()
        first = self.array(1, n)
        a = self.fresh(vector(n), "w", mutable=True)
        self.names.known[vector(n)].remove(a)
        self.put(f"var {a} = {first}")
        limit = self.draw.choice([str(self.size()), "4", self.integer(), f"{self.integer()} % 2"])
        way = self.draw.choice(["= ", "+= 0.4 * ", "-= 0.3 * ", "max= ", "min= 0.4 + ", "*= 0.8 + 0.2 * "])
        with self.block(f"for {self.prefix}j in 0..{limit} {{"):
            self.names.add(INT, f"{self.prefix}j")
            at = f"{a}[(2 * {self.prefix}j + {self.integer()}) % {n}] {way}{self.scalar(1)}"
            self.put(f"if {self.boolean(0)} {{ {at} }}" if self.draw.random() < 0.3 else at)
        self.names.add(vector(n), a, mutable=True)

    def while_(self) -> None:
        start = self.scalar(1)
        s = self.fresh(F, "s", mutable=True)
        c = f"{self.prefix}c{self.count}"
        self.put(f"var {s} = {start}")
        self.put(f"var {c} = 0")
        limit = self.draw.choice(["1.1", "1.9"])
        self.loops.append("while")
        with self.block(f"while {s}^2 < {limit} and {c} < 6 {{"):
            self.put(f"{c} += 1")
            self.some()
            self.put(f"{s} = 1.1 * {s} + 0.3 * {self.scalar(1)} + 0.2")
        self.loops.pop()
