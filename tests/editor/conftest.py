"""A language server that works on two files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.language_client import Client
from support.served import MAIN, MODEL


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("workspace")
    (folder / "model.dfl").write_text(MODEL, encoding="utf-8")
    (folder / "main.dfl").write_text(MAIN, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def client(folder: Path) -> Iterator[Client]:
    client = Client(folder)
    yield client
    assert client.end() == 0


@pytest.fixture
def main(client: Client, folder: Path) -> Iterator[str]:
    """The file of most tests, opened anew."""
    uri = client.open(folder / "main.dfl", MAIN)
    assert client.reports(uri, settled=True) == []
    yield uri
    client.close(uri)
