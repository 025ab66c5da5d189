"""Every row of the library's tables at its edges: a number that is NaN or infinite, and axes of size 1 and of size 0.

NaN comes out, or an assertion fails. A number that comes from an infinite one is the twin's. What has axes of size 1 or
0 is refused where it does not fit, or has the values of the twin, with derivatives that differences confirm.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from msgspec.structs import replace as changed

from difflang.base.diagnostics import Diagnostic, DifflangError
from difflang.base.source import Source
from difflang.driver.checked_program import check_program
from difflang.driver.run_program import run_program
from difflang.execution.engine import Engine
from difflang.host.data.file_access import FileAccess
from difflang.syntax import tree
from support.library import RTOL, TOL, Like, declared, wanted

Array = Any
HERE = Path(__file__).resolve().parent
pytestmark = pytest.mark.in_a_hurry  # twins are compiled once and run once, and none is compared to its last digits

# Rows that do not do so, and why that is right.
NAN_IS_NOT_SEEN = {
    "embed": "a word that is not asked for",
    "gauss_newton of lines": "the first guess, of which the result says that it did not converge",
    "histogram": "what lies in no part counts nowhere",
    "linear_interp beyond": "a piece that no place lies in",
    "nearest": "a point that is nearest to no place",
    "polynomial of nothing": "0 everywhere",
    "three steps of adagrad": "what the twin alone reads",
    "three steps of sgd": "what the twin alone reads",
    "trapezoid of one point": "nothing lies between points",
    "wolfe of a length that will do": "a step of 0, which says that none was found",
    "wolfe of one that is too long": "a step of 0, which says that none was found",
}
INFINITY_IS_OTHERWISE = {
    "bilinear": "beyond the grid its edge counts",
    "clip_by_norm of what is short": "its twin is that of short ones alone",
    "coo_matmul": "a product leaves out what is not kept, where 0 Inf is NaN",
    "coo_times": "a product leaves out what is not kept, where 0 Inf is NaN",
    "coo_transpose": "a product leaves out what is not kept, where 0 Inf is NaN",
    "cross_matrix": "each number goes where it belongs; the twin multiplies it by 0",
    "csr_matmul": "a product leaves out what is not kept, where 0 Inf is NaN",
    "csr_times": "a product leaves out what is not kept, where 0 Inf is NaN",
    "depthwise2d": "no channel sees another; the twin multiplies it by 0",
    "nearest": "beyond the points the last counts",
    "one_hot": "zeros are 0; the twin multiplies Inf by 0",
    "resize": "a pixel goes no further than its neighbours; the twin multiplies it by 0",
    "rotation_x": "ones and zeros stay so",
    "rotation_y": "ones and zeros stay so",
    "rotation_z": "ones and zeros stay so",
    "toeplitz": "each number goes where it belongs; the twin multiplies it by 0",
}
SIZES_ARE_OTHERWISE = {
    "circulant": "the twin is of 4 numbers",
    "correlation": "the twin of one variable has no axes",
    "covariance": "the twin of one variable has no axes",
    "deconvolve1d": "flax's are longer where the stride is more than the window",
    "deconvolve2d": "flax's are longer where the stride is more than the window",
    "gauss_newton of lines": "fewer residuals than parameters have many answers",
    "the slope of gauss_newton of lines": "fewer residuals than parameters have many answers",
    "the slope of least_squares": "fewer equations than unknowns: NaN",
    "least_squares": "the solution nearest to 0, which the twin does not look for",
    "the slope of log10": "differences are too coarse so near to 0",
    "the slope of log2": "differences are too coarse so near to 0",
    "pinv of a tall matrix": "the twin is of tall ones",
    "pinv of a wide matrix": "the twin is of wide ones",
    "pinv that leaves a value out": "the twin keeps two values",
    "pinv that leaves values out, along a direction, twice": "the twin keeps two values",
    "pinv that leaves values out, its second derivative": "the twin keeps two values",
    "pinv that leaves values out, of a wide matrix": "the twin keeps two values",
    "power_spectrum": "the twin is of 9 numbers",
    "the slope of project_l1_ball": "at its kink",
    "rank": "the twin is of one matrix",
    "rms of several": "0 of nothing",
    "rms": "0 of nothing",
    "simpson": "the twin is of 7 numbers",
    "spectrogram": "the twin is of a window of 4",
    "standard": "what does not vary is shifted only, and not divided by 0",
    "unit_range": "what does not vary is shifted only, and not divided by 0",
    "wolfe of a length that will do": "a step of 0 where there is no direction",
    "wolfe of one that is too long": "a step of 0 where there is no direction",
}


def tables() -> dict[str, tuple[ModuleType, list[Like]]]:
    """The rows of each file of tests, with tolerances for f64."""
    found: dict[str, tuple[ModuleType, list[Like]]] = {}
    for path in sorted(HERE.glob("test_*.py")):
        if path != Path(__file__) and re.search(r"^    \*?\(?Like\(", path.read_text(encoding="utf-8"), re.MULTILINE):
            module = importlib.import_module(f"stdlib.{path.stem}")
            lists = [v for v in vars(module).values() if isinstance(v, list) and v and isinstance(v[0], Like)]
            rows = [replace(row, body=row.body.replace("TOL", TOL["f64"])) for rows in lists for row in rows]
            found[path.stem.removeprefix("test_")] = (module, rows)
    return found


TABLES = tables()
# At Inf these are held by `test_hard_points` and their own tests: their twins are NaN there in ways of their own.
NOT_AT_INFINITY = {"adaptive", "chains", "distributions", "math", "minimize", "ode_twins", "optax", "roots"}


@dataclass(frozen=True, slots=True, eq=False)
class Variant:
    """A row with other arguments, and what is asked of it: its value, and of `sizes` derivatives too."""

    row: Like
    title: str
    sizes: bool = False

    def lines(self, i: int) -> list[str]:
        """What gives `y{i}`, and the derivatives of a sum of its numbers along waves `v`, of two kinds."""
        names = [f"x{i}_{k}" for k in range(len(self.row.given))]
        texts = [written(n, x) for n, x in zip(names, self.row.given, strict=True)]
        texts.append(f"let y{i} = ({self.row.body})({', '.join(names)})\n")
        for k, x in enumerate(self.row.given):
            if not self.sizes or self.row.exact or np.asarray(x).dtype.kind != "f":
                continue
            inner = ", ".join("x" if j == k else n for j, n in enumerate(names))
            texts.append(f"let f{i}_{k} = |x: {kind(x)}| mixed(reshape(({self.row.body})({inner}), [-1]))\n")
            texts.append(f"let v{i}_{k} = wave({names[k]})\n")
            texts.append(f"let g{i}_{k} = sum(grad(f{i}_{k})({names[k]}) * v{i}_{k})\n")
            apart = " - ".join(f"f{i}_{k}({names[k]} {sign} 1e-5 * v{i}_{k})" for sign in "+-")
            texts.append(f"let d{i}_{k} = ({apart}) / 2e-5\n")
        return texts


def kind(x: Array) -> str:
    return f"f64[{', '.join(map(str, np.shape(x)))}]" if np.ndim(x) else "f64"


def written(name: str, x: Array) -> str:
    """A declaration, of an array without elements too."""
    if np.size(x):
        return declared(name, x, "f64")
    zero = {"f": "0.0", "i": "i32(0)", "b": "false"}[np.asarray(x).dtype.kind]
    return f"let {name} = fill({', '.join(map(str, np.shape(x)))}, {zero})\n"


WAVES = """fn mixed(y: f64[n]) -> f64 = sum(for i in 0..n => y[i] * cos(f64(i)))
fn wave(x: f64[..s]) -> f64[..s] = sin(3 * x + 1)
"""


@dataclass(frozen=True, slots=True)
class Answer:
    value: Array = None
    slopes: tuple[tuple[float, float], ...] = ()  # each and what differences say
    refused: Diagnostic | None = None


def answers(imports: str, variants: Sequence[Variant]) -> list[Answer]:
    """What each variant gives, by one program for all that fit, less those statements that fail as it runs."""
    head = f"float f64\n{imports.rstrip()}\n{WAVES}"
    refused: dict[int, Diagnostic] = {}
    while True:
        source, owner = head, dict[int, int]()
        for i, variant in enumerate(variants):
            for text in variant.lines(i) if i not in refused else []:
                line = source.count("\n") + 1
                owner |= {line + k: i for k in range(text.count("\n"))}
                source += text
        checked = check_program(Source("test.dfl", source))
        if not checked.errors:
            break
        before = len(refused)
        for d in checked.errors:
            places = [label.span.position[0] for label in d.labels if label.span.source.name == "test.dfl"]
            refused |= {owner[line]: d for line in places if line in owner}
        assert len(refused) > before, f"an error is nowhere in what was called: {checked.errors[0]}"
    lets = [item for item in checked.items if isinstance(item, tree.Let)]
    rest = tuple(item for item in checked.items if not isinstance(item, tree.Let))
    runner = run_program(changed(checked, items=rest), Engine("interpret"), FileAccess(HERE), 0, lambda _: None)
    for item in lets:
        i = owner[item.span.position[0]]
        try:
            if i not in refused:
                runner.run((item,))
        except DifflangError as error:
            refused[i] = error.diagnostics[0]
    number = lambda name: np.asarray((runner.values[name].leaves or ())[0])
    return [
        Answer(refused=refused[i])
        if i in refused
        else Answer(
            number(f"y{i}"),
            tuple(
                (float(number(f"g{i}_{k}")), float(number(f"d{i}_{k}")))
                for k in range(len(variant.row.given))
                if f"g{i}_{k}" in runner.values
            ),
        )
        for i, variant in enumerate(variants)
    ]


def broken(rows: list[Like], *numbers: float) -> Iterator[Variant]:
    """Each row with each of the numbers in the middle of each argument."""
    for row in rows:
        for k, x in enumerate(row.given):
            if np.asarray(x).dtype.kind == "f" and np.size(x):
                for number in numbers:
                    other = np.array(x)
                    other.flat[other.size // 2] = number
                    given = (*row.given[:k], other, *row.given[k + 1 :])
                    yield Variant(replace(row, given=given), f"{row.title}, {number} in argument {k}")


def resized(rows: list[Like]) -> Iterator[Variant]:
    """Each row with all axes of one size as short as 1 and as 0."""
    for row in rows:
        for size in sorted({n for x in row.given for n in np.shape(x)}):
            for short in {1, 0} - {size}:
                cut = lambda x: np.asarray(x)[tuple(slice(short if n == size else n) for n in np.shape(x))]  # noqa: B023
                given = tuple(cut(x) if np.ndim(x) else x for x in row.given)
                yield Variant(replace(row, given=given), f"{row.title}, {short} in place of {size}", sizes=True)


@cache
def compiled(twin: Any) -> Any:
    return jax.jit(twin)


def twins(row: Like) -> Array:
    """The twin's value. Errors: whatever its libraries say of sizes that they have no answer for."""
    with jax.enable_x64(True):
        given = [jnp.asarray(x) for x in row.given]
        try:
            return np.asarray(compiled(row.twin)(*given))
        except (jax.errors.TracerArrayConversionError, jax.errors.ConcretizationTypeError):
            return np.asarray(row.twin(*given))


