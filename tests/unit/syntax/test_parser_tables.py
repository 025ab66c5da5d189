"""The tables are kept between starts, and whatever is wrong with what was kept, they are made again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from difflang.base import package_data
from difflang.base.private_cache import CacheWarning
from difflang.syntax import parser_tables


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty cache, and tables that are not in memory."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    parser_tables.load_tables.cache_clear()
    yield tmp_path / "difflang"
    parser_tables.load_tables.cache_clear()


def fresh() -> parser_tables.ParserTables:
    parser_tables.load_tables.cache_clear()
    return parser_tables.load_tables()


def kept(folder: Path) -> Path:
    (path,) = folder.iterdir()
    return path


def forbid(monkeypatch: pytest.MonkeyPatch) -> None:
    def build(grammar: str) -> dict[str, object]:
        raise AssertionError("the tables were made again")

    monkeypatch.setattr(parser_tables, "build_tables", build)


def test_kept_tables_are_those_made(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = fresh()
    forbid(monkeypatch)
    read = fresh()
    assert (read.rows, read.rules, read.starts, read.lexis) == (made.rows, made.rules, made.starts, made.lexis)
    assert kept(folder).stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    "damage",
    [b"", b"{", b"null", b"[]", b"\xff\xfe", b'{"checksum": "", "tables": {}}', b'{"tables": 3}', b"[" * 100_000],
)
def test_a_damaged_cache_is_made_again(folder: Path, damage: bytes) -> None:
    made = fresh()
    path = kept(folder)
    good = path.read_bytes()
    path.write_bytes(damage)
    assert fresh().rows == made.rows
    assert path.read_bytes() == good


def test_a_changed_number_is_noticed(folder: Path) -> None:
    made = fresh()
    path = kept(folder)
    seal, _, text = path.read_text().partition("\n")
    data = json.loads(text)
    row = data["rows"][0]
    row[next(iter(row))] += 1
    path.write_text(f"{seal}\n{json.dumps(data)}")
    assert fresh().rows == made.rows


def test_tables_under_the_name_of_another_grammar_are_made_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = fresh()
    first = kept(folder)
    text = package_data.grammar_text().replace('"while"', '"whilst"')
    with monkeypatch.context() as patch:
        patch.setattr(package_data, "grammar_text", lambda: text)
        other = fresh()
    assert other.lexis != made.lexis
    (second,) = {*folder.iterdir()} - {first}
    second.replace(first)
    assert fresh().lexis == made.lexis


@pytest.mark.skipif(os.name == "nt", reason="a user's folders are private on Windows")
def test_tables_in_a_folder_that_others_can_write_to_are_not_used(folder: Path) -> None:
    made = fresh()
    folder.chmod(0o777)
    before = kept(folder).read_bytes()
    kept(folder).write_bytes(b"theirs")
    with pytest.warns(CacheWarning, match="other users can write to"):
        assert fresh().rows == made.rows
    assert kept(folder).read_bytes() == b"theirs" != before


def test_another_grammar_has_its_own_entry(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fresh()
    text = package_data.grammar_text() + "\n// changed\n"
    monkeypatch.setattr(package_data, "grammar_text", lambda: text)
    fresh()
    assert len(list(folder.iterdir())) == 2


def test_a_folder_that_cannot_be_written_does_no_harm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert fresh().rows
    parser_tables.load_tables.cache_clear()


def test_every_rule_has_its_callback() -> None:
    from difflang.syntax.tree_builder import TreeBuilder

    named = {
        rule.callback
        for rule in parser_tables.load_tables().rules
        if not rule.origin.startswith("_") and not rule.is_unit
    }
    passed_on = {"item", "stmt", "fn", "loop", "value", "expr", "atom", "attribute_arg", "type_atom", "pattern"}
    assert {name for name in named if not hasattr(TreeBuilder, name)} <= passed_on


@pytest.mark.slow
def test_the_same_grammar_gives_the_same_tables() -> None:
    """Whatever order the sets of a process have."""
    code = (
        "import hashlib, json; from difflang.base import package_data; from difflang.syntax import parser_tables; "
        "print(hashlib.sha256(json.dumps(parser_tables.build_tables(package_data.grammar_text())).encode()).hexdigest())"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in "12"
    }
    assert len(found) == 1
