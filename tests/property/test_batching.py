"""Each instance of a batched program gives what the program gives alone, and so do its derivatives.

Instances take different branches and run loops zero, one or many times. The branch that an instance does not take may be
NaN, infinite or endless there, or fail: the instance is not affected.
"""

# ruff: noqa: E501 - a row of a table, or a program, is a line

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import numpy as np
import pytest

import difflang
import difflang.ops.control.map
from difflang.driver.elaborate_call import CallArgument, elaborate_call
from difflang.ir.builder import Builder
from difflang.ir.graph import Graph, Value
from difflang.ir.interpreter import evaluate
from difflang.ir.op import OPS
from difflang.ir.tensor_types import F64, I32, Tensor
from difflang.lower.lowering_pipeline import finalize_graph
from difflang.passes.maps.vectorize_maps import MapBodyVectorizer, MapVectorizer
from difflang.types.function_code import FnCode
from difflang.types.language_types import ClosureType
from support.documents import ROOT
from support.language import checked
from support.random_programs import HEADER, random_program
from support.seeds import SEEDS

# Each is a body of `f(x: f64) -> f64`, and where its lanes stand.
BODIES: dict[str, tuple[str, list[float]]] = {
    "a loop on one side": ("if x > 0.0 { var s = x\n while s < 10.0 { s *= 2.0 }\n s } else { x * x }", [1, -1, 0, 3, 20]),
    "an endless loop aside": ("if x != 0.0 { var s = x\n while abs(s) < 10.0 { s *= 2.0 }\n s } else { x }", [1, 0, -3, 20]),
    "an endless step aside": ("var s = x\n for i in 0..3 { if x > 0.0 { while s < 9.0 { s *= 2.0 } } else { s -= 1.0 } }\n s", [1, -1, 0]),
    "a loop in a loop": ("var t = x\n while t < 5.0 { var s = t\n while s < 9.0 { s = 2.0 * s + 0.1 }\n t += s / 4.0 }\n t", [1, 7, 0.5, 3]),
    "an endless loop in a loop that ended": ("var t = x\n while t < 5.0 { var s = 5.0 - t\n while s < 9.0 { s *= 2.0 }\n t += s / 4.0 }\n t", [1, 5, 9, 4.5]),
    "many trips, one, none": ("var s = x\n while s < 10.0 { s *= 1.5 }\n s", [1, 20, 0.5, 9.9]),
    "counted at run time": ("var s = x\n for i in 0..i32(abs(x)) { s = 1.5 * s + sin(s) }\n s", [0.5, 1.5, 5.5, -3.2]),
    "no trip divides": ("var s = x\n for i in 0..i32(x) { s = s / f64(i32(x)) + sqrt(x) }\n s", [0, 1, 3, -1]),
    "left early": ("var s = x\n for i in 0..20 { if s > 5.0 { break }\n if s < -3.0 { continue }\n s *= 1.5 }\n s", [0.5, 1.5, 5.5, -3.2, 0]),
    "returned from": ("var s = x\n while true { if s > 5.0 { return s * s }\n s = 1.5 * s + 0.1 }\n s", [0.5, 1.5, 5.5]),
    "NaN aside": ("if x > 0.0 { sqrt(x) } else { x }", [1, -1, 0]),
    "an Inf aside": ("if x > 0.0 { log(x) / x } else { x^2 }", [1, -1, 0]),
    "NaN outside of the branch": ("let s = sqrt(x)\n if x > 0.0 { s } else { x }", [1, -1, 0]),
    "NaN after the last step": ("var s = x\n while s > 0.5 { s = sqrt(s - 0.5) }\n s", [1, 0.2, 0.75, 1.7]),
    "an Inf after the last step": ("var s = x\n while s < 4.0 { s += 1.0 / (4.0 - s) }\n s", [1, 4, 5, 3.5]),
    "nested branches": ("var s = x\n for i in 0..3 { if s > 1.0 { s = log(s) } else { if s < 0.0 { s = sqrt(-s) } else { s += 0.3 } } }\n s", [1.5, -1, 0, 5]),
    "a failure aside": ("if x > 0.0 { assert x > 0.5, \"small\"\n log(x) } else { x }", [1, -1, 0]),
    "out of range aside": ("let a = [1.0, 2.0, 3.0]\n if 0.0 <= x and x < 3.0 { a[i32(x)] * x } else { 0.5 * x }", [1, -1, 5, 2.5]),
    "places of its own": ("var a = [0.0, 0.0, x]\n for i in 0..i32(abs(x)) { a[(2 * i) % 3] += x * f64(i + 1) }\n sum(a * a)", [0.5, 1.5, 4.5]),
}  # fmt: skip
HOW = """
fn alone(x: f64) -> (f64, f64, f64) = (f(x), f'(x), f''(x))
fn lanes(xs: f64[n]) -> (f64[n], f64[n], f64[n], f64[n], f64[n]) {
  let whole = |xs| sum([for i => f(xs[i])])
  ([for i => f(xs[i])], [for i => f'(xs[i])], [for i => f''(xs[i])], grad(whole)(xs), hvp(whole)(xs, ones_like(xs)))
}
"""


