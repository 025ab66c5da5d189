"""`difflang repl`: what is piped in, every command, what is proposed, and a terminal."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from difflang.base.source import Source
from difflang.cli import main
from difflang.cli.repl import terminal
from difflang.cli.repl.meta_commands import edit_in_editor
from difflang.cli.repl.session import COMMANDS, CompilerLoader, ReplSession
from difflang.cli.repl.terminal import ReplCompleter, highlight_lines, run_terminal
from difflang.syntax.lexer import tokenize
from difflang.syntax.parse import parse
from difflang.syntax.repl_input import is_complete, split_inputs, strip_prompts
from difflang.tools.completion_candidates import CompletionNames, complete
from support.trees import shape

ROOT = Path(__file__).parents[3]
FILES = [*sorted((ROOT / "stdlib").glob("*.dfl")), ROOT / "examples" / "fit_curve.dfl"]


def repl(*lines: str, engine: str = "interpret") -> Result:
    return CliRunner().invoke(main, ["repl", f"--engine={engine}"], input="".join(f"{line}\n" for line in lines))


def test_what_is_not_bound_is_told_with_what_is() -> None:
    for line in (":t g", ":doc ggg"):
        assert "there are sq, y" in repl("fn sq(x: f64) -> f64 = x * x", "let y = 2.0;", line).output
        assert "nothing has been declared yet" in repl(line).output


# ---- What is piped in

SESSION = """\
# A session.
let x = [1.0, 2.0]
fn f(x: f32[n]) -> f32 {
  sum(x^2)
}
f(x)
f(x);
_ + 1
if x[0] > 0 {
  print("positive")
}
else {
  print("negative")
}
[1.0, 2.0]
  |> f
