"""The op `reshard`: the same numbers, split along axes of a mesh as it says.

It stands where a type says how an array is split, and where the program moves one. On one device it does nothing, and
so along an axis that the mesh does not have.
"""

from __future__ import annotations

from typing import Any

from difflang.ir.array_types import Array, Jax, JaxArray
from difflang.ir.graph import Value
from difflang.ir.op import Placement, TypeSolver
from difflang.ir.tensor_types import BOOL, NUMBERS, Tensor
from difflang.ops.device_regions import mesh_here
from difflang.ops.op_factories import OpExample, along_new_axis, linear_op

Along = tuple[str, ...]  # the mesh axes that an axis of an array is split along, the outermost first
Split = tuple[Along, ...]  # of each axis of an array
ANY: Along = ("?",)  # an axis that is split as it comes


def split_text(along: Along) -> str:
    """The axes that split an axis of an array, as they are written; nothing if it is whole."""
    return "" if along in ((), ANY) else f"@({', '.join(along)})" if along[1:] else f"@{along[0]}"


def split_type_text(type: Tensor, split: Split) -> str:
    """An array's type with the axes that split it: `f32[n @data, d]`."""
    sizes = [f"{size} {split_text(along)}".rstrip() for size, along in zip(type.shape, split, strict=True)]
    return f"{type.dtype}[{', '.join(sizes)}]" if sizes else str(type)


def reshard_type(same: TypeSolver, x: Tensor, *, splits: Split, source: Split) -> Tensor:
    same.accepts(x, (*NUMBERS, BOOL))
    for split in (splits, source) if source else (splits,):
        same.require(len(split) == x.rank, "{} does not have {} axes", x, len(split))
    return x


def reshard_transpose(ct: Value, x: Any, *, splits: Split, source: Split) -> Value:
    """A cotangent is split as its value; where that is not known, as it comes."""
    return reshard.one(ct, splits=source, source=splits) if source else ct


def reshard_lower(jax: Jax, x: JaxArray, *, splits: Split, source: Split) -> JaxArray:
    mesh, free = mesh_here(jax)
    if not free:
        return x
    unconstrained = jax.sharding.PartitionSpec.UNCONSTRAINED
    spec = [unconstrained if along == ANY else tuple([a for a in along if a in free]) or None for along in splits]
    return jax.lax.with_sharding_constraint(x, jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*spec)))


def reshard_reference(x: Array, *, splits: Split, source: Split) -> Array:
    return x


reshard = linear_op(
    "reshard",
    type=reshard_type,
    transpose=(reshard_transpose,),
    mask_transpose=lambda mask, i, x, splits, source: mask,
    reference=reshard_reference,
    lower=reshard_lower,
    accepts=(*NUMBERS, BOOL),
    movement=Placement(lambda splits, source: splits, lambda splits, source: bool(source)),
    batch_rule=along_new_axis(
        lambda n, splits, source: {"splits": (ANY, *splits), "source": (ANY, *source) if source else ()}
    ),
    samples=(
        OpExample(((4, 3),), {"splits": (("rows",), ()), "source": ((), ())}),
        OpExample(((4,),), {"splits": (("rows", "columns"),), "source": ()}),
    ),
    doc="""The same numbers, each axis split along the axes of a mesh that `splits` names; they were split as `source`.
    Units: u -> u. Kinks: none.""",
    traits=("data movement", "disjoint transpose", "bit exact", "cheap", "view"),
)  # fmt: skip
