"""`difflang partition`: what devices exchange, in a process of its own that pretends to have them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import pytest
from click.testing import CliRunner

from difflang.cli import main

DOCS = Path(__file__).parents[3] / "docs" / "partition.md"
SIZES = ["--arg", "n=64", "--arg", "d=16", "--arg", "h=32"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (source,) = re.findall(r"```dfl net.dfl\n(.*?)```", DOCS.read_text(encoding="utf-8"), flags=re.DOTALL)
    (tmp_path / "net.dfl").write_text(source, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    return tmp_path


def partitioned(*words: str) -> str:
    found = subprocess.run(
        [sys.executable, "-m", "difflang", "partition", *words], capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stderr
    return found.stdout


def test_a_gradient_on_two_axes(folder: Path) -> None:
    words = ("net.dfl:loss", "--wrt", "w", "--mesh", "data=4,model=2", *SIZES, "--json", "--compile")
    report: Any = json.loads(partitioned(*words))
    for rows in (report["predicted"], report["collectives"]):
        found = {(c["kind"], c["axes"][0], c["bytes"], c["times"]) for c in rows}
        assert found == {("all-reduce", "model", 64, 1), ("all-reduce", "data", 1024, 1)}
        assert {c["text"] for c in rows} >= {"let s = hidden(w, x) @ v"}
    assert report["bytes_on_each_device"]["arguments"] < report["bytes_of_arguments"] / 2


def test_a_loop_asks_all_devices_in_each_step(folder: Path) -> None:
    text = partitioned("net.dfl:settle", "--mesh", "data=8", "--arg", "n=64", "--compile")
    assert "each step" in text and "12 while max(abs(y * y - x)) > tol" in text and "along" in text
    assert "not predicted" not in text and "not in XLA" not in text


def test_splits_that_types_do_not_say(folder: Path) -> None:
    (folder / "net.dfl").write_text(re.sub(r"axes .*| @\w+", "", (folder / "net.dfl").read_text()))
    splits = ["--split", "x=data", "--split", "y=data", "--split", "w=_,model", "--split", "v=model"]
    words = ("net.dfl:loss", "--wrt", "w", "--mesh", "data=4,model=2", *SIZES, "--compile")
    text = partitioned(*words, *splits)
    assert text.count("all-reduce") == 2 and "predicted" not in text
    assert "no device sends anything" in partitioned(*words)


def test_a_plugin_that_imports_jax(folder: Path) -> None:
    (folder / "with_jax.py").write_text("import jax")
    words = ["--plugin", "with_jax", "--mesh", "data=2", "--compile", *SIZES]
    assert "@data" in partitioned("net.dfl:loss", *words)


def test_one_device_sends_nothing(folder: Path) -> None:
    (folder / "one.dfl").write_text("axes data\nfn third(x: f32[n @data]) -> f32 = x[2] * sum(x[1..4])\n")
    text = partitioned("one.dfl:third", "--mesh", "data=1", "--arg", "n=64", "--compile")
    assert "no device sends anything" in text and "predicted" not in text


def test_meshes_larger_than_can_be_tried_here(folder: Path) -> None:
    mesh = "--mesh", "data=4096"
    sizes = [f"--arg={name}" for name in ("n=8192", "d=16", "h=32")]
    assert "@data" in partitioned("net.dfl:loss", *mesh, *sizes)
    emitted = CliRunner().invoke(
        main, ["emit", "net.dfl:loss", *mesh, *sizes, "--stage", "stablehlo", "--platform", "tpu"]
    )
    assert emitted.exit_code == 0 and '"data"=4096' in emitted.output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--mesh", "data=4", "--split", "x=dat"], "DL0606"),
        (["--mesh", "data=4", "--split", "x=data,data"], "DL0604"),
        (["--mesh", "data=3", "--split", "x=data"], "DL0603"),
        (["--mesh", "data=4", "--split", "z=data"], "there is no argument `z` to split"),
        (["--mesh", "data=4", "--split", "y=data,_"], "`y` is f32[64], but `data,_` splits 2 axes"),
        (["--mesh", "data=64", "--compile"], "DL0601"),
        (["--mesh", "data4"], "is not NAME=SIZE"),
        (["--mesh", "data=4,data=2"], "is not NAME=SIZE"),
        (["--mesh", "data=4096", "--compile"], "at most 512 devices"),
    ],
    ids=lambda words: " ".join(words) if isinstance(words, list) else None,
)
def test_wrong_requests(words: list[str], said: str, folder: Path) -> None:
    jax.devices()  # so many there are
    found = CliRunner().invoke(main, ["partition", "net.dfl:loss", *SIZES, *words])
    assert found.exit_code in (1, 2) and said in " ".join(found.output.split())


def test_a_transformer_sums_as_often_as_one_split_by_hand() -> None:
    """Each layer of l sums its heads and its units once over `model`, and once each in the gradient."""
    example = DOCS.parents[1] / "examples" / "transformer_parallel.dfl"
    sizes = {"c": 27, "d": 32, "h": 4, "k": 8, "f": 64, "l": 2, "b": 8, "n": 32}
    words = [word for name, size in sizes.items() for word in ("--arg", f"{name}={size}")]
    mesh = ("--wrt", "m", "--mesh", "data=2,model=2")
    report: Any = json.loads(partitioned(f"{example}:loss", *mesh, *words, "--json", "--compile"))
    for rows in (report["predicted"], report["collectives"]):
        sums = [(c["bytes"], c["times"]) for c in rows if c["axes"] == ["model"] and c["bytes"] > 1000]
        assert sums == [(4 * 32 * 32 * 4, 2)] * 4
