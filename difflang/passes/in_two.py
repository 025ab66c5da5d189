"""A loop of known length in two, one after the other, so that reverse mode may keep of its last steps what it does not
keep of the others.
"""

from __future__ import annotations

from difflang.ir.builder import Builder
from difflang.ir.graph import Eqn, Graph, Value
from difflang.ir.op import OPS, result_types
from difflang.ir.types import Tensor
from difflang.ops.families import tensor
from difflang.ops.loop import INDEX, Form

FEWEST = 8  # steps of a loop that is worth being two


def can_be_two(eqn: Eqn) -> bool:
    """Whether a loop always takes so many steps, forwards, and reads and gives nothing but arrays."""
    form = Form.of(eqn)
    arrays = all([isinstance(v.type, Tensor) for v in (*eqn.operands, *eqn.results)])
    return form.exact and isinstance(form.length, int) and form.length >= FEWEST and not form.reverse and arrays


def in_two(first: Eqn, then: Eqn, last: int) -> list[Eqn]:
    """The equations of one loop but for its `last` steps, which are those of another that does the same.

    They give the results of `then`. What the steps read is cut in two, what they give put together.
    """
    form = Form.of(then)
    assert isinstance(form.length, int)
    eqns: list[Eqn] = []

    def emit(name: str, *operands: Value, to: Value | None = None, **attrs: object) -> Value:
        op = OPS[name]
        (type,) = result_types(op, [v.type for v in operands], (), attrs)
        result = Value(type, then.results[0].home) if to is None else to
        eqns.append(Eqn(op, operands, (result,), attrs, (), then.span))
        return result

    def part(x: Value, start: int, stop: int) -> Value:
        shape = tensor(x).shape
        rest = shape[1:]
        return emit("slice", x, starts=(start, *[0] * len(rest)), stops=(stop, *rest), steps=(1,) * len(shape))

    def steps(loop: Eqn, start: int, stop: int, carry: list[Value], to: tuple[Value, ...]) -> list[Value]:
        parts = form.parts(loop.operands)
        count = emit("const", value=stop - start, type=INDEX)
        operands = (count, *parts.consts, *carry, *[part(x, start, stop) for x in parts.xs])
        attrs = {**loop.attrs, "length": stop - start}
        regions = (later(loop.regions[0], start), *loop.regions[1:])
        types = result_types(loop.op, [v.type for v in operands], regions, attrs)
        fresh = [Value(t, then.results[0].home) for t in types]
        results = (fresh[0], *(to or fresh[1 : 1 + form.carry]), *fresh[1 + form.carry :])
        eqns.append(Eqn(loop.op, operands, results, attrs, regions, loop.span))
        return list(results[1:])

    middle, carry = form.length - last, form.parts(then.operands).carry
    early = steps(first, 0, middle, carry, ())
    late = steps(then, middle, form.length, early[: form.carry], then.results[1 : 1 + form.carry])
    emit("const", to=then.results[0], value=form.length, type=INDEX)
    for a, b, y in zip(early[form.carry :], late[form.carry :], then.results[1 + form.carry :], strict=True):
        emit("concat", a, b, to=y, axis=0)
    return eqns


def later(step: Graph, start: int) -> Graph:
    """The step where it is the first one that comes after `start` others."""
    index = step.params[0]
    if not start or (not any(index in e.operands for e in step.eqns) and index not in step.results):
        return step
    builder = Builder()
    params = [builder.param(p.type, p.hint) for p in step.params]
    moved = params[0] + builder.const(start, INDEX)
    return builder.finish(builder.inline(step, moved, *params[1:]), name=step.name)
