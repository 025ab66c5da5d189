"""Enums in Python: variants as arguments and results, in JAX transformations, differentiated, refused."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import difflang

SOURCE = """
## What things look like.
enum Shape { Circle(r: f32), Box(w: f32, h: f32, tag: i32), Empty }
enum Opt[n] { Some(x: f32[n]), None }
record Scene { shape: Shape, scale: f32 }
fn area(s: Shape) -> f32 = match s { Circle(r) => r^2, Box(w, h, _) => w * h, Empty => 0.0 }
fn pick(i: i32, x: f32) -> Shape = if i == 0 { Circle(x) } else if i == 1 { Box(x, 2.0, 7) } else { Empty }
fn some(c: bool, x: f32[n]) -> Opt[n] = if c { Some(x) } else { None }
fn total(o: Opt[n]) -> f32 = match o { Some(x) => sum(x), None => -1.0 }
fn shown(s: Scene) -> f32 = s.scale * area(s.shape)
fn bumped(s: Shape) -> Shape = s + 0.5 * grad(area)(s)
"""


@pytest.fixture(scope="module")
def m() -> Any:
    return difflang.loads(SOURCE, name="shapes")


def test_variants_are_given_and_come_back_as_classes(m: Any) -> None:
    assert float(m.area(m.Circle(3.0))) == 9.0
    assert float(m.area(m.Box(w=2.0, h=3.0, tag=1))) == 6.0
    assert float(m.area(m.Empty())) == 0.0
    found = [m.pick(i, 4.0) for i in range(3)]
    assert [type(x).__name__ for x in found] == ["Circle", "Box", "Empty"]
    assert all(isinstance(x, m.Shape) for x in found)
    assert int(found[1].tag) == 7
    assert m.Shape.__doc__ == "What things look like."
    assert {"Shape", "Circle", "Empty"} <= set(m)


def test_the_interpreter_gives_the_same(m: Any) -> None:
    assert [type(m.pick.interpret(i, 4.0)).__name__ for i in range(3)] == ["Circle", "Box", "Empty"]


def test_sizes_and_records_around_them(m: Any) -> None:
    x = np.ones(3, np.float32)
    assert float(m.total(m.some(True, x))) == 3.0
    assert float(m.total(m.some(False, x))) == -1.0
    assert float(m.shown(m.Scene(shape=m.Circle(3.0), scale=2.0))) == 18.0
    assert float(m.shown({"shape": m.Empty(), "scale": 2.0})) == 0.0


def test_derivatives_are_of_the_same_variant(m: Any) -> None:
    box = m.Box(2.0, 3.0, 1)
    g = m.area.grad()(box)
    assert type(g).__name__ == "D_Box"
    assert (float(g.w), float(g.h)) == (3.0, 2.0)
    moved = m.bumped(box)
    assert (float(moved.w), float(moved.h), int(moved.tag)) == (3.5, 4.0, 1)
    value, change = m.area.jvp()(m.Circle(3.0), m.Circle(2.0))
    assert (float(value), float(change)) == (9.0, 12.0)
    value, pull = m.area.vjp()(m.Circle(3.0))
    assert float(pull(jnp.float32(2.0)).r) == 12.0


def test_inside_jax_transformations_a_choice_stands_for_the_value(m: Any) -> None:
    found = jax.jit(m.pick)(1, jnp.float32(3.0))
    assert type(found).__name__ == "Choice"
    assert type(found.known()).__name__ == "Box"
    assert float(m.area(found)) == float(jax.jit(m.area)(found)) == 6.0
    slope = jax.grad(lambda x, i: m.area(m.pick(i, x)))
    assert [float(slope(jnp.float32(3.0), i)) for i in range(3)] == [6.0, 2.0, 0.0]
    areas = jax.vmap(lambda i: m.area(m.pick(i, jnp.float32(3.0))))(jnp.arange(3, dtype=jnp.int32))
    np.testing.assert_array_equal(areas, [9.0, 6.0, 0.0])
    assert float(jax.grad(m.area)(m.Circle(jnp.float32(3.0))).r) == 6.0
    carried, _ = jax.lax.scan(lambda s, _: (m.bumped(s), None), found, None, length=2)
    assert float(carried.known().w) == 3.0 + 1.0 + 1.75


def test_what_is_no_variant_is_refused_with_those_that_are(m: Any) -> None:
    with pytest.raises(difflang.ArgumentError, match="Circle, Box, Empty"):
        m.area(3.0)
    with pytest.raises(difflang.ArgumentError, match=r"`s\.r` is declared f32"):
        m.area(m.Circle("wide"))
    with pytest.raises(difflang.ArgumentError, match="Shape"):
        m.area(m.Some(np.ones(2, np.float32)))
    with pytest.raises(difflang.ArgumentError):
        m.area(m.Circle(np.float64(1.0) * np.ones(())))


TURNS = """
enum S { Z, A(r: f32), B(a: i32) }
fn g(a: i32) -> S { if a > 3 { A(1.0) } else { B(a) } }
fn picked(x: f32[n], place: i32) -> S {
  let xs = [for i in 0..n => g(i)]
  xs[place]
}
fn turned(a: i32) -> S {
  if a <= 0 { A(1.0) } else { match turned(a - 1) { A(r) => B(i32(r)), B(x) => A(f32(x)), Z => A(2.0) } }
}
fn said(a: i32) = "it is {turned(a)}"
"""


def test_a_run_that_failed_may_give_no_variant() -> None:
    """What it gave is not looked at: a recursion that needed more room is run again, and a failure is told."""
    m = difflang.loads(TURNS, name="turns")
    assert float(m.turned(100).r) == 1.0
    assert difflang.loads(TURNS, name="again").said(100) == "it is A(r = 1.0)"
    with pytest.raises(difflang.IndexFailure, match="empty"):
        m.picked(np.ones(0, np.float32), 0)
    failure, _ = difflang.checked(m.picked)(np.ones(0, np.float32), 0)
    assert failure.happened
