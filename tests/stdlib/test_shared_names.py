"""Names of the library that NumPy, SciPy, JAX or optax have too: they give the same values, or a table says why not.

Each is compared with every public function of its name in NumPy and SciPy, and in JAX and optax if these have none:
`jax.numpy` and `jax.scipy` follow them. Derivatives and accuracy are the matter of the other tests in this folder.
"""

# ruff: noqa: E501 - a row of a table is a line

from __future__ import annotations

import importlib
import re
from collections.abc import Iterable
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from difflang.base.fixes import did_you_mean
from difflang.base.source import Source, Span
from difflang.elaborate.calls.builtin_registry import BUILTINS, TRANSFORM_NAMES
from difflang.elaborate.reports.name_errors import CONSTANTS, SUBSTITUTES
from difflang.execution.engine import Engine
from difflang.host.builtin_registry import HOST_BUILTINS
from difflang.types.module_name_errors import OTHER_NAMES
from support.documents import ROOT
from support.language import ran

NUMPY_AND_SCIPY = (
    "numpy", "numpy.linalg", "numpy.fft", "numpy.polynomial.polynomial", "scipy.special", "scipy.linalg", "scipy.signal",
    "scipy.signal.windows", "scipy.ndimage", "scipy.stats",
)  # fmt: skip
JAX_AND_OPTAX = (
    "jax.numpy", "jax.numpy.linalg", "jax.numpy.fft", "jax.nn", "jax.scipy.special", "jax.scipy.linalg",
    "jax.scipy.signal", "jax.scipy.ndimage", "jax.scipy.stats", "optax", "optax.losses", "optax.projections",
)  # fmt: skip

NUMBERS = {
    "v": [0.3, -0.7, 1.6, 0.05, 2.5, -3.0],
    "p": [0.4, 0.8, 1.7, 0.15, 2.6, 3.1],
    "x": [0.3, -0.7, 1.6, 0.05, 2.5, -3.0, 0.0, -0.0, np.inf, -np.inf, np.nan],
    "y": [1.2, 0.0, np.nan, -0.5, np.inf, 0.7, np.nan, -0.0, np.nan, 2.0, 1.0],
    "a": [[0.3, -0.7, 1.6], [0.05, 2.0, -1.1]],
    "m": [[4.0, 1.0, 0.5], [-1.0, 3.0, 0.2], [0.3, -0.4, 5.0]],  # eigenvalues right of 0
    "s": [[4.0, 1.0, 0.5], [1.0, 3.0, 0.2], [0.5, 0.2, 5.0]],  # positive definite
    "b": [1.0, -2.0, 0.5],
    "t": [0.0, 0.5, 1.5, 2.0, 4.0, 4.5],
    "rows": [[0.1, 0.7, 0.2], [0.3, 0.3, 0.4]],
}
ENDS = np.array([-np.inf, -3.0, -2.0, -1.0, -0.7, -0.0, 0.0, 0.4, 1.0, 2.0, 2.5, 4.0, np.inf, np.nan])
INNER = ENDS[np.isfinite(ENDS)]
GIVEN = {name: np.array(rows) for name, rows in NUMBERS.items()} | {
    "ends": ENDS,
    "left": np.repeat(ENDS, len(ENDS)),
    "right": np.tile(ENDS, len(ENDS)),
    # SciPy's `spence` and cosine integral lack a limit at Inf, and its `comb` of NaN is 0.
    "inner": INNER,
    "upper": np.repeat(INNER, len(INNER)),
    "lower": np.tile(INNER, len(INNER)),
    "z": np.array([0.3 - 1.2j, 2.0 + 0.5j, -1.5 + 0j]),
    "k": np.array([2, 0, 1]),
}
EDGES = """abs acos acosh asin asinh atan atanh cbrt ceil cos cosh digamma erf erfc erfcx erfinv exp exp2 expm1 floor gamma isfinite
isinf isnan log log10 log1mexp log1p log2 logit relu round sigmoid sign sin sinc sinh softplus sqrt tan tanh trunc elu hard_swish
leaky_relu mish selu silu"""

