"""`checkpoint { … }` blocks, which reverse mode recomputes, and `save x`, which keeps a value of the block."""

from __future__ import annotations

from msgspec.structs import replace

from difflang.base.diagnostics import Diagnostic, Label
from difflang.elaborate.context import ElabContext, elaborate, elaborates
from difflang.elaborate.effects import CheckpointSaves, YieldItem
from difflang.elaborate.patterns.sum_types import widen_to_type
from difflang.elaborate.statements.branches import BranchSide, elaborate_side, record_yield, yield_flag
from difflang.elaborate.statements.regions import assigned_variables, close_regions, rebind_term
from difflang.elaborate.terms import Array, Term, Tuple, build_term, leaves, type_of
from difflang.elaborate.trampoline import Walk
from difflang.ops.control.checkpoint_block import checkpoint as checkpoint_op
from difflang.syntax import tree


@elaborates(tree.Checkpoint)
def elaborate_checkpoint(cx: ElabContext, e: tree.Checkpoint) -> Walk[Term]:
    """The block as a `checkpoint` equation: its results are its value, assigned variables, writes and yields."""
    variables = assigned_variables(cx, e.body)
    around, cx.checkpoint_saves = cx.checkpoint_saves, CheckpointSaves(cx.depth + 1)
    try:
        side: BranchSide = yield elaborate_side(cx, lambda: elaborate(cx, e.body), variables, e.span)
        saved = cx.checkpoint_saves.values
    finally:
        cx.checkpoint_saves = around
    changed = [(b, new) for b, new in zip(variables, side.variables, strict=True) if new is not b.term]
    # One flat list of results: value, variables, writes, yields, in this order.
    terms = [side.value, *[new for _, new in changed], *[written for _, written in side.writes]]
    terms += [part for found in side.yields for part in (found.value, *([found.present] if found.present else []))]
    types = [type_of(t) for t in terms]
    values = [v for t, type in zip(terms, types, strict=True) for v in leaves(widen_to_type(side.builder, t, type))]
    consts, (graph,) = close_regions([side.builder], [[*values, *saved]], [[]], [0])
    cx.builder.span = e.span
    results = iter(cx.builder.emit(checkpoint_op, consts, (graph,), results=len(values), recompute=False))
    value, *others = [build_term(t, results) for t in types]
    for (binding, _), new in zip(changed, others, strict=False):
        binding.term = rebind_term(binding.term, new)
    for (log, _), written in zip(side.writes, others[len(changed) :], strict=False):
        log.add(written)
    if side.yields:
        yielded, *here = others[len(changed) + len(side.writes) :]
        record_yield(cx, YieldItem(yielded, yield_flag(here)), e.span)
    return keep_static_facts(side.value, value)


def keep_static_facts(inside: Term, outside: Term) -> Term:
    """The block's value with the static facts that are known inside."""
    match inside, outside:
        case Array(), Array():
            return replace(inside, value=outside.value)
        case Tuple(), Tuple():
            return Tuple(tuple(map(keep_static_facts, inside.items, outside.items)), outside.function_type)
        case _:
            return outside


@elaborates(tree.Save)
def elaborate_save(cx: ElabContext, e: tree.Save) -> Walk[Term]:
    """Save the current value of a name.

    Errors: DL0510 outside a block, DL0512 inside a loop or branch of it. Warning DL0511 for a value kept anyway.
    """
    term: Term = yield elaborate(cx, tree.Name(e.span, e.name))
    if cx.checkpoint_saves is None:
        way = "write `checkpoint { … }` around the code to recompute; elsewhere the compiler decides what to save"
        raise cx.error("DL0510", "`save` is outside a `checkpoint` block", e.span, "", way)
    if cx.depth != cx.checkpoint_saves.depth:
        way = "put a `checkpoint` block around that part, inside the loop or branch"
        raise cx.error("DL0512", "`save` is inside a loop or branch of its `checkpoint` block", e.span, "", way)
    # Values from outside are operands of the block and kept anyway.
    made = [v for v in leaves(term) if v.home is cx.builder]
    if not made:
        text = f"`{e.name}` comes from outside the block"
        label = Label(e.span, text)
        help = "a block always keeps its inputs: save a value that the block computes, or remove this"
        cx.session.warn(Diagnostic("DL0511", "this `save` has no effect", (label,), (help,), severity="warning"))
    cx.checkpoint_saves.values.extend(made)
    return term
