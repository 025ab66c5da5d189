"""XLA's back end in a hurry: up to half the time of tests that compile goes into machine code that runs once.

What we hand to XLA is what users' programs become; only how carefully it is made into machine code differs. Tests of
numbers to the last digits, of examples, twins, benchmarks, memory and hazards are marked `as_users` or lie in a folder
where all is: there nothing differs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import jax
import pytest

import difflang.runtime.compile

OPTIONS = {"xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": False}
AS_USERS = ("canary", "docs", "stdlib", "twins")  # folders of tests


class Hurry:
    """Whether programs are compiled in a hurry now."""

    on = False


def belongs(item: pytest.Item) -> bool:
    """Whether a test may be compiled in a hurry."""
    return item.get_closest_marker("as_users") is None and not {*item.path.parts} & {*AS_USERS}


@contextmanager
def installed() -> Iterator[None]:
    """Programs are compiled in a hurry while `Hurry.on`."""
    compiled = difflang.runtime.compile.compiled
    known = {name: value for name, value in OPTIONS.items() if is_known(name, value)}

    def quickly(program: Any, graph: Any, options: Mapping[str, Any] | None = None) -> Any:
        return compiled(program, graph, {**known, **(options or {})} if Hurry.on else options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(difflang.runtime.compile, "compiled", quickly)
        yield


def is_known(name: str, value: Any) -> bool:
    """Whether this XLA has such an option."""
    try:
        jax.jit(lambda x: x + 1).lower(1.0).compile(compiler_options={name: value})
    except jax.errors.JaxRuntimeError:
        return False
    return True
