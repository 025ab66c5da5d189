"""How factorizations and solutions are spelled: by functions of the same name, several results as a tuple."""

from __future__ import annotations

from difflang.ir.graph import Eqn
from difflang.spell.body import Speller, array
from difflang.spell.table import spells
from difflang.spell.words import Unspelled, Words, called, name

RESULTS = {"lu": "p l u", "qr": "q r", "slogdet": "sign log_det", "eigh": "w v", "svd": "u s vt"}


@spells("cholesky", "det")
def function(speller: Speller, eqn: Eqn) -> list[Words]:
    (x,), type = [speller.exact(v) for v in eqn.operands], array(eqn.results[0])
    return [called(eqn.op.name, x, shape=type.shape, dtype=type.dtype)]


@spells("expm")
def exponential(speller: Speller, eqn: Eqn) -> list[Words]:
    """Of the derivative of a matrix exponential, a block of the exponential of a larger matrix."""
    if len(eqn.operands) > 1:
        raise Unspelled("the derivative of the matrix exponential has no name in the language")
    (x,), type = [speller.exact(v) for v in eqn.operands], array(eqn.results[0])
    return [called(eqn.op.name, x, shape=type.shape, dtype=type.dtype)]


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
