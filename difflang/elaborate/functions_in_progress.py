"""Functions while they are elaborated, one in another, and those that wait for an outer one to be complete."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

from msgspec import Struct, field

from difflang.base.source import Span

if TYPE_CHECKING:
    from difflang.elaborate.elaborated_graphs import FunctionInstance
    from difflang.elaborate.instance_keys import InstanceKey
    from difflang.types.function_code import FnCode
    from difflang.types.language_types import LangType


class PendingFunction(Struct, eq=False):
    """A function that is being elaborated, or is elaborated but calls one that is not."""

    key: InstanceKey
    code: FnCode
    span: Span
    number: int
    outermost: int  # how far out the functions are that it calls, itself or through others: at most its own place
    is_recursive: bool = False  # by itself or from inside
    is_definition: bool = False
    assumed_result: LangType | None = None  # what a call of it was taken to give, before that was known
    instance: FunctionInstance | None = None

    def depend_on(self, place: int) -> None:
        self.outermost = min(self.outermost, place)


class FunctionStack(Struct, eq=False):
    """The functions being elaborated, outermost first, and those inside them that are `open`."""

    stack: list[PendingFunction] = field(default_factory=list[PendingFunction])
    incomplete: list[PendingFunction] = field(default_factory=list[PendingFunction])
    drawing: set[Hashable] = field(default_factory=set[Hashable])  # members of a group that turned out to draw
    result_types: dict[Hashable, LangType] = field(
        default_factory=dict[Hashable, "LangType"]
    )  # what they turned out to give
    started: int = 0

    def begin(self, key: InstanceKey, code: FnCode, span: Span, *, definition: bool) -> PendingFunction:
        self.started += 1
        making = PendingFunction(key, code, span, self.started, len(self.stack), is_definition=definition)
        self.stack.append(making)
        return making

    def forget_results(self) -> None:
        """Nothing is known of what functions give where none is under way: the values of the file may be others."""
        if not self.stack:
            self.result_types.clear()

    def pop(self, making: PendingFunction) -> None:
        """Go back to what was under way around it."""
        self.stack.pop()
        self.incomplete = [m for m in self.incomplete if m.number < making.number or m.outermost < len(self.stack)]

    def find(self, key: Hashable) -> PendingFunction | None:
        """The function with that key, if it is under way or open."""
        return next((m for m in (*self.stack, *self.incomplete) if m.key == key), None)

    def record_call(self, making: PendingFunction) -> None:
        """A function under way calls that one: it is not complete before that one is."""
        making.is_recursive = True
        place = making.outermost if making in self.incomplete else self.stack.index(making)
        for inner in self.stack[place + 1 :]:
            inner.depend_on(place)

    def defer(self, making: PendingFunction, instance: FunctionInstance) -> None:
        """The innermost function is elaborated, and calls one further out."""
        making.instance = instance
        for inner in self.incomplete_inside(making):
            inner.depend_on(making.outermost)
        self.incomplete.append(making)

    def incomplete_inside(self, making: PendingFunction) -> list[PendingFunction]:
        """The open functions that were begun inside it."""
        return [m for m in self.incomplete if m.number > making.number]

    def incomplete_for(self, instance: FunctionInstance) -> PendingFunction | None:
        return next((m for m in self.incomplete if m.instance is instance), None)