def close(row: Like, a: Array, b: Array) -> Array:
    scale = max(1.0, float(np.max(np.abs(b[np.isfinite(b)]), initial=0.0)))
    with np.errstate(invalid="ignore"):
        return (a == b) | (np.isnan(a) & np.isnan(b)) | (np.abs(a - b) <= row.loose * RTOL["f64"] * scale)


def compare(found: list[tuple[str, str]], rows: list[Like], known: dict[str, str]) -> None:
    """What was found is of the rows that are known, and each of these that the file has is among it."""
    titles = {f"{of}{row.title}" for row in rows for of in ("", "the slope of ")}
    unknown = [text for title, text in found if title not in known]
    assert not unknown, "\n".join(unknown)
    assert {title for title, _ in found} == titles & {*known}, "a row that is listed does as others do"


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.nightly_cases("ode_twins|distributions")
def test_nan_comes_out(name: str) -> None:
    module, rows = TABLES[name]
    found: list[tuple[str, str]] = []
    variants = list(broken(rows, np.nan))
    for variant, answer in zip(variants, answers(module.IMPORTS, variants), strict=True):
        if answer.refused is not None:
            if not answer.refused.code.startswith("DL09"):
                found.append((variant.row.title, f"{variant.title}: {answer.refused}"))
        elif answer.value.dtype.kind != "f" or not np.isnan(answer.value).any():
            found.append((variant.row.title, f"{variant.title}: {answer.value}"))
    compare(found, rows, NAN_IS_NOT_SEEN)


