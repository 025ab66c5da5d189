"""The extension for VS Code: what its files promise each other, and the package that the pinned vsce makes of them."""

from __future__ import annotations

import json
import re
import shutil
import sys
import zipfile
from pathlib import Path
from typing import Any

import click
import pytest

from difflang.base.diagnostics import DifflangError
from difflang.base.source import Source
from difflang.syntax.parse import parse
from support.node import missing, modules, node

ROOT = Path(__file__).resolve().parents[2]
EXTENSION = ROOT / "editor" / "vscode"
MANIFEST = json.loads((EXTENSION / "package.json").read_text(encoding="utf-8"))
SNIPPETS = json.loads((EXTENSION / "snippets" / "difflang.json").read_text(encoding="utf-8"))
REPORT = """\
error[DL0310]: sizes n and m are incompatible
  --> models/wrong file.dfl:1:46
   |
 1 | fn add(x: f32[n], y: f32[m]) -> f32[n] = x + y
"""


def test_the_problem_matcher_reads_a_report() -> None:
    (matcher,) = MANIFEST["contributes"]["problemMatchers"]
    first, second = (
        re.match(part["regexp"], line) for part, line in zip(matcher["pattern"], REPORT.splitlines(), strict=False)
    )
    assert first is not None and second is not None
    assert first.groups() == ("error", "DL0310", "sizes n and m are incompatible")
    assert second.groups() == ("models/wrong file.dfl", "1", "46")


def test_each_command_is_one_of_difflang() -> None:
    from difflang.cli import main

    verbs = {command["command"].removeprefix("difflang.") for command in MANIFEST["contributes"]["commands"]}
    assert verbs == {"run", "check", "test", "gradient", "restart"}
    verbs -= {"gradient", "restart"}  # these are the server's
    (definition,) = MANIFEST["contributes"]["taskDefinitions"]
    assert set(definition["properties"]["verb"]["enum"]) == verbs <= set(main.list_commands(click.Context(main)))


@pytest.mark.parametrize("name", SNIPPETS)
def test_a_snippet_is_a_piece_of_the_language(name: str) -> None:
    """With its proposals left as they are and a number where nothing is proposed, it parses."""
    text = "\n".join(SNIPPETS[name]["body"])
    text = re.sub(r"\$\{\d+:([^}]*)\}", r"\1", text)
    names = {"$1": "f", "$2": "x"} if "rule" in name else {}
    for place, word in names.items():
        text = text.replace(place, word)
    text = re.sub(r"\$\d", "1.0", text)
    try:
        reports = parse(Source("<snippet>", text + "\n")).diagnostics
    except DifflangError as error:
        reports = error.diagnostics
    assert not reports, text


@pytest.mark.parametrize(
    ("line", "continued"), [("## The mean.", True), ("  ## > f(1)", True), ("##", False), ("# no", False)]
)
def test_a_doc_comment_goes_on(line: str, continued: bool) -> None:
    rules = json.loads((EXTENSION / "language-configuration.json").read_text(encoding="utf-8"))["onEnterRules"]
    assert any(re.match(rule["beforeText"], line) for rule in rules) == continued


