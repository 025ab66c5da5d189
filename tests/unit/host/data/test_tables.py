"""Tables with named columns: read into arrays of records by the names of the fields, and what does not fit is named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from difflang.base.diagnostics import DifflangError
from difflang.base.source import NO_SPAN, Source
from difflang.driver.checked_program import check_program
from difflang.driver.run_program import run_program
from difflang.execution.engine import Engine
from difflang.host.data.csv_columns import read_csv_columns, table_rows
from difflang.host.data.csv_tables import csv_text
from difflang.host.data.file_access import FileAccess
from difflang.host.data.table_columns import Column
from difflang.ir.tensor_types import BOOL, F32, Tensor
from difflang.types.language_types import TextType

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


def test_options_are_texts_of_an_array_too(folder: Path) -> None:
    program = """let names = ["a b", "c"]
record P { x: f64, y: f64 }
write_csv("o.csv", [[1.0, 2.0]], header = names)
let t: P[n] = read_csv("o.csv", header = names)
let u: P[n] = read_csv("o.csv", header = (names[1], names[0]))
print(t, u.x)
"""
    assert ran(folder, program) == ["P(x = [1.0], y = [2.0]) [2.0]"]


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
    ("age: f64", 'header = ("a", "b")', "DL0319", "write one text for each of 1 column", ""),
    ("age: f64", "header = 3", "DL0319", "write one text or several", ""),
    ("age: f64", 'other = "a"', "DL0319", "`read_csv` has no parameter `other`", ""),
    ("age: f64[2]", "", "DL0704", "a column has one real number, text or variant in each row", "`age` is f64[2]"),
    ("weight: str", "", "DL0703", "p.csv:3: column `weight`: this cell is empty", 'write `missing = "weight"`'),
    (
        "group: str",
        'dates = "group"',
        "DL0319",
        "a date is a number of days since 1970-01-01, but `group` is str",
        "group: i32",
    ),
    ("age: c128", "", "DL0704", "a column has one real number, text or variant in each row", "`age` is c128"),
    ("age: key", "", "DL0704", "a column has one real number, text or variant in each row", "`age` is key"),
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
        ("x,x\n1,2\n", "= help: it has x, x"),
        ("x,y\n1\n", "w.csv:2: this row has 1 column, but the others have 2"),
        ("x;y\n1;2\n", "this table separates its columns by semicolons"),
        ("", "`w.csv` has no column `x`"),
        ('x\n"1\n', "line 2: a quote is not closed"),
    ],
)
def test_files_that_are_no_tables(file: str, said: str, folder: Path) -> None:
    (folder / "w.csv").write_text(file)
    assert said in report(folder, 'record P { x: f64 }\nlet t: P[n] = read_csv("w.csv")\n')


@pytest.mark.parametrize(
    ("type", "said"), [("P", "declare `P[n]`"), ("P[n, m]", "not P[n, m]"), ("(f64, f64)", "not (f64, f64)")]
)
def test_types_that_are_no_tables(type: str, said: str, folder: Path) -> None:
    assert said in report(folder, f'record P {{ age: f64 }}\nlet t: {type} = read_csv("p.csv")\n')


# ---- Texts, and tables that are written

GROUPS = """record Patient { group: str, weight: f64, visited: i32, ok: bool }
let t: Patient[n] = read_csv("p.csv", dates = "visited", missing = "weight")
"""


def test_columns_of_texts(folder: Path) -> None:
    program = GROUPS + 'print(t.group, t.group == "A")\nfor p in t { print("{p.group:>7} {p.weight:.1f}") }\n'
    assert ran(folder, program) == [
        '["A", "B, late", "A"] [true, false, true]',
        "      A 70.0",
        "B, late nan",
        "      A nan",
    ]


def test_a_text_of_a_table_is_not_compiled_in(folder: Path) -> None:
    """A function of rows is compiled once, whatever texts they hold."""
    program = GROUPS + "fn heavy(p: Patient) -> bool = p.weight > 50.0\nprint([for p in t => heavy(p)], heavy(t[0]))\n"
    assert ran(folder, program) == ["[true, false, false] true"]


def test_categories_have_codes(folder: Path) -> None:
    program = (
        GROUPS
        + """let (code, names): (i32[n], str[k]) = codes(t.group)
