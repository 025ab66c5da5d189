"""A Wadler-style pretty printer: documents with optional line breaks, rendered within a width.

A group stays on one line if it fits, else all its own lines break. `layout_rules` builds the groups of a program.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

from difflang.base.diagnostics import cell_width

WIDTH = 100
INDENT_WIDTH = 2
# Deeper lines are indented no further, else the text grows with the square of the nesting.
MAX_INDENT = 80


class LineBreak(Struct, frozen=True):
    """A possible line break; `flat` is the text in its place if it does not break. With `hard` it always breaks."""

    flat: str = " "
    hard: bool = False
    blank: bool = False  # an empty line too


class BreakGroup(Struct, frozen=True):
    """Parts that stand on one line, or break at all their breaks; a `broken` group always does."""

    parts: Sequence[Doc]
    broken: bool = False


class IndentedDoc(Struct, frozen=True):
    """Parts whose lines are indented if the group around them breaks."""

    parts: Sequence[Doc]


class FilledDoc(Struct, frozen=True):
    """Parts with a break between any two, each broken only where the next part does not fit."""

    parts: Sequence[Doc]
    first: int = 0  # the parts before it are already printed


class IfBroken(Struct, frozen=True):
    """A text if the group around it breaks, and another one if it does not."""

    text: str
    flat: str = ""


class OwnLineComment(Struct, frozen=True):
    """A comment on a line of its own."""

    text: str
    blank: bool = False  # an empty line above it


class TrailingComment(Struct, frozen=True):
    """A comment at the end of the line; it does not count in the width."""

    text: str


Doc = (
    str | LineBreak | BreakGroup | IndentedDoc | FilledDoc | IfBroken
    | OwnLineComment | TrailingComment | tuple["Doc", ...] | list["Doc"]
)  # fmt: skip
PrintTask = tuple[int, bool, Doc]  # indentation, whether on one line, document

SOFT_SPACE = LineBreak()
SOFT_BREAK = LineBreak("")
HARD_BREAK = LineBreak(hard=True)
BLANK_LINE = LineBreak(hard=True, blank=True)


def render_doc(doc: Doc, width: int = WIDTH, pause: Callable[[], None] = lambda: None) -> str:
    """The text of a document, without spaces at line ends. `pause` is called at each part.

    Cost: linear in the document, times the width; the text is linear in the document.
    Source: Wadler 2003, A prettier printer; Oppen 1980, Prettyprinting.
    """
    printer = _DocPrinter(width)
    printer.run(doc, pause)
    return printer.text()


def deeper(indent: int) -> int:
    """The indentation inside of one."""
    return min(indent + INDENT_WIDTH, MAX_INDENT)


class _DocPrinter:
    def __init__(self, width: int) -> None:
        self.width = width
        self.lines: list[str] = []
        self.row: list[str] = []
        self.used = 0  # cells of the row, 0 while it is empty
        self.indent = 0
        self.suffixes: list[str] = []
        # An explicit stack: documents nest as deep as programs, deeper than Python's recursion limit.
        self.todo: list[PrintTask] = []

    def text(self) -> str:
        self.newline(0)
        return "\n".join(self.lines) + "\n" if self.lines else ""

    def run(self, doc: Doc, pause: Callable[[], None]) -> None:
        self.todo = [(0, False, doc)]
        while self.todo:
            pause()
            self.step(*self.todo.pop())

    def step(self, indent: int, flat: bool, doc: Doc) -> None:
        match doc:
            case str():
                self.write(doc)
            case tuple() | list():
                self.todo.extend((indent, flat, part) for part in reversed(doc))
            case IndentedDoc(parts):
                indent = indent if flat else deeper(indent)
                self.todo.extend((indent, flat, part) for part in reversed(parts))
            case BreakGroup(parts, broken):
                # Inside a flat group every group is flat: only an outermost one is measured.
                flat = not broken and (flat or self.fits((indent, True, doc)))
                self.todo.extend((indent, flat, part) for part in reversed(parts))
            case LineBreak():
                self.break_line(indent, flat, doc)
            case FilledDoc(parts, first):
                self.fill(indent, flat, parts, first)
            case IfBroken(text, otherwise):
                self.write(otherwise if flat else text)
            case TrailingComment(text):
                self.suffixes.append(text)
            case OwnLineComment(text, blank):
                self.break_line(indent, False, BLANK_LINE if blank else HARD_BREAK)
                self.write(text)
                self.newline(indent)

    def break_line(self, indent: int, flat: bool, line: LineBreak) -> None:
        if flat and not line.hard:
            self.write(line.flat)
            return
        self.newline(indent)
        if line.blank and self.lines and self.lines[-1]:
            self.lines.append("")

    def fill(self, indent: int, flat: bool, parts: Sequence[Doc], first: int) -> None:
        if first == len(parts):
            return
        if first:
            self.break_line(indent, flat or self.fits((indent, False, (" ", parts[first]))), SOFT_SPACE)
        self.todo += [(indent, flat, FilledDoc(parts, first + 1)), (indent, flat, parts[first])]

    def write(self, text: str) -> None:
        if not text:
            return
        # A row does not begin with spaces beyond its indentation.
        if not self.row:
            text = text.lstrip(" ")
            self.used = self.indent
        self.row.append(text)
        self.used += cell_width(text)

    def newline(self, indent: int) -> None:
        """End the row with its pending comments; an empty row is kept."""
        first, *others = self.suffixes or [""]
        self.suffixes = []
        if first:
            self.row.append((" " if self.row else "") + first)
        if self.row:
            self.lines.append((" " * self.indent + "".join(self.row)).rstrip())
            self.row = []
        self.lines += [" " * indent + other for other in others]
        self.indent, self.used = indent, 0

    def fits(self, task: PrintTask) -> bool:
        """Whether a task, and what follows it up to the next possible break, fits into the rest of the row."""
        left = self.width - (self.used if self.row else task[0])
        trial, rest = [task], len(self.todo)
        while left >= 0:
            if not trial:
                if not rest:
                    return True
                rest -= 1
                # Measure what follows too, up to its first break: it must fit behind the group.
                trial.append(self.todo[rest])
            indent, flat, doc = trial.pop()
            match doc:
                case str():
                    left -= cell_width(doc)
                case tuple() | list():
                    trial.extend((indent, flat, part) for part in reversed(doc))
                case IndentedDoc(parts):
                    trial.extend((deeper(indent), flat, part) for part in reversed(parts))
                case BreakGroup(parts, broken):
                    trial.extend((indent, flat and not broken, part) for part in reversed(parts))
                case LineBreak(text, hard):
                    if hard or not flat:
                        return True
                    left -= len(text)
                case FilledDoc(parts, first):
                    if not flat:
                        return True
                    trial.extend((indent, flat, (" ", part)) for part in reversed(parts[first:]))
                case OwnLineComment():  # what follows starts a new row
                    left = self.width - indent
                case IfBroken(text, otherwise):
                    left -= len(otherwise if flat else text)
                case TrailingComment():
                    pass
        return False
