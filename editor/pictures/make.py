"""Makes the pictures of the documentation: `python editor/pictures/make.py [NAME …]`, all of them without names.

Each shows what a program of ours prints, or what VS Code's tokenizer makes of a file, on a page that Chromium paints.
Needs Node with npm, Chromium, and `pip install pyte pillow`; a picture is written where the documents look for it.
"""

from __future__ import annotations

import html
import json
import os
import pty
import select
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from fcntl import ioctl
from pathlib import Path
from termios import TIOCSWINSZ
from typing import Any

from PIL import Image

ROOT = Path(__file__).resolve().parents[2]
HERE = ROOT / "editor" / "pictures"
GRAMMAR = ROOT / "editor" / "vscode" / "syntaxes" / "difflang.tmLanguage.json"
MOST = 150_000  # bytes of a picture
COLOURS = 64
LINE, CELL, EDGE = 21, 8.43, 16  # pixels: the height of a line, the width of a character, what is around
PROMPT, LONGEST = "dfl>", 300.0  # where a session waits for a line; seconds after which nobody waits for it
ANSI = {
    "black": "#1e1e1e", "red": "#f14c4c", "green": "#23d18b", "brown": "#e5e510", "blue": "#569cd6",
    "magenta": "#d670d6", "cyan": "#29b8db", "white": "#e5e5e5", "brightblack": "#8a8a8a", "default": "#d4d4d4",
}  # fmt: skip
STYLE = f"""
body {{ margin: 0; background: #1e1e1e; color: #d4d4d4; }}
pre {{ margin: 0; padding: {EDGE}px; font: 14px/{LINE}px "DejaVu Sans Mono", monospace; white-space: pre; }}
pre.shiki {{ background: #1e1e1e !important; }}
pre.shiki .line::before {{ content: attr(data-line); color: #858585; display: inline-block; width: 2.2em;
  margin-right: 1.4em; text-align: right; }}
.wrong {{ text-decoration: underline wavy #f14c4c; text-decoration-skip-ink: none; text-underline-offset: 4px; }}
.told {{ margin: 0 {EDGE}px {EDGE}px 60px; padding: 6px 10px; border: 1px solid #454545; background: #252526;
  font: 13px/19px "DejaVu Sans", sans-serif; white-space: pre-line; border-radius: 3px; }}
.told .code {{ color: #9d9d9d; }}
"""

# ---- Programs that are wrong, one for each picture of a report

REPORTS = {
    "shape": """\
fn predict(w: f32[n, m], x: f32[n]) -> f32[m] {
  let h = w @ x
  tanh(h)
}
""",
    "gradient": """\
fn count_above(x: f32[n], level: f32) -> i32 {
  sum(for i => if x[i] > level { 1 } else { 0 })
}

print(grad(count_above)([1.0, 2.0, 3.0], 1.5))
""",
    "name": """\
fn loss(w: f32[d], x: f32[n, d], y: f32[n]) -> f32 {
  let predicted = x @ w
  mean((predcted - y)^2)
}
""",
    "bracket": """\
fn area(r: f64) -> f64 {
  let square = (r * r
  pi * square
}
""",
    "mutable": """\
fn steps(x: f32, n: dim) -> f32 {
  let s = x
  for i in 0..n {
    s = s / 2.0
  }
  s
}
""",
}
WRONG = """\
## The mean squared distance of a line from points.
fn loss(w: f32[d], b: f32, x: f32[n, d], y: f32[n]) -> f32 {
  let z = x @ w + b
  mean((z - y)^2) + 0.01 * sum(w @ x)
}

let slope = grad[w](loss)
"""
SESSION = [
    "fn f(w: f32, x: f32[n]) -> f32 = sum(sin(w * x)^2)",
    "let x = [0.5, 1.0, 2.0]",
    "f(0.7, x)",
    "grad[w](f)(0.7, x)",
    ":g f",
    "x @ [1.0, 2.0]",
]


