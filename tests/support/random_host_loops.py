"""Random loops of host statements on numbers of all types, with branches, inner loops, jumps, prints and assertions."""

from __future__ import annotations

import random

SIGNED, UNSIGNED, FLOATS = ("i8", "i16", "i32", "i64"), ("u8", "u32", "u64"), ("f32", "f64")
INTEGERS = SIGNED + UNSIGNED
LITERALS = {
    "i8": (0, 1, 3, 100, 127), "i16": (0, 2, 7, 32767), "i32": (0, 1, 5, 1000, 2147483647),
    "i64": (0, 1, 9, 4000000000, 9223372036854775807), "u8": (0, 1, 3, 200, 255), "u32": (0, 1, 6, 4294967295),
    "u64": (0, 2, 9223372036854775807), "f32": (0.0, 0.5, 1.5, 3e38, 1e-30, 16777217.0),
    "f64": (0.0, 0.1, 2.5, 1e300, 1e-300),
}  # fmt: skip


class HostLoops:
    """Writes a program: variables of a few types, one loop over them, and their values printed."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.lines: list[str] = []
        self.level = self.names = self.loops = 0
        self.types = [*self.draw.sample(INTEGERS, 2), *self.draw.sample(FLOATS, self.draw.randrange(1, 3)), "i32"]
        # Each name in scope with its type, and whether it is a variable.
        self.scope: list[tuple[str, str, bool]] = []
        self.arrays: list[tuple[str, str, tuple[int, ...]]] = []

    def program(self) -> str:
        for type in dict.fromkeys(self.types):
            for _ in range(2):
                self.put(f"var {self.fresh(type, True)}: {type} = {self.literal(type)}")
        for _ in range(self.draw.randrange(3)):
            type = self.draw.choice(self.types)
            shape = self.draw.choice(((4,), (2, 3)))
            row = f"[{', '.join(f'{type}({self.literal(type)})' for _ in range(shape[-1]))}]"
            self.names += 1
            self.arrays.append((f"a{self.names}", type, shape))
            self.put(f"var a{self.names} = {row if len(shape) == 1 else f'[{row}, {row}]'}")
        self.put("var flag = true")
        self.scope.append(("flag", "bool", True))
        outer = list(self.scope)
        self.loops = 1
        self.block(f"for {self.fresh('i32', False)} in 0..{self.draw.randrange(20, 40)}", 2, 6)
        self.scope = outer
        self.put(f"print({', '.join(name for name, _, _ in [*self.scope, *self.arrays])})")
        return "\n".join(self.lines) + "\n"

    def put(self, line: str) -> None:
        self.lines.append("  " * self.level + line)

    def fresh(self, type: str, variable: bool) -> str:
        self.names += 1
        name = f"{'v' if variable else 'c'}{self.names}"
        self.scope.append((name, type, variable))
        return name

    def block(self, head: str, least: int, most: int) -> None:
        self.put(head + " {")
        scope, self.level = list(self.scope), self.level + 1
        for _ in range(self.draw.randrange(least, most)):
            self.statement()
        if not scope or self.lines[-1].endswith("{"):
            self.put("print(0)")
        self.scope, self.level = scope, self.level - 1
        self.put("}")

    # ---- Statements

    def statement(self) -> None:
        forms = [self.assign] * 4 + [self.let, self.variable, self.swap, self.say]
        if self.arrays:
            forms += [self.replace, self.replace, self.exchange, self.copy]
        if self.level < 4:
            forms += [self.branch, self.branch, self.choice, self.ranged, self.counted, self.leave]
        if self.draw.random() < 0.1:
            forms.append(self.claim)
        self.draw.choice(forms)()

    def assign(self) -> None:
        name, type, _ = self.draw.choice([n for n in self.scope if n[2]])
        sign = self.draw.choice(("=", "=", "+=", "-=", "*=")) if type != "bool" else "="
        self.put(f"{name} {sign} {self.expression(type, 2)}")

    def swap(self) -> None:
        type = self.draw.choice(self.types)
        names = [n for n, t, variable in self.scope if t == type and variable]
        a, b = self.draw.sample(names, 2)
        self.put(f"({a}, {b}) = ({b}, {self.expression(type, 1)})")

    def element(self, array: str, shape: tuple[int, ...]) -> str:
        indices = [f"{self.expression('i32', 1)} % {n}" for n in shape]
        if self.draw.random() < 0.3:
            indices = [str(self.draw.randrange(n)) for n in shape]
        # It may be out of range.
        if self.draw.random() < 0.03:
            indices[0] = self.named("i32")
        return f"{array}[{', '.join(indices)}]"

    def replace(self) -> None:
        array, type, shape = self.draw.choice(self.arrays)
        self.put(f"{self.element(array, shape)} {self.draw.choice(('=', '+=', '*='))} {self.expression(type, 1)}")

    def exchange(self) -> None:
        array, type, shape = self.draw.choice(self.arrays)
        name = self.draw.choice([n for n, t, variable in self.scope if t == type and variable])
        one, two = self.element(array, shape), self.element(array, shape)
        self.put(f"({one}, {name}, {two}) = ({two}, {one}, {self.expression(type, 1)})")

    def copy(self) -> None:
        array, type, shape = self.draw.choice(self.arrays)
        self.names += 1
        self.put(f"let b{self.names} = {array}")
        self.replace()
        same = [a for a, t, s in self.arrays if (t, s) == (type, shape)]
        self.put(self.draw.choice([f"{self.draw.choice(same)} = b{self.names}", f"print(b{self.names}, {array})"]))

    def let(self) -> None:
        type = self.draw.choice(self.types)
        value = self.expression(type, 2)
        self.put(f"let {self.fresh(type, False)}: {type} = {value}")

    def variable(self) -> None:
        type = self.draw.choice(self.types)
        value = self.expression(type, 1)
        self.put(f"var {self.fresh(type, True)}: {type} = {value}")

    def say(self) -> None:
        a, b = self.draw.choice(self.scope)[0], self.draw.choice(self.scope)[0]
        self.put(self.draw.choice([f'print("{{{a}}} and", {b})', f"print({a}, {b})"]))

    def claim(self) -> None:
        self.put(f"assert {self.expression('bool', 1)}")

    def branch(self) -> None:
        self.block(f"if {self.expression('bool', 1)}", 1, 3)
        if self.draw.random() < 0.5:
            self.lines[-1] += " else {"
            text = self.lines.pop().lstrip()
            self.block(text.removesuffix(" {"), 1, 3)

    def choice(self) -> None:
        self.put(f"match {self.expression('i32', 1)} % 3 {{")
        self.level += 1
        for i, pattern in enumerate(("0", "1", "_")):
            self.block(f"{pattern} =>", 1, 3)
            self.lines[-1] += "," if i < 2 else ""
        self.level -= 1
        self.put("}")

    def ranged(self) -> None:
        scope = list(self.scope)
        self.loops += 1
        self.block(f"for {self.fresh('i32', False)} in 0..{self.draw.randrange(1, 4)}", 1, 4)
        self.loops -= 1
        self.scope = scope

    def counted(self) -> None:
        name = self.fresh("i32", False)  # nothing else assigns to it
        self.put(f"var {name} = {self.draw.randrange(3)}")
        self.loops += 1
        self.put(f"while {name} < 4 and {self.expression('bool', 1)} {{")
        self.level += 1
        self.put(f"{name} += 1")
        scope = list(self.scope)
        for _ in range(self.draw.randrange(1, 3)):
            self.statement()
        self.scope, self.level = scope, self.level - 1
        self.put("}")
        self.loops -= 1

    def leave(self) -> None:
        condition = f"{self.expression('bool', 1)} and {self.expression('bool', 1)}"
        self.put(f"if {condition} {{ {self.draw.choice(('break', 'continue'))} }}")

    # ---- Expressions

    def literal(self, type: str) -> str:
        if type == "bool":
            return self.draw.choice(("true", "false"))
        number = self.draw.choice(LITERALS[type])
        sign = "-" if type in SIGNED + FLOATS and self.draw.random() < 0.3 else ""
        return f"{sign}{number}"

    def named(self, type: str) -> str:
        arrays = [(a, shape) for a, t, shape in self.arrays if t == type]
        if arrays and type != "i32" and self.draw.random() < 0.2:
            return self.element(*self.draw.choice(arrays))
        names = [n for n, t, _ in self.scope if t == type]
        if names and self.draw.random() < 0.8:
            return self.draw.choice(names)
        return f"{type}({self.literal(type)})" if type != "bool" else self.literal(type)

    def expression(self, type: str, depth: int) -> str:
        if depth == 0 or self.draw.random() < 0.15:
            return self.named(type)
        a, b = self.expression(type, depth - 1), self.expression(type, depth - 1)
        if type == "bool":
            other = self.draw.choice(self.types)
            x, y = self.expression(other, depth - 1), self.expression(other, depth - 1)
            sign = self.draw.choice(("<", "<=", ">", ">=", "==", "!="))
            return self.draw.choice(
                (f"({x} {sign} {y})", f"({x} {sign} {y})", f"({a} and {b})", f"({a} or {b})", f"(not {a})")
            )
        forms = [f"({a} + {b})", f"({a} - {b})", f"({a} * {b})", f"max({a}, {b})", f"min({a}, {b})"]
        forms.append(f"(if {self.expression('bool', depth - 1)} {{ {a} }} else {{ {b} }})")
        other = self.draw.choice([t for t in self.types if t != type] or ["i32"])
        forms.append(f"{type}({self.expression(other, depth - 1)})")
        if type in FLOATS:
            forms += [f"({a} / {b})", f"({a} % {b})", f"({a} // {b})", f"abs({a})", f"sqrt({a})", f"sin({a})",
                      f"floor({a})", f"({a} ^ 2)", f"exp(-abs({a}))"]  # fmt: skip
        else:
            # A divisor that may be 0 fails: most must not.
            forms += [f"({a} // {self.draw.choice((3, 7))})", f"({a} % {self.draw.choice((2, 5))})"]
            if self.draw.random() < 0.05:
                forms.append(f"({a} // {b})")
        return self.draw.choice(forms)
