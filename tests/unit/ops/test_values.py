"""Values that are a matter of convention: integers, conversions, positions out of range, random bits."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from difflang.gradcheck.op_calls import OpCall, calls_of
from difflang.ir.op import OPS, Op, TypeMismatch, result_types
from difflang.ir.tensor_types import BOOL, F32, F64, FLOATS, I8, I32, U8, U32, DType, Tensor
from support.op_calls import compiled


def both(name: str, *xs: Any, **attrs: Any) -> list[Any]:
    """What both engines give; they must agree to the bit."""
    call = OpCall(OPS[name], tuple(np.asarray(x) for x in xs), attrs)
    interpreted, machine = call.reference(), compiled(OPS[name], *call.arrays, **attrs)
    np.testing.assert_array_equal(machine, interpreted)
    assert machine.dtype == interpreted.dtype
    if interpreted.dtype.kind == "f":
        # Of 0.0 and -0.0 these are two; a NaN has no sign that counts.
        signs = [np.signbit(np.where(np.isnan(z), 0.0, z)) for z in (machine, interpreted)]
        np.testing.assert_array_equal(*signs)
    return interpreted.tolist()


def ints(*values: int, dtype: Any = np.int32) -> Any:
    return np.array(values, dtype)


def test_integer_division_floors_and_by_zero_gives_zero() -> None:
    x, y = ints(7, -7, 7, -7, 6, 5, 0, -(2**31)), ints(2, 2, -2, -2, 3, 0, 0, -1)
    assert both("floor_div", x, y) == [3, -4, -4, 3, 2, 0, 0, -(2**31)]
    assert both("rem", x, y) == [1, 1, -1, -1, 0, 0, 0, 0]
    assert both("floor_div", ints(250, 7, dtype=np.uint8), ints(7, 0, dtype=np.uint8)) == [35, 0]


def test_float_remainders_have_the_sign_of_the_divisor() -> None:
    x, y = np.array([7.5, -7.5, 7.5, -7.5, 6.0]), np.array([2.0, 2.0, -2.0, -2.0, 3.0])
    assert both("rem", x, y) == [1.5, 0.5, -0.5, -1.5, 0.0]
    assert both("floor_div", x, y) == [3.0, -4.0, -4.0, 3.0, 2.0]
    assert both("floor_div", np.array([1.0, -1.0]), np.zeros(2)) == [np.inf, -np.inf]
    endless = np.array([1, 1, -1, -1]) * np.inf
    assert both("floor_div", np.array([5.0, -5.0, 5.0, 0.0]), endless) == [0.0, -1.0, -1.0, 0.0]
    assert np.isnan(both("floor_div", np.array([np.nan, np.inf, np.nan, np.inf]), endless)).all()


def test_zeros_of_floored_division_have_signs() -> None:
    x, y = np.array([-4.0, 4.0, 0.0, -0.0, -0.5, 0.5, 0.0]), np.array([2.0, -2.0, -1.0, 1.0, -1.0, 1.0, -np.inf])
    assert np.signbit(both("rem", x, y)).tolist() == np.signbit(y).tolist()
    assert np.signbit(both("floor_div", x[2:], y[2:])).tolist() == np.signbit(x[2:] / y[2:]).tolist()


def test_a_quotient_is_finite_where_the_remainder_is_large() -> None:
    assert both("floor_div", np.array([-1.7e308]), np.array([1e308])) == [-2.0]


def test_integers_wrap() -> None:
    assert both("add", ints(127, dtype=np.int8), ints(1, dtype=np.int8)) == [-128]
    assert both("mul", ints(2**30), ints(4)) == [0]
    assert both("sub", ints(0, dtype=np.uint8), ints(1, dtype=np.uint8)) == [255]
    assert both("reduce_sum", ints(100, 100, dtype=np.int8), axes=(0,)) == -56


def test_shifts_past_the_width() -> None:
    x, y = ints(-8, -8, -8, 5), ints(1, 32, 100, -1)
    assert both("shift_right", x, y) == [-4, -1, -1, 0]
    assert both("shift_left", x, y) == [-16, 0, 0, 0]


def test_rounding_is_half_to_even() -> None:
    x = np.array([0.5, 1.5, 2.5, -0.5, -1.5, 2.4999])
    assert both("round", x) == [0.0, 2.0, 2.0, 0.0, -2.0, 2.0]
    assert both("trunc", x) == [0.0, 1.0, 2.0, 0.0, -1.0, 2.0]


@pytest.mark.parametrize(
    ("dtype", "want"),
    [(I32, [2147483647, -2147483648, 0, 1, -1]), (I8, [127, -128, 0, 1, -1]), (U8, [255, 0, 0, 1, 0])],
)
@pytest.mark.parametrize("source", [np.float32, np.float64])
def test_floats_out_of_range_saturate(dtype: DType, want: list[int], source: Any) -> None:
    assert both("truncate", np.array([1e20, -1e20, np.nan, 1.9, -1.9], source), dtype=dtype) == want


def test_truth_is_not_zero() -> None:
    assert both("truncate", np.array([0.0, -0.0, 0.1, np.nan]), dtype=BOOL) == [False, False, True, True]


def test_converting_rounds_to_nearest() -> None:
    assert both("convert", np.array([2**24 + 1], np.int32), dtype=F32) == [2.0**24]
    with pytest.raises(TypeMismatch):
        result_types(OPS["convert"], [Tensor(F32)], (), {"dtype": I32})
    with pytest.raises(TypeMismatch):
        result_types(OPS["truncate"], [Tensor(F32)], (), {"dtype": F64})


def test_nan_is_the_extreme_and_its_first_position() -> None:
    x = np.array([1.0, np.nan, 3.0, np.nan])
    assert np.isnan(both("reduce_max", x, axes=(0,)))
    assert np.isnan(both("max", x[:2], x[2:])).tolist() == [False, True]
    assert both("argmax", x, axis=0) == both("argmin", x, axis=0) == 1
    assert both("argmax", np.array([1.0, 3.0, 3.0]), axis=0) == 1
    with pytest.raises(TypeMismatch):
        result_types(OPS["argmax"], [Tensor(F32, (3, 0))], (), {"axis": 1})


def test_a_read_out_of_range_moves_to_the_nearest_item() -> None:
    """What XLA's gather does by itself. Programs check their indices before: no one sees such an item."""
    at = ints(0, 3, -1, 2)
    assert both("gather", np.array([1.0, 2.0, 3.0]), at, axes=(0,)) == [1.0, 3.0, 1.0, 3.0]
    assert both("gather", ints(5, 6, 7, dtype=np.uint8), at, axes=(0,)) == [5, 7, 5, 7]
    assert both("gather", np.arange(6.0).reshape(3, 2), ints(9, -2), ints(-5, 1), axes=(0, 1)) == [4.0, 1.0]


