"""Transposes the step of a loop into the step of a loop in the other direction.

A cotangent may come with its choice: a boolean array, outside which it is exactly zero. Choices travel like cotangents,
from step to step or item by item; where steps add up cotangents, their choices are or-ed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from msgspec import Struct

from difflang.base.source import Span
from difflang.ir.builder import Builder
from difflang.ir.graph import Graph, Value
from difflang.ir.tensor_types import BOOL, I32, History, Tensor
from difflang.ops.ad_interface import (
    Ad,
    Mask,
    MaybeValues,
    TransposedGraph,
    add_tangents,
    and_masks,
    choice_type,
    classify_cotangents,
    or_choices,
    or_zeros,
    presence_mask,
    restrict_choices,
    with_signature,
)

INDEX = Tensor(I32)


def carry_fixpoint(step: Callable[[Mask], Mask], carry: Mask) -> Mask:
    """Which carries are active: the least fixpoint of `step` that contains `carry`."""
    while True:
        # A carry that is active at first stays so even if every step overwrites it: the loop may take no step.
        grown = tuple([a or b for a, b in zip(carry, step(carry), strict=True)])
        if grown == carry:
            return carry
        carry = grown


class IncomingCotangents(Struct, frozen=True):
    """The cotangents of a loop's results, carries first, and their choices."""

    cts: MaybeValues
    choices: MaybeValues
    carries: slice  # the carries among the step's params

    @property
    def count(self) -> int:
        return self.carries.stop - self.carries.start

    def initial_choices(self, active: Sequence[bool]) -> Mask:
        """Which carries have a choice at first. If any has, so have carries without a cotangent, false everywhere."""
        choices = presence_mask(self.choices)
        if not any(choices):
            return choices[: self.count]
        cts = presence_mask(self.cts)
        return tuple([c or (a and not ct) for c, a, ct in zip(choices, active, cts, strict=False)])

    def to_param_mask(self, carry: Mask, params: int) -> Mask:
        """A mask of the carries extended to all params."""
        return (*(False,) * self.carries.start, *carry, *(False,) * (params - self.carries.stop))

    def count_by_group(self, mask: Mask) -> tuple[int, int, int]:
        """The numbers of consts, carries and items in a mask of params."""
        start, stop = self.carries.start, self.carries.stop
        return sum(mask[:start]), sum(mask[start:stop]), sum(mask[stop:])


def transpose_step(ad: Ad, step: Graph, linear: Mask, at: IncomingCotangents) -> TransposedGraph:
    """The transposed step, active for the incoming cotangents and all that its steps make of them."""
    n = at.count
    ys, by_choice = presence_mask(at.cts[n:]), presence_mask(at.choices[n:])
    active = carry_fixpoint(
        lambda carry: ad.transpose(step, linear, classify_cotangents((*carry, *ys))).active[at.carries],
        presence_mask(at.cts[:n]),
    )
    required = at.to_param_mask(active, len(step.params))
    # A history in the carry has no choice: there is no choice that is true everywhere for a history.
    arrays = tuple([isinstance(p.type, Tensor) for p in step.params[at.carries]])

    def chosen(carry: Mask) -> Mask:
        arriving = classify_cotangents((*active, *ys), (*carry, *by_choice))
        back = ad.transpose(step, linear, arriving, classify_cotangents(required))
        return and_masks(back.chosen[at.carries], arrays)

    marked = carry_fixpoint(chosen, and_masks(at.initial_choices(active), arrays))
    arriving = classify_cotangents((*active, *ys), (*marked, *by_choice))
    leaving = classify_cotangents(required, at.to_param_mask(marked, len(step.params)))
    back = ad.transpose(step, linear, arriving, leaving)
    others = (True,) * at.carries.start, (True,) * (len(step.params) - at.carries.stop)
    return restrict_choices(back, (*others[0], *marked, *others[1]))


