"""A tool of GradBench: it reads messages of its protocol, one JSON object a line, and answers each with a line.

    python benchmarks/gradbench/tool.py < messages

Every timed call waits for its results. The first call, which compiles, is timed apart, as `compile`.
"""

from __future__ import annotations

import importlib.metadata
import json
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import jax

import difflang
from gradbench.programs import DRAFTS, arguments, find_function
from gradbench.twins import TWINS


def evaluate(name: str, function: str, value: Any) -> dict[str, Any]:
    """The output and the timings of a function for an input."""
    call, args = find_function(name, function), arguments(name, value)
    timings: list[dict[str, Any]] = []

    def timed(what: str) -> Any:
        begin = time.perf_counter_ns()
        result = jax.block_until_ready(call(*args))
        timings.append({"name": what, "nanoseconds": time.perf_counter_ns() - begin})
        return result

    timed("compile")
    asked = value if isinstance(value, dict) else {}
    runs, least = asked.get("min_runs", 1), asked.get("min_seconds", 0.0)
    start, result = time.perf_counter(), timed("evaluate")
    while len(timings) <= runs or time.perf_counter() - start < least:
        result = timed("evaluate")
    return {"success": True, "output": output(name, function, result), "timings": timings}


def output(name: str, function: str, result: Any) -> Any:
    """A result as the protocol has it. Of a record it takes the fields in their order."""
    plain = result if isinstance(result, (jax.Array, tuple)) else tuple(jax.tree.leaves(result))
    return TWINS[name, function].finish(plain)


def respond(message: dict[str, Any]) -> dict[str, Any]:
    """What answers a message, beside its `id`."""
    match message.get("kind"):
        case "start":
            return {"tool": "difflang", "config": {"version": importlib.metadata.version("difflang")}}
        case "define":
            name = message.get("module")
            return {"success": True} if name in DRAFTS else failure(f"there is no eval {name}")
        case "evaluate":
            name, function = message.get("module"), message.get("function")
            if (name, function) not in TWINS:
                return failure(f"there is no function {function} of an eval {name}")
            try:
                return evaluate(name, function, message.get("input"))
            except (difflang.DifflangError, ArithmeticError, LookupError, TypeError, ValueError) as error:
                return failure(f"this is no input of {name}: {type(error).__name__}: {error}")
        case _:
            return {}


def failure(error: str) -> dict[str, Any]:
    return {"success": False, "error": error}


def answer(line: str) -> dict[str, Any]:
    """What answers a line; one that is no message has no `id` to answer to."""
    try:
        message = json.loads(line)
        identity = {"id": message["id"]}
    except (ValueError, LookupError, TypeError) as error:
        return failure(f"this line is no message: {error}")
    return identity | respond(message)


def main() -> None:
    jax.config.update("jax_enable_x64", True)
    for line in sys.stdin:
        print(json.dumps(answer(line)), flush=True)


if __name__ == "__main__":
    main()
