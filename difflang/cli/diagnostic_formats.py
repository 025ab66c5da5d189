"""Output formats of diagnostics for other programs: one line each, JSON, SARIF, and GitHub annotations."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from typing import Any, cast

import click
from msgspec import Struct

from difflang.base.diagnostics import Diagnostic, Fix, render_one_line, to_json
from difflang.base.error_codes import CODE_TITLES
from difflang.cli.options_and_reports import SuggestingChoice

FORMATS = ("human", "concise", "json", "sarif", "github")
output_format = click.option(
    "--output-format",
    "form",
    type=SuggestingChoice(FORMATS),
    default="human",
    help="Report format, for people or for programs.",
)
SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


class Finding(Struct, frozen=True):
    """One report as a code, a sentence, and a range of lines and columns, which count from 1."""

    severity: str
    code: str
    message: str
    file: str = ""
    start: tuple[int, int] = (1, 1)
    end: tuple[int, int] = (1, 1)
    fixes: tuple[Fix, ...] = ()


def diagnostic_finding(diagnostic: Diagnostic) -> Finding:
    """A diagnostic at its first label. Its label's text and its helps are part of the sentence."""
    texts = [diagnostic.message, *[label.text for label in diagnostic.labels[:1] if label.text], *diagnostic.helps]
    # These formats have a single line per report.
    message = "; ".join(text.replace("\n", " ") for text in texts)
    span = diagnostic.span
    # A report on the command line has no position in a file.
    if span is None or not span.source.text:
        return Finding(diagnostic.severity, diagnostic.code, message)
    start, end = span.source.position(span.start), span.source.position(max(span.start, span.end))
    certain = tuple(fix for fix in diagnostic.fixes if fix.is_certain)
    return Finding(diagnostic.severity, diagnostic.code, message, span.source.name, start, end, certain)


def json_text(data: Any) -> str:
    """Data as JSON; non-finite numbers, which JSON lacks, are texts, as `write_json` writes them."""
    return json.dumps(encode_nonfinite(data), indent=2, allow_nan=False)


def encode_nonfinite(data: Any) -> Any:
    """The data with `"NaN"`, `"Infinity"` and `"-Infinity"` in place of these numbers."""
    match data:
        case dict():
            return {name: encode_nonfinite(x) for name, x in cast("dict[str, Any]", data).items()}
        case list() | tuple():
            return [encode_nonfinite(x) for x in cast("list[Any]", data)]
        case float() if not math.isfinite(data):
            return "NaN" if math.isnan(data) else "Infinity" if data > 0 else "-Infinity"
        case _:
            return data


def format_diagnostics(diagnostics: Sequence[Diagnostic], form: str) -> str:
    """Diagnostics in a format for programs."""
    match form:
        case "concise":
            return render_one_line(diagnostics)
        case "json":
            return json.dumps(to_json(diagnostics), indent=2)
        case _:
            return format_findings(map(diagnostic_finding, diagnostics), form)


def format_findings(found: Iterable[Finding], form: str) -> str:
    """Findings in a format for programs."""
    match form:
        case "sarif":
            return json.dumps(sarif_log(list(found)), indent=2)
        case "github":
            return "\n".join(map(github_annotation, found))
        case _:
            return "\n".join(map(concise_line, found))


def concise_line(found: Finding) -> str:
    place = f"{found.file}:{found.start[0]}:{found.start[1]}: " if found.file else ""
    return f"{place}{found.severity}[{found.code}]: {found.message}"


def github_annotation(found: Finding) -> str:
    """A GitHub workflow command, which shows the message beside the line.

    Source: GitHub Docs, Workflow commands for GitHub Actions.
    """
    places = {"file": found.file, "line": found.start[0], "endLine": found.end[0]} if found.file else {}
    if found.file and found.start[0] == found.end[0]:
        places |= {"col": found.start[1], "endColumn": found.end[1]}
    values = {**places, "title": found.code}
    properties = ",".join(f"{name}={escape_github(str(value), ',:')}" for name, value in values.items())
    return f"::{found.severity} {properties}::{escape_github(found.message)}"


def escape_github(text: str, more: str = "") -> str:
    for char in ("%", "\r", "\n", *more):
        text = text.replace(char, f"%{ord(char):02X}")
    return text


def sarif_log(found: Sequence[Finding]) -> dict[str, Any]:
    """A log of one run. Source: OASIS, Static Analysis Results Interchange Format 2.1.0."""
    codes = sorted({each.code for each in found})
    rules = [{"id": code, "shortDescription": {"text": CODE_TITLES.get(code, "an unknown failure")}} for code in codes]
    from importlib import metadata  # late: it imports the standard library's `email`

    tool = {"name": "difflang", "version": metadata.version("difflang"), "rules": rules}
    results = [sarif_result(each, codes.index(each.code)) for each in found]
    run = {"tool": {"driver": tool}, "columnKind": "unicodeCodePoints", "results": results}
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def sarif_result(found: Finding, rule: int) -> dict[str, Any]:
    result: dict[str, Any] = {
        "ruleId": found.code, "ruleIndex": rule, "level": found.severity, "message": {"text": found.message},
    }  # fmt: skip
    if found.file:
        place = {"artifactLocation": {"uri": file_uri(found.file)}, "region": sarif_region(found.start, found.end)}
        result["locations"] = [{"physicalLocation": place}]
    if found.fixes:
        result["fixes"] = [sarif_fix(fix) for fix in found.fixes]
    return result


def sarif_region(start: tuple[int, int], end: tuple[int, int]) -> dict[str, int]:
    return {"startLine": start[0], "startColumn": start[1], "endLine": end[0], "endColumn": end[1]}


def sarif_fix(fix: Fix) -> dict[str, Any]:
    """A fix in SARIF: for each file the regions to replace."""
    files: dict[str, list[dict[str, Any]]] = {}
    for edit in fix.edits:
        source = edit.span.source
        deleted = sarif_region(source.position(edit.span.start), source.position(edit.span.end))
        inserted = {"deletedRegion": deleted, "insertedContent": {"text": edit.replacement}}
        files.setdefault(source.name, []).append(inserted)
    changes = [{"artifactLocation": {"uri": file_uri(name)}, "replacements": edits} for name, edits in files.items()]
    return {"description": {"text": fix.title}, "artifactChanges": changes}


def file_uri(file: str) -> str:
    from pathlib import Path
    from urllib.parse import quote

    return Path(file).as_uri() if Path(file).is_absolute() else quote(file.replace("\\", "/"))
