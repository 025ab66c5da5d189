"""Derivatives as programs: they check, give what the derivative itself gives, and are derived again."""

from __future__ import annotations

from pathlib import Path

import pytest

from difflang.base.diagnostics import DifflangError
from difflang.driver.checked_program import CheckedProgram
from difflang.tools.derive.derive import DeriveOptions, Mode, derive_formulas, derive_function
from support.derived import Held, checked_file, checked_text, held, suitable, twice

ROOT = Path(__file__).parents[4]

PROGRAM = """float f64
let offsets: f64[2] = [0.5, -0.5]
record Layer[i, o] { w: f64[i, o], b: f64[o] }
record Net[d, h] { first: Layer[d, h], last: Layer[h, 1], name: str }

fn book(x1: f64, x2: f64) -> f64 = log(x1) + x1 * x2 - sin(x2)
fn dense(l: Layer[i, o], x: f64[n, i]) -> f64[n, o] = x @ l.w + l.b
fn loss(m: Layer[d, 1], x: f64[n, d], y: f64[n]) -> f64 {
  let z = tanh(dense(m, x))[.., 0]
  mean((z - y)^2)
}
fn nested(m: (f64, (f64[n], f64))) -> f64 {
  let (a, (b, c)) = m
  a * sum(b) * c
}
fn branch(x: f64, y: f64) -> f64 {
  let z = if x > y { x * x } else if x > 0.0 { y * y * x } else { sin(x) }
  z * y
}
fn root(a: f64) -> f64 {
  var x = a
  while abs(x * x - a) > 1e-9 { x = (x + a / x) / 2 }
  x
}
fn counted(x: f64, n: i32) -> f64 {
  var (y, z) = (x, 1.0)
  for i in 0..n { (y, z) = (sin(y) * z, y + f64(i) * x) }
  y * z
}
fn along(x: f64[n], k: f64) -> f64 {
  var s = k
  for v in x { s = s * cos(v) + v }
  s
}
fn halting(x: f64, n: i32) -> f64 {
  var y = x
  for i in 0..n {
    y = y * y
    if y > 2.0 { break }
  }
  y
}
fn until(x: f64[n, m], most: f64) -> f64 {
  var s = zeros(m)
  for v in x {
    if sum(s) > most { break }
    s = sin(s) * v + v
  }
  sum(s)
}
fn early(x: f64[n], most: f64) -> f64 {
  var s = 1.0
  for v in x {
    s *= v
    if s > most { return s * s }
  }
  s
}
fn curve(b: f64[2], x: f64[n], y: f64[n]) -> f64 = sum(for i => (b[0] + b[1] * x[i] - y[i])^2)
fn spread(s: f64, x: f64[n]) -> f64 = sum(x / s - log(s))
fn pairs(x: f64[n], w: f64[n]) -> f64 = sum(for i, j if i != j => w[i] * (x[i] - x[j])^2)
fn filled(x: f64[n], at: i32) -> f64[n] {
  var y = x
  y[at] = x[0] * x[1]
  y[0] += 2.0
  y
}
fn picked(x: f64[n], at: i32[k]) -> f64[k] = x[at]^2
fn table(x: f64[n], y: f64[m]) -> f64[n, m] = x[.., newaxis] * exp(y)
fn padded(x: f64[n]) -> f64[n + 2] = pad(x * x, 1, 1)
fn stacked(x: f64, y: f64) -> f64[3] = [x * y, x, x + y]
fn normed(x: f64[n]) -> f64 = norm(x) + max(x) + cumsum(x)[n - 1]
fn solving(a: f64[n, n], b: f64[n]) -> f64[n] = solve(a + 4.0 * eye(n), b)
fn shifted(x: f64[2]) -> f64 = sum((x - offsets)^2)
fn checked(x: f64) -> f64 {
  assert x > -100.0, "small"
  x * x
}
fn powers(x: f64, k: dim) -> f64[k] = [for i in 0..k => x ^ f64(i)]
fn complexes(z: c128) -> f64 = real(z * z) + imag(z)
fn through(m: Layer[d, d][k], x: f64[d]) -> f64 {
  var y = x
  for l in m { y = tanh(y @ l.w + l.b) }
  sum(y)
}
fn scaled(m: Layer[i, o][j, k], s: f64) -> Layer[i, o][j, k] = m with (b = s * m.b)
fn wide(x: f64[n, d], w: f64[k, d]) -> f64[n, k] = [for i, j => sum(for a => x[i, a] * w[j, a])]
"""
FUNCTIONS = """
book loss nested branch root counted along halting until early curve spread pairs filled picked table
padded stacked normed solving shifted checked powers through wide
""".split()  # noqa: SIM905 - a list of words
MOST = {"powers": 11.0, "wide": 8.0}  # times the operations of the function, which are one or two here
OFTEN = ("book", "loss", "branch", "root", "counted", "along", "stacked", "early")  # derived a second time
LIBRARY = [
    ("losses", "huber_loss"),
    ("geometry", "cross"),
    ("math", "gammainc"),
    ("nn", "layer_norm"),
    ("signal", "convolve"),
]