def initial_carry(builder: Builder, back: TransposedGraph, step: Graph, at: IncomingCotangents) -> list[Value]:
    """The initial carry of the transposed loop: cotangents, then choices, which are true everywhere if none came in."""
    params, active, chosen = step.params[at.carries], back.active[at.carries], back.chosen[at.carries]
    cts, choices = at.cts[: at.count], at.choices[: at.count]
    start = [or_zeros(builder, c, p.type) for c, p, a in zip(cts, params, active, strict=True) if a]
    for ct, choice, param, is_chosen in zip(cts, choices, params, chosen, strict=True):
        if is_chosen:
            start.append(choice or builder.const(ct is not None, choice_type(param.type)))
    return start


def pair_with_choices(back: TransposedGraph, known: int, at: IncomingCotangents) -> Graph:
    """The transposed step with each group of cotangents (consts, carries, items) followed by its choices."""
    (_, carry, _), (_, marked, _) = at.count_by_group(back.active), at.count_by_group(back.chosen)
    ys = sum(presence_mask(at.cts[at.count :]))
    edges = known, known + carry, known + carry + ys, known + carry + ys + marked
    first, ct_carry, ct_ys, by_carry, by_ys = split_at(back.graph.params, *edges)
    params = [*first, *ct_carry, *by_carry, *ct_ys, *by_ys]
    cts, choices = split_groups(
        back.graph.results, (*at.count_by_group(back.active), *at.count_by_group(back.chosen)), 3
    )
    results = [v for ct, choice in zip(cts, choices, strict=True) for v in (*ct, *choice)]
    return with_signature(back.graph, params, results)


def ungroup_results(outs: Sequence[Value], back: TransposedGraph, at: IncomingCotangents) -> list[Value]:
    """The results of the transposed loop in the order of its transposed step: cotangents, then choices."""
    counts = [
        n for pair in zip(at.count_by_group(back.active), at.count_by_group(back.chosen), strict=True) for n in pair
    ]
    (of_consts, by_consts), (of_carry, by_carry), (of_xs, by_xs) = split_groups(outs, counts, 2)
    return [*of_consts, *of_carry, *of_xs, *by_consts, *by_carry, *by_xs]


def split_groups(values: Sequence[Value], counts: Sequence[int], group_size: int) -> list[list[Sequence[Value]]]:
    """A sequence split into pieces of the given sizes, `group_size` pieces per group."""
    edges = [sum(counts[: i + 1]) for i in range(len(counts) - 1)]
    parts = split_at(values, *edges)
    return [parts[i : i + group_size] for i in range(0, len(parts), group_size)]


def accumulating_step(back: Graph, known: tuple[int, int], carry: int, sums: int, span: Span) -> Graph:
    """The transposed step in the param order of a loop, which adds the cotangents of consts to running totals.

    The sums belong to `span`, that of the loop.

    `back` takes (index, consts, xs, ct_carry, ct_ys) and gives (ct_consts, ct_carry, ct_xs).
    """
    builder = Builder()
    nc, nx = known
    _, consts, xs, ct_carry, ct_ys = split_at(back.params, 1, 1 + nc, 1 + nc + nx, 1 + nc + nx + carry)
    at = builder.param(INDEX, "i")
    of_consts = [builder.param(p.type, p.hint) for p in consts]
    totals = [builder.param(r.type, r.hint) for r in back.results[:sums]]
    rest = {p: builder.param(p.type, p.hint) for p in (*ct_carry, *xs, *ct_ys)}
    args = [at, *of_consts, *[rest[p] for p in xs], *[rest[p] for p in ct_carry], *[rest[p] for p in ct_ys]]
    outs = builder.inline(back, *args)
    builder.span = span
    added = [accumulate(a, c) for a, c in zip(totals, outs[:sums], strict=True)]
    return builder.finish([*added, *outs[sums:]], name=back.name)


def accumulate(total: Value, new: Value) -> Value:
    """The sum of two cotangents; for choices, whether one holds."""
    if not isinstance(total.type, History) and total.type.dtype is BOOL:
        return or_choices(total, new)
    whole = add_tangents(total, new)
    assert whole is not None
    return whole


def split_at(values: Sequence[Value], *positions: int) -> list[Sequence[Value]]:
    """A sequence split at the given positions."""
    edges = (0, *positions, len(values))
    return [values[a:b] for a, b in pairwise(edges)]
