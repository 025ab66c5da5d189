"""`nn`, `sequence` and `losses`: layers with equal weights against flax and JAX, losses against optax, in f32 and f64."""

# ruff: noqa: E501 - a function of the language is a line

from __future__ import annotations

from functools import cache
from typing import Any

import flax.linen as fl
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import difflang
from support.language import answer, codes, ran
from support.library import Engine, Like, agrees, compared, found, stdlib

RNG = np.random.default_rng(11)
IMPORTS = stdlib("nn") + stdlib("sequence") + stdlib("losses")
SPATIAL = "import spatial (init_deconv1d, init_deconv3d, init_depthwise2d)\n"
Array = Any


def n(*shape: int) -> Array:
    return RNG.normal(size=shape)


def flax(layer: fl.Module, params: Any, *xs: Array, **state: Any) -> Array:
    return layer.apply({"params": params, **state}, *xs)


def conv(rank: int, stride: int, pad: int):
    def twin(w: Array, b: Array, x: Array) -> Array:
        layer = fl.Conv(w.shape[-1], w.shape[:rank], strides=stride, padding=[(pad, pad)] * rank)
        return flax(layer, {"kernel": w, "bias": b}, x)

    return twin


def deconv(w: Array, b: Array, x: Array) -> Array:
    layer = fl.ConvTranspose(w.shape[2], w.shape[:2], strides=(2, 2), padding="VALID", transpose_kernel=True)
    return flax(layer, {"kernel": w, "bias": b}, x)


def batch_norm(s: Array, b: Array, m: Array, v: Array, x: Array) -> Array:
    layer = fl.BatchNorm(use_running_average=False, momentum=0.75, epsilon=1e-5, use_fast_variance=False)
    variables = {"params": {"scale": s, "bias": b}, "batch_stats": {"mean": m, "var": v}}
    y, state = layer.apply(variables, x, mutable=["batch_stats"])
    seen = state["batch_stats"]
    return jnp.concatenate([y.reshape(-1), seen["mean"], seen["var"]])


def seen_norm(s: Array, b: Array, m: Array, v: Array, x: Array) -> Array:
    layer = fl.BatchNorm(use_running_average=True, epsilon=1e-5)
    return layer.apply({"params": {"scale": s, "bias": b}, "batch_stats": {"mean": m, "var": v}}, x)


def heads(*ws: Array) -> Array:
    wq, x, y, mask = ws[0], *ws[8:]
    layer = fl.MultiHeadDotProductAttention(num_heads=wq.shape[1], qkv_features=wq.shape[1] * wq.shape[2])
    params = {
        n: {"kernel": w, "bias": b}
        for n, w, b in zip(("query", "key", "value", "out"), ws[:8:2], ws[1:8:2], strict=True)
    }
    return layer.apply({"params": params}, x, y, mask=mask[None])


def rotary(x: Array) -> Array:
    """As complex numbers that are turned."""
    count, h = x.shape[0], x.shape[1] // 2
    turn = jnp.exp(1j * jnp.arange(count)[:, None] * 10000.0 ** (-jnp.arange(h) / h))
    z = (x[:, :h] + 1j * x[:, h:]) * turn
    return jnp.concatenate([z.real, z.imag], axis=1)


def rotary_heads(*ws: Array) -> Array:
    """Each head beside the others, its queries and keys turned."""
    *ws, w, b, x = ws
    asked = [jnp.einsum("nd,dhk->hnk", x, k) + c[:, None] for k, c in zip(ws[::2], ws[1::2], strict=True)]
    q, k = (jax.vmap(rotary)(t) for t in asked[:2])
    mask = jnp.tri(x.shape[0]) > 0
    return (
        jnp.einsum(
            "nhe,hed->nd", fl.dot_product_attention(*(jnp.swapaxes(t, 0, 1) for t in (q, k, asked[2])), mask=mask), w
        )
        + b
    )


def gru(wi: Array, wh: Array, b: Array, inner: Array, h: Array, x: Array) -> Array:
    parts = [np.s_[:, k * 2 : k * 2 + 2] for k in range(3)]
    params = {f"i{g}": {"kernel": wi[s], "bias": b[s[1]]} for g, s in zip("rzn", parts, strict=True)}
    params |= {f"h{g}": {"kernel": wh[s]} for g, s in zip("rz", parts, strict=False)}
    params["hn"] = {"kernel": wh[parts[2]], "bias": inner}
    return fl.GRUCell(2).apply({"params": params}, h, x)[1]


