"""Rules of ops made wrong on purpose, one after the other: what a check of derivatives must notice."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from msgspec.structs import force_setattr, replace

from difflang.ir.graph import Value
from difflang.ir.op import OPS, DerivativeOperator, Op
from difflang.ir.tensor_types import History
from difflang.ops.ad_interface import Tangents
from difflang.ops.op_factories import PerOperandRules

Change = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Breakage:
    """One fact of an op made wrong: a field, or a rule of its derivative."""

    op: Op
    fact: str
    how: str
    wrong: Any  # the value of the field
    calls: list[None] = field(default_factory=list[None])  # one for each time that what is wrong was asked
    attribute: str = ""  # of the op, where it is not the fact itself

    def __str__(self) -> str:
        return f"{self.op}: {self.fact}, {self.how}"

    @contextmanager
    def done(self) -> Iterator[None]:
        """The op of the registry itself is wrong for as long as this lasts."""
        fact = self.attribute or self.fact
        right = getattr(self.op, fact)
        self.calls.clear()
        force_setattr(self.op, fact, self.wrong)
        try:
            yield
        finally:
            force_setattr(self.op, fact, right)


def scaled(x: Value | None) -> Value | None:
    if x is None or isinstance(x.type, History):
        return x if x is None else OPS["add_history"].one(x, x)
    return x * 1.01


def negated(x: Value | None) -> Value | None:
    return x if x is None or isinstance(x.type, History) else -x


def dropped(x: Value | None) -> None:
    return None


CHANGES: dict[str, Change] = {"scaled": scaled, "negated": negated, "dropped": dropped}


def breakages(op: Op) -> Iterator[Breakage]:
    """Every way in which the derivative of an op is broken here."""
    for fact in ("jvp", "transpose"):
        rules = getattr(op.operand_rules, fact)
        for i in operands_of(rules):
            for how, change in CHANGES.items():
                if how == "negated" and op.name == "add_history":
                    continue  # histories have no difference
                calls: list[None] = []
                wrong = with_change(rules, i, change, calls)
                yield derivative_broken(op, fact, f"operand {i} {how}", wrong, calls)
    for fact in ("linearize", "jvp"):
        if (rule := getattr(op.equation_rules, fact, None)) is not None:
            for how, change in (("scaled", scaled), ("negated", negated)):
                yield derivative_broken(op, fact, how, tangents_changed(rule, change))
            yield derivative_broken(op, fact, "a tangent dropped", without_a_tangent(rule))
    if op.equation_rules is not None and (turned := op.equation_rules.transpose) is not None:
        for how, change in CHANGES.items():
            yield derivative_broken(op, "transpose", how, cotangents_changed(turned, change))
    if isinstance(op.derivative, DerivativeOperator):
        yield derivative_broken(op, "expand", "scaled", expansion_changed(op.derivative.expand))


def derivative_broken(op: Op, rule: str, how: str, wrong: Any, calls: list[None] | None = None) -> Breakage:
    return Breakage(
        op, rule, how, replace(op.derivative, **{rule: wrong}), calls if calls is not None else [], "derivative"
    )


def operands_of(rules: Sequence[Any] | None) -> list[int]:
    if rules is None:
        return []
    count = 2 if isinstance(rules, PerOperandRules) else len(rules)
    return [i for i in range(count) if rules[i] is not None]


def with_change(rules: Sequence[Any], i: int, change: Change, calls: list[None]) -> Sequence[Any]:
    def wrong(*args: Any, **attrs: Any) -> Any:
        calls.append(None)
        found = rules[i](*args, **attrs)
        return tuple(map(change, found)) if isinstance(found, (tuple, list)) else change(found)

    if isinstance(rules, PerOperandRules):
        return PerOperandRules(lambda j: wrong if j == i else rules[j])
    return tuple(wrong if j == i else r for j, r in enumerate(rules))


def tangents_changed(rule: Any, change: Change) -> Any:
    def wrong(ad: Any, eqn: Any, xs: Any, dxs: Any) -> Any:
        ys, dys = rule(ad, eqn, xs, dxs)
        return ys, [change(d) for d in dys]

    return wrong


def without_a_tangent(rule: Any) -> Any:
    """The last operand that has a tangent is said to have none."""

    def wrong(ad: Any, eqn: Any, xs: Any, dxs: Any) -> Any:
        last = max(i for i, d in enumerate(dxs.values) if d is not None)
        values = tuple(None if i == last else d for i, d in enumerate(dxs.values))
        return rule(ad, eqn, xs, Tangents(dxs.builder, values))

    return wrong


def cotangents_changed(rule: Any, change: Change) -> Any:
    def wrong(*args: Any) -> Any:
        back = list(rule(*args))
        first = next((i for i, c in enumerate(back) if c is not None), None)
        return [change(c) if i == first else c for i, c in enumerate(back)]

    return wrong


def expansion_changed(rule: Any) -> Any:
    def wrong(ad: Any, builder: Any, eqn: Any, operands: Any) -> Any:
        found = list(rule(ad, builder, eqn, operands))
        n = len(eqn.regions[0].results)
        return [*found[:n], *map(scaled, found[n:])]

    return wrong


def broken_lowering(op: Op) -> Breakage:
    """What an op is compiled to gives a hundredth more than its reference; of two histories, one is forgotten."""
    fact = "lower" if op.cpu_lower_rule is None else "cpu_lower_rule"
    right = getattr(op, fact)
    if op.name == "add_history":
        return Breakage(op, "lower", "dropped", lambda jax, x, y: x)

    def wrong(*args: Any, **more: Any) -> Any:
        found = right(*args, **more)
        return more_of(found) if not isinstance(found, (list, tuple)) else type(found)(map(more_of, found))

    return Breakage(op, fact, "scaled", wrong)


def broken_reference(op: Op) -> Breakage:
    right = op.reference

    def wrong(*args: Any, **more: Any) -> Any:
        found = right(*args, **more)
        return grown(found) if not isinstance(found, (list, tuple)) else type(found)(map(grown, found))

    return Breakage(op, "reference", "scaled", wrong)


def more_of(x: Any) -> Any:
    return x * np.asarray(1.01, x.dtype)[()] if hasattr(x, "dtype") and np.issubdtype(x.dtype, np.inexact) else x


def grown(x: Any) -> Any:
    if isinstance(x, list):
        return x
    x = np.asarray(x)
    return (x * np.asarray(1.01)).astype(x.dtype) if x.dtype.kind in "fc" else x
