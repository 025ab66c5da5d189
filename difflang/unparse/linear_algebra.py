"""Unparse rules for linear algebra: factorizations, solves, determinants and the matrix exponential."""

from __future__ import annotations

from difflang.ir.graph import Eqn
from difflang.unparse.fragments import (
    ATOM,
    POSTFIX,
    CannotUnparse,
    Fragment,
    call_fragment,
    name_fragment,
    size_factor,
    size_text,
)
from difflang.unparse.unparser import Unparser, tensor_type, unparse_rule

RESULTS = {"lu": "p l u", "qr": "q r", "slogdet": "sign log_det", "eigh": "w v", "svd": "u s vt"}


@unparse_rule("cholesky", "det")
def named_function(writer: Unparser, eqn: Eqn) -> list[Fragment]:
    (x,), type = [writer.full_shape(v) for v in eqn.operands], tensor_type(eqn.results[0])
    return [call_fragment(eqn.op.name, x, shape=type.shape, dtype=type.dtype)]


@unparse_rule("expm")
def expm(writer: Unparser, eqn: Eqn) -> list[Fragment]:
    """`expm` and its directional derivatives."""
    # A derivative is a block of the exponential of a larger block triangular matrix; see `ops/linalg/expm.py`.
    type = tensor_type(eqn.results[0])
    if len(eqn.operands) == 1:
        (x,) = [writer.full_shape(v) for v in eqn.operands]
        return [call_fragment("expm", x, shape=type.shape, dtype=type.dtype)]
    whole, *directions = [writer.as_name(v, whole=True) for v in eqn.operands]
    for doublings, corner in enumerate(directions):
        wide = corner
        for _ in range(doublings):
            wide = block_triangular(writer, wide, zeros_like(wide))
        whole = block_triangular(writer, whole, wide)
    n, m = size_text(type.shape[-1]), size_text(whole.shape[-1])
    inner = call_fragment("expm", whole, shape=whole.shape, dtype=type.dtype)
    start = n if len(directions) == 1 else f"{m} - {size_factor(type.shape[-1])}"
    return [Fragment(f"{inner.text}[..., ..{n}, {start}..]", POSTFIX, type.shape, type.dtype)]


def zeros_like(x: Fragment) -> Fragment:
    return call_fragment("zeros_like", x, shape=x.shape, dtype=x.dtype)


def block_triangular(writer: Unparser, diagonal: Fragment, corner: Fragment) -> Fragment:
    """The matrix [[diagonal, beside], [0, diagonal]] as a name."""
    *batch, n, _ = diagonal.shape
    across, down = len(batch) + 1, len(batch)
    top = f"concat({diagonal.text}, {corner.text}, axis = {across})"
    bottom = f"concat({zeros_like(diagonal).text}, {diagonal.text}, axis = {across})"
    text = writer.names.fresh("blocks")
    writer.emit(f"let {text} = concat({top}, {bottom}" + f", axis = {down}" * bool(down) + ")", writer.at)
    return Fragment(text, ATOM, (*batch, 2 * n, 2 * n), diagonal.dtype)


@unparse_rule("cofactors")
def cofactors(writer: Unparser, eqn: Eqn) -> list[Fragment]:
    """The matrix of cofactors: determinants with one row replaced by a unit vector."""
    # No division by the determinant, so it is exact for singular matrices.
    if len(eqn.operands) > 1:
        raise CannotUnparse("the derivative of the matrix of cofactors cannot be written in the language")
    (a,), type = [writer.as_name(v, whole=True) for v in eqn.operands], tensor_type(eqn.results[0])
    *batch, n, _ = type.shape
    i, j = [writer.names.fresh(name) for name in ("i", "j")]
    row, rows = (
        f"where(iota({size_text(n)}) == {j}, {type.dtype}(1), {type.dtype}(0))",
        f"iota({size_text(n)})[.., newaxis]",
    )
    text = f"[for {i} in 0..{size_text(n)}, {j} in 0..{size_text(n)} => det(where({rows} == {i}, {row}, {a.text}))]"
    writer.names.used.difference_update((i, j))
    if batch:
        order = (*range(2, type.rank), 0, 1)
        return [Fragment(f"transpose({text}, axes = {order})", POSTFIX, type.shape, type.dtype)]
    return [Fragment(text, ATOM, type.shape, type.dtype)]


@unparse_rule(*RESULTS)
def factorization(writer: Unparser, eqn: Eqn) -> list[Fragment]:
    (x,) = [writer.full_shape(v) for v in eqn.operands]
    names = [writer.names.fresh(n) for n in RESULTS[eqn.op.name].split()]
    writer.emit(f"let ({', '.join(names)}) = {eqn.op.name}({x.text})", eqn.span)
    return [name_fragment(n, tensor_type(r)) for n, r in zip(names, eqn.results, strict=True)]


@unparse_rule("solve")
def solve(writer: Unparser, eqn: Eqn) -> list[Fragment]:
    a, b = [writer.full_shape(v) for v in eqn.operands]
    type = tensor_type(eqn.results[0])
    if eqn.attrs["transposed"]:
        axes = (*range(len(a.shape) - 2), len(a.shape) - 1, len(a.shape) - 2)
        a = call_fragment("transpose", a, shape=a.shape, dtype=a.dtype, more="" if len(axes) == 2 else f"axes = {axes}")
    return [call_fragment("solve", a, b, shape=type.shape, dtype=type.dtype)]


@unparse_rule("solve_triangular")
def solve_triangular(writer: Unparser, eqn: Eqn) -> list[Fragment]:
    a, b = [writer.full_shape(v) for v in eqn.operands]
    type = tensor_type(eqn.results[0])
    flags = [f"lower = {'true' if eqn.attrs['lower'] else 'false'}"]
    flags += [f"{flag} = true" for flag in ("transposed", "unit") if eqn.attrs[flag]]
    return [call_fragment("solve_triangular", a, b, shape=type.shape, dtype=type.dtype, more=", ".join(flags))]
