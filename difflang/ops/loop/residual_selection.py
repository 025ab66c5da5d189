"""Which residuals a loop keeps for each step: those from which the others are cheaply computed again.

What a step computes from its loop's constants is at hand, and so are the items it reads. Of the rest a value may be
kept itself, or what it is made of, whichever takes fewer bytes: of bodies that pull each other, the positions and not
all their distances. Slopes that only the tangent reads are computed there, of the argument, if that takes no more. One
that shares its work with the function is kept itself, in place of an argument that would be kept for it alone.

A function that is called once keeps what it computes anyway, but no array that repeats a smaller one, and nothing that
only its tangent reads: those would go through memory to be read once.

Where the loop may take no step, what comes from its constants is computed again in each step of the tangent too, not
once outside: there a slope that no step needs, but is infinite, would meet the zeros of a derivative taken once more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from difflang.ir.builder import Builder
from difflang.ir.graph import Eqn, Graph, Value
from difflang.ir.tensor_types import Tensor
from difflang.ops.ad_interface import Linearized, invariant
from difflang.ops.elementwise.value_and_derivative import beside

LIGHT = frozenset(  # less work than writing a number down and reading it again
    {"broadcast", "reshape", "transpose", "reverse", "slice", "pad", "concat", "convert", "select", "complex", "real"}
    | {"add", "sub", "neg", "mul", "div", "integer_pow", "sqrt", "rsqrt", "abs", "max", "min", "clamp", "imag", "conj"}
)
MOST = 8  # values that one is made of; what is made of more is kept
SHORT = 8  # numbers that are added up again
FEW = 1 << 14  # bytes that are written down and read again in no time
FAR = 24  # equations that one value is made of again
ROOM = 1.125  # how much more may be kept for what would else be written down for the tangent alone

Frontier = frozenset[Value]


def frugal(lin: Linearized, consts: Iterable[Value], items: Iterable[Value], surely: bool) -> Linearized:
    """The same with fewer bytes of residuals, from which the tangent computes the others again.

    `consts` and `items` are params of the primal that the tangent gets for nothing, and so is what is made of `consts`
    alone: given to it if the loop `surely` takes a step, else computed again. What decides, a truth or an integer made
    of what changes, is always kept: computed again it might fall on the other side.
    Cost: one walk over the primal.
    """
    given = {*consts, *items}
    free = given.union(*[eqn.results for eqn in invariant(lin.primal, consts)])
    maker = {r: eqn for eqn in lin.primal.eqns for r in eqn.results}
    moving = [r for r in lin.residuals if r not in free]
    kept = chosen(lin, moving, free)
    have = {v for v in kept | (free if surely else given) if v not in maker or maker[v].operands}  # not a constant
    again = steps_to(moving if surely else lin.residuals, have, maker)
    return rebuilt(lin, again) if again else lin


def chosen(lin: Linearized, moving: list[Value], free: set[Value]) -> set[Value]:
    """What to keep so that the `moving` residuals can be had."""
    quick = {eqn for eqn in lin.primal.eqns if is_quick(eqn)}
    later = {eqn for eqn in lin.primal.eqns if eqn in quick or is_slope(eqn)}.difference(needed(lin))
    frontiers: dict[Value, Frontier] = {v: frozenset() for v in free}
    for eqn in lin.primal.eqns:
        for result in eqn.results:
            if result not in free:
                frontiers[result] = frontier(eqn, result, frontiers, eqn in quick or eqn in later)
    wanted = {r: frontiers.get(r, frozenset({r})) for r in moving}
    users = Counter(v for found in wanted.values() for v in found)
    only_later = {r for eqn in later for r in eqn.results}
    kept: set[Value] = set()
    for residual, found in wanted.items():
        alone = all(users[v] == 1 for v in found) and residual not in only_later
        kept |= {residual} if alone and size(found) >= size([residual]) else found
    left = kept - made_of(kept | free, lin.primal, quick)
    for eqn in beside(lin.primal.eqns):  # at hand for hardly more work, where its argument is kept for it alone
        found = wanted.get(eqn.results[0], frozenset())
        if eqn in later and found and found <= left and all(users[v] == 1 for v in found):
            other = kept - found | {*eqn.results}
            rest = other - made_of(other | free, lin.primal, quick)
            if size(rest) <= size(left):
                kept, left = other, rest
    return left


def lean(lin: Linearized) -> Linearized:
    """The same for a region that is run once, its tangent later: no residual is written down that needs no writing.

    What the primal hands to a product, a sum or a call is there anyway, and kept. What it only passes from number to
    number, or never reads, the tangent computes again, of what is kept or takes hardly more bytes; so it does with
    arrays that repeat smaller ones.
    Cost: one walk over the primal, and a short one for each residual.
    """
    maker = {r: eqn for eqn in lin.primal.eqns for r in eqn.results}
    need = needed(lin)
    stored = {v for eqn in need if not passes_on(eqn) for v in eqn.operands}.union(
        lin.primal.results[: len(lin.active)]
    )

    def free(eqn: Eqn) -> bool:
        if eqn.regions or eqn.op.effect or not all([isinstance(v.type, Tensor) for v in (*eqn.operands, *eqn.results)]):
            return False
        if not eqn.operands:
            return True
        if eqn.op.name in LIGHT:
            return size(eqn.results) > size(eqn.operands) or stored.isdisjoint(eqn.results)
        return eqn not in need and is_slope(eqn)

    again = set(filter(free, lin.primal.eqns))
    kept = {r for r in lin.residuals if maker.get(r) not in again}
    for r in lin.residuals:
        if r not in kept:
            kept |= leaves(r, kept, again, maker)
    steps = steps_to(lin.residuals, kept, maker)
    return rebuilt(lin, steps) if steps else lin


def passes_on(eqn: Eqn) -> bool:
    """Whether an equation works number by number, or only moves numbers: what it reads need not be written down."""
    return not eqn.regions and (eqn.op.elementwise or eqn.op.name in LIGHT)


def leaves(residual: Value, kept: set[Value], again: set[Eqn], maker: dict[Value, Eqn]) -> set[Value]:
    """What else to keep for a residual: what it is made of, or itself if that takes more bytes or many equations."""
    found, made = set[Value](), set[Eqn]()
    todo = [residual]
    while todo:
        value = todo.pop()
        eqn = maker.get(value)
        if value in kept or eqn in made:
            continue
        if eqn is None or eqn not in again:
            found.add(value)
            continue
        made.add(eqn)
        todo += eqn.operands
        if len(made) > FAR:
            return {residual}
    least = 0 if any([size(eqn.results) > size(eqn.operands) for eqn in made]) else FEW
    worth = size([residual]) >= least and size(found) <= ROOM * size([residual])
    grows = not is_named(residual) and any(map(is_named, found))  # with a size that is not known yet
    return found if worth and not grows else {residual}


def needed(lin: Linearized) -> set[Eqn]:
    """The equations that the results need, whatever is kept."""
    used = set(lin.primal.results[: len(lin.active)])
    found: set[Eqn] = set()
    for eqn in reversed(lin.primal.eqns):
        if not used.isdisjoint(eqn.results):
            used.update(eqn.operands)
            found.add(eqn)
    return found


def frontier(eqn: Eqn, result: Value, frontiers: dict[Value, Frontier], again: bool) -> Frontier:
    """The value itself, or what it is made of if that may be done again and is no more bytes."""
    itself = frozenset({result})
    if not again:
        return itself
    parts = itself.union(*[frontiers.get(v, frozenset({v})) for v in eqn.operands]) - itself
    return parts if len(parts) <= MOST and size(parts) <= size(itself) else itself


def made_of(have: set[Value], graph: Graph, quick: set[Eqn]) -> set[Value]:
    """What the others among these values determine, by quick equations."""
    had, found = set(have), set[Value]()
    for eqn in graph.eqns:
        if eqn in quick and eqn.operands and had.issuperset(eqn.operands):
            found.update(eqn.results)
            had.update(eqn.results)
    return found


def is_quick(eqn: Eqn) -> bool:
    """Whether an equation may be done twice: it is little work, and no rounding makes it jump."""
    if not all([isinstance(v.type, Tensor) for v in (*eqn.operands, *eqn.results)]):
        return False
    if eqn.op.name == "reduce_sum":
        return size(eqn.operands) <= SHORT * size(eqn.results)
    return eqn.op.name in LIGHT


def is_slope(eqn: Eqn) -> bool:
    """Whether an equation may be left to the tangent if only that reads it: it is a function, number by number."""
    return eqn.op.elementwise and eqn.op.jvp is not None and all(is_real(v) for v in (*eqn.operands, *eqn.results))


def is_named(value: Value) -> bool:
    """Whether how large an array is depends on the name of a size."""
    return isinstance(value.type, Tensor) and not all([isinstance(n, int) for n in value.type.shape])


def is_real(value: Value) -> bool:
    return isinstance(value.type, Tensor) and value.type.dtype.differentiable


def size(values: Iterable[Value]) -> int:
    """How many bytes arrays take."""
    return sum(v.type.bytes for v in values if isinstance(v.type, Tensor))


def steps_to(wanted: Iterable[Value], have: set[Value], maker: dict[Value, Eqn]) -> set[Eqn]:
    """The equations that make what is wanted of what there is."""
    found: set[Eqn] = set()
    todo = [v for v in wanted if v not in have]
    while todo:
        value = todo.pop()
        if value not in have and maker[value] not in found:
            found.add(maker[value])
            todo += [v for v in maker[value].operands if v not in have]
    return found


def rebuilt(lin: Linearized, again: set[Eqn]) -> Linearized:
    """The linearization where the tangent does these equations again."""
    ordered = [eqn for eqn in lin.primal.eqns if eqn in again]
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
    return Linearized(primal, builder.finish(outs, name=lin.tangent.name), tuple(residuals), lin.active)
