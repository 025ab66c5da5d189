"""One file speaks for every op that will ever be declared: what the tests need is in the declaration."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import numpy as np
import pytest
from msgspec.structs import replace

from difflang.gradcheck.op_calls import OpCall, calls_of, check_close
from difflang.gradcheck.op_derivatives import (
    active_arrays,
    check_adjoint,
    check_jvp,
    check_second_order,
    jvp_graph,
    random_tangents,
    rounding_scales,
    rounding_sensitivity,
    vjp_graph,
)
from difflang.ir.graph import Value
from difflang.ir.interpreter import evaluate
from difflang.ir.op import OPS, Op
from difflang.ir.tensor_types import BF16, C64, C128, F16, F32, F64, DType, Tensor, Type, numpy_dtype
from support.nightly import by_day
from support.op_calls import DIFFERENTIABLE, DRAWN, lower_call, lowered

DOUBLE = (np.dtype(np.float64), np.dtype(np.complex128))
HISTORIES = {"empty_history", "add_history"}  # they have no arrays to draw; tested with loops

every_op = pytest.mark.parametrize("op", DRAWN, ids=str)
every_active_op = pytest.mark.parametrize("op", DIFFERENTIABLE, ids=str)


def rng() -> np.random.Generator:
    return np.random.default_rng(20_2407)


def active_calls(op: Op, *dtypes: DType) -> list[OpCall]:
    return [c for c in calls_of(op) if c.active and any(x.dtype == numpy_dtype(d) for x in c.arrays for d in dtypes)]


def double_calls(op: Op) -> list[OpCall]:
    """In f64 or c128, whatever else the op takes."""
    found = [c for c in calls_of(op, (F64, C128)) if c.active]
    return [c for c in found if all(x.dtype in DOUBLE for x in (*active_arrays(c.arrays, c.wrt), *c.references()))]


@pytest.mark.parametrize("op", OPS.values(), ids=str)
def test_an_op_can_be_drawn_and_is_described(op: Op) -> None:
    assert op.doc
    assert op.samples is not None or op.equation_rules or op.is_derivative or op.effect or op.name in HISTORIES


@every_op
def test_the_reference_has_the_type_of_the_rule(op: Op) -> None:
    for call in calls_of(op):
        for y, want in zip(call.references(), call.results, strict=True):
            assert (y.dtype, y.shape) == (numpy_dtype(want.dtype), want.shape), str(call)


@pytest.mark.as_users
@every_op
@pytest.mark.nightly_cases("cofactors|digamma|solve|expm|polygamma|gamma|lgamma|svd|lu|slogdet|erfinv_slope")
def test_compiled_is_the_reference(op: Op) -> None:
    """Type and value, alone and batched over two lanes, everything of one op (by day some) in one executable."""
    calls = some(calls_of(op))
    lanes = [c for c in calls if c.arrays and c.arrays[0].dtype.itemsize <= 4 and c.arrays[0].dtype.kind != "V"]
    lanes = lanes[: by_day(1, 4)]

    def everything(given: list[list[Any]], doubled: list[list[Any]]) -> tuple[list[Any], list[Any]]:
        alone = [lower_call(c, *xs) for c, xs in zip(calls, given, strict=True)]
        batched = [jax.vmap(partial(lower_call, c))(*xs) for c, xs in zip(lanes, doubled, strict=True)]
        return alone, batched

    pairs = [[np.stack([x, x[..., ::-1] if x.ndim else x]) for x in c.arrays] for c in lanes]
    with jax.enable_x64(True):
        alone, batched = jax.jit(everything)([list(c.arrays) for c in calls], pairs)
    for call, got in zip(calls, alone, strict=True):
        compare(call, got, call)
    for call, xs, got in zip(lanes, pairs, batched, strict=True):
        for lane in (0, 1):
            single = replace(call, arrays=tuple(x[lane] for x in xs))
            compare(single, [y[lane] for y in got], f"lane {lane} of {call}")


def some(calls: list[OpCall]) -> list[OpCall]:
    """By day the first call in f32, in f64 and in one other type, of an op without arrays the first; at night all."""
    first = {tuple(x.dtype for x in c.arrays): c for c in reversed(calls)}
    exact = [t for t in reversed(first) if np.float32 in t or np.float64 in t]
    others = [t for t in reversed(first) if t not in exact]
    return by_day([first[t] for t in (*exact[:2], *others[:1])], calls)


def compare(call: OpCall, got: list[Any], what: object) -> None:
    for y, want, scale in zip(got, call.references(), rounding_scales(call), strict=True):
        check_close(np.asarray(y), want, scale, 0 if "bit exact" in call.op.traits else 32, what)


@every_op
def test_lowering_keeps_narrow_types_whatever_the_setting(op: Op) -> None:
    """With 64-bit types switched off, everything narrow has the type the rule says."""
    calls = [c for c in calls_of(op) if narrow(c)]
    with jax.enable_x64(False):
        for call in calls[:3]:
            shapes = jax.eval_shape(partial(lower_call, call), *call.arrays)
            assert [s.dtype for s in shapes] == [numpy_dtype(r.dtype) for r in call.results], str(call)


def narrow(call: OpCall) -> bool:
    dtypes = [numpy_dtype(t.dtype) for t in (*call.types, *call.results)]
    return all(d.itemsize <= (8 if d.kind == "c" else 4) for d in dtypes)


@every_op
@pytest.mark.nightly_cases("cofactors|expm|solve|slogdet|det|lu")
def test_it_lowers_for_cuda_and_tpu(op: Op) -> None:
    calls = calls_of(op)[: by_day(2, 6)]
    with jax.enable_x64(True):
        traced = jax.jit(lambda given: [lower_call(c, *xs) for c, xs in zip(calls, given, strict=True)]).trace(
            [list(c.arrays) for c in calls]
        )
        for platform in ("cuda", "tpu"):
            assert "func.func" in traced.lower(lowering_platforms=(platform,)).as_text()


@every_active_op
def test_the_jvp_is_the_derivative(op: Op) -> None:
    calls = double_calls(op)
    assert calls, "no sample in double precision"
    for call in calls:
        check_jvp(call.smooth(), call.arrays, call.wrt, rng(), call)


@every_active_op
def test_the_transpose_is_the_adjoint_of_the_jvp(op: Op) -> None:
    """In every float type that it takes."""
    for call in calls_of(op):
        if call.active:
            check_adjoint(call.graph(), call.arrays, call.wrt, rng(), call)


@every_active_op
@pytest.mark.nightly_cases("solve|expm|cofactors")
def test_the_second_derivative(op: Op) -> None:
    """The pullback is a function of operands and cotangent, and so is the push: both are differentiated again."""
    for call in double_calls(op)[:3]:
        check_second_order(call, rng())


@every_active_op
@pytest.mark.nightly_cases("solve|expm|cofactors")
def test_the_third_derivative(op: Op) -> None:
    for call in double_calls(op)[:1]:
        ct = random_tangents(rng(), evaluate(call.graph(), *call.arrays))
        once = vjp_graph(call.graph(), call.wrt)
        wrt = (*call.wrt, *(False for _ in ct))
        args = [*call.arrays, *ct]
        twice = vjp_graph(once, wrt)
        more = random_tangents(rng(), evaluate(once, *args))
        check_jvp(twice, [*args, *more], (*wrt, *(False for _ in more)), rng(), f"the vjp of the vjp of {call}")


@every_active_op
def test_derivatives_of_real_numbers_know_nothing_of_complex_ones(op: Op) -> None:
    """No conjugate, no part, no complex value, in either mode and again: conjugation is for complex operands alone."""
    for call in calls_of(op):
        if call.active and not any(is_complex(t) for t in (*call.types, *call.results)):
            once = vjp_graph(call.graph(), call.wrt)
            twice = vjp_graph(once, tuple(p.type.tangent is not None for p in once.params))
            for graph in (once, twice, jvp_graph(call.graph(), call.wrt)):
                assert not any(is_complex(v.type) for eqn in graph.eqns for v in (*eqn.operands, *eqn.results))
                assert not any("not holomorphic" in eqn.op.traits and eqn.op is not op for eqn in graph.eqns)


def is_complex(type: Type) -> bool:
    return isinstance(type, Tensor) and type.dtype.kind == "complex"


@every_active_op
@pytest.mark.nightly_cases("cofactors|digamma|solve|expm|polygamma|gamma|lgamma|det|lu|slogdet|erfinv_slope")
def test_compiled_derivatives_are_the_interpreted_ones(op: Op) -> None:
    """Push and pull in every float type (by day in f32 and, where there is no such call, in f64), everything of one op
    in one executable.
    """
    jobs: list[tuple[str, Any, list[Any]]] = []
    by_type = [active_calls(op, dtype)[: by_day(1, 2)] for dtype in (F32, F64, F16, BF16, C64)]
    for calls in by_day([c for c in by_type if c][:1], by_type):
        for call in calls:
            f = call.graph()
            dxs = random_tangents(rng(), active_arrays(call.arrays, call.wrt))
            cts = random_tangents(rng(), evaluate(f, *call.arrays))
            jobs.append((f"the jvp of {call}", jvp_graph(f, call.wrt), [*call.arrays, *dxs]))
            jobs.append((f"the vjp of {call}", vjp_graph(f, call.wrt), [*call.arrays, *cts]))
    with jax.enable_x64(True):
        found = jax.jit(lambda given: [lowered(g)(*xs) for (_, g, _), xs in zip(jobs, given, strict=True)])(
            [xs for _, _, xs in jobs]
        )
    for (what, graph, xs), results in zip(jobs, found, strict=True):
        scales = rounding_sensitivity(graph, xs, rng())
        for got, want, scale in zip(results, evaluate(graph, *xs), scales, strict=True):
            check_close(np.asarray(got), want, scale, 32, what)


# ------------------------------------------------------------------------------------- negative controls


def with_rules(op: Op, **rules: Any) -> Op:
    return replace(op, derivative=replace(op.operand_rules, **rules))


def wrong_jvp(op: Op) -> Op:
    """Each rule's tangent off by one part in a million."""

    def stretched(found: Any) -> Any:
        return tuple(y and y * (1 + 1e-6) for y in found) if isinstance(found, tuple) else found * (1 + 1e-6)

    rules = [r and (lambda d, *a, r=r, **k: stretched(r(d, *a, **k))) for r in op.operand_rules.jvp or ()]
    return with_rules(op, jvp=rules)


