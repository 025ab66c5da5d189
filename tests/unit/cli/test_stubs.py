"""`difflang stubs`: what a type checker makes of the stubs of all examples, and of a program that uses some."""

from __future__ import annotations

import ast
import json
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import difflang
from difflang.cli import main

ROOT = Path(__file__).resolve().parents[3]
LAYER = """record Act { slope: f32 }
pub fn act(x: f32[n]) -> f32[n] = tanh(x)
pub fn twice(x: f32[n]) -> f32[n] = act(act(x))
"""
SHAPES = '''import "./layer.dfl" as layer
import "./layer.dfl" (act)
import ode (rk4)
## A net. """Well""".
record Net[d] { w: f32[d], b: f32, name: str }
record Pair { a: f32, b: f32[3] }
enum Shape { Circle(r: f32), Box(w: f32, h: f32) }
fn loss(m: Net[d], x: f32[n, d], y: f32[n]) -> f32 = mean((x @ m.w + m.b - y)^2)
fn pairs(p: Pair, k: dim, tol: f32 = 0.1) -> (Pair, i32) = (p, 3)
fn total(p: Pair, q: Pair) -> f32 = p.a * sum(q.b)
fn area(s: Shape) = match s { Circle(r) => r, Box(w, h) => w * h }
fn heaviest(p: Pair[n], s: Shape[n]) -> Pair where n > 0 = p[argmax(p.a)]
fn layers(m: Net[d][k]) -> Net[d][k] = m
fn turned(names: str[n]) -> str[n] = reverse(names)
fn first(names: str[n]) -> str where n > 0 = names[0]
fn rolled(s: Shape) -> Shape = s
fn noise(n: dim) -> f32[n] = normal(n)
fn applied(f: (f32) -> f32, lambda: f32) -> f32 = f(lambda)
fn id[T: float](x: T[..s]) -> T[..s] = x
extern fn wave(x: f64[n]) -> f64[n]
host fn shown() { print(1) }
'''
USER = """
import numpy as np
from jax import Array
from typing_extensions import assert_type

import shapes

net = shapes.Net(w=np.ones(2, np.float32), b=0.5, name="q")
pair = shapes.Pair(a=1.0, b=np.ones(3, np.float32))
x, y = np.ones((3, 2), np.float32), np.ones(3, np.float32)
assert_type(shapes.loss(net, x, y=y), Array)
assert_type(shapes.loss.grad("m")(net, x, y).w, Array)
value, slope = shapes.loss.value_and_grad("x")(net, x, y)
assert_type(value, Array)
assert_type(slope, Array)
assert_type(shapes.pairs(pair, 3)[0], shapes.Pair)
assert_type(shapes.total.grad(1)(pair, pair), shapes.Pair)
pushed, change = shapes.loss.jvp("x")(net, x, y, x)
value, pull = shapes.loss.vjp("x")(net, x, y)
pull(1.0)
shapes.layer.twice(y)
shapes.act(y)
form: shapes.Shape = shapes.Box(w=1.0, h=2.0)
assert_type(shapes.area(form), Array)
assert_type(shapes.rolled(form), shapes.Shape)
assert_type(shapes.heaviest([pair, pair], [form, form]), shapes.Pair)
assert_type(shapes.first(shapes.turned(["a", "b"])), str)
nets = shapes.layers([net])
assert_type(nets, shapes.Net)
assert_type(nets[0], shapes.Net)
assert_type(shapes.layers(nets), shapes.Net)
assert_type([n.b for n in nets], list[Array])
assert_type(shapes.Pair.stack([pair, pair]), shapes.Pair)
len(nets)
assert_type(shapes.noise(3, key=np.zeros(2, np.uint32)), Array)
assert_type(shapes.id(x), Array)
shapes.total.hessian("p.a")(pair, pair)
assert_type(shapes.loss.vmap({"y": 0})(net, x, np.stack([y, y])), Array)
assert_type(shapes.loss.grad("m").vmap(in_axes=(None, 0, None))(net, x[None], y).w, Array)
assert_type(shapes.loss.bind(d=2, n=3)(net, x, y), Array)
shapes.pairs.bind(k=2)(pair)
print(shapes.loss.cost("Net[2]", "f32[3, 2]", "f32[3]").table()[0]["of"])
print(shapes.loss.__name__)
"""
WRONG = """
import numpy as np

import shapes

x = np.ones((3, 2), np.float32)
net = shapes.Net(w=x, b=0.5, name="q")
shapes.loss(net, x)  # wrong
shapes.loss(x, x, x)  # wrong
shapes.loss(net, x, z=x)  # wrong
shapes.loss(net, [1.0], x)  # wrong
shapes.loss(net, x, x)
shapes.Net(w=x, b=0.5)  # wrong
shapes.lost(net, x, x)  # wrong
shapes.shown()  # wrong
shapes.loss.grad("m")(net, x)  # wrong
shapes.loss.grad(wert="m")  # wrong
shapes.loss.vmap(axes=0)  # wrong
shapes.loss.bind(d=2)(net, x)  # wrong
shapes.pairs(shapes.Pair(a=1.0, b=x), 2.5)  # wrong
shapes.loss.grad("m")(net, x, x).name  # wrong
shapes.area(net)  # wrong
shapes.layers([pair])  # wrong
shapes.first([1])  # wrong
net.w = x  # wrong
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Programs, the stubs of them and of all examples, and Python programs that use them."""
    folder = tmp_path_factory.mktemp("stubs")
    (folder / "layer.dfl").write_text(LAYER)
    (folder / "shapes.dfl").write_text(SHAPES)
    (folder / "user.py").write_text(USER)
    (folder / "wrong.py").write_text(WRONG)
    examples = sorted(p for p in (ROOT / "examples").rglob("*.dfl"))
    assert len(examples) > 15
    for files, more in (([folder / "shapes.dfl", folder / "layer.dfl"], []), (examples, ["--out", str(folder)])):
        made = CliRunner().invoke(main, ["stubs", *map(str, files), *more])
        assert made.exit_code == 0, made.output
    assert len(list(folder.glob("*.pyi"))) == len(examples) + 2
    return folder


