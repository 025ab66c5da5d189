"""`geometry`: against SciPy's rotations and closed forms in JAX, values and gradients, in f32 and f64."""

# ruff: noqa: E501 - a function of the language is a line

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import jax.scipy.linalg as jl
import numpy as np
import pytest
from scipy.spatial.transform import Rotation, Slerp

from support.language import answer, codes
from support.library import Engine, Like, compared, stdlib

IMPORTS = stdlib("geometry")
RNG = np.random.default_rng(2)
V, W, X = RNG.normal(size=3), RNG.normal(size=3), RNG.normal(size=(5, 3)) + np.array([0, 0, 9])
Q = RNG.normal(size=4)
Q /= np.linalg.norm(Q)
P = RNG.normal(size=4)
P /= np.linalg.norm(P)
PLACE = np.array([0.1, 0.2, -0.3])


def skew(v: Any) -> Any:
    return jnp.stack([jnp.cross(v, e) for e in jnp.eye(3)], axis=1)


def hamilton(a: Any, b: Any) -> Any:
    """By the matrix of left multiplication."""
    w, x, y, z = a
    return jnp.array([[w, -x, -y, -z], [x, w, -z, y], [y, z, w, -x], [z, -y, x, w]]) @ b


def turned(q: Any, v: Any) -> Any:
    """v + 2 w (u × v) + 2 u × (u × v)."""
    return v + 2 * q[0] * jnp.cross(q[1:], v) + 2 * jnp.cross(q[1:], jnp.cross(q[1:], v))


def axis_rotation(k: int) -> Any:
    return lambda a: jl.expm(a * skew(jnp.eye(3)[k]))


def projected(place: Any, x: Any) -> Any:
    seen = x - place
    return 80.0 * seen[:, :2] / seen[:, 2:] + jnp.array([3.0, 4.0])


def between(p: Any, q: Any, t: Any) -> Any:
    """By the angle whose cosine is the product, along the shorter way."""
    q = q * jnp.sign(p @ q)
    angle = jnp.arccos(p @ q / jnp.linalg.norm(p) / jnp.linalg.norm(q))
    return (jnp.sin((1 - t) * angle) * p + jnp.sin(t * angle) * q) / jnp.sin(angle)


def rigid(x: Any, y: Any) -> Any:
    """By the quaternion that is the eigenvector of the greatest eigenvalue (Horn 1987)."""
    mx, my = x.mean(0), y.mean(0)
    s = (x - mx).T @ (y - my)
    lean = jnp.array([s[1, 2] - s[2, 1], s[2, 0] - s[0, 2], s[0, 1] - s[1, 0]])
    whole = jnp.block([[jnp.trace(s)[None, None], lean[None]], [lean[:, None], s + s.T - jnp.trace(s) * jnp.eye(3)]])
    q = jnp.linalg.eigh(whole)[1][:, -1]
    r = jnp.stack([turned(q, e) for e in jnp.eye(3)], axis=1)
    return jnp.concatenate([r, (my - r @ mx)[None]])


