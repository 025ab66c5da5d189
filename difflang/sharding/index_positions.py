"""Notes at gathers and scatters which of their indices only count along an axis.

The index of `x[i, k[i]]` in the first axis of `x` is the position along the axis of `k`. Both axes are one, and are
split alike over the devices of a mesh: each device finds its items in its own rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from difflang.ir.graph import Eqn, Graph, Value, graphs_postorder
from difflang.ir.op import Placement
from difflang.ir.symbolic_dims import Dim
from difflang.ops.arrays.constants import const, iota
from difflang.ops.arrays.gather_scatter import INDEX_DTYPES, gather, scatter, scatter_add
from difflang.ops.arrays.scatter_reductions import scatter_max, scatter_min, scatter_mul
from difflang.ops.arrays.shape_manipulation import broadcast, reshape
from difflang.ops.elementwise.linear_arithmetic import add, truncate
from difflang.ops.op_factories import tensor_type
from difflang.passes.rules.reshapes_and_constants import int_tuple

Makers = Mapping[Value, Eqn]
# The operands before the indices, by op.
INDEXED = {gather: 1, **dict.fromkeys((scatter, scatter_add, scatter_max, scatter_min, scatter_mul), 2)}


def note_index_positions(graph: Graph, done: dict[Graph, Graph] | None = None) -> Graph:
    """The graph with the attribute `positions` at gathers and scatters that have such an index.

    Cost: linear; a graph that is used many times, or is `done` already, is rewritten once.
    """
    done = {} if done is None else done
    for inner in graphs_postorder(graph)[0]:
        if inner in done:
            continue
        made = {r: eqn for eqn in inner.eqns for r in eqn.results}
        eqns = [with_positions(e.with_regions([done[r] for r in e.regions]) if e.regions else e, made)
                for e in inner.eqns]  # fmt: skip
        same = all(a is b for a, b in zip(eqns, inner.eqns, strict=True))
        done[inner] = inner if same else inner.with_eqns(eqns)
    return done[graph]


def with_positions(eqn: Eqn, made: Makers) -> Eqn:
    """The equation, with a note of the indices that are positions. One index at least is left to look up."""
    count = INDEXED.get(eqn.op)
    if count is None or "positions" in eqn.attrs:
        return eqn
    x, indices = tensor_type(eqn.operands[0]), eqn.operands[count:]
    found: dict[int, int] = {}  # the axis along which an index counts, by its number
    for k, (index, axis) in enumerate(zip(indices, int_tuple(eqn.attrs["axes"]), strict=True)):
        along = position_axis(index, made)
        taken = along in found.values() or len(found) == len(indices) - 1
        if along is not None and not taken and tensor_type(index).shape[along] == x.shape[axis]:
            found[k] = along
    attrs = {**eqn.attrs, "positions": tuple(found.items())}
    return Eqn(eqn.op, eqn.operands, eqn.results, attrs, (), eqn.span) if found else eqn


def position_axis(value: Value, made: Makers) -> int | None:
    """The axis along which an array of indices counts 0, 1, 2, …; None if there is none."""
    eqn, shape = made.get(value), tensor_type(value).shape
    if eqn is None or tensor_type(value).dtype not in INDEX_DTYPES:
        return None
    if eqn.op is iota:
        axis = eqn.attrs["axis"]
        return axis if isinstance(axis, int) else None
    if eqn.op is add:
        terms = [x for x in eqn.operands if not is_zero(x, made)]
        return position_axis(terms[0], made) if len(terms) == 1 else None
    if not (eqn.op in (broadcast, truncate, reshape) or isinstance(eqn.op.movement, Placement)):
        return None
    before, sizes = position_axis(eqn.operands[0], made), tensor_type(eqn.operands[0]).shape
    if before is None:
        return None
    after: int | None = before
    if eqn.op is broadcast:
        after = int_tuple(eqn.attrs["axes"])[before]
    elif eqn.op is reshape:
        after = same_axis(before, sizes, shape)
    return after if after is not None and sizes[before] == shape[after] else None


def same_axis(axis: int, before: Sequence[Dim], after: Sequence[Dim]) -> int | None:
    """The axis after a reshape that only adds or drops axes of size 1; None after another."""
    longer = [k for k, n in enumerate(before) if n != 1], [k for k, n in enumerate(after) if n != 1]
    alike = [before[k] for k in longer[0]] == [after[k] for k in longer[1]]
    return longer[1][longer[0].index(axis)] if alike and axis in longer[0] else None


def is_zero(value: Value, made: Makers) -> bool:
    """Whether all items of an array are a literal 0."""
    eqn = made.get(value)
    if eqn is not None and eqn.op is broadcast:
        return is_zero(eqn.operands[0], made)
    return eqn is not None and eqn.op is const and eqn.attrs["value"] == 0