@pytest.mark.parametrize(
    ("line", "deeper"),
    [
        ("fn f() {", True),
        ("  if c { 1 } else {  # {", True),
        ("let x = [", True),
        ("let x = [1]", False),
        ("# {", False),
    ],
)
def test_a_line_that_opens_a_bracket_is_followed_by_a_deeper_one(line: str, deeper: bool) -> None:
    rules = json.loads((EXTENSION / "language-configuration.json").read_text(encoding="utf-8"))["indentationRules"]
    assert bool(re.match(rules["increaseIndentPattern"], line)) == deeper


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which the extension was packed, with `difflang.vsix` and what is in it under `unpacked`."""
    installed = modules(EXTENSION, "no-publishing")
    ignored = shutil.ignore_patterns("node_modules", "*.vsix", "dist")
    folder = shutil.copytree(EXTENSION, tmp_path_factory.mktemp("package") / "vscode", ignore=ignored)
    (folder / "node_modules").symlink_to(installed)
    flags = MANIFEST["scripts"]["package"].split()[2:]
    node(installed / "@vscode" / "vsce" / "vsce", "package", *flags, "--out", folder / "difflang.vsix", cwd=folder)
    with zipfile.ZipFile(folder / "difflang.vsix") as packed:
        packed.extractall(folder / "unpacked")
    return folder


@pytest.mark.nightly
def test_the_package_holds_what_it_needs(package: Path) -> None:
    files = {f"extension/{name}": package / name for name in MANIFEST["files"] if name != "LICENSE"}
    files |= {"extension/LICENSE.txt": ROOT / "LICENSE", "extension/readme.md": EXTENSION / "README.md"}
    with zipfile.ZipFile(package / "difflang.vsix") as packed:
        made = {"extension/package.json", "extension.vsixmanifest", "[Content_Types].xml"}
        assert set(packed.namelist()) == {*files, *made}
        assert all(packed.read(name) == path.read_bytes() for name, path in files.items())
        assert json.loads(packed.read("extension/package.json"))["version"] == MANIFEST["version"]
        assert b'Id="difflang"' in packed.read("extension.vsixmanifest")


def driven(package: Path, program: Path, settings: object, *command: str) -> Any:
    """What comes of a program that is opened where the packed extension is, and of a command in a line of it."""
    driver = ROOT / "tests" / "editor" / "drive_extension.js"
    extension = package / "unpacked" / "extension" / "dist" / "extension.js"
    return json.loads(node(driver, extension, program, json.dumps(settings), *command))


@pytest.mark.nightly
@pytest.mark.parametrize("found", ["in the setting", "in the workspace"])
def test_the_packed_client_talks_to_the_server(package: Path, tmp_path: Path, found: str) -> None:
    (tmp_path / "wrong.dfl").write_text("let x = nowhere\n", encoding="utf-8")
    settings = {"command": [sys.executable, "-m", "difflang"]}
    if found == "in the workspace":
        own = tmp_path / ".venv" / "bin" / "difflang"
        own.parent.mkdir(parents=True)
        own.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m difflang "$@"\n', encoding="utf-8")
        own.chmod(0o755)
        settings = {}
    ((code, message, place),) = driven(package, tmp_path / "wrong.dfl", settings)
    assert (code, message.split("\n")[0], place) == ("DL0201", "there is no `nowhere` here", [0, 8, 0, 15])


@pytest.mark.nightly
def test_without_a_server_that_is_said_once_and_quietly(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "node").symlink_to(shutil.which("node") or "")
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "right.dfl").write_text("let x = 1.0\n", encoding="utf-8")
    shown, *output = driven(package, tmp_path / "right.dfl", {})
    assert shown == "difflang: colours only, see the output of difflang"
    assert output == ["no language server: there is no difflang: pip install 'difflang[lsp]'"]


@pytest.mark.nightly
def test_the_gradient_at_the_cursor_is_written_below_its_function(package: Path, tmp_path: Path) -> None:
    """From within the function; elsewhere it is said that there is none."""
    program = tmp_path / "square.dfl"
    program.write_text("fn square(x: f32) -> f32 {\n  x * x\n}\n\nlet four = square(2.0)\n", encoding="utf-8")
    settings = {"command": [sys.executable, "-m", "difflang"]}
    ((place, text),) = driven(package, program, settings, "difflang.gradient", "1")
    assert place == [2, 1, 2, 1] and "fn d_square(x: f32) -> f32" in text
    (said,) = driven(package, program, settings, "difflang.gradient", "4")
    assert said == "difflang: there is no function with a gradient at the cursor"


def test_what_the_extension_speaks_of_is_shipped() -> None:
    contributed = [each for part in ("languages", "grammars", "snippets") for each in MANIFEST["contributes"][part]]
    paths = {each.get("path") or each["configuration"] for each in contributed} | {MANIFEST["main"], MANIFEST["icon"]}
    assert {path.removeprefix("./") for path in paths} <= set(MANIFEST["files"])
    made = {"dist/extension.js"}  # from extension.js and the client it needs, where it is packed
    assert all((EXTENSION / name).is_file() for name in set(MANIFEST["files"]) - made)
    assert (EXTENSION / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


def test_the_extension_is_javascript() -> None:
    if shutil.which("node") is None:
        missing("node is not on this machine")
    node("--check", EXTENSION / "extension.js")
