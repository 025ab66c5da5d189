"""Into how many parts the values of a jaxpr are split over devices, so far as its memory depends on that.

The program says it of its params and where `pin_splits` has written it; between these places splits follow from shapes.
A value of which nothing is known counts as whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from jax.sharding import PartitionSpec

Parts = tuple[int, ...]  # of each axis; none of an array that every device has the whole of
WINDOWS = frozenset({"slice", "dynamic_slice", "dynamic_update_slice", "pad", "concatenate"})
WITH_ONES = frozenset({"reshape", "squeeze", "expand_dims"})


def body_params(eqn: Any, inner: Any, reads: list[Parts]) -> list[tuple[Any, list[Parts]]]:
    """The jaxprs that an equation runs, each with the parts of its params."""
    match eqn.primitive.name, eqn.params:
        case "while", {"cond_jaxpr": go, "body_jaxpr": body, "cond_nconsts": first, "body_nconsts": second}:
            carry = reads[first + second :]
            return [(go.jaxpr, reads[:first] + carry), (body.jaxpr, reads[first : first + second] + carry)]
        case "scan", {"jaxpr": body, "num_consts": consts, "num_carry": carry}:
            return [(body.jaxpr, reads[: consts + carry] + [split(each[1:]) for each in reads[consts + carry :]])]
        case "cond", {"branches": branches}:
            return [(branch.jaxpr, reads[1:]) for branch in branches]
        case "shard_map", _ if inner is not None:
            return [(inner, [()] * len(reads))]  # its arrays are those of one device
        case _:
            return [] if inner is None else [(inner, reads)]


def carried_parts(eqn: Any, reads: list[Parts], results: Sequence[Parts]) -> list[Parts]:
    """The parts of the operands of an equation, where what a loop carries is split as after a step too."""
    match eqn.primitive.name, eqn.params:
        case "while", {"cond_nconsts": first, "body_nconsts": second}:
            start, count = first + second, len(results)
        case "scan", {"num_consts": start, "num_carry": count}:
            pass
        case _:
            return reads
    carry = [joined(a, b) for a, b in zip(reads[start : start + count], results[:count], strict=True)]
    return [*reads[:start], *carry, *reads[start + count :]]


def result_parts(
    eqn: Any, reads: Sequence[Parts], bodies: Sequence[Sequence[Parts]], pins: Mapping[Any, Parts]
) -> list[Parts]:
    """Into how many parts the results of an equation are split: as its bodies give them, as it says itself, like its
    operands, or as what it is pinned to.
    """
    name = eqn.primitive.name
    if name == "sharding_constraint":
        return [constraint_parts(eqn, reads[0])]
    if name == "shard_map":
        specs = zip(eqn.params["out_specs"], eqn.outvars, strict=True)
        return [spec_parts(spec, eqn.params["mesh"], (1,) * len(v.aval.shape)) for spec, v in specs]
    if bodies:
        first = eqn.params["num_carry"] if name == "scan" else len(bodies[-1])
        return [each if i < first else (1, *each) * bool(each) for i, each in enumerate(bodies[-1])]
    found: list[Parts] = []
    for v in eqn.outvars:
        parts: Parts = ()
        for x, mine in zip(eqn.invars, reads, strict=True):
            parts = joined(parts, split(operand_parts(eqn, x.aval.shape, mine, v.aval.shape))) if mine else parts
        found.append(parts or pins.get(v, ()))
    return found


def operand_parts(eqn: Any, shape: tuple[int, ...], parts: Parts, result: tuple[int, ...]) -> Parts:
    """The parts of a result along the axes that it has of an operand."""
    name, params = eqn.primitive.name, eqn.params
    if name == "transpose":
        return tuple([parts[a] for a in params["permutation"]])
    if name == "broadcast_in_dim":
        along = dict(zip(params["broadcast_dimensions"], zip(shape, parts, strict=True), strict=True))
        return tuple([along[i][1] if i in along and along[i][0] == n else 1 for i, n in enumerate(result)])
    if name.startswith(("reduce_", "arg")):
        return tuple([p for a, p in enumerate(parts) if a not in params["axes"]])
    if name in WITH_ONES and [n for n in shape if n != 1] == [n for n in result if n != 1]:
        rest = iter([p for n, p in zip(shape, parts, strict=True) if n != 1])
        return tuple([next(rest) if n != 1 else 1 for n in result])
    if shape == result or (name in WINDOWS and len(shape) == len(result)):
        return tuple([p if n == m else 1 for n, m, p in zip(shape, result, parts, strict=True)])
    return ()


def joined(a: Parts, b: Parts) -> Parts:
    """The parts of a value that is split in both ways."""
    return tuple([max(m, n) for m, n in zip(a, b, strict=True)]) if a and b else a or b


def pinned_parts(jaxpr: Any) -> dict[Any, Parts]:
    """The values of a jaxpr that it says are split, and how."""
    return {e.invars[0]: constraint_parts(e, ()) for e in jaxpr.eqns if e.primitive.name == "sharding_constraint"}


def constraint_parts(eqn: Any, given: Parts) -> Parts:
    """The parts that a constraint asks for; along axes that it leaves open as given."""
    sharding, rank = eqn.params["sharding"], len(eqn.outvars[0].aval.shape)
    return spec_parts(sharding.spec, sharding.mesh, given or (1,) * rank)


def spec_parts(spec: PartitionSpec, mesh: Any, given: Parts) -> Parts:
    """The parts that a spec asks for; along axes that it leaves open as given."""
    found: list[int] = []
    for entry, before in zip([*spec, *[None] * (len(given) - len(spec))], given, strict=True):
        axes = entry if isinstance(entry, tuple) else (entry,) if isinstance(entry, str) else ()
        is_open = entry is PartitionSpec.UNCONSTRAINED
        found.append(before if is_open else prod([mesh.shape[a] for a in axes]))
    return split(tuple(found))


def split(parts: Parts) -> Parts:
    """The parts of an array; none if it is whole."""
    return parts if any([p > 1 for p in parts]) else ()
