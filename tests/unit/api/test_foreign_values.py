"""Tables and tensors of other libraries as arguments, and results as their tables; none is needed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
import pytest

import difflang
import difflang.runtime
from difflang.bridge import train

COLUMNS = {"name": ["a", "b", "a"], "x": np.array([1.0, 2.0, 3.0]), "k": np.array([1, 2, 3], np.int32)}


@pytest.fixture(scope="module")
def m() -> Any:
    return difflang.loads("""
record Row { name: str, x: f64, k: i32 }
record Pair { x: f64, k: i32 }
fn average(x: f64[n]) -> f64 = mean(x)
fn total(x: f64[n, d]) -> f64 = sum(x)
fn weighted(t: Row[n]) -> f64 = dot(t.x, f64(t.k)) + sum([for r in t => if r.name == "b" { 100.0 } else { 0.0 }])
fn product(t: Pair[n]) -> f64 = dot(t.x, f64(t.k))
fn turned(t: Row[n]) -> Row[n] = reverse(t)
fn off(w: f64, x: f64[n]) -> f64 = mean((w - x)^2)
""")


def pandas_table() -> Any:
    return pytest.importorskip("pandas").DataFrame(COLUMNS)


def polars_table() -> Any:
    return pytest.importorskip("polars").DataFrame(COLUMNS)


def arrow_table() -> Any:
    return pytest.importorskip("pyarrow").table(COLUMNS)


@pytest.mark.parametrize("make", [pandas_table, polars_table, arrow_table])
def test_a_table_is_an_array_of_records(m: Any, make: Any, tmp_path: Path) -> None:
    """By the names of its columns; others are left out."""
    table = make()
    assert float(m.weighted(table)) == 114.0 and float(m.product(table)) == 14.0
    assert float(m.average(table["x"])) == 2.0
    assert np.array_equal(m.product.grad()(table)["x"], [1, 2, 3])
    m.product.export(tmp_path / "f.dflx", table, platforms=())
    assert float(difflang.runtime.load(tmp_path / "f.dflx")(table)) == 14.0
    with pytest.raises(difflang.ArgumentError, match="missing the field `x`"):
        m.product(table[["k"]] if make is pandas_table else table.select(["k"]))


def test_a_result_is_a_table_of_pandas_again(m: Any) -> None:
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame(vars(m.turned(pandas_table())))
    assert list(table.columns) == ["name", "x", "k"] and list(table.name) == ["a", "b", "a"]
    assert table.x.to_numpy().tolist() == [3, 2, 1] and float(m.weighted(table)) == 114.0


def test_frames_of_numbers_are_matrices(m: Any) -> None:
    for make in (pandas_table, polars_table):
        table = make()
        assert float(m.total(table[["x"]])) == 6.0
        with pytest.raises(difflang.ArgumentError, match="no element type"):
            m.total(table)


def test_missing_values_are_refused(m: Any) -> None:
    pandas = pytest.importorskip("pandas")
    with pytest.raises(difflang.ArgumentError, match="`x` has missing values"):
        m.average(pandas.Series([1.0, None], dtype="Float64"))
    with pytest.raises(difflang.ArgumentError, match=r"`t.x` has missing values"):
        m.product(pandas.DataFrame({"x": pandas.array([1.0, None], "Float64"), "k": np.ones(2, np.int32)}))
    assert np.isnan(m.average(pandas.Series([1.0, np.nan])))


def test_nulls_of_polars_are_refused(m: Any) -> None:
    polars = pytest.importorskip("polars")
    with pytest.raises(difflang.ArgumentError, match="fill_null"):
        m.average(polars.Series([1.0, None]))


def test_xarray(m: Any) -> None:
    xarray = pytest.importorskip("xarray")
    array = xarray.DataArray(np.ones((2, 3)), dims=("n", "d"))
    assert float(m.total(array)) == 6.0 and float(m.average(array[0])) == 1.0
    data = xarray.Dataset({n: ("i", COLUMNS[n]) for n in ("x", "k")})
    assert float(m.product(data)) == 14.0
    with pytest.raises(difflang.ArgumentError, match="pass one of its columns: x, k"):
        m.average(data)


def test_torch(m: Any) -> None:
    torch = pytest.importorskip("torch")
    x = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
    assert float(m.average(x)) == 2.0 and float(m.average(x[::2])) == 2.0 and float(m.average(x)) == 2.0
    assert float(m.product({"x": x, "k": torch.tensor([1, 2, 3], dtype=torch.int32)})) == 14.0
    with pytest.raises(difflang.ArgumentError, match="detach"):
        m.average(x.clone().requires_grad_())
    with pytest.raises(difflang.ArgumentError, match="f32"):
        m.average(x.float())


class Tensor:
    """A tensor that has nothing but DLPack."""

    def __init__(self, array: Any, fails: bool = False) -> None:
        self.array, self.fails = array, fails

    def __dlpack__(self, **options: Any) -> Any:
        if self.fails:
            raise BufferError("it requires gradient")
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


def test_tensors_come_by_dlpack(m: Any) -> None:
    for n in (3, 5, 3):
        assert float(m.average(Tensor(np.arange(float(n))))) == (n - 1) / 2
    assert float(jax.jit(lambda: m.average(Tensor(np.ones(3))))()) == 1.0
    with pytest.raises(difflang.ArgumentError, match="it requires gradient"):
        m.average(Tensor(np.ones(3), fails=True))
    fitted = train.fit(m.off, np.float64(0), [(Tensor(np.full(3, 2.0)),)] * 200, optax.sgd(0.1))
    assert float(fitted.params) == pytest.approx(2.0)
