"""What a choice becomes when the cotangent beside it goes back through an equation.

A choice is an array of truths: where it does not hold, the cotangent is exactly zero, and stays so beside Inf and NaN.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from difflang.ir.builder import Builder
from difflang.ir.graph import Eqn, Value
from difflang.ir.op import OPS, OpRule, UndefinedPrimal
from difflang.ir.tensor_types import Tensor
from difflang.ops.ad_interface import MaybeValues, choice_type, choices_of, presence_mask
from difflang.ops.arrays.axis_reductions import any_broadcast_like
from difflang.ops.op_factories import tensor_type

Operands = Sequence[Value | UndefinedPrimal]
CotangentMask = Any  # a value; of an op with several results, one for each


def incoming_mask(eqn: Eqn, builder: Builder, cts: MaybeValues, choices: Mapping[Value, Value]) -> CotangentMask | None:
    """The choice beside the cotangent of an equation's result; of several results, one for each if there is any."""
    found = choices_of(cts, choices)
    if len(cts) == 1 or eqn.op.mask_transpose is None or not any(presence_mask(found)):
        return found[0] if len(cts) == 1 else None
    return tuple([
        builder.const(ct is not None, choice_type(r.type)) if choice is None else choice
        for ct, choice, r in zip(cts, found, eqn.results, strict=True)
    ])  # fmt: skip


def propagate_mask(
    eqn: Eqn, rule: OpRule, place: int, operands: Operands, ct: Value, choice: CotangentMask
) -> tuple[Value, Value]:
    """What `rule` gave for the operand at `place`, zero where `choice` leaves nothing of it, and the choice beside it.

    What an elementwise op multiplies by may be infinite, and so may what an op works with that mixes all elements: then
    the cotangent is chosen again. A sum of products is not; each of them would have to be.
    """
    op = eqn.op
    scaled = any([isinstance(v, Value) and v.type.tangent is not None for v in operands])
    if op.elementwise:
        return apply_mask(choice, ct) if scaled else ct, choice
    if op.mask_transpose is not None:
        return ct, op.mask_transpose(choice, place, *operands, **eqn.attrs)
    if op.disjoint_transpose:
        return ct, rule(choice, *operands, **eqn.attrs)
    if op.carries:
        ones = rule(mask_as_numbers(choice, tensor_type(ct)), *operands, **eqn.attrs)  # no sum of them is zero
        return ct, OPS["ne"].one(ones, ones.home.const(0.0, ones.type))
    some = any_broadcast_like(choice, ct)
    return apply_mask(some, ct) if scaled else ct, some


def apply_mask(choice: Value, ct: Value) -> Value:
    return OPS["select"].one(choice, ct, ct.home.const(0.0, ct.type))


def mask_as_numbers(choice: Value, like: Tensor) -> Value:
    """One where the choice holds and zero elsewhere."""
    type = Tensor(like.dtype, tensor_type(choice).shape)
    return OPS["select"].one(choice, choice.home.const(1.0, type), choice.home.const(0.0, type))
