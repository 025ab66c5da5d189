"""`optim` beside optax: fifty steps of every optimizer on three problems, derivatives through three of them, schedules, clipping and projections."""

# ruff: noqa: E501 - a function of the language is a line

from __future__ import annotations

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import optax.projections as op
import pytest

from support.language import codes, ran
from support.library import Engine, Like, compared, stdlib

Array = Any
STEPS = 50
IMPORTS = stdlib("optim")
START = np.array([0.5, -0.3, 0.8])
PROBLEMS = {
    "bowl": ("x[0]^2 + 10 * x[1]^2 + x[0] * x[2] + 3 * x[2]^2", lambda x: x[0] ** 2 + 10 * x[1] ** 2 + x[0] * x[2] + 3 * x[2] ** 2),
    "valley": ("(1 - x[0])^2 + 5 * (x[1] - x[0]^2)^2 + x[2]^4", lambda x: (1 - x[0]) ** 2 + 5 * (x[1] - x[0] ** 2) ** 2 + x[2] ** 4),
    "odds": ("softplus(x[0] - 2 * x[1]) + softplus(x[1] * x[2] - x[0]) + softplus(-x[2])", lambda x: jax.nn.softplus(x[0] - 2 * x[1]) + jax.nn.softplus(x[1] * x[2] - x[0]) + jax.nn.softplus(-x[2])),
}  # fmt: skip
OPTIMIZERS = {
    "sgd": ("0", "p = sgd(p, g, 0.02)", optax.sgd(0.02)),
    "momentum": ("zero(p)", "(p, s) = momentum(p, g, s, rate = 0.01, keep = 0.8)", optax.sgd(0.01, momentum=0.8)),
    "nesterov": ("zero(p)", "(p, s) = nesterov(p, g, s, rate = 0.01, keep = 0.8)", optax.sgd(0.01, momentum=0.8, nesterov=True)),
    "adam": ("moments(p)", "(p, s) = adam(p, g, s, rate = 0.05)", optax.adam(0.05)),
    "adamw": ("moments(p)", "(p, s) = adamw(p, g, s, rate = 0.05, decay = 0.1)", optax.adamw(0.05, weight_decay=0.1)),
    "rmsprop": ("zero(p)", "(p, s) = rmsprop(p, g, s, rate = 0.01)", optax.rmsprop(0.01)),
    "adagrad": ("0.1 + zero(p)", "(p, s) = adagrad(p, g, s, rate = 0.1)", optax.adagrad(0.1)),
    "nadam": ("moments(p)", "(p, s) = nadam(p, g, s, rate = 0.05)", optax.nadam(0.05)),
    "adamax": ("moments(p)", "(p, s) = adamax(p, g, s, rate = 0.05)", optax.adamax(0.05)),
    "adadelta": ("moments(p)", "(p, s) = adadelta(p, g, s)", optax.adadelta(1.0, rho=0.9, eps=1e-6)),
    "lion": ("zero(p)", "(p, s) = lion(p, g, s, rate = 0.01, decay = 0.2)", optax.lion(0.01, weight_decay=0.2)),
}  # fmt: skip


@cache
def paths(dtype: str) -> dict[str, Array]:
    """Every step of every optimizer on every problem, from one program."""
    source = [IMPORTS]
    for problem, (body, _) in PROBLEMS.items():
        source.append(f"fn {problem}(x: {dtype}[3]) -> {dtype} = {body}\n")
        for name, (state, step, _) in OPTIMIZERS.items():
            source.append(
                f"fn {name}_{problem}(p0: {dtype}[3]) -> {dtype}[{STEPS}, 3] {{\n  var p = p0\n  var s = {state}\n"
                f"  for _ in 0..{STEPS} {{\n    let g = grad({problem})(p)\n    {step}\n    yield p\n  }}\n}}\n"
                f"let {name}_on_{problem} = {name}_{problem}({START.tolist()})\n"
            )
    values, _ = ran("".join(source), Engine("interpret"))
    return {k: np.asarray((v.leaves or ())[0]) for k, v in values.items() if "_on_" in k}


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_steps_are_those_of_optax(name: str, problem: str) -> None:
    method = OPTIMIZERS[name][2]
    with jax.enable_x64(True):

        def step(carry: Any, _: None) -> tuple[Any, Array]:
            p, state = carry
            change, state = method.update(jax.grad(PROBLEMS[problem][1])(p), state, p)
            p = optax.apply_updates(p, change)
            return (p, state), p

        start = jnp.asarray(START)
        theirs = np.asarray(jax.lax.scan(step, (start, method.init(start)), None, STEPS)[1])
    np.testing.assert_allclose(paths("f64")[f"{name}_on_{problem}"], theirs, rtol=1e-9, atol=1e-11)
    single = paths("f32")[f"{name}_on_{problem}"]
    assert single.dtype == np.float32
    if name != "lion":  # the sign of what is nearly 0 is that of the rounding
        np.testing.assert_allclose(single, theirs, rtol=3e-5, atol=3e-5)


