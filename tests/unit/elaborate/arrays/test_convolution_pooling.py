"""Convolution and pooling in one to three dimensions: against SciPy, and JAX's values and derivatives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import signal

import difflang
from support.against_jax import check
from support.language import answer, codes

Array = Any


def numbers(*shape: int, start: float = 0.0) -> Array:
    return np.sin(np.arange(float(np.prod(shape))) * 1.7 + start).reshape(shape)


def written(*shape: int, start: float = 0.0) -> str:
    """The same numbers in the language."""
    return f"reshape(sin(f64(iota({int(np.prod(shape))})) * 1.7 + {start}), [{', '.join(map(str, shape))}])"


def conv(x: Array, w: Array, stride: Any = 1, padding: Any = "VALID", **how: Any) -> Array:
    n = x.ndim - 2
    space = "DHW"[-n:]
    strides = (stride,) * n if isinstance(stride, int) else stride
    names = (f"N{space}C", f"{space}IO", f"N{space}C")
    return jax.lax.conv_general_dilated(x, w, strides, padding, dimension_numbers=names, precision="highest", **how)


CASES: list[tuple[str, tuple[int, ...], tuple[int, ...], Callable[[Array, Array], Array]]] = [
    ("conv1d(X, W)", (2, 6, 2), (3, 2, 3), conv),
    ("conv1d(X, W, stride = 2, padding = 1)", (1, 6, 2), (3, 2, 2), lambda x, w: conv(x, w, 2, [(1, 1)])),
    ("conv1d(X, W, dilation = 2, groups = 2)", (1, 7, 4), (2, 2, 2),
     lambda x, w: conv(x, w, rhs_dilation=(2,), feature_group_count=2)),
    ("conv2d(X, W, padding = (1, 0))", (1, 4, 3, 2), (3, 2, 2, 2), lambda x, w: conv(x, w, 1, [(1, 1), (0, 0)])),
    ("conv2d(X, W, stride = (2, 1), padding = \"same\")", (1, 5, 4, 1), (3, 2, 1, 2),
     lambda x, w: conv(x, w, (2, 1), "SAME")),
    ("conv2d(X, W, groups = 3, padding = \"same\")", (1, 3, 3, 3), (2, 2, 1, 6),
     lambda x, w: conv(x, w, 1, "SAME", feature_group_count=3)),
    ("conv2d(X, W, groups = 2, dilation = (1, 2), stride = 2)", (2, 4, 5, 4), (2, 2, 2, 2),
     lambda x, w: conv(x, w, 2, rhs_dilation=(1, 2), feature_group_count=2)),
    ("conv3d(X, W, padding = 1)", (1, 2, 3, 3, 1), (2, 2, 3, 1, 2), lambda x, w: conv(x, w, 1, [(1, 1)] * 3)),
    ("conv3d(X, W, stride = (1, 2, 1), groups = 2)", (1, 2, 4, 3, 2), (1, 2, 2, 1, 2),
     lambda x, w: conv(x, w, (1, 2, 1), feature_group_count=2)),
]  # fmt: skip


@pytest.mark.parametrize("which", ["image", "kernel"])
@pytest.mark.parametrize(("text", "x", "w", "twin"), CASES, ids=[c[0] for c in CASES])
def test_convolution(
    text: str, x: tuple[int, ...], w: tuple[int, ...], twin: Callable[[Array, Array], Array], which: str
) -> None:
    """Value and first and second derivatives, in the image and in the kernel."""
    if which == "image":
        body = text.replace("X", "x").replace("W", written(*w, start=1.0))
        check(body, lambda a: twin(a, jnp.asarray(numbers(*w, start=1.0))), numbers(*x), rtol=1e-10)
    else:
        body = text.replace("X", written(*x)).replace("W", "x")
        check(body, lambda a: twin(jnp.asarray(numbers(*x)), a), numbers(*w, start=1.0), rtol=1e-10)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_convolution_is_scipy_s_correlation(n: int) -> None:
    x, w = numbers(*(5, 4, 6)[:n]), numbers(*(2, 3, 2)[:n], start=0.5)
    image, kernel = written(1, *x.shape, 1), written(*w.shape, 1, 1, start=0.5)
    found = answer(f"conv{n}d({image}, {kernel})")
    np.testing.assert_allclose(found[0, ..., 0], signal.correlate(x, w, mode="valid"), rtol=1e-12, atol=1e-14)


ADJOINTS = [
    ("1d", (2, 4, 3), (3, 2, 3), "stride = 2"),
    ("1d", (1, 4, 2), (3, 2, 2), "stride = 3, padding = \"same\""),
    ("2d", (1, 3, 2, 2), (3, 2, 1, 2), "stride = (2, 1)"),
    ("2d", (1, 3, 3, 4), (3, 3, 2, 4), "stride = 2, padding = 1, groups = 2"),
    ("2d", (1, 2, 3, 1), (2, 2, 3, 1), "padding = \"same\", dilation = 2"),
    ("3d", (1, 2, 2, 3, 2), (2, 1, 2, 1, 2), "stride = (1, 2, 2), groups = 2"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "y", "w", "options"), ADJOINTS, ids=str)
def test_transposed_convolution_is_the_adjoint(kind: str, y: tuple[int, ...], w: tuple[int, ...], options: str) -> None:
    """<conv(x, w), y> = <x, conv_transpose(y, w)>, and the convolution of what it gives is of the size it was given."""
    source = (
        f"float f64\nfn t(y: f64[..s], w: f64[..r]) = conv{kind}_transpose(y, w, {options})\n"
        f"fn c(x: f64[..s], w: f64[..r]) = conv{kind}(x, w, {options})\n"
    )
    module: Any = difflang.loads(source, name="adjoint")
    ys, ws = numbers(*y), numbers(*w, start=1.0)
    whole = np.asarray(module.t(ys, ws))
    x = numbers(*whole.shape, start=2.0)
    back = np.asarray(module.c(x, ws))
    assert back.shape == y
    np.testing.assert_allclose(np.sum(back * ys), np.sum(x * whole), rtol=1e-12)
    np.testing.assert_allclose(module.t.interpret(ys, ws), whole, rtol=1e-12, atol=1e-14)


def test_transposed_convolution_as_jax_has_it() -> None:
    """JAX's takes the kernel's channels the other way, and turned by half a turn if so asked."""
    w = numbers(3, 2, 2, 3, start=1.0)
    names = ("NHWC", "HWIO", "NHWC")

    def twin(x: Array) -> Array:
        return jax.lax.conv_transpose(x, w, (2, 1), "VALID", dimension_numbers=names, transpose_kernel=True)

    body = f"conv2d_transpose(x, {written(3, 2, 2, 3, start=1.0)}, stride = (2, 1))"
    check(body, twin, numbers(1, 2, 3, 3), rtol=1e-10)
    known = "conv1d_transpose(reshape([1.0, 2.0], [1, 2, 1]), reshape([1.0, 10.0, 100.0], [3, 1, 1]), stride = 2)"
    assert answer(known).ravel().tolist() == [1.0, 10.0, 102.0, 20.0, 200.0]


def pooled(x: Array, window: Any, stride: Any, padding: Any, what: str) -> Array:
    step, start = {"max": (jax.lax.max, -jnp.inf), "sum": (jax.lax.add, 0.0)}[what]
    return jax.lax.reduce_window(x, start, step, (1, *window, 1), (1, *stride, 1), padding)


POOLS: list[tuple[str, tuple[int, ...], Callable[[Array], Array]]] = [
    ("max_pool1d(x, 2)", (2, 5, 2), lambda x: pooled(x, (2,), (2,), "VALID", "max")),
    ("max_pool1d(x, 3, stride = 1, padding = \"same\")", (1, 5, 2), lambda x: pooled(x, (3,), (1,), "SAME", "max")),
    ("max_pool2d(x, (2, 3), stride = (1, 2))", (1, 4, 5, 2), lambda x: pooled(x, (2, 3), (1, 2), "VALID", "max")),
    ("max_pool3d(x, 2)", (1, 2, 4, 2, 2), lambda x: pooled(x, (2,) * 3, (2,) * 3, "VALID", "max")),
    ("max_pool3d(x, (1, 2, 2), stride = 1)", (1, 2, 3, 3, 1), lambda x: pooled(x, (1, 2, 2), (1,) * 3, "VALID", "max")),
    ("avg_pool1d(x, 2, padding = 1)", (1, 4, 2),
     lambda x: pooled(x, (2,), (2,), [(0, 0), (1, 1), (0, 0)], "sum") / 2),
    ("avg_pool3d(x, 2, stride = 1)", (1, 2, 3, 3, 1), lambda x: pooled(x, (2,) * 3, (1,) * 3, "VALID", "sum") / 8),
    ("sum_pool2d(x, (2, 1), padding = (1, 0))", (1, 3, 3, 2),
     lambda x: pooled(x, (2, 1), (2, 1), [(0, 0), (1, 1), (0, 0), (0, 0)], "sum")),
]  # fmt: skip


@pytest.mark.parametrize(("body", "x", "twin"), POOLS, ids=[c[0] for c in POOLS])
def test_pooling(body: str, x: tuple[int, ...], twin: Callable[[Array], Array]) -> None:
    check(body, twin, numbers(*x), rtol=1e-10)


@pytest.mark.parametrize("dtype", ["bf16", "f16", "f32"])
def test_every_float(dtype: str) -> None:
    """16-bit floats accumulate in f32: a sum of many is not lost."""
    source = (
        f"fn f(x: {dtype}[1, n, 1]) -> {dtype}[1, 1, 1] = conv1d(x, ones_like(reshape(x, [n, 1, 1])))\n"
        f"fn g(x: {dtype}[1, n, 1]) -> {dtype}[1, 1, 1] = sum_pool1d(x, n)\n"
    )
    module: Any = difflang.loads(source, name="floats")
    x = jnp.ones((1, 4096, 1), {"bf16": jnp.bfloat16, "f16": jnp.float16, "f32": jnp.float32}[dtype])
    for f in (module.f, module.g):
        found = f(x)
        assert found.dtype == x.dtype
        assert float(found[0, 0, 0]) == 4096.0


@pytest.mark.parametrize(
    ("call", "wider"),
    [
        ("conv2d(x, zeros(1, 5, 2, 1))", "padding = (0, 1)"),
        ("conv2d(x, zeros(1, 3, 2, 1), dilation = 2)", "padding = 1"),
        ("conv2d(x, zeros(2, 5, 2, 1), padding = 0)", 'padding = "same"'),
        ("max_pool2d(x, (4, 1))", "padding = (1, 0)"),
        ("avg_pool2d(x, 5)", 'padding = "same"'),
        ("sum_pool2d(x, 4, stride = 1)", "padding = 1"),
    ],
)
def test_a_window_longer_than_the_image_is_an_error_before_anything_runs(call: str, wider: str) -> None:
    """Where the sizes are numbers at the definition, else at the call."""
    body = f"sum({call})"
    known, named = (f"fn f(x: f32[1, {sizes}, 2]) -> f32 = {body}\n" for sizes in ("3, 3", "n, m"))
    assert codes(known) == [("DL0338", 1)]
    assert codes(named) == []
    assert codes(named + "let y = f(zeros(1, 3, 3, 2))\n") == [("DL0338", 1)]
    wide = body.replace(", padding = 0", "")[:-2] + f", {wider}))"
    assert codes(f"fn f(x: f32[1, n, m, 2]) -> f32 = {wide}\nlet y = f(zeros(1, 3, 3, 2))\n") == []


def test_an_image_of_nothing_has_no_places() -> None:
    assert answer('conv1d(zeros(1, 0, 1), zeros(3, 1, 2), padding = "same")').shape == (1, 0, 2)
    assert answer("conv1d_transpose(zeros(1, 0, 2), zeros(3, 1, 2))").shape == (1, 0, 1)
    assert codes("let y = max_pool1d(zeros(1, 0, 1), 1)\n") == [("DL0338", 1)]


X1, X2, W1 = "zeros(1, 6, 2)", "zeros(1, 6, 6, 2)", "zeros(3, 2, 4)"
WRONG = [
    (f"conv1d({X2}, {W1})", "DL0313"),
    (f"conv1d({X1}, zeros(3, 3, 2, 4))", "DL0313"),
    (f"conv1d({X1}, zeros(3, 3, 4))", "DL0312"),
    (f"conv1d({X1}, zeros(3, 1, 3), groups = 2)", "DL0312"),
    (f"conv1d({X1}, {W1}, groups = 0)", "DL0338"),
    (f"conv1d({X1}, {W1}, stride = 0)", "DL0338"),
    (f"conv1d({X1}, {W1}, stride = (1, 2))", "DL0338"),
    (f"conv1d({X1}, {W1}, padding = \"full\")", "DL0338"),
    (f"conv1d({X1}, {W1}, padding = -1)", "DL0338"),
    (f"conv1d({X1}, i32({W1}))", "DL0311"),
    (f"conv1d_transpose({X1}, {W1})", "DL0312"),
    (f"conv1d_transpose({X1}, zeros(1, 2, 2), padding = 4)", "DL0338"),
    (f"max_pool2d({X1}, 2)", "DL0313"),
    (f"max_pool2d({X2}, (2, 2, 2))", "DL0338"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "code"), WRONG, ids=[t for t, _ in WRONG])
def test_what_is_refused(text: str, code: str) -> None:
    assert codes(f"let y = {text}\n") == [(code, 1)]
