"""How results are split over a mesh, if params are."""

from __future__ import annotations

import pytest

from derivatives import FLOAT, INT, choose, literal, mapped, op, repeat, total, wide
from difflang.base.diagnostics import DifflangError
from difflang.ir.builder import build_region
from difflang.ir.graph import Value
from difflang.ir.op import OPS
from difflang.ir.tensor_types import F64, Tensor
from difflang.ops.arrays.reshard import Split
from difflang.sharding.mesh_splits import MeshSplits, result_splits

MESH = {"a": 2, "b": 2}
ROW, TABLE, SQUARE = Tensor(F64, (8,)), Tensor(F64, (8, 4)), Tensor(F64, (4, 4))
IMAGES, KERNEL = Tensor(F64, (2, 8, 4, 2)), Tensor(F64, (3, 3, 2, 2))


def dot(x: Value, y: Value) -> Value:
    return op("dot_general", x, y, contract=((1,), (0,)), batch=((), ()))


def turned(x: Value) -> Value:
    return op("transpose", x, perm=(1, 0))


def convolved(x: Value, w: Value, low: int, high: int, stride: int = 1) -> Value:
    ones, margins = (1, 1), ((low, high), (1, 1))
    spread = {"input_dilation": ones, "kernel_dilation": ones, "groups": 1}
    return op("conv", x, w, strides=(stride, 1), padding=margins, **spread)


def row_totals(x: Value) -> Value:
    return op("reduce_sum", x, axes=(1,))


def pulled(x: Value, y: Value) -> list[Value]:
    f = build_region([TABLE, SQUARE], lambda x, y: [total(dot(x, y))])
    return list(OPS["vjp"](x, y, literal(x, 1.0, FLOAT), regions=(f,), wrt=(True, True)))


GRAPHS = {
    "an op of each element": (build_region([ROW, ROW], lambda x, y: [x * y]), "a -", "a"),
    "a whole second operand": (build_region([ROW, ROW], lambda x, y: [x * y]), "- a", "a"),
    "a product": (build_region([TABLE, SQUARE], lambda x, y: [dot(x, y)]), "a- -b", "ab"),
    "a sum over a split axis": (build_region([TABLE, SQUARE], lambda x, y: [dot(x, y)]), "-a a-", "--"),
    "a transposed table": (build_region([TABLE], lambda x: [turned(x)]), "ab", "ba"),
    "sums of rows": (build_region([TABLE], lambda x: [row_totals(x), total(x)]), "ab", "a "),
    "a wider array": (build_region([FLOAT], lambda x: [wide(x, 4)]), "", "-"),
    "axes in one": (build_region([TABLE], lambda x: [op("reshape", x, shape=(32,))]), "ab", "a"),
    "an axis in two": (build_region([ROW], lambda x: [op("reshape", x, shape=(4, 2))]), "a", "a-"),
    "a factorization": (build_region([SQUARE], lambda x: [op("cholesky", x)]), "a-", "--"),
    "parts that are joined": (build_region([TABLE] * 2, lambda x, y: [op("concat", x, y, axis=0)]), "-a -a", "-a"),
    "a branch": (build_region([ROW, ROW], lambda x, y: choose(op("gt", total(x), total(y)), lambda x, y: [x * y, x], lambda x, y: [y, y], x, y)), "a -", "a a"),  # noqa: E501
    "a map": (build_region([TABLE, ROW], lambda x, y: mapped(8, lambda c, x: [x * x, total(x)], [y], [x])), "ab -", "ab a"),  # noqa: E501
    "a loop": (build_region([TABLE, SQUARE], lambda x, y: repeat(3, lambda _, y, x: [dot(x, y)], [y], [x])[1:]), "a- --", "a-"),  # noqa: E501
    "a loop that sums over it": (build_region([TABLE, SQUARE], lambda x, y: repeat(3, lambda _, y, x: [dot(x, y)], [y], [x])[1:]), "ab --", "ab"),  # noqa: E501
    "a gradient": (build_region([TABLE, SQUARE], pulled), "a- -b", " a- -b"),
    "an image that keeps its size": (build_region([IMAGES, KERNEL], lambda x, w: [convolved(x, w, 1, 1)]), "-ab- ----", "-ab-"),  # noqa: E501
    "a shorter image": (build_region([IMAGES, KERNEL], lambda x, w: [convolved(x, w, 0, 1), convolved(x, w, 1, 1, 2)]), "-a-b ----", "---- ----"),  # noqa: E501
    "a number": (build_region([INT], lambda n: [n]), "", ""),
}  # fmt: skip