def wrong_transpose(op: Op) -> Op:
    rules = [r and (lambda ct, *a, r=r, **k: r(ct, *a, **k) * (1 + 1e-9)) for r in op.operand_rules.transpose or ()]
    return with_rules(op, transpose=rules)


def wrong_reference(op: Op) -> Op:
    def reference(*xs: Any, **attrs: Any) -> Any:
        found = op.reference(*xs, **attrs)
        wrong = [(y * np.float32(1 + 1e-5)).astype(y.dtype) for y in (found if isinstance(found, tuple) else [found])]
        return tuple(wrong) if isinstance(found, tuple) else wrong[0]

    return replace(op, reference=reference)


@pytest.mark.parametrize(
    "name",
    [
        *("exp", "tanh", "pow", "max", "lgamma", "reduce_prod", "max_pool", "hypot", "cumprod", "recurrence"),
        *("scatter_mul", "solve", "det", "svd", "lu"),
    ],
)
def test_a_wrong_jvp_is_noticed(name: str) -> None:
    op = wrong_jvp(OPS[name])
    with pytest.raises(AssertionError, match="differences"):
        for call in double_calls(op):
            check_jvp(call.graph(), call.arrays, call.wrt, rng(), call)


@pytest.mark.parametrize(
    "name",
    ["mul", "dot_general", "conv", "fold", "gather", "scatter", "pad", "select", "reduce_sum", "fft", "rfft"],
)
def test_a_wrong_transpose_is_noticed(name: str) -> None:
    op = wrong_transpose(OPS[name])
    with pytest.raises(AssertionError, match="<ct, J dx>"):
        for call in double_calls(op):
            check_adjoint(call.graph(), call.arrays, call.wrt, rng(), call)


