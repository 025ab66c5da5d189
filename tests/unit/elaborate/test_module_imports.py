"""Programs of several files: what imports bind, where they lead, what is run of them, what is said of wrong ones."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

import difflang
from difflang.base.source import Source
from difflang.cli import main
from difflang.driver.checked_program import check_program
from difflang.elaborate.context import Session
from difflang.host import check_statements
from difflang.host.check_statements import HostChecker
from difflang.host.values import HostValue
from difflang.ir.op import OPS
from difflang.ir.tensor_types import DTYPES, Tensor
from difflang.syntax import tree
from difflang.tools.testing.derivative_rule_comparison import compare_rule
from difflang.types.module_scope import ModuleScope

Files = Callable[..., Path]

MODEL = """
pub record Net[d, h] { a: f64[h, d], inner: Layer[h] }
record Layer[h] { p: f64[h] }
pub let scale: f64 = 2.0
let k: f64 = 3.0
pub fn make(d: dim, h: dim) -> Net[d, h] = Net(a = f64(ones(h, d)), inner = Layer(p = f64(zeros(h))))
pub fn run(n: Net[d, h], x: f64[d]) -> f64[h] = tanh(n.a @ x + n.inner.p)
pub fn scaled(x: f64) -> f64 = scale * k * x
pub fn through(g: (f64) -> f64, x: f64) -> f64 = k * g(x)
fn secret(x: f64) -> f64 = x
print("this belongs to a run of the file")
assert 1 > 2
"""


@pytest.fixture
def files(tmp_path: Path) -> Files:
    """Writes the files of a program; the first is the one to run."""

    def write(**texts: str) -> Path:
        for name, text in texts.items():
            place = tmp_path / f"{name.replace('__', '/')}.dfl"
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text, encoding="utf-8")
        return tmp_path / f"{next(iter(texts))}.dfl"

    return write


def command(name: str, path: Path, *options: str) -> Result:
    return CliRunner().invoke(main, [name, str(path), *options], catch_exceptions=False)


def shown(path: Path, *options: str) -> str:
    """What a program prints."""
    result = command("run", path, "--engine", "interpret", *options)
    assert result.exit_code == 0, result.output
    return result.stdout


def said(path: Path, *options: str) -> str:
    """What is reported of a program, file by file."""
    result = command("check", path, *options)
    assert result.exit_code == 1, result.output
    return result.stderr.replace(str(path.parent) + "/", "")


def codes(path: Path, *options: str) -> list[str]:
    lines = [line for line in said(path, *options).splitlines() if line.startswith(("error[", "warning["))]
    return [line.partition("[")[2].partition("]")[0] for line in lines]


# ---- What an import binds


def test_values_types_and_functions_of_a_module(files: Files) -> None:
    main = """
float f64
import "./model.dfl" as model
fn loss(n: model.Net[d, h], x: f64[d]) -> f64 = sum(model.run(n, x)^2)
let net = model.make(2, 1)
print(model.scaled(1.0), model.scale, [1.0, 2.0].dot([1.0, 1.0]))
print(net.a, loss(net, [0.0, 0.0]), grad(loss)(net, [0.0, 0.0]).inner)
print(model.Net(a = [[1.0]], inner = net.inner).a)
"""
    assert shown(files(main=main, model=MODEL)).splitlines() == [
        "6.0 2.0 3.0",
        "[[1.0, 1.0]] 0.0 D(Layer)(p = [0.0])",
        "[[1.0]]",
    ]


def test_names_that_are_imported_are_used_as_if_they_stood_here(files: Files) -> None:
    main = """
