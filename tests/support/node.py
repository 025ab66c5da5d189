"""Programs of Node for the tests: packages of a lock file, installed once into the user's cache folder."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from difflang.base.package_data import cache_folder


def missing(reason: str) -> None:
    """Skips with the reason; with DIFFLANG_NODE=1, which says that all that is needed is there, it fails."""
    if os.environ.get("DIFFLANG_NODE"):
        pytest.fail(reason)
    pytest.skip(reason)


def modules(folder: Path, *also: str) -> Path:
    """`node_modules` with exactly what the lock file of `folder` names. `also` are folders beside it that it points to.

    Cost: seconds for the first test that asks, nothing afterwards.
    """
    if shutil.which("node") is None or shutil.which("npm") is None:
        missing("node and npm are not on this machine")
    lock = (folder / "package-lock.json").read_bytes()
    kept = cache_folder() / "node" / hashlib.sha256(lock).hexdigest()[:16]
    if not kept.is_dir():
        kept.parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(dir=kept.parent))
        for name in ("package.json", "package-lock.json"):
            shutil.copy(folder / name, made)
        for name in also:
            shutil.copytree(folder / name, made / name)
        command = ["npm", "ci", "--ignore-scripts", "--omit=optional", "--no-audit", "--no-fund", "--prefer-offline"]
        done = subprocess.run(command, cwd=made, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=300)
        if done.returncode:
            shutil.rmtree(made)
            missing(f"npm could not install what {folder.name} needs: {done.stderr[-500:]}")
        try:
            made.rename(kept)
        except OSError:  # another worker was faster
            shutil.rmtree(made)
    return kept / "node_modules"


def node(*args: str | Path, input: str = "", cwd: Path | None = None) -> str:
    """What a program of Node prints."""
    command = ["node", *map(str, args)]
    done = subprocess.run(command, cwd=cwd, input=input, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
