"""Every graph that a program of the tests runs is written to JSON and read back: it is equal, and so are results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from difflang import graph as dg
from difflang.base.diagnostics import DifflangError
from difflang.execution.engine import ArrayProgram, Engine
from difflang.ir.graph import Graph
from difflang.ir.structural_equality import graphs_equal
from support.language import Twice
from support.nightly import by_day


@pytest.fixture(scope="package", autouse=True)
def graphs_in_json() -> Iterator[None]:
    """All graphs are read back; at night what is read runs too, and gives the same bits."""
    with pytest.MonkeyPatch.context() as patch:
        for engine in (Engine, Twice):
            patch.setattr(engine, "program", in_json(engine.program))
        yield


def in_json(make: Callable[..., ArrayProgram]) -> Callable[..., ArrayProgram]:
    """A method that makes programs of engines, which does so of what it reads back as well."""

    def program(self: Engine, graph: Graph, **options: Any) -> ArrayProgram:
        made, read = make(self, graph, **options), read_back(graph)
        if by_day(True, False) or read is None or self.mesh:
            return made
        again = make(self, read, **{k: v for k, v in options.items() if k != "on_print"})

        def both(*arrays: Any) -> Sequence[Any]:
            results = made(*arrays)
            for a, b in zip(results, again(*arrays), strict=True):
                assert np.asarray(a).tobytes() == np.asarray(b).tobytes(), graph.name
            return results

        return both

    return program


def read_back(graph: Graph) -> Graph | None:
    """The graph that its JSON describes, which is equal to it; None if it calls a Python function."""
    given = dg.Graph(graph)
    try:
        text = given.to_json()
    except DifflangError as error:
        assert [d.code for d in error.diagnostics] == ["DL1233"]
        return None
    found = dg.Graph.from_json(text)
    assert found == given and graphs_equal(found.ir, graph, spans=True)
    return found.ir