# The arguments, or a whole call of `f`, in both languages; in a pair first ours, then theirs.
SAME: dict[str, str | tuple[str, str]] = {
    **dict.fromkeys(EDGES.split(), "x"),
    **dict.fromkeys(CONSTANTS, ("f", "f")),
    "atan2": "x, y", "hypot": "x, y", "logaddexp": "x, y", "xlogy": "x, y", "where": "x > 0, x, y",
    "conj": "z", "real": "z", "imag": "z", "angle": "z", "fft": "z", "ifft": "z", "rfft": "v", "irfft": "z",
    "sum": "a, axis = 1", "prod": "a, axis = 0", "mean": "a", "std": "a, axis = 1", "variance": "a", "max": "a", "min": "a, axis = 0", "all": "a > -2, axis = 0",
    "any": "a > 1", "argmax": "a, axis = 1", "argmin": "v", "argsort": "v", "sort": "a, axis = 0", "cumsum": "a, axis = 0", "cumprod": "v",
    "logsumexp": "a, axis = 1", "softmax": "a, axis = 1", "log_softmax": "a, axis = 0",
    "zeros": "4", "ones": "4", "zeros_like": "a", "ones_like": "a", "eye": "3", "linspace": "0.5, 2.0, 4", "repeat": "a, 2", "roll": "a, 1", "tile": "a, 2",
    "concat": ("a, a", "(a, a)"), "stack": ("v, p", "(v, p)"), "split": "v, 3", "reshape": "a, (3, 2)", "transpose": "a", "diag": "a", "tril": "a", "triu": "m",
    "pad": ("v, 1, 2", "v, (1, 2)"), "outer": "v, b", "cross": "m[0], b", "kron": "a, m", "trace": "m",
    "det": "m", "inv": "m", "slogdet": "m", "solve": "m, b", "cholesky": "s", "eigh": ("f(s) |> |(w, q)| (w, abs(q))", "(f(s)[0], abs(f(s)[1]))"), "expm": "m", "lu": "m", "norm": "a", "qr": "a", "solve_triangular": "m, b, lower = true",
    "svd": ("m", "m"), "block_diag": "a, m", "cond": "a", "logm": "m", "matrix_power": "m, 3", "pinv": "a", "sqrtm": "m", "cosm": "s / 4", "sinm": "s / 4", "polar": "m",
    "toeplitz": "v, p", "circulant": "v", "hilbert": "3", "vander": "v, 4", "polycompanion": "v", "solve_lyapunov": "m, s", "solve_sylvester": "m, s, m", "lstsq": ("transpose(a), b", "f(a.T, b)[0]"),
    "blackman": "6", "hamming": "6", "hann": "6", "kaiser": "6, 2.5", "convolve": "v, b", "correlate": "v, b", "detrend": "v", "resample": "v, 8", "median_filter": "v, 4",
    "trapezoid": "v, t", "betainc": "1.5, 2.0, x", "betaincc": "1.5, 2.0, x", "gammainc": "1.5, x", "gammaincc": "1.5, x", "ndtri": "p / 4", "ndtri_exp": "-p",
    "betaincinv": ("fill(6, 1.5), fill(6, 2.0), p / 4", "1.5, 2.0, p / 4"), "gammaincinv": ("fill(6, 1.5), p / 4", "1.5, p / 4"), "gammainccinv": ("fill(6, 1.5), p / 4", "1.5, p / 4"),
    "polygamma": "2, p", "expn": "2, p", "expi": "ends", "sici": "abs(ends)", "fresnel": "ends", "spence": "inner", "owens_t": "left, right",
    "entr": "ends", "rel_entr": "left, right", "kl_div": "left, right", "xlog1py": "left, right", "boxcox": "left, right", "factorial": "ends", "comb": "upper, lower", "multigammaln": "p + 1, 3", "poch": "upper, lower",
    "hyp2f1": ("f(p, p + 0.5, p + 1.5, fill(6, -4.0))", "f(p, p + 0.5, p + 1.5, -4.0)"),
    "hyp1f1": ("f(upper, lower, fill(121, 0.7))", "f(upper, lower, 0.7)"),
    **dict.fromkeys(("hermite", "laguerre", "legendre"), ("3, v", "f(3)(v)")),
    "median": "v", "quantile": "v, 0.3", "kurtosis": "v", "histogram": ("v, -3.0, 2.5, 4", "f(v, 4, (-3.0, 2.5))[0]"),
    "one_hot": "k, 4", "glu": "v",
    "squared_error": "v, p", "huber_loss": "v, p", "log_cosh": "v, p", "cosine_similarity": "a, rows",
}  # fmt: skip

