"""Runs an example on one device and on a mesh of four, and prints what both say, as JSON.

The arguments: its file, the mesh, and those of the program: `digits_parallel.dfl data=4 --epochs 2`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from difflang.base.diagnostics import DifflangError
from difflang.base.source import Source
from difflang.driver.checked_program import check_program
from difflang.driver.run_program import file_access, run_program
from difflang.execution.engine import Engine


def said(path: Path, mesh: dict[str, int], words: Sequence[str]) -> list[str]:
    """What an example prints, and the error that ends it."""
    checked = check_program(Source(path.name, path.read_text(encoding="utf-8")), path=path, mesh=mesh)
    printed: list[str] = []
    try:
        run_program(
            checked, Engine("xla", mesh=tuple(mesh.items())), file_access(path), 0, printed.append, words=list(words)
        )
    except DifflangError as error:
        printed.append(str(error))
    return printed


def main(path: Path, axes: str, words: Sequence[str]) -> None:
    mesh = {axis: int(size) for axis, size in [part.split("=") for part in axes.split(",")]}
    sys.stdout.write(json.dumps([said(path, sizes, words) for sizes in ({}, mesh)]) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:])
