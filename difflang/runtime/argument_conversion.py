"""Converts and checks the arguments of a call: Python numbers and arrays, against the declared type of a param.

An array must have the declared element type; none is converted silently, as widening would invent digits that nobody
measured. A plain Python number takes the declared type if that can hold it, and so does a weakly typed JAX value. JAX
arrays stay on their device.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite
from typing import Any

import jax
import jax.core
import ml_dtypes
import numpy as np

from difflang.base.diagnostics import Diagnostic, DifflangError, InternalError
from difflang.base.wording import with_article
from difflang.ir.tensor_types import DTYPES, DType, Tensor, Type, numpy_dtype

Array = Any
ArgumentConverter = Callable[[Any], Array]
DTYPE_BY_NUMPY: dict[np.dtype[Any], DType] = {numpy_dtype(d): d for d in DTYPES.values()}


def argument_converter(type: Type, name: str) -> ArgumentConverter:
    """A function from an argument to a NumPy or JAX array of the param's type.

    Errors: DL1201 another element type, DL1202 another shape, DL1205 a number that does not fit, DL1206 no array.
    """
    if not isinstance(type, Tensor):
        raise InternalError(f"{name}: a {type} cannot be a parameter of a program")
    dtype = numpy_dtype(type.dtype)
    shape = tuple([int(n) for n in type.shape if isinstance(n, int)])
    ranges = {} if shape else number_ranges(type.dtype)
    scalar, classes = dtype.type, (np.ndarray, dtype.type)

    # The two common cases first, without a call: this runs for every argument of every call.
    def convert(given: Any) -> Array:
        bounds = ranges.get(given.__class__)
        if bounds is not None and bounds[0] <= given <= bounds[1]:
            return scalar(given)
        if given.__class__ in classes and given.dtype == dtype and given.shape == shape:
            return given
        return check_argument(given, type, name)

    return convert


def number_ranges(dtype: DType) -> dict[type, tuple[float, float]]:
    """The classes of plain numbers that an element type holds, each with its least and largest number."""
    of = numpy_dtype(dtype)
    if dtype.is_float:
        largest = float(ml_dtypes.finfo(of).max)
        return {float: (-largest, largest)}
    if dtype.kind in ("int", "uint"):
        return {int: (int(np.iinfo(of).min), int(np.iinfo(of).max))}
    return {bool: (False, True)} if dtype.kind == "bool" else {}


def concrete_array_class() -> type[Any]:
    """The class of JAX's concrete arrays."""
    # A trace may be active; `device_put` compiles nothing.
    with jax.ensure_compile_time_eval():
        return type(jax.device_put(np.zeros((), np.float32)))


def on_device(array: Any) -> Array:
    """A number or an array of NumPy on JAX's default device, with all of its bits, also where JAX traces."""
    with jax.enable_x64(True), jax.ensure_compile_time_eval():
        return jax.device_put(array)


def check_argument(given: Any, type: Tensor, name: str) -> Array:
    array = given
    if is_python_number(given):
        if not type.shape:
            return convert_python_number(given, type, name)
        raise shape_error((), type, name)
    if isinstance(given, (list, tuple)):
        raise DifflangError(
            Diagnostic(
                "DL1206",
                f"{declared(name, type)}, but a Python {given.__class__.__name__} was given",
                helps=(f"write `np.array({name}, dtype={numpy_name(type.dtype)})`",),
            )
        )
    refuse_masked(given, name)
    if not isinstance(array, (np.ndarray, np.generic, jax.Array)):
        return from_foreign_array(given, type, name)
    if array.shape != type.shape:
        raise shape_error(array.shape, type, name)
    return to_declared_dtype(array, type, name)


def declared(name: str, type: Tensor) -> str:
    return f"`{name}` is {with_article(str(type))}"


def is_python_number(given: Any) -> bool:
    """Whether it is a plain Python number, or one of the subclasses that JAX wraps them in."""
    return isinstance(given, (bool, int, float, complex)) and not isinstance(given, np.generic)


def refuse_masked(given: Any, name: str) -> None:
    """Errors: DL1206 for a masked array, whose mask would be lost."""
    if isinstance(given, np.ma.MaskedArray):
        message = f"`{name}` is a masked array, but the language has no masked numbers"
        way = (
            f"fill in the masked numbers, `{name}.filled(0)`, or pass `{name}.data` and `{name}.mask` as two arguments"
        )
        raise DifflangError(Diagnostic("DL1206", message, helps=(way,)))


def from_foreign_array(given: Any, type: Tensor, name: str) -> Array:
    """An array of another library, through its `__array__` method."""
    if not hasattr(given, "__array__"):
        message = f"{declared(name, type)}, but {with_article(given.__class__.__name__)} was given"
        raise DifflangError(Diagnostic("DL1206", message))
    return check_argument(np.asarray(given), type, name)


def to_declared_dtype(array: Array, type: Tensor, name: str) -> Array:
    wanted = numpy_dtype(type.dtype)
    if is_weak(array) and weak_dtype_fits(DTYPE_BY_NUMPY.get(array.dtype), type.dtype):
        with jax.enable_x64(True):
            return jax.lax.convert_element_type(array, wanted)
    if array.dtype == wanted:
        return array
    raise dtype_error(array, type, name)


def is_weak(value: Any) -> bool:
    """Whether a JAX value is weakly typed: it began as a plain Python number."""
    if isinstance(value, jax.ShapeDtypeStruct):
        return bool(value.weak_type)
    return isinstance(value, jax.Array) and bool(getattr(value.aval, "weak_type", False))


