"""Arrays of records and enums: their types, items, loops, functions of axes, updates and derivatives, on both engines."""

# ruff: noqa: E501 - a row of a table, or a program, is a line

from __future__ import annotations

import re

import numpy as np
import pytest

import difflang
from support.language import answer, codes, ran
from support.values import compare

SOURCE = """
record B[c] { b: f64[c], m: f64 }
record Net[c, k] { blocks: B[c][k], out: f64[c] }
record Body { x: f64[2], mass: f64 }
enum Law { Spring(k: f64, rest: f64), Gravity(g: f64), Free }
enum One { Only(x: f64) }
fn energy(p: B[c]) -> f64 = p.m * sum(p.b^2)
fn total(ps: B[c][k]) -> f64 = sum(for p in ps => energy(p))
fn by_fields(ps: B[c][k]) -> f64 = sum(for (b, m) in zip(ps.b, ps.m) => m * sum(b^2))
fn force(l: Law, r: f64) -> f64 = match l { Spring(k, rest) => k * (r - rest), Gravity(g) => g / r^2, Free => 0.0 }
fn made(k: dim) -> B[2][k] = [for i in 0..k => B(b = [f64(i) + 1.0, 2.0], m = f64(i))]
fn laws() -> Law[3] = [Spring(2.0, 1.0), Gravity(3.0), Free]
"""

