"""Diagnostics: a code, a message, labelled spans, helps and fixes; rendered as text, as one line, or as JSON.

The codes and their titles are in `error_codes`. The rooms above decide when a diagnostic is raised.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from difflang.base.source import BUILTIN_SOURCE, Source, Span

Severity = Literal["error", "warning"]


class Label(Struct, frozen=True):
    """A marked span with its text. The first label of a diagnostic is the primary one."""

    span: Span
    text: str = ""


class Edit(Struct, frozen=True):
    """A replacement of a span's text; an empty span inserts."""

    span: Span
    replacement: str


class Fix(Struct, frozen=True):
    """A repair as data, proposed by the code that reports. It `is_certain` once `tools/verify_fixes.py` has tried it.

    A fix that `leaves_hole` is never certain: only the author knows what was meant.
    """

    title: str
    edits: tuple[Edit, ...]
    is_certain: bool = False
    leaves_hole: bool = False


class Diagnostic(Struct, frozen=True):
    """One report. `helps` are ways out, `fixes` edits that can be applied, best first.

    `code` is stable, `DLnnnn`; empty for a wrong command of a session, which no page explains.
    """

    code: str
    message: str
    labels: tuple[Label, ...] = ()
    helps: tuple[str, ...] = ()
    severity: Severity = "error"
    fixes: tuple[Fix, ...] = ()

    @property
    def heading(self) -> str:
        return f"{self.severity}[{self.code}]" if self.code else self.severity

    @property
    def span(self) -> Span | None:
        return self.labels[0].span if self.labels else None

    def as_error(self) -> Diagnostic:
        """The same diagnostic as an error, where warnings are not accepted."""
        return replace(self, severity="error")

    def users_first(self) -> Diagnostic:
        """The same diagnostic with labels in the user's texts before those in the library."""
        return replace(self, labels=tuple(sorted(self.labels, key=lambda label: label.span.in_library)))


class DifflangError(Exception):
    """Something is wrong with a program, its data or its use; carries one diagnostic or more."""

    def __init__(self, *diagnostics: Diagnostic) -> None:
        super().__init__("\n".join(f"{d.heading}: {d.message}" for d in diagnostics))
        self.diagnostics = diagnostics

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle by the diagnostics: a pool of processes sends errors between processes."""
        return type(self), self.diagnostics

    def render(self, color: bool = False) -> str:
        """The reports with the source lines they mark, as the command line shows them."""
        return render(self.diagnostics, color)

    def to_json(self) -> list[dict[str, Any]]:
        """The reports as data; see `to_json`."""
        return to_json(self.diagnostics)

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        """The reports for a notebook, which shows the first format that it supports."""
        return {"text/html": render_html(self.diagnostics), "text/plain": self.render()}


class InternalError(Exception):
    """A fault of the implementation. Carries the pass and the graph around the equation where it was noticed."""


# ---- Rendering as text and HTML

# Cells of source shown in a line; longer lines are cut around the marked span.
WIDTH = 110
_TAB = 4
_STYLES = {"error": "\x1b[1;31m", "warning": "\x1b[1;33m", "mark": "\x1b[1;34m", "bold": "\x1b[1m"}
_RESET = "\x1b[0m"
_COLORS = {"error": "#c62828", "warning": "#b26a00", "mark": "#1565c0", "bold": "inherit"}
_HTML = {
    **{_STYLES[name]: f'<span style="color: {color}; font-weight: bold">' for name, color in _COLORS.items()},
    _RESET: "</span>",
}


def render(diagnostics: Iterable[Diagnostic], color: bool = False, width: int = WIDTH) -> str:
    """Reports with the source lines they mark, separated by blank lines."""
    return "\n\n".join("\n".join(_report(diagnostic, color, width)) for diagnostic in diagnostics)


def render_html(diagnostics: Iterable[Diagnostic], width: int = WIDTH) -> str:
    """The same as HTML: coloured spans replace the terminal's escape codes."""
    from html import escape

    pieces: list[str] = []
    for text, code in re.findall("([^\x1b]*)(\x1b\\[[0-9;]*m)?", render(diagnostics, True, width)):
        pieces += [escape(text), _HTML.get(code, "")]
    return f'<pre class="difflang-report">{"".join(pieces)}</pre>'


def render_one_line(diagnostics: Iterable[Diagnostic]) -> str:
    """Reports on one line each, as compilers and editors exchange them: `file:line:column: error[CODE]: message`."""
    return "\n".join(
        (f"{_visible(str(d.span))}: " if d.span is not None and d.span.source is not BUILTIN_SOURCE else "")
        + f"{d.heading}: {_visible(d.message)}"
        for d in diagnostics
    )