float f64
import "model.dfl" (Net, run, scale, make,)
fn out(n: Net[d, h], x: f64[d]) -> f64[h] = n.run(x)
print(out(make(2, 1), [scale, -scale]))
"""
    assert shown(files(main=main, model=MODEL)) == "[0.0]\n"


def test_a_name_beside_those_that_are_listed(files: Files) -> None:
    text = 'import "model.dfl" as m (run)\nlet n = m.make(1, 1)\nprint(run(n, [f64(0)]), m.scale)\n'
    assert shown(files(main=text, model=MODEL)) == "[0.0] 2.0\n"


def test_without_a_name_a_file_gives_its_own(files: Files) -> None:
    assert shown(files(main='import "./model.dfl"\nprint(model.scale)\n', model=MODEL)) == "2.0\n"


def test_what_the_same_name_means_in_two_modules(files: Files) -> None:
    """A function of one module calls one of another that reads its own `k`, with a third `k` captured."""
    main = """
float f64
import "a.dfl" as a
import "b.dfl" as b
let k = 100.0
fn here(x: f64) -> f64 = k * x
print(a.times(2.0), b.times(2.0), here(2.0))
print(a.through(here, 1.0), a.through(b.times, 1.0), a.through(|x| k * a.times(x), 1.0))
print(grad(|x| a.through(|y| y * b.times(y) * k, x))(3.0))
"""
    module = "pub fn times(x: f64) -> f64 = k * x\npub fn through(f: (f64) -> f64, x: f64) -> f64 = k * f(x)\n"
    path = files(main=main, a=f"let k: f64 = 2.0\n{module}", b=f"let k: f64 = 3.0\n{module}")
    expected = ["4.0 6.0 200.0", "200.0 6.0 400.0", "3600.0"]
    assert shown(path).splitlines() == expected
    assert command("run", path).stdout.splitlines() == expected


def test_a_local_name_hides_a_module(files: Files) -> None:
    main = """
import "./model.dfl" as model
fn first(model: model.Net[d, h]) -> f64 = model.a[0, 0]
print(first(model.make(1, 1)))
"""
    assert shown(files(main=main, model=MODEL)) == "1.0\n"


def test_a_rule_travels_with_its_function(files: Files) -> None:
    """The loop stops where it begins, so that only the rule knows the derivative."""
    module = """
pub fn root(a: f64) -> f64 = stop(sqrt(a))
rule root(a) by implicit |x| x * x - a
"""
    main = 'import "m.dfl" as m\nprint(grad(m.root)(4.0), m.root\'(16.0), grad(|a| m.root(a) * a)(f64(4)))\n'
    assert shown(files(main=main, m=module)) == "0.25 0.125 3.0\n"


def test_a_module_is_read_once_however_it_is_come_by(files: Files) -> None:
    """A record of it is one type, by whatever way."""
    main = """
import "lib/a.dfl" as a
import "./lib/deep/c.dfl" as c
import "./lib/../lib/deep/c.dfl" as again
print(c.of(a.made()), again.of(a.made()), a.of(c.C(x = f64(3))))
"""
    a = 'import "deep/c.dfl" (C)\npub fn made() -> C = C(x = f64(2))\npub fn of(c: C) -> f64 = c.x\n'
    c = "pub record C { x: f64 }\npub fn of(c: C) -> f64 = c.x\n"
    assert shown(files(main=main, lib__a=a, lib__deep__c=c)) == "2.0 2.0 3.0\n"


def test_records_with_records_of_a_third_module(files: Files) -> None:
    main = """
import "b.dfl" as b
fn total(m: b.Mlp[n]) -> f64 = sum(m.first.w) + m.rate
fn change(m: b.Mlp[n], dm: D(b.Mlp[n])) -> b.Mlp[n] = m + dm
let m = b.new(3)
print(total(m), change(m, grad(total)(m)))
"""
    b = """
