"""How factorizations and solutions are spelled: by functions of the same name, several results as a tuple."""

from __future__ import annotations

from difflang.ir.graph import Eqn
from difflang.unparse.fragments import ATOM, POSTFIX, Unspelled, Words, called, name, size, tight
from difflang.unparse.rule_registry import spells
from difflang.unparse.unparser import Speller, array

RESULTS = {"lu": "p l u", "qr": "q r", "slogdet": "sign log_det", "eigh": "w v", "svd": "u s vt"}


@spells("cholesky", "det")
def function(speller: Speller, eqn: Eqn) -> list[Words]:
    (x,), type = [speller.exact(v) for v in eqn.operands], array(eqn.results[0])
    return [called(eqn.op.name, x, shape=type.shape, dtype=type.dtype)]


@spells("expm")
def exponential(speller: Speller, eqn: Eqn) -> list[Words]:
    """Its derivative in a direction is the corner of the exponential of a larger matrix; see `ops.expm`."""
    type = array(eqn.results[0])
    if len(eqn.operands) == 1:
        (x,) = [speller.exact(v) for v in eqn.operands]
        return [called("expm", x, shape=type.shape, dtype=type.dtype)]
    whole, *directions = [speller.atom(v, whole=True) for v in eqn.operands]
    for doublings, beside in enumerate(directions):
        wide = beside
        for _ in range(doublings):
            wide = blocks(speller, wide, zeros_like(wide))
        whole = blocks(speller, whole, wide)
    n, m = size(type.shape[-1]), size(whole.shape[-1])
    inner = called("expm", whole, shape=whole.shape, dtype=type.dtype)
    start = n if len(directions) == 1 else f"{m} - {tight(type.shape[-1])}"
    return [Words(f"{inner.text}[..., ..{n}, {start}..]", POSTFIX, type.shape, type.dtype)]


def zeros_like(x: Words) -> Words:
    return called("zeros_like", x, shape=x.shape, dtype=x.dtype)


def blocks(speller: Speller, diagonal: Words, beside: Words) -> Words:
    """[[diagonal, beside], [0, diagonal]], with a name."""
    *batch, n, _ = diagonal.shape
    across, down = len(batch) + 1, len(batch)
    above = f"concat({diagonal.text}, {beside.text}, axis = {across})"
    below = f"concat({zeros_like(diagonal).text}, {diagonal.text}, axis = {across})"
    text = speller.names.fresh("blocks")
    speller.say(f"let {text} = concat({above}, {below}" + f", axis = {down}" * bool(down) + ")", speller.at)
    return Words(text, ATOM, (*batch, 2 * n, 2 * n), diagonal.dtype)


@spells("cofactors")
def cofactors(speller: Speller, eqn: Eqn) -> list[Words]:
    """The determinants with one row each replaced by a unit vector: no division, so singular matrices are exact."""
    if len(eqn.operands) > 1:
        raise Unspelled("how the matrix of cofactors changes has no name in the language")
    (a,), type = [speller.atom(v, whole=True) for v in eqn.operands], array(eqn.results[0])
    *batch, n, _ = type.shape
    i, j = [speller.names.fresh(name) for name in ("i", "j")]
    row, rows = f"where(iota({size(n)}) == {j}, {type.dtype}(1), {type.dtype}(0))", f"iota({size(n)})[.., newaxis]"
    text = f"[for {i} in 0..{size(n)}, {j} in 0..{size(n)} => det(where({rows} == {i}, {row}, {a.text}))]"
    speller.names.used.difference_update((i, j))
    if batch:
        order = (*range(2, type.rank), 0, 1)
        return [Words(f"transpose({text}, axes = {order})", POSTFIX, type.shape, type.dtype)]
    return [Words(text, ATOM, type.shape, type.dtype)]


@spells(*RESULTS)
def factors(speller: Speller, eqn: Eqn) -> list[Words]:
    (x,) = [speller.exact(v) for v in eqn.operands]
    names = [speller.names.fresh(n) for n in RESULTS[eqn.op.name].split()]
    speller.say(f"let ({', '.join(names)}) = {eqn.op.name}({x.text})", eqn.span)
    return [name(n, array(r)) for n, r in zip(names, eqn.results, strict=True)]


@spells("solve")
def solution(speller: Speller, eqn: Eqn) -> list[Words]:
    a, b = [speller.exact(v) for v in eqn.operands]
    type = array(eqn.results[0])
    if eqn.attrs["transposed"]:
        axes = (*range(len(a.shape) - 2), len(a.shape) - 1, len(a.shape) - 2)
        a = called("transpose", a, shape=a.shape, dtype=a.dtype, more="" if len(axes) == 2 else f"axes = {axes}")
    return [called("solve", a, b, shape=type.shape, dtype=type.dtype)]


@spells("solve_triangular")
def triangular(speller: Speller, eqn: Eqn) -> list[Words]:
    a, b = [speller.exact(v) for v in eqn.operands]
    type = array(eqn.results[0])
    flags = ["lower = false"] * (not eqn.attrs["lower"])
    flags += [f"{flag} = true" for flag in ("transposed", "unit") if eqn.attrs[flag]]
    return [called("solve_triangular", a, b, shape=type.shape, dtype=type.dtype, more=", ".join(flags))]
