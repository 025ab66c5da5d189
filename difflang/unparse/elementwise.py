"""Unparse rules for elementwise ops: operators, functions of the same name, and derivatives by their formulas."""

from __future__ import annotations

import math
import re
from decimal import Decimal

from msgspec.structs import replace

from difflang.ir.graph import Eqn
from difflang.ir.tensor_types import BOOL, numpy_dtype
from difflang.ops.elementwise.roots_and_distances import safe_max_exponent
from difflang.unparse.fragments import (
    AND,
    ATOM,
    COMPARE,
    MINUS,
    NOT,
    OR,
    POSTFIX,
    POWER,
    PRODUCT,
    SUM,
    Fragment,
    broadcast_shape,
    call_fragment,
    common_dtype,
    float_text,
    infix,
    with_dtype,
    with_text,
)
from difflang.unparse.unparser import Unparser, tensor_type, unparse_rule

SAME_NAME = """
abs sign floor ceil round trunc sqrt cbrt exp exp2 expm1 log log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh
atanh sigmoid relu softplus gelu erf erfc erfinv gamma lgamma digamma isnan isinf isfinite bit_not popcount real imag
conj atan2 hypot logaddexp xlogy bit_and bit_or bit_xor shift_left shift_right max min stop complex
""".split()  # noqa: SIM905 - words are read more easily so
OPERATORS = {
    "add": ("+", SUM), "sub": ("-", SUM), "mul": ("*", PRODUCT), "div": ("/", PRODUCT),
    "floor_div": ("//", PRODUCT), "rem": ("%", PRODUCT), "logical_and": ("and", AND), "logical_or": ("or", OR),
}  # fmt: skip
COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "logical_xor": "!="}


@unparse_rule(*SAME_NAME)
def named_function(writer: Unparser, eqn: Eqn) -> list[Fragment]:
    """A call of the function with the op's own name."""
    parts = common_dtype([writer.words(v) for v in eqn.operands])
    shape = broadcast_shape(*[p.shape for p in parts])
    return [call_fragment(eqn.op.name, *parts, shape=shape, dtype=tensor_type(eqn.results[0]).dtype)]


@unparse_rule("discrete")
def discrete(writer: Unparser, eqn: Eqn) -> list[Fragment]:
    value, by = [writer.words(v) for v in eqn.operands]
    shape = broadcast_shape(value.shape, by.shape)
    return [call_fragment("discrete", value, by, shape=shape, dtype=tensor_type(eqn.results[0]).dtype)]


@unparse_rule(*OPERATORS)
def infix_operator(writer: Unparser, eqn: Eqn) -> list[Fragment]:
    op, level = OPERATORS[eqn.op.name]
    left, right = [writer.words(v) for v in eqn.operands]
    if eqn.op.name in ("add", "sub"):
        sign = "-" if eqn.op.name == "add" else "+"
        if (unsigned := strip_sign(right)) is not None:
            return [infix(sign, SUM, left, unsigned)]
        if sign == "-" and (unsigned := strip_sign(left)) is not None:
            return [infix("-", SUM, right, unsigned)]
    if eqn.op.name == "mul" and left.shows_dtype and left.level != PRODUCT and not right.shows_dtype:
        left, right = right, left  # a number comes first, as in `2.0 * x`
    if eqn.op.name.startswith("logical") and not left.shape and right.shape:
        # A scalar condition on the left would short-circuit, and decide whether the array is evaluated.
        left, right = right, left
    return [infix(op, level, left, right)]


def strip_sign(x: Fragment) -> Fragment | None:
    """`-a * b` without its leading minus; None if there is none that applies to the whole."""
    if not x.text.startswith("-") or x.level not in (MINUS, PRODUCT) or re.search(r"//|%|@", x.text):
        return None
    return with_text(x, x.text[1:], POWER if x.level == MINUS else PRODUCT)


@unparse_rule(*COMPARISONS)
def comparison(writer: Unparser, eqn: Eqn) -> list[Fragment]:
    left, right = common_dtype([writer.words(v) for v in eqn.operands])
    text = f"{left.at(RANGE_OR_SUM)} {COMPARISONS[eqn.op.name]} {right.at(RANGE_OR_SUM)}"
    return [Fragment(text, COMPARE, broadcast_shape(left.shape, right.shape), BOOL)]


RANGE_OR_SUM = SUM  # operands of comparisons: ranges are not compared


@unparse_rule("neg")
def negation(writer: Unparser, eqn: Eqn) -> list[Fragment]:
    (x,) = [writer.words(v) for v in eqn.operands]
    return [Fragment(f"-{x.at(POWER)}", MINUS, x.shape, x.dtype, x.shows_dtype)]


@unparse_rule("logical_not")
def inversion(writer: Unparser, eqn: Eqn) -> list[Fragment]:
    (x,) = [writer.words(v) for v in eqn.operands]
    return [Fragment(f"not {x.at(NOT)}", NOT, x.shape, BOOL)]


