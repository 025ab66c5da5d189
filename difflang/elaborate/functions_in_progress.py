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
    called: bool = False  # by itself or from inside
    definition: bool = False
    taken: LangType | None = None  # what a call of it was taken to give, before that was known
    instance: FunctionInstance | None = None

    def reaches(self, place: int) -> None:
        self.outermost = min(self.outermost, place)


class FunctionStack(Struct, eq=False):
    """The functions being elaborated, outermost first, and those inside them that are `open`."""

    stack: list[PendingFunction] = field(default_factory=list[PendingFunction])
    open: list[PendingFunction] = field(default_factory=list[PendingFunction])
    random: set[Hashable] = field(default_factory=set[Hashable])  # members of a group that turned out to draw
    gives: dict[Hashable, LangType] = field(default_factory=dict[Hashable, "LangType"])  # what they turned out to give
    begun: int = 0

    def begin(self, key: InstanceKey, code: FnCode, span: Span, *, definition: bool) -> PendingFunction:
        self.begun += 1
        making = PendingFunction(key, code, span, self.begun, len(self.stack), definition=definition)
        self.stack.append(making)
        return making

    def forget(self) -> None:
        """Nothing is known of what functions give where none is under way: the values of the file may be others."""
        if not self.stack:
            self.gives.clear()

    def end(self, making: PendingFunction) -> None:
        """Go back to what was under way around it."""
        self.stack.pop()
        self.open = [m for m in self.open if m.number < making.number or m.outermost < len(self.stack)]

    def find(self, key: Hashable) -> PendingFunction | None:
        """The function with that key, if it is under way or open."""
        return next((m for m in (*self.stack, *self.open) if m.key == key), None)

    def reach(self, making: PendingFunction) -> None:
        """A function under way calls that one: it is not complete before that one is."""
        making.called = True
        place = making.outermost if making in self.open else self.stack.index(making)
        for inner in self.stack[place + 1 :]:
            inner.reaches(place)

    def leave_open(self, making: PendingFunction, instance: FunctionInstance) -> None:
        """The innermost function is elaborated, and calls one further out."""
        making.instance = instance
        for inner in self.inside(making):
            inner.reaches(making.outermost)
        self.open.append(making)

    def inside(self, making: PendingFunction) -> list[PendingFunction]:
        """The open functions that were begun inside it."""
        return [m for m in self.open if m.number > making.number]

    def opened(self, instance: FunctionInstance) -> PendingFunction | None:
        return next((m for m in self.open if m.instance is instance), None)
