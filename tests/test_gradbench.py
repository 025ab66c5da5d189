"""GradBench's evals: the programs agree with their twins, and the tool speaks the protocol."""

from __future__ import annotations

import sys
from pathlib import Path

import jax
import pytest

sys.path.append(str(Path(__file__).resolve().parents[1] / "benchmarks"))

from gradbench import tool
from gradbench.inputs import INPUTS, draw_input
from gradbench.programs import DRAFTS, PHRASINGS, arguments, eval_of, find_function
from gradbench.run import has_twin, require_agreement
from gradbench.twins import TWINS

BY_DAY = {("kmeans", "dir"), ("ht", "objective"), ("det", "gradient"), ("lstm", "objective"), ("particle", "ff")}
# At one size each: compiling takes what a test takes.
FUNCTIONS = [
    pytest.param(
        name, function, marks=[] if (name, function) in BY_DAY else [pytest.mark.nightly], id=f"{name}-{function}"
    )
    for name in (*DRAFTS, *PHRASINGS)
    for of, function in TWINS
    if of == eval_of(name) and has_twin(of, function)
]


@pytest.mark.parametrize(("name", "function"), FUNCTIONS)
def test_a_program_agrees_with_its_twin(name: str, function: str) -> None:
    key = eval_of(name), function
    value = draw_input(key[0], next(iter(INPUTS[key[0]])), seed=1)
    known, args = TWINS[key].prepare(value)
    with jax.enable_x64(True):
        other = jax.jit(TWINS[key].make(known))(*args)
        mine = find_function(name, function)(*arguments(name, value))
    require_agreement(*key, mine, other)


def test_the_tool_answers_messages_of_the_protocol() -> None:
    assert tool.respond({"kind": "start"})["tool"] == "difflang"
    assert tool.respond({"kind": "define", "module": "lse"}) == {"success": True}
    assert not tool.respond({"kind": "define", "module": "nothing"})["success"]
    wrong = tool.respond({"kind": "evaluate", "module": "lse", "function": "third", "input": {"x": [0.0]}})
    assert not wrong["success"] and "third" in wrong["error"]
    for given in (None, {"x": "abc"}, {"x": [0.0], "min_runs": "many"}, {}):
        bad = tool.respond({"kind": "evaluate", "module": "lse", "function": "primal", "input": given})
        assert not bad["success"] and "no input of lse" in bad["error"]
    for line in ("", "not json", "[1]", "{}"):
        assert not tool.answer(line)["success"]
    assert tool.answer('{"id": 3}') == {"id": 3}
    asked = {"x": [0.0, 0.0], "min_runs": 3}
    answer = tool.respond({"kind": "evaluate", "module": "lse", "function": "gradient", "input": asked})
    assert answer["success"] and answer["output"] == [0.5, 0.5]
    assert [t["name"] for t in answer["timings"]] == ["compile", *["evaluate"] * 3]
