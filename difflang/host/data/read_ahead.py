"""Items made ahead of their use by a thread, a few at a time: a file is read while a device computes."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

T = TypeVar("T")


def read_ahead(items: Iterable[T], most: int) -> Iterator[T]:
    """The same items in the same order; a thread makes `most` of them ahead. An error of theirs is raised here."""
    from concurrent.futures import ThreadPoolExecutor  # it imports `logging`: few programs need it

    end: Any = object()
    rest = iter(items)
    pool = ThreadPoolExecutor(1, "read-ahead")
    try:
        ready = deque([pool.submit(next, rest, end) for _ in range(most)])
        while (item := ready.popleft().result()) is not end:
            ready.append(pool.submit(next, rest, end))
            yield item
    finally:
        pool.shutdown(cancel_futures=True)
