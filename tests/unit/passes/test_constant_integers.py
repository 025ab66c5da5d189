"""Integers and conditions that are everywhere the same, by constants alone, are constants; others stay."""

from __future__ import annotations

import pytest

import difflang
from difflang.ir.array_types import Array
from difflang.ir.builder import Builder
from difflang.ir.graph import Graph, Value
from difflang.ir.symbolic_dims import dim_name
from difflang.ir.tensor_types import I32, Tensor
from difflang.passes import constant_integers
from difflang.passes.constant_integers import ConstantIntegers, fold_known_integers

FIVE = Tensor(I32, (5,))


def compared(least: int, *, of_run: bool = False) -> Graph:
    """Whether sums of the numbers before each of 0 to 4 are at least `least`."""
    home = Builder()
    numbers = home.param(FIVE) if of_run else home.one("iota", type=FIVE, axis=0)
    sums = home.one("cumsum", numbers, axis=0, reverse=False)
    return home.finish([home.one("ge", sums, home.const(least, FIVE))])


@pytest.mark.parametrize(("least", "value"), [(0, True), (11, False), (3, None)])
def test_only_what_holds_everywhere_or_nowhere_is_folded(least: int, value: bool | None) -> None:
    graph = compared(least)
    last = fold_known_integers(graph).eqns[-1]
    assert last.attrs.get("value") == value
    assert (last.op.name == "const") == (value is not None)


def test_what_the_run_gives_stays() -> None:
    graph = compared(0, of_run=True)
    assert fold_known_integers(graph) is graph


def test_large_arrays_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constant_integers, "MAX_NUMBERS", 4)
    graph = compared(0)
    assert fold_known_integers(graph) is graph


@pytest.mark.filterwarnings("error")
def test_a_quotient_by_zero_warns_of_nothing() -> None:
    home = Builder()
    quotients = home.one("floor_div", home.const(7, FIVE), home.one("iota", type=FIVE, axis=0))
    graph = home.finish([home.one("ge", quotients, home.const(3, FIVE))])
    assert fold_known_integers(graph) is graph


def test_a_size_with_a_name_is_not_known() -> None:
    home = Builder()
    size = home.const(dim_name("n"), Tensor(I32))  # pyright: ignore[reportArgumentType]
    graph = home.finish([home.one("ge", size, home.const(0, Tensor(I32)))])
    assert fold_known_integers(graph) is graph


@pytest.mark.parametrize(("start", "value"), [(-1, 2), (0, None)])
def test_an_integer_that_is_everywhere_the_same_is_folded(start: int, value: int | None) -> None:
    home = Builder()
    numbers = home.one("iota", type=FIVE, axis=0)
    graph = home.finish(
        [home.one("select", home.one("gt", numbers, home.const(start, FIVE)), home.const(2, FIVE), numbers)]
    )
    assert fold_known_integers(graph).eqns[-1].attrs.get("value") == value


def test_checks_in_branches_of_maps_are_proved() -> None:
    text = """
fn lower(packed: f64[3]) -> f64[3, 3] = [
  for i in 0..3, j in 0..3 => if i > j { packed[j * 3 - j * (j + 1) // 2 + i - j - 1] } else { 0 }
]
fn all(packed: f64[4, 3]) -> f64[4, 3, 3] = [for k => lower(packed[k])]
"""
    graph = difflang.loads(text).all.ir("optimized", "f64[4, 3]")
    assert "ge " not in graph
    assert "argmax" not in graph


def test_numbers_that_nobody_reads_any_more_are_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[int] = []

    class Watched(ConstantIntegers):
        def numbers(self, value: Value) -> Array | None:
            held.append(len(self.found))
            return super().numbers(value)

    monkeypatch.setattr(constant_integers, "ConstantIntegers", Watched)
    home = Builder()
    chain = home.one("iota", type=FIVE, axis=0)
    for _ in range(20):
        chain = home.one("mul", chain, chain)
    fold_known_integers(home.finish([chain]))
    assert len(held) == 20
    assert max(held) <= 2
