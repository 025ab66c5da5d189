"""The dataflow machine on the command line: `run`, `emit`, `viz`, `trace`, and options that do not fit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from difflang.cli import main
from difflang.dataflow import timeline
from difflang.dataflow.executor import Firing
from difflang.dataflow.machine import Machine
from difflang.dataflow.timeline import chrome_trace

PROGRAM = """\
fn f(x: f64[n], k: i32) -> f64 {
  var s = 0.0
  for i in 0..n {
    if x[i] > 0.5 { for _ in 0..k { s += sin(s + x[i]) } } else { s = s * cos(x[i]) }
  }
  s
}
let x: f64[3] = [0.1, 0.9, 0.7]
print("{f(x, 3)} {grad(f)(x, 3)}")
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "f.dfl").write_text(PROGRAM, encoding="utf-8")
    (tmp_path / "place").write_text("op sin = 1\nline 4 = 1  # the branch\n", encoding="utf-8")
    return tmp_path


def call(*words: str) -> Result:
    return CliRunner().invoke(main, words)


def test_a_program_runs_as_interpreted(folder: Path) -> None:
    wanted = call("run", "f.dfl", "--engine", "interpret").output
    assert call("run", "f.dfl", "--engine", "dataflow").output == wanted
    placed = call("run", "f.dfl", "--engine", "dataflow", "--devices", "2", "--place", "place",
                  "--parallel-iterations", "1")  # fmt: skip
    assert placed.output == wanted


def test_a_failed_check_is_the_same_error(folder: Path) -> None:
    (folder / "g.dfl").write_text(PROGRAM.replace("x[i] > 0.5", "x[i + 1] > 0.5"), encoding="utf-8")
    interpreted, found = [call("run", "g.dfl", "--engine", engine) for engine in ("interpret", "dataflow")]
    assert found.exit_code == interpreted.exit_code == 3 and "DL0902" in found.output
    assert found.output == interpreted.output


def test_the_profile_and_the_timeline_of_a_run(folder: Path) -> None:
    found = call("run", "f.dfl", "--engine", "dataflow", "--devices", "2", "--place", "place", "--profile",
                 "--timeline", "run.json")  # fmt: skip
    assert "runs on 2 devices" in found.output and "side by side" in found.output and "f.dfl:4" in found.output
    assert json.loads((folder / "run.json").read_text())["traceEvents"]


def test_the_profile_and_the_timeline_of_a_run_that_fails(folder: Path) -> None:
    (folder / "g.dfl").write_text(PROGRAM.replace("x[i] > 0.5", "x[i + 1] > 0.5"), encoding="utf-8")
    found = call("run", "g.dfl", "--engine", "dataflow", "--profile", "--timeline", "run.json")
    assert found.exit_code == 3 and "side by side" in found.output
    assert json.loads((folder / "run.json").read_text())["traceEvents"]


