"""The evals as plain programs of the language, as somebody first writes them.

`programs/EVAL.dfl` is the first draft of an eval, `programs/EVAL-WAY.dfl` the same in other words: with loops and
accumulators, helpers and `vmap`, matrices or records.
"""

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


DRAFTS = sorted({name for name, _ in TWINS})
PHRASINGS = sorted(file.stem for file in FOLDER.glob("*-*.dfl"))


def eval_of(name: str) -> str:
    """The eval that a program is of."""
    return name.partition("-")[0]


@cache
def load(name: str) -> Any:
    """A program by the name of its file."""
    return difflang.load(FOLDER / f"{name}.dfl")


def find_function(name: str, function: str) -> Any:
    """The compiled function of a program that the protocol calls by this name."""
    return getattr(load(name), NAMES.get((eval_of(name), function), function))


def arguments(name: str, value: Input) -> Arguments:
    """The arguments of the functions of a program for an input."""
    return PREPARE[eval_of(name)](name, value)


def gmm(name: str, v: Input) -> Arguments:
    low = f64(v["l"]).reshape(v["k"], -1)
    unknowns = load(name).Unknowns(alpha=f64(v["alpha"]), mu=f64(v["mu"]), q=f64(v["q"]), l=low)
    return unknowns, f64(v["x"]), float(v["gamma"]), np.int32(v["m"])


def lstm(name: str, v: Input) -> Arguments:
    state, sequence = f64(v["state"]), f64(v["sequence"])
    bits = sequence.shape[1]
    weights = load(name).Weights(main=f64(v["main_params"]).reshape(-1, 2, 4, bits), extra=f64(v["extra_params"]))
    return weights, state.reshape(-1, 2, bits), sequence


def ba(name: str, v: Input) -> Arguments:
    _, args = TWINS["ba", "objective"].prepare(v)
    return args


def ht(name: str, v: Input) -> Arguments:
    model = v["data"]["model"]
    hand = load(name).Hand(
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


PREPARE: dict[str, Callable[[str, Input], Arguments]] = {
    "hello": lambda _, v: (f64(v),),
    "lse": lambda _, v: (f64(v["x"]),),
    "llsq": lambda _, v: (f64(v["x"]), v["n"]),
    "ode": lambda _, v: (f64(v["x"]), v["s"]),
    "kmeans": lambda _, v: (f64(v["points"]), f64(v["centroids"])),
    "gmm": gmm,
    "lstm": lstm,
    "ba": ba,
    "ht": ht,
    "det": lambda _, v: (f64(v["A"]).reshape(v["ell"], v["ell"]),),
    "particle": lambda _, v: (f64(v["w"]),),
    "saddle": lambda _, v: (f64(v["start"]),),
}
