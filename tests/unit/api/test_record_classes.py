"""Records in Python: they pickle, are copied, and have gradients of the kind that they were given as."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import difflang

SOURCE = """
record Layer[d] { w: f64[d], b: f64 }
record Model[d] { first: Layer[d], scale: f64, name: str }
fn score(m: Model[d], x: f64[d]) -> f64 = m.scale * (m.first.w @ x + m.first.b)
fn loss(m: Layer[d], x: f64[d]) -> f64 = (m.w @ x + m.b)^2
fn same(m: Model[d]) -> Model[d] = m
"""
MODULE: Any = difflang.loads(SOURCE, name="records_in_python")
X = np.array([1.0, 1e-17])
MODEL = {"first": {"w": X, "b": 0.1}, "scale": 1 / 3, "name": "a"}


@dataclasses.dataclass
class Layer:
    w: Any
    b: Any


def test_a_record_pickles_as_the_class_of_its_module() -> None:
    model = MODULE.same(MODEL)
    found = pickle.loads(pickle.dumps(model))  # noqa: S301 - our own bytes
    assert type(found) is type(model) and type(found.first) is type(model.first)
    assert found.name == "a"
    assert found.scale.dtype == np.float64 and float(found.scale) == 1 / 3
    np.testing.assert_array_equal(found.first.w, X)
    assert float(MODULE.score(found, X)) == float(MODULE.score(model, X))
    gradient = MODULE.score.grad("m", "x")(model, X)
    again = pickle.loads(pickle.dumps(gradient))  # noqa: S301 - our own bytes
    assert again.x.tolist() == gradient.x.tolist()


def test_a_record_pickled_by_the_first_version_loads() -> None:
    data = (
        b"cdifflang.runtime.records\nrestored\n(cdifflang.runtime.records\nShape\n"
        b"(Vpickled\nVLayer\n(Vw\nVname\nt(Vname\nttR(F0.5\nVa\nttR."
    )
    found = pickle.loads(data)  # noqa: S301 - our own bytes
    assert (found.w, found.name) == (0.5, "a") and type(found).__name__ == "Layer"


def test_it_pickles_where_the_module_is_not_loaded(tmp_path: Path) -> None:
    (tmp_path / "model").write_bytes(pickle.dumps(MODULE.same(MODEL)))
    program = (
        "import pickle, jax\n"
        "m = pickle.load(open('model', 'rb'))\n"
        "print(type(m).__name__, m.name, m.scale == 1 / 3, m.first.w.dtype, len(jax.tree.leaves(m)))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["Model", "a", "True", "float64", "3"]


def test_a_copy_holds_what_it_held() -> None:
    model = MODULE.same(MODEL)
    assert copy.copy(model).first is model.first
    deep = copy.deepcopy(model)
    assert type(deep) is type(model) and isinstance(deep.first.w, jax.Array)
    assert deep.first.w.dtype == np.float64


def test_the_gradient_in_a_dict_is_a_dict() -> None:
    layer: dict[str, Any] = {"w": X, "b": 0.1}
    found = MODULE.loss.grad("m")(layer, X)
    assert type(found) is dict and jax.tree.structure(found) == jax.tree.structure(layer)
    value, both = MODULE.loss.value_and_grad("m", "x")(layer, X)
    assert float(value) == float(MODULE.loss(layer, X))
    assert type(both.m) is dict and both.m["b"] == found["b"]
    assert type(MODULE.loss.hvp("m")(layer, X, layer)) is dict
    assert type(MODULE.score.grad("m.first")(MODEL, X)) is dict
    nested = MODULE.score.grad("m")(MODEL, X)
    assert type(nested) is dict and type(nested["first"]) is dict and "name" not in nested
    for f in (MODULE.loss.grad("m"), MODULE.loss.grad("m").interpret):
        assert [type(f(given, X)).__name__ for given in (layer, MODULE.Layer(w=X, b=0.1), Layer(X, 0.1))] == [
            "dict", "Layer", "Layer",
        ]  # fmt: skip
        assert type(f(Layer(X, 0.1), X)) is MODULE.Layer


@pytest.mark.parametrize(("name", "at", "want"), [
    ("deriv", 2.0, 12.0), ("jacfwd", 2.0, 12.0), ("jacrev", 2.0, 12.0), ("jacobian", 2.0, 12.0), ("hessian", 2.0, 12.0),
])  # fmt: skip
def test_every_derivative_is_a_method(name: str, at: float, want: float) -> None:
    f: Any = difflang.loads("fn f(x: f64) -> f64 = x^3", name="cube").f
    assert float(getattr(f, name)()(at)) == want


@pytest.mark.parametrize(
    ("values", "named", "said"),
    [
        ((), {"mass": 1.0, "sped": 2.0}, "`Body` has no field `sped`: did you mean `speed`?"),
        ((1.0,), {"colour": 2.0}, "`Body` has no field `colour`: it has mass, speed"),
        ((1.0,), {}, "`Body` is missing `speed`"),
        ((1.0, 2.0, 3.0), {}, "positional arguments"),
        ((1.0,), {"mass": 1.0}, "multiple values for argument 'mass'"),
    ],
)
def test_a_record_made_of_other_fields(values: tuple[float, ...], named: dict[str, float], said: str) -> None:
    body = difflang.loads("record Body { mass: f64, speed: f64 }").Body
    with pytest.raises(TypeError) as error:
        body(*values, **named)
    assert said in str(error.value)
    assert list(inspect.signature(body).parameters) == ["mass", "speed"]
