"""What the tests of commands share."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def file(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """The `PROGRAM` of the module whose test asks for it, as a file."""
    path = tmp_path / "model.dfl"
    path.write_text(request.module.PROGRAM)
    return path
