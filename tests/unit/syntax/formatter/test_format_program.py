"""The formatter: what it makes of a text, and what it leaves as it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from difflang.base.diagnostics import DifflangError, InternalError
from difflang.base.source import Source
from difflang.syntax.formatter import format_program as formatting
from difflang.syntax.formatter.format_program import format_program, is_same_program
from difflang.syntax.parse import parse
from support.documents import documents, fenced
from support.snippets import FORMS

ROOT = Path(__file__).parents[4]
OURS = [*sorted((ROOT / "stdlib").glob("*.dfl")), *sorted((ROOT / "examples").rglob("*.dfl"))]


def laid(text: str, width: int = 100) -> str:
    return format_program(Source("a.dfl", text), width)


def check(before: str, after: str, width: int = 100) -> None:
    assert laid(before, width) == after
    assert laid(after, width) == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", ""),
        ("\n\n\n", ""),
        ("# nothing\n\n\n# else", "# nothing\n\n# else\n"),
        ("let  x=1+2*y^2-z ^ T( 3 )", "let x = 1 + 2 * y^2 - z ^ T(3)\n"),
        ("let x = 1\r\nlet y = 2\r\n", "let x = 1\nlet y = 2\n"),
        ("float f64\nlet x = 1", "float f64\nlet x = 1\n"),
        ("import  math( sin,cos )\nimport a as b", "import math (sin, cos)\nimport a as b\n"),
        ("fn f ( x:f32[n+1] , k :dim=3 )->f32 = x[0]", "fn f(x: f32[n + 1], k: dim = 3) -> f32 = x[0]\n"),
        ("fn f(x:B [c] [k,j],y: D( B[c] )[ k ])->B[c][k]=x", "fn f(x: B[c][k, j], y: D(B[c])[k]) -> B[c][k] = x\n"),
        ("fn f(x: f32[n]) where n>k,k>0 = x[0]", "fn f(x: f32[n]) where n > k, k > 0 = x[0]\n"),
        ("fn f() { }", "fn f() {}\n"),
        ("fn f(x: f32) -> f32 {x}", "fn f(x: f32) -> f32 { x }\n"),
        ("fn f(x: f32) -> f32 {\n\n\nx\n\n}", "fn f(x: f32) -> f32 {\n  x\n}\n"),
        ("let x = a[ 1 .. n , .. , ..k by 2 ]'", "let x = a[1..n, .., ..k by 2]'\n"),
        ("let f = linear   |x| - x\nlet b = not  a", "let f = linear |x| -x\nlet b = not a\n"),
        ("let y = if a{b}else if c{d}else{e}", "let y = if a { b } else if c { d } else { e }\n"),
        ("let y = if a {\nb } else { c }", "let y = if a {\n  b\n} else {\n  c\n}\n"),
        ("record P{x:f32,y:f32}", "record P { x: f32, y: f32 }\n"),
        ("record P {\nx:f32,\n\n\n## Why.\ny:f32\n}", "record P {\n  x: f32\n\n  ## Why.\n  y: f32\n}\n"),
        ("let a = match s {A(r)=>r,_=>0}", "let a = match s { A(r) => r, _ => 0 }\n"),
        ("let a = match s {\nA(r)=>r,\n_=>0}", "let a = match s {\n  A(r) => r\n  _ => 0\n}\n"),
        ("let p = q with(x=1,)", "let p = q with (\n  x = 1,\n)\n"),
        ("@memory( 100   KiB )\nfn f(x: f32) = x", "@memory(100 KiB)\nfn f(x: f32) = x\n"),
        ("@unchecked for i in 0..n{a[i]+=1}", "@unchecked for i in 0..n { a[i] += 1 }\n"),
        ("extern   fn f(x: f32)->f32", "extern fn f(x: f32) -> f32\n"),
        ("extern   op  f[T : float](x:T[..s])->T", "extern op f[T: float](x: T[..s]) -> T\n"),
        ("rule f( x,y )by linear_solve A", "rule f(x, y) by linear_solve A\n"),
        ('test"a"{assert x,"why"}', 'test "a" { assert x, "why" }\n'),
        ('print( "{ x }" )', 'print("{ x }")\n'),
    ],
)  # fmt: skip
def test_spaces_and_empty_lines(before: str, after: str) -> None:
    check(before, after)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("let x = f(alpha, beta, gamma)", "let x = f(\n  alpha,\n  beta,\n  gamma,\n)\n"),
        ("let x = f(alpha, beta,)", "let x = f(\n  alpha,\n  beta,\n)\n"),
        ("let x = alpha + beta * gamma_too", "let x =\n  alpha +\n  beta * gamma_too\n"),
        ("let x = (alpha + beta * gamma_too)", "let x = (\n  alpha\n  + beta * gamma_too\n)\n"),
        ("let x = alpha |> beta |> gamma", "let x = alpha\n  |> beta\n  |> gamma\n"),
        ("let b = alpha and beta and gamma", "let b =\n  alpha\n  and beta\n  and gamma\n"),
        ("let x = h * (alpha + beta)", "let x = h * (\n  alpha + beta\n)\n"),
        ("let x = sum([for i => a[i]^2])", "let x = sum([\n  for i => a[i]^2\n])\n"),
        ("let x = [100, 200, 300, 400, 500]", "let x = [\n  100, 200, 300, 400,\n  500,\n]\n"),
        ("let x = [[1, 2, 3], [4, 5, 6]]", "let x = [\n  [1, 2, 3],\n  [4, 5, 6],\n]\n"),
        ("fn long(x: f32, y: f32) -> f32 = x", "fn long(\n  x: f32,\n  y: f32,\n) -> f32 = x\n"),
        ("record Pair { one: f32, two: f32 }", "record Pair {\n  one: f32\n  two: f32\n}\n"),
        ("let x = if alpha { b } else { c }", "let x = if alpha {\n  b\n} else {\n  c\n}\n"),
        ("let x = f(|x| {\nlet y = x\ny })", "let x = f(|x| {\n  let y = x\n  y\n})\n"),
        ("let x = a[alpha, beta, gamma]", "let x = a[\n  alpha,\n  beta,\n  gamma\n]\n"),
    ],
)
def test_lines_that_are_too_long(before: str, after: str) -> None:
    check(before, after, 24)


COMMENTED = """\
# The file.

