"""Selects the residuals that a loop stores per step: those from which the others are cheap to recompute.

Values that a step computes from loop constants need no storage, nor do the items it reads. Of the others either the
value itself is stored or the values it is computed from, whichever takes fewer bytes: in an n-body simulation the
positions, not all distances. Derivative factors that only the tangent reads are computed there from the argument, if
that takes no more. One that shares work with the primal function is stored itself, in place of an argument stored for
it alone.

A function that runs once keeps what it computes anyway, but no broadcasts, and nothing that only its tangent reads:
those would go through memory to be read once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from difflang.ir.builder import Builder
from difflang.ir.graph import Eqn, Graph, Value
from difflang.ir.tensor_types import Tensor
from difflang.ops.ad_interface import LinearizedGraph, invariant_eqns
from difflang.ops.arrays.axis_reductions import reduce_sum
from difflang.ops.elementwise.vectorized_sincos import slopes_sharing_work

# A value computed from more values than this is stored.
MAX_FRONTIER = 8
# The longest sum that is recomputed.
MAX_SUMMANDS = 8
# Bytes that are written and read back in no time.
SMALL_BYTES = 1 << 14
# The most equations to recompute for one value.
MAX_RECOMPUTED_EQNS = 24
# How many times fewer bytes the state must take than a choice value by value: then the stages between are recomputed.
STATE_SAVING = 2
# How many bytes may be recomputed for each byte that is not stored.
RECOMPUTED_PER_SAVED = 8
# How much more to store in order not to materialize a value for the tangent alone.
SIZE_SLACK = 1.125

Frontier = frozenset[Value]


def minimize_residuals(
    lin: LinearizedGraph, consts: Iterable[Value], items: Iterable[Value], surely: bool
) -> LinearizedGraph:
    """The same linearization with fewer bytes of residuals, from which its tangent recomputes the others.

    `consts` and `items` are params of the primal that the tangent gets for free.
    Cost: one walk over the primal.
    """
    available = {*consts, *items}
    free = available.union(*[eqn.results for eqn in invariant_eqns(lin.primal, consts)])
    maker = {r: eqn for eqn in lin.primal.eqns for r in eqn.results}
    moving = [r for r in lin.residuals if r not in free]
    kept = choose_residuals(lin, moving, free)
    state = state_residuals(lin, moving, free)
    if STATE_SAVING * total_bytes(state) <= total_bytes(kept) and is_cheap_from_state(lin, moving, state, free, kept):
        kept = state
    # If the loop may take no step, functions of its constants are recomputed in each step, not once outside: there a
    # derivative that no step needs, but is infinite, would meet the zeros of a second derivative.
    # Values computed from nothing are recomputed anyway.
    have = {v for v in kept | (free if surely else available) if v not in maker or maker[v].operands}
    steps = eqns_to_recompute(moving if surely else lin.residuals, have, maker)
    return recompute_in_tangent(lin, steps) if steps else lin


def choose_residuals(lin: LinearizedGraph, moving: list[Value], free: set[Value]) -> set[Value]:
    """The values to store so that the `moving` residuals can be recomputed."""
    quick = {eqn for eqn in lin.primal.eqns if is_light(eqn)}
    later = {eqn for eqn in lin.primal.eqns if eqn in quick or is_differentiable_elementwise(eqn)}.difference(
        result_eqns(lin)
    )
    frontiers: dict[Value, Frontier] = {v: frozenset() for v in free}
    for eqn in lin.primal.eqns:
        for result in eqn.results:
            if result not in free:
                frontiers[result] = recompute_frontier(eqn, result, frontiers, eqn in quick or eqn in later)
    needs = {r: frontiers.get(r, frozenset({r})) for r in moving}
    users = Counter(v for found in needs.values() for v in found)
    only_later = {r for eqn in later for r in eqn.results}
    kept: set[Value] = set()
    for residual, found in needs.items():
        alone = all(users[v] == 1 for v in found) and residual not in only_later
        kept |= {residual} if alone and total_bytes(found) >= total_bytes([residual]) else found
    left = kept - recomputable_from(kept | free, lin.primal, quick)
    # Such a derivative costs hardly more work: store it where its argument is stored for it alone.
    for eqn in slopes_sharing_work(lin.primal.eqns):
        found = needs.get(eqn.results[0], frozenset())
        if eqn in later and found and found <= left and all(users[v] == 1 for v in found):
            other = kept - found | {*eqn.results}
            rest = other - recomputable_from(other | free, lin.primal, quick)
            if total_bytes(rest) <= total_bytes(left):
                kept, left = other, rest
    return left


def state_residuals(lin: LinearizedGraph, moving: list[Value], free: set[Value]) -> set[Value]:
    """The carries, and what is not quick to compute, from which quick equations recompute the `moving` residuals.

    The stages of a Runge-Kutta step, say, are cheap combinations of one state, though each is as large as that.
    """
    needed = result_eqns(lin)
    maker = {
        r: eqn
        for eqn in lin.primal.eqns
        if is_light(eqn) or (is_differentiable_elementwise(eqn) and eqn not in needed)
        for r in eqn.results
    }
    found, todo, seen = set[Value](), list(moving), set[Value]()
    while todo:
        value = todo.pop()
        if value in seen or value in free:
            continue
        seen.add(value)
        if value in maker and maker[value].operands:
            todo += maker[value].operands
        else:
            found.add(value)
    return found


def is_cheap_from_state(
    lin: LinearizedGraph, moving: list[Value], state: set[Value], free: set[Value], kept: set[Value]
) -> bool:
    """Whether recomputing the residuals from the state is less work than storing and reading what `kept` has more."""
    maker = {r: eqn for eqn in lin.primal.eqns for r in eqn.results}
    steps = eqns_to_recompute(moving, state | free, maker)
    saved = total_bytes(kept) - total_bytes(state)
    work = total_bytes([r for eqn in steps for r in eqn.results])
    return work <= RECOMPUTED_PER_SAVED * saved


def trim_residuals(lin: LinearizedGraph) -> LinearizedGraph:
    """The same for a region that runs once, its tangent later: no residual is stored just for the tangent.

    Operands of products, sums and calls exist in memory anyway, and are kept. Values that the primal fuses away, or
    never reads, are recomputed by the tangent, from kept values or ones of hardly more bytes; so are broadcasts.
    Cost: one walk over the primal, and a short one for each residual.
    """
    maker = {r: eqn for eqn in lin.primal.eqns for r in eqn.results}
    need = result_eqns(lin)
    stored = {v for eqn in need if not is_streaming(eqn) for v in eqn.operands}.union(
        lin.primal.results[: len(lin.active)]
    )

    def is_recomputable(eqn: Eqn) -> bool:
        if eqn.regions or eqn.op.effect or not all([isinstance(v.type, Tensor) for v in (*eqn.operands, *eqn.results)]):
            return False
        if not eqn.operands:
            return True
        if "cheap" in eqn.op.traits:
            return total_bytes(eqn.results) > total_bytes(eqn.operands) or stored.isdisjoint(eqn.results)
        return eqn not in need and is_differentiable_elementwise(eqn)

    recomputable = set(filter(is_recomputable, lin.primal.eqns))
    kept = {r for r in lin.residuals if maker.get(r) not in recomputable}
    for r in lin.residuals:
        if r not in kept:
            kept |= residual_leaves(r, kept, recomputable, maker)
    steps = eqns_to_recompute(lin.residuals, kept, maker)
    return recompute_in_tangent(lin, steps) if steps else lin


def is_streaming(eqn: Eqn) -> bool:
    """Whether an equation is elementwise or moves elements, so that XLA need not materialize its operands."""
    return not eqn.regions and (eqn.op.elementwise or "cheap" in eqn.op.traits)


def residual_leaves(residual: Value, kept: set[Value], recomputable: set[Eqn], maker: dict[Value, Eqn]) -> set[Value]:
    """What else to keep for a residual: the values it is computed from, or itself if these are larger or too many."""
    found, made = set[Value](), set[Eqn]()
    todo = [residual]
    while todo:
        value = todo.pop()
        eqn = maker.get(value)
        if value in kept or eqn in made:
            continue
        if eqn is None or eqn not in recomputable:
            found.add(value)
            continue
        made.add(eqn)
        todo += eqn.operands
        if len(made) > MAX_RECOMPUTED_EQNS:
            return {residual}
    least = 0 if any([total_bytes(eqn.results) > total_bytes(eqn.operands) for eqn in made]) else SMALL_BYTES
    worth = total_bytes([residual]) >= least and total_bytes(found) <= SIZE_SLACK * total_bytes([residual])
    # Sizes that are not known yet count as larger.
    grows = not has_symbolic_size(residual) and any(map(has_symbolic_size, found))
    return found if worth and not grows else {residual}


def result_eqns(lin: LinearizedGraph) -> set[Eqn]:
    """The equations that the results depend on, whatever is stored."""
    used = set(lin.primal.results[: len(lin.active)])
    found: set[Eqn] = set()
    for eqn in reversed(lin.primal.eqns):
        if not used.isdisjoint(eqn.results):
            used.update(eqn.operands)
            found.add(eqn)
    return found


def recompute_frontier(eqn: Eqn, result: Value, frontiers: dict[Value, Frontier], recomputable: bool) -> Frontier:
    """The value itself, or the values it is computed from if that is allowed and they take no more bytes."""
    itself = frozenset({result})
    if not recomputable:
        return itself
    parts = itself.union(*[frontiers.get(v, frozenset({v})) for v in eqn.operands]) - itself
    return parts if len(parts) <= MAX_FRONTIER and total_bytes(parts) <= total_bytes(itself) else itself


def recomputable_from(have: set[Value], graph: Graph, quick: set[Eqn]) -> set[Value]:
    """Which of these values the others determine, by quick equations."""
    had, found = set(have), set[Value]()
    for eqn in graph.eqns:
        if eqn in quick and eqn.operands and had.issuperset(eqn.operands):
            found.update(eqn.results)
            had.update(eqn.results)
    return found


def is_light(eqn: Eqn) -> bool:
    """Whether an equation may run twice: it is little work, and rounding cannot make it jump."""
    if not all([isinstance(v.type, Tensor) for v in (*eqn.operands, *eqn.results)]):
        return False
    if eqn.op is reduce_sum:
        return total_bytes(eqn.operands) <= MAX_SUMMANDS * total_bytes(eqn.results)
    return "cheap" in eqn.op.traits


def is_differentiable_elementwise(eqn: Eqn) -> bool:
    """Whether an equation may move into the tangent if only that reads it: a differentiable elementwise function."""
    return (
        eqn.op.elementwise
        and eqn.op.operand_rules.jvp is not None
        and all(is_differentiable(v) for v in (*eqn.operands, *eqn.results))
    )


def has_symbolic_size(value: Value) -> bool:
    """Whether an array's size depends on a symbolic dim."""
    return isinstance(value.type, Tensor) and not all([isinstance(n, int) for n in value.type.shape])


