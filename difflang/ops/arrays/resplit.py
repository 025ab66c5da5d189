"""The op `resplit`: an array that is split in one way over devices is split in another one, by exchanges that it names.

`reshard` leaves it to XLA what devices send each other. Here the steps are ours, so what is predicted of them is what
happens.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod

import numpy as np
from msgspec import Struct

from difflang.ir.array_types import Array, Jax, JaxArray
from difflang.ir.op import TypeSolver
from difflang.ir.tensor_types import BOOL, NUMBERS, Tensor
from difflang.ops.arrays.reshard import Along, Split
from difflang.ops.device_regions import mesh_here, on_each_device, partition_spec, permute_parts
from difflang.ops.op_factories import OpExample, along_new_axis, linear_op


class ReshardingStep(Struct, frozen=True):
    """One step from a split to the next, `after`: each device cuts its part out, or a collective.

    An axis of the array is cut, gathered or, in an all-to-all, gathered while another one is cut.
    """

    kind: str  # "cut", "all-gather", "all-to-all" or "collective-permute"
    before: Split
    after: Split
    along: Along
    cut: int = -1  # the axis of the array
    gathered: int = -1


def resharding_steps(given: Split, wanted: Split, sizes: Mapping[str, int]) -> list[ReshardingStep]:
    """How devices get from one split to another: what will be cut is cut first, what must be whole is gathered last."""
    steps: list[ReshardingStep] = []
    here, wanted = [tuple([tuple([a for a in b if sizes.get(a, 1) > 1]) for b in split]) for split in (given, wanted)]
    while here != wanted:
        step = next_step(here, wanted, sizes)
        steps.append(step)
        here = step.after
    return steps


def next_step(here: Split, wanted: Split, sizes: Mapping[str, int]) -> ReshardingStep:
    taken = {a for along in here for a in along}
    pairs = list(zip(here, wanted, strict=True))
    missing = {i: b[len(a) :] for i, (a, b) in enumerate(pairs) if b[: len(a)] == a != b}
    wrong = [i for i, (a, b) in enumerate(pairs) if b[: len(a)] != a]
    for i, (name, *_) in missing.items():
        if name not in taken:
            return ReshardingStep("cut", here, replaced(here, i, (*here[i], name)), (name,), cut=i)
    if all(count(a, sizes) == count(b, sizes) for a, b in pairs):
        return ReshardingStep("collective-permute", here, wanted, moved_axes(here, wanted))
    for i in wrong:
        for j, names in missing.items():
            for k in range(len(here[i])):
                if (last := here[i][k:]) == names[: len(last)]:
                    after = replaced(replaced(here, i, here[i][:k]), j, (*here[j], *last))
                    return ReshardingStep("all-to-all", here, after, last, cut=j, gathered=i)
    i = wrong[0]
    # What another axis will be split along is not made whole.
    kept = [k + 1 for k, name in enumerate(here[i][:-1]) if any(name in names for names in missing.values())]
    keep = max([same_start(here[i], wanted[i]), *kept])
    return ReshardingStep("all-gather", here, replaced(here, i, here[i][:keep]), here[i][keep:], gathered=i)


def same_start(a: Along, b: Along) -> int:
    """How many mesh axes two lists of them begin with in common."""
    return next((k for k, (m, n) in enumerate(zip(a, b, strict=False)) if m != n), min(len(a), len(b)))


def replaced(split: Split, axis: int, along: Along) -> Split:
    return (*split[:axis], along, *split[axis + 1 :])


def count(along: Iterable[str], sizes: Mapping[str, int]) -> int:
    return prod([sizes.get(a, 1) for a in along])


def moved_axes(given: Split, wanted: Split) -> Along:
    """The mesh axes along which data move if the parts of an array go to other devices."""
    pairs = [pair for pair in zip(given, wanted, strict=True) if pair[0] != pair[1]]
    return tuple(dict.fromkeys([a for pair in pairs for along in pair for a in along]))


def permutation_pairs(given: Split, wanted: Split, along: Along, sizes: Mapping[str, int]) -> list[tuple[int, int]]:
    """Who sends its part to whom; a device that has its part already sends it to itself."""
    shape = [sizes[a] for a in along]
    holders: dict[tuple[int, ...], list[int]] = {}
    wishes: list[tuple[int, ...]] = []
    for device, place in enumerate(np.ndindex(*shape)):
        at = dict(zip(along, place, strict=True))
        holders.setdefault(part_of(given, at, sizes), []).append(device)
        wishes.append(part_of(wanted, at, sizes))
    stay = [device for device, part in enumerate(wishes) if device in holders[part]]
    for device in stay:
        holders[wishes[device]].remove(device)
    return [(d, d) if d in stay else (holders[part].pop(), d) for d, part in enumerate(wishes)]


def part_of(split: Split, at: Mapping[str, int], sizes: Mapping[str, int]) -> tuple[int, ...]:
    """Which part of an array the device at a place of the mesh has."""
    found: list[int] = []
    for along in split:
        number = 0
        for a in along:
            number = number * sizes[a] + at.get(a, 0)
        found.append(number)
    return tuple(found)


def resplit_type(same: TypeSolver, x: Tensor, *, given: Split, wanted: Split) -> Tensor:
    same.accepts(x, (*NUMBERS, BOOL))
    for split in (given, wanted):
        same.require(len(split) == x.rank, "{} does not have {} axes", x, len(split))
    return x


def resplit_lower(jax: Jax, x: JaxArray, *, given: Split, wanted: Split) -> JaxArray:
    mesh, free = mesh_here(jax)
    first, last = [tuple([tuple([a for a in along if a in free]) for along in split]) for split in (given, wanted)]
    steps = resharding_steps(first, last, mesh.shape) if free else []

    def on_device(here: JaxArray) -> tuple[JaxArray, ...]:
        for step in steps:
            here = step_on_device(jax, here, step, mesh.shape)
        return (here,)

    specs = [(partition_spec(jax, split, free),) for split in (given, wanted)]
    return on_each_device(jax, on_device, (x,), *specs)[0] if steps else x


def step_on_device(jax: Jax, here: JaxArray, step: ReshardingStep, sizes: Mapping[str, int]) -> JaxArray:
    """What a device has after a step."""
    lax = jax.lax
    match step.kind:
        case "cut":
            size = here.shape[step.cut] // count(step.along, sizes)
            return lax.dynamic_slice_in_dim(here, lax.axis_index(step.along) * size, size, axis=step.cut)
        case "all-gather":
            return lax.all_gather(here, step.along, axis=step.gathered, tiled=True)
        case "all-to-all":
            return lax.all_to_all(here, step.along, step.cut, step.gathered, tiled=True)
        case _:
            pairs = permutation_pairs(step.before, step.after, step.along, sizes)
            return permute_parts(jax, here, step.along, pairs)


def resplit_reference(x: Array, *, given: Split, wanted: Split) -> Array:
    return x


resplit = linear_op(
    "resplit",
    type=resplit_type,
    transpose=(lambda ct, x, given, wanted: resplit.one(ct, given=wanted, wanted=given),),
    mask_transpose=lambda mask, i, x, given, wanted: mask,
    reference=resplit_reference,
    lower=resplit_lower,
    accepts=(*NUMBERS, BOOL),
    batch_rule=along_new_axis(lambda n, given, wanted: {"given": ((), *given), "wanted": ((), *wanted)}),
    samples=(
        OpExample(((4, 3),), {"given": (("rows",), ()), "wanted": ((), ())}),
        OpExample(((4,),), {"given": (("rows",),), "wanted": (("columns",),)}),
    ),
    doc="""The same numbers, split over devices along the axes of a mesh as `wanted`; they were split as `given`.
    Units: u -> u. Kinks: none.""",
    traits=("data movement", "disjoint transpose", "bit exact", "cheap", "view"),
)
