"""The picture of the floors in docs/architecture.md, held against every import of the package."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "difflang"
JAX_ROOMS = {"lower", "runtime", "embed", "bridge"}
ONE_ROOM = {"driver", "ops", "base"}  # floors that are one room of their own name


@dataclass(frozen=True, slots=True)
class Place:
    """Where a room stands: its floor, its wing on that floor, and how far right along the arrows."""

    floor: int
    wing: int
    step: int

    def may_use(self, other: Place) -> bool:
        return other.floor < self.floor or (
            (other.floor, other.wing) == (self.floor, self.wing) and other.step < self.step
        )


def picture(text: str) -> dict[str, Place]:
    """The rooms drawn in the block called `floors`."""
    (block,) = re.findall(r"^```floors\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)
    rooms: dict[str, Place] = {}
    for line in block.splitlines():
        found = re.fullmatch(r"\s*(\d)\s+(\w+)\s+(.*)", line)
        assert found, f"a line of the picture that cannot be read: {line!r}"
        floor, name = int(found[1]), found[2]
        if name in ONE_ROOM:
            rooms[name] = Place(floor, 0, 0)
            continue
        # A wide gap ends the drawing and begins the remark, except around a bar.
        drawn = re.split(r"\s{3,}", re.sub(r"\s*│\s*", " │ ", found[3]))[0]
        for wing, part in enumerate(drawn.split("│")):
            for step, room in enumerate(part.split("→")):
                assert re.fullmatch(r"\s*[a-z_]+\s*", room), f"not the name of a room: {room!r}"
                rooms[room.strip()] = Place(floor, wing, step)
    return rooms


@cache
def rooms() -> dict[str, Place]:
    return picture((ROOT / "docs" / "architecture.md").read_text(encoding="utf-8"))


def room_of(module: str) -> str | None:
    """The room of `difflang.room...`; None for the threshold and for other packages."""
    parts = module.split(".")
    return parts[1] if parts[0] == "difflang" and len(parts) > 1 else None


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


@dataclass(frozen=True, slots=True)
class Import:
    """One import, wherever in a file it stands. `late` ones happen when a function runs; `typing` ones never."""

    line: int
    module: str
    late: bool
    typing: bool


def submodule(module: str, name: str) -> bool:
    path = ROOT.joinpath(*module.split("."), name)
    return path.is_dir() or path.with_suffix(".py").exists()


def imports(source: str) -> Iterator[Import]:
    """Every import of a file; `from difflang import ops` counts as one of `difflang.ops`."""
    work: list[tuple[ast.AST, bool, bool]] = [(ast.parse(source), False, False)]
    while work:
        node, late, typing = work.pop()
        if isinstance(node, ast.Import):
            yield from (Import(node.lineno, alias.name, late, typing) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0 and node.module, f"line {node.lineno}: relative imports hide the room"
            for alias in node.names:
                inside = node.module.partition(".")[0] == "difflang" and submodule(node.module, alias.name)
                yield Import(node.lineno, f"{node.module}.{alias.name}" if inside else node.module, late, typing)
        late = late or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        typing = typing or (isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"))
        work.extend((child, late, typing) for child in ast.iter_child_nodes(node))


def offences(module: str, source: str, drawn: dict[str, Place]) -> list[str]:
    """The imports of one module that the picture does not allow."""
    here = room_of(module)
    found: list[str] = []
    if here is not None and here not in drawn:
        return [f"{module}: the picture has no room `{here}`"]
    for each in imports(source):
        there = room_of(each.module)
        outside = each.module.partition(".")[0]
        if outside in ("jax", "jaxlib", "flax", "optax", "orbax") and not each.typing and here not in JAX_ROOMS:
            found.append(f"{module}:{each.line}: imports {outside}")
        elif outside == "difflang" and here is None:
            if not each.late and not each.typing:
                found.append(f"{module}:{each.line}: the threshold imports {each.module} at once")
        elif outside == "difflang" and there is None:
            found.append(f"{module}:{each.line}: imports the threshold")
        elif there is not None and here is not None and there != here:
            if there not in drawn:
                found.append(f"{module}:{each.line}: the picture has no room `{there}`")
            elif not drawn[here].may_use(drawn[there]):
                found.append(f"{module}:{each.line}: `{here}` may not use `{there}`")
    return found


def test_the_picture_is_read_as_drawn() -> None:
    drawn = rooms()
    assert set(drawn) == {
        *("cli", "repl", "lsp", "plugin", "pygments", "artifact", "api", "bridge", "driver", "check", "elaborate"),
        *("lower", "spell", "notebook"),
        *("__main__", "runtime", "embed", "audit", "passes", "ad", "ops", "syntax", "ir", "base"),
    }
    allowed = {(a, b) for a in drawn for b in drawn if a != b and drawn[a].may_use(drawn[b])}
    assert ("ad", "passes") in allowed and ("passes", "ad") not in allowed
    assert ("elaborate", "check") in allowed and ("check", "elaborate") not in allowed
    assert ("check", "lower") not in allowed and ("lower", "check") not in allowed
    assert ("embed", "lower") in allowed and ("embed", "runtime") in allowed
    assert ("ir", "syntax") not in allowed and ("syntax", "ir") not in allowed
    assert ("ops", "ir") in allowed and ("ir", "ops") not in allowed
    assert ("bridge", "api") in allowed and ("api", "bridge") not in allowed and ("repl", "api") not in allowed
    assert ("notebook", "cli") in allowed and ("notebook", "api") in allowed and ("cli", "notebook") not in allowed
    assert all(("driver", room) in allowed for room, place in drawn.items() if place.floor < 5)


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda p: p.relative_to(PACKAGE).as_posix())
def test_imports_follow_the_picture(path: Path) -> None:
    assert offences(module_of(path), path.read_text(encoding="utf-8"), rooms()) == []


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("difflang.ir.graph", "from difflang.ops import families"),
        ("difflang.ir.graph", "def f():\n    from difflang.ops.families import unary"),
        ("difflang.syntax.parse", "import difflang.ir.types"),
        ("difflang.check.infer", "from difflang import elaborate"),
        ("difflang.passes.cse", "from difflang.ad.linearize import linearize"),
        ("difflang.repl", "from difflang.api import load"),
        ("difflang.ops.linear", "import jax"),
        ("difflang.ad.transpose", "def f():\n    import jax.numpy as jnp"),
        ("difflang.driver.session", "from jax import numpy"),
        ("difflang.check.names", "from difflang import load"),
        ("difflang.attic.old", "import sys"),
        ("difflang", "from difflang.api import load"),
    ],
)
def test_a_wrong_import_is_seen(module: str, source: str) -> None:
    assert offences(module, source, rooms())


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("difflang.ops.linear", "from difflang.ir.types import Tensor"),
        ("difflang.runtime.compile", "import jax\nfrom difflang.lower.jax import lower"),
        ("difflang", "def load(path):\n    from difflang.api import load\n    return load(path)"),
        ("difflang.driver.session", "from difflang.runtime import compile"),
    ],
)
def test_a_right_import_passes(module: str, source: str) -> None:
    assert offences(module, source, rooms()) == []
