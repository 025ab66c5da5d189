"""Splits a loop of known length in two, so that reverse mode may save more for the last steps than for the others."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct, field

from difflang.ir.builder import Builder
from difflang.ir.graph import Eqn, Graph, Value
from difflang.ir.op import OPS, result_types
from difflang.ir.tensor_types import Tensor, Type
from difflang.ops.loop.loop_attrs import LoopAttrs
from difflang.ops.loop.loop_op import INDEX
from difflang.ops.op_factories import tensor_type

MIN_SPLIT_LENGTH = 8  # a shorter loop is not worth splitting


def is_splittable(eqn: Eqn) -> bool:
    """Whether a loop has an exact length, runs forwards, and reads and gives only arrays."""
    form = LoopAttrs.of(eqn)
    arrays = all([isinstance(v.type, Tensor) for v in (*eqn.operands, *eqn.results)])
    return (
        form.exact and isinstance(form.length, int) and form.length >= MIN_SPLIT_LENGTH and not form.reverse and arrays
    )


def split_loop(early: Eqn, late: Eqn, last: int) -> list[Eqn]:
    """The equations of a loop whose `last` steps are those of `late`, and the others those of `early`.

    Both are the same loop with different policies. The results are those of `late`.
    """
    form, write = LoopAttrs.of(late), LoopReplacement(late)
    assert isinstance(form.length, int)
    middle, parts = form.length - last, form.parts(late.operands)
    before = write.emit_steps(early, 0, middle, parts.carry)
    state = late.results[1 : 1 + form.carry]
    after = write.emit_steps(late, middle, form.length, before[: form.carry], state)
    write.one("const", to=late.results[0], value=form.length, type=INDEX)
    for a, b, y in zip(before[form.carry :], after[form.carry :], late.results[1 + form.carry :], strict=True):
        write.one("concat", a, b, to=y, axis=0)
    return write.eqns


class LoopReplacement(Struct, eq=False):
    """Equations that replace one in its graph."""

    replaced_eqn: Eqn
    eqns: list[Eqn] = field(default_factory=list[Eqn])

    def value(self, type: Type) -> Value:
        return Value(type, self.replaced_eqn.results[0].home)

    def one(self, name: str, *operands: Value, to: Value | None = None, **attrs: object) -> Value:
        """Append an equation; its result is a new value, or `to`."""
        (type,) = result_types(OPS[name], [v.type for v in operands], (), attrs)
        result = to or self.value(type)
        self.eqns.append(Eqn(OPS[name], operands, (result,), attrs, (), self.replaced_eqn.span))
        return result

    def slice_items(self, x: Value, start: int, stop: int) -> Value:
        """Some of the items of an array."""
        shape = tensor_type(x).shape
        rest = shape[1:]
        return self.one("slice", x, starts=(start, *[0] * len(rest)), stops=(stop, *rest), steps=(1,) * len(shape))

    def emit_steps(
        self, loop: Eqn, start: int, stop: int, carry: Sequence[Value], to: Sequence[Value] = ()
    ) -> list[Value]:
        """Append some steps of a loop; returns the carries after them, which are `to` if given, and the outputs."""
        form = LoopAttrs.of(loop)
        parts, attrs = form.parts(loop.operands), {**loop.attrs, "length": stop - start}
        limit = self.one("const", value=stop - start, type=INDEX)
        operands = (limit, *parts.consts, *carry, *[self.slice_items(x, start, stop) for x in parts.xs])
        regions = (shift_step_index(loop.regions[0], start), *loop.regions[1:])
        count, *found = map(self.value, result_types(loop.op, [v.type for v in operands], regions, attrs))
        found = [*(to or found[: form.carry]), *found[form.carry :]]
        self.eqns.append(Eqn(loop.op, operands, (count, *found), attrs, regions, loop.span))
        return found


def shift_step_index(step: Graph, start: int) -> Graph:
    """The step with its index moved by `start`."""
    index = step.params[0]
    if not start or (index not in step.results and not any(index in e.operands for e in step.eqns)):
        return step
    builder = Builder()
    params = [builder.param(p.type, p.hint) for p in step.params]
    moved = params[0] + builder.const(start, INDEX)
    return builder.finish(builder.inline(step, moved, *params[1:]), name=step.name)
