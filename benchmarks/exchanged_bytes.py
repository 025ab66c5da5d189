"""What devices exchange, against JAX written by hand: bytes of the collectives in both compiled programs.

`docs/many-devices.md` has the table. Each twin is one `shard_map` that says what is sent. Nothing is run.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from msgspec import Struct

from difflang.base.byte_sizes import format_bytes
from difflang.base.source import Source
from difflang.base.wording import aligned_rows
from difflang.driver.checked_program import check_program
from difflang.runtime.collectives import Collective, find_collectives, pretend_devices
from difflang.tools.partition import PartitionOptions, report_partition

P = PartitionSpec
ROWS, WHOLE = P("data"), P()
SOURCE = """axes data
record Net[d, h] { w: f32[d, h], v: f32[h] }
fn loss(m: Net[d, h], x: f32[n @data, d], y: f32[n @data]) -> f32 = mean((tanh(x @ m.w) @ m.v - y)^2)
fn step(m: Net[d, h], x: f32[n @data, d], y: f32[n @data]) -> Net[d, h] = m - 0.1 * grad(loss)(m, x, y)
fn block(up: f32[d, f @data], down: f32[f @data, d], x: f32[n, d]) -> f32 = sum((x + tanh(x @ up) @ down)^2)
fn entropy(w: f32[d, c @data], x: f32[n, d], k: i32[n]) -> f32 {
  let z = x @ w
  mean([for i => logsumexp(z[i]) - z[i, k[i]]])
}
fn heat(rod: f32[n @data], a: f32) -> f32 {
  var t = rod
  for _ in 0..100 { t[1..n - 1] += a * (t[2..] - 2.0 * t[1..n - 1] + t[..n - 2]) }
  sum(t^2)
}
fn recurrent(w: f32[d, d], x: f32[t, n @data, d]) -> f32 {
  var h = zeros(n, d)
  for i in 0..t { h = tanh(h @ w + x[i]) }
  sum(h^2)
}
fn newton(a: f32[n @data]) -> f32 {
  var x = a
  for _ in 0..10 { x = 0.5 * (x + a / x) }
  sum(x)
}
"""
SIZES = {"n": 512, "d": 64, "h": 128, "f": 256, "c": 1024, "t": 50}


class Pair(Struct, frozen=True):
    """A function of `SOURCE`, or its gradient in `wrt`, and what each device does in JAX, by parts of these arrays."""

    title: str
    name: str
    sizes: str  # the names of those that its arguments have
    wrt: str | None
    twin: Callable[..., Any]
    shapes: Sequence[tuple[int, ...]]
    given: Sequence[PartitionSpec]
    found: Any


def network(w: Any, v: Any, x: Any, y: Any) -> Any:
    return jnp.sum((jnp.tanh(x @ w) @ v - y) ** 2) / SIZES["n"]


def step(w: Any, v: Any, x: Any, y: Any) -> Any:
    dw, dv = lax.psum(jax.grad(network, (0, 1))(w, v, x, y), "data")
    return w - 0.1 * dw, v - 0.1 * dv


def block(up: Any, down: Any, x: Any) -> Any:
    """Value and gradient: the sum over hidden units is one all-reduce; the gradient of a part needs no other."""
    h, back = jax.vjp(lambda up, down: jnp.tanh(x @ up) @ down, up, down)
    return back(2 * (x + lax.psum(h, "data")))


def entropy(w: Any, x: Any, k: Any) -> Any:
    z = x @ w
    first = lax.axis_index("data") * z.shape[1]
    top = lax.pmax(jnp.max(z, 1), "data")
    e = jnp.exp(z - top[:, None])
    mine = jax.nn.one_hot(k - first, z.shape[1], dtype=z.dtype)
    p = e / lax.psum(jnp.sum(e, 1), "data")[:, None]
    return x.T @ ((p - mine) / z.shape[0])


def from_neighbours(t: Any) -> tuple[Any, Any]:
    count = lax.axis_size("data")
    left = lax.ppermute(t[-1:], "data", [(i, i + 1) for i in range(count - 1)])
    right = lax.ppermute(t[:1], "data", [(i + 1, i) for i in range(count - 1)])
    return left, right


def heat(rod: Any, a: Any) -> Any:
    """The step is linear, and so is its transpose, which sends one cell each way too."""
    at = lax.axis_index("data") * rod.shape[0] + jnp.arange(rod.shape[0])
    inner = (at > 0) & (at < SIZES["n"] - 1)

    def forward(_: Any, t: Any) -> Any:
        left, right = from_neighbours(t)
        wide = jnp.concatenate([left, t, right])
        return t + jnp.where(inner, a * (wide[2:] - 2 * t + wide[:-2]), 0)

    def backward(_: Any, ct: Any) -> Any:
        u = jnp.where(inner, a * ct, 0)
        left, right = from_neighbours(u)
        wide = jnp.concatenate([left, u, right])
        return ct + wide[2:] - 2 * u + wide[:-2]

    return lax.fori_loop(0, 100, backward, 2 * lax.fori_loop(0, 100, forward, rod))


def recurrent(w: Any, x: Any) -> Any:
    """Each device adds up its share of the gradient; one all-reduce adds these."""

    def value(w: Any) -> Any:
        h, _ = lax.scan(lambda h, x: (jnp.tanh(h @ w + x), None), jnp.zeros(x.shape[1:]), x)
        return jnp.sum(h**2)

    return lax.psum(jax.grad(value)(w), "data")


def newton(a: Any) -> Any:
    def root(a: Any) -> Any:
        x = a
        for _ in range(10):
            x = 0.5 * (x + a / x)
        return jnp.sum(x)

    return jax.grad(root)(a)


N, D, H, F, C, T = (SIZES[name] for name in "ndhfct")
PAIRS = (
    Pair("a step of data-parallel training", "step", "dhn", None, step, ((D, H), (H,), (N, D), (N,)),
         (WHOLE, WHOLE, ROWS, ROWS), (WHOLE, WHOLE)),
    Pair("gradient of a block split by hidden units", "block", "dfn", "up,down", block, ((D, F), (F, D), (N, D)),
         (P(None, "data"), ROWS, WHOLE), (P(None, "data"), ROWS)),
    Pair("gradient of cross entropy, classes split", "entropy", "dcn", "w", entropy, ((D, C), (N, D), (N,)),
         (P(None, "data"), WHOLE, WHOLE), P(None, "data")),
    Pair("gradient of 100 steps of a stencil", "heat", "n", "rod", heat, ((N,), ()), (ROWS, WHOLE), ROWS),
    Pair("gradient of 50 steps of a recurrence", "recurrent", "dnt", "w", recurrent, ((D, D), (T, N, D)),
         (WHOLE, P(None, "data")), WHOLE),
    Pair("gradient of 10 Newton iterations in a batch", "newton", "n", "a", newton, ((N,),), (ROWS,), ROWS),
)  # fmt: skip


def exchanged(found: Sequence[Collective]) -> int:
    return sum([c.bytes * (c.times or 1) for c in found])


def bytes_of(pair: Pair, devices: int) -> tuple[int, int]:
    """What each device gets in the program of difflang and in that of JAX."""
    axes = {"data": devices}
    checked = check_program(Source("programs.dfl", SOURCE), mesh=axes)
    options = PartitionOptions(axes, {}, {n: str(SIZES[n]) for n in pair.sizes}, pair.wrt, compiled=True)
    program = report_partition(checked, None, pair.name, options).program
    assert program is not None
    mesh = jax.make_mesh((devices,), ("data",), axis_types=(AxisType.Auto,))
    twin = jax.shard_map(pair.twin, mesh=mesh, in_specs=tuple(pair.given), out_specs=pair.found, check_vma=False)
    dtypes = [jnp.int32 if pair.twin is entropy and i == 2 else jnp.float32 for i in range(len(pair.shapes))]
    arguments = [
        jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, spec))
        for shape, dtype, spec in zip(pair.shapes, dtypes, pair.given, strict=True)
    ]
    text = jax.jit(twin).lower(*arguments).compile().as_text() or ""
    return exchanged(program.collectives), exchanged(list(find_collectives(text, axes)))


def main() -> None:
    pretend_devices(4)
    rows = [["on each of 4 devices", "difflang", "JAX by hand"]]
    for pair in PAIRS:
        rows.append([pair.title, *map(format_bytes, bytes_of(pair, 4))])
    sys.stdout.write("\n".join([*aligned_rows(rows, {0}), ""]))


if __name__ == "__main__":
    main()
