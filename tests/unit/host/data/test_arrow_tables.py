"""Parquet and Arrow: tables in other programs' files have the declared types, and what does not fit is named."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from difflang.base.diagnostics import DifflangError
from difflang.base.source import Source
from difflang.driver.checked_program import check_program
from difflang.driver.run_program import run_program
from difflang.execution.engine import Engine
from difflang.host.data.file_access import FileAccess
from difflang.host.optional_packages import is_installed

needs_pyarrow = pytest.mark.skipif(not is_installed("pyarrow"), reason="needs pyarrow")

ROW = "record Row { group: str, x: f64, day: i32, ok: bool }\n"


def ran(folder: Path, program: str) -> list[str]:
    lines: list[str] = []
    checked = check_program(Source("test.dfl", f"float f64\n{program}\n"))
    run_program(checked, Engine("interpret"), FileAccess(folder), 0, lines.append)
    return lines


def report(folder: Path, program: str) -> str:
    with pytest.raises(DifflangError) as raised:
        ran(folder, program)
    return raised.value.render()


def table(folder: Path) -> None:
    """A file of another program: with a dictionary, a date, missing values and a column that nothing reads."""
    arrow: Any = pytest.importorskip("pyarrow")
    parquet: Any = pytest.importorskip("pyarrow.parquet")
    columns = {
        "group": arrow.array(["a", None, "a"]).dictionary_encode(),
        "x": arrow.array([1.5, None, 2.5]),
        "day": arrow.array([0, 19783, -1], arrow.int32()).cast(arrow.date32()),
        "ok": arrow.array([True, False, True]),
        "time": arrow.array([1, 2, 3], arrow.timestamp("ms")),
    }
    parquet.write_table(arrow.table(columns), folder / "t.parquet")


@needs_pyarrow
def test_a_file_of_another_program(tmp_path: Path) -> None:
    table(tmp_path)
    program = f'{ROW}let t: Row[n] = read_parquet("t.parquet", missing = ("group", "x"))\nprint(n, t)'
    assert ran(tmp_path, program) == [
        '3 Row(group = ["a", "", "a"], x = [1.5, nan, 2.5], day = [0, 19783, -1], ok = [true, false, true])'
    ]


@needs_pyarrow
@pytest.mark.parametrize(
    ("field", "code", "said"),
    [
        ("x: f64", "DL0703", "t.parquet: row 2: column `x`: there is no value"),
        ("day: str", "DL0704", "`t.parquet` contains date32[day] for `day`, not str"),
        ("ok: f64", "DL0704", "contains bool for `ok`, not f64"),
        ("group: i32", "DL0703", "column `group`: there is no value"),
        ("time: i64", "DL0704", "contains timestamp[ms] for `time`, not i64"),
        ("xs: f64", "DL0706", "`t.parquet` has no column `xs`"),
    ],
)
def test_what_does_not_fit_is_named(field: str, code: str, said: str, tmp_path: Path) -> None:
    table(tmp_path)
    text = report(tmp_path, f'record R {{ {field} }}\nlet t: R[n] = read_parquet("t.parquet")')
    assert f"error[{code}]" in text and said in text


@needs_pyarrow
@pytest.mark.parametrize("name", ["o.parquet", "o.arrow", "o.feather"])
def test_a_written_table_is_read_back(name: str, tmp_path: Path) -> None:
    program = f"""{ROW}let t = [Row("b", 0.1, 3, true), Row("", nan, -2, false), Row("b", 2.0, 0, true)]
