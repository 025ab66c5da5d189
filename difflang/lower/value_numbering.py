"""Value numbering: two values with one number are equal, wherever in a program they are defined.

A region that runs many times is visited once: a value in it is a function of an index, and its stacked output is that
function. Two loops over the same steps share their index, so what one saved at a step and what the other computes there
are compared by their numbers, however deeply loops are nested.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from difflang.ir.symbolic_dims import Dim
from difflang.ir.tensor_types import History, Type

ValueNumber = int


class StackedOrigin(Struct, frozen=True):
    """The stacked output of a loop or a map, one item per step."""

    kind: str
    length: Dim | None
    # Identifies the set of steps.
    steps: ValueNumber
    # The number of the index that `item` is a function of.
    index: ValueNumber
    item: ValueNumber


class BranchOrigin(Struct, frozen=True):
    """The result of a conditional."""

    truth: ValueNumber
    sides: tuple[ValueNumber, ValueNumber]


ValueOrigin = StackedOrigin | BranchOrigin
# The number of an empty history of any type.
EMPTY_HISTORY = 0


class ValueNumbering:
    """All numbers of a program. A number has as free indices those that its value depends on."""

    def __init__(self) -> None:
        self.numbers: dict[Hashable, ValueNumber] = {"empty": EMPTY_HISTORY}
        self.free: list[frozenset[ValueNumber]] = [frozenset()]
        self.origins: dict[ValueNumber, ValueOrigin] = {}
        # A number, as another one and the indices to replace in it.
        self.substitutions: dict[ValueNumber, tuple[ValueNumber, dict[ValueNumber, ValueNumber]]] = {}

    def of(self, key: Hashable, parts: Iterable[ValueNumber] = ()) -> ValueNumber:
        """The number of what `key` computes from `parts`."""
        parts = tuple(parts)
        whole = (key, parts)
        found = self.numbers.get(whole)
        if found is None:
            found = self.numbers[whole] = len(self.free)
            self.free.append(frozenset().union(*[self.free[p] for p in parts]))
        return found

    def index(self, steps: ValueNumber, depth: int) -> ValueNumber:
        """The number of the step index of a region at that depth."""
        fresh = ("index", steps, depth) not in self.numbers
        found = self.numbers.setdefault(("index", steps, depth), len(self.free))
        if fresh:
            self.free.append(self.free[steps] | {found})
        return found

    def set_origin(self, name: ValueNumber, origin: ValueOrigin) -> ValueNumber:
        self.origins[name] = origin
        return name

    def substitute(self, name: ValueNumber, indices: Mapping[ValueNumber, ValueNumber]) -> ValueNumber:
        """The same function of other indices."""
        base, before = self.substitutions.get(name, (name, {}))
        now = {i: indices.get(j, j) for i, j in ((i, before.get(i, i)) for i in self.free[base])}
        now = {i: j for i, j in sorted(now.items()) if i != j}
        if not now:
            return base
        found = self.of(("at", base, tuple(now)), now.values())
        if found not in self.substitutions:
            self.substitutions[found] = base, now
            self.free[found] |= self.free[base] - now.keys()
        return found

    def origin(self, name: ValueNumber) -> ValueOrigin | None:
        """The loop or conditional that produced a value, if known."""
        if name in self.origins or name not in self.substitutions:
            return self.origins.get(name)
        base, indices = self.substitutions[name]
        match self.origins.get(base):
            case StackedOrigin() as stack:
                steps, item = self.substitute(stack.steps, indices), self.substitute(stack.item, indices)
                return self.origins.setdefault(name, replace(stack, steps=steps, item=item))
            case BranchOrigin(truth, (one, other)):
                sides = self.substitute(one, indices), self.substitute(other, indices)
                return self.origins.setdefault(name, BranchOrigin(self.substitute(truth, indices), sides))
            case _:
                return None

    def item_number(self, stack: StackedOrigin, index: ValueNumber) -> ValueNumber:
        """The number of the item at that step."""
        return self.substitute(stack.item, {stack.index: index})

    def sum(self, x: ValueNumber, y: ValueNumber, type: Type) -> ValueNumber | None:
        """The number of a sum, histories item by item; `None` where these are not over the same steps."""
        if not isinstance(type, History):
            return self.of("add", (x, y))
        if EMPTY_HISTORY in (x, y):
            return x or y
        total = self.of("add_history", (x, y))
        match self.origin(x), self.origin(y):
            case StackedOrigin() as a, StackedOrigin() as b if (a.kind, a.length, a.steps) == (
                b.kind,
                b.length,
                b.steps,
            ):
                item = self.sum(a.item, self.item_number(b, a.index), type.item)
                return None if item is None else self.set_origin(total, replace(a, item=item))
            case BranchOrigin() as a, BranchOrigin() as b if a.truth == b.truth:
                one, other = [self.sum(s, t, type) for s, t in zip(a.sides, b.sides, strict=True)]
                return (
                    None
                    if one is None or other is None
                    else self.set_origin(total, BranchOrigin(a.truth, (one, other)))
                )
            case _:
                return None
