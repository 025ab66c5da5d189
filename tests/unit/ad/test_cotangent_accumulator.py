"""Pieces of a cotangent are put side by side: the same numbers as padding and adding, in one equation."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import difflang
from difflang.ad.cotangent_accumulator import nonoverlapping_rows

HEADER = "float f64\n"
READS = {
    "all of it": ("x[0] * x[1] * x[2] * x[3]", 1, 0),
    "with gaps": ("x[1]^2 * x[3]", 1, 0),
    "one part": ("sum(x[1..3]^3)", 0, 1),
    "a part twice": ("x[2]^2 + sin(x[2]) * x[0]", 1, 0),
    "parts that overlap": ("sum(x[0..3] * x[1..4])", 0, 2),
    "the whole too": ("sum(x * x) * x[1] * x[2]", 1, 0),
}


@pytest.mark.parametrize("name", READS)
def test_reads_of_parts_give_one_concatenation(name: str) -> None:
    body, concats, pads = READS[name]
    f = difflang.loads(f"{HEADER}fn f(x: f64[4]) -> f64 = {body}\n", name="parts").f
    x = np.array([0.3, -1.2, 0.7, 2.0])
    text = f.grad("x").ir("optimized", x)
    assert (text.count(" = concat "), text.count(" = pad ")) == (concats, pads)
    steps = np.eye(4) * 1e-6
    differences = [(f.interpret(x + h) - f.interpret(x - h)) / 2e-6 for h in steps]
    for found in (f.grad("x")(x), f.grad("x").interpret(x)):
        np.testing.assert_allclose(found, differences, rtol=1e-7, atol=1e-9)


def test_columns_and_rows_of_one_matrix() -> None:
    source = f"{HEADER}fn f(m: f64[2, 3]) -> f64 = sum(m[0] * m[1]) + m[0, 2] * sum(m[.., 1]) * m[1, 2]\n"
    f = difflang.loads(source, name="matrix").f
    m = np.array([[0.3, -1.2, 0.7], [2.0, 0.4, -0.9]])
    want = np.zeros((2, 3))
    want[0] += m[1]
    want[1] += m[0]
    want[0, 2] += (m[0, 1] + m[1, 1]) * m[1, 2]
    want[1, 2] += m[0, 2] * (m[0, 1] + m[1, 1])
    want[:, 1] += m[0, 2] * m[1, 2]
    np.testing.assert_allclose(f.grad("m")(m), want, rtol=1e-14)


def test_rows_hold_pieces_that_do_not_overlap() -> None:
    windows = [(2, 4), (0, 2), (1, 3), (4, 5), (0, 5), (3, 4)]
    made = [[w for w, _ in row] for row in nonoverlapping_rows([(w, None) for w in windows])]  # pyright: ignore[reportArgumentType]
    assert sorted(w for row in made for w in row) == sorted(windows)
    for row in made:
        assert all(a[1] <= b[0] for a, b in pairwise(row))
    assert len(made) == 3


def test_a_second_check_of_one_index_is_left_out() -> None:
    source = f"{HEADER}fn f(x: f64[4], i: i32) -> f64 = x[i] * x[i] + (if x[0] > 0.0 {{ x[i] }} else {{ 0.0 }})\n"
    f = difflang.loads(source, name="twice").f
    x = np.array([0.3, -1.2, 0.7, 2.0])
    assert f.ir("optimized", x, np.int32(2)).count(" = ge ") == 1
    with pytest.raises(difflang.DifflangError, match="index 4 is out of range"):
        f(x, np.int32(4))


def test_a_check_in_one_branch_does_not_stand_for_the_other() -> None:
    body = "if x[0] > 1.0 { x[i] } else { 2.0 * x[i] }"
    f = difflang.loads(f"{HEADER}fn f(x: f64[4], i: i32) -> f64 = {body}\n", name="branches").f
    for first in (0.3, 2.0):
        with pytest.raises(difflang.DifflangError, match="index 4 is out of range"):
            f(np.array([first, -1.2, 0.7, 2.0]), np.int32(4))
