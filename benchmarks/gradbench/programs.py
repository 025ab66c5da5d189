"""The evals as plain programs of the language: `programs/NAME.dfl`, as somebody first writes them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import difflang
from gradbench.inputs import Input
from gradbench.twins import TWINS
from gradbench.twins.registry import f64

FOLDER = Path(__file__).resolve().parent / "programs"
Arguments = tuple[Any, ...]
NAMES = {("ba", "jacobian"): "jacobian_csr", ("ht", "jacobian"): "jacobian_all"}  # where the protocol has another name


@cache
def load(name: str) -> Any:
    """The program of an eval."""
    return difflang.load(FOLDER / f"{name}.dfl")


def find_function(name: str, function: str) -> Any:
    """The compiled function of an eval that the protocol calls by this name."""
    return getattr(load(name), NAMES.get((name, function), function))


def arguments(name: str, value: Input) -> Arguments:
    """The arguments of the functions of an eval for an input."""
    return PREPARE[name](value)


def gmm(v: Input) -> Arguments:
    low = f64(v["l"]).reshape(v["k"], -1)
    unknowns = load("gmm").Unknowns(alpha=f64(v["alpha"]), mu=f64(v["mu"]), q=f64(v["q"]), l=low)
    return unknowns, f64(v["x"]), float(v["gamma"]), np.int32(v["m"])


def lstm(v: Input) -> Arguments:
    state, sequence = f64(v["state"]), f64(v["sequence"])
    bits = sequence.shape[1]
    weights = load("lstm").Weights(main=f64(v["main_params"]).reshape(-1, 2, 4, bits), extra=f64(v["extra_params"]))
    return weights, state.reshape(-1, 2, bits), sequence


def ba(v: Input) -> Arguments:
    _, args = TWINS["ba", "objective"].prepare(v)
    return args


def ht(v: Input) -> Arguments:
    model = v["data"]["model"]
    hand = load("ht").Hand(
        parents=np.asarray(model["parents"], np.int32),
        mirrored=bool(model["is_mirrored"]),
        base=f64(model["base_relatives"]),
        inverse=f64(model["inverse_base_absolutes"]),
        positions=f64(model["base_positions"]),
        weights=f64(model["weights"]),
        triangles=np.asarray(model["triangles"], np.int32),
    )
    at = np.asarray(v["data"]["correspondences"], np.int32)
    return f64(v["theta"]), f64(v["us"]).reshape(-1, 2), hand, at, f64(v["data"]["points"])


PREPARE: dict[str, Callable[[Input], Arguments]] = {
    "hello": lambda v: (f64(v),),
    "lse": lambda v: (f64(v["x"]),),
    "llsq": lambda v: (f64(v["x"]), v["n"]),
    "ode": lambda v: (f64(v["x"]), v["s"]),
    "kmeans": lambda v: (f64(v["points"]), f64(v["centroids"])),
    "gmm": gmm,
    "lstm": lstm,
    "ba": ba,
    "ht": ht,
    "det": lambda v: (f64(v["A"]).reshape(v["ell"], v["ell"]),),
    "particle": lambda v: (f64(v["w"]),),
    "saddle": lambda v: (f64(v["start"]),),
}
