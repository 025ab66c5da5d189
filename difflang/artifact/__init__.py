"""Loads functions from artifacts, to be called, differentiated and transformed.

It needs JAX, but imports neither the parser nor the checker.
"""

from __future__ import annotations

from pathlib import Path

from difflang.artifact.artifact_function import ArtifactFunction
from difflang.artifact.artifact_graph import ArtifactContext, GraphFunction
from difflang.base.errors import classify_errors
from difflang.tools.export.artifact_contents import load_artifact as read

__all__ = ["ArtifactFunction", "load"]


def load(path: str | Path) -> ArtifactFunction:
    """The function that `f.export(path)` or `difflang export` wrote. Only the graph in the file is executed.

    Errors: ArtifactError for a file that is no artifact, is damaged or has a newer format; DataError if there is none.
    """
    with classify_errors():
        contents = read(Path(path))
        return ArtifactFunction(ArtifactContext(contents), GraphFunction.from_contents(contents))
