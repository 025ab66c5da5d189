"""`difflang test` and `difflang bench`: what is found, shown, written, and the exit codes."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from multiprocessing.process import BaseProcess
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner, Result

from difflang.cli import main
from difflang.cli.commands.tests_and_benchmarks import format_seconds
from difflang.execution.engine import Engine
from difflang.tools.testing.junit import write_junit
from difflang.tools.testing.suite import Outcome, SuiteCase, SuiteOptions
from difflang.tools.testing.worker_pool import WorkerTask, run_in_parallel

GOOD = """fn twice(x: f32) -> f32 = 2 * x
test "doubles" { assert twice(2.0) == 4.0 }
test "zero" { assert twice(0.0) == 0.0 }
"""
BAD = """## > f(1.0)
## 3.0
fn f(x: f32) -> f32 = 2 * x
test "wrong" {
  print("so far")
  assert f(1.0) == 3.0
}
"""
BROKEN = 'test "never" { assert y }\n'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    texts = {"good": GOOD, "sub/bad": BAD, "sub/broken": BROKEN, ".hidden/bad": BAD, "none": "let x = 1\n"}
    for name, text in texts.items():
        path = tmp_path / f"{name}.dfl"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return tmp_path


def call(*args: object) -> Result:
    return CliRunner().invoke(main, ["test", "--engine=interpret", *map(str, args)])


def lines(result: Result) -> list[str]:
    """The lines of outcomes, without their times."""
    found = result.stdout.split("\n\n")[0].splitlines()
    return [line.rsplit("  (", 1)[0] for line in found if line.startswith(("ok ", "FAILED ", "skipped "))]


def test_a_line_for_each_and_the_number(folder: Path) -> None:
    result = call("good.dfl")
    assert (result.exit_code, result.stderr) == (0, "")
    assert lines(result)[:2] == ['ok       good.dfl:2  test "doubles"', 'ok       good.dfl:3  test "zero"']
    assert result.stdout.splitlines()[-1].startswith("2 passed in ")


def test_folders_and_files_that_are_broken(folder: Path) -> None:
    """One broken file does not stop the others; hidden folders are left out; a file that is named twice runs once."""
    result = call(".", "good.dfl")
    assert result.exit_code == 1
    assert lines(result) == [
        'ok       good.dfl:2  test "doubles"', 'ok       good.dfl:3  test "zero"',
        "FAILED   sub/bad.dfl:1  example f", 'FAILED   sub/bad.dfl:4  test "wrong"',
        "FAILED   sub/broken.dfl:1  check sub/broken.dfl",
    ]  # fmt: skip
    assert "error[DL0907]" in result.stdout and "error[DL0201]" in result.stdout
    assert "  --> sub/bad.dfl:6:17" in result.stdout and "it printed:\nso far" in result.stdout
    assert result.stdout.splitlines()[-1].startswith("3 failed, 2 passed in ")
    assert call("missing.dfl", "good.dfl").stdout.count("error[DL0701]") == 1


@pytest.mark.parametrize(
    ("args", "code", "count"),
    [((), 1, 5), (("-k", "WRONG"), 1, 2), (("-k", "doub", "-k", "zero"), 1, 3), (("good.dfl", "-k", "test"), 0, 2)],
)
def test_by_name(folder: Path, args: tuple[str, ...], code: int, count: int) -> None:
    """Whatever a broken file holds, it is not left out."""
    result = call(*args)
    assert (result.exit_code, len(lines(result))) == (code, count)


def test_a_list_runs_nothing(folder: Path) -> None:
    result = call("--list", "good.dfl", "sub/bad.dfl")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        'good.dfl:2  test "doubles"', 'good.dfl:3  test "zero"', "sub/bad.dfl:1  example f",
        'sub/bad.dfl:4  test "wrong"',
    ]  # fmt: skip


def test_the_first_failure_may_end_it(folder: Path) -> None:
    result = call("--fail-fast", "sub/bad.dfl", "good.dfl")
    assert result.exit_code == 1
    assert result.stdout.splitlines()[-1].startswith("1 failed, 3 not run in ")


def test_quiet_shows_what_failed(folder: Path) -> None:
    assert lines(call("-q", "good.dfl", "sub/bad.dfl"))[0] == "FAILED   sub/bad.dfl:1  example f"
    assert len(call("-q", "good.dfl").stdout.splitlines()) == 1


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("none.dfl",), "there is nothing to run in none.dfl"),
        (("good.dfl", "-k", "doubels"), "Did you mean 'doubles'?"),
    ],
)
def test_nothing_to_run_is_5(folder: Path, args: tuple[str, ...], said: str) -> None:
    result = call(*args)
    assert (result.exit_code, result.stdout) == (5, "")
    assert said in result.stderr


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("-j", "0"), "-j"),
        (("--sed", "1"), "--seed"),
        (("--junit", "missing/o.xml"), "cannot write to the folder 'missing'"),
    ],
)
def test_wrong_usage_is_2(folder: Path, args: tuple[str, ...], said: str) -> None:
    result = call("good.dfl", *args)
    assert result.exit_code == 2 and said in result.stderr


def test_a_name_is_on_one_line_whatever_it_holds(folder: Path) -> None:
    (folder / "odd.dfl").write_text('test "a\\nb \\"c\\" é" { assert 1 == 1 }\n')
    assert lines(call("odd.dfl"))[0] == 'ok       odd.dfl:1  test "a\\nb \\"c\\" é"'


def test_the_seed_decides_what_is_drawn(folder: Path) -> None:
    (folder / "draw.dfl").write_text('test "d" { assert normal(1)[0] > 9.0 }\n')
    first, again, other = (call("draw.dfl", "--seed", s).stdout.split("this is ")[1][:9] for s in (1, 1, 2))
    assert first == again != other


def test_warnings_go_to_stderr(folder: Path) -> None:
    (folder / "warned.dfl").write_text('test "flat" { assert grad(|x| floor(x))(1.5) == 0.0 }\n')
    result = call("warned.dfl")
    assert (result.exit_code, result.stderr.count("warning[DL0409]")) == (0, 1)


# ---- JUnit


def test_outcomes_as_data(folder: Path) -> None:
    result = call("--json", ".")
    data = json.loads(result.stdout)
    assert result.exit_code == 1 and (data["format"], data["not_run"]) == (1, 0)
    found = [(t["file"], t["line"], t["kind"], t["name"], t["result"], t["codes"]) for t in data["tests"]]
    assert found == [
        ("good.dfl", 2, "test", "doubles", "passed", []),
        ("good.dfl", 3, "test", "zero", "passed", []),
        ("sub/bad.dfl", 1, "example", "f", "failed", ["DL0907"]),
        ("sub/bad.dfl", 4, "test", "wrong", "failed", ["DL0901"]),
        ("sub/broken.dfl", 1, "check", "sub/broken.dfl", "failed", ["DL0201"]),
    ]
    wrong = data["tests"][3]
    assert wrong["output"] == "so far" and "this assertion does not hold" in wrong["report"] and not wrong["crashed"]
    assert json.loads(call("--json", "-x", "sub/bad.dfl").stdout)["not_run"] == 1


def test_junit(folder: Path) -> None:
    call("--junit", "out.xml", ".")
    root = ElementTree.parse("out.xml").getroot()
    assert [s.get("name") for s in root] == ["good.dfl", "sub/bad.dfl", "sub/broken.dfl"]
    assert {k: root.get(k) for k in ("tests", "failures", "errors", "skipped")} == {
        "tests": "5", "failures": "2", "errors": "1", "skipped": "0",
    }  # fmt: skip
    wrong = root[1][1]
    assert (wrong.get("name"), wrong.get("classname"), wrong.get("line")) == ('test "wrong"', "sub/bad", "4")
    (failure, output) = wrong
    assert failure.get("message") == "error[DL0901]: this assertion does not hold" and failure.get("type") == "DL0901"
    assert "sub/bad.dfl:6:17" in (failure.text or "") and output.text == "so far"
    assert root[2][0][0].tag == "error"
    assert sorted(os.listdir(folder)) == [".hidden", "good.dfl", "none.dfl", "out.xml", "sub"]


def test_junit_holds_any_text_and_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    case = SuiteCase("a.dfl", 1, "test", "\x00\x1b[1m & <b> \ud800 é")
    path = tmp_path / "out.xml"
    write_junit(path, [Outcome(case, "failed", 0.5, "\x07 <&>", "\x0c", ("DL0901",))])
    (found,) = ElementTree.parse(path).getroot()[0]
    assert "\ufffd" in (found[0].text or "") and "<&>" in (found[0].text or "")
    before = path.read_bytes()
    with pytest.raises(TypeError):
        write_junit(path, [Outcome(case, "failed", "soon", "")])  # type: ignore[arg-type]
    assert path.read_bytes() == before and [p.name for p in tmp_path.iterdir()] == ["out.xml"]


# ---- Several processes


@pytest.mark.slow
def test_several_processes_find_the_same(folder: Path) -> None:
    one, two = call("--junit", "one.xml"), call("-j", "2", "--junit", "two.xml")
    assert (one.exit_code, two.exit_code) == (1, 1)
    assert sorted(lines(one)) == sorted(lines(two))

    def plain(file: str) -> list[tuple[str | None, list[str]]]:
        found = ElementTree.parse(file).getroot().iter("testcase")
        return [(c.get("name"), [part.text or "" for part in c]) for c in found]

    assert plain("one.xml") == plain("two.xml")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="file names are text there")
def test_a_file_whose_name_is_no_text_is_tested_by_another_process(folder: Path) -> None:
    name = os.fsdecode(b"odd\xff.dfl")
    (folder / name).write_text(GOOD)
    task = WorkerTask(SuiteCase(name, 2, "test", "doubles"), 0)
    assert [o.result for o in run_in_parallel([task], SuiteOptions(Engine("interpret")), 1)] == ["passed"]


ENDLESS = 'test "endless" {\n  var x = 0\n  while x >= 0 { x = 1 - x }\n}\n'


@pytest.mark.slow
def test_a_process_that_dies_ends_one_case(folder: Path) -> None:
    (folder / "endless.dfl").write_text(ENDLESS + GOOD)
    names = {"endless": 0, "doubles": 1, "zero": 2}
    tasks = [WorkerTask(SuiteCase("endless.dfl", n, "test", name), n) for name, n in names.items()]
    others = set(multiprocessing.active_children())  # of tests before this one
    running = run_in_parallel(tasks, SuiteOptions(Engine("interpret")), 1)
    threading.Thread(target=kill_first_child, args=(others,)).start()
    found = {o.case.name: o for o in running}
    assert found["endless"].crashed and "by signal 9" in found["endless"].report
    assert [found[name].result for name in ("doubles", "zero")] == ["passed", "passed"]


def kill_first_child(others: set[BaseProcess]) -> None:
    while not (found := set(multiprocessing.active_children()) - others):
        time.sleep(0.05)
    found.pop().kill()


@pytest.mark.slow
def test_control_c_ends_everything(folder: Path) -> None:
    (folder / "endless.dfl").write_text(
        "".join(f'test "{n}" {{\n  var x = 0\n  while x >= 0 {{ x = 1 - x }}\n}}\n' for n in range(4))
    )
    code = (
        "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\nfrom difflang.cli import main; main()"
    )
    command = [sys.executable, "-c", code, "test", "-j", "2", "good.dfl", "endless.dfl"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None and running.stderr is not None
        try:
            assert running.stdout.readline().startswith("ok")
            running.send_signal(signal.SIGINT)
            assert running.wait(20) == 130
            assert "Traceback" not in running.stderr.read()
        finally:
            running.kill()


@pytest.mark.slow
@pytest.mark.nightly
def test_nobody_who_has_died_is_worked_for(folder: Path) -> None:
    """A process that runs cases ends with the one that asks, though that had no time to tell it."""
    (folder / "endless.dfl").write_text(ENDLESS)
    command = [sys.executable, "-m", "difflang", "test", "-j", "2", "--engine=interpret", "good.dfl", "endless.dfl"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert running.stdout.readline().startswith("ok")
        time.sleep(3)
        running.kill()
        # Standard error ends when every process that could write to it has.
        assert running.communicate(timeout=10) is not None


@pytest.mark.slow
def test_help_and_lists_start_without_jax(folder: Path) -> None:
    for args in (["test", "--help"], ["test", "--list", "good.dfl"], ["bench", "--help"]):
        code = (
            "import sys\nfrom difflang.cli import main\n"
            f"try:\n    main({args!r})\nexcept SystemExit as end:\n    assert not end.code, end.code\n"
            "print('jax' in sys.modules, file=sys.stderr)"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert done.stderr.splitlines()[-1] == "False"


# ---- Benchmarks

TIMED = 'let x = ones(9)\nbench "sum" { sum(x) }\nbench "product" { prod(x) }\n'


def timed(*args: object) -> Result:
    return CliRunner().invoke(main, ["bench", "--engine=interpret", "--time=0.01", *map(str, args)])


def test_a_table(folder: Path) -> None:
    (folder / "timed.dfl").write_text(TIMED)
    result = timed("timed.dfl")
    assert (result.exit_code, result.stderr) == (0, "")
    head, first, second = result.stdout.splitlines()
    assert head.split() == ["first", "median", "spread", "fastest", "runs"]
    assert first.startswith('"sum"      ') and second.startswith('"product"  ')
    assert len(timed("timed.dfl", "-k", "prod").stdout.splitlines()) == 2
    assert timed("--list", "timed.dfl").stdout.splitlines() == [
        'timed.dfl:2  bench "sum"',
        'timed.dfl:3  bench "product"',
    ]


def test_times_as_data_and_compared(folder: Path) -> None:
    (folder / "timed.dfl").write_text(TIMED)
    data = json.loads(timed("--json", "timed.dfl").stdout)
    assert [m["name"] for m in data["benchmarks"]] == ["sum", "product"]
    data["benchmarks"][0] |= dict.fromkeys(("median", "low", "high"), 100.0)
    del data["benchmarks"][1]
    (folder / "old.json").write_text(json.dumps(data))
    _, first, second = timed("timed.dfl", "--compare", "old.json").stdout.splitlines()
    assert "0.00 times as long, before" in first and second.endswith("new")
    (folder / "old.json").write_text("[1]")
    assert timed("timed.dfl", "--compare", "old.json").exit_code == 2


def test_benchmarks_that_fail_or_are_not_there(folder: Path) -> None:
    (folder / "fails.dfl").write_text('bench "bad" { assert 1 > 2 }\nbench "good" { print(1) }\n')
    result = timed("fails.dfl")
    assert result.exit_code == 1 and '"good"' in result.stdout
    assert result.stderr.startswith('fails.dfl:1  bench "bad" failed\nerror[DL0901]')
    assert timed("sub/broken.dfl").exit_code == 1
    assert timed("none.dfl").exit_code == 5
    assert timed("fails.dfl", "-k", "goof").exit_code == 5


@pytest.mark.parametrize(
    ("took", "text"),
    [
        (12.345, "12.3 s"),
        (0.9999, "1 s"),
        (0.25, "250 ms"),
        (1.5e-3, "1.5 ms"),
        (2e-6, "2 µs"),
        (3e-9, "3 ns"),
        (0.0, "0 ns"),
        (1234.5, "1234 s"),
        (0.00099999, "1 ms"),
    ],
)
def test_times_have_three_digits(took: float, text: str) -> None:
    assert format_seconds(took) == text
