"""`difflang new`, `doctor` and `completions`."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from difflang.cli import main
from difflang.cli.commands import about_difflang
from difflang.host.optional_packages import EXTRAS


def call(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path


def test_a_project_passes_everything_as_it_is(folder: Path) -> None:
    made = call("new", "first-steps")
    assert (made.exit_code, made.stdout) == (0, "first-steps/first_steps.dfl\n")
    assert "difflang run first-steps/first_steps.dfl" in made.stderr
    file = "first-steps/first_steps.dfl"
    assert call("fmt", "--check", "first-steps").exit_code == 0
    assert call("check", file).output == ""
    tested = call("test", "--engine=interpret", "first-steps")
    assert tested.exit_code == 0 and "2 passed" in tested.stdout
    ran = call("run", "--engine=interpret", file)
    assert ran.stdout == "slope 1.94, start 1.09, loss 0.0205\n"
    readme = (folder / "first-steps" / "README.md").read_text()
    assert readme.startswith("# first_steps\n")
    assert len({line.index("#") for line in readme.splitlines()[2:]}) == 1  # comments stand below each other


def test_the_folder_one_is_in_is_none_to_be_made() -> None:
    for name in (".", ".."):
        said = call("new", name)
        assert said.exit_code == 2 and "already exists" in said.stderr and "difflang new" in said.stderr


def test_nothing_is_overwritten(folder: Path) -> None:
    (folder / "mine").mkdir()
    assert "already exists" in call("new", "mine").stderr
    assert call("new", "3 things").exit_code == 2
    assert list((folder / "mine").iterdir()) == []
    (folder / "file").write_text("")
    assert call("new", "file/inside").exit_code == 2


def test_the_doctor_finds_what_is_here() -> None:
    result = call("doctor")
    assert result.exit_code == 0, result.output
    for word in ("difflang", "jax ", "device", "cpu:0", "cache", "grammar", *EXTRAS):
        assert word in result.stdout


@pytest.mark.parametrize("package", EXTRAS)
def test_the_doctor_says_how_an_extra_is_had(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    patched = "difflang.host.optional_packages.find_spec"
    monkeypatch.setattr(patched, lambda name: None if name == package else find_spec(name))
    result = call("doctor")
    assert f"missing: `pip install 'difflang[{EXTRAS[package]}]'`" in result.stdout
    assert result.exit_code == 0


def test_what_the_doctor_calls_installed_can_be_imported() -> None:
    for line in call("doctor").stdout.splitlines():
        if line.endswith("optional, installed"):
            import_module(line.split()[0])


def test_the_doctor_finds_what_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(about_difflang, "PACKAGES", ("jax", "no-such-package"))
    result = call("doctor")
    assert result.exit_code == 1
    assert "! no-such-package" in result.stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completions(shell: str) -> None:
    result = call("completions", shell)
    assert result.exit_code == 0
    assert "_DIFFLANG_COMPLETE" in result.stdout and "difflang" in result.stdout


def test_what_a_shell_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    environment = {"_DIFFLANG_COMPLETE": "bash_complete", "COMP_WORDS": "difflang che", "COMP_CWORD": "1"}
    result = CliRunner().invoke(main, [], prog_name="difflang", env=environment)
    assert result.stdout.split() == ["plain,check", "plain,check-grad"]


def test_the_help_names_where_to_begin() -> None:
    shown = call("--help").stdout
    assert "difflang repl" in shown and "difflang new" in shown
    assert "difflang repl" in call().output


@pytest.mark.parametrize("command", ["check", "fmt"])
def test_a_command_without_files_says_how_to_name_all(command: str) -> None:
    result = call(command)
    assert result.exit_code == 2 and f"{command} .`" in result.stderr


def test_a_folder_without_programs(tmp_path: Path) -> None:
    result = call("check", str(tmp_path))
    assert result.exit_code == 1 and "difflang new" in result.stderr
