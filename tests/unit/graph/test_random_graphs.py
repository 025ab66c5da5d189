"""Laws of graphs, on random ones: texts and JSON give equal graphs, edits that change nothing keep every value."""

from __future__ import annotations

import numpy as np
import pytest

from difflang import graph as dg
from support.graphs import arguments, random_graph

SEEDS = range(6)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_graph_comes_back_from_text_and_json(seed: int) -> None:
    g = dg.Graph(random_graph(seed))
    for found in (dg.parse(g.text()), dg.Graph.from_json(g.to_json())):
        assert found == g and hash(found) == hash(g) and found.text() == g.text()


@pytest.mark.parametrize("seed", SEEDS)
def test_every_value_knows_its_equation_and_its_name(seed: int) -> None:
    g = dg.Graph(random_graph(seed))
    for equation in g.walk():
        for value in equation.outputs:
            assert value.equation == equation and value.scope[value.name] == value


@pytest.mark.parametrize("seed", SEEDS)
def test_an_edit_that_changes_nothing_keeps_the_outputs(seed: int) -> None:
    ir = random_graph(seed)
    g, arrays = dg.Graph(ir), arguments(ir, seed)
    expected = g.run(*arrays, engine="interpret")
    values = [v for e in g.walk() for v in e.outputs if not v.type.startswith("history")]
    for value in values[:8]:
        for edited in (g.replace(value, with_=lambda b, v: b.stop(v)), g.rename({value: "q"})):
            for found, wanted in zip(edited.run(*arrays, engine="interpret"), expected, strict=True):
                np.testing.assert_array_equal(found, wanted)