def to_json(diagnostics: Iterable[Diagnostic]) -> list[dict[str, Any]]:
    """Reports as data. Lines and columns count from 1; `column` in code points, `utf16` in UTF-16 units.

    Only the `fixes` that are `certain` were tried.
    """
    return [
        {
            "code": diagnostic.code,
            "severity": diagnostic.severity,
            "message": diagnostic.message,
            "labels": [{**_range(label.span), "text": label.text} for label in diagnostic.labels],
            "helps": list(diagnostic.helps),
            "fixes": [
                {
                    "text": fix.title,
                    "certain": fix.is_certain,
                    "edits": [{**_range(edit.span), "replacement": edit.replacement} for edit in fix.edits],
                }
                for fix in diagnostic.fixes
            ],
        }
        for diagnostic in diagnostics
    ]


def _range(span: Span) -> dict[str, Any]:
    start, end = (_json_position(span.source, at) for at in (span.start, span.end))
    return {"file": span.source.name, "start": start, "end": end}


# ---- Rendering as data
def _json_position(source: Source, offset: int) -> dict[str, int]:
    line, column = source.position(offset)
    before = source.text[offset - column + 1 : offset]
    utf16 = len(before.encode("utf-16-le", "surrogatepass")) // 2 + 1
    return {"offset": offset, "line": line, "column": column, "utf16": utf16}


def _paint(text: str, style: str, color: bool) -> str:
    return f"{_STYLES[style]}{text}{_RESET}" if color and text else text


def _report(diagnostic: Diagnostic, color: bool, width: int) -> Iterator[str]:
    head = _paint(diagnostic.heading, diagnostic.severity, color)
    yield head + _paint(f": {_visible(diagnostic.message)}", "bold", color)
    marks = list(
        dict.fromkeys(mark for i, label in enumerate(diagnostic.labels) for mark in _label_lines(label, i == 0))
    )
    lines = {(mark.source, mark.line) for mark in marks}
    margin = max((len(str(line)) for _, line in lines), default=0) + 1
    sources = list(dict.fromkeys(mark.source for mark in marks))
    for source in sources:
        first = next(mark for mark in marks if mark.source is source)
        arrow = "-->" if source is sources[0] else ":::"
        yield f"{' ' * margin}{_paint(arrow, 'mark', color)} {_visible(source.name)}:{first.line}:{first.start + 1}"
        yield from _excerpt(source, [m for m in marks if m.source is source], margin, diagnostic.severity, color, width)
    edge = _paint(" " * (margin + 1) + "=", "mark", color)
    for label in diagnostic.labels:
        if label.span.source is BUILTIN_SOURCE and label.text:
            yield f"{edge} note: {_visible(label.text)}"
    for help in diagnostic.helps:
        yield f"{edge} help: {_indent_help(help, margin)}"
    for fix in diagnostic.fixes:
        if fix.is_certain:
            yield f"{edge} fix: {_indent_help(fix.title, margin)}"
    if diagnostic.code:
        yield f"{edge} more: difflang explain {diagnostic.code}"


def _indent_help(text: str, margin: int) -> str:
    """A help of several lines, the later ones indented below the first."""
    return f"\n{' ' * (margin + 9)}".join(_visible(line) for line in text.split("\n"))


class _Mark(Struct, frozen=True):
    """The part of a label on one line, in code points from 0."""

    source: Source
    line: int
    start: int
    end: int
    text: str
    primary: bool


def _label_lines(label: Label, primary: bool) -> Iterator[_Mark]:
    """The lines where a label shows: its first line and, if it spans several, its last."""
    source = label.span.source
    if source is BUILTIN_SOURCE:
        return
    line, column = source.position(label.span.start)
    last, end = source.position(max(label.span.start, label.span.end))
    # A span that ends with a newline marks nothing on the next line.
    if end == 1 and last > line:
        last, end = last - 1, len(source.line(last - 1)) + 1
    if last == line:
        yield _Mark(source, line, column - 1, max(end - 1, column), label.text, primary)
        return
    yield _Mark(source, line, column - 1, max(len(source.line(line)), column), label.text, primary)
    start = len(source.line(last)) - len(source.line(last).lstrip())
    yield _Mark(source, last, min(start, end - 1), max(end - 1, 1), "", primary)


def _excerpt(
    source: Source, marks: list[_Mark], margin: int, severity: Severity, color: bool, width: int
) -> Iterator[str]:
    edge = _paint(" " * (margin + 1) + "|", "mark", color)
    yield edge
    previous = 0
    for line in sorted({mark.line for mark in marks}):
        if previous and line == previous + 2:
            yield from _numbered_line(_Line(source.line(line - 1), [], width).text, line - 1, margin, color)
        elif previous and line > previous + 2:
            yield _paint("...", "mark", color)
        here = sorted((m for m in marks if m.line == line), key=lambda m: (m.start, -m.end, not m.primary))
        shown = _Line(source.line(line), here, width)
        yield from _numbered_line(shown.text, line, margin, color)
        for row in _underlines(shown, here, severity, color):
            yield f"{edge} {row}" if row else edge
        previous = line


def _numbered_line(text: str, line: int, margin: int, color: bool) -> Iterator[str]:
    yield f"{_paint(f'{line:>{margin}} |', 'mark', color)} {text}".rstrip()


