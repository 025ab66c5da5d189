"""What was used least recently goes first, and a program that went is compiled again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

import difflang
from difflang.base.recently_used import DEFAULT_PROGRAMS, RecentlyUsed
from difflang.base.source import Source
from difflang.driver.checked_program import check_program
from difflang.driver.run_program import run_program
from difflang.execution.engine import Engine
from difflang.host.data.file_access import FileAccess


@pytest.fixture
def three() -> Iterator[None]:
    difflang.set_program_cache_size(3)
    yield
    difflang.set_program_cache_size(DEFAULT_PROGRAMS)


def test_the_least_recently_used_entry_goes(three: None) -> None:
    cache = RecentlyUsed[str, int]()
    assert [cache.add(name, k) for k, name in enumerate("abc")] == [[], [], []]
    assert cache.get("a") == 0
    assert cache.add("d", 3) == [1]
    assert (cache.get("b"), list(cache.entries)) == (None, ["c", "a", "d"])


def test_a_size_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        difflang.set_program_cache_size(0)
    with pytest.raises(TypeError, match="integer"):
        difflang.set_program_cache_size(cast(Any, 2.5))


def kept(f: difflang.Function) -> int:
    return len(f.loaded.recent)


def test_a_call_of_each_shape_keeps_the_last_ones(three: None) -> None:
    m = difflang.loads("fn f(x: f64[n]) -> f64 = g(x) + 1.0\nfn g(x: f64[n]) -> f64 = sum(x * x)", name="shapes")
    instances = m.f.loaded.checked.session.instances
    gradient = m.f.grad()
    sizes: list[int] = []
    for n in (*range(1, 9), 1, 8, 2):
        assert float(m.f(np.ones(n))) == n + 1
        assert gradient(np.ones(n)).tolist() == [2.0] * n
        sizes.append(len(instances))
    assert kept(m.f) == 3
    assert sizes[-1] <= max(sizes[:4])


def test_a_program_in_use_stays(three: None) -> None:
    f = difflang.loads("fn f(x: f64[n]) -> f64 = sum(x)", name="used").f
    f(np.ones(2))
    first = next(iter(f.loaded.recent.entries))
    for n in range(3, 12):
        f(np.ones(n))
        f(np.ones(2))
    assert first in f.loaded.recent.entries
    assert kept(f) == 3


def test_host_code_keeps_the_last_ones(three: None, tmp_path: Path) -> None:
    program = "fn f(x: f64[n]) -> f64 = sum(x)\nfor k in 1..10 { print(f(zeros(k) + 1.0)) }\n"
    checked, lines = check_program(Source("t.dfl", program)), list[str]()
    runner = run_program(checked, Engine("interpret"), FileAccess(tmp_path), 0, lines.append)
    assert lines == [f"{k}.0" for k in range(1, 10)]
    assert len(runner.units.programs) <= 3
    assert all(len(units) <= 3 for units in runner.units.by_node.values())
