"""A facade of `jax` whose functions emit StableHLO directly, where JAX would trace them: ten times as fast.

An op's lowering rule is passed the module that it uses, so it can be passed this one. Common functions are emitted
here, for the element types where JAX lowers them to one operation each; every other function of `jax.lax` and
`jax.numpy` is JAX's own, lowered on the spot. Functions that take functions of arrays are not supported, except those
in `control_flow`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from types import ModuleType
from typing import Any

import jax
import jax.core
import numpy as np
from jax.extend.mlir.dialects import chlo, stablehlo
from jax.interpreters import mlir

from difflang.lower.stablehlo import control_flow, gather_and_scatter, reduce_and_dot
from difflang.lower.stablehlo.hlo_array import (
    BOOL,
    DType,
    HloArray,
    Shape,
    dtype_kind,
    exact_inverse,
    hold_constant_factors,
    hold_quotient,
)

ir = mlir.ir
# An array takes Python and NumPy scalars of no higher rank.
KIND_RANKS = {"b": 0, "u": 1, "i": 1, "f": 2, "c": 3}
PYTHON_RANKS = {bool: 0, int: 1, float: 2, complex: 3}

# Functions of one array of f32 or f64, by their names in `jax.lax`.
UNARY: dict[str, Callable[..., Any]] = {
    "abs": stablehlo.abs, "cbrt": stablehlo.cbrt, "ceil": stablehlo.ceil, "cos": stablehlo.cosine, "erf": chlo.erf,
    "erf_inv": chlo.erf_inv, "erfc": chlo.erfc, "exp": stablehlo.exponential, "expm1": stablehlo.exponential_minus_one,
    "floor": stablehlo.floor, "log": stablehlo.log, "log1p": stablehlo.log_plus_one, "rsqrt": stablehlo.rsqrt,
    "sign": stablehlo.sign, "sin": stablehlo.sine, "sqrt": stablehlo.sqrt, "tan": stablehlo.tan, "tanh": stablehlo.tanh,
}  # fmt: skip
# Binary functions, with the kinds of element types.
BINARY: dict[str, tuple[Callable[..., Any], str]] = {
    "add": (stablehlo.add, "fiu"), "sub": (stablehlo.subtract, "fiu"), "mul": (stablehlo.multiply, "fiu"),
    "div": (stablehlo.divide, "fiu"), "rem": (stablehlo.remainder, "iu"),
    "max": (stablehlo.maximum, "fiu"), "min": (stablehlo.minimum, "fiu"),
    "bitwise_and": (stablehlo.and_, "biu"), "bitwise_or": (stablehlo.or_, "biu"), "bitwise_xor": (stablehlo.xor, "biu"),
}  # fmt: skip
COMPARISONS = {"eq": "EQ", "ne": "NE", "lt": "LT", "le": "LE", "gt": "GT", "ge": "GE"}


def single_value(value: Any) -> Any:
    """A single MLIR value: JAX may represent an array by several, but none of ours."""
    if not isinstance(value, (tuple, list)):
        return value
    (found,) = value
    return found


def can_represent(dtype: DType, x: Any) -> bool:
    """Whether a scalar converts to an element type as in JAX; a NumPy scalar has its own already."""
    if isinstance(x, (np.generic, np.ndarray)):
        return x.dtype == dtype
    rank = PYTHON_RANKS.get(type(x))
    return (KIND_RANKS[dtype_kind(np.asarray(x).dtype)] if rank is None else rank) <= KIND_RANKS[dtype_kind(dtype)]


class FacadeModule:
    """A module of JAX: the functions emitted here, and JAX's for all others."""

    def __init__(self, writer: JaxFacade, module: ModuleType, written: dict[str, Any]) -> None:
        # Underscored, so that no function of the module has these names.
        self._writer, self._module = writer, module
        vars(self).update(written)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._module, name)
        if isinstance(found, (type, ModuleType)) or not callable(found):
            return found
        return partial(self._writer.lower_with_jax, found)


