"""The tables beside the examples, read without difflang."""

from __future__ import annotations

import numpy as np

from twins import EXAMPLES


def table(name: str) -> np.ndarray:
    """A table of the examples as f64, without its header."""
    return np.loadtxt(EXAMPLES / "data" / name, delimiter=",", skiprows=1)