def lstm(wi: Array, wh: Array, b: Array, c: Array, h: Array, x: Array) -> Array:
    parts = [np.s_[:, k * 2 : k * 2 + 2] for k in range(4)]
    params = {f"i{g}": {"kernel": wi[s]} for g, s in zip("ifgo", parts, strict=True)}
    params |= {f"h{g}": {"kernel": wh[s], "bias": b[s[1]]} for g, s in zip("ifgo", parts, strict=True)}
    (cell, state), _ = fl.LSTMCell(2).apply({"params": params}, (c, h), x)
    return jnp.concatenate([cell, state])


def triplet(a: Array, p: Array, q: Array) -> Array:
    return jax.nn.relu(jnp.linalg.norm(a - p, axis=-1) - jnp.linalg.norm(a - q, axis=-1) + 2.0)


LABELS = np.array([2, 0, 1, 2, 2])
TRUTHS = np.array([1.0, 0.0, 1.0, 0.0])
SIGNS = np.array([1.0, -1.0, 1.0, -1.0])
CHANCES = np.exp(n(3, 4)) / 20
MASK = RNG.random((3, 5)) < 0.7
MASK[:, 0] = True
ATTENTION = (n(4, 2, 3), n(2, 3), n(4, 2, 3), n(2, 3), n(4, 2, 3), n(2, 3), n(2, 3, 4), n(4), n(3, 4), n(5, 4), MASK)

