"""The `print` op, the only one with an effect: it prints a text, or the message of a failed check.

A text is printed once, in program order; recomputation prints nothing. So a pass that copies equations of a program
takes the copy through `without_prints`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from difflang.ir.array_types import Array, Jax, JaxArray
from difflang.ir.graph import Eqn, Graph, graphs_postorder
from difflang.ir.interpreter import TextSink
from difflang.ir.op import OPS, Inactive, Op, TypeSolver
from difflang.ir.tensor_types import BOOL, Tensor, Type
from difflang.ops.ad_interface import require_same_types
from difflang.ops.region_interface import RegionLowering
from difflang.ops.value_formatting import TextTemplate, count_arrays, render_template

BOOL_SCALAR = Tensor(BOOL)


def print_type(same: TypeSolver, when: Type, *types: Type, text: TextTemplate, site: int) -> tuple[Type, ...]:
    """print(when, *values): nothing."""
    require_same_types(same, "print", [when], [BOOL_SCALAR])
    same.require(count_arrays(text) == len(types), "this text takes {} values, not {}", count_arrays(text), len(types))
    same.require(all(isinstance(t, Tensor) for t in types), "a text is made of arrays")
    return ()


def print_reference(says: TextSink, when: Array, *values: Array, text: TextTemplate, site: int) -> list[Array]:
    if when:
        says(site, render_template(text, values))
    return []


def print_lower(
    lowering: RegionLowering, when: JaxArray, *values: JaxArray, text: TextTemplate, site: int
) -> list[JaxArray]:
    """An ordered host callback. JAX truncates 64-bit numbers on the way there, so these go as two halves."""
    jax, says = lowering.jax, lowering.on_print
    dtypes = [np.dtype(x.dtype) for x in values]

    def print_on_host(when: Array, *halves: Array) -> None:
        if when:
            arrays = [join_64bit(np.asarray(x), dtype) for x, dtype in zip(halves, dtypes, strict=True)]
            says(site, render_template(text, arrays))

    jax.experimental.io_callback(print_on_host, None, when, *[split_64bit(jax, x) for x in values], ordered=True)
    return []


def split_64bit(jax: Jax, x: JaxArray) -> JaxArray:
    """The 32-bit words of 64-bit numbers; other numbers as they are."""
    lax, dtype = jax.lax, np.dtype(x.dtype)
    if dtype == np.complex128:
        parts = [lax.expand_dims(part(x), (x.ndim,)) for part in (lax.real, lax.imag)]
        x = lax.concatenate(parts, x.ndim)
    elif dtype.itemsize < 8 or dtype.kind == "c":
        return x
    return lax.bitcast_convert_type(x, np.uint32)


def join_64bit(words: Array, dtype: np.dtype[Any]) -> Array:
    """The inverse of `split_64bit`."""
    if words.dtype == dtype:
        return words
    shape = words.shape[: -1 - (dtype.kind == "c")]
    return np.ascontiguousarray(words).reshape(*shape, dtype.itemsize // words.itemsize).view(dtype).reshape(shape)


print_op = OPS.declare(
    Op(
        "print",
        print_type,
        print_reference,
        print_lower,
        derivative=Inactive(),
        effect="print",
        doc="""print(when, *values): where `when` holds, the `text` of these values is printed; with a `site` it is the
        message of the check with that number. Kinks: none; it has no results.""",
    )
)


def without_prints(graph: Graph) -> Graph:
    """The graph without its prints. Cost: linear, and none where there are no prints."""
    return filter_prints(graph, lambda eqn: False)


def filter_prints(graph: Graph, kept: Callable[[Eqn], bool]) -> Graph:
    """The graph with only the prints for which `kept` holds."""
    if not graph.effectful:
        return graph
    done: dict[Graph, Graph] = {}
    for inner in graphs_postorder(graph)[0]:
        if not inner.effectful:
            done[inner] = inner
            continue
        eqns = [e for e in inner.eqns if e.op is not print_op or kept(e)]
        done[inner] = inner.with_eqns([e.with_regions([done[r] for r in e.regions]) if e.regions else e for e in eqns])
    return done[graph]


def without_check_messages(graph: Graph) -> Graph:
    """The graph as it usually runs: messages of checks are not computed."""
    return filter_prints(graph, lambda eqn: eqn.attrs["site"] == 0)


def only_check_messages(graph: Graph) -> Graph:
    """The graph that explains a failed run: only the messages of checks."""
    return filter_prints(graph, lambda eqn: eqn.attrs["site"] != 0)


def has_check_messages(graph: Graph) -> bool:
    """Whether a graph prints the message of a check, as only one that explains a failure does."""
    return only_check_messages(graph).effectful
