"""Factories that declare families of ops: unary, binary, comparison, linear, multilinear, inactive.

Also the test samples of a declaration (`UniformSamples`, `GradedMatrices`, `OpExample`), and small helpers that many
rules share. Declares no op.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from typing import Any, TypeVar, cast

import numpy as np
from msgspec import Struct, field

from difflang.base.wording import count_of
from difflang.ir.array_types import Array, Jax, JaxArray, NestedNumbers
from difflang.ir.graph import Attr, Eqn, Value, Values
from difflang.ir.op import (
    OPS,
    ArrayReferenceRule,
    BatchRule,
    Inactive,
    Inactivity,
    JvpRule,
    LowerRule,
    Op,
    OperandJvpRules,
    OperandRules,
    OperandTransposeRules,
    TensorTypeRule,
    Trait,
    TypeSolver,
    UndefinedPrimal,
    ValueRule,
)
from difflang.ir.symbolic_dims import Dim
from difflang.ir.tensor_types import BOOL, COMPLEXES, FLOATS, NUMBERS, DType, Tensor, Type

# The types for functions that have a complex derivative.
HOLOMORPHIC_DTYPES = FLOATS + COMPLEXES


class UniformSamples(Struct, frozen=True):
    """Operands drawn uniformly from an interval, away from the points in `avoid`."""

    low: float = -2.0
    high: float = 2.0
    avoid: tuple[float, ...] = ()


class GradedMatrices(Struct, frozen=True):
    """Matrices drawn uniformly from an interval around 0, with 1, 2, 3, ... added along the diagonal.

    They are far from singular, and their eigenvalues and singular values far apart.
    """

    width: float = 0.3


class FixedOperand(Struct, frozen=True):
    """An operand that tests do not draw: index arrays, keys, predicates. `data` is a number or nested tuples.

    Without a dtype it takes the one under test.
    """

    data: NestedNumbers
    dtype: DType | None = None


class DrawnOperand(Struct, frozen=True):
    """An operand drawn from an interval of its own, or in a dtype of its own, not the one under test."""

    shape: tuple[int, ...]
    draw: UniformSamples | None = None
    dtype: DType | None = None


class OpExample(Struct, frozen=True):
    """One use of an op. An operand is a shape, drawn from `draw` in the dtype under test, or says how it is made."""

    operands: tuple[tuple[int, ...] | FixedOperand | DrawnOperand, ...]
    attrs: Mapping[str, Attr] = field(default_factory=dict[str, Attr])
    draw: UniformSamples | GradedMatrices = UniformSamples()


Rule = TypeVar("Rule")
OpSamples = UniformSamples | tuple[UniformSamples, ...] | tuple[OpExample, ...]


def batched_axes_attr(n: Dim, *, axes: tuple[int, ...]) -> dict[str, Attr]:
    """The `axes` attribute of an op under one more leading axis."""
    return {"axes": tuple([a + 1 for a in axes])}


class PerOperandRules(Sequence[Rule]):
    """Rules for an op with any number of operands: `rule(i)` is that of operand i."""

    def __init__(self, rule: Callable[[int], Rule]) -> None:
        self.rule = rule

    def __len__(self) -> int:
        return sys.maxsize

    def __getitem__(self, i: Any) -> Any:
        return self.rule(i)


def tensor_type(x: Value | UndefinedPrimal) -> Tensor:
    """The type of a value that is an array, not a history."""
    return cast(Tensor, x.type)


def static_size(size: Dim) -> int:
    """A size that is known to be a number, as in references and lowerings."""
    return cast(int, size)


def same_type_rule(accepts: tuple[DType, ...], count: int) -> TensorTypeRule:
    """All operands, `count` of them, and the result have one type."""

    def type(same: TypeSolver, x: Tensor, *others: Tensor, **_: Attr) -> Tensor:
        if 1 + len(others) != count:
            same.require(False, "takes {}, not {}", count_of(count, "operand"), 1 + len(others))
        if accepts:
            same.accepts(x, accepts)
        for other in others:
            same.dtype(x, other)
            same.shape(x, other)
        return x

    return type


def upcast_half_reference(function: ArrayReferenceRule) -> ArrayReferenceRule:
    """A reference that computes 16-bit floats in f32 and rounds once; the result has the first operand's dtype."""

    def reference(x: Array, *others: Array, **attrs: Attr) -> Array:
        if x.dtype.itemsize == 2 and x.dtype.kind in "fV":
            wide = [a.astype(np.float32) for a in (x, *others)]
            return np.asarray(function(*wide, **attrs)).astype(x.dtype)
        return np.asarray(function(x, *others, **attrs)).astype(x.dtype, copy=False)

    reference.__wrapped__ = function  # type: ignore[attr-defined]
    return reference


def unary_op(
    name: str, *, jvp: JvpRule, accepts: tuple[DType, ...] = FLOATS, samples: OpSamples = UniformSamples(), **facts: Any
) -> Op:
    """An elementwise function of one array. `jvp(dx, y, x)` is linear in `dx`."""
    return elementwise_op(name, derivative=OperandRules(jvp=(jvp,)), accepts=accepts, samples=samples, **facts)


