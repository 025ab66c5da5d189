"""Programs in several processes: as in one, printed once, and with an end where a process has one."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from difflang.cli import main
from difflang.cli.supervisor import free_port

pytestmark = pytest.mark.slow
MESH = "--mesh", "data=4"
DOCS = Path(__file__).parents[3] / "docs" / "partition.md"
# Reads, prints in functions and outside, draws, derivatives, loops of the host over split values, writes, a failure.
PROGRAM = """axes data
record Net[d] { w: f64[d @data], b: f64 }
fn loss(w: f64[d], x: f64[n @data, d]) -> f64 {
  print("of {n}")
  mean((x @ w)^2)
}
fn scaled(x: f64[n @data, d], k: f64) -> f64[n @data, d] = k * x
fn root(x: f64[n @data]) -> f64[n @data] {
  var y = x
  while max(abs(y * y - x)) > 1e-9 { y = 0.5 * (y + x / y) }
  y
}
fn only(x: f64[n @data], most: f64) -> f64 {
  let s = sum(x)
  assert s <= most, "{s} is above {most}"
  s
}
let x: f64[n @data, d] = read_npy("x.npy")
let mapped: f64[n @data, d] = open_npy("x.npy")
let turned: f64[d, n @data] = read_npy("turned.npy")
let table: f64[n @data, d] = read_csv("x.csv")
let net: Net[k] = load("net.npz")
var w = x[0]
for i in 0..3 { w = w - 0.01 * grad(loss)(w, x) }
print("{w}", sum(mapped - x), sum(table - x), sum(turned), net.b + sum(net.w))
print(root(net.w), "{normal(4):.6f}")
for row in scaled(x, 2.0) { print(sum(row)) }
save("out.npz", scaled(x, 2.0))
let again: f64[n, d] = load("out.npz")
assert clock() < 1e6
print(sum(again), only(net.w, 100.0))
print(only(net.w, 9.0))
"""
STEPS = """axes data
fn step(x: f32[n @data]) -> f32[n @data] = 0.5 * x + 0.001 * sum(x)
var x: f32[8] = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]
for i in 0..10_000_000 {
  x = step(x)
  if i == 9 { print("under way") }
}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    x = np.arange(24.0).reshape(8, 3) / 10
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "turned.npy", x.T)
    np.savetxt(tmp_path / "x.csv", x, delimiter=",")
    np.savez(tmp_path / "net.npz", w=np.arange(1.0, 5.0), b=np.float64(0.5))
    (tmp_path / "f.dfl").write_text(PROGRAM)
    (tmp_path / "steps.dfl").write_text(STEPS)
    return tmp_path


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "difflang", "run", *words]


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*words), cwd=folder, capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL
    )


@pytest.mark.daily
def test_two_processes_are_one(folder: Path) -> None:
    alone, both = run(folder, "f.dfl"), run(folder, "f.dfl", "--processes", "2", *MESH)
    assert "10.0 is above 9.0" in alone.stderr and alone.returncode == 3, alone.stderr
    assert (both.stdout, both.stderr, both.returncode) == (alone.stdout, alone.stderr, 3)


@contextmanager
def under_way(folder: Path, *words: str) -> Generator[subprocess.Popen[str]]:
    """A run of the program that never ends, once it has printed."""
    run = subprocess.Popen(
        command("steps.dfl", *words), cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip
    try:
        assert run.stdout is not None and run.stdout.readline() == "under way\n"
        yield run
    finally:
        if run.poll() is None:
            run.kill()
        run.communicate()


def members(run: subprocess.Popen[str]) -> list[int]:
    """The processes that a run has started."""
    tasks = Path(f"/proc/{run.pid}/task").iterdir()
    return sorted(int(number) for task in tasks for number in (task / "children").read_text().split())


def gone(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


@pytest.mark.daily
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="it finds processes in /proc")
@pytest.mark.parametrize("killed", [1, pytest.param(0, marks=pytest.mark.nightly)])
def test_a_process_that_dies_ends_the_run(folder: Path, killed: int) -> None:
    with under_way(folder, "--processes", "2", *MESH) as run:
        started = members(run)
        os.kill(started[killed], signal.SIGKILL)
        _, said = run.communicate(timeout=10)
        assert run.returncode == 1
        message = rf"error\[DL1262\]: process {killed} of 2 \(process id {started[killed]}\) was ended by SIGKILL"
        assert re.match(message, said), said
        assert all(map(gone, started))


@pytest.mark.nightly
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="it finds processes in /proc")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_the_end_of_a_run_is_the_end_of_its_processes(folder: Path, how: signal.Signals) -> None:
    with under_way(folder, "--processes", "2", *MESH) as run:
        started = members(run)
        run.send_signal(how)
        _, said = run.communicate(timeout=10)
        assert (run.returncode, said) == ((130, "interrupted\n") if how == signal.SIGINT else (-signal.SIGKILL, ""))
        end = time.monotonic() + 5
        while not all(map(gone, started)):
            assert time.monotonic() < end
            time.sleep(0.1)


@pytest.mark.nightly
@pytest.mark.parametrize("example", ["fit_curve", "logistic", "springs"])
def test_an_example(tmp_path: Path, example: str) -> None:
    """That says nothing of devices: each has everything."""
    shutil.copytree(DOCS.parents[1] / "examples", tmp_path, dirs_exist_ok=True)
    alone, both = run(tmp_path, f"{example}.dfl"), run(tmp_path, f"{example}.dfl", "--processes", "2", *MESH)
    assert (both.stdout, both.stderr, both.returncode) == (alone.stdout, alone.stderr, 0)