import "c.dfl" (Layer)
pub record Mlp[n] { first: Layer[n], rate: f64 }
pub fn new(n: dim) -> Mlp[n] = Mlp(first = Layer(w = f64(zeros(n)), tag = 1), rate = f64(1))
"""
    c = "pub record Layer[k] { w: f64[k], tag: i32 }\n"
    path = files(main=main, b=b, c=c)
    assert shown(path) == "1.0 Mlp(first = Layer(w = [1.0, 1.0, 1.0], tag = 1), rate = 2.0)\n"
    module: Any = difflang.load(path)
    mlp = module.b.Mlp(first={"w": np.ones(2), "tag": 3}, rate=0.5)
    assert float(module.total(mlp)) == 2.5
    assert module.total.grad()(mlp).first.keys() == {"w"}  # given as a dict, changed as one
    assert type(module.total.grad()(module.b.new(3)).first).__name__ == "D_Layer"
    assert np.asarray(module.change(mlp, {"first": {"w": np.ones(2)}, "rate": 1.0}).first.w).tolist() == [2, 2]


def test_the_default_float_is_that_of_each_file(files: Files) -> None:
    path = files(main='float f64\nimport "m.dfl" as m\nprint(m.third, 1 / 3)\n', m="pub let third = 1 / 3\n")
    assert shown(path) == "0.33333334 0.3333333333333333\n"
    assert shown(path, "--float", "f64") == "0.3333333333333333 0.3333333333333333\n"


def test_the_standard_library_has_the_default_float_of_the_program(files: Files) -> None:
    """No number as written in a library makes those of a program shorter, and of two defaults the longer one counts."""
    text = "import ode (rk4)\nprint(rk4(|t, y| -0.5 * y, 1.0, 0.0, 1.0))\n"
    assert shown(files(main=text)) == "0.6065307\n"
    assert shown(files(main=f"float f64\n{text}")).startswith("0.60653065971")
    generic = "pub fn half[T: float](x: T) -> T = 0.1 * x\n"
    path = files(main='float f64\nimport "m.dfl" as m\nprint(m.half(0.7))\n', m=generic)
    assert shown(path) == "0.06999999999999999\n"


# ---- What is run of a module


def test_a_value_is_computed_when_it_is_needed_and_once(files: Files, tmp_path: Path) -> None:
    """The second `let` reads a file that is not there, and nothing needs it."""
    (tmp_path / "data").mkdir()
    np.save(tmp_path / "data" / "x.npy", np.array([1.0, 2.0]))
    module = """