@lru_cache(maxsize=1)
def batched(name: str) -> difflang.Module:
    return difflang.loads(f"float f64\nfn f(x: f64) -> f64 {{\n {BODIES[name][0]}\n}}\n{HOW}", name="lanes")


@pytest.mark.parametrize(
    "compiled", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["interpreted", "compiled"]
)
@pytest.mark.parametrize("name", BODIES)
def test_lanes_do_what_each_does_alone(name: str, compiled: bool) -> None:
    module, xs = batched(name), np.array(BODIES[name][1], float)
    run = (lambda f, *args: f(*args)) if compiled else (lambda f, *args: f.interpret(*args))
    alone = np.array([run(module.alone, x) for x in xs]).T
    values, slopes, curvatures, gradient, product = run(module.lanes, xs)
    for found, want in zip((values, slopes, curvatures, gradient, product), alone[[0, 1, 2, 1, 2]], strict=True):
        assert np.isfinite(want).all()
        np.testing.assert_allclose(found, want, rtol=1e-14, atol=1e-15)


def test_a_failure_is_that_of_a_lane_that_is_there() -> None:
    module = batched("a failure aside")
    with pytest.raises(difflang.DifflangError, match="small"):
        module.lanes.interpret(np.array([-1.0, 0.25, 2.0]))


# ------------------------------------------------------------------------------------ the programs and examples

PROGRAMS: dict[str, tuple[str, str, list[float]]] = {  # a file, an expression in x, and where its lanes stand
    "newton": ("tests/programs/chapter7/newton.dfl", "iterate(kepler, 0.1 + 0.2 * x * x, 1.0)", [0.1, -1.5, 0]),
    "newton by a rule": ("tests/programs/chapter7/newton.dfl", "root(kepler, 0.1 + 0.2 * x * x, 1.0)", [0.1, -1.5, 0.7]),
    "conjugate gradients": ("tests/programs/chapter7/conjugate_gradients.dfl", "sum(newton_cg(|y| sum(exp(y) - x * y) + sum(y * y)^2, [0.1, x]))", [0.5, 2, 1]),
    "a histogram": ("tests/programs/chapter7/histogram.dfl", "dot(soft_hist([0.3, x, x * x], [1.0, x, 2.0], -2.0, 2.0, 4), [1.0, 2.0, 0.5, 3.0, 1.0])", [0.3, -1.2, 1.1, 5]),
    "maxima": ("tests/programs/chapter7/histogram.dfl", "sum(worst([x, 1.0, x * x], [0, 1, 1], 2))", [0.3, -1.2, 1.1]),
    "bodies": ("tests/programs/chapter7/n_body.dfl", "miss([x, 0.1, 0.2], Bodies(x = [[0.0, 0.0, 0.0], [1.0, 0.5, 0.0]], v = zeros(2, 3), mass = [1.0, 2.0], id = [0, 1]), [1.0, 1.0, 1.0], 0.1, i32(abs(4.0 * x)))", [0.1, 1, -0.5]),
    "a model": ("tests/programs/chapter1/model.dfl", "f64(nll(fit(Model(w = [f32(x)], b = 0.1, name = \"m\"), [[1.0], [2.0]], [0.0, 1.0], 0.1, i32(abs(x))), [[1.0], [0.5]], [0.0, 1.0]))", [0.1, 1.5, -3.5]),
    "a curve": ("examples/fit_curve.dfl", "curve([1.0, x, 0.5, 0.1, x * x, 0.2, 0.1], 0.7) + sum(solve_spd([[2.0 + x * x, x], [x, 3.0]], [x, 1.0]))", [0.1, 1.5, -0.5]),
    "logistic regression": ("examples/logistic.dfl", "f64(loss(Model(w = [f32(x), 0.5], b = 0.1), [[1.0, 2.0], [0.5, -1.0]], [0.0, 1.0]))", [0.1, 1.5, -3.5]),
    "a network": ("examples/digits.dfl", "f64(loss(Mlp(w1 = [[f32(x), 1.0], [0.5, 0.2]], b1 = [0.1, -0.1], w2 = [[1.0, -1.0], [0.5, f32(x)]], b2 = [0.0, 0.1]), [[0.3, 0.4], [1.0, -0.5]], [0, 1]))", [0.1, 1.5, -3.5]),
    "images": ("examples/digits_conv.dfl", "f64(loss(Net(k1 = fill(3, 3, 1, 1, f32(x)), b1 = [0.1], k2 = fill(3, 3, 1, 1, 0.2), b2 = [0.1], w = 0.1 * outer([1.0, 2.0, 3.0, f32(x)], f32(iota(10))), b = zeros(10)), reshape(sin(f32(iota(128))), [2, 8, 8, 1]), [1, 7]))", [0.1, 0.5, -0.5]),
}  # fmt: skip