def splits_of(texts: str) -> list[Split]:
    """Each word is an array, each letter of it an axis; `-` is not split."""
    return [tuple([() if c == "-" else (c,) for c in word]) for word in texts.split(" ")]


@pytest.mark.parametrize("name", GRAPHS)
def test_results_are_split_as_params_are(name: str) -> None:
    graph, given, wanted = GRAPHS[name]
    found = result_splits(graph, splits_of(given), MESH)
    assert found == splits_of(wanted)


def test_an_axis_may_be_split_by_two() -> None:
    graph = build_region([TABLE, TABLE], lambda x, y: [x * y, row_totals(x)])
    both = (("a", "b"), ())
    assert result_splits(graph, [both, ((), ())], MESH) == [both, (("a", "b"),)]


REFUSED = {
    "other axes": (build_region([ROW, ROW], lambda x, y: [x * y]), "a b", "DL0605"),
    "a sum of products": (build_region([TABLE, SQUARE], lambda x, y: [dot(x, y)]), "-a b-", "DL0605"),
    "an axis twice": (build_region([TABLE, SQUARE], lambda x, y: [dot(x, y)]), "a- -a", "DL0604"),
    "a step": (build_region([ROW, ROW], lambda x, y: repeat(3, lambda _, y, x: [x * y], [y], [x])[1:]), "a b", "DL0605"),  # noqa: E501
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_split_in_two_ways_is_refused(name: str) -> None:
    graph, given, code = REFUSED[name]
    with pytest.raises(DifflangError, match=code):
        result_splits(graph, splits_of(given), MESH)


def test_what_the_mesh_does_not_divide_is_whole() -> None:
    graph = build_region([ROW], lambda x: [op("slice", x, starts=(0,), stops=(7,), steps=(1,))])
    assert result_splits(graph, splits_of("a"), MESH) == [((),)]


def test_neighbours_send_halos_axis_by_axis() -> None:
    """The second axis with what has come along the first; the cotangent of the kernel is summed once over both."""
    halos = build_region([IMAGES, KERNEL], lambda x, w: [convolved(x, w, 2, 0)])
    found = MeshSplits(MESH)
    found.of_graph(halos, splits_of("-ab- ----"))
    assert [(m.kind, m.type.shape, m.axes) for m in found.moves] == [
        ("collective-permute", (2, 2, 2, 2), ("a",)), ("collective-permute", (2, 6, 1, 2), ("b",)),
        ("collective-permute", (2, 6, 1, 2), ("b",)),
    ]  # fmt: skip
    summed = build_region([IMAGES, Tensor(F64, (8, 4, 2, 3))], lambda x, w: [convolved(x, w, 1, 1)])
    found.moves.clear()
    found.of_graph(summed, splits_of("-ab- ab--"))
    assert [m.axes for m in found.moves if m.kind == "all-reduce"] == [("a", "b")]
    assert [m.kind for m in found.moves].count("collective-permute") == 4


def test_a_part_narrower_than_the_halo_is_made_whole() -> None:
    graph = build_region([Tensor(F64, (2, 8, 4, 2)), Tensor(F64, (6, 3, 2, 2))], lambda x, w: [convolved(x, w, 5, 0)])
    found = MeshSplits({"a": 2})
    assert found.of_graph(graph, splits_of("-a-- ----")) == splits_of("----")
    assert [m.kind for m in found.moves] == ["all-gather"]


def test_an_axis_of_the_mesh_may_split_nothing_or_channels_of_the_kernel() -> None:
    summed = build_region([IMAGES, Tensor(F64, (8, 4, 2, 3))], lambda x, w: [convolved(x, w, 1, 1)])
    found = MeshSplits(MESH)
    assert found.of_graph(summed, splits_of("-a-- a---")) == splits_of("----")
    assert [(m.kind, m.axes) for m in found.moves] == [("all-reduce", ("a",))] + [("collective-permute", ("a",))] * 2
    beside = build_region([IMAGES, KERNEL], lambda x, w: [convolved(x, w, 1, 1)])
    assert MeshSplits(MESH).of_graph(beside, splits_of("-a-- ---b")) == splits_of("-a-b")