def test_a_write_out_of_range_is_dropped() -> None:
    at, new = ints(0, 3, -1, 0), np.array([1.0, 2.0, 3.0, 4.0])
    assert both("scatter", np.zeros(3), new, at, axes=(0,)) == [4.0, 0.0, 0.0]
    assert both("scatter_add", np.zeros(3), new, at, axes=(0,)) == [5.0, 0.0, 0.0]
    assert both("last_writes", at, sizes=(3,)) == [False, False, False, True]


def test_a_window_is_moved_inside() -> None:
    x = np.arange(5.0)
    assert both("dynamic_slice", x, np.int32(4), sizes=(3,)) == [2.0, 3.0, 4.0]
    assert both("dynamic_slice", x, np.int32(-7), sizes=(2,)) == [0.0, 1.0]
    assert both("dynamic_update", x, np.array([9.0, 9.0]), np.int32(4)) == [0.0, 1.0, 2.0, 9.0, 9.0]


def test_many_writes_to_one_place_keep_the_last() -> None:
    """Ten thousand writes to seven places, under every order XLA may choose."""
    rng = np.random.default_rng(5)
    at = rng.integers(0, 7, 10_000).astype(np.int32)
    new = rng.normal(size=10_000)
    want = [new[np.flatnonzero(at == k)[-1]] for k in range(7)]
    assert both("scatter", np.zeros(7), new, at, axes=(0,)) == want


def test_half_precision_sums_do_not_stall() -> None:
    """In 16 bits a running sum of ones stops at 2048 (f16) or 256 (bf16)."""
    for name in ("float16", "bfloat16"):
        ones = np.ones(4096, np.dtype(name))
        assert float(both("reduce_sum", ones, axes=(0,))) == 4096.0
        product = both("dot_general", ones, ones, contract=((0,), (0,)), batch=((), ()))
        assert float(product) == 4096.0


# ------------------------------------------------------------------------------------------------- random

KEY = np.array([1, 2], np.uint32)


def test_the_cipher_has_its_published_values() -> None:
    """The known answers of Threefry-2x32-20 that come with Random123."""
    from difflang.ops.arrays.threefry_random import NumpyUint32Arithmetic, threefry

    answers = [
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
        ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
    ]
    for key, counter, want in answers:
        words = threefry(
            NumpyUint32Arithmetic(), *(tuple(np.array([w], np.uint32) for w in pair) for pair in (key, counter))
        )
        assert tuple(int(w[0]) for w in words) == want


