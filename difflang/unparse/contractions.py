"""Unparse rule for contractions (`dot_general`): `@` for matrices and vectors, else a comprehension with a sum."""

from __future__ import annotations

from typing import Any

from difflang.ir.graph import Eqn
from difflang.ir.tensor_types import Tensor
from difflang.unparse.fragments import ATOM, MINUS, POSTFIX, PRODUCT, Fragment, size_text
from difflang.unparse.unparser import Unparser, tensor_type, unparse_rule


@unparse_rule("dot_general")
def contraction(writer: Unparser, eqn: Eqn) -> list[Fragment]:
    """`@` for a product of matrices or vectors, `sum(x * y)` for a full one, else a comprehension of sums."""
    lhs, rhs = eqn.operands
    type, at = tensor_type(eqn.results[0]), eqn.attrs
    (left, right), (lb, rb) = at["contract"], at["batch"]
    x, y = writer.full_shape(lhs), writer.full_shape(rhs)
    if len(left) == 1 and not lb:
        found = matmul_operator(x, y, left[0], right[0], type)
        if found is not None:
            return [found]
    if not lb and left == tuple(range(len(x.shape))) and right == tuple(range(len(y.shape))):
        product = f"{x.at(PRODUCT)} * {y.at(MINUS)}"
        return [Fragment(f"sum({product})", POSTFIX, (), type.dtype)]
    return [
        summing_comprehension(
            writer, writer.as_name(lhs, whole=True), writer.as_name(rhs, whole=True), (left, right), (lb, rb), type
        )
    ]


def matmul_operator(x: Fragment, y: Fragment, left: int, right: int, type: Tensor) -> Fragment | None:
    """The product of two arrays with one or two axes each; None for others."""
    ranks = len(x.shape), len(y.shape)
    if ranks == (1, 1):
        return Fragment(f"{x.at(PRODUCT)} @ {y.at(MINUS)}", PRODUCT, (), type.dtype)
    if ranks == (1, 2):
        if right == 0:
            return Fragment(f"{x.at(PRODUCT)} @ {y.at(MINUS)}", PRODUCT, type.shape, type.dtype)
        return Fragment(f"{y.at(PRODUCT)} @ {x.at(MINUS)}", PRODUCT, type.shape, type.dtype)
    if ranks == (2, 1):
        if left == 1:
            return Fragment(f"{x.at(PRODUCT)} @ {y.at(MINUS)}", PRODUCT, type.shape, type.dtype)
        return Fragment(f"{y.at(PRODUCT)} @ {x.at(MINUS)}", PRODUCT, type.shape, type.dtype)
    if ranks == (2, 2):
        a = x.at(PRODUCT) if left == 1 else f"transpose({x.text})"
        b = y.at(MINUS) if right == 0 else f"transpose({y.text})"
        return Fragment(f"{a} @ {b}", PRODUCT, type.shape, type.dtype)
    return None


def summing_comprehension(
    writer: Unparser, x: Fragment, y: Fragment, contract: Any, batch: Any, type: Tensor
) -> Fragment:
    """`[for i, j => sum(for k => x[i, k] * y[k, j])]` for any axes."""
    (left, right), (lb, rb) = contract, batch
    indices = iter(["i", "j", "k", "l", "m", "n", "p", "q", "r"] + [f"i{n}" for n in range(9)])
    index_names: list[str] = []

    def fresh_index() -> str:
        found = writer.names.fresh(next(indices))
        index_names.append(found)
        return found

    xi: dict[int, str] = {}
    yi: dict[int, str] = {}
    outer: list[str] = []
    for a, b in zip(lb, rb, strict=True):
        xi[a] = yi[b] = fresh_index()
        outer.append(f"{xi[a]} in 0..{size_text(x.shape[a])}")
    for a in range(len(x.shape)):
        if a not in lb and a not in left:
            xi[a] = fresh_index()
            outer.append(f"{xi[a]} in 0..{size_text(x.shape[a])}")
    for b in range(len(y.shape)):
        if b not in rb and b not in right:
            yi[b] = fresh_index()
            outer.append(f"{yi[b]} in 0..{size_text(y.shape[b])}")
    inner: list[str] = []
    for a, b in zip(left, right, strict=True):
        xi[a] = yi[b] = fresh_index()
        inner.append(f"{xi[a]} in 0..{size_text(x.shape[a])}")
    term = f"{subscripted_text(x, xi)} * {subscripted_text(y, yi)}"
    text = f"sum(for {', '.join(inner)} => {term})" if inner else term
    # The indices are local to the comprehension, so their names are free again.
    writer.names.used.difference_update(index_names)
    if not outer:
        return Fragment(text, POSTFIX, (), type.dtype)
    return Fragment(f"[for {', '.join(outer)} => {text}]", ATOM, type.shape, type.dtype)


def subscripted_text(x: Fragment, indices: dict[int, str]) -> str:
    if not indices:
        return x.text
    return f"{x.at(POSTFIX)}[{', '.join(indices[a] for a in range(len(x.shape)))}]"
