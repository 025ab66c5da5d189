"""Placement: which device computes each equation of a graph, at random, by a file, or by estimated times."""

from __future__ import annotations

from random import Random

from difflang.ir.graph import Eqn, Graph, graphs_postorder


def equations_in_order(graph: Graph) -> list[Eqn]:
    """Every equation of a graph, those of regions first; the order is the same wherever the graph is loaded."""
    return [eqn for g in graphs_postorder(graph)[0] for eqn in g.eqns]


def random_placement(graph: Graph, devices: int, seed: int) -> dict[Eqn, int]:
    """Each equation on a device by chance."""
    random = Random(seed)
    return {eqn: random.randrange(devices) for eqn in equations_in_order(graph)}
