"""What is measured: the examples' losses and a few kernels, each with every way we know to write it well in JAX."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import twins

KERNELS = Path(__file__).resolve().parent / "kernels"
Twin = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Case:
    """A program, the function in it, what it is differentiated in, arguments, and its JAX twins.

    `wrt` is the name of the first parameter: the twins are differentiated in their first argument, not at all where it
    is empty. Of a function that
    gives an array, the gradient is that of its sum of squares, which the program calls `loss`. `target` is the ratio to
    be met where it is not the table's usual one. What is not `on_device` is given as it is, call by call.
    """

    name: str
    source: str
    entry: str
    wrt: str
    arguments: tuple[Any, ...]
    twins: dict[str, Twin]
    loss: str = ""
    target: float | None = None
    on_device: bool = True

    def differentiated(self, twin: Twin) -> Twin:
        """The gradient of a twin."""
        return jax.grad((lambda *xs: jnp.sum(twin(*xs) ** 2)) if self.loss else twin)


def example(name: str, **sizes: int) -> Case:
    """An example's loss. The data is f32 throughout, since JAX's 64-bit setting would hold for the whole process."""
    twin = import_module(f"twins.{name}")
    text = needed_by("loss", twins.source(name, swap=("f64", "f32")))
    ways = {"plain": twin.loss, "remat": jax.checkpoint(twin.loss)}
    return Case(name, text, "loss", twin.WRT, twin.arguments(np.float32, **sizes), ways)


def needed_by(entry: str, source: str) -> str:
    """The declarations that a function needs, as its twin has them: training is not what is measured."""
    header, *blocks = re.split(r"\n(?=(?:##|fn |record ))", source)
    declared = {found[1]: block for block in blocks if (found := re.search(r"^(?:fn|record) (\w+)", block, re.M))}
    kept, todo = set[str](), [entry]
    while todo:
        name = todo.pop()
        if name in declared and name not in kept:
            kept.add(name)
            todo += re.findall(r"\w+", declared[name])
    return "\n".join([header, *[block for name, block in declared.items() if name in kept]]) + "\n"


def written(file: Path, entry: str, wrt: str, arguments: tuple[Any, ...], ways: dict[str, Twin]) -> Case:
    """The case of a difflang file of its own, under the file's name."""
    return Case(file.stem, file.read_text(encoding="utf-8"), entry, wrt, arguments, ways)


def kernel(name: str, wrt: str, arguments: tuple[np.ndarray, ...], **ways: Twin) -> Case:
    return written(KERNELS / f"{name}.dfl", "f", wrt, arguments, ways)


def normal(*shape: int, scale: float = 1.0, seed: int = 0, dtype: type = np.float32) -> np.ndarray:
    return (scale * np.random.default_rng(seed).standard_normal(shape)).astype(dtype)


def elementwise() -> Case:
    def plain(x: jax.Array) -> jax.Array:
        a = jnp.sin(x) * x + 0.5
        b = jnp.exp(-a * a) + jnp.tanh(x)
        c = jnp.log1p(b * b) - jnp.sqrt(b * b + 1)
        d = a / (1 + c * c) + jax.nn.sigmoid(b)
        return jnp.sum(d * d + jnp.cos(c) * a)

    return kernel("elementwise", "x", (normal(1 << 18),), plain=plain, remat=jax.checkpoint(plain))


def matmul() -> Case:
    def step(h: jax.Array, w: jax.Array) -> jax.Array:
        return jnp.tanh(h @ w)

    def plain(w: jax.Array, x: jax.Array) -> jax.Array:
        h = x
        for i in range(8):
            h = step(h, w[i])
        return jnp.mean(h * h)

    def scan(w: jax.Array, x: jax.Array) -> jax.Array:
        h, _ = jax.lax.scan(lambda h, w: (step(h, w), None), x, w)
        return jnp.mean(h * h)

    arguments = (normal(8, 256, 256, scale=1 / 16), normal(128, 256, seed=1))
    return kernel("matmul", "w", arguments, plain=plain, scan=scan, remat=jax.checkpoint(plain))


def scan() -> Case:
    def recurrence(remat: bool, unroll: int) -> Twin:
        def f(a: jax.Array, x: jax.Array) -> jax.Array:
            def step(h: jax.Array, _: None) -> tuple[jax.Array, None]:
                return jnp.tanh(a @ h) + 0.1 * x, None

            h, _ = jax.lax.scan(jax.checkpoint(step) if remat else step, x, None, length=1000, unroll=unroll)
            return jnp.sum(h * h)

        return f

    arguments = (normal(32, 32, scale=0.15), normal(32, seed=1))
    ways = {f"{'remat' if r else 'scan'}{u}": recurrence(r, u) for r in (False, True) for u in (1, 4)}
    return kernel("scan", "a", arguments, **ways)


def convolution() -> Case:
    def plain(w: jax.Array, x: jax.Array) -> jax.Array:
        numbers = ("NHWC", "HWIO", "NHWC")
        y = jax.lax.conv_general_dilated(x, w, (1, 1), ((1, 1), (1, 1)), dimension_numbers=numbers)
        y = jax.nn.relu(y)
        return jnp.mean(y * y)

    def channels_first(w: jax.Array, x: jax.Array) -> jax.Array:
        numbers = ("NCHW", "OIHW", "NCHW")
        image, window = x.transpose(0, 3, 1, 2), w.transpose(3, 2, 0, 1)
        y = jax.lax.conv_general_dilated(image, window, (1, 1), ((1, 1), (1, 1)), dimension_numbers=numbers)
        y = jax.nn.relu(y)
        return jnp.mean(y * y)

    arguments = (normal(3, 3, 16, 32, scale=0.1), normal(16, 28, 28, 16, seed=1))
    ways = {"plain": plain, "channels_first": channels_first, "remat": jax.checkpoint(plain)}
    return kernel("convolution", "w", arguments, **ways)


def gather_scatter() -> Case:
    def plain(t: jax.Array, i: jax.Array, w: jax.Array) -> jax.Array:
        bins = jnp.zeros_like(t).at[i].add(t[i] * w[:, None])
        return jnp.sum(bins * bins * t)

    def promised(t: jax.Array, i: jax.Array, w: jax.Array) -> jax.Array:
        rows = t.at[i].get(mode="promise_in_bounds") * w[:, None]
        bins = jnp.zeros_like(t).at[i].add(rows, mode="promise_in_bounds")
        return jnp.sum(bins * bins * t)

    index = np.random.default_rng(2).integers(0, 1000, 20_000).astype(np.int32)
    arguments = (normal(1000, 16), index, normal(20_000, seed=1))
    return kernel("gather_scatter", "t", arguments, plain=plain, promised=promised, remat=jax.checkpoint(plain))


def scalar() -> Case:
    return kernel("scalar", "x", (np.float32(0.7),), plain=lambda x: jnp.sin(x) * x)


CASES: dict[str, Callable[[], Case]] = {
    "fit_curve": lambda: example("fit_curve"),
    "logistic": lambda: example("logistic"),
    "digits": lambda: example("digits", batch=64),
    "digits_conv": lambda: example("digits_conv", batch=64),
    "elementwise": elementwise,
    "matmul": matmul,
    "scan": scan,
    "convolution": convolution,
    "gather_scatter": gather_scatter,
    "scalar": scalar,
}