@unparse_rule("integer_pow")
def integer_power(writer: Unparser, eqn: Eqn) -> list[Fragment]:
    (x,), n = [writer.words(v) for v in eqn.operands], eqn.attrs["n"]
    return [Fragment(f"{with_dtype(x).at(POSTFIX)} ^ {n if n >= 0 else f'({n})'}", POWER, x.shape, x.dtype)]


@unparse_rule("pow")
def power(writer: Unparser, eqn: Eqn) -> list[Fragment]:
    x, y = [writer.words(v) for v in eqn.operands]
    if y.shows_dtype or not x.shows_dtype:  # else a number, which takes the type of the base
        x, y = with_dtype(x), with_dtype(y)
    return [Fragment(f"{x.at(POSTFIX)} ^ {y.at(POSTFIX)}", POWER, broadcast_shape(x.shape, y.shape), x.dtype)]


@unparse_rule("power_less")
def reduced_power(writer: Unparser, eqn: Eqn) -> list[Fragment]:
    x, y = [writer.words(v) for v in eqn.operands]
    if not y.shows_dtype and x.shows_dtype:  # a number
        # In decimals, as a person would: a difference of f64 numbers shows the rounding of `2.3`.
        left = float_text(float(Decimal(y.text) - eqn.attrs["n"]))
        less = replace(y, text=left, level=MINUS if left.startswith("-") else ATOM)
        return [Fragment(f"{x.at(POSTFIX)} ^ {less.at(POSTFIX)}", POWER, x.shape, x.dtype)]
    x, y = with_dtype(x), with_dtype(y)
    text = f"{x.at(POSTFIX)} ^ ({y.at(SUM)} - {float(eqn.attrs['n'])})"
    return [Fragment(text, POWER, broadcast_shape(x.shape, y.shape), x.dtype)]


@unparse_rule("excess")
def excess_of_total(writer: Unparser, eqn: Eqn) -> list[Fragment]:
    """x, which the op says is a total less 1."""
    return [writer.words(eqn.operands[0])]


@unparse_rule("positive")
def argument_of_logarithm(writer: Unparser, eqn: Eqn) -> list[Fragment]:
    """x, which the op says has a logarithm: the derivative of one is written `1.0 / x`."""
    return [writer.words(eqn.operands[0])]


@unparse_rule("select")
def select(writer: Unparser, eqn: Eqn) -> list[Fragment]:
    p, x, y = [writer.words(v) for v in eqn.operands]
    x, y = common_dtype([x, y])
    return [call_fragment("where", p, x, y, shape=broadcast_shape(p.shape, x.shape, y.shape), dtype=x.dtype)]


@unparse_rule("clamp")
def clamp(writer: Unparser, eqn: Eqn) -> list[Fragment]:
    low, x, high = common_dtype([writer.words(v) for v in eqn.operands])
    if len(x.shape) == 1 and x.text == f"iota({x.shape[0]})" and (low.text, high.text) == ("0", str(x.shape[0] - 1)):
        return [x]
    return [call_fragment("clamp", x, low, high, shape=broadcast_shape(low.shape, x.shape, high.shape), dtype=x.dtype)]


@unparse_rule("convert", "truncate")
def convert(writer: Unparser, eqn: Eqn) -> list[Fragment]:
    (x,), dtype = [with_dtype(writer.words(v)) for v in eqn.operands], eqn.attrs["dtype"]
    if dtype is BOOL:
        zero = Fragment("0.0" if x.dtype.differentiable else "0", 11, (), x.dtype, shows_dtype=False)
        return [infix("!=", COMPARE, x, zero, dtype=BOOL)]
    return [call_fragment(str(dtype), x, shape=x.shape, dtype=dtype)]


# ---- Ops of derivatives, by formulas


def register_template(op: str, template: str, level: int, *, twice: bool = False) -> None:
    """Register a formula for an op of one operand: `{0}` is the operand as a factor, `{1}` inside parentheses.

    `twice` says that the formula reads it twice, so it needs a name.
    """

    @unparse_rule(op)
    def rule(writer: Unparser, eqn: Eqn) -> list[Fragment]:
        (value,) = eqn.operands
        x = with_dtype(writer.as_name(value) if twice else writer.words(value))
        return [Fragment(template.format(x.at(POSTFIX), x.text), level, x.shape, x.dtype)]


register_template("one_minus_square", "(1.0 - {0}) * (1.0 + {0})", PRODUCT, twice=True)
register_template("rsqrt", "1.0 / sqrt({1})", PRODUCT)
register_template("sech2", "1.0 / cosh({1}) ^ 2", PRODUCT)
register_template("exp2_slope", "log(2.0) * exp2({1})", PRODUCT)
register_template("erfinv_slope", "sqrt(pi) / 2.0 * exp(erfinv({1}) ^ 2)", PRODUCT)


