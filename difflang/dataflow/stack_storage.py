"""Swapping: what loops push on stacks stays in memory up to a limit, and goes to a file beyond it."""

from __future__ import annotations

import os
from math import prod
from mmap import mmap
from tempfile import TemporaryFile
from typing import Any
from weakref import finalize

import numpy as np

from difflang.base.source_files import write_error
from difflang.ir.array_types import Array
from difflang.ir.interpreter import stacked_zeros
from difflang.ir.symbolic_dims import Dim
from difflang.ir.tensor_types import Tensor, numpy_dtype

# Each file takes a descriptor, of which a process has about a thousand.
FIRST_SEGMENT_BYTES, LAST_SEGMENT_BYTES = 2**16, 2**26
ALIGNMENT = 64
ZEROS = bytes(2**16)


class StackStorage:
    """What the loops of one device push on stacks. Without a limit, in bytes, all of it stays in memory.

    Arrays in a file are like any other to those who read them; they come back to memory when they are popped. A file
    is gone with the last array in it.
    """

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit
        self.held = 0  # bytes of pushed arrays that are alive in memory
        self.swapped_out = self.swapped_in = self.swapped_bytes = 0
        self.segment, self.used = np.empty(0, np.uint8), 0

    def keep(self, value: Any) -> Any:
        """A value that is pushed, where it stays until it is popped. Errors: DL0710."""
        if self.limit is None:
            return value
        if type(value) is list:
            return [self.keep(x) for x in value]
        if not isinstance(value, np.ndarray) or is_in_file(value):
            return value
        if self.held + value.nbytes <= self.limit:
            return self.hold(value)
        stored = self.allocate(value.shape, value.dtype)
        stored[...] = value
        self.swapped_out += 1
        return stored

    def zeros(self, item: Tensor, length: Dim) -> Array:
        """An array for all items of a stack. Errors: DL0710."""
        if self.limit is None:
            return stacked_zeros(item, length)
        shape = tuple([n for n in (length, *item.shape) if isinstance(n, int)])
        dtype = np.dtype(numpy_dtype(item.dtype))
        if self.held + prod(shape) * dtype.itemsize <= self.limit:
            return self.hold(stacked_zeros(item, length))
        return self.allocate(shape, dtype)

    def fetch(self, sequence: Any, item: Any) -> Any:
        """An item of a sequence in memory, where its reader needs it."""
        if self.limit is None or not (is_in_file(item) or is_in_file(sequence)):
            return item
        self.swapped_in += 1
        return np.array(item)

    def hold(self, array: Array) -> Array:
        """Count an array in memory as long as it is alive."""
        self.held += array.nbytes
        finalize(array, self.release, array.nbytes).atexit = False
        return array

    def release(self, bytes: int) -> None:
        self.held -= bytes

    def allocate(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """Zeros in a file. Errors: DL0710 if it has no room."""
        bytes = prod(shape) * dtype.itemsize
        if self.used + bytes > len(self.segment):
            # Few files for much, and little disk for little.
            usual = min(max(2 * len(self.segment), FIRST_SEGMENT_BYTES), LAST_SEGMENT_BYTES)
            self.segment, self.used = new_segment(max(bytes, usual)), 0
        found = self.segment[self.used : self.used + bytes].view(dtype).reshape(shape)
        self.used += -(-bytes // ALIGNMENT) * ALIGNMENT
        self.swapped_bytes += bytes
        return found


def new_segment(bytes: int) -> Array:
    """Zeros in a new temporary file. Errors: DL0710 if the disk has no room, which would kill whoever writes later."""
    try:
        with TemporaryFile() as file:
            for start in range(0, bytes, len(ZEROS)):
                file.write(ZEROS[: bytes - start])
            file.flush()
            return np.frombuffer(mmap(file.fileno(), os.fstat(file.fileno()).st_size), np.uint8)
    except OSError as error:
        raise write_error("stacks of the dataflow machine", error) from None


def is_in_file(array: Any) -> bool:
    while isinstance(array, np.ndarray):
        array = array.base
    return isinstance(array, memoryview) and isinstance(array.obj, mmap)
