"""Bindings of names over those of a base, which are shared and not copied: a program may have many statements."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from typing import TypeVar

V = TypeVar("V")


class LayeredBindings(MutableMapping[str, V]):
    """Bindings of names. To bind or delete one does not change the base, and costs no copy of it."""

    __slots__ = ("base", "deleted", "own")

    def __init__(self, base: Mapping[str, V]) -> None:
        self.base, self.own, self.deleted = base, dict[str, V](), set[str]()

    def __getitem__(self, name: str) -> V:
        return self.own[name] if name in self.own or name in self.deleted else self.base[name]

    def __setitem__(self, name: str, value: V) -> None:
        self.own[name] = value

    def __delitem__(self, name: str) -> None:
        if name not in self:
            raise KeyError(name)
        # The base keeps it.
        self.own.pop(name, None)
        self.deleted.add(name)

    def __contains__(self, name: object) -> bool:
        return name in self.own or (name in self.base and name not in self.deleted)

    def __iter__(self) -> Iterator[str]:
        yield from self.own
        for name in tuple(self.base):  # it may grow meanwhile
            if name not in self.own and name not in self.deleted:
                yield name

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __ior__(self, other: Mapping[str, V]) -> LayeredBindings[V]:
        self.update(other)
        return self
