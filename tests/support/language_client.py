"""A client of the language server: a real process, spoken to over its standard input and output."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

PATIENCE = 120.0  # seconds; a machine may be busy


class Client:
    """Starts a server, asks, and keeps what it says by itself."""

    def __init__(self, folder: Path, stderr: Any = None, options: Sequence[str] = (), **capabilities: Any) -> None:
        command = [sys.executable, "-m", "difflang", "lsp", *options]
        environment = {**os.environ, "NO_COLOR": "1"}
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, cwd=folder, env=environment
        )
        self.answers: dict[int, queue.Queue[Any]] = {}
        self.told: queue.Queue[dict[str, Any]] = queue.Queue()
        self.count = 0
        self.versions: dict[str, int] = {}
        threading.Thread(target=self.listen, daemon=True).start()
        self.abilities = self.ask("initialize", processId=os.getpid(), rootUri=folder.as_uri(),
                                  capabilities=capabilities)["capabilities"]  # fmt: skip
        self.tell("initialized")

    # ---- Messages

    def listen(self) -> None:
        out = self.process.stdout
        assert out is not None
        while line := out.readline():
            length = int(line.split(b":")[1])
            while out.readline().strip():
                pass
            message = json.loads(out.read(length))
            if "id" in message and "method" not in message:
                self.answers[message["id"]].put(message)
            else:
                self.told.put(message)

    def send(self, **message: Any) -> None:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        into = self.process.stdin
        assert into is not None
        into.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        into.flush()

    def tell(self, method: str, **params: Any) -> None:
        self.send(method=method, params=params)

    def request(self, method: str, **params: Any) -> dict[str, Any]:
        """The whole answer, an error perhaps."""
        return self.answers[self.begin(method, **params)].get(timeout=PATIENCE)

    def begin(self, method: str, **params: Any) -> int:
        """Ask, and wait for nothing; the number of the answer."""
        self.count += 1
        self.answers[self.count] = queue.Queue()
        self.send(id=self.count, method=method, params=params)
        return self.count

    def ask(self, method: str, **params: Any) -> Any:
        answer = self.request(method, **params)
        assert "error" not in answer, answer
        return answer["result"]

    # ---- Texts

    def open(self, path: Path, text: str) -> str:
        uri = path.as_uri()
        self.versions[uri] = 1
        self.tell("textDocument/didOpen", textDocument={
            "uri": uri, "languageId": "difflang", "version": 1, "text": text})  # fmt: skip
        return uri

    def change(self, uri: str, *changes: dict[str, Any]) -> None:
        self.versions[uri] += 1
        self.tell("textDocument/didChange", textDocument={"uri": uri, "version": self.versions[uri]},
                  contentChanges=list(changes))  # fmt: skip

    def close(self, uri: str) -> None:
        self.tell("textDocument/didClose", textDocument={"uri": uri})

    def reports(self, uri: str, *, settled: bool = False) -> list[dict[str, Any]]:
        """What is reported of the text as it is: the first that is said, or the last once all is checked."""
        found: list[dict[str, Any]] | None = None
        while found is None or settled:
            if settled and found is not None:
                nowhere = {"start": {"line": 0, "character": 0}, "end": {"line": 0, "character": 0}}
                self.ask("textDocument/inlayHint", textDocument={"uri": uri}, range=nowhere)  # waits for the check
            try:
                message = self.told.get(timeout=PATIENCE if found is None else 0.01)
            except queue.Empty:
                if found is not None:
                    break
                raise AssertionError("nothing is reported") from None
            assert message["method"] != "window/logMessage", message["params"]["message"]
            params = message["params"]
            if params.get("uri") == uri and params.get("version") == self.versions[uri]:
                found = params["diagnostics"]
        return found

    def at(self, uri: str, line: int, column: int) -> dict[str, Any]:
        return {"textDocument": {"uri": uri}, "position": {"line": line, "character": column}}

    def end(self) -> int:
        """Shut down as editors do; the exit code."""
        self.ask("shutdown")
        self.tell("exit")
        return self.process.wait(timeout=PATIENCE)
