"""Trees of the library are kept between starts, and whatever is wrong with what was kept, they are made again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from difflang.base import private_cache
from difflang.base.package_data import data_folder
from difflang.base.source import Source
from difflang.syntax import library_trees
from difflang.syntax.parse import ParsedModule
from difflang.syntax.tree_queries import child_nodes

NAME = "stdlib/roots.dfl"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty cache, and trees that are not in memory."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    library_trees.parse_library.cache_clear()
    yield tmp_path / "difflang"
    library_trees.parse_library.cache_clear()


def fresh(path: Path | None = None) -> tuple[Source, ParsedModule]:
    library_trees.parse_library.cache_clear()
    return library_trees.parse_library(path or data_folder("stdlib") / "roots.dfl", NAME)


def forbid(monkeypatch: pytest.MonkeyPatch) -> None:
    def parse(source: Source) -> ParsedModule:
        raise AssertionError("the library was parsed again")

    monkeypatch.setattr(library_trees, "parse", parse)


def test_a_kept_tree_is_the_one_that_was_made(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its spans lie in the one source of the module."""
    _, made = fresh()
    forbid(monkeypatch)
    source, read = fresh()
    assert repr(read.module) == repr(made.module)
    todo = list(read.module.items)
    assert todo
    while todo:
        node = todo.pop()
        assert node.span.source is source
        todo += child_nodes(node)
    assert (folder / "library-roots.pickle").stat().st_mode & 0o077 == 0


def test_a_tree_of_another_text_or_parser_is_made_again(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "roots.dfl"
    path.write_text("pub fn f(x: f64) -> f64 = x\n")
    assert len(fresh(path)[1].module.items) == 1
    path.write_text("pub fn f(x: f64) -> f64 = x\npub fn g(x: f64) -> f64 = x\n")
    assert len(fresh(path)[1].module.items) == 2
    forbid(monkeypatch)
    assert len(fresh(path)[1].module.items) == 2
    monkeypatch.setattr(library_trees, "parser_key", lambda: "another parser")
    with pytest.raises(AssertionError, match="parsed again"):
        fresh(path)


def test_a_damaged_tree_is_made_again(folder: Path) -> None:
    source, made = fresh()
    entry, key = folder / "library-roots.pickle", library_trees.tree_key(source)
    for data in (b"", b"\x80", b"cposix\nabsent\n.", b"N."):
        private_cache.write_entry(entry, key, data)
        assert repr(fresh()[1].module) == repr(made.module)
        assert private_cache.read_entry(entry, key) not in (None, data)


def test_a_tree_that_others_could_have_written_is_not_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fresh()
    (folder / "library-roots.pickle").chmod(0o666)
    forbid(monkeypatch)
    with pytest.raises(AssertionError, match="parsed again"):
        fresh()


def test_a_folder_that_cannot_be_written_does_no_harm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "a file"
    place.write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(place))
    assert fresh()[1].module.items


def test_a_text_with_mistakes_is_not_kept(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "roots.dfl"
    path.write_text("pub fn f(x: f64 -> f64 = x\n")
    assert fresh(path)[1].diagnostics
    assert not (folder / "library-roots.pickle").exists()
