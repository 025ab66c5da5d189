"""Locations of the package's data files (grammar, standard library, error pages) and of the user's folders.

`syntax`, `elaborate` and `cli` interpret them.
"""

from __future__ import annotations

import os
import re
import sys
from functools import cache
from pathlib import Path

PACKAGE_FOLDER = Path(__file__).resolve().parent.parent


def data_folder(name: str) -> Path:
    """The folder `name` beside the package in a checkout, else `_name` inside the installed package.

    Errors: FileNotFoundError if neither is there, which means a broken installation.
    """
    sibling, installed = PACKAGE_FOLDER.parent / name, PACKAGE_FOLDER / f"_{name}"
    # Only a checkout has pyproject.toml beside the package: site-packages may hold somebody else's `grammar`.
    if sibling.is_dir() and (PACKAGE_FOLDER.parent / "pyproject.toml").is_file():
        return sibling
    if installed.is_dir():
        return installed
    raise FileNotFoundError(f"difflang's {name} folder is neither at {sibling} nor at {installed}")


def grammar_text() -> str:
    """The text of `difflang.lark`."""
    return (data_folder("grammar") / "difflang.lark").read_text(encoding="utf-8")


def stdlib_files() -> tuple[Path, ...]:
    """The files of the standard library's modules, sorted by name."""
    return tuple(sorted(data_folder("stdlib").glob("*.dfl")))


def builtins_file() -> Path:
    """The page about what every file knows without an import."""
    return data_folder("stdlib") / "builtins.md"


@cache
def stdlib_modules() -> tuple[str, ...]:
    """The names of the modules that a program can import."""
    return tuple(path.stem for path in stdlib_files() if path.stem != "prelude")


PUBLIC_DECLARATION = re.compile(r"^pub (?:fn|record|enum) (\w+)", re.MULTILINE)
PUBLIC_ENUM = re.compile(r"^pub enum (\w+).*\{\n((?:  .*\n)+)\}", re.MULTILINE)
VARIANT = re.compile(r"^  (\w+)", re.MULTILINE)


@cache
def stdlib_modules_of_name() -> dict[str, tuple[str, ...]]:
    """For each public name of the standard library, variants of its enums included, the modules that define it."""
    homes: dict[str, tuple[str, ...]] = {}
    for path in stdlib_files():
        text = path.read_text(encoding="utf-8") if path.stem != "prelude" else ""
        variants = [v for _, body in PUBLIC_ENUM.findall(text) for v in VARIANT.findall(body)]
        for name in (*PUBLIC_DECLARATION.findall(text), *variants):
            homes[name] = (*homes.get(name, ()), path.stem)
    return homes


@cache
def stdlib_module_of_name() -> dict[str, str]:
    """For each public name of the standard library, its module; the first, if two define it."""
    return {name: modules[0] for name, modules in stdlib_modules_of_name().items()}


@cache
def stdlib_enum_of_variant() -> dict[str, str]:
    """For each variant of a public enum of the standard library, the enum."""
    texts = [path.read_text(encoding="utf-8") for path in stdlib_files()]
    enums = [found for text in texts for found in PUBLIC_ENUM.findall(text)]
    return {variant: enum for enum, body in enums for variant in VARIANT.findall(body)}


def error_page(code: str) -> str:
    """The Markdown page of an error code. Errors: FileNotFoundError if the installation is broken."""
    checkout = PACKAGE_FOLDER.parent / "docs" / "errors"
    pages = checkout if (PACKAGE_FOLDER.parent / "pyproject.toml").is_file() else PACKAGE_FOLDER / "_errors"
    return (pages / f"{code}.md").read_text(encoding="utf-8")


def user_home() -> Path:
    """The user's home folder. If there is none, as in many containers, a path in which nothing can be created."""
    found = Path(os.path.expanduser("~"))
    return found if found.is_absolute() else Path(os.devnull)


def cache_folder() -> Path:
    """The user's folder for data that can be rebuilt: `$XDG_CACHE_HOME/difflang` or the platform's equivalent."""
    chosen = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG rules say to ignore a relative path
    if chosen and Path(chosen).is_absolute():
        return Path(chosen) / "difflang"
    if sys.platform == "win32" and (local := os.environ.get("LOCALAPPDATA")):
        return Path(local) / "difflang" / "cache"
    return user_home() / ("Library/Caches" if sys.platform == "darwin" else ".cache") / "difflang"


def state_folder() -> Path:
    """The user's folder for lasting data such as the REPL's history: `$XDG_STATE_HOME/difflang` or similar."""
    chosen = os.environ.get("XDG_STATE_HOME", "")
    if chosen and Path(chosen).is_absolute():
        return Path(chosen) / "difflang"
    if sys.platform == "win32" and (local := os.environ.get("LOCALAPPDATA")):
        return Path(local) / "difflang" / "state"
    return user_home() / ("Library/Application Support" if sys.platform == "darwin" else ".local/state") / "difflang"
