"""Equations in a row that are straight code: JAX sees each run of them as one step, see `writer`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from difflang.ir.graph import Eqn, Value
from difflang.ir.tensor_types import Tensor
from difflang.lower.cpu.outlining import EqnOrSegment, OutlinedSegment
from difflang.ops.op_factories import tensor_type

MIN_RUN_LENGTH = 2  # equations that are as soon traced


class EqnRun(Struct, frozen=True, eq=False):
    """Equations in a row, what they read from before, and what is read of them afterwards."""

    eqns: tuple[Eqn, ...]
    operands: tuple[Value, ...]
    results: tuple[Value, ...]


def group_runs(steps: Sequence[EqnOrSegment], results: Sequence[Value]) -> Iterator[EqnOrSegment | EqnRun]:
    """The steps in their order, those in a row that are plain as one. Numbers come before the run that they are in.

    `wanted` are the values that are asked for after all of them. Cost: linear.
    """
    parts = split_at_barriers(steps)
    home = {r: i for i, part in enumerate(parts) for e in part if isinstance(e, Eqn) for r in e.results}
    read = set(results)
    for i, part in enumerate(parts):
        read.update([v for e in part for v in e.operands if home.get(v, -1) != i])
    for part in parts:
        if not is_worth_grouping(part):
            yield from part
            continue
        eqns = [e for e in part if isinstance(e, Eqn)]
        after = defer_data_movement(eqns, read)
        run = make_run(eqns, read.difference([r for e in after for r in e.results]))
        if run.results:
            yield run
        yield from after


def defer_data_movement(eqns: Sequence[Eqn], read: set[Value]) -> list[Eqn]:
    """Of a run, what only repeats or moves elements and is `read` elsewhere: it is put off, until somebody asks.

    What it reads is read elsewhere then.
    """
    after: list[Eqn] = []
    for eqn in reversed(eqns):
        if (eqn.op.axis_permutation is not None or eqn.op.fill_value is not None) and not read.isdisjoint(eqn.results):
            after.append(eqn)
            read.update(eqn.operands)
    return after[::-1]


def is_worth_grouping(part: Sequence[EqnOrSegment]) -> bool:
    """Whether it is plain, and takes longer to trace than to put together."""
    return is_directly_emittable(part[0]) and (
        len(part) > MIN_RUN_LENGTH or any([isinstance(e, Eqn) and is_formula(e) for e in part])
    )


def is_formula(eqn: Eqn) -> bool:
    """Whether it takes many steps by itself."""
    return bool(eqn.op.formula_dtypes) and tensor_type(eqn.operands[0]).dtype in eqn.op.formula_dtypes


def make_run(eqns: Sequence[Eqn], read: set[Value]) -> EqnRun:
    """What is needed of equations for those values that are `read` elsewhere."""
    results = tuple([r for e in eqns for r in e.results if r in read])
    needed, kept = set(results), list[Eqn]()
    for eqn in reversed(eqns):
        if not needed.isdisjoint(eqn.results):
            needed.update(eqn.operands)
            kept.append(eqn)
    made = {r for e in kept for r in e.results}
    operands = dict.fromkeys([v for e in reversed(kept) for v in e.operands if v not in made])
    return EqnRun(tuple(kept[::-1]), tuple(operands), results)


def split_at_barriers(steps: Sequence[EqnOrSegment]) -> list[list[EqnOrSegment]]:
    """Runs, and each other step by itself."""
    parts: list[list[EqnOrSegment]] = []
    row: list[EqnOrSegment] = []
    for step in steps:
        if is_constant_fill(step):
            parts.append([step])
        elif is_directly_emittable(step):
            row.append(step)
        else:
            parts += [row, [step]] if row else [[step]]
            row = []
    return [*parts, row] if row else parts


def is_constant_fill(step: EqnOrSegment) -> bool:
    """Whether it is put off until somebody asks for an array, and reads nothing."""
    return isinstance(step, Eqn) and step.op.fill_value is not None and not step.operands


def is_directly_emittable(step: EqnOrSegment) -> bool:
    """Whether its lowering can be run on cells."""
    if isinstance(step, OutlinedSegment) or step.regions or not (step.op.elementwise or step.op.direct):
        return False
    return has_only_arrays(step)


def has_only_arrays(eqn: Eqn) -> bool:
    """Whether it reads and gives no histories."""
    return all([isinstance(v.type, Tensor) for v in (*eqn.operands, *eqn.results)])
