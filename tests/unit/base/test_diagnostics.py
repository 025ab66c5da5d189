"""The layout of a report, in every case in which it could go wrong."""

from __future__ import annotations

import json
import random
import re

import pytest
from rich.cells import cell_len

from difflang.base.diagnostics import Diagnostic, Label, render, render_one_line, to_json
from difflang.base.source import NO_SPAN, Source, Span


def label(source: Source, part: str, text: str = "", nth: int = 0) -> Label:
    start = -1
    for _ in range(nth + 1):
        start = source.text.index(part, start + 1)
    return Label(Span(source, start, start + len(part)), text)


MLP = Source("examples/mlp.dfl", "\n" * 6 + "  let h = w @ x\n")


def test_the_layout() -> None:
    labels = (label(MLP, "x", "k is 3 here: x is f32[3, 8]"), label(MLP, "w", "k is 4 here: w is f32[16, 4]"))
    helps = ("the last axis of the left side must equal the first axis of the right side",)
    report = Diagnostic("DL0312", "`@` joins sizes 4 and 3, which differ", labels, helps)
    assert render([report]) == (
        "error[DL0312]: `@` joins sizes 4 and 3, which differ\n"
        "  --> examples/mlp.dfl:7:15\n"
        "   |\n"
        " 7 |   let h = w @ x\n"
        "   |           -   ^ k is 3 here: x is f32[3, 8]\n"
        "   |           |\n"
        "   |           k is 4 here: w is f32[16, 4]\n"
        "   = help: the last axis of the left side must equal the first axis of the right side\n"
        "   = more: difflang explain DL0312"
    )


def rows(*labels: Label, width: int = 110) -> list[str]:
    """The lines of a report between its head and its end."""
    return render([Diagnostic("DL0101", "m", labels)], width=width).split("\n")[1:-1]


def test_three_labels_on_a_line() -> None:
    assert rows(label(MLP, "h", "one"), label(MLP, "w", "two"), label(MLP, "x", "three"))[2:] == [
        " 7 |   let h = w @ x",
        "   |       ^   -   - three",
        "   |       |   |",
        "   |       |   two",
        "   |       one",
    ]


def test_a_label_without_text_and_one_inside_another() -> None:
    assert rows(label(MLP, "@"), label(MLP, "w @ x", "all"))[2:] == [
        " 7 |   let h = w @ x",
        "   |           --^-- all",
    ]


def test_lines_apart_and_files_apart() -> None:
    source = Source("a.dfl", "a\nb\nc\nd\ne\n")
    other = Source("b.dfl", "\n" * 98 + "z\ny\n")
    found = rows(label(source, "a", "1"), label(source, "c", "3"), label(source, "e", "5"), label(other, "y", "far"))
    assert found[1:] == [
        "     |", "   1 | a", "     | ^ 1", "   2 | b", "   3 | c", "     | - 3", "   4 | d", "   5 | e", "     | - 5",
        "    ::: b.dfl:100:1", "     |", " 100 | y", "     | - far",
    ]  # fmt: skip
    assert "..." in rows(label(source, "a"), label(source, "d"))


def test_a_label_over_several_lines() -> None:
    source = Source("a.dfl", "f(x,\n  y,\n  z)\n")
    assert rows(label(source, "(x,\n  y,\n  z)", "these"))[2:] == [
        " 1 | f(x,",
        "   |  ^^^ these",
        " 2 |   y,",
        " 3 |   z)",
        "   |   ^^",
    ]
    assert rows(Label(Span(source, 0, 5), "line"))[2:] == [" 1 | f(x,", "   | ^^^^ line"]


def test_the_end_of_the_text() -> None:
    source = Source("a.dfl", "ab\n")
    assert rows(Label(Span(source, 3, 3), "here"))[2:] == [" 2 |", "   | ^ here"]
    assert rows(Label(Span(source, 2, 2), "here"))[2:] == [" 1 | ab", "   |   ^ here"]
    assert rows(Label(Span(Source("e", ""), 0, 0), "here")) == ["  --> e:1:1", "   |", " 1 |", "   | ^ here"]


def test_tabs_and_wide_characters() -> None:
    source = Source("a.dfl", "\tlet 変数 = '😀'\tα + e\u0301z\n")
    found = rows(label(source, "数"), label(source, "😀"), label(source, "α"), label(source, "z"))
    line, marks = found[2][5:], found[3][5:]
    assert line == "    let 変数 = '😀' α + e\u0301z"
    assert [cell_len(line[: line.index(c)]) for c in "数😀αz"] == [m.start() for m in re.finditer(r"[-^]+", marks)]
    assert [len(m[0]) for m in re.finditer(r"[-^]+", marks)] == [2, 2, 1, 1]