FIT = "|x, y| { let (r, t) = rigid_fit(x, y)\n  concat(r, [t], axis = 0) }"
NEAR = X @ Rotation.from_rotvec(V).as_matrix().T + W + RNG.normal(size=(5, 3)) / 5
ANGLE = np.float64(0.7)
TABLE = [
    Like("cross", "cross", jnp.cross, (V, W)),
    Like("cross_matrix", "cross_matrix", skew, (V,)),
    Like("unit", "unit", lambda v: v / jnp.linalg.norm(v), (V,)),
    *(Like(f"rotation_{n}", f"rotation_{n}", axis_rotation(k), (ANGLE,)) for k, n in enumerate("xyz")),
    Like("rotation", "rotation", lambda v: jl.expm(skew(v)), (V,)),
    Like("rotation of little", "rotation", lambda v: jl.expm(skew(v)), (V / 50,)),
    Like("rotation_vector", "|v| rotation_vector(rotation(v))", lambda v: v, (V / np.linalg.norm(V) * 2.5,), loose=5),
    Like("quaternion", "quaternion", lambda v, a: jnp.concatenate([jnp.cos(a / 2)[None], jnp.sin(a / 2) * v]), (V, ANGLE)),
    Like("quaternion_product", "quaternion_product", hamilton, (P, Q)),
    Like("quaternion_inverse", "quaternion_inverse", lambda q: q * jnp.array([1, -1, -1, -1]), (Q,)),
    Like("turn", "turn", turned, (Q, V)),
    Like("quaternion_matrix", "quaternion_matrix", lambda q: jnp.stack([turned(q, e) for e in jnp.eye(3)], axis=1), (Q,)),
    Like("slerp", "slerp", between, (P, Q, ANGLE)),
    Like("slerp the other way round", "slerp", between, (P, -Q, ANGLE)),
    Like("rigid_fit", FIT, rigid, (X, NEAR)),
    Like("rigid_fit of an image in a mirror", FIT, rigid, (X, NEAR * np.array([-1, 1, 1]))),
    Like("look_at", "|p, t| look_at(p, t, [0.0, -1.0, 0.0])", lambda p, t: looking(p, t), (PLACE, V + 3)),
    Like("project", "|p, x| project(Camera(place = p, axes = eye(3), focal = 80.0, centre = [3.0, 4.0]), x)", projected, (PLACE, X)),
]  # fmt: skip


def looking(place: Any, target: Any) -> Any:
    ahead = (target - place) / jnp.linalg.norm(target - place)
    right = jnp.cross(ahead, jnp.array([0.0, -1.0, 0.0]))
    right = right / jnp.linalg.norm(right)
    return jnp.stack([right, jnp.cross(ahead, right), ahead])


test_it_is_as_elsewhere = compared(TABLE, IMPORTS)


def test_scipy_turns_alike() -> None:
    y = Rotation.from_rotvec(V).apply(X) + W
    ask = f"""(rotation({V.tolist()}), turn({Q.tolist()}, {V.tolist()}), slerp({P.tolist()}, {Q.tolist()}, 0.3), rigid_fit({X.tolist()}, {y.tolist()}),
      grad(|t| sum(slerp({P.tolist()}, {Q.tolist()}, t) * [1.0, 2.0, 3.0, 4.0]))(0.3), rotation_vector(rotation(zeros(3))), hessian(|v| rotation(v)[0, 1])(zeros(3)))"""
    r, turned, between, fit, shift, speed, none, bend = answer(ask, IMPORTS, Engine("interpret"))
    rotate = lambda q: Rotation.from_quat(np.roll(q, -1))
    np.testing.assert_allclose(r, Rotation.from_rotvec(V).as_matrix(), atol=1e-14)
    np.testing.assert_allclose(turned, rotate(Q).apply(V), atol=1e-14)
    way = Slerp([0, 1], Rotation.concatenate([rotate(P), rotate(Q)]))
    quaternions = [np.roll(way(t).as_quat(), 1) for t in (0.3, 0.3 + 1e-6, 0.3 - 1e-6)]
    signs = [np.sign(q @ between) for q in quaternions]
    np.testing.assert_allclose(between, quaternions[0] * signs[0], atol=1e-13)
    slope = (quaternions[1] * signs[1] - quaternions[2] * signs[2]) / 2e-6 @ [1, 2, 3, 4]
    assert float(speed) == pytest.approx(slope, rel=1e-7)
    np.testing.assert_allclose(fit, Rotation.from_rotvec(V).as_matrix(), atol=1e-13)
    np.testing.assert_allclose(shift, W, atol=1e-12)
    np.testing.assert_allclose(none, 0, atol=0)
    np.testing.assert_allclose(bend, [[0, 0.5, 0], [0.5, 0, 0], [0, 0, 0]], atol=1e-15)


def test_what_is_behind_a_camera_is_not_seen() -> None:
    ask = (
        "project(Camera(place = [0.0, 0.0, 0.0], axes = eye(3), focal = 1.0, centre = [0.0, 0.0]), [[0.0, 0.0, -1.0]])"
    )
    assert [c for c, _ in codes(f"{IMPORTS}let y = {ask}\n", Engine("interpret"))] == ["DL0901"]
