"""The picture of the floors in docs/architecture.md, held against every import of the package."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "difflang"
JAX_ROOMS = {"lower", "runtime", "embed", "bridge"}
MOST_MODULES = 24  # in one folder
LARGEST_CYCLE, MOST_IN_CYCLES = 3, 12  # modules
LATE_ROOMS = {None, "cli", "lsp", "api", "plugin", "notebook"}  # which load what is heavy when it is needed
MOST_LATE_IMPORTS = 15  # in the other rooms


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
        floor = int(found[1])
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
        *("base", "syntax", "ir", "numerics", "ops", "passes", "recursion", "ad", "analysis", "sharding", "types"),
        "elaborate",
        *("lower", "runtime", "embed", "plan", "unparse", "gradcheck", "execution", "host", "driver", "tools", "graph"),
        "dataflow",
        *("pygments", "lsp", "cli", "__main__", "plugin", "artifact", "api", "bridge", "notebook"),
    }
    allowed = {(a, b) for a in drawn for b in drawn if a != b and drawn[a].may_use(drawn[b])}
    assert ("ad", "passes") in allowed and ("passes", "ad") not in allowed
    assert ("elaborate", "types") in allowed and ("types", "elaborate") not in allowed
    assert ("types", "lower") not in allowed and ("lower", "types") not in allowed
    assert ("embed", "lower") in allowed and ("embed", "runtime") in allowed and ("plan", "runtime") in allowed
    assert ("ir", "syntax") not in allowed and ("syntax", "ir") not in allowed
    assert ("ops", "ir") in allowed and ("ir", "ops") not in allowed
    assert ("bridge", "api") in allowed and ("api", "bridge") not in allowed and ("cli", "api") not in allowed
    assert ("notebook", "cli") in allowed and ("notebook", "api") in allowed and ("cli", "notebook") not in allowed
    assert ("host", "execution") in allowed and ("driver", "host") in allowed and ("host", "driver") not in allowed
    assert all(("tools", room) in allowed for room, place in drawn.items() if place.floor < 6)


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda p: p.relative_to(PACKAGE).as_posix())
def test_imports_follow_the_picture(path: Path) -> None:
    assert offences(module_of(path), path.read_text(encoding="utf-8"), rooms()) == []


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("difflang.ir.graph", "from difflang.ops import op_factories"),
        ("difflang.ir.graph", "def f():\n    from difflang.ops.op_factories import unary_op"),
        ("difflang.syntax.parse", "import difflang.ir.tensor_types"),
        ("difflang.types.infer", "from difflang import elaborate"),
        ("difflang.passes.cse", "from difflang.ad.linearize import linearize"),
        ("difflang.cli.repl", "from difflang.api import load"),
        ("difflang.ops.elementwise.linear_arithmetic", "import jax"),
        ("difflang.ad.transpose", "def f():\n    import jax.numpy as jnp"),
        ("difflang.driver.interactive_session", "from jax import numpy"),
        ("difflang.types.names", "from difflang import load"),
        ("difflang.attic.old", "import sys"),
        ("difflang", "from difflang.api import load"),
    ],
)
def test_a_wrong_import_is_seen(module: str, source: str) -> None:
    assert offences(module, source, rooms())


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("difflang.ops.elementwise.linear_arithmetic", "from difflang.ir.tensor_types import Tensor"),
        ("difflang.runtime.compile", "import jax\nfrom difflang.lower.graph_to_jax import lower"),
        ("difflang", "def load(path):\n    from difflang.api import load\n    return load(path)"),
        ("difflang.driver.interactive_session", "from difflang.runtime import compile"),
    ],
)
def test_a_right_import_passes(module: str, source: str) -> None:
    assert offences(module, source, rooms()) == []


# ---- Inside the rooms


@cache
def edges(*, at_once: bool = False) -> dict[str, frozenset[str]]:
    """Each module of the package, and those that it imports: late and for types too, or only those imported at once."""
    paths = {module_of(path): path for path in PACKAGE.rglob("*.py")}
    found: dict[str, frozenset[str]] = {}
    for module, path in paths.items():
        every = imports(path.read_text(encoding="utf-8"))
        targets = {each.module for each in every if not (at_once and (each.late or each.typing))}
        found[module] = frozenset(targets & paths.keys() - {module})
    return found


def cycles(graph: Mapping[str, frozenset[str]]) -> list[list[str]]:
    """The groups of modules that import each other, each by way of some others (Kosaraju's algorithm)."""
    importers: dict[str, list[str]] = {module: [] for module in graph}
    for module, targets in graph.items():
        for target in targets & graph.keys():
            importers[target].append(module)
    order: list[str] = []
    depth_first(graph, graph, order.append)
    groups: list[list[str]] = []
    seen: set[str] = set()
    for root in reversed(order):
        group: list[str] = []
        depth_first([root], importers, group.append, seen)
        if len(group) > 1:
            groups.append(sorted(group))
    return sorted(groups, key=len, reverse=True)


def depth_first(
    roots: Iterable[str],
    graph: Mapping[str, Iterable[str]],
    leave: Callable[[str], None],
    seen: set[str] | None = None,
) -> None:
    """Visit what the roots lead to, without recursion: a module is left after those that it leads to."""
    seen = set() if seen is None else seen
    for root in roots:
        work = [(root, iter(graph[root]))] if root not in seen else []
        seen.add(root)
        while work:
            _, rest = work[-1]
            following = next((t for t in rest if t in graph and t not in seen), None)
            if following is None:
                leave(work.pop()[0])
            else:
                seen.add(following)
                work.append((following, iter(graph[following])))


def drawn_cycles() -> dict[str, list[int]]:
    """The block called `cycles` of the page: the sizes of the import cycles that each room still has."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```cycles\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)
    return {line.split()[0]: [int(n) for n in line.split()[1:]] for line in block.splitlines()}


@pytest.mark.daily
def test_no_cycle_leaves_a_room() -> None:
    assert not [group for group in cycles(edges()) if len({room_of(m) for m in group}) > 1]


def test_each_room_has_the_cycles_that_the_page_says_and_no_others() -> None:
    """The cycles that are left are written down, so that none grows unseen and the page says when one is gone."""
    found: dict[str, list[int]] = {}
    for group in cycles(edges()):
        found.setdefault(room_of(group[0]) or "", []).append(len(group))
    assert found == drawn_cycles()


def test_cycles_are_small() -> None:
    sizes = [n for several in drawn_cycles().values() for n in several]
    assert max(sizes, default=0) <= LARGEST_CYCLE and sum(sizes) <= MOST_IN_CYCLES


def test_any_module_can_be_imported_first() -> None:
    """Imports at once make no cycle, so none finds a module that is half done."""
    assert cycles(edges(at_once=True)) == []


def test_few_imports_wait_for_a_call() -> None:
    """Only doors import late as they like; elsewhere an import waits only for what is heavy: JAX, or every pass."""
    late = {
        (module_of(path), each.line)
        for path in PACKAGE.rglob("*.py")
        for each in imports(path.read_text(encoding="utf-8"))
        if each.late and each.module.partition(".")[0] == "difflang"
    }
    doors = {(m, n) for m, n in late if room_of(m) in LATE_ROOMS or m == "difflang.runtime"}
    assert len(late - doors) <= MOST_LATE_IMPORTS


def test_cycles_are_found() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": {"e"}, "e": set(), "f": {"g"}, "g": {"f"}}
    assert cycles({m: frozenset(t) for m, t in graph.items()}) == [["a", "b", "c"], ["f", "g"]]


@pytest.mark.parametrize("folder", sorted({p.parent for p in PACKAGE.rglob("*.py")}), ids=lambda p: p.name)
def test_a_folder_is_small_enough_to_read(folder: Path) -> None:
    assert len([p for p in folder.glob("*.py") if p.name != "__init__.py"]) <= MOST_MODULES


def test_unit_tests_mirror_the_package() -> None:
    """Each folder of `tests/unit/` is a folder, or a module, of the package."""
    units = ROOT / "tests" / "unit"
    folders = {path.parent.relative_to(units) for path in units.rglob("test_*.py")}
    assert not [f for f in folders if not (PACKAGE / f).is_dir() and not (PACKAGE / f).with_suffix(".py").exists()]