f
"""


def test_a_piped_session() -> None:
    result = repl(*SESSION.splitlines())
    assert result.stdout == "5.0  : f32\n6.0  : f32\npositive\n5.0  : f32\nfunction f\n"
    assert (result.stderr, result.exit_code) == ("", 0)


def test_the_exit_code_is_that_of_the_first_failure() -> None:
    result = repl("assert 1 == 2", "y", "1 + 1")
    assert (result.exit_code, result.stdout) == (3, "2  : i32\n")
    assert result.stderr.count("error[") == 2 and "\x1b" not in result.output
    assert repl("y", "assert 1 == 2").exit_code == 1
    assert repl("f(1").exit_code == 1
    assert repl("1", ":quit", "y").exit_code == 0


def test_a_fault_of_ours_costs_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("difflang.driver.interactive_session.InteractiveSession.type_of", lambda *_: 1 / 0)
    result = repl("let x = 1", ":t x", "x + 1")
    assert (result.exit_code, result.stdout) == (70, "2  : i32\n")
    assert "Traceback" not in result.output and str(tmp_path) in result.stderr


def test_a_transcript_is_its_inputs() -> None:
    transcript = "dfl> let x = 1\ndfl> fn f(y: i32) -> i32 {\n...    y + x\n...  }\ndfl> f(2)\n3  : i32\ndfl>"
    assert strip_prompts(transcript) == "let x = 1\nfn f(y: i32) -> i32 {\n  y + x\n}\nf(2)\n"
    assert strip_prompts("let x = 1\nx") == "let x = 1\nx"


def test_a_pasted_transcript_is_carried_out_input_by_input(capsys: pytest.CaptureFixture[str]) -> None:
    talk = talking()
    assert talk.run_input("dfl> let x = 1\ndfl> x\n1  : i32\ndfl> let x = x + 1\ndfl> x\n2  : i32")
    assert capsys.readouterr().out == "1  : i32\n2  : i32\n"


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.name)
def test_a_file_read_line_by_line_is_the_file(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    whole = parse(Source("a", text)).module.items
    parts = [parse(Source("a", part)) for part in split_inputs(text.splitlines())]
    assert not any(part.diagnostics for part in parts)
    assert [shape(i) for part in parts for i in part.module.items] == [shape(i) for i in whole]


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.name)
@pytest.mark.nightly_except("prelude.dfl|losses.dfl|data.dfl|image.dfl|adaptive.dfl")
def test_a_file_cut_anywhere_is_incomplete_or_wrong_or_ends_there(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    whole = [shape(i) for i in parse(Source("a", text)).module.items]
    for token in tokenize(Source("a", text))[:: len(text) // 150]:
        cut = text[: token.end]
        found = parse(Source("a", cut))
        if not found.diagnostics:
            items = [shape(i) for i in found.module.items]
            assert items[:-1] == whole[: max(len(items) - 1, 0)]
        assert is_complete(cut) or found.diagnostics


# ---- Commands

COMMAND_CALLS = {
    ":t x": "f32[2]\n",
    ":t f": "fn f(x: f32[n]) -> f32\n",
    ":t x @ x": "f32\n",
    "?f": "fn f(x: f32[n]) -> f32\n\nSquares.\n",
    ":doc x": "x: f32[2] = [1.0, 2.0]\n",
    "?sin": "fn sin[T: float | complex](x: T[..s]) -> T[..s]\n\nThe sine",
    "?nothing": "error[DL0201]",
    "?sinn": "`sin`",
    ":ir f x=f32[3]": "yield %",
    ":ir sum(x)": "reduce_sum",
    ":hlo f x=f32[3]": "stablehlo",
    ":mem f x=f32[1000]": "3.91 KiB",
    ":mem g": "there is no function `g`",
    ":check f x=f32[3]": "f: right",
    ":time f(x)": "median",
    ":g f": "fn d_f(",
    ":trace f x=[1, 2]": "v2  = sum(v1)",
    ":trace f": "add `x=…`",
    "?map": "fn map[A, B](f: (A) -> B, xs: A[n]) -> B[n]",
    "?vmap": "along the first axis",
    "?pi": "3.14159",
    "?for": "A loop over a range",
    "?optim": "`import optim`",
    "?nn.dense": "`import nn`",
    "?init_dense": "it is in `nn`: `import nn (init_dense)`",
    "?dense": "it is in `nn`",
    "help": ":load FILE",
    "quit()": "",
    ":why DL0310": "# DL0310",
    ":why": "DL01  syntax",
    ":why DL9999": "there is no code",
    ":load missing.dfl": "error[DL0701]",
    ":reload": "no file has been loaded",
    ":undo": "removed: ## Squares.",
    ":help": ":load FILE",
    ":quit": "",
    ":tt x": "did you mean `:t`?",
    ":t": "usage of `:t`: `:t EXPRESSION`",
}


@pytest.mark.parametrize("call", COMMAND_CALLS)
def test_a_command(call: str) -> None:
    result = repl("let x = [1.0, 2.0]", "## Squares.", "fn f(x: f32[n]) -> f32 = sum(x^2)", call)
    assert COMMAND_CALLS[call] in result.output, result.output
    assert "internal error" not in result.output


def test_what_a_module_offers_is_told() -> None:
    shown = repl("import nn", "?nn", "?nn.dense", "?nn.Dense", "?nn.dens").output
    assert "nn: a module with " in shown and "x @ w + b." in shown and "pub record Dense" in shown
    assert "fn dense[T: float](l: Dense[T, i, o], x: T[..s, i]) -> T[..s, o]" in shown
    assert "did you mean `nn.dense`" in shown


def test_a_value_may_be_called_quit() -> None:
    assert repl("let quit = 3", "quit", "quit + 1").stdout == "3  : i32\n4  : i32\n"


def test_every_command_is_tested() -> None:
    tested = {call.replace("?", ":doc ").split()[0] for call in COMMAND_CALLS}
    tested -= {"help", "quit()"}
    assert set(COMMANDS) - tested == {":save", ":edit"}


def test_files_are_loaded_and_saved(tmp_path: Path) -> None:
    model, saved = tmp_path / "model.dfl", tmp_path / "saved.dfl"
    model.write_text("fn f(x: f32) -> f32 = 2 * x\nf(2.0)\n")
    result = repl(f":load {model}", "f(3.0)", ":reload", f":save {saved}", f":save {saved}")
    assert result.stdout == "4.0  : f32\n6.0  : f32\n4.0  : f32\n"
    assert saved.read_text() == f"{model.read_text()}f(3.0)\n{model.read_text()}"
    assert "error[DL0710]" in result.stderr and "exists" in result.stderr
    model.write_text("fn f(x: f32) -> f32 = y\n")
    assert f"{model}:1:23" in repl(f":load {model}").stderr
    saved.write_text("let x = 2.0\n")
    assert CliRunner().invoke(main, ["repl", "--engine=interpret", str(saved)], input="x").stdout == "2.0  : f32\n"


@pytest.mark.parametrize("how", ["load", "argument"])
def test_a_loaded_file_reads_and_imports_beside_itself(how: str, tmp_path: Path) -> None:
    model = tmp_path / "model.dfl"
    (tmp_path / "data.csv").write_text("1\n2\n")
    (tmp_path / "helper.dfl").write_text("pub fn two() -> f64 = 2.0\n")
    model.write_text(
        """import "./helper.dfl" as helper
