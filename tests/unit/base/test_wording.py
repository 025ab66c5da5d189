"""Articles and plurals in messages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from difflang.base.wording import count_of, with_article
from difflang.cli import main


@pytest.mark.parametrize(
    "text", ["an f64[2]", "an i32", "a u8", "a bool", "a c64", "an enum", "a function", "an upper one"]
)
def test_articles_go_by_sound(text: str) -> None:
    assert with_article(text.partition(" ")[2]) == text


def test_plurals() -> None:
    assert [count_of(n, "axis", "axes") for n in (0, 1, 2)] == ["0 axes", "1 axis", "2 axes"]
    assert count_of(1, "page") == "1 page" and count_of(3, "page") == "3 pages"


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("print(split([1.0], 2))", "this axis has 1 element"),
        ("print(split([1.0], [2]))", "this axis has 1 element"),
        ("print(top_k([1.0], 2))", "cannot take the 2 greatest of 1 element"),
        ("let x = [1.0]\nprint(x[1])", "this axis has one element, 0"),
        ("let x = [1.0]\nprint(x[0..2])", "this axis has 1 element"),
        ("let x = 1.0\nprint(x[0])", "1 index for an array of 0 axes"),
        ("print(irfft([1.0 + 0j, 2.0 + 0j], n = 1))", "the transform of 1 real number has 1 complex number"),
        ("host fn f(x: f64) -> f64 { x }\nprint(f(1.0, 2.0))", "`f` takes 1 argument"),
        ('let x: f64[n, 2] = read_csv("row.csv")', "this row has 1 column, but the others have 2"),
        ('write_csv("a.csv", [[1.0]], header = ("a", "b"))', "write one text"),
    ],
)
def test_one_thing_takes_no_plural(program: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "row.csv").write_text("1,2\n3\n")
    file = tmp_path / "t.dfl"
    file.write_text(f"float f64\n{program}\n")
    done = CliRunner().invoke(main, ["run", "--engine", "interpret", str(file)])
    assert done.exit_code == 1
    assert re.search(rf"{re.escape(said)}(?!s)\b", done.output), done.output