@pytest.mark.parametrize("name", sorted(TABLES.keys() - NOT_AT_INFINITY))
@pytest.mark.nightly_cases("nn|linalg|interp|geometry")
def test_a_number_that_comes_from_infinity_is_right(name: str) -> None:
    module, rows = TABLES[name]
    found: list[tuple[str, str]] = []
    variants = list(broken(rows, np.inf, -np.inf))
    for variant, answer in zip(variants, answers(module.IMPORTS, variants), strict=True):
        if answer.refused is not None:
            if not answer.refused.code.startswith("DL09"):
                found.append((variant.row.title, f"{variant.title}: {answer.refused}"))
            continue
        a, b = answer.value, twins(variant.row)
        if a.shape != b.shape or not np.all(close(variant.row, a, b) | np.isnan(a) | (np.isnan(b) & np.isinf(a))):
            found.append((variant.row.title, f"{variant.title}: {a}, where {b} is due"))
    compare(found, rows, INFINITY_IS_OTHERWISE)


REFUSALS = re.compile(r"DL03\d\d|DL090[12]")


@pytest.mark.slow
@pytest.mark.parametrize("name", TABLES)
@pytest.mark.nightly_except("geometry|adaptive|roots|quad|chains")
def test_axes_of_one_place_and_of_none(name: str) -> None:
    """Values, derivatives by differences, and for axes of one place to the last digits those of the twin by JAX."""
    module, rows = TABLES[name]
    found: list[tuple[str, str]] = []
    variants = list(resized(rows))
    for variant, answer in zip(variants, answers(module.IMPORTS, variants), strict=True):
        row = variant.row
        if answer.refused is not None:
            if not REFUSALS.fullmatch(answer.refused.code):
                found.append((row.title, f"{variant.title}: {answer.refused}"))
            continue
        for slope, differences in answer.slopes:
            if np.isfinite(differences) and not abs(slope - differences) <= 1e-6 * max(1.0, abs(differences)):
                found.append((f"the slope of {row.title}", f"{variant.title}: {slope} for {differences}"))
        try:
            due = twins(row)
        except Exception:  # noqa: BLE001 - NumPy, JAX, SciPy and flax refuse what is empty in ways of their own
            continue
        if answer.value.shape != due.shape or not np.all(close(row, answer.value, due)):
            found.append((row.title, f"{variant.title}: {answer.value}, where {due} is due"))
        if 1 in {n for x in row.given for n in np.shape(x)} and row.title not in SIZES_ARE_OTHERWISE:
            found += wrong_slopes(variant, answer, name)
    compare(found, rows, SIZES_ARE_OTHERWISE)


OF_MANY_OPS = {"nn"}  # tables whose twins' gradients are sooner compiled whole than op by op


def wrong_slopes(variant: Variant, answer: Answer, table: str) -> list[tuple[str, str]]:
    """What of the derivatives is not that of the twin, if it has any."""
    row, found = variant.row, list[tuple[str, str]]()
    try:
        due = [] if row.exact else wanted(row, *[jax.jit] * (table in OF_MANY_OPS))[1:]
    except Exception:  # noqa: BLE001
        return found
    floats = [np.asarray(x) for x in row.given if np.asarray(x).dtype.kind == "f"]
    for (slope, _), gradient, x in zip(answer.slopes, due, floats if due else [], strict=True):
        along = gradient * np.sin(3 * x + 1)
        nowhere = np.isnan(slope) and np.isnan(along.sum())
        if not nowhere and not abs(slope - along.sum()) <= row.loose * 1e-10 * max(1.0, np.abs(along).sum()):
            found.append((row.title, f"{variant.title}: {slope} for {along.sum()}"))
    return found
