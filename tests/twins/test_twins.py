"""The twins and the tables are what they say: checked without difflang."""

from __future__ import annotations

from importlib import import_module

import jax
import numpy as np
import pytest

from twins import EXAMPLES, NAMES, differentiated, fit_curve, source
from twins.data import table


def test_the_certified_curve_is_a_least_squares_fit() -> None:
    """NIST's parameters give NIST's sum of squares, and no direction improves it: so table, model and values agree."""
    with jax.enable_x64(True):
        _, x, y = fit_curve.arguments()
        b = fit_curve.CERTIFIED
        squares, slope = jax.value_and_grad(fit_curve.loss)(b, x, y)
        assert squares == pytest.approx(fit_curve.CERTIFIED_SUM_OF_SQUARES, rel=1e-10)
        at_start = jax.grad(fit_curve.loss)(fit_curve.START, x, y)
        assert np.all(np.abs(slope) < 1e-7 * np.abs(at_start))


def test_the_digits_are_the_bundled_ones() -> None:
    data = table("digits.csv")
    assert data.shape == (1797, 65)
    pixels, label = data[:, :64], data[:, 64]
    assert pixels.min() == 0 and pixels.max() == 16 and np.all(data == np.round(data))
    assert np.bincount(label.astype(int)).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]


def test_the_medical_table_is_the_bundled_one() -> None:
    """Against the summary that comes with the data."""
    data = table("breast_cancer.csv")
    assert data.shape == (569, 31)
    assert np.bincount(data[:, 30].astype(int)).tolist() == [212, 357]
    header = (EXAMPLES / "data" / "breast_cancer.csv").read_text(encoding="utf-8").splitlines()[0].split(",")
    summary = {"radius_mean": (6.981, 28.11), "area_error": (6.802, 542.2), "concavity_worst": (0.0, 1.252)}
    for name, (low, high) in summary.items():
        column = data[:, header.index(name)]
        assert (column.min(), column.max()) == (low, high)


def test_the_sonnets_are_their_numbers() -> None:
    """A new line is 0, a space 1, and a to z are 2 to 27."""
    text = (EXAMPLES / "data" / "sonnets.txt").read_text(encoding="utf-8")
    assert "".join("\n abcdefghijklmnopqrstuvwxyz"[int(k)] for k in table("sonnets.csv")) == text
    sonnets = [sonnet.splitlines() for sonnet in text.split("\n\n")]
    assert [len(lines) for lines in sonnets] == 6 * [14]


@pytest.mark.parametrize("name", NAMES)
def test_a_twin_can_be_differentiated_at_its_arguments(name: str) -> None:
    """No result is zero or not finite: such a gradient would compare equal too easily."""
    _, gradient = differentiated(name)
    for leaf in jax.tree.leaves(gradient):
        assert leaf.dtype == np.float64 and np.all(np.isfinite(leaf)) and np.any(leaf != 0)


@pytest.mark.parametrize("name", NAMES)
def test_an_example_has_its_declarations_apart(name: str) -> None:
    text = source(name)
    twin = import_module(f"twins.{name}")
    assert f"fn {getattr(twin, 'ENTRY', 'loss')}(" in text and "read_csv" not in text and "print(" not in text
    assert text.count("{") == text.count("}")
    swapped = source(name, swap=("f32", "f64"))
    assert "f32" not in swapped and swapped.startswith("float f64\n")