def _underlines(shown: _Line, marks: list[_Mark], severity: Severity, color: bool) -> Iterator[str]:
    """The rows below a source line: the marks, the last one's text beside them, the others' texts hanging below."""
    spans = [(shown.cell(mark.start), max(shown.cell(mark.end), shown.cell(mark.start) + 1), mark) for mark in marks]
    strokes = [" "] * max(end for _, end, _ in spans)
    styles = ["mark"] * len(strokes)
    for primary in (False, True):
        for start, end, mark in spans:
            if mark.primary is primary:
                strokes[start:end] = ("^" if primary else "-") * (end - start)
                styles[start:end] = [severity if primary else "mark"] * (end - start)
    hanging = [(start, mark) for start, _, mark in spans if mark.text]
    beside = ""
    if hanging and any(mark is hanging[-1][1] and end == len(strokes) for _, end, mark in spans):
        last = hanging.pop()[1]
        beside = " " + _visible(last.text)
        styles += [severity if last.primary else "mark"] * len(beside)
    yield _styled_runs("".join(strokes) + beside, styles, color)
    if hanging:
        yield _bars(hanging, severity, color)
    while hanging:
        start, mark = hanging.pop()
        under = [(other, its) for other, its in hanging if other < start]
        bars = _bars(under, severity, color) + " " * (start - max([other + 1 for other, _ in under], default=0))
        yield bars + _paint(_visible(mark.text), severity if mark.primary else "mark", color)


def _bars(hanging: list[tuple[int, _Mark]], severity: Severity, color: bool) -> str:
    """A vertical bar below each mark, in its colour."""
    row = [" "] * (max([cell for cell, _ in hanging], default=-1) + 1)
    styles = ["mark"] * len(row)
    for cell, mark in hanging:
        row[cell], styles[cell] = "|", severity if mark.primary else "mark"
    return _styled_runs("".join(row), styles, color)


def _styled_runs(text: str, styles: Sequence[str], color: bool) -> str:
    """A row whose characters each have a style; a space takes the style of the character before it."""
    found, at = "", 0
    while at < len(text):
        end = at + 1
        while end < len(text) and (styles[end] == styles[at] or text[end] == " "):
            end += 1
        found += _paint(text[at:end], styles[at], color)
        at = end
    return found


class _Line:
    """A source line as a terminal shows it: tabs expanded, control characters replaced, long lines cut."""

    def __init__(self, line: str, marks: list[_Mark], width: int) -> None:
        pieces: list[str] = []
        self.cells = [0]
        for char in line:
            piece = " " * (_TAB - self.cells[-1] % _TAB) if char == "\t" else _visible(char)
            pieces.append(piece)
            self.cells.append(self.cells[-1] + cell_width(piece))
        first, last = self._window(marks, width)
        before, after = "..." if first else "", "..." if last < len(line) else ""
        self.shift = self.cells[first] - len(before)
        self.text = (before + "".join(pieces[first:last]) + after).rstrip()
        self.limit = self.cells[last]

    def _window(self, marks: list[_Mark], width: int) -> tuple[int, int]:
        """The first and the last character to show, so that the marked span fits, or at least its beginning."""
        size = len(self.cells) - 1
        if self.cells[-1] <= width:
            return 0, size
        start = min((self.cells[min(mark.start, size)] for mark in marks), default=0)
        end = max((self.cells[min(mark.end, size)] for mark in marks), default=0)
        if end - start > width:
            primary = next((mark for mark in marks if mark.primary), marks[0])
            start = self.cells[min(primary.start, size)]
            end = min(self.cells[min(primary.end, size)], start + width)
        # Centre the marked span, but do not scroll past the end of the line.
        margin = width - (end - start)
        left = 0 if end <= width else max(0, min(start - margin // 2, self.cells[-1] - width))
        first = bisect_left(self.cells, left)
        return first, max(bisect_right(self.cells, left + width) - 1, first)

    def cell(self, column: int) -> int:
        """The cell where a character is shown; a column past the end of the line lies past its last cell."""
        size = len(self.cells) - 1
        beyond = max(0, column - size)
        return max(0, min(self.cells[min(column, size)], self.limit) - self.shift + beyond)


def cell_width(text: str) -> int:
    """How many terminal cells a text takes."""
    if text.isascii():
        return len(text)
    # Late: most programs are ASCII, and a start should be quick.
    from rich.cells import cell_len

    return cell_len(text)


# Control characters, bidirectional overrides and lone surrogates: a report must not let a source forge its layout.
_HIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")


def printable(text: str) -> str:
    """A text of several lines that is safe to print: nothing in it moves the cursor or changes a colour."""
    return "\n".join("\t".join(map(_visible, line.split("\t"))) for line in text.split("\n"))


def _visible(text: str) -> str:
    """The text with control and direction characters replaced."""
    return _HIDDEN.sub("\ufffd", text)
