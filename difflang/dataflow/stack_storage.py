"""Swapping: what loops push on stacks stays in memory up to a limit, and goes to a file beyond it."""

from __future__ import annotations

import mmap as mmap_module
import os
from math import prod
from mmap import mmap
from tempfile import TemporaryFile, gettempdir
from typing import Any
from weakref import finalize

import numpy as np
from msgspec.structs import replace

from difflang.base.diagnostics import DifflangError
from difflang.base.source_files import write_error
from difflang.ir.array_types import Array
from difflang.ir.interpreter import stacked_zeros
from difflang.ir.symbolic_dims import Dim
from difflang.ir.tensor_types import Tensor, numpy_dtype

# Each file takes a descriptor, of which a process has about a thousand.
FIRST_SEGMENT_BYTES, LAST_SEGMENT_BYTES = 2**16, 2**26
ALIGNMENT = 64
ZEROS = bytes(2**16)


class HeldBytes:
    """The bytes of arrays on stacks that are alive in memory. Arrays refer to it, and not to the storage."""

    def __init__(self) -> None:
        self.bytes = 0

    def release(self, bytes: int) -> None:
        self.bytes -= bytes


class StackStorage:
    """What the loops of one device push on stacks. Without a limit, in bytes, all of it stays in memory.

    Arrays in a file are like any other to those who read them; they come back to memory when they are popped. A file
    is gone with the last array in it.
    """

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit
        self.held = HeldBytes()
        self.swapped_out = self.swapped_in = self.swapped_bytes = 0
        self.segment, self.used = np.empty(0, np.uint8), 0

    def keep(self, value: Any) -> Any:
        """A value that is pushed, where it stays until it is popped. Errors: DL0710."""
        if self.limit is None:
            return value
        if type(value) is list:
            return [self.keep(x) for x in value]
        if not isinstance(value, np.ndarray) or file_of(value) is not None:
            return value
        if self.held.bytes + value.nbytes <= self.limit:
            return self.hold(value.view())  # the array itself may live long after it left the stack
        stored = self.allocate(value.shape, value.dtype)
        stored[...] = value
        drop_pages(stored)
        self.swapped_out += 1
        return stored

    def zeros(self, item: Tensor, length: Dim) -> Array:
        """An array for all items of a stack. Errors: DL0710."""
        if self.limit is None:
            return stacked_zeros(item, length)
        shape = tuple([n for n in (length, *item.shape) if isinstance(n, int)])
        dtype = np.dtype(numpy_dtype(item.dtype))
        if self.held.bytes + prod(shape) * dtype.itemsize <= self.limit:
            return self.hold(stacked_zeros(item, length))
        return self.allocate(shape, dtype)

    def fetch(self, sequence: Any, item: Any) -> Any:
        """An item of a sequence in memory, where its reader needs it."""
        if self.limit is None or (file_of(item) is None and file_of(sequence) is None):
            return item
        self.swapped_in += 1
        return in_memory(item)

    def hold(self, array: Array) -> Array:
        """Count an array in memory as long as it is alive."""
        self.held.bytes += array.nbytes
        finalize(array, self.held.release, array.nbytes).atexit = False
        return array

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
        found = write_error(f"stacks of the dataflow machine to {gettempdir()}", error).diagnostics[0]
        way = "raise the limit of stacks in memory, or set TMPDIR to a folder on a disk with more room"
        raise DifflangError(replace(found, helps=(way,))) from None


def file_of(array: Any) -> mmap | None:
    """The file that an array lies in, as mapped memory."""
    while isinstance(array, np.ndarray):
        array = array.base
    found = array.obj if isinstance(array, memoryview) else None
    return found if isinstance(found, mmap) else None


def in_memory(value: Any) -> Any:
    """A copy in memory of an array that lies in a file; anything else as it is."""
    if file_of(value) is None:
        return value
    found = np.array(value)
    drop_pages(value)
    return found


def drop_pages(array: Array) -> None:
    """Give the memory back that mapped the file of an array; the system reads it again where it is needed."""
    file = file_of(array)
    if file is not None and hasattr(mmap_module, "MADV_DONTNEED"):
        file.madvise(mmap_module.MADV_DONTNEED)