save("{name}", t)
let u: Row[n] = load("{name}")
print(n, u)
"""
    rows = '3 Row(group = ["b", "", "b"], x = [0.1, nan, 2.0], day = [3, -2, 0], ok = [true, false, true])'
    assert ran(tmp_path, program) == [rows]


@needs_pyarrow
def test_dates_and_missing_values_are_those_of_the_format(tmp_path: Path) -> None:
    parquet: Any = pytest.importorskip("pyarrow.parquet")
    rows = '[Row("b", 0.1, 19783, true), Row("", nan, -1, false)]'
    options = 'dates = "day", missing = ("group", "x"), header = ("g", "x", "day", "ok")'
    ran(tmp_path, f'{ROW}write_parquet("o.parquet", {rows}, {options})')
    found = parquet.read_table(tmp_path / "o.parquet").to_pylist()
    assert [str(row["day"]) for row in found] == ["2024-03-01", "1969-12-31"]
    assert (found[1]["g"], found[1]["x"], found[0]["g"]) == (None, None, "b")


@needs_pyarrow
def test_damaged_files(tmp_path: Path) -> None:
    (tmp_path / "t.parquet").write_bytes(b"PAR1 no")
    (tmp_path / "t.arrow").write_bytes(b"")
    for format in ("parquet", "arrow"):
        text = report(tmp_path, f'record R {{ x: f64 }}\nlet t: R[n] = read_{format}("t.{format}")')
        assert "error[DL0701]" in text


@pytest.mark.parametrize(
    ("program", "code", "said"),
    [
        ('let x: f64[n] = read_parquet("t.parquet")', "DL0704", "a table is an array of records with one axis"),
        ('write_parquet("t.parquet", [1.0])', "DL0711", "parquet holds an array of records"),
        ('record C { z: c128 }\nwrite_arrow("t.arrow", [C(1j)])', "DL0704", "`z` is c128"),
        ('record C { z: bf16 }\nwrite_arrow("t.arrow", [C(bf16(1.0))])', "DL0711", "Arrow has no bf16"),
        ('record C { x: f64 }\nwrite_parquet("t.csv", [C(1.0)])', "DL0708", "must end with `.parquet`"),
        ('record C { x: f64 }\nwrite_parquet("t.parquet", [C(1.0)], append = true)', "DL0319", "no parameter `append`"),
    ],
)
def test_what_is_found_before_anything_runs(program: str, code: str, said: str, tmp_path: Path) -> None:
    text = report(tmp_path, program)
    assert f"error[{code}]" in text and said in text


def test_without_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    text = report(tmp_path, 'record R { x: f64 }\nlet t: R[n] = read_parquet("t.parquet")')
    assert "error[DL0709]" in text and "pip install 'difflang[parquet]'" in text


@needs_pyarrow
def test_enums_are_texts(tmp_path: Path) -> None:
    table(tmp_path)
    program = """enum Group { a, b }
record R { g: Group, x: f64 }
write_parquet("e.parquet", [R(b, 1.0), R(a, 2.0)])
let t: R[n] = read_parquet("e.parquet")
print(t)
"""
    assert ran(tmp_path, program) == ["R(g = [b, a], x = [1.0, 2.0])"]
    text = report(tmp_path, 'enum Less { b }\nrecord S { g: Less }\nlet t: S[n] = read_parquet("e.parquet")')
    assert 'contains "a" for `g`, not a variant of Less: b' in text


MANY = """record Many { group: str, kind: Kind, x: f64, day: i32, at: Point }
enum Kind { Old, New }
record Point { u: f64 }
"""
NAMED = 'header = ("group", "kind", "x", "day", "at.u"), dates = "day", missing = ("group", "x")'


def many(folder: Path, format: str, rows: int = 20) -> None:
    """A file with blocks of 7 rows."""
    arrow: Any = pytest.importorskip("pyarrow")
    parquet: Any = pytest.importorskip("pyarrow.parquet")
    columns = {
        "at.u": arrow.array([i / 2 for i in range(rows)], arrow.float64()),
        "group": arrow.array([None if i == 9 else f"g{i % 3}" for i in range(rows)], arrow.string()),
        "kind": arrow.array([("Old", "New")[i % 2] for i in range(rows)], arrow.string()),
        "x": arrow.array([None if i == 8 else float(i) for i in range(rows)], arrow.float64()),
        "day": arrow.array(range(rows), arrow.int32()).cast(arrow.date32()),
    }
    table = arrow.table(columns)
    if format == "parquet":
        parquet.write_table(table, folder / "m.parquet", row_group_size=7)
    else:
        with arrow.ipc.new_file(folder / "m.arrow", table.schema) as writer:
            writer.write_table(table, max_chunksize=7)


@needs_pyarrow
@pytest.mark.parametrize("format", ["parquet", "arrow"])
@pytest.mark.parametrize("rows", [20, 0])
def test_a_table_that_stays_in_its_file_holds_what_one_that_is_read_does(
    tmp_path: Path, format: str, rows: int
) -> None:
    many(tmp_path, format, rows)
    program = f"""{MANY}
