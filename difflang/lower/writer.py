"""Formulas of one number, written straight into StableHLO: an op of many steps is one primitive to JAX.

JAX traces a lowering step by step and lowers what it traced, at a tenth of a millisecond each; `digamma` has thousands.
The lowering of such an op is run on a stand-in for `jax` instead, whose arrays write each step when it is taken. Only
what formulas of one number need is here: element by element, all of one shape.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import lru_cache, partial
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
from jax.extend.core import Primitive
from jax.extend.mlir.dialects import chlo, stablehlo
from jax.interpreters import batching, mlir

from difflang.ir.op import OPS, Op

Array = Any
ir = mlir.ir
formula_p = Primitive("formula")


def written(op: Op, array: Array, **attrs: Any) -> Array:
    """An op of one array whose lowering is long, in a trace of JAX."""
    return formula_p.bind(array, name=op.name, attrs=tuple(sorted(attrs.items())))


def traced(name: str, attrs: tuple[tuple[str, Any], ...]) -> Callable[..., Array]:
    """The op of that name as JAX's own function, step by step."""
    return partial(OPS[name].lower, jax, **dict(attrs))


def steps_of(aval: Any, *, name: str, attrs: tuple[tuple[str, Any], ...]) -> Any:
    """The steps that the op of that name takes on an array of such a type, as a jaxpr."""
    return steps_on(name, attrs, aval.shape, aval.dtype)