ROWS = [
    ("items_from_the_front_and_the_end", "", "(made(3)[1].b, made(3)[-1].m, energy(made(3)[1]))", ([2, 2], 2, 8)),
    ("a_slice_and_a_gather", "fn f(ps: B[c][k], i: i32[j]) -> B[c][j] = ps[i]\nfn g(ps: B[c][k]) -> B[c][k - 1] where k > 1 = ps[1..]",
     "(f(made(3), [2, 0, 2]).m, g(made(3)).m, made(3)[[1]].b)", ([2, 0, 2], [1, 2], [[2, 2]])),
    ("several_axes", "fn f(ps: B[c][n, m]) -> f64 where n > 1, m > 2 = ps[1, 2].m + ps[1][0].m + sum(for q in ps => sum(for p in q => p.m))",
     "f([for i in 0..2 => [for j in 0..3 => B(b = [1.0], m = f64(10 * i + j))]])", 12 + 10 + 36),
    ("within_a_record", "fn f(n: Net[c, k][j]) -> f64[j, k] = [for x in n => [for p in x.blocks => dot(p.b, x.out)]]",
     "f([for i in 0..2 => Net(blocks = made(2), out = [f64(i), 1.0])])", [[2, 2], [3, 4]]),
    ("of_a_generic_type", "fn last[T](xs: T[k]) -> T where k > 0 = xs[-1]\nfn twice[T](xs: T[k]) -> T[2 * k] = concat(xs, xs)",
     "(last(made(2)).m, last([1.0, 2.0]), last([[1.0], [2.0]]), twice(made(2)).m, force(last(laws()), 1.0))", (1, 2, [2], [0, 1, 0, 1], 0)),
    ("a_record_of_whole_types", "record Pair[T] { a: T, n: i32 }\nfn f[T](ps: Pair[T][k]) -> T where k > 0 = ps[0].a\nfn g(ps: Pair[B[c]][k]) -> f64[k] = ps.a.m",
     "{\n let ps = [for p in made(2) => Pair(a = p, n = 1)]\n (f(ps).b, g(ps))\n}", ([1, 2], [0, 1])),
    ("loops", "fn f(ps: B[c][k]) -> (f64, i32, f64) {\n var (a, b, c) = (0.0, 0, 0.0)\n for p in ps { a += p.m }\n for (i, p) in enumerate(ps) { b += i * i32(p.m) }\n"
     " for (p, q) in zip(ps, reverse(ps)) { c += p.m * q.m }\n (a, b, c)\n}", "f(made(4))", (6, 14, 4)),
    ("a_loop_that_yields", "fn f(n: dim) -> B[2][n] {\n let ps = for i in 0..n { yield B(b = [f64(i), 1.0], m = 2.0) }\n ps\n}", "(f(3).b, f(3).m)", ([[0, 1], [1, 1], [2, 1]], [2, 2, 2])),
    ("maps_and_folds", "", "(map(energy, made(3)), vmap(energy)(made(3)), reduce(|a, p| a + energy(p), 0.0, made(3)), scan(|a, p| a + p.m, 1.0, made(3)))",
     ([0, 8, 26], [0, 8, 26], 34, [1, 2, 4])),
    ("an_associative_fold", "fn add(p: B[c], q: B[c]) -> B[c] = B(b = p.b + q.b, m = p.m + q.m)", "(reduce(add, B(b = [0.0, 0.0], m = 0.0), made(5), associative = true).b, scan(add, B(b = [0.0, 0.0], m = 0.0), made(4), associative = true).m)",
     ([15, 10], [0, 1, 3, 6])),
    ("functions_of_axes", "", "(reverse(made(3)).m, concat(made(2), made(1)).m, roll(made(3), 1).m, repeat(made(2), 2).m, gather(made(3), [2, 0]).m)",
     ([2, 1, 0], [0, 1, 0], [2, 0, 1], [0, 0, 1, 1], [2, 0])),
    ("functions_of_two_axes", "fn f() -> (f64[2, 2], f64[2, 2], f64[2, 2]) {\n let s = stack(made(2), reverse(made(2)))\n (s.m, reverse(s, axis = 1).m, roll(s, 1, axis = -1).m)\n}", "f()",
     ([[0, 1], [1, 0]], [[1, 0], [0, 1]], [[1, 0], [0, 1]])),
    ("a_split", "fn f() -> (f64[1], f64[2]) {\n let (a, b) = split(made(3), [1])\n (a.m, b.m)\n}", "f()", ([0], [1, 2])),
    ("where", "", "(where([true, false, true], made(3), reverse(made(3))).b, where(false, made(2), reverse(made(2))).m, [for l in where([true, false, false], laws(), reverse(laws())) => force(l, 2.0)])",
     ([[1, 2], [2, 2], [3, 2]], [1, 0], [2, 0.75, 2])),
    ("sorted_by_a_key", "", "made(3)[argsort(-made(3).m)].m", [2, 1, 0]),
    ("the_index_of_a_comprehension", "fn f(ps: B[c][k]) -> f64[k] = [for i => ps[i].m + sum(for j => ps[i].b[j])]", "f(made(2))", [3, 5]),
    ("a_list_of_records", "", "[B(b = [1.0], m = 2.0), B(b = [3.0], m = 4.0)].b", [[1], [3]]),
    ("with", "fn f(ps: B[c][k]) -> B[c][k] = [for p in ps => p with (m = 9.0)]\nfn g(ps: B[c][k]) -> B[c][k] = ps with (m = -ps.m)", "(f(made(2)).m, g(made(2)).m)", ([9, 9], [0, -1])),
    ("no_items", "", "(made(0).b, sum(for p in made(0) => p.m), reverse(made(0)).m)", (np.zeros((0, 2)), 0, [])),
    ("no_fields", "record E {}\nfn f(es: E[n]) -> i32 = i32(n)", "{\n let es = [for i in 0..4 => E()]\n (f(es), f(es[1..]), f(reverse(concat(es, es))))\n}", (4, 3, 8)),
    ("an_enum_of_one_variant", "fn f(os: One[n]) -> f64[n] = [for o in os => match o { Only(x) => x }]", "f([Only(1.0), Only(2.0)])", [1, 2]),
    ("an_array_of_enums", "fn f(ls: Law[n], r: f64) -> f64[n] = [for l in ls => force(l, r)]", "(f(laws(), 2.0), f(reverse(laws()), 2.0), f(laws()[1..], 1.0))", ([2, 0.75, 0], [0, 0.75, 2], [3, 0])),
    ("enums_in_a_record", "record W { l: Law, r: f64 }\nfn f(ws: W[n]) -> f64[n] = [for w in ws => force(w.l, w.r)]",
     "f([for (i, l) in enumerate(laws()) => W(l = l, r = f64(i) + 1.0)])", [0, 0.75, 0]),
]  # fmt: skip

