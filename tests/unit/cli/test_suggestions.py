"""Whatever is spelled wrongly by one letter, the right word is named."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from difflang.cli import main
from difflang.cli.options_and_reports import SuggestingChoice

CONTEXT = click.Context(main)
COMMANDS = main.list_commands(CONTEXT)
PROGRAM = "fn parabola(x: f32[rows]) -> f32 = sum(x^2)\nfn straight(x: f32) -> f32 = x\n"


def corrupted(word: str) -> Iterator[str]:
    """Every word with a letter less, one that does not belong, another one, or two that changed places."""
    for i in range(len(word) + 1):
        yield word[:i] + "q" + word[i:]
        if i < len(word):
            yield word[:i] + word[i + 1 :]
            yield word[:i] + "q" + word[i + 1 :]
        if i + 1 < len(word):
            yield word[:i] + word[i + 1] + word[i] + word[i + 2 :]


def said(*arguments: str) -> str:
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code in (1, 2), result.output
    return result.output


@pytest.mark.parametrize("name", COMMANDS)
def test_commands(name: str) -> None:
    for wrong in set(corrupted(name)) - set(COMMANDS):
        assert f"'{name}'" in said(wrong), wrong


def options() -> Iterator[object]:
    for name in COMMANDS:
        for param in main.get_command(CONTEXT, name).params:
            for spelled in param.opts:
                if spelled.startswith("--"):
                    yield pytest.param(name, spelled, id=f"{name} {spelled}")


@pytest.mark.parametrize(("name", "spelled"), list(options()))
def test_options(name: str, spelled: str) -> None:
    known = {o for p in main.get_command(CONTEXT, name).params for o in p.opts}
    for wrong in set(corrupted(spelled[2:])) - {"help", "hlep"}:
        if f"--{wrong}" not in known:
            assert spelled in said(name, f"--{wrong}"), wrong


def choices() -> Iterator[object]:
    for name in COMMANDS:
        for param in main.get_command(CONTEXT, name).params:
            if isinstance(param.type, click.Choice):
                assert isinstance(param.type, SuggestingChoice), f"{name} {param.name} proposes nothing"
                yield pytest.param(name, param, id=f"{name} {param.name}")


@pytest.mark.parametrize(("name", "param"), list(choices()))
def test_words_of_options(name: str, param: click.Parameter) -> None:
    assert isinstance(param.type, SuggestingChoice)
    for choice in param.type.choices:
        for wrong in set(corrupted(choice)) - set(param.type.choices):
            if len(wrong) > 3:
                before = [name] if isinstance(param, click.Argument) else [name, param.opts[0]]
                assert "Did you mean" in said(*before, wrong)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.dfl"
    path.write_text(PROGRAM)
    return path


@pytest.mark.parametrize("wrong", sorted(set(corrupted("parabola")))[::6])
def test_entries_and_sizes(wrong: str, model: Path) -> None:
    assert "did you mean `parabola`?" in said("emit", "--stage=ir", f"{model}:{wrong}")


@pytest.mark.parametrize("wrong", sorted(set(corrupted("rows"))))
def test_sizes(wrong: str, model: Path) -> None:
    assert "`rows`" in said("emit", "--stage=ir", f"{model}:parabola", "--arg", f"{wrong}=3")


@pytest.mark.parametrize("wrong", ["gppu", "gpuu", "cpux", "tpuu", "cuda1"])
def test_devices(wrong: str, tmp_path: Path) -> None:
    path = tmp_path / "run.dfl"
    path.write_text("print(sum(ones(3)))\n")
    assert "did you mean `" in said("run", f"--device={wrong}", str(path))


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["--epochs", "3"], "-- --epochs 3`"),
        (["--epochs=3"], "-- --epochs=3`"),
        (["--quiet", "--seed=2"], "-- --quiet`"),
    ],
)
def test_an_argument_of_the_program_stands_after_dashes(words: list[str], meant: str, model: Path) -> None:
    told = said("run", str(model), *words)
    assert f"run {model} {meant}" in told and "Did you mean" not in told


def test_a_command_that_finds_a_file_wrong_names_the_repair(tmp_path: Path) -> None:
    """As `check` does: what was tried, and how it is made."""
    path = tmp_path / "wrong.dfl"
    path.write_text("let total = 1.0\nprint(totl)\n")
    for command in (["run", str(path)], ["emit", "--stage=typed", str(path)]):
        told = said(*command)
        assert "= fix: write `total`" in told and "`difflang check --fix` can fix 1" in told
