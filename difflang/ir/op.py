"""The declaration of an op, which holds every fact about it; the op registry; and the interface of type solvers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Concatenate, Literal, Protocol

import numpy as np
from msgspec import Struct

from difflang.ir.array_types import Array, Jax, JaxArray
from difflang.ir.graph import Eqn, Graph, Value, Values
from difflang.ir.region_dataflow import RegionDataflow
from difflang.ir.symbolic_dims import Dim
from difflang.ir.tensor_types import COMPLEX_DTYPE_OF, REAL_DTYPE_OF, DType, Tensor, Type


class TypeMismatch(Exception):
    """A type rule rejected its operands. `operands` are the positions that disagree, with a description of each."""

    def __init__(self, message: str, operands: tuple[int, ...] = (), what: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.operands = operands
        self.descriptions = what


class TypeSolver(Protocol):
    """How a type rule compares types. Graphs compare strictly; the checker unifies dtypes and defers unproved sizes."""

    # A rule never looks inside a dtype or compares sizes itself, so one rule serves sizes that are numbers or names.

    def dtype(self, a: Tensor, b: Tensor) -> None: ...
    def accepts(self, a: Tensor, dtypes: Sequence[DType]) -> None: ...
    def shape(self, a: Tensor, b: Tensor, except_axis: int | None = None) -> None: ...
    def size(self, a: Dim, b: Dim, quantity: str = "size") -> None: ...
    def window(self, size: Dim, whole: Dim) -> None: ...  # a part of an axis, or all of it
    def real_dtype(self, z: Tensor) -> DType: ...  # of the real and imaginary parts of complex numbers
    def complex_dtype(self, part: Tensor) -> DType: ...  # of complex numbers with such parts
    def require(self, condition: bool, message: str, *parts: object) -> None: ...  # `parts` for the message's {}


class StrictTypeSolver:
    """The solver of the IR, where every dtype and size is known."""

    def dtype(self, a: Tensor, b: Tensor) -> None:
        if a.dtype is not b.dtype:
            raise TypeMismatch(f"element types differ: {a} and {b}")

    def accepts(self, a: Tensor, dtypes: Sequence[DType]) -> None:
        if a.dtype not in dtypes:
            raise TypeMismatch(f"takes {', '.join(map(str, dtypes))}, not {a.dtype}")

    def shape(self, a: Tensor, b: Tensor, except_axis: int | None = None) -> None:
        if a.shape == b.shape:
            return
        if a.rank != b.rank or any(
            m != n for i, (m, n) in enumerate(zip(a.shape, b.shape, strict=True)) if i != except_axis
        ):
            raise TypeMismatch(f"shapes differ: {a} and {b}")

    def size(self, a: Dim, b: Dim, quantity: str = "size") -> None:
        if a != b:
            raise TypeMismatch(f"the {quantity} differs: {a} and {b}")

    def window(self, size: Dim, whole: Dim) -> None:
        if isinstance(whole, int) and isinstance(size, int) and not 0 <= size <= whole:
            raise TypeMismatch(f"a window of {size} does not fit in {whole}")

    def real_dtype(self, z: Tensor) -> DType:
        return REAL_DTYPE_OF[z.dtype]

    def complex_dtype(self, part: Tensor) -> DType:
        return COMPLEX_DTYPE_OF[part.dtype]

    def require(self, condition: bool, message: str, *parts: object) -> None:
        if not condition:
            raise TypeMismatch(message.format(*parts))


STRICT_SOLVER = StrictTypeSolver()

MaybeValue = Value | None

# The rules of an op take its operands, as many as it has, and then its attributes by keyword.
# (solver, *types, **attrs[, regions]) -> the types of the results
TypeRule = Callable[Concatenate[TypeSolver, ...], Type | tuple[Type, ...]]
TensorTypeRule = Callable[Concatenate[TypeSolver, ...], Tensor]
# (*arrays, **attrs) -> array(s); with regions: (evaluate, *arrays, regions, **attrs)
ReferenceRule = Callable[..., Any]
ArrayReferenceRule = Callable[..., Array | np.generic]
# (jax, *arrays, **attrs) -> array(s); with regions or an effect: (lowering, *arrays, ...)
LowerRule = Callable[..., Any]
ArrayLowerRule = Callable[Concatenate[Jax, ...], JaxArray]
# (d, y, *operands, **attrs) -> dy, linear in d; for several results (d, ys, ...) -> dys
JvpRule = Callable[Concatenate[Value, ...], Value | Sequence[MaybeValue]]
# (ct, *operands, **attrs) -> ct_operand, linear in ct; for several results (cts, ...)
TransposeRule = Callable[..., Value]
OperandJvpRules = Sequence[JvpRule | None]
OperandTransposeRules = Sequence[TransposeRule | None]
# (*operands, **attrs) -> a value made of them
ValueRule = Callable[..., Value]
# How to compute a whole batch at once.
BatchedOp = Callable[..., Value | Values]
# (eqn, which operands are batched, batch size) -> that, or None.
BatchRule = Callable[[Eqn, tuple[bool, ...], Dim], BatchedOp | None]


# ---- The position of an op on its derivative


class OperandRules(Struct, frozen=True):
    """The derivative of an op, operand by operand.

    * `jvp`: one linear rule an operand, `(d, y, *operands, **attrs) -> dy`, `None` where the operand has no tangent.
    * `transpose`: the op is linear: `multilinear` in each operand by itself, else in all that have a rule together. One
      rule an operand, `(ct, *operands, **attrs) -> ct_operand`, `None` where it is not linear in it. Operands that are
      being transposed arrive as `UndefinedPrimal(type)`. A linear op may have a `jvp` too: a cheaper one, or, if it is
      `directional`, that in its first operand.

    The rules of an op with several results take tuples: of results, of tangents, of cotangents (`None` for none).
    """

    jvp: OperandJvpRules | None = None
    transpose: OperandTransposeRules | None = None
    multilinear: bool = False
    directional: bool = False  # a derivative at the first operand: linear in each other operand by itself
    # (mask like the result, operand position, *operands, **attrs) -> the mask of that operand's cotangent.
    mask_transpose: ValueRule | None = None

    @property
    def linear_in_each(self) -> bool:
        """Whether a linear op is so in each operand that has a rule by itself, not in all of them together."""
        return self.multilinear or self.directional

    @property
    def of_operands(self) -> OperandJvpRules | OperandTransposeRules:
        """The rules that say in which operands the op has a derivative."""
        return self.jvp or self.transpose or ()


# (ad, eqn, operands, tangents) -> results and their tangents; see `ops.ad_interface`
RegionLinearizeRule = Callable[..., tuple[Sequence[Value], Sequence[MaybeValue]]]
# (ad, eqn, TransposeRequest) -> cotangents of the operands
RegionTransposeRule = Callable[..., Sequence[MaybeValue]]


class EquationRules(Struct, frozen=True):
    """The derivative of an op with regions or with rules of the program: see `ops.ad_interface`."""

    linearize: RegionLinearizeRule
    transpose: RegionTransposeRule | None = None
    jvp: RegionLinearizeRule | None = None  # where primal and tangent may share a graph: both in one equation
    # For an op that differs from another one in its derivative alone: (eqn, in_reverse) -> that other equation.
    # `in_reverse` says that it is part of a step which a reversible loop runs backwards.
    without_derivative: Callable[[Eqn, bool], Eqn] | None = None
    # For an op whose derivative the program declares: (eqn) -> the name of its function.
    custom_rule_name: Callable[[Eqn], str] | None = None
    linear_in: Callable[[Eqn], tuple[bool, ...]] | None = None  # (eqn) -> the operands it is linear in together


# Why an op is inactive: its results move in steps, or none of them is a number; the program asks for that; it tells how
# numbers compare; its results are random, made from a key; its first operand was drawn from a distribution that the
# others determine, so that the derivative of its mean is not that of an outcome.
Inactivity = Literal["steps", "stop", "comparison", "draw", "drawn"]


class Inactive(Struct, frozen=True):
    """The results never carry a tangent: integers, comparisons, `floor`, `stop`."""

    why: Inactivity = "steps"


class DerivativeOperator(Struct, frozen=True):
    """The op is a derivative itself, rewritten by `ad.expand_derivatives` before anything else sees it."""

    expand: Callable[..., Sequence[Value]]  # (ad, builder, eqn, operands) -> results


Derivative = OperandRules | EquationRules | Inactive | DerivativeOperator


# ---- What is known of an op's powers and products


class Root(Struct, frozen=True):
    """What an op is the root of: `op(*operands) ^ degree` is `radicand(*operands, **attrs)`.

    So its powers have derivatives where it has none itself.
    """

    degree: int
    radicand: ValueRule
    # For a root that is NaN in places where its radicand has a slope: a factor that is NaN there, and 1 elsewhere.
    domain: ValueRule | None = None


class Factors(Struct, frozen=True):
    """An op that is a product: (eqn) -> the factors of its result, each with its power; none if it is no product."""

    of: Callable[[Eqn], Sequence[tuple[Value, int]]]


class FactoredForm(Struct, frozen=True):
    """(*operands, **attrs) -> an equal product of factors whose derivative rules lead back to themselves."""

    product: ValueRule


# ---- How an op only moves elements


class Fill(Struct, frozen=True):
    """An op that may fill an array with one number: (*arrays, **attrs) -> that number, or None."""

    value: Callable[..., JaxArray | None]


class AxisPermutation(Struct, frozen=True):
    """An op that only moves axes: (**attrs) -> their order."""

    order: Callable[..., tuple[int, ...]]


class Window(Struct, frozen=True):
    """(eqn) -> axis, (start, stop) if it reads one slice of its operand along one axis, else None."""

    bounds: Callable[[Eqn], tuple[int, tuple[int, int]] | None]


class Placement(Struct, frozen=True):
    """An op that only moves elements between devices.

    `splits`: (**attrs) -> the mesh axes that split each axis of its result.
    `declared`: (**attrs) -> whether a type says so, and not a call of the program that moves the array.
    """

    splits: Callable[..., tuple[tuple[str, ...], ...]]
    declared: Callable[..., bool]


class NeighbourExchange(Struct, frozen=True):
    """An op that moves elements along one axis: (**attrs) -> the axis, and how far.

    Devices over which that axis is split send each other what crosses their borders.
    """

    distance: Callable[..., tuple[int, int]]


class Partial(Struct, frozen=True):
    """What a device finds in its part of an axis that an op reduces: an array, gathered or summed over the devices."""

    type: Tensor
    gathered: bool = False


Trait = Literal[
    "elementwise",  # one result, of the operands' common shape
    "gather",  # reads the first operand at indices that the others give; an index out of range is harmless
    "scatter",  # gives its first operand with a few elements replaced, at indices that the others give
    "select",  # between the second and the third operand, element by element, by the first
    "data movement",  # its transpose only moves and adds elements: it multiplies and subtracts nothing
    "disjoint transpose",  # data movement whose transpose adds no two elements: it maps masks just as it maps numbers
    "bit exact",  # it makes, moves or compares elements: compiled it gives the bits of its reference
    "cheap",  # less work than writing its result to memory and reading it back
    "view",  # of an argument it takes no time and no memory
    "correctly rounded",  # a result computed beforehand is that of every engine
    "nonnegative",  # never below 0, nor -0.0 (it may be NaN)
    "keeps sign",  # nonnegative, or NaN, if all its operands are and none is empty
    "not holomorphic",  # linear over the reals only: it has no complex derivative
    "fusion barrier",  # XLA never fuses across it
    "accepts fill",  # its lowering accepts a number in place of an array filled with it
    "accepts transposed",  # its lowering accepts operands whose axes have not been permuted yet
    "asks all elements",  # its lowering branches on all elements of an operand: each device asks those that it has
    "whole matrices",  # a device needs the last two axes of its operands whole
    "whole operands",  # a device needs all of them: every element has a part in each result
    "pinned",  # its result is placed where the equation stands: never moved out of a loop
]


class RegionRules(Struct, frozen=True):
    """What an op with regions says of them: how the dataflow machine runs them, and how values flow in and out.

    `dataflow_lower_rule`: (lowering, eqn, ports) -> ports; see `ops.region_interface.DataflowLowering`.
    """

    dataflow_lower_rule: Callable[..., Any]
    region_dataflow: Callable[[Eqn], RegionDataflow] | None = None


class Op(Struct, frozen=True, eq=False):
    """An op and every fact about it."""

    name: str
    type: TypeRule
    reference: ReferenceRule
    lower: LowerRule
    doc: str
    derivative: Derivative
    traits: tuple[Trait, ...] = ()
    accepts: tuple[DType, ...] = ()  # element types of the first operand; () where the type rule decides
    samples: Any = None  # how tests draw operands; see `ops.op_factories`
    cost: Callable[..., Dim] | None = None  # (*types, **attrs) -> flops; None: one per element of the results
    effect: str = ""  # "print": never dropped, merged or moved; its reference takes a text sink before its operands
    powers: Root | Factors | FactoredForm | None = None
    batch_rule: BatchRule | None = None
    regions: RegionRules | None = None  # of ops that have them
    movement: Fill | AxisPermutation | Window | Placement | NeighbourExchange | None = None
    # For results that are defined up to complex phases: (*results) -> values in which the phases cancel.
    phase_invariants: Callable[..., Sequence[Value]] | None = None
    # Of a reduction that devices do not bring together as one sum of its result: (operand, result) -> what each finds
    # in its part of an axis, and whether all of it is gathered or summed.
    partials: Callable[[Tensor, Tensor], Sequence[Partial]] | None = None
    cpu_lower_rule: LowerRule | None = None  # its lowering for XLA on the CPU, where that differs
    module: str = ""  # the module of Python that declares it, if it is not one of the package

    def __str__(self) -> str:
        return self.name

    @property
    def region_dataflow(self) -> Callable[[Eqn], RegionDataflow] | None:
        return self.regions.region_dataflow if self.regions is not None else None

    @property
    def elementwise(self) -> bool:
        return "elementwise" in self.traits

    @property
    def inactive(self) -> bool:
        return isinstance(self.derivative, Inactive)

    @property
    def why_inactive(self) -> Inactivity | None:
        return self.derivative.why if isinstance(self.derivative, Inactive) else None

    @property
    def is_derivative(self) -> bool:
        return isinstance(self.derivative, DerivativeOperator)

    @property
    def operand_rules(self) -> OperandRules:
        """The rules operand by operand; of an op that has none, none."""
        return self.derivative if isinstance(self.derivative, OperandRules) else NO_OPERAND_RULES

    @property
    def equation_rules(self) -> EquationRules | None:
        return self.derivative if isinstance(self.derivative, EquationRules) else None

    @property
    def without_derivative(self) -> Callable[[Eqn, bool], Eqn] | None:
        return None if self.equation_rules is None else self.equation_rules.without_derivative

    def declared_name(self, eqn: Eqn) -> str | None:
        """The name of the function whose derivative the program declares, if this is a call of one."""
        rules = self.equation_rules
        return rules.custom_rule_name(eqn) if rules is not None and rules.custom_rule_name is not None else None

    def __call__(self, *operands: Value, regions: tuple[Graph, ...] = (), **attrs: Any) -> Values:
        """Emit an equation in the innermost of the operands' builders."""
        home = operands[0].home
        for operand in operands:
            if operand.home.depth > home.depth:
                home = operand.home
        return home.emit(self, operands, regions, **attrs)

    def one(self, *operands: Value, **attrs: Any) -> Value:
        """The same, for an op with one result."""
        (result,) = self(*operands, **attrs)
        return result


NO_OPERAND_RULES = OperandRules()


class UndefinedPrimal(Struct, frozen=True):
    """Stands for an operand that the op is being transposed in: only its type is known."""

    type: Tensor


class OpRegistry(dict[str, Op]):
    """Every op by name."""

    def declare(self, op: Op) -> Op:
        if op.name in self:
            raise TypeError(f"op {op.name} is declared twice")
        self[op.name] = op
        return op

    def differentiable(self) -> list[Op]:
        return [op for op in self.values() if not op.inactive]


OPS = OpRegistry()


def result_types(
    op: Op, types: Sequence[Type], regions: tuple[Graph, ...], attrs: Any, solver: TypeSolver = STRICT_SOLVER
) -> tuple[Type, ...]:
    """The result types of one use of an op. Errors: TypeMismatch."""
    found = op.type(solver, *types, **({"regions": regions} if regions else {}), **attrs)
    return found if isinstance(found, tuple) else (found,)