pub let x: f64[n] = read_npy("x.npy")
pub let y: f64[3] = read_npy("missing.npy")
let drawn = normal()
pub let first = drawn
pub let second = drawn
pub fn total() -> f64 = sum(x) * f64(n)
"""
    main = 'import "data/m.dfl" as m\nprint(m.x, m.total(), m.first == m.second, m.first == normal())\n'
    path = files(main=main, data__m=module)
    assert shown(path) == "[1.0, 2.0] 6.0 true false\n"
    draws = 'import "data/m.dfl" as m\nprint(m.first)\n'
    texts = [shown(files(draws=draws, data__m=module), "--seed", str(seed)) for seed in (0, 0, 1)]
    assert texts[0] == texts[1] != texts[2]


def test_which_numbers_a_module_draws(files: Files) -> None:
    """Each `let` those of a session of its own, by the numbers of its module and its own, both from the end."""
    first = "let other = normal()\npub let x = uniform(2)\n"
    second = 'import "a.dfl" (x)\npub let y = uniform(2) + 0 * x\n'
    path = files(
        main='import "b.dfl" (y)\nimport "a.dfl" (x)\nprint(x)\nprint(y)\nprint(uniform(2))\n', a=first, b=second
    )
    fold = OPS["fold_in"].reference
    files_of = [fold(np.array([0, 9], np.uint32), np.uint32(2**32 - 1 - i)) for i in (0, 1)]
    keys = [fold(key, np.uint32(2**32 - 1 - j)) for key, j in zip(files_of, (1, 0), strict=True)]
    seeds = [*[(int(k[0]) << 32) + int(k[1]) for k in keys], 9]
    alone = files(alone="print(uniform(2))\n")
    assert shown(path, "--seed", "9") == "".join(shown(alone, "--seed", str(seed)) for seed in seeds)


@pytest.mark.parametrize("order", ["m.x, m.y", "m.y, m.x", "m.drawn(), m.y, m.drawn(), m.x"])
def test_what_a_module_draws_depends_on_nothing_else(files: Files, order: str) -> None:
    module = "pub let x = uniform(2)\npub let y = uniform(2)\npub host fn drawn() -> f32 { x[0] + uniform() }\n"
    path = files(main=f'import "m.dfl" as m\nlet values = ({order})\nprint(m.x)\nprint(m.y)\n', m=module)
    alone = files(alone='import "m.dfl" as m\nprint(m.x)\nprint(m.y)\n', m=module)
    assert shown(path, "--seed", "9") == shown(alone, "--seed", "9")


def test_what_is_wrong_with_data_is_said_where_it_is_read(files: Files) -> None:
    path = files(main='import "m.dfl" as m\nprint(m.y)\n', m='pub let y: f64[3] = read_npy("missing.npy")\n')
    result = command("run", path, "--engine", "interpret")
    assert result.exit_code == 1 and "error[DL0701]" in result.stderr and "m.dfl:1:21" in result.stderr


def test_a_failure_inside_a_module_points_there(files: Files) -> None:
    m = 'pub fn at(x: f64[n], i: i32) -> f64 {\n  assert i > 0, "not the first"\n  x[i]\n}\n'
    path = files(main='import "m.dfl" as m\nprint(m.at([1.0, 2.0], 0))\n', m=m)
    for engine in ("interpret", "xla"):
        result = command("run", path, "--engine", engine)
        assert result.exit_code == 3 and "m.dfl:2:10" in result.stderr, result.stderr


def test_a_host_function_runs_where_it_is_declared(files: Files) -> None:
    """It reads its own module's values, and forgets its names at the end."""
    module = """
let k = 3
pub host fn report(x: f32[n], name: str) {
  for i in 0..n { print("{name}: {x[i]}, {k * n}") }
}
pub host fn doubled(x: f32[n]) = 2 * x
host fn hidden() { print(1) }
"""
    main = """
import "m.dfl" as m (doubled)
let k = 100
let n = 5
let x = doubled([1.0, 2.0])
m.report(x, "twice")
let y = m.doubled(x)
print(y, k, n)
"""
    path = files(main=main, m=module)
    assert shown(path).splitlines() == ["twice: 2.0, 6", "twice: 4.0, 6", "[4.0, 8.0] 100 5"]
    assert codes(files(other='import "m.dfl" as m\nm.hidden()\n', m=module)) == ["DL0724"]
    inside = 'import "m.dfl" as m\nfn f(x: f32[n]) -> f32[n] = m.doubled(x)\n'
    assert codes(files(inside=inside, m=module)) == ["DL0322"]


# ---- Where imports lead


def test_the_standard_library_and_the_folders_of_the_command_line(files: Files, tmp_path: Path) -> None:
    text = 'import linalg\nimport more\nimport "deep/more.dfl" as deep\nprint(more.x, deep.y)\n'
    lib = 'import "deep/more.dfl" (y)\npub let x = y\n'
    path = files(main__main=text, lib__more=lib, lib__deep__more="pub let y = 4\n").parent / "main/main.dfl"
    assert shown(path, "--path", str(tmp_path / "lib")) == "4 4\n"
    assert codes(path) == ["DL0720", "DL0720"]
    result = command("check", path, "--path", str(tmp_path / "nowhere"))
    assert result.exit_code == 2 and "does not exist" in result.stderr


