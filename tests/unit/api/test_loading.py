"""Files and texts loaded: what is wrong is raised by class, a file's own values are found when they are needed."""

from __future__ import annotations

import copy
import pickle
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import difflang


@pytest.mark.parametrize(
    ("source", "kind", "code"),
    [
        ("fn f(x: f32) = (", difflang.ParseError, "DL0103"),
        ("fn f(x: f32) = y", difflang.CheckError, "DL0201"),
        ("fn f(x: f32[2], y: f32[3]) = x + y", difflang.ShapeError, "DL0310"),
        ("fn f(x: f32, y: f64) = x + y", difflang.DTypeError, "DL0311"),
        ("fn f(x: i32) -> f32 = 1.0\nfn g(x: i32) = grad(f)(x)", difflang.DifferentiationError, "DL0401"),
    ],
)
def test_a_wrong_program_is_raised_as_what_it_is(source: str, kind: type, code: str) -> None:
    with pytest.raises(kind) as error:
        difflang.loads(source, name="wrong.dfl")
    assert isinstance(error.value, difflang.DifflangError) and isinstance(error.value, SyntaxError)
    assert error.value.diagnostics[0].code == code
    assert error.value.filename == "wrong.dfl" and error.value.lineno == source.count("\n") + 1
    assert code in error.value.render() and code in str(error.value)
    assert error.value.to_json()[0]["code"] == code


def test_reports_point_into_the_file_that_a_text_comes_from() -> None:
    with pytest.raises(difflang.CheckError) as error:
        difflang.loads("fn f(x: f32) = y", origin=("model.py", 41))
    assert error.value.filename == "model.py" and error.value.lineno == 41


def test_what_is_loaded_is_copied_as_itself_and_not_pickled() -> None:
    module = difflang.loads("fn f(x: f32) -> f32 = x * x", name="squares")
    for part in (module, module.f, module.f.grad("x")):
        assert copy.copy(part) is part and copy.deepcopy([part])[0] is part
        with pytest.raises(difflang.ArgumentError, match=f"`{part.__name__}` belongs to a loaded program") as refused:
            pickle.dumps(part)
        assert "load the file again where you need it" in refused.value.diagnostics[0].helps[0]


def test_errors_are_pickled_as_they_are() -> None:
    def again(error: object) -> object:
        return pickle.loads(pickle.dumps(error))  # noqa: S301

    for source in ("fn f(x: f32) = (", "fn f(x: f32[2], y: f32[3]) = x + y"):
        with pytest.raises(difflang.DifflangError) as wrong:
            difflang.loads(source, name="wrong")
        for same in (again(wrong.value), copy.copy(wrong.value), copy.deepcopy(wrong.value)):
            assert type(same) is type(wrong.value) and str(same) == str(wrong.value)


def test_a_text_for_a_file_and_a_file_for_a_text() -> None:
    with pytest.raises(difflang.DataError, match=r"difflang\.loads"):
        difflang.load("fn f(x: f32) -> f32 = x")
    with pytest.raises(difflang.ParseError, match=r"difflang\.load\(.model\.dfl.\)"):
        difflang.loads("model.dfl")


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(difflang.DataError) as error:
        difflang.load(tmp_path / "nothing.dfl")
    assert isinstance(error.value, OSError)


FILE = """
let data: f64[n, 2] = read_csv("data.csv")
let unused: f64[k] = read_npy("not there.npy")
let (low, high) = (1.0, 10.0)
let weights = data[.., 0] * scale(2.0)
var counter: f64 = 0.0
let after = counter + 1.0
print("this is not run")
assert false
fn scale(x: f64) -> f64 = x * f64(high)
fn total(x: f64) -> f64 = x * sum(weights)
fn rows() -> i32 = n
fn local(unused: f64) -> f64 { let counter = unused
  counter }
fn later() -> f64 = after
fn missing() -> f64 = sum(unused)
"""


def test_top_level_values_are_evaluated_when_a_function_needs_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "model.dfl"
    path.write_text(FILE)
    (tmp_path / "data.csv").write_text("1,2\n3,4\n")
    m = difflang.load(path)
    assert float(m.local(2.0)) == 2, "a parameter of that name is no top-level value"
    assert float(m.total(1.0)) == 80 and float(m.total.grad()(1.0)) == 80 and m.rows() == 2
    assert m.total.interpret(0.5) == 40
    with pytest.raises(difflang.ArgumentError, match="is a variable"):
        m.later()
    for _ in range(2):
        with pytest.raises(difflang.DataError, match="no such file"):
            m.missing()
    assert m.__name__ == "model" and m.__file__ == str(path)
    assert capsys.readouterr() == ("", "")


def test_a_name_that_a_let_binds_itself_is_none_of_the_file() -> None:
    text = """let k: f32[n] = read_npy("not there.npy")
let twice = |k| 2 * k
fn f(x: f32) -> f32 = twice(x)
"""
    assert difflang.loads(text).f.interpret(2.0) == 4.0