def test_nothing_moves_the_cursor() -> None:
    source = Source("a\x1b[2J.dfl", "x = '\x1b[31m\u202e' \r y\n")
    report = Diagnostic("DL0101", "m \x1b[0m", (label(source, "y", "t\x07"),), ("h\x1b",))
    shown = render([report])
    assert all(char.isprintable() or char == "\n" for char in shown)
    assert all(char.isprintable() for char in render_one_line([report]))


def test_long_lines_are_cut_around_what_is_marked() -> None:
    source = Source("a.dfl", "a" * 300 + "b" + "c" * 300 + "\n")
    found = rows(label(source, "b", "here"), width=60)
    shown, marks = found[2], found[3]
    assert len(shown) < 72 and shown.count("...") == 2
    assert shown[marks.index("^")] == "b"
    both = rows(label(source, "b", "here"), label(source, "ab"), width=60)
    assert both[2][both[3].index("^")] == "b"
    far = rows(Label(Span(source, 0, 1)), Label(Span(source, 600, 601), "end"), width=60)
    assert far[2][far[3].index("^")] == "a"


def test_without_a_place() -> None:
    assert render([Diagnostic("DL1001", "too much")]) == ("error[DL1001]: too much\n  = more: difflang explain DL1001")
    built_in = Diagnostic("DL0101", "m", (Label(NO_SPAN, "a note"),), severity="warning")
    assert render([built_in]).split("\n")[:2] == ["warning[DL0101]: m", "  = note: a note"]
    assert render_one_line([built_in]) == "warning[DL0101]: m"
    assert render([]) == render_one_line([]) == ""


def test_colour_changes_nothing_else() -> None:
    report = Diagnostic("DL0312", "m", (label(MLP, "x", "a"), label(MLP, "w", "b")), ("h\nmore of it",))
    painted = render([report, report], color=True)
    assert "\x1b[1;31m" in painted
    assert re.sub(r"\x1b\[[0-9;]*m", "", painted) == render([report, report])


def test_concise() -> None:
    assert render_one_line([Diagnostic("DL0312", "m", (label(MLP, "x"),))] * 2) == (
        "examples/mlp.dfl:7:15: error[DL0312]: m\nexamples/mlp.dfl:7:15: error[DL0312]: m"
    )


@pytest.mark.parametrize("seed", range(20))
def test_terminal_json_and_utf16_agree(seed: int) -> None:
    """On random lines the caret is under the character that the columns of the JSON form name."""
    rng = random.Random(seed)
    for _ in range(10):
        line = "".join(rng.choice("aZ_ \tαβ漢字é😀🎉한") for _ in range(rng.randint(1, 30))) + "!"
        source = Source("u.dfl", line + "\n")
        report = Diagnostic("DL0101", "m", (label(source, "!"),))
        shown, marks = render([report]).split("\n")[3:5]
        before = shown[: shown.index("!")]
        assert cell_len(before) == marks.index("^")
        (data,) = json.loads(json.dumps(to_json([report])))
        start = data["labels"][0]["start"]
        assert line[start["column"] - 1] == "!"
        assert line.encode("utf-16-le")[2 * (start["utf16"] - 1) :].decode("utf-16-le") == "!"
        assert (start["line"], data["labels"][0]["end"]["offset"]) == (1, start["offset"] + 1)


def test_each_mark_below_a_line_has_the_colour_of_its_own_text() -> None:
    """Those beside the place of a mistake were as red as it."""
    source = Source("a.dfl", "let h = w @ x\n")
    labels = (Label(Span(source, 12, 13), "k is n here"), Label(Span(source, 8, 9), "k is m here"))
    text = render([Diagnostic("DL0312", "the two differ", labels)], color=True)
    rows = [row for row in text.split("\n") if "here" in row or row.rstrip("\x1b[0m").endswith("|")]
    red, blue = "\x1b[1;31m", "\x1b[1;34m"
    assert any(f"{red}^ k is n here" in row and f"{blue}" in row.split(red)[0] for row in rows)
    assert not any(f"{red}|" in row or f"{red} " in row for row in rows)
    plain = render([Diagnostic("DL0312", "the two differ", labels)])
    assert "   |         -   ^ k is n here\n   |         |\n   |         k is m here\n" in plain
