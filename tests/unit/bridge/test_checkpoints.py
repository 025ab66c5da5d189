"""Checkpoints by orbax and in files: bit for bit, the same curve after a resume, and what is no state of a training."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import difflang
from difflang.bridge import files, train
from difflang.bridge.orbax import Checkpoints


@pytest.fixture(scope="module")
def m() -> Any:
    return difflang.loads("""
record Wide { a: f64[2], b: f64, n: i32 }
fn bowl(m: Wide, x: f64) -> f64 = sum((m.a - x)^2) + m.b^4
""")


def wide(m: Any) -> Any:
    return m.Wide(a=np.array([1.0, 2.0]), b=np.float64(1.5), n=np.int32(7))


def batch(k: int) -> tuple[Any, ...]:
    return (np.float64(k % 3),)


EVERYTHING = {
    "last": np.float64(np.nextafter(1, 2)),
    "not": np.array([np.nan, -0.0, np.inf, 5e-324]),
    "half": jnp.ones(2, jnp.bfloat16) / 3,
    "z": np.array([1 + 2j], np.complex64),
    "none": np.zeros((0, 3), np.int8),
    "key": jax.random.key(3),
    "text": "é",
    "n": 3,
    "x": 0.1,
    "yes": True,
    "deep": [{"w": np.arange(4, dtype=np.uint64)}],
}


def same(a: Any, b: Any) -> bool:
    """Bit for bit, and of one kind."""
    if isinstance(a, (str, bool, int, float)) and not isinstance(a, np.generic):
        return type(a) is type(b) and a == b
    if not isinstance(a.dtype, np.dtype):
        return a.dtype == b.dtype and same(jax.random.key_data(a), jax.random.key_data(b))
    a, b = np.asarray(a), np.asarray(b)
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def test_everything_comes_back_bit_for_bit(tmp_path: Path) -> None:
    states = Checkpoints(tmp_path / "states", keep=2)
    for step in (1, 2, 2, 5):
        states.save(step, EVERYTHING)
    assert states.steps == [2, 5]
    files.save(tmp_path / "x.npz", EVERYTHING)
    for found in (states.load(EVERYTHING), states.load(EVERYTHING, 2), files.load(tmp_path / "x.npz", EVERYTHING)):
        assert jax.tree.structure(found) == jax.tree.structure(EVERYTHING)
        pairs = zip(jax.tree.leaves(EVERYTHING), jax.tree.leaves(found), strict=True)
        assert [(a, b) for a, b in pairs if not same(a, b)] == []
    states.close()


def test_a_resumed_training_has_the_same_curve(m: Any, tmp_path: Path) -> None:
    optimizer = optax.adam(optax.cosine_decay_schedule(0.1, 8))
    whole = train.fit(m.bowl, wide(m), batch, optimizer, steps=8, every=1)
    train.fit(m.bowl, wide(m), batch, optimizer, steps=5, every=2, checkpoint=tmp_path / "run")
    rest = train.fit(m.bowl, wide(m), batch, optimizer, steps=8, every=1, checkpoint=tmp_path / "run")
    assert rest.history == whole.history[5:]
    pairs = zip(jax.tree.leaves(rest.state), jax.tree.leaves(whole.state), strict=True)
    assert all(same(a, b) for a, b in pairs) and rest.params.n == 7
    states = Checkpoints(tmp_path / "run")
    assert states.steps == [6, 7, 8]
    early = states.load(train.start(wide(m), optimizer), 6)
    assert int(early.step) == 6
    with pytest.raises(difflang.DataError, match="no state for step 2"):
        states.load(early, 2)
    states.close()


def test_a_state_of_another_training_is_refused(m: Any, tmp_path: Path) -> None:
    for place in (tmp_path / "run", tmp_path / "run.npz"):
        train.fit(m.bowl, wide(m), batch, optax.adam(0.1), steps=2, checkpoint=place)
        for other in (optax.sgd(0.1), optax.sgd(0.1, momentum=0.9)):  # the first would leave adam's numbers behind
            with pytest.raises(difflang.DataError, match=r"also has `optimizer.0.count`"):
                train.fit(m.bowl, wide(m), batch, other, steps=4, checkpoint=place)
        narrow = {"a": np.ones(3), "b": np.float64(1), "n": np.int32(1)}
        with pytest.raises(difflang.DataError, match=r"expected f64\[3\] for `params.a`, found f64\[2\]"):
            train.fit(m.bowl, narrow, batch, optax.adam(0.1), steps=4, checkpoint=place)


def test_a_damaged_state_is_told(tmp_path: Path) -> None:
    states = Checkpoints(tmp_path / "run")
    states.save(1, {"a": np.ones(2)})
    states.close()
    for file in (tmp_path / "run" / "1").rglob("*"):
        if file.is_file() and "METADATA" not in file.name and "commit" not in file.name:
            file.write_bytes(b"\0" * 10)
    states = Checkpoints(tmp_path / "run")
    with pytest.raises(difflang.DataError, match="the state of step 1"):
        states.load({"a": np.ones(2)})
    states.close()


def test_where_states_are_kept_is_looked_at_first(m: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[int] = []
    fit = lambda place: train.fit(
        m.bowl, wide(m), lambda k: steps.append(k) or batch(k), optax.sgd(0.1), steps=2, checkpoint=place
    )
    with pytest.raises(difflang.ArgumentError, match="is not an archive"):
        fit(tmp_path / "a.pkl")
    with pytest.raises(difflang.DataError, match="no such folder"):
        fit(tmp_path / "not" / "a.npz")
    (tmp_path / "file").write_text("")
    with pytest.raises(difflang.DataError):
        fit(tmp_path / "file")
    with pytest.raises(difflang.ArgumentError, match="at least one"):
        Checkpoints(tmp_path / "x", keep=0)
    monkeypatch.setitem(sys.modules, "orbax.checkpoint", None)
    with pytest.raises(difflang.DataError, match=r"pip install 'difflang\[orbax\]'"):
        fit(tmp_path / "run")
    assert steps == []


def test_a_number_that_became_an_array_goes_on_as_one(tmp_path: Path) -> None:
    line = difflang.loads("fn line(w: f32, x: f32[n]) -> f32 = mean((w * x - 1.0)^2)").line
    ones = lambda k: (np.ones(3, np.float32),)
    whole = train.fit(line, 0.5, ones, optax.sgd(0.1), steps=6)
    train.fit(line, 0.5, ones, optax.sgd(0.1), steps=3, checkpoint=tmp_path / "w.npz")
    assert train.fit(line, 0.5, ones, optax.sgd(0.1), steps=6, checkpoint=tmp_path / "w.npz").params == whole.params


# ---- Files


def test_two_leaves_of_one_path_are_refused(tmp_path: Path) -> None:
    both = {"a.b": np.ones(1), "a": {"b": np.zeros(1)}}
    with pytest.raises(difflang.ArgumentError, match=r"two leaves have the path `a.b`"):
        files.save(tmp_path / "x.npz", both)
    files.save(tmp_path / "x.npz", {"a": {"b": np.zeros(1)}})
    with pytest.raises(difflang.ArgumentError, match=r"two leaves have the path `a.b`"):
        files.load(tmp_path / "x.npz", both)


@pytest.mark.parametrize(
    ("kept", "like", "why"),
    [
        ("text", np.zeros(2), r"expected f64\[2\] for `v`, found a text"),
        (np.zeros(2), "text", r"expected a text for `v`, found f64\[2\]"),
        (np.zeros(2), 1.5, r"expected a Python float for `v`, found f64\[2\]"),
        (1.5, 2, r"expected a Python int for `v`, found f64\[\]"),
        (np.zeros(2), jax.random.key(0), r"expected u32\[2\] for `v`, found f64\[2\]"),
    ],
)
def test_leaves_of_another_kind_are_refused(tmp_path: Path, kept: Any, like: Any, why: str) -> None:
    files.save(tmp_path / "x.npz", {"v": kept})
    with pytest.raises(difflang.DataError, match=why):
        files.load(tmp_path / "x.npz", {"v": like})


def test_what_is_no_array_is_refused(tmp_path: Path) -> None:
    with pytest.raises(difflang.ArgumentError, match="`v` is an object, not an array"):
        files.save(tmp_path / "x.npz", {"v": object()})
    assert not (tmp_path / "x.npz").exists()
