"""What a person who comes from another language writes, and the way out that a report names."""

from __future__ import annotations

import pytest

import difflang
from difflang.base.package_data import stdlib_files, stdlib_module_of_name

PROGRAMS = {
    "let sum = 3.0\nprint(sum([1.0, 2.0]))": "a value named `sum` hides the function here: rename the value",
    "fn f(x: f32[n]) -> f32 {\n  for i in n { }\n  1.0\n}": "write a range as `0..n`",
    "fn f(x: f32(n, m)) -> f32 = 1.0": "sizes go in brackets: `f32[n, m]`",
    "fn f(k: i32) -> f32[k] = zeros(k)": "or by a parameter `k: dim`",
    "print([1.0, 2.0][..-1])": "a range counts from the front: the end of the axis is 2",
    "fn f(x: f32) -> f32 = x\nprint(jvp(f)(1.0))": "write `jvp(f)(x, dx)`",
    "enum S { A(x: f32), B }\nfn f(s: S) -> f32 = s.x": "read the contents of an enum with `match`",
    "fn f(n: i32) -> i32 {\n  var k = n\n  let h = while k > 0 {\n    k -= 1\n    yield k\n  }\n  h[0]\n}":
        "a history has no indices: iterate with `for v in h`, or fold it with `reduce`",
    'print("a" + "b")': 'join texts by interpolation: `"{a}{b}"`',
    "print(normal(3, seed = 1))":
        "set the seed with `--seed`, or use a key: `with_key(key(7)) { normal(n) }`",
    "let p = [1.0]\nprint(adam(p, p, p))": "import it: `import optim (adam)`",
    "print(logpdf(1.0, 2.0))": "the library's name is `log_density`: `import stats (log_density)`",
    "print(huber(1.0, 2.0))": "the library's name is `huber_loss`: `import losses (huber_loss)`",
    "let samples = 1.0\nprint(sample)": "did you mean `samples`?",
    "print(gammaln(1.0))": "write `lgamma(x)`",
    "print(psi(1.0))": "write `digamma(x)`",
    "import stats (log_density)\nprint(log_density(Normal(0.0, 1.0), 1.0))": "import it: `import stats (Normal)`",
    "import stats (Normal)\nfn f(d: Normal) -> f32 = 1.0": "`Normal` is a variant of `Distribution`, which is the type",
    "enum Move {\n Go(a: f32)\n Stay\n}\nfn f(d: Go) -> f32 = d.a": "`Go` is a variant of `Move`, which is the type",
    "fn f(n: i32) -> i32 {\n  var k = n\n  while k { k -= 1 }\n  k\n}": "compare it, as in `k != 0`",
    "var x = 0.5\nif x { x = 1.0 }": "compare it, as in `x != 0.0`",
    "let x = [1.0]\nif x > 0.0 { print(1) }": "`any(…)` is true if one element is true, `all(…)` if all are",
    "record P { x: f32 }\nprint(D(P)(x = 1.0))": "a tangent has no literal",
    "print(randn(3))": "draw with `normal(n)`, `uniform(n)` or `permutation(n)`",
    "fn f(b: bool, k: i32) -> i32 = b + k": "there is no implicit conversion: write `i32(b)`",
    "fn f(b: bool, k: i32) -> i32 = k + b": "there is no implicit conversion: write `i32(b)`",
    "fn f(b: bool, k: i32) -> bool = b and k": "write `bool(k)`",
    "fn f(b: bool, k: i32) -> bool = k or b": "write `bool(k)`",
    "fn f(b: bool) -> i32 = b + 1": "there is no implicit conversion: write `i32(b)`",
    "fn f(b: bool) -> f32 = b * 1.5": "there is no implicit conversion: write `f32(b)`",
    "let x = [1.0]\nx.append(2.0)": "`concat(x, [y])` makes a longer one",
}  # fmt: skip


@pytest.mark.parametrize("source", PROGRAMS)
def test_the_way_out_is_named(source: str) -> None:
    with pytest.raises(difflang.CheckError) as caught:
        difflang.loads(source)
    helps = " ".join(h for d in caught.value.diagnostics for h in d.helps)
    assert PROGRAMS[source] in helps


@pytest.mark.parametrize("head", ["fn f(x: f32) -> f32 {\n  ", ""])
def test_all_unknown_names_of_a_statement_are_told(head: str) -> None:
    """Of a lambda's and a comprehension's own names none is."""
    source = (
        head + "let y = adam(1.0, [for v in [1.0] => v + w], |t| sinn(t), moments(1.0))" + ("\n  y\n}" if head else "")
    )
    with pytest.raises(difflang.CheckError) as caught:
        difflang.loads(source)
    messages = [d.message for d in caught.value.diagnostics]
    assert messages == [f"there is no `{name}` here" for name in ("adam", "w", "sinn", "moments")]


def test_what_a_derivative_is_taken_in_is_no_unknown_name() -> None:
    with pytest.raises(difflang.CheckError) as caught:
        difflang.loads(
            "record M { w: f32 }\nfn f(y: f32, m: M) -> f32 = y^2 * m.w\nprint(unk, grad[y, m.w](f)(1.0, M(2.0)))\n"
        )
    assert [d.message for d in caught.value.diagnostics] == ["there is no `unk` here"]


def test_what_is_to_be_imported_can_be() -> None:
    """Every name of the library, from the module that a report names."""
    found = stdlib_module_of_name()
    assert {path.stem for path in stdlib_files()} == {"prelude", *found.values()}
    for module in set(found.values()):
        names = ", ".join(name for name, of in found.items() if of == module)
        assert difflang.loads(f"import {module} ({names})") is not None
