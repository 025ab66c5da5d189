"""The evaluation trace as a table, as in textbooks: a row for each expression, with value, tangents and adjoint."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from difflang.base.source import line_numbers
from difflang.base.wording import aligned_rows, count_of
from difflang.gradcheck.evaluation_trace import EvaluationTrace, TraceNode, TraceStep
from difflang.ir.graph import Eqn, Graph
from difflang.ir.interpreter import Array

MAX_ELEMENTS = 4  # of an array that are shown
MAX_WIDTH = 48  # of a formula, in characters
INFIX = {"add": ("+", "+"), "sub": ("-", "-"), "mul": ("*", ""), "div": ("/", "/"), "matmul": ("@", "")}
OF_ONE_NAME = ("exp", "sin", "cos", "tan", "sinh", "cosh", "tanh", "max", "min", "det")
FUNCTIONS = {"log": "ln", "asin": "arcsin", "acos": "arccos", "atan": "arctan", **{n: n for n in OF_ONE_NAME}}


class TraceRow(Struct, frozen=True):
    """One value: an argument, or the result of an expression at that step of the run."""

    name: str
    formula: str
    latex: str
    value: Array
    tangents: tuple[Array, ...]
    adjoint: Array | None
    line: int | None
    text: str  # the expression in the program
    file: str = ""

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name, "formula": self.formula, "value": json_numbers(self.value),
            "tangents": [json_numbers(t) for t in self.tangents],
            "adjoint": None if self.adjoint is None else json_numbers(self.adjoint),
            "line": self.line, "text": self.text, "file": self.file or None,
        }  # fmt: skip


class Trace(Struct, frozen=True):
    """The evaluation of a call, row by row. `wrt` names the arguments of the tangent columns."""

    call: str
    wrt: tuple[str, ...]
    result: str | None  # the value that the adjoints are derivatives of
    rows: tuple[TraceRow, ...]
    omitted: tuple[int, int]  # the first omitted row, and their number

    def table(self) -> list[list[str]]:
        """Rows of cells as text; the first row is the header."""
        header = ["", "", "value", *[f"d/d{name}" for name in self.wrt]]
        header += [f"d{self.result}/d…"] if self.result is not None else []
        found = [[*header, "line", "in the program"]]
        rows = self.visible_rows()
        numbers = line_numbers([(row.file, row.line) if row is not None and row.line else None for row in rows])
        for number, row in zip(numbers, rows, strict=True):
            if row is None:
                found.append(["…", count_of(self.omitted[1], "row"), *[""] * (len(header) - 2), "", ""])
                continue
            values = map(format_short, (row.value, *row.tangents))
            cells = [row.name, f"= {row.formula}" if row.formula else "", *values]
            cells += [format_short(row.adjoint) if row.adjoint is not None else ""] if self.result is not None else []
            found.append([*cells, number, row.text])
        return found

    def visible_rows(self) -> list[TraceRow | None]:
        start, count = self.omitted
        return [*self.rows[:start], *([None] if count else []), *self.rows[start + count :]]

    def __str__(self) -> str:
        rows = self.table()
        return "\n".join([self.call, "", *aligned_rows(rows, (0, 1, len(rows[0]) - 1))])

    def to_json(self) -> dict[str, Any]:
        """All rows, including those that the table omits."""
        return {"call": self.call, "wrt": list(self.wrt), "result": self.result,
                "rows": [row.to_json() for row in self.rows]}  # fmt: skip

    def to_latex(self) -> str:
        """The table as LaTeX, in a `tabular` environment."""
        dots = [rf"$\partial v/\partial {latex_name(name)}$" for name in self.wrt]
        adjoint = [rf"$\partial {latex_name(self.result)}/\partial v$"] if self.result is not None else []
        lines = [rf"\begin{{tabular}}{{ll{'r' * (1 + len(dots) + len(adjoint))}}}", r"\hline"]
        lines.append(" & ".join(["", "", "value", *dots, *adjoint]) + r" \\ \hline")
        for row in self.visible_rows():
            if row is None:
                lines.append(rf"$\vdots$ & \multicolumn{{{2 + len(dots) + len(adjoint)}}}{{l}}{{}} \\")
                continue
            numbers = [row.value, *row.tangents, *([row.adjoint] if self.result is not None else [])]
            cells = ["" if n is None else f"${latex_number(n)}$" for n in numbers]
            formula = f"$= {row.latex}$" if row.latex else ""
            lines.append(" & ".join([f"${latex_name(row.name)}$", formula, *cells]) + r" \\")
        return "\n".join([*lines, r"\hline", r"\end{tabular}"])

    def to_html(self) -> str:
        """The table as HTML."""
        header, *rows = self.table()
        head = "".join(f"<th>{html.escape(c)}</th>" for c in header)
        body = "\n".join(f"<tr>{''.join(f'<td>{html.escape(c)}</td>' for c in row)}</tr>" for row in rows)
        caption = f"<caption>{html.escape(self.call)}</caption>"
        whole = f"{caption}\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>"
        return f'<table class="difflang-trace">\n{whole}\n</table>'

    _repr_html_ = to_html


# ---- Building the table


def build_trace(
    graph: Graph, arrays: Sequence[Array], moves: Sequence[bool], call: str, most: int, wrt: Sequence[int]
) -> Trace:
    """The trace of a run in at most `most` rows: `moves` marks active arguments, `wrt` those with a column.

    Errors: DL1222.
    """
    nodes = [TraceNode(x, p.type, m, p.hint) for x, p, m in zip(arrays, graph.params, moves, strict=True)]
    tape = EvaluationTrace(nodes)
    with np.errstate(all="ignore"):
        results = tape.run(graph, nodes)
        tape.push([{nodes[i]: np.ones(np.shape(arrays[i]), np.asarray(arrays[i]).dtype)} for i in wrt])
        last = next((r for r in results if r.active), None)
        scalar = last is not None and np.ndim(last.value) == 0 and np.asarray(last.value).dtype.kind == "f"
        if last is not None and scalar:
            tape.pull(last)
    names = TraceNames(tape, nodes, results)
    rows = [names.argument_row(n) for n in nodes if n.active] + [names.row(s, n) for s, n in names.visible_nodes]
    # Of a long run the table shows the beginning and the end.
    start = most // 2 if len(rows) > most else len(rows)
    result = names.name_of(last) if last is not None and scalar else None
    return Trace(call, tuple(nodes[i].name for i in wrt), result, tuple(rows), (start, max(0, len(rows) - most)))


class TraceNames:
    """Decides which values are rows of the table, and names them.

    An intermediate value that only its own expression reads has no row; nor has a value without a source line, such as
    the frames of recursion.
    """

    def __init__(self, tape: EvaluationTrace, arguments: Sequence[TraceNode], results: Sequence[TraceNode]) -> None:
        readers: dict[TraceNode, list[TraceStep | None]] = {n: [None] for n in results}
        for step in tape.steps:
            for node in step.operands:
                readers.setdefault(node, []).append(step)
        # Textbooks name intermediate values v1, v2, ...: another letter if an argument begins with that one.
        letter = next(c for c in "vwuzy_" if c == "_" or not any(n.name[:1] == c for n in arguments))
        self.visible_nodes: list[tuple[TraceStep, TraceNode]] = []
        self.names = {n: n.name for n in arguments if n.name}
        for step in tape.steps:
            for node in step.results:
                if node.active and step.index is None and step.span.text and is_row(step, readers.get(node, [])):
                    self.visible_nodes.append((step, node))
                    self.names[node] = f"{letter}{len(self.visible_nodes)}"

    def name_of(self, node: TraceNode) -> str:
        """Its name, its index in a named array, or its number; empty if it has none of these."""
        if node in self.names:
            return self.names[node]
        if node.step is not None and node.step.index is not None:
            whole = self.name_of(node.step.operands[0])
            return f"{whole}[{node.step.index}]" if whole else ""
        return format_short(node.value) if not node.active else ""

    def argument_row(self, node: TraceNode) -> TraceRow:
        return TraceRow(node.name, "", "", node.value, tuple(node.tangents), node.adjoint, None, "")

    def row(self, step: TraceStep, node: TraceNode) -> TraceRow:
        operands, eqn = [self.name_of(n) for n in step.operands], step.eqn
        text = " ".join(step.span.text.split())
        if not all(operands) or (eqn is not None and (eqn.regions or len(eqn.results) > 1)):
            formula, latex = text, rf"\mathtt{{{escape_latex(text)}}}"
        elif eqn is None:
            formula, latex = f"[{', '.join(operands)}]", f"[{', '.join(map(latex_name, operands))}]"
        else:
            formula, latex = formula_text(eqn, operands), formula_latex(eqn, operands)
        numbers = node.value, tuple(node.tangents), node.adjoint
        place = step.span.position[0], truncate_text(text), step.span.source.name
        return TraceRow(self.names[node], truncate_text(formula), latex, *numbers, *place)


def is_row(step: TraceStep, readers: Sequence[TraceStep | None]) -> bool:
    """Whether something outside the expression of a step reads its result."""
    inside = (step.span, step.frame)
    return any(r is None or r.eqn is None or (r.span, r.frame) != inside for r in readers)


# ---- Formulas and numbers as text, LaTeX and JSON


def formula_text(eqn: Eqn, operands: Sequence[str]) -> str:
    """The operation in the language's notation."""
    name = eqn.op.name
    if name in INFIX:
        return f" {INFIX[name][0]} ".join(operands)
    if name == "neg":
        return f"-{operands[0]}"
    if name == "integer_pow":
        return f"{operands[0]}^{eqn.attrs['n']}"
    if name == "pow":
        return "^".join(operands)
    return f"{name.removeprefix('reduce_')}({', '.join(operands)})"


