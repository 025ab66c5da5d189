"""Whether the cases of a `match` are all there and all needed: against trying every value of a small type."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from random import Random

import pytest

from difflang.base.source import Source
from difflang.ir.tensor_types import BOOL, I32, Tensor
from difflang.syntax import tree
from difflang.syntax.parse import parse
from difflang.types.annotations import AnnotationResolver
from difflang.types.language_types import LangType, SumType, TupleType, VariantType
from difflang.types.match_patterns import (
    TUPLE_KEY,
    WILDCARD,
    CheckedPattern,
    ConstructorPattern,
    ExhaustivenessChecker,
    IrrefutablePattern,
)
from difflang.types.unify import Unifier

SOURCE = Source(
    "patterns.dfl", "enum Side { Left, Right }\nenum Move { Turn(to: Side, fast: bool), Stay, Wait(on: Side) }\n"
)
DECLARED = {item.name: item for item in parse(SOURCE).module.items if isinstance(item, tree.Enum)}
UNIFIER = Unifier()
MOVE, SIDE = (
    AnnotationResolver(UNIFIER, DECLARED.get).declaration_type(DECLARED[name], {}) for name in ("Move", "Side")
)
TYPES: list[LangType] = [MOVE, SIDE, TupleType((MOVE, Tensor(BOOL))), TupleType((SIDE, SIDE, Tensor(BOOL)))]
Value = tuple[object, ...]


def beginnings(type: LangType) -> list[tuple[tuple[str, object], tuple[LangType, ...]]]:
    match type:
        case SumType(options=options):
            return [(("variant", o.index), o.fields) for o in options if isinstance(o, VariantType)]
        case TupleType(items=items):
            return [(TUPLE_KEY, items)]
        case _:
            return [(("literal", b), ()) for b in (True, False)]


def values(type: LangType) -> Iterator[Value]:
    """Every value, as its key and those of its parts."""
    for key, parts in beginnings(type):
        for inside in product(*map(values, parts)):
            yield (key, *inside)


def pattern(random: Random, type: LangType, depth: int) -> CheckedPattern:
    if depth == 0 or random.random() < 0.4:
        return WILDCARD if random.random() < 0.7 else IrrefutablePattern("x")
    key, parts = random.choice(beginnings(type))
    return ConstructorPattern(key, tuple([pattern(random, t, depth - 1) for t in parts]))


def fits(fit: CheckedPattern, value: Value) -> bool:
    if isinstance(fit, IrrefutablePattern):
        return True
    key, *parts = value
    return key == fit.key and all(fits(f, p) for f, p in zip(fit.items, parts, strict=True))  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(150))
def test_coverage_is_that_of_trying_every_value(seed: int) -> None:
    random = Random(seed)
    type = TYPES[seed % len(TYPES)]
    rows = [pattern(random, type, 3) for _ in range(random.randint(1, 6))]
    coverage = ExhaustivenessChecker(UNIFIER, DECLARED["Move"].span)
    everything = list(values(type))
    missing = coverage.missing_cases([[r] for r in rows], [type])
    assert bool(missing) == any(not any(fits(r, v) for r in rows) for v in everything)
    for i, row in enumerate(rows):
        needed = any(fits(row, v) and not any(fits(r, v) for r in rows[:i]) for v in everything)
        assert coverage.is_useful([[r] for r in rows[:i]], [row], [type]) == needed


def test_every_variant_that_is_missing_is_named() -> None:
    coverage = ExhaustivenessChecker(UNIFIER, DECLARED["Move"].span)
    left = ConstructorPattern(("variant", 0), (ConstructorPattern(("variant", 0), ()), WILDCARD))
    assert coverage.missing_cases([[left]], [MOVE]) == [["Turn(Right, _)"], ["Stay"], ["Wait(_)"]]


def test_a_long_match_is_gone_through_in_time() -> None:
    """Cases of 200 numbers, each needed."""
    rows: list[CheckedPattern] = [ConstructorPattern(("literal", i), ()) for i in range(200)]
    coverage = ExhaustivenessChecker(UNIFIER, DECLARED["Move"].span)

    assert all(coverage.is_useful([[r] for r in rows[:i]], [row], [Tensor(I32)]) for i, row in enumerate(rows))
    assert coverage.missing_cases([[r] for r in rows], [Tensor(I32)]) == [["_"]]
