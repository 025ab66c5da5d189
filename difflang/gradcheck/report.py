"""The report of a gradient check: comparisons, the first equation at fault and kinks, as table, JSON or diagnostics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from difflang.base.diagnostics import Diagnostic, Label, to_json
from difflang.base.source import BUILTIN_SOURCE, Span
from difflang.base.wording import aligned_rows
from difflang.gradcheck.finite_differences import Row
from difflang.ir.graph import Eqn

REPORT_IT = "this is a bug in difflang, not in the program: please report it"
MEND_IT = "compare the rule with the body of the function"


class NumberDifference(Struct, frozen=True):
    """Two numbers that should be equal, and the difference that rounding may cause."""

    got: float
    want: float
    allowed: float

    @property
    def relative(self) -> float:
        with np.errstate(all="ignore"):
            return float(np.abs(np.float64(self.got) - self.want) / np.abs(np.float64(self.want)))


class DerivativeComparison(Struct, frozen=True):
    """A comparison of two ways to compute numbers: how many there are, and the greatest relative difference."""

    mode: str  # which derivative, or the value
    how: str  # in which precision, by which engine
    against: str
    numbers: int = 0
    largest: float = 0.0
    worst: NumberDifference | None = None  # the greatest difference beyond what is allowed

    def merge(self, other: DerivativeComparison) -> DerivativeComparison:
        return replace(
            self,
            numbers=self.numbers + other.numbers,
            largest=max(self.largest, other.largest),
            worst=self.worst or other.worst,
        )


def compare_numbers(
    names: tuple[str, str, str], got: Row, want: Row, allowed: Row, size: Row, where: Row | None = None
) -> DerivativeComparison:
    """Compare numbers element by element; `names` are mode, how and against. Equal infinities and NaNs agree."""
    # Differences are relative to the number, or to `size` where that is larger.
    with np.errstate(all="ignore"):
        difference = np.where((got == want) | (np.isnan(got) & np.isnan(want)), 0, np.abs(got - want))
        bad = ~(difference <= allowed)
        # The floor avoids 0 / 0 where both the number and its terms are zero.
        relative = difference / np.maximum(np.maximum(np.abs(want), size), 1e-300)
    chosen = np.ones(got.shape, np.bool_) if where is None else where
    numbers, bad = int(chosen.sum()), bad & chosen
    largest = float(np.max(relative[chosen], initial=0))
    if not bad.any():
        return DerivativeComparison(*names, numbers, largest)
    with np.errstate(all="ignore"):
        by = np.where(bad, np.where(np.isnan(relative), np.inf, relative), -1)
    i = int(np.argmax(by))
    return DerivativeComparison(
        *names, numbers, largest, NumberDifference(float(got[i]), float(want[i]), float(allowed[i]))
    )


class DerivativeFault(Struct, frozen=True):
    """The first wrong equation: its wrong `component`, and two numbers that should be equal."""

    eqn: Eqn | None
    component: str
    by: tuple[str, str]  # the two computations that give these numbers
    difference: NumberDifference
    rule: Span | None = None  # where the program declares the derivative that is at fault

    def with_rule_span(self, rules: Mapping[str, Span]) -> DerivativeFault:
        """The same with the source position of the program's derivative rule, if its function declares one."""
        declared = self.eqn.op.declared_name(self.eqn) if self.eqn is not None else None
        return self if declared is None else replace(self, rule=rules.get(declared))

    @property
    def op(self) -> str:
        return str(self.eqn.op) if self.eqn is not None else ""

    @property
    def numbers(self) -> str:
        d, (one, other) = self.difference, self.by
        off = f", off by {d.relative:.1e}" if np.isfinite(d.relative) else ""
        got, want = format_distinct(d.got, d.want)
        return f"{one} gives {got}, {other} {want}{off}"

    def to_json(self) -> dict[str, Any]:
        d = self.difference
        by = {"got_by": self.by[0], "want_by": self.by[1]}
        return {"op": self.op, "what": self.component, "got": d.got, "want": d.want, **by, "relative": d.relative}

    @property
    def span(self) -> Span | None:
        return self.eqn.span if self.eqn is not None and self.eqn.span.source is not BUILTIN_SOURCE else None


