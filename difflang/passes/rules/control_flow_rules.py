"""Rewrite rules for control flow: constant branches, loops of no or one step, and values passed through regions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from difflang.ir.builder import build_region
from difflang.ir.graph import Attr, Eqn, Graph, Value
from difflang.ir.tensor_types import BOOL, F64, I32, History, Tensor
from difflang.ops.control.call import call
from difflang.ops.control.cond import cond
from difflang.ops.control.map import map_
from difflang.ops.elementwise.linear_arithmetic import convert
from difflang.ops.loop.checkpoint_store import StoreRequest, StoreSize
from difflang.ops.loop.loop_attrs import LoopAttrs
from difflang.ops.loop.loop_op import loop
from difflang.ops.op_factories import tensor_type
from difflang.passes.rules.rewriter import GuardedRule, Replacement, Rewriter

INDEX, TRUTH = Tensor(I32), Tensor(BOOL)


def fold_constant_branch(to: Rewriter, eqn: Eqn) -> Replacement:
    """Replace a branch with a constant condition by the region that it selects."""
    number = to.number(eqn.operands[0])
    if number is None:
        return None
    return to.splice(eqn.regions[0] if number else eqn.regions[1], eqn.operands[1:])


def forward_operands(to: Rewriter, eqn: Eqn) -> Replacement:
    """Replace a result that every region of a branch or call passes through by the operand."""
    assert eqn.op.region_dataflow is not None
    layout = eqn.op.region_dataflow(eqn)
    came: dict[tuple[int, Value], Value] = {}
    for slot in layout.slots:
        if slot.invariant and slot.operand is not None:
            for number, place in enumerate(slot.params):
                if place is not None:
                    came[number, eqn.regions[number].params[place]] = eqn.operands[slot.operand]
    results = list(eqn.results)
    for slot in layout.slots:
        if slot.result is None or slot.operand is not None:
            continue
        made = [
            came.get((n, eqn.regions[n].results[place])) for n, place in enumerate(slot.returns) if place is not None
        ]
        if made[0] is not None and all(v is made[0] for v in made):
            results[slot.result] = made[0]
    if all(a is b for a, b in zip(results, eqn.results, strict=True)):
        return None
    to.keep(eqn)
    return results


def inline_trivial_loop(to: Rewriter, eqn: Eqn) -> Replacement:
    """Replace a loop without steps by its carry, and one of exactly one step by that step."""
    form, (step, *_) = LoopAttrs.of(eqn), eqn.regions
    limit = to.number(eqn.operands[0])
    ys = eqn.results[1 + form.carry :]
    parts = form.parts(eqn.operands)
    if limit == 0 and not any(isinstance(y.type, History) for y in ys):
        zeros = [to.const(eqn, 0, y.type) for y in ys]
        return [to.const(eqn, 0, INDEX), *parts.carry, *zeros]
    if not form.exact or form.length != 1 or any(isinstance(v.type, History) for v in (*parts.xs, *ys)):
        return None
    items = [to.emit(eqn, "reshape", x, shape=tensor_type(x).shape[1:])[0] for x in parts.xs]
    outs = to.splice(step, [to.const(eqn, 0, INDEX), *parts.consts, *parts.carry, *items])
    stacked = [
        to.emit(eqn, "reshape", v, shape=tensor_type(y).shape)[0] for v, y in zip(outs[form.carry :], ys, strict=True)
    ]
    return [to.const(eqn, 1, INDEX), *outs[: form.carry], *stacked]


def inline_single_map(to: Rewriter, eqn: Eqn) -> Replacement:
    """Replace a map over one instance by that instance."""
    consts, (body,) = eqn.attrs["consts"], eqn.regions
    assert isinstance(consts, int)
    values = (*eqn.operands, *eqn.results, *body.params)
    if eqn.attrs["length"] != 1 or not eqn.results or any(isinstance(v.type, History) for v in values):
        return None
    items = [to.emit(eqn, "reshape", x, shape=tensor_type(x).shape[1:])[0] for x in eqn.operands[consts:]]
    outs = to.splice(body, [*eqn.operands[:consts], *items])
    return [to.emit(eqn, "reshape", v, shape=tensor_type(y).shape)[0] for v, y in zip(outs, eqn.results, strict=True)]


def fix_trip_count(to: Rewriter, eqn: Eqn) -> Replacement:
    """Give a loop that only a constant limit ends an exact length."""
    # Not with a `@checkpoint` policy, and not if a checkpoint store of its states would be too small for all of them: a
    # loop of exact length saves what every step needs.
    form, limit = LoopAttrs.of(eqn), to.number(eqn.operands[0])
    if form.exact or len(eqn.regions) > 1 or form.keep != (0, 0) or form.host or not isinstance(limit, int):
        return None
    if not all([isinstance(v.type, Tensor) for v in (*eqn.operands, *eqn.results)]):
        return None
    steps = max(limit, 0)
    carried = [v.type for v in form.parts(eqn.operands).carry]
    if (
        steps != form.length
        if form.length is not None
        else steps > StoreSize.of(carried, 1, StoreRequest()).store_all_up_to
    ):
        return None
    attrs: dict[str, Attr] = {**eqn.attrs, "length": steps, "exact": True}
    return to.emit(eqn, "loop", to.const(eqn, steps, INDEX), *eqn.operands[1:], regions=eqn.regions, **attrs)


def fold_step_count(to: Rewriter, eqn: Eqn) -> Replacement:
    """Replace the step count of a loop without a condition by its limit."""
    if not LoopAttrs.of(eqn).exact:
        return None
    to.keep(eqn)
    return [eqn.operands[0], *eqn.results[1:]]


def drop_invariant_carry(to: Rewriter, eqn: Eqn) -> Replacement:
    """Turn a carry that no step changes into a const, and its result into the operand."""
    form, regions = LoopAttrs.of(eqn), eqn.regions
    step = regions[0]
    carries = form.parts(step.params).carry
    still = [step.results[k] is carries[k] for k in range(form.carry)]
    if not any(still):
        return None
    results = list(eqn.results)
    for k, stays in enumerate(still):
        if stays:
            results[1 + k] = eqn.operands[1 + form.consts + k]
    # Consts come before carries, so the fixed ones move in front of the others.
    moved = sum(still)
    keep = [not s for s in still]

    def order(values: Sequence[Value]) -> tuple[Value, ...]:
        """Operands or params, with the unchanged carries after the consts."""
        at = form.parts(values)
        fixed = [v for v, s in zip(at.carry, still, strict=True) if s]
        return (at.first, *at.consts, *fixed, *[v for v, k in zip(at.carry, keep, strict=True) if k], *at.xs)

    outs = [r for r, k in zip(step.results, keep, strict=False) if k] + list(step.results[form.carry :])
    new_step = Graph(order(step.params), step.eqns, tuple(outs), step.name)
    others = [Graph(order(g.params), g.eqns, g.results, g.name) for g in regions[1:]]
    attrs: dict[str, Attr] = {**eqn.attrs, "consts": form.consts + moved, "carry": form.carry - moved}
    left = [r for r, k in zip(eqn.results[1:], keep, strict=False) if k]
    made = (eqn.results[0], *left, *eqn.results[1 + form.carry :])
    to.add(Eqn(eqn.op, order(eqn.operands), made, attrs, (new_step, *others), eqn.span))
    return results


# ---- Sample programs and the table of rules

FLOAT, VECTOR = Tensor(F64), Tensor(F64, (1,))


def sample_cond(pred: Callable[[Value], Value]) -> Callable[[], Graph]:
    def program(p: Value, x: Value, y: Value) -> Sequence[Value]:
        then = build_region([FLOAT, FLOAT], lambda a, b: [a * b, a])
        other = build_region([FLOAT, FLOAT], lambda a, b: [-b, a])
        return cond(pred(p), x, y, regions=(then, other))

    return lambda: build_region([TRUTH, FLOAT, FLOAT], program)


def sample_single_map() -> Graph:
    body = build_region([FLOAT, FLOAT], lambda a, x: [a * x, x])
    return build_region([FLOAT, VECTOR], lambda a, x: a.home.emit(map_, [a, x], (body,), consts=1, length=1))


def sample_call() -> Graph:
    body = build_region([FLOAT, FLOAT], lambda a, b: [b, a * b])
    return build_region([FLOAT, FLOAT], lambda x, y: call(x, y, regions=(body,), name="f"))


def sample_loop(limit: int, length: int | None, exact: bool, shape: tuple[int, ...]) -> Callable[[], Graph]:
    """A loop with a const, a carry that changes, one that does not, an item and an output."""

    def program(a: Value, b: Value, c: Value, xs: Value) -> Sequence[Value]:
        def body(i: Value, a: Value, b: Value, c: Value, x: Value) -> Sequence[Value]:
            return [a * b + x, c, convert.one(i, dtype=F64) - x * c]

        step = build_region([INDEX, *[FLOAT] * 4], body)
        attrs: dict[str, Attr] = {"consts": 1, "carry": 2, "length": length, "exact": exact, "reverse": False}
        return a.home.emit(loop, [a.home.const(limit, INDEX), a, b, c, xs], (step,), **attrs)

    return lambda: build_region([FLOAT, FLOAT, FLOAT, Tensor(F64, shape)], program)


def sample_counted_loop(limit: int, *, exact: bool = False) -> Callable[[], Graph]:
    """A loop whose number of steps is its limit, either only by that or as an `exact` length."""
    step = build_region([INDEX, FLOAT, FLOAT], lambda i, a, b: [a * b + convert.one(i, dtype=F64)])
    attrs: dict[str, Attr] = {
        "consts": 1, "carry": 1, "length": limit if exact else None, "exact": exact, "reverse": False
    }  # fmt: skip
    return lambda: build_region(
        [FLOAT, FLOAT], lambda a, b: a.home.emit(loop, [a.home.const(limit, INDEX), a, b], (step,), **attrs)
    )


CONTROL_FLOW_RULES = (
    GuardedRule(
        ("cond",),
        fold_constant_branch,
        (
            sample_cond(lambda p: p.home.const(True, TRUTH)),
            sample_cond(lambda p: p.home.const(False, TRUTH)),
        ),
        operand_guard=(0, "const"),
    ),
    GuardedRule(("map",), inline_single_map, (sample_single_map,)),
    GuardedRule(("cond", "call"), forward_operands, (sample_cond(lambda p: p), sample_call)),
    GuardedRule(
        ("loop",),
        inline_trivial_loop,
        (sample_loop(0, 3, False, (3,)), sample_loop(1, 1, True, (1,)), sample_loop(0, 0, True, (0,))),
    ),
    GuardedRule(
        ("loop",), fix_trip_count, (sample_loop(3, 3, False, (3,)), sample_counted_loop(3), sample_counted_loop(-1))
    ),
    GuardedRule(("loop",), drop_invariant_carry, (sample_loop(2, 3, False, (3,)), sample_loop(3, 3, True, (3,)))),
    GuardedRule(("loop",), fold_step_count, (sample_counted_loop(3, exact=True),)),
)
