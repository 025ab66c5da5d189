"""How ops on single numbers are spelled: operators, functions of the same name, slopes by their formulas."""

from __future__ import annotations

import math
import re

from difflang.ir.graph import Eqn
from difflang.ir.tensor_types import BOOL
from difflang.ops.elementwise.roots_and_distances import exponents
from difflang.ops.op_factories import array_dtype
from difflang.unparse.fragments import (
    AND,
    COMPARE,
    MINUS,
    NOT,
    OR,
    POSTFIX,
    POWER,
    PRODUCT,
    SUM,
    Words,
    agreed,
    broadcast,
    called,
    infix,
    settled,
    with_text,
)
from difflang.unparse.rule_registry import spells
from difflang.unparse.unparser import Speller, array

NAMED = """
abs sign floor ceil round trunc sqrt cbrt exp exp2 expm1 log log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh
atanh sigmoid relu softplus gelu erf erfc erfinv gamma lgamma digamma isnan isinf isfinite bit_not popcount real imag
conj atan2 hypot xlogy bit_and bit_or bit_xor shift_left shift_right max min stop complex
""".split()  # noqa: SIM905 - words are read more easily so
OPERATORS = {
    "add": ("+", SUM), "sub": ("-", SUM), "mul": ("*", PRODUCT), "div": ("/", PRODUCT),
    "floor_div": ("//", PRODUCT), "rem": ("%", PRODUCT), "logical_and": ("and", AND), "logical_or": ("or", OR),
}  # fmt: skip
COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "logical_xor": "!="}


@spells(*NAMED)
def function(speller: Speller, eqn: Eqn) -> list[Words]:
    """A function of the op's own name."""
    parts = agreed([speller.words(v) for v in eqn.operands])
    shape = broadcast(*[p.shape for p in parts])
    return [called(eqn.op.name, *parts, shape=shape, dtype=array(eqn.results[0]).dtype)]


@spells(*OPERATORS)
def operator(speller: Speller, eqn: Eqn) -> list[Words]:
    op, level = OPERATORS[eqn.op.name]
    left, right = [speller.words(v) for v in eqn.operands]
    if eqn.op.name in ("add", "sub"):
        sign = "-" if eqn.op.name == "add" else "+"
        if (turned := without_sign(right)) is not None:
            return [infix(sign, SUM, left, turned)]
        if sign == "-" and (turned := without_sign(left)) is not None:
            return [infix("-", SUM, right, turned)]
    if eqn.op.name.startswith("logical") and not left.shape and right.shape:
        left, right = right, left  # a single condition in front says whether the rest is looked at
    return [infix(op, level, left, right)]


def without_sign(x: Words) -> Words | None:
    """`-a * b` as `a * b`, from which it differs in its sign alone; None for what has no sign in front."""
    if not x.text.startswith("-") or x.level not in (MINUS, PRODUCT) or re.search(r"//|%|@", x.text):
        return None
    return with_text(x, x.text[1:], POWER if x.level == MINUS else PRODUCT)


@spells(*COMPARISONS)
def comparison(speller: Speller, eqn: Eqn) -> list[Words]:
    left, right = agreed([speller.words(v) for v in eqn.operands])
    text = f"{left.at(RANGE_OR_SUM)} {COMPARISONS[eqn.op.name]} {right.at(RANGE_OR_SUM)}"
    return [Words(text, COMPARE, broadcast(left.shape, right.shape), BOOL)]


RANGE_OR_SUM = SUM  # a comparison between ranges says nothing


@spells("neg")
def negation(speller: Speller, eqn: Eqn) -> list[Words]:
    (x,) = [speller.words(v) for v in eqn.operands]
    return [Words(f"-{x.at(POWER)}", MINUS, x.shape, x.dtype, x.says)]


@spells("logical_not")
def inversion(speller: Speller, eqn: Eqn) -> list[Words]:
    (x,) = [speller.words(v) for v in eqn.operands]
    return [Words(f"not {x.at(NOT)}", NOT, x.shape, BOOL)]


@spells("integer_pow")
def integer_power(speller: Speller, eqn: Eqn) -> list[Words]:
    (x,), n = [speller.words(v) for v in eqn.operands], eqn.attrs["n"]
    return [Words(f"{settled(x).at(POSTFIX)} ^ {n if n >= 0 else f'({n})'}", POWER, x.shape, x.dtype)]


@spells("pow")
def power(speller: Speller, eqn: Eqn) -> list[Words]:
    x, y = [settled(speller.words(v)) for v in eqn.operands]
    return [Words(f"{x.at(POSTFIX)} ^ {y.at(POSTFIX)}", POWER, broadcast(x.shape, y.shape), x.dtype)]


@spells("power_less")
def power_less(speller: Speller, eqn: Eqn) -> list[Words]:
    x, y = [settled(speller.words(v)) for v in eqn.operands]
    text = f"{x.at(POSTFIX)} ^ ({y.at(SUM)} - {float(eqn.attrs['n'])})"
    return [Words(text, POWER, broadcast(x.shape, y.shape), x.dtype)]