@lru_cache(maxsize=64)
def steps_on(name: str, attrs: tuple[tuple[str, Any], ...], shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    return jax.make_jaxpr(traced(name, attrs))(jax.ShapeDtypeStruct(shape, dtype)).jaxpr


class Cell:
    """An array of the program that is being written: a value of MLIR, and operators on it as NumPy has them."""

    __slots__ = ("dtype", "value", "writer")
    __array_ufunc__ = None  # a NumPy number on the left leaves it to us

    def __init__(self, writer: Writer, value: Any, dtype: np.dtype[Any]) -> None:
        self.writer, self.value, self.dtype = writer, value, dtype

    def __add__(self, other: Any) -> Cell:
        return self.writer.both(stablehlo.add, self, other)

    def __radd__(self, other: Any) -> Cell:
        return self.writer.both(stablehlo.add, other, self)

    def __sub__(self, other: Any) -> Cell:
        return self.writer.both(stablehlo.subtract, self, other)

    def __rsub__(self, other: Any) -> Cell:
        return self.writer.both(stablehlo.subtract, other, self)

    def __mul__(self, other: Any) -> Cell:
        return self.writer.both(stablehlo.multiply, self, other)

    def __rmul__(self, other: Any) -> Cell:
        return self.writer.both(stablehlo.multiply, other, self)

    def __truediv__(self, other: Any) -> Cell:
        return self.writer.both(stablehlo.divide, self, other)

    def __rtruediv__(self, other: Any) -> Cell:
        return self.writer.both(stablehlo.divide, other, self)

    def __and__(self, other: Any) -> Cell:
        return self.writer.both(stablehlo.and_, self, other)

    def __or__(self, other: Any) -> Cell:
        return self.writer.both(stablehlo.or_, self, other)

    def __lshift__(self, other: Any) -> Cell:
        return self.writer.both(stablehlo.shift_left, self, other)

    def __rshift__(self, other: Any) -> Cell:
        return self.writer.both(stablehlo.shift_right_arithmetic, self, other)

    def __neg__(self) -> Cell:
        return self.writer.of_one(stablehlo.negate, self)

    def __invert__(self) -> Cell:
        return self.writer.of_one(stablehlo.not_, self)

    def __lt__(self, other: Any) -> Cell:
        return self.writer.compared("LT", self, other)

    def __le__(self, other: Any) -> Cell:
        return self.writer.compared("LE", self, other)

    def __gt__(self, other: Any) -> Cell:
        return self.writer.compared("GT", self, other)

    def __ge__(self, other: Any) -> Cell:
        return self.writer.compared("GE", self, other)

    def __eq__(self, other: object) -> Any:
        return self.writer.compared("EQ", self, other)

    def __ne__(self, other: object) -> Any:
        return self.writer.compared("NE", self, other)

    __hash__ = None  # pyright: ignore[reportAssignmentType]  equality is element by element

    def astype(self, dtype: Any) -> Cell:
        return self.writer.converted(self, dtype)

    def view(self, dtype: Any) -> Cell:
        """The same bits as another type of that width."""
        dtype = np.dtype(dtype)
        return Cell(self.writer, stablehlo.bitcast_convert(self.writer.type(dtype), self.value), dtype)


class Writer:
    """Stands in for `jax` where a lowering of one array is run. Everything has the shape of that array."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape
        self.numbers: list[dict[tuple[bytes, str], Cell]] = [{}]  # written so far, by block
        self.types: dict[str, Any] = {}
        self.numpy = self.functions()
        self.lax = SimpleNamespace(
            add=self.named(stablehlo.add),
            mul=self.named(stablehlo.multiply),
            erf=partial(self.of_one, chlo.erf),
            erfc=partial(self.of_one, chlo.erfc),
            erf_inv=partial(self.of_one, chlo.erf_inv),
            cbrt=partial(self.of_one, stablehlo.cbrt),
            integer_pow=self.integer_pow,
            convert_element_type=self.converted,
            cond=self.cond,
        )

    def functions(self) -> SimpleNamespace:
        """Those of `jax.numpy`."""
        ones = {
            "abs": stablehlo.abs,
            "exp": stablehlo.exponential,
            "floor": stablehlo.floor,
            "log": stablehlo.log,
            "round": stablehlo.round_nearest_even,
            "sign": stablehlo.sign,
            "sin": stablehlo.sine,
            "sqrt": stablehlo.sqrt,
            "tan": stablehlo.tan,
        }
        return SimpleNamespace(
            **{name: partial(self.of_one, emit) for name, emit in ones.items()},
            maximum=self.named(stablehlo.maximum),
            minimum=self.named(stablehlo.minimum),
            where=self.where,
            clip=self.clip,
            any=self.any,
            isnan=lambda x: x != x,
            isinf=lambda x: self.of_one(stablehlo.abs, x) == np.inf,
            isfinite=lambda x: Cell(self, stablehlo.is_finite(x.value), np.dtype(np.bool_)),
            copysign=self.copysign,
            full_like=lambda x, number: self.cell(number, x.dtype),
            ones_like=lambda x: self.cell(1, x.dtype),
            zeros_like=lambda x: self.cell(0, x.dtype),
            issubdtype=jax.numpy.issubdtype,
            iscomplexobj=lambda x: False,
            result_type=lambda kind: np.dtype(kind),
            inf=np.inf,
        )

    def named(self, emit: Callable[..., Any]) -> Callable[[Any, Any], Cell]:
        return lambda x, y: self.both(emit, x, y)

    # ---- values

    def type(self, dtype: np.dtype[Any]) -> Any:
        """The type of an array of such elements."""
        if dtype.name not in self.types:
            self.types[dtype.name] = ir.RankedTensorType.get(self.shape, mlir.dtype_to_ir_type(dtype))
        return self.types[dtype.name]

    def cell(self, x: Any, dtype: np.dtype[Any]) -> Cell:
        """An array, or a number all over, written once."""
        if isinstance(x, Cell):
            return x
        number = np.asarray(x, dtype)
        key = (number.tobytes(), dtype.name)
        for known in self.numbers:
            if key in known:
                return known[key]
        value = mlir.ir_constant(number)
        if self.shape:
            value = stablehlo.broadcast_in_dim(self.type(dtype), value, mlir.dense_int_array([]))
        made = self.numbers[-1][key] = Cell(self, value, dtype)
        return made

    def pair(self, x: Any, y: Any) -> tuple[Cell, Cell]:
        """Two operands of one element type: that of the cell of them, which a number takes on."""
        dtype = x.dtype if isinstance(x, Cell) else y.dtype
        x, y = self.cell(x, dtype), self.cell(y, dtype)
        if x.dtype != y.dtype:
            raise TypeError(f"a formula has {x.dtype} and {y.dtype} side by side")
        return x, y

    # ---- steps

    def of_one(self, emit: Callable[..., Any], x: Cell) -> Cell:
        return Cell(self, emit(x.value), x.dtype)

    def both(self, emit: Callable[..., Any], x: Any, y: Any) -> Cell:
        x, y = self.pair(x, y)
        return Cell(self, emit(x.value, y.value), x.dtype)

    def compared(self, direction: str, x: Any, y: Any) -> Cell:
        x, y = self.pair(x, y)
        kind = "FLOAT" if x.dtype.kind not in "iub" else "SIGNED" if x.dtype.kind == "i" else "UNSIGNED"
        how = stablehlo.ComparisonDirectionAttr.get(direction), stablehlo.ComparisonTypeAttr.get(kind)
        return Cell(self, stablehlo.compare(x.value, y.value, how[0], compare_type=how[1]), np.dtype(np.bool_))

    def converted(self, x: Cell, dtype: Any) -> Cell:
        dtype = np.dtype(dtype)
        return x if dtype == x.dtype else Cell(self, stablehlo.convert(self.type(dtype), x.value), dtype)

    def where(self, condition: Cell, x: Any, y: Any) -> Cell:
        x, y = self.pair(x, y)
        return Cell(self, stablehlo.select(condition.value, x.value, y.value), x.dtype)

    def clip(self, x: Cell, low: Any, high: Any) -> Cell:
        return self.both(stablehlo.minimum, high, self.both(stablehlo.maximum, low, x))

    def copysign(self, size: float, x: Cell) -> Cell:
        """The number with the sign of each element, also of -0.0."""
        bits = x.view(f"i{x.dtype.itemsize}")
        return self.where(bits < 0, self.cell(-size, x.dtype), self.cell(size, x.dtype))

    def integer_pow(self, x: Cell, n: int) -> Cell:
        """By squaring, in JAX's order."""
        result, left = None, abs(n)
        while left:
            if left & 1:
                result = x if result is None else result * x
            left >>= 1
            x = x * x if left else x
        result = self.cell(1, x.dtype) if result is None else result
        return 1 / result if n < 0 else result

    # ---- branches

    def any(self, x: Cell) -> Any:
        """Whether any element holds: a value of MLIR, for `cond`."""
        if not self.shape:
            return x.value
        scalar = ir.RankedTensorType.get((), mlir.dtype_to_ir_type(np.dtype(np.bool_)))
        none = mlir.ir_constant(np.asarray(False))
        reduce = stablehlo.ReduceOp([scalar], [x.value], [none], mlir.dense_int_array(list(range(len(self.shape)))))
        block = reduce.regions[0].blocks.append(scalar, scalar)
        with ir.InsertionPoint(block):
            stablehlo.return_([stablehlo.or_(*block.arguments)])
        return reduce.results[0]

    def cond(self, truth: Any, yes: Callable[..., Cell], no: Callable[..., Cell], *operands: Cell) -> Cell:
        """What one of two functions gives, which is of the type of the last operand; the other is not computed."""
        dtype = operands[-1].dtype
        branch = stablehlo.IfOp([self.type(dtype)], truth)
        for region, function in zip(branch.regions, (yes, no), strict=True):
            with self.block(region.blocks.append()):
                stablehlo.return_([function(*operands).value])
        return Cell(self, branch.results[0], dtype)

    @contextmanager
    def block(self, block: Any) -> Generator[None]:
        """What is written within, inside a branch: its numbers are not there afterwards."""
        self.numbers.append({})
        try:
            with ir.InsertionPoint(block):
                yield
        finally:
            self.numbers.pop()


def lowered(ctx: Any, operand: Any, *, name: str, attrs: tuple[tuple[str, Any], ...]) -> Any:
    (aval,) = ctx.avals_in
    if not all([isinstance(n, int) for n in aval.shape]):  # `jax.export` may leave sizes open
        return mlir.lower_fun(traced(name, attrs), multiple_results=False)(ctx, operand)
    writer = Writer(aval.shape)
    return [OPS[name].lower(writer, Cell(writer, operand, aval.dtype), **dict(attrs)).value]


formula_p.def_impl(lambda x, *, name, attrs: traced(name, attrs)(x))
formula_p.def_abstract_eval(lambda x, *, name, attrs: x)
mlir.register_lowering(formula_p, lowered)
batching.defvectorized(formula_p)
