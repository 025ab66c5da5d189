"""Compares one derivative rule with its function at drawn arguments, and reports what differs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
from msgspec import Struct

from difflang.base.diagnostics import Diagnostic, DifflangError, Label
from difflang.driver.capacity_for_call import with_fitted_capacity
from difflang.driver.checked_program import CheckedProgram
from difflang.driver.elaborate_call import CallArgument, ElaboratedCall
from difflang.driver.run_program import load_values
from difflang.elaborate.context import FAILURE_TYPES, Session
from difflang.execution.check_failures import ArrayProgram
from difflang.execution.engine import Engine
from difflang.gradcheck.report import format_distinct
from difflang.gradcheck.rule_comparison import MAX_STEPS, RuleFault, compare_inverse, compare_rule_call, record_calls
from difflang.ir.graph import Eqn, Graph
from difflang.ir.interpreter import StepLimitExceeded, TextSink, evaluate_with_limit
from difflang.lower.lowering_pipeline import expand_keeping_rules
from difflang.ops.loop.invertible_op import invertible
from difflang.syntax import tree
from difflang.syntax.tree_queries import mentioned_names
from difflang.tools.check_grad import EndlessRuns, elaborate_first_choice, find_finite_arguments
from difflang.types.module_scope import GlobalName

# Of the random arguments of a rule; a lone number differs in sign and size. All are compared if that takes less than
SEEDS = (0, 3, 5, 8, 1, 2, 4, 6, 7, 9, 10, 11)
MAX_SECONDS = 2.0
CALLS = 2  # compared of one equation in a run
MAX_VALUE_STEPS = 100_000  # equations of a top-level value that a rule reads
MAX_CALLERS = 8  # tried in place of a function whose arguments cannot be drawn
MAX_EXTERN_SECONDS = 0.05  # of a run that calls Python, which is repeated some fifty times
# An opt-out that the reports mention.
OPT_OUT = "write `@unchecked` before the rule"

# The arrays of a top-level value, as a program's function sees it.
GlobalLeaves = Callable[[GlobalName], Sequence[Any]]
LeavesOf = Callable[[CheckedProgram], GlobalLeaves]


# The way out where a rule is not verified, by reason.
DRAWABLE = f"add a function that calls `{{}}` and takes only numbers, or {OPT_OUT}"
FEWER_STEPS = (
    "it is verified where a function calls it with arguments for which it takes few steps; "
    f"if there are none, {OPT_OUT}"
)
ACCEPTED = f"add a function that calls `{{}}` with arguments that it accepts, or {OPT_OUT}"
SMOOTHER = f"if it is smooth elsewhere, add a function that calls `{{}}` there; if not, {OPT_OUT}"
READABLE = f"it is verified where the file can be read; if there is none, {OPT_OUT}"
CALLED = f"add a function that always calls `{{}}`, or {OPT_OUT}"


class RuleUnverified(Exception):
    """A rule that could not be compared; the message says why, `way` what to do, with `{}` for its function."""

    def __init__(self, message: str, way: str = OPT_OUT) -> None:
        super().__init__(message)
        self.way = way


def verify_rule(
    rule: tree.Rule, own: CheckedProgram, programs: Sequence[CheckedProgram], leaves_in: LeavesOf
) -> tuple[Diagnostic, ...]:
    """The fault of a rule as an error, or a warning if nothing could be compared.

    `own` is the program as the file of the rule sees it; functions of all `programs` may call the rule's function.
    """
    reasons: dict[str, RuleUnverified] = {}
    for program, decl in islice(rule_callers(rule, own, programs), MAX_CALLERS):
        try:
            fault = compare_through(rule, program, decl, leaves_in)
        except RuleUnverified as error:
            reasons[decl.name] = error
            continue
        return () if fault is None else (fault,)
    (_, reason), *others = reasons.items()
    name = rule.name
    # A caller that takes only numbers is no way out where one has been tried.
    way = next((r.way for r in reasons.values() if r.way != DRAWABLE), DRAWABLE)
    ways = (*[f"nor through `{caller}`: {why}" for caller, why in others], way.format(name))
    message = f"the rule of `{name}` is not verified: {reason}"
    return (Diagnostic("DL1110", message, (Label(rule.name_span),), ways, "warning"),)


class BoundedEngine(Engine, frozen=True):
    """Interprets at most `MAX_VALUE_STEPS` equations and discards prints. Errors: StepLimitExceeded."""

    def run_finished(self, ready: Graph, says: TextSink) -> ArrayProgram:
        def program(*arrays: Any) -> Sequence[Any]:
            return evaluate_with_limit(MAX_VALUE_STEPS, ready, *[np.asarray(a) for a in arrays])

        return program


def lazy_leaves(paths: Mapping[CheckedProgram, Path | None], program: CheckedProgram) -> GlobalLeaves:
    """The top-level values of a program, evaluated on demand. Errors: StepLimitExceeded for one that takes long."""
    return load_values(program, paths[program], BoundedEngine("interpret")).leaves


def rule_callers(
    rule: tree.Rule, own: CheckedProgram, programs: Sequence[CheckedProgram]
) -> Iterator[tuple[CheckedProgram, tree.Fn]]:
    """The function of a rule, then the functions of the program that mention it."""
    yield own, own.module.fns[rule.name]
    for program in (own, *[p for p in programs if p is not own]):
        for decl in program.module.fns.values():
            if not decl.host and decl.name != rule.name and rule.name in mentioned_names(decl.body):
                yield program, decl


def compare_through(rule: tree.Rule, program: CheckedProgram, decl: tree.Fn, leaves_in: LeavesOf) -> Diagnostic | None:
    """Compare a rule wherever a function calls its function, at several points. Errors: RuleUnverified."""
    numbers, reached, begun = 0, False, monotonic()
    caller = None
    try:
        caller = DrawnCaller.elaborate(program, decl, leaves_in)
        for seed in SEEDS:
            if numbers and monotonic() - begun > MAX_SECONDS:
                break
            rng = np.random.default_rng(seed)
            for eqn, operands in caller.calls(rule, seed):
                if rule.by == "inverse":
                    found = compare_inverse(eqn, operands)
                else:
                    found = compare_rule_call(eqn, operands, rng, caller.status_results(eqn))
                numbers, reached = numbers + found.numbers, True
                if found.fault is not None:
                    return describe_fault(rule, decl, found.fault, point_text(rule, eqn, operands))
    except DifflangError as error:
        raise undrawable_reason(decl, error, elaborated=caller is not None) from None
    except StepLimitExceeded:
        raise RuleUnverified("its function takes too many steps at the drawn arguments", FEWER_STEPS) from None
    if not reached:
        raise RuleUnverified(f"`{decl.name}` does not call it at the drawn arguments", CALLED)
    if not numbers:
        raise RuleUnverified("finite differences determine no slope at the drawn arguments", SMOOTHER)
    return None


def undrawable_reason(decl: tree.Fn, error: DifflangError, *, elaborated: bool) -> RuleUnverified:
    found = error.diagnostics[0]
    if found.code.startswith("DL09"):
        return RuleUnverified(f"a check in `{decl.name}` fails at all drawn arguments", ACCEPTED)
    if found.code.startswith("DL07"):
        return RuleUnverified(found.message, READABLE)
    if isinstance(error, EndlessRuns):
        return RuleUnverified(f"`{decl.name}` takes more than {MAX_STEPS:,} steps at the drawn arguments", FEWER_STEPS)
    return RuleUnverified(found.message, ACCEPTED if elaborated else DRAWABLE)


class DrawnCaller(Struct, frozen=True, eq=False):
    """A function elaborated for arguments that can be drawn, and the top-level values that it reads."""

    session: Session
    decl: tree.Fn
    entry: ElaboratedCall
    arguments: tuple[CallArgument, ...]
    constants: tuple[Any, ...]
    externs: bool

    @classmethod
    def elaborate(cls, program: CheckedProgram, decl: tree.Fn, leaves_in: LeavesOf) -> DrawnCaller:
        """Errors: DifflangError for arguments that cannot be drawn; RuleUnverified."""
        session, leaves = Session(), leaves_in(program)
        try:
            entry, arguments = elaborate_first_choice(session, program, decl, {})
            constants = tuple([np.asarray(x) for name in entry.globals for x in leaves(name)])
        except StepLimitExceeded:
            raise RuleUnverified("a top-level value that it reads takes too long to compute") from None
        return cls(
            session, decl, entry, arguments, constants, any(m.externs for m in program.module.transitive_imports())
        )

    def calls(self, rule: tree.Rule, seed: int) -> list[tuple[Eqn, list[Any]]]:
        """The calls of the rule's function in one run at random arguments, with their operands.

        Errors: DifflangError if the function fails at all arguments; StepLimitExceeded; RuleUnverified.
        """
        arrays = find_finite_arguments(
            self.session, self.decl, self.entry, self.arguments, self.constants, seed, MAX_STEPS
        )
        graph = expand_keeping_rules(with_fitted_capacity(self.session, self.entry, arrays).graph)
        begun = monotonic()
        calls = record_calls(graph, arrays, lambda eqn: has_rule(eqn, rule), CALLS)
        if self.externs and monotonic() - begun > MAX_EXTERN_SECONDS:
            raise RuleUnverified("it calls a function of Python that takes long")
        return calls

    def status_results(self, eqn: Eqn) -> int:
        """How many of a call's last results say whether a check failed."""
        count = len(FAILURE_TYPES)
        return count if self.entry.fails and tuple(r.type for r in eqn.results[-count:]) == FAILURE_TYPES else 0


