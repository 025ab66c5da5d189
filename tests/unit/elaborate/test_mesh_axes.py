"""Axes of a mesh in types: checked where they stand, and without effect on one device."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import difflang
from difflang.base.source import Source
from difflang.driver.checked_program import check_program
from difflang.ops.arrays.reshard import ANY, reshard
from difflang.syntax.formatter.format_program import format_program
from difflang.tools.derive.derive import DeriveOptions, derive
from support.language import codes

NET = """axes data, model
record Net[d, h] { w: f32[d, h @model], v: f32[h @model] }
fn hidden(w: f32[d, h @model], x: f32[n @data, d]) -> f32[n @data, h @model] = tanh(x @ w)
fn loss(net: Net[d, h], x: f32[n @data, d], y: f32[n @data]) -> f32 {
  let s = hidden(net.w, x) @ net.v
  mean((s - y)^2)
}
fn gathered(w: f32[d @data, d], x: f32[n @data, d]) -> f32[n @data, d] {
  var z = x
  for _ in 0..3 { z = tanh(z @ reshard(w, _, _)) }
  z
}
"""
WHOLE = NET.replace(" @data", "").replace(" @model", "").replace("axes data, model\n", "").replace(
    "reshard(w, _, _)", "w"
)  # fmt: skip


@pytest.mark.parametrize("wide", [False, True], ids=["f32", "f64"])
def test_on_one_device_nothing_changes(wide: bool) -> None:
    source, plain = [text.replace("f32", "f64") if wide else text for text in (NET, WHOLE)]
    kind = np.float64 if wide else np.float32
    m, p = difflang.loads(source), difflang.loads(plain)
    w, x = np.linspace(-1, 1, 6, dtype=kind).reshape(3, 2), np.linspace(-1, 2, 12, dtype=kind).reshape(4, 3)
    net = {"w": w, "v": np.ones(2, kind)}
    y = np.ones(4, kind)
    assert m.loss(net, x, y) == p.loss(net, x, y)
    got, want = m.loss.grad()(net, x, y), p.loss.grad()(net, x, y)
    np.testing.assert_array_equal(got["w"], want["w"])
    np.testing.assert_allclose(m.loss.interpret(net, x, y), p.loss.interpret(net, x, y), rtol=0)
    square = np.linspace(-1, 1, 9, dtype=kind).reshape(3, 3)
    np.testing.assert_array_equal(m.gathered(square, x), p.gathered(square, x))
    jvps = [f.gathered.jvp("w")(square, x, square) for f in (m, p)]
    np.testing.assert_array_equal(*[tangent for _, tangent in jvps])


def placements(text: str) -> list[str]:
    """The attribute `splits` of each placement in the text of a graph."""
    return re.findall(r"reshard .*splits = (.*)}", text)


def test_what_types_say_is_in_the_graph() -> None:
    m = difflang.loads(NET)
    w = np.zeros((2, 2), np.float32)
    assert placements(str(m.hidden.ir("ir", w, w))) == [
        '((), ("model",))',
        '(("data",), ())',
        '(("data",), ("model",))',
    ]
    assert placements(str(m.hidden.ir("optimized", w, w))) == []


@pytest.mark.parametrize(
    ("program", "found"),
    [
        ("axes data\nfn f(x: f32[n @dta]) -> f32 = sum(x)", [("DL0606", 2)]),
        ("fn f(x: f32[n @data]) -> f32 = sum(x)", [("DL0606", 1)]),
        ("axes data\nfn f(x: f32[n]) -> f32[n @mesh] = x", [("DL0606", 2)]),
        ("axes data\nfn f(x: f32[n]) -> f32 {\n  let y: f32[n @mesh] = x\n  sum(y)\n}", [("DL0606", 3)]),
        ("axes data\nrecord R[n] { x: f32[n @mesh] }", [("DL0606", 2)]),
        ("axes data\nfn f(x: f32[n @data, n @data]) -> f32 = sum(x)", [("DL0604", 2)]),
        ("axes data\nfn f(x: f32[n @(data, data)]) -> f32 = sum(x)", [("DL0604", 2)]),
        ("axes data\nfn f(x: f32[n]) -> f32[n] = reshard(x, @mesh)", [("DL0606", 2)]),
        ("axes data\nfn f(x: f32[n]) -> f32[n] = reshard(x, _, @data)", [("DL0610", 2)]),
        ("axes data\nfn f(x: f32[n]) -> f32[n] = reshard(x, 1)", [("DL0610", 2)]),
        ("axes data\nfn f(x: f32[n]) -> f32 = sum(x, @data)", [("DL0610", 2)]),
        ("axes data\nfn f(x: f32[n]) -> f32[n] = x |> reshard", [("DL0610", 2)]),
        ("axes data\nrecord R[n] { x: f32[n] }\nfn f(r: R[n @data]) -> f32 = sum(r.x)", [("DL0610", 3)]),
        ("axes data\nrecord R[n] { x: f32[n] }\nfn f(r: R[n][k @data]) -> f32 = sum(r[0].x)", [("DL0610", 3)]),
        ("axes data\nrecord R { x: f32 }\nfn f(r: R[k @data]) -> f32 = r[0].x", [("DL0610", 3)]),
        ("axes data\nfn f(names: str[k @data]) -> str = names[0]", [("DL0610", 2)]),
        ("axes data, data", [("DL0210", 1)]),
        ("axes a, b\nfn f(x: f32[n @a], y: f32[n @b]) -> f32[n @a] = x + y", [("DL0605", 2)]),
        ("axes a, b\nfn f(x: f32[n @a], y: f32[n @b]) -> f32[n @a] = x + reshard(y, @a)", []),
        ("axes a\nfn f(w: f32[d @a, h], x: f32[n @a, d]) -> f32 = sum(x @ w)", [("DL0605", 2)]),
        ("axes a\nfn f(w: f32[d @a, h], x: f32[n @a, d]) -> f32 = sum(x @ reshard(w, _, _))", []),
        ("axes a\nfn f(x: f32[n @a, d]) -> f32[n, d] = tanh(x)", [("DL0605", 2)]),
        ("axes a\nfn f(x: f32[n @a], y: f32[n]) -> f32[n @a] = x * y", []),
        ("axes a, b\nfn g(x: f32[n @a]) -> f32[n @a] = x\nfn f(x: f32[n @b]) -> f32 = sum(g(x))", [("DL0605", 3)]),
        ("axes a, b\nfn f(x: f32[n @a]) -> f32 {\n  let y: f32[n @b] = x\n  sum(y)\n}", [("DL0605", 3)]),
        ("axes a\nfn f(x: f32[n @a]) -> f32[n @a, n] = [for i, j => x[i] - x[j]]", []),
        ("axes a, b\nfn f(x: f32[n @a, n @b]) -> f32[n @a, n @b] = x @ reshard(x, @b, _)", []),
        ("axes a\nfn f(x: f32[n @a]) -> f32[n, n] = outer(x, x)", [("DL0604", 2)]),
        ("axes a\nfn g(x: f32[n @a]) -> f32 = sum(x)\nfn f(x: f32[n @a]) -> f32[n @a] = x - grad(g)(x)", []),
        ("axes a\nfn f(x: f32[n @a, ..s]) -> f32[n @a, ..s] = 2.0 * x", []),
        ("axes data\nlet data = 3.0\nlet axes = data\nprint(axes)", []),
    ],
)  # fmt: skip
def test_wrong_axes(program: str, found: list[tuple[str, int]]) -> None:
    assert codes(program) == found


HELPERS = """axes data, model
record Pair[n] { u: f64[n], v: f64[n] }
enum Act { Plain, Scaled(by: f64) }
fn helper(u: f64[n], v: f64[n]) -> f64[n] = u * v
fn deep(x: f64[k], y: f64[k]) -> f64[k] = sin(helper(y, x))
fn total(u: f64[n], v: f64[n]) -> f64 = sum(deep(u, v))
fn one(u: f64[n]) -> f64[n] = cos(u)
fn ruled(u: f64[n], v: f64[n]) -> f64[n] = u * v
rule ruled(u, v) { (ruled(u, v), linear |du, dv| du * v + u * dv) }
fn root(p: f64[n]) -> f64[n] = sqrt(p)
rule root(p) by implicit |x| x * x - p
fn again(u: f64[n], v: f64[n], k: i32) -> f64[n] = if k == 0 { u * v } else { again(sin(u), v, k - 1) }
fn even(u: f64[n], v: f64[n], k: i32) -> f64[n] = if k == 0 { u } else { odd(u, v, k - 1) }
fn odd(u: f64[n], v: f64[n], k: i32) -> f64[n] = if k == 0 { v } else { even(u * v, v, k - 1) }
fn halved(u: f64[n]) -> f64 = if n <= 1 { sum(u) } else { halved(u[..n // 2]) + halved(u[n // 2..]) }
fn pair(u: f64[n], v: f64[n]) -> Pair[n] = Pair(u, v)
fn applied(g: (f64[n]) -> f64[n], u: f64[n]) -> f64[n] = g(g(u))
fn same[T](u: T) -> T = u
fn any_rank(u: f64[..s]) -> f64[..s] = 2.0 * u
fn act(a: Act, u: f64[n]) -> f64[n] = match a { Plain => u, Scaled(by) => by * u }
fn drawn(u: f64[n]) -> f64[n] = u + normal(n)
fn scaled(u: f64[n], k: dim) -> f64[n] = u * f64(k)
fn chosen(u: f64[n], v: f64[n], k: dim) -> f64[n] = if k == 0 { u * v } else { u }
fn product(u: f64, v: f64) -> f64 = u * v
fn turned(u: f64[n, m]) -> f64[m, n] = transpose(u)
fn placed(u: f64[n]) -> f64[n] { let z: f64[n @model] = sin(u)
  z }
fn faulty(u: f64[n]) -> f64[n] = u + "a"
"""


@pytest.mark.parametrize(
    ("body", "ways"),
    [
        ("f64 = sum(helper(sin(a), y))", 2),
        ("f64 = sum(helper(sin(a), a))", 0),
        ("f64[n] = one(a)", 1),
        ("f64[n @data] = one(a)", 0),
        ("f64 = total(a, y)", 2),
        ("f64 = sum(ruled(a, y))", 2),
        ("f64[n] = root(a)", 1),
        ("f64[n @data] = grad(total)(a, y)", 2),
        ("f64[n @data] = grad(|t| total(t, y))(a)", 2),
        ("f64[n @data] = grad(|t| total(t, t))(a)", 0),
        ("f64[n @data, n] = hessian(total)(a, y)", 2),
        ("(f64[n @data], f64[n @data]) = jvp[u, v](helper)(a, y, a, y)", 2),
        ("f64[k] = [for i => total(t[i], y)]", 2),
        ("f64[k] = [for i => total(t[i], a)]", 0),
        ("f64[k, n] = [for row in t => one(row)]", 1),
        ("f64[k, n @data] = vmap(one)(t)", 0),
        ("f64[k, n] = vmap(one)(t)", 1),
        ("f64[n @data] = vmap(product)(a, y)", 2),
        ("f64[n] = if sum(a) > 0.0 { one(a) } else { one(y) }", 2),
        ("f64[n @data] = if sum(a) > 0.0 { one(a) } else { zeros(n) }", 0),
        ("f64[n] {\n  var z = a\n  for _ in 0..3 { z = one(y) }\n  z\n}", 2),
        ("f64[n @data] {\n  var z = zeros(n)\n  for _ in 0..3 { z = one(a) }\n  z\n}", 0),
        ("f64[n @data] = again(a, y, 3)", 2),
        ("f64[n @data] = again(a, a, 3)", 0),
        ("f64[n @data] = even(a, y, 3)", 2),
        ("f64 = halved(a)", 0),
        ("f64[n @data] { let p = pair(a, y)\n  p.u * p.v }", 2),
        ("f64[n @data] = applied(|t| t * y, a)", 2),
        ("f64[n @data] = applied(|t| t * a, a)", 0),
        ("f64[n] = same(a)", 1),
        ("f64[n] = any_rank(a)", 1),
        ("f64[n] = act(Plain, a)", 1),
        ("f64[n] = drawn(a)", 1),
        ("f64[n] = scaled(a, 3)", 1),
        ("f64[n @data] = chosen(a, y, 0)", 2),
        ("f64[n @data] = chosen(a, y, 1)", 0),
        ("f64[n @data] {\n  fn g(u: f64[n]) -> f64[n] { let z: f64[n] = zeros(n)\n    u * y + z }\n  g(a)\n}", 2),
        ("f64[n @data, k] = turned(t)", 0),
        ("f64[k, n @data] = turned(turned(t))", 0),
        ("f64[n @data, k @model] = turned(t)", 0),
        ("f64[n @model, k] = turned(t)", 1),
        ("f64 = sum(placed(a))", 1),
        ("f64 = sum(placed(y))", 0),
    ],
)
def test_splits_are_followed_into_calls(body: str, ways: int) -> None:
    program = f"{HELPERS}fn f(a: f64[n @data], y: f64[n @model], t: f64[k, n @data]) -> {body}"
    line = HELPERS.count("\n") + 1
    found = [d for d in check_program(Source("a.dfl", program)).errors if d.code == "DL0605"]
    said = (
        [["an array that is split along"], ["what is taken together here is split along `"]][ways - 1] if ways else []
    )
    assert [d.message[: len(s)] for d, s in zip(found, said, strict=True)] == said
    assert all(d.labels[0].span.position[0] >= line for d in found)


def test_a_fault_in_a_called_function_does_not_hide_others() -> None:
    wrong = "fn f(a: f64[n @data], y: f64[n @model]) -> f64 = sum(faulty(a)) + sum(helper(a, y))"
    assert ("DL0605", HELPERS.count("\n") + 1) in codes(HELPERS + wrong)


def told(program: str) -> list[tuple[str, str]]:
    """The marked texts of the first error in the text of helpers and a function, with the texts of their labels."""
    (error,) = [d for d in check_program(Source("a.dfl", HELPERS + program)).errors if d.code in ("DL0604", "DL0605")]
    return [(label.span.text, label.text) for label in error.labels]


def test_the_labels_say_what_meets_where() -> None:
    assert told("fn f(a: f64[n @data], y: f64[n @model]) -> f64 = total(sin(a), y)") == [
        ("total(sin(a), y)", "called here"),
        ("deep(u, v)", "called here"),
        ("helper(y, x)", "called here"),
        ("u * v", "split in two ways: f64[n @model] and f64[n @data]"),
        ("f64[n @model]", "split along `model` here"),
        ("f64[n @data]", "split along `data` here"),
    ]
    assert told("fn f(w: f64[d @data, h], x: f64[n @data, d]) -> f64 {\n  let z = sin(x)\n  sum(z @ w)\n}") == [
        ("z @ w", "one must become whole: f64[n @data, d] and f64[d @data, h]"),
        ("f64[n @data, d]", "split along `data` here"),
        ("f64[d @data, h]", "split along `data` here"),
    ]
    assert told("fn f(x: f64[n @data]) -> f64[n, n] {\n  let y = reshard(x, @model)\n  outer(y, y)\n}") == [
        ("outer(y, y)", "made from two axes that are split along it: f64[n @model]"),
        ("reshard(x, @model)", "split along `model` here"),
    ]
    assert told("fn f(x: f64[n @data]) -> f64[n] {\n  var y = x\n  for _ in 0..3 { y = 2.0 * y }\n  y + 1.0\n}") == [
        ("f64[n]", "whole"),
        ("y + 1.0", "this is f64[n @data]"),
        ("f64[n @data]", "split along `data` here"),
    ]
    assert told("fn f(x: f64[n @data], y: f64[n @model]) -> f64[n] = [for i in 0..2 => x * y][0]")[1:] == [
        ("f64[n @data]", "split along `data` here"),
        ("f64[n @model]", "split along `model` here"),
    ]


def test_each_function_is_gone_through_once() -> None:
    levels, callers = 180, 20
    lines = ["axes data", "fn f0(u: f64[n], v: f64[n]) -> f64[n] = u * v"]
    lines += [f"fn f{i}(u: f64[n], v: f64[n]) -> f64[n] = f{i - 1}(v, u) + f{i - 1}(u, v)" for i in range(1, levels)]
    lines += [f"fn g{i}(u: f64[n{i} @data]) -> f64[n{i} @data] = f{levels - 1}(u, u)" for i in range(callers)]
    checked = check_program(Source("a.dfl", "\n".join(lines)))
    assert not checked.diagnostics
    followed = [key for key in checked.session.instances if key.follows_splits]
    assert len(followed) == len(checked.session.region_splits) == levels


@pytest.mark.parametrize("before", ["", "fn g(a: f64[n @data]) -> f64[n @data] = first(a, a, 3)\n"])
@pytest.mark.parametrize("called", ["second", "third"])
def test_a_recursive_group_is_followed_whoever_calls_it_before(before: str, called: str) -> None:
    """What `second` has been found to do inside `first` does not have the body of `first`."""
    group = """axes data, model
fn first(u: f64[n], v: f64[n], k: i32) -> f64[n] = if k == 0 { u * v } else { third(u, v, k - 1) }
fn second(u: f64[n], v: f64[n], k: i32) -> f64[n] = if k == 0 { u } else { first(u, v, k - 1) }
fn third(u: f64[n], v: f64[n], k: i32) -> f64[n] = if k == 0 { u } else { second(u, v, k - 1) }
"""
    line = (group + before).count("\n") + 1
    wrong = f"fn f(a: f64[n @data], y: f64[n @model]) -> f64[n @data] = {called}(a, y, 3)"
    assert codes(group + before + wrong) == [("DL0605", line)]


def test_a_misspelt_axis_is_repaired() -> None:
    (told,) = check_program(Source("a.dfl", "axes model\nfn f(x: f32[n @modle]) -> f32 = sum(x)")).diagnostics
    assert told.helps == ("did you mean `model`?",) and len(told.fixes) == 1


def test_axes_of_another_file(tmp_path: Path) -> None:
    (tmp_path / "net.dfl").write_text(NET.replace("record", "pub record").replace("fn loss", "pub fn loss"))
    text = 'import "./net.dfl" as net\nfn f(m: net.Net[d, h], x: f32[n, d]) -> f32 = net.loss(m, x, zeros(n))\n'
    (tmp_path / "main.dfl").write_text(text)
    m = difflang.load(tmp_path / "main.dfl")
    w = np.ones((3, 2), np.float32)
    found = placements(str(m.f.ir("ir", {"w": w, "v": w[0]}, np.ones((4, 3), np.float32))))
    assert found[:3] == ['((), ("model",))', '(("model",),)', "((), ())"]


def test_they_are_formatted() -> None:
    text = "axes data,model\nfn f( x:f32[n@ data,d @( data,model )] )->f32[n  @data]=reshard( x,@data,_ )\n"
    laid = "axes data, model\nfn f(x: f32[n @data, d @(data, model)]) -> f32[n @data] = reshard(x, @data, _)\n"
    assert format_program(Source("a.dfl", text)) == format_program(Source("a.dfl", laid)) == laid


def test_a_derivative_keeps_them() -> None:
    source = "axes data\nfn f(w: f32[d @data, h], x: f32[n, d]) -> f32 = sum((x @ reshard(w, _, _))^2)"
    checked = check_program(Source("a.dfl", source))
    text = derive(checked, None, "f", DeriveOptions(wrt="w,x"))
    assert "d_f(w: f32[d @data, h], x: f32[n, d]) -> (f32[d @data, h], f32[n, d]) {" in text
    assert "axes data\n" in text and "reshard(w, _, _)" in text
    assert "d_w: f32[d @data, h]" in derive(checked, None, "f", DeriveOptions(wrt="w", mode="jvp"))


def test_a_batch_leaves_its_own_axis_as_it_comes() -> None:
    source = "axes data\nfn f(x: f32[n @data]) -> f32 = sum(x^2)\nfn all(xs: f32[k, n]) -> f32[k] = vmap(f)(xs)"
    m = difflang.loads(source)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(m.all(x), m.f.vmap()(x))
    assert reshard.batch_rule is not None and ANY == ("?",)
