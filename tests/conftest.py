"""What holds for the whole run: JAX's own differentiation raises when our package calls it (see jax_ad_guard).

Every law is tested on every change, by the README's command and `.ci/run`, on some of its cases; `just nightly` tests it
on all of them. Which cases are nightly stands at the test, as a mark (see `support/nightly.py`). Where whole folders are
run, long tables are thinned by how long they take as well: of a function as many cases as fit in 0.4 seconds, at least
one, and none that takes longer than 0.8 (see `support/durations.py`); `pytest FILE` tests all of a file's. In short:

| law | on every change | at night as well |
| --- | --- | --- |
| an op compiled is its reference, and so are its derivatives | f32, f64 and one other type, one call each | all types and calls; matrices and gamma functions |
| an op's jvp, transpose, second and third derivative | every op, interpreted | matrix solves, exponentials |
| digits of functions and slopes | 250 points; not the gamma family | 1000 points; gamma, digamma, polygamma, left of zero |
| library functions are as elsewhere | values, and every fourth gradient; of long tables every second row, in f64 | all rows and gradients, f32, compiled as for users |
| the library's own tests and examples | some interpreted, some compiled | all, compiled too |
| rules of the library are derivatives | second derivatives of special functions | all, f32 too |
| the steps of `docs/contributing/` work | | all pages |
| examples | own tests interpreted | all to the end, from the command line, against twins |
| loops and branches in derivatives | one program of a kind, first order; a few of second order | every length, order and nesting, compiled |
| random programs and graphs | 20 | 50 and 60; `just fuzz` any number |
| a broken rule is found | twenty ops | every op |
| long programs, memory limits, interrupts, real terminals | what takes less than 0.8 seconds | all |
| editors | what their files promise; the server by a client | packaging of the extension, Vim on every file |
"""

# ruff: noqa: E501 - a row of the table is a line

from __future__ import annotations

import gc
import os
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

import jax_ad_guard
from support import durations, nightly, quick
from support.declared_ops import restored_ops

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


@pytest.fixture(autouse=True)
def ops_of_the_package() -> Iterator[None]:
    """What a test declares is gone after it."""
    with restored_ops():
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
    durations.begin(config)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Before `-m` is asked."""
    nightly.mark_cases(items, whole_files=not any("::" in arg for arg in config.args))
    named = {Path(arg.partition("::")[0]).resolve() for arg in config.args}
    durations.thin(item for item in items if item.path not in named)


def pytest_collection_finish() -> None:
    """What is there before the first test stays, so the collector need not look at it again: a tenth of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)
