"""What programs print: formats, escapes, and that nothing in a text is more than text for a terminal."""

# ruff: noqa: E501 - a row of a table, or a program, is a line

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from difflang.ops.value_formatting import format_value
from support.language import codes, ran

FORMATS = {
    '"{1.5:.3f}|{2:5d}|{2:<5d}|{2:^5}|{2:05d}|{2:+d}|{255:x}|{255:#b}|{1000000:,}|{1000000:_}"':
        "1.500|    2|2    |  2  |00002|+2|ff|0b11111111|1,000,000|1_000_000",
    '"{12345.678:.2e}|{12345.678:g}|{0.25:%}|{0.25:.1%}|{1.0:10.2f}|{1.0:*>8.2f}|{-1.0: .1f}"':
        "1.23e+04|12345.7|25.000000%|25.0%|      1.00|****1.00|-1.0",
    '"{"ab":>5}|{"ab":.1}|{true}|{true:>6}|{1.0 + 2.0j:.1f}"': "   ab|a|true|  true|1.0+2.0j",
    '"{[1.0, 2.5]:.2f}|{[1, 20]:3d}|{(1, 2.5)}|{(1, 2):2d}"': "[1.00, 2.50]|[  1,  20]|(1, 2.5)|( 1,  2)",
    '"{bf16(0.1):.4f}|{f16(0.1)}|{nan:.1f}|{inf}|{-inf:5.1f}"': "0.1001|0.1|nan|inf| -inf",
    r'"\t\"\\\{\}{{}}\u{3b1}"': '\t"\\{}{}α',
}  # fmt: skip


@pytest.mark.parametrize("text", FORMATS)
def test_formats(text: str) -> None:
    if '{"ab"' in text:  # a string inside a string stands under a name
        assert ran('let s = "ab"\nprint(' + text.replace('"ab"', "s") + ")\n")[1] == [FORMATS[text]]
    else:
        assert ran(f"print({text})\n")[1] == [FORMATS[text]]


@pytest.mark.parametrize(
    "hole", ["1.5:d", "1.5:q", "1:.2d", "true:d", "1:n", "1:c", "1:99999999999", "1.0:.5000f", "1:{w}", "[1.5]:x", "1j:d",
             "1:2000"],
)  # fmt: skip
def test_formats_that_do_not_fit(hole: str) -> None:
    """Found before anything runs, at the format."""
    from difflang.base.source import Source
    from difflang.driver.checked_program import check_program

    (found,) = check_program(Source("t.dfl", f'print("{{{hole}}}")\n')).errors
    assert found.code == "DL0339"
    assert found.span is not None and found.span.text == hole.partition(":")[2]


def test_a_format_in_a_function() -> None:
    program = 'fn f(x: f32) -> f32 {\n  assert x > 5.0, "{2:q}"\n  x\n}\nprint(f(1.0))\n'
    assert codes(program) == [("DL0339", 2)]


@given(st.floats(), st.sampled_from([".3f", "10.2e", "+g", "#.4g", "012.1f", ".0%", "^20", ",.2f"]))
def test_numbers_are_formatted_as_python_does(x: float, spec: str) -> None:
    assert format_value(x, spec) == format(x, spec)


@pytest.mark.parametrize("text", [r"\u{1b}[31mred", r"a\rb", r"\u{9b}2J", r"\u{202e}abc", r"\0", r"\u{7}"])
def test_no_text_moves_the_cursor(text: str) -> None:
    """Neither what is printed, nor what a failure says, nor what a file holds."""
    (line,) = ran(f'let s = "{text}"\nprint(s, "{text}", ("{text}", 1))\n')[1]
    assert all(c.isprintable() or c == "\ufffd" for c in line), line


def test_lines_and_tabs_stay() -> None:
    assert ran(r'print("a\n\tb")')[1] == ["a\n\tb"]


def test_clock_goes_on() -> None:
    assert ran("let a = clock()\nlet b = clock()\nprint(b >= a, a >= f64(0))\n")[1] == ["true true"]


def test_the_host_chooses_texts_wherever_an_if_may_stand() -> None:
    program = """let x = [1.0, -2.0]
print(if x[0] > 0.0 { "a" } else { "bb" })
let t = (1, if x[1] > 0.0 { "a" } else { "bb" })
var s = ""
for v in x { s = match v > 0.0 { true => "up", false => "down" } }
print(t, s, x[0] > 0.5 and (if x[1] > 0.0 { "a" } else { "b" }) == "b")
"""
    assert ran(program)[1] == ["a", '(1, "bb") down true']


@pytest.mark.parametrize(
    "branch", ['sum(conv1d(w, w, padding = "same"))', 'scaled(x, "a")', '{ assert k > 1.0, "small"\n1.0 }']
)
def test_a_text_that_a_branch_only_uses_leaves_it_compiled(branch: str) -> None:
    """The numbers of its branches have the type that the rest of the expression gives them."""
    program = f"""let x: f64[n] = [1.0, 2.0]
let w = reshape(x, [2, 1, 1])
let k = 2.0
fn scaled(x: f64[n], how: str) -> f64 = if how == "a" {{ sum(x) }} else {{ 1.0 }}
print(sum(x) + if k > 3.0 {{ {branch} }} else {{ 2.0 }})
"""
    assert ran(program)[1] == ["5.0"]
