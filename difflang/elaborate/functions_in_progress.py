"""The stack of functions in progress, and incomplete members of recursive groups.

As in Tarjan's algorithm for strongly connected components, each function tracks the outermost one that it can reach.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

from msgspec import Struct, field

from difflang.base.source import Span
from difflang.elaborate.elaborated_graphs import FunctionInstance
from difflang.syntax import tree
from difflang.types.function_code import FnCode
from difflang.types.language_types import LangType


class InstanceKey(NamedTuple):
    """The cache key of a function instance."""

    code: FnCode
    types: tuple[LangType, ...]
    static_values: Hashable
    sizes: Hashable
    definition: bool
    follows_splits: bool


class PendingFunction(Struct, eq=False):
    """A function that is being elaborated, or that is elaborated but calls one in progress."""

    key: InstanceKey
    code: FnCode
    span: Span
    number: int
    # The lowest stack position among the functions that it calls, directly or indirectly, and itself.
    outermost: int
    is_recursive: bool = False  # it is called by itself, or from inside
    is_definition: bool = False
    # The result type that recursive calls assumed.
    assumed_result: LangType | None = None
    instance: FunctionInstance | None = None

    def depend_on(self, place: int) -> None:
        self.outermost = min(self.outermost, place)


class FunctionStack(Struct, eq=False):
    """The functions being elaborated, outermost first, and the `incomplete` ones inside them."""

    stack: list[PendingFunction] = field(default_factory=list[PendingFunction])
    incomplete: list[PendingFunction] = field(default_factory=list[PendingFunction])
    # Members of a group found to draw random numbers.
    drawing: set[Hashable] = field(default_factory=set[Hashable])
    # The result types found so far.
    result_types: dict[Hashable, LangType] = field(default_factory=dict[Hashable, LangType])
    started: int = 0

    def begin(self, key: InstanceKey, code: FnCode, span: Span, *, definition: bool) -> PendingFunction:
        self.started += 1
        making = PendingFunction(key, code, span, self.started, len(self.stack), is_definition=definition)
        self.stack.append(making)
        return making

    def forget_results(self) -> None:
        """Clear the result types when no function is in progress: top-level values may have changed since."""
        if not self.stack:
            self.result_types.clear()

    def pop(self, making: PendingFunction) -> None:
        """Leave a function, and drop incomplete ones that waited for it."""
        self.stack.pop()
        self.incomplete = [m for m in self.incomplete if m.number < making.number or m.outermost < len(self.stack)]

    def find(self, key: Hashable) -> PendingFunction | None:
        """The function with that key, if it is in progress or incomplete."""
        return next((m for m in (*self.stack, *self.incomplete) if m.key == key), None)

    def record_call(self, making: PendingFunction) -> None:
        """Record a call of a function in progress: the callers inside it are not complete before it is."""
        making.is_recursive = True
        self.wait_for(making.outermost if making in self.incomplete else self.stack.index(making))

    def wait_for(self, place: int) -> None:
        """The functions inside the one at that place of the stack are not complete before it is."""
        for inner in self.stack[place + 1 :]:
            inner.depend_on(place)

    def is_left_out(self, decl: tree.Fn) -> bool:
        """Whether a function whose definition is checked is called again here: without its body."""
        place = next((i for i, m in enumerate(self.stack) if m.code.decl is decl and m.is_definition), None)
        if place is not None:
            self.wait_for(place)
        return place is not None

    def waiting(self, key: Hashable) -> FunctionInstance | None:
        """The instance with that key that waits for a function further out, for callers that then wait for it too."""
        found = next((m for m in self.incomplete if m.key == key), None)
        if found is None:
            return None
        self.wait_for(found.outermost)
        return found.instance

    def defer(self, making: PendingFunction, instance: FunctionInstance) -> None:
        """Defer the innermost function, which is elaborated but calls one further out."""
        making.instance = instance
        for inner in self.incomplete_inside(making):
            inner.depend_on(making.outermost)
        self.incomplete.append(making)

    def incomplete_inside(self, making: PendingFunction) -> list[PendingFunction]:
        """The incomplete functions that were begun inside it."""
        return [m for m in self.incomplete if m.number > making.number]

    def incomplete_for(self, instance: FunctionInstance) -> PendingFunction | None:
        return next((m for m in self.incomplete if m.instance is instance), None)
