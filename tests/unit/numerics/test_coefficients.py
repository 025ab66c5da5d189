"""The coefficients that lowerings hold are those of the functions they are said to be of."""

from __future__ import annotations

import mpmath as mp
import numpy as np
import pytest

from difflang.ops.elementwise import gamma_functions, gelu
from support.fits import FITS, PAIRS, Fit, gelu_slope
from support.known import density, psi


@pytest.mark.parametrize("fit", FITS, ids=str)
@pytest.mark.nightly_cases("digamma near its root", "gelu's slope near its root")
def test_a_fit_is_that_of_its_function(fit: Fit) -> None:
    np.testing.assert_allclose(fit.coefficients, fit.again(), rtol=1e-12)


@pytest.mark.parametrize("fit", PAIRS, ids=str)
def test_a_fit_in_pairs_has_twice_the_digits(fit: Fit) -> None:
    with mp.workdps(60):
        for (high, low), exact in zip(fit.coefficients, fit.exactly(60), strict=True):
            assert abs(mp.mpf(high) + mp.mpf(low) - exact) <= mp.mpf(2) ** -105 * abs(exact)


def test_roots_are_kept_to_32_digits() -> None:
    with mp.workdps(45):
        root = mp.findroot(mp.digamma, 1.46)
        assert abs(mp.mpf(gamma_functions.ROOT) + mp.mpf(gamma_functions.ROOT_LOW_BITS) - root) < 1e-32
        assert float(psi(1, root)) == pytest.approx(gamma_functions.ROOT_SLOPE, rel=1e-15)
        root = mp.findroot(gelu_slope, -0.75)
        assert abs(mp.mpf(gelu.ROOT) + mp.mpf(gelu.ROOT_LOW_BITS) - root) < 1e-32
        assert float((2 - root**2) * density(root)) == pytest.approx(gelu.ROOT_SLOPE, rel=1e-15)
