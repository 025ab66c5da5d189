"""Ops that users declare: declarations that are refused, laws that find wrong rules, engines, graphs and files."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import difflang
import difflang.runtime
from difflang import graph as dg
from difflang.ir.op import OPS

X = np.array([0.5, 1.5])
SIGNATURE = "[T: float](x: T[n], y: T[m]) -> T[n, m]"


def cube(name: str = "cube", **changes: Any) -> dg.DeclaredOp:
    """An elementwise op, right unless something is changed."""
    facts: dict[str, Any] = {
        "elementwise": True, "reference": lambda x: x**3, "lower": lambda x: x**3,
        "jvp": lambda b, dx, y, x: dx * x * x * 3.0, "doc": "The third power.",
    }  # fmt: skip
    return dg.op(name, **{**facts, **changes})


def product(**changes: Any) -> dg.DeclaredOp:
    facts: dict[str, Any] = {
        "type": SIGNATURE, "reference": np.outer, "lower": jnp.outer, "multilinear": True, "doc": "All products.",
        "transpose": {
            "x": lambda b, ct, x, y: b.dot_general(ct, y, contract=((1,), (0,)), batch=((), ())),
            "y": lambda b, ct, x, y: b.dot_general(ct, x, contract=((0,), (0,)), batch=((), ())),
        },
    }  # fmt: skip
    return dg.op("products", **{**facts, **changes})


def refused(code: str, words: str, action: Callable[[], object]) -> str:
    """What an action is refused with, of that code and with these words."""
    with pytest.raises(difflang.DifflangError) as caught:
        action()
    said = caught.value.render()
    assert caught.value.diagnostics[0].code == code and words in said, said
    return said


# ---- Declarations


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"name": "add"}, "the package has an op `add`"),
        ({"name": "given"}, "the package has an op `given`"),  # in files of the first version
        ({"name": "sum"}, "a part of every builder"),
        ({"name": "a.b"}, "no name for an op"),
        ({"name": "fn"}, "reserved word"),
        ({"lower": None}, "has no `lower`"),
        ({"cost": 3}, "`cost` of `cube` is a function"),
        ({"doc": " "}, "has no `doc`"),
        ({"jvp": None}, "does not say what its derivative is"),
        ({"jvp": "x"}, "is a function, not 'x'"),
        ({"jvp": (None,)}, "no operand of `cube` has a `jvp`"),
        ({"jvp": {"z": abs}}, "no operand `z`"),
        ({"jvp": (abs, abs)}, "has 1 operand, but its `jvp` is 2 rules"),
        ({"inactive": True}, "is inactive, so it has no `jvp`"),
        ({"multilinear": True}, "multilinear, but has no `transpose`"),
        ({"elementwise": False}, "`cube` has no type"),
        ({"type": "x -> y"}, "cannot be read: `x -> y`"),
        ({"type": "(x: f64) -> f64 = 3"}, "cannot be read"),
        ({"type": "() -> f64"}, "has no operand"),
        ({"type": "(x: f64) -> ()"}, "has no result"),
        ({"type": "(x: Net[3]) -> f64"}, "`x` of `cube` is of type `Net[3]`"),
        ({"type": "(x: f64[n]) -> f64[m]"}, "the size `m` is not bound"),
        ({"type": "[T: float, U: float](x: T) -> U"}, "no operand of `cube` has the element type `U`"),
        ({"type": "[T: vec](x: T) -> T"}, "`T` of `cube` is not an element type"),
        ({"type": "(x: f64, k: dim = 3) -> f64"}, "has a default"),
        ({"type": "(x: f64, x: f64) -> f64"}, "two parameters `x`"),
        ({"type": "(x: f64[n], y: f64[m]) -> f64[n]", "jvp": (abs, abs)}, "its type has several shapes"),
        ({"type": lambda same, x, regions: x, "elementwise": False}, "has regions"),
        ({"type": lambda same, *xs: xs[0], "elementwise": False}, "takes any number of operands"),
        ({"type": lambda same, x: x, "elementwise": False}, "no samples can be drawn"),
        ({"reference": max}, "parameters of the reference of `cube` are not known"),
        ({"samples": (2, 1)}, "is no interval of samples"),
        ({"samples": {"z": (0, 1)}}, "no operand `z` to draw"),
        ({"samples": []}, "has no samples"),
        ({"samples": [{}]}, "lacks `x`"),
        ({"samples": [{"x": "f64", "k": 2}]}, "`k`, which is no operand"),
        ({"samples": [{"x": "f64[n]"}]}, "no shape of numbers"),
        ({"samples": [{"x": [[1.0], [2.0, 3.0]]}]}, "not an array or a type"),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_a_declaration_that_makes_no_sense(changes: dict[str, Any], words: str) -> None:
    before = OPS.get(changes.get("name", "cube"))
    refused("DL1270", words, lambda: cube(**changes))
    assert OPS.get(changes.get("name", "cube")) is before


def test_a_name_is_declared_once_unless_it_is_replaced() -> None:
    cube()
    refused("DL1270", "declared already, in `tests.unit.graph.test_ops`", cube)
    cube(replace=True, reference=np.square, lower=jnp.square)
    with dg.build(x="f64[2]") as b:
        b.output(b.cube(b.x))
    assert np.array_equal(b.graph.run(X)[0], X * X)


def test_a_declared_op_says_what_it_is() -> None:
    made = product()
    assert repr(made) == f"<op products{SIGNATURE}>" and (made.operands, made.attributes) == (("x", "y"), ())
    refused("DL1250", "no operand of `products` is a value", lambda: made(2.0, 3.0))
    page = dg.ops()[-1]
    assert (page.name, page.module, page.derivative) == (
        "products", __name__, "linear in each of x, y, with a transpose",
    )  # fmt: skip
    assert page.declaration == f"extern op products{SIGNATURE}" and "elementwise" not in page.laws
    assert len({p.name for p in dg.ops()}) == len(OPS)


# ---- Laws


KINDS: dict[str, Callable[[], dg.DeclaredOp]] = {
    "cube": cube,
    "products": product,
    "ranks": lambda: dg.op(
        "ranks", type="[T: float](x: T[n]) -> i32[n]", doc="The place of each number among all.",
        reference=lambda x: np.argsort(np.argsort(x, kind="stable"), kind="stable").astype(np.int32),
        lower=lambda x: jnp.argsort(jnp.argsort(x)).astype(jnp.int32),
    ),
    "sine_and_cosine": lambda: dg.op(
        "sine_and_cosine", type="[T: float](x: T[..s]) -> (T[..s], T[..s])", doc="Both.",
        reference=lambda x: (np.sin(x), np.cos(x)), lower=lambda x: (jnp.sin(x), jnp.cos(x)),
        jvp=lambda b, dx, y, x: (dx * y[1], -(dx * y[0])),
    ),
    "mean_of": lambda: dg.op(
        "mean_of", type="[T: float](x: T[n]) -> T", doc="The mean.", reference=lambda x: np.mean(x, dtype=x.dtype),
        lower=jnp.mean, jvp=lambda b, dx, y, x: b.sum(dx) / b.const(x.shape[0], y),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", KINDS)
def test_laws_hold_for_an_op_of_each_kind(name: str) -> None:
    report = dg.check_op(KINDS[name]())
    assert report.right and [law.law for law in report.laws if not law.skipped] == list(dg.ops()[-1].laws), report


@pytest.mark.parametrize(
    ("changes", "law", "words"),
    [
        ({"jvp": lambda b, dx, y, x: dx * x * x * 2.0}, "jvp", "expected"),
        ({"jvp": lambda b, dx, y, x: b.sin(dx)}, "rules", "is not linear in `dx`"),
        ({"jvp": lambda b, dx, y, x: b.sum(dx)}, "rules", "gives f64[], not f64[3]"),
        ({"jvp": lambda dx, y, x: dx}, "rules", "takes 3 positional arguments"),
        ({"jvp": lambda b, dx, y, x: 3.0}, "rules", "gives a float, not a value"),
        ({"lower": lambda x: x**3 * 1.001}, "lowering", "got"),
        ({"lower": lambda x: jnp.where(jnp.isnan(x), 0.0, x**3)}, "special values", "nan"),
        ({"lower": lambda x: x.sum()}, "lowering", "the lowering of `cube` gives f64[], not f64[3]"),
        ({"reference": lambda x: np.sum(x)}, "types", "the reference of `cube` gives f64[], not f64[3]"),
        ({"reference": lambda x: (x**3).astype(np.float64)}, "types", "gives f64[3], not f32[3]"),
        ({"reference": lambda x: 1 / 0}, "types", "raised ZeroDivisionError"),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_a_wrong_rule_is_found(changes: dict[str, Any], law: str, words: str) -> None:
    cube(**changes)
    with pytest.raises(difflang.OpLawError) as caught:
        dg.check_op("cube")
    broken = [found for found in caught.value.report.laws if found.fault]  # type: ignore[attr-defined]
    assert broken[0].law == law and words in broken[0].fault, broken


def test_a_report_names_arrays_as_the_op_does() -> None:
    product(transpose={"x": lambda b, ct, x, y: b.broadcast(b.sum(ct), shape=x.shape, axes=())}, multilinear=False)
    with pytest.raises(difflang.OpLawError) as caught:
        dg.check_op("products")
    said = str(caught.value)
    assert all(f"\n                {name} " in said for name in ("x", "y", "dx", "ct", "got", "expected")), said


def test_more_wrong_rules_are_found() -> None:
    dg.op(
        "total", type="(x: f64[n]) -> f64", reference=np.sum, lower=jnp.sum, doc="The sum.",
        transpose=lambda b, ct, x: b.broadcast(ct * 2.0, shape=x.shape, axes=()),
        batch=lambda b, batched, x: b.reduce_sum(x, axes=(1,)) * 2.0,
    )  # fmt: skip
    said = refused("DL1274", "transpose, second order, batching", lambda: dg.check_op("total"))
    assert "<Jᵀ ct, dx>" in said


def test_an_op_without_f64_is_compared_in_extended_precision() -> None:
    square: dict[str, Any] = {
        "type": "(x: f32[n]) -> f32[n]", "reference": np.square, "lower": jnp.square, "doc": "The square."
    }  # fmt: skip
    dg.op("square", jvp=lambda b, dx, y, x: dx * x * 2.0, **square)
    assert next(law for law in dg.check_op("square").laws if law.law == "jvp").calls == 2
    dg.op("square", jvp=lambda b, dx, y, x: dx * x * 2.00001, replace=True, **square)
    refused("DL1274", "1 law: jvp", lambda: dg.check_op("square"))


def test_laws_of_what_cannot_be_tested() -> None:
    refused("DL0201", "there is no op `cubes`", lambda: dg.check_op("cubes"))
    refused("DL1207", "the op `cond` has no samples", lambda: dg.check_op("cond"))


def test_a_type_that_is_a_function() -> None:
    def type(same: Any, x: Any, y: Any, *, axis: int) -> Any:
        same.dtype(x, y)
        same.require(0 <= axis < x.rank, "there is no axis {}", axis)
        return x, dg.array_type("i32", x.drop_axes(axis).shape)

    dg.op(
        "odd", type=type, doc="Odd.", inactive=True, samples=[{"x": "f64[3, 2]", "y": "f64", "axis": 1}],
        reference=lambda x, y, axis: (x + y, x.argmax(axis).astype(np.int32)),
        lower=lambda x, y, axis: (x + y, x.argmax(axis).astype(jnp.int32)),
    )  # fmt: skip
    assert dg.check_op("odd").right
    with dg.build(x="f64[3, 2]", y="f64") as b:
        refused("DL1250", "there is no axis 2", lambda: b.odd(b.x, b.y, axis=2))
        b.output(*b.odd(b.x, b.y, axis=0))
    dg.op("worse", type=lambda same, x: 1 / 0, samples=[{"x": "f64"}], reference=abs, lower=abs, inactive=True, doc="?")
    refused("DL1274", "its type rule raised ZeroDivisionError", lambda: dg.check_op("worse"))


# ---- Rules


def filled(b: Any, number: float, like: Any) -> Any:
    return b.broadcast(b.const(number, like.dtype), shape=like.shape, axes=())


def test_a_rule_may_use_branches_loops_and_other_ops() -> None:
    cube()
    dg.op(
        "power", type="(x: f64[n], k: dim) -> f64[n]", reference=lambda x, k: x**k, lower=lambda x, k: x**k, doc="x^k",
        jvp=lambda b, dx, y, x, k: dx * b.loop(k - 1, lambda b, i, s: s * x, filled(b, k, x)),
    )  # fmt: skip
    assert dg.check_op("power").right
    dg.op(
        "sixth", elementwise=True, reference=lambda x: x**6, lower=lambda x: x**6, doc="x^6",
        jvp=lambda b, dx, y, x: dx * b.cube(x) * x * x * 6.0,
    )  # fmt: skip
    assert dg.check_op("sixth").right


@pytest.mark.parametrize(
    "rules",
    [
        {"jvp": {"x": lambda b, dx, y, x, w: b.sum(dx * w)}},
        {"transpose": {"x": lambda b, ct, x, w: b.broadcast(ct, shape=x.shape, axes=()) * w}},
    ],
    ids=["jvp", "transpose"],
)
def test_the_derivative_in_an_operand_without_rule_is_an_error_at_the_line(rules: dict[str, Any]) -> None:
    dg.op("half", type="(x: f64[n], w: f64[n]) -> f64", reference=np.dot, lower=jnp.dot, doc="Dot.", **rules)
    assert dg.check_op("half").right
    f = difflang.loads("extern op half(x: f64[n], w: f64[n]) -> f64\nfn f(x: f64[n], w: f64[n]) -> f64 = half(x, w)").f
    assert np.array_equal(f.grad("x")(X, 2 * X), 2 * X)
    said = refused("DL0413", "the op `half` has no derivative in `w`", lambda: f.grad("w")(X, X))
    assert "2 | fn f" in said


def test_a_batching_rule_replaces_the_loop() -> None:
    total: dict[str, Any] = {
        "type": "(x: f64[n]) -> f64", "reference": np.sum, "lower": jnp.sum, "doc": "The sum.",
        "transpose": lambda b, ct, x: b.broadcast(ct, shape=x.shape, axes=()),
    }  # fmt: skip
    text = "extern op total(x: f64[n]) -> f64\nfn rows(x: f64[m, n]) -> f64[m] = [for i => total(x[i])]"

    def ops_of_rows() -> list[str]:
        rows = difflang.loads(text).rows
        assert np.array_equal(rows(np.ones((2, 3))), [3.0, 3.0])
        return [e.op for e in rows.graph("f64[2, 3]", stage="optimized").walk()]

    dg.op("total", **total)
    assert "map" in ops_of_rows()
    dg.op("total", batch=lambda b, batched, x: b.reduce_sum(x, axes=(1,)), replace=True, **total)
    assert ops_of_rows() == ["reduce_sum"]
    dg.op("total", batch=lambda b, batched, x: None, replace=True, **total)
    assert "map" in ops_of_rows() and dg.check_op("total").right
    dg.op("total", batch=lambda b, x: x, replace=True, **total)
    refused("DL1271", "it is called as `rule(b, batched, x)`", ops_of_rows)


def test_a_reference_cannot_write_to_its_operands() -> None:
    cube(reference=lambda x: x.__setitem__(0, 7.0))
    f = difflang.loads("extern op cube(x: f64[n]) -> f64[n]\nfn f(x: f64[n]) -> f64 = sum(cube(x))").f
    x = X.copy()
    refused("DL1271", "the reference of `cube` raised ValueError", lambda: f.interpret(x))
    assert np.array_equal(x, X)


def test_a_transpose_that_reads_what_it_is_transposed_in() -> None:
    cube(jvp=None, transpose=lambda b, ct, x: ct * x)
    f = difflang.loads("extern op cube(x: f64) -> f64\nfn f(x: f64) -> f64 = cube(x)").f
    refused("DL1271", "a rule knows only `type`, `dtype` and `shape`", lambda: f.grad()(1.0))


def test_a_cost_that_is_no_number() -> None:
    text = "extern op cube(x: f64[n]) -> f64[n]\nfn f(x: f64[n]) -> f64 = sum(cube(x))"
    cube(cost=lambda x: 2 * x.shape[0])
    assert " 1,000 " not in str(difflang.loads(text).f.cost("f64[500]")).split("\n")[0]
    for wrong, words in ((lambda x: 1 / 0, "raised ZeroDivisionError"), (lambda x: "many", "'many', no number")):
        cube(cost=wrong, replace=True)
        refused("DL1271", words, lambda: difflang.loads(text).f.cost("f64[500]"))


def test_a_primitive_without_batches() -> None:
    bare = jax.extend.core.Primitive("bare")
    bare.def_abstract_eval(lambda x: x)
    cube(lower=lambda x: bare.bind(x))
    f = difflang.loads("extern op cube(x: f64[n]) -> f64[n]\nfn f(x: f64[n]) -> f64 = sum(cube(x))").f
    assert "2 | fn f" in refused("DL1271", "JAX cannot lower this program for `cpu`", lambda: f(X))


def test_a_kernel_of_pallas() -> None:
    from jax.experimental import pallas as pl

    def kernel(x: Any, out: Any) -> None:
        out[...] = x[...] ** 3

    def lower(x: Any, interpret: bool = False) -> Any:
        shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
        return pl.pallas_call(kernel, out_shape=shape, interpret=interpret)(x) if x.size else x

    cube(lower=lower, lower_cpu=lambda x: lower(x, interpret=True))
    assert dg.check_op("cube").right
    with dg.build("g", x="f64[3]") as b:
        b.output(b.cube(b.x))
    assert b.graph.memory().account.peak == 48
    cube(lower=lower, replace=True)
    f = difflang.loads("extern op cube(x: f64[n]) -> f64[n]\nfn f(x: f64[n]) -> f64 = sum(cube(x))").f
    assert "2 | fn f" in refused("DL1271", "Only interpret mode is supported on CPU", lambda: f(X))


# ---- Graphs and files


def test_a_graph_with_an_op_of_users_as_text_and_json() -> None:
    swept = cube()
    with dg.build("f", x="f64[n]") as b:
        b.output(b.sum(swept(b.x)))
    g = b.graph
    assert dg.Graph.from_json(g.to_json()) == g and dg.parse(g.text()) == g
    assert np.allclose(g.run(X)[0], g.run(X, engine="interpret")[0], rtol=1e-15)
    refused("DL1272", "the op 'cubes'", lambda: dg.Graph.from_json(g.to_json().replace('"cube"', '"cubes"')))
    refused("DL1203", "there is no op called `cubes`", lambda: dg.parse(g.text().replace("cube", "cubes")))


def test_an_artifact_loads_where_the_op_is_declared(tmp_path: Any) -> None:
    made = cube()
    f = difflang.loads("extern op cube(x: f64[n]) -> f64[n]\nfn f(x: f64[n]) -> f64 = sum(cube(x))").f
    f.export(tmp_path / "f.dflx", "f64[2]", platforms=())
    loaded = difflang.runtime.load(tmp_path / "f.dflx")
    assert loaded(X) == f(X) and np.array_equal(loaded.grad()(X), f.grad()(X))
    del OPS["cube"]
    refused("DL1272", "the op 'cube'", lambda: difflang.runtime.load(tmp_path / "f.dflx"))
    OPS["cube"] = made.op
    cube(lower=lambda x: jax.pure_callback(lambda v: v**3, x, x, vmap_method="sequential"), replace=True)
    f = difflang.loads("extern op cube(x: f32[n]) -> f32[n]\nfn f(x: f32[n]) -> f32 = sum(cube(x))").f
    refused("DL0801", "no StableHLO", lambda: f.export(tmp_path / "g.dflx", "f32[2]", platforms=("cpu",)))


def test_what_jax_writes_gets_the_passes_of_xla_that_it_needs() -> None:
    dg.op(
        "rest", type="(x: f64[n]) -> f64[n - 1]", reference=lambda x: x[1:], doc="All but the first.",
        lower=lambda x: jax.lax.pad(x, np.float64(0), [(-1, 0, 0)]),
        transpose=lambda b, ct, x: b.pad(ct, b.const(0.0, "f64"), low=(1,), high=(0,), interior=(0,)),
    )  # fmt: skip
    assert dg.check_op("rest").right