def unlocated_fault(found: DerivativeComparison, worst: NumberDifference) -> DerivativeFault:
    """A fault that was traced to no equation."""
    return DerivativeFault(None, "something", (f"{found.mode}, {found.how},", found.against), worst)


class Kink(Struct, frozen=True):
    """An equation at a point where it has no derivative, or where the path of the run changes."""

    eqn: Eqn
    why: str


class GradcheckReport(Struct, frozen=True):
    """The check of one derivative. The command line prints its `str`."""

    name: str
    order: int
    directions: int
    drawn: str  # how the arguments came about
    comparisons: tuple[DerivativeComparison, ...]
    fault: DerivativeFault | None
    kinks: tuple[Kink, ...]
    notes: tuple[str, ...]

    @property
    def right(self) -> bool:
        return self.fault is None

    def table(self) -> list[dict[str, Any]]:
        """One row per comparison: what is compared, how many numbers, the largest relative difference, the verdict."""
        return [
            {"compared": f"{c.mode}, {c.how}", "with": c.against, "numbers": c.numbers, "largest": c.largest,
             "right": not c.worst}
            for c in self.comparisons
        ]  # fmt: skip

    def diagnostics(self) -> tuple[Diagnostic, ...]:
        kinks = tuple(kink_diagnostic(k) for k in self.kinks)
        return kinks if self.fault is None else (fault_diagnostic(self.name, self.fault), *kinks)

    def to_json(self) -> dict[str, Any]:
        return {
            "function": self.name, "right": self.right, "order": self.order, "directions": self.directions,
            "arguments": self.drawn, "comparisons": self.table(),
            "fault": self.fault.to_json() if self.fault is not None else None,
            "diagnostics": to_json(self.diagnostics()), "notes": list(self.notes),
        }  # fmt: skip

    def __str__(self) -> str:
        head = f"{self.name}: {'right' if self.right else 'WRONG'}{f' to order {self.order}' * (self.order > 1)}"
        ways = f"{self.directions} direction{'s' * (self.directions != 1)}"
        return "\n".join(
            [f"{head}, in {ways}{self.drawn and f' at {self.drawn}'}", *table_lines(self.table()), *self.notes]
        )


def table_lines(rows: Sequence[dict[str, Any]]) -> list[str]:
    titles = ("compared", "with", "numbers", "largest relative difference")
    cells = [
        (r["compared"], r["with"], str(r["numbers"]), f"{r['largest']:.1e}" + ("" if r["right"] else "  wrong"))
        for r in rows
    ]
    return [f"  {line}" for line in aligned_rows([titles, *cells], (0, 1, 3))]


def fault_diagnostic(name: str, fault: DerivativeFault) -> Diagnostic:
    problem = f"{fault.component} is wrong: {fault.numbers}"
    if fault.eqn is None:
        return Diagnostic("DL0406", f"the derivative of `{name}` is wrong: {fault.numbers}", (), (REPORT_IT,))
    if fault.rule is not None:
        message = f"the derivative of `{name}` goes wrong at the rule of `{fault.rule.text}`"
        call_labels = () if fault.span is None else (Label(fault.span, "called here"),)
        return Diagnostic("DL0406", message, (Label(fault.rule, problem), *call_labels), (MEND_IT,))
    message = f"the derivative of `{name}` goes wrong at `{fault.op}`"
    if fault.span is None:
        return Diagnostic("DL0406", f"{message}: {problem}", (), (REPORT_IT,))
    return Diagnostic("DL0406", message, (Label(fault.span, problem),), (REPORT_IT,))


def kink_diagnostic(kink: Kink) -> Diagnostic:
    labels = (Label(kink.eqn.span, kink.why),) if kink.eqn.span.source is not BUILTIN_SOURCE else ()
    return Diagnostic("DL0407", f"there is no derivative at this point: `{kink.eqn.op}` {kink.why}", labels,
                      ("docs/conventions.md lists the conventional values",), "warning")  # fmt: skip


def format_distinct(got: float, want: float) -> tuple[str, str]:
    """Two numbers with enough digits to differ."""
    short = f"{got:.9g}", f"{want:.9g}"
    return short if short[0] != short[1] else (f"{got:.17g}", f"{want:.17g}")
