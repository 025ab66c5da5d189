"""Notebook display of functions and modules: signatures, docs, parameters, sizes and effects."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence

from msgspec import Struct

from difflang.api.signature import Parameter, Signature
from difflang.api.transforms import TransformMixin
from difflang.syntax import tree
from difflang.syntax.doc_pages import first_sentence
from difflang.tools.emit import EFFECTS
from difflang.types.module_scope import ModuleScope

COLUMNS = ("parameter", "type", "")


def function_mimebundle(f: TransformMixin) -> dict[str, str]:
    """A function in all display formats."""
    signature = f.signature
    rows = tuple([(p.name, p.type_text or "any", parameter_remark(p)) for p in signature.parameters])
    return NotebookSheet(
        f"{f.__name__}{signature.types}", f.__doc__ or "", COLUMNS, rows, tuple(signature_notes(signature))
    ).bundle()


def parameter_remark(p: Parameter) -> str:
    if p.is_dim:
        return "a size"
    return "optional" if p.optional else ""


def signature_notes(signature: Signature) -> Iterable[str]:
    if signature.dims:
        yield f"sizes: {', '.join(signature.dims)}"
    if signature.sizes:
        yield f"bound: {signature.bound}"
    if signature.effects:
        yield ", ".join([EFFECTS[effect] for effect in signature.effects])


def module_mimebundle(name: str, module: ModuleScope, functions: Iterable[TransformMixin]) -> dict[str, str]:
    """A module: its functions with the first sentence of their docs, and its records and enums."""
    rows = [(f"{f.__name__}{f.signature.types}", first_sentence(f.__doc__ or "")) for f in functions]
    for record in module.records.values():
        if module.declaring_module(record) is module:
            rows.append((one_line_declaration(record), first_sentence(record.doc or "")))
    return NotebookSheet(f"module {name}", "", ("", ""), tuple(rows)).bundle()


def one_line_declaration(item: tree.Record | tree.Enum) -> str:
    """A declaration on one line, without comments."""
    # A declaration has no string that could contain `#`.
    text = re.sub(r"#.*", "", item.span.text)
    return " ".join(text.split())


class NotebookSheet(Struct, frozen=True):
    """A sheet of code and prose: its head and the cells of its rows are code, except each row's last cell."""

    head: str
    text: str = ""
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    notes: tuple[str, ...] = ()

    def bundle(self) -> dict[str, str]:
        """The formats by their MIME types."""
        return {"text/plain": self.plain(), "text/html": self.html(), "text/markdown": self.markdown()}

    def plain(self) -> str:
        widths = [max(map(len, column)) for column in zip(*self.rows, strict=True)]
        rows = ["  ".join([cell.ljust(w) for cell, w in zip(row, widths, strict=True)]).rstrip() for row in self.rows]
        return "\n".join([self.head, *[f"  {line}".rstrip() for line in (*self.lines, *rows, *self.notes)]])

    @property
    def lines(self) -> Sequence[str]:
        return self.text.strip().split("\n") if self.text.strip() else []

    def html(self) -> str:
        parts = [f"<pre><code>{html.escape(self.head)}</code></pre>"]
        if self.lines:
            parts.append(f"<p>{'<br>'.join(map(html.escape, self.lines))}</p>")
        if self.rows:
            head = "".join([f"<th>{html.escape(name)}</th>" for name in self.columns])
            body = "".join(
                [f"<tr>{''.join(map(html_cell, row[:-1]))}{html_cell(row[-1], prose=True)}</tr>" for row in self.rows]
            )
            parts.append(f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>")
        if self.notes:
            parts.append(f"<p>{'<br>'.join(map(html.escape, self.notes))}</p>")
        return f'<div class="difflang-sheet">{"".join(parts)}</div>'

    def markdown(self) -> str:
        # Longer than any run of backticks inside.
        fence = "`" * max(3, longest_run(self.head, "`") + 1)
        parts = [f"{fence}text\n{self.head}\n{fence}"]
        if self.lines:
            parts.append("\n".join(self.lines))
        if self.rows:
            body = [" | ".join([*[code_span(cell) for cell in row[:-1]], markdown_cell(row[-1])]) for row in self.rows]
            table = [" | ".join(self.columns), " | ".join(["---"] * len(self.columns)), *body]
            parts.append("\n".join([f"| {line} |" for line in table]))
        return "\n\n".join([*parts, *self.notes])


def html_cell(cell: str, *, prose: bool = False) -> str:
    text = html.escape(cell)
    return f"<td>{f'<code>{text}</code>' if text and not prose else text}</td>"


def markdown_cell(cell: str) -> str:
    """A Markdown table cell, escaped so that nothing in it ends the cell or the row."""
    return cell.replace("|", "\\|").replace("\n", " ")


def code_span(cell: str) -> str:
    # Markdown needs a fence longer than any run inside.
    fence = "`" * (longest_run(cell, "`") + 1)
    return f"{fence}{markdown_cell(cell)}{fence}" if cell else ""


def longest_run(text: str, of: str) -> int:
    run = most = 0
    for letter in text:
        run = run + 1 if letter == of else 0
        most = max(most, run)
    return most