def declarations(file: str) -> str:
    """The functions, records and rules of a program, as far as the next empty line, without what bounds their memory, and
    what they take of the library.
    """
    text = (ROOT / file).read_text(encoding="utf-8")
    items = [
        part.split("\n\n")[0] for part in re.split(r"^(?=fn |record |rule |import \w)", text, flags=re.MULTILINE)[1:]
    ]
    return "\n".join(line for item in items for line in item.split("\n") if not line.lstrip().startswith("@"))


@pytest.mark.parametrize(
    "compiled", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["interpreted", "compiled"]
)
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.nightly_cases("bodies-compiled", "conjugate gradients-compiled")
def test_programs_and_examples_in_lanes(name: str, compiled: bool) -> None:
    file, expression, where = PROGRAMS[name]
    source = f"{declarations(file)}\nfn f(x: f64) -> f64 = {expression}\n{IN_LANES}"
    module, xs = difflang.loads(source, name="lanes"), np.array(where, float)
    run = (lambda f, *args: f(*args)) if compiled else (lambda f, *args: f.interpret(*args))
    alone = np.array([run(module.alone, x) for x in xs]).T
    near = 1e-5 if "f32(" in expression else 1e-13
    for found, want in zip(run(module.lanes, xs), alone[[0, 1, 1]], strict=True):
        assert np.isfinite(want).all()
        np.testing.assert_allclose(found, want, rtol=near, atol=near)


IN_LANES = """
fn alone(x: f64) -> (f64, f64) = (f(x), f'(x))
fn lanes(xs: f64[n]) -> (f64[n], f64[n], f64[n]) = (
  [for i => f(xs[i])], [for i => f'(xs[i])], grad(|xs| sum([for i => f(xs[i])]))(xs),
)
"""


# ---------------------------------------------------------------------------------------------- random programs

LANES = 4
SLOPES = "grad[0, 1, 2](f{i})({at})"


def lanes_of(seeds: list[int]) -> str:
    """Programs `f0`, `f1`, …, each in lanes with its gradient lane by lane, and the gradient of the sum over lanes."""
    functions = "".join(random_program(s, name=f"f{i}") for i, s in enumerate(seeds))
    at, parts = "xs[i], ys[i], zs[i], ks[i]", list[str]()
    for i in range(len(seeds)):
        total = f"|xs, ys, zs| sum([for i => f{i}({at})])"
        parts += [
            f"[for i => f{i}({at})]",
            f"[for i => {SLOPES.format(i=i, at=at)}]",
            f"grad[0, 1, 2]({total})(xs, ys, zs)",
        ]
    head = "fn lanes(xs: f64[n], ys: f64[n], zs: f64[n], ks: i32[n]) = "
    singles = [f"f{i}(x, y, z, k), {SLOPES.format(i=i, at='x, y, z, k')}" for i in range(len(seeds))]
    alone = f"fn alone(x: f64, y: f64, z: f64, k: i32) = ({', '.join(singles)},)\n"
    return f"{HEADER}{functions}{alone}{head}({', '.join(parts)},)\n"


