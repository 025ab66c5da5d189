"""Runs of a graph: inputs by position or name, sizes from their shapes, failed checks as the errors of the program."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from contextlib import AbstractContextManager
from itertools import islice
from typing import Any, Literal

import numpy as np
from msgspec import Struct

from difflang.base.check_sites import CheckSite, CheckTable
from difflang.base.error_codes import suggestion
from difflang.base.errors import classify_errors
from difflang.base.wording import count_of
from difflang.execution.callable_graph import CallableGraph, SharedContext, random_key
from difflang.execution.check_failures import FAILURE_RESULTS
from difflang.graph.graph_errors import graph_error
from difflang.graph.graph_view import GraphView
from difflang.ir.graph import Graph as IrGraph
from difflang.ir.graph import Value as IrValue
from difflang.ir.symbolic_dims import Dim, dim_name
from difflang.ir.tensor_types import History
from difflang.passes.substitute_dims import has_symbolic_dims, substitute_graph_dims

Engine = Literal["xla", "interpret", "dataflow"]
ENGINES: tuple[Engine, ...] = ("xla", "interpret", "dataflow")


class CheckList(Struct, frozen=True, eq=False):
    """Checks by number, of a graph that comes from no loaded program."""

    sites: Sequence[CheckSite] = ()
    deterministic: bool = False


class RunContext(Struct, frozen=True, eq=False):
    """What a run needs to know of the program where the graph came from.

    The last inputs have the values `constants` if they are not passed; the one before them is a random key if `random`.
    """

    checks: CheckTable
    lock: AbstractContextManager[Any]
    constants: tuple[Any, ...] = ()
    random: bool = False
    byte_limit: int = 0
    dropped_rules: tuple[str, ...] = ()  # functions that had a derivative of their own: now it is that of their bodies


def free_context(sites: Sequence[CheckSite] = (), dropped_rules: tuple[str, ...] = ()) -> RunContext:
    """The context of a graph that comes from no loaded program."""
    return RunContext(CheckList(sites), threading.RLock(), dropped_rules=dropped_rules)


class GraphProgram(CallableGraph):
    """A graph with sizes that are numbers, which is compiled or interpreted; it gives the tuple of its results."""

    def __init__(self, graph: IrGraph, context: RunContext, can_fail: bool) -> None:
        super().__init__(SharedContext(context.checks, context.lock, {}), graph, can_fail, None, context.byte_limit)
        kept = len(graph.results) - (FAILURE_RESULTS if can_fail else 0)
        self.build_result = self.build_interpreted = lambda leaves: tuple(islice(leaves, kept))


Programs = MutableMapping[tuple[tuple[str, int], ...], GraphProgram]


def run_graph(
    view: GraphView,
    context: RunContext,
    programs: Programs,
    given: tuple[Sequence[Any], Mapping[str, Any]],
    engine: str,
    can_fail: bool,
    make: Callable[[IrGraph, RunContext, bool], GraphProgram] = GraphProgram,
) -> tuple[Any, ...]:
    """The outputs of a graph for inputs by position and by name. `programs` keeps one program for each set of sizes.

    `make` makes it; all engines but XLA run what it has for the interpreter.

    Errors: those of the program; DL12 for wrong inputs.
    """
    with classify_errors():
        if not isinstance(engine, str) or engine not in ENGINES:  # pyright: ignore[reportUnnecessaryIsInstance]
            way = suggestion(str(engine), ENGINES)
            raise graph_error("DL1207", f"there is no engine `{engine}`", help=way)
        arrays = bind_inputs(view, context, *given)
        sizes = tuple(sorted(infer_sizes(view.ir, arrays).items()))
        if sizes not in programs:
            known: dict[str, Dim] = dict(sizes)
            concrete = substitute_graph_dims(view.ir, lambda n: known.get(n, dim_name(n)))
            programs[sizes] = make(concrete, context, can_fail)
        program = programs[sizes]
        return program.call(arrays) if engine == "xla" else program.interpreted(arrays)


def bind_inputs(view: GraphView, context: RunContext, arrays: Sequence[Any], named: Mapping[str, Any]) -> list[Any]:
    """An array for each input.

    Errors: DL1202 for too many, DL1206 for a history, DL1207 for a wrong name; DL1250 if an output is a history.
    """
    names = [v.name for v in view.inputs]
    about = f"the graph{f' `{view.name}`' if view.name else ''}"
    if len(arrays) > len(names):
        raise graph_error("DL1202", f"{about} takes {count_of(len(names), 'array')}, not {len(arrays)}")
    found = dict(zip(names, arrays, strict=False))
    for name, array in named.items():
        if name not in names:
            raise graph_error("DL1207", f"{about} has no input `{name}`", help=suggestion(name, names))
        if name in found:
            raise graph_error("DL1207", f"{about} got `{name}` twice")
        found[name] = array
    constants = context.constants
    for name, array in zip(names[len(names) - len(constants) :], constants, strict=True):
        found.setdefault(name, array)
    if missing := [name for name in names if name not in found]:
        raise graph_error("DL1207", f"{about} is missing {', '.join([f'`{n}`' for n in missing])}")
    if histories := [v for v in view.inputs if isinstance(v.ir.type, History)]:
        message = f"`{histories[0].name}` is a {histories[0].type}: only a loop makes a history, no caller can pass one"
        raise graph_error("DL1206", message)
    if histories := [v for v in view.outputs if isinstance(v.ir.type, History)]:
        message = f"the output `%{histories[0].name}` is a {histories[0].type}: only a loop reads a history"
        raise graph_error("DL1250", message, help="`with_outputs` chooses other outputs")
    if context.random:
        key = names[len(names) - len(constants) - 1]
        found[key] = random_key(found[key])
    return [found[name] for name in names]


def infer_sizes(graph: IrGraph, arrays: Sequence[Any]) -> dict[str, int]:
    """The number of each size that the types of the inputs name. Errors: DL1202 if a shape does not fit."""
    sizes: dict[str, int] = {}
    for param, array in zip(graph.params, arrays, strict=True):
        if not has_symbolic_dims(param.type) or isinstance(param.type, History):
            continue
        try:
            shape = np.shape(array)
        except ValueError:
            raise graph_error("DL1206", f"{described(param)}, but the rows of the list differ in length") from None
        if len(shape) != len(param.type.shape):
            raise graph_error("DL1202", f"{described(param)}, but its shape is {list(shape)}")
        for dim, size in zip(param.type.shape, shape, strict=True):
            # A size in a formula, `2*n`, follows from another input; the converted input is compared with it.
            if dim == dim_name(str(dim)) and sizes.setdefault(str(dim), size) != size:
                raise graph_error("DL1202", f"{described(param)}, but `{dim}` is {sizes[str(dim)]} and {size} here")
    for param in graph.params:
        open_type = substitute_graph_dims(IrGraph((param,), (), ()), lambda n: sizes.get(n, dim_name(n))).params[0].type
        if has_symbolic_dims(open_type):
            raise graph_error("DL1202", f"{described(param)}, and no input says that size by itself")
    return sizes


def described(param: IrValue) -> str:
    return f"`{param.hint or 'an input'}` is {param.type}"