# Three steps with three gradients, as a function of those, of where they begin, of the rate and of what is kept.
WITH_RATES: dict[str, tuple[str, str, Any]] = {
    "sgd": ("zero(p)", "p = sgd(p, g, rate)", lambda rate, keep: optax.sgd(rate + 0 * keep)),
    "momentum": ("zero(p)", "(p, s) = momentum(p, g, s, rate, keep)", lambda rate, keep: optax.sgd(rate, momentum=keep)),
    "nesterov": ("zero(p)", "(p, s) = nesterov(p, g, s, rate, keep)", lambda rate, keep: optax.sgd(rate, momentum=keep, nesterov=True)),
    "adam": ("moments(p)", "(p, s) = adam(p, g, s, rate, keep, 0.8, 0.01, 0.02)", lambda rate, keep: optax.adam(rate, keep, 0.8, 0.01, 0.02)),
    "adamw": ("moments(p)", "(p, s) = adamw(p, g, s, rate, keep, 0.8, decay = 0.1)", lambda rate, keep: optax.adamw(rate, keep, 0.8, weight_decay=0.1)),
    "nadam": ("moments(p)", "(p, s) = nadam(p, g, s, rate, keep, 0.8, 0.01, 0.02)", lambda rate, keep: optax.nadam(rate, keep, 0.8, 0.01, 0.02)),
    "adamax": ("moments(p)", "(p, s) = adamax(p, g, s, rate, keep, 0.8, 0.01)", lambda rate, keep: optax.adamax(rate, keep, 0.8, 0.01)),
    "adadelta": ("moments(p)", "(p, s) = adadelta(p, g, s, rate, keep, 0.01)", lambda rate, keep: optax.adadelta(rate, keep, 0.01)),
    "rmsprop": ("zero(p)", "(p, s) = rmsprop(p, g, s, rate, keep)", lambda rate, keep: optax.rmsprop(rate, keep)),
    "adagrad": ("0.1 + zero(p)", "(p, s) = adagrad(p, g, s, rate)", lambda rate, keep: optax.adagrad(rate + 0 * keep)),
    "lion": ("zero(p)", "(p, s) = lion(p, g, s, rate, keep, 0.8)", lambda rate, keep: optax.lion(rate, keep, 0.8, weight_decay=0.0)),
}  # fmt: skip


def three(name: str) -> Like:
    state, step, method = WITH_RATES[name]

    def twin(p: Array, gs: Array, rate: Array, keep: Array) -> Array:
        chosen = method(rate, keep)
        state, path = chosen.init(p), []
        for g in gs:
            change, state = chosen.update(g, state, p)
            p = optax.apply_updates(p, change)
            path.append(p)
        return jnp.stack(path)

    body = f"|p0, gs, rate, keep| {{ var p = p0\n  var s = {state}\n  for k in 0..3 {{ let g = gs[k]\n    {step}\n    yield p }} }}"
    return Like(f"three steps of {name}", body, twin, (START, SLOPES, np.float64(0.3), np.float64(0.7)))


