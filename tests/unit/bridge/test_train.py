"""Optax on records of parameters, training from a checkpoint on, and parameters in files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import difflang
from difflang.bridge import files, nested, train

Array = Any
STEPS = 3


@pytest.fixture(scope="module")
def m() -> Any:
    return difflang.loads("""
record Layer[i, o] { w: f32[i, o], b: f32[o] }
record Net[i, h, o] { first: Layer[i, h], last: Layer[h, o], name: str, depth: i32 }
record Wide { a: f64[2], b: f64 }
fn score(m: Net[i, h, o], x: f32[n, i]) -> f32[n, o] = tanh(x @ m.first.w + m.first.b) @ m.last.w + m.last.b
fn loss(m: Net[i, h, o], x: f32[n, i], y: f32[n, o]) -> f32 = mean((score(m, x) - y)^2)
fn bowl(m: Wide, x: f64) -> f64 = sum((m.a - x)^2) + log(m.b)
fn noisy(m: Wide) -> f64 = sum((m.a - normal(2))^2) + m.b^2
fn picked(m: Wide, i: i32) -> f64 = m.a[i]^2 + m.b
""")


def net(m: Any) -> Any:
    rng = np.random.default_rng(0)

    def layer(i: int, o: int) -> Any:
        return m.Layer(w=rng.normal(size=(i, o)).astype(np.float32), b=np.zeros(o, np.float32))

    return m.Net(first=layer(3, 4), last=layer(4, 2), name="small", depth=np.int32(2))


def wide(m: Any) -> Any:
    return m.Wide(a=np.array([1.0, 2.0]), b=np.float64(1.5))


BATCH = (
    np.linspace(-1, 1, 24, dtype=np.float32).reshape(8, 3),
    np.linspace(0, 1, 16, dtype=np.float32).reshape(8, 2),
)


def plain(p: Any, x: Array, y: Array) -> Array:
    """The same loss of dicts, in JAX."""
    hidden = jnp.tanh(x @ p["first"]["w"] + p["first"]["b"])
    return jnp.mean((hidden @ p["last"]["w"] + p["last"]["b"] - y) ** 2)


Recipe = Callable[[Callable[..., Any]], optax.GradientTransformation]
RECIPES: dict[str, Recipe] = {
    "adam": lambda mask: optax.adam(0.1),
    "decay on weights only": lambda mask: optax.adamw(0.1, weight_decay=0.1, mask=mask("first.w", "last.w")),
    "clipping by the global norm": lambda mask: optax.chain(optax.clip_by_global_norm(0.1), optax.sgd(0.1)),
    "one layer frozen": lambda mask: optax.chain(optax.sgd(0.1), optax.masked(optax.set_to_zero(), mask("first"))),
    "rates by layer": lambda mask: optax.chain(
        optax.masked(optax.sgd(0.1), mask("first")), optax.masked(optax.sgd(0.01), mask("last"))
    ),
    "momentum on a schedule": lambda mask: optax.sgd(optax.cosine_decay_schedule(0.1, STEPS), momentum=0.9),
    "several steps together": lambda mask: optax.MultiSteps(optax.adam(0.1), every_k_schedule=2),
    "rate in the state": lambda mask: optax.inject_hyperparams(optax.adam)(learning_rate=0.1),
    "norm of each layer": lambda mask: optax.lamb(0.1),
    "decay but for biases": lambda mask: optax.chain(
        optax.add_decayed_weights(0.1, mask("*.w")), optax.scale_by_rms(), optax.scale(-0.01)
    ),
}


@pytest.fixture(scope="module")
def trained(m: Any) -> dict[str, tuple[Any, Any]]:
    """By recipe, the parameters after a few steps: as a record, and as dicts. All of it is one program."""
    first = nested.to_nested_dict(moving(net(m)))

    def run(make: Recipe, start: Any, slope: Callable[[Any], Any]) -> Any:
        optimizer = make(lambda *patterns: lambda tree: nested.masked(tree, *patterns))
        params, state = start, optimizer.init(start)
        for _ in range(STEPS):
            updates, state = optimizer.update(slope(params), state, params)
            params = optax.apply_updates(params, updates)
        return params

    fixed = train.split_differentiable(net(m))[1]
    slopes = lambda p: moving(net(m), m.loss.grad()(train.join_params(p, fixed), *BATCH))
    theirs = jax.grad(lambda p: plain(p, *BATCH))
    everything = lambda: {name: (run(r, moving(net(m)), slopes), run(r, first, theirs)) for name, r in RECIPES.items()}
    return jax.jit(everything)()


def moving(tree: Any, values: Any = None) -> Any:
    """The parameters of a net without what has no derivative, or such a structure of other values."""
    part = train.split_differentiable(tree)[0]
    return part if values is None else jax.tree.unflatten(jax.tree.structure(part), jax.tree.leaves(values))


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_of_optax_does_the_same_on_records_and_dicts(trained: Any, name: str) -> None:
    ours, theirs = trained[name]
    assert type(ours).__name__ == "Net"
    for path, wanted in nested.named_leaves(theirs):
        np.testing.assert_allclose(dict(nested.named_leaves(ours))[path], wanted, rtol=2e-5, atol=1e-6, err_msg=path)


def test_a_step_changes_what_has_a_derivative(m: Any) -> None:
    state = train.step(m.loss, optax.sgd(0.1))(train.start(net(m), optax.sgd(0.1)), *BATCH)
    assert type(state.params) is m.Net and state.params.depth == 2 and state.params.name == "small"
    slope = m.loss.grad()(net(m), *BATCH)
    np.testing.assert_allclose(state.params.last.b, -0.1 * slope.last.b, rtol=1e-6)


def test_a_mask_names_what_is_there(m: Any) -> None:
    assert nested.masked(net(m), "first.w", "last").first.w is True
    assert nested.masked(net(m), "*.b").last.b is True and nested.masked(net(m), "*.b").last.w is False
    with pytest.raises(difflang.DifflangError, match=r"no parameter matches `frist`"):
        nested.masked(net(m), "frist")


@pytest.mark.parametrize("suffix", ["npz", "safetensors"])
def test_parameters_and_optimizers_come_back_bit_for_bit(m: Any, tmp_path: Path, suffix: str) -> None:
    params = m.Wide(a=np.array([0.1, np.nextafter(1.0, 2)]), b=np.float64(np.pi))
    state = train.start(params, optax.adam(0.1), key=3)
    for tree in (params, state, net(m)):
        files.save(tmp_path / f"x.{suffix}", tree)
        found = files.load(tmp_path / f"x.{suffix}", tree)
        assert jax.tree.structure(found) == jax.tree.structure(tree)
        for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(tree), strict=True):
            assert np.asarray(a).dtype == np.asarray(b).dtype and np.array_equal(a, b, equal_nan=True)


def test_files_that_do_not_fit(m: Any, tmp_path: Path) -> None:
    files.save(tmp_path / "a.npz", net(m))
    with pytest.raises(difflang.DataError, match="it has no `a`"):
        files.load(tmp_path / "a.npz", wide(m))
    files.save(tmp_path / "b.npz", {"a": np.zeros(3), "b": np.float64(0)})
    with pytest.raises(difflang.DataError, match=r"expected f64\[2\] for `a`, found f64\[3\]"):
        files.load(tmp_path / "b.npz", wide(m))
    with pytest.raises(difflang.DataError, match="no such file"):
        files.load(tmp_path / "c.npz", wide(m))
    with pytest.raises(difflang.ArgumentError, match="is not an archive"):
        files.save(tmp_path / "a.pickle", wide(m))
    (tmp_path / "d.npz").write_bytes(b"PK\3\4 and then nothing")
    with pytest.raises(difflang.DataError):
        files.load(tmp_path / "d.npz", wide(m))


def test_a_training_goes_on_from_its_checkpoint(m: Any, tmp_path: Path) -> None:
    def batch(k: int) -> tuple[Array, ...]:
        return (np.float64(k % 3),)

    rows: list[dict[str, float]] = []
    optimizer, metrics = optax.adam(0.1), {"largest": lambda p, x: np.max(p.a)}
    whole = train.fit(m.bowl, wide(m), batch, optimizer, steps=8, every=3, metrics=metrics, report=rows.append)
    assert [row["step"] for row in rows] == [3, 6, 8] and rows == whole.history and "largest" in rows[0]
    assert whole.params.a.dtype == np.float64 and repr(whole).startswith("<8 steps, loss ")
    place = tmp_path / "state.npz"
    train.fit(m.bowl, wide(m), batch, optimizer, steps=5, every=2, checkpoint=place)
    rest = train.fit(m.bowl, wide(m), batch, optimizer, steps=8, every=3, checkpoint=place)
    assert [row["step"] for row in rest.history] == [6, 8]
    for a, b in zip(jax.tree.leaves(rest.state), jax.tree.leaves(whole.state), strict=True):
        np.testing.assert_array_equal(a, b)
    again = train.fit(m.bowl, wide(m), [batch(k) for k in range(20)], optimizer, steps=8, checkpoint=place)
    assert again.history == [] and int(again.state.step) == 8


def test_a_loss_that_draws_has_a_key_for_each_step(m: Any) -> None:
    found = [train.fit(m.noisy, wide(m), lambda k: (), optax.sgd(0.1), steps=3, every=1, key=s) for s in (1, 1, 2)]
    losses = [[row["loss"] for row in f.history] for f in found]
    assert losses[0] == losses[1] != losses[2] and len(set(losses[0])) == 3
    with pytest.raises(difflang.ArgumentError, match="needs a key"):
        train.fit(m.noisy, wide(m), lambda k: (), optax.sgd(0.1), steps=1)


def test_it_stops_where_something_is_not_finite(m: Any) -> None:
    with pytest.raises(difflang.NonFiniteError, match="the loss is nan in step 2") as error:
        train.fit(m.bowl, wide(m), lambda k: (np.float64(0),), optax.sgd(3.0), steps=9)
    assert isinstance(error.value, FloatingPointError)
    flat = difflang.loads("fn f(x: f32[2]) -> f32 = sum(sqrt(x))").f
    with pytest.raises(difflang.NonFiniteError, match="the gradient with respect to `value` is not finite in step 1"):
        train.fit(flat, np.zeros(2, np.float32), lambda k: (), optax.sgd(0.1), steps=3)


def test_a_check_that_fails_in_the_loss_is_told(m: Any) -> None:
    with pytest.raises(difflang.IndexFailure, match="index 2 is out of range"):
        train.fit(m.picked, wide(m), lambda k: (np.int32(2 * k),), optax.sgd(0.1), steps=9)


# ---- What is refused, and what is taken after all


def test_a_complex_parameter_goes_down(m: Any) -> None:
    """JAX's gradient of one is mirrored: against it, the imaginary part climbs."""
    far = difflang.loads("fn far(z: c64[2]) -> f32 = sum(abs(z - 1j)^2)").far
    fitted = train.fit(far, np.array([0.5 + 0.2j, -1], np.complex64), lambda k: (), optax.sgd(0.1), steps=60)
    np.testing.assert_allclose(fitted.params, [1j, 1j], atol=1e-4)


