"""The Jupyter kernel: a real one through Jupyter's own client, and what is said where it cannot be."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from difflang.cli import main
from difflang.cli.commands import servers
from difflang.cli.repl.cell_session import cell_inputs

Outputs = list[tuple[str, dict[str, Any]]]


class Client:
    """A front end."""

    def __init__(self, manager: Any) -> None:
        self.manager = manager
        self.client = manager.blocking_client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=120)

    def run(self, code: str) -> tuple[dict[str, Any], Outputs]:
        """The reply, and what was shown."""
        shown: Outputs = []
        hook = lambda m: shown.append((m["msg_type"], m["content"]))
        reply = self.client.execute_interactive(code, timeout=120, output_hook=hook)
        return reply["content"], [s for s in shown if s[0] not in ("status", "execute_input")]

    def ask(self, question: Any, *given: Any) -> dict[str, Any]:
        question(*given)
        return self.client.get_shell_msg(timeout=60)["content"]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A kernel that Jupyter found where it was installed."""
    manager = pytest.importorskip("jupyter_client.manager")
    folder = tmp_path_factory.mktemp("jupyter")
    told = CliRunner().invoke(main, ["kernel", "install", "--prefix", str(folder)])
    assert told.exit_code == 0 and json.loads(Path(told.output.strip(), "kernel.json").read_text())["argv"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUPYTER_PATH", str(folder / "share" / "jupyter"))
        made = manager.KernelManager(kernel_name="difflang")
        made.start_kernel(cwd=str(folder))
    try:
        yield Client(made)
    finally:
        made.shutdown_kernel(now=True)


def test_cells_give_results_texts_tables_and_errors(client: Client) -> None:
    reply, shown = client.run("fn f(x: f64[n]) -> f64 = sum(x^2)\nprint(1)\nf([1.0, 2.0])")
    assert reply["status"] == "ok"
    assert shown[0] == ("stream", {"name": "stdout", "text": "1\n"})
    assert shown[1][0] == "execute_result" and shown[1][1]["data"] == {"text/plain": "5.0  : f64"}
    _, shown = client.run(":t f\nlet a = 2")
    assert shown == [("stream", {"name": "stdout", "text": "fn f(x: f64[n]) -> f64\n"})]
    _, shown = client.run(":trace f x=[1.0, 2.0]")
    assert "<table" in shown[0][1]["data"]["text/html"]
    reply, shown = client.run("let b = 1\nf(a, b)")
    assert reply["status"] == shown[-1][0] == "error" and reply["ename"] == "CheckError"
    assert any(f"In[{reply['execution_count']}]:2:" in line for line in reply["traceback"])
    reply, shown = client.run("a")
    assert reply["status"] == "ok" and shown[0][1]["data"]["text/plain"].startswith("2")


def test_a_front_end_can_ask(client: Client) -> None:
    client.run("fn area(width: f64, height: f64) -> f64 = width * height")
    it = client.client
    assert client.ask(it.is_complete, "fn g(x: f32) -> f32 {") == {"status": "incomplete", "indent": "  "}
    assert client.ask(it.is_complete, "1 + 1")["status"] == "complete"
    found = client.ask(it.complete, "1.0 + are * 2", 9)
    assert found["matches"][0] == "area" and (found["cursor_start"], found["cursor_end"]) == (6, 9)
    for code, place in (("area", 2), ("2.0 * area(1.0", 8), ("area(", 5)):
        found = client.ask(it.inspect, code, place)
        assert found["found"] and found["data"]["text/plain"].startswith("fn area("), code
    assert client.ask(it.inspect, "nothing", 3)["found"] is False
    assert client.ask(it.kernel_info)["language_info"]["file_extension"] == ".dfl"


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signal")
def test_a_loop_that_does_not_end_is_interrupted_and_names_are_kept(client: Client) -> None:
    client.run("let kept = 3\nfn spin(x: f64) -> f64 { var y = x\n while y > 0.0 { y += 1.0 }\n y }")
    client.client.execute("spin(1.0)", stop_on_error=False)
    while client.client.get_iopub_msg(timeout=60)["msg_type"] != "execute_input":
        pass
    time.sleep(1.0)
    client.manager.interrupt_kernel()
    assert client.client.get_shell_msg(timeout=60)["content"]["ename"] == "KeyboardInterrupt"
    reply, shown = client.run("kept + 1")
    assert reply["status"] == "ok" and shown[-1][1]["data"]["text/plain"].startswith("4")


# ---- Without a kernel


def test_a_cell_is_one_input_unless_it_has_commands() -> None:
    assert list(cell_inputs("let a = 1\n\nlet b = 2\n")) == [("let a = 1\n\nlet b = 2\n", 0)]
    text = "\nlet a = 1\n:t a\n\nfn f(x: f32) -> f32 {\n  x\n}\n?f\na"
    assert list(cell_inputs(text)) == [
        ("let a = 1", 1),
        (":t a", 2),
        ("fn f(x: f32) -> f32 {\n  x\n}", 4),
        ("?f", 7),
        ("a", 8),
    ]


def test_without_its_package_it_says_how_that_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "find_spec", lambda name: None)
    for words in (["kernel"], ["kernel", "install"]):
        told = CliRunner().invoke(main, words)
        assert told.exit_code == 2 and "pip install 'difflang[kernel]'" in told.output


def test_jupyter_starts_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "find_spec", lambda name: object())
    told = CliRunner().invoke(main, ["kernel"])
    assert told.exit_code == 2 and "difflang kernel install" in told.output
    told = CliRunner().invoke(main, ["kernel", "-f", "nowhere.json"])
    assert told.exit_code == 2 and "nowhere.json" in told.output


def test_two_places_are_one_too_many(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("jupyter_client")
    told = CliRunner().invoke(main, ["kernel", "install", "--user", "--prefix", str(tmp_path)])
    assert told.exit_code == 2 and "exclude each other" in told.output
    (tmp_path / "share").write_text("in the way")
    told = CliRunner().invoke(main, ["kernel", "install", "--prefix", str(tmp_path)])
    assert told.exit_code == 2 and "cannot install the kernel" in told.output
