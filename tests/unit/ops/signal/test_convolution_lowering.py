"""On the CPU a convolution is lowered in the quickest way for its sizes; all ways round within one bound."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

from difflang.ir.builder import build_region
from difflang.ir.tensor_types import F32, F64, Tensor
from difflang.ops.signal.convolution import conv
from difflang.ops.signal.convolution_lowering import conv_cpu_lower
from difflang.runtime.compile import compile_graph

Shape = tuple[int, ...]
SUM, PRODUCT, XLA = "mul", "dot_general", "conv_general_dilated"


def attributes(space: int, **some: Any) -> dict[str, Any]:
    ones = (1,) * space
    usual = {"strides": ones, "padding": ((0, 0),) * space, "input_dilation": ones, "kernel_dilation": ones}
    return usual | {"groups": 1} | some


# Image, kernel, attributes, and the ways in f32 and f64.
CASES = {
    "many channels": ((2, 5, 6, 16), (3, 3, 16, 8), attributes(2, padding=((1, 1), (1, 0))), XLA, PRODUCT),
    "very many": ((1, 4, 5, 20), (2, 2, 20, 4), attributes(2), XLA, XLA),
    "few channels": ((2, 6, 5, 3), (3, 2, 3, 4), attributes(2, strides=(2, 1), padding=((1, 2), (0, 1))), SUM, SUM),
    "one": ((1, 7, 1), (3, 1, 1), attributes(1, kernel_dilation=(2,), padding=((-1, 3),)), SUM, SUM),
    "gaps": ((1, 3, 4, 2), (2, 2, 2, 3), attributes(2, input_dilation=(2, 3), padding=((1, 0), (-2, 1))), SUM, SUM),
    "many with gaps": ((1, 3, 4, 9), (2, 2, 9, 9), attributes(2, input_dilation=(2, 1)), XLA, XLA),
    "depthwise": ((2, 5, 6, 8), (3, 3, 1, 8), attributes(2, groups=8, padding=((1, 1),) * 2), SUM, SUM),
    "multiplied": ((2, 9, 4), (5, 1, 12), attributes(1, groups=4), SUM, SUM),
    "groups": ((2, 5, 5, 6), (2, 2, 3, 4), attributes(2, groups=2, strides=(2, 2)), SUM, SUM),
    "large groups": ((1, 5, 5, 40), (2, 2, 20, 2), attributes(2, groups=2), XLA, XLA),
    "volume": ((1, 4, 5, 3, 8), (2, 3, 2, 8, 8), attributes(3, kernel_dilation=(1, 2, 1)), PRODUCT, PRODUCT),
    "as a cotangent": ((8, 6, 6, 3), (5, 6, 3, 8), attributes(2, padding=((1, 0), (1, 1))), XLA, PRODUCT),
    "volume's cotangent": ((8, 4, 4, 4, 2), (4, 4, 3, 2, 8), attributes(3, strides=(1, 2, 1)), PRODUCT, PRODUCT),
    "too many windows": ((1, 99, 99, 17), (9, 9, 17, 9), attributes(2, input_dilation=(2, 2)), XLA, XLA),
}


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
@pytest.mark.parametrize("case", CASES)
def test_the_way_follows_from_the_sizes(case: str, dtype: Any) -> None:
    x, w, attrs, narrow, wide = CASES[case]
    kind = np.float32 if dtype is F32 else np.float64
    with jax.enable_x64(True):
        operands = [jax.ShapeDtypeStruct(shape, kind) for shape in (x, w)]
        text = str(jax.make_jaxpr(lambda x, w: conv_cpu_lower(jax, x, w, **attrs))(*operands))
    assert next(way for way in (XLA, PRODUCT, SUM) if f" {way}" in text) == (narrow if dtype is F32 else wide)


def compiled(x: Any, w: Any, attrs: Any) -> Any:
    types = [Tensor(F32 if a.dtype == np.float32 else F64, a.shape) for a in (x, w)]
    return np.asarray(compile_graph(build_region(types, lambda x, w: [conv.one(x, w, **attrs)]))(x, w)[0])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("case", [name for name in CASES if name != "too many windows"])
def test_sums_are_those_of_the_reference_but_for_their_order(case: str, dtype: Any) -> None:
    x_shape, w_shape, attrs, *_ = CASES[case]
    rng = np.random.default_rng(0)
    x, w = [rng.normal(size=shape).astype(dtype) for shape in (x_shape, w_shape)]
    exact = conv.reference(x.astype(np.longdouble), w.astype(np.longdouble), **attrs)
    bound = conv.reference(abs(x), abs(w), **attrs) * np.finfo(dtype).eps * np.prod(w_shape[:-1])
    found = compiled(x, w, attrs)
    assert (found.dtype, found.shape) == (dtype, exact.shape)
    assert (abs(found - exact) <= bound).all()


@pytest.mark.parametrize("case", ["few channels", "depthwise", "gaps", "volume", "volume's cotangent"])
def test_infinities_go_where_the_reference_has_them(case: str) -> None:
    x_shape, w_shape, attrs, *_ = CASES[case]
    x, w = np.ones(x_shape, np.float32), np.ones(w_shape, np.float32)
    x.flat[1], w.flat[0] = -np.inf, np.inf
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(compiled(x, w, attrs), conv.reference(x, w, **attrs))
