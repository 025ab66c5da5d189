"""Fixes: what is proposed, and that the checker alone says which are certain."""

from __future__ import annotations

from difflang.base.diagnostics import Diagnostic, to_json
from difflang.base.fixes import applied
from difflang.base.source import Source
from difflang.driver import program
from difflang.driver.fixes import certain, judged, mended


def check(source: Source) -> tuple[Diagnostic, ...]:
    return program.check(source, examples=True).diagnostics


def after(text: str) -> str:
    return mended(Source("wrong.dfl", text), check).source.text


def test_a_misspelt_name_is_certain_where_the_right_one_checks() -> None:
    source = Source("wrong.dfl", "let total = 1.0\nprint(totl)\n")
    (report,) = judged(source, check(source), check)
    (fix,) = certain([report])
    assert applied(source, [fix]) == "let total = 1.0\nprint(total)\n"
    (data,) = to_json([report])[0]["fixes"]
    assert data["certain"] and data["edits"][0]["replacement"] == "total"


def test_a_proposal_that_does_not_check_is_not_certain() -> None:
    source = Source("wrong.dfl", "record Total { x: f32 }\nlet y = totla + 1.0\nlet total = Total(1.0)\n")
    assert not certain(judged(source, check(source), check))
    assert after(source.text) == source.text


def test_names_that_differ_in_a_number_are_not_mistaken_for_each_other() -> None:
    text = "let layer1 = 1.0\nprint(layer3)\n"
    assert after(text) == text
