"""Blocks of a tangent graph that recompute chosen primal values, so that reverse mode need not keep them.

Each block is a `checkpoint` equation, which nothing is merged with. It spans the equations that read a recomputed
value, so each is recomputed once, when the cotangents arrive: blocks that share one are one block.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from difflang.ir.builder import Builder
from difflang.ir.graph import Eqn, Value
from difflang.ops.control.checkpoint_block import checkpoint

Interval = tuple[int, int]  # the first and the last position


def linear_equations(eqns: Sequence[Eqn], tangents: Iterable[Value]) -> set[Eqn]:
    """The equations on tangents: others of a tangent graph compute constants."""
    known, found = set(tangents), set[Eqn]()
    for eqn in eqns:
        if not known.isdisjoint(eqn.operands):
            known.update(eqn.results)
            found.add(eqn)
    return found


def recomputed_equations(primal: Sequence[Eqn], own: Mapping[Value, bool]) -> set[Eqn]:
    """The equations whose results are not to be kept, and those behind each that only its derivative needs."""
    # The rule of an equation emits what its derivative needs right behind the equation.
    found, moved = set[Eqn](), False
    for eqn in primal:
        flags = [own[r] for r in eqn.results if r in own]
        moved = any(flags) if flags else moved
        if moved and eqn.operands:
            found.add(eqn)
    return found


def kept_equations(primal: Sequence[Eqn], own: Mapping[Value, bool]) -> set[Eqn]:
    """The equations whose results are kept: of the program's own, and of those between, which compute them."""
    maker = {r: eqn for eqn in primal for r in eqn.results}
    kept: set[Eqn] = set()
    for eqn in reversed(primal):
        flags = [own[r] for r in eqn.results if r in own]
        if eqn.effectful or (flags and not any(flags)):
            kept.add(eqn)
        if eqn in kept:
            makers = [maker[v] for v in eqn.operands if v in maker]
            kept.update([m for m in makers if own.keys().isdisjoint(m.results)])
    # A constant is not worth a residual.
    return {eqn for eqn in kept if eqn.operands or eqn.regions or eqn.op.effect}


def merged(intervals: Iterable[Interval]) -> list[Interval]:
    """The intervals in order, with those that overlap joined."""
    found: list[Interval] = []
    for first, last in sorted(intervals):
        if found and first <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], last)
        else:
            found.append((first, last))
    return found


class RecomputeBlocks:
    """The blocks of one tangent graph, of the builder `tangent`.

    `env` maps the values that the tangent graph captured to those of the `primal` equations, and is extended. `own` are
    the values of these that the program defines, and whether each is recomputed; others serve derivatives, or are parts
    of what is kept. `summed` are the tangents of the program's values, which those inside of blocks join.
    """

    def __init__(
        self,
        tangent: Builder,
        env: dict[Value, Value],
        primal: Sequence[Eqn],
        own: Mapping[Value, bool],
        summed: set[Value],
    ) -> None:
        self.tangent, self.env, self.summed = tangent, env, summed
        kept = kept_equations(primal, own)
        self.moved = recomputed_equations(primal, own)
        # What a block computes itself if need be, in order.
        self.steps = [eqn for eqn in primal if eqn not in kept]
        self.maker = {r: step for step in self.steps for r in step.results}
        self.place: dict[Eqn, int] = {}

    def isolated(self, eqns: Sequence[Eqn], results: Iterable[Value]) -> list[Eqn]:
        """The equations of the tangent graph, with those that read recomputed values in blocks. Cost: linear.

        `results` are read behind the equations.
        """
        linear = linear_equations(eqns, self.tangent.params)
        free = [eqn for eqn in eqns if eqn not in linear]
        self.steps += free
        self.maker |= {r: step for step in free for r in step.results}
        self.place = {step: i for i, step in enumerate(self.steps)}
        rest = [eqn for eqn in eqns if eqn in linear]
        last_read = {v: i for i, eqn in enumerate(rest) for v in eqn.operands} | dict.fromkeys(results, len(rest))
        found, at = list(free), 0
        for first, last in merged([i for step, i in self.use_intervals(rest).items() if step in self.moved]):
            inside = rest[first : last + 1]
            read = [r for eqn in inside for r in eqn.results if last_read.get(r, -1) > last]
            found += [*rest[at:first], self.block(inside, read)]
            at = last + 1
        return [*found, *rest[at:]]

    def makers(self, eqn: Eqn) -> list[Eqn]:
        """The steps that compute the operands of an equation."""
        return [self.maker[key] for v in eqn.operands if (key := self.env.get(v, v)) in self.maker]

    def use_intervals(self, eqns: Sequence[Eqn]) -> dict[Eqn, Interval]:
        """From where to where the equations read what each step computes, directly or through other steps."""
        found: dict[Eqn, Interval] = {}

        def extend(eqn: Eqn, first: int, last: int) -> None:
            for step in self.makers(eqn):
                known = found.get(step, (first, last))
                found[step] = min(first, known[0]), max(last, known[1])

        for i, eqn in enumerate(eqns):
            extend(eqn, i, i)
        for step in reversed(self.steps):
            if step in found:
                extend(step, *found[step])
        return found

    def needed_steps(self, eqns: Sequence[Eqn]) -> list[Eqn]:
        """The steps that equations read, directly or through other steps, in their order."""
        found: set[Eqn] = set()
        todo = list(eqns)
        while todo:
            new = [step for step in self.makers(todo.pop()) if step not in found]
            found.update(new)
            todo += new
        return sorted(found, key=self.place.__getitem__)

    def block(self, eqns: Sequence[Eqn], read: Sequence[Value]) -> Eqn:
        """One equation in place of several, which computes the steps that they need and gives the values in `read`."""
        builder, operands = Builder(), list[Value]()
        inside: dict[Value, Value] = {}

        def local(v: Value) -> Value:
            key = self.env.get(v, v)
            if key not in inside:
                inside[key] = builder.param(v.type, v.hint)
                operands.append(self.captured(key))
            return inside[key]

        for eqn in (*self.needed_steps(eqns), *eqns):
            results = builder.copy(eqn, tuple(map(local, eqn.operands)))
            inside.update(zip(eqn.results, results, strict=True))
        self.summed.update([new for old, new in inside.items() if old in self.summed])
        region = builder.finish([inside[r] for r in read])
        attrs = {"results": len(read), "recompute": True}
        return Eqn(checkpoint, tuple(operands), tuple(read), attrs, (region,), eqns[0].span)

    def captured(self, value: Value) -> Value:
        """A value as the tangent graph sees it."""
        if value.home is self.tangent:
            return value
        inside = self.tangent.capture(value)
        self.env[inside] = value
        return inside
