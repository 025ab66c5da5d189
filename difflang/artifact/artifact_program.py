"""A function out of an artifact as a graph and what its arrays are, and how it runs."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import partial
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from difflang.artifact.flatten_arguments import read
from difflang.base.diagnostics import Diagnostic, DifflangError, Label
from difflang.base.source import NOWHERE
from difflang.execution.callable_graph import Running, Surroundings, key_words
from difflang.execution.check_failures import WORD
from difflang.ir.graph import Graph
from difflang.lower.capacity import Room, numbers_of
from difflang.passes.substitute_dims import sized
from difflang.runtime import pytrees
from difflang.runtime.record_classes import Variant, known_class, known_variant
from difflang.runtime.value_layouts import Fields, Functions, Layout, count, maker
from difflang.tools.export.artifact_contents import Contents, Param


class Surface:
    """What all functions of one artifact share: its checks, arrays and classes."""

    def __init__(self, contents: Contents) -> None:
        self.contents = contents
        self.around = Surroundings(contents, threading.RLock(), {})
        self.constants = tuple(map(pytrees.on_device, contents.constants))
        self.given: dict[tuple[Body, Room], Body] = {}

    def class_of(self, layout: Fields) -> type:
        """The class of a record or a variant: of the module which it is of, if that is loaded, else like it."""
        with self.around.lock:
            if not layout.enum:
                return known_class(layout.shape)
            return known_variant(Variant(layout.enum, layout.mark, layout.shape))

    def in_room(self, body: Body, room: Room) -> Body:
        """A function that a program with such room has given: what it holds is as large as that room."""
        with self.around.lock:
            if (body, room) not in self.given:
                graph = sized(body.graph, numbers_of(room))
                self.given[body, room] = body if graph is body.graph else replace(body, graph=graph)
            return self.given[body, room]


class Body(Struct, frozen=True, eq=False):
    """A graph of the leaves of params, of a key if it is `random`, and of `held` arrays.

    It gives the leaves of the result and, if it `fails`, a failure.
    """

    name: str
    graph: Graph
    params: tuple[Param, ...]
    result: Layout
    random: bool = False
    fails: bool = False
    limit: int = 0

    @staticmethod
    def of(contents: Contents) -> Body:
        of = contents
        return Body(of.name, of.graph, of.params, of.result, of.random, of.fails, of.limit)

    @property
    def word(self) -> int:
        """How many of the last results are a failure."""
        return WORD if self.fails else 0

    @property
    def leaves(self) -> int:
        """How many params of the graph are leaves of arguments."""
        return sum([count(p.layout) for p in self.params])


class Program(Running):
    """A body that runs; `function` makes what is given back where a result is a function."""

    def __init__(self, surface: Surface, body: Body, function: Functions) -> None:
        super().__init__(surface.around, body.graph, body.fails, body.graph, body.limit)
        self.body = body

        def held(limit: int, map: Body, leaves: tuple[Any, ...]) -> Any:
            return function(surface.in_room(map, self.under(limit).room), leaves)

        self.make, self.make_unlimited = [
            maker(body.result, surface.class_of, partial(held, limit)) for limit in (self.limit, 0)
        ]

    def arrays(self, given: Sequence[Any], key: Any, held: Sequence[Any]) -> list[Any]:
        """What the program takes. Errors: DL1206, DL1207, DL1208."""
        found: list[Any] = []
        for param, value in zip(self.body.params, given, strict=True):
            try:
                found += read(param.layout, value, param.name)
            except DifflangError as error:
                raise declared(error, param) from None
        if self.body.random:
            found.append(self.key(key))
        elif key is not None:
            raise DifflangError(Diagnostic("DL1207", "a key is given, and this function draws nothing"))
        return [*found, *held]

    def key(self, key: Any) -> Any:
        if key is not None:
            return key_words(key)
        message = f"`{self.body.name}` draws random numbers: a function out of a file needs a key"
        raise DifflangError(Diagnostic("DL1208", message, helps=("give it one: `key=key`",)))


def declared(error: DifflangError, param: Param) -> DifflangError:
    """The same report, at the declaration of the parameter."""
    (found,) = error.diagnostics
    labels = (Label(param.span, "declared here"),) if param.span != NOWHERE else ()
    return DifflangError(Diagnostic(found.code, found.message, labels, found.helps))