def formula_latex(eqn: Eqn, operands: Sequence[str]) -> str:
    """The operation in mathematical notation."""
    name, given = eqn.op.name.removeprefix("reduce_"), [latex_name(x) for x in operands]
    if name == "div":
        return rf"\frac{{{given[0]}}}{{{given[1]}}}"
    if name in INFIX:
        return rf" {INFIX[name][1] or chr(92) + ','} ".join(given)
    if name == "neg":
        return f"-{given[0]}"
    if name in ("integer_pow", "pow"):
        return f"{{{given[0]}}}^{{{eqn.attrs['n'] if name == 'integer_pow' else given[1]}}}"
    if name == "sqrt":
        return rf"\sqrt{{{given[0]}}}"
    head = rf"\{FUNCTIONS[name]}" if name in FUNCTIONS else rf"\operatorname{{{escape_latex(name)}}}"
    return rf"{head} {given[0]}" if len(given) == 1 else rf"{head}({', '.join(given)})"


def latex_name(name: str) -> str:
    """A name in LaTeX, with trailing digits as an index: `v12`, `x1`."""
    head = name.rstrip("0123456789")
    if head and head != name and head.isalpha():
        return f"{head}_{{{name[len(head) :]}}}"
    return name if len(name) == 1 or not name.isidentifier() else rf"\mathit{{{escape_latex(name)}}}"


