"""Sizes of expressions against counts by hand, and of loops against the same program without the loop."""

from __future__ import annotations

from typing import Any

import pytest

from difflang.base.source import Source
from difflang.driver.checked_program import check_program
from difflang.ir.graph import Graph
from difflang.tools.compare.expression_size import (
    MAX_SIZE,
    NoExpression,
    expression_size,
    graph_nodes,
    sizes_by_order,
)
from difflang.tools.derive.simplify_for_reading import simplify_graph
from difflang.tools.emit import EmitRequest, function_graph


def graph_of(source: str, **specs: str) -> Graph:
    checked = check_program(Source("test.dfl", source))
    assert not checked.errors, checked.errors
    return function_graph(checked, next(iter(checked.module.fns.values())), EmitRequest("ir", "f", specs))


def sizes(source: str, highest: int = 0, **specs: str) -> list[tuple[int | None, int | None]]:
    return [(row.expression, row.graph) for row in sizes_by_order(graph_of(source, **specs), 0, highest)]


@pytest.mark.parametrize(
    ("body", "expression", "graph"),
    [
        ("log(x) + x * y - sin(y)", 9, 7),
        ("x * y + sin(x)", 6, 5),
        ("x", 1, 1),
        ("2.0", 1, 1),
        ("(x + y) * (x + y)", 7, 4),
        ("if x > 2.0 { x * y } else { y }", 8, 6),  # a branch, its condition of 3, and 4
    ],
)
def test_nodes_are_operations_constants_and_arguments(body: str, expression: int, graph: int) -> None:
    assert sizes(f"fn f(x: f64, y: f64) -> f64 = {body}\n") == [(expression, graph)]


def test_the_logistic_map_swells_by_its_recurrence() -> None:
    """An iterate `4 l (1 - l)` has twice the nodes of the one before, and five; its graph has always eight."""
    for steps in (3, 30):
        source = f"fn f(x: f64) -> f64 {{\n  var l = x\n  for _ in 0..{steps} {{ l = 4.0 * l * (1.0 - l) }}\n  l\n}}\n"
        (_, graph), (first, _) = sizes(source, 1)
        size, slope = 1, 1
        for _ in range(steps):
            # 4 dl (1 - l) + 4 l (-dl): seven operations, three constants, two iterates and two derivatives
            size, slope = 2 * size + 5, 2 * slope + 2 * size + 10
        assert sizes(source)[0][0] == size
        assert (graph, first) == (8, slope)


LOOPS = {
    "a loop": ("for _ in 0..3 { s = sin(s) * x[0] }", ["s = sin(s) * x[0]"] * 3),
    "a loop in a loop": (
        "for _ in 0..2 {\n    for _ in 0..3 { s = s * s }\n    s = s + x[1]\n  }",
        [*["s = s * s"] * 3, "s = s + x[1]"] * 2,
    ),
}


@pytest.mark.parametrize("name", LOOPS)
def test_a_loop_is_as_large_as_its_steps(name: str) -> None:
    looped, steps = LOOPS[name]
    source = "fn f(x: f64[4]) -> f64 {\n  var s = sum(x)\n  BODY\n  s\n}\n"
    found = [sizes(source.replace("BODY", body), 1) for body in (looped, "\n  ".join(steps))]
    assert [row[0] for row in found[0]] == [row[0] for row in found[1]]


def test_an_item_of_what_a_loop_gives_is_as_large_as_at_its_step() -> None:
    """The loop of a gradient reads the states from the end."""
    source = "fn f(x: f64) -> f64 = grad(|x| {\n  var s = x\n  for _ in 0..3 { s = sin(s) }\n  s\n})(x)\n"
    # 1 * cos(sin(sin(x))) * cos(sin(x)) * cos(x), where an item that is read whole would count them all
    assert expression_size(simplify_graph(graph_of(source), {})) == 13


def test_a_rule_of_the_program_is_its_derivative() -> None:
    source = """fn f(a: f64) -> f64 {
  var x = 1.0
  while abs(x * x - a) > 1e-12 { x = 0.5 * (x + a / x) }
  stop(x)
}
rule f(a) by implicit |x| x * x - a
"""
    first, second, third = [graph or 0 for _, graph in sizes(f"fn g(a: f64) -> f64 = f(a)\n{source}", 2)]
    # The derivative 1 / (x + x) of the root x, which is still computed by the loop.
    assert 1 < first < second < third


def test_a_weight_counts_in_place_of_a_node() -> None:
    graph = graph_of("fn f(x: f64, y: f64) -> f64 = (x + y) * (x + y)\n")
    assert expression_size(simplify_graph(graph, {}), lambda eqn: 10) == 30


def refused(source: str, **specs: Any) -> str:
    with pytest.raises(NoExpression) as raised:
        expression_size(simplify_graph(graph_of(source, **specs), {}))
    return str(raised.value)


def test_what_has_no_expression() -> None:
    endless = "fn f(x: f64) -> f64 {\n  var s = x\n  while s > 1.0 { s = 0.5 * s }\n  s\n}\n"
    assert "at test.dfl:3 takes as many steps as its data say" in refused(endless)
    assert [row[0] for row in sizes(endless, 1)] == [None, None]
    for steps in (400_000, 10**9):
        assert "over 300,000 operations" in refused(endless.replace("while s > 1.0", f"for _ in 0..{steps}"))


def test_no_number_is_larger_than_the_largest() -> None:
    grows = "fn f(x: f64) -> f64 {\n  var s = x\n  for _ in 0..2000 { s = s * s + s }\n  s\n}\n"
    assert [row[0] for row in sizes(grows, 1)] == [MAX_SIZE, MAX_SIZE]


def test_orders_end_where_the_next_would_take_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("difflang.tools.compare.expression_size.MAX_NODES", 20)
    rows = list(sizes_by_order(graph_of("fn f(x: f64) -> f64 = exp(sin(x)) / x\n"), 0, 8))
    assert [row.order for row in rows] == [0, 1, 2, 3] and rows[
        -1
    ].why == "the graph of the order before has over 20 nodes"
    assert rows[-1].expression is rows[-1].graph is None


def test_an_argument_that_nothing_reads_is_no_node() -> None:
    assert graph_nodes(simplify_graph(graph_of("fn f(x: f64, y: f64) -> f64 = x + x\n"), {})) == 2
