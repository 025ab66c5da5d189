"""Products over first axes are lowered for the CPU in the way that XLA does quickest there, and mean the same."""

import numpy as np
import pytest

import difflang

SHAPES = (
    ((40, 3), (40, 5)),  # the first factor is turned
    ((64, 9), (64, 2)),  # the factors are exchanged, and the second is turned
    ((5, 16, 9), (5, 16, 2)),  # exchanged
    ((5, 16, 9), (5, 16)),  # exchanged, a vector comes of it
    ((64, 3, 3), (64, 2)),
    ((64, 6), (64, 2, 1)),
    ((40, 9), (40, 6)),  # as they are: neither is much smaller
    ((2000, 4), (2000, 5)),  # too large to be turned
    ((8, 9), (8, 4)),  # the result would be larger than what is spared
    ((40, 1), (40, 3)),
    ((40,), (40, 3)),
    ((40, 3), (40,)),
    ((0, 3), (0, 5)),
    ((16, 0), (16, 5)),
    ((16, 5), (16, 0)),
)


def program(x: tuple[int, ...], y: tuple[int, ...], dtype: str) -> str:
    """Contracts the axes that both begin with."""
    k = sum(a == b for a, b in zip(x, y, strict=False)) if len(x) == 3 and x[:2] == y[:2] else 1
    names = "abcdefgh"
    summed, rows, columns = names[:k], names[k : len(x)], names[len(x) : len(x) + len(y) - k]
    sizes = dict(zip(summed + rows + columns, (*x, *y[k:]), strict=True))
    outer = ", ".join(f"{i} in 0..{sizes[i]}" for i in rows + columns)
    inner = ", ".join(f"{i} in 0..{sizes[i]}" for i in summed)
    item = f"sum([for {inner} => x[{', '.join(summed + rows)}] * y[{', '.join(summed + columns)}]])"
    shapes = [", ".join(map(str, s)) for s in (x, y)]
    return f"fn f(x: {dtype}[{shapes[0]}], y: {dtype}[{shapes[1]}]) = [for {outer} => {item}]"


@pytest.mark.parametrize("dtype", ["f64", "f32", "c128", "i32"])
@pytest.mark.parametrize(("x", "y"), SHAPES)
@pytest.mark.nightly_except("x([0-2]|4|5|9)-.*-(f32|f64|i32)")
def test_products_over_first_axes(x: tuple[int, ...], y: tuple[int, ...], dtype: str) -> None:
    rng = np.random.default_rng(0)
    kind = {"f64": np.float64, "f32": np.float32, "c128": np.complex128, "i32": np.int32}[dtype]
    a, b = (np.asarray(rng.integers(-9, 9, s) / (1 if dtype == "i32" else 4), kind) for s in (x, y))
    k = 2 if len(x) == 3 and x[:2] == y[:2] else 1
    f = difflang.loads(program(x, y, dtype), name="products").f
    np.testing.assert_array_equal(f(a, b), np.tensordot(a, b, (tuple(range(k)),) * 2))


def test_other_platforms_have_ways_of_their_own() -> None:
    f = difflang.loads(program((64, 9), (64, 2), "f32"), name="products").f
    x, y = np.ones((64, 9), np.float32), np.ones((64, 2), np.float32)
    assert "optimization_barrier" in f.lower(x, y, platform="cpu").as_text()
    assert "optimization_barrier" not in f.lower(x, y, platform="cuda").as_text()