@pytest.fixture(scope="module")
def program() -> CheckedProgram:
    return checked_text(PROGRAM, "program.dfl")


@pytest.fixture(scope="module")
def derivatives() -> dict[str, Held]:
    return {}


def derived(program: CheckedProgram, made: dict[str, Held], name: str) -> Held:
    if name not in made:
        decl = program.module.fns[name]
        made[name] = held(program, decl, suitable(program, decl))
    return made[name]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_it_gives_what_the_derivative_gives(program: CheckedProgram, derivatives: dict[str, Held], name: str) -> None:
    assert derived(program, derivatives, name).ratio <= MOST.get(name, 4.0)


@pytest.mark.parametrize("name", OFTEN)
def test_it_is_derived_again(program: CheckedProgram, derivatives: dict[str, Held], name: str) -> None:
    twice(derived(program, derivatives, name))


@pytest.mark.parametrize(("module", "name"), LIBRARY)
def test_functions_of_the_library(module: str, name: str) -> None:
    library = checked_file(ROOT / "stdlib" / f"{module}.dfl")
    decl = library.module.fns[name]
    held(library, decl, suitable(library, decl))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("book", DeriveOptions(mode="jvp", wrt="x1,x2")),
        ("book", DeriveOptions(mode="hvp")),
        ("book", DeriveOptions(order=3)),
        ("loss", DeriveOptions(mode="jvp", wrt="m.w")),
        ("loss", DeriveOptions(mode="hvp", wrt="m.b")),
        ("root", DeriveOptions(mode="jvp")),
        ("root", DeriveOptions(order=2)),
        ("table", DeriveOptions(mode="jvp", wrt="y")),
        ("scaled", DeriveOptions(mode="jvp", wrt="s")),
    ],
)
def test_every_mode(program: CheckedProgram, name: str, options: DeriveOptions) -> None:
    held(program, program.module.fns[name], options)


SPLIT = """float f64
axes data
record Line[k] { slope: f64[k], at: f64 }
fn line(m: Line[k], x: f64[n @data, k], y: f64[n @data]) -> (f64[n @data], f64[n @data]) {
  let off = x @ m.slope + m.at - y
  (off, off^2)
}
fn moved(x: f64[n @data, k]) -> f64[n @data, k] = 2.0 * x^2
"""


@pytest.mark.parametrize(
    ("name", "options", "head"),
    [
        ("line", DeriveOptions(mode="vjp", wrt="m,x"), "d_line: (f64[n @data], f64[n @data])"),
        ("line", DeriveOptions(mode="jvp", wrt="x"), "-> ((f64[n @data], f64[n @data]), (f64[n @data], f64[n @data]))"),
        ("moved", DeriveOptions(mode="vjp"), "d_moved: f64[n @data, k]) -> (f64[n @data, k], f64[n @data, k])"),
    ],
)  # fmt: skip
def test_a_result_is_split_as_declared(name: str, options: DeriveOptions, head: str) -> None:
    program = checked_text(SPLIT)
    assert head in " ".join(derive_function(program, program.module.fns[name], options).split())
    held(program, program.module.fns[name], options)


