"""The type of each expression and bound name of a source text, recorded during checking for hovers and hints."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct, field

from difflang.base.source import Source, Span
from difflang.elaborate.elaborated_graphs import RootGraph
from difflang.types.language_types import LangType

TextRange = tuple[int, int]  # start and end offsets


class RecordedTypes(Struct, eq=False):
    """The types recorded for one text. `poll` is called at every step, and may raise to cancel the check."""

    source: Source
    poll: Callable[[], None]
    types: dict[TextRange, LangType] = field(default_factory=dict[TextRange, LangType])
    definition_root: RootGraph | None = None  # of the definition being checked
    # Ranges recorded while their own definition was checked.
    from_definition: set[TextRange] = field(default_factory=set[TextRange])

    def put(self, span: Span, type: LangType, root: RootGraph | None) -> None:
        """Record a type. A type from the definition of a function replaces one from a call."""
        if span.source is not self.source:
            return
        # A function is elaborated for its definition, where sizes are names, and for each call, where they are numbers.
        place = span.start, span.end
        mine = root is None or root is self.definition_root
        if place not in self.types or (mine and place not in self.from_definition):
            self.types[place] = type
            if mine:
                self.from_definition.add(place)
