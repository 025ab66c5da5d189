"""A worker process that runs test cases: one line of JSON requests a case, one line answers. See `worker_pool`."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import msgspec

from difflang.base.process_termination import exit_now
from difflang.execution.engine import Engine
from difflang.tools.testing.suite import Suite, SuiteOptions, open_suite


def worker_main() -> None:
    """Answer requests until the input ends. Other output to stdout goes to stderr; Ctrl-C is left to the parent.

    When the parent is gone the process ends at once, even during a case, which may run forever.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    lines = SimpleQueue[str]()
    threading.Thread(target=read_requests, args=(lines,), daemon=True).start()
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as answers:
        os.dup2(2, 1)
        suites: dict[str, Suite] = {}
        while True:
            request = json.loads(lines.get())
            file, number = request["file"], request["number"]
            if file not in suites:
                suites.clear()  # cases come file by file
                suites[file] = open_suite(file, decode_options(request["options"]))
            # `json` escapes lone surrogates, as in file names that are not UTF-8; msgspec's encoder would refuse them.
            answers.write(json.dumps(msgspec.to_builtins(suites[file].run(number))) + "\n")
            answers.flush()


def read_requests(lines: SimpleQueue[str]) -> None:
    try:
        for line in sys.stdin:
            lines.put(line)
    finally:
        exit_now(0)


def encode_options(options: SuiteOptions) -> dict[str, Any]:
    return {
        "engine": options.engine.name,
        "device": options.engine.device,
        "seed": options.seed,
        "float": options.default_float,
        "allow": [str(path) for path in options.allow],
        "paths": [str(path) for path in options.paths],
    }


def decode_options(data: dict[str, Any]) -> SuiteOptions:
    engine = Engine(data["engine"], data["device"])
    folders = (tuple(map(Path, data[name])) for name in ("allow", "paths"))
    return SuiteOptions(engine, data["seed"], data["float"], *folders)
