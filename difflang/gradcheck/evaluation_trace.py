"""Evaluation traces: one run of a graph recorded value by value, with the tangents and adjoints of each value.

Calls, branches and loops are entered, so the trace lists the operations in the order of the run. The derivative of each
step is that of its op alone; `push` and `pull` combine them by the chain rule.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct, field

from difflang.ad.expand_derivatives import differentiate
from difflang.base.diagnostics import Diagnostic, DifflangError, Label
from difflang.base.source import Span
from difflang.ir.builder import build_region
from difflang.ir.graph import Eqn, Graph
from difflang.ir.interpreter import Array, evaluate, evaluate_eqn
from difflang.ir.op import OPS
from difflang.ir.tensor_types import History, Tensor, Type, numpy_dtype
from difflang.ops.control.call import call
from difflang.ops.control.cond import cond
from difflang.ops.loop.loop_attrs import LoopAttrs
from difflang.ops.loop.loop_op import loop

MAX_STEPS = 100_000  # more than anybody reads


class TraceNode(Struct, eq=False):
    """A value of the run. An `active` one depends on the arguments of interest, and has tangents and an adjoint.

    `name` is that of an argument, or empty. `step` is the step that computed it.
    """

    value: Array
    type: Type
    active: bool = False
    name: str = ""
    step: TraceStep | None = None
    tangents: list[Array] = field(default_factory=list[Array])
    adjoint: Array | None = None


class TraceStep(Struct, eq=False):
    """A step of the run: an equation, or the reading of one item of an array, or the stacking of items into one.

    `frame` numbers the run of a body (of a call, a branch or a loop step) that the step belongs to.
    """

    operands: list[TraceNode]
    results: list[TraceNode]
    span: Span
    frame: int
    eqn: Eqn | None = None
    index: int | None = None


class EvaluationTrace:
    """The recorded steps of a run. Only steps with active nodes are recorded; other values are plain numbers."""

    def __init__(self, arguments: Sequence[TraceNode]) -> None:
        self.arguments = arguments
        self.steps: list[TraceStep] = []
        self.frames = 0
        self.slopes: dict[tuple[Eqn, str, tuple[bool, ...]], Graph] = {}

    # ---- The run

    def run(self, graph: Graph, nodes: Sequence[TraceNode]) -> list[TraceNode]:
        """The graph's results. Errors: DL1222 if it takes too many steps."""
        env = dict(zip(graph.params, nodes, strict=True))
        self.frames += 1
        frame = self.frames
        for eqn in graph.eqns:
            found = self.equation(eqn, [env[v] for v in eqn.operands], frame)
            env.update(zip(eqn.results, found, strict=True))
        return [env[r] for r in graph.results]

    def equation(self, eqn: Eqn, operands: list[TraceNode], frame: int) -> list[TraceNode]:
        if eqn.op.inactive or not any(n.active for n in operands):
            return self.evaluate_inactive(eqn, operands)
        if eqn.op is call:
            return self.run(eqn.regions[0], operands)
        if eqn.op is cond:
            return self.run(eqn.regions[0 if operands[0].value else 1], operands[1:])
        # Histories are not traced item by item: a loop that reads or writes them is one step.
        if eqn.op is loop and not any(isinstance(v.type, History) for v in (*eqn.operands, *eqn.results)):
            return self.loop(eqn, operands, frame)
        found = self.evaluate_inactive(eqn, operands)
        for node in found:
            node.active = node.type.tangent is not None
        self.add(TraceStep(operands, found, eqn.span, frame, eqn))
        return found

    def evaluate_inactive(self, eqn: Eqn, operands: Sequence[TraceNode]) -> list[TraceNode]:
        given = [n.value for n in operands]
        if not eqn.op.is_derivative:
            found = evaluate_eqn(eqn, given)
        else:
            found = evaluate(differentiate(Graph(eqn.operands, (eqn,), eqn.results)), *given)
        return [TraceNode(np.asarray(x), r.type) if isinstance(r.type, Tensor) else TraceNode(x, r.type)
                for x, r in zip(found, eqn.results, strict=True)]  # fmt: skip

    def add(self, step: TraceStep) -> None:
        if len(self.steps) == MAX_STEPS:
            way = "trace a smaller run, with fewer steps of its loops"
            message = f"this run takes more than {MAX_STEPS:,} steps"
            raise DifflangError(Diagnostic("DL1222", message, (Label(step.span, "this is the next step"),), (way,)))
        self.steps.append(step)
        for node in step.results:
            node.step = step

    def loop(self, eqn: Eqn, operands: Sequence[TraceNode], frame: int) -> list[TraceNode]:
        """Run a loop step by step, as the reference of `loop` does."""
        (body, *go), form = eqn.regions, LoopAttrs.of(eqn)
        limit, consts, state, xs = form.parts(operands)
        ys: list[list[TraceNode]] = [[] for _ in body.results[form.carry :]]
        count, steps = 0, int(limit.value)
        while count < steps or (go and steps < 0):
            place = steps - 1 - count if form.reverse else count
            index = TraceNode(np.asarray(place, np.int32), eqn.operands[0].type)
            if go and not self.run(go[0], [index, *consts, *state])[0].value:
                break
            outs = self.run(body, [index, *consts, *state, *(self.item(x, place, eqn, frame) for x in xs)])
            state = outs[: form.carry]
            for column, node in zip(ys, outs[form.carry :], strict=True):
                column.append(node)
            count += 1
        types = [r.type for r in eqn.results[1 + form.carry :]]
        columns = [
            self.stack_items(y[::-1] if form.reverse else y, t, eqn, frame) for y, t in zip(ys, types, strict=True)
        ]
        return [TraceNode(np.asarray(count, np.int32), eqn.results[0].type), *state, *columns]

    def item(self, whole: TraceNode, index: int, eqn: Eqn, frame: int) -> TraceNode:
        assert isinstance(whole.type, Tensor)
        node = TraceNode(np.asarray(whole.value[index]), Tensor(whole.type.dtype, whole.type.shape[1:]), whole.active)
        if node.active:
            self.add(TraceStep([whole], [node], eqn.span, frame, index=index))
        return node

    def stack_items(self, items: list[TraceNode], type: Type, eqn: Eqn, frame: int) -> TraceNode:
        assert isinstance(type, Tensor)
        value = np.zeros([int(str(n)) for n in type.shape], numpy_dtype(type.dtype))
        for i, node in enumerate(items):
            value[i] = node.value
        whole = TraceNode(value, type, any(n.active for n in items))
        if whole.active:
            self.add(TraceStep(items, [whole], eqn.span, frame))
        return whole

    # ---- Derivatives of the recorded steps

    def push(self, seeds: Sequence[dict[TraceNode, Array]]) -> None:
        """Compute the tangents of all active nodes, one for each seed of tangents of the arguments."""
        known = [dict(seed) for seed in seeds]
        for step in self.steps:
            for tangents in known:
                given = [tangents.get(n) if n.active else None for n in step.operands]
                for node, tangent in zip(step.results, self.step_tangents(step, given), strict=True):
                    tangents[node] = tangent
        for node in self.active_nodes():
            node.tangents = [t[node] if node in t else zero_tangent(node) for t in known]

    def step_tangents(self, step: TraceStep, given: Sequence[Array | None]) -> list[Array]:
        if all(t is None for t in given):
            return [zero_tangent(n) for n in step.results]
        tangents = [zero_tangent(n) if t is None else t for n, t in zip(step.operands, given, strict=True)]
        if step.eqn is not None:
            moving = [t for n, t in zip(step.operands, tangents, strict=True) if n.active]
            found = self.step_derivative("jvp", step, step.eqn, moving)[len(step.results) :]
            rest = iter(found)
            return [next(rest) if n.active else zero_tangent(n) for n in step.results]
        if step.index is not None:
            return [np.asarray(tangents[0][step.index])]
        whole = zero_tangent(step.results[0])
        for i, tangent in enumerate(tangents):
            whole[i] = tangent
        return [whole]

    def pull(self, result: TraceNode) -> None:
        """Compute the adjoint of each active node: the derivative of `result`, a number, with respect to it."""
        found: dict[TraceNode, Array] = {result: np.ones_like(zero_tangent(result))}
        for step in reversed(self.steps):
            given = [found.get(n) for n in step.results]
            if all(c is None for c in given):
                continue
            cotangents = [zero_tangent(n) if c is None else c for n, c in zip(step.results, given, strict=True)]
            for node, back in zip(step.operands, self.step_cotangents(step, cotangents), strict=True):
                if back is not None and node.active:
                    found[node] = add_cotangents(found[node], back) if node in found else back
        for node in self.active_nodes():
            node.adjoint = found.get(node, zero_tangent(node))

    def active_nodes(self) -> list[TraceNode]:
        """The active arguments and all active results of steps."""
        nodes = [*self.arguments, *(n for step in self.steps for n in step.results)]
        return [n for n in nodes if n.active]

    def step_cotangents(self, step: TraceStep, cotangents: Sequence[Array]) -> list[Array | None]:
        if step.eqn is not None:
            given = [c for n, c in zip(step.results, cotangents, strict=True) if n.active]
            rest = iter(self.step_derivative("vjp", step, step.eqn, given)[len(step.results) :])
            return [next(rest) if n.active else None for n in step.operands]
        if step.index is not None:
            whole = zero_tangent(step.operands[0])
            whole[step.index] = cotangents[0]
            return [whole]
        return [np.asarray(cotangents[0][i]) for i in range(len(step.operands))]

    def step_derivative(self, name: str, step: TraceStep, eqn: Eqn, given: Sequence[Array]) -> list[Array]:
        """The results of one equation, followed by its tangents or cotangents."""
        # The derivative of an equation is expanded once, though a loop may run it many times.
        wrt = tuple(n.active for n in step.operands)
        if (eqn, name, wrt) not in self.slopes:
            self.slopes[eqn, name, wrt] = differentiate(equation_derivative(eqn, name, wrt))
        return evaluate(self.slopes[eqn, name, wrt], *(n.value for n in step.operands), *given)


