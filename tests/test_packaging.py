"""Wheel, source distribution and editable install find the same grammar and standard library."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
pytestmark = pytest.mark.slow

ASK = """
import hashlib, json
from difflang.base import error_codes, package_data
files = [package_data.data_folder("grammar") / "difflang.lark", *package_data.stdlib_files()]
files.append(package_data.builtins_file())
digests = {f.name: hashlib.sha256(f.read_bytes()).hexdigest() for f in files}
digests |= {c + ".md": hashlib.sha256(package_data.error_page(c).encode()).hexdigest() for c in error_codes.CODE_TITLES}
print(json.dumps({"at": str(files[0].parent), "files": digests}))
"""


def python(*args: str, cwd: Path, path: Path | None = None) -> str:
    """What a Python process prints."""
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | ({"PYTHONPATH": str(path)} if path else {})
    done = subprocess.run(
        [sys.executable, *args], cwd=cwd, env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def checkout() -> dict[str, str]:
    """Name and digest of the files at the top of the repository."""
    files = [ROOT / "grammar" / "difflang.lark", *sorted((ROOT / "stdlib").iterdir())]
    files += sorted((ROOT / "docs" / "errors").glob("*.md"))
    return {f.name: hashlib.sha256(f.read_bytes()).hexdigest() for f in files}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A source distribution and the wheel made from it, both unpacked, and an editable wheel of the checkout."""
    folder = tmp_path_factory.mktemp("built")
    # The wheel is built from the source distribution, so this also shows that the latter is complete.
    python("-m", "build", "--no-isolation", "--outdir", str(folder / "dist"), str(ROOT), cwd=folder)
    (wheel,) = (folder / "dist").glob("*.whl")
    (sdist,) = (folder / "dist").glob("*.tar.gz")
    zipfile.ZipFile(wheel).extractall(folder / "wheel")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder / "sdist", filter="data")
    editable = "import sys; from hatchling.build import build_editable; build_editable(sys.argv[1])"
    (folder / "pth").mkdir()
    python("-c", editable, str(folder / "pth"), cwd=ROOT)
    (wheel,) = (folder / "pth").glob("*.whl")
    zipfile.ZipFile(wheel).extractall(folder / "editable")
    return folder


def test_the_wheel_has_its_own_copy(built: Path) -> None:
    """`-S`: no site-packages, so an installed difflang cannot answer instead."""
    found = json.loads(python("-S", "-c", ASK, cwd=built, path=built / "wheel"))
    assert Path(found["at"]) == built / "wheel" / "difflang" / "_grammar"
    assert found["files"] == checkout()


def test_the_source_distribution_uses_its_folders(built: Path) -> None:
    (top,) = (built / "sdist").iterdir()
    found = json.loads(python("-S", "-c", ASK, cwd=built, path=top))
    assert Path(found["at"]) == top / "grammar"
    assert found["files"] == checkout()


def test_an_editable_install_reads_the_checkout(built: Path) -> None:
    ask = f"import site; site.addsitedir({str(built / 'editable')!r})\n{ASK}"
    found = json.loads(python("-S", "-c", ask, cwd=built))
    assert Path(found["at"]) == ROOT / "grammar"
    assert found["files"] == checkout()


def test_the_source_distribution_has_what_the_readme_speaks_of(built: Path) -> None:
    (top,) = (built / "sdist").iterdir()
    for name in ("README.md", "LICENSE", "CHANGELOG.md", "pyproject.toml", "examples/digits.dfl", "tests/conftest.py"):
        assert (top / name).is_file(), name
    assert (top / "examples" / "data" / "digits.csv").is_file()


def test_the_wheel_holds_the_package_and_nothing_else(built: Path) -> None:
    top = {p.name.partition("-")[0] for p in (built / "wheel").iterdir()}
    assert top == {"difflang"}
    (metadata,) = (built / "wheel").glob("*.dist-info/METADATA")
    assert "License-Expression: Apache-2.0" in metadata.read_text(encoding="utf-8")
    (wheel,) = (built / "dist").glob("*.whl")
    assert not [name for name in zipfile.ZipFile(wheel).namelist() if name.endswith(".pyc")]