def test_the_bits_do_not_change() -> None:
    """Golden values: a program that draws gives the same numbers in every version."""
    assert both("random_bits", KEY, shape=(3,)) == [2932776407, 1811914268, 2110255537]
    assert both("fold_in", KEY, np.uint32(7)) == [3427225942, 3095793599]
    assert both("permutation", KEY, n=6) == [1, 0, 4, 3, 5, 2]
    assert both("uniform", KEY, shape=(2,), dtype=F32) == [0.68284010887146, 0.421869158744812]
    assert both("uniform", KEY, shape=(2,), dtype=F64) == [0.14646716125906867, 0.14645140345829422]


def test_the_bits_are_those_of_partitionable_threefry() -> None:
    key = jax.random.wrap_key_data(KEY, impl="threefry2x32")
    with jax.enable_x64(True), jax.threefry_partitionable(True):
        assert (np.asarray(jax.random.bits(key, (5, 3), np.uint32)) == both("random_bits", KEY, shape=(5, 3))).all()
        folded = jax.random.key_data(jax.random.fold_in(key, 9))
        assert np.asarray(folded).tolist() == both("fold_in", KEY, np.uint32(9))
        for dtype, numpy in ((F32, np.float32), (F64, np.float64)):
            assert np.asarray(jax.random.uniform(key, (7,), numpy)).tolist() == both(
                "uniform", KEY, shape=(7,), dtype=dtype
            )


def test_the_setting_of_jax_does_not_matter() -> None:
    want = OPS["random_bits"].reference(KEY, shape=(100,))
    for partitionable in (False, True):
        with jax.threefry_partitionable(partitionable), jax.enable_x64(False):
            got = jax.jit(lambda k: OPS["random_bits"].lower(jax, k, shape=(100,)))(KEY)
            assert (np.asarray(got) == want).all()


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
def test_draws_have_the_moments_they_should(dtype: DType) -> None:
    u = OPS["uniform"].reference(KEY, shape=(200_000,), dtype=dtype)
    z = OPS["normal"].reference(KEY, shape=(200_000,), dtype=dtype)
    assert 0.0 <= u.min() < 1e-4
    assert 1 - 1e-4 < u.max() < 1.0
    assert abs(u.mean() - 0.5) < 0.003
    assert abs(z.mean()) < 0.01
    assert abs(z.std() - 1.0) < 0.01
    assert np.isfinite(z).all()


def test_uniform_stays_below_one_in_every_type() -> None:
    for dtype in FLOATS:
        u = OPS["uniform"].reference(KEY, shape=(50_000,), dtype=dtype)
        assert float(u.max()) < 1.0


def test_a_permutation_is_one() -> None:
    order = OPS["permutation"].reference(KEY, n=1000)
    assert sorted(order.tolist()) == list(range(1000))
    assert order.tolist() != list(range(1000))


def test_a_key_is_two_words() -> None:
    with pytest.raises(TypeMismatch):
        result_types(OPS["random_bits"], [Tensor(U32, (3,))], (), {"shape": (2,)})
    with pytest.raises(TypeMismatch):
        result_types(OPS["normal"], [Tensor(U32, (2,))], (), {"shape": (2,), "dtype": I32})


@pytest.mark.parametrize("op", [op for op in OPS.values() if op.cpu_lower_rule is not None], ids=str)
def test_a_lowering_for_the_cpu_means_what_the_other_one_does(op: Op) -> None:
    for call in calls_of(op):
        found = jax.jit(lambda *xs, call=call: [one(call.op, xs, call.attrs) for one in (on_cpu, elsewhere)])(
            *call.arrays
        )
        for here, there in zip(*map(jax.tree.leaves, found), strict=True):
            assert here.dtype == there.dtype
            wide = np.complex128 if here.dtype.kind == "c" else np.float64
            close = 16 * jnp.finfo(here.dtype).eps if jnp.issubdtype(here.dtype, jnp.inexact) else 0
            np.testing.assert_allclose(np.asarray(here, wide), np.asarray(there, wide), rtol=close, atol=close)


def on_cpu(op: Op, xs: Any, attrs: Any) -> Any:
    return op.cpu_lower_rule(jax, *xs, **attrs) if op.cpu_lower_rule else None


def elsewhere(op: Op, xs: Any, attrs: Any) -> Any:
    return op.lower(jax, *xs, **attrs)
