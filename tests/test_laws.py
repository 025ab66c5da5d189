"""The laws of `docs/conventions.md`: those that no other file tests, and where the others are tested."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from derivative_programs import Program, programs
from derivatives import jvp, vjp
from difflang.execution.engine import Engine
from difflang.ir.interpreter import evaluate
from support.language import INTERPRETER, answer

pytestmark = pytest.mark.as_users

TESTS = Path(__file__).parent
PAGE = TESTS.parent / "docs" / "conventions.md"
PROGRAMS = [p for p in programs() if not p.name.endswith("-50")]
ENGINES = pytest.mark.parametrize("engine", [INTERPRETER, Engine()], ids=["interpreted", "compiled"])

# The first words of each law, and the tests that it has.
LAWS: dict[str, tuple[str, ...]] = {
    "the value is the same": ("test_laws.py::test_the_value_is_the_same_beside_a_derivative",),
    "a pullback is the adjoint": (
        "property/test_every_op.py::test_the_transpose_is_the_adjoint_of_the_jvp",
        "property/test_derivatives.py::test_reverse_mode_is_the_adjoint_of_forward_mode",
        "test_laws.py::test_the_derivative_is_linear",
    ),
    "`jvp` of `vjp`": (
        "property/test_every_op.py::test_the_second_derivative",
        "property/test_derivatives.py::test_derivatives_agree_with_jax",
        "property/test_random_programs.py::test_modes_nested_in_every_way_agree",
        "test_laws.py::test_hessians_are_symmetric",
    ),
    "derivatives of `eigh`": ("property/test_scale_invariance.py::test_derivatives_scale_as_the_function",),
    "a batched program": (
        "property/test_every_op.py::test_compiled_is_the_reference",
        "property/test_batching.py::test_lanes_do_what_each_does_alone",
        "property/test_batching.py::test_random_programs_in_lanes",
        "test_laws.py::test_a_batched_program_is_the_program_lane_by_lane",
    ),
    "no pass changes": (
        "property/test_passes.py::test_a_pass_keeps_what_a_graph_computes",
        "property/test_passes_on_derivatives.py::test_an_optimized_derivative_is_the_same",
        "property/test_random_programs.py::test_compiled_is_interpreted",
    ),
    "a graph survives": (
        "unit/ir/test_roundtrip.py::test_text_and_json_load_back_equal",
        "property/test_random_programs.py::test_graphs_survive_text_and_json",
    ),
    "renaming, naming": (
        "property/test_random_programs.py::test_names_dead_code_and_lets_change_nothing",
        "test_laws.py::test_permuting_arguments_permutes_gradients",
    ),
    "polynomials of integers": ("test_laws.py::test_polynomials_of_integers_are_exact",),
}

# The rules before the table, by number.
RULES: dict[str, tuple[str, ...]] = {
    "1": ("property/test_digits.py::test_slopes", "property/test_every_op.py::test_the_jvp_is_the_derivative"),
    "2": ("test_conventions.py::test_a_line_of_the_table",),
    "3": ("test_conventions.py::test_a_line_of_the_table", "unit/ops/elementwise/test_kinks.py::test_the_table"),
    "4": ("test_conventions.py::test_a_line_of_the_table", "unit/ops/elementwise/test_kinks.py::test_the_table"),
    "5": ("test_conventions.py::test_a_line_of_the_table", "property/test_digits.py::test_slopes"),
    "6": (
        "unit/ops/elementwise/test_kinks.py::test_the_side_not_selected_contributes_nothing",
        "unit/ad/test_cotangent_masks.py::test_what_is_not_chosen_contributes_nothing",
    ),
    "7": (
        "unit/ops/elementwise/test_kinks.py::test_what_is_flat_has_a_structural_zero",
        "errors/test_errors.py::DL0401",
    ),
}


def laws() -> list[str]:
    section = PAGE.read_text(encoding="utf-8").split("## Laws")[1].split("##")[0]
    return [line[2:] for line in section.splitlines() if line.startswith("- ")]


def rules() -> list[str]:
    return re.findall(r"^(\d)\. ", PAGE.read_text(encoding="utf-8").split("| point |")[0], re.MULTILINE)


def test_every_law_and_every_rule_has_a_test() -> None:
    for law in laws():
        assert sum(law.startswith(words) for words in LAWS) == 1, law
    assert len(laws()) == len(LAWS)
    assert rules() == list(RULES)


@pytest.mark.parametrize("pointer", sorted({p for ps in (*LAWS.values(), *RULES.values()) for p in ps}))
def test_what_is_pointed_to_is_there(pointer: str) -> None:
    file, name = pointer.split("::")
    if name.startswith("DL"):
        assert (TESTS / Path(file).parent / name).is_dir()
    else:
        assert f"def {name}(" in (TESTS / file).read_text(encoding="utf-8")


def drawn(program: Program, seed: int) -> tuple[list[Any], list[Any]]:
    """The arguments, and a direction."""
    rng = np.random.default_rng(seed)
    xs = [np.asarray(x, float) for x in program.arguments]
    return xs, [rng.normal(size=x.shape) for x in xs]


@pytest.mark.parametrize("program", PROGRAMS, ids=str)
def test_the_value_is_the_same_beside_a_derivative(program: Program) -> None:
    """Bit for bit on the interpreter."""
    xs, vs = drawn(program, 1)
    f, n = program.graph, len(program.graph.results)
    want = evaluate(f, *xs)
    cts = [np.ones_like(y) for y in want]
    for got in (evaluate(jvp(f), *xs, *vs)[:n], evaluate(vjp(f), *xs, *cts)[:n]):
        assert all(np.array_equal(a, b) for a, b in zip(got, want, strict=True))


@pytest.mark.parametrize("program", PROGRAMS, ids=str)
def test_the_derivative_is_linear(program: Program) -> None:
    """J (2 v + w) = 2 J v + J w, to rounding of the absolute terms."""
    (xs, vs), (_, ws) = drawn(program, 1), drawn(program, 2)
    push, n = jvp(program.graph), len(program.graph.results)
    a, b = evaluate(push, *xs, *vs)[n:], evaluate(push, *xs, *ws)[n:]
    both = evaluate(push, *xs, *[2 * v + w for v, w in zip(vs, ws, strict=True)])[n:]
    for x, y, z in zip(a, b, both, strict=True):
        bound = 1e-12 * (2 * np.abs(x) + np.abs(y)).max(initial=1e-300)
        np.testing.assert_allclose(z, 2 * x + y, rtol=1e-12, atol=bound)


ENERGY = """
fn energy(x: f64[n]) -> f64 {
  var total = 0.0
  for i in 0..n { total += x[i]^3 * sin(x[i]) / (1.0 + norm(x)) }
  if total > 0.0 { total * prod(x) } else { logsumexp(x) + total }
}
fn first(x: f64, y: f64, z: f64) -> f64 = x^2 * sin(y) + exp(z * x)
fn swapped(z: f64, x: f64, y: f64) -> f64 = first(x, y, z)
"""


@ENGINES
@pytest.mark.parametrize("x", ["[0.3, 1.2, 0.7]", "[-0.3, 2.9, -0.7]"])
def test_hessians_are_symmetric(x: str, engine: Engine) -> None:
    h = answer(f"hessian(energy)({x})", ENERGY, engine)
    assert np.abs(h - h.T).max() <= 1e-13 * np.abs(h).max()
    rows = answer(f"jacrev(grad(energy))({x})", ENERGY, engine)
    np.testing.assert_allclose(rows, h, rtol=1e-12)


@ENGINES
def test_a_batched_program_is_the_program_lane_by_lane(engine: Engine) -> None:
    batch = "[[0.3, 1.2, 0.7], [-0.3, 2.9, -0.7], [0.0, 0.0, 0.0]]"
    both = answer(f"(vmap(energy)({batch}), vmap(grad(energy))({batch}))", ENERGY, engine)
    for lane in range(3):
        value, slope = answer(f"(energy({batch}[{lane}]), grad(energy)({batch}[{lane}]))", ENERGY, engine)
        np.testing.assert_allclose(both[0][lane], value, rtol=1e-15)
        np.testing.assert_allclose(both[1][lane], slope, rtol=1e-14)


@ENGINES
def test_permuting_arguments_permutes_gradients(engine: Engine) -> None:
    there = answer("grad[x, y, z](first)(0.3, 0.7, 1.1)", ENERGY, engine)
    assert answer("grad[x, y, z](swapped)(1.1, 0.3, 0.7)", ENERGY, engine) == there


POLYNOMIAL = """
fn p(x: f64, y: f64) -> f64 {
  var total = 3.0 * x^5 - 2.0 * x^2 * y^3 + y
  for i in 0..4 { total += f64(i) * x * total - y^2 }
  total
}
"""


def polynomial(x: list[int], y: list[int]) -> list[int]:
    """The same in Python's integers, of numbers `a + b h` with `h h = 0`."""
    total = plus(plus(times([3, 0], power(x, 5)), times([-2, 0], times(power(x, 2), power(y, 3)))), y)
    for i in range(4):
        total = plus(total, plus(times([i, 0], times(x, total)), times([-1, 0], power(y, 2))))
    return total


def plus(a: list[int], b: list[int]) -> list[int]:
    return [a[0] + b[0], a[1] + b[1]]


def times(a: list[int], b: list[int]) -> list[int]:
    return [a[0] * b[0], a[0] * b[1] + a[1] * b[0]]


def power(a: list[int], n: int) -> list[int]:
    return [a[0] ** n, n * a[0] ** (n - 1) * a[1]]


@ENGINES
@pytest.mark.parametrize(("x", "y"), [(3, -2), (-5, 7), (0, 4), (11, 13)])
def test_polynomials_of_integers_are_exact(x: int, y: int, engine: Engine) -> None:
    at = f"({x}.0, {y}.0)"
    value, *slopes = answer(f"(p{at}, grad[x](p){at}, grad[y](p){at})", POLYNOMIAL, engine)
    assert value == polynomial([x, 0], [y, 0])[0]
    assert slopes == [polynomial([x, 1], [y, 0])[1], polynomial([x, 0], [y, 1])[1]]