UPDATES = [
    ("an_item", "q[1] = B(b = [7.0, 8.0], m = 9.0)", ([[1, 2], [7, 8], [3, 2]], [0, 9, 2])),
    ("a_field", "q[0].m = 5.0\n q[-1].m *= 3.0", ([[1, 2], [2, 2], [3, 2]], [5, 1, 6])),
    ("an_element_of_a_field", "q[i].b[0] += 10.0\n q[0].b[1] max= 3.0", ([[1, 3], [12, 2], [3, 2]], [0, 1, 2])),
    ("the_field_of_all", "q.m = 2.0 * q.m\n q.b[.., 0] = 0.0", ([[0, 2], [0, 2], [0, 2]], [0, 2, 4])),
    ("a_change", "q[1] += 0.5 * grad(energy)(q[1])", ([[1, 2], [4, 4], [3, 2]], [0, 5, 2])),
    ("a_slice", "q[1..] = ps[..2]", ([[1, 2], [1, 2], [2, 2]], [0, 0, 1])),
    ("one_item_for_several", "q[..2] = ps[2]", ([[3, 2], [3, 2], [3, 2]], [2, 2, 2])),
    ("at_positions", "q[[2, 0]] = ps[1]\n q[[0, 0]].m += 1.0", ([[2, 2], [2, 2], [2, 2]], [3, 1, 1])),
    ("where_a_mask_is_true", "q[ps.m > 0.5] = ps[0]\n q[ps.m > 1.5].m = 8.0", ([[1, 2], [1, 2], [1, 2]], [0, 0, 8])),
    ("in_a_loop", "for (j, p) in enumerate(ps) { q[j].m += p.b[0]\n  q[0].b[1] *= 2.0 }", ([[1, 16], [2, 2], [3, 2]], [1, 3, 5])),
    ("in_a_branch", "if ps[1].m > 0.5 { q[0] = ps[2] } else { q[1] = ps[2] }", ([[3, 2], [2, 2], [3, 2]], [2, 1, 2])),
]  # fmt: skip


@pytest.mark.parametrize(("name", "declarations", "expression", "value"), ROWS, ids=[r[0] for r in ROWS])
def test_value(name: str, declarations: str, expression: str, value: object) -> None:
    compare(answer(expression, SOURCE + declarations), value)


@pytest.mark.parametrize(("name", "update", "value"), UPDATES, ids=[r[0] for r in UPDATES])
def test_update(name: str, update: str, value: object) -> None:
    body = f"fn up(ps: B[2][3], i: i32) -> B[2][3] {{\n var q = ps\n {update}\n q\n}}\n"
    compare(answer("up(made(3), 1)", SOURCE + body), value)