DRAWN = "it draws numbers; theirs is a distribution, or takes a key"
STEP = "one step, a function of the parameters, the gradient and the state; `test_optax.py` compares fifty steps with theirs"
STEPS = "adadelta adagrad adam adamax adamw lion nadam rmsprop sgd"
FILES = "it works on files of a declared type"
# The names, or single functions of theirs, that mean something else on purpose.
OTHERWISE = {
    "bilinear": "interpolation on a grid; `scipy.signal`'s transforms filters; its page says so",
    "bootstrap": "indices of one resample; `scipy.stats`'s computes confidence intervals",
    "convolve1d": "a layer of a network", "convolve2d": "a layer of a network",
    "dot": "of matrices the sum of the products of all elements, so that it is the inner product of any vector space; `@` multiplies them",
    "euler": "Euler's method; `scipy.special`'s are numbers",
    "exponential_decay": "the rate at a step, not a schedule; `test_optax.py` compares them", "linear_schedule": "the rate at a step, not a schedule; `test_optax.py` compares them",
    "gelu": "exact, where JAX's is an approximation unless said; `test_standard_names.py` compares it; its page says so",
    "kl_divergence": "p before q, as KL(p | q) is written; optax takes log q first; its page says so",
    "lbfgs": "it minimizes a function; optax's is one step",
    "jvp": "a derivative; `scipy.special`'s is of Bessel functions",
    "map": "an operator on functions",
    "power_iteration": "it takes a linear map that need not be a matrix",
    "resize": "of images, with interpolation; NumPy's repeats elements",
    "smooth_labels": "it takes labels and makes them `one_hot`; optax takes them so",
    "sobel": "an eighth of theirs, so that it is a slope per pixel; its page says so",
    "spectrogram": "squared amplitudes of windows as they are; `scipy.signal`'s pads, detrends and scales them",
    "uniform": DRAWN, "normal": DRAWN,
    "load": FILES, "save": FILES,
    **dict.fromkeys(STEPS.split(), STEP),
    "numpy.correlate": "its mode is `valid` unless said; ours is `full`, `scipy.signal`'s; its page says so",
    "scipy.linalg.cholesky": "its triangle is the upper one unless said; ours is the lower one, NumPy's",
    "scipy.linalg.qr": "it is complete unless said; ours is reduced, as NumPy's",
    "scipy.ndimage.convolve": "as many numbers as the signal; ours has those at the edges, as NumPy's and `scipy.signal`'s",
    "scipy.ndimage.correlate": "as many numbers as the signal; ours is `scipy.signal`'s",
    "scipy.ndimage.histogram": "it takes the edges before the number of bins", "scipy.signal.hilbert": "the analytic signal, ours is `analytic`; the page of `hilbert` says so",
    "scipy.ndimage.sum": "over labels",
    "scipy.stats.boxcox": "it fits l to the data",
    **{f"scipy.stats.{name}": "a distribution" for name in ("gamma", "norm", "trapezoid")},
    **{f"scipy.stats.{name}": "of random variables" for name in ("abs", "exp", "log")},
    "optax.trace": "a step of momentum",
}  # fmt: skip


@cache
def our_names() -> dict[str, str]:
    """Every public function of the library and every built-in, with the module that it is imported from."""
    found: dict[str, str] = {}
    for path in sorted((ROOT / "stdlib").glob("*.dfl")):
        for name in re.findall(r"^pub (?:linear )?fn (\w+)", path.read_text(encoding="utf-8"), re.MULTILINE):
            found.setdefault(name, "" if path.stem == "prelude" else path.stem)
    return dict.fromkeys([*BUILTINS, *TRANSFORM_NAMES, *HOST_BUILTINS, *CONSTANTS], "") | found


def their_functions(name: str, modules: tuple[str, ...]) -> dict[str, Any]:
    """The public functions of that name, or constants, by their full names; each once."""
    found: dict[str, Any] = {}
    for module in modules:
        value = getattr(importlib.import_module(module), name, None)
        if (callable(value) or (value is not None and name in CONSTANTS)) and not any(
            value is f for f in found.values()
        ):
            found[f"{module}.{name}"] = value
    return found


def shared_with(name: str) -> dict[str, Any]:
    """What a name is compared with."""
    theirs = their_functions(name, NUMPY_AND_SCIPY) or their_functions(name, JAX_AND_OPTAX)
    return {full: f for full, f in theirs.items() if name not in OTHERWISE and full not in OTHERWISE}