@spells("select")
def choice(speller: Speller, eqn: Eqn) -> list[Words]:
    p, x, y = [speller.words(v) for v in eqn.operands]
    x, y = agreed([x, y])
    return [called("where", p, x, y, shape=broadcast(p.shape, x.shape, y.shape), dtype=x.dtype)]


@spells("clamp")
def clamp(speller: Speller, eqn: Eqn) -> list[Words]:
    low, x, high = agreed([speller.words(v) for v in eqn.operands])
    if len(x.shape) == 1 and x.text == f"iota({x.shape[0]})" and (low.text, high.text) == ("0", str(x.shape[0] - 1)):
        return [x]
    return [called("clamp", x, low, high, shape=broadcast(low.shape, x.shape, high.shape), dtype=x.dtype)]


@spells("convert", "truncate")
def conversion(speller: Speller, eqn: Eqn) -> list[Words]:
    (x,), dtype = [settled(speller.words(v)) for v in eqn.operands], eqn.attrs["dtype"]
    if dtype is BOOL:
        zero = Words("0.0" if x.dtype.differentiable else "0", 11, (), x.dtype, says=False)
        return [infix("!=", COMPARE, x, zero, dtype=BOOL)]
    return [called(str(dtype), x, shape=x.shape, dtype=dtype)]


# ---- Slopes of the functions that have a name, by formulas


def formula(op: str, template: str, level: int, *, twice: bool = False) -> None:
    """An op of one operand by a formula, `{0}` its place, `{1}` that within brackets; `twice` where it stands twice."""

    @spells(op)
    def rule(speller: Speller, eqn: Eqn) -> list[Words]:
        (value,) = eqn.operands
        x = settled(speller.atom(value) if twice else speller.words(value))
        return [Words(template.format(x.at(POSTFIX), x.text), level, x.shape, x.dtype)]


formula("positive", "sqrt({1}) ^ 2", POWER)  # x where `log` has a value, 0.0 at -0.0 as well
formula("one_minus_square", "(1.0 - {0}) * (1.0 + {0})", PRODUCT, twice=True)
formula("rsqrt", "where({0} < 0.0, nan, {0} ^ (-0.5))", POSTFIX, twice=True)  # not 1 / sqrt(x), which is -Inf at -0.0
formula("sech2", "1.0 / cosh({1}) ^ 2", PRODUCT)
formula("exp2_slope", f"{math.log(2.0)!r} * exp2({{1}})", PRODUCT)
formula("erfinv_slope", f"{math.sqrt(math.pi) / 2!r} * exp(erfinv({{1}}) ^ 2)", PRODUCT)


@spells("gelu_slope")
def gelu_slope(speller: Speller, eqn: Eqn) -> list[Words]:
    """P(x) + x p(x); the density is 0 long before x is large, and infinite numbers times it would be NaN."""
    x = settled(speller.atom(eqn.operands[0]))
    near = speller.names.fresh("near")
    speller.say(f"let {near} = clamp({x.text}, -40.0, 40.0)", eqn.span)
    bell = f"{near} * exp(-0.5 * {near} ^ 2) / {math.sqrt(2.0 * math.pi)!r}"
    return [Words(f"0.5 * erfc(-{x.at(POSTFIX)} / {math.sqrt(2.0)!r}) + {bell}", SUM, x.shape, x.dtype)]


@spells("binade")
def unit(speller: Speller, eqn: Eqn) -> list[Words]:
    """What a point is measured in while its squares are taken: any number near it does, if it has a reciprocal."""
    x = settled(speller.words(eqn.operands[0]))
    most = 2.0 ** exponents(array_dtype(x.dtype))
    text = f"stop(clamp({x.text}, {1.0 / most!r}, {most!r}))"
    return [Words(text, POSTFIX, x.shape, x.dtype)]


@spells("polygamma")
def polygamma(speller: Speller, eqn: Eqn) -> list[Words]:
    x = settled(speller.words(eqn.operands[0]))
    return [Words(f"digamma({x.text}, order = {eqn.attrs['n']})", POSTFIX, x.shape, x.dtype)]


@spells("gaussian")
def gaussian(speller: Speller, eqn: Eqn) -> list[Words]:
    (x,), scale = [settled(speller.words(v)) for v in eqn.operands], eqn.attrs["scale"]
    factor = "-" if scale == 1.0 else f"-{scale} * "
    return [Words(f"exp({factor}{x.at(POSTFIX)} ^ 2)", POSTFIX, x.shape, x.dtype)]


@spells("exp_sub")
def exp_of_difference(speller: Speller, eqn: Eqn) -> list[Words]:
    """exp(x - y), 1 where both are the same infinite number. Only there the text has no slope, which is kept small."""
    x, y = [speller.words(v) for v in eqn.operands]
    if not speller.formula:
        x, y = [speller.atom(v) for v in eqn.operands]
    inner = infix("-", SUM, x, y)
    if not speller.formula:
        same = f"{x.at(SUM)} == {y.at(SUM)} and isinf({y.text})"
        inner = Words(f"where({same}, 0.0, {inner.text})", POSTFIX, inner.shape, inner.dtype, inner.says)
    return [called("exp", inner, shape=inner.shape, dtype=inner.dtype)]
