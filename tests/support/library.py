"""Functions of the library against twins in JAX: values and gradients of a whole table of them, by one program."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from difflang.execution.engine import Engine
from support.language import ran
from support.nightly import by_day

Array = Any


@dataclass(frozen=True, slots=True, eq=False)
class Like:
    """`body` is a function of the arrays `given`; its twin takes the same. `exact` arguments have no gradient.

    `TOL` in a body is a tolerance that suits the type.
    """

    title: str
    body: str
    twin: Callable[..., Array]
    given: tuple[Array, ...]
    exact: bool = False
    loose: float = 1.0  # times the tolerance
    dtypes: tuple[str, ...] = field(default=("f64", "f32"))


RTOL = {"f64": 1e-11, "f32": 2e-5}
TOL = {"f64": "1e-13", "f32": "1e-6"}


def literal(x: Array) -> str:
    """An array as it is written."""
    return str(np.asarray(x).tolist()).replace("True", "true").replace("False", "false")


def declared(name: str, x: Array, dtype: str) -> str:
    kind = {"f": dtype, "i": "i32", "b": "bool"}[np.asarray(x).dtype.kind]
    sizes = ", ".join(map(str, np.shape(x)))
    return f"let {name}: {kind}{f'[{sizes}]' if sizes else ''} = {literal(x)}\n"


def compared(table: Sequence[Like], imports: str, long: bool = False) -> Callable[..., None]:
    """A test of every function of a table in both types: its value, its gradients by day for every fourth.

    Of a long table by day every second row is compared, in f64.
    """
    whole = tuple(by_day(table[::2], table) if long else table)

    @pytest.mark.parametrize("dtype", ["f64", pytest.param("f32", marks=pytest.mark.nightly if long else [])])
    @pytest.mark.parametrize("case", whole, ids=lambda case: case.title)
    def test(case: Like, dtype: str) -> None:
        slopes = by_day(whole.index(case) % 4 == 0, True)  # those of the twin take most of the time
        agrees(case, found(whole, imports, dtype)[case.title], dtype, slopes)

    return test


@cache
def found(
    table: tuple[Like, ...], imports: str, dtype: str, engine: Engine | None = None
) -> dict[str, tuple[Array, ...]]:
    """The value of each function, and its gradients in what is a float, of its sum with weights cos(0), cos(1), …"""
    source = [imports.rstrip() + "\nfn mixed[T: float](y: T[n]) -> T = sum(for i in 0..n => y[i] * cos(T(i)))\n"]
    for i, case in enumerate(table):
        names = [f"x{i}_{k}" for k in range(len(case.given))]
        source += [declared(n, x, dtype) for n, x in zip(names, case.given, strict=True)]
        body = case.body.replace("TOL", TOL[dtype])
        source.append(f"let y{i} = ({body})({', '.join(names)})\n")
        free = [] if case.exact else [k for k, x in enumerate(case.given) if np.asarray(x).dtype.kind == "f"]
        for k in free:
            inner = ", ".join("x" if j == k else n for j, n in enumerate(names))
            source.append(f"let g{i}_{k} = grad(|x| mixed(reshape(({body})({inner}), [-1])))({names[k]})\n")
    default = "float f64\n" if dtype == "f64" else ""
    values, _ = ran(default + "".join(source), engine or Engine("interpret"))
    answers: dict[str, tuple[Array, ...]] = {}
    for i, case in enumerate(table):
        keys = [f"y{i}", *(f"g{i}_{k}" for k in range(len(case.given)) if f"g{i}_{k}" in values)]
        answers[case.title] = tuple(np.asarray((values[key].leaves or ())[0]) for key in keys)
    return answers


@cache
def wanted(case: Like, through: Callable[[Any], Any] = lambda f: f, slopes: bool = True) -> tuple[Array, ...]:
    """What the twin gives, with JAX's gradients, in f64. `through` may compile what else is done op by op."""
    with jax.enable_x64(True):
        given = [jnp.asarray(x) for x in case.given]
        y = np.asarray(through(case.twin)(*given))
        if case.exact or not slopes:
            return (y,)
        free = [k for k, x in enumerate(case.given) if np.asarray(x).dtype.kind == "f"]

        def mixed(*xs: Array) -> Array:
            full = list(given)
            for k, x in zip(free, xs, strict=True):
                full[k] = x
            flat = jnp.reshape(case.twin(*full), (-1,))
            return jnp.sum(flat * jnp.cos(jnp.arange(flat.size, dtype=flat.dtype)))

        slopes = through(jax.grad(mixed, argnums=tuple(range(len(free)))))(*(given[k] for k in free))
        return (y, *map(np.asarray, slopes))


def agrees(case: Like, got: tuple[Array, ...], dtype: str, slopes: bool = True) -> None:
    """Element by element, relative to the greatest number beside it where that is above 1."""
    got = got if slopes else got[:1]
    for place, (a, b) in enumerate(zip(got, wanted(case, slopes=slopes), strict=True)):
        what = f"{case.title}: {'its value' if place == 0 else f'gradient {place - 1}'} in {dtype}"
        assert a.shape == b.shape, what
        if b.dtype.kind == "f":
            assert a.dtype == {"f32": np.float32, "f64": np.float64}[dtype], what
        scale = max(1.0, float(np.max(np.abs(b[np.isfinite(b)]), initial=0.0)))
        np.testing.assert_allclose(a, b, rtol=0, atol=case.loose * RTOL[dtype] * scale, err_msg=what)


def stdlib(name: str) -> str:
    """`import name (…)` of every public name of a module."""
    text = (Path(__file__).resolve().parents[2] / "stdlib" / f"{name}.dfl").read_text(encoding="utf-8")
    names = re.findall(r"^pub (?:fn|record|enum) (\w+)", text, re.MULTILINE)
    return f"import {name} ({', '.join(names)})\n"
