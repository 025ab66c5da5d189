"""Programs that several tests use: those of the language's description, by chapter, and single ones."""

from __future__ import annotations

from pathlib import Path

# A loop of unknown length whose values two others read.
HISTORIES = """
fn f(p: f64[2]) -> f64 {
  var x = p[0]
  let path = while abs(x) > 0.1 {
    x -= p[1] * sin(x) * 0.1
    yield x
  }
  var s = 0.0
  for v in reverse(path) { s = 0.5 * s + v^2 }
  for v in path { s += v * sin(s) * 0.01 }
  s
}
"""

FOLDER = Path(__file__).resolve().parent.parent / "programs"


def programs() -> dict[str, str]:
    """Each program's text, by its path below the folder."""
    return {
        path.relative_to(FOLDER).as_posix(): path.read_text(encoding="utf-8") for path in sorted(FOLDER.rglob("*.dfl"))
    }
