"""Test outcomes as JUnit XML, for continuous integration."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree as Xml

from difflang.base.source_files import write_atomically
from difflang.tools.testing.suite import Outcome

NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def write_junit(path: Path, outcomes: Sequence[Outcome]) -> None:
    """Write the file atomically. Errors: OSError."""
    data = Xml.tostring(junit_xml(outcomes), encoding="utf-8", xml_declaration=True)
    write_atomically(path, data)


def junit_xml(outcomes: Sequence[Outcome]) -> Xml.Element:
    """One suite for each file, in the order of the outcomes."""
    root = Xml.Element("testsuites", counts(outcomes))
    by_file: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        by_file.setdefault(outcome.case.file, []).append(outcome)
    for file, found in by_file.items():
        suite = Xml.SubElement(root, "testsuite", {"name": strip_invalid_chars(file), **counts(found)})
        for outcome in found:
            suite.append(case_element(outcome))
    return root


def counts(outcomes: Sequence[Outcome]) -> dict[str, str]:
    errors = sum(is_error(o) for o in outcomes)
    return {
        "tests": str(len(outcomes)),
        "failures": str(sum(o.result == "failed" for o in outcomes) - errors),
        "errors": str(errors),
        "skipped": str(sum(o.result == "skipped" for o in outcomes)),
        "time": f"{sum(o.seconds for o in outcomes):.6f}",
    }


def is_error(outcome: Outcome) -> bool:
    """Whether something other than the tested assertion failed."""
    return outcome.result == "failed" and not all(c.startswith("DL09") or c == "DL0406" for c in outcome.codes or ("",))


def case_element(outcome: Outcome) -> Xml.Element:
    case = outcome.case
    found = Xml.Element(
        "testcase",
        {
            "classname": strip_invalid_chars(case.file.removesuffix(".dfl")),
            "name": strip_invalid_chars(case.title),
            "file": strip_invalid_chars(case.file),
            "line": str(case.line),
            "time": f"{outcome.seconds:.6f}",
        },
    )
    if outcome.result == "skipped":
        Xml.SubElement(found, "skipped", {"message": strip_invalid_chars(outcome.report)})
    elif outcome.result == "failed":
        first = outcome.report.split("\n", 1)[0]
        kind = "error" if is_error(outcome) else "failure"
        part = Xml.SubElement(
            found, kind, {"message": strip_invalid_chars(first), "type": outcome.codes[0] if outcome.codes else ""}
        )
        part.text = strip_invalid_chars(outcome.report)
    if outcome.output:
        Xml.SubElement(found, "system-out").text = strip_invalid_chars(outcome.output)
    return found


def strip_invalid_chars(given: str) -> str:
    """The text with characters replaced that XML cannot hold."""
    return NOT_XML.sub("\ufffd", given)
