"""Cameras and hands: ba and ht."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from gradbench.twins.registry import f64, twin


def ba_input(v):
    n, m, p = v["n"], v["m"], v["p"]
    index = np.arange(p)
    args = (
        np.tile(f64(v["cam"]), (n, 1)),
        np.tile(f64(v["x"]), (m, 1)),
        np.full(p, float(v["w"])),
        np.tile(f64(v["feat"]), (p, 1)),
        (index % n).astype(np.int32),
        (index % m).astype(np.int32),
    )
    return (n, m, p), args


def ba_rotate(rot, pt):
    squared = jnp.sum(rot**2)
    small = squared == 0.0
    angle = jnp.sqrt(jnp.where(small, 1.0, squared))
    axis = rot / angle
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    turned = pt * cos + jnp.cross(axis, pt) * sin + axis * (jnp.dot(axis, pt) * (1.0 - cos))
    return jnp.where(small, pt + jnp.cross(rot, pt), turned)


def ba_residual(unknowns, feat):
    cam, pt, w = unknowns[:11], unknowns[11:14], unknowns[14]
    seen = ba_rotate(cam[0:3], pt - cam[3:6])
    flat = seen[:2] / seen[2]
    r2 = jnp.sum(flat**2)
    flat = flat * (1.0 + cam[9] * r2 + cam[10] * r2 * r2)
    return w * (flat * cam[6] + cam[7:9] - feat)


def ba_gather(cams, points, w, cam_of, point_of):
    return jnp.concatenate([cams[cam_of], points[point_of], w[:, None]], axis=1)


def ba_objective_output(out):
    err, werr = out
    return {
        "reproj_error": {"elements": err[0].tolist(), "repeated": len(err)},
        "w_err": {"element": float(werr[0]), "repeated": len(werr)},
    }


@twin("ba", "objective", prepare=ba_input, finish=ba_objective_output)
def ba_objective(_):
    def run(cams, points, w, feats, cam_of, point_of):
        unknowns = ba_gather(cams, points, w, cam_of, point_of)
        return jax.vmap(ba_residual)(unknowns, feats), 1.0 - w * w

    return run


def ba_jacobian_output(out):
    def ends(a):
        return [*a[:30].tolist(), a[-1].item()]

    return {name: ends(a) for name, a in zip(("rows", "cols", "vals"), out, strict=True)}


@twin("ba", "jacobian", prepare=ba_input, finish=ba_jacobian_output)
def ba_jacobian(static):
    n, m, p = static

    def run(cams, points, w, feats, cam_of, point_of):
        unknowns = ba_gather(cams, points, w, cam_of, point_of)
        blocks = jax.vmap(jax.jacfwd(ba_residual))(unknowns, feats)
        vals = jnp.concatenate([blocks.reshape(-1), -2.0 * w])
        obs = jnp.arange(p, dtype=jnp.int32)
        first = 11 * n + 3 * m
        block_cols = jnp.concatenate(
            [
                11 * cam_of[:, None] + jnp.arange(11, dtype=jnp.int32),
                11 * n + 3 * point_of[:, None] + jnp.arange(3, dtype=jnp.int32),
                first + obs[:, None],
            ],
            axis=1,
        )
        cols = jnp.concatenate([jnp.repeat(block_cols, 2, axis=0).reshape(-1), first + obs])
        rows = jnp.concatenate([15 * jnp.arange(2 * p + 1, dtype=jnp.int32), 30 * p + 1 + obs])
        return rows, cols, vals

    return run


def ht_input(v):
    model = v["data"]["model"]
    static = (
        tuple(model["parents"]),
        bool(model["is_mirrored"]),
        len(v["us"]) > 0,
    )
    args = (
        f64(v["theta"]),
        f64(v["us"]).reshape(-1, 2),
        f64(model["base_relatives"]),
        f64(model["inverse_base_absolutes"]),
        f64(model["base_positions"]),
        f64(model["weights"]),
        np.asarray(model["triangles"], dtype=np.int32),
        np.asarray(v["data"]["correspondences"], dtype=np.int32),
        f64(v["data"]["points"]),
    )
    return static, args


def ht_pose(theta, bones):
    """Rows: rotation, scale, translation, then Euler angles of the bones."""
    where = np.zeros((bones + 3, 3), dtype=int)
    used = np.zeros((bones + 3, 3), dtype=bool)
    where[0], used[0] = [0, 1, 2], True
    where[2], used[2] = [3, 4, 5], True
    source, row = 6, 5
    for _ in range(5):
        for joint in range(3):
            for axis in range(2 if joint == 0 else 1):
                where[row, axis], used[row, axis] = source, True
                source += 1
            row += 1
        row += 1
    pose = jnp.where(used, theta[where], 0.0)
    return pose.at[1].set(1.0)


def ht_euler(angles):
    tx, tz, ty = angles[0], angles[1], angles[2]
    cx, sx, cy, sy, cz, sz = (f(t) for t in (tx, ty, tz) for f in (jnp.cos, jnp.sin))
    zero, one = jnp.zeros(()), jnp.ones(())
    return jnp.stack(
        [
            jnp.stack([cy * cz, sx * sy * cz - cx * sz, sx * sz + cx * sy * cz, zero]),
            jnp.stack([cy * sz, cx * cz + sx * sy * sz, cx * sy * sz - sx * cz, zero]),
            jnp.stack([-sy, sx * cy, cx * cy, zero]),
            jnp.stack([zero, zero, zero, one]),
        ]
    )


def ht_axis_angle(v):
    norm = jnp.sqrt(jnp.sum(v * v))
    small = norm < 1e-4
    a = v / jnp.where(small, 1.0, norm)
    skew = jnp.array([[0.0, -a[2], a[1]], [a[2], 0.0, -a[0]], [-a[1], a[0], 0.0]])
    c, s = jnp.cos(norm), jnp.sin(norm)
    turn = c * jnp.eye(3) + (1 - c) * jnp.outer(a, a) + s * skew
    return jnp.where(small, jnp.eye(3), turn)


def ht_levels(parents):
    depth = []
    for p in parents:
        depth.append(0 if p < 0 else depth[p] + 1)
    return [np.array([i for i, d in enumerate(depth) if d == level]) for level in range(max(depth) + 1)]


def ht_residual(static):
    parents, mirrored, complicated = static
    bones = len(parents)
    up = np.array(parents)
    levels = ht_levels(parents)

    def residual(theta, us, base, inverse, positions, weights, triangles, corr, points):
        pose = ht_pose(theta, bones)
        relative = base @ jax.vmap(ht_euler)(pose[3:])
        absolute = relative
        for level in levels[1:]:
            absolute = absolute.at[level].set(absolute[up[level]] @ relative[level])
        transform = (absolute @ inverse)[:, :3, :]
        verts = triangles[corr] if complicated else corr[:, None]
        if verts.size < positions.shape[0]:
            # Few correspondences: skin only the vertices that are looked at.
            positions, weights = positions[verts.reshape(-1)], weights[verts.reshape(-1)]
            verts = jnp.arange(verts.size).reshape(verts.shape)
        skinned = jnp.einsum("bij,vj,vb->vi", transform, positions, weights, optimize=[(0, 2), (0, 1)])
        if mirrored:
            skinned = skinned.at[:, 0].multiply(-1.0)
        turn = ht_axis_angle(pose[0]) * pose[1][None, :]
        placed = skinned @ turn.T + pose[2]
        corner = placed[verts]
        if complicated:
            mix = jnp.concatenate([us, 1.0 - jnp.sum(us, 1, keepdims=True)], axis=1)
            return points - jnp.einsum("nc,nci->ni", mix, corner)
        return points - corner[:, 0]

    return residual


@twin("ht", "objective", prepare=ht_input, finish=lambda e: e.ravel().tolist())
def ht_objective(static):
    return ht_residual(static)


@twin("ht", "jacobian", prepare=ht_input, finish=lambda j: j.tolist())
def ht_jacobian(static):
    residual = ht_residual(static)

    def run(theta, us, *rest):
        by_theta = jax.jacfwd(residual)(theta, us, *rest).reshape(-1, theta.shape[0])
        if not static[2]:
            return by_theta

        def along(axis):
            tangent = jnp.zeros_like(us).at[:, axis].set(1.0)
            return jax.jvp(lambda u: residual(theta, u, *rest), [us], [tangent])[1].reshape(-1)

        return jnp.concatenate([jnp.stack([along(0), along(1)], axis=1), by_theta], axis=1)

    return run