TABLE = [
    Like("leaky_relu", "|x| leaky_relu(x, slope = 0.1)", lambda x: jax.nn.leaky_relu(x, 0.1), (n(7),)),
    Like("elu", "|x| elu(x, a = 1.5)", lambda x: jax.nn.elu(x, 1.5), (n(7),)),
    Like("selu", "selu", jax.nn.selu, (n(7),)),
    Like("silu", "silu", jax.nn.silu, (n(2, 3),)),
    Like("mish", "mish", jax.nn.mish, (n(7) * 4,)),
    Like("softsign", "softsign", jax.nn.soft_sign, (n(7),)),
    Like("hard_swish", "hard_swish", jax.nn.hard_swish, (4 * n(7),)),
    Like("glu", "glu", jax.nn.glu, (n(2, 6),)),
    Like("dense", "|w, b, x| dense(Dense(w = w, b = b), x)", lambda w, b, x: flax(fl.Dense(4), {"kernel": w, "bias": b}, x), (n(3, 4), n(4), n(2, 5, 3))),
    Like("embed", "|t, k| embed(Embedding(table = t), k)", lambda t, k: fl.Embed(4, 3).apply({"params": {"embedding": t}}, k), (n(4, 3), np.array([[0, 3], [1, 3]]))),
    Like("unembed", "|t, x| unembed(Embedding(table = t), x)", lambda t, x: x @ t.T, (n(4, 3), n(2, 3))),
    Like("convolve1d", "|w, b, x| convolve1d(Conv1d(w = w, b = b), x, stride = 2, pad = 1)", conv(1, 2, 1), (n(3, 2, 3), n(3), n(2, 6, 2))),
    Like("convolve2d", "|w, b, x| convolve2d(Conv2d(w = w, b = b), x, stride = 2, pad = 1)", conv(2, 2, 1), (n(3, 2, 2, 3), n(3), n(2, 4, 5, 2))),
    Like("convolve3d", "|w, b, x| convolve3d(Conv3d(w = w, b = b), x, pad = 1)", conv(3, 1, 1), (n(2, 3, 2, 2, 1), n(1), n(1, 2, 3, 2, 2))),
    Like("deconvolve2d", "|w, b, x| deconvolve2d(Deconv2d(w = w, b = b), x, stride = 2)", deconv, (n(3, 2, 3, 2), n(3), n(2, 3, 2, 2))),
    Like("mean_pool", "mean_pool", lambda x: jnp.mean(x, axis=(1, 2)), (n(2, 3, 4, 2),)),
    Like("layer_norm", "|s, b, x| layer_norm(Norm(scale = s, shift = b), x)", lambda s, b, x: flax(fl.LayerNorm(use_fast_variance=False), {"scale": s, "bias": b}, x), (n(4), n(4), n(2, 3, 4))),
    Like("rms_norm", "|s, x| rms_norm(s, x)", lambda s, x: flax(fl.RMSNorm(), {"scale": s}, x), (n(4), n(2, 3, 4))),
    Like("group_norm", "|s, b, x| group_norm(Norm(scale = s, shift = b), x, groups = 2)", lambda s, b, x: flax(fl.GroupNorm(2, use_fast_variance=False), {"scale": s, "bias": b}, x), (n(4), n(4), n(2, 3, 2, 4))),
    Like("batch_norm", "|s, b, m, v, x| { let (y, seen) = batch_norm(Norm(scale = s, shift = b), BatchStats(mean = m, variance = v), x, keep = 0.75)\n  concat(reshape(y, [-1]), seen.mean, seen.variance) }", batch_norm, (n(3), n(3), n(3), n(3) ** 2, n(4, 2, 3))),
    Like("batch_norm_seen", "|s, b, m, v, x| batch_norm_seen(Norm(scale = s, shift = b), BatchStats(mean = m, variance = v), x)", seen_norm, (n(3), n(3), n(3), n(3) ** 2 + 1, n(4, 2, 3))),
    Like("attention", "|wq, bq, wk, bk, wv, bv, w, b, x, y, mask| attention(Attention(query = Dense3(w = wq, b = bq), key = Dense3(w = wk, b = bk), value = Dense3(w = wv, b = bv), w = w, b = b), x, y, mask)", heads, ATTENTION),
    Like("rotary_attention", "|wq, bq, wk, bk, wv, bv, w, b, x| rotary_attention(Attention(query = Dense3(w = wq, b = bq), key = Dense3(w = wk, b = bk), value = Dense3(w = wv, b = bv), w = w, b = b), x, causal_mask(3, 3))", rotary_heads, (n(4, 2, 2), n(2, 2), n(4, 2, 2), n(2, 2), n(4, 2, 2), n(2, 2), n(2, 2, 4), n(4), n(3, 4))),
    Like("padding_mask", "|k| padding_mask(3, 5, k)", lambda k: jnp.broadcast_to(jnp.arange(5) < k, (3, 5)), (np.int32(2),), exact=True),
    Like("attend", "|q, k, v| attend(q, k, v, causal_mask(4, 4))", lambda q, k, v: fl.dot_product_attention(q[:, None], k[:, None], v[:, None], mask=fl.make_causal_mask(jnp.ones(4)))[:, 0], (n(4, 3), n(4, 3), n(4, 3))),
    Like("rotary", "|x| rotary(x)", rotary, (n(5, 6),)),
    Like("gru", "|wi, wh, b, c, h, x| gru(Gru(input = wi, state = wh, bias = b, inner = c), h, x)", gru, (n(3, 6), n(2, 6), n(6), n(2), n(2), n(3))),
    Like("lstm", "|wi, wh, b, c, h, x| { let (cell, state) = lstm(Lstm(input = wi, state = wh, bias = b), (c, h), x)\n  concat(cell, state) }", lstm, (n(3, 8), n(2, 8), n(8), n(2), n(2), n(3))),
    Like("rnn", "|wi, wh, b, h, x| rnn(Rnn(input = wi, state = wh, bias = b), h, x)", lambda wi, wh, b, h, x: fl.SimpleCell(2).apply({"params": {"i": {"kernel": wi, "bias": b}, "h": {"kernel": wh}}}, h, x)[1], (n(3, 2), n(2, 2), n(2), n(2), n(3))),
    Like("sinusoids", "|b| sinusoids(5, 3, base = b)", lambda b: jnp.concatenate([f(jnp.arange(5)[:, None] * b ** (-jnp.arange(3) / 3)) for f in (jnp.sin, jnp.cos)], axis=1), (np.float64(100),)),
    Like("linear_bias", "|t| linear_bias(3, 4, 2, steepest = t)", lambda t: t * jnp.array([1 / 16, 1 / 256])[:, None, None] * (jnp.arange(4) - jnp.arange(3)[:, None] - 1), (np.float64(1),)),
    Like("squared_error", "squared_error", optax.squared_error, (n(5), n(5))),
    Like("absolute_error", "absolute_error", lambda y, t: jnp.abs(y - t), (n(5), n(5))),
    Like("huber_loss", "|y, t| huber_loss(y, t, delta = 0.5)", lambda y, t: jnp.where(jnp.abs(y - t) < 0.5, (y - t) ** 2 / 2, 0.5 * jnp.abs(y - t) - 0.125), (n(7), n(7))),
    Like("log_cosh", "log_cosh", optax.log_cosh, (n(5), n(5))),
    Like("quantile_error", "|y, t| quantile_error(y, t, 0.3)", lambda y, t: jnp.maximum(0.3 * (t - y), -0.7 * (t - y)), (n(5), n(5))),
    Like("binary_cross_entropy", "|z| binary_cross_entropy(z, [1.0, 0.0, 1.0, 0.0])", lambda z: optax.sigmoid_binary_cross_entropy(z, TRUTHS), (4 * n(4),)),
    Like("focal_loss", "|z| focal_loss(z, [1.0, 0.0, 1.0, 0.0])", lambda z: optax.sigmoid_focal_loss(z, TRUTHS), (n(4),)),
    Like("cross_entropy", "|z, l| cross_entropy(z, l)", optax.softmax_cross_entropy_with_integer_labels, (n(5, 3), LABELS)),
    Like("soft_cross_entropy", "|z, p| soft_cross_entropy(z, p)", optax.softmax_cross_entropy, (n(3, 4), CHANCES)),
    Like("kl_divergence", "|p, q| kl_divergence(p, q)", lambda p, q: optax.kl_divergence(q, p), (CHANCES, n(3, 4))),
    Like("hinge", "|z| hinge(z, [1.0, -1.0, 1.0, -1.0])", lambda z: optax.hinge_loss(z, SIGNS), (n(4),)),
    Like("cosine_similarity", "cosine_similarity", optax.cosine_similarity, (n(3, 4), n(3, 4))),
    Like("triplet_loss", "|a, p, q| triplet_loss(a, p, q, margin = 2.0)", triplet, (n(3, 4), n(3, 4), n(3, 4))),
    Like("smooth_labels", "|l, a| smooth_labels(l, 3, a)", lambda k, a: optax.smooth_labels(jax.nn.one_hot(k, 3, dtype=a.dtype), a), (LABELS, np.float64(0.2))),
    Like("accuracy", "|z, l| accuracy(z, l)", lambda z, k: jnp.mean((jnp.argmax(z, 1) == k).astype(z.dtype)), (n(5, 3), LABELS)),  # its gradient is 0
]  # fmt: skip

