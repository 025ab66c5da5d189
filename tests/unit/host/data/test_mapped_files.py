"""`open_npy`: an array that stays in its file computes the same, and what cannot be mapped is an error."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from difflang.base.diagnostics import DifflangError
from difflang.base.source import NO_SPAN, Source
from difflang.driver.checked_program import check_program
from difflang.driver.run_program import run_program
from difflang.execution.engine import Engine
from difflang.host.data.file_access import FileAccess
from difflang.host.data.mapped_files import check_mapping, map_array, mapping_of
from difflang.host.data.numpy_files import read_npy

PROGRAM = """
import data (block_batches)
fn loss(w: f32[d], x: f32[m, d]) -> f32 = mean((x @ w - 1.0)^2)
let x: f32[n, d] = OPEN("a.npy")
var w: f32[d] = zeros(d)
for batch in block_batches(n, 4, 8) { w = w - 0.1 * grad(loss)(w, x[batch]) }
print(w, mean(x), x[3], x[38..], n)
"""


def run(folder: Path, program: str, engine: str = "xla") -> str:
    said: list[str] = []
    run_program(check_program(Source("t.dfl", program)), Engine(engine), FileAccess(folder), 0, said.append)
    return "\n".join(said)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    np.save(tmp_path / "a.npy", np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32))
    return tmp_path


@pytest.mark.parametrize("engine", ["xla", "interpret"])
def test_it_computes_what_the_array_in_memory_does(folder: Path, engine: str) -> None:
    opened, read = (run(folder, PROGRAM.replace("OPEN", name), engine) for name in ("open_npy", "read_npy"))
    assert opened == read


def test_it_lies_in_the_file(folder: Path) -> None:
    array = map_array(read_npy(folder / "a.npy", NO_SPAN)[""], folder / "a.npy")
    mapping = mapping_of(array[3:, 1])
    assert mapping is not None and mapping_of(np.array(array)) is None
    assert array.ctypes.data % 64 == 0 and not array.flags.writeable
    os.truncate(folder / "a.npy", 200)
    with pytest.raises(DifflangError, match="has shrunk to 200 bytes"):
        check_mapping(mapping, NO_SPAN)


@pytest.mark.parametrize("use", ["print(sum(x))", "print(x)", "for row in x { let y = row }", 'print("{x}")'])
def test_a_statement_that_uses_a_file_that_has_shrunk_is_an_error(folder: Path, use: str) -> None:
    program = f'let x: f32[n, 3] = open_npy("a.npy")\nprint("now")\n{use}'

    def said(_: str) -> None:
        os.truncate(folder / "a.npy", 200)

    with pytest.raises(DifflangError, match="has shrunk") as caught:
        run_program(check_program(Source("t.dfl", program)), Engine("xla"), FileAccess(folder), 0, said)
    (found,) = caught.value.diagnostics
    assert found.code == "DL0701" and [label.span.position[0] for label in found.labels] == [3, 1]


def test_a_name_or_a_part_of_a_value_stays_in_the_file(folder: Path) -> None:
    """It is passed on, not copied: the copy would not know that its file has shrunk."""
    program = 'let x: f32[n, 3] = open_npy("a.npy")\nlet (y, _) = (x, n + 1)\nlet z = y\nprint("now")\nprint(z)'
    with pytest.raises(DifflangError, match="has shrunk"):
        checked = check_program(Source("t.dfl", program))
        run_program(checked, Engine("xla"), FileAccess(folder), 0, lambda _: os.truncate(folder / "a.npy", 200))


@pytest.mark.parametrize(
    ("array", "said"),
    [
        (np.arange(6, dtype=">f4").reshape(2, 3), "another byte order"),
        (np.asfortranarray(np.ones((2, 3), np.float32)), "an order that cannot be used in place"),
        (np.ones((2, 3)), "f64"),
        (np.ones((2, 4), np.float32), "f32[2, 4]"),
        (np.array("text"), "a text"),
    ],
)
def test_what_cannot_be_mapped(tmp_path: Path, array: np.ndarray, said: str) -> None:
    np.save(tmp_path / "a.npy", array)
    with pytest.raises(DifflangError) as caught:
        run(tmp_path, 'let x: f32[n, 3] = open_npy("a.npy")\nprint(sum(x))')
    assert said in caught.value.render() and "a.npy" in caught.value.render()


def test_an_empty_array(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.ones((0, 3), np.float32))
    assert run(tmp_path, 'let x: f32[n, 3] = open_npy("a.npy")\nprint(n, sum(x))') == "0 0.0"


@pytest.mark.parametrize("call", ["open_npy", "read_npy"])
def test_a_bool_that_is_none(tmp_path: Path, call: str) -> None:
    np.save(tmp_path / "a.npy", np.array([2, 0], np.uint8).view(np.bool_))
    with pytest.raises(DifflangError, match="neither 0 nor 1"):
        run(tmp_path, f'let x: bool[n] = {call}("a.npy")\nprint(sum(i32(x)))')