host fn total() -> f64 {
  let y: f64[n] = read_csv("data.csv")
  sum(y)
}
print(total(), helper.two())
"""
    )
    # What the file declares reads there later too; what is typed reads in the current folder.
    inputs = ("total()", 'let z: f64[n] = read_csv("data.csv")')
    command = ["repl", "--engine=interpret"] + ([str(model)] if how == "argument" else [])
    typed = "\n".join((f":load {model}", *inputs) if how == "load" else inputs)
    result = CliRunner().invoke(main, command, input=typed)
    assert result.stdout == "3.0 2.0\n3.0  : f64\n"
    assert "error[DL0701]" in result.stderr and str(Path.cwd()) in result.stderr


def test_an_input_is_edited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    editor = tmp_path / "editor.py"
    editor.write_text(
        "import sys\np = sys.argv[1]\nt = open(p).read().replace('2 * x', '3 * x')\nopen(p, 'w').write(t)"
    )
    monkeypatch.setenv("EDITOR", f"{sys.executable} {editor}")
    monkeypatch.delenv("VISUAL", raising=False)
    result = repl("fn f(x: f32) -> f32 = 2 * x", "let y = 1", ":edit f", "f(2.0)")
    assert result.stdout == "fn f(x: f32) -> f32 = 3 * x\n6.0  : f32\n"
    monkeypatch.setenv("EDITOR", "no-such-editor")
    assert "error: the editor" in repl("1", ":edit").stderr
    with pytest.raises(Exception, match="no-such-editor"):
        edit_in_editor("1")


# ---- What is proposed

KNOWN = {"alpha": ("value", "f32"), "also": ("value", "i32"), "align": ("function", "fn align()"), "p": ("value", "P")}
NAMES = CompletionNames(
    KNOWN,
    lambda name: {"left": ("value", "f32"), "length": ("value", "i32")} if name == "p" else {},
    lambda name: {"f": ("f32", "i32")}.get(name, ()),
)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("al", ["alpha", "also", "align"]),
        ("let x = al", ["alpha", "also", "align"]),
        ("f(al", ["alpha", "also", "align"]),
        ("f(g(1), al", ["also", "alpha", "align"]),
        ("f(1)[al", ["alpha", "also", "align"]),
        ("p.le", ["left", "length"]),
        ("f(1, p.le", ["length", "left"]),
        ("q.le", []),
        ("wh", ["while"]),
        ("", []),
        ("3a", []),
        ('"al', []),
        ("1 # al", []),
        ('"a" + al', ["alpha", "also", "align"]),
    ],
)
def test_what_is_proposed(text: str, words: list[str]) -> None:
    found = complete(text, NAMES)
    assert [c.word for c in found] == words
    assert all(text[c.start :] and c.word.startswith(text[c.start :]) for c in found if text[-1] != ".")


def test_shapes_are_shown_beside() -> None:
    assert complete("alp", NAMES)[0].detail == "f32"


def test_colours_change_no_text() -> None:
    for text in ('let x = "a" + 1.5 # one\n\nfn f', ":t x", "", '"open', "a $ b\n"):
        assert "\n".join("".join(piece[1] for piece in line) for line in highlight_lines(text)) == text
    (line,) = highlight_lines("let x = 1.5")
    assert ("class:word", "let") in line and ("class:number", "1.5") in line


# ---- A terminal


@pytest.fixture
def typing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    """What a terminal would send, and the state folder of a person of its own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with create_pipe_input() as pipe:
        yield pipe


def talking() -> ReplSession:
    return ReplSession(CompilerLoader("interpret", None, 0, "f32", ()))


