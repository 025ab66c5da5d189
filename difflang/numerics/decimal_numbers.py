"""Numbers written as decimals, in programs and data files: rounded once, and never silently to infinity."""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np

from difflang.ir.tensor_types import DType, numpy_dtype

# `float` also takes `1_000` and the digits of other scripts.
DECIMAL = re.compile(r"\s*[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?|inf|infinity|nan)\s*", re.ASCII | re.IGNORECASE)


def is_decimal(text: str) -> bool:
    return DECIMAL.fullmatch(text) is not None


def real_part_dtype(dtype: DType) -> Any:
    """The element type of NumPy for a float type, or for the parts of a complex one."""
    return np.real(np.zeros(1, numpy_dtype(dtype))).dtype


def nearest_floats(texts: Sequence[str], parsed: np.ndarray, target: Any) -> np.ndarray[Any, Any]:
    """The numbers of a float type nearest to the texts, of which `parsed` are the nearest f64.

    To round an f64 again goes wrong where it lies in the middle between two numbers of the type and the text does not.
    """
    found = round_f64(parsed, target)
    # Nothing was rounded a second time.
    if found.dtype.itemsize >= 8:
        return found
    up, down, above, below = neighbours(found)
    ties: list[int] = np.flatnonzero((parsed == above) | (parsed == below)).tolist()
    for k in ties:
        exact, tie = Decimal(texts[k].strip()), Decimal(float(parsed[k]))
        lower, upper = (found, up) if parsed[k] == above[k] else (down, found)
        if exact != tie:
            found[k] = (upper if exact > tie else lower)[k]
    return found


def round_f64(x: np.ndarray, target: Any) -> np.ndarray[Any, Any]:
    """The nearest numbers of a float type. `astype` rounds to f32 on the way to bf16."""
    with np.errstate(all="ignore"):
        found = x.astype(target)
    if found.dtype.itemsize != 2:
        return found
    up, down, above, below = neighbours(found)
    return np.where(x > above, up, np.where(x < below, down, found))


def neighbours(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The next numbers above and below, and the middles before them."""
    with np.errstate(all="ignore"):
        up, down = (np.nextafter(x, x.dtype.type(limit)) for limit in (np.inf, -np.inf))
        return up, down, middle(x, up), middle(x, down)


def middle(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The middle between neighbours, exact in f64; infinity counts as the number after the largest."""
    zero, infinity = x.dtype.type(0), x.dtype.type(np.inf)
    largest = np.nextafter(infinity, zero)
    after = 2 * np.float64(largest) - np.float64(np.nextafter(largest, zero))
    return (np.clip(x.astype(np.float64), -after, after) + np.clip(y.astype(np.float64), -after, after)) / 2


def overflowed(texts: Sequence[str], found: np.ndarray) -> int | None:
    """The place of the first text that is finite but has no finite number of the type."""
    places: list[int] = np.flatnonzero(np.isinf(found)).tolist()
    return next((k for k in places if "inf" not in texts[k].lower()), None)
