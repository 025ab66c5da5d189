"""Draws functions and splits of their arguments over four devices: value and gradient are those of unsplit arguments.

Arguments are split before the call, or by the program, which says so of its parameters.

The arguments: a seed, and how many pairs of a function and a split. Prints each pair that differs, and figures.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice, product
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import difflang
from difflang.base.diagnostics import DifflangError
from difflang.embed.derived_programs import EmbeddedProgram, PipelineHooks
from difflang.embed.jax_primitive import bind_program
from difflang.gradcheck.op_calls import calls_of
from difflang.ir.builder import build_region
from difflang.ir.graph import Graph, Value
from difflang.ir.tensor_types import BOOL, F64, I32, Tensor
from difflang.lower.lowering_pipeline import COMPILE_ON_MESH, finalize_graph
from difflang.ops.arrays.reshard import reshard
from difflang.ops.signal.convolution import conv
from support.op_calls import DRAWN
from support.random_programs import HEADER, random_program

Array = Any
MESHES = ({"a": 2, "b": 2}, {"a": 4}, {"a": 3}, {"a": 2})
HOOKS = PipelineHooks(
    finish=partial(finalize_graph, pipeline=COMPILE_ON_MESH),
    on_print=lambda site, text: None,
    report=lambda number: None,
)
TOLERANCE = 1e-9
SOURCE = """float f64
fn lookup(e: f64[v, d], i: i32[n]) -> f64 = sum([for k => e[i[k]]]^2)
fn scattered(x: f64[n], i: i32[n]) -> f64[n] {
  var y = x
  for k in 0..n { y[i[k]] += x[k] * 2.0 }
  y
}
fn ordered(x: f64[n]) -> f64 = sum(sort(x) * [for k in 0..n => f64(k)])
fn picked(x: f64[n, d], i: i32[n]) -> f64 = sum([for k => x[k, i[k] % 4]]^2)
fn placed(x: f64[n, d], i: i32[n]) -> f64[n, d] {
  var y = x
  for k in 0..n { y[k, i[k] % 4] = 2.0 * x[k, 1] }
  for k in 0..n { y[k, i[k] % 3] += x[k, 0] }
  y
}
fn marked(x: f64[n, d]) -> f64[n, d] {
  var y = zeros(n, d)
  for (k, r) in enumerate(x[1..]) { y[k, argmax(r)] += r[0] }
  y
}
fn chosen(x: f64[n, d]) -> f64 = sum([for r in x[1..] => r[argmax(r)]]^2) + sum(sort(x[..n - 1], axis = 1)[.., 0]^3)
fn sorted(x: f64[n, d], w: f64[d]) -> f64 = sum(sort(x, axis = 1) @ w)
fn stepped(x: f64[s, n, d]) -> f64 {
  var y = x[0]
  for k in [1, 2, 0] { y = tanh(y + x[k]) }
  sum(y) + sum(norm(y)) + f64(argmax(y[.., 0]))
}
fn solved(a: f64[d, d], b: f64[d]) -> f64[d] = solve(a + 10.0 * eye(d), b)
fn pairs(x: f64[n, d]) -> f64 = sum(for i, j if i != j => 1.0 / norm(x[i] - x[j]))
fn attended(q: f64[n, d], k: f64[m, d], v: f64[m, d]) -> f64[n, d] = softmax(q @ transpose(k), 1) @ v
fn recurrent(x: f64[n, d], w: f64[d, d]) -> f64[d] {
  var h = x[0]
  for t in 0..n { h = tanh(h @ w + x[t]) }
  h
}
fn heated(x: f64[n]) -> f64[n] {
  var t = x
  for _ in 0..5 { t[1..n - 1] += 0.1 * (t[2..] - 2.0 * t[1..n - 1] + t[..n - 2]) }
  t
}
fn branched(x: f64[n, d]) -> f64 = if sum(x) > 0.0 { sum(x^2) } else { sum(x^3) }
fn joined(x: f64[n], y: f64[n]) -> f64[2 * n] = concat(x, reverse(y))
fn waves(x: f64[n]) -> f64 = sum(abs(fft(complex(x, x)))^2)
fn entropy(x: f64[n, d], w: f64[d, h]) -> f64 = mean([for i => logsumexp((x @ w)[i])])
fn extremes(x: f64[n, d]) -> f64 = max(x * x) + min(x) + prod(x[0])
fn sums(x: f64[n, d]) -> f64[n, d] = cumsum(x, 0) * softmax(x, 0)
fn filtered(x: f64[n, h, v, c], k: f64[3, 2, c, o]) -> f64[n, h, v, o] = conv2d(x, k, padding = "same")
fn reduced(x: f64[n, h, c], k: f64[2, c, o]) -> f64 = sum(conv1d(x, k, stride = 2)^2) + sum(conv1d(x, k)^3)
fn roots(a: f64[n]) -> f64[n] = [for i => {
  var x = 1.0 + a[i]^2
  while abs(x * x - a[i]^2 - 1.0) > 1e-13 { x = 0.5 * (x + (a[i]^2 + 1.0) / x) }
  x
}]
"""
ARGUMENTS: dict[str, tuple[str, ...]] = {
    "lookup": ("32 8", "i16"), "scattered": ("16", "i16"), "ordered": ("16",),
    "picked": ("8 4", "i8"), "placed": ("8 4", "i8"), "marked": ("8 4",), "chosen": ("8 4",), "sorted": ("8 4", "4"),
    "stepped": ("3 8 4",),
    "solved": ("8 8", "8"),
    "pairs": ("8 4",), "attended": ("8 4", "12 4", "12 4"), "recurrent": ("8 4", "4 4"), "heated": ("16",),
    "branched": ("16 4",), "joined": ("8", "8"), "waves": ("16",), "entropy": ("8 4", "4 6"), "extremes": ("12 4",),
    "sums": ("12 4",), "roots": ("12",),
    "filtered": ("4 8 6 2", "3 2 2 4"), "reduced": ("4 12 2", "2 2 4"),
}  # fmt: skip


class Case:
    """A function by its graph, and arguments."""

    def __init__(self, name: str, graph: Graph, arrays: Sequence[Array]) -> None:
        self.name, self.arrays = name, list(arrays)
        self.program = EmbeddedProgram(graph, HOOKS)
        self.wrt = tuple([isinstance(p.type, Tensor) and p.type.tangent is not None for p in graph.params])
        smooth = [r.type for r in graph.results if r.type.tangent is not None]
        self.cts = [np.cos(np.arange(np.prod(t.shape, dtype=int))).reshape(t.shape) for t in smooth]
        self.wanted = self.evaluate(self.arrays)

    def evaluate(self, arrays: Sequence[Array], program: EmbeddedProgram | None = None) -> list[Array]:
        """The results, and their pullback; one call at a time, since more than there are cores stop each other."""
        program = program or self.program
        found = jax.block_until_ready(bind_program(program, arrays))
        if any(self.wrt) and self.cts:
            pulled = program.pulled(self.wrt, (True,) * len(self.cts))
            found = [*found, *jax.block_until_ready(bind_program(pulled, [*arrays, *self.cts]))]
        return [np.asarray(x) for x in found]

    def declared(self, splits: Sequence[Sequence[Any]]) -> EmbeddedProgram:
        """The program that says how its parameters are split."""
        axes = [tuple([() if a is None else (a,) if isinstance(a, str) else a for a in split]) for split in splits]

        def body(*params: Value) -> list[Value]:
            placed = [reshard.one(p, splits=s, source=s) if s else p for p, s in zip(params, axes, strict=True)]
            return params[0].home.inline(self.program.graph, *placed)

        return EmbeddedProgram(build_region([p.type for p in self.program.graph.params], body), HOOKS)

    def differs(self, found: Sequence[Array]) -> str:
        for i, (x, y) in enumerate(zip(found, self.wanted, strict=True)):
            scale = max(1.0, float(np.max(np.abs(y[np.isfinite(y)]), initial=0))) if y.dtype.kind in "fc" else 1
            if not np.allclose(x, y, rtol=0, atol=TOLERANCE * scale, equal_nan=True):
                return f"result {i} differs"
        return ""


def op_case(rng: random.Random) -> Case | None:
    op = rng.choice(DRAWN)
    calls = [c for c in calls_of(op, (F64, I32, BOOL)) if c.arrays and not op.effect and all(x.size for x in c.arrays)]
    if not calls:
        return None
    call = rng.choice(calls)
    return Case(str(call), call.smooth() if call.active else call.graph(), call.arrays)


def convolution_case(rng: random.Random) -> Case | None:
    """One that keeps the size of space, or sums over it, or has strides, dilations and groups."""
    space = [rng.choice([2, 3, 4, 6, 8, 12]) for _ in range(rng.choice([1, 2]))]
    groups, sums = rng.choice([1, 1, 1, 2]), rng.random() < 0.15
    taps = list(space) if sums else [rng.randint(1, 5) for _ in space]
    strides, gaps, reach = [[1 if sums else rng.choice([1, 1, 1, 2]) for _ in space] for _ in range(3)]
    margins = [(k - 1) * d if rng.random() < 0.7 else rng.randint(-1, 3) for k, d in zip(taps, reach, strict=True)]
    low = [rng.randint(0, max(margin, 0)) for margin in margins]
    image = (rng.choice([1, 2, 4]), *space, rng.choice([1, 2, 4]) * groups)
    kernel = (*taps, image[-1] // groups, rng.choice([2, 4]) * groups)
    spread = {"input_dilation": tuple(gaps), "kernel_dilation": tuple(reach), "groups": groups}
    padding = tuple([(a, margin - a) for a, margin in zip(low, margins, strict=True)])

    def body(x: Value, w: Value) -> list[Value]:
        return [conv.one(x, w, strides=tuple(strides), padding=padding, **spread)]

    graph = build_region([Tensor(F64, image), Tensor(F64, kernel)], body)
    numbers = np.random.default_rng(rng.randrange(1000))
    arrays = [numbers.normal(size=image), numbers.normal(size=kernel)]
    named = f"conv({image}, {kernel}) {strides} {padding} {spread}"
    return Case(named, graph, arrays) if np.prod(graph.results[0].type.shape) else None


def function_case(rng: random.Random) -> Case:
    name = rng.choice(list(ARGUMENTS))
    numbers = np.random.default_rng(rng.randrange(1000))
    arrays: list[Array] = []
    for text in ARGUMENTS[name]:
        shape = tuple(map(int, text.removeprefix("i").split()))
        arrays.append(numbers.integers(0, 16, shape, np.int32) if text[0] == "i" else 0.5 * numbers.normal(size=shape))
    return Case(name, getattr(LIBRARY, name).lower(*arrays).graph, arrays)


def program_case(rng: random.Random) -> Case | None:
    seed = rng.randrange(10**6)
    many = "fn many(x: f64[n], y: f64[n], z: f64[n], k: i32) -> f64 = sum(for i => f(x[i], y[i], z[i], k))"
    module = difflang.loads(f"{HEADER}{random_program(seed)}\n{many}")
    numbers = np.random.default_rng(seed)
    arrays = [*numbers.uniform(-1.2, 1.2, (3, 12)), np.int32(numbers.integers(0, 5))]
    try:
        graph = module.many.lower(*arrays).entry.graph
    except DifflangError:
        return None
    return Case(f"program {seed}", graph, arrays)


KINDS: tuple[Callable[[random.Random], Case | None], ...] = (
    *(op_case, op_case, op_case, function_case, function_case),
    convolution_case,
)
LIBRARY = difflang.loads(SOURCE)


def draw_split(rng: random.Random, shape: Sequence[int], mesh: dict[str, int]) -> list[Any]:
    """For each axis of an array one or two axes of the mesh that divide it, or None; each axis of the mesh once."""
    free, found = list(mesh), list[Any]()
    for size in shape:
        fitting = [a for a in free if size and size % mesh[a] == 0]
        chosen = rng.choice([None, *fitting, *fitting])
        rest = [a for a in free if a != chosen and chosen and size % (mesh[a] * mesh[chosen]) == 0]
        if chosen and rest and rng.random() < 0.3:
            chosen = (chosen, rest[0])
        free = [a for a in free if a not in (chosen or ())]
        found.append(chosen)
    return found


def check_pair(rng: random.Random, case: Case, figures: dict[str, int]) -> bool:
    """Whether there was a split to try: on a mesh whose axes are `Auto`, then on one where they are `Explicit`."""
    sizes = rng.choice(MESHES)
    splits = [draw_split(rng, np.shape(x), sizes) for x in case.arrays]
    if not any(any(s) for s in splits):
        return False
    for kind, declared in product((AxisType.Auto, AxisType.Explicit), (False, True)):
        devices = np.array(jax.devices()[: int(np.prod(list(sizes.values())))]).reshape(tuple(sizes.values()))
        mesh = jax.sharding.Mesh(devices, tuple(sizes), axis_types=(kind,) * len(sizes))
        try:
            placed = [
                jax.device_put(x, NamedSharding(mesh, PartitionSpec(*([] if declared else s))))
                for x, s in zip(case.arrays, splits, strict=True)
            ]
            wrong = case.differs(case.evaluate(placed, case.declared(splits) if declared else None))
        except DifflangError as error:
            codes = {d.code for d in error.diagnostics}
            wrong = "" if kind is AxisType.Explicit and codes <= {"DL0604", "DL0605"} else str(error)
            figures["refused"] += not wrong
        except Exception as error:  # noqa: BLE001 - the law is that there is none
            wrong = f"{type(error).__name__}: {str(error)[:300]}"
        if wrong:
            figures["wrong"] += 1
            said = "declared" if declared else "split"
            print(f"{case.name} on {sizes}, {kind}, {said} {splits}: {wrong}", flush=True)
    figures["pairs"] += 1
    return True


def main(seed: int, count: int) -> None:
    rng, figures = random.Random(seed), {"pairs": 0, "refused": 0, "wrong": 0}
    while figures["pairs"] < count:
        make = program_case if rng.random() < 0.04 else rng.choice(KINDS)
        case = make(rng)
        for _ in islice(range(3), 1 if case is None else 3):
            if case is not None and figures["pairs"] < count:
                check_pair(rng, case, figures)
    print(", ".join([f"{n} {what}" for what, n in figures.items()]))
    sys.exit(figures["wrong"] > 0)


if __name__ == "__main__":
    with jax.enable_x64(True):
        main(int(sys.argv[1]), int(sys.argv[2]))
