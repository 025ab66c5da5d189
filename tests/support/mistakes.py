"""Mistakes planted in a good program, as slips of the hand make them: one a line, on lines apart."""

from __future__ import annotations

import random


def plant(rng: random.Random, text: str, count: int) -> tuple[str, list[int]]:
    """A text with up to `count` mistakes, and the lines they are on."""
    lines = text.split("\n")
    order = [i for i, line in enumerate(lines) if line.strip() and not line.strip().startswith("#")]
    rng.shuffle(order)
    planted: list[int] = []
    for i in order:
        if len(planted) == count:
            break
        if any(abs(i - j) < 2 for j in planted):
            continue
        if wrong := slips(rng, lines[i].split("#")[0].rstrip()):
            lines[i] = rng.choice(wrong)
            planted.append(i)
    return "\n".join(lines), sorted(planted)


def slips(rng: random.Random, line: str) -> list[str]:
    """Ways to get a line wrong."""
    wrong: list[str] = []
    stripped = line.strip()
    if stripped == "}":
        return [line + " )"]
    if stripped[0] not in "})]":
        wrong.append(line + ";")
    if ")" in line:
        at = rng.choice([i for i, char in enumerate(line) if char == ")"])
        wrong.append(line[:at] + line[at + 1 :])
    if " = " in line:
        wrong += [line.replace(" = ", " = = ", 1), line.replace(" = ", " = * ", 1)]
    if "(" in line:
        wrong.append(line.replace("(", " ( , ", 1))
    if stripped.startswith("let "):
        wrong += [line.replace("let ", "let let ", 1), line.replace("let ", "let in ", 1), line.replace(" = ", " ", 1)]
    if line.endswith("{"):
        wrong.append(line[:-1])
    if "fn " in line and ": " in line:
        wrong.append(line.replace(": ", " ", 1))
    if "^" in line:
        wrong.append(line.replace("^", "**", 1))
    return wrong
