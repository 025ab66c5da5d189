"""`batches`: every row once, in order or shuffled, read ahead from files in bounded memory."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from difflang.base.diagnostics import DifflangError
from difflang.base.source import NO_SPAN, Source
from difflang.driver.checked_program import check_program
from difflang.driver.run_program import run_program
from difflang.execution.engine import Engine
from difflang.host.data import row_batches
from difflang.host.data.file_access import FileAccess
from difflang.host.data.mapped_files import map_array
from difflang.host.data.numpy_files import read_npy
from difflang.host.data.read_ahead import read_ahead
from difflang.host.data.row_batches import RowBatches

ROWS = np.arange(300, dtype=np.float32).reshape(100, 3)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    np.save(tmp_path / "a.npy", ROWS)
    return tmp_path


def ran(folder: Path, program: str, seed: int = 0) -> list[str]:
    said: list[str] = []
    checked = check_program(Source("t.dfl", program))
    run_program(checked, Engine("interpret"), FileAccess(folder), seed, said.append)
    return said


def report(folder: Path, program: str) -> str:
    with pytest.raises(DifflangError) as caught:
        ran(folder, program)
    return caught.value.render()


def rows_of(folder: Path, array: np.ndarray | None = None, **options: object) -> list[np.ndarray]:
    """The batches of an array, by default of one in a file."""
    if array is None:
        array = map_array(read_npy(folder / "a.npy", NO_SPAN)[""], folder / "a.npy")
    options = {"size": 8, "key": None, "drop_last": False, "span": NO_SPAN} | options
    return [batch for (batch,) in RowBatches((array,), **options)]  # type: ignore[arg-type]


def test_a_loop_over_batches(folder: Path) -> None:
    program = """let x: f32[n, d] = open_npy("a.npy")
let y: f32[n] = [for row in x => row[0]]
for (i, (b, z)) in enumerate(batches((x, y), 40)) { print(i, sum(b), max(abs(b[.., 0] - z)), z[0]) }
fn total(b: f32[40, d]) -> f32 = sum(b)
for b in batches(x, 40, drop_last = true) { print(total(b)) }
let means = for b in batches(y, 50) { yield mean(b) }
print(means)
"""
    assert ran(folder, program) == [
        "0 7140.0 0.0 0.0",
        "1 21540.0 0.0 120.0",
        "2 16170.0 0.0 240.0",
        "7140.0",
        "21540.0",
        "[73.5, 223.5]",
    ]


def test_a_shuffle_depends_on_the_seed_and_differs_in_each_epoch(folder: Path) -> None:
    program = """let x: f32[n, d] = OPEN("a.npy")
for _ in 0..2 { for b in batches(x, 64, shuffle = true) { print(b[.., 0]) } }
"""
    (opened, read) = (program.replace("OPEN", name) for name in ("open_npy", "read_npy"))
    first, again, other = ran(folder, opened), ran(folder, opened), ran(folder, opened, seed=1)
    assert first == again == ran(folder, read) and len({*first, *other}) == 8


@pytest.mark.parametrize("key", [None, np.array([0, 7], np.uint32)])
@pytest.mark.parametrize("size", [1, 7, 30, 64, 100, 1000])
def test_every_row_is_in_one_batch(
    folder: Path, monkeypatch: pytest.MonkeyPatch, size: int, key: np.ndarray | None
) -> None:
    """Also where a batch begins in one window and ends in another; memory holds few rows."""
    monkeypatch.setattr(row_batches, "BLOCK_BYTES", 48)
    monkeypatch.setattr(row_batches, "WINDOW_BYTES", 200)
    found = rows_of(folder, size=size, key=key)
    assert [len(b) for b in found[:-1]] == [size] * (len(found) - 1)
    whole = np.concatenate(found)
    assert np.array_equal(whole, ROWS) is (key is None)
    assert np.array_equal(whole[np.argsort(whole[:, 0])], ROWS)
    assert len(rows_of(folder, size=size, key=key, drop_last=True)) == 100 // size
    windows = RowBatches(
        (map_array(read_npy(folder / "a.npy", NO_SPAN)[""], folder / "a.npy"),), 7, key, False, NO_SPAN
    )
    assert max(window.arrays[0].nbytes for window in windows.windows()) <= 200 + 48


def test_what_is_in_memory_is_shuffled_as_a_whole(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_batches, "WINDOW_BYTES", 48)
    first = rows_of(folder, ROWS, size=10, key=np.array([0, 7], np.uint32))[0]
    assert np.ptp(first[:, 0]) > 150


def test_batches_are_read_ahead_but_not_far() -> None:
    made: list[int] = []
    third = threading.Event()

    def numbers() -> Iterator[int]:
        for i in range(100):
            made.append(i)
            if i == 3:
                third.set()
            yield i

    ahead = read_ahead(numbers(), 3)
    assert next(ahead) == 0 and third.wait(10)
    assert next(ahead) == 1 and len(made) <= 6
    ahead.close()  # type: ignore[attr-defined]
    assert len(made) <= 6 and list(read_ahead(range(5), 2)) == [0, 1, 2, 3, 4]


def test_an_error_while_reading_ahead_is_raised_at_its_item() -> None:
    def numbers() -> Iterator[int]:
        yield 1
        raise ValueError("broken")

    ahead = read_ahead(numbers(), 3)
    assert next(ahead) == 1
    with pytest.raises(ValueError, match="broken"):
        next(ahead)


def test_a_file_that_shrinks_while_it_is_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("BLOCK_BYTES", "WINDOW_BYTES", "AHEAD_BYTES"):
        monkeypatch.setattr(row_batches, name, 48)
    program = 'let x: f32[n, 3] = open_npy("a.npy")\nfor b in batches(x, 9) { print("now") }'

    def said(_: str) -> None:
        os.truncate(folder / "a.npy", 500)

    with pytest.raises(DifflangError) as caught:
        run_program(check_program(Source("t.dfl", program)), Engine("xla"), FileAccess(folder), 0, said)
    found = caught.value.render()
    assert "has shrunk to 500 bytes" in found and "rename that" in found
    assert "t.dfl:2:10" in found and "it was opened here" in found


@pytest.mark.parametrize(
    ("loop", "said"),
    [
        ("for b in batches(2.0, 3) {}", "DL0329"),
        ("for b in batches(n, 3) {}", "`import data (batches)` gives batches of indices"),
        ("for b in batches(x, 0) {}", "this is 0, but a batch has 1 row or more"),
        ("for b in batches(x, n - 100) {}", "this is 0, but a batch has 1 row or more"),
        ("for b in batches(x, 2.0) {}", "a number of rows is required"),
        ("for b in batches(x) {}", "usage of `batches`"),
        ("for b in batches(x, 3, shufle = true) {}", "did you mean `shuffle`"),
        ("for b in batches((x, x[..99]), 3) {}", "must have the same length"),
        (
            "fn f(a: f32[9, 3]) -> f32 = sum(a)\nfor b in batches(x, 9) { print(f(b)) }",
            "leave it out by `drop_last = true`",
        ),
        ("let b = batches(x, 3)", "`batches` can only be used in the header of a loop"),
        (
            "fn f(a: f32[m, 4]) -> f32 = sum(a)\nfor b in batches(x, 9) { print(f(b)) }",
            "this is f32[at most 9 rows of line 3:10, 3]",
        ),
    ],
)
def test_what_is_no_loop_over_batches(folder: Path, loop: str, said: str) -> None:
    assert said in report(folder, f'let x: f32[n, 3] = read_npy("a.npy")\n{loop}')
