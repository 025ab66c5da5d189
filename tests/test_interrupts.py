"""Ctrl-C and limits of time: a process ends at once, with its code, without a traceback and without half a file.

`DIFFLANG_INTERRUPTS` says at how many moments, `DIFFLANG_SEED` at which.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from difflang.cli import main

COUNT = int(os.environ.get("DIFFLANG_INTERRUPTS", "6"))
RUN_FROM_A_TERMINAL = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from difflang.__main__ import main
main()
"""
FIT = """
fn loss(w: f64[3], x: f64[100]) -> f64 {
  var s = 0.0
  for i in 0..100 { s += (w[0] * x[i]^2 + w[1] * x[i] + w[2] - sin(x[i]))^2 }
  s
}
let x = [for i in 0..100 => f64(i) / 50.0 - 1.0]
let much = [for i in 0..1000000 => f64(i)]
var w: f64[3] = zeros(3)
for step in 0..200 { w -= 0.003 * grad[w](loss)(w, x) }
save("much.npy", much)
print(w)
save("much.npy", much)
"""


def program(folder: Path, text: str) -> Path:
    path = folder / "a.dfl"
    path.write_text(text, encoding="utf-8")
    return path


@contextmanager
def begun(path: Path) -> Iterator[subprocess.Popen[str]]:
    """A program that runs, with the signals of a terminal whatever the tests were started under; ended in any case."""
    command = [sys.executable, "-c", RUN_FROM_A_TERMINAL, "run", str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        try:
            yield running
        finally:
            running.kill()


@pytest.mark.slow
def test_control_c_ends_a_loop_of_the_host(tmp_path: Path) -> None:
    path = program(tmp_path, 'print("begun")\nvar x = 0\nwhile x >= 0 { x = 1 - x }')
    with begun(path) as running:
        assert running.stdout is not None and running.stderr is not None
        assert running.stdout.readline() == "begun\n"
        running.send_signal(signal.SIGINT)
        assert running.wait(20) == 130
        assert "Traceback" not in running.stderr.read()


@pytest.mark.daily
@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="a console of Windows ends a process by Ctrl-Break")
def test_control_c_ends_a_loop_that_is_compiled(tmp_path: Path) -> None:
    """XLA does not hear it: the process is ended for it."""
    loop = "fn f(x: f64) -> f64 {\n  var s = x\n  while s > 0.0 { s += 1.0 }\n  s\n}"
    path = program(tmp_path, f'{loop}\nprint(f(0.0))\nprint("begun")\nprint(f(1.0))')
    with begun(path) as running:
        assert running.stdout is not None and running.stderr is not None
        assert [running.stdout.readline(), running.stdout.readline()] == ["0.0\n", "begun\n"]
        time.sleep(0.2)  # it is compiled: now it runs
        running.send_signal(signal.SIGINT)
        assert running.wait(5) == 130
        assert running.stderr.read() == "interrupted\n"


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="Windows has no such timer")
@pytest.mark.parametrize("engine", ["xla", "interpret"])
@pytest.mark.nightly_except("interpret")
def test_a_limit_of_time(tmp_path: Path, engine: str) -> None:
    path = program(tmp_path, "fn f(x: f64) -> f64 {\n  var s = x\n  while s > 0.0 { s += 1.0 }\n  s\n}\nprint(f(1.0))")
    command = [sys.executable, "-m", "difflang", "run", "--engine", engine, "--timeout", "2", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (124, "stopped after 2 s, the limit set by --timeout\n")


@pytest.mark.slow
def test_nobody_reads_what_is_printed(tmp_path: Path) -> None:
    path = program(tmp_path, "for i in 0..100000 { print(i) }")
    with begun(path) as running:
        assert running.stdout is not None and running.stderr is not None
        assert running.stdout.readline() == "0\n"
        running.stdout.close()
        running.wait(60)
        assert running.stderr.read() == ""


@pytest.mark.skipif(os.name == "nt", reason="a console of Windows ends a process by Ctrl-Break")
def test_control_c_while_a_module_is_imported(tmp_path: Path) -> None:
    """jaxlib's own initialization would make an abort of the exception."""
    (tmp_path / "heavy.py").write_text(
        "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\nprint('whole')\ntime.sleep(20)\n"
    )
    code = "from difflang.base.process_termination import exit_on_sigint\nexit_on_sigint()\nimport heavy"
    code = f"import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n{code}"
    there = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=15, env=there)
    assert (done.returncode, done.stderr) == (130, "interrupted\n")


def ended(path: Path, after: float) -> tuple[int, str, float]:
    """The exit code of a program that is interrupted, what it says, and how many seconds later it is gone."""
    with begun(path) as running:
        time.sleep(after)
        running.send_signal(signal.SIGINT)
        start = time.monotonic()
        _, said = running.communicate(timeout=60)
        return running.returncode, said, time.monotonic() - start


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="a console of Windows ends a process by Ctrl-Break")
@pytest.mark.nightly
def test_control_c_at_any_moment(tmp_path: Path) -> None:
    """Read, checked, compiled, run or written: it ends, and what it writes is there as a whole or not at all."""
    path, written = program(tmp_path, FIT), tmp_path / "much.npy"
    start = time.monotonic()
    with begun(path) as running:
        assert running.wait(120) == 0
    whole, rng = time.monotonic() - start, random.Random(os.environ.get("DIFFLANG_SEED", "0"))
    for _ in range(COUNT):
        written.unlink(missing_ok=True)
        after = rng.uniform(0.1, whole)
        code, said, seconds = ended(path, after)
        assert (code, said) in ((130, "interrupted\n"), (0, "")), (after, code, said)
        # On a busy machine everything takes longer.
        assert seconds < max(3.0, whole / 2), after
        assert {p.name for p in tmp_path.iterdir()} <= {"a.dfl", "much.npy"}, after
        assert not written.exists() or np.load(written).shape == (1_000_000,), after


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="Windows has no such timer")
@pytest.mark.nightly
def test_a_limit_of_time_where_nobody_can_be_told(tmp_path: Path) -> None:
    """A closed stderr keeps nobody from ending."""
    path = tmp_path / "endless.dfl"
    path.write_text("fn f(x: f64) -> f64 {\n  var s = x\n  while s > 0.0 { s += 1.0 }\n  s\n}\nprint(f(1.0))")
    command = [sys.executable, "-m", "difflang", "run", "--timeout", "2", str(path)]
    closed = subprocess.run(["sh", "-c", 'exec "$@" 2>&-', "sh", *command], timeout=60)
    assert closed.returncode == 124


@pytest.mark.parametrize("given", ["nan", "inf", "1e300", "0"])
def test_a_limit_that_is_no_number_of_seconds(tmp_path: Path, given: str) -> None:
    (tmp_path / "one.dfl").write_text("print(1)")
    done = CliRunner().invoke(main, ["run", "--timeout", given, str(tmp_path / "one.dfl")])
    assert done.exit_code == 2 and "--timeout" in done.stderr