def equation_derivative(eqn: Eqn, name: str, wrt: tuple[bool, ...]) -> Graph:
    """The graph of a `jvp` or `vjp` of one equation, with a param for each operand."""
    types = [v.type for v in eqn.operands]
    alone = build_region(types, lambda *xs: eqn.op(*xs, regions=eqn.regions, **eqn.attrs))
    moved = [t for t, w in zip(types, wrt, strict=True) if w] if name == "jvp" else [v.type for v in eqn.results]
    more = [t.tangent for t in moved if t.tangent is not None]
    return build_region([*types, *more], lambda *xs: OPS[name](*xs, regions=(alone,), wrt=wrt))


def zero_tangent(node: TraceNode) -> Array:
    """The zero tangent or cotangent of a node."""
    tangent = node.type.tangent
    if not isinstance(tangent, Tensor):
        return []
    return np.zeros(np.shape(node.value), numpy_dtype(tangent.dtype))


def add_cotangents(x: Array, y: Array) -> Array:
    """The sum of two cotangents; of histories, the longer one counts beyond the end of the other."""
    if not isinstance(x, list):
        return np.asarray(x + y)
    more = x[len(y) :] or y[len(x) :]
    return [*(add_cotangents(a, b) for a, b in zip(x, y, strict=False)), *more]
