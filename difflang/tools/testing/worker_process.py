"""A process that runs cases for another: a line of JSON asks for one, a line of JSON answers. See `workers`."""

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
    """Answer until nobody asks any more. What else is written to stdout goes to stderr; Ctrl-C is for who asks.

    Once whoever asks is gone, the process ends at once, in the middle of a case too: one may go on for ever.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    lines = SimpleQueue[str]()
    threading.Thread(target=read_requests, args=(lines,), daemon=True).start()
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as answers:
        os.dup2(2, 1)
        suites: dict[str, Suite] = {}
        while True:
            asked = json.loads(lines.get())
            file, number = asked["file"], asked["number"]
            if file not in suites:
                suites.clear()  # cases come file by file
                suites[file] = open_suite(file, decode_options(asked["options"]))
            answers.write(json.dumps(msgspec.to_builtins(suites[file].run(number))) + "\n")  # of names in no UTF-8 too
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


def decode_options(told: dict[str, Any]) -> SuiteOptions:
    engine = Engine(told["engine"], told["device"])
    folders = (tuple(map(Path, told[name])) for name in ("allow", "paths"))
    return SuiteOptions(engine, told["seed"], told["float"], *folders)
