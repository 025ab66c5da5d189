"""Two files that an editor has open, and how tests speak of places in them."""

from __future__ import annotations

from typing import Any

from support.language_client import Client

MODEL = """\
## A line.
pub record Line { slope: f32, start: f32 }

## What a line is at each place.
pub fn along(line: Line, x: f32[n]) -> f32[n] = line.slope * x + line.start
"""
MAIN = """\
import "./model.dfl" as model
import linalg

## How far a line is from points.
fn loss(line: model.Line, x: f32[n], y: f32[n]) -> f32 {
  let far = model.along(line, x) - y
  let squares = far^2
  mean(squares)
}

fn step(line: model.Line, x: f32[n], y: f32[n], rate: f32 = 0.1) {
  line + -rate * grad(loss)(line, x, y)
}

let xs = [0.0, 1.0, 2.0]
let next = step(model.Line(slope = 0.0, start = 0.0), xs, xs, rate = 0.5)
print(loss(next, xs, xs))

# ein Bär 𝛼
test "nothing is lost" {
  assert loss(next, xs, xs) >= 0.0 # 𝛼𝛽
}
"""
EVERYTHING = {"start": {"line": 0, "character": 0}, "end": {"line": 1000, "character": 0}}


def spot(text: str, what: str, nth: int = 0) -> tuple[int, int]:
    """Line and column, in UTF-16 units, of what stands somewhere."""
    at = -1
    for _ in range(nth + 1):
        at = text.index(what, at + 1)
    before = text[:at]
    return before.count("\n"), len(before.rsplit("\n", 1)[-1].encode("utf-16-le")) // 2


def taken(text: str, range: dict[str, Any]) -> str:
    """The text in a range of one line."""
    line = text.split("\n")[range["start"]["line"]].encode("utf-16-le")
    return line[2 * range["start"]["character"] : 2 * range["end"]["character"]].decode("utf-16-le")


def replaced(start: tuple[int, int], end: tuple[int, int], text: str) -> dict[str, Any]:
    places = [{"line": line, "character": column} for line, column in (start, end)]
    return {"range": {"start": places[0], "end": places[1]}, "text": text}


def applied(text: str, edits: list[dict[str, Any]]) -> str:
    lines = text.split("\n")
    starts = [sum(len(line) + 1 for line in lines[:i]) for i in range(len(lines) + 1)]
    for edit in sorted(
        edits, key=lambda e: (e["range"]["start"]["line"], e["range"]["start"]["character"]), reverse=True
    ):
        a, b = (starts[p["line"]] + p["character"] for p in (edit["range"]["start"], edit["range"]["end"]))
        text = text[:a] + edit["newText"] + text[b:]
    return text


def hover(client: Client, uri: str, what: str, nth: int = 0, text: str = MAIN) -> str:
    answer = client.ask("textDocument/hover", **client.at(uri, *spot(text, what, nth)))
    return answer["contents"]["value"] if answer else ""


def places(client: Client, method: str, uri: str, what: str, nth: int = 0, **more: Any) -> Any:
    return client.ask(f"textDocument/{method}", **client.at(uri, *spot(MAIN, what, nth)), **more)