class JaxFacade:
    """Replaces `jax` while one primitive is lowered. `ctx` is JAX's lowering context of that equation."""

    def __init__(self, ctx: Any, called: Callable[..., Any]) -> None:
        self.ctx = ctx
        # Calls a function of JAX's in a frame of the program's source.
        self.call_with_location = called
        # Constants emitted so far in this region.
        self.numbers: dict[tuple[bytes, DType, Shape], HloArray] = {}
        self.types: dict[tuple[DType, Shape], Any] = {}
        self.int_attrs: dict[Shape, Any] = {}
        self.comparisons: dict[tuple[str, str], Any] = {}
        self.lax = FacadeModule(self, jax.lax, self.lax_functions())
        self.numpy = FacadeModule(self, jax.numpy, self.of_numpy())
        # Whether XLA must not inline the functions called now.
        self.calls_not_inlined = False
        self.jit = partial(control_flow.jit, self)
        self.no_inline = partial(control_flow.no_inline, self)
        self.tree = jax.tree

    def lax_functions(self) -> dict[str, Any]:
        own = (
            *("select", "neg", "integer_pow", "reshape", "broadcast", "broadcast_in_dim", "transpose", "slice"),
            *("pad", "concatenate", "full", "full_like", "broadcasted_iota", "bitwise_not", "is_finite"),
            *("clamp", "squeeze", "expand_dims", "dynamic_slice", "dynamic_update_slice", "slice_in_dim"),
            "optimization_barrier",
        )
        return {
            **{name: partial(self.unary, name) for name in UNARY},
            **{name: partial(self.binary, name) for name in BINARY},
            **{name: partial(self.compare, name) for name in COMPARISONS},
            **{name: partial(reduce_and_dot.reduce_named, self, name) for name in reduce_and_dot.REDUCTIONS},
            **{name: getattr(self, name) for name in own},
            "convert_element_type": self.convert,
            "cond": partial(control_flow.cond, self),
            **{name: partial(gather_and_scatter.scatter, self, name) for name in gather_and_scatter.SCATTERS},
            "dot_general": partial(reduce_and_dot.dot_general, self),
            "gather": partial(gather_and_scatter.gather, self),
            "reduce": partial(reduce_and_dot.reduce, self),
            "reduce_window": partial(reduce_and_dot.reduce_window, self),
            "rev": lambda x, axes: x.like(stablehlo.reverse(x.value, self.int_array_attr(axes))),
            "iota": lambda dtype, size: self.broadcasted_iota(dtype, (size,), 0),
            "while_loop": partial(control_flow.while_loop, self),
        }

    def of_numpy(self) -> dict[str, Any]:
        ones = ("abs", "exp", "floor", "log", "sign", "sin", "sqrt", "tan")
        return {
            **{name: partial(self.unary, name) for name in ones},
            **{name: getattr(self, name) for name in ("where", "clip", "round", "copysign", "full_like")},
            "maximum": partial(self.binary, "max"),
            "minimum": partial(self.binary, "min"),
            "append": lambda x, y: self.concatenate([x, self.reshape(self.array(y), (self.array(y).size,))], 0),
            "expand_dims": lambda x, axis: self.expand_dims(x, (axis % (x.ndim + 1),)),
            **{name: partial(reduce_and_dot.min_or_max, self, name) for name in ("min", "max")},
            **{name: partial(getattr(reduce_and_dot, name), self) for name in ("any", "sum")},
            "isnan": lambda x: x != x,
            "isinf": self.is_infinite,
            "isfinite": self.is_finite,
            "ones_like": lambda x: self.full_like(x, 1),
            "zeros_like": lambda x: self.full_like(x, 0),
            "iscomplexobj": lambda x: dtype_kind(x.dtype) == "c",
            "result_type": jax.numpy.result_type,
            "issubdtype": jax.numpy.issubdtype,
        }

    # ---- Values

    def type(self, dtype: DType, shape: Shape) -> Any:
        """The MLIR type of such an array."""
        key = (dtype, shape)
        if key not in self.types:
            self.types[key] = ir.RankedTensorType.get(shape, mlir.dtype_to_ir_type(dtype))
        return self.types[key]

    def int_array_attr(self, numbers: Sequence[int]) -> Any:
        """Integers as an attribute."""
        key = tuple(numbers)
        if key not in self.int_attrs:
            self.int_attrs[key] = mlir.dense_int_array(key)
        return self.int_attrs[key]

    def as_hlo_array(self, x: Any, dtype: DType, shape: Shape = ()) -> HloArray:
        """An array, or a constant emitted once per region, broadcast to the shape as in NumPy."""
        if isinstance(x, HloArray):
            return x if x.shape == shape else self.broadcast_to(x, shape)
        if not can_represent(dtype, x):
            raise TypeError(f"a {type(x).__name__} of {np.asarray(x).dtype} is combined with {dtype}")
        number = np.asarray(x, dtype)
        if number.shape:
            return self.as_hlo_array(HloArray(self, mlir.ir_constant(number), dtype, number.shape), dtype, shape)
        key = (number.tobytes(), dtype, shape)
        if key not in self.numbers:
            value = HloArray(self, mlir.ir_constant(number), dtype, ())
            found = self.numbers[key] = self.broadcast_to(value, shape) if shape else value
            found.number = float(number) if dtype_kind(dtype) == "f" else None
        return self.numbers[key]

    def array(self, x: Any) -> HloArray:
        """An array of the program, or a NumPy array emitted as a constant."""
        if isinstance(x, HloArray):
            return x
        x = np.asarray(x)
        return self.as_hlo_array(x, x.dtype, x.shape)

    def broadcast_to(self, x: HloArray, shape: Shape) -> HloArray:
        """An array broadcast along missing axes and axes of size one."""
        axes = range(len(shape) - x.ndim, len(shape))
        dims = [i for i, n in zip(axes, x.shape, strict=True) if n == shape[i]]
        return self.broadcast_in_dim(self.reshape(x, tuple([shape[i] for i in dims])), shape, dims)

    def alike(self, x: Any, y: Any) -> tuple[HloArray, HloArray]:
        """Operands of one type: a scalar takes the array's."""
        if x.__class__ is y.__class__ is HloArray and x.shape == y.shape and x.dtype == y.dtype:
            return x, y
        dtype = next((a.dtype for a in (x, y) if isinstance(a, HloArray)), None) or np.result_type(x, y)
        shapes = {a.shape for a in (x, y) if isinstance(a, (HloArray, np.ndarray))}
        shape = shapes.pop() if len(shapes) == 1 else np.broadcast_shapes(*shapes)
        x, y = self.as_hlo_array(x, dtype, shape), self.as_hlo_array(y, dtype, shape)
        if x.dtype != y.dtype:
            raise TypeError(f"operands of different types: {x.dtype} and {y.dtype}")
        return x, y

    def lower_with_jax(self, real: Callable[..., Any], *args: Any, **others: Any) -> Any:
        """Lower a function of JAX's here."""
        leaves, tree = jax.tree.flatten((args, others), is_leaf=lambda x: isinstance(x, HloArray))
        places = [i for i, x in enumerate(leaves) if isinstance(x, HloArray)]
        out: list[Any] = []

        def function(*arrays: Any) -> list[Any]:
            filled = list(leaves)
            for i, x in zip(places, arrays, strict=True):
                filled[i] = x
            args, others = jax.tree.unflatten(tree, filled)
            results, shape = jax.tree.flatten(real(*args, **others))
            out[:] = [shape, [jax.typeof(r) for r in results]]
            return results

        avals = [jax.core.ShapedArray(leaves[i].shape, leaves[i].dtype) for i in places]
        lower = mlir.lower_fun(function, multiple_results=True)
        ctx = self.ctx.replace(avals_in=avals, primitive=None)
        values = self.call_with_location(lower, ctx, *[leaves[i].value for i in places])
        shape, types = out
        cells = [HloArray(self, single_value(v), t.dtype, t.shape) for v, t in zip(values, types, strict=True)]
        return jax.tree.unflatten(shape, cells)

    # ---- Elementwise functions

    def unary(self, name: str, x: HloArray) -> HloArray:
        if x.dtype.kind == "f" and x.dtype.itemsize > 2:
            found = x.like(UNARY[name](x.value))
            return found.scaled_like(x) if name == "abs" else found
        return self.lower_with_jax(getattr(jax.lax, name), x)

    def binary(self, name: str, x: Any, y: Any) -> HloArray:
        x, y = self.alike(x, y)
        emit, kinds = BINARY[name]
        if dtype_kind(x.dtype) not in kinds:
            return self.lower_with_jax(getattr(jax.lax, name), x, y)
        if name not in ("mul", "div"):
            return x.like(emit(x.value, y.value))
        if name == "div" and (inverse := exact_inverse(y)) is not None:
            return self.binary("mul", x, inverse)
        if quotient := name == "div":
            x, y = hold_quotient(x), hold_quotient(y)
        x, y, scale = hold_constant_factors(name, x, y)
        return HloArray(self, emit(x.value, y.value), x.dtype, x.shape, scale=scale, quotient=quotient)

    def optimization_barrier(self, x: Any) -> Any:
        """An array, or several that one barrier holds."""
        arrays = [x] if isinstance(x, HloArray) else [*x]
        found = stablehlo.OptimizationBarrierOp([a.value for a in arrays]).results
        held = [a.like(value) for a, value in zip(arrays, found, strict=True)]
        return held[0] if isinstance(x, HloArray) else held

    def shifted(self, emit: Callable[..., Any], x: HloArray, y: Any) -> HloArray:
        x, y = self.alike(x, y)
        return x.like(emit(x.value, y.value))

    def neg(self, x: HloArray) -> HloArray:
        return x.like(stablehlo.negate(x.value)).scaled_like(x)

    def bitwise_not(self, x: HloArray) -> HloArray:
        return ~x

    def compare(self, name: str, x: Any, y: Any) -> HloArray:
        x, y = self.alike(x, y)
        of = dtype_kind(x.dtype)
        if of == "c":
            return self.lower_with_jax(getattr(jax.lax, name), x, y)
        attrs = self.comparisons.get((name, of))
        if attrs is None:
            how = "FLOAT" if of == "f" else "SIGNED" if of == "i" else "UNSIGNED"
            attrs = stablehlo.ComparisonDirectionAttr.get(COMPARISONS[name]), stablehlo.ComparisonTypeAttr.get(how)
            self.comparisons[name, of] = attrs
        return HloArray(self, stablehlo.compare(x.value, y.value, attrs[0], compare_type=attrs[1]), BOOL, x.shape)

    def convert(self, x: Any, dtype: Any) -> HloArray:
        x, dtype = self.array(x), np.dtype(dtype)
        if dtype == x.dtype:
            return x
        if dtype_kind(dtype) in ("fi" if dtype_kind(x.dtype) == "f" else "fiu") and dtype_kind(x.dtype) != "c":
            return HloArray(self, stablehlo.convert(self.type(dtype, x.shape), x.value), dtype, x.shape)
        return self.lower_with_jax(partial(jax.lax.convert_element_type, new_dtype=dtype), x)

    def select(self, condition: Any, x: Any, y: Any) -> HloArray:
        """`condition` may be a scalar."""
        x, y = self.alike(x, y)
        return x.like(stablehlo.select(self.array(condition).value, x.value, y.value))

    def where(self, condition: Any, x: Any, y: Any) -> HloArray:
        condition, (x, y) = self.array(condition), self.alike(x, y)
        shape = np.broadcast_shapes(condition.shape, x.shape)
        return self.select(
            self.as_hlo_array(condition, BOOL, shape), *[self.as_hlo_array(v, x.dtype, shape) for v in (x, y)]
        )

    def clip(self, x: HloArray, low: Any, high: Any) -> HloArray:
        return self.binary("min", high, self.binary("max", low, x))

    def round(self, x: HloArray) -> HloArray:
        if dtype_kind(x.dtype) != "f":
            return self.lower_with_jax(jax.numpy.round, x)
        return x.like(stablehlo.round_nearest_even(x.value))

    def is_finite(self, x: HloArray) -> HloArray:
        if dtype_kind(x.dtype) != "f":
            return self.lower_with_jax(jax.numpy.isfinite, x)
        return HloArray(self, stablehlo.is_finite(x.value), BOOL, x.shape)

    def is_infinite(self, x: HloArray) -> HloArray:
        return (
            self.unary("abs", x) == math.inf if dtype_kind(x.dtype) == "f" else self.lower_with_jax(jax.numpy.isinf, x)
        )

    def copysign(self, size: Any, x: HloArray) -> HloArray:
        """A number with the sign of each element, also of -0.0."""
        if isinstance(size, HloArray):
            return self.lower_with_jax(jax.numpy.copysign, size, x)
        bits, size = x.view(f"i{x.dtype.itemsize}"), abs(float(size))
        return self.where(bits < 0, self.full_like(x, -size), self.full_like(x, size))

    def clamp(self, low: Any, x: Any, high: Any) -> HloArray:
        """Each bound is a scalar, or has one value per element."""
        x = self.array(x)
        bounds = [self.as_hlo_array(b, x.dtype, np.shape(b)).value for b in (low, high)]
        return x.like(stablehlo.clamp(bounds[0], x.value, bounds[1]))

    def integer_pow(self, x: HloArray, n: int) -> HloArray:
        """By repeated squaring, in JAX's order."""
        result, left = None, abs(n)
        while left:
            if left & 1:
                result = x if result is None else result * x
            left >>= 1
            x = x * x if left else x
        result = self.full_like(x, 1) if result is None else result
        return 1 / result if n < 0 else result

    # ---- Shapes

    def full(self, shape: Shape, number: Any) -> HloArray:
        return self.as_hlo_array(number, np.asarray(number).dtype, shape)

    def full_like(self, x: HloArray, number: Any) -> HloArray:
        return self.as_hlo_array(number, x.dtype, x.shape)

    def broadcast(self, x: Any, sizes: Shape) -> HloArray:
        x = self.array(x)
        return self.broadcast_in_dim(x, (*sizes, *x.shape), tuple(range(len(sizes), len(sizes) + x.ndim)))

    def broadcast_in_dim(self, x: Any, shape: Shape, dims: Sequence[int]) -> HloArray:
        x = self.array(x)
        shape = tuple(shape)
        value = stablehlo.broadcast_in_dim(self.type(x.dtype, shape), x.value, self.int_array_attr(dims))
        return HloArray(self, value, x.dtype, shape, scale=x.scale)

    def broadcasted_iota(self, dtype: Any, shape: Shape, axis: int) -> HloArray:
        dtype = np.dtype(dtype)
        return HloArray(self, stablehlo.iota(self.type(dtype, shape), mlir.i64_attr(axis)), dtype, shape)

    def reshape(self, x: HloArray, shape: Shape) -> HloArray:
        shape = tuple(shape)
        if shape == x.shape:
            return x
        return HloArray(self, stablehlo.reshape(self.type(x.dtype, shape), x.value), x.dtype, shape, scale=x.scale)

    def squeeze(self, x: HloArray, axes: Sequence[int]) -> HloArray:
        return self.reshape(x, tuple([n for i, n in enumerate(x.shape) if i not in axes]))

    def expand_dims(self, x: Any, axes: Sequence[int]) -> HloArray:
        x = self.array(x)
        dims = [i for i in range(x.ndim + len(axes)) if i not in axes]
        shape = {**dict.fromkeys(axes, 1), **dict(zip(dims, x.shape, strict=True))}
        return self.broadcast_in_dim(x, tuple([shape[i] for i in range(len(shape))]), dims)

    def transpose(self, x: HloArray, perm: Sequence[int]) -> HloArray:
        if tuple(perm) == tuple(range(x.ndim)):
            return x
        value = stablehlo.transpose(x.value, self.int_array_attr(perm))
        return HloArray(self, value, x.dtype, tuple([x.shape[i] for i in perm]), scale=x.scale)

    def slice(
        self, x: HloArray, starts: Sequence[int], stops: Sequence[int], steps: Sequence[int] | None = None
    ) -> HloArray:
        steps = steps or (1,) * x.ndim
        value = stablehlo.slice(x.value, *[self.int_array_attr(places) for places in (starts, stops, steps)])
        shape = tuple([max(0, -(-(b - a) // n)) for a, b, n in zip(starts, stops, steps, strict=True)])
        return HloArray(self, value, x.dtype, shape, scale=x.scale)

    def slice_in_dim(self, x: HloArray, start: int, stop: int, stride: int = 1, axis: int = 0) -> HloArray:
        starts, stops, steps = [0] * x.ndim, list(x.shape), [1] * x.ndim
        starts[axis], stops[axis], steps[axis] = start, stop, stride
        return self.slice(x, starts, stops, steps)

    def dynamic_slice(
        self, x: Any, starts: Sequence[Any], sizes: Shape, *, allow_negative_indices: Any = True
    ) -> HloArray:
        """A window that would leave the array is moved inside."""
        x, places = self.array(x), [self.array(i) for i in starts]
        if allow_negative_indices:
            return self.lower_with_jax(partial(jax.lax.dynamic_slice, slice_sizes=sizes), x, places)
        values = [i.value for i in places]
        value = stablehlo.dynamic_slice(x.value, values, self.int_array_attr(sizes))
        return HloArray(self, value, x.dtype, tuple(sizes), scale=x.scale)

    def dynamic_update_slice(
        self, x: Any, part: Any, starts: Sequence[Any], *, allow_negative_indices: Any = True
    ) -> HloArray:
        x, part, places = self.array(x), self.array(part), [self.array(i) for i in starts]
        if allow_negative_indices or x.dtype != part.dtype:
            return self.lower_with_jax(jax.lax.dynamic_update_slice, x, part, places)
        return x.like(stablehlo.dynamic_update_slice(x.value, part.value, [i.value for i in places]))

    def pad(self, x: HloArray, number: Any, widths: Sequence[tuple[int, int, int]]) -> HloArray:
        low, high, between = ([w[k] for w in widths] for k in range(3))
        value = stablehlo.pad(
            x.value, self.as_hlo_array(number, x.dtype).value, *[self.int_array_attr(w) for w in (low, high, between)]
        )
        sizes = zip(x.shape, widths, strict=True)
        return HloArray(self, value, x.dtype, tuple([a + b + n + max(n - 1, 0) * k for n, (a, b, k) in sizes]))

    def concatenate(self, parts: Sequence[Any], axis: int) -> HloArray:
        parts = [self.array(part) for part in parts]
        first = parts[0]
        if len(parts) == 1:
            return first
        value = stablehlo.concatenate([p.value for p in parts], mlir.i64_attr(axis))
        size = sum([p.shape[axis] for p in parts])
        return HloArray(self, value, first.dtype, (*first.shape[:axis], size, *first.shape[axis + 1 :]))
