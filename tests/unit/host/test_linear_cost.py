"""What a program of many statements costs."""

from __future__ import annotations

import tracemalloc

import pytest

from difflang.base.source import Source
from difflang.driver.checked_program import check_program
from support.work import work


def check_many(count: int, value: str) -> None:
    text = "".join(f"let x{i} = {value}\n" for i in range(count))
    assert not check_program(Source("<program>", text)).session.diagnostics


@pytest.mark.parametrize("value", ["1.5", "3"])  # a whole number may be a size
def test_a_statement_costs_the_same_after_many_others(value: str) -> None:
    check_many(10, value)
    few, many = (work(lambda n=n: check_many(n, value)) for n in (100, 800))
    assert many < 10 * few


def test_a_statement_takes_the_same_memory_after_many_sizes() -> None:
    peaks: list[int] = []
    for count in (300, 2400):
        tracemalloc.start()
        check_many(count, "3")
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 12 * peaks[0]
