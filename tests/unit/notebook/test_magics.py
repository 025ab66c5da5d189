"""`%%difflang` in IPython: what cells define, what they see of each other, what they show where something is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import difflang
from support.cells import Shell


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    monkeypatch.chdir(tmp_path)
    made = Shell(tmp_path / "ipython")
    assert made.run("%load_ext difflang").error is None
    yield made
    made.close()


LINE = """%%difflang
record Line { slope: f64, start: f64 }
let scale: f64 = 2.0
fn at(m: Line, x: f64[n]) -> f64[n] = m.slope * x + m.start
fn loss(m: Line, x: f64[n], y: f64[n]) -> f64 = mean((at(m, x) - scale * y)^2)
"""


def test_a_cell_defines_functions_and_records(shell: Shell) -> None:
    found = shell.run(LINE + 'print("told")\nscale + 1\n')
    assert found.error is None and found.text == "told\n3.0  : f64\n"
    assert isinstance(shell.names["loss"], difflang.Function)
    shell.run("import numpy as np\nx = np.array([0.0, 1.0])\nm = Line(slope=2.0, start=0.0)")
    assert shell.run("print(loss(m, x, x), loss.grad()(m, x, x + 1).slope)").text == "0.0 -2.0\n"
    assert "at" in shell.names and "scale" not in shell.names


def test_cells_see_those_before_them_and_replace_what_they_declare_again(shell: Shell) -> None:
    shell.run("%%difflang\nlet k = 2.0\nfn g(x: f32) -> f32 = k * x")
    shell.run("%%difflang\nfn f(x: f32) -> f32 = g(x) + 1\nfn other(x: f32) -> f32 = x")
    f, other = shell.names["f"], shell.names["other"]
    assert f(1.0) == 3.0
    shell.run("%%difflang\nfn more(x: f32) -> f32 = f(x)")
    assert shell.names["f"] is f, "nothing was replaced, so what is compiled is kept"
    shell.run("other = 7")
    shell.run("%%difflang\nfn g(x: f32) -> f32 = 10 * x")
    assert shell.names["f"](1.0) == 11.0 and shell.names["more"](1.0) == 11.0
    assert f(1.0) == 3.0 and f(np.float32(1)) == 3.0, "what was kept is what it was, for other types too"
    assert shell.names["other"] == 7 and other(2.0) == 2.0
    shell.run("%difflang :undo")
    assert shell.names["f"](1.0) == 3.0
    shell.run("%%difflang\nlet k = 5.0")
    assert shell.names["f"](1.0) == 6.0


def test_a_record_keeps_its_class_until_it_is_declared_again(shell: Shell) -> None:
    """So that what was made before goes with the gradients of functions that are new."""
    shell.run(LINE)
    shell.run("import numpy as np\nx = np.array([0.0, 1.0])\nm = Line(slope=np.float64(1), start=np.float64(0))")
    Line, loss = shell.names["Line"], shell.names["loss"]
    shell.run("%%difflang\nfn at(m: Line, x: f64[n]) -> f64[n] = m.slope * x")
    assert shell.names["Line"] is Line and shell.names["loss"] is not loss
    moved = "import jax\nnew = jax.tree.map(lambda a, b: float(a) - float(b), m, loss.grad()(m, x, x))"
    assert shell.run(moved).error is None
    shell.run("%%difflang\nrecord Line { slope: f64, start: f64, unit: str }")
    assert shell.names["Line"] is not Line


def test_a_name_that_is_undone_is_gone_unless_python_took_it(shell: Shell) -> None:
    shell.run("%%difflang\nfn a(x: f32) -> f32 = x\nfn b(x: f32) -> f32 = x")
    shell.run("b = 1")
    shell.run("%difflang :undo")
    assert "a" not in shell.names and shell.names["b"] == 1


def test_variants_and_random_functions(shell: Shell) -> None:
    shell.run("%%difflang\nenum Shape { Circle(r: f64), Box(w: f64, h: f64) }\nfn noise(n: dim) -> f32[n] = normal(n)")
    shell.run("%%difflang\nfn area(s: Shape) -> f64 = match s { Circle(r) => pi * r^2, Box(w, h) => w * h }")
    assert shell.run("print(area(Box(w=2.0, h=3.0)))").text == "6.0\n"
    first = np.asarray(shell.names["noise"](3))
    shell.run("%%difflang\nfn noise(n: dim) -> f32[n] = 2 * normal(n)")
    assert not np.array_equal(2 * first, shell.names["noise"](3)), "draws go on, they do not begin again"


def test_a_mistake_is_shown_with_the_lines_of_the_cell(shell: Shell) -> None:
    found = shell.run("%%difflang\nfn fine(x: f32) -> f32 = x\nfn bad(x: f32[n], y: f32[m]) -> f32[n] = x + <y>")
    assert isinstance(found.error, difflang.ParseError)
    found = shell.run("%%difflang\nfn fine(x: f32) -> f32 = x\nfn bad(x: f32[n], y: f32[m]) -> f32[n] = x + y")
    assert isinstance(found.error, difflang.ShapeError)
    (bundle,) = found.bundles
    assert "--> In[3]:3:" in bundle["text/plain"] and "fn bad(x: f32[n]" in bundle["text/plain"]
    assert "^ `y` is f32[m]" in bundle["text/plain"] and "\x1b" not in bundle["text/html"] + bundle["text/plain"]
    assert (
        bundle["text/html"].startswith('<pre class="difflang-report"><span') and "-&gt; f32[n]" in bundle["text/html"]
    )
    assert "fine" not in shell.names and "get_ipython" not in found.traceback


def test_what_fails_in_python_is_shown_with_the_frames_of_the_person(shell: Shell) -> None:
    shell.run("%%difflang\nfn pick(x: f64[n], i: i32) -> f64 = x[i]")
    shell.run("import numpy as np\ndef caller(i):\n    return pick(np.zeros(3), i)")
    found = shell.run("caller(7)")
    assert isinstance(found.error, difflang.IndexFailure)
    assert "--> In[2]:2:" in found.plain
    assert "return pick(np.zeros(3), i)" in found.traceback and "specialization.py" not in found.traceback
    assert found.traceback.rstrip().endswith(
        "IndexFailure: error[DL0902]: index 7 is out of range: `x` has 3 elements, 0 to 2"
    )


def test_commands_on_a_line(shell: Shell) -> None:
    shell.run("%%difflang\n## Twice.\nfn twice(x: f64) -> f64 = 2.0 * x^2")
    assert shell.run("%difflang :t twice").text == "fn twice(x: f64) -> f64\n"
    assert "fn d_twice(x: f64) -> f64" in shell.run("%difflang :g twice").text
    assert "Twice." in shell.run("%difflang ?twice").text
    assert shell.run("%difflang twice(3.0)").text == "18.0  : f64\n"
    assert shell.run("%difflang twice(3.0);").text == ""
    (table,) = shell.run("%difflang :trace twice x=3").bundles
    assert "<table" in table["text/html"] and "twice(x = 3)" in table["text/plain"]
    assert shell.run("%%difflang\nlet a = 1.5\n:t a\n").text == "f32\n"
    found = shell.run("%%difflang\nlet a = 1.5\n:t twice\n\nlet b = a + missing")
    assert "--> In[10]:5:" in found.bundles[0]["text/plain"]
    assert "needs a terminal" in str(shell.run("%difflang :edit twice").error)
    assert "these are no arguments" in str(shell.run("%%difflang twice\n1").error)


@pytest.mark.nightly
def test_a_picture_is_shown(shell: Shell) -> None:
    pytest.importorskip("matplotlib")
    cell = '%%difflang\nplot([1.0, 2.0], file = "a.svg")\nimage([[0.0, 1.0]], file = "b.png")'
    svg, png = shell.run(cell).bundles
    assert "<svg" in svg["image/svg+xml"] and svg["text/plain"] == "<a.svg>"
    assert png["image/png"].startswith("iVBOR")
    assert shell.run("%difflang 1").bundles == [], "it is shown once"


def test_an_error_that_was_caught_shows_itself(shell: Shell) -> None:
    with pytest.raises(difflang.CheckError) as caught:
        difflang.loads("fn f(x: f32) -> f32 = y < 1")
    bundle = caught.value._repr_mimebundle_()
    assert bundle["text/plain"] == caught.value.render() and "y &lt; 1" in bundle["text/html"]


def test_it_can_be_unloaded(shell: Shell) -> None:
    shell.run("%%difflang\nfn f(x: f32) -> f32 = x")
    assert shell.run("%unload_ext difflang").error is None
    assert shell.run("%difflang 1").error is not None or "not found" in shell.run("%difflang 1").text
    assert shell.names["f"](1.0) == 1.0


def test_a_cell_that_imports_and_one_that_fails_half_way(shell: Shell) -> None:
    assert (
        shell.run("%%difflang\nimport roots\nfn root(a: f64) -> f64 = roots.bisect(|x| x^2 - a, f64(0), f64(9))").error
        is None
    )
    assert abs(float(shell.names["root"](4.0)) - 2.0) < 1e-6
    found = shell.run('%%difflang\nlet a = 1.5\nassert a < 0.0, "a is {a}"\nlet b = 2.0')
    assert isinstance(found.error, difflang.AssertionFailure) and "a is 1.5" in found.plain
    assert shell.run("%difflang a").text == "1.5  : f32\n", "what was done before it failed is kept"
    assert shell.run("%difflang b").error is not None
    assert abs(float(shell.names["root"](9.0)) - 3.0) < 1e-6


def test_values_of_python_come_in_and_values_of_a_cell_go_out(shell: Shell) -> None:
    shell.run("import numpy as np\nx = np.array([1.0, 2.0, 3.0])\nn, rate, name = 3, 0.5, 'first'")
    found = shell.run(
        "%%difflang -i x,n -i rate name -o y, z\nrecord Pair { a: f64[3], k: i32 }\n"
        "let y = 2.0 * x\nlet z = Pair(a = y, k = n + i32(2.0 * rate))\nprint(n, rate, name)"
    )
    assert found.error is None and found.text == "3 0.5 first\n"
    assert np.array_equal(shell.names["y"], [2, 4, 6]) and shell.names["z"].k == 4
    assert isinstance(shell.names["z"], shell.names["Pair"])
    shell.run("x[0] = 9.0")
    assert shell.run("%difflang x[0]").text == "1.0  : f64\n", "a value does not change"
    assert shell.run("%%difflang -i z -o w\nlet w = z.a[1]").error is None and float(shell.names["w"]) == 4.0
    shell.run("%difflang :undo")
    assert shell.run("%difflang w").error is not None


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("-i nope", "Python has no `nope`"),
        ("-o nope", "no `let` or `var` has bound `nope`"),
        ("x", "these are no arguments of `%%difflang`"),
        ("-i 3", "these are no arguments of `%%difflang`"),
        ("-i thing", "`thing`"),
    ],
)
def test_names_that_do_not_come_in_or_go_out(shell: Shell, line: str, said: str) -> None:
    shell.run("thing = object()")
    found = shell.run(f"%%difflang {line}\nlet q = 1")
    assert isinstance(found.error, difflang.DifflangError) and said in str(found.error)


def test_a_loop_shows_its_progress_in_a_notebook(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("difflang.host.progress_bar.INTERVAL", 0.0)
    shell.run("%unload_ext difflang")
    monkeypatch.setattr(shell.shell, "kernel", object(), raising=False)
    shell.run("%load_ext difflang")
    try:
        found = shell.run("%%difflang\nfor i in progress(0..3) { if i == 2 { break } }")
        assert [b["text/plain"][:3] for b in found.bundles] == ["0/3", "1/3", "2/3", "3/3"]
        assert 'value="3"' in found.bundles[-1]["text/html"]
    finally:
        shell.run("%unload_ext difflang")
