"""The one op with an effect: it says a text, as `print` does, or as the message of a check that fails.

It is said where the run comes by, in the order of the program, and once: what is computed again says nothing. So
whoever makes a second copy of some equations of a program takes them `silent`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from difflang.ir.graph import Eqn, Graph, inner_first
from difflang.ir.interpreter import Says
from difflang.ir.op import OPS, Op, Solver
from difflang.ir.tensor_types import BOOL, Tensor, Type
from difflang.ops.ad_interface import alike
from difflang.ops.value_formatting import Template, count, written

TRUTH = Tensor(BOOL)


def say_type(same: Solver, when: Type, *types: Type, text: Template, site: int) -> tuple[Type, ...]:
    """say(when, *values): nothing."""
    alike(same, "say", [when], [TRUTH])
    same.require(count(text) == len(types), "this text takes {} values, not {}", count(text), len(types))
    same.require(all(isinstance(t, Tensor) for t in types), "a text is made of arrays")
    return ()


def say_reference(says: Says, when: Any, *values: Any, text: Template, site: int) -> list[Any]:
    if when:
        says(site, written(text, values))
    return []


def say_lower(lowering: Any, when: Any, *values: Any, text: Template, site: int) -> list[Any]:
    """An ordered callback of the host. JAX makes 32 bits of 64 on the way there, so these go as two halves."""
    jax, says = lowering.jax, lowering.says
    dtypes = [np.dtype(x.dtype) for x in values]

    def told(when: Any, *halves: Any) -> None:
        if when:
            arrays = [whole(np.asarray(x), dtype) for x, dtype in zip(halves, dtypes, strict=True)]
            says(site, written(text, arrays))

    jax.experimental.io_callback(told, None, when, *[halved(jax, x) for x in values], ordered=True)
    return []


def halved(jax: Any, x: Any) -> Any:
    """The words of 32 bits that numbers of 64 are made of; other numbers as they are."""
    lax, dtype = jax.lax, np.dtype(x.dtype)
    if dtype == np.complex128:
        parts = [lax.expand_dims(part(x), (x.ndim,)) for part in (lax.real, lax.imag)]
        x = lax.concatenate(parts, x.ndim)
    elif dtype.itemsize < 8 or dtype.kind == "c":
        return x
    return lax.bitcast_convert_type(x, np.uint32)


def whole(words: Any, dtype: np.dtype[Any]) -> Any:
    """The numbers that were halved."""
    if words.dtype == dtype:
        return words
    shape = words.shape[: -1 - (dtype.kind == "c")]
    return np.ascontiguousarray(words).reshape(*shape, dtype.itemsize // words.itemsize).view(dtype).reshape(shape)


say = OPS.declare(
    Op(
        "say",
        say_type,
        say_reference,
        say_lower,
        inactive=True,
        effect="print",
        doc="""say(when, *values): where `when` holds, the `text` of these values is printed; with a `site` it is the
        message of the check with that number. Kinks: none; it has no results.""",
    )
)


def silent(graph: Graph) -> Graph:
    """The graph without what it says. Cost: linear, and none where nothing is said."""
    return saying(graph, lambda eqn: False)


def saying(graph: Graph, kept: Callable[[Eqn], bool]) -> Graph:
    """The graph saying only what is to be kept."""
    if not graph.effectful:
        return graph
    done: dict[Graph, Graph] = {}
    for inner in inner_first(graph)[0]:
        if not inner.effectful:
            done[inner] = inner
            continue
        eqns = [e for e in inner.eqns if e.op is not say or kept(e)]
        done[inner] = inner.with_eqns([e.with_regions([done[r] for r in e.regions]) if e.regions else e for e in eqns])
    return done[graph]


def printing(graph: Graph) -> Graph:
    """What usually runs: the messages of checks are not computed."""
    return saying(graph, lambda eqn: eqn.attrs["site"] == 0)


def explaining(graph: Graph) -> Graph:
    """What says why a run failed: only the messages of checks."""
    return saying(graph, lambda eqn: eqn.attrs["site"] != 0)