def test_only_the_folder_of_the_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "secret.csv").write_text("1\n")
    path = tmp_path / "inner" / "model.dfl"
    path.write_text('let x: f64[n] = read_csv("../secret.csv")\nfn f() -> f64 = sum(x)\n')
    with pytest.raises(difflang.DataError) as error:
        difflang.load(path).f()
    assert error.value.diagnostics[0].code == "DL0702"


def test_importing_the_package_is_light() -> None:
    program = "import sys, difflang; assert not {'jax', 'numpy', 'lark'} & set(sys.modules), 'heavy'; dir(difflang)"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
    assert {"load", "loads", "DifflangError", "IndexFailure"} <= set(dir(difflang))
    with pytest.raises(AttributeError):
        difflang.nothing  # noqa: B018


# ---- The levels below


def test_a_program_is_lowered_anew_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    from difflang.api import loaded_program

    made: list[str] = []
    original = loaded_program.elaborate_call
    monkeypatch.setattr(loaded_program, "elaborate_call", lambda *args: made.append(args[2]) or original(*args))
    m = difflang.loads("fn f(x: f32[n], y: f32 = 2.0) -> f32 = y * sum(sin(x))")
    for _ in range(3):
        text = m.f.lower("f32[3]").as_text()
    assert made == ["f"] * 3 and "stablehlo.sine" in text and "tensor<3xf32>" in text
    compiled = m.f.lower(np.ones(3, np.float32)).compile()
    (value,) = compiled(np.ones(3, np.float32))
    assert value == pytest.approx(2 * 3 * np.sin(1), rel=1e-6)
    assert "stablehlo" in m.f.stablehlo("f32[3]", platform="tpu")


def test_a_lowered_program_is_what_a_call_runs() -> None:
    """In tiles, with the memory that these take."""
    source = "fn f(x: f32[n, 2]) -> f32 = sum(for i, j => exp(-sum((x[i] - x[j])^2)))"
    f = difflang.loads(source).f.grad()
    x = np.linspace(0, 1, 3000, dtype=np.float32).reshape(1500, 2)
    lowered = f.lower(x)
    assert "while" in lowered.as_text() and "while" in f.jaxpr(x)
    on_mesh = difflang.loads("axes data\n" + source, mesh={"data": 1}).f.grad()
    assert "while" not in on_mesh.stablehlo(x) and "while" not in on_mesh.jaxpr(x)
    assert lowered.compile().memory_analysis().temp_size_in_bytes < 1500**2 * 4 / 2


def test_the_graph_is_shown_at_its_stages() -> None:
    m = difflang.loads("record P[d] { w: f32[d] }\nfn f(x: f32) = x * x\nfn g(p: P[d], s: f32) = s * sum(p.w)")
    assert "call %x" in m.f.ir() and "vjp" in m.f.grad().ir() and "vjp" not in m.f.grad().ir("derived")
    assert "mul" in m.f.ir("optimized", "f32") and "mul" in m.f.jaxpr("f32")
    assert "f32[4]" in m.g.ir("ir", "P[4]", "f32") and "f32[4]" in m.g.ir("ir", {"w": "f32[4]"}, s="f32")
    with pytest.raises(ValueError, match="no stage"):
        m.f.ir("planned")
    for spec in ("f32[", "q7", "f32[n]", ""):
        with pytest.raises(difflang.ArgumentError) as error:
            m.f.ir("ir", spec)
        assert error.value.diagnostics[0].code == "DL1210", spec
    with pytest.raises(difflang.ArgumentError):
        m.f.ir("ir", "f64")
    with pytest.raises(difflang.ArgumentError, match=r"sizes? d"):
        m.g.ir()


DRAWN = """let w = normal(2)
let v = noise()
fn noise() -> f32[2] = normal(2)
fn first() -> f32[2] = w
fn second() -> f32[2] = v
"""


def test_what_a_let_draws_is_of_the_seed_and_of_nothing_else() -> None:
    """Neither which is asked for first nor the draws of calls change it, and none of them is drawn twice."""
    one, other, third = (difflang.loads(DRAWN, seed=seed) for seed in (3, 3, 4))
    draws = [one.first(), one.second(), one.noise()]
    assert np.array_equal(draws, [other.noise(), other.second(), other.first()][::-1])
    assert len({float(x) for draw in (*draws, third.first(), third.second()) for x in draw}) == 10


@pytest.mark.parametrize(
    ("specs", "said"),
    [
        (("M[5]", "f64[5]", "M[5]"), ""),
        (("M[5]", "f64[5]", "M[4]"), "`d_m` is declared D(M[5]), but M[4] was given"),
        (("M[5]", "f64[5]", "f64[5]"), "but f64[5] was given"),
    ],
)
def test_types_of_tangents_are_spelled(specs: tuple[str, ...], said: str) -> None:
    f = difflang.compile("""record M[n] { w: f64[n], k: i32, b: f64 }
fn f(m: M[n], x: f64[n]) -> f64 = sum(m.w * x) + m.b""")
    if not said:
        assert "tensor<5xf64>" in f.jvp().lower(*specs).as_text() and f.jvp().memory(*specs)
        return
    with pytest.raises(difflang.ArgumentError, match=re.escape(said)):
        f.jvp().lower(*specs)
