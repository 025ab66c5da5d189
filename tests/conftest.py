"""What holds for the whole run: JAX's own differentiation raises when our package calls it (see jax_ad_guard)."""

from __future__ import annotations

import gc
import os
from collections.abc import Generator, Iterator

import pytest
from hypothesis import settings

import jax_ad_guard
from support import nightly, quick

settings.register_profile("untimed", settings(), deadline=None)  # how long an example takes, a busy machine decides
settings.load_profile("untimed")


@pytest.fixture(scope="session", autouse=True)
def no_jax_ad() -> Iterator[None]:
    """From the first test to the last, in every worker."""
    with jax_ad_guard.installed():
        yield


@pytest.fixture(scope="session", autouse=True)
def in_a_hurry() -> Iterator[None]:
    """Most programs of tests are compiled to run once."""
    with quick.installed():
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Around a module's own fixtures too, which may compile."""
    with quick.within(item):
        return (yield)


@pytest.fixture(scope="session", autouse=True)
def cache_of_the_tests(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What the processes that tests start keep is kept for all workers, and not in the user's folder."""
    room = tmp_path_factory.getbasetemp()
    os.environ["XDG_CACHE_HOME"] = str((room.parent if "PYTEST_XDIST_WORKER" in os.environ else room) / "cache")


def pytest_configure(config: pytest.Config) -> None:
    nightly.begin(config)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Before `-m` is asked."""
    nightly.mark_cases(items, whole_files=not any("::" in arg for arg in config.args))


def pytest_collection_finish() -> None:
    """What is there before the first test stays, so the collector need not look at it again: a tenth of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)