def binary_op(
    name: str,
    *,
    jvp: tuple[JvpRule, JvpRule],
    accepts: tuple[DType, ...] = FLOATS,
    samples: OpSamples = (UniformSamples(), UniformSamples()),
    **facts: Any,
) -> Op:
    """An elementwise function of two arrays of one type. The rules are `(d, z, x, y) -> dz`."""
    return elementwise_op(name, derivative=OperandRules(jvp=jvp), accepts=accepts, samples=samples, **facts)


def elementwise_op(
    name: str,
    *,
    reference: ArrayReferenceRule,
    lower: LowerRule,
    accepts: tuple[DType, ...],
    samples: OpSamples,
    traits: tuple[Trait, ...] = (),
    **facts: Any,
) -> Op:
    """An elementwise op on arrays of one type, as many as its lowering takes, whether differentiable or not."""
    op = Op(
        name,
        type=same_type_rule(accepts, operand_count(lower)),
        reference=upcast_half_reference(reference),
        lower=lower,
        accepts=accepts,
        traits=("elementwise", *traits),
        samples=samples,
        **facts,
    )
    return OPS.declare(op)


def operand_count(lower: LowerRule) -> int:
    """How many arrays a lowering takes, after `jax` and before its attributes."""
    places = [p for p in signature(lower).parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    return len(places) - 1


def piecewise_constant_op(
    name: str, *, accepts: tuple[DType, ...] = FLOATS, why: Inactivity = "steps", **facts: Any
) -> Op:
    """A piecewise constant function of one array: its derivative is 0 everywhere."""
    samples = UniformSamples(-3.0, 3.0)
    return elementwise_op(name, derivative=Inactive(why), accepts=accepts, samples=samples, **facts)


def comparison_op(
    name: str,
    *,
    reference: ArrayReferenceRule,
    accepts: tuple[DType, ...] = NUMBERS,
    count: int = 2,
    traits: tuple[Trait, ...] = (),
    **facts: Any,
) -> Op:
    """An elementwise predicate of `count` arrays, without derivative."""

    def type(same: TypeSolver, *operands: Tensor) -> Tensor:
        return Tensor(BOOL, same_type_rule(accepts, count)(same, *operands).shape)

    def answer(*arrays: Array) -> Array:
        return np.asarray(reference(*arrays), dtype=np.bool_)

    return inactive_op(
        name,
        type=type,
        reference=answer,
        accepts=accepts,
        traits=("elementwise", "bit exact", "correctly rounded", *traits),
        samples=(UniformSamples(),) * count,
        **facts,
    )


def linear_op(
    name: str,
    *,
    transpose: OperandTransposeRules,
    jvp: OperandJvpRules | None = None,
    mask_transpose: ValueRule | None = None,
    multilinear: bool = False,
    **facts: Any,
) -> Op:
    """Linear in all operands that have a rule, together or, if `multilinear`, each by itself; its jvp is itself."""
    rules = OperandRules(jvp=jvp, transpose=transpose, multilinear=multilinear, mask_transpose=mask_transpose)
    return OPS.declare(Op(name, derivative=rules, **facts))


def multilinear_op(name: str, *, transpose: OperandTransposeRules, **facts: Any) -> Op:
    """Linear in each operand separately; its jvp is a sum of itself."""
    return linear_op(name, transpose=transpose, multilinear=True, **facts)


def inactive_op(name: str, *, why: Inactivity = "steps", **facts: Any) -> Op:
    """An op whose results never carry a tangent."""
    return OPS.declare(Op(name, derivative=Inactive(why), **facts))


def along_new_axis(attrs_of: Callable[..., Mapping[str, Attr]]) -> BatchRule:
    """The batch rule of an op on its first operand with a new first axis of size n, with `attrs_of(n, **attrs)`."""

    def rule(eqn: Eqn, batched: Sequence[bool], n: Dim) -> Callable[..., Values] | None:
        if not batched[0] or any(batched[1:]):
            return None
        return lambda *operands: eqn.op(*operands, **attrs_of(n, **eqn.attrs))

    return rule


def full_like(value: Value, number: complex) -> Value:
    """An array like `value`, filled with a number."""
    return value.home.const(number, value.type)


def zeros_of_type(value: Value, type: Type) -> Value:
    """Zeros of a type, in the graph of `value`."""
    return value.home.const(0, type)


def remaining_axes(rank: int, axes: tuple[int, ...]) -> tuple[int, ...]:
    """The axes that are not in `axes`, in order."""
    return tuple(i for i in range(rank) if i not in axes)


def is_complex_array(jax: Jax, x: JaxArray) -> bool:
    """Whether a JAX array is complex: for lowerings."""
    return jax.numpy.issubdtype(x.dtype, np.complexfloating)


def scalar_like(x: JaxArray, value: float) -> JaxArray:
    """A scalar of an array's dtype, for lowerings: JAX's operators combine it with the array."""
    return np.asarray(value, x.dtype)[()]
