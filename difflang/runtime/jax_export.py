"""Serializes programs with `jax.export`: portable StableHLO that later versions of JAX and other runtimes read."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import jax
from jax import export

from difflang.base.diagnostics import Diagnostic, DifflangError, Label
from difflang.base.gc_pause import pause_gc
from difflang.base.source import NO_SPAN
from difflang.ir.graph import Graph
from difflang.lower.source_locations import make_frame
from difflang.runtime.compile import jit_graph, shape_struct


def export_program(graph: Graph, platform: str) -> Any:
    """The program for a platform that need not be on this machine, as `jax.export` represents it.

    Errors: DL0801 if an op is a library call without a stability guarantee.
    """
    specs = [shape_struct(p.type, None) for p in graph.params]
    try:
        with jax.enable_x64(True), innermost_locations(), pause_gc():
            program = export.export(jit_graph(graph, platform), platforms=(platform,))
            place = graph.eqns[0].span if graph.eqns else NO_SPAN
            return make_frame(place)(lambda specs: program(*specs), specs, (), {})
    except (ValueError, NotImplementedError) as error:
        raise export_error(graph, platform, error) from error


@contextmanager
def innermost_locations() -> Generator[None]:
    """A context in which JAX records only the innermost source position of each operation."""
    # The outer ones are those of the compiler's callers, with paths of this machine.
    name = "jax_traceback_in_locations_limit"
    before = getattr(jax.config, name)
    jax.config.update(name, 1)
    try:
        yield
    finally:
        jax.config.update(name, before)


def export_error(graph: Graph, platform: str, error: Exception) -> DifflangError:
    where = (Label(graph.eqns[0].span, "in the program that begins here"),) if graph.eqns else ()
    why = str(error).splitlines()[0] if str(error) else type(error).__name__
    message = f"{graph.name or 'this program'} has no StableHLO for `{platform}`: {why}"
    ways = ("leave out that platform: with `platforms=()`, the artifact still loads wherever JAX runs",)
    return DifflangError(Diagnostic("DL0801", message, where, ways))


def load_exported(data: bytes) -> Any:
    """The exported program from its serialized bytes. Errors: DL1241."""
    try:
        return export.deserialize(bytearray(data))
    except Exception as error:
        message = "this is not a difflang artifact, or it is damaged: JAX cannot read its StableHLO"
        raise DifflangError(Diagnostic("DL1241", message)) from error