DERIVATIVES = [
    ("the_gradient_is_an_array_of_tangents", "fn f(g: D(B[c])[k]) -> f64[k] = [for i => norm(g[i])]\nfn h(g: D(B[c][k])) -> f64 = norm(g)",
     "{\n let g = grad(total)(made(3))\n (g.b, g.m, f(g)[0], h(g)^2)\n}", ([[0, 0], [4, 4], [12, 8]], [5, 8, 13], 5, 32 + 208 + 25 + 64 + 169)),
    ("a_step_down", "fn down(ps: B[c][k]) -> B[c][k] = ps - 0.5 * grad(total)(ps)", "(down(made(3)).b, down(made(3)).m)", ([[1, 2], [0, 0], [-3, -2]], [-2.5, -3, -4.5])),
    ("dot_and_pairs", "fn f(ps: B[c][k], g: D(B[c])[k]) -> f64 = dot(g, g) - sum(for (p, x) in zip(ps, g) => dot(x, x) * p.m / p.m)", "f(made(3)[1..], grad(total)(made(3)[1..]))", 0),
    ("forward_and_reverse", "fn f(ps: B[c][k]) -> f64 {\n let g = grad(total)(ps)\n let (_, d) = jvp(total)(ps, g)\n dot(g, g) - d\n}", "f(made(4))", 0),
    ("of_second_order", "fn f(ps: B[c][k]) -> f64[k] = hvp(total)(ps, grad(total)(ps)).m", "f(made(3))", [0, 32, 104]),
    ("of_one_item", "fn f(ps: B[c][k], i: i32) -> f64 = energy(ps[i])", "(grad[ps](f)(made(3), 2).m, grad[ps](f)(made(3), 2).b)", ([0, 0, 13], [[0, 0], [0, 0], [12, 8]])),
    ("of_updates", "fn f(ps: B[c][k]) -> f64 where k > 1 {\n var q = ps\n q[0] = ps[1]\n q[1].b *= 3.0\n total(q)\n}", "(grad(f)(made(2)).m, grad(f)(made(2)).b)", ([0, 8 + 72], [[0, 0], [4 + 36, 4 + 36]])),
    ("of_functions_of_axes", "fn f(ps: B[c][k]) -> f64 = sum(for (p, q) in zip(concat(ps, ps), roll(repeat(ps, 2), 1)) => p.m * q.m)", "grad(f)(made(2)).m", [2, 2]),
    ("of_where", "fn f(ps: B[c][k]) -> f64 = total(where(ps.m > 0.5, ps, reverse(ps)))", "grad(f)(made(3)).m", [0, 8, 26]),
    ("of_a_list", "fn f(p: B[c]) -> f64 = total([p, p with (m = 3.0 * p.m)])", "grad(f)(made(2)[1]).m", 32),
    ("in_the_fields_of_enums", "fn f(ls: Law[n], r: f64) -> f64 = sum(for l in ls => force(l, r))\n"
     "fn part(g: D(Law)) -> f64 = match g { Spring(k, rest) => 10.0 * k + rest, Gravity(g) => g, _ => 0.0 }\nfn g(g: D(Law)[n]) -> f64[n] = [for x in g => part(x)]",
     "(grad[r](f)(laws(), 2.0), g(grad[ls](f)(laws(), 2.0)))", (2 - 6 / 8, [10 - 2, 0.25, 0])),
    ("of_a_batch", "fn f(ps: B[c][n, k]) -> f64[n, k] = vmap(grad(total))(ps).m", "f([made(2), reverse(made(2))])", [[5, 8], [8, 5]]),
    ("with_respect_to_a_field", "", "grad[ps.m](total)(made(2))", [5, 8]),
    ("of_all_layers", "fn apply(p: B[c], x: f64[c]) -> f64[c] = x + tanh(p.m * x + p.b)\n"
     "fn run(n: Net[c, k], x: f64[c]) -> f64 {\n var y = x\n @checkpoint(sqrt)\n for p in n.blocks { y = apply(p, y) }\n dot(n.out, y)\n}\n"
     "fn flat(n: Net[c, k], x: f64[c]) -> f64 {\n var y = x\n for (b, m) in zip(n.blocks.b, n.blocks.m) { y = y + tanh(m * y + b) }\n dot(n.out, y)\n}\n"
     "fn folded(n: Net[c, k], x: f64[c]) -> f64 = dot(n.out, reduce(|y, p| apply(p, y), x, n.blocks))\n"
     "fn apart(f: (Net[c, k], f64[c]) -> f64, n: Net[c, k], x: f64[c]) -> f64 = norm(grad(f)(n, x) - grad(flat)(n, x))",
     "{\n let n = Net(blocks = made(6), out = [1.0, -1.0])\n (apart(run, n, [0.1, 0.2]), apart(folded, n, [0.1, 0.2]))\n}", (0, 0)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "declarations", "expression", "value"), DERIVATIVES, ids=[r[0] for r in DERIVATIVES])
def test_derivative(name: str, declarations: str, expression: str, value: object) -> None:
    compare(answer(expression, SOURCE + declarations), value)


