"""The shortest decimal that identifies a floating-point number."""

from __future__ import annotations

from typing import Any

import numpy as np


def shortest_decimal(x: Any) -> float:
    """The number with the shortest decimal that gives `x` again when parsed as f64 and rounded to its type."""
    short = float(str(x))
    with np.errstate(all="ignore"):
        return short if type(x)(short) == x else float(x)