# ---- Pages


def code_page(text: str) -> str:
    """A program with its line numbers, as VS Code shows it."""
    from_lock = modules()
    made = subprocess.run(["node", HERE / "code.mjs", from_lock, GRAMMAR], input=text, capture_output=True, text=True,
                          check=True).stdout  # fmt: skip
    head, *lines = made.split('<span class="line">')
    return head + "".join([f'<span class="line" data-line="{i}">{line}' for i, line in enumerate(lines, 1)])


def modules() -> Path:
    """The packages of the lock file, installed once."""
    sys.path.insert(0, str(ROOT / "tests"))
    from support.node import modules

    return modules(HERE)


def error_page(text: str) -> tuple[str, int]:
    """A program with its first report as VS Code shows it, and how many lines that has."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "line.dfl")
        file.write_text(text, encoding="utf-8")
        said = difflang("check", "--output-format", "json", str(file))
    report = json.loads(said)[0] if said.lstrip().startswith("[") else json.loads(said)["diagnostics"][0]
    first = report["labels"][0]
    start, end = first["start"], first["end"]
    lines = code_page(text).split('<span class="line"')
    line = marked(lines[start["line"]], start["column"] - 1, end["column"] - 1)
    told = [report["message"], *([first["text"]] if first.get("text") else []), *report.get("helps", [])]
    code = f'<span class="code">difflang({report["code"]})</span>'
    box = f'<div class="told">{html.escape(chr(10).join(told))} {code}</div>'
    shown = [*lines[: start["line"]], line, *lines[start["line"] + 1 :]]
    return '<span class="line"'.join(shown) + box, len(told)


def marked(line: str, start: int, end: int) -> str:
    """A line of HTML with the characters from `start` to `end` underlined."""
    found, column, inside, entity = "", 0, True, ""
    head, _, rest = line.partition(">")
    for c in rest:
        if c == "<":
            inside = False
        if inside and not entity and c == "&":
            entity = c
        elif entity:
            entity += c
            if c == ";":
                found, column, entity = found + wrapped(entity, start <= column < end), column + 1, ""
            continue
        if entity:
            continue
        if inside and c != "\n":
            found, column = found + wrapped(c, start <= column < end), column + 1
        else:
            found += c
        inside = inside or c == ">"
    return f"{head}>{found}"


def wrapped(c: str, wrong: bool) -> str:
    return f'<span class="wrong">{c}</span>' if wrong else c


def terminal_page(screen: Any) -> tuple[str, float, float]:
    """What stands on a terminal, in how many columns and lines."""
    rows: list[str] = []
    width = 0
    for y in range(screen.lines):
        row = screen.buffer[y]
        last = max((x for x in range(screen.columns) if row[x].data.strip()), default=-1)
        rows.append("".join(cell(row[x]) for x in range(last + 1)))
        width = max(width, last + 2)
    while rows and not rows[-1]:
        rows.pop()
    return f"<pre>{chr(10).join(rows)}</pre>", width, len(rows)


def cell(c: Any) -> str:
    colour = ANSI.get(c.fg.replace("bright", "") if c.fg != "brightblack" else c.fg, f"#{c.fg}")
    style = f"color:{colour};" + "font-weight:bold;" * c.bold + "font-style:italic;" * c.italics
    return f'<span style="{style}">{html.escape(c.data)}</span>'


# ---- What programs say


def difflang(*args: str) -> str:
    done = subprocess.run([sys.executable, "-m", "difflang", *args], capture_output=True, text=True, check=False)
    return done.stdout


def on_terminal(command: Sequence[str], typed: Sequence[str], columns: int, lines: int, cwd: Path) -> Any:
    """The screen after a command was given lines in a terminal, each where it waits; without any, at its end."""
    import pyte

    screen = pyte.Screen(columns, lines)
    stream = pyte.ByteStream(screen)
    child, master = pty.fork()
    if child == 0:
        os.chdir(cwd)
        os.environ |= {"TERM": "xterm-256color", "XDG_STATE_HOME": str(cwd), "COLUMNS": str(columns)}
        os.execv(command[0], list(command))
    ioctl(master, TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    waiting = [line.encode() + b"\r" for line in typed]
    began, spoken = time.monotonic(), False
    while time.monotonic() - began < LONGEST:
        ready, _, _ = select.select([master], [], [], 0.2)
        if ready:
            try:
                said = os.read(master, 65536)
            except OSError:
                break
            if not said:
                break
            stream.feed(said)
            if b"\x1b[6n" in said:  # where is the cursor?
                os.write(master, f"\x1b[{screen.cursor.y + 1};{screen.cursor.x + 1}R".encode())
            spoken = True
        elif typed and spoken and screen.display[screen.cursor.y].strip() == PROMPT:
            if not waiting:
                break
            os.write(master, waiting.pop(0))
            spoken = False
    os.close(master)
    os.waitpid(child, 0)
    return screen


# ---- Pictures


def example() -> tuple[str, float, float]:
    lines = (ROOT / "examples" / "logistic.dfl").read_text(encoding="utf-8").split("\n")[:24]
    return code_page("\n".join(lines)), max(map(len, lines)) + 7, len(lines)


def error() -> tuple[str, float, float]:
    page, told = error_page(WRONG.rstrip("\n"))
    return page, max(map(len, WRONG.split("\n"))) + 12, WRONG.count("\n") + told + 1.4


def repl() -> tuple[str, float, float]:
    command = [sys.executable, "-m", "difflang", "repl"]
    with tempfile.TemporaryDirectory() as folder:
        return terminal_page(on_terminal(command, SESSION, 80, 60, Path(folder)))


def report(name: str) -> tuple[str, float, float]:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, f"{name}.dfl").write_text(REPORTS[name], encoding="utf-8")
        command = [sys.executable, "-m", "difflang", "check", f"{name}.dfl"]
        return terminal_page(on_terminal(command, [], 110, 40, Path(folder)))


Picture = Callable[[], tuple[str, float, float]]
PICTURES: dict[str, tuple[Path, Picture]] = {
    "example": (ROOT / "editor" / "vscode" / "pictures" / "example.png", example),
    "error": (ROOT / "editor" / "vscode" / "pictures" / "error.png", error),
    "repl": (ROOT / "docs" / "pictures" / "repl.png", repl),
    **{n: (ROOT / "docs" / "pictures" / f"{n}.png", lambda n=n: report(n)) for n in REPORTS},
}


def painted(page: str, columns: float, lines: float, out: Path) -> None:
    """Have Chromium paint a page of so many characters."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        raise SystemExit("there is no Chromium on this machine: `apt-get install chromium`")
    width, height = round(columns * CELL + 2 * EDGE), round(lines * LINE + 2 * EDGE)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "page.html").write_text(f"<!doctype html><meta charset=utf-8><style>{STYLE}</style>{page}")
        made = Path(folder, "page.png")
        subprocess.run(
            [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={folder}",
             "--force-device-scale-factor=1.5", f"--window-size={width},{height}", f"--screenshot={made}",
             Path(folder, "page.html").as_uri()],
            check=True, capture_output=True, timeout=120,
        )  # fmt: skip
        out.parent.mkdir(parents=True, exist_ok=True)
        with Image.open(made) as picture:
            picture.convert("RGB").quantize(COLOURS).save(out, optimize=True)
    size = out.stat().st_size
    if size > MOST:
        raise SystemExit(f"{out.name} has {size} bytes, and {MOST} are the most")
    sys.stderr.write(f"{out.relative_to(ROOT)}: {size} bytes\n")


def main() -> None:
    for name in sys.argv[1:] or PICTURES:
        out, picture = PICTURES[name]
        painted(*picture(), out)


if __name__ == "__main__":
    main()
