"""Checks that every history is read where its producer can be recomputed: by an equation of the same kind and steps.

Derivatives satisfy this: a branch's residuals are read in the same branch, a loop's by a loop with its own count.
Lowering relies on it (see `ops.loop.checkpoint_store`). The check gives every value a number (`value_numbering`): the
reader's steps must have the number of the steps that were saved. Where a program reads a history elsewhere, the outputs
of its loops are held in arrays instead (`passes.dynamic_loop_outputs`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from difflang.base.diagnostics import InternalError
from difflang.ir.graph import Eqn, Graph, Value, graphs_postorder
from difflang.ir.structural_equality import StructuralKeys, attrs_key
from difflang.ir.tensor_types import History
from difflang.lower.value_numbering import EMPTY_HISTORY, BranchOrigin, StackedOrigin, ValueNumber, ValueNumbering
from difflang.ops.control.call import call
from difflang.ops.control.checkpoint_block import checkpoint
from difflang.ops.control.cond import cond
from difflang.ops.control.map import map_
from difflang.ops.control.print_effect import without_prints
from difflang.ops.loop.invertible_op import invertible
from difflang.ops.loop.loop_attrs import LoopAttrs
from difflang.ops.loop.loop_op import add_history, empty_history, loop
from difflang.passes.dce import dce


class HistoryOutOfScope(Exception):
    """A history is read where its producer cannot be recomputed."""


def reads_history_out_of_scope(program: Graph) -> bool:
    """Whether a history is read where its producer cannot be recomputed. Cost: one walk, regions once per operands."""
    if not any(isinstance(v.type, History) for g in graphs_postorder(program)[0] for e in g.eqns for v in e.results):
        return False
    walk = HistoryReadChecker()
    try:
        walk.graph(program, [walk.names.of(("param", i)) for i in range(len(program.params))], 0)
    except HistoryOutOfScope:
        return True
    return False


def refuse_stray_histories(program: Graph) -> None:
    """Errors: InternalError for a history that is read where its producer cannot be recomputed."""
    if reads_history_out_of_scope(program):
        raise InternalError(f"{program.name or 'this program'} reads a history where its loop cannot be replayed")


class HistoryReadChecker:
    """Numbers every value of a program and checks each equation that reads a history."""

    def __init__(self) -> None:
        self.names = ValueNumbering()
        self.keys = StructuralKeys()
        # Loops reduced to what their step count depends on.
        self.counts: dict[Eqn, Eqn] = {}
        self.seen: dict[tuple[Graph, tuple[ValueNumber, ...], int], list[ValueNumber]] = {}
        self.rules: dict[object, Callable[[Eqn, list[ValueNumber], int], list[ValueNumber]]] = {
            loop: self.loop,
            map_: self.map,
            cond: self.cond,
            call: lambda eqn, args, depth: self.graph(eqn.regions[0], args, depth),
            checkpoint: lambda eqn, args, depth: self.graph(eqn.regions[0], args, depth)[: len(eqn.results)],
            invertible: lambda eqn, args, depth: self.graph(eqn.regions[0], args, depth),
            empty_history: lambda eqn, args, depth: [EMPTY_HISTORY],
            add_history: self.sum,
        }

    def graph(self, graph: Graph, params: Sequence[ValueNumber], depth: int) -> list[ValueNumber]:
        """The value numbers of a graph's results; `depth` counts the enclosing loops and maps."""
        key = graph, tuple(params), depth
        if key not in self.seen:
            env: dict[Value, ValueNumber] = dict(zip(graph.params, params, strict=True))
            for eqn in graph.eqns:
                found = self.eqn(eqn, [env[v] for v in eqn.operands], depth)
                env.update(zip(eqn.results, found, strict=True))
            self.seen[key] = [env[r] for r in graph.results]
        return self.seen[key]

    def eqn(self, eqn: Eqn, args: list[ValueNumber], depth: int) -> list[ValueNumber]:
        rule = self.rules.get(eqn.op)
        if rule is not None:
            return rule(eqn, args, depth)
        if any(isinstance(v.type, History) for v in (*eqn.operands, *eqn.results)):
            raise HistoryOutOfScope
        return self.results(eqn, args)

    def results(self, eqn: Eqn, args: Sequence[ValueNumber]) -> list[ValueNumber]:
        """The value numbers of an equation's results, by op and operands: every op is a function."""
        key = (eqn.op, attrs_key(eqn.attrs), tuple([self.keys.graph_key(r) for r in eqn.regions]))
        return [self.names.of((key, i), args) for i in range(len(eqn.results))]

    def loop(self, eqn: Eqn, args: list[ValueNumber], depth: int) -> list[ValueNumber]:
        names, form, (step, *go) = self.names, LoopAttrs.of(eqn), eqn.regions
        known = form.parts(args)
        if any(isinstance(v.type, History) for v in form.parts(eqn.operands).carry):
            raise HistoryOutOfScope
        outs = self.results(eqn, args)
        steps = names.of(("every", form.length)) if form.exact else self.loop_count(eqn, args) if go else known.first
        index = names.index(steps, depth)
        carry = [names.of(("carry", i), (*outs[:1], index)) for i in range(form.carry)]
        xs = form.parts(eqn.operands).xs
        if go and any(isinstance(x.type, History) for x in xs):
            raise HistoryOutOfScope
        items = [self.item(x, n, (loop.name, form.length, steps, index)) for x, n in zip(xs, known.xs, strict=True)]
        gives = self.graph(step, [index, *known.consts, *carry, *items], depth + 1)[form.carry :]
        if go:
            self.graph(go[0], [index, *known.consts, *carry], depth + 1)
        stacks = [StackedOrigin(loop.name, form.length, steps, index, y) for y in gives]
        ys = [names.set_origin(y, s) for y, s in zip(outs[1 + form.carry :], stacks, strict=True)]
        return [steps, *outs[1 : 1 + form.carry], *ys]

    def loop_count(self, eqn: Eqn, args: list[ValueNumber]) -> ValueNumber:
        """The number for a while-loop's step count, which loops with the same condition and state share."""
        if eqn not in self.counts:
            # Dead code elimination drops everything that the condition does not depend on.
            count = Graph(tuple(dict.fromkeys(eqn.operands)), (eqn,), eqn.results[:1])
            self.counts[eqn] = dce(without_prints(count)).eqns[-1]
        alone, name = self.counts[eqn], dict(zip(eqn.operands, args, strict=True))
        return self.results(alone, [name[v] for v in alone.operands])[0]

    def map(self, eqn: Eqn, args: list[ValueNumber], depth: int) -> list[ValueNumber]:
        names, consts, length = self.names, eqn.attrs["consts"], eqn.attrs["length"]
        steps = names.of(("every", length))
        index = names.index(steps, depth)
        pairs = zip(eqn.operands[consts:], args[consts:], strict=True)
        items = [self.item(x, n, (map_.name, length, steps, index)) for x, n in pairs]
        gives = self.graph(eqn.regions[0], [*args[:consts], *items], depth + 1)
        stacks = [StackedOrigin(map_.name, length, steps, index, y) for y in gives]
        return [names.set_origin(y, s) for y, s in zip(self.results(eqn, args), stacks, strict=True)]

    def item(self, x: Value, name: ValueNumber, reader: tuple[str, object, ValueNumber, ValueNumber]) -> ValueNumber:
        """What a loop reads at a step: the item stored there, if it runs over the writer's steps, as histories
        require.
        """
        kind, length, steps, index = reader
        origin = self.names.origin(name)
        if (
            isinstance(origin, StackedOrigin)
            and (origin.length, origin.steps) == (length, steps)
            and (origin.kind == kind or not isinstance(x.type, History))
        ):
            return self.names.item_number(origin, index)
        if isinstance(x.type, History):
            if name != EMPTY_HISTORY:
                raise HistoryOutOfScope
            return EMPTY_HISTORY if isinstance(x.type.item, History) else self.names.of("zero")
        return self.names.of("item", (name, index))

    def cond(self, eqn: Eqn, args: list[ValueNumber], depth: int) -> list[ValueNumber]:
        truth, *rest = args
        sides: list[list[ValueNumber]] = []
        for number, region in enumerate(eqn.regions):
            params = [self.branch_operand(v, n, truth, number) for v, n in zip(eqn.operands[1:], rest, strict=True)]
            sides.append(self.graph(region, params, depth))
        return [
            one if one == other else self.names.set_origin(name, BranchOrigin(truth, (one, other)))
            for name, one, other in zip(self.results(eqn, args), *sides, strict=True)
        ]

    def branch_operand(self, x: Value, name: ValueNumber, truth: ValueNumber, side: int) -> ValueNumber:
        """What a branch reads: the same branch's value of an earlier conditional on this predicate, as histories
        require.
        """
        origin = self.names.origin(name)
        if not isinstance(origin, BranchOrigin):
            return name
        if origin.truth == truth:
            return origin.sides[side]
        if isinstance(x.type, History):
            raise HistoryOutOfScope
        return name

    def sum(self, eqn: Eqn, args: list[ValueNumber], depth: int) -> list[ValueNumber]:
        total = self.names.sum(args[0], args[1], eqn.results[0].type)
        if total is None:
            raise HistoryOutOfScope
        return [total]
