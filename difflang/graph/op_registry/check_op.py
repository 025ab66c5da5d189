"""`check_op` runs the laws on an op, on samples of its own declaration; its report says what differs where."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from inspect import signature
from typing import Any

import numpy as np
from msgspec import Struct

from difflang.base.diagnostics import Diagnostic, DifflangError
from difflang.base.error_codes import suggestion
from difflang.base.errors import OpLawError
from difflang.base.wording import count_of
from difflang.gradcheck.op_calls import THOROUGH, Array, LawBroken, OpCall, calls_of
from difflang.graph.graph_errors import graph_error
from difflang.graph.op_registry.op_laws import LAWS, ULPS, LawRun, Skipped, check_types
from difflang.ir.op import OPS, Op, TypeMismatch
from difflang.ir.tensor_types import C128, F64


class LawResult(Struct, frozen=True, eq=False):
    """What a law found: on how many calls it held, or what differs, or why there was nothing to test."""

    law: str
    help: str
    calls: int = 0
    fault: str = ""
    skipped: str = ""

    def __str__(self) -> str:
        if self.fault:
            return f"{self.law}: broken. {self.fault}"
        return f"{self.law}: {f'not tested, {self.skipped}' if self.skipped else self.held}"

    @property
    def held(self) -> str:
        return f"holds for {count_of(self.calls, 'call')}"


class OpReport(Struct, frozen=True, eq=False):
    """The results of all laws on an op. It is `right` if none is broken."""

    op: str
    laws: tuple[LawResult, ...]

    @property
    def right(self) -> bool:
        return not any(law.fault for law in self.laws)

    def __str__(self) -> str:
        return "\n".join([f"{self.op}", *[f"  {law}" for law in self.laws]])

    __repr__ = __str__


def check_op(op: Any, *, ulps: float = ULPS) -> OpReport:
    """Run the laws on an op of the registry, by its name or as `op` returned it.

    They are: types, symbolic sizes, reference against lowering, special values, jvp against differences, transpose
    against jvp, second order, compiled derivatives, batching. `ulps` is how far a compiled number may be off, in units
    of the last place.

    Errors: OpLawError (DL1274) that says of each broken law what differs where; DL0201 for an unknown op.
    """
    name = op if isinstance(op, str) else str(getattr(op, "name", op))
    if name not in OPS:
        raise graph_error("DL0201", f"there is no op `{name}`", help=suggestion(name, OPS, "`dg.op` declares one"))
    found = OPS[name]
    if found.samples is None:
        message = f"the op `{name}` has no samples, so no law can be tested on it"
        raise graph_error("DL1207", message, help="ops with regions are tested as parts of programs")
    report = OpReport(name, tuple(run_laws(found, ulps)))
    if not report.right:
        raise law_error(report)
    return report


def run_laws(op: Op, ulps: float) -> Iterator[LawResult]:
    """Each law in order. If types, rules or lowering cannot be used at all, the rest makes no sense."""
    names = list(signature(op.type).parameters)[1:]
    for law, help, test in LAWS:
        try:
            count = test(LawRun(op, sorted(calls_of(op), key=narrowness), ulps))
        except Skipped as reason:
            yield LawResult(law, help, skipped=str(reason))
        except Exception as error:  # noqa: BLE001  whatever a rule of the user raises
            yield LawResult(law, help, fault=fault_text(error, names))
            if test is check_types or not isinstance(error, LawBroken):
                return
        else:
            yield LawResult(law, help, count)


def narrowness(call: OpCall) -> int:
    """How few digits a report on it would show: calls with many are tested first."""
    return max([0 if t.dtype in (F64, C128) else 1 if t.dtype in THOROUGH else 2 for t in call.types], default=0)


def fault_text(error: Exception, names: Sequence[str]) -> str:
    """What differs where, on lines of their own."""
    match error:
        case LawBroken():
            rows = [(label, x) for role, xs in error.inputs.items() for label, x in labelled(role, xs, names)]
            rows += [("got", error.got), ("expected", error.expected)]
            width = max(len(label) for label, _ in rows)
            return "\n".join([str(error.what), *[f"      {label:<{width}} = {array_line(x)}" for label, x in rows]])
        case DifflangError(diagnostics=(first, *_)):
            return first.message
        case TypeMismatch():
            return f"its type refuses a sample: {error.message}"
        case _:
            return f"{type(error).__name__}: {error}"


def labelled(role: str, arrays: Sequence[Array], names: Sequence[str]) -> Iterator[tuple[str, Array]]:
    """Arrays with names: operands as the op calls them, `dx` for the tangent of `x`."""
    for i, x in enumerate(arrays):
        name = names[i] if i < len(names) else f"operand {i + 1}"
        yield {"operands": name, "tangents": f"d{name}"}.get(role, f"ct{i + 1 if len(arrays) > 1 else ''}"), x


def array_line(x: Any) -> str:
    if isinstance(x, np.ndarray):
        return np.array2string(x, threshold=8, max_line_width=100, precision=8).replace("\n", " ")
    return str(x)


def law_error(report: OpReport) -> OpLawError:
    broken = [law for law in report.laws if law.fault]
    named = ", ".join([law.law for law in broken])
    message = f"the op `{report.op}` breaks {count_of(len(broken), 'law')}: {named}"
    error = OpLawError(Diagnostic("DL1274", message, helps=tuple([str(law) for law in broken])))
    error.report = report
    return error
