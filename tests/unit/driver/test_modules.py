"""What several files have together with host code, tests and arguments of a program: each means what it means alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from difflang.cli import main
from difflang.execution.engine import Engine
from difflang.tools.testing.suite import Outcome, SuiteOptions, open_suite

Files = Callable[..., Path]

TOOLS = """
## > twice(2.0)
## 4.0
pub fn twice(x: f64) -> f64 = 2.0 * x
pub let base = 3.0
let drawn = normal(2)
let size: i32 = arg("size", default = 2)
var count = 0
pub record Point { x: f64, y: f64 }
pub host fn sum_of[T: float](xs: T[n], start: T = 1.0) -> T {
  var total = start
  for x in xs {
    if x < 0.0 { return total }
    total += x
  }
  total
}
pub host fn factorial(n: i32) -> i32 {
  let count = n
  if count <= 1 { return 1 }
  n * factorial(n - 1)
}
pub host fn above(x: f64) -> f64 {
  assert twice(x) > base, "too small: {x}"
  x
}
pub host fn sized() -> i32 = size
pub host fn made() -> Point = Point(x = 1.0, y = twice(base))
pub fn noise() -> f64[2] = drawn
test "inside" { assert twice(base) == 6.0 }
"""


@pytest.fixture
def files(tmp_path: Path) -> Files:
    """Writes `main.dfl` beside a module `tools.dfl`."""

    def write(text: str, tools: str = TOOLS) -> Path:
        (tmp_path / "tools.dfl").write_text("float f64\n" + tools, encoding="utf-8")
        path = tmp_path / "main.dfl"
        path.write_text("float f64\n" + text, encoding="utf-8")
        return path

    return write


def command(name: str, path: Path, *options: str) -> Result:
    return CliRunner().invoke(main, [name, str(path), "--engine", "interpret", *options], catch_exceptions=False)


def shown(path: Path, *options: str) -> str:
    result = command("run", path, *options)
    assert result.exit_code == 0, result.output
    return result.stdout


def outcomes(path: Path) -> list[Outcome]:
    suite = open_suite(str(path), SuiteOptions(Engine("interpret")), path.name)
    return [suite.run(n) for n in range(len(suite.cases))]


# ---- Host functions of other modules


def test_they_return_early_call_themselves_and_have_defaults(files: Files) -> None:
    text = """import "tools.dfl" as t (sum_of)
print(sum_of([1.0, 2.0, -1.0, 7.0]), sum_of([1.0], start = 0.0), [2.0] |> sum_of, t.factorial(5))
print([t.factorial(3), 1], t.made().y + sum_of([0.5]))
let steps = for i in 1..4 { yield t.factorial(i) }
print(steps)
"""
    assert shown(files(text)) == "4.0 1.0 3.0 120\n[6, 1] 7.5\n[1, 2, 6]\n"


def test_a_name_of_their_own_is_not_the_files(files: Files) -> None:
    """`count` is a variable of the module, which only running it would give; inside, it is another."""
    assert shown(files('import "tools.dfl" as t\nlet n = 100\nprint(t.factorial(3), n)\n')) == "6 100\n"


def test_a_default_is_of_the_file_that_declares_it(files: Files) -> None:
    tools = "let start = 5.0\npub host fn from[T: float](x: T, y: f64 = start) -> f64 = f64(x) + y\n"
    text = 'import "tools.dfl" as t\nlet start = 100.0\nhost fn here[T: float](x: T) = t.from(x)\nprint(here(1.0))\n'
    assert shown(files(text, tools)) == "6.0\n"


def test_what_a_file_declares_hides_what_every_file_knows(files: Files) -> None:
    """A name that is imported is what was imported; a value is found before it was needed."""
    tools = "pub fn clock() -> f64 = 7.0\nlet load = |x| x + 1.0\npub host fn f(x: f64) -> f64 = load(x)\n"
    assert shown(files('import "tools.dfl" (clock, f)\nprint(clock(), f(1.0))\n', tools)) == "7.0 2.0\n"


def test_a_record_of_another_module_is_saved_and_loaded(files: Files) -> None:
    tools = "record Inner[n] { xs: f64[n] }\npub record Outer[n] { inner: Inner[n], k: f64 }\n"
    tools += "pub fn outer() -> Outer[3] = Outer(inner = Inner(xs = ones(3)), k = 2.0)\n"
    text = 'import "tools.dfl" as t\nsave("o.npz", t.outer())\nlet back: t.Outer[n] = load("o.npz")\n'
    assert shown(files(text + "print(n, back.inner.xs, back.k)\n", tools)) == "3 [1.0, 1.0, 1.0] 2.0\n"


# ---- Tests


def test_tests_and_examples_see_what_is_imported(files: Files) -> None:
    text = """import "tools.dfl" as t (sum_of, base)