print(k, code, names, all(names[code] == t.group), codes(["B, late", "A"], names))
let (c, s) = codes([["y", "x"], ["é", "x"]])
print(c, s, codes([for _ in 0..0 => "a"]))
"""
    )
    assert ran(folder, program) == [
        '2 [0, 1, 0] ["A", "B, late"] true [1, 0]',
        '[[1, 0],\n [2, 0]] ["x", "y", "é"] ([], [])',
    ]


@pytest.mark.parametrize(
    ("call", "code", "said"),
    [
        ('codes(["a", "b", "c"], ["b"])', "DL0910", '"a", "c" are not among the names'),
        ("codes([1, 2])", "DL0319", "this is i32[2], but an array of texts is required"),
        ('codes(["a"], [["a"]])', "DL0319", "this has 2 axes"),
        ('codes("a")', "DL0319", "this is str, but an array of texts is required"),
    ],
)
def test_codes_of_other_things(call: str, code: str, said: str, folder: Path) -> None:
    text = report(folder, f"print({call})\n")
    assert f"error[{code}]" in text and said in text


def test_a_written_table_is_read_back(folder: Path) -> None:
    program = (
        GROUPS
        + """write_csv("o.csv", t, dates = "visited", missing = "weight")
let u: Patient[m] = read_csv("o.csv", dates = "visited", missing = "weight")
print(u.group, u.weight, u.visited, u.ok)
save("plain.csv", t)
let v: Patient[m] = load("plain.csv")
print(v.visited, v.weight)
"""
    )
    assert ran(folder, program) == [
        '["A", "B, late", "A"] [70.0, nan, nan] [19783, -1, 11016] [true, false, true]',
        "[19783, -1, 11016] [70.0, nan, nan]",
    ]
    written = 'group,weight,visited,ok\nA,70.0,2024-03-01,true\n"B, late",,1969-12-31,false\nA,,2000-02-29,true\n'
    assert (folder / "o.csv").read_text() == written


def test_rows_are_appended(folder: Path) -> None:
    """To a file with the same columns; one that is not there is begun."""
    program = """record Step { loss: f64, name: str }
for i in 0..3 {
  write_csv("log.csv", [Step(1.0 / f64(i + 1), "step {i}")], append = true, header = ("the loss", "name"))
}
write_csv("m.csv", [[1.0, 2.0]], append = true)
write_csv("m.csv", [[3.0, 4.0], [5.0, 6.0]], append = true)
let m: f64[n, 2] = read_csv("m.csv")
print(n, m[2])
"""
    assert ran(folder, program) == ["3 [5.0, 6.0]"]
    assert (folder / "log.csv").read_text() == "the loss,name\n1.0,step 0\n0.5,step 1\n0.3333333333333333,step 2\n"


def test_a_file_without_a_last_end_of_line_is_appended_to(folder: Path) -> None:
    (folder / "a.csv").write_text("x\n1.0")
    ran(folder, 'record P { x: f64 }\nwrite_csv("a.csv", [P(2.0)], append = true)\n')
    assert (folder / "a.csv").read_text() == "x\n1.0\n2.0\n"


def test_texts_of_any_kind_survive(folder: Path) -> None:
    program = """record P { a: str, b: str }
let t = [P("x, \\"y\\"", "line\\nbreak"), P(" α ", ""), P("NA", "1.0")]
write_csv("q.csv", t)
let u: P[3] = read_csv("q.csv", missing = "b")
print(all(u.a == t.a) and all(u.b == t.b))
"""
    assert ran(folder, program) == ["true"]


WRONG_WRITES = [
    ('write_csv("p.csv", [P(1, "a")], append = true)', "DL0710", "`p.csv` has other columns: id, age"),
    ('write_csv("m.csv", [[1.0]], append = true)', "DL0710", "`m.csv` has 2 columns"),
    ('write_csv("d.csv", [P(4000000, "a")], dates = "x")', "DL0711", "4000000 days since 1970-01-01 is no date"),
    ('write_csv("d.csv", [[1.0]], dates = "x")', "DL0319", "`dates` names columns of an array of records"),
    ('write_csv("d.csv", [P(1, "a")], append = 1)', "DL0319", "a bool is required"),
    ('write_csv("d.csv", ["a"])', "DL0711", "csv holds real numbers with one or two axes, or an array of records"),
    ('write_csv("d.csv", P(1, "a"))', "DL0711", "this is P"),
    ('record C { z: c128 }\nwrite_csv("d.csv", [C(1j)])', "DL0704", "`z` is c128"),
    ('save("d.safetensors", ["a"])', "DL0711", "safetensors cannot hold an array of texts"),
    ('write_npy("d.npy", ["a"])', "DL0711", "npy holds one array of numbers"),
]


@pytest.mark.parametrize(("call", "code", "said"), WRONG_WRITES)
def test_what_cannot_be_written(call: str, code: str, said: str, folder: Path) -> None:
    (folder / "m.csv").write_text("1.0,2.0\n")
    text = report(folder, f"record P {{ x: i32, s: str }}\n{call}\n")
    assert f"error[{code}]" in text and said in text


@pytest.mark.parametrize("format", ["npz", "json"])
def test_other_files_hold_texts(format: str, folder: Path) -> None:
    program = f"""{GROUPS}save("t.{format}", (t, [["a"], ["bcd"]]))
