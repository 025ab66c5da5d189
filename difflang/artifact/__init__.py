"""Functions out of artifacts: a file is loaded, and what is in it called, differentiated and transformed.

They need JAX. Neither the parser nor the checker is imported for them.
"""

from __future__ import annotations

from pathlib import Path

from difflang.artifact.artifact_function import ArtifactFunction
from difflang.artifact.artifact_program import ArtifactContext, GraphFunction
from difflang.base.errors import classify_errors
from difflang.tools.export.artifact_contents import load_artifact as read

__all__ = ["ArtifactFunction", "load"]


def load(path: str | Path) -> ArtifactFunction:
    """The function that `f.export(path)` or `difflang export` wrote. Nothing in the file is executed but its graph.

    Errors: ArtifactError for a file that is none, is damaged or has a newer format; DataError where there is none.
    """
    with classify_errors():
        contents = read(Path(path))
        return ArtifactFunction(ArtifactContext(contents), GraphFunction.from_contents(contents))