@pytest.mark.parametrize(
    ("written", "code"),
    [
        ('"../other.dfl"', "DL0721"),
        ('"sub/../../other.dfl"', "DL0721"),
        ('"/etc/other.dfl"', "DL0721"),
        ('"C:\\\\other.dfl"', "DL0721"),
        ('"link.dfl"', "DL0721"),
        ('"folder/inner.dfl"', "DL0721"),
        ('"missing.dfl"', "DL0720"),
        ('"sub"', "DL0720"),
        ('""', "DL0720"),
        ('"."', "DL0720"),
        ('"data.csv"', "DL0720"),
        ('"a-b.dfl"', "DL0720"),
        pytest.param(f'"./{"a" * 300}/b.dfl"', "DL0720", id="no folder can have that name"),
        ('"a\\u{0}/b.dfl"', "DL0720"),
        ("prelude", "DL0720"),
        ("other", "DL0720"),
    ],
)
def test_nothing_leads_anywhere_else(files: Files, tmp_path: Path, written: str, code: str) -> None:
    path = files(**{"main/main": f"import {written}\n", "other": "pub let x = 1\n", "main/a-b": "", "main/sub/in": ""})
    (tmp_path / "main" / "link.dfl").symlink_to(tmp_path / "other.dfl")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "inner.dfl").write_text("pub let x = 1\n")
    (tmp_path / "main" / "folder").symlink_to(tmp_path / "outside")
    (tmp_path / "main" / "data.csv").write_text("1,2\n")
    assert codes(path) == [code]


def test_a_link_within_the_folder_is_followed(files: Files, tmp_path: Path) -> None:
    path = files(main='import "link.dfl" as m\nprint(m.x)\n', real="pub let x = 1\n")
    (tmp_path / "link.dfl").symlink_to("real.dfl")
    assert shown(path) == "1\n"


def test_a_very_long_chain_of_modules(files: Files) -> None:
    count = 300
    texts = {f"m{i}": f'import "m{i + 1}.dfl" as m\npub fn f(x: i32) -> i32 = x + 1\n' for i in range(count)}
    assert command("check", files(**texts, **{f"m{count}": ""})).exit_code == 0


# ---- What is said of wrong ones


def test_each_mistake_is_said_once_and_in_its_file(files: Files) -> None:
    main = 'import "m.dfl" as m\nprint(m.f(1.0), m.f(2.0))\nprint(y)\n'
    report = said(files(main=main, m="pub fn f(x: f32) -> f32 = x + zz\n"))
    assert report.count("error[") == 2
    assert "m.dfl:1:31" in report and "main.dfl:3:7" in report


def test_what_a_failed_import_was_to_bind_is_no_mistake_of_its_own(files: Files) -> None:
    main = """
import "missing.dfl" as a (b, C)
fn f(x: a.T[n], y: C) -> f32 = a.g(x) + b(1.0)
fn g[V: vec](x: V) -> V = a.h(x)
let z: a.T = a.k
print(a.k, b, z)
"""
    assert codes(files(main=main)) == ["DL0720"]


def test_a_circle_is_shown_with_its_way(files: Files) -> None:
    texts = {name: f'import "{other}.dfl" as {other}\n' for name, other in ("ab", "bc", "ca")}
    report = said(files(**texts))
    assert "modules import each other: a.dfl → b.dfl → c.dfl → a.dfl" in report
    assert report.count("error[") == 1
    assert codes(files(me='import "me.dfl"\n')) == ["DL0722"]


@pytest.mark.parametrize(
    ("statement", "code", "text"),
    [
        ("print(m.runn)", "DL0723", "did you mean `run`?"),
        ("print(m.secret(1.0))", "DL0724", "write `pub` before"),
        ("print(m.k)", "DL0724", "write `pub` before"),
        ("fn f(x: m.Layer[d]) -> f32 = 1.0", "DL0724", "write `pub` before"),
        ("fn f(x: m.Nett[d]) -> f32 = 1.0", "DL0723", "did you mean `Net`?"),
        ("fn f(x: m.run) -> f32 = 1.0", "DL0202", "a type must be a record"),
        ("fn f(x: mm.Net) -> f32 = 1.0", "DL0201", "there is no module `mm`"),
        ("print(model.run)", "DL0201", "there is no `model` here"),
        ("print(m)", "DL0201", "`m` is a module, not a value"),
        ("fn g[V: vec](x: V) -> V = m.nothing(x)", "DL0723", "the module `model` has no `nothing`"),
        ('import "model.dfl" (nothing)', "DL0723", "the module `model` has no `nothing`"),
        ('import "model.dfl" (secret)', "DL0724", "write `pub` before"),
        ("m.scale = 4.0", "DL0208", "`m` is imported"),
        ("fn f(x: f32) -> f32 { m = x }", "DL0208", "`m` is imported"),
        ("let m = 3", "DL0210", "declared twice"),
        ("import linalg as m", "DL0210", "declared twice"),
        ("import odd", "DL0720", "did you mean `ode`?"),
        ("import model", "DL0720", 'write `import "./model.dfl"`'),
        ('import "./modle.dfl" as n', "DL0720", "did you mean `./model.dfl`?"),
        ('import "./model" as n', "DL0720", 'write `"./model.dfl"`'),
    ],
)
def test_ways_out(files: Files, statement: str, code: str, text: str) -> None:
    path = files(main=f'import "./model.dfl" as m\n{statement}\n', model=MODEL.replace("\nassert 1 > 2", ""))
    assert codes(path) == [code] and text in said(path)


