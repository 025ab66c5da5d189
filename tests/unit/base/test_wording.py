"""Articles and plurals in messages."""

from __future__ import annotations

import pytest

from difflang.base.wording import count_of, with_article


@pytest.mark.parametrize(
    "text", ["an f64[2]", "an i32", "a u8", "a bool", "a c64", "an enum", "a function", "an upper one"]
)
def test_articles_go_by_sound(text: str) -> None:
    assert with_article(text.partition(" ")[2]) == text


def test_plurals() -> None:
    assert [count_of(n, "axis", "axes") for n in (0, 1, 2)] == ["0 axes", "1 axis", "2 axes"]
    assert count_of(1, "page") == "1 page" and count_of(3, "page") == "3 pages"
