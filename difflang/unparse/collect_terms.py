"""Normalizes scalar formulas: sums of products with integer or half powers, like terms collected, fractions joined."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

from msgspec import Struct

from difflang.unparse.fragments import ATOM, POSTFIX, POWER, PRODUCT, SUM, float_text

HALF = Fraction(1, 2)
# Factors and their exponents, in the order of the program. A factor is text that binds as tightly as a call.
Powers = tuple[tuple[str, Fraction], ...]


class SumOfProducts(Struct, frozen=True):
    """A sum: the coefficient of each product of powers. Without terms it is zero."""

    terms: Mapping[Powers, float]

    @property
    def single_term(self) -> tuple[Powers, float] | None:
        """The term, if there is exactly one."""
        return next(iter(self.terms.items())) if len(self.terms) == 1 else None

    def plus(self, other: SumOfProducts, sign: float = 1.0) -> SumOfProducts:
        total = dict(self.terms)
        for powers, amount in other.terms.items():
            # Like terms may have their factors in another order; the first order stays.
            like = next((p for p in total if set(p) == set(powers)), powers)
            total[like] = total.get(like, 0.0) + sign * amount
        return SumOfProducts({p: a for p, a in total.items() if a != 0.0})

    def times(self, other: SumOfProducts) -> SumOfProducts:
        """The product. A sum becomes a factor in parentheses: nothing is expanded."""
        if not self.terms or not other.terms:
            return SumOfProducts({})
        (left, a), (right, b) = self.as_factor(), other.as_factor()
        total = dict(left)
        for base, power in right:
            total[base] = total.get(base, Fraction(0)) + power
        return SumOfProducts({tuple((base, p) for base, p in total.items() if p): a * b})

    def as_factor(self) -> tuple[Powers, float]:
        return self.single_term or (((self.grouped, Fraction(1)),), 1.0)

    def power(self, power: Fraction) -> SumOfProducts | None:
        """A power of it; None if it cannot be simplified."""
        # sqrt(x^2) is not x if x may be negative, so roots are only taken of a single factor.
        powers, amount = self.as_factor()
        if power.denominator != 1 and (amount != 1.0 or any(p != 1 for _, p in powers) or len(powers) > 1):
            return None
        if not self.terms or (amount == 0.0 and power < 0):
            return None
        return SumOfProducts({tuple((base, p * power) for base, p in powers): amount ** float(power)})

    @property
    def grouped(self) -> str:
        return f"({self.text})"

    @property
    def text(self) -> str:
        """The formula as an expression of the language."""
        found = ""
        for powers, amount in self.terms.items():
            term = product_text(powers, abs(amount))
            sign = "-" if amount < 0 else "+"
            found += (f" {sign} " if found else "-" if amount < 0 else "") + term
        return found or "0"

    @property
    def precedence(self) -> int:
        if len(self.terms) != 1:
            return SUM if self.terms else ATOM
        powers, amount = self.as_factor()
        if amount < 0:
            return SUM
        if amount != 1.0 or len(powers) > 1 or any(p < 0 for _, p in powers):
            return PRODUCT if powers else ATOM
        return POWER if powers and powers[0][1] not in (1, HALF) else POSTFIX


def product_text(powers: Powers, amount: float) -> str:
    """A coefficient and powers as one fraction."""
    over = [power_text(base, p) for base, p in powers if p > 0]
    under = [power_text(base, -p) for base, p in powers if p < 0]
    whole = 1.0 / amount if amount else 0.0
    if 0.0 < amount < 1.0 and whole == round(whole):
        under.insert(0, number_text(whole))
    elif amount != 1.0 or not over:
        over.insert(0, number_text(amount))
    top = " * ".join(over) or "1"
    if not under:
        return top
    return f"{top} / {under[0]}" if len(under) == 1 else f"{top} / ({' * '.join(under)})"


def power_text(base: str, power: Fraction) -> str:
    if power == 1:
        return base
    if power.denominator == 2:
        inner = base[1:-1] if base.startswith("(") and base.endswith(")") else base
        return f"sqrt({inner})" + (f"^{power.numerator}" if power.numerator != 1 else "")
    return f"{base}^{power.numerator}"


def number_text(value: float) -> str:
    """A number, without a decimal point if it is an integer."""
    return str(int(value)) if value == round(value) and abs(value) < 1e15 else float_text(value)


def atom_formula(text: str) -> SumOfProducts:
    """The formula of a name or a call."""
    return SumOfProducts({((text, Fraction(1)),): 1.0})


def constant_formula(value: float) -> SumOfProducts:
    return SumOfProducts({(): value} if value else {})


def apply_op(op: str, parts: Sequence[SumOfProducts], n: int = 0) -> SumOfProducts | None:
    """The formula of an op on formulas; None if the op is not arithmetic."""
    match op:
        case "add" | "sub":
            return parts[0].plus(parts[1], 1.0 if op == "add" else -1.0)
        case "neg":
            return constant_formula(-1.0).times(parts[0])
        case "mul":
            return parts[0].times(parts[1])
        case "div":
            below = parts[1].power(Fraction(-1))
            return None if below is None else parts[0].times(below)
        case "positive":
            return parts[0]
        case "integer_pow":
            return parts[0].power(Fraction(n))
        case "sqrt":
            return parts[0].power(HALF)
        case "rsqrt":
            return parts[0].power(-HALF) or atom_formula(f"sqrt({parts[0].text})").power(Fraction(-1))
        case _:
            return None
