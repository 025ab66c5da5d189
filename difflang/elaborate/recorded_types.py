"""What checking finds out about a text on its way: the type of each expression and of each name that is bound.

Only who asks for notes pays for them. A function is gone through where it is defined and again where it is called; what
is noted is the first, in which sizes are names.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct, field

from difflang.base.source import Source, Span
from difflang.types.language_types import LangType

TextRange = tuple[int, int]  # from where to where in the text


class RecordedTypes(Struct, eq=False):
    """The types met in one text. `pause` is called at every step, and may raise what ends the check."""

    source: Source
    poll: Callable[[], None]
    types: dict[TextRange, LangType] = field(default_factory=dict[TextRange, LangType])
    definition_root: Any = None  # the root of the definition that is being checked
    from_definition: set[TextRange] = field(
        default_factory=set[TextRange]
    )  # those that were met where they are defined

    def put(self, span: Span, type: LangType, root: Any) -> None:
        """Note a type; what is met in a call of a function gives way to what is met in its definition."""
        if span.source is not self.source:
            return
        place = span.start, span.end
        mine = root is None or root is self.definition_root
        if place not in self.types or (mine and place not in self.from_definition):
            self.types[place] = type
            if mine:
                self.from_definition.add(place)
