"""Unparse rules for random draws: a block `with_key(k)` in which draws have the same ordinals as in the graph.

A draw folds its ordinal into the key of its function. So the first, second and third draw of the block are those whose
keys are `k` with these ordinals folded in. Unread draws in between are written too, to keep the ordinals.
"""

from __future__ import annotations

from collections.abc import Sequence

from difflang.ir.graph import Eqn, Value
from difflang.ir.tensor_types import U32
from difflang.unparse.fragments import POSTFIX, CannotUnparse, Fragment, call_fragment, sizes_text, with_dtype
from difflang.unparse.unparser import Unparsed, Unparser, tensor_type, tuple_text, unparse_rule

UNREAD = "uniform()"  # a draw that is not read, but has an ordinal


@unparse_rule("fold_in")
def fold_in(writer: Unparser, eqn: Eqn) -> list[Fragment]:
    key, number = writer.words(eqn.operands[0]), writer.words(eqn.operands[1])
    text = str(number.integer) if number.integer is not None else with_dtype(number).text
    made = call_fragment("fold_in", key, shape=(2,), dtype=U32, more=text)
    return [
        made
        if number.integer is None
        else Fragment(made.text, POSTFIX, (2,), U32, folded_key=(key.text, number.integer))
    ]


@unparse_rule("normal", "uniform", "permutation")
def random_draw(writer: Unparser, eqn: Eqn) -> list[Unparsed]:
    """The draw, together with all others of this graph from the same key."""
    (result,) = eqn.results
    if result in writer.env:
        return [writer.env[result]]
    key = writer.words(eqn.operands[0])
    if key.folded_key is None or key.folded_key[1] % 2:
        raise CannotUnparse("a draw from a key that has no name here")
    base, ordinal = key.folded_key[0], key.folded_key[1] // 2
    together = {ordinal: [eqn], **draws_of_key(writer.eqns, eqn)}
    names, texts, types = list[str](), list[str](), list[str]()
    for i in range(max(together) + 1):
        eqns = together.get(i, ())
        name = writer.names.fresh(writer.user_name(eqns[0].results[0]) or "z") if eqns else "_"
        names.append(name)
        texts.append(draw_call(eqns[0]) if eqns else UNREAD)
        types.append(str(tensor_type(eqns[0].results[0])).replace("[]", "") if eqns else "f32")
        for e in eqns:
            writer.bind_name(name, e.results[0])
    writer.emit(f"let {tuple_text(names)}: {tuple_text(types)} = with_key({base}) {{ {tuple_text(texts)} }}", eqn.span)
    return [writer.env[result]]


def draws_of_key(eqns: Sequence[Eqn], draw: Eqn) -> dict[int, list[Eqn]]:
    """The draws from the same key, by their ordinals; empty if that key comes from outside the graph."""
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
            if not alike or draw_call(alike[0]) == draw_call(eqn):
                alike.append(eqn)
    return found


def draw_call(draw: Eqn) -> str:
    """The call that draws."""
    if draw.op.name == "permutation":
        return f"permutation({draw.attrs['n']})"
    return f"{draw.op.name}({sizes_text(draw.attrs['shape'])})"