let t: Many[n] = OPEN_{format}("m.{format}", {NAMED})
fn late(t: Many[m]) -> f64 = sum(f64(t.day))
let (u, name) = (t.at.u, "m")
print(n, late(t), sum(u), t, name)
for (i, row) in enumerate(t) {{ if i % 6 == 0 {{ print(row.group, row.x, row.kind) }} }}
for (group, x) in batches((t.group, t.x), 8) {{ print(group, x) }}
for b in batches(t, 6) {{ print(b.kind, b.at, codes(b.group, ["", "g0", "g1", "g2"])) }}
let (code, names) = codes(t.group)
print(code, names)
"""
    opened, read = (ran(tmp_path, program.replace("OPEN", name)) for name in ("open", "read"))
    assert opened == read and len(opened) == 2 + (11 if rows else 0)


@needs_pyarrow
def test_a_shuffled_table(tmp_path: Path) -> None:
    many(tmp_path, "parquet")
    program = f"""{MANY}
let t: Many[n] = open_parquet("m.parquet", {NAMED})
let days = for b in batches(t, 4, shuffle = true) {{ yield b.day }}
print(days)
print(sort(reshape(days, [-1])))
"""
    days, ordered = ran(tmp_path, program)
    assert days != ordered and ordered == str(list(range(20)))


@needs_pyarrow
@pytest.mark.parametrize(
    ("program", "said"),
    [
        ('record R { y: f64 }\nlet t: R[n] = open_parquet("m.parquet")', "`m.parquet` has no column `y`"),
        ('record R { group: f64 }\nlet t: R[n] = open_parquet("m.parquet")', "contains string for `group`, not f64"),
        ('record R { x: f32 }\nlet t: R[n] = open_parquet("m.parquet")', "contains double for `x`, not f32"),
        ('record R { x: f64 }\nlet t: R[19] = open_parquet("m.parquet")', "DL0705"),
        ('record R { x: f64 }\nlet t: R = open_parquet("m.parquet")', "declare `R[n]`"),
        (
            'record R { x: f64 }\nlet t: R[n] = open_parquet("m.parquet")\nfor b in batches(t, 5) { print(sum(b.x)) }',
            "m.parquet: row 9: column `x`: there is no value",
        ),
        (
            'record R { x: f64 }\nlet t: R[n] = open_parquet("m.parquet")\nfor b in batches(t, 5) { print(sum(b.x)) }',
            "its rows are used here",
        ),
        (
            'enum K { Old }\nrecord R { kind: K }\nlet t: R[n] = open_parquet("m.parquet")\nprint(t.kind[0])',
            'contains "New" for `kind`, not a variant of K: Old',
        ),
    ],
)
def test_what_an_opened_table_does_not_hold(tmp_path: Path, program: str, said: str) -> None:
    many(tmp_path, "parquet")
    assert said in report(tmp_path, program)


@needs_pyarrow
def test_a_table_that_is_damaged_while_it_is_read(tmp_path: Path) -> None:
    many(tmp_path, "parquet", 100)
    program = (
        'record R { x: f64 }\nlet t: R[n] = open_parquet("m.parquet", missing = "x")\nprint("now")\nprint(sum(t.x))'
    )

    def said(_: str) -> None:
        (tmp_path / "m.parquet").write_bytes(b"PAR1")

    with pytest.raises(DifflangError, match="cannot read `m") as raised:
        run_program(check_program(Source("t.dfl", program)), Engine("interpret"), FileAccess(tmp_path), 0, said)
    assert raised.value.diagnostics[0].code == "DL0701"
