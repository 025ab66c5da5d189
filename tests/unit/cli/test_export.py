"""`difflang export`: a file for other programs, and what is said to wrong use."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

import difflang
import difflang.runtime
from difflang.cli import main
from difflang.host import optional_packages

PROGRAM = """
let scale = [2.0, 3.0]
## Scaled squares.
fn f(x: f32[n], k: f32 = 1.0) -> f32 = scale[0] * k * sum(x * x)
fn g(x: f64) -> f64 = x * x
fn says(x: f64) -> f64 {
  print(x)
  x
}
host fn h(x: f64) -> f64 = x
"""


def export(file: Path, entry: str, *args: object) -> Result:
    return CliRunner().invoke(main, ["export", f"{file}{entry}", *map(str, args)])


def test_a_file_is_written_that_loads(file: Path, tmp_path: Path) -> None:
    out = tmp_path / "f.dflx"
    result = export(file, ":f", "--arg", "n=2", "-o", out, "--platform", "cpu", "--platform", "tpu")
    assert result.exit_code == 0 and result.stdout == "", result.output
    f = difflang.runtime.load(out)
    x = np.array([1.0, 2.0], np.float32)
    assert float(f(x, 1.0)) == 10.0 and f.platforms == ("cpu", "tpu") and f.__doc__ == "Scaled squares."
    assert difflang.load(file).f(x, 1.0) == f(x, 1.0)


def test_a_gradient_is_exported(file: Path, tmp_path: Path) -> None:
    out = tmp_path / "f.dflx"
    assert export(file, ":g", "--wrt", "x", "-o", out, "--platform", "none", "--no-source").exit_code == 0
    f = difflang.runtime.load(out)
    assert float(f(3.0)) == 6.0 and f.__name__ == "grad_g" and b"x * x" not in out.read_bytes()


def test_sizes_may_be_symbolic(file: Path, tmp_path: Path) -> None:
    out = tmp_path / "f.dflx"
    result = export(file, ":f", "--symbolic", "n", "-o", out)
    assert result.exit_code == 0 and "for no platform" in result.output
    f = difflang.runtime.load(out)
    assert [float(f(np.ones(n, np.float32), 1.0)) for n in (1, 4)] == [2.0, 8.0]


def test_stablehlo_alone(file: Path, tmp_path: Path) -> None:
    text, code = tmp_path / "g.mlir", tmp_path / "g.mlirbc"
    assert export(file, ":g", "--stablehlo", "cuda", "-o", text).exit_code == 0
    assert export(file, ":g", "--stablehlo", "cpu", "-o", code).exit_code == 0
    assert "stablehlo.multiply" in text.read_text() and str(Path.cwd()) not in text.read_text()
    assert code.read_bytes().startswith(b"ML\xefR")
    refused = export(file, ":f", "--arg", "n=2", "--stablehlo", "cpu", "-o", tmp_path / "f.mlir")
    assert refused.exit_code == 1 and "DL1240" in refused.output and not (tmp_path / "f.mlir").exists()


WRONG = [
    (":f", ["--platform", "none"], 2, "add `--arg n=3`"),
    (":sayz", [], 2, "did you mean `says`"),
    ("", [], 2, "`export` takes one function of a file"),
    (":g", ["--wrt", "y"], 2, "DL0403"),
    (":g", ["--platform", "cpus"], 2, "Did you mean 'cpu'"),
    (":g", ["--platform", "none", "--platform", "cpu"], 2, "excludes other platforms"),
    (":g", ["--stablehlo", "cpu", "--no-source"], 2, "--stablehlo requires"),
    (":f", ["--symbolic", "m"], 2, "has no size `m`"),
    (":f", ["--symbolic", "n", "--platform", "cpu"], 1, "StableHLO is for sizes that are numbers"),
    (":says", [], 1, "DL1240"),
    (":h", [], 1, "DL0322"),
]


@pytest.mark.parametrize(("entry", "options", "code", "said"), WRONG, ids=str)
def test_wrong_use(entry: str, options: list[str], code: int, said: str, file: Path, tmp_path: Path) -> None:
    result = export(file, entry, *options, "-o", tmp_path / "f.dflx")
    assert result.exit_code == code and said in result.output
    assert not (tmp_path / "f.dflx").exists()


def test_a_folder_that_is_not_there(file: Path, tmp_path: Path) -> None:
    result = export(file, ":g", "--platform", "none", "-o", tmp_path / "none" / "g.dflx")
    assert result.exit_code == 1 and "DL0710" in result.output


def test_without_flatbuffers(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(optional_packages.importlib, "import_module", absent)
    result = export(file, ":g", "-o", tmp_path / "g.dflx")
    assert result.exit_code == 1 and "pip install 'difflang[export]'" in result.output
    assert export(file, ":g", "-o", tmp_path / "g.dflx", "--platform", "none").exit_code == 0


TEXTS = """record N { w: f32[2], name: str }
fn told(m: N, x: f32[n, 2]) -> f32[n] = if m.name == "a" { x @ m.w } else { 2.0 * (x @ m.w) }
fn unused(m: N, x: f32[n, 2]) -> f32[n] = x @ m.w
fn chosen(x: f32[n], kind: str) -> f32[n] = if kind == "a" { x } else { 2.0 * x }
fn halves(x: f32[n]) -> (f32, f32[n - n // 2]) = (x[n // 2], x[n // 2..])
"""


def test_texts_of_an_export_are_given(tmp_path: Path) -> None:
    path, out = tmp_path / "texts.dfl", tmp_path / "f.dflx"
    path.write_text(TEXTS)
    for entry in (":told", ":unused"):
        result = export(path, entry, "--arg", "n=3", "-o", out)
        assert result.exit_code == 2 and "`m.name` is a text that is not given" in result.output
    assert export(path, ":chosen", "--arg", "kind=b", "--symbolic", "n", "-o", out).exit_code == 0
    assert "add `--arg kind=TEXT`" in export(path, ":chosen", "--symbolic", "n", "-o", out).output
    np.testing.assert_array_equal(difflang.runtime.load(out)(np.ones(3, np.float32), "b"), [2, 2, 2])


def test_symbolic_sizes_are_divided(tmp_path: Path) -> None:
    path, out = tmp_path / "texts.dfl", tmp_path / "f.dflx"
    path.write_text(TEXTS)
    assert export(path, ":halves", "--symbolic", "n", "-o", out).exit_code == 0
    for n in (1, 4, 5):
        x = np.arange(n, dtype=np.float32)
        middle, rest = difflang.runtime.load(out)(x)
        assert middle == x[n // 2]
        np.testing.assert_array_equal(rest, x[n // 2 :])