test_it_is_as_elsewhere = compared(TABLE, IMPORTS, long=True)


def test_a_wrong_function_would_be_found() -> None:
    """The negative control: a layer with a shifted weight is told from its twin."""
    (value, *slopes) = found(tuple(TABLE), IMPORTS, "f64")["dense"]
    with pytest.raises(AssertionError):
        agrees(TABLE[6], (value + 1e-9, *slopes), "f64")
    with pytest.raises(AssertionError):
        agrees(TABLE[6], (value, slopes[0] * (1 + 1e-9), *slopes[1:]), "f64")


# What is drawn, its shape and the variance that is stated for a gain of 1; a number stands for all of a start.
DRAWN: dict[str, tuple[str, tuple[int, ...], float]] = {
    "lecun_normal": ("lecun_normal(50, 40, g)", (50, 40), 1 / 50),
    "he_normal": ("he_normal(50, 40, g)", (50, 40), 2 / 50),
    "glorot_normal": ("glorot_normal(20, 80, g)", (20, 80), 2 / 100),
    "glorot_uniform": ("glorot_uniform(20, 80, g)", (20, 80), 2 / 100),
    "orthogonal": ("orthogonal(40, 30, g)", (40, 30), 1 / 40),
    "orthogonal rows": ("orthogonal(30, 40, g)", (30, 40), 1 / 40),
    "init_dense": ("init_dense(50, 40, g).w", (50, 40), 1 / 50),
    "init_embedding": ("init_embedding(80, 25, g).table", (80, 25), 1 / 25),
    "init_conv1d": ("init_conv1d(5, 10, 40, g).w", (5, 10, 40), 2 / 50),
    "init_conv2d": ("init_conv2d(3, 2, 9, 40, g).w", (3, 2, 9, 40), 2 / 54),
    "init_conv3d": ("init_conv3d(3, 2, 2, 5, 30, g).w", (3, 2, 2, 5, 30), 2 / 60),
    "init_deconv2d": ("init_deconv2d(3, 2, 9, 40, g).w", (3, 2, 40, 9), 2 / 54),
    "init_deconv1d": ("init_deconv1d(5, 20, 20, g).w", (5, 20, 20), 2 / 100),
    "init_deconv3d": ("init_deconv3d(2, 2, 2, 10, 25, g).w", (2, 2, 2, 25, 10), 2 / 80),
    "init_depthwise2d": ("init_depthwise2d(4, 5, 100, g).w", (4, 5, 100), 2 / 20),
    "init_attention": ("init_attention(20, 4, 8, g).query.w", (20, 4, 8), 1 / 20),
    "init_attention, what it gives": ("init_attention(20, 4, 8, g).w", (4, 8, 20), 1 / 32),
    "init_rnn": ("init_rnn(50, 20, g).input", (50, 20), 1 / 50),
    "init_rnn, its state": ("init_rnn(5, 30, g).state", (30, 30), 1 / 30),
    "init_gru": ("init_gru(50, 10, g).input", (50, 30), 1 / 50),
    "init_gru, its state": ("init_gru(5, 20, g).state", (20, 60), 1 / 20),
    "init_lstm": ("init_lstm(50, 10, g).input", (50, 40), 1 / 50),
    "init_lstm, its state": ("init_lstm(5, 20, g).state", (20, 80), 1 / 20),
}  # fmt: skip
STARTS = {
    "init_norm(3, g).scale": [1, 1, 1],
    "init_norm(3, g).shift": [0, 0, 0],
    "init_batch_stats(2, g).variance": [1, 1],
    "init_batch_stats(2, g).mean": [0, 0],
    "init_dense(2, 3, g).b": [0, 0, 0],
    "init_attention(2, 1, 2, g).b": [0, 0],
    "init_attention(2, 1, 2, g).value.b": [[0, 0]],
    "init_rnn(2, 2, g).bias": [0, 0],
    "init_gru(2, 1, g).bias": [0, 0, 0],
    "init_gru(2, 1, g).inner": [0],
    "init_lstm(2, 1, g).bias": [0, 1, 0, 0],
}


