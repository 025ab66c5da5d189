"""Symbolic sizes of axes: a number where it is known, else a polynomial in dim names and floor divisions.

`Dim` is `int | Poly`. Arithmetic on a `Poly` returns an `int` as soon as no name is left, so concrete graphs hold only
numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec import Struct


class UnknownSize(Exception):
    """A decision needs the number of a size, but only its name is known."""


class FloorDiv(Struct, frozen=True):
    """An atom `lhs // rhs` that does not simplify."""

    lhs: Dim
    rhs: Dim

    def __str__(self) -> str:
        return f"{parenthesized(self.lhs)} // {parenthesized(self.rhs)}"


Atom = str | FloorDiv
Monomial = tuple[Atom, ...]  # a sorted product of atoms, () for the constant term


class Poly(Struct, frozen=True):
    """A polynomial with integer coefficients: sorted (monomial, nonzero coefficient) pairs."""

    terms: tuple[tuple[Monomial, int], ...]

    def __add__(self, other: Dim) -> Dim:
        total = dict(self.terms)
        for monomial, coefficient in polynomial_terms(other):
            total[monomial] = total.get(monomial, 0) + coefficient
        return dim_from_terms(total)

    def __neg__(self) -> Dim:
        return dim_from_terms({m: -c for m, c in self.terms})

    def __sub__(self, other: Dim) -> Dim:
        return self + -other

    def __rsub__(self, other: int) -> Dim:
        return -self + other

    def __mul__(self, other: Dim) -> Dim:
        total: dict[Monomial, int] = {}
        for left, a in self.terms:
            for right, b in polynomial_terms(other):
                product = tuple(sorted((*left, *right), key=str))
                total[product] = total.get(product, 0) + a * b
        return dim_from_terms(total)

    # Comparing symbolic sizes has no answer in general; without this, Python would fall back to a TypeError.
    def __lt__(self, other: object) -> bool:
        raise UnknownSize(f"the size `{self}`")

    __le__ = __gt__ = __ge__ = __lt__

    __radd__ = __add__
    __rmul__ = __mul__

    def __floordiv__(self, other: Dim) -> Dim:
        return floor_div(self, other)

    def __rfloordiv__(self, other: int) -> Dim:
        return floor_div(other, self)

    def __mod__(self, other: Dim) -> Dim:
        return self - floor_div(self, other) * other

    def __str__(self) -> str:
        text = ""
        # A positive term comes first if there is one: the syntax of types has no leading minus.
        first = next((t for t in self.terms if t[1] > 0), self.terms[0])
        for monomial, coefficient in (first, *[t for t in self.terms if t is not first]):
            scale = abs(coefficient)
            alone = len(monomial) == scale == 1
            size = "*".join(str(a) if alone else parenthesized_atom(a) for a in monomial)
            body = str(scale) if not size else size if scale == 1 else f"{scale}*{size}"
            text += (" - " if coefficient < 0 else " + ") + body
        return text[3:] if text.startswith(" + ") else "-" + text[3:]


Dim = int | Poly


def dim_name(text: str) -> Poly:
    """The dim that is a name by itself."""
    return Poly((((text,), 1),))


def polynomial_terms(dim: Dim) -> tuple[tuple[Monomial, int], ...]:
    if isinstance(dim, Poly):
        return dim.terms
    return (((), dim),) if dim else ()


def dim_from_terms(terms: Mapping[Monomial, int]) -> Dim:
    # A canonical order of terms makes equal polynomials equal structs, and gives them one text.
    left = {m: c for m, c in terms.items() if c}
    if not left:
        return 0
    if len(left) == 1:
        return left[()] if () in left else Poly(tuple(left.items()))
    return Poly(tuple(sorted(left.items(), key=lambda term: (-len(term[0]), str(term[0])))))


def floor_div(lhs: Dim, rhs: Dim) -> Dim:
    """`lhs // rhs`: exact where every coefficient divides, else with a `FloorDiv` atom. `rhs` is not the number 0."""
    if isinstance(lhs, int) and isinstance(rhs, int):
        return lhs // rhs
    if lhs == rhs or lhs == 0:
        return 0 if lhs == 0 else 1
    divisor = polynomial_terms(rhs)
    if len(divisor) != 1:
        return atom_dim(FloorDiv(lhs, rhs))
    # Terms that divide leave the floor, since floor(q + r / n) = q + floor(r / n) for an integer q.
    whole, rest = dict[Monomial, int](), dict[Monomial, int]()
    for monomial, coefficient in polynomial_terms(lhs):
        quotient = divided_term(monomial, coefficient, *divisor[0])
        if quotient is None:
            rest[monomial] = coefficient
        else:
            whole[quotient[0]] = quotient[1]
    left = dim_from_terms(rest)
    if isinstance(left, int) and (isinstance(rhs, int) or left == 0):
        return dim_from_terms(whole) + (left // rhs if isinstance(rhs, int) else 0)
    return dim_from_terms(whole) + atom_dim(FloorDiv(left, rhs))


def divided_term(monomial: Monomial, coefficient: int, divisor: Monomial, by: int) -> tuple[Monomial, int] | None:
    """A term divided by another one, if that is a term again."""
    left = list(monomial)
    for atom in divisor:
        if atom not in left:
            return None
        left.remove(atom)
    return None if coefficient % by else (tuple(left), coefficient // by)


def atom_dim(a: Atom) -> Poly:
    return Poly((((a,), 1),))


def dim_names(dim: Dim) -> frozenset[str]:
    """Every dim name that a size mentions."""
    found: set[str] = set()
    todo: list[Dim] = [dim]
    while todo:
        for monomial, _ in polynomial_terms(todo.pop()):
            for a in monomial:
                if isinstance(a, FloorDiv):
                    todo += [a.lhs, a.rhs]
                else:
                    found.add(a)
    return frozenset(found)


def has_floor_div(dim: Dim) -> bool:
    return any(isinstance(a, FloorDiv) for monomial, _ in polynomial_terms(dim) for a in monomial)


def substitute_dims(dim: Dim, value: Callable[[str], Dim]) -> Dim:
    """The size with every name replaced by its `value`."""
    if isinstance(dim, int):
        return dim
    total: Dim = 0
    for monomial, coefficient in dim.terms:
        product: Dim = coefficient
        for a in monomial:
            factor = (
                floor_div(substitute_dims(a.lhs, value), substitute_dims(a.rhs, value))
                if isinstance(a, FloorDiv)
                else value(a)
            )
            product = product * factor
        total = total + product
    return total


def parenthesized(dim: Dim) -> str:
    text = str(dim)  # once, since nested divisions would double the work at each level
    return f"({text})" if isinstance(dim, Poly) and (len(dim.terms) > 1 or " " in text or "*" in text) else text


def parenthesized_atom(a: Atom) -> str:
    return f"({a})" if isinstance(a, FloorDiv) else a
