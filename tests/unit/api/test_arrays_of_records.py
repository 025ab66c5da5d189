"""Arrays of records and enums from Python: stacked values and lists go in, gradients come back in the same form."""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest

import difflang

SOURCE = """float f64
record B[c] { b: f64[c], m: f64 }
record Net[c, k] { blocks: B[c][k], out: f64[c] }
record Named { name: str, x: f64 }
enum Law { Spring(k: f64, rest: f64), Gravity(g: f64), Free }
fn force(l: Law, r: f64) -> f64 = match l { Spring(k, rest) => k * (r - rest), Gravity(g) => g / r^2, Free => 0.0 }
fn forces(ls: Law[n], r: f64) -> f64 = sum(for l in ls => force(l, r))
fn energy(p: B[c]) -> f64 = p.m * sum(p.b^2)
fn total(ps: B[c][k]) -> f64 = sum(for p in ps => energy(p))
fn net(n: Net[c, k]) -> f64 = sum(for p in n.blocks => p.m * sum(p.b * n.out))
fn nets(n: Net[c, k][j]) -> f64 = sum(for x in n => net(x))
fn same[T](x: T[n]) -> T[n] = x
fn grid(ps: B[c][n, m]) -> f64[n, m] = ps.m
fn weights(x: f64[n]) -> B[2][n] = [for i => B(b = [x[i], 1.0], m = x[i])]
record Wrap[T, k] { xs: T[k], y: f64 }
fn wrapped[T](w: Wrap[T, k]) -> T where k > 0 = w.xs[0]
fn named(x: Named[n]) -> f64 = sum(x.x)
"""
MODULE: Any = difflang.loads(SOURCE)
B, Net = MODULE.B, MODULE.Net
ITEMS = [B(b=np.array([1.0, 2.0]), m=1.0), B(b=np.array([3.0, 4.0]), m=2.0)]
STACKED = B.stack(ITEMS)


class Pair(NamedTuple):
    b: Any
    m: Any


@pytest.mark.parametrize(
    "given", [ITEMS, tuple(ITEMS), STACKED, dict(vars(STACKED)), Pair(STACKED.b, STACKED.m), [vars(x) for x in ITEMS]]
)
def test_what_is_taken(given: Any) -> None:
    assert float(MODULE.total(given)) == 5 + 50
    assert float(MODULE.total(given)) == 5 + 50  # by the dispatch cache
    assert MODULE.total.interpret(given) == 5 + 50


def test_a_gradient_has_the_form_of_its_argument() -> None:
    grad = MODULE.total.grad()
    for found in (grad(ITEMS), grad(tuple(ITEMS)), grad([vars(x) for x in ITEMS])):
        assert isinstance(found, list)
        rows = [x if isinstance(x, dict) else vars(x) for x in found]
        np.testing.assert_array_equal(rows[1]["b"], [12, 16])
        assert [float(row["m"]) for row in rows] == [5, 25]
    assert isinstance(grad(STACKED), B)
    assert isinstance(grad(vars(STACKED)), dict)
    value, found = MODULE.total.value_and_grad()(ITEMS)
    assert float(value) == 55 and [float(x.m) for x in found] == [5, 25]
    assert [float(x.m) for x in MODULE.total.hvp()(ITEMS, ITEMS)] == [10, 50]


def test_lists_within_records_and_lists() -> None:
    one = Net(blocks=ITEMS, out=np.ones(2))
    found = MODULE.net.grad()(one)
    assert [float(x.m) for x in found.blocks] == [3, 7]
    assert [float(x.m) for x in MODULE.nets.grad()([one, one])[1].blocks] == [3, 7]
    stacked = {"blocks": [{"b": np.ones((3, 2)), "m": np.ones(3)}] * 4, "out": np.ones((3, 2))}
    found = MODULE.nets.grad()(stacked)
    assert len(found["blocks"]) == 4 and found["blocks"][0]["b"].shape == (3, 2)
    np.testing.assert_array_equal(MODULE.grid([ITEMS, ITEMS[::-1]]), [[1, 2], [2, 1]])


def test_enums_of_several_variants() -> None:
    laws = [MODULE.Spring(k=2.0, rest=1.0), MODULE.Gravity(g=3.0), MODULE.Free()]
    assert float(MODULE.forces(laws, 2.0)) == 2.75
    spring, gravity, free = MODULE.forces.grad("ls")(laws, 2.0)
    assert (float(spring.k), float(spring.rest), float(gravity.g)) == (1, -2, 0.25)
    assert type(free) is MODULE.Free
    back = MODULE.same(laws)
    assert len(back) == 3 and [type(x).__name__ for x in back] == ["Spring", "Gravity", "Free"]
    assert float(back[1].g) == 3 and len(back[1:]) == 2
    assert float(MODULE.forces(back, 2.0)) == 2.75
    assert float(MODULE.forces(MODULE.Spring(k=np.ones(2), rest=np.zeros(2)), 2.0)) == 4


