"""`run FILE:f --arg x=@data.npz:x --set lr=0.1`: a call on the command line, and data by the suffix of its file."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from safetensors.numpy import save_file

from difflang.cli import main

PROGRAM = """
record Net[n, k] { w: f32[k, n], b: f32[k] }
let scale = 2.0
fn loss(x: f32[m, n], net: Net[n, k], rate: f32 = 0.5) -> f32 {
  var total = 0.0
  for i in 0..m { total = total + sum(net.w @ x[i] + net.b) }
  total * rate * scale
}
fn norm[T: float](v: T[n]) -> T = sqrt(sum(v^2))
fn halves(t: f64[n, 2]) -> f64[2] = [for j => mean([for i => t[i, j]])]
fn zeros_of(n: dim) -> f32[n] = zeros(n)
host fn greet(name: str, load: f64 = 1.0) { print("hello {name}") }
let lr: f64 = arg("lr", default = 0.1)
fn with_lr(x: f64) -> f64 = x * lr
print("the file ran, lr is {lr}")
"""
F32 = np.float32


def run(*args: object) -> Result:
    result = CliRunner().invoke(main, ["run", "--engine", "interpret", *map(str, args)])
    assert "Traceback" not in result.output
    return result


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder with one value in every format."""
    folder = tmp_path / "the data {1}"
    folder.mkdir()
    np.savez(folder / "all.npz", x=np.ones((10, 4), F32), v=np.array([3.0, 4.0]), three=np.ones(3, F32))
    np.savez(folder / "net.npz", w=np.ones((5, 4), F32), b=np.ones(5, F32))
    save_file({"w": np.ones((5, 4), F32), "b": np.ones(5, F32)}, folder / "net.safetensors")
    (folder / "net.json").write_text(json.dumps({"w": np.ones((5, 4)).tolist(), "b": [1] * 5}))
    np.save(folder / "v.npy", np.array([3.0, 4.0]))
    np.save(folder / "v32.npy", np.array([3.0, 4.0], F32))
    (folder / "t.csv").write_text("1,2\n3,4\n")
    return folder


def test_a_function_is_called_and_its_result_printed(file: Path, data: Path) -> None:
    x = f"x=@{data / 'all.npz'}:x"
    for net in ("net.npz", "net.safetensors", "net.json"):
        result = run(f"{file}:loss", "--arg", x, "--arg", f"net=@{data / net}", "--set", "rate=0.1")
        assert (result.exit_code, result.stdout) == (0, "50.0\n"), result.stderr
    assert run(f"{file}:loss", "--arg", x, "--arg", f"net=@{data / 'net.npz'}").stdout == "250.0\n"


@pytest.mark.parametrize(
    "told", ["v=@{d}/v.npy", "v=@{d}/v32.npy", "v=@{d}/all.npz:v", "v=@{d}/all.npz", "v=[3.0, 4.0]"]
)
def test_formats_and_values(told: str, file: Path, data: Path) -> None:
    assert run(f"{file}:norm", "--set", told.replace("{d}", str(data))).stdout == "5.0\n"


def test_tables_sizes_texts_and_arguments_of_the_program(file: Path, data: Path) -> None:
    assert run(f"{file}:halves", "--arg", f"t=@{data / 't.csv'}").stdout == "[2.0, 3.0]\n"
    assert run(f"{file}:zeros_of", "--set", "n=2").stdout == "[0.0, 0.0]\n"
    assert run(f"{file}:greet", "--set", 'name="you"').stdout == "hello you\n"
    assert run(f"{file}:with_lr", "--set", "x=2.0", "--set", "lr=0.5").stdout == "1.0\n"
    assert run(f"{file}:with_lr", "--set", "x=2.0", "--", "--lr", "0.5").stdout == "1.0\n"
    assert run(file, "--set", "lr=0.7").stdout == "the file ran, lr is 0.7\n"
    assert run(file).stdout == "the file ran, lr is 0.1\n"


def test_it_is_compiled_too(file: Path, data: Path) -> None:
    told = f"v=@{data / 'v.npy'}"
    assert CliRunner().invoke(main, ["run", f"{file}:norm", "--arg", told]).stdout == "5.0\n"


