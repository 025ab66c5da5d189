"""Equations on tables: what they compute of known numbers, and where what they move comes from."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from difflang.ir.array_types import Array
from difflang.ir.graph import Eqn, Graph, Value
from difflang.ir.interpreter import evaluate, evaluate_eqn
from difflang.ir.tensor_types import BOOL, I64, INTEGERS, Tensor, numpy_dtype
from difflang.ops.op_factories import tensor_type
from difflang.passes.maps.vectorize_maps import MapVectorizer
from difflang.passes.sharing.instance_tables import Join, Table


def folded_rows(eqn: Eqn, tables: Sequence[Table], joined: Join) -> list[Table] | None:
    """Rows of an equation's results for each class: known numbers, or positions in the one source; None if neither."""
    if eqn.regions or eqn.op.effect:
        return None
    if all(t.source is None for t in tables):
        if not is_exact(eqn):
            return None
        return [Table(rows, joined.classes) for rows in evaluated_rows(eqn, tables, joined)]
    moved = moved_operands(eqn, tables)
    if moved is None:
        return None
    tables = [t.elementwise() for t in tables]
    source = tables[moved[0]].source
    # Position 0 is kept free, so that a zero which the op adds is seen.
    tables = [replace(t, rows=t.rows + 1) if i in moved else t for i, t in enumerate(tables)]
    (rows,) = evaluated_rows(with_positions(eqn, moved), tables, joined)
    return None if (rows == 0).any() else [Table(rows - 1, joined.classes, source)]


def is_exact(eqn: Eqn) -> bool:
    """Whether results computed beforehand are those of every engine."""
    if {"correctly rounded", "bit exact"} & set(eqn.op.traits):
        return True
    types = [tensor_type(v) for v in (*eqn.operands, *eqn.results)]
    return bool(eqn.operands) and all(t.dtype is BOOL or t.dtype in INTEGERS for t in types)


def moved_operands(eqn: Eqn, tables: Sequence[Table]) -> list[int] | None:
    """The operands whose elements an equation moves, if it does nothing else and they read one source."""
    traits = set(eqn.op.traits)
    if not ({"bit exact", "data movement"} <= traits or {"gather", "select"} & traits):
        return None
    rules = eqn.op.operand_rules.transpose or ()
    moved = [i for i in range(len(tables)) if rules[min(i, len(rules) - 1)] is not None]
    sources = {tables[i].source for i in moved}
    others = [t.source for i, t in enumerate(tables) if i not in moved]
    return moved if len(sources) == 1 and None not in sources and not any(s is not None for s in others) else None


def with_positions(eqn: Eqn, moved: Sequence[int]) -> Eqn:
    """The equation on arrays of positions."""
    operands = [
        Value(Tensor(I64, tensor_type(v).shape), v.home) if i in moved else v for i, v in enumerate(eqn.operands)
    ]
    results = [Value(Tensor(I64, tensor_type(r).shape), r.home) for r in eqn.results]
    return Eqn(eqn.op, tuple(operands), tuple(results), eqn.attrs, (), eqn.span)


def evaluated_rows(eqn: Eqn, tables: Sequence[Table], joined: Join) -> list[Array]:
    """The results of an equation for each class, on the rows of the tables."""
    if joined.count == 1:
        with np.errstate(all="ignore"):
            found = evaluate_eqn(eqn, [t.rows[pick[0]] for t, pick in zip(tables, joined.picks, strict=True)])
        return [np.asarray(x, numpy_dtype(tensor_type(r).dtype))[None] for x, r in zip(found, eqn.results, strict=True)]
    wide = [len(t.rows) > 1 for t in tables]
    rows = [t.rows[pick] if w else t.rows[0] for t, pick, w in zip(tables, joined.picks, wide, strict=True)]
    operands = tuple([Value(v.type, v.home) for v in eqn.operands])
    whole = Graph(operands, (Eqn(eqn.op, operands, eqn.results, eqn.attrs, (), eqn.span),), eqn.results)
    if (found := MapVectorizer(selects=True).batched_graph(whole, tuple(wide), joined.count)) is not None:
        return evaluate(found[0], *rows)
    each = [evaluate(whole, *[x[i] if w else x for x, w in zip(rows, wide, strict=True)]) for i in range(joined.count)]
    return [np.stack(results) for results in zip(*each, strict=True)]