SLOPES = np.array([[0.5, -2.0, 0.1], [-0.3, -1.0, 3.0], [0.2, 1.5, -0.7]])
X = np.array([2.0, -1.0, 0.3, 0.7])
TABLE = [
    *map(three, WITH_RATES),
    Like("cosine_decay", "|r| [for k in 0..9 => cosine_decay(k, 6, r)]", lambda r: optax.cosine_decay_schedule(1.0, 6)(jnp.arange(9)) * r, (np.float64(0.3),)),
    Like("exponential_decay", "|r| [for k in 0..5 => exponential_decay(k, 3, r, 2.0)]", lambda r: 2.0 * r ** (jnp.arange(5) / 3), (np.float64(0.3),)),
    Like("linear_schedule", "|a, b| [for k in 0..9 => linear_schedule(k, 6, a, b)]", lambda a, b: optax.polynomial_schedule(a, b, 1, 6)(jnp.arange(9)), (np.float64(0.3), np.float64(1.3))),
    Like("warmup_cosine", "|r| [for k in 0..12 => warmup_cosine(k, 4, 10, r)]", lambda r: optax.warmup_cosine_decay_schedule(0.0, 1.0, 4, 10)(jnp.arange(12)) * r, (np.float64(0.3),)),
    Like("step_decay", "|r| [for k in 0..9 => step_decay(k, 3, 0.3, r)]", lambda r: r * 0.3 ** (jnp.arange(9) // 3), (np.float64(0.3),)),
    Like("polynomial_decay", "|a, b| [for k in 0..9 => polynomial_decay(k, 6, a, b, 2.0)]", lambda a, b: optax.polynomial_schedule(a, b, 2, 6)(jnp.arange(9)), (np.float64(0.3), np.float64(1.3))),
    Like("one_cycle", "|r| [for k in 0..12 => one_cycle(k, 10, r)]", lambda r: jnp.stack([optax.cosine_onecycle_schedule(10, 1.0)(k) for k in range(12)]) * r, (np.float64(0.3),)),
    Like("averaged", "|a, x| averaged(a, x, keep = 0.9)", lambda a, x: 0.9 * a + 0.1 * x, (X, X[::-1].copy())),
    Like("decayed", "|y, p| decayed(y, p, 0.3)", lambda y, p: y - 0.3 * p, (X, X[::-1].copy())),
    Like("accumulate", "|g, h| mean_gradient(accumulate(accumulate(gradient_sum(g), g, 3), h, 1))", lambda g, h: (3 * g + h) / 4, (X, X[::-1].copy())),
    Like("soft_threshold", "|x| soft_threshold(x, 0.5)", lambda x: jnp.sign(x) * jax.nn.relu(jnp.abs(x) - 0.5), (X,)),
    Like("clip_by_norm", "|g| clip_by_norm(g, 1.5)", lambda g: optax.clip_by_global_norm(1.5).update(g, ())[0], (X,)),
    Like("clip_by_norm of what is short", "|g| clip_by_norm(g, 9.0)", lambda g: g, (X,)),
    Like("clip_by_value", "|g| clip_by_value(g, 0.8)", lambda g: optax.clip(0.8).update(g, ())[0], (X,)),
    Like("project_box", "|x| project_box(x, -0.5, 1.0)", lambda x: op.projection_box(x, -0.5, 1.0), (X,)),
    Like("project_ball", "|x| project_ball(x, 0.5)", lambda x: op.projection_l2_ball(x, 0.5), (X,)),
    Like("project_simplex", "|x| project_simplex(x, 2.0)", lambda x: op.projection_simplex(x, 2.0), (X,)),
    Like("project_l1_ball", "|x| project_l1_ball(x, 2.0)", lambda x: op.projection_l1_ball(x, 2.0), (X,)),
    Like("project_l1_ball from within", "|x| project_l1_ball(x, 9.0)", lambda x: x, (X,)),
]  # fmt: skip
test_it_is_as_elsewhere = compared(TABLE, IMPORTS)


@pytest.mark.parametrize(
    "wrong",
    [
        "cosine_decay(1, 0, 1.0)",
        "exponential_decay(1, 0, 0.5, 1.0)",
        "linear_schedule(1, -1, 0.5, 1.0)",
        "warmup_cosine(1, 5, 5, 1.0)",
        "step_decay(1, 0, 0.5, 1.0)",
        "polynomial_decay(1, 0, 0.5, 1.0, 2.0)",
        "one_cycle(1, 0, 1.0)",
        "one_cycle(1, 9, 1.0, up = 1.0)",
        "averaged([1.0], [2.0], keep = 1.5)",
        "mean_gradient(gradient_sum([1.0]))",
        "soft_threshold([1.0], -1.0)",
        "clip_by_norm([1.0], -1.0)",
        "clip_by_value([1.0], -1.0)",
        "project_box([1.0], 1.0, 0.0)",
        "project_ball([1.0], -1.0)",
        "project_simplex([1.0], 0.0)",
        "project_l1_ball([1.0], 0.0)",
    ],
)
def test_what_does_not_fit(wrong: str) -> None:
    assert [c for c, _ in codes(f"{IMPORTS}let y = {wrong}\n")] == ["DL0901"]
