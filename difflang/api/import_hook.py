"""The import hook: after it is installed, `import model` loads `model.dfl`."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType

from difflang.api import load


class DifflangLoader(Loader):
    """Fills a Python module with the functions and records of a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def exec_module(self, module: ModuleType) -> None:
        """Load the file; also on reload. Errors: ParseError and CheckError, which are SyntaxErrors."""
        found = load(self.path)
        # Attributes are looked up lazily in the loaded module.
        vars(module).update(__getattr__=found.__getattr__, __dir__=found.__dir__, __difflang__=found)


class DifflangFinder(MetaPathFinder):
    """Finds `name.dfl` where Python looks for `name.py`. It comes last, so that Python modules take precedence."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        file = f"{fullname.rpartition('.')[2]}.dfl"
        # `path` is that of the package around a submodule.
        for folder in sys.path if path is None else path:
            place = Path(folder or ".") / file
            if os.path.isfile(place):
                return spec_from_file_location(fullname, place, loader=DifflangLoader(place))
        return None


class HookState:
    """Whether the hook is installed for the process, and how many `with` blocks need it."""

    always = False
    blocks = 0


FINDER = DifflangFinder()
LOCK = threading.Lock()


def install_import_hook() -> None:
    """From now on `import model` finds `model.dfl` on Python's module path, in packages too.

    The module has the functions, records and imports of the file as attributes, like the result of `load`;
    `importlib.reload` loads it again. A Python module of the same name takes precedence.
    """
    with LOCK:
        HookState.always = True
        update_meta_path()


def update_meta_path() -> None:
    """Add the finder to Python's import path, or remove it, as needed. The lock is held."""
    if (HookState.always or HookState.blocks > 0) != (FINDER in sys.meta_path):
        (sys.meta_path.remove if FINDER in sys.meta_path else sys.meta_path.append)(FINDER)


@contextmanager
def importing() -> Generator[None]:
    """`with difflang.importing(): import model`: the same until the last such block of any thread ends."""
    with LOCK:
        HookState.blocks += 1
        update_meta_path()
    try:
        yield
    finally:
        with LOCK:
            HookState.blocks -= 1
            update_meta_path()