let total = sum_of([base])
## > f(2.0)
## 12.0
fn f(x: f64) -> f64 = t.twice(base * x)
test "names" { assert total == 4.0 and t.factorial(4) == 24 and f(1.0) == t.made().y }
test "wrong" { assert t.factorial(4) == 25 }
test "inside" { print(t.above(1.0)) }
"""
    example, names, wrong, inside = outcomes(files(text))
    assert (example.result, names.result) == ("passed", "passed"), example.report + names.report
    assert "this is 24" in wrong.report
    assert inside.codes == ("DL0901",) and "too small: 1.0" in inside.report
    assert "this is 2.0" in inside.report and "called from here" in inside.report and "main.dfl:9" in inside.report


def test_tests_of_a_module_are_its_own(files: Files) -> None:
    path = files('import "tools.dfl" as t\ntest "mine" { assert t.twice(1.0) == 2.0 }\n')
    assert [o.case.title for o in outcomes(path)] == ['test "mine"']
    tools = outcomes(path.with_name("tools.dfl"))
    assert [(o.case.title, o.result) for o in tools] == [("example twice", "passed"), ('test "inside"', "passed")]


def test_a_test_does_not_depend_on_those_before_it(files: Files) -> None:
    """The values of a module are made anew for each, and draw the same."""
    text = 'import "tools.dfl" as t\n'
    for name in ("one", "two"):
        text += f'test "{name}" {{\n  print(t.noise(), normal(1))\n}}\n'
    one, two = outcomes(files(text))
    assert one.result == "passed" and one.output == two.output
    assert shown(files('import "tools.dfl" as t\nprint(t.noise(), normal(1))\n')) == one.output + "\n"


def test_processes_know_the_folders_of_imports(files: Files, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    path = files("")
    place = tmp_path / "other" / "uses.dfl"
    place.write_text('import tools as t\ntest "a" { assert t.factorial(3) == 6 }\ntest "b" { assert true }\n')
    result = command("test", place, "--path", str(path.parent), "-j", "2")
    assert result.exit_code == 0 and "2 passed" in result.output, result.output
    assert command("test", place).exit_code == 1
    bench = place.with_name("timed.dfl")
    bench.write_text('import tools as t\nbench "one" { t.factorial(3) }\n')
    result = command("bench", bench, "--path", str(path.parent), "--time", "0", "--json")
    assert result.exit_code == 0, result.output


# ---- Arguments of the program


def test_modules_ask_for_arguments(files: Files) -> None:
    path = files('import "tools.dfl" as t\nlet lr: f64 = arg("lr", default = 0.5)\nprint(t.sized(), lr)\n')
    assert shown(path) == "2 0.5\n"
    assert shown(path, "--", "--size", "7", "--lr", "2") == "7 2.0\n"
    usage = shown(path, "--", "--help")
    assert "--size i32" in usage and "--lr f64" in usage
    twice = files('import "tools.dfl" as t\nlet size: f64 = arg("size", default = 0.5)\n')
    result = command("run", twice)
    assert "error[DL0210]" in result.stderr and "tools.dfl" in result.stderr


def test_the_other_commands_take_them_too(files: Files) -> None:
    text = 'let k: f64 = arg("k")\nfn f(x: f64) -> f64 = k * x^2\nprint(f(1.0))\n'
    path = files(text)
    result = command("check-grad", path, "--", "--k", "3")
    assert result.exit_code == 0, result.output
    result = command("check-grad", path)
    assert result.exit_code == 2 and "error[DL1220]: the program needs --k" in result.stderr
    for options, wanted in (("--k", "3"), 0), (("--q", "3"), 2):
        result = CliRunner().invoke(main, ["emit", str(path), "--stage", "ir", "--", *options])
        assert result.exit_code == wanted, result.output


def test_packages_that_modules_need_are_looked_for_before_anything_runs(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("difflang.host.optional_packages.find_spec", lambda _: None)
    tools = 'pub host fn draw(x: f64) { plot([x, x], file = "line.svg") }\n'
    result = command("run", files('import "tools.dfl" as t\nprint("begun")\nt.draw(1.0)\n', tools))
    assert "error[DL0709]" in result.stderr and "begun" not in result.stdout