def graph_of(source: str, name: str, shape: tuple[int, ...]) -> Graph:
    found = checked(source)
    function = ClosureType(FnCode(found.module.fns[name], found.module), ())
    names = ("xs", "ys", "zs", "ks") if shape else ("x", "y", "z", "k")
    arguments = [CallArgument(n, Tensor(I32 if n.startswith("k") else F64, shape)) for n in names]
    return finalize_graph(elaborate_call(found.session, found.module, name, function, arguments).graph)


def points(seed: int) -> list[np.ndarray[Any, Any]]:
    rng = np.random.default_rng(seed)
    return [*rng.uniform(-1.2, 1.2, (3, LANES)), rng.permutation(5)[:LANES].astype(np.int32)]


def floats(found: Any) -> list[np.ndarray[Any, Any]]:
    return [a for a in map(np.asarray, found) if a.dtype.kind == "f"]


def check_lanes(seeds: list[int], compiled: bool) -> None:
    """Values and gradients in lanes, and the gradient of their sum, are those of each lane alone."""
    source, given = lanes_of(seeds), points(seeds[0])
    together, single = graph_of(source, "lanes", (LANES,)), graph_of(source, "alone", ())
    if compiled:
        from difflang.runtime.compile import compile_graph

        run_together, run_single = compile_graph(together), compile_graph(single)
    else:
        run_together, run_single = (lambda *xs: evaluate(together, *xs)), (lambda *xs: evaluate(single, *xs))
    found = floats(run_together(*given))
    want = np.array([floats(run_single(*[a[lane] for a in given])) for lane in range(LANES)]).T
    for i in range(len(seeds)):
        value, *slopes = want[4 * i : 4 * i + 4]
        for got, due in zip(found[7 * i : 7 * i + 7], [value, *slopes, *slopes], strict=True):
            scale = np.maximum(np.abs(slopes).max(axis=0), np.abs(value)) + 1.0
            assert np.isfinite(due).all()
            assert np.all(np.abs(got - due) <= 1e-12 * scale), (seeds[i], got, due)


@pytest.mark.parametrize("seed", SEEDS[::5])
def test_random_programs_in_lanes(seed: int) -> None:
    check_lanes([seed], compiled=False)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, max(len(SEEDS) // 10, 5), 5))
@pytest.mark.nightly
def test_random_programs_in_lanes_compiled(first: int) -> None:
    check_lanes(SEEDS[first : first + 5], compiled=True)


def test_a_lane_that_reads_anothers_item_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A control: of an array of four items the last lane is given that of the third, alone or all lanes at once."""
    right, widened = difflang.ops.control.map.sequence_item, MapBodyVectorizer.__init__

    def wrong(
        self: MapBodyVectorizer, widener: MapVectorizer, builder: Builder, body: Graph, same: Any, wide: Any, *rest: Any
    ) -> None:
        widened(self, widener, builder, body, same, {p: last_like_third(v) for p, v in wide.items()}, *rest)

    monkeypatch.setattr(difflang.ops.control.map, "sequence_item", lambda x, i, type: right(x, min(i, 2), type))
    monkeypatch.setattr(MapBodyVectorizer, "__init__", wrong)
    caught = 0
    for seed in range(5):
        try:
            check_lanes([seed], compiled=False)
        except AssertionError:
            caught += 1
    assert caught == 5


def last_like_third(x: Value) -> Value:
    """An array of four items with the third in the place of the last."""
    assert isinstance(x.type, Tensor)
    size, *rest = x.type.shape
    if size != 4:
        return x
    ones, ends = (1,) * x.type.rank, [(0, 3), (2, 3)]
    parts = [OPS["slice"].one(x, starts=(a, *(0 for _ in rest)), stops=(b, *rest), steps=ones) for a, b in ends]
    return OPS["concat"].one(*parts, axis=0)
