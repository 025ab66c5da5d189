"""Functions out of artifacts: a file is loaded, and what is in it called, differentiated and transformed.

They need JAX. Neither the parser nor the checker is imported for them.
"""

from __future__ import annotations

from pathlib import Path

from difflang.artifact.artifact_function import Function
from difflang.artifact.artifact_program import Body, Surface
from difflang.base.errors import doorway
from difflang.tools.export.artifact_contents import load as read

__all__ = ["Function", "load"]


def load(path: str | Path) -> Function:
    """The function that `f.export(path)` or `difflang export` wrote. Nothing in the file is executed but its graph.

    Errors: ArtifactError for a file that is none, is damaged or has a newer format; DataError where there is none.
    """
    with doorway():
        contents = read(Path(path))
        return Function(Surface(contents), Body.of(contents))