def test_records_of_modules_lose_their_prefix() -> None:
    record = "record Net[k, c] { first: nn.Dense[f32, k, c], all: nn.Norm[f32, c][k] }\n"
    f = "fn f(m: Net[k, c]) -> f32 = sum(m.first.w) * sum(for l in m.all => sum(l.scale^2))\n"
    program = checked_text(f"import nn\n{record}{f}")
    assert record.replace("nn.", "") in held(program, program.module.fns["f"], DeriveOptions()).text


ENUMS = """float f64
record Point[n] { at: f64[n], weight: f64 }
enum Shape[n] { Disk(r: f64, colour: i32), Cloud(point: Point[n], width: f64), Empty }
fn area(s: Shape[n], k: f64) -> f64 = match s {
  Disk(r, _) => k * r^3
  Cloud(p, w) => k^2 * sum(p.at^2 * w) * p.weight
  Empty => k
}
fn both(a: Shape[n], b: Shape[n], k: f64) -> f64 = area(a, k) * area(b, 2 * k) + norm([k, area(b, k)])
fn drawn(s: Shape[n], x: f64[m]) -> f64[m] {
  var y = x
  while sum(y) > 0.1 { y = y / (2 + area(s, 1)^2) }
  y * area(s, 2)
}
"""


ENUM_ARRAYS = """float f64
enum Law { Spring(k: f64, rest: f64), Pull(g: f64[2], far: bool, n: i32), Free }
enum One { Only(x: f64) }
record Arm { law: Law, w: f64 }
fn force(l: Law, r: f64) -> f64 = match l {
  Spring(k, rest) => k * (r - rest)
  Pull(g, far, n) => if far { 0.1 * r } else { f64(n) * sum(g) / r^2 }
  Free => 0.0
}
fn forces(ls: Law[n], r: f64) -> f64 = sum(for l in ls => force(l, r)^2)
fn arms(a: Arm[n, m], r: f64) -> f64 = sum(for row in a => sum(for x in row => x.w * force(x.law, r)))
fn ones(o: One[n]) -> f64 = sum(for x in o => match x { Only(y) => y^3 })
"""


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("forces", DeriveOptions()),
        ("forces", DeriveOptions(wrt="ls,r")),
        ("forces", DeriveOptions(mode="jvp", wrt="r")),
        ("arms", DeriveOptions()),
        ("arms", DeriveOptions(wrt="r")),
        ("ones", DeriveOptions()),
    ],
)
def test_arrays_of_enums(name: str, options: DeriveOptions) -> None:
    program = checked_text(ENUM_ARRAYS, "arrays.dfl")
    held(program, program.module.fns[name], options)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("area", DeriveOptions()),
        ("area", DeriveOptions(wrt="s,k")),
        ("area", DeriveOptions(wrt="k", order=2)),
        ("area", DeriveOptions(wrt="k", mode="jvp")),
        ("both", DeriveOptions(wrt="b,k")),
        ("both", DeriveOptions(wrt="k", mode="hvp")),
        ("drawn", DeriveOptions(mode="vjp")),
        ("drawn", DeriveOptions(wrt="x,s", mode="vjp")),
        ("drawn", DeriveOptions(wrt="x", mode="jvp")),
    ],
)
@pytest.mark.nightly_cases("both-options[45]", "drawn-options6")
def test_enums_are_matched(name: str, options: DeriveOptions) -> None:
    """A derivative for each choice of variants, at several draws of which one it is."""
    program = checked_text(ENUMS, "enums.dfl")
    for seed in range(6):
        held(program, program.module.fns[name], options, seed)


def test_a_derivative_with_enums_is_derived_again() -> None:
    program = checked_text(ENUMS, "enums.dfl")
    twice(held(program, program.module.fns["both"], DeriveOptions(wrt="k")))


def test_it_reads_like_the_original(program: CheckedProgram) -> None:
    text = derive_function(program, program.module.fns["loss"], DeriveOptions())
    assert "record Layer[i, o] { w: f64[i, o], b: f64[o] }" in text
    assert "fn d_loss(m: Layer[d, 1], x: f64[n, d], y: f64[n]) -> D(Layer[d, 1]) {" in text
    assert "let z = " in text and "let d_z = " in text and "zeros_like(m) with (w = " in text
    assert "# line 9: tanh(dense(m, x))[.., 0]" in text


