"""Computational graphs in the hand: `from difflang import graph as dg`.

`f.graph(…)` of a loaded function, `parse`, `Graph.from_json` and `build` give a `Graph`, which can be read, run, drawn,
edited and rewritten by passes. The IR itself is in `difflang.ir`.
"""

from __future__ import annotations

from difflang.graph.builder import GraphBuilder
from difflang.graph.computational_graph import Graph
from difflang.graph.dataflow_machine import DataflowMachine
from difflang.graph.gradient import gradient
from difflang.graph.graph_passes import GraphPass, graph_pass, passes
from difflang.graph.graph_view import Equation, Value
from difflang.graph.new_graph import build
from difflang.graph.op_registry.check_op import LawResult, OpReport, check_op
from difflang.graph.op_registry.declare_op import DeclaredOp, array_type, op
from difflang.graph.op_registry.op_page import OpPage, ops

__all__ = [
    "DataflowMachine",
    "DeclaredOp",
    "Equation",
    "Graph",
    "GraphBuilder",
    "GraphPass",
    "LawResult",
    "OpPage",
    "OpReport",
    "Value",
    "array_type",
    "build",
    "check_op",
    "gradient",
    "graph_pass",
    "op",
    "ops",
    "parse",
    "passes",
]

parse = Graph.parse