def weak_dtype_fits(given: DType | None, wanted: DType) -> bool:
    """Whether a weakly typed JAX value may stand for a declared float type: it must not have fewer digits."""
    # The value of an integer is unknown in a trace, so it may not fit an integer type.
    if given is None or not wanted.differentiable or given.kind not in ("int", "float", wanted.kind):
        return False
    return given.kind == "int" or given.bits >= (wanted.bits if given.kind == wanted.kind else wanted.bits // 2)


def convert_python_number(given: complex, type: Tensor, name: str) -> Array:
    """A plain number in the declared type, if that holds it."""
    kind, wanted = type.dtype.kind, numpy_dtype(type.dtype)
    holds: tuple[Any, ...] = {
        "bool": (bool,), "int": (int,), "uint": (int,), "float": (int, float), "complex": (int, float, complex)
    }[kind]  # fmt: skip
    if not isinstance(given, holds) or (isinstance(given, bool) and kind != "bool"):
        message = f"`{name}` is {type.dtype}, but the {given.__class__.__name__} {given} was given"
        raise DifflangError(Diagnostic("DL1201", message, helps=(number_conversion_hint(given, type.dtype, name),)))
    if isinstance(given, int) and kind in ("int", "uint"):
        low, high = np.iinfo(wanted).min, np.iinfo(wanted).max
        if not low <= given <= high:
            raise overflow_error(given, type, name)
    try:
        with np.errstate(over="ignore"):
            array = np.asarray(given, wanted)
    except OverflowError:
        raise overflow_error(given, type, name) from None
    if kind in ("float", "complex") and not np.isfinite(array) and np.isfinite(given):
        raise overflow_error(given, type, name)
    return array


# ---- Errors and hints


def overflow_error(given: complex, type: Tensor, name: str) -> DifflangError:
    dtype = numpy_dtype(type.dtype)
    if type.dtype.kind in ("int", "uint"):
        way = f"{type.dtype} ranges from {np.iinfo(dtype).min:,} to {np.iinfo(dtype).max:,}"
    else:
        way = f"the largest {type.dtype} is {float(ml_dtypes.finfo(dtype).max):.3g}"
    message = f"`{name}` is {type.dtype}, and {format_number(given)} is out of its range"
    return DifflangError(Diagnostic("DL1205", message, helps=(way,)))


def format_number(given: complex) -> str:
    return str(given) if not isinstance(given, int) or given.bit_length() < 200 else "an integer with that many digits"


def number_conversion_hint(given: complex, wanted: DType, name: str) -> str:
    """The hint that says how to convert a plain number to the declared type."""
    whole = wanted.kind in ("int", "uint")
    if isinstance(given, complex):
        return f"write `{f'int({name}.real)' if whole else f'{name}.real'}` to take its real part"
    if wanted.kind == "bool":
        return f"write `bool({name})`, or compare it: `{name} > 0`"
    if whole:
        bounds = np.iinfo(numpy_dtype(wanted))
        if not (isfinite(given) and bounds.min <= given <= bounds.max):
            return f"{given} is not a valid {wanted}: declare the parameter as a float"
        return (
            f"write `int({name})`" if given % 1 == 0 else f"write `round({name})`, or declare the parameter as a float"
        )
    return f"write `float({name})`"


def array_conversion_hint(name: str, shown: str) -> str:
    """The hint that says how to convert a list to an array of the declared type."""
    dtype = DTYPES.get(shown.partition("[")[0])
    return f"write `np.array({name}{f', {numpy_name(dtype)}' if dtype is not None else ''})`"


def numpy_name(dtype: DType) -> str:
    return f"jnp.{dtype.numpy}" if dtype.numpy == "bfloat16" else f"np.{dtype.numpy}"


def dtype_error(array: Array, type: Tensor, name: str) -> DifflangError:
    found = DTYPE_BY_NUMPY.get(array.dtype)
    message = f"{declared(name, type)}, but an array of {found or array.dtype} was given"
    return DifflangError(Diagnostic("DL1201", message, helps=(dtype_conversion_hint(array, found, type.dtype, name),)))


def dtype_conversion_hint(array: Array, found: DType | None, wanted: DType, name: str) -> str:
    """The hint that says how to convert an array to the declared element type."""
    if found is not None and found.kind == "complex" and wanted.kind != "complex":
        return f"declare it {found}, or take its real part: `{name}.real`"
    to = numpy_name(wanted)
    dtype = numpy_dtype(wanted)
    if not isinstance(array, jax.Array) or jax.dtypes.canonicalize_dtype(dtype) == dtype:
        return f"write `{name}.astype({to})`"
    unable = f"with its current settings, JAX cannot create {with_article(str(wanted))}"
    if not isinstance(array, jax.core.Tracer):
        return f"write `np.asarray({name}, {to})`: {unable}"
    return f"write `with jax.enable_x64(True):` around the call, or declare `{name}` {found}: {unable}"


def shape_error(given: tuple[int, ...], type: Tensor, name: str) -> DifflangError:
    what = "a number" if not given else f"an array of shape [{', '.join(map(str, given))}]"
    if len(given) != type.rank:
        message = f"{declared(name, type)}, of rank {type.rank}, but {what} was given"
    else:
        axis = next(i for i, (a, b) in enumerate(zip(given, type.shape, strict=True)) if a != b)
        message = f"{declared(name, type)}, but {what} was given: axis {axis} is {given[axis]}, not {type.shape[axis]}"
    return DifflangError(Diagnostic("DL1202", message))