def test_a_session_through_a_pipe_input(typing: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    typing.send_text("fn f(x: f32) -> f32 {\rx * 2\r}\rf(4.0)\rlet zed = 5\rzed\x03zed + 1\r:quit\r")
    run_terminal(talking(), ["1 + 1"], typing, DummyOutput())
    shown = capsys.readouterr().out
    assert shown.splitlines() == [terminal.GREETING, "2  : i32", "8.0  : f32", "6  : i32"]
    assert "+f(4.0)" in (tmp_path / "difflang" / "history").read_text()


def test_an_interrupt_right_after_enter_is_meant_for_what_was_entered(
    typing: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """The editor has not given the terminal back by then, and hears it as a key: a loop would have gone on."""
    typing.send_text("1 + 1\r\x03\x032 + 2\r3 + 3\x03:quit\r")
    run_terminal(talking(), [], typing, DummyOutput())
    shown = capsys.readouterr()
    assert shown.out.splitlines() == [terminal.GREETING, "4  : i32"] and shown.err == "interrupted\n"


def test_names_of_the_session_are_proposed() -> None:
    talk = talking()
    talk.run_input("let zed = [5.0]")
    (found, *others) = ReplCompleter(talk).get_completions(Document("1 + ze"), CompleteEvent())
    assert (found.text, found.start_position, found.display_meta_text) == ("zed", -2, "f32[1]")
    assert "zeros" in [each.text for each in others]


def test_fields_of_fields_are_proposed() -> None:
    talk = talking()
    talk.run_input("record In { rate: f32 }\nrecord Out { inner: In }\nlet out = Out(inner = In(rate = 1.0))")
    (found,) = ReplCompleter(talk).get_completions(Document("out.inner.ra"), CompleteEvent())
    assert (found.text, found.display_meta_text) == ("rate", "f32")


def test_the_end_of_input_ends_the_session(typing: Any) -> None:
    typing.send_text("\x04")
    run_terminal(talking(), [], typing, DummyOutput())


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")
@pytest.mark.nightly
def test_a_real_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The prompt is there before JAX is; Ctrl-C ends a loop of the host, and waiting for XLA; what there is stays."""
    import pexpect

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("TERM", "xterm")

    def unheard() -> None:  # as is what a script starts beside itself
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    def begun() -> Any:
        child = pexpect.spawn(
            sys.executable, ["-m", "difflang", "repl"], encoding="utf-8", timeout=120, cwd=str(ROOT),
            preexec_fn=unheard,
        )  # fmt: skip
        child.expect("dfl> ")
        return child

    begun().terminate(force=True)  # the first on a machine compiles Python's modules
    child = begun()
    if (
        used := Path(f"/proc/{child.pid}/stat")
    ).exists():  # the processor's time: the clock's depends on its other work
        ticks = sum(map(int, used.read_text().rpartition(")")[2].split()[11:13]))
        assert ticks / os.sysconf("SC_CLK_TCK") < 0.6
    child.send("let x = 4.0\r")
    child.send("host fn loop() { while true { let y = 1 } }\r")
    child.send("fn spin(n: i32) -> f32 {\rvar y = 1.0\rfor i in 0..n { y = sin(y) }\ry\r}\r")
    child.send("sqrt(x) + spin(1)\r")
    child.expect(r"2\.84")
    for call in ("loop()", "spin(2000000000)"):
        child.send(f"{call}\r")
        time.sleep(2)
        asked = time.monotonic()
        child.sendintr()
        child.expect("interrupted")
        assert time.monotonic() - asked < 10
        child.send("x * x\r")
        child.expect(r"16\.0")
    child.send(":quit\r")
    child.expect(pexpect.EOF)


def test_a_wrong_rule_is_refused_and_changes_nothing() -> None:
    cube = "fn cube(x: f64) -> f64 = x * x * x"
    rule = "rule cube(x) { (cube(x), linear |dx| k * x * x * dx) }"
    result = repl(cube, "let k: f64 = -3.0;", rule, "cube'(2.0)", "let k: f64 = 3.0;", rule, "cube'(2.0)")
    assert "error[DL1109]: the rule of `cube` has a wrong derivative" in result.output
    assert result.output.count("DL1109]") == 1 and result.output.count("12.0") == 2 and "-12.0" not in result.output
