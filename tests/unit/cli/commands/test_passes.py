"""`difflang passes`: every pipeline, step by step."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from difflang.cli import main
from difflang.graph.graph_passes import PASSES
from difflang.lower.lowering_pipeline import COMPILE


@pytest.fixture(autouse=True)
def only_those_of_the_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Documents and other tests declare passes in this process too."""
    for name in [name for name, found in PASSES.items() if not found.of_compiler]:
        monkeypatch.delitem(PASSES, name)


def test_the_pipelines_are_listed_with_their_reasons() -> None:
    result = CliRunner().invoke(main, ["passes"])
    assert result.exit_code == 0 and max(map(len, result.stdout.splitlines())) <= 120
    first = result.stdout.split("\n\n")[0]
    assert first.startswith("compile: ") and [p.split(":")[0] for p in result.stdout.split("\n\n")] == [
        "compile", "interpret", "prepare keeping loops", "optimize", "optimize for reading",
    ]  # fmt: skip
    names = [line.split()[0] for line in first.splitlines()[1:] if line[2] != " "]
    assert names == [step.of.name for step in COMPILE.steps]
    (contract,) = [part for part in first.split("\n  ") if part.startswith("contract ")]
    assert "needs: differentiated; here: not before" in contract


def test_as_json() -> None:
    pipelines = json.loads(CliRunner().invoke(main, ["passes", "--json"]).stdout)
    steps = pipelines[0]["steps"]
    assert [step["pass"] for step in steps] == [step.of.name for step in COMPILE.steps]
    (made,) = [step for step in steps if step["gives"]]
    assert made["pass"] == "differentiate" and made["gives"] == ["differentiated"]
    assert all(step["help"] for pipeline in pipelines for step in pipeline["steps"])
