"""Tables with named columns: read into arrays of records by the names of the fields, and what does not fit is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from difflang.base.diagnostics import DifflangError
from difflang.base.source import Source
from difflang.driver.checked_program import check_program
from difflang.driver.run_program import run_program
from difflang.execution.engine import Engine
from difflang.host.data.file_access import FileAccess

PATIENTS = """id,age,weight,ok,visited,group
1,30.5,70,true,2024-03-01,A
2,41,,false,1969-12-31,"B, late"

3,52.25,NA,TRUE,2000-02-29,A
"""


def ran(folder: Path, program: str) -> list[str]:
    lines: list[str] = []
    checked = check_program(Source("test.dfl", "float f64\n" + program))
    run_program(checked, Engine("interpret"), FileAccess(folder), 0, lines.append)
    return lines


def report(folder: Path, program: str) -> str:
    with pytest.raises(DifflangError) as raised:
        ran(folder, program)
    return raised.value.render()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "p.csv").write_text(PATIENTS)
    return tmp_path


def test_columns_are_read_by_the_names_of_the_fields(folder: Path) -> None:
    """In any order; other columns are skipped."""
    program = """record Patient { weight: f64, age: f64, ok: bool, visited: i32, id: i64 }
let t: Patient[n] = read_csv("p.csv", dates = ("visited"), missing = ("weight"))
fn oldest(t: Patient[m]) -> f64 = max(t.age)
print(n, t.weight, t.ok, t.visited, t.id, oldest(t), t[2].age)
"""
    assert ran(folder, program) == ["3 [70.0, nan, nan] [true, false, true] [19783, -1, 11016] [1, 2, 3] 52.25 52.25"]


def test_names_that_are_no_names_of_fields(folder: Path) -> None:
    (folder / "i.csv").write_text("Sepal length; cm,n°\n5.1,1\n")
    program = """record Iris { sepal: f64, number: i32 }
let t: Iris[n] = read_csv("i.csv", header = ("Sepal length; cm", "n°"))
print(t)
"""
    assert ran(folder, program) == ["Iris(sepal = [5.1], number = [1])"]


def test_a_table_without_rows(folder: Path) -> None:
    (folder / "e.csv").write_text("age\n")
    program = 'record P { age: f64 }\nlet t: P[n] = read_csv("e.csv")\nprint(n, t)\n'
    assert ran(folder, program) == ["0 P(age = [])"]


def test_records_in_records_are_columns_by_path(folder: Path) -> None:
    (folder / "n.csv").write_text("at.x,at.y,mass\n1,2,3\n")
    program = "record At { x: f64, y: f64 }\nrecord Body { at: At, mass: f64 }\n"
    assert ran(folder, program + 'let t: Body[n] = read_csv("n.csv")\nprint(t.at.y, t.mass)\n') == ["[2.0] [3.0]"]


WRONG = [
    ("agee: f64", "", "DL0706", "has no column `agee`", "did you mean `age`? it has id, age, weight"),
    ("weight: f64", "", "DL0703", "p.csv:3: column `weight`: this cell is empty", 'write `missing = "weight"`'),
    ("group: f64", "", "DL0703", "p.csv:2: column `group`: `A` is not a number", "declared f64"),
    ("age: i32", "", "DL0703", "p.csv:2: column `age`: `30.5` is not a valid i32", "declared i32"),
    ("id: bool", "", "DL0703", "p.csv:3: column `id`: `2` is not true or false", ""),
    ("id: i32", 'dates = "id"', "DL0703", "`1` is not a date such as 2024-03-01", ""),
    ("id: i16", 'dates = "id"', "DL0319", "a date is a number of days since 1970-01-01, but `id` is i16", "id: i32"),
    ("id: i32", 'missing = "id"', "DL0319", "`id` is i32, which has no value for a missing cell", "`id: f64`"),
    ("age: f64", 'missing = "aeg"', "DL0319", "`missing` names `aeg`, which is no field", "did you mean `age`?"),
    ("age: f64", 'header = ("a", "b")', "DL0319", "write one text for each of 1 columns", ""),
    ("age: f64", "header = 3", "DL0319", "write texts", ""),
    ("age: f64", 'other = "a"', "DL0319", "`read_csv` has no parameter `other`", ""),
    ("age: f64[2]", "", "DL0704", "a column has one number or text in each row", "`age` is f64[2]"),
    ("age: key", "", "DL0704", "a column has one number or text in each row", "`age` is key"),
]


@pytest.mark.parametrize(("field", "option", "code", "said", "way"), WRONG)
def test_what_does_not_fit_is_named(field: str, option: str, code: str, said: str, way: str, folder: Path) -> None:
    text = report(folder, f'record P {{ {field} }}\nlet t: P[n] = read_csv("p.csv"{", " * bool(option)}{option})\n')
    assert f"error[{code}]" in text and said in text and way in text


def test_a_missing_cell_does_not_hide_a_wrong_one(folder: Path) -> None:
    (folder / "m.csv").write_text("x\n1\n\n  \nNA\nno\n")
    text = report(folder, 'record P { x: f64 }\nlet t: P[n] = read_csv("m.csv", missing = "x")\n')
    assert "m.csv:6: column `x`: `no` is not a number" in text


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ("1,2\n3,4\n", "the columns of `w.csv` have no names"),
        ("x,x\n1,2\n", "`w.csv` has several columns `x`"),
        ("x,y\n1\n", "w.csv:2: this row has 1 column, but the others have 2"),
        ("x;y\n1;2\n", "`w.csv` has no column `x`"),
        ("", "`w.csv` has no column `x`"),
        ('x\n"1\n', "line 2: a quote is not closed"),
    ],
)
def test_files_that_are_no_tables(file: str, said: str, folder: Path) -> None:
    (folder / "w.csv").write_text(file)
    assert said in report(folder, 'record P { x: f64 }\nlet t: P[n] = read_csv("w.csv")\n')


@pytest.mark.parametrize(
    ("type", "said"), [("P", "declare `P[n]`"), ("P[n, m]", "this has 2 axes"), ("(f64, f64)", "not (f64, f64)")]
)
def test_types_that_are_no_tables(type: str, said: str, folder: Path) -> None:
    assert said in report(folder, f'record P {{ age: f64 }}\nlet t: {type} = read_csv("p.csv")\n')