def test_what_does_not_fit(file: Path, data: Path) -> None:
    np.save(data / "hostile.npy", np.array([{}], object), allow_pickle=True)
    (data / "cut.npy").write_bytes((data / "v.npy").read_bytes()[:130])
    (data / "semi.csv").write_text("1,5;2\n3;4\n")
    (data / "v.pkl").write_bytes(b"cos\nsystem\n(S'true'\ntR.")
    d, net = str(data), f"net=@{data}/net.npz"
    for entry, told, exit_code, code, said in [
        ("norm", [f"v=@{d}/hostile.npy"], 1, "DL0701", "Python objects"),
        ("norm", [f"v=@{d}/cut.npy"], 1, "DL0701", "truncated"),
        ("norm", [f"v=@{d}/v.pkl"], 1, "DL0708", ".npy"),
        ("norm", [f"v=@{d}/none.npy"], 1, "DL0701", "no such file"),
        ("norm", [f"v=@{d}/all.npz:thre"], 1, "DL0706", "did you mean `three`?"),
        ("norm", [f"v=@{d}/all.npz:x"], 1, "DL0304", "f32[10, 4]"),
        ("halves", [f"t=@{d}/semi.csv"], 1, "DL0703", "semicolons"),
        ("loss", [f"x=@{d}/all.npz:three", net], 1, "DL0705", "f32[3]"),
        ("loss", [f"x=@{d}/all.npz:v", net], 1, "DL0704", "f64[2]"),
        ("loss", [net], 2, "DL1207", "is missing `x`"),
        ("loss", [net], 2, "DL1207", "--set 'x=[[1.0, 1.0], [1.0, 1.0]]'"),
        (
            "loss",
            [f"x=@{d}/all.npz:x"],
            2,
            "DL1207",
            "--set 'net=Net(w = [[1.0, 1.0], [1.0, 1.0]], b = [1.0, 1.0])'",
        ),
        ("loss", [f"x=@{d}/all.npz:zzz", net], 1, "DL0706", f"write `--arg x=@{d}/all.npz:"),
        ("lss", [net], 2, "DL0201", "did you mean `loss`?"),
        ("norm", [f"w=@{d}/v.npy"], 2, "DL1207", "no parameter `w`"),
    ]:
        options = [o for t in told for o in ("--arg", t)]
        result = run(f"{file}:{entry}", *options)
        assert result.exit_code == exit_code, result.stderr
        assert f"error[{code}]" in result.stderr and said in result.stderr, result.stderr
        assert result.stdout == ""


def test_any_name_of_a_file_is_a_text(file: Path, data: Path) -> None:
    odd = data / 'a "{b}"\\\x1b\n.npy'
    odd.write_bytes((data / "v.npy").read_bytes())
    result = run(f"{file}:norm", "--arg", f"v=@{odd}")
    assert result.exit_code == 0 and float(result.stdout.split()[-1]) > 0, result.output


def test_a_comment_behind_a_value_takes_no_other_argument_away(file: Path) -> None:
    result = run(f"{file}:greet", "--set", 'name="you" # who', "--set", 'load="much"')
    assert result.exit_code == 1 and "load" in result.stderr, result.output


def test_wrong_use(file: Path, data: Path) -> None:
    for args, said in [
        ((file, "--arg", f"v=@{data / 'v.npy'}"), "name the function"),
        ((f"{file}:norm", "--arg", "v=3"), "NAME=@FILE"),
        ((f"{file}:norm", "--set", "v=[1.0])\nprint(2"), "DL1210"),
        ((f"{file}:norm", "--set", "v=[1.0]", "--arg", f"v=@{data / 'v.npy'}"), "given twice"),
        ((file, "--set", "lx=1"), "did you mean `lr`?"),
        ((file, "--set", "lr=much"), "DL1220"),
    ]:
        result = run(*args)
        assert (result.exit_code, said in result.stderr) == (2, True), result.stderr


def test_only_the_file_that_is_named_may_be_read(tmp_path: Path) -> None:
    """The command line names a file, not its folder."""
    inner = tmp_path / "inner"
    inner.mkdir()
    program = inner / "p.dfl"
    program.write_text('host fn f(x: f64) {\n  let y: f64 = read_npy("../y.npy")\n  print(x + y)\n}\n')
    for name in ("x.npy", "y.npy"):
        np.save(tmp_path / name, np.float64(1.0))
    result = run(f"{program}:f", "--arg", f"x=@{tmp_path / 'x.npy'}")
    assert result.exit_code == 1 and "DL0702" in result.stderr
