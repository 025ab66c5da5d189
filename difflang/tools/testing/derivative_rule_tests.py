"""Tests of a file's derivative rules: each is compared with its function's body at random arguments."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from difflang.base.diagnostics import Diagnostic, DifflangError, Label
from difflang.driver.checked_program import CheckedProgram
from difflang.driver.elaborate_call import CallArgument
from difflang.driver.run_program import load_values
from difflang.elaborate.context import Session
from difflang.execution.engine import Engine
from difflang.host.values import HostValue
from difflang.syntax import tree
from difflang.syntax.tree_queries import mentioned_names
from difflang.tools import random_arguments
from difflang.tools.check_grad import elaborate_first_choice, find_finite_arguments
from difflang.tools.rule_faults import rule_callers
from difflang.tools.testing.derivative_rule_comparison import (
    RuleComparison,
    compare_rule,
    inverse_error,
    rounding_sensitivity,
)
from difflang.types.language_types import LangType, leaf_types
from difflang.types.module_scope import HostVars

POINTS = 3
# A function with one of these errors at random arguments is not compared.
SKIPPED_CODES = ("DL03", "DL04", "DL08", "DL09", "DL12")


class UnstableDerivative(Exception):
    """Rounding decides the derivative of the body, so that no rule can agree with it."""


class NotComparable(Exception):
    """There is nothing to compare the rule with; says why, and what to do."""


def rule_faults(checked: CheckedProgram, path: Path | None, rule: tree.Rule, seed: int) -> list[Diagnostic]:
    """The faults of a rule: none if its derivative is that of the body, forwards and in reverse.

    The rule's function is called with random arguments; one that takes functions is reached through its callers in the
    file. Differences up to the square root of the precision count as rounding, and as the error of a truncated
    iteration.
    Errors: NotComparable, and DifflangError as in a call.
    """
    reasons: list[str] = []
    for _, decl in rule_callers(rule, checked, [checked]):
        try:
            found = faults_at_points(checked, path, rule, decl, seed)
        except DifflangError as error:
            if not error.diagnostics[0].code.startswith(SKIPPED_CODES):
                raise
            reasons.append(error.diagnostics[0].message)
            continue
        # Values of the file were bound for this comparison only.
        finally:
            checked.module.host = HostVars()
        if found is not None:
            return found
        reasons.append(f"at the drawn arguments, the derivative of `{decl.name}` without the rule depends on rounding")
    way = f"compare it through a function that calls `{rule.name}` and takes only numbers"
    raise NotComparable(f"{reasons[0]}: {way}" if reasons else way)


def faults_at_points(
    checked: CheckedProgram, path: Path | None, rule: tree.Rule, decl: tree.Fn, seed: int
) -> list[Diagnostic] | None:
    """The faults found at several points; None if all of them are unstable."""
    found: list[list[Diagnostic]] = []
    for i in range(POINTS):
        with suppress(UnstableDerivative):
            found.append(faults_at_point(checked, path, rule, decl, seed + i))
    return next((f for f in found if f), []) if found else None


def faults_at_point(
    checked: CheckedProgram, path: Path | None, rule: tree.Rule, decl: tree.Fn, seed: int
) -> list[Diagnostic]:
    """The faults found at one point."""
    arguments, values = draw_rule_arguments(checked, path, decl, seed)
    at = f"at {random_arguments.arguments_text(arguments)}, seed {seed}" if arguments else f"seed {seed}"
    if rule.by == "inverse":
        return inverse_faults(checked, path, rule, decl, values, at)
    found = compare_rule(checked, decl.name, values, path=path, seed=seed)
    # A truncated iteration is exact to about half the digits.
    tolerance = max([coarsest_eps(v.type) for v in values], default=0.0) ** 0.5
    if found.within(tolerance):
        return []
    if found.adjoint_gap <= tolerance and "stop" in mentioned_names(checked.module.fns[rule.name].body):
        way = f"`difflang check-grad {rule.span.source.name}:{decl.name}` compares it with differences"
        raise NotComparable(f"the body of `{rule.name}` stops derivatives: {way}")
    if found.tangent > tolerance and rounding_sensitivity(checked, decl.name, values, path=path, seed=seed) > tolerance:
        raise UnstableDerivative
    labels = (Label(rule.name_span, describe_difference(found, tolerance)), Label(decl.name_span, f"compared {at}"))
    ways = (
        f"`difflang check-grad {rule.span.source.name}:{decl.name}` shows more",
        f"to exclude arguments that `{decl.name}` does not accept, add an `assert` to it",
    )
    return [Diagnostic("DL0406", f"the rule of `{rule.name}` is not the derivative of its body", labels, ways)]


def inverse_faults(
    checked: CheckedProgram, path: Path | None, rule: tree.Rule, decl: tree.Fn, values: Sequence[HostValue], at: str
) -> list[Diagnostic]:
    """The faults of a rule by inverse: it must restore the arguments of the function."""
    differs = inverse_error(checked, decl.name, values, rule.name, path=path)
    if differs <= max([coarsest_eps(v.type) for v in values], default=0.0) ** 0.5:
        return []
    message = f"the inverse of `{rule.name}` does not return the argument of `{rule.name}`"
    labels = Label(rule.name_span, f"it differs by {differs:.1e}"), Label(decl.name_span, f"compared {at}")
    return [Diagnostic("DL1106", message, labels)]


def describe_difference(found: RuleComparison, tolerance: float) -> str:
    """A description of the first of the three comparisons that fails."""
    if found.value > tolerance:
        return f"its value differs by {found.value:.1e}"
    if found.tangent > tolerance:
        return f"the derivative differs by {found.tangent:.1e}"
    return f"its transpose is not its adjoint: the inner products differ by {found.adjoint_gap:.1e}"


def draw_rule_arguments(
    checked: CheckedProgram, path: Path | None, decl: tree.Fn, seed: int
) -> tuple[tuple[CallArgument, ...], list[HostValue]]:
    """Random arguments at which a function has a finite value. Errors: DL1210, DL03, DL09."""
    captured = load_values(checked, path, Engine("interpret"))
    session = Session()
    entry, arguments = elaborate_first_choice(session, checked, decl, {})
    constants = [np.asarray(x) for name in entry.globals for x in captured.leaves(name)]
    arrays = find_finite_arguments(session, decl, entry, arguments, constants, seed)
    return arguments, list(to_host_values(arguments, arrays))


def to_host_values(arguments: Sequence[CallArgument], arrays: Sequence[Any]) -> Iterator[HostValue]:
    rest = iter(arrays)
    for argument in arguments:
        if argument.size is not None:
            yield HostValue(argument.type, (), argument.size)
        else:
            yield HostValue(argument.type, tuple([next(rest) for _ in leaf_types(argument.type)]))


def coarsest_eps(type: LangType) -> float:
    """The machine epsilon of a value's least precise floats."""
    leaves = [t for t in leaf_types(type) if t.tangent is not None]
    return max([float(ml_dtypes.finfo(t.dtype.numpy).eps) for t in leaves], default=0.0)
