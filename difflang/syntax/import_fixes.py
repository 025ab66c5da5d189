"""Fixes that add an import to a file: among the existing imports in alphabetical order, else at the top."""

from __future__ import annotations

import re

from difflang.base.diagnostics import Edit, Fix
from difflang.base.package_data import stdlib_modules_of_name
from difflang.base.source import Source, Span

IMPORT_LINE = re.compile(r"^import[ \t]+(\w+|\"[^\"\n]*\")([^\n]*)(?:\n|\Z)", re.MULTILINE)
FLOAT_LINE = re.compile(r"^float[ \t]+\w+[^\n]*(?:\n|\Z)", re.MULTILINE)
# Only a comment that an empty line separates from the first declaration is about the file.
HEAD_COMMENT = re.compile(r"(?:#[^\n]*\n)+(?=[ \t\r]*\n)")


def add_module_import(source: Source, module: str) -> Fix:
    """A fix that imports a module of the library."""
    return insert_import(source, module, f"import {module}")


def add_name_import(span: Span, name: str) -> tuple[Fix, ...]:
    """A fix that imports a library name where it is used; none if two modules define it."""
    homes = stdlib_modules_of_name().get(name, ())
    if len(homes) != 1:
        return ()
    (module,) = homes
    for there in IMPORT_LINE.finditer(span.source.text):
        names = re.match(r"[ \t]*\(([^()]*)\)", there[2])
        if there[1] == module and names is not None:
            written = ", ".join(sorted([*map(str.strip, names[1].strip(", ").split(",")), name]))
            place = Span(span.source, there.start(2) + names.start(1), there.start(2) + names.end(1))
            return (Fix(f"import it: `import {module} ({written})`", (Edit(place, written),)),)
    return (insert_import(span.source, module, f"import {module} ({name})"),)


def insert_import(source: Source, module: str, line: str) -> Fix:
    """A fix that inserts an import line into a file."""
    text = source.text
    ending = "\r\n" if "\r\n" in text else "\n"
    at, lead, tail = first_import_offset(text), "", ending
    lines = list(IMPORT_LINE.finditer(text))
    if lines:
        later = [there for there in lines if not there[1].startswith('"') and there[1] > module]
        at = later[0].start() if later else lines[-1].end()
    elif text[at:].strip():
        lead = ending if at else ""
        tail = ending if text[at:].startswith(("\n", "\r\n")) else 2 * ending
    if at and text[at - 1] != "\n":
        lead = ending + lead
    return Fix(f"import it: `{line}`", (Edit(Span(source, at, at), f"{lead}{line}{tail}"),))


def first_import_offset(text: str) -> int:
    """Where a first import goes: below the `float` line, or below the comment at the top of the file."""
    found = FLOAT_LINE.search(text) or HEAD_COMMENT.match(text)
    return found.end() if found else 0