@pytest.mark.parametrize("name", ["sin", "sqrt", "concat", "dynamic_slice", "cholesky", "eigh"])
def test_a_wrong_value_is_noticed(name: str) -> None:
    with pytest.raises(AssertionError, match="is not"):
        test_compiled_is_the_reference(wrong_reference(OPS[name]))


@pytest.mark.parametrize("name", ["mul", "dot_general"])
def test_a_transpose_without_its_conjugate_is_noticed(name: str) -> None:
    """Over the real numbers there is no difference, over the complex ones there is."""

    def bare(ct: Value, *operands: Any, rule: Any, **attrs: Any) -> Value:
        return rule(ct, *[OPS["conj"].one(x) if isinstance(x, Value) else x for x in operands], **attrs)

    rules = [r and partial(bare, rule=r) for r in OPS[name].operand_rules.transpose or ()]
    with pytest.raises(AssertionError, match="<ct, J dx>"):
        for call in calls_of(with_rules(OPS[name], transpose=rules), (C64, C128)):
            check_adjoint(call.graph(), call.arrays, call.wrt, rng(), call)


def test_a_wrong_second_derivative_is_noticed() -> None:
    """The slope of tanh is right, the slope of that slope is not."""
    tanh, sech2 = OPS["tanh"], OPS["sech2"]
    broken = with_rules(sech2, jvp=(lambda dx, y, x: dx * tanh.one(x) * y * -2.001,))
    op = with_rules(tanh, jvp=(lambda dx, y, x: dx * broken.one(x),))
    test_the_jvp_is_the_derivative(op)
    with pytest.raises(AssertionError, match="differences"):
        test_the_second_derivative(op)