def has_rule(eqn: Eqn, rule: tree.Rule) -> bool:
    """Whether an equation is a call of the rule's function, with the rule."""
    if rule.by == "inverse":
        return eqn.op is invertible and eqn.attrs["name"] == rule.name
    # An equation without regions has its derivative from Python.
    return bool(eqn.regions) and eqn.op.declared_name(eqn) == rule.name


# ---- Reports


def describe_fault(rule: tree.Rule, decl: tree.Fn, fault: RuleFault, point: str) -> Diagnostic:
    """The error for a wrong rule: the point and both numbers."""
    name = rule.name
    got, want = format_distinct(fault.difference.got, fault.difference.want)
    at = f"at {point}, " if point else ""
    called = (Label(decl.name_span, "compared where this calls it"),) if decl.name != name else ()
    if fault.component == "inverse":
        label = Label(rule.name_span, f"{at}the inverse gives {got} for {want}")
        return Diagnostic(
            "DL1106", f"the inverse of `{name}` does not return the argument of `{name}`", (label, *called)
        )
    noun, numbers = {
        "value": ("value", f"its value is {got}, that of the function {want}"),
        "derivative": (
            "derivative",
            f"its derivative{f' in `{fault.operand}`' * bool(fault.operand)} is {got}, that of the function {want}",
        ),
        "transpose": ("transpose", f"reverse mode gives {got}, forward mode {want}"),
    }[fault.component]
    message = f"the rule of `{name}` has a wrong {noun}"
    ways = (
        f"if `{name}` does not accept these arguments, say so by an `assert` in it",
        f"if the rule is meant to differ, {OPT_OUT}",
    )
    return Diagnostic("DL1109", message, (Label(rule.name_span, at + numbers), *called), ways)


def point_text(rule: tree.Rule, eqn: Eqn, operands: Sequence[Any]) -> str:
    """The arguments of a call: `x = 0.5, y = [1, 2]`; long ones are left out, and what the program does not see."""
    found: list[str] = []
    names = {p.name for p in rule.params}
    for param, array in zip(eqn.regions[0].params, operands, strict=True):
        if (
            param.hint.split(".")[0] in names
            and not isinstance(array, list)
            and np.size(array) <= 4
            and np.ndim(array) <= 1
        ):
            found.append(f"{param.hint} = {number_text(array)}")
    return ", ".join(found[:4])


def number_text(array: np.ndarray[Any, Any]) -> str:
    if np.ndim(array) == 1:
        return f"[{', '.join(number_text(x) for x in array)}]"
    return f"{array:.6g}" if np.asarray(array).dtype.kind in "fc" else str(array)
