"""What holds for the whole run: JAX's own differentiation raises when our package calls it (see jax_ad_guard)."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

import jax_ad_guard


@pytest.fixture(scope="session", autouse=True)
def no_jax_ad() -> Iterator[None]:
    """From the first test to the last, in every worker."""
    with jax_ad_guard.installed():
        yield


def pytest_collection_finish() -> None:
    """What is there before the first test stays, so the collector need not look at it again: a tenth of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)