@unparse_rule("gelu_slope")
def gelu_slope(writer: Unparser, eqn: Eqn) -> list[Fragment]:
    """P(x) + x p(x), with the normal distribution P and its density p."""
    # The density is 0 long before x is 40, but infinity times 0 would be NaN: so x is clamped.
    x = with_dtype(writer.as_name(eqn.operands[0]))
    near = writer.names.fresh("near")
    writer.emit(f"let {near} = clamp({x.text}, -40.0, 40.0)", eqn.span)
    bell = f"{near} * exp(-0.5 * {near} ^ 2) / {math.sqrt(2.0 * math.pi)!r}"
    return [Fragment(f"0.5 * erfc(-{x.at(POSTFIX)} / {math.sqrt(2.0)!r}) + {bell}", SUM, x.shape, x.dtype)]


@unparse_rule("binade")
def binade(writer: Unparser, eqn: Eqn) -> list[Fragment]:
    """The scale by which a norm divides before it squares: any number of similar size with a reciprocal will do."""
    x = with_dtype(writer.words(eqn.operands[0]))
    most = 2.0 ** safe_max_exponent(numpy_dtype(x.dtype))
    text = f"stop(clamp({x.text}, {1.0 / most!r}, {most!r}))"
    return [Fragment(text, POSTFIX, x.shape, x.dtype)]


@unparse_rule("hypot_share")
def share_of_distance(writer: Unparser, eqn: Eqn) -> list[Fragment]:
    """x / hypot(x, y), but 0 at the origin; in a single expression without that case."""
    x, y = common_dtype([writer.words(v) if writer.single_expression else writer.as_name(v) for v in eqn.operands])
    below = call_fragment("hypot", x, y, shape=broadcast_shape(x.shape, y.shape), dtype=x.dtype)
    if not writer.single_expression:
        none = f"{x.at(SUM)} == 0.0 and {y.at(SUM)} == 0.0"
        below = Fragment(f"where({none}, 1.0, {below.text})", POSTFIX, below.shape, below.dtype, below.shows_dtype)
    return [infix("/", PRODUCT, x, below)]


@unparse_rule("one_if_zero")
def one_if_zero(writer: Unparser, eqn: Eqn) -> list[Fragment]:
    """x, but 1 at 0; in a single expression without that case."""
    if writer.single_expression:
        return [with_dtype(writer.words(eqn.operands[0]))]
    x = with_dtype(writer.as_name(eqn.operands[0]))
    return [Fragment(f"where({x.text} == 0.0, 1.0, {x.text})", POSTFIX, x.shape, x.dtype)]


@unparse_rule("root_of_squares")
def root_of_squares(writer: Unparser, eqn: Eqn) -> list[Fragment]:
    """The square root, but with slope 0 at 0; in a single expression without that case."""
    if writer.single_expression:
        x = with_dtype(writer.words(eqn.operands[0]))
        return [Fragment(f"sqrt({x.text})", POSTFIX, x.shape, x.dtype)]
    x = with_dtype(writer.as_name(eqn.operands[0]))
    text = f"where({x.text} == 0.0, 0.0, sqrt(where({x.text} == 0.0, 1.0, {x.text})))"
    return [Fragment(text, POSTFIX, x.shape, x.dtype)]


@unparse_rule("polygamma")
def polygamma(writer: Unparser, eqn: Eqn) -> list[Fragment]:
    x = with_dtype(writer.words(eqn.operands[0]))
    return [Fragment(f"digamma({x.text}, order = {eqn.attrs['n']})", POSTFIX, x.shape, x.dtype)]


@unparse_rule("gaussian")
def gaussian(writer: Unparser, eqn: Eqn) -> list[Fragment]:
    (x,), scale = [with_dtype(writer.words(v)) for v in eqn.operands], eqn.attrs["scale"]
    factor = "-" if scale == 1.0 else f"-{scale} * "
    return [Fragment(f"exp({factor}{x.at(POSTFIX)} ^ 2)", POSTFIX, x.shape, x.dtype)]


@unparse_rule("exp_sub")
def exp_of_difference(writer: Unparser, eqn: Eqn) -> list[Fragment]:
    """exp(x - y), but 1 where both are the same infinity; in a single expression without that case."""
    x, y = [writer.words(v) for v in eqn.operands]
    if not writer.single_expression:
        x, y = [writer.as_name(v) for v in eqn.operands]
    inner = infix("-", SUM, x, y)
    if not writer.single_expression:
        same = f"{x.at(SUM)} == {y.at(SUM)} and isinf({y.text})"
        inner = Fragment(f"where({same}, 0.0, {inner.text})", POSTFIX, inner.shape, inner.dtype, inner.shows_dtype)
    return [call_fragment("exp", inner, shape=inner.shape, dtype=inner.dtype)]
