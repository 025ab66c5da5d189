"""`--output-format`: the same reports for people and for each kind of program."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner

from difflang.cli import main

SCHEMA = json.loads((Path(__file__).parents[2] / "support" / "sarif-schema-2.1.0.json").read_text(encoding="utf-8"))
PROGRAM = """\
let α = [1.0, 2.0]
let x = α @ [1.0, 2.0, 3.0]
fn f(x: f32) -> f32 {
  y
}
test "no" { assert 1 == 2 }
"""
FAILING = 'test "50%, a: b" { assert 1 == 2 }\ntest "yes" { assert true }\n'


def said(command: str, form: str, text: str, folder: Path) -> tuple[int, str, str]:
    path = folder / "odd name.dfl"
    path.write_text(text, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        engine = ["--engine=interpret"] if command == "test" else []
        result = CliRunner().invoke(main, [command, f"--output-format={form}", *engine, path.name])
    return result.exit_code, result.stdout, result.stderr


def test_for_people(tmp_path: Path) -> None:
    code, out, err = said("check", "human", PROGRAM, tmp_path)
    assert (code, out) == (1, "")
    assert err.count("error[") == 2 and " --> odd name.dfl:2:" in err


def test_a_line_each(tmp_path: Path) -> None:
    code, out, err = said("check", "concise", PROGRAM, tmp_path)
    assert (code, err) == (1, "")
    assert [line.partition("]")[0] for line in out.splitlines()] == [
        "odd name.dfl:2:13: error[DL0312",
        "odd name.dfl:4:3: error[DL0201",
    ]


def test_json(tmp_path: Path) -> None:
    code, out, _ = said("check", "json", PROGRAM, tmp_path)
    first, second = json.loads(out)
    assert (code, first["code"], second["code"]) == (1, "DL0312", "DL0201")
    assert second["labels"][0]["start"]["line"] == 4


def validated(out: str) -> list[Any]:
    log = json.loads(out)
    jsonschema.validate(log, SCHEMA)
    (run,) = log["runs"]
    for each in run["results"]:
        assert run["tool"]["driver"]["rules"][each["ruleIndex"]]["id"] == each["ruleId"]
    return run["results"]


def test_sarif_is_valid(tmp_path: Path) -> None:
    code, out, _ = said("check", "sarif", PROGRAM, tmp_path)
    first, second = validated(out)
    assert (code, first["ruleId"], second["level"]) == (1, "DL0312", "error")
    place = second["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "odd%20name.dfl"
    assert place["region"] == {"startLine": 4, "startColumn": 3, "endLine": 4, "endColumn": 4}
    assert validated(said("check", "sarif", "let x = 1\n", tmp_path)[1]) == []


def test_the_schema_refuses_a_wrong_log(tmp_path: Path) -> None:
    """The control."""
    log = json.loads(said("check", "sarif", PROGRAM, tmp_path)[1])
    log["runs"][0]["results"][0]["level"] = "bad"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(log, SCHEMA)


def test_annotations_of_github(tmp_path: Path) -> None:
    code, out, _ = said("check", "github", PROGRAM, tmp_path)
    assert code == 1
    assert out.splitlines()[1].startswith("::error file=odd name.dfl,line=4,endLine=4,col=3,endColumn=4,title=DL0201::")


@pytest.mark.parametrize("form", ["concise", "sarif", "github", "json"])
def test_tests_that_fail(form: str, tmp_path: Path) -> None:
    code, out, _ = said("test", form, FAILING, tmp_path)
    assert code == 1
    match form:
        case "concise":
            (line,) = out.splitlines()
            assert line.startswith('odd name.dfl:1:1: error[DL0901]: test "50%, a: b": ')
        case "sarif":
            (found,) = validated(out)
            assert found["ruleId"] == "DL0901"
        case "github":
            assert out.startswith("::error file=odd name.dfl,line=1,endLine=1,col=1,endColumn=1,title=DL0901::")
            assert 'test "50%25, a: b": ' in out
        case _:
            assert [t["result"] for t in json.loads(out)["tests"]] == ["failed", "passed"]


@pytest.mark.parametrize("form", ["concise", "github"])
def test_nothing_is_said_where_all_is_well(form: str, tmp_path: Path) -> None:
    assert said("check", form, "let x = 1\n", tmp_path) == (0, "", "")
    assert said("test", form, 'test "yes" { assert true }\n', tmp_path) == (0, "", "")


def test_a_file_that_is_not_there_has_no_place() -> None:
    result = CliRunner().invoke(main, ["check", "--output-format=github", "missing.dfl"])
    assert result.stdout.startswith("::error title=DL0701::cannot read missing.dfl")
    assert validated(CliRunner().invoke(main, ["check", "--output-format=sarif", "missing.dfl"]).stdout)


def test_fixes_that_are_certain_are_in_the_log(tmp_path: Path) -> None:
    text = "let rate = 1.0\nprint(rtae)\nprint(y)\n"
    _, out, _ = said("check", "sarif", text, tmp_path)
    first, second = validated(out)
    ((change,),) = [fix["artifactChanges"] for fix in first["fixes"]]
    (replaced,) = change["replacements"]
    assert replaced["insertedContent"] == {"text": "rate"} and replaced["deletedRegion"]["startColumn"] == 7
    assert "fixes" not in second
