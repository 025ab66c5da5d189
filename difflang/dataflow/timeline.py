"""What happened in a run over time: a trace for Chrome, and a table of tokens."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from time import perf_counter, time
from typing import Any

import numpy as np

from difflang.base.source import NO_SPAN
from difflang.dataflow.executor import DataflowToken, Firing, Tag
from difflang.dataflow.nodes import DataflowNode


def chrome_trace(firings: Sequence[Firing]) -> str:
    """The firings as JSON that `about:tracing` and Perfetto open: a row for each device, times in microseconds.

    Source: Trace Event Format, complete events.
    """
    start = min([f.begin for f in firings], default=0.0)
    events: list[dict[str, Any]] = [
        {"name": "thread_name", "ph": "M", "pid": 0, "tid": device, "args": {"name": f"device {device}"}}
        for device in sorted({f.node.device for f in firings})
    ]
    for node, tag, _, tokens, begin, end in firings:
        args = {"node": node.number, "iteration": tag_text(tag), "dead": any(t.dead for t in tokens)}
        if node.span is not NO_SPAN:
            args["line"] = node.span.position[0]
        events.append({
            "name": node.what or node.key or node.kind, "cat": node.kind, "ph": "X", "pid": 0, "tid": node.device,
            "ts": (begin - start) * 1e6, "dur": (end - begin) * 1e6, "args": args,
        })  # fmt: skip
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}) + "\n"


def in_order(firings: Sequence[Firing]) -> list[Firing]:
    """The firings by when they began, so that each Send comes before its Recv, which ends within it."""
    return sorted(firings, key=lambda f: (f.begin, -f.end))


def without_values(firing: Firing) -> Firing:
    """The firing as a trace needs it, so that a long program does not keep the arrays of all its tokens."""
    return firing._replace(inputs=(), tokens=[t._replace(value=None) for t in firing.tokens])


def encode_firing(firing: Firing) -> list[Any]:
    """A firing as another process receives it: its times by the clock of the world, and no values."""
    clock = time() - perf_counter()
    dead = [token.dead for token in firing.tokens]
    return [firing.node.number, firing.tag, dead, firing.begin + clock, firing.end + clock]


def decode_firing(row: Sequence[Any], nodes: Mapping[int, DataflowNode]) -> Firing:
    """The firing, its times by the clock of this process. Errors: KeyError, TypeError, ValueError for what is none."""
    number, tag, dead, begin, end = row
    clock = time() - perf_counter()
    tokens = [DataflowToken(None, bool(d), 0) for d in dead]
    return Firing(nodes[number], tuple(map(int, tag)), (), tokens, float(begin) - clock, float(end) - clock)


def tag_text(tag: Tag) -> str:
    """`2.0`: the third iteration of the outer frame, the first of the inner one."""
    return ".".join(map(str, tag))


def token_lines(firings: Sequence[Firing]) -> Iterator[str]:
    """A line for each node that fired: `%7 Switch [2.0] on device 1: dead, 0.5`."""
    several = len({f.node.device for f in firings}) > 1
    for node, tag, _, tokens, *_ in firings:
        place = f" on device {node.device}" if several else ""
        iteration = f" [{tag_text(tag)}]" if tag else ""
        what = f" {node.what or node.key}" if node.what or node.key else ""
        given = ", ".join(map(token_text, tokens))
        yield f"%{node.number} {node.kind}{what}{iteration}{place}: {given}"


def token_text(token: DataflowToken) -> str:
    if token.dead:
        return "dead"
    value = token.value
    if isinstance(value, tuple):
        return "stack" if value else "()"
    if isinstance(value, list):
        return f"history of {len(value)}"
    if np.size(value) > 6:
        return f"{value.dtype}{list(value.shape)}"
    return np.array2string(np.asarray(value), separator=", ").replace("\n", "")
