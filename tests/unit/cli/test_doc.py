"""`difflang doc`: what comments say, on the screen, as Markdown and as HTML."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest
from click.testing import CliRunner, Result

from difflang.base.package_data import stdlib_files
from difflang.base.source import Source
from difflang.cli import main
from difflang.cli.commands.doc import library_files, parse_page
from difflang.driver.checked_program import check_program
from difflang.syntax.doc_pages import index_as_markdown, page_as_markdown
from support.documents import ROOT

PROGRAM = """# How cells grow, and die.
#
# Cells are *counted* in <thousands>.

# ---- Growth

## A culture.
pub record Culture[n] { cells: f32[n] }

## The number of cells after some hours. They never die: see `Culture`. Errors: a rate below 0, where that
## cannot be. Source: Malthus 1798.
## > let rate = 0.0
## > grown(100.0, rate)
## 100.0
## > grown(1.0, rate)
## 1.0
##
## Nothing else is said.
pub fn grown(cells: f32, rate: f32 = 0.5) -> f32 {
  cells * exp(rate)
}
rule grown(cells, rate) by inverse |cells| cells * exp(-rate)
fn hidden(x: f32) -> f32 = x
"""
MARKDOWN = """# cells

How cells grow, and die.

Cells are *counted* in <thousands>.

## Growth

### `Culture`

```text
record Culture[n] { cells: f32[n] }
```

A culture.

### `grown`

```text
fn grown(cells: f32, rate: f32 = 0.5) -> f32
```

The number of cells after some hours. They never die: see `Culture`.

Nothing else is said.

- Errors: a rate below 0, where that cannot be.
- Source: Malthus 1798.
- Derivative: by a rule, `by inverse`

```text
> let rate = 0.0
> grown(100.0, rate)
100.0
> grown(1.0, rate)
1.0
```
"""


def call(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["doc", *arguments])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cells.dfl").write_text(PROGRAM)
    return tmp_path


def test_a_program(folder: Path) -> None:
    assert call("cells.dfl").stdout == MARKDOWN


def test_without_anything_public_all_that_is_told_of_is_shown(folder: Path) -> None:
    (folder / "small.dfl").write_text("## Twice.\nfn twice(x: f32) -> f32 = 2.0 * x\nfn other(x: f32) -> f32 = x\n")
    assert "### `twice`" in call("small.dfl").stdout and "other" not in call("small.dfl").stdout


def test_what_is_outside_the_program(folder: Path) -> None:
    text = "let x = 1\n## Its slope is known.\npub extern  op swish[T: float](x: T[..s]) -> T[..s]\n"
    (folder / "outside.dfl").write_text(text + "\n## A table.\npub extern fn table(x: f64) -> f64\n", encoding="utf-8")
    said = CliRunner().invoke(main, ["doc", str(folder / "outside.dfl")]).output
    assert "\nextern op swish[T: float](x: T[..s]) -> T[..s]\n" in said and "\nextern fn table(x: f64) -> f64\n" in said


def test_the_library_its_modules_and_names() -> None:
    everything = call().stdout
    assert all(f"## {path.stem}\n" in everything for path in stdlib_files())
    assert call("roots").stdout.startswith("# roots\n\nZeros and fixed points of functions")
    assert call("newton").stdout == call("roots.newton").stdout
    assert "fn newton[T: float](f: (T) -> T" in call("newton").stdout
    (line,) = [line for line in call("newton").stdout.splitlines() if "import" in line]
    assert not check_program(Source("f.dfl", f"{line.strip('`')}\nfn f(x: f32) -> f32 = newton(|y| y - x, x)\n")).errors
    assert call("tanh").stdout.startswith("# builtins.tanh\n\navailable in every file\n\n```text\nfn tanh[")
    assert call("conv2d").stdout.count("fn conv") == 1 and call("builtins.while").stdout == call("while").stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nwton",), "Did you mean `newton`?"),
        (("rots.newton",), "Did you mean `roots`?"),
        (("--out", "pages", "rots"), "Did you mean `roots`?"),
        (("--format", "html"), "--out FOLDER"),
        (("--format", "htm", "--out", "pages"), "Did you mean 'html'?"),
    ],
)
def test_what_is_wrong_with_the_command(folder: Path, arguments: tuple[str, ...], said: str) -> None:
    result = call(*arguments)
    assert result.exit_code == 2 and said in result.stderr


def test_what_is_wrong_with_a_program(folder: Path) -> None:
    (folder / "wrong.dfl").write_text("fn f( = 3\n")
    result = call("wrong.dfl")
    assert result.exit_code == 1 and "wrong.dfl:1:5" in result.stderr
    assert "DL0701" in call("missing.dfl").stderr


class Links(HTMLParser):
    """Where a page leads, what can be led to, and whether its elements end in their order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.to: set[str] = set()
        self.here: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open += [tag] if tag != "meta" else []
        self.to |= {value or "" for name, value in attrs if name == "href"}
        self.here |= {value or "" for name, value in attrs if name == "id"}

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_pages_for_a_browser(folder: Path) -> None:
    assert call("--format", "html", "--out", "pages").exit_code == 0
    pages = {path.name: Links(path.read_text(encoding="utf-8")) for path in (folder / "pages").iterdir()}
    assert {"index.html", *(f"{path.stem}.html" for path in library_files(()))} == set(pages)
    for name, page in pages.items():
        assert page.open == []
        for link in page.to:
            file, _, part = link.partition("#")
            assert not part or part in pages[file or name].here


def test_pages_of_files_with_odd_names_lead_to_each_other(folder: Path) -> None:
    (folder / 'a "b" #1.dfl').write_text("## Twice.\nfn twice(x: f32) -> f32 = 2.0 * x\n")
    assert call("--format", "html", "--out", "pages", 'a "b" #1.dfl', "cells.dfl").exit_code == 0
    to = Links((folder / "pages" / "cells.html").read_text(encoding="utf-8")).to
    files = {unquote(link.partition("#")[0]) for link in to} - {""}
    assert files == {path.name for path in (folder / "pages").iterdir()}


def test_what_stands_in_a_comment_is_no_html(folder: Path) -> None:
    call("--format", "html", "--out", "pages", "cells.dfl")
    text = (folder / "pages" / "cells.html").read_text(encoding="utf-8")
    assert "<em>counted</em> in &lt;thousands&gt;" in text and "<thousands>" not in text
    assert '<span class="k">fn</span>' in text and "f32" in text


def test_two_programs_of_one_name(folder: Path) -> None:
    (folder / "more").mkdir()
    (folder / "more" / "cells.dfl").write_text(PROGRAM)
    result = call("--out", "pages", ".")
    assert result.exit_code == 2 and "two pages would be called `cells`" in result.stderr
    assert not (folder / "pages").exists()


def test_where_nothing_can_be_written(folder: Path) -> None:
    (folder / "pages").write_text("")
    assert call("--out", "pages", "cells.dfl").exit_code == 2
    result = call("--out", "cells.dfl/pages", "cells.dfl")
    assert result.exit_code == 1 and "DL0710" in result.stderr


def test_the_pages_of_the_library_are_those_of_its_comments() -> None:
    """`just library` writes them anew."""
    pages = [parse_page(path) for path in library_files(())]
    texts = {
        "README.md": index_as_markdown(pages, ".md") + "\n",
        **{f"{p.name}.md": page_as_markdown(p) for p in pages},
    }
    folder = ROOT / "docs" / "library"
    assert {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir()} == texts
