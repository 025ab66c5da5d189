"""The examples of `stdlib/builtins.md`, run by the interpreter line by line as in a session."""

from __future__ import annotations

import re
from pathlib import Path

from difflang.driver.interactive_session import InteractiveSession
from difflang.driver.run_program import file_access
from difflang.execution.engine import Engine
from difflang.host.values import format_value

EXAMPLES = re.compile(r"```text\n(> .*?)\n```", re.DOTALL)


def shown(block: str, folder: Path) -> str:
    """A block of examples with the results below its lines."""
    printed: list[str] = []
    lines: list[str] = []
    session = InteractiveSession(Engine("interpret"), file_access(folder / "x.dfl"), 0, printed.append, lambda _: None)
    for line in [line for line in block.splitlines() if line.startswith("> ")]:
        value = session.run_input(line.removeprefix("> "))
        lines += [line, *"\n".join(printed).splitlines(), *([format_value(value)] if value is not None else [])]
        printed.clear()
    return "\n".join(lines)


def accepted(text: str, folder: Path) -> str:
    """The page with the results that its examples have."""
    return EXAMPLES.sub(lambda found: f"```text\n{shown(found[1], folder)}\n```", text)
