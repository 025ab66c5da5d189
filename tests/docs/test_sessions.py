"""Every transcript of the documentation is what a session shows, word for word."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from difflang.cli import main
from difflang.syntax.repl_input import CONTINUATION_PROMPT, PROMPT, split_inputs, strip_prompts
from support.documents import Block, fenced

PAGE = Path(__file__).parents[2] / "docs" / "repl.md"
TRANSCRIPTS = [b for b in fenced(PAGE.read_text(encoding="utf-8"), "docs/repl.md") if b.text.startswith(PROMPT)]


def shown(transcript: str) -> str:
    """The transcript as it is now: each input with what the session shows of it beyond those before."""
    told: list[str] = []
    lines: list[str] = []
    before = ""
    for text in split_inputs(strip_prompts(transcript).split("\n")):
        told.append(text)
        result = CliRunner().invoke(main, ["repl", "--engine=interpret"], input="\n".join(told) + "\n")
        head, *rest = text.split("\n")
        lines += [PROMPT + head, *[CONTINUATION_PROMPT + line for line in rest]]
        assert result.output.startswith(before)
        lines += result.output.removeprefix(before).splitlines()
        before = result.output
    return "\n".join(lines) + "\n"


def test_there_are_transcripts() -> None:
    assert len(TRANSCRIPTS) == 2


@pytest.mark.parametrize("block", TRANSCRIPTS, ids=lambda b: b.name)
def test_a_transcript(block: Block) -> None:
    assert shown(block.text) == block.text
