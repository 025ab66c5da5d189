"""One executable a key, also for threads that ask at once."""

from __future__ import annotations

import threading
import time

import pytest

from difflang.runtime.executable_cache import ExecutableCache


def test_a_key_is_made_once() -> None:
    cache, made = ExecutableCache[int](), list[int]()

    def make() -> int:
        made.append(1)
        time.sleep(0.01)
        return len(made)

    threads = [threading.Thread(target=cache.get, args=("a", make)) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert made == [1]
    assert cache.get("a", make) == 1
    assert cache.get("b", make) == 2
    assert len(cache) == 2


def test_what_raises_is_tried_again() -> None:
    cache = ExecutableCache[int]()

    def fails() -> int:
        raise ValueError

    with pytest.raises(ValueError):
        cache.get("a", fails)
    assert cache.get("a", lambda: 3) == 3


def test_cleared() -> None:
    cache = ExecutableCache[int]()
    cache.get("a", lambda: 1)
    cache.clear()
    assert cache.get("a", lambda: 2) == 2
