"""A program that grows input by input: what replaces what, and what survives a mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

from difflang.base.diagnostics import Diagnostic, DifflangError
from difflang.driver.interactive_session import InteractiveSession
from difflang.driver.run_program import file_access
from difflang.execution.engine import Engine
from difflang.host.values import format_value
from difflang.tools import session_queries
from difflang.types.language_types import show_type


class Talk:
    """A session that keeps what was printed."""

    def __init__(self, engine: str = "interpret") -> None:
        self.printed: list[str] = []
        self.warned: list[Diagnostic] = []
        made = Engine(engine)  # type: ignore[arg-type]
        self.session = InteractiveSession(made, file_access(None), 0, self.printed.append, self.warned.extend)

    def feed(self, *texts: str) -> str:
        """What the last input gives."""
        value = None
        for text in texts:
            value = self.session.run_input(text)
        return "" if value is None else f"{format_value(value)}: {show_type(value.type)}"

    def fails(self, text: str) -> str:
        with pytest.raises(DifflangError) as caught:
            self.session.run_input(text)
        return caught.value.diagnostics[0].code


@pytest.fixture
def talk() -> Talk:
    return Talk()


def test_values_and_the_last_one(talk: Talk) -> None:
    assert talk.feed("1 + 1") == "2: i32"
    assert talk.feed("_ * 3") == "6: i32"
    assert talk.feed("let x = [1.0, 2.0]") == ""
    assert talk.feed("x", "sum(_)") == "3.0: f32"
    assert talk.feed("var k = 1", "k += 1", "for i in 0..3 { k += i }", "k") == "5: i32"
    assert talk.feed('print("hello")') == "" and talk.printed == ["hello"]


def test_a_name_may_be_taken_again(talk: Talk) -> None:
    assert talk.feed("let x = 1", "let x = x + 1", "x") == "2: i32"
    assert talk.feed("let x = [1.0]", "x") == "[1.0]: f32[1]"
    assert talk.feed("fn x(y: f32) -> f32 = y", "x(2.0)") == "2.0: f32"
    assert talk.feed("let x = 3", "x") == "3: i32"


def test_a_function_is_what_it_was_declared_as_last(talk: Talk) -> None:
    talk.feed("fn g(x: f32) -> f32 = x", "fn f(x: f32) -> f32 = x^2 * g(x)")
    assert talk.feed("grad(f)(2.0)") == "12.0: f32"
    assert talk.feed("fn g(x: f32) -> f32 = x * x", "grad(f)(2.0)") == "32.0: f32"


def test_a_translated_loop_calls_what_was_declared_last(talk: Talk) -> None:
    talk.feed("let k = 1", "fn f(x: i32) -> i32 = k * x")
    talk.feed("host fn total(n: i32) -> i32 {\n  var s = 0\n  for i in 0..n { s += f(i) }\n  s\n}")
    assert talk.feed("total(40)") == "780: i32"
    assert talk.feed("fn f(x: i32) -> i32 = 2 * k * x", "total(40)") == "1560: i32"
    assert talk.feed("let k = 10", "total(40)") == "15600: i32"


def test_a_function_reads_the_values_that_are_there(talk: Talk) -> None:
    talk.feed("let a = 2.0", "fn h(x: f32) = a * x")
    assert talk.feed("h(1.0)") == "2.0: f32"
    assert talk.feed("let a = 3.0", "h(1.0)") == "3.0: f32"
    assert talk.feed("host fn again() -> f32 { h(1.0) }", "again()") == "3.0: f32"
    assert talk.feed("let a = 4.0", "again()") == "4.0: f32"


def test_records_and_enums_are_declared_again(talk: Talk) -> None:
    talk.feed("record P { a: f32 }", "let p = P(1.0)", "record P { a: f32, b: f32 }")
    assert talk.feed("P(1.0, 2.0)") == "P(a = 1.0, b = 2.0): P"
    assert talk.feed("p") == "P(a = 1.0): P"
    talk.feed("enum E { A, B(r: f32) }", "enum E { A, C(r: f32) }")
    assert talk.fails("B(1.0)") == "DL0201"


def test_what_is_wrong_changes_nothing(talk: Talk) -> None:
    talk.feed("let x = 1", "fn f(x: f32) -> f32 = x")
    for text, code in {
        "y": "DL0201", "f(": "DL0103", "fn f(x: f32) -> f32 = y": "DL0201", "let x = [1, 2.5, true]": "DL0317",
        "import nothing": "DL0720", "record P { x: nothing }\nP(1)": "DL0202",
    }.items():  # fmt: skip
        assert talk.fails(text) == code, text
        assert (talk.feed("x"), talk.feed("f(2.0)")) == ("1: i32", "2.0: f32"), text


@pytest.mark.parametrize("engine", ["interpret", "xla"])
def test_what_fails_keeps_the_session(engine: str) -> None:
    talk = Talk(engine)
    talk.feed(
        "let x = 1", "fn at(x: f32[n], i: i32) -> f32 = x[i]", "host fn loop(n: i32) { for i in 0..n { assert i < 2 } }"
    )
    for text, code in {"assert x == 2": "DL0901", "at([1.0, 2.0], 5)": "DL0902", "loop(5)": "DL0901"}.items():
        assert talk.fails(text) == code
        assert talk.feed("x + 1") == "2: i32"
    assert talk.fails("let x = 5\nassert x == 2") == "DL0901"
    assert talk.feed("x") == "5: i32"  # what stood above the failure is kept


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError, ValueError])
def test_a_fault_in_the_middle_keeps_the_session(talk: Talk, error: type[BaseException]) -> None:
    talk.feed("let x = 1")
    with pytest.MonkeyPatch.context() as patch:

        def fault(*_: object) -> None:
            raise error

        patch.setattr(talk.session.runner, "write", fault)
        with pytest.raises((error, DifflangError)):
            talk.feed("for i in 0..3 { let x = i\nprint(x) }")
    assert talk.feed("x + 1") == "2: i32"


def test_undo_goes_back_input_by_input(talk: Talk) -> None:
    talk.feed("let x = 1", "let x = 2", "fn f(y: i32) = y + x")
    assert talk.feed("f(1)") == "3: i32"
    assert [talk.session.undo() for _ in range(3)] == ["f(1)", "fn f(y: i32) = y + x", "let x = 2"]
    assert talk.feed("x") == "1: i32"
    assert talk.fails("f(1)") == "DL0201"
    assert [talk.session.undo() for _ in range(3)] == ["x", "let x = 1", None]


def test_draws_are_drawn_again_after_undo(talk: Talk) -> None:
    first, second = talk.feed("normal(2)"), talk.feed("normal(2)")
    assert first != second
    talk.session.undo()
    assert talk.feed("normal(2)") == second


def test_imports_are_read_once(talk: Talk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert talk.feed("import math (lerp)", "lerp(1.0, 3.0, 0.25)").startswith("1.5")
    assert talk.feed("import math", "math.trapezoid([1.0, 2.0], [0.0, 1.0])") == "1.5: f32"
    assert len(talk.session.files) == 3  # `math` imports `special`
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.dfl").write_text("pub record P { x: f32 }\npub let three = 3.0\npub fn f(p: P) -> f32 = p.x * three")
    (tmp_path / "b.dfl").write_text('import "a.dfl" (P)\npub fn made() -> P = P(2.0)')
    mine = Talk()
    assert mine.feed('import "a.dfl" as a', 'import "b.dfl" as b', "a.f(b.made())") == "6.0: f32"


def test_nothing_stays_of_what_is_only_asked_for_its_type(talk: Talk) -> None:
    talk.feed("let x = [1.0, 2.0]")
    assert show_type(talk.session.type_of("x @ x").type) == "f32"
    talk.session.type_of("let y = x")
    assert talk.fails("y") == "DL0201"


def test_names_and_fields(talk: Talk) -> None:
    talk.feed("record P { a: f32, b: i32 }", "let p = P(1.0, 2)", "fn f(p: P, k: i32) -> f32 = p.a", "import math")
    names = session_queries.visible_names(talk.session)
    assert (names["p"].kind, names["p"].text) == ("value", "P")
    assert names["f"].text == "fn f(p: P, k: i32) -> f32"
    assert {"sin", "zeros", "print", "log2", "math", "P"} <= set(names)
    assert {n: k.text for n, k in session_queries.member_names(talk.session, "p").items()} == {"a": "f32", "b": "i32"}
    assert "lerp" in session_queries.member_names(talk.session, "math")
    assert session_queries.parameter_types(talk.session, "f") == ("P", "i32")


def test_a_warning_is_said_once(talk: Talk) -> None:
    talk.feed("fn f(x: f32) -> f32 = 1.0", "grad(f)(2.0)")
    assert [d.code for d in talk.warned] == ["DL0409"]


def test_the_record_of_several_derivatives_has_a_type(talk: Talk) -> None:
    assert talk.feed("grad[x, y](|x, y| x * y)(1.0, 2.0)") == "D(grad)(x = 2.0, y = 1.0): D(grad)"
    assert talk.feed("grad[x, y](|x, y| sum(x) * y)([1.0], 2.0)") == "D(grad)(x = [2.0], y = 1.0): D(grad)"
