"""Decides whether two symbolic sizes are equal: by a proof for all numbers, or by small numbers for which they differ.

Floor division by numbers is decided completely: a name is written as `period * name + remainder`, where the divisions
come out even, and each remainder is a case of its own. Other claims are tried on small numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import product
from math import lcm, prod

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from difflang.ir.symbolic_dims import (
    Dim,
    FloorDiv,
    Poly,
    atom_dim,
    dim_name,
    dim_names,
    floor_div,
    polynomial_terms,
    substitute_dims,
)

MAX_CASES = 512  # remainders of all names together
SAMPLES = 8192  # tried assignments of numbers to names
EXACT = 2.0**62  # numbers below do not overflow

Samples = Mapping[str, NDArray[np.int64]]


class SizeCondition(Struct, frozen=True):
    """A condition on sizes: the names in it, and which of many samples meet it."""

    names: frozenset[str]
    holds: Callable[[Samples], NDArray[np.bool_]]


def always_equal(a: Dim, b: Dim) -> bool:
    """Whether two sizes are proved to be equal, whatever their names stand for."""
    difference = canonical_divisions(a - b)
    if difference == 0:
        return True
    periods = division_periods(difference)
    if prod(periods.values()) > MAX_CASES:
        return False
    # In each case the divisions come out even, and the normal form of polynomials decides.
    for remainders in product(*map(range, periods.values())):
        case = {name: dim_name(name) * periods[name] + r for name, r in zip(periods, remainders, strict=True)}
        if substitute_dims(difference, lambda name, case=case: case.get(name, dim_name(name))) != 0:
            return False
    return True


def canonical_divisions(dim: Dim) -> Dim:
    """The same size, where divisions by numbers are not nested and have a constant below the divisor."""
    total: Dim = 0
    for monomial, coefficient in polynomial_terms(dim):
        term: Dim = coefficient
        for atom in monomial:
            term = term * (canonical_division(atom) if isinstance(atom, FloorDiv) else dim_name(atom))
        total = total + term
    return total


def canonical_division(atom: FloorDiv) -> Dim:
    lhs, rhs = canonical_divisions(atom.lhs), canonical_divisions(atom.rhs)
    if not isinstance(rhs, int) or rhs <= 0:
        return floor_div(lhs, rhs) if rhs != 0 else atom_dim(atom)
    whole = dict(polynomial_terms(lhs)).get((), 0) // rhs
    lhs = lhs - whole * rhs
    inner = lhs.terms[0][0][0] if isinstance(lhs, Poly) and lhs.terms[0][0] else None
    # floor(floor(n / a) / b) = floor(n / (a b))
    if isinstance(inner, FloorDiv) and lhs == atom_dim(inner) and isinstance(inner.rhs, int) and inner.rhs > 0:
        lhs, rhs = inner.lhs, inner.rhs * rhs
    return whole + floor_div(lhs, rhs)


def division_periods(dim: Dim) -> dict[str, int]:
    """For each name that is divided by numbers, a number by whose multiples it can grow without a remainder."""
    periods: dict[str, int] = {}
    todo: list[tuple[Dim, int]] = [(dim, 1)]
    while todo:
        part, divisor = todo.pop()
        for monomial, _ in polynomial_terms(part):
            for atom in monomial:
                if not isinstance(atom, FloorDiv):
                    periods[atom] = lcm(periods.get(atom, 1), divisor)
                elif isinstance(atom.rhs, int):
                    todo.append((atom.lhs, divisor * abs(atom.rhs)))
    return {name: period for name, period in periods.items() if period > 1}


def differing_numbers(a: Dim, b: Dim, conditions: Sequence[SizeCondition] = ()) -> dict[str, int] | None:
    """Small numbers for which the conditions hold and two sizes differ; None if none were found."""
    wanted = dim_names(a) | dim_names(b)
    related = related_conditions(wanted, conditions)
    names = sorted(wanted.union(*[c.names for c in related]))
    # `max(n, m)` of two sizes is a name of its own, which is not free.
    if not names or not all(name.isidentifier() for name in names):
        return None
    samples = small_numbers(names)
    first, second = evaluate_dim(a, samples), evaluate_dim(b, samples)
    # A size below 0 and a division by less than 1 are errors of their own.
    differs = (first[0] != second[0]) & (first[0] >= 0) & (second[0] >= 0) & first[1] & second[1]
    for condition in related:
        differs &= condition.holds(samples)
    if not differs.any():
        return None
    return {name: int(samples[name][differs.argmax()]) for name in names}


def related_conditions(names: Collection[str], conditions: Sequence[SizeCondition]) -> list[SizeCondition]:
    """The conditions on these names, and on names that those relate to them."""
    found, known, left = list[SizeCondition](), set(names), list(conditions)
    while near := [c for c in left if not known.isdisjoint(c.names)]:
        found += near
        known.update(*[c.names for c in near])
        left = [c for c in left if c not in near]
    return found


def small_numbers(names: Sequence[str]) -> Samples:
    """Every assignment of numbers from 1 on, up to one that depends on how many names there are."""
    most = max(2, int(SAMPLES ** (1 / len(names))))
    # Of very many names some share an axis: that may miss numbers that differ, and finds no wrong ones.
    axes = np.indices((most,) * min(len(names), 13)).reshape(min(len(names), 13), -1) + 1
    return {name: axes[i % len(axes)].astype(np.int64) for i, name in enumerate(names)}


def evaluate_dim(dim: Dim, samples: Samples) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The number of a size for each sample, and whether it is one: a size divided by less than 1 is none, nor is one
    that overflows.
    """
    count = len(next(iter(samples.values())))
    total, valid = np.zeros(count, np.int64), np.ones(count, np.bool_)
    bound = np.zeros(count)
    for monomial, coefficient in polynomial_terms(dim):
        if abs(coefficient) >= EXACT:
            return total, np.zeros(count, np.bool_)
        term, most = np.full(count, coefficient, np.int64), np.full(count, abs(float(coefficient)))
        for atom in monomial:
            if not isinstance(atom, FloorDiv):
                factor = samples[atom]
            else:
                (lhs, fits), (rhs, divides) = evaluate_dim(atom.lhs, samples), evaluate_dim(atom.rhs, samples)
                valid &= fits & divides & (rhs > 0)
                factor = lhs // np.maximum(rhs, 1)
            term, most = term * factor, most * np.abs(factor.astype(np.float64))
        total, bound = total + term, bound + most
    return total, valid & (bound < EXACT)
