"""Groups straight-line equations into runs, each of which JAX traces as one primitive (`graph_primitive`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from difflang.ir.graph import Eqn, Value
from difflang.ir.tensor_types import Tensor
from difflang.lower.cpu.outlining import EqnOrSegment, OutlinedSegment
from difflang.ops.op_factories import tensor_type

# Shorter runs are traced as fast one by one.
MIN_RUN_LENGTH = 2


class EqnRun(Struct, frozen=True, eq=False):
    """Consecutive equations, the values they read from before, and their results that are read afterwards."""

    eqns: tuple[Eqn, ...]
    operands: tuple[Value, ...]
    results: tuple[Value, ...]


def group_runs(steps: Sequence[EqnOrSegment], results: Sequence[Value]) -> Iterator[EqnOrSegment | EqnRun]:
    """The steps in order, with straight-line equations grouped. Constant fills come before the run they are in.

    `results` are the values read after all of them. Cost: linear.
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
    """The broadcasts and transposes of a run that are `read` elsewhere: they stay outside it, deferred until first use.

    Their operands are added to `read`.
    """
    after: list[Eqn] = []
    for eqn in reversed(eqns):
        if (eqn.op.axis_permutation is not None or eqn.op.fill_value is not None) and not read.isdisjoint(eqn.results):
            after.append(eqn)
            read.update(eqn.operands)
    return after[::-1]


def is_worth_grouping(part: Sequence[EqnOrSegment]) -> bool:
    """Whether it can be emitted, and takes longer to trace than to group."""
    return is_directly_emittable(part[0]) and (
        len(part) > MIN_RUN_LENGTH or any([isinstance(e, Eqn) and is_formula(e) for e in part])
    )


def is_formula(eqn: Eqn) -> bool:
    """Whether its lowering expands to many operations."""
    return bool(eqn.op.formula_dtypes) and tensor_type(eqn.operands[0]).dtype in eqn.op.formula_dtypes


def make_run(eqns: Sequence[Eqn], read: set[Value]) -> EqnRun:
    """The equations that the values `read` elsewhere depend on."""
    results = tuple([r for e in eqns for r in e.results if r in read])
    needed, live = set(results), list[Eqn]()
    for eqn in reversed(eqns):
        if not needed.isdisjoint(eqn.results):
            needed.update(eqn.operands)
            live.append(eqn)
    made = {r for e in live for r in e.results}
    operands = dict.fromkeys([v for e in reversed(live) for v in e.operands if v not in made])
    return EqnRun(tuple(live[::-1]), tuple(operands), results)


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
    """Whether it is a deferred fill without operands."""
    return isinstance(step, Eqn) and step.op.fill_value is not None and not step.operands


def is_directly_emittable(step: EqnOrSegment) -> bool:
    """Whether its lowering rule runs on the arrays of `jax_facade`."""
    if isinstance(step, OutlinedSegment) or step.regions or not (step.op.elementwise or step.op.direct):
        return False
    return has_only_arrays(step)


def has_only_arrays(eqn: Eqn) -> bool:
    """Whether it reads and returns no histories."""
    return all([isinstance(v.type, Tensor) for v in (*eqn.operands, *eqn.results)])