@pytest.mark.parametrize(
    ("name", "says", "not_these"),
    [
        ("curve", "(d_b, d_x, -t2)", ("iota", "@unchecked")),  # at all places is everywhere
        ("spread", "f64(-n)", ("sum(fill",)),
        ("until", "if stop_0 {", ("not (not",)),
    ],
)
def test_it_says_nothing_in_vain(program: CheckedProgram, name: str, says: str, not_these: tuple[str, ...]) -> None:
    decl = program.module.fns[name]
    text = derive_function(program, decl, suitable(program, decl))
    assert says in text
    assert not [word for word in not_these if word in text], text


def test_loops_save_by_yield(program: CheckedProgram) -> None:
    text = derive_function(program, program.module.fns["root"], DeriveOptions())
    assert "let saved = while " in text and "yield x" in text and "in reverse(saved)" in text


def test_values_of_the_file_become_parameters(program: CheckedProgram) -> None:
    assert "fn d_shifted(x: f64[2], offsets: f64[2])" in derive_function(
        program, program.module.fns["shifted"], DeriveOptions()
    )


@pytest.mark.parametrize(
    ("source", "line", "says"),
    [
        ("fn f(x: f64, n: i32) -> f64 = if n == 0 { x } else { x * f(x, n - 1) }", 1, "recursive function"),
        ("record R { a: f64 }\nfn f(g: (R) -> f64, x: f64) -> f64 = g(R(x))", 2, "more than numbers and arrays"),
        ("fn f(g: (f64, f64) -o f64, x: f64) -> f64 = g(x, x)", 1, "a linear function from or to several values"),
        (
            "fn f(g: (f64[n]) -> f64[m], x: f64[n]) -> f64 = sum(g(x))",
            1,
            "only the type of `m` names the size `g`",
        ),
        (
            "enum E { A(x: f64), B }\nfn f(e: (E, f64)) -> f64 = match e { (A(x), y) => x * y, (B, y) => y }",
            2,
            "tangents cannot be written",
        ),
        ("enum E { A, B, C, D }\nfn f(x: f64, a: E, b: E, c: E) -> f64 = x", 2, "one of 64 combinations of variants"),
        (
            "enum E { A, B }\nfn f(x: f64, a: E) -> f64 = match a { A => x * normal(), B => normal() }",
            2,
            "draws random numbers, which differ if",
        ),
        ("fn f(x: f64[n]) -> f64 {\n  let y = prod(x)\n  y * y\n}", 1, "is a different program"),
        (
            "fn f(x: f64[n], y: f64[m]) -> f64 {\n  let k = min(n, m)\n  sum(x[..k] * y[..k])\n}",
            1,
            "is a different program",
        ),
        ("fn f(x: f64, k: dim) -> f64 = if k == 0 { 1.0 } else { x * f(x, k // 2) }", 1, "is a different program"),
        ("fn f(x: f64) -> f64 {\n  print(x)\n  x * x\n}", 2, "output of `print`"),
        ("fn f(x: f64, names: str[n]) -> f64 = x * x", 1, "takes a str[n], whose texts are numbers"),
    ],
)
def test_what_is_not_written_down(source: str, line: int, says: str) -> None:
    program = checked_text(source)
    with pytest.raises(DifflangError) as found:
        derive_function(program, program.module.fns["f"], DeriveOptions())
    (report,) = found.value.diagnostics
    assert report.code == "DL0802" and says in report.message
    assert report.span is not None and report.span.position[0] == line


NAMED_LIKE_OURS = {
    "sum": ("fn sum(x: f64) -> f64 = x * 100.0\nfn f(x: f64, y: f64) -> f64 = x^2 * y", "f", DeriveOptions(mode="vjp")),
    "a parameter": ("fn f(x: f64, sum: f64) -> f64 = sin(x) * sum", "f", DeriveOptions(mode="vjp")),
    "derivative": ("fn derivative(x: f64) -> f64 = x^3", "derivative", DeriveOptions()),
    "a tangent": ("fn d_x(x: f64) -> f64 = x^3", "d_x", DeriveOptions(mode="jvp")),
}