def test_every_shared_name_is_in_one_table() -> None:
    shared = [n for n in our_names() if their_functions(n, NUMPY_AND_SCIPY + JAX_AND_OPTAX)]
    assert sorted(n for n in shared if n not in SAME and n not in OTHERWISE) == []
    assert sorted(SAME.keys() & OTHERWISE) == []
    assert [n for n in SAME if not shared_with(n)] == []
    assert sorted({*SAME, *(n.rpartition(".")[2] for n in OTHERWISE)} - our_names().keys()) == []


# Other spellings of a name for the same function: `check --fix` may write ours.
SAME_FUNCTIONS = {
    "amax": "max", "arccos": "acos", "arccosh": "acosh", "arcsinh": "asinh", "arctan": "atan", "arctan2": "atan2", "arctanh": "atanh",
    "around": "round", "fabs": "abs", "full": "fill", "soft_sign": "softsign", "fftconvolve": "fft_convolve", "legendre_p": "legendre",
}  # fmt: skip


def language_names() -> list[str]:
    return [n for n, module in our_names().items() if not module]


@pytest.mark.parametrize(
    "name",
    [
        "boxcar",
        "cov",
        "eig",
        "erfcinv",
        "expit",
        "fmax",
        "gammaln",
        "gmean",
        "hanning",
        "hstack",
        "logspace",
        "ndtr",
        "psi",
        "vdot",
    ],
)
def test_a_function_of_theirs_is_no_misspelling_of_ours(name: str) -> None:
    assert not any(fixed_name(name, known) for known in (language_names(), our_names()))


@pytest.mark.nightly
def test_no_function_of_theirs_is_taken_for_a_misspelling() -> None:
    theirs = {n for m in NUMPY_AND_SCIPY + JAX_AND_OPTAX for n in dir(importlib.import_module(m)) if n.islower()}
    theirs -= {*our_names(), *SAME_FUNCTIONS, *SUBSTITUTES, *OTHER_NAMES}
    modules = {module: [n for n, m in our_names().items() if m == module] for module in {*our_names().values()} - {""}}
    found = {
        (name, near)
        for name in theirs
        if their_functions(name, NUMPY_AND_SCIPY + JAX_AND_OPTAX)
        for known in (language_names(), *modules.values())
        if (near := fixed_name(name, known))
    }
    assert sorted(found) == []


def fixed_name(name: str, known: Iterable[str]) -> str:
    """What `check --fix` would write instead of an unknown name; empty for nothing."""
    source = Source("theirs.dfl", name)
    _, fixes = did_you_mean(name, known, Span(source, 0, len(name)))
    return fixes[0].title if fixes else ""


def call(name: str, side: int) -> str:
    """The expression that gives the value, of a function `f`."""
    entry = SAME[name]
    text = entry if isinstance(entry, str) else entry[side]
    return text if re.search(r"\bf\b", text) else f"f({text})"


def literal(x: np.ndarray) -> str:
    if x.dtype.kind == "c":
        return f"[{', '.join(f'complex({n.real}, {n.imag})' for n in x)}]"
    return str(x.tolist())


@cache
def ours() -> dict[str, tuple[Any, ...]]:
    """The values of all names, by one program."""
    names = [n for n in SAME if n in our_names()]
    source = ["float f64\n"]
    source += [f"import {module} ({n})\n" for n in names if (module := our_names()[n])]
    source += [f"let {name} = {literal(value)}\n" for name, value in GIVEN.items()]
    source += [f"let of_{n} = " + re.sub(r"\bf\b", n, call(n, 0)) + "\n" for n in names]
    values, _ = ran("".join(source), Engine("interpret"))
    return {n: tuple(np.asarray(leaf) for leaf in values[f"of_{n}"].leaves or ()) for n in names}


@pytest.mark.parametrize("name", SAME)
@pytest.mark.filterwarnings("ignore")
def test_it_has_their_values(name: str) -> None:
    for full, f in shared_with(name).items():
        with jax.enable_x64(True), np.errstate(all="ignore"):
            arrays = GIVEN if full.startswith(("numpy", "scipy")) else {k: jnp.asarray(x) for k, x in GIVEN.items()}
            theirs = eval(call(name, 1), {"f": f, "true": True, "false": False} | arrays)  # noqa: S307 - a row of the table
        leaves = jax.tree.leaves(theirs if isinstance(theirs, (tuple, list)) else [theirs])
        assert len(leaves) == len(ours()[name]), full
        for got, want in zip(ours()[name], leaves, strict=True):
            np.testing.assert_allclose(got, np.asarray(want), rtol=1e-12, atol=1e-14, err_msg=full)
