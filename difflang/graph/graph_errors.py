"""The errors of graphs in the hand: names, edits that break a rule of the IR, passes that break their promise."""

from __future__ import annotations

from collections.abc import Iterable

from difflang.base.diagnostics import Diagnostic, DifflangError, Label
from difflang.base.error_codes import suggestion
from difflang.base.errors import classify_error
from difflang.base.source import Span
from difflang.ir.graph import Graph as IrGraph
from difflang.ir.text_printer import eqn_text
from difflang.ir.verify import MalformedGraph, check_graph


def graph_error(code: str, message: str, *labels: tuple[Span, str], help: str = "") -> DifflangError:
    """An error of the class that its code has in Python. A label without a source position is left out."""
    marks = tuple([Label(span, text) for span, text in labels if span.is_known])
    return classify_error(DifflangError(Diagnostic(code, message, marks, (help,) if help else ())))


def malformed_error(fault: MalformedGraph) -> DifflangError:
    """The error of an edit after which an equation breaks a rule of the IR: it shows the equation and its line."""
    if fault.eqn is None:
        return graph_error("DL1250", f"the graph would be malformed: {fault.message}")
    message = f"the graph would be malformed: {fault.message}"
    return graph_error("DL1250", message, (fault.eqn.span, "at this equation"), help=f"it is `{eqn_text(fault.eqn)}`")


def verified(graph: IrGraph) -> IrGraph:
    """The graph itself, if it is well formed. Errors: DL1250 at the equation that is not."""
    try:
        check_graph(graph)
    except MalformedGraph as fault:
        raise malformed_error(fault) from None
    return graph


def unknown_pass(name: str, known: Iterable[str]) -> DifflangError:
    """The error of a name that no pass has, with the nearest one."""
    return graph_error("DL0201", f"there is no pass `{name}`", help=suggestion(name, known, "`dg.passes()` lists them"))