WRONG = [
    ("fn f(ps: B[2][3]) -> f64 = energy(ps)", "DL0304"),
    ("fn f(p: B[2]) -> f64 = total(p)", "DL0304"),
    ("fn many(c: dim, k: dim) -> B[c] = [for i in 0..k => B(b = ones(c), m = 1.0)]", "DL0304"),
    ("fn f(a: f64[n, c]) -> f64 = energy([for i => B(b = a[i], m = 1.0)])", "DL0304"),
    ("fn f(ps: B[c][k]) -> D(B[c]) = grad(total)(ps)", "DL0304"),
    ("fn f(ps: B[c][3]) -> B[c][2] = ps", "DL0304"),
    ("fn f(ps: Body[n][3]) -> f64 = 1.0", "DL0355"),
    ("fn f(ps: B[c][..s]) -> f64 = 1.0", "DL0355"),
    ("fn f(n: Net[3]) -> f64 = 1.0", "DL0302"),
    ("fn f(k: key[3]) -> f64 = 1.0", "DL0355"),
    ("fn f(ps: D(f64[2])[3]) -> f64 = 1.0", "DL0355"),
    ("fn f(ls: Law[n]) -> f64 = match ls { Spring(k, _) => k, _ => 0.0 }", "DL0353"),
    ("fn f(ps: B[c][k]) -> B[c][k] {\n var q = ps\n for i in 0..k { q = q[1..] }\n q\n}", "DL0304"),
    ("fn f(ps: B[c][3]) -> B[c] = ps[3]", "DL0326"),
    ("fn f(ps: B[c][3]) -> B[c] = ps[0, 0]", "DL0333"),
    ("fn f(ps: B[c][3], xs: f64[2]) -> f64 = sum(for (p, x) in zip(ps, xs) => x)", "DL0330"),
    ("fn f(p: B[2], q: B[3]) -> B[2][2] = [p, q]", "DL0317"),
    ("fn f(p: B[2][4], q: B[3][4]) -> B[2][8] = concat(p, q)", "DL0317"),
    ("fn f(p: B[2][4], x: f64[4]) -> B[2][8] = concat(p, x)", "DL0317"),
    ("fn f(ps: B[c][k]) -> B[c][k] = reverse(ps, axis = 1)", "DL0335"),
    ("fn f(ps: B[c][k, k]) -> B[c][k, k] = roll(ps, 1)", "DL0335"),
    ("fn f(ps: B[c][3]) -> B[c][3] = where([true], ps, ps)", "DL0310"),
    ("fn f(ps: B[c][3]) -> B[c][3] {\n var q = ps\n q[[0, 0]] += zero(ps[..2])\n q\n}", "DL0207"),
    ("fn f(ps: B[c][3]) -> B[c][3] {\n var q = ps\n q[0] = 1.0\n q\n}", "DL0304"),
    ("fn f(ps: B[c][3]) -> B[c][3] = ps + ps", "DL0314"),
    ("fn f(ps: B[c][3]) -> f64 = ps.x", "DL0206"),
    ("record K { k: key }\nfn f(k: key) -> f64 {\n let ks = [for i in 0..3 => K(k = k)]\n 1.0\n}", "DL0313"),
    ("fn f(ps: B[c][k]) -> f64 = sort(ps)", "DL0313"),
]  # fmt: skip


@pytest.mark.parametrize(("source", "code"), WRONG)
def test_mistakes_are_reported(source: str, code: str) -> None:
    assert codes(f"float f64\n{SOURCE}{source}\n")[0][0] == code


def test_a_checked_index_fails_once() -> None:
    source = f"float f64\n{SOURCE}fn f(ps: B[c][k], i: i32) -> B[c] = ps[i]\nprint(f(made(3), 3))\n"
    assert [code for code, _ in codes(source)] == ["DL0902"]


def test_the_host_goes_through_items() -> None:
    _, lines = ran(
        f"float f64\n{SOURCE}var ps = made(3)\nps[1].m = 8.0\nfor (i, p) in enumerate(ps[1..]) {{ print(i, p.m) }}\n"
        "let qs = for p in ps { yield p with (m = 2.0 * p.m) }\nlet rs: B[2][3] = qs\nprint(rs.m, rs[0])\n"
    )
    assert lines == ["0 8.0", "1 2.0", "[0.0, 16.0, 4.0] B(b = [1.0, 2.0], m = 0.0)"]