let (u, s): (Patient[m], str[2, k]) = load("t.{format}")
print(u.group, u.visited, s, k)
"""
    assert ran(folder, program) == ['["A", "B, late", "A"] [19783, -1, 11016] [["a"],\n ["bcd"]] 1']


@pytest.mark.parametrize(
    ("type", "code"), [("str[3]", "DL0705"), ("f64[2]", "DL0704"), ("str", "DL0704"), ("str[2, 1]", "DL0705")]
)
@pytest.mark.parametrize("format", ["npz", "json"])
def test_other_files_with_other_texts(type: str, code: str, format: str, folder: Path) -> None:
    text = report(folder, f'save("t.{format}", ["a", "b"])\nlet s: {type} = load("t.{format}")\n')
    assert f"error[{code}]" in text or (format == "json" and "error[DL0704]" in text)


ENUM = """enum Group { A, B }
record P { group: Group, age: f64 }
fn weight(g: Group) -> f64 = match g { A => 1.0, B => 10.0 }
"""


@pytest.mark.parametrize("format", ["csv", "npz", "json"])
def test_enums_without_fields_are_names_of_variants(format: str, folder: Path) -> None:
    (folder / "g.csv").write_text("age,group\n1.5,A\n2,B\n4,A\n")
    program = f"""{ENUM}let t: P[n] = read_csv("g.csv")
save("o.{format}", t)
let u: P[m] = load("o.{format}")
print(u, [for p in u => weight(p.group) * p.age])
for p in u {{ match p.group {{ A => print("a"), B => print("b") }} }}
"""
    assert ran(folder, program) == ["P(group = [A, B, A], age = [1.5, 2.0, 4.0]) [1.5, 20.0, 4.0]", "a", "b", "a"]


@pytest.mark.parametrize(
    ("program", "code", "said"),
    [
        (
            'let t: P[n] = read_csv("p.csv")',
            "DL0703",
            "p.csv:3: column `group`: `B, late` is no variant of Group: A, B",
        ),
        ('let t: P[n] = read_csv("p.csv", missing = "group")', "DL0319", "declare `group: str`"),
        (
            'save("g.json", ["A", "C"])\nlet g: Group[n] = load("g.json")',
            "DL0704",
            'contains "C", not a variant of Group',
        ),
        ('save("g.npz", [A, B])\nlet g: Group[3] = load("g.npz")', "DL0705", "contains str[2], not Group[3]"),
        ('save("g.safetensors", [A, B])', "DL0711", "safetensors cannot hold an array of texts or enums"),
    ],
)
def test_enums_that_do_not_fit(program: str, code: str, said: str, folder: Path) -> None:
    text = report(folder, f"{ENUM}{program}\n")
    assert f"error[{code}]" in text and said in text


# Texts of every kind, and those that a table treats in ways of their own.
TEXTS = st.one_of(
    st.text(max_size=8), st.sampled_from(["", " ", "\r", "\n", '"', ",", "NA", "nan", "\ufeff", "a\r\nb"])
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(rows=st.lists(st.tuples(TEXTS, TEXTS, st.floats(width=32), st.booleans()), max_size=4), wide=st.booleans())
def test_what_is_written_is_read(rows: list[tuple[str, str, float, bool]], wide: bool, tmp_path: Path) -> None:
    types = (TextType(), TextType(), Tensor(F32), Tensor(BOOL))
    columns = [Column(name, name, type, NO_SPAN, False, True) for name, type in zip("abxo", types, strict=True)]
    columns[3] = replace(columns[3], may_miss=False)
    columns = columns if wide else columns[:1]
    values = (object, object, np.float32, np.bool_)
    stored = {
        c.path: np.array([row[i] for row in rows], kind)
        for i, (c, kind) in enumerate(zip(columns, values, strict=False))
    }
    path = tmp_path / "r.csv"
    path.write_bytes(csv_text([[c.name for c in columns], *table_rows(columns, stored, NO_SPAN)]).encode())
    found = read_csv_columns(path, "r.csv", columns, NO_SPAN)
    for name, array in stored.items():
        np.testing.assert_array_equal(found[name], array)
