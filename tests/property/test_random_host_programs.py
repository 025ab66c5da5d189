"""Random programs of the host do what the same program does in Python: branches, loops and how they are left, calls."""

# ruff: noqa: E501 - a line of a program is a line

from __future__ import annotations

import contextlib
import itertools
import random
import textwrap
from collections.abc import Iterator

import pytest

from difflang.execution.engine import Engine
from support.language import ran


class Writer:
    """Writes one program in both languages: statements differ in their braces, expressions in nothing."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.functions = 0

    def program(self) -> tuple[str, str]:
        ours, theirs = "", ""
        for i in range(3):
            body_ours, body_theirs = self.block(2, loop=False)
            ours += f"host fn f{i}(x: i32, y: i32) -> i32 {{\n  var a = x\n  var b = y\n{indent(body_ours)}  (a + b) % 97\n}}\n"
            theirs += f"def f{i}(x, y):\n  a = x\n  b = y\n{indent(body_theirs)}  return (a + b) % 97\n"
            self.functions = i + 1
        for _ in range(4):
            call = f"f{self.rng.randrange(3)}({self.rng.randrange(9)}, {self.rng.randrange(9)})"
            ours += f"print({call}, {call} + 1)\n"
            theirs += f"print({call}, {call} + 1)\n"
        return ours, theirs

    def expression(self, depth: int = 2) -> str:
        choice = self.rng.random()
        if depth == 0 or choice < 0.3:
            return self.rng.choice(["a", "b", "x", "y", str(self.rng.randrange(1, 9))])
        if choice < 0.55 and self.functions:
            return f"f{self.rng.randrange(self.functions)}({self.expression(depth - 1)}, {self.expression(depth - 1)})"
        op = self.rng.choice(["+", "-", "*"])
        return f"({self.expression(depth - 1)} {op} {self.expression(depth - 1)}) % 53"

    def condition(self) -> str:
        one = f"{self.expression(1)} {self.rng.choice(['<', '>=', '=='])} {self.expression(1)}"
        if self.rng.random() < 0.4:
            return f"({one}) {self.rng.choice(['and', 'or'])} ({self.expression(1)} < {self.expression(1)})"
        return one

    def block(self, depth: int, *, loop: bool) -> tuple[str, str]:
        ours, theirs = "", ""
        for _ in range(self.rng.randrange(1, 4)):
            mine, other = self.statement(depth, loop=loop)
            ours, theirs = ours + mine, theirs + other
        return ours, theirs

    def statement(self, depth: int, *, loop: bool) -> tuple[str, str]:
        kind = self.rng.choice(
            ["assign", "assign", "print", "if", "for", "while", "leave", "yield"] if depth else ["assign", "print"]
        )
        if kind in ("assign", "leave"):
            line = f"{self.rng.choice('ab')} = {self.expression()}\n"
            if kind == "assign":
                return line, line
            word = self.rng.choice(["break", "continue"]) if loop else f"return {self.expression()}"
            asked = self.condition()
            return f"if {asked} {{ {word} }}\n", f"if {asked}: {word}\n"
        if kind == "print":
            shown = self.expression(1)
            return f"print({shown}, a)\n", f"print({shown}, a)\n"
        if kind == "if":
            asked = self.condition()
            (then, their_then), (other, their_other) = (self.block(depth - 1, loop=loop) for _ in range(2))
            return (
                f"if {asked} {{\n{indent(then)}}} else {{\n{indent(other)}}}\n",
                f"if {asked}:\n{indent(their_then)}else:\n{indent(their_other)}",
            )
        body, their_body = self.block(depth - 1, loop=True)
        if kind == "for":
            count = self.rng.randrange(4)
            return f"for i in 0..{count} {{\n{indent(body)}}}\n", f"for i in range({count}):\n{indent(their_body)}"
        if kind == "yield":
            value, count, ys = self.expression(1), self.rng.randrange(1, 4), f"y{self.rng.randrange(10**6)}"
            return (
                f"let {ys} = for i in 0..{count} {{\n{indent(body)}  yield {value}\n}}\na = sum({ys}) % 53\n",
                f"{ys} = []\nfor i in range({count}):\n{indent(their_body)}  {ys}.append({value})\na = sum({ys}) % 53\n",
            )
        count = f"k{self.rng.randrange(10**6)}"
        return (
            f"var {count} = 0\nwhile {count} < 3 {{\n  {count} += 1\n{indent(body)}}}\n",
            f"{count} = 0\nwhile {count} < 3:\n  {count} += 1\n{indent(their_body)}",
        )


def indent(text: str) -> str:
    return textwrap.indent(text, "  ")


class TooMuch(Exception):
    """A program that prints without end, or nearly."""


def printed(program: str) -> list[str]:
    """What a program prints in Python. Errors: TooMuch."""
    lines: list[str] = []

    def note(*values: object) -> None:
        lines.append(" ".join(map(str, values)))
        if len(lines) > 200:
            raise TooMuch

    exec(compile(program, "<random>", "exec"), {"print": note})  # noqa: S102 - a test of our own programs
    return lines


def programs(count: int) -> Iterator[tuple[str, str]]:
    """Programs that print something, and not too much."""
    for seed in itertools.count():
        ours, theirs = Writer(seed).program()
        with contextlib.suppress(TooMuch):
            if len(printed(theirs)) > 10:
                yield ours, theirs
                count -= 1
        if not count:
            return


PROGRAMS = list(programs(20))


@pytest.mark.parametrize("number", range(len(PROGRAMS)))
def test_a_host_program_does_what_python_does(number: int) -> None:
    ours, theirs = PROGRAMS[number]
    assert ran(ours, Engine("interpret"))[1] == printed(theirs), ours


def test_another_program_is_told_apart() -> None:
    """With another operator in Python alone, most of them differ."""
    told = 0
    for ours, theirs in PROGRAMS[:6]:
        try:
            told += ran(ours, Engine("interpret"))[1] != printed(theirs.replace(" - ", " + "))
        except TooMuch:
            told += 1
    assert told >= 4