def test_items_of_a_result() -> None:
    found = MODULE.weights(np.array([1.0, 2.0, 3.0]))
    assert isinstance(found, B) and len(found) == 3
    assert [float(x.m) for x in found] == [1, 2, 3]
    assert float(found[-1].m) == 3 and found[1:].m.shape == (2,) and np.asarray(found[np.array([2, 0])].m)[0] == 3
    assert bool(found[0]) and type(found[0]) is B
    assert len(copy.deepcopy(found)) == 3
    assert jax.tree.structure(found) == jax.tree.structure(ITEMS[0])
    with pytest.raises(IndexError, match="index 3 is out of range"):
        found[3]
    with pytest.raises(IndexError, match="2 indices"):
        found[0, 0]
    with pytest.raises(TypeError, match="one `B`"):
        len(found[0])


def test_a_generic_type_holds_an_array() -> None:
    """Whether a record is an array is not seen at a field of any type."""
    one = MODULE.Wrap(xs=STACKED, y=2.0)
    assert float(MODULE.wrapped(one).m) == 1
    assert float(MODULE.wrapped(MODULE.Wrap(xs=ITEMS, y=2.0)).m) == 1
    with pytest.raises(TypeError, match="one `Wrap`"):
        len(one)


def test_stacks() -> None:
    assert B.stack([STACKED, STACKED])[1, 1].m == 2
    with pytest.raises(TypeError, match="takes a list"):
        B.stack([])
    with pytest.raises(ValueError, match="item 1 differs"):
        B.stack([ITEMS[0], B(b=np.ones(3), m=1.0)])
    with pytest.raises(ValueError, match="item 1 differs"):
        MODULE.Named.stack([MODULE.Named("a", 1.0), MODULE.Named("b", 1.0)])


def test_inside_jax() -> None:
    with jax.enable_x64(True):
        items = jax.tree.map(jax.numpy.asarray, ITEMS)
        found = jax.jit(jax.grad(MODULE.total))(items)
    assert [float(x.m) for x in found] == [5, 25]


def test_a_batch() -> None:
    np.testing.assert_array_equal(MODULE.total.vmap()(B.stack([STACKED, STACKED])), [55, 55])
    np.testing.assert_array_equal(MODULE.energy.vmap()(STACKED), [5, 50])
    other = {"b": np.stack([STACKED.b] * 3, 1), "m": np.stack([STACKED.m] * 3, 1)}
    np.testing.assert_array_equal(MODULE.total.vmap(in_axes=1)(other), [55, 55, 55])
    assert MODULE.same.vmap(in_axes=1, out_axes=1)(B(**other)).b.shape == (2, 3, 2)


def test_a_gradient_check_and_a_trace() -> None:
    assert MODULE.total.check_grad(ITEMS, order=2).right
    assert "ps.m" in str(MODULE.total.trace(STACKED))


WRONG = [
    ("total", ITEMS[0], "DL1202", "pass a list of records"),
    ("total", B(b=np.ones((2, 2)), m=np.ones(3)), "DL1202", "`ps.m` has 3 items, but `ps.b` has 2"),
    ("total", [], "DL1206", "which is empty"),
    ("total", [ITEMS[0], B(b=np.ones(3), m=1.0)], "DL1202", "`ps[1]` is B[3], but `ps[0]` is B[2]"),
    ("total", [ITEMS[0], B(b=[1.0], m=1.0)], "DL1206", "`ps[1].b` is declared f64[c]"),
    ("total", [ITEMS[0], {"b": np.ones(2)}], "DL1207", "`ps[1]`: B is missing the field `m`"),
    ("energy", STACKED, "DL1202", "an array of them was given"),
    ("energy", ITEMS, "DL1206", "a list was given"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "given", "code", "text"), WRONG)
def test_what_is_refused(name: str, given: Any, code: str, text: str) -> None:
    with pytest.raises(difflang.ArgumentError) as caught:
        getattr(MODULE, name)(given)
    assert code in str(caught.value) and text in str(caught.value)


def test_a_list_is_not_mapped() -> None:
    with pytest.raises(difflang.ArgumentError, match="is mapped"):
        MODULE.total.vmap()([STACKED, STACKED])


def test_a_list_of_records_that_hold_functions() -> None:
    source = """record F { m: f64, f: (f64) -> f64 }
fn applied(p: F[n], x: f64) -> f64 = sum(for q in p => q.f(x) * q.m)
fn square(x: f64) -> f64 = x^2
fn cube(x: f64) -> f64 = x^3
"""
    m = difflang.loads(source)
    assert m.applied.interpret([m.F(1.0, m.square), m.F(2.0, m.square)], 2.0) == 12.0
    assert m.applied.interpret([m.F(1.0, m.square), m.F(2.0, m.cube)], 2.0) == 20.0
