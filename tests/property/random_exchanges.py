"""Draws functions and splits of their parameters over four devices: what is predicted that devices exchange is what
XLA's program has, by kind, bytes and times.

The arguments: a seed, and how many pairs of a function and a split. Prints each pair that differs, and figures.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Sequence
from itertools import islice

import jax
import numpy as np

from difflang.embed.derived_programs import EmbeddedProgram
from difflang.ops.arrays.reshard import Split
from difflang.runtime.collectives import compile_on_mesh
from difflang.sharding.mesh_splits import MeshSplits
from difflang.sharding.pin_splits import graph_for_mesh, pin_splits
from difflang.tools.partition import as_collective
from property.random_splits import KINDS, MESHES, Case, draw_split, program_case

Exchanges = Counter[tuple[object, ...]]


def exchanges(program: EmbeddedProgram, splits: Sequence[Split], mesh: dict[str, int]) -> tuple[Exchanges, Exchanges]:
    """What is predicted that devices exchange, and what XLA's program has."""
    graph = program.finished_graph
    given = [*splits, *[((),) * len(p.type.shape) for p in graph.params[len(splits) :]]]
    found = MeshSplits(mesh)
    found.of_graph(graph_for_mesh(graph, given, mesh), given)
    counted = compile_on_mesh(pin_splits(graph, given, mesh), mesh, given)
    parts = [part for each in counted.collectives for part in each.parts]
    return Counter([as_collective(m).alike for m in found.moves]), Counter([p.alike for p in parts])


def check(rng: random.Random, case: Case, figures: Counter[str]) -> bool:
    """Whether there was a split to try."""
    mesh = rng.choice(MESHES)
    drawn = [draw_split(rng, np.shape(x), mesh) for x in case.arrays]
    splits = [tuple([() if a is None else (a,) if isinstance(a, str) else a for a in split]) for split in drawn]
    if not any(any(s) for s in splits):
        return False
    programs = {"value": case.declared(drawn)}
    if any(case.wrt) and case.cts:
        programs["gradient"] = programs["value"].pulled(case.wrt, (True,) * len(case.cts))
    for what, program in programs.items():
        predicted, counted = exchanges(program, splits, mesh)
        kind = case.name.split()[0].split("(")[0]
        figures[what] += 1
        figures[f"{what} alike"] += predicted == counted
        if predicted != counted:
            figures[f"differs {kind}"] += 1
            more, fewer = dict(predicted - counted), dict(counted - predicted)
            print(f"{case.name} on {mesh}, {drawn}, {what}: predicted {more}, in XLA's program {fewer}")
    return True


def main(seed: int, count: int) -> None:
    rng, figures, pairs = random.Random(seed), Counter[str](), 0
    while pairs < count:
        make = program_case if rng.random() < 0.04 else rng.choice(KINDS)
        case = make(rng)
        for _ in islice(range(3), 1 if case is None else 3):
            if case is not None and pairs < count:
                pairs += check(rng, case, figures)
    for what, number in figures.most_common():
        print(number, what)
    sys.exit(any(figures[what] > figures[f"{what} alike"] for what in ("value", "gradient")))


if __name__ == "__main__":
    with jax.enable_x64(True):
        main(int(sys.argv[1]), int(sys.argv[2]))