@pytest.mark.nightly
def test_processes_that_are_started_one_by_one(folder: Path) -> None:
    """All say what went wrong, and process 0 what the program prints."""
    alone, address = run(folder, "f.dfl"), f"127.0.0.1:{free_port()}"
    started = [
        subprocess.Popen(
            command("f.dfl", "--coordinator", address, "--process", f"{i}/2", *MESH), cwd=folder, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
        )
        for i in range(2)
    ]  # fmt: skip
    said = [process.communicate(timeout=300) for process in started]
    assert said == [(alone.stdout, alone.stderr), ("", alone.stderr)]
    assert [process.returncode for process in started] == [3, 3]


@pytest.mark.nightly
def test_processes_with_different_programs(folder: Path) -> None:
    """They would wait for each other in different places."""
    (folder / "other.dfl").write_text((folder / "f.dfl").read_text().replace("2.0", "3.0"))
    address = f"127.0.0.1:{free_port()}"
    started = [
        subprocess.Popen(
            command(name, "--coordinator", address, "--process", f"{i}/2", *MESH), cwd=folder, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
        )
        for i, name in enumerate(("f.dfl", "other.dfl"))
    ]  # fmt: skip
    for process in started:
        said = process.communicate(timeout=300)
        assert said[0] == "" and "DL1262" in said[1] and "process 1 was started with another program" in said[1]
        assert process.returncode == 1


@pytest.mark.nightly
def test_others_that_do_not_come(folder: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    found = run(folder, "f.dfl", "--coordinator", address, "--process", "0/2", *MESH, "--start-timeout", "2")
    assert f"process 0 of 2 waited 2 seconds at {address}, but not all others came" in found.stderr
    assert found.returncode == 1


@pytest.mark.nightly
def test_one_that_fails_alone(folder: Path) -> None:
    """What it says is shown, though it is not process 0."""
    (folder / "other").mkdir()
    (folder / "other" / "f.dfl").write_text('axes data\nlet x: f64[n @data] = read_npy("x.npy")\nprint(sum(x))\n')
    (folder / "f.dfl").write_text(
        'axes data\nlet x: f64[n @data, d] = read_npy("x.npy")\nprint(sum(x))\nprint(sum(x))\n'
    )
    address = f"127.0.0.1:{free_port()}"
    here, there = [
        subprocess.Popen(
            command("f.dfl", "--coordinator", address, "--process", f"{i}/2", *MESH), cwd=where, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
        )
        for i, where in enumerate([folder, folder / "other"])
    ]  # fmt: skip
    assert "DL0701" in there.communicate(timeout=300)[1] and there.returncode == 1
    assert "process 0 of 2" in here.communicate(timeout=300)[1] and here.returncode == 1


@pytest.mark.nightly
def test_the_documented_program_from_standard_input() -> None:
    ((program, shown),) = re.findall(
        r"```dfl fit.dfl\n(.*?)```\n\n```text\n(.*?)```", DOCS.read_text(), flags=re.DOTALL
    )
    found = subprocess.run(
        command("-", "--processes", "2", *MESH), input=program, capture_output=True, text=True, timeout=300
    )
    assert (found.stdout, found.stderr, found.returncode) == (shown, "", 0)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--processes", "2"), "several processes run a mesh: --mesh data=4"),
        (("--processes", "2", "--mesh", "data=1024"), "at most 512 devices can be tried here"),
        (("--processes", "3", *MESH), "3 processes cannot share a mesh of 4 devices"),
        (("--processes", "2", "--coordinator", "a:1", *MESH), "either --processes N, all here, or --coordinator"),
        (("--processes", "2", "--engine", "interpret", *MESH), "not with --engine interpret"),
        (("--coordinator", "a:1", *MESH), "--coordinator needs the number of this process: --process 0/2"),
        (("--process", "0/2", *MESH), "--process needs the address of process 0"),
        (("--coordinator", "a", "--process", "0/2", *MESH), "'a' is not HOST:PORT"),
        (("--coordinator", "a:1", "--process", "2/2", *MESH), "'2/2' is not I/N"),
        (("--coordinator", "nowhere.invalid:1", "--process", "1/2", "--start-timeout", "0.1", *MESH),
         "process 1 of 2 cannot reach process 0 at nowhere.invalid:1 within 0.1 seconds"),
    ],
    ids=lambda words: " ".join(words) if isinstance(words, tuple) else None,
)  # fmt: skip
def test_options_that_do_not_fit(words: tuple[str, ...], said: str, folder: Path) -> None:
    found = CliRunner().invoke(main, ["run", str(folder / "f.dfl"), *words])
    assert found.exit_code in (1, 2)
    assert said in " ".join(found.output.split())


def test_an_address_that_is_taken(folder: Path) -> None:
    with socket.create_server(("", 0)) as taken:
        words = "--coordinator", f"127.0.0.1:{taken.getsockname()[1]}", "--process", "0/2", *MESH
        found = CliRunner().invoke(main, ["run", str(folder / "f.dfl"), *words])
    assert "DL1262" in found.output and "Address already in use" in found.output
