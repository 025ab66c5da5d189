"""What may be given for a param of a type, and what is refused with the line to write."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from difflang.base.diagnostics import DifflangError
from difflang.base.wording import with_article
from difflang.ir.tensor_types import BF16, BOOL, C64, DTYPES, F16, F32, F64, I8, I32, U8, DType, Tensor
from difflang.runtime.argument_conversion import argument_converter


def given(value: Any, dtype: DType, *shape: int) -> Any:
    return argument_converter(Tensor(dtype, shape), "x")(value)


def refused(value: Any, dtype: DType, *shape: int) -> tuple[str, str, str]:
    with pytest.raises(DifflangError) as caught:
        given(value, dtype, *shape)
    (d,) = caught.value.diagnostics
    return d.code, d.message, " ".join(d.helps)


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (1.5, F32), (2, F32), (1.5, F64), (2, BF16), (1e38, BF16), (True, BOOL), (-128, I8), (255, U8), (1j, C64),
        (2.0, C64),
        (float("inf"), F32), (float("-inf"), F16), (65504.0, F16), (np.float32(1.5), F32), (np.int32(3), I32),
        (np.bool_(True), BOOL), (np.array(2.5), F64), (ml_dtypes.bfloat16(1.5), BF16),
    ],
)  # fmt: skip
def test_numbers_that_fit(value: Any, dtype: DType) -> None:
    found = given(value, dtype)
    assert np.asarray(found).dtype == np.dtype(dtype.numpy)
    assert found.shape == ()
    assert complex(found) == complex(value) or dtype is BF16


def test_a_nan_is_a_float() -> None:
    assert np.isnan(given(float("nan"), F32))
    assert np.isnan(given(float("nan"), F16))


@pytest.mark.parametrize(
    ("value", "dtype"),
    [(128, I8), (-1, U8), (256, U8), (2**31, I32), (1e39, F32), (70000.0, F16), (10**400, F64), (10**400, F32),
     (-1e39, F32), (1e39, C64)],
)  # fmt: skip
def test_numbers_that_do_not_fit(value: Any, dtype: DType) -> None:
    code, message, _ = refused(value, dtype)
    assert code == "DL1205"
    assert str(dtype) in message


@pytest.mark.parametrize(("value", "dtype"), [(1.5, I32), (True, F32), (True, I32), (1, BOOL), (1j, F64), (1.0, I8)])
def test_numbers_of_another_kind(value: Any, dtype: DType) -> None:
    assert refused(value, dtype)[0] == "DL1201"


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
def test_an_array_of_the_type_itself_is_not_copied(dtype: DType) -> None:
    array = np.zeros((2, 3), dtype.numpy)
    assert given(array, dtype, 2, 3) is array


def test_a_jax_array_stays_where_it_is() -> None:
    array = jnp.zeros(3, jnp.float32)
    assert given(array, F32, 3) is array


@pytest.mark.parametrize(
    ("array", "dtype", "write"),
    [
        (np.zeros(3), F32, "`x.astype(np.float32)`"),
        (np.zeros(3, np.float32), F16, "`x.astype(np.float16)`"),
        (np.zeros(3), BF16, "`x.astype(jnp.bfloat16)`"),
        (np.arange(3), I32, "`x.astype(np.int32)`"),
        (np.zeros(3, np.int32), F32, "`x.astype(np.float32)`"),
        (np.zeros(3, np.int8), F64, "`x.astype(np.float64)`"),
        (np.zeros(3, np.uint8), I32, "`x.astype(np.int32)`"),
        (np.zeros(3, bool), F32, "`x.astype(np.float32)`"),
        (np.zeros(3, np.float16), BF16, "`x.astype(jnp.bfloat16)`"),
        (np.array(["a", "b", "c"]), F32, "`x.astype(np.float32)`"),
        (np.zeros(3, np.float32), F64, "`x.astype(np.float64)`"),
        (np.zeros(3, ml_dtypes.bfloat16), F32, "`x.astype(np.float32)`"),
        (np.zeros(3, np.int8), I32, "`x.astype(np.int32)`"),
        (np.zeros(3, np.complex128), F64, "declare it c128, or take its real part: `x.real`"),
        (jnp.zeros(3, jnp.float32), F64, "`np.asarray(x, np.float64)`"),
        (jnp.zeros(3, jnp.int32), F32, "`x.astype(np.float32)`"),
    ],
)
def test_arrays_of_another_type_are_refused_with_the_line_to_write(array: Any, dtype: DType, write: str) -> None:
    code, message, help = refused(array, dtype, 3)
    assert code == "DL1201"
    assert message.startswith(f"`x` is {with_article(str(dtype))}[3], but an array of ")
    assert write in help


def test_a_numpy_scalar_is_an_array() -> None:
    assert refused(np.float64(1.0), F32)[0] == "DL1201"
    assert refused(np.float32(1.0), F64)[0] == "DL1201"


def test_what_began_as_a_python_number_in_jax_takes_the_declared_type() -> None:
    with jax.enable_x64(True):
        wide = np.asarray(given(jnp.asarray(0.1), F64))
        assert wide.dtype == np.float64 and wide == 0.1
        assert given(jnp.asarray(0.5), F32).dtype == np.float32
    assert given(jnp.asarray(3), F64).dtype == np.float64
    assert refused(jnp.asarray(0.1), F64)[0] == "DL1201", "JAX has rounded it to f32"
    assert refused(jnp.asarray(3.0), I32)[0] == "DL1201"


@pytest.mark.parametrize(
    ("number", "dtype", "code", "write"),
    [
        (1.5, I32, "DL1201", "write `round(x)`, or declare the parameter as a float"),
        (2.0, I32, "DL1201", "write `int(x)`"),
        (float("nan"), I32, "DL1201", "nan is not a valid i32: declare the parameter as a float"),
        (True, I32, "DL1201", "write `int(x)`"),
        (True, F32, "DL1201", "write `float(x)`"),
        (1, BOOL, "DL1201", "write `bool(x)`, or compare it: `x > 0`"),
        (1j, F32, "DL1201", "write `x.real` to take its real part"),
        (1j, I32, "DL1201", "write `int(x.real)` to take its real part"),
        (1e20, I32, "DL1201", "1e+20 is not a valid i32: declare the parameter as a float"),
        (2**31, I32, "DL1205", "i32 ranges from -2,147,483,648 to 2,147,483,647"),
        (1e39, F32, "DL1205", "the largest f32 is 3.4e+38"),
    ],
)
def test_numbers_that_do_not_fit_are_refused_with_a_way_out(
    number: complex, dtype: DType, code: str, write: str
) -> None:
    assert refused(number, dtype)[::2] == (code, write)


def test_shapes_name_rank_or_axis() -> None:
    assert refused(np.zeros((2, 3)), F64, 2, 4)[1] == (
        "`x` is an f64[2, 4], but an array of shape [2, 3] was given: axis 1 is 3, not 4"
    )
    assert refused(np.zeros(3), F64, 1, 3)[1] == "`x` is an f64[1, 3], of rank 2, but an array of shape [3] was given"
    assert refused(1.5, F64, 3)[1] == "`x` is an f64[3], of rank 1, but a number was given"
    assert refused(np.zeros(1), F64)[0] == "DL1202"


def test_what_is_no_array() -> None:
    code, _, help = refused([1.0, 2.0], F32, 2)
    assert code == "DL1206"
    assert help == "write `np.array(x, dtype=np.float32)`"
    assert refused("1.5", F32)[0] == "DL1206"
    assert refused(None, F32)[0] == "DL1206"


class Foreign:
    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.arange(3.0)


def test_arrays_of_other_libraries_keep_their_type_too() -> None:
    assert given(Foreign(), F64, 3).tolist() == [0.0, 1.0, 2.0]
    assert refused(Foreign(), F32, 3)[0] == "DL1201"
