"""Inputs of the evals, by size and seed, in the form in which GradBench's protocol gives them.

Shapes are those that GradBench publishes; numbers are drawn, as its data files are not here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.random import Generator

Input = Any  # what a message of the protocol holds: numbers, lists and dicts


def lse(draw: Generator, n: int) -> Input:
    return {"x": draw.standard_normal(n).tolist()}


def llsq(draw: Generator, n: int) -> Input:
    return {"x": draw.standard_normal(128).tolist(), "n": n}


def ode(draw: Generator, n: int, s: int) -> Input:
    return {"x": draw.uniform(0.5, 1.5, n).tolist(), "s": s}


def kmeans(draw: Generator, n: int, d: int, k: int) -> Input:
    return {"points": draw.standard_normal((n, d)).tolist(), "centroids": draw.standard_normal((k, d)).tolist()}


def gmm(draw: Generator, d: int, k: int, n: int = 1000) -> Input:
    low = d * (d - 1) // 2
    shapes = {"alpha": (k,), "mu": (k, d), "q": (k, d), "l": (k, low)}
    unknowns = {name: (0.3 * draw.standard_normal(shape)).tolist() for name, shape in shapes.items()}
    return {"d": d, "k": k, "n": n, "m": 0, "gamma": 1.0, "x": draw.standard_normal((n, d)).tolist(), **unknowns}


def lstm(draw: Generator, layers: int, c: int, b: int = 14) -> Input:
    shapes = {"main_params": (2 * layers, 4 * b), "extra_params": (3, b), "state": (2 * layers, b)}
    weights = {name: (0.5 * draw.standard_normal(shape)).tolist() for name, shape in shapes.items()}
    return weights | {"sequence": draw.integers(0, 2, (c, b)).astype(float).tolist()}


def ba(draw: Generator, n: int, m: int, p: int) -> Input:
    """One camera, point and observation, which all n, m and p of them repeat."""
    camera = [*(0.1 * draw.standard_normal(3)), *draw.standard_normal(2), -5.0, 500.0, 1.0, -1.0, 1e-3, 1e-5]
    return {"n": n, "m": m, "p": p, "cam": camera, "x": [0.3, -0.2, 1.0], "w": 0.7, "feat": [3.0, -2.0]}


def ht(draw: Generator, n: int, vertices: int = 544) -> Input:
    """A hand of 22 bones whose fingers are chains from the wrist, and n points on its surface."""
    parents = [-1, 0, *(bone for finger in range(5) for bone in (0, *range(2 + 4 * finger, 5 + 4 * finger)))]
    rigid = np.tile(np.eye(4), (22, 1, 1))
    rigid[:, :3, 3] = 0.1 * draw.standard_normal((22, 3))
    weights = draw.uniform(size=(vertices, 22)) ** 8
    model = {
        "parents": parents,
        "is_mirrored": False,
        "base_relatives": rigid.tolist(),
        "inverse_base_absolutes": rigid[::-1].tolist(),
        "base_positions": np.c_[draw.standard_normal((vertices, 3)), np.ones(vertices)].tolist(),
        "weights": (weights / weights.sum(1, keepdims=True)).tolist(),
        "triangles": draw.integers(0, vertices, (2 * vertices, 3)).tolist(),
    }
    data = {
        "model": model,
        "correspondences": draw.integers(0, 2 * vertices, n).tolist(),
        "points": draw.standard_normal((n, 3)).tolist(),
    }
    return {"data": data, "theta": (0.3 * draw.standard_normal(26)).tolist(), "us": draw.uniform(size=(n, 2)).tolist()}


def det(draw: Generator, ell: int) -> Input:
    return {"ell": ell, "A": draw.standard_normal(ell * ell).tolist()}


# Sizes ascend, from the smallest to the largest that is published or that memory holds.
INPUTS: dict[str, dict[str, Callable[[Generator], Input]]] = {
    "hello": {"": lambda draw: 1.5},
    "lse": {str(n): partial(lse, n=n) for n in (2_500, 80_000, 1_280_000)},
    "llsq": {str(n): partial(llsq, n=n) for n in (16, 1_024, 16_392)},
    "ode": {f"{n}, {s}": partial(ode, n=n, s=s) for n, s in ((1_000, 100), (100_000, 10), (100_000, 100))},
    "kmeans": {
        f"{n}, {d}, {k}": partial(kmeans, n=n, d=d, k=k)
        for n, d, k in ((1_000, 8, 10), (10_000, 16, 200), (10_000, 16, 1_000))
    },
    "gmm": {f"{d}, {k}": partial(gmm, d=d, k=k) for d, k in ((2, 5), (20, 25), (10, 100), (64, 100))},
    "lstm": {f"{n}, {c}": partial(lstm, layers=n, c=c) for n, c in ((2, 1_024), (4, 4_096), (6, 8_192))},
    "ba": {f"{n}, {m}, {p}": partial(ba, n=n, m=m, p=p) for n, m, p in ((16, 1_000, 4_000), (21, 11_315, 36_455))},
    "ht": {str(n): partial(ht, n=n) for n in (8, 128, 2_048, 25_600)},
    "det": {str(n): partial(det, ell=n) for n in (5, 8, 11)},
    "particle": {"": lambda draw: {"w": 0.0}},
    "saddle": {"": lambda draw: {"start": [1.0, 1.0]}},
}


def draw_input(name: str, size: str, seed: int = 0) -> Input:
    """The input of an eval at a size of `INPUTS`."""
    return INPUTS[name][size](np.random.default_rng(seed))