def test_the_timeline_has_all_runs_and_no_values(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[Firing] = []
    monkeypatch.setattr(timeline, "chrome_trace", lambda firings: (kept.extend(firings), chrome_trace(firings))[1])
    (folder / "g.dfl").write_text(PROGRAM.replace("print(", "let y = f(x, 2)\nlet z = f(x, 3)\nprint(y) # "), "utf-8")
    call("run", "g.dfl", "--engine", "dataflow", "--timeline", "run.json")
    names = [e["name"] for e in json.loads((folder / "run.json").read_text())["traceEvents"]]
    assert names.count("sin") >= 2 * 2 + 2 * 3
    assert all(token.value is None for firing in kept for token in (*firing.inputs, *firing.tokens))


def test_a_timeline_without_runs_leaves_the_file_alone(folder: Path) -> None:
    (folder / "run.json").write_text("kept", encoding="utf-8")
    (folder / "wrong.dfl").write_text("let x = y\n", encoding="utf-8")
    found = call("run", "wrong.dfl", "--engine", "dataflow", "--timeline", "run.json")
    assert found.exit_code == 1 and "run.json is not written" in found.output
    assert (folder / "run.json").read_text() == "kept"


def test_a_profile_alone_observes_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    observed: list[object] = []
    evaluate = Machine.evaluate
    monkeypatch.setattr(Machine, "evaluate", lambda m, *a, **k: (observed.append(m.observe), evaluate(m, *a, **k))[1])
    assert "side by side" in call("run", "f.dfl", "--engine", "dataflow", "--profile").output
    assert observed and set(observed) == {None}


def test_a_trace_has_each_send_before_its_recv(folder: Path) -> None:
    options = "--dataflow", "--devices", "2", "--place", "place", "--rows", "1000"
    lines = call("trace", "f.dfl:f", "x=[0.9, 0.8]", "k=2", *options).output.splitlines()
    under_way: list[str] = []
    for line in lines:
        what = line.split(" on ")[0].partition(" ")[2]
        if what.startswith("Send"):
            under_way.append(what.removeprefix("Send"))
        elif what.startswith("Recv"):
            under_way.remove(what.removeprefix("Recv"))
    assert len(lines) > 20 and not under_way


def test_stages_pictures_and_traces(folder: Path) -> None:
    text = call("emit", "f.dfl:f", "--stage", "dataflow", "--arg", "n=3", "--devices", "2", "--place", "place").output
    assert "Send(" in text and "frame 2  device 1  # line 4" in text
    assert "cluster_device_1" in call(
        "viz", "f.dfl:f", "--stage", "dataflow", "--arg", "n=3", "--format", "dot", "--devices", "2", "--place", "place"
    ).output  # fmt: skip
    traced = call("trace", "f.dfl:f", "x=[0.1, 0.9]", "k=1", "--dataflow", "--rows", "5")
    assert len(traced.output.splitlines()) == 7 and "more: --rows" in traced.output
    assert json.loads(call("trace", "f.dfl:f", "x=[0.9]", "k=1", "--dataflow", "--format", "json").output)[
        "traceEvents"
    ]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("run", "f.dfl", "--devices", "2"), "belong to --engine dataflow"),
        (("run", "f.dfl", "--engine", "dataflow", "--place", "auto"), "needs several devices"),
        (("run", "f.dfl", "--engine", "dataflow", "--devices", "3", "--processes", "2"), "--processes 3"),
        (("run", "f.dfl", "--engine", "dataflow", "--devices", "3", "--hosts", "a:1"), "names 1 worker for 2 devices"),
        (("run", "f.dfl", "--engine", "dataflow", "--devices", "2", "--hosts", "a"), "'a' is not HOST:PORT"),
        (("run", "f.dfl", "--engine", "dataflow", "--devices", "2", "--hosts", "a:1"), "set DIFFLANG_WORKER_TOKEN"),
        (("run", "f.dfl", "--engine", "dataflow", "--devices", "2", "--place", "none"), "DL0701"),
        (("run", "f.dfl", "--engine", "dataflow", "--devices", "3", "--hosts", "a:1, A:1"), "'A:1' is named twice"),
        (
            ("run", "f.dfl", "--engine", "dataflow", "--devices", "2", "--hosts", "a:1", "--processes", "2"),
            "or --hosts",
        ),
        (("run", "f.dfl", "--engine", "dataflow", "--device", "gpu"), "--device gpu works only on compiled programs"),
        (("worker", "--peer-timeout", "nan"), "nan is not a number of seconds"),
        (("run", "f.dfl", "--timeout", "nan"), "nan is not a number of seconds"),
        (("run", "f.dfl", "--engine", "dataflow", "--memory-budget", "1MiB"), "works only on compiled programs"),
        (("emit", "f.dfl:f", "--stage", "ir", "--devices", "2"), "only with --stage dataflow"),
        (("emit", "f.dfl:f", "--stage", "dataflow"), "DL1210"),
        (("viz", "f.dfl:f", "--stage", "dataflow"), "DL1210"),
        (("viz", "f.dfl:f", "--stage", "dataflow", "--format", "html"), "is drawn as svg"),
        (("trace", "f.dfl:f", "x=[0.5]", "k=1", "--devices", "2"), "only with --dataflow"),
        (("trace", "f.dfl:f", "x=[0.5]", "k=1", "--dataflow", "--wrt", "x"), "without tangents"),
        (("worker", "--listen", "here"), "'here' is not HOST:PORT"),
        (("worker", "--listen", "256.1.1.1:70"), "cannot listen there"),
    ],
    ids=lambda words: " ".join(words) if isinstance(words, tuple) else None,
)
def test_options_that_do_not_fit(
    words: tuple[str, ...], said: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DIFFLANG_WORKER_TOKEN", raising=False)
    found = call(*words)
    assert found.exit_code in (1, 2)
    assert said in " ".join(found.output.split())


def test_processes(folder: Path) -> None:
    wanted = call("run", "f.dfl", "--engine", "interpret").output
    options = "--engine", "dataflow", "--devices", "2", "--place", "place", "--profile"
    alone, found = call("run", "f.dfl", *options).output, call("run", "f.dfl", *options, "--processes", "2").output
    assert found.startswith(wanted) and lines_of_profile(found) == lines_of_profile(alone)


def lines_of_profile(output: str) -> list[str]:
    """The counts by line, which are the same wherever the equations are computed."""
    return sorted(line for line in output.splitlines() if line.startswith("f.dfl:"))
