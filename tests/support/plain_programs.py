"""Random programs as people write them: index notation, loops with accumulators, writes and extrema over arrays.

They are close to what the passes that reorder work look for, and often just not it: a carry that is read again,
elements of two indices that meet, a write that the next step reads, ties.
"""

from __future__ import annotations

from random import Random

Scope = tuple[str, ...]  # the indices in scope, all below n

HEADER = "float f64\n\n"


class PlainProgram:
    """Writes one program: `fn f(x: f64[n], y: f64[n], a: f64[n, n]) -> f64 where n > 1`."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.vectors = ["x", "y"]
        self.matrices = ["a"]
        self.scalars: list[str] = []
        self.lines: list[str] = []
        self.names = 0

    def source(self) -> str:
        for _ in range(self.random.randint(2, 5)):
            self.statement()
        total = " + ".join(self.total(name) for name in (*self.scalars[-3:], *self.vectors[-2:], *self.matrices[-1:]))
        body = "\n".join(f"  {line}" for line in [*self.lines, total])
        return f"{HEADER}fn f(x: f64[n], y: f64[n], a: f64[n, n]) -> f64 where n > 1 {{\n{body}\n}}\n"

    def pick(self, *choices: str) -> str:
        return self.random.choice(choices)

    def fresh(self, letter: str) -> str:
        self.names += 1
        return f"{letter}{self.names}"

    def total(self, name: str) -> str:
        if name in self.scalars:
            return f"tanh({name})"
        return self.pick(
            f"sum({name})", f"sum({name}^2)", f"max({name})" if name in self.vectors else f"sum({name} * a)"
        )

    # ---- Expressions

    def element(self, scope: Scope) -> str:
        """An element at indices in scope, or a number."""
        i, j = self.random.choice(scope), self.random.choice(scope)
        choices = [f"{self.random.choice(self.vectors)}[{i}]"] * 3 + [
            f"{self.random.choice(self.matrices)}[{i}, {j}]"
        ] * 3
        return self.random.choice([*choices, *self.scalars[:2], self.pick("0.5", "2.0", "-1.0")])

    def number(self, scope: Scope, depth: int = 2) -> str:
        if depth == 0:
            return self.element(scope)
        one, two = self.number(scope, depth - 1), self.number(scope, depth - 1)
        index = f"k{len(scope)}"
        inner = self.number((*scope, index), depth - 1) if len(scope) < 3 else one
        i = self.random.choice(scope)
        return self.pick(
            f"({one} * {two})", f"({one} * {two})", f"({one} - {two})", f"({one} + {two})", f"({one} - {two})^2",
            f"exp(-({one})^2)", f"sin({one})", f"max({one}, {two})", f"abs({one})",
            f"sum(for {index} in 0..n => {inner})", f"sum(for {index} in 0..n => {inner})",
            f"{self.pick('max', 'min')}(for {index} in 0..n => {inner})",
            f"{self.pick('max', 'min', 'sum', 'logsumexp')}({self.random.choice(self.matrices)}[{i}])",
            f"(if {one} > {two} {{ {one} }} else {{ {self.element(scope)} }})",
            f"where({one} > {self.pick('0.0', '0.3')}, {two}, {self.element(scope)})",
        )  # fmt: skip

    # ---- Statements

    def statement(self) -> None:
        self.random.choice(
            [
                self.vector,
                self.matrix,
                self.sums,
                self.sums,
                self.best,
                self.writes,
                self.triangle,
                self.counter,
                self.flag,
            ]
        )()

    def vector(self) -> None:
        name = self.fresh("v")
        self.lines.append(f"let {name} = [for i in 0..n => {self.number(('i',))}]")
        self.vectors.append(name)

    def matrix(self) -> None:
        name = self.fresh("m")
        self.lines.append(f"let {name} = [for i in 0..n, j in 0..n => {self.number(('i', 'j'))}]")
        self.matrices.append(name)

    def range(self, outer: str) -> str:
        return self.pick("0..n", "0..n", f"0..{outer}", f"{outer} + 1..n", f"0..n - {outer}")

    def sums(self) -> None:
        """Accumulators in one loop or two, which may read each other, or themselves."""
        s, t = self.fresh("s"), self.fresh("s")
        reads = self.pick("", "", f" + 0.1 * {t}", f" * cos({s})")
        more = self.pick("", f"    {t} -= {self.number(('i', 'j'), 1)}")
        condition = self.pick("", "", f"if {self.element(('i', 'j'))} > 0.1 ")
        add = f"{s} += {self.number(('i', 'j'), 1)}{reads}"
        self.lines += [
            f"var {s} = 0.0", f"var {t} = {self.pick('0.0', 'x[0]')}",
            "for i in 0..n {", f"  for j in {self.range('i')} {{",
            f"    {condition}{{ {add} }}" if condition else f"    {add}",
            *([more] if more else []), "  }",
            f"  {t} {self.pick('+=', '+=', '-=')} {self.number(('i',), 1)}", "}",
        ]  # fmt: skip
        self.scalars += [s, t]

    def best(self) -> None:
        """A running extremum, its index, and what it was before."""
        top, at, other = self.fresh("s"), self.fresh("i"), self.fresh("s")
        value = self.number(("i",), 1)
        first, then = self.random.sample([f"{other} = {self.pick(top, 'y[i]', 'f64(i)')}", f"{top} = {value}"], 2)
        self.lines += [
            f"var {top} = {self.pick('-10.0', 'x[0]', '0.3')}", f"var {other} = 0.5", f"var {at} = 0",
            "for i in 0..n {", f"  if {value} {self.pick('>', '>', '<', '>=')} {top} {{",
            f"    {first}", f"    {then}", f"    {at} = i", "  }",
            *([f"  {other} += 0.1 * {self.element(('i',))}"] if self.random.random() < 0.3 else []), "}",
        ]  # fmt: skip
        self.scalars += [top, other]
        if self.random.random() < 0.7:
            last = self.fresh("s")
            self.lines.append(f"let {last} = y[{at}] * {top}")
            self.scalars.append(last)

    def writes(self) -> None:
        """A matrix written element by element; a step may read what an earlier one wrote."""
        name = self.fresh("m")
        value = self.number(("i", "j"), 1)
        mirrored = self.pick("", "", f"    {name}[j, i] = {self.pick(f'{name}[i, j]', self.element(('i', 'j')))}")
        reads = self.pick("", "", f" + 0.5 * {name}[i, 0]", f" + 0.5 * {name}[j, i]", f" * {name}[i, j]")
        write = self.pick("=", "=", "+=")
        self.lines += [
            f"var {name} = {self.pick('zeros(n, n)', self.random.choice(self.matrices))}",
            "for i in 0..n {", f"  for j in {self.range('i')} {{", f"    {name}[i, j] {write} {value}{reads}",
            *([mirrored] if mirrored else []), "  }", "}",
        ]  # fmt: skip
        self.matrices.append(name)

    def triangle(self) -> None:
        """A vector to which a loop in a loop adds at both indices."""
        name = self.fresh("v")
        i, j = self.random.sample(["i", "j"], 2)
        term = f"{self.random.choice(self.matrices)}[{i}, {j}] * {self.random.choice(self.vectors)}[{j}]"
        reads = self.pick("", "", f" + 0.1 * {name}[{j}]")
        self.lines += [
            f"var {name} = {self.pick('zeros(n)', 'x')}", "for i in 0..n {", f"  for j in {self.range('i')} {{",
            f"    {name}[{i}] {self.pick('+=', '-=')} {term}{reads}", "  }", "}",
        ]  # fmt: skip
        self.vectors.append(name)

    def counter(self) -> None:
        """A counter that runs through a loop in a loop, and indexes."""
        s, at = self.fresh("s"), self.fresh("i")
        step = self.pick("1", "1", "2")
        self.lines += [
            f"var {at} = 0", f"var {s} = 0.0", "for i in 0..n {", f"  for j in {self.range('i')} {{",
            f"    {s} += {self.number(('i', 'j'), 1)} * {self.random.choice(self.vectors)}[{at} % n]",
            f"    {at} += {step}", "  }", "}",
        ]  # fmt: skip
        self.scalars.append(s)

    def flag(self) -> None:
        """The first index at which something holds, by `where`, and a sum that depends on it."""
        found, s = self.fresh("i"), self.fresh("s")
        value, element = self.number(("i",), 1), self.element(("i",))
        self.lines += [
            f"var {found} = 0", f"var {s} = 0.0", "for i in 0..n {",
            f"  let hit{found} = {value} > 0.2 and {found} == 0",
            f"  {found} = where(hit{found}, {self.pick('i + 1', 'i')}, {found})",
            f"  {s} += {self.pick(f'where({found} > 0, {element}, 0.0)', f'f64({found}) * x[i]')}", "}",
        ]  # fmt: skip
        self.scalars.append(s)


def plain_program(seed: int) -> str:
    """The source of a random program."""
    return PlainProgram(seed).source()