let a = 1  # one
# below
fn f(
  x: f32, # the x
  # and y
  y: f32
  # nothing else
) -> f32 { # a body
  let z = x +
    # more
    y

  # the end


  # really
}
let b = [1, 2, # three?
  4]
if a { b } # so
else { c }
# last
"""


def test_comments_stay_beside_what_they_stand_beside() -> None:
    text = """\
# The file.

let a = 1 # one
# below
fn f(
  x: f32, # the x
  # and y
  y: f32,
  # nothing else
) -> f32 { # a body
  let z =
    x +
    # more
    y

  # the end

  # really
}
let b = [
  1,
  2, # three?
  4,
]
if a { b } else { c } # so
# last
"""
    check(COMMENTED, text)


def programs() -> list[object]:
    """Programs of the documentation, of tests, and what ships."""
    found: dict[str, str] = {
        f"form {name} {i}": part for name, text in FORMS.items() for i, part in enumerate(text.split("---"))
    }
    for path in documents():
        name = str(path.relative_to(ROOT))
        found |= {b.name: b.text for b in fenced(path.read_text(encoding="utf-8"), name) if b.language == "dfl"}
    for path in [
        *OURS,
        *sorted((ROOT / "tests" / "programs").rglob("*.dfl")),
        *sorted((ROOT / "benchmarks").rglob("*.dfl")),
    ]:
        found[str(path.relative_to(ROOT))] = path.read_text(encoding="utf-8")
    return [pytest.param(text, id=name) for name, text in found.items()]


@pytest.mark.parametrize("text", programs())
@pytest.mark.nightly_cases(
    "stdlib/(hypergeometric|integrals|stats|special|linalg|math|ode|minimize|optim|nn|signal|sparse|interp)[.]dfl"
)
def test_every_program_means_the_same_and_is_left_alone_the_second_time(text: str) -> None:
    if parse(Source("a.dfl", text)).diagnostics:
        pytest.skip("shows a mistake")
    for width in (100, 30):
        once = laid(text, width)
        assert laid(once, width) == once
        assert is_same_program(parse(Source("a.dfl", text)), parse(Source("a.dfl", once)))


def test_a_comment_beside_a_type_in_parentheses() -> None:
    check(
        "fn f(g: (f32 # of what\n) -> f32) -> f32 = g(1.0)",
        "fn f(\n  g: (\n    f32 # of what\n  ) -> f32,\n) -> f32 = g(1.0)\n",
    )


@pytest.mark.parametrize("path", OURS, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_what_ships_is_laid_out(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert laid(text) == text


def test_what_does_not_parse_is_refused() -> None:
    with pytest.raises(DifflangError, match="DL01"):
        laid("let x = ")


@pytest.mark.parametrize("depth", [20_000])
@pytest.mark.nightly_cases("20000")
def test_depth_costs_no_stack(depth: int) -> None:
    text = "let x = " + "(" * depth + "1" + ")" * depth
    assert laid(text, 3 * depth) == text + "\n"
    chain = "let x = " + " + ".join(["a"] * depth)
    assert laid(chain, 8 * depth) == chain + "\n"


@pytest.mark.parametrize(("opener", "closer"), [("(", ")"), ("{ ", " }"), ("if true { ", " } else { 2 }"), ("f(", ")")])
def test_the_text_grows_no_faster_than_the_nesting(opener: str, closer: str) -> None:
    sizes = {n: laid("let x = " + opener * n + "1" + closer * n) for n in (200, 1600)}
    assert len(sizes[1600]) < 10 * len(sizes[200])
    assert laid(sizes[200]) == sizes[200]


def test_formatting_ends_where_its_pause_raises() -> None:
    seen = 0

    def pause() -> None:
        nonlocal seen
        seen += 1
        if seen == 50:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        format_program(Source("<program>", "let x = " + "(" * 100 + "1" + ")" * 100), pause=pause)


def test_a_layout_that_changes_the_program_is_a_fault_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: what would lose a sign or a comment never gets out."""
    for text, wrong in (("let x = -1", "let x = 1\n"), ("let x = 1 # one", "let x = 1\n"), ("let x = 1", "let x =\n")):
        monkeypatch.setattr(formatting, "render_doc", lambda *_, wrong=wrong: wrong)
        with pytest.raises(InternalError):
            laid(text)
