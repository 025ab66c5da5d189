"""`extern fn`: functions of JAX, flax and NumPy in programs, their types, their derivatives, and what is refused."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import difflang
from difflang.ir.op import OPS

WAVE = """
extern fn wave(x: f64[n]) -> f64[n]
fn energy(x: f64[n]) -> f64 = sum(wave(x)^2)
fn rows(a: f64[m, n]) -> f64[m] = [for i => sum(wave(a[i]))]
fn often(x: f64[n], k: i32) -> f64[n] {
  var y = x
  for _ in 0..k { y = wave(y) }
  y
}
fn until(x: f64[n], least: f64) -> f64[n] {
  var y = x
  while sum(y) > least { y = wave(y) }
  y
}
"""
RULE = "rule wave(x) { (wave(x), linear |dx| cos(x) * dx) }\n"
X = np.array([1.0, 2.0])
A = np.array([[1.0, 2.0], [0.5, 0.25], [3.0, -1.0]])
WITH = difflang.extern(jnp.sin, jvp=lambda x, dx: jnp.cos(x) * dx, vjp=lambda x, ct: jnp.cos(x) * ct)
HOST = difflang.extern(np.sin, host=True, jvp=lambda x, dx: np.cos(x) * dx, vjp=lambda x, ct: np.cos(x) * ct)


def wave(given: Any, more: str = "") -> Any:
    return difflang.loads(WAVE + more, externs={"wave": given})


def code_of(run: Callable[[], Any]) -> str:
    with pytest.raises(difflang.DifflangError) as caught:
        run()
    return caught.value.diagnostics[0].code


# ---- Values


@pytest.mark.parametrize("given", [jnp.sin, HOST], ids=["jax", "host"])
def test_it_is_called_wherever_a_function_is(given: Any) -> None:
    m = wave(given)
    thrice = np.sin(np.sin(np.sin(X)))
    for call in (lambda f, *xs: f(*xs), lambda f, *xs: f.interpret(*xs)):
        np.testing.assert_allclose(call(m.energy, X), np.sum(np.sin(X) ** 2))
        np.testing.assert_allclose(call(m.rows, A), np.sin(A).sum(1))
        np.testing.assert_allclose(call(m.often, X, 3), thrice)
        np.testing.assert_allclose(call(m.until, X, 1.3), np.sin(thrice))


@pytest.mark.parametrize("given", [jnp.sin, HOST], ids=["jax", "host"])
def test_it_is_part_of_programs_of_jax(given: Any) -> None:
    m = wave(given)
    with jax.enable_x64(True):
        np.testing.assert_allclose(jax.jit(m.energy)(X), np.sum(np.sin(X) ** 2))
        np.testing.assert_allclose(jax.vmap(m.energy)(A), np.sum(np.sin(A) ** 2, 1))
        lengths = np.array([1.5, 1.2, 0.1])
        lanes = jax.vmap(m.until)(np.stack([X, X, X]), lengths)
    np.testing.assert_array_equal(lanes, [m.until(X, float(n)) for n in lengths])


def test_element_types_of_all_widths_go_there_and_back_whatever_jax_is_told() -> None:
    source = "extern fn all(x: c128[n], k: i64, b: bool, h: bf16, c: c64) -> (c128[n], i64, bool, bf16, c64)"
    same = lambda x, k, b, h, c: (x * 1j, k + 2**40, ~b, h, c)
    for given in (same, difflang.extern(same, host=True)):
        m = difflang.loads(source, externs={"all": given})
        for call in (m.all, m.all.interpret):
            x, k, b, h, c = call(np.array([1 + 2j, 3e-300]), np.int64(5), True, 1.5, np.complex64(1j))
            assert x.dtype == np.complex128 and x.tolist() == [-2 + 1j, 3e-300j]
            assert (k.dtype, int(k), bool(b), float(h), complex(c)) == (np.int64, 5 + 2**40, False, 1.5, 1j)


def test_a_function_of_constants_runs_where_it_is_called_and_not_before() -> None:
    source = (
        "extern fn count(k: i32) -> i32\n"
        "fn f(x: f64) -> f64 = if x > 0.0 { x } else { if count(3) > 2 { -x } else { 0.0 } }"
    )
    called: list[int] = []
    count = difflang.extern(lambda k: np.int32(called.append(int(k)) or 5), host=True)
    m = difflang.loads(source, externs={"count": count})
    assert float(m.f(2.0)) == 2.0 and not called
    assert float(m.f(-2.0)) == 2.0 and called == [3]
    assert "extern" in difflang.loads(source).f.ir("optimized", 2.0)  # what is not bound can be compiled, but not run


def test_narrow_functions_are_traced_as_outside() -> None:
    """What JAX makes by itself is of 32 bits there, so it is here too."""
    m = difflang.loads("extern fn steps(n: dim, x: f32) -> f32[n]", externs={"steps": lambda n, x: x * jnp.ones(n)})
    assert m.steps(3, 2.0).tolist() == [2, 2, 2]


def test_records_tuples_enums_texts_and_keys_go_there() -> None:
    source = """
    record Net[d] { w: f32[d], b: f32 }
    enum Shape { Circle(r: f32), Box(w: f32, h: f32) }
    extern fn grown(m: Net[d], by: f32) -> (Net[d], i32)
    extern fn area(s: Shape) -> f32
    extern fn named(x: f32, how: str) -> f32
    extern fn noise(k: key) -> f32[3]
    fn twice(m: Net[d]) -> Net[d] { let (n, _) = grown(m, 2.0)
      n }
    fn both(s: Shape) -> f32 = area(s) + named(2.0, "square")
    """
    m = difflang.loads(
        source,
        externs={
            "grown": lambda m, by: ({"w": m.w * by, "b": m.b}, 3),
            "area": lambda s: s.w * s.h if hasattr(s, "w") else 3 * s.r**2,
            "named": lambda x, how: {"square": jnp.square, "half": lambda x: x / 2}[how](x),
            "noise": lambda k: jax.random.normal(k, (3,)),
        },
    )
    net = m.twice(m.Net(w=np.ones(2, np.float32), b=1.0))
    assert type(net) is m.Net and net.w.tolist() == [2, 2] and float(net.b) == 1
    assert float(m.both(m.Box(2.0, 3.0))) == 10 and float(m.both(m.Circle(1.0))) == 7
    np.testing.assert_array_equal(m.noise(jax.random.PRNGKey(1)), jax.random.normal(jax.random.PRNGKey(1), (3,)))


def test_a_module_of_flax_is_a_function() -> None:
    layer = nnx.Linear(3, 2, rngs=nnx.Rngs(0))
    source = "extern fn layer(x: f32[n, 3]) -> f32[n, 2]\nfn total(x: f32[n, 3]) -> f32 = sum(layer(x))"
    x = np.ones((4, 3), np.float32)
    np.testing.assert_allclose(difflang.loads(source, externs={"layer": layer}).total(x), layer(x).sum(), rtol=1e-6)
    changing = nnx.BatchNorm(3, rngs=nnx.Rngs(0))
    bad = difflang.loads("extern fn layer(x: f32[n, 3]) -> f32[n, 3]", externs={"layer": changing})
    assert code_of(lambda: bad.layer(x)) == "DL1232"


def test_those_of_imported_modules(tmp_path: Path) -> None:
    (tmp_path / "layer.dfl").write_text("pub extern fn act(x: f32) -> f32\npub fn twice(x: f32) -> f32 = act(act(x))\n")
    (tmp_path / "main.dfl").write_text('import "./layer.dfl" as layer\nfn f(x: f32) -> f32 = layer.twice(x)\n')
    (tmp_path / "one.dfl").write_text('import "./layer.dfl" (act)\nfn f(x: f32) -> f32 = act(act(x))\n')
    for file, name in (("main.dfl", "layer.act"), ("one.dfl", "act")):
        m = difflang.load(tmp_path / file, externs={name: jnp.tanh})
        np.testing.assert_allclose(m.f(1.0), np.tanh(np.tanh(np.float32(1))), rtol=1e-6)


def test_top_level_values_of_a_loaded_file_call_it() -> None:
    m = difflang.loads(WAVE + "let e = energy([1.0, 2.0])\nfn f(x: f64) -> f64 = x * e", externs={"wave": jnp.sin})
    np.testing.assert_allclose(m.f(2.0), 2 * np.sum(np.sin(X) ** 2))


def test_compile_takes_them_and_means_the_function_of_the_language() -> None:
    f = difflang.compile("extern fn g(x: f32) -> f32\nfn f(x: f32) -> f32 = g(x) + 1.0", externs={"g": jnp.square})
    assert float(f(3.0)) == 10


def test_two_functions_under_one_name_are_two() -> None:
    """Graphs are compared by what they call, so no cache mixes them up."""
    a, b = wave(jnp.sin), wave(jnp.cos)
    assert float(a.energy(X)) != float(b.energy(X))
    assert OPS["extern"].effect == ""


# ---- Derivatives


def test_with_a_rule_it_has_derivatives_of_any_order() -> None:
    m = wave(jnp.sin, RULE)
    np.testing.assert_allclose(m.energy.grad()(X), np.sin(2 * X))
    np.testing.assert_allclose(m.energy.hessian()(X), np.diag(2 * np.cos(2 * X)), atol=1e-15)
    assert m.energy.check_grad(X, order=2).right
    with jax.enable_x64(True):
        np.testing.assert_allclose(jax.hessian(m.energy)(X), np.diag(2 * np.cos(2 * X)), atol=1e-15)


def test_implicit_rules_differentiate_solvers_of_python() -> None:
    m = difflang.loads(
        "extern fn root(x: f64) -> f64\nrule root(x) by implicit |y| y * y - x\nfn f(x: f64) -> f64 = root(x)",
        externs={"root": difflang.extern(np.sqrt, host=True)},
    )
    np.testing.assert_allclose([m.f.grad()(4.0), m.f.hessian()(4.0)], [0.25, -1 / 32])


@pytest.mark.parametrize("given", [WITH, HOST], ids=["jax", "host"])
def test_bound_with_its_derivative_it_has_the_first_one(given: Any) -> None:
    m = wave(given)
    np.testing.assert_allclose(m.energy.grad()(X), np.sin(2 * X))
    np.testing.assert_allclose(m.energy.grad().interpret(X), np.sin(2 * X))
    np.testing.assert_allclose(m.energy.jvp()(X, X)[1], np.sin(2 * X) @ X)
    np.testing.assert_allclose(m.rows.jacrev()(A), m.rows.jacfwd()(A))
    slope = np.cos(X) * np.cos(np.sin(X))
    np.testing.assert_allclose(m.often.jacrev()(X, 2), np.diag(slope), atol=1e-15)
    assert m.energy.check_grad(X).right
    assert code_of(lambda: m.energy.hessian()(X)) == "DL0413"
    assert code_of(lambda: m.energy.hvp()(X, X)) == "DL0413"
    with jax.enable_x64(True):
        np.testing.assert_allclose(jax.grad(m.energy)(X), np.sin(2 * X))
        np.testing.assert_allclose(jax.vmap(jax.grad(m.energy))(A), np.sin(2 * A))
        assert code_of(lambda: jax.hessian(m.energy)(X)) == "DL0413"


def test_its_derivative_in_records() -> None:
    def score(m: Any, x: Any) -> Any:
        return jnp.tanh(x @ m.w + m.b)

    def slope(m: Any, x: Any) -> Any:
        return 1 - score(m, x) ** 2

    given = difflang.extern(
        score,
        jvp=lambda m, x, dm, dx: slope(m, x) * (dx @ m.w + x @ dm.w + dm.b),
        vjp=lambda m, x, ct: (
            {"w": (slope(m, x) * ct) @ x, "b": jnp.sum(slope(m, x) * ct)},
            (slope(m, x) * ct)[:, None] * m.w,
        ),
    )
    source = """record Net[d] { w: f32[d], b: f32, name: str }
    extern fn score(m: Net[d], x: f32[n, d]) -> f32[n]
    fn loss(m: Net[d], x: f32[n, d]) -> f32 = sum(score(m, x)^2)
    fn twin(m: Net[d], x: f32[n, d]) -> f32 = sum(tanh(x @ m.w + m.b)^2)"""
    m = difflang.loads(source, externs={"score": given})
    net = m.Net(w=np.array([0.5, -1.0], np.float32), b=np.float32(0.5), name="q")
    x = np.arange(6, dtype=np.float32).reshape(3, 2) / 10
    mine, twin = m.loss.grad()(net, x), m.twin.grad()(net, x)
    np.testing.assert_allclose(mine.w, twin.w, rtol=1e-5)
    np.testing.assert_allclose(mine.b, twin.b, rtol=1e-5)
    np.testing.assert_allclose(m.loss.grad("x")(net, x), m.twin.grad("x")(net, x), rtol=1e-5)
    assert m.loss.check_grad(net, x).right, "in numbers of f32, since Python has no others"


def test_a_wrong_derivative_is_found() -> None:
    cosine = lambda x, dx: 1.01 * jnp.cos(x) * dx
    both = wave(difflang.extern(jnp.sin, jvp=cosine, vjp=cosine))
    one = wave(difflang.extern(jnp.sin, jvp=WITH.jvp, vjp=cosine))
    for m in (both, one):
        with pytest.raises(difflang.GradientMismatch, match="at the rule of `wave`"):
            m.energy.check_grad(X)


def test_a_rule_that_is_wrong_from_the_second_order_on_is_found() -> None:
    """Further derivatives were audited as if the function had no rule."""
    source = """fn slope(x: f64) -> f64 = cos(x)
    @unchecked rule slope(x) { (slope(x), linear |dx| 2.0 * dx) }
    fn wave(x: f64) -> f64 = sin(x)
    rule wave(x) { (wave(x), linear |dx| slope(x) * dx) }
    fn g(x: f64) -> f64 = wave(x)"""
    g = difflang.compile(source, "g")
    assert g.check_grad(1.0).right
    with pytest.raises(difflang.GradientMismatch, match="goes wrong at the rule of `slope`"):
        g.check_grad(1.0, order=2)


def test_a_function_of_jax_may_need_xlas_algebra() -> None:
    """There is no code for the CPU that removes elements in a padding."""
    source = "extern fn shifted(x: f32[n]) -> f32[n]\nfn f(x: f32[n]) -> f32[n] = shifted(2 * x)"
    f = difflang.loads(source, externs={"shifted": lambda x: jax.lax.pad(x, 0.0, [(-1, 1, 0)])}).f
    for found in (f(np.ones(3, np.float32)), jax.jit(f)(np.ones(3, np.float32))):
        np.testing.assert_array_equal(found, [2.0, 2.0, 0.0])


def test_one_mode_alone_is_refused_in_the_other() -> None:
    back, forth = wave(difflang.extern(jnp.sin, vjp=WITH.vjp)), wave(difflang.extern(jnp.sin, jvp=WITH.jvp))
    np.testing.assert_allclose(back.energy.grad()(X), np.sin(2 * X))
    np.testing.assert_allclose(forth.energy.jvp()(X, X)[1], np.sin(2 * X) @ X)
    assert code_of(lambda: back.energy.jvp()(X, X)) == "DL0413"
    assert code_of(lambda: forth.energy.grad()(X)) == "DL0413"


def test_without_any_the_derivative_is_refused_where_the_program_calls_it() -> None:
    m = wave(jnp.sin)
    for ask in (lambda: m.energy.grad()(X), lambda: m.energy.jvp()(X, X), lambda: m.energy.grad().interpret(X)):
        with pytest.raises(difflang.DifferentiationError, match=r"`wave` is a Python function") as caught:
            ask()
        assert "sum(wave(x)^2)" in str(caught.value)
    source = "extern fn f(x: f64) -> f64\nfn g(x: f64) -> f64 = f(x)"
    assert code_of(lambda: difflang.loads(source, externs={"f": jnp.sin}).g.jet(2)(1.0)) == "DL0412"


def test_where_the_program_stops_the_derivative_none_is_needed() -> None:
    for body in ("stop(wave(x)) * x", "wave(stop(x)) * x", "if x[0] > 100.0 { wave(stop(x)) } else { x * sin(1.0) }"):
        m = wave(jnp.sin, f"fn f(x: f64[n]) -> f64 = sum({body})")
        assert m.f.grad()(X).shape == (2,)
    np.testing.assert_allclose(wave(jnp.sin, "fn f(x: f64[n]) -> f64 = sum(stop(wave(x)) * x)").f.grad()(X), np.sin(X))


def test_a_branch_not_taken_contributes_nothing() -> None:
    root = difflang.extern(jnp.sqrt, jvp=lambda x, dx: dx / (2 * jnp.sqrt(x)), vjp=lambda x, ct: ct / (2 * jnp.sqrt(x)))
    m = difflang.loads(
        "extern fn root(x: f64) -> f64\nfn f(x: f64) -> f64 = if x > 0.0 { root(x) } else { 3.0 * x }\n"
        "fn g(x: f64[n]) -> f64 = sum(where(x > 0.0, [for i => root(x[i])], 3.0 * x))",
        externs={"root": root},
    )
    assert float(m.f.grad()(0.0)) == 3.0
    with jax.enable_x64(True):
        assert jax.vmap(jax.grad(m.f))(np.array([0.0, 4.0])).tolist() == [3.0, 0.25]
    assert m.g.grad()(np.array([0.0, 4.0])).tolist() == [3.0, 0.25]


# ---- What is refused


@pytest.mark.parametrize(
    ("declared", "given", "code", "says"),
    [
        ("f(x: f32[n]) -> f32", jnp.sin, "DL1230", "declared f32, but f32[5] is what the function returns"),
        ("f(x: f32[3]) -> f32[4]", jnp.sin, "DL1230", "declared f32[4], but f32[3] is"),
        ("f(x: f64[n]) -> f64[n]", lambda x: jnp.float32(x), "DL1230", "declared f64[5], but f32[5] is"),
        ("f(x: f32[n]) -> i32[n]", jnp.sin, "DL1230", "declared i32[5], but f32[5] is"),
        ("f(x: f32) -> (f32, f32)", jnp.sin, "DL1230", "declared (f32, f32)"),
        ("f(x: f32) -> f32", lambda x: None, "DL1230", "declared f32"),
        ("f(x: f32[n, m]) -> f32[m, n]", lambda x: x, "DL1230", "declared f32[7, 5], but f32[5, 7] is"),
        ("f(x: f32[n]) -> f32[n]", difflang.extern(jnp.sin, jvp=lambda x, dx: 1j * dx), "DL1230", "`f.jvp(…)`"),
        ("f(x: f32[n]) -> f32[n]", difflang.extern(jnp.sin, vjp=lambda x, ct: ct[0]), "DL1230", "`f.vjp(…)`"),
        ("f(x: c64) -> c64", difflang.extern(jnp.sin, vjp=lambda x, ct: ct), "DL1230", "complex"),
        ("f(x: i32) -> i32", difflang.extern(jnp.abs, vjp=lambda x, ct: ct), "DL1230", "nothing that has a tangent"),
        ("f(x: f32) -> f32", lambda x: 1 / 0, "DL1232", "ZeroDivisionError: division by zero"),
        ("f(x: f32) -> f32", np.sin, "DL1232", "host=True"),
        ("f(x: f32) -> f32", lambda x: jax.debug.print("{}", x) or x, "DL1232", "pure"),
        ("f(x: f32) -> f32", 3, "DL1207", "takes functions"),
        ("f(x: f32[n]) -> f32[n]", lambda x: nothing_of_this_name(x), "DL1232", "NameError"),  # noqa: F821
        ("f(x: f32[n]) -> f32[n]", lambda x, y: x, "DL1232", "missing 1 required positional argument"),
        ("f(x: f32[n]) -> f32[n]", np.sin, "DL1232", "host=True"),
        ("f(x: f32) -> f32", lambda x: sys.exit(3), "DL1232", "SystemExit: 3"),
        ("other(x: f32) -> f32", jnp.sin, "DL1207", "it has other"),
    ],
)  # fmt: skip
def test_when_it_is_bound(declared: str, given: Any, code: str, says: str) -> None:
    with pytest.raises(difflang.ArgumentError) as caught:
        difflang.loads(f"extern fn {declared}", externs={"f": given})
    assert caught.value.diagnostics[0].code == code and says in str(caught.value)


def test_what_is_bound_is_told_by_name() -> None:
    assert code_of(lambda: difflang.loads(WAVE, externs=[jnp.sin])) == "DL1207"  # pyright: ignore[reportArgumentType]


def test_what_fails_at_some_sizes_only_is_said_at_those_of_a_call() -> None:
    weights = jnp.ones((784, 10))
    m = difflang.loads("extern fn f(x: f32[n]) -> f32[10]\nfn g(x: f32[n]) -> f32 = sum(f(x))",
                       externs={"f": lambda x: x @ weights})  # fmt: skip
    assert float(m.g(np.ones(784, np.float32))) == 7840
    with pytest.raises(difflang.ArgumentError) as caught:
        m.g(np.ones(3, np.float32))
    assert caught.value.diagnostics[0].code == "DL1232" and "sum(f(x))" in str(caught.value)


def of_fours(x: Any) -> Any:
    if x.shape[0] % 4:
        raise ValueError("n is a multiple of 4")
    return x


def test_what_may_be_right_at_other_sizes_is_left_to_the_call() -> None:
    m = difflang.loads("extern fn f(x: f32[n]) -> f32[n]\nfn g(x: f32[n]) -> f32 = sum(f(x))",
                       externs={"f": of_fours})  # fmt: skip
    assert float(m.g(np.ones(8, np.float32))) == 8
    assert code_of(lambda: m.g(np.ones(6, np.float32))) == "DL1232"


@pytest.mark.parametrize("way", ["compiled", "interpreted", "mapped"])
def test_a_function_of_the_host_does_not_end_the_process(way: str, capfd: pytest.CaptureFixture[str]) -> None:
    for error, becomes in ((SystemExit(3), difflang.ArgumentError), (KeyboardInterrupt(), KeyboardInterrupt)):

        def stops(x: Any, error: BaseException = error) -> Any:
            raise error

        m = wave(difflang.extern(stops, host=True))
        run = {"compiled": m.energy, "interpreted": m.energy.interpret, "mapped": m.energy.vmap()}[way]
        for _ in range(2):
            with pytest.raises(becomes) as caught:
                run(A if way == "mapped" else X)
        if becomes is not KeyboardInterrupt:
            assert "`wave` raised SystemExit: 3" in str(caught.value) and "must return a value" in str(caught.value)
            assert isinstance(caught.value.__cause__, SystemExit)
    assert "Traceback" not in capfd.readouterr().err


def test_nothing_bound_is_said_at_the_call() -> None:
    m = difflang.loads(WAVE)
    with pytest.raises(difflang.ArgumentError, match="no Python function is bound") as caught:
        m.energy(X)
    assert 'externs={"wave": wave}' in str(caught.value) and "sum(wave(x)^2)" in str(caught.value)
    assert code_of(lambda: m.energy.interpret(X)) == "DL1231"
    assert code_of(lambda: difflang.loads(WAVE + RULE).energy(X)) == "DL1231"


def test_what_fails_on_the_host_is_raised_as_what_it_is(capfd: pytest.CaptureFixture[str]) -> None:
    def fails(x: Any) -> Any:
        raise ValueError("no such weather")

    m = wave(difflang.extern(fails, host=True))
    for run in (lambda: m.energy(X), lambda: m.rows(A), lambda: m.energy.interpret(X), lambda: m.energy(X)):
        with pytest.raises(difflang.ArgumentError, match="raised ValueError: no such weather") as caught:
            run()
        assert isinstance(caught.value.__cause__, ValueError)
    assert "Traceback" not in capfd.readouterr().err
    other = wave(difflang.extern(lambda x: x[:1], host=True))
    assert code_of(lambda: other.energy(X)) == "DL1230"
    with jax.enable_x64(True), pytest.raises(jax.errors.JaxRuntimeError, match="declared f64"):
        jax.jit(other.energy)(X).block_until_ready()


def test_no_derivative_leaves_a_function_of_others_in_info(tmp_path: Path) -> None:
    from click.testing import CliRunner

    from difflang.cli import main

    file = tmp_path / "wave.dfl"
    file.write_text(WAVE + "let e = 1.0\n")
    found = CliRunner().invoke(main, ["info", str(file)])
    assert found.exit_code == 0, found.output
    assert "its derivative is not known" in found.output and "energy(x: f64[n]) -> f64" in found.output
    for verb in ("check", "fmt"):
        assert CliRunner().invoke(main, [verb, str(file)]).exit_code == 0
    file.write_text(WAVE + "print(energy([1.0, 2.0]))\n")
    ran = CliRunner().invoke(main, ["run", str(file)])
    assert ran.exit_code == 1 and "DL1231" in ran.output and "difflang.load(" in ran.output


def test_a_function_of_the_host_may_use_its_result_again_and_not_change_what_it_is_given() -> None:
    source = "extern fn f(x: f32[n]) -> f32[n]\nfn g(x: f32[n]) -> (f32[n], f32[n]) = (f(x), f(x + 1.0))"
    room = np.zeros(3, np.float32)

    def doubled(x: Any) -> Any:
        room[:] = 2 * x
        return room

    def changed(x: Any) -> Any:
        x += 1
        return x

    x = np.array([1.0, 2.0, 3.0], np.float32)
    g: Any = difflang.loads(source, externs={"f": difflang.extern(doubled, host=True)}).g
    for run in (g, g.interpret):
        assert np.array_equal(run(x), [2 * x, 2 * x + 2])
    g = difflang.loads(source, externs={"f": difflang.extern(changed, host=True)}).g
    assert code_of(lambda: g(x)) == "DL1232" == code_of(lambda: g.interpret(x))
    assert np.array_equal(x, [1, 2, 3])


@pytest.mark.parametrize(("way", "w"), [(jax.jit, 2.0), (jax.grad, 2.0), (jax.vmap, [1.0, 2.0])])
def test_weights_inside_a_transformation_are_no_part_of_a_function(way: Any, w: Any) -> None:
    """What depends on them would have no derivative in them."""

    def loss(w: Any) -> Any:
        m: Any = difflang.loads("extern fn f(x: f32) -> f32", externs={"f": lambda x: w * x})
        return m.f(3.0)

    with pytest.raises(difflang.ArgumentError, match="inside a JAX transformation") as caught:
        way(loss)(jnp.float32(w))
    assert caught.value.diagnostics[0].code == "DL1232"