LAYERS = """float f64
record Layer[c] { w: f64[c, c], b: f64[c] }
record Net[c, k] { layers: Layer[c][k], out: f64[c] }
fn step(w: f64[c, c], b: f64[c], x: f64[c]) -> f64[c] = x + tanh(w @ x + b)
@STRATEGY
fn by_items(m: Net[c, k], x: f64[c]) -> f64 {
  var y = x
  for p in m.layers { y = step(p.w, p.b, y) }
  dot(m.out, y)
}
@STRATEGY
fn by_fields(m: Net[c, k], x: f64[c]) -> f64 {
  var y = x
  for (w, b) in zip(m.layers.w, m.layers.b) { y = step(w, b, y) }
  dot(m.out, y)
}
"""


def gradient(source: str, name: str, layers: int) -> str:
    """The graph of the gradient, as it is lowered, by numbers instead of names."""
    spec = f"Net[3, {layers}]"
    text = getattr(difflang.loads(source), name).grad().ir("optimized", spec, "f64[3]")
    names = dict.fromkeys(re.findall(r"%[\w.]+", text))
    numbers = {name: f"%{i}" for i, name in enumerate(names)}
    return re.sub(r"%[\w.]+", lambda found: numbers[found[0]], text).replace("by_fields", "by_items")


@pytest.mark.parametrize("strategy", ["full", "sqrt", "every, steps = 4", "revolve, slots = 3", "auto"])
def test_a_loop_over_layers_is_the_loop_over_their_fields(strategy: str) -> None:
    source = LAYERS.replace("STRATEGY", f"checkpoint({strategy})")
    assert gradient(source, "by_items", 17) == gradient(source, "by_fields", 17)


def test_a_graph_does_not_grow_with_the_layers() -> None:
    source = LAYERS.replace("@STRATEGY\n", "")
    assert gradient(source, "by_items", 20).replace("20", "48") == gradient(source, "by_items", 48)


NESTED = """
enum L { A(k: f64), Off }
record B { l: L, x: f64 }
record Top[n] { bs: B[n], two: L[2, n], name: str }
fn e(bs: B[n]) -> f64 = sum(for b in bs => match b.l { A(k) => k * b.x^2, Off => b.x })
fn t(m: Top[n]) -> f64 = e(m.bs) + sum(for r in m.two => sum(for l in r => match l { A(k) => k^2, Off => 0.0 }))
fn step(m: Top[n]) -> f64 = t(m - 0.1 * grad(t)(m))
let bs = [B(l = A(2.0), x = 3.0), B(l = Off, x = 1.0)]
let m = Top(bs = bs, two = [[A(1.0), Off], [Off, A(2.0)]], name = "m")
"""


def test_a_tangent_is_added_to_arrays_of_enums_in_records() -> None:
    found = answer("bs - 0.1 * grad(e)(bs)", NESTED)
    compare(found, answer("[B(l = A(2.0 - 0.9), x = 3.0 - 1.2), B(l = Off, x = 0.9)]", NESTED))
    moved = answer("m + -0.5 * grad(t)(m)", NESTED)
    two = "two = [[A(0.0), Off], [Off, A(0.0)]]"
    compare(moved, answer(f'Top(bs = [B(l = A(-2.5), x = -3.0), B(l = Off, x = 0.5)], {two}, name = "m")', NESTED))


def test_a_step_along_such_a_gradient_has_a_gradient() -> None:
    """`step` moves along the gradient; its own derivative is by differences of the numbers of one item."""
    source = (
        NESTED + 'fn at(k: f64) -> f64 = step(Top(bs = [B(l = A(k), x = 3.0)], two = [[Off], [A(2.0)]], name = "m"))\n'
    )
    slope = answer("at'(2.0)", source)
    compare(slope, answer("(at(2.0 + 1e-5) - at(2.0 - 1e-5)) / 2e-5", source), 1e-6)


@pytest.mark.parametrize(
    "use",
    ["a[1] = P(2.0, cos)", "a = concat(a, [P(2.0, cos)])", "a = where([true, false], a, [P(1.0, cos), P(1.0, cos)])"],
)
def test_arrays_of_different_functions_cannot_be_one(use: str) -> None:
    source = f"record P {{ m: f64, f: (f64) -> f64 }}\nvar a = [P(1.0, sin), P(1.0, sin)]\n{use}\n"
    assert codes(source) == [("DL0317", 3)]
