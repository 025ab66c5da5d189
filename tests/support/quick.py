"""XLA's back end in a hurry: up to half the time of tests that compile goes into machine code that runs once.

What we hand to XLA is what users' programs become, and what JAX hands to it for a comparison is what it always is; only
how carefully it is made into machine code differs. Tests of numbers to the last digits, of the library against others,
of the examples against their twins, of memory and hazards are marked `as_users` or lie in a folder where all is: there
nothing differs, but for those in such a folder that are marked `in_a_hurry`, whose bounds are far from the last digits,
and for the library's, which are compiled so at night.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import jax
import pytest
from jax._src import compiler  # where JAX looks for the options of what it compiles: no public place has an effect

import difflang.runtime.compile
from support import nightly

PASSES = "xla_disable_hlo_passes"
OPTIONS = {
    "xla_backend_optimization_level": 0,
    "xla_cpu_use_fusion_emitters": False,
    "xla_cpu_parallel_codegen_split_count": 1,  # the workers fill the cores already
    "xla_cpu_enable_concurrency_optimized_scheduler": False,  # the same steps in an order that is found sooner
    # In loops within loops these two take a third of the time, for steps that are saved in each round.
    PASSES: "while-loop-invariant-code-motion,while-loop-simplifier",
}
AS_USERS = ("canary", "twins")  # folders of tests
AS_USERS_AT_NIGHT = (*AS_USERS, "stdlib")  # its twins take half the time in a hurry
IN_USE = jax.make_user_context(False)  # a part of the keys of JAX's caches: what was made in a hurry is not met later


class Hurry:
    """Whether programs are compiled in a hurry now, in any thread."""

    on = False


def belongs(item: pytest.Item) -> bool:
    """Whether a test may be compiled in a hurry."""
    if item.get_closest_marker("in_a_hurry") is not None:
        return True
    as_users = {*nightly.by_day(AS_USERS, AS_USERS_AT_NIGHT)}
    return item.get_closest_marker("as_users") is None and not {*item.path.parts} & as_users


@contextmanager
def within(item: pytest.Item) -> Iterator[None]:
    """A test and its fixtures, in a hurry if they may be."""
    Hurry.on = belongs(item)
    with IN_USE(Hurry.on):
        yield


@contextmanager
def installed() -> Iterator[None]:
    """Programs of ours that are called, and what JAX compiles when it is called, are made in a hurry while `Hurry.on`.

    What a test lowers and compiles by itself, to look at its text or its memory, is not.
    """
    ours, asked, for_jax = (
        difflang.runtime.compile.compile_lowered,
        jax.stages.Lowered.compile,
        compiler.get_compile_options,
    )
    known = {name: value for name, value in OPTIONS.items() if is_known(name, value)}
    looked_at = ContextVar("looked_at", default=False)

    def quickly(program: Any, graph: Any, options: Mapping[str, Any]) -> Any:
        return ours(program, graph, hurried(options) if Hurry.on else options)

    def hurried(options: Mapping[str, Any]) -> dict[str, Any]:
        left_out = [of[PASSES] for of in (known, options) if of.get(PASSES)]
        return {**known, **options, **({PASSES: ",".join(left_out)} if left_out else {})}

    def with_care(lowered: Any, *given: Any, **options: Any) -> Any:
        token = looked_at.set(True)
        try:
            return asked(lowered, *given, **options)
        finally:
            looked_at.reset(token)

    def options_for_jax(*given: Any, env_options_overrides: dict[str, Any] | None = None, **more: Any) -> Any:
        more["env_options_overrides"] = env_options_overrides
        if Hurry.on and not looked_at.get():
            more["env_options_overrides"] = {**known, **(env_options_overrides or {})}
        return for_jax(*given, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(difflang.runtime.compile, "compile_lowered", quickly)
        patch.setattr(jax.stages.Lowered, "compile", with_care)
        patch.setattr(compiler, "get_compile_options", options_for_jax)
        yield


def is_known(name: str, value: Any) -> bool:
    """Whether this XLA has such an option."""
    try:
        jax.jit(lambda x: x + 1).lower(1.0).compile(compiler_options={name: value})
    except jax.errors.JaxRuntimeError:
        return False
    return True