@pytest.mark.parametrize("name", NAMED_LIKE_OURS)
def test_names_of_the_program_are_not_taken_for_ours(name: str) -> None:
    source, function, options = NAMED_LIKE_OURS[name]
    program = checked_text(source)
    decl = program.module.fns[function]
    assert "100" not in held(program, decl, options).text


@pytest.mark.parametrize(
    ("power", "slope"),
    [("2.3", "2.3 * x^1.3"), ("3.3", "3.3 * x^2.3"), ("0.1", "0.1 * x ^ (-0.9)"), ("1e20", "1e+20 * x^1e+20")],
)
def test_an_exponent_is_reduced_in_decimals(power: str, slope: str) -> None:
    program = checked_text(f"fn f(x: f64) -> f64 = x^{power}")
    assert f"= {slope} #" in held(program, program.module.fns["f"], DeriveOptions()).text


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_an_exponent_takes_the_type_of_its_base(dtype: str) -> None:
    program = checked_text(f"fn f(x: {dtype}) -> {dtype} = x^2.3 * x")
    assert "= x^2.3 + x * (2.3 * x^1.3) #" in held(program, program.module.fns["f"], DeriveOptions()).text


@pytest.mark.parametrize(
    ("source", "mode", "says"),
    [
        ("fn f(f: f64) -> f64 = f * f", "grad", "`f` means something else here"),
        ("fn f(x: f64, grad: f64) -> f64 = x * grad", "grad", "`grad` means something else here"),
        ("fn jvp(x: f64) -> f64 = x\nfn f(x: f64) -> f64 = x * x", "jvp", "`jvp` means something else here"),
        ("fn f(x: f64, nan: f64) -> f64 = log(x) * nan", "grad", "another value named `nan`"),
        ("let inf = [2.0, 3.0]\nfn f(x: f32) -> f32 = log(x) * sum(inf)", "grad", "another value named `inf`"),
        ("fn f(x: f64, cos: f64) -> f64 = sin(x) * cos", "grad", "a parameter is named `cos`"),
    ],
)
def test_a_name_that_hides_what_a_derivative_needs(source: str, mode: Mode, says: str) -> None:
    program = checked_text(source)
    with pytest.raises(DifflangError) as found:
        derive_function(program, program.module.fns["f"], DeriveOptions(mode=mode))
    (report,) = found.value.diagnostics
    assert report.code == "DL0802" and says in report.message
    assert report.span is not None and report.span.source is program.module.source


def test_a_record_in_a_tuple() -> None:
    program = checked_text(
        "record In { a: f64, b: f64[2] }\nrecord Out { i: In, c: f64, tag: i32 }\n"
        "fn f(p: (Out, f64)) -> f64 {\n  let (o, w) = p\n  o.i.a * sum(o.i.b^2) * w + o.c^3\n}"
    )
    held(program, program.module.fns["f"], DeriveOptions())


def test_sizes_that_decide_are_told() -> None:
    program = checked_text("fn f(x: f64[n]) -> f64 = prod(x)")
    assert "x: f64[3]" in derive_function(program, program.module.fns["f"], DeriveOptions(argument_specs={"n": "3"}))
    held(program, program.module.fns["f"], DeriveOptions(argument_specs={"n": "3"}))


@pytest.mark.parametrize("name", ["items", "steps", "frames"])
def test_sizes_called_like_the_room_that_a_program_has(name: str) -> None:
    """What loops yield, and recursion, have room for a number of `items`, `steps`, `frames` of their own."""
    program = checked_text(
        f"fn f(x: f64, m: dim, {name}: dim) -> f64[m] {{\n  var s = x\n"
        f"  for _ in 0..m {{\n    for _ in 0..{name} {{ s = s * sin(s) + x }}\n    yield s\n  }}\n}}\n"
        f"fn g(x: f64[{name}]) -> f64 {{\n  var s = 0.0\n  for v in x {{ s += v * s + v }}\n  s\n}}"
    )
    twice(held(program, program.module.fns["f"], DeriveOptions(mode="vjp")))
    held(program, program.module.fns["g"], DeriveOptions())


