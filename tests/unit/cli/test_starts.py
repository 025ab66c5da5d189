"""What the commands load: none of those that only read a program starts JAX, and the help is there at once."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
HEAVY = ("jax", "jaxlib", "flax")
LIGHT = (*HEAVY, "numpy", "scipy", "prompt_toolkit", "difflang.elaborate")
EXAMPLE = str(ROOT / "examples" / "digits.dfl")
CALLS = {
    ("--help",): LIGHT,
    ("--version",): LIGHT,
    ("explain",): LIGHT,
    ("explain", "DL0310"): LIGHT,
    ("fmt", "--check", EXAMPLE): LIGHT,
    ("check", EXAMPLE): HEAVY,
}
RUN = """
import sys
from difflang.cli import main
try:
    main(sys.argv[2:])
except SystemExit as ended:
    assert not ended.code, ended.code
found = sorted(set(sys.argv[1].split(",")) & set(sys.modules))
assert not found, found
"""


@pytest.mark.parametrize("call", CALLS, ids=lambda call: " ".join(Path(word).name for word in call))
def test_commands_load_only_what_they_need(call: tuple[str, ...]) -> None:
    arguments = [sys.executable, "-c", RUN, ",".join(CALLS[call]), *call]
    found = subprocess.run(arguments, capture_output=True, text=True, cwd=ROOT, check=False)
    assert found.returncode == 0, found.stderr


def test_the_help_takes_at_most_four_times_as_long_as_to_import_click() -> None:
    """Time of a processor: how long a person waits depends on what else the machine does."""

    def spent(*arguments: str) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *arguments], capture_output=True, cwd=ROOT, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    pairs = [(spent("-m", "difflang", "--help"), spent("-c", "import click")) for _ in range(3)]
    assert min(ours for ours, _ in pairs) < 4 * min(click for _, click in pairs)
