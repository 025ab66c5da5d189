"""`spatial`: layers with equal weights against flax and JAX, values and gradients, in f32 and f64; `test_nn` has their starts."""

# ruff: noqa: E501 - a function of the language is a line

from __future__ import annotations

from typing import Any

import flax.linen as fl
import jax.numpy as jnp
import numpy as np
import pytest

from support.language import answer, codes
from support.library import Engine, Like, compared, stdlib

IMPORTS = stdlib("spatial") + "import nn (Norm, init_norm)\n"
RNG = np.random.default_rng(14)


def n(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape)


def deconv(rank: int, stride: int) -> Any:
    def twin(w: Any, b: Any, x: Any) -> Any:
        layer = fl.ConvTranspose(
            w.shape[rank], w.shape[:rank], strides=(stride,) * rank, padding="VALID", transpose_kernel=True
        )
        return layer.apply({"params": {"kernel": w, "bias": b}}, x)

    return twin


def depthwise(w: Any, b: Any, x: Any) -> Any:
    layer = fl.Conv(3, (3, 2), strides=2, padding=[(1, 1)] * 2, feature_group_count=3)
    return layer.apply({"params": {"kernel": w[:, :, None], "bias": b}}, x)


def instance(s: Any, b: Any, x: Any) -> Any:
    layer = fl.InstanceNorm(use_fast_variance=False)
    return layer.apply({"params": {"scale": s, "bias": b}}, x)


def shuffled(x: Any) -> Any:
    return x.reshape(2, 2, 3, 2, 2, 2).transpose(0, 1, 3, 2, 4, 5).reshape(2, 4, 6, 2)


TABLE = [
    Like("deconvolve1d", "|w, b, x| deconvolve1d(Deconv1d(w = w, b = b), x, stride = 2)", deconv(1, 2), (n(3, 3, 2), n(3), n(2, 4, 2))),
    Like("deconvolve3d", "|w, b, x| deconvolve3d(Deconv3d(w = w, b = b), x)", deconv(3, 1), (n(2, 1, 2, 2, 1), n(2), n(1, 2, 2, 2, 1))),
    Like("depthwise2d", "|w, b, x| depthwise2d(Depthwise2d(w = w, b = b), x, stride = 2, pad = 1)", depthwise, (n(3, 2, 3), n(3), n(2, 4, 5, 3))),
    Like("global_mean_pool", "global_mean_pool", lambda x: x.mean((1, 2, 3)), (n(2, 2, 3, 2, 2),)),
    Like("global_max_pool", "global_max_pool", lambda x: x.max(1), (n(2, 5, 3),)),
    Like("pixel_shuffle", "|x| pixel_shuffle(x, 2)", shuffled, (n(2, 2, 3, 8),)),
    Like("upsample", "|x| upsample(x, 3)", lambda x: jnp.repeat(jnp.repeat(x, 3, 1), 3, 2), (n(1, 2, 2, 2),)),
    Like("instance_norm", "|s, b, x| instance_norm(Norm(scale = s, shift = b), x)", instance, (n(3), n(3), n(2, 4, 2, 3))),
]  # fmt: skip
test_it_is_as_elsewhere = compared(TABLE, IMPORTS, long=True)


def test_empty_single_and_broken_numbers() -> None:
    ask = """(global_mean_pool(zeros(0, 3, 2)), global_max_pool(zeros(2, 0, 1)), deconvolve1d(init_deconv1d(2, 1, 3), zeros(0, 4, 1)), upsample(ones(1, 1, 1, 1), 1),
      isnan(instance_norm(init_norm(1), [[[nan], [1.0]], [[1.0], [3.0]]])), instance_norm(init_norm(1), [[[7.0]]]), global_max_pool([[[1.0], [nan]]]))"""
    none, least, longer, one, broken, alone, seen = answer(ask, IMPORTS, Engine("interpret"))
    assert none.shape == (0, 2) and (least == -np.inf).all() and longer.shape == (0, 5, 3)
    assert one == 1 and broken[:, :, 0].tolist() == [[True, True], [False, False]] and alone == 0 and np.isnan(seen)


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ("pixel_shuffle(ones(1, 2, 2, 6), 2)", "DL0304"),
        ("upsample(ones(1, 2, 2, 6), 0)", "DL0315"),
        ("deconvolve1d(init_deconv1d(2, 1, 3), zeros(1, 0, 1))", "DL0315"),
    ],
)
def test_what_does_not_fit(wrong: str, code: str) -> None:
    assert [c for c, _ in codes(f"{IMPORTS}let y = {wrong}\n")] == [code]