def test_formulas(program: CheckedProgram) -> None:
    options = DeriveOptions(wrt="x1,x2")
    assert derive_formulas(program, None, "book", options) == "d_x1 = x2 + 1 / x1\nd_x2 = x1 - cos(x2)\n"
    first, second = derive_formulas(program, None, "book", options, latex=True).splitlines()
    assert first == r"\frac{\partial \mathrm{book}}{\partial x_{1}} = x_{2} + \frac{1}{x_{1}}"
    assert second == r"\frac{\partial \mathrm{book}}{\partial x_{2}} = x_{1} - \cos\left(x_{2}\right)"
    for name in ("root", "branch", "normed"):
        with pytest.raises(DifflangError, match="DL0802"):
            derive_formulas(program, None, name, DeriveOptions())


KEPT = """float f64
fn walk(x: f64[n], k: f64) -> f64[n] {
  var s = x
  for i in 0..5 { s = s * cos(s) + k }
  s
}
fn root(a: f64) -> f64 {
  var x = a
  while abs(x * x - a) > 1e-9 { x = (x + a / x) / 2 }
  x
}
"""


@pytest.mark.parametrize(("name", "word"), [("walk", "for _ in"), ("root", "while")])
def test_a_pullback_runs_each_loop_once(name: str, word: str) -> None:
    program = checked_text(KEPT)
    text = held(program, program.module.fns[name], DeriveOptions(mode="vjp")).text
    assert text.count(word) == 1


SPELLED = """float f64
fn angle(y: f64, x: f64) -> f64 = atan2(y * x, x)
fn gammas(x: f64[n]) -> f64 = sum(digamma(x) + lgamma(x * x))
fn volume(a: f64[2, 2]) -> f64 = det(a) + sum(expm(a))
fn images(x: f64[1, 5, 6, 2], w: f64[2, 3, 1, 4]) -> f64 =
  sum(max_pool2d(conv2d(x, w, padding = "same", groups = 2), 2) ^ 2) + sum(avg_pool2d(x, (2, 3), stride = (1, 2))^2)
fn edges(x: f64[1, 6, 2], w: f64[3, 2, 4], pad: f64) -> f64 = pad * sum(conv1d(x, w, padding = "same", stride = 2)^2)
fn twice(x: f64[3], at: i32[4]) -> f64 {
  var (y, z) = (x, x)
  y[at] = x[at] * 2.0
  z[at] max= x[at] * x[0]
  sum(y * z * cumprod(x))
}
fn around(c: f64[n]) -> f64 = sum([for i in 0..n, j in 0..n => c[(i - j) % max(n, 1)]]^2)
fn legendre(n: i32, x: f64) -> f64 {
  var (p, q) = (1.0, x)
  for k in 1..n { (p, q) = (q, (f64(2 * k + 1) * x * q - f64(k) * p) / f64(k + 1)) }
  q
}
"""
THRICE = ["angle", "gammas", "volume", "twice", "legendre"]


@pytest.mark.parametrize("name", ["angle", "gammas", "volume", "images", "edges", "twice", "around", "legendre"])
def test_what_has_no_name_is_put_together(name: str) -> None:
    program = checked_text(SPELLED)
    decl = program.module.fns[name]
    found = held(program, decl, suitable(program, decl))
    for _ in range(2 if name in THRICE else 0):
        found = twice(found)


NESTED = """float f64
fn inner(x: f64) -> f64 {
  var y = x
  while y * y > 1.5 { y = y * 0.7 + 0.1 * sin(x * y) }
  y
}
fn outer(x: f64, n: i32) -> f64 {
  var s = x
  for i in 0..n { s = inner(s + 2.0) * x }
  s
}
fn branch(x: f64) -> f64 = if x > 0.5 { inner(x * 3.0) } else { x * x }
fn each(x: f64[n]) -> f64 = sum(for i => inner(3.0 * x[i]))
fn several(x: f64, k: i32, n: dim) -> f64[n] {
  var y = x
  for i in 0..n {
    let z = outer(y, k)
    y = if z > 0.2 { z } else { y * 1.1 }
    yield y
  }
}
"""


@pytest.mark.parametrize("name", ["outer", "branch", "each", "several"])
def test_what_loops_within_loops_keep_is_made_again(name: str) -> None:
    program = checked_text(NESTED)
    decl = program.module.fns[name]
    found = held(program, decl, suitable(program, decl))
    assert "in reverse(" in found.text
    if name == "outer":
        twice(found)