@pytest.mark.nightly
def test_a_type_checker_takes_the_stubs_and_flags_what_is_wrong(folder: Path) -> None:
    """One run for all of it. Missing sources are a program's own files, which it does not know."""
    checker = shutil.which("basedpyright", path=str(Path(sys.executable).parent))
    assert checker is not None, "it is one of the packages that the tests need"
    off = ("UnusedExpression", "MissingModuleSource", "UnknownMemberType", "UnknownVariableType", "UnusedImport")
    settings = {"typeCheckingMode": "strict", **{f"report{name}": False for name in off}}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [checker, "--pythonpath", sys.executable, "--outputjson", "-p", str(folder)]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, timeout=300).stdout)
    places: dict[str, set[int]] = {}
    for report in found["generalDiagnostics"]:
        places.setdefault(Path(report["file"]).name, set()).add(report["range"]["start"]["line"])
    wanted = {i for i, line in enumerate(WRONG.split("\n")) if line.endswith("# wrong")}
    assert found["summary"]["filesAnalyzed"] > 20
    assert places == {"wrong.py": wanted}, [d for d in found["generalDiagnostics"] if d["file"][-8:] != "wrong.py"]


def test_what_the_stubs_say_is_so(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The program that the checker takes runs: names, parameters and results are there as the stubs have them."""
    monkeypatch.syspath_prepend(folder)
    with difflang.importing():
        runpy.run_path(str(folder / "user.py"))
    del sys.modules["shapes"]
    assert capsys.readouterr().out == "value\nloss\n"


def test_names_that_python_cannot_write_and_effects(folder: Path) -> None:
    text = (folder / "shapes.pyi").read_text()
    assert "def __call__(self, _0: _Function, _1: _ArrayLike, /) -> _R" in text
    assert "def __call__(self, n: int, *, key: _ArrayLike | None = None) -> _R" in text
    assert "rk4: _t.Any" in text and "shown" not in text
    assert 'Well\\"\\"\\".' in text
    assert not re.search(r"^\s*import typing_extensions", text)


def test_nothing_is_written_where_a_program_is_wrong_or_a_stub_is_somebody_else_s(tmp_path: Path) -> None:
    good, bad, taken = (tmp_path / f"{name}.dfl" for name in ("good", "bad", "taken"))
    good.write_text("fn f(x: f32) -> f32 = x\n")
    bad.write_text("fn f(x: f32) -> f32 = y\n")
    taken.write_text("fn f(x: f32) -> f32 = x\n")
    invoke = lambda *words: CliRunner().invoke(main, ["stubs", *map(str, words)])
    failed = invoke(good, bad)
    assert failed.exit_code == 1 and "DL0201" in failed.output
    (tmp_path / "taken.pyi").write_text("f: int\n")
    refused = invoke(good, taken)
    assert refused.exit_code == 2 and "was not written by `difflang stubs`" in refused.output
    assert not (tmp_path / "good.pyi").exists() and (tmp_path / "taken.pyi").read_text() == "f: int\n"
    assert invoke(good).exit_code == 0 and invoke(good).exit_code == 0, "and again, over its own"
    (tmp_path / "a-b.dfl").write_text("fn f(x: f32) -> f32 = x\n")
    assert invoke(tmp_path / "a-b.dfl").exit_code == 2
    assert invoke(tmp_path / "none.dfl").exit_code == 1


def test_they_are_written_without_jax(tmp_path: Path) -> None:
    (tmp_path / "f.dfl").write_text("fn f(x: f32[n]) -> f32 = sum(x)\n")
    code = "import sys; from difflang.cli import main; main(['stubs', 'f.dfl'], standalone_mode=False)"
    ran = subprocess.run([sys.executable, "-c", f"{code}; sys.exit('jax' in sys.modules)"], cwd=tmp_path, timeout=120)
    assert ran.returncode == 0 and (tmp_path / "f.pyi").is_file()


def test_the_package_says_that_it_is_typed() -> None:
    assert (ROOT / "difflang" / "py.typed").is_file()


def test_parameters_and_fields_that_are_called_self_and_places_that_are_no_file(tmp_path: Path) -> None:
    (tmp_path / "f.dfl").write_text("record R { self: f32 }\nfn f(self: f32, x: f32) -> f32 = self * x\n")
    place = tmp_path / "f.pyi"
    assert CliRunner().invoke(main, ["stubs", str(tmp_path / "f.dfl")]).exit_code == 0
    text = place.read_text()
    ast.parse(text)
    assert "def __init__(_self, self: _ArrayLike)" in text
    assert "def __call__(self, _0: _ArrayLike, _1: _ArrayLike, /) -> _R" in text
    place.unlink()
    place.mkdir()
    failed = CliRunner().invoke(main, ["stubs", str(tmp_path / "f.dfl")])
    assert failed.exit_code == 1 and "DL0710" in failed.output
