"""`HloArray`: an array whose operators emit StableHLO at once, where JAX would trace them."""

from __future__ import annotations

from math import frexp, prod
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jax.extend.mlir.dialects import stablehlo

if TYPE_CHECKING:
    from difflang.lower.stablehlo.jax_facade import JaxFacade

DType = np.dtype[Any]
Shape = tuple[int, ...]
BOOL = np.dtype(np.bool_)


def dtype_kind(dtype: DType) -> str:
    """One of "b", "i", "u", "f", "c", also for narrow floats, which NumPy does not know."""
    return "f" if jax.numpy.issubdtype(dtype, np.floating) else dtype.kind


class HloArray:
    """An array of the program being emitted: an MLIR value, with NumPy's operators.

    `number` is the value of a constant; `scale` is the last constant factor of a product; a `quotient` is a `div`.
    """

    __slots__ = ("dtype", "number", "quotient", "scale", "shape", "value", "writer")
    # Lets a NumPy number on the left defer to `__radd__` and its like.
    __array_ufunc__ = None

    def __init__(
        self,
        writer: JaxFacade,
        value: Any,
        dtype: DType,
        shape: Shape,
        number: float | None = None,
        scale: float | None = None,
        quotient: bool = False,
    ) -> None:
        self.writer, self.value, self.dtype, self.shape = writer, value, dtype, shape
        self.number, self.scale, self.quotient = number, scale, quotient

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return prod(self.shape)

    def __add__(self, other: Any) -> HloArray:
        return self.writer.binary("add", self, other)

    def __radd__(self, other: Any) -> HloArray:
        return self.writer.binary("add", other, self)

    def __sub__(self, other: Any) -> HloArray:
        return self.writer.binary("sub", self, other)

    def __rsub__(self, other: Any) -> HloArray:
        return self.writer.binary("sub", other, self)

    def __mul__(self, other: Any) -> HloArray:
        return self.writer.binary("mul", self, other)

    def __rmul__(self, other: Any) -> HloArray:
        return self.writer.binary("mul", other, self)

    def __truediv__(self, other: Any) -> HloArray:
        return self.writer.binary("div", self, other)

    def __rtruediv__(self, other: Any) -> HloArray:
        return self.writer.binary("div", other, self)

    def __and__(self, other: Any) -> HloArray:
        return self.writer.binary("bitwise_and", self, other)

    def __or__(self, other: Any) -> HloArray:
        return self.writer.binary("bitwise_or", self, other)

    def __lshift__(self, other: Any) -> HloArray:
        return self.writer.shifted(stablehlo.shift_left, self, other)

    def __rshift__(self, other: Any) -> HloArray:
        signed = self.dtype.kind == "i"
        return self.writer.shifted(
            stablehlo.shift_right_arithmetic if signed else stablehlo.shift_right_logical, self, other
        )

    def __neg__(self) -> HloArray:
        return self.writer.neg(self)

    def __invert__(self) -> HloArray:
        return self.like(stablehlo.not_(self.value))

    def __lt__(self, other: Any) -> HloArray:
        return self.writer.compare("lt", self, other)

    def __le__(self, other: Any) -> HloArray:
        return self.writer.compare("le", self, other)

    def __gt__(self, other: Any) -> HloArray:
        return self.writer.compare("gt", self, other)

    def __ge__(self, other: Any) -> HloArray:
        return self.writer.compare("ge", self, other)

    def __eq__(self, other: object) -> Any:
        return self.writer.compare("eq", self, other)

    def __ne__(self, other: object) -> Any:
        return self.writer.compare("ne", self, other)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, key: Any) -> HloArray:
        """The elements of a slice, or one element, along the first axis."""
        if isinstance(key, slice):
            return self.slice_first_axis(*key.indices(len(self)))
        at = range(len(self))[key]
        return self.writer.reshape(self.slice_first_axis(at, at + 1, 1), self.shape[1:])

    def slice_first_axis(self, start: int, stop: int, step: int) -> HloArray:
        if step < 1:
            return self.writer.lower_with_jax(lambda x: x[start : stop if stop >= 0 else None : step], self)
        rest = self.shape[1:]
        starts, stops, steps = (start, *[0] * len(rest)), (max(start, stop), *rest), (step, *[1] * len(rest))
        return self.writer.slice(self, starts, stops, steps)

    def __bool__(self) -> bool:
        raise TypeError("an array that is being emitted has no truth value")

    __hash__ = None  # pyright: ignore[reportAssignmentType]  equality is element by element

    def like(self, value: Any) -> HloArray:
        """Another value of the same type."""
        return HloArray(self.writer, value, self.dtype, self.shape)

    def scaled_like(self, x: HloArray) -> HloArray:
        """This array, known to have a constant factor if `x` has."""
        self.scale = x.scale
        return self

    def astype(self, dtype: Any) -> HloArray:
        return self.writer.convert(self, dtype)

    def view(self, dtype: Any) -> HloArray:
        """The same bits as another type of that width."""
        dtype = np.dtype(dtype)
        value = stablehlo.bitcast_convert(self.writer.type(dtype, self.shape), self.value)
        return HloArray(self.writer, value, dtype, self.shape)

    @property
    def real(self) -> HloArray:
        return self.writer.lower_with_jax(jax.lax.real, self) if dtype_kind(self.dtype) == "c" else self


def exact_inverse(x: HloArray) -> float | None:
    """The inverse of a constant that is a power of two, by which an array is multiplied sooner than divided."""
    if not x.number or abs(frexp(x.number)[0]) != 0.5 or not is_normal(1.0 / x.number, x.dtype):
        return None
    return 1.0 / x.number


# ---- What XLA must not rewrite: products and quotients whose parts are multiplied in another order may overflow
#
# On the CPU our programs are compiled without XLA's algebra (`runtime.compile`). The simplest forms are held for other
# devices, and for programs that JAX compiles.


def hold_quotient(x: HloArray) -> HloArray:
    """The operand of a `div`, behind a barrier if it is a quotient.

    XLA turns `(a / b) / c` into `a / (b * c)` and `a / (b / c)` into `a * c / b`.
    """
    return x.writer.optimization_barrier(x) if x.quotient else x


def hold_constant_factors(name: str, x: HloArray, y: HloArray) -> tuple[HloArray, HloArray, float | None]:
    """The operands of `mul` or `div`, one behind a barrier where XLA must not rewrite, and the scale of the result.

    XLA turns `(a * c) * (b * d)` with scalars and constants `c` and `d` into `(a * b) * (c * d)`, and `(a * c) * d`
    with arrays into `a * (c * d)`. So in f32 the square of `1e25 * 1e-25` would be Inf times 0.
    """
    if name == "mul" and y.number is None and x.number is not None:
        y, x, scale = hold_constant_factors(name, y, x)
        return x, y, scale
    if y.number:
        factor = y.number if name == "mul" else 1.0 / y.number
        if x.scale is None:
            return x, y, factor
        scale = x.scale * factor
        return (x, y, scale) if is_normal(scale, x.dtype) else (x.writer.optimization_barrier(x), y, factor)
    if name == "mul" and x.size == 1 and x.scale is not None and y.scale is not None:
        held = x.writer.optimization_barrier(x)
        return held, held if y is x else y, None
    return x, y, None


def is_normal(number: float, dtype: DType) -> bool:
    limits = jax.numpy.finfo(dtype)
    return float(limits.tiny) <= abs(number) <= float(limits.max)