def is_differentiable(value: Value) -> bool:
    return isinstance(value.type, Tensor) and value.type.dtype.differentiable


def total_bytes(values: Iterable[Value]) -> int:
    """The bytes of some arrays."""
    return sum(v.type.bytes for v in values if isinstance(v.type, Tensor))


def eqns_to_recompute(targets: Iterable[Value], have: set[Value], maker: dict[Value, Eqn]) -> set[Eqn]:
    """The equations that compute `targets` from `have`."""
    found: set[Eqn] = set()
    todo = [v for v in targets if v not in have]
    while todo:
        value = todo.pop()
        if value not in have and maker[value] not in found:
            found.add(maker[value])
            todo += [v for v in maker[value].operands if v not in have]
    return found


def recompute_in_tangent(lin: LinearizedGraph, eqns: set[Eqn]) -> LinearizedGraph:
    """The linearization whose tangent recomputes these equations."""
    ordered = [eqn for eqn in lin.primal.eqns if eqn in eqns]
    made = {r for eqn in ordered for r in eqn.results}
    read = {v for eqn in ordered for v in eqn.operands} | {*lin.residuals}
    places = [*lin.primal.params, *[r for eqn in lin.primal.eqns for r in eqn.results]]
    residuals = [v for v in places if v in read and v not in made]
    builder = Builder()
    env = {v: builder.param(v.type, v.hint) for v in residuals}
    tangents = [builder.param(p.type, p.hint) for p in lin.tangent_params]
    for eqn in ordered:
        env.update(zip(eqn.results, builder.copy(eqn, tuple([env[v] for v in eqn.operands])), strict=True))
    outs = builder.inline(lin.tangent, *[env[r] for r in lin.residuals], *tangents)
    known, ys = {*lin.primal.params}, lin.primal.results[: len(lin.active)]
    primal = lin.primal.with_results([*ys, *[r for r in residuals if r not in known]])
    return LinearizedGraph(primal, builder.finish(outs, name=lin.tangent.name), tuple(residuals), lin.active)