def test_the_nearest_module_is_proposed(files: Files) -> None:
    report = said(files(main='import "./scales.dfl"\nprint(scale.x)\n', scales="pub let x = 1\n"))
    assert "did you mean `scales`?" in report


@pytest.mark.parametrize(("factor", "right"), [("2", True), ("3", False)])
def test_rules_of_other_modules_are_held_against_their_bodies(files: Files, factor: str, right: bool) -> None:
    """A wrong one is found from where it is used; the module's own value is read with the rule and without."""
    module = f"""
let k: f64 = 5.0
pub fn f(x: f64) -> f64 = k * x * x
rule f(x) {{ (f(x), linear |dx| {factor} * k * x * dx) }}
"""
    path = files(main='import "m.dfl" as m (f)\nfn g(x: f64) -> f64 = sin(m.f(x)) + f(x)\n', m=module)
    checked = check_program(Source("main.dfl", path.read_text()), path=path)
    value = HostValue(Tensor(DTYPES["f64"]), (np.float64(0.3),))
    assert compare_rule(checked, "g", [value], path=path).within(1e-12) is right


def test_what_a_module_imports_is_not_passed_on(files: Files) -> None:
    path = files(main='import "a.dfl" as a\nprint(a.x)\n', a='import "b.dfl" (x)\n', b="pub let x = 1\n")
    assert codes(path) == ["DL0724"] and "imported by `a`" in said(path)


