"""Unparse rules for branches and maps: `if` expressions and comprehensions, with statements in braces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from difflang.ir.graph import Eqn, Graph, Value
from difflang.ir.tensor_types import History, Tensor
from difflang.unparse.fragments import ATOM, POSTFIX, CannotUnparseNestedHistory, Fragment, name_fragment, size_text
from difflang.unparse.unparser import Unparsed, UnparsedHistory, Unparser, tensor_type, tuple_text, unparse_rule


def region_block(writer: Unparser, graph: Graph, known: Mapping[Value, Unparsed]) -> tuple[list[str], list[Fragment]]:
    """The statements of a region, and its results."""
    inner = writer.for_region()
    inner.env.update(known)
    inner.graph(graph)
    return inner.lines, [inner.full_shape(r) for r in graph.results]


def brace_block(lines: Sequence[str], end: str) -> str:
    """Statements and a value as a block in braces."""
    return "{\n" + "\n".join([*lines, end]) + "\n}"


def result_names(writer: Unparser, results: Sequence[Value]) -> list[str]:
    return [writer.names.fresh(writer.user_name(r) or "t") for r in results]


def refuse_histories(writer: Unparser, values: Sequence[Value], made: Sequence[Value]) -> None:
    """Errors: CannotUnparse if a branch or comprehension takes or gives a history."""
    if any(isinstance(writer.env[v], UnparsedHistory) for v in values) or any(
        isinstance(v.type, History) for v in made
    ):
        raise CannotUnparseNestedHistory(
            "saved values of a loop whose length is known only at run time, inside a branch or a comprehension"
        )


@unparse_rule("cond")
def branch(writer: Unparser, eqn: Eqn) -> list[Fragment]:
    pred, *operands = eqn.operands
    refuse_histories(writer, operands, eqn.results)
    condition = writer.words(pred)
    sides: list[str] = []
    for region in eqn.regions:
        known = {p: named_outside(writer, v) for p, v in zip(region.params, operands, strict=True)}
        lines, results = region_block(writer, region, known)
        sides.append(brace_block(lines, tuple_text([r.text for r in results])))
    if not eqn.results:
        return []
    text = f"if {condition.text} {sides[0]} else {sides[1]}"
    return bind_results(writer, eqn, text)


def named_outside(writer: Unparser, value: Value) -> Unparsed:
    """A value for use in a region: by name, as it may be read there often."""
    found = writer.env[value]
    if isinstance(found, Fragment):
        return writer.as_name(value)
    return found


def bind_results(writer: Unparser, eqn: Eqn, text: str) -> list[Fragment]:
    """Emit a statement that names the results of an expression that is too large to be inlined."""
    if len(eqn.results) == 1 and writer.is_block_value(eqn, eqn.results[0]):
        return [Fragment(text, ATOM, tensor_type(eqn.results[0]).shape, tensor_type(eqn.results[0]).dtype)]
    used = [r for r in eqn.results if writer.uses[r]]
    names = result_names(writer, used)
    if len(eqn.results) == 1 and names:
        pattern = names[0]
    else:
        left = iter(names)
        pattern = f"({', '.join(next(left) if writer.uses[r] else '_' for r in eqn.results)})"
    if names:
        writer.emit(f"let {pattern} = {text}", eqn.span)
    left = iter(names)
    types = [(r, tensor_type(r)) for r in eqn.results]
    return [name_fragment(next(left), t) if writer.uses[r] else Fragment("_", ATOM, t.shape, t.dtype) for r, t in types]


@unparse_rule("map")
def comprehension(writer: Unparser, eqn: Eqn) -> list[Fragment]:
    consts, length = eqn.attrs["consts"], eqn.attrs["length"]
    refuse_histories(writer, eqn.operands, eqn.results)
    (body,) = eqn.regions
    index = writer.names.fresh("i")
    known: dict[Value, Unparsed] = {}
    for p, v in zip(body.params[:consts], eqn.operands[:consts], strict=True):
        known[p] = named_outside(writer, v)
    for p, v in zip(body.params[consts:], eqn.operands[consts:], strict=True):
        known[p] = item_at(writer, v, p, index)
    lines, results = region_block(writer, body, known)
    value = tuple_text([r.text for r in results])
    text = f"[for {index} in 0..{size_text(length)} => {brace_block(lines, value) if lines else value}]"
    # A comprehension without statements is an expression, and may be part of a larger one.
    if len(eqn.results) == 1 and not lines:
        (result,) = eqn.results
        return [Fragment(text, ATOM, tensor_type(result).shape, tensor_type(result).dtype)]
    return bind_results(writer, eqn, text)


def item_at(writer: Unparser, sequence: Value, param: Value, index: str) -> Fragment:
    """The item of an array at the index of a loop."""
    found = writer.words(sequence)
    if found.text == f"iota({found.shape[0] if found.shape else ''})" and not tensor_type(param).shape:
        return name_fragment(index, tensor_type(param))
    # An array that is broadcast along its first axis is the same at every index.
    if isinstance(sequence.type, Tensor) and len(found.shape) < sequence.type.rank:
        return writer.as_name(sequence)
    whole = writer.as_name(sequence, whole=True)
    return Fragment(f"{whole.at(POSTFIX)}[{index}]", POSTFIX, whole.shape[1:], whole.dtype)
