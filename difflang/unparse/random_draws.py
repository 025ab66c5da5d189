"""How random draws are spelled: from the key that is at hand, in a block whose draws have the same numbers.

A draw folds its ordinal into the key of its function. So what a block `with_key(k)` draws first, second, third are the
draws of the equations whose keys are `k` with these ordinals folded in; those between that nobody reads are drawn too.
"""

from __future__ import annotations

from collections.abc import Sequence

from difflang.ir.graph import Eqn, Value
from difflang.ir.tensor_types import U32
from difflang.unparse.fragments import POSTFIX, Unspelled, Words, called, listed, settled
from difflang.unparse.rule_registry import spells
from difflang.unparse.unparser import Spelled, Speller, array, joined

UNREAD = "uniform()"  # a draw that only counts


@spells("fold_in")
def folded(speller: Speller, eqn: Eqn) -> list[Words]:
    key, number = speller.words(eqn.operands[0]), speller.words(eqn.operands[1])
    text = str(number.whole) if number.whole is not None else settled(number).text
    made = called("fold_in", key, shape=(2,), dtype=U32, more=text)
    return [made if number.whole is None else Words(made.text, POSTFIX, (2,), U32, folded=(key.text, number.whole))]


@spells("normal", "uniform", "permutation")
def drawn(speller: Speller, eqn: Eqn) -> list[Spelled]:
    """The draw, with all others of this graph from the same key."""
    (result,) = eqn.results
    if result in speller.env:
        return [speller.env[result]]
    key = speller.words(eqn.operands[0])
    if key.folded is None or key.folded[1] % 2:
        raise Unspelled("a draw from a key that has no name here")
    base, ordinal = key.folded[0], key.folded[1] // 2
    together = {ordinal: [eqn], **of_one_key(speller.here, eqn)}
    names, texts, types = list[str](), list[str](), list[str]()
    for i in range(max(together) + 1):
        eqns = together.get(i, ())
        name = speller.names.fresh(speller.hinted(eqns[0].results[0]) or "z") if eqns else "_"
        names.append(name)
        texts.append(text_of(eqns[0]) if eqns else UNREAD)
        types.append(str(array(eqns[0].results[0])).replace("[]", "") if eqns else "f32")
        for e in eqns:
            speller.bound(name, e.results[0])
    speller.say(f"let {joined(names)}: {joined(types)} = with_key({base}) {{ {joined(texts)} }}", eqn.span)
    return [speller.env[result]]


def of_one_key(eqns: Sequence[Eqn], draw: Eqn) -> dict[int, list[Eqn]]:
    """The draws from the key that this one draws from, by their ordinals; nothing where that key is made elsewhere."""
    made: dict[Value, Eqn] = {e.results[0]: e for e in eqns if e.op.name in ("fold_in", "const")}
    fold = made.get(draw.operands[0])
    found: dict[int, list[Eqn]] = {}
    if fold is None:
        return found
    for eqn in eqns:
        if eqn.op.name not in ("normal", "uniform", "permutation"):
            continue
        other = made.get(eqn.operands[0])
        number = made.get(other.operands[1]) if other is not None and other.operands[0] is fold.operands[0] else None
        if number is not None:
            alike = found.setdefault(int(number.attrs["value"]) // 2, [])
            if not alike or text_of(alike[0]) == text_of(eqn):
                alike.append(eqn)
    return found


def text_of(draw: Eqn) -> str:
    """The call that draws."""
    if draw.op.name == "permutation":
        return f"permutation({draw.attrs['n']})"
    return f"{draw.op.name}({listed(draw.attrs['shape'])})"
