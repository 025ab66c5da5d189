"""What holds for the whole run: JAX's own differentiation raises when our package calls it (see jax_ad_guard)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import jax_ad_guard


@pytest.fixture(scope="session", autouse=True)
def no_jax_ad() -> Iterator[None]:
    """From the first test to the last, in every worker."""
    with jax_ad_guard.installed():
        yield
