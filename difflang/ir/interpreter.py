"""The NumPy interpreter: evaluates any graph, one equation at a time, by each op's `reference`.

A history is a Python list with one item per step. Nothing here knows an op: the reference of a region op runs its
regions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import ml_dtypes  # noqa: F401  # pyright: ignore  teaches NumPy the name bfloat16
import numpy as np

from difflang.base.diagnostics import DifflangError, InternalError
from difflang.ir.graph import Eqn, Graph, Value, with_eqn_span
from difflang.ir.symbolic_dims import Dim
from difflang.ir.tensor_types import History, Tensor, Type, numpy_dtype

Array = Any  # np.ndarray, or a list of them for a history

TextSink = Callable[[int, str], None]
"""Receives a text and its site: the number of the check whose message it is, or 0 for what the program prints."""


def evaluate(graph: Graph, *arrays: Array, text_sink: TextSink | None = None) -> list[Array]:
    """The graph's results on NumPy arrays. Printed text goes to `text_sink`, or is discarded.

    Errors: InternalError that names the op, if an argument or a result of an equation has the wrong type.
    """

    # Inf and NaN are ordinary values of a program, so NumPy's floating-point warnings are off.
    def run_with_sink(graph: Graph, *arrays: Array) -> list[Array]:
        return run_equations(graph, arrays, partial(evaluate_eqn, run=run_with_sink, text_sink=text_sink))

    with np.errstate(all="ignore"):
        return run_graph(graph, *arrays) if text_sink is None else run_with_sink(graph, *arrays)


def run_graph(graph: Graph, *arrays: Array) -> list[Array]:
    return run_equations(graph, arrays, evaluate_eqn)


class StepLimitExceeded(Exception):
    """A run that evaluates more equations than were allowed."""


def evaluate_with_limit(max_equations: int, graph: Graph, *arrays: Array) -> list[Array]:
    """The same results, of a run of at most `max_equations` equations. Errors: StepLimitExceeded beyond that."""
    left = max_equations

    def step(eqn: Eqn, operands: list[Array]) -> list[Array]:
        nonlocal left
        left -= 1
        if left < 0:
            raise StepLimitExceeded
        return evaluate_eqn(eqn, operands, run_counted)

    def run_counted(graph: Graph, *arrays: Array) -> list[Array]:
        return run_equations(graph, arrays, step)

    with np.errstate(all="ignore"):
        return run_counted(graph, *arrays)


def evaluate_instrumented(
    graph: Graph,
    arrays: Sequence[Array],
    hook: Callable[[Eqn, Callable[[], list[Array]]], list[Array]],
    text_sink: TextSink,
) -> list[Array]:
    """The same results; `hook` runs each equation, those in regions too, by the call that it receives."""

    def step(eqn: Eqn, operands: list[Array]) -> list[Array]:
        return hook(eqn, partial(evaluate_eqn, eqn, operands, run=each, text_sink=text_sink))

    def each(graph: Graph, *arrays: Array) -> list[Array]:
        return run_equations(graph, arrays, step)

    with np.errstate(all="ignore"):
        return each(graph, *arrays)


def discard_text(site: int, text: str) -> None:
    """A text sink that ignores the text."""


def run_equations(
    graph: Graph, arrays: Sequence[Array], step: Callable[[Eqn, list[Array]], list[Array]]
) -> list[Array]:
    """The graph's results, where `step` computes those of each equation from its operands."""
    if len(arrays) != len(graph.params):
        raise InternalError(f"{graph.name or 'a graph'} takes {len(graph.params)} arguments, not {len(arrays)}")
    env: dict[Value, Array] = {p: check_array(x, p.type, "a param") for p, x in zip(graph.params, arrays, strict=True)}
    for eqn in graph.eqns:
        try:
            results = step(eqn, [env[v] for v in eqn.operands])
        except DifflangError as error:
            raise with_eqn_span(error, eqn) from error.__cause__
        for value, array in zip(eqn.results, results, strict=True):
            env[value] = check_array(array, value.type, eqn.op.name)
    return [env[r] for r in graph.results]


def evaluate_eqn(
    eqn: Eqn, operands: list[Array], run: Callable[..., list[Array]] = run_graph, text_sink: TextSink | None = None
) -> list[Array]:
    """The results of one equation by its op's reference, which runs the regions with `run`."""
    if eqn.regions:
        found = eqn.op.reference(run, *operands, regions=eqn.regions, **eqn.attrs)
    elif eqn.op.effect:
        found = eqn.op.reference(text_sink or discard_text, *operands, **eqn.attrs)
    else:
        found = eqn.op.reference(*operands, **eqn.attrs)
        # The reference of an op with one result returns the array itself, not a tuple.
        if len(eqn.results) == 1:
            return [found]
    if len(found) != len(eqn.results):
        raise InternalError(f"{eqn.op} gave {len(found)} results, not {len(eqn.results)}")
    return list(found)


def check_array(array: Array, type: Type, what: str) -> Array:
    # References are the specification of the ops, so a wrong dtype or shape is caught where it is made.
    if isinstance(type, History):
        if not isinstance(array, list):
            raise InternalError(f"{what} returned {array!r:.60} instead of a {type}")
        return array
    array = np.asarray(array)
    if array.dtype != numpy_dtype(type.dtype) or array.shape != type.shape:
        raise InternalError(f"{what} returned {array.dtype}{list(array.shape)} instead of {type}")
    return array


def zero_array(type: Type) -> Array:
    """The value that a history reads as beyond its end."""
    return [] if isinstance(type, History) else stacked_zeros(type)


def stacked_zeros(type: Tensor, *leading: Dim) -> Array:
    """Zeros of a type, stacked along further axes in front."""
    shape = (*leading, *type.shape)
    assert all(isinstance(n, int) for n in shape), "only concrete graphs run"
    return np.zeros([int(n) for n in shape if isinstance(n, int)], numpy_dtype(type.dtype))


def sequence_item(sequence: Array, index: int, item: Type) -> Array:
    """One step's item of an array or a history."""
    return sequence[index] if index < len(sequence) else zero_array(item)
