"""The program that unparsing writes for each op computes what the op computes, on the op's own samples."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

import difflang
from difflang.elaborate.calls.builtin_registry import BUILTINS
from difflang.gradcheck.op_calls import OpCall, calls_of
from difflang.ir.op import OPS, Op
from difflang.ir.tensor_types import BOOL, C128, F64, I32, Tensor
from difflang.unparse.fragments import CannotUnparse, name_fragment
from difflang.unparse.unparser import UNPARSE_RULES, NamePool, Unparser, tuple_text
from support.op_calls import DRAWN

OTHERWISE = {"binade"}  # any other unit does as well
CONSTANTS = {"const", "dense", "iota"}  # see `unit/unparse/test_unparser.py`
DRAWS = {
    "fold_in",
    "normal",
    "uniform",
    "permutation",
}  # of a key, which no array is: `unit/tools/derive/test_random_draws.py`
SPELLED = [op for op in DRAWN if op.name in UNPARSE_RULES.keys() - OTHERWISE - CONSTANTS - DRAWS]
# Where infinite numbers, zeros of both signs and points out of the domain are told apart.
HARD = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-300, 1e300, -1e-300, 45.0, -45.0])
SLOPES = "sech2 gelu_slope one_minus_square gaussian exp2_slope".split()  # noqa: SIM905


def text_of(call: OpCall, number: int) -> str:
    """A function of one call. Errors: Unspelled."""
    graph = call.graph()
    speller = Unparser(NamePool({"nan", "inf", *BUILTINS}), lambda _: "", {})
    params = [f"x{i}" for i in range(len(graph.params))]
    for value, param in zip(graph.params, params, strict=True):
        assert isinstance(value.type, Tensor)
        speller.env[value] = name_fragment(param, value.type)
    speller.graph(graph)
    results = [speller.full_shape(r).text for r in graph.results]
    head = ", ".join(f"{p}: {type}" for p, type in zip(params, call.types, strict=True)).replace("[]", "")
    body = "\n".join([*speller.lines, tuple_text(results)])
    return f"@unchecked\nfn spelled{number}({head}) = {{\n{body}\n}}\n"


def loaded(calls: Sequence[OpCall]) -> tuple[str, list[tuple[OpCall, Any]]]:
    """The calls that have a spelling, each with the function that was written down."""
    texts: dict[int, str] = {}
    for number, call in enumerate(calls):
        with suppress(CannotUnparse):
            texts[number] = text_of(call, number)
    whole = "float f64\naxes rows, columns\n" + "".join(texts.values())
    module: Any = difflang.loads(whole)
    return whole, [(calls[number], getattr(module, f"spelled{number}")) for number in texts]


def whole(call: OpCall) -> bool:
    return all(x.size for x in (*call.arrays, *call.references()))


def same(found: Any, due: Sequence[Any], text: str) -> None:
    parts = found if isinstance(found, tuple) else (found,)
    for part, wanted in zip(parts, due, strict=True):
        np.testing.assert_allclose(np.asarray(part), wanted, rtol=1e-9, atol=1e-12, err_msg=text)


@pytest.mark.parametrize("op", SPELLED, ids=str)
def test_what_is_written_gives_what_the_op_gives(op: Op) -> None:
    dtype = next(d for d in (F64, C128, I32, BOOL) if d in (op.accepts or (F64,)))
    text, pairs = loaded([c for c in calls_of(op, [dtype]) if whole(c)])
    assert pairs
    for call, f in pairs:
        same(f.interpret(*call.arrays), call.references(), text)


@pytest.mark.parametrize("way", ["interpret", "compile"])
def test_slopes_at_zeros_and_infinite_numbers(way: str) -> None:
    """Compiled, XLA takes what is less than the least normal number for zero."""
    calls = [OpCall(OPS[n], (HARD,), {"scale": 0.5} if n == "gaussian" else {}) for n in SLOPES]
    calls += [OpCall(OPS["exp_sub"], tuple(map(np.ravel, np.meshgrid(HARD, HARD))), {})]
    # Below zero and at -0.0 the slopes of `log` and `sqrt` are written as people write them: docs/derive.md says so.
    calls += [OpCall(OPS[n], (HARD[~np.signbit(HARD)],), {}) for n in ("positive", "rsqrt")]
    text, pairs = loaded(calls)
    for call, f in pairs:
        with np.errstate(all="ignore"):
            same((f.interpret if way == "interpret" else f)(*call.arrays), call.references(), text)