@cache
def begun(dtype: str) -> dict[str, list[Array]]:
    """What the initializers give for a gain of 1.5, and how it changes with the gain."""
    source = [f"float {dtype}\n", IMPORTS, SPATIAL]
    for i, ask in enumerate([*(ask for ask, _, _ in DRAWN.values()), *STARTS]):
        source.append(f"let y{i} = jvp(|g| {ask})(1.5, 1.0)\n")
    values, _ = ran("".join(source), Engine("interpret"), seed=4)
    return {key: [np.asarray(x) for x in values[f"y{i}"].leaves or ()] for i, key in enumerate([*DRAWN, *STARTS])}


@pytest.mark.parametrize("dtype", ["f64", "f32"])
@pytest.mark.parametrize("title", DRAWN)
def test_initializers_have_the_moments_that_they_state(title: str, dtype: str) -> None:
    """Of some 2000 numbers: mean and variance within five standard errors, orthogonality, and the derivative in the gain."""
    (x, slope), (ask, shape, variance) = begun(dtype)[title], DRAWN[title]
    assert x.shape == shape and x.dtype == slope.dtype == {"f64": np.float64, "f32": np.float32}[dtype]
    assert abs(np.mean(x)) < 5 * np.sqrt(2.25 * variance / x.size)
    assert abs(np.var(x) / 2.25 / variance - 1) < 5 * np.sqrt(2 / x.size)
    close = {"f64": 1e-14, "f32": 1e-5}[dtype]
    np.testing.assert_allclose(slope, x / 1.5, rtol=close, atol=close)
    if "orthogonal" in ask or "state" in ask:
        for q in np.split(x, max(x.shape[1] // x.shape[0], 1), axis=1):
            q = q if q.shape[0] >= q.shape[1] else q.T
            np.testing.assert_allclose(q.T @ q, 2.25 * np.eye(q.shape[1]), atol=5 * close)


@pytest.mark.parametrize("dtype", ["f64", "f32"])
def test_what_is_not_drawn(dtype: str) -> None:
    """Biases, scales and statistics begin as they are documented, and scales alone grow with the gain."""
    for ask, start in STARTS.items():
        x, slope = begun(dtype)[ask]
        scaled = "scale" in ask or "variance" in ask
        assert x.dtype == {"f64": np.float64, "f32": np.float32}[dtype]
        assert (x == np.multiply(start, 1.5 if scaled else 1)).all() and (slope == np.multiply(start, scaled)).all()


@pytest.mark.parametrize("dtype", ["f64", "f32"])
def test_dropout(dtype: str) -> None:
    """A part is left out, the others grow, and the derivatives are those of what is left, in the rate too."""
    one = f"import nn (dropout)\nfn f(x: {dtype}[2000], rate: {dtype}) -> {dtype}[2000] = with_key(key(3)) {{ dropout(x, rate) }}\n"
    ask = "(x, f(x, 0.2), grad[x, r](|x, r| sum(f(x, r)))(x, 0.2) |> |g| (g.x, g.r))"
    x, y, slope, in_rate = answer(ask, f"{one}let x = {dtype}(normal(2000))\n", Engine("interpret"))
    kept = y != 0
    assert y.dtype == slope.dtype == {"f64": np.float64, "f32": np.float32}[dtype]
    assert abs(kept.mean() - 0.8) < 5 * 0.4 / np.sqrt(2000)
    close = {"f64": 1e-13, "f32": 1e-5}[dtype]
    np.testing.assert_allclose(y, np.where(kept, x / 0.8, 0), rtol=close)
    np.testing.assert_allclose(slope, kept / 0.8, rtol=close)
    np.testing.assert_allclose(in_rate, np.sum(y) / 0.8, rtol=10 * close)


def test_empty_single_and_broken_numbers() -> None:
    """No examples give none, one place is one place, and NaN stays in its row."""
    ask = """(dense(init_dense(3, 2), zeros(0, 3)), cross_entropy(zeros(0, 2), fill(0, i32(0))), attend(ones(1, 1), ones(1, 1), [[3.0]], causal_mask(1, 1)),
      convolve2d(init_conv2d(1, 1, 1, 2), zeros(0, 3, 3, 1)), layer_norm(init_norm(1), [[5.0]]), isnan(layer_norm(init_norm(2), [[nan, 1.0], [1.0, 3.0]])),
      isnan(squared_error([nan, inf], [0.0, 0.0])), embed(init_embedding(3, 2), fill(0, i32(0))), grad(|x| cosine_similarity(x, [1.0, 2.0]))([0.0, 0.0]))"""
    none, empty, one, no_images, alone, row, errors, words, flat = answer(ask, IMPORTS, Engine("interpret"))
    assert none.shape == (0, 2) and empty.shape == (0,) and no_images.shape == (0, 3, 3, 2) and words.shape == (0, 2)
    assert one == 3 and alone == 0 and not flat.any()
    assert row.tolist() == [[True, True], [False, False]] and errors.tolist() == [True, False]


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ("dropout([1.0], 1.0)", "DL0901"),
        ("dropout([1.0], nan)", "DL0901"),
        ("huber_loss([1.0], [1.0], delta = 0.0)", "DL0901"),
        ("quantile_error([1.0], [1.0], 1.5)", "DL0901"),
        ("focal_loss([1.0], [1.0], gamma = -1.0)", "DL0901"),
        ("smooth_labels([0], 2, -0.5)", "DL0901"),
        ("cross_entropy([[1.0, 2.0]], [2])", "DL0902"),
        ("embed(init_embedding(3, 2), [3])", "DL0902"),
        ("batch_norm(init_norm(1), init_batch_stats(1), ones(2, 1), keep = 2.0)", "DL0901"),
        ("batch_norm(init_norm(1), init_batch_stats(1), ones(0, 1))", "DL0315"),
        ("group_norm(init_norm(3), ones(1, 2, 3), groups = 2)", "DL0315"),
        ("glu([1.0, 2.0, 3.0])", "DL0304"),
        ("rotary([[1.0, 2.0, 3.0]])", "DL0304"),
    ],
)
def test_what_does_not_fit(wrong: str, code: str) -> None:
    assert [c for c, _ in codes(f"{IMPORTS}let y = {wrong}\n")] == [code]


@pytest.mark.parametrize("shape", [(64, 64), (64, 48), (8, 16, 32)])
def test_dropout_leaves_out_numbers_not_rows(shape: tuple[int, ...]) -> None:
    """It once drew one number for each item of the last axis where sizes agreed, and did not fit where they differed."""
    sizes = ", ".join(map(str, shape))
    f = difflang.loads(f"import nn (dropout)\nfn f(x: f32[{sizes}]) -> f32[{sizes}] = dropout(x, 0.5)\n").f
    kept: np.ndarray[Any, Any] = np.asarray(f(np.ones(shape, np.float32)))
    assert set(np.unique(kept)) == {0.0, 2.0}
    for axis in range(kept.ndim):
        along = kept.mean(axis=tuple(i for i in range(kept.ndim) if i != axis))
        assert along.min() > 0.0 and along.max() < 2.0
