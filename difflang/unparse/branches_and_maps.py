"""How branches and comprehensions are spelled: as expressions, with their statements inside braces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from difflang.ir.graph import Eqn, Graph, Value
from difflang.ir.tensor_types import History, Tensor
from difflang.unparse.fragments import ATOM, POSTFIX, Nested, Words, name, size
from difflang.unparse.rule_registry import spells
from difflang.unparse.unparser import Saved, Spelled, Speller, array, joined


def block(speller: Speller, graph: Graph, known: Mapping[Value, Spelled]) -> tuple[list[str], list[Words]]:
    """The statements of a region, and its results."""
    inner = speller.inside()
    inner.env.update(known)
    inner.graph(graph)
    return inner.lines, [inner.exact(r) for r in graph.results]


def braced(lines: Sequence[str], end: str) -> str:
    """Statements and a value, as a block."""
    return "{\n" + "\n".join([*lines, end]) + "\n}"


def names_for(speller: Speller, results: Sequence[Value]) -> list[str]:
    return [speller.names.fresh(speller.hinted(r) or "t") for r in results]


def plain(speller: Speller, values: Sequence[Value], made: Sequence[Value]) -> None:
    """Errors: Unspelled where what a loop keeps comes from a branch, or goes to one and is no array."""
    if any(isinstance(speller.env[v], Saved) for v in values) or any(isinstance(v.type, History) for v in made):
        raise Nested("what a loop of a length that only the run knows keeps, within a branch or a comprehension")


@spells("cond")
def branch(speller: Speller, eqn: Eqn) -> list[Words]:
    pred, *operands = eqn.operands
    plain(speller, operands, eqn.results)
    condition = speller.words(pred)
    sides: list[str] = []
    for region in eqn.regions:
        known = {p: outer(speller, v) for p, v in zip(region.params, operands, strict=True)}
        lines, results = block(speller, region, known)
        sides.append(braced(lines, joined([r.text for r in results])))
    if not eqn.results:
        return []
    text = f"if {condition.text} {sides[0]} else {sides[1]}"
    return bound(speller, eqn, text)


def outer(speller: Speller, value: Value) -> Spelled:
    """A value as a region sees it: by name, for it may be read there often."""
    found = speller.env[value]
    if isinstance(found, Words):
        return speller.atom(value)
    return found


def bound(speller: Speller, eqn: Eqn, text: str) -> list[Words]:
    """A statement that names the results of a larger expression."""
    if len(eqn.results) == 1 and speller.ends(eqn, eqn.results[0]):
        return [Words(text, ATOM, array(eqn.results[0]).shape, array(eqn.results[0]).dtype)]
    used = [r for r in eqn.results if speller.uses[r]]
    names = names_for(speller, used)
    if len(eqn.results) == 1 and names:
        pattern = names[0]
    else:
        left = iter(names)
        pattern = f"({', '.join(next(left) if speller.uses[r] else '_' for r in eqn.results)})"
    if names:
        speller.say(f"let {pattern} = {text}", eqn.span)
    left = iter(names)
    return [name(next(left), array(r)) if speller.uses[r] else Words("_", ATOM, array(r).shape, array(r).dtype)
            for r in eqn.results]  # fmt: skip


@spells("map")
def comprehension(speller: Speller, eqn: Eqn) -> list[Words]:
    consts, length = eqn.attrs["consts"], eqn.attrs["length"]
    plain(speller, eqn.operands, eqn.results)
    (body,) = eqn.regions
    index = speller.names.fresh("i")
    known: dict[Value, Spelled] = {}
    for p, v in zip(body.params[:consts], eqn.operands[:consts], strict=True):
        known[p] = outer(speller, v)
    for p, v in zip(body.params[consts:], eqn.operands[consts:], strict=True):
        known[p] = item(speller, v, p, index)
    lines, results = block(speller, body, known)
    value = joined([r.text for r in results])
    text = f"[for {index} in 0..{size(length)} => {braced(lines, value) if lines else value}]"
    if len(eqn.results) == 1 and not lines:
        (result,) = eqn.results
        return [Words(text, ATOM, array(result).shape, array(result).dtype)]
    return bound(speller, eqn, text)


def item(speller: Speller, sequence: Value, param: Value, index: str) -> Words:
    """One item of an array that a loop goes along, at its index."""
    found = speller.words(sequence)
    if found.text == f"iota({found.shape[0] if found.shape else ''})" and not array(param).shape:
        return name(index, array(param))
    if isinstance(sequence.type, Tensor) and len(found.shape) < sequence.type.rank:  # the same for every index
        return speller.atom(sequence)
    whole = speller.atom(sequence, whole=True)
    return Words(f"{whole.at(POSTFIX)}[{index}]", POSTFIX, whole.shape[1:], whole.dtype)