def test_whoever_imports_the_library_does_not_check_its_tests(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    apart = HostChecker.check_isolated

    def spied(self: HostChecker, above: Any, block: Any, what: str, **more: Any) -> None:
        seen.append(f"{what} of {self.module.name}")
        apart(self, above, block, what, **more)

    monkeypatch.setattr(HostChecker, "check_isolated", spied)
    test = 'test "one" { assert 1 == 1 }\n'
    path = files(main=f'import ode (dopri5)\nimport "m.dfl" as m (f)\n{test}', m=f"pub fn f() = 1.0\n{test}")
    assert command("check", path).exit_code == 0
    assert seen == ["test of m", "test of main"]


def test_whoever_imports_the_library_does_not_check_its_functions(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    one = check_statements.check_definition

    def spied(module: ModuleScope, decl: tree.Fn, session: Session) -> None:
        seen.append(f"{decl.name} of {module.name}")
        one(module, decl, session)

    monkeypatch.setattr(check_statements, "check_definition", spied)
    path = files(main='import ode (dopri5)\nimport "m.dfl" as m (f)\n', m="pub fn f() = 1.0\n")
    assert command("check", path).exit_code == 0
    assert seen == ["f of m"]


# ---- Doors


def test_from_python(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    path = files(main='import "model.dfl" as m (scaled)\nfn twice(x: f64) -> f64 = 2 * m.scaled(x)\n', model=MODEL)
    module: Any = difflang.load(path)
    assert float(module.twice(1.0)) == 12 and float(module.twice.grad()(1.0)) == 12
    assert float(module.m.scaled(1.0)) == 6 and float(module.scaled(1.0)) == 6
    assert list(module) == ["twice"] and module.m.Net is module.m.Net
    monkeypatch.chdir(path.parent)
    assert float(difflang.loads('import "model.dfl" as m\nfn f(x: f64) -> f64 = m.scaled(x)\n').f(2.0)) == 12
    elsewhere = difflang.loads("import model\nfn f(x: f64) -> f64 = model.scaled(x)\n", paths=[path.parent])
    assert float(elsewhere.f(2.0)) == 12
    with pytest.raises(difflang.DataError, match="DL0720"):
        difflang.loads('import "other.dfl"\n')


def test_other_commands(files: Files) -> None:
    path = files(main='import "model.dfl" as m\nfn f(x: f64) -> f64 = m.scaled(x)\n', model=MODEL)
    assert "mul" in command("emit", Path(f"{path}:f"), "--stage", "optimized").stdout
    assert command("check-grad", Path(f"{path}:f"), "--engine", "interpret").exit_code == 0


def test_checking_imports_needs_no_jax(files: Files) -> None:
    path = files(main='import ode\nimport "model.dfl"\n', model=MODEL.replace("\nassert 1 > 2", ""))
    script = """
import sys
from difflang.base.source import Source
from difflang.types.module_scope import ModuleScope
from difflang.cli import main
from difflang.driver.checked_program import check_program
from difflang.host import check_statements
from difflang.host.check_statements import HostChecker
from difflang.tools.testing.derivative_rule_comparison import compare_rule
from difflang.host.values import HostValue
from difflang.ir.op import OPS
from difflang.ir.tensor_types import DTYPES, Tensor
try:
    main(["check", sys.argv[1]])
except SystemExit as ended:
    assert not ended.code
assert "jax" not in sys.modules
"""
    assert subprocess.run([sys.executable, "-c", script, str(path)], check=False).returncode == 0


@pytest.mark.parametrize(
    ("source", "way"),
    [
        ("import nn\nlet z = nn.relu([1.0])\n", "`relu` belongs to the language and needs no module"),
        ("import nn\nfn relu(x: f32) -> f32 = 2 * x\nlet z = nn.relu(1.0)\n", "did you mean `selu`?"),
        ("import nn (dense, softmax)\n", "`softmax` belongs to the language and needs no module"),
        ("import linalg\nlet g = linalg.grad(sin)(1.0)\n", "`grad` belongs to the language and needs no module"),
        ("import nn\nlet z = nn.adam(1.0)\n", "it is in `optim`: `import optim (adam)`"),
        ("import stats\nlet z = stats.log_pdf(1.0)\n", "did you mean `log_density`?"),
        ("import stats (ppf)\n", "did you mean `quantile_of`?"),
        ("import stats (dirichlet_logs)\n", "it has dirichlet_log_density"),
        ("import losses (huber)\n", "did you mean `huber_loss`?"),
        ("import optim (adam_init)\n", "it has adam, …"),
    ],
)
def test_a_name_that_a_module_of_the_library_lacks(source: str, way: str) -> None:
    (found,) = check_program(Source("script.dfl", source)).errors
    assert found.code == "DL0723" and found.helps[0].startswith(way)
    assert [fix.title for fix in found.fixes] == (
        ["write `relu`"] if "nn.relu([" in source else ["write `grad`"] * ("grad" in source)
    )


def test_what_is_wrong_in_the_library_is_reported_where_it_was_called() -> None:
    source = "import minimize (levenberg_marquardt)\nlet e = levenberg_marquardt(|p| [p[0] - p[1]], [1.0, 2.0])\n"
    (found,) = check_program(Source("script.dfl", source)).errors
    assert found.code == "DL0315" and found.labels[0].span.source.name == "script.dfl"
    assert found.labels[0].span.position == (2, 9) and found.labels[1].span.in_library
    source = "import minimize (minimizer)\nlet e = minimizer(|| 1.0, [1.0, 2.0])\n"
    (found,) = check_program(Source("script.dfl", source)).errors
    assert found.code == "DL0319" and found.labels[0].span.position == (2, 19) and found.labels[1].span.in_library
