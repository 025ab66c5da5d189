"""The pytest plugin: which files it collects, what it says of failures, and that it costs nothing until then."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest

from difflang import plugin

TESTS = """## > f(2.0)
## 4.0
fn f(x: f32) -> f32 = 2 * x
test "right" { assert f(1.0) == 2.0 }
test "wrong" {
  print("so far")
  assert f(1.0) == 3.0
}
fn g(h: (f64) -> f64, x: f64) -> f64 = stop(h(x))
rule g(h, x) by implicit |y| y - h(x)
"""


def pytest_on(folder: Path, *args: str, ini: str = "") -> subprocess.CompletedProcess[str]:
    """A run of pytest there, with the plugin and nothing else."""
    (folder / "pytest.ini").write_text(f"[pytest]\ndifflang_engine = interpret\n{ini}\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "difflang.plugin", "-p", "no:cacheprovider", *args]
    return subprocess.run(command, cwd=folder, env=alone(), capture_output=True, text=True, timeout=120)


def alone() -> dict[str, str]:
    """An environment in which pytest loads what it is told to load, with no options of the run around it."""
    around = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
    return around | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name in ("test_model", "model", "deep/model_test"):
        path = tmp_path / f"{name}.dfl"
        path.parent.mkdir(exist_ok=True)
        path.write_text(TESTS)
    (tmp_path / "test_nothing.dfl").write_text("this is ( no program\n")
    return tmp_path


@pytest.mark.slow
def test_failures_are_reports_of_ours(project: Path) -> None:
    done = pytest_on(project)
    assert done.returncode == 1
    assert "2 failed, 4 passed, 2 skipped" in done.stdout, done.stdout
    assert "--> test_model.dfl:7:17" in done.stdout and "--> deep/model_test.dfl:7:17" in done.stdout
    assert "this is 2.0" in done.stdout and "so far" in done.stdout
    assert "Traceback" not in done.stdout and ".py" not in done.stdout.replace("plugin.py", "")
    assert '\nFAILED test_model.dfl::test "wrong"' in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("args", "ini", "collected"),
    [
        ((), "", {"test_model.dfl", "deep/model_test.dfl"}),
        (("model.dfl",), "", {"model.dfl"}),
        ((), "difflang_files = deep/*.dfl", {"deep/model_test.dfl"}),
        ((), "difflang_files = *.dfl", {"model.dfl", "test_model.dfl", "deep/model_test.dfl"}),
        ((), "difflang_files =", set()),
    ],
)
def test_which_files_are_collected(project: Path, args: tuple[str, ...], ini: str, collected: set[str]) -> None:
    done = pytest_on(project, "--collect-only", *args, ini=ini)
    assert {line.split("::")[0] for line in done.stdout.splitlines() if "::" in line} == collected
    if collected:
        assert f"{sorted(collected)[0]}::example f" in done.stdout


@pytest.mark.slow
def test_one_test_by_its_id(project: Path) -> None:
    done = pytest_on(project, 'model.dfl::test "right"')
    assert "1 passed" in done.stdout and done.returncode == 0


@pytest.mark.slow
def test_imports_lead_into_the_folders_that_are_named(project: Path) -> None:
    (project / "lib").mkdir()
    (project / "lib" / "shared.dfl").write_text("pub fn double(x: i32) -> i32 = 2 * x\n")
    (project / "test_shared.dfl").write_text('import shared (double)\ntest "t" { assert double(2) == 4 }\n')
    assert pytest_on(project, "test_shared.dfl").returncode == 2
    assert "1 passed" in pytest_on(project, "test_shared.dfl", ini="difflang_path = lib").stdout


@pytest.mark.slow
def test_a_file_that_does_not_check(project: Path) -> None:
    (project / "test_broken.dfl").write_text('test "t" { assert y }\n')
    done = pytest_on(project, "test_broken.dfl")
    assert done.returncode == 2
    assert "error[DL0201]" in done.stdout and "--> test_broken.dfl:1:19" in done.stdout
    assert "Traceback" not in done.stdout


@pytest.mark.slow
def test_loading_it_imports_only_the_flags_of_xla_and_collecting_not_jax(project: Path) -> None:
    code = (
        "import sys, pytest\nimport difflang.plugin\n"
        "early = sorted(m for m in sys.modules if m.startswith(('difflang.', 'numpy', 'jax')))\n"
        "pytest.main(['--collect-only', '-q', '-p', 'difflang.plugin', 'model.dfl'])\n"
        "print(early, 'difflang.driver' in sys.modules, 'jax' in sys.modules)"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=project, env=alone(), capture_output=True, text=True, timeout=120)
    assert (
        done.stdout.splitlines()[-1] == "['difflang.base', 'difflang.base.xla_flags', 'difflang.plugin'] True False"
    ), done.stdout


def test_installing_difflang_installs_it() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"difflang": plugin.__name__}


def test_the_programs_of_these_tests_are_collected_by_nobody() -> None:
    root = Path(__file__).parents[1]
    found = [path for path in root.rglob("*.dfl") if any(fnmatch(path.name, glob) for glob in plugin.DEFAULT_PATTERNS)]
    assert not found
