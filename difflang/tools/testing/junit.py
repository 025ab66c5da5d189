"""Test outcomes as JUnit XML, for continuous integration."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from xml.etree import ElementTree as Xml

from difflang.base.source_files import write_atomically
from difflang.tools.testing.suite import Outcome

NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def write_junit(path: Path, outcomes: Sequence[Outcome]) -> None:
    """Write one suite for each file, in the order of the outcomes, atomically. Errors: OSError."""
    root = Xml.Element("testsuites", counts(outcomes))
    for file, group in groupby(outcomes, lambda outcome: outcome.case.file):
        found = list(group)
        suite = Xml.SubElement(root, "testsuite", {"name": file, **counts(found)})
        suite.extend(map(case_element, found))
    for element in root.iter():
        # XML cannot hold every character.
        element.attrib = {name: NOT_XML.sub("\ufffd", value) for name, value in element.attrib.items()}
        element.text = element.text and NOT_XML.sub("\ufffd", element.text)
    write_atomically(path, Xml.tostring(root, encoding="utf-8", xml_declaration=True))


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
    file, line = outcome.case.file, str(outcome.case.line)
    place = {"classname": file.removesuffix(".dfl"), "name": outcome.case.title, "file": file, "line": line}
    found = Xml.Element("testcase", {**place, "time": f"{outcome.seconds:.6f}"})
    if outcome.result == "skipped":
        Xml.SubElement(found, "skipped", message=outcome.report)
    elif outcome.result == "failed":
        kind = "error" if is_error(outcome) else "failure"
        first = outcome.report.partition("\n")[0]
        Xml.SubElement(found, kind, message=first, type=(*outcome.codes, "")[0]).text = outcome.report
    if outcome.output:
        Xml.SubElement(found, "system-out").text = outcome.output
    return found
