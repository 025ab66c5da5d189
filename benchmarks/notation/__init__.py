"""Index notation against jax.numpy, and checked indices against unchecked ones, for the table of notation.

The functions stand in one file, in f32; a case may ask for f64. The gradient that is measured is that of the sum of a
function's squares.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cases import Case, Twin, example, normal

SOURCE = (Path(__file__).parent / "programs.dfl").read_text(encoding="utf-8")
TARGET, TARGET_OF_CHECKS = 1.1, 1.05
PLACES, BINS = 20_000, 5_000


def program(entry: str, arguments: tuple[Any, ...], *twins: Twin, f64: bool = False) -> Case:
    """The case of a function of the file."""
    text = SOURCE.replace("f32", "f64") if f64 else SOURCE
    params = re.search(rf"^fn {entry}\((.*?)\) ->", text, re.M)
    assert params is not None
    names = re.findall(r"(\w+): ", params[1])
    kind = "f64" if f64 else "f32"
    text += f"\nfn loss({params[1]}) -> {kind} = sum({entry}({', '.join(names)})^2)\n"
    ways = {f"way {n}": twin for n, twin in enumerate(twins)}
    return Case(entry, text, entry, names[0], arguments, ways, loss="loss", target=TARGET)


def product(entry: str, shapes: tuple[tuple[int, ...], ...], *twins: Twin, f64: bool = False) -> Case:
    dtype = np.float64 if f64 else np.float32
    return program(entry, tuple(normal(*s, seed=i, dtype=dtype) for i, s in enumerate(shapes)), *twins, f64=f64)


def places(seed: int = 2, below: int = BINS, count: int = PLACES) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, below, count).astype(np.int32)


def below_diagonal(a: jax.Array, x: jax.Array) -> jax.Array:
    return jnp.sum(jnp.where(jnp.tri(len(x), dtype=bool), a * x, 0), axis=1)


def four_slices(x: jax.Array) -> jax.Array:
    n = len(x) // 2 - 1
    return sum((x[k : k + 2 * n - 1 : 2] for k in range(1, 4)), x[: 2 * n - 1 : 2])


def by_positions(x: jax.Array) -> jax.Array:
    return x[2 * jnp.arange(len(x) // 2 - 1)[:, None] + jnp.arange(4)].sum(1)


def correlated(x: jax.Array, w: jax.Array) -> jax.Array:
    return jnp.convolve(x, w[::-1], mode="valid")


def gathered_windows(x: jax.Array, w: jax.Array) -> jax.Array:
    return x[jnp.arange(len(x) - len(w) + 1)[:, None] + jnp.arange(len(w))] @ w


def differences(x: jax.Array, y: jax.Array) -> jax.Array:
    return jnp.sum((x[:, None] - y) ** 2, axis=-1)


def scaled_scores(q: jax.Array, k: jax.Array) -> jax.Array:
    return jnp.einsum("lic,ljc->lij", q, k) / jnp.sqrt(q.dtype.type(q.shape[-1]))


def scattered(entry: str, start: float, method: str) -> Case:
    def twin(w: jax.Array, p: jax.Array, first: jax.Array) -> jax.Array:
        return getattr(first.at[p], method)(w)

    weights = np.random.default_rng(3).uniform(0.9, 1.1, PLACES).astype(np.float32)
    return program(entry, (weights, places(), np.full(BINS, start, np.float32)), twin)


def looked_up(t: jax.Array, p: jax.Array) -> jax.Array:
    return t.at[p].get(mode="promise_in_bounds")


def unchecked(case: Case) -> Case:
    """A program beside itself without checks, both called as they are."""
    import difflang

    free = difflang.loads(re.sub(r"^fn ", "@unchecked\nfn ", case.source, flags=re.M), name="unchecked")
    return replace(case, twins={"unchecked": free[case.entry]}, target=TARGET_OF_CHECKS)


def alone(case: Case) -> Case:
    """An example's program without the files of its data."""
    return replace(case, source=re.sub(r'^import "\./.*\n', "", case.source, flags=re.M))


def checked(entry: str, *arguments: Any) -> Case:
    return unchecked(Case(entry, SOURCE, entry, "", arguments, {}))


TABLE = normal(1000, 16)
SQUARE: dict[str, Callable[[], Case]] = {
    f"{name}_{kind}_{n}": partial(product, name, shapes, lambda a, b: a @ b, f64=kind == "f64")
    for kind in ("f32", "f64")
    for n in (256, 512)
    for name, shapes in (("matmul", ((n, n), (n, n))), ("matvec", ((n, n), (n,))))
}
NOTATION: dict[str, Callable[[], Case]] = SQUARE | {
    "batched": lambda: product("batched", ((16, 64, 64), (16, 64, 64)), lambda a, b: a @ b),
    "outer_product": lambda: product("outer_product", ((512,), (512,)), lambda x, y: x[:, None] * y),
    "trace_of": lambda: product("trace_of", ((512, 512),), lambda a: jnp.trace(a)),
    "triangular": lambda: product("triangular", ((512, 512), (512,)), below_diagonal),
    "distances": lambda: product("distances", ((256, 16), (256, 16)), differences),
    "windows": lambda: product("windows", ((10_000,),), four_slices, by_positions),
    "convolved": lambda: product("convolved", ((10_000,), (16,)), correlated, gathered_windows),
    "scores": lambda: product("scores", ((8, 128, 32), (8, 128, 32)), scaled_scores),
    "lookup": lambda: program("lookup", (TABLE, places(below=1000)), looked_up),
    "histogram": lambda: scattered("histogram", 0.0, "add"),
    "greatest": lambda: scattered("greatest", 0.0, "max"),
    "least": lambda: scattered("least", 2.0, "min"),
    "multiplied": lambda: replace(scattered("multiplied", 1.0, "multiply"), wrt=""),  # JAX has no gradient of this one
}
CHECKS: dict[str, Callable[[], Case]] = {
    "digits": lambda: unchecked(alone(example("digits", batch=64))),
    "char_transformer": lambda: unchecked(alone(example("char_transformer"))),
    "weighted_rows": lambda: checked("weighted_rows", TABLE, places(below=1000), normal(16)),
    "weighted_wide_rows": lambda: checked("weighted_rows", normal(1000, 128), places(below=1000), normal(128)),
    # Long enough that its checks show: a call that may fail takes about 12 µs more than one that cannot, in any case.
    "walk": lambda: checked("walk", normal(BINS), places(count=5 * PLACES)),
    "histogram": lambda: checked("histogram", normal(PLACES), places(), normal(BINS)),
}
