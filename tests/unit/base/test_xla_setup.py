"""What XLA compiles is kept in a process of our own, and a folder that a user has chosen stays."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from difflang.base import xla_setup
from difflang.base.xla_setup import (
    CACHE_DIR_VARIABLE,
    MAX_CACHE_AGE,
    MAX_CACHE_BYTES,
    cpu_fingerprint,
    enable_compile_cache,
    evict_old_programs,
)

COUNTED = """
from difflang.base.xla_setup import enable_compile_cache
enable_compile_cache()
import jax, difflang
found = []
jax.monitoring.register_event_listener(lambda event, **_: found.append(event))
print(difflang.loads("fn f(x: f64) -> f64 = sin(x) * x", name="f").f(1.0))
print(sum("cache_hits" in event for event in found))
"""


def counted(cache: Path) -> tuple[str, int]:
    """What a process of its own computes with this cache folder, and how many programs it did not compile."""
    env = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    found = subprocess.run([sys.executable, "-c", COUNTED], capture_output=True, text=True, env=env, check=True)
    assert not found.stderr
    value, hits = found.stdout.split()
    return value, int(hits)


def test_what_is_compiled_is_kept_and_a_damaged_file_is_not_there(tmp_path: Path) -> None:
    value, hits = counted(tmp_path)
    assert (value[:8], hits) == ("0.841470", 0)
    assert counted(tmp_path) == (value, 1)
    for file in tmp_path.rglob("*-cache"):
        file.write_bytes(file.read_bytes()[:-100])
    assert counted(tmp_path) == (value, 0)


SWAPPED = """
import sys
from difflang.base.xla_setup import enable_compile_cache
enable_compile_cache()
import difflang
print(difflang.loads(f"fn f(x: f64) -> f64 = {sys.argv[1]}(x) * x", name="f").f(1.0))
"""


def test_a_program_under_the_name_of_another_is_compiled_again(tmp_path: Path) -> None:
    def value_of(function: str) -> str:
        command, env = [sys.executable, "-c", SWAPPED, function], {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
        return subprocess.run(command, capture_output=True, text=True, env=env, check=True).stdout

    right = value_of("sin")
    (first,) = tmp_path.rglob("*-cache")
    value_of("cos")
    (second,) = {*tmp_path.rglob("*-cache")} - {first}
    kept = first.read_bytes()
    first.write_bytes(second.read_bytes())
    assert value_of("sin") == right
    # The right program has replaced the wrong one, which would be refused at every start.
    assert len(first.read_bytes()) == len(kept)
    assert first.read_bytes() != second.read_bytes()


@pytest.mark.parametrize("place", ["difflang", f"difflang/xla-{cpu_fingerprint()}"])
@pytest.mark.skipif(os.name == "nt", reason="a user's folders are private on Windows")
def test_a_folder_that_others_can_write_to_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv(CACHE_DIR_VARIABLE, raising=False)
    monkeypatch.delitem(sys.modules, "jax", raising=False)
    monkeypatch.setattr(xla_setup, "ENABLED_FOLDERS", [])
    (tmp_path / place).mkdir(parents=True)
    (tmp_path / place).chmod(0o777)
    enable_compile_cache()
    assert not xla_setup.ENABLED_FOLDERS
    (tmp_path / place).chmod(0o755)
    enable_compile_cache()
    assert xla_setup.ENABLED_FOLDERS
    assert {f.stat().st_mode & 0o777 for f in tmp_path.rglob("*") if f.is_dir()} == {0o700}


def test_a_folder_that_cannot_be_made_is_no_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.delenv(CACHE_DIR_VARIABLE, raising=False)
    monkeypatch.delitem(sys.modules, "jax", raising=False)
    monkeypatch.setattr(xla_setup, "ENABLED_FOLDERS", [])
    enable_compile_cache()
    assert not xla_setup.ENABLED_FOLDERS


def test_a_folder_that_the_user_chose_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CACHE_DIR_VARIABLE, "mine")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delitem(sys.modules, "jax", raising=False)
    enable_compile_cache()
    assert os.environ[CACHE_DIR_VARIABLE] == "mine"
    assert not list(tmp_path.iterdir())


def test_what_is_old_or_too_much_is_cleared_once_a_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = tmp_path.stat().st_mtime
    for name, age, size in (
        ("new", 10, 40),
        ("older", 20, 40),
        ("oldest", 30, 40),
        ("last year's", 12 * MAX_CACHE_AGE, 1),
    ):
        (tmp_path / name).write_bytes(b"x" * size)
        os.utime(tmp_path / name, (now - age, now - age))
    evict_old_programs(tmp_path)
    assert {file.name for file in tmp_path.iterdir()} == {"cleared", "new", "older", "oldest"}
    monkeypatch.setattr("difflang.base.xla_setup.MAX_CACHE_BYTES", 90)
    assert MAX_CACHE_BYTES > 90
    evict_old_programs(tmp_path)
    assert (tmp_path / "oldest").exists(), "it was looked at today"
    os.utime(tmp_path / "cleared", (now - MAX_CACHE_AGE, now - MAX_CACHE_AGE))
    evict_old_programs(tmp_path)
    assert {file.name for file in tmp_path.iterdir()} == {"cleared", "new", "older"}
