"""The grammar and the standard library are found in a checkout and in an installed package."""

from __future__ import annotations

from pathlib import Path

import pytest

from difflang.base import package_data


def test_a_checkout_is_preferred(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "difflang"
    (package / "_grammar").mkdir(parents=True)
    monkeypatch.setattr(package_data, "PACKAGE_FOLDER", package)
    assert package_data.data_folder("grammar") == package / "_grammar"
    (tmp_path / "grammar").mkdir()
    assert package_data.data_folder("grammar") == package / "_grammar"  # somebody else's: this is no checkout
    (tmp_path / "pyproject.toml").write_text("")
    assert package_data.data_folder("grammar") == tmp_path / "grammar"
    with pytest.raises(FileNotFoundError):
        package_data.data_folder("stdlib")


def test_the_grammar_is_there() -> None:
    assert package_data.grammar_text().startswith("// The grammar of difflang")


def test_the_cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert package_data.cache_folder() == tmp_path / "difflang"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert package_data.cache_folder().is_absolute()


def test_who_has_no_home_gets_no_folder_in_the_current_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container that is run by the number of a user."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.delenv("LOCALAPPDATA", raising=False)
    monkeypatch.setattr("os.path.expanduser", lambda path: path)
    for folder in (package_data.cache_folder(), package_data.state_folder()):
        with pytest.raises(OSError, match=r".*"):
            folder.mkdir(parents=True)
    assert not list(tmp_path.iterdir())
