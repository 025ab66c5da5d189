"""The type of each expression and bound name of a source text, recorded during checking for hovers and hints."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec import Struct, field

from difflang.base.source import Source, Span
from difflang.elaborate.elaborated_graphs import RootGraph
from difflang.ir.graph import Value
from difflang.ops.arrays.reshard import Split
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
    values: dict[TextRange, Value] = field(default_factory=dict[TextRange, Value])  # of arrays in definitions
    splits: dict[TextRange, Split] = field(default_factory=dict[TextRange, Split])  # over the axes of a mesh

    def put_value(self, span: Span, value: Value) -> None:
        """Record the array at a range of the definition that is being checked."""
        if span.source is self.source:
            self.values[span.start, span.end] = value

    def put_splits(self, splits: Mapping[Value, Split]) -> None:
        """Record how the arrays of a definition are split, once it is checked."""
        for place, value in self.values.items():
            if any(split := splits.get(value, ())):
                self.splits[place] = split
        self.values.clear()

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
