"""A program's functions, records and enums in several files, which import each other: the program is the same."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from difflang.base.source import Source
from difflang.syntax import tree
from difflang.syntax.parse import parse

WORD = r"(?<![\w.])[A-Za-z]\w*"  # a name that is no field
FILES = ("main", "second", "below/third")  # each imports from those after it


@dataclass(frozen=True, slots=True)
class Item:
    """A declaration: what it is called, its variants among it, and the others' names in it."""

    names: tuple[str, ...]
    text: str
    uses: frozenset[str]


def split(source: str, seed: int, first: str = "f") -> dict[str, str]:
    """The texts of the files by name. The function `first` stands in the first, what it needs in any of them."""
    draw, found = Random(seed), items(source)
    place = {name: 0 if first in item.names else draw.randrange(3) for item in found for name in item.names}
    settled = False
    while not settled:  # what a file needs stands in it or in a later one, and variants with their enum
        before = dict(place)
        for item in found:
            here = max(place[n] for n in item.names)
            place |= dict.fromkeys(item.names, here)
            place |= {n: max(place[n], here) for n in item.uses}
        settled = place == before
    texts = {}
    for number, file in enumerate(FILES):
        mine = [item for item in found if place[item.names[0]] == number]
        asked = {n for item in found if place[item.names[0]] < number for n in item.uses}
        texts[file] = written(mine, number, place, asked, draw)
    return texts


def items(source: str) -> list[Item]:
    """The declarations of a program. `float f64` is that of every file."""
    found = parse(Source("whole", source)).module.items
    declared = [item for item in found if isinstance(item, (tree.Fn, tree.Record, tree.Enum))]
    names = [(d.name, *(v.name for v in d.variants)) if isinstance(d, tree.Enum) else (d.name,) for d in declared]
    known = {name for each in names for name in each}
    texts = [d.span.text for d in declared]
    return [Item(n, t, frozenset(re.findall(WORD, t)) & known) for n, t in zip(names, texts, strict=True)]


def written(mine: Sequence[Item], number: int, place: dict[str, int], asked: set[str], draw: Random) -> str:
    """A file: its imports, by name or behind that of the other file; its declarations, open if others ask for them."""
    lines, told = ["float f64"], dict[str, str]()
    used = {name for item in mine for name in item.uses}
    for other in range(number + 1, len(FILES)):
        needed = sorted(n for n in used if place[n] == other)
        listed = [n for n in needed if draw.random() < 0.4]
        alias = draw.choice(["", f"file{other}"])
        lines.append(imported(FILES[other], alias, listed, all_listed=listed == needed))
        told |= {n: f"{alias or Path(FILES[other]).name}.{n}" for n in needed if n not in listed}
    for item in mine:
        text = re.sub(WORD, lambda found: told.get(found[0], found[0]), item.text)
        open_ = not asked.isdisjoint(item.names) or draw.random() < 0.2
        lines.append(f"pub {text}" if open_ else text)
    return "\n".join([*lines, ""])


def imported(file: str, alias: str, names: Sequence[str], *, all_listed: bool) -> str:
    """The line that binds these names, and the file's own where others are behind it."""
    path = f'import "./{file}.dfl"'
    bare = f"{path} as {alias}" if alias else path
    if not names:
        return bare
    if all_listed:
        return f"{path} ({', '.join(names)})"
    return f"{bare} ({', '.join(names)})" if alias else f"{bare}\n{path} ({', '.join(names)})"