def escape_latex(text: str) -> str:
    """Text with LaTeX's special characters escaped."""
    special = {"\\": r"\backslash ", "{": r"\{", "}": r"\}", "^": r"\hat{\ }", "~": r"\sim "}
    return "".join(special.get(c, "\\" + c if c in "_%&#$" else c) for c in text)


def latex_number(value: Array) -> str:
    mantissa, e, exponent = format_short(value).partition("e")
    return rf"{mantissa} \cdot 10^{{{int(exponent)}}}" if e and np.ndim(value) == 0 else mantissa + e + exponent


def format_short(value: Array) -> str:
    """A number with six digits; of an array the first few numbers."""
    if isinstance(value, list):
        return count_of(len(value), "item")
    array = np.asarray(value)
    if array.ndim == 0:
        item = array.item()
        return f"{item:.6g}" if isinstance(item, (float, complex)) else str(item).lower()
    items = [format_short(x) for x in array[:MAX_ELEMENTS]]
    return f"[{', '.join(items)}{', …' if len(array) > MAX_ELEMENTS else ''}]"


def json_numbers(value: Array) -> Any:
    """Numbers for JSON; a complex number as two parts."""
    if isinstance(value, list):
        return [json_numbers(x) for x in value]
    array = np.asarray(value)
    if array.dtype.kind == "c":
        return np.stack([np.real(array), np.imag(array)], -1).tolist()
    return array.astype(np.float64).tolist() if array.dtype.kind in "fV" else array.tolist()


def truncate_text(text: str) -> str:
    return text if len(text) <= MAX_WIDTH else f"{text[: MAX_WIDTH - 1]}…"