def test_batches_without_an_end_are_taken_as_far_as_asked(m: Any) -> None:
    taken: list[int] = []

    def endless() -> Any:
        for k in range(10**9):
            taken.append(k)
            yield (np.float64(0.5),)

    assert int(train.fit(m.bowl, wide(m), endless(), optax.sgd(0.01), steps=3).state.step) == 3
    assert taken == [0, 1, 2]


def test_optimizers_that_look_along_a_line(m: Any) -> None:
    hill = difflang.loads("fn hill(x: f32[2]) -> f32 = 100 * (x[1] - x[0]^2)^2 + (1 - x[0])^2").hill
    fitted = train.fit(hill, np.array([-1.0, 1.0], np.float32), lambda k: (), optax.lbfgs(), steps=40)
    np.testing.assert_allclose(fitted.params, 1.0, atol=1e-2)


def test_an_optimizer_that_is_no_tuple(m: Any) -> None:
    """`optax.MultiSteps` only has its functions: two steps of half the batch are one."""
    halves = [(np.float64(0.0),), (np.float64(1.0),)]
    found = train.fit(m.bowl, wide(m), halves, optax.MultiSteps(optax.sgd(0.1), 2)).params
    slopes = [np.asarray(m.bowl.grad()(wide(m), x).a) for (x,) in halves]
    np.testing.assert_allclose(found.a, wide(m).a - 0.05 * (slopes[0] + slopes[1]), rtol=1e-12)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "rows at no step": ({"every": 0}, "`every` is 0"),
    "no batch": ({"batches": []}, "there are no batches"),
    "a generator that is empty": ({"batches": iter(())}, "there are no batches"),
    "no end": ({"steps": None}, "the number of steps is not known"),
    "no batches": ({"batches": 3.0}, "a float is not a `batches`"),
    "not an optimizer": ({"optimizer": None}, "a NoneType is not an optimizer"),
    "an array": ({"loss": lambda p, x: p.a - x}, r"the loss is f64\[2\], but it must be one real number"),
    "an integer": ({"loss": lambda p, x: 3}, "the loss is one i"),
    "a text": ({"loss": lambda p, x: "low"}, "the loss is a str"),
    "a complex loss": ({"loss": lambda p, x: p.b * 1j}, "the loss is one c128"),
    "a metric": ({"metrics": {"a": lambda p, x: p.a}}, r"`a` is f64\[2\], but it must be one real number"),
    "a key": ({"key": "seed"}, "'seed' is not a random key"),
    "a float for a key": ({"key": 1.5}, "1.5 is not a random key"),
    "no floats": ({"params": {"n": np.int32(1)}}, "no parameter has a derivative"),
    "batches of another type": ({"batches": [(np.float32(1),)]}, "f32 was given"),
    "too much in a batch": ({"batches": [(np.float64(1), 2.0)]}, "takes 2 arguments, not 3"),
    "a mask": (
        {"optimizer": optax.add_decayed_weights(0.1, lambda p: nested.masked(p, "aa"))}, "no parameter matches `aa`",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_refused(m: Any, name: str) -> None:
    given, why = REFUSED[name]
    usual = {"loss": m.bowl, "params": wide(m), "batches": lambda k: (np.float64(0.5),), "optimizer": optax.sgd(0.1)}
    with pytest.raises(difflang.ArgumentError, match=why):
        train.fit(**{**usual, "steps": 2, **given})


@pytest.mark.parametrize("key", [3, np.int64(3), jax.random.key(3), jax.random.PRNGKey(3)], ids=str)
def test_keys_of_every_kind(m: Any, key: Any) -> None:
    np.testing.assert_array_equal(train.start(wide(m), optax.sgd(0.1), key=key).key, [0, 3])


def test_an_empty_batch_is_no_number(m: Any) -> None:
    line = difflang.loads("fn line(w: f32, x: f32[n]) -> f32 = mean((w * x)^2)").line
    with pytest.raises(difflang.NonFiniteError, match="the loss is nan in step 1"):
        train.fit(line, np.float32(1), [np.zeros(0, np.float32)], optax.sgd(0.1))


def test_a_process_that_is_gone_is_said_so(m: Any) -> None:
    def batches(step: int) -> Any:
        raise RuntimeError("UNKNOWN: Gloo all-reduce failed: Connection closed by peer" if step else "Glue")

    with pytest.raises(difflang.LimitError, match=r"(?s)DL1262.*process 0 of 1 lost the others.*`checkpoint`"):
        train.fit(m.bowl, wide(m), lambda k: batches(k) if k else (np.float64(0.5),), optax.sgd(0.1), steps=3)
    with pytest.raises(RuntimeError, match="Glue"):
        train.fit(m.bowl, wide(m), batches, optax.sgd(0.1), steps=3)


def cut(sizes: tuple[int, ...]) -> list[tuple[Array, Array]]:
    """Batches of so many of the rows."""
    ends = np.cumsum(sizes)
    return [tuple(a[end - n : end] for a in BATCH) for n, end in zip(sizes, ends, strict=True)]  # type: ignore[misc]


@pytest.mark.parametrize("optimizer", [optax.adamw(0.1, weight_decay=0.1), optax.lbfgs()], ids=["adamw", "lbfgs"])
@pytest.mark.parametrize("sizes", [(4, 4), (3, 3, 2), (8,)])
def test_accumulated_gradients_are_those_of_the_whole_batch(m: Any, optimizer: Any, sizes: tuple[int, ...]) -> None:
    """Also for parts of several sizes, and for an optimizer that calls the loss."""
    whole = train.fit(m.loss, net(m), [BATCH] * 3, optimizer, every=1, metrics={"again": m.loss})
    parts = train.fit(
        m.loss, net(m), cut(sizes) * 3, optimizer, accumulate=len(sizes), every=1, metrics={"again": m.loss}
    )
    for a, b in zip(jax.tree.leaves(whole.params), jax.tree.leaves(parts.params), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6) if not isinstance(a, str) else None
    assert int(parts.state.step) == 3 and len(parts.history) == 3
    for one, other in zip(whole.history, parts.history, strict=True):
        assert one == pytest.approx(other, rel=1e-5)


def test_the_last_step_takes_what_is_left_and_a_checkpoint_counts_steps(m: Any, tmp_path: Path) -> None:
    batches = cut((2, 2, 2, 2)) * 2

    def fit(steps: int | None, **more: Any) -> train.FitResult:
        return train.fit(m.loss, net(m), batches, optax.sgd(0.1), steps=steps, accumulate=3, **more)

    once = fit(None)
    assert int(once.state.step) == 3
    fit(1, checkpoint=tmp_path / "s.npz")
    again = fit(None, checkpoint=tmp_path / "s.npz")
    assert int(again.state.step) == 3 and np.array_equal(once.params.first.w, again.params.first.w)
    taken: list[int] = []
    train.fit(m.loss, net(m), lambda k: (taken.append(k), BATCH)[1], optax.sgd(0.1), steps=2, accumulate=2)
    assert taken == [0, 1, 2, 3]


def test_each_part_of_a_step_draws_its_own_numbers(m: Any) -> None:
    def loss(p: Any, key: Any) -> Any:
        return m.noisy(p, key=key)

    two, one = (train.fit(loss, wide(m), [()] * n, optax.sgd(0.1), key=0, accumulate=n) for n in (2, 1))
    assert not np.array_equal(two.params.a, one.params.a)


def test_a_number_of_parts_is_positive(m: Any) -> None:
    with pytest.raises(difflang.ArgumentError, match="`accumulate` is 0, but it must be at least 1"):
        train.fit(m.loss, net(m), [BATCH], optax.sgd(0.1), accumulate=0)
