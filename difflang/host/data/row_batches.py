"""The rows of arrays in batches, read from their files as they are needed, in order or shuffled.

A *block* is consecutive rows that are read together, and a *window* the blocks that are in memory at a time. A shuffle
puts the blocks into random order, and then the rows of each window: all rows, if everything fits in one window or is in
memory anyway.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from difflang.base.diagnostics import DifflangError, Label
from difflang.base.source import Span
from difflang.host.data.mapped_files import mapping_of, read_mapped_rows
from difflang.host.data.numpy_files import aligned_bytes
from difflang.host.data.read_ahead import read_ahead
from difflang.host.data.stored_columns import ColumnInFile

BLOCK_BYTES = 1 << 20
WINDOW_BYTES = 1 << 26
AHEAD_BYTES = 1 << 25  # of batches that wait for the device
MOST_AHEAD = 16

Leaves = tuple[np.ndarray, ...]


class RowBatches(Struct, frozen=True, eq=False):
    """The rows of some arrays with equally many, `size` at a time; shuffled if there is a key."""

    arrays: tuple[np.ndarray | ColumnInFile, ...]  # an array may be one in a file too
    size: int
    key: np.ndarray | None
    drop_last: bool
    span: Span  # for errors

    @property
    def rows(self) -> int:
        return self.arrays[0].shape[0]

    def __len__(self) -> int:
        full, rest = divmod(self.rows, self.size)
        return full + (rest > 0 and not self.drop_last)

    def __iter__(self) -> Iterator[Leaves]:
        """The batches. What is in files is read ahead by a thread. Errors: DL0701, DL0703, DL0704."""
        if not any(map(is_in_file, self.arrays)):
            return cut_batches(self.windows(), self.size, self.drop_last)
        ahead = min(max(AHEAD_BYTES // (self.size * self.row_bytes), 1), MOST_AHEAD)
        return read_ahead(cut_batches(read_ahead(self.windows(), 1), self.size, self.drop_last), ahead)

    @property
    def row_bytes(self) -> int:
        return max(sum(x.dtype.itemsize * prod(x.shape[1:]) for x in self.arrays), 1)

    def blocks(self) -> np.ndarray:
        """The first and the last but one row of each block. A table has blocks of its own."""
        tables = [x.starts for x in self.arrays if isinstance(x, ColumnInFile)]
        if tables:
            starts = min(tables, key=len)
        elif any(map(is_in_file, self.arrays)):
            starts = (*range(0, self.rows, max(BLOCK_BYTES // self.row_bytes, 1)), self.rows)
        else:
            starts = (0, self.rows)
        return np.array(list(pairwise(starts)), np.int64).reshape(-1, 2)

    def windows(self) -> Iterator[RowWindow]:
        blocks, shuffle = self.blocks(), None
        if self.key is not None:
            shuffle = np.random.default_rng(self.key.tolist())
            blocks = shuffle.permutation(blocks)
        lengths = blocks[:, 1] - blocks[:, 0]
        # A block belongs to the window in which its first row is.
        numbers = (np.cumsum(lengths) - lengths) * self.row_bytes // WINDOW_BYTES
        for number in np.unique(numbers):
            ranges = merged_ranges(blocks[numbers == number])
            with label_errors(self.span):
                arrays = tuple([read_ranges(x, ranges, self.span) for x in self.arrays])
            yield RowWindow(arrays, shuffle.permutation(len(arrays[0])) if shuffle is not None else None)


@contextmanager
def label_errors(span: Span) -> Generator[None]:
    """Say in an error, which names where a file was opened, also where its rows are used."""
    try:
        yield
    except DifflangError as error:
        first, *rest = error.diagnostics
        if all(label.span != span for label in first.labels):
            first = replace(first, labels=(*first.labels, Label(span, "its rows are used here")))
        raise DifflangError(first, *rest) from None


class RowWindow(Struct, frozen=True, eq=False):
    """Rows that are in memory, in their order or another one."""

    arrays: Leaves
    order: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.arrays[0])

    def part(self, start: int, stop: int) -> Leaves:
        """Some of the rows."""
        if self.order is None:
            return tuple([x[start:stop] for x in self.arrays])
        return tuple([x.take(self.order[start:stop], axis=0) for x in self.arrays])


def cut_batches(windows: Iterable[RowWindow], size: int, drop_last: bool) -> Iterator[Leaves]:
    """Batches of the rows of windows, one after the other; a batch may begin in one and end in the next."""
    begun: list[Leaves] = []
    missing = size
    for window in windows:
        start = 0
        while start < len(window):
            stop = min(start + missing, len(window))
            begun.append(window.part(start, stop))
            start, missing = stop, missing - (stop - start)
            if not missing:
                yield joined(begun)
                begun, missing = [], size
    if begun and not drop_last:
        yield joined(begun)


def joined(parts: Sequence[Leaves]) -> Leaves:
    return parts[0] if len(parts) == 1 else tuple(map(np.concatenate, zip(*parts, strict=True)))


def is_in_file(array: Any) -> bool:
    """Whether an array is in a file, and not in memory."""
    return array.whole is None if isinstance(array, ColumnInFile) else mapping_of(array) is not None


def merged_ranges(ranges: Iterable[Sequence[int]]) -> list[tuple[int, int]]:
    """Ranges of rows in their order, those that follow each other as one."""
    found: list[tuple[int, int]] = []
    for start, stop in ranges:
        first = found.pop()[0] if found and found[-1][1] == start else start
        found.append((int(first), int(stop)))
    return found


def read_ranges(array: np.ndarray | ColumnInFile, ranges: Sequence[tuple[int, int]], span: Span) -> np.ndarray:
    """Ranges of rows, one after the other; those of an array in memory are not copied if they are in one range."""
    mapping = mapping_of(array)
    if len(ranges) == 1 and mapping is None:
        return stored_rows(array, *ranges[0])
    shape = (sum(stop - start for start, stop in ranges), *array.shape[1:])
    found = aligned_bytes(array.dtype.itemsize * prod(shape)).view(array.dtype).reshape(shape)
    at = 0
    for start, stop in ranges:
        into = found[at : at + stop - start]
        if isinstance(array, np.ndarray) and mapping is not None:
            read_mapped_rows(array, mapping, start, into, span)
        else:
            into[...] = stored_rows(array, start, stop)
        at += stop - start
    return found


def stored_rows(array: np.ndarray | ColumnInFile, start: int, stop: int) -> np.ndarray:
    return array.rows(start, stop) if isinstance(array, ColumnInFile) else array[start:stop]
