"""`compile`, `@define` and imports of `.dfl` files."""

from __future__ import annotations

import copy
import importlib
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import difflang

SQUARE = "fn square(x: f64) -> f64 = x * x\n"


def test_the_only_function_of_a_text() -> None:
    f = difflang.compile(SQUARE)
    assert float(f(3.0)) == 9.0
    assert float(f.grad()(3.0)) == 6.0


def test_one_of_several_is_named() -> None:
    both = SQUARE + "fn cube(x: f64) -> f64 = x * square(x)\nrecord P { x: f64 }\n"
    assert float(difflang.compile(both, "cube")(2.0)) == 8.0
    with pytest.raises(difflang.DifflangError, match="which function to compile") as found:
        difflang.compile(both)
    assert "square, cube" in found.value.render()
    with pytest.raises(difflang.DifflangError, match="no function `cub`"):
        difflang.compile(both, "cub")
    with pytest.raises(difflang.DifflangError, match="which function"):
        difflang.compile("record P { x: f64 }")


@difflang.define
def sum_of_squares(x: Any) -> Any:
    """
    fn sum_of_squares(x: f64[n]) -> f64 = sum(x * x)
    """


def test_a_docstring_is_a_program() -> None:
    assert float(sum_of_squares(np.array([1.0, 2.0]))) == 5.0
    assert sum_of_squares.grad()(np.array([1.0, 2.0])).tolist() == [2.0, 4.0]


WRONG = '''
import difflang

if True:
    @difflang.define
    def wrong(x):
        """fn wrong(x: f64[n], y: f64[m]) -> f64[n] = x + y"""
'''


def test_reports_point_into_the_python_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "holds_wrong.py").write_text(WRONG)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(difflang.ShapeError) as found:
        importlib.import_module("holds_wrong")
    (label, *_) = found.value.diagnostics[0].labels
    line = WRONG.splitlines()[6]
    assert label.span.source.name.endswith("holds_wrong.py")
    assert label.span.source.position(label.span.start) == (7, line.index("+ y") + 3)


def test_a_program_made_by_a_program_has_no_file() -> None:
    space: dict[str, Any] = {}
    exec('def square(x):\n    """fn square(x: f64) -> f64 = x * x"""', space)  # noqa: S102 - what has no file
    assert float(difflang.define(space["square"])(2.0)) == 4.0


# ---- imports


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    with difflang.importing():
        yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_a_file_is_a_module(folder: Path) -> None:
    (folder / "dfl_model.dfl").write_text(SQUARE + "record P { x: f64 }\n")
    model: Any = importlib.import_module("dfl_model")
    assert float(model.square(3.0)) == 9.0
    assert model.P(x=1.0).x == 1.0
    assert {"square", "P"} <= set(dir(model))
    assert model.__file__.endswith("dfl_model.dfl")
    with pytest.raises(AttributeError, match="did you mean `square`"):
        _ = model.squar


def test_a_reloaded_file_is_read_again(folder: Path) -> None:
    (folder / "dfl_again.dfl").write_text(SQUARE)
    again: Any = importlib.import_module("dfl_again")
    (folder / "dfl_again.dfl").write_text(SQUARE.replace("x * x", "x * x + 1.0"))
    assert importlib.reload(again) is again
    assert float(again.square(3.0)) == 10.0


def test_in_packages(folder: Path) -> None:
    (folder / "dfl_pack").mkdir()
    (folder / "dfl_pack" / "__init__.py").write_text("from .inner import square\nfrom . import inner\n")
    (folder / "dfl_pack" / "inner.dfl").write_text(SQUARE)
    pack: Any = importlib.import_module("dfl_pack")
    assert float(pack.square(2.0)) == float(pack.inner.square(2.0)) == 4.0


def test_a_python_module_comes_first_and_nothing_is_installed_unasked(folder: Path) -> None:
    (folder / "dfl_same.py").write_text("square = 7\n")
    (folder / "dfl_same.dfl").write_text(SQUARE)
    (folder / "dfl_later.dfl").write_text(SQUARE)
    assert importlib.import_module("dfl_same").square == 7
    count = len(sys.meta_path)
    with difflang.importing():
        assert len(sys.meta_path) == count
    from difflang.api.import_hook import FINDER

    sys.meta_path.remove(FINDER)
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("dfl_later")


def test_a_mistake_is_a_syntax_error_at_its_place(folder: Path) -> None:
    (folder / "dfl_wrong.dfl").write_text("fn f(x: f64) -> f64 = x +\n")
    with pytest.raises(SyntaxError) as found:
        importlib.import_module("dfl_wrong")
    assert isinstance(found.value, difflang.ParseError)
    assert "dfl_wrong" not in sys.modules


def test_first_imports_of_several_threads_give_one_module(folder: Path) -> None:
    (folder / "dfl_threads.dfl").write_text(SQUARE)
    found: list[Any] = []
    threads = [threading.Thread(target=lambda: found.append(importlib.import_module("dfl_threads"))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8 and all(module is found[0] for module in found)
    assert float(found[0].square(2.0)) == 4.0


def test_blocks_of_several_threads_that_import_overlap(folder: Path) -> None:
    """The first that ends leaves the finder to the others."""
    (folder / "dfl_overlap.dfl").write_text(SQUARE)
    from difflang.api.import_hook import FINDER

    others = [difflang.importing() for _ in range(3)]
    for each in others:
        each.__enter__()
    for each in others:
        each.__exit__(None, None, None)
        assert sys.meta_path.count(FINDER) == 1  # that of the fixture is not over
    assert float(importlib.import_module("dfl_overlap").square(2.0)) == 4.0


# ---- wrong use


@pytest.mark.parametrize("quotes", ['r"""', "'''", '"', "r'"])
def test_reports_point_behind_any_quotes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quotes: str) -> None:
    name = f"holds_{abs(hash(quotes))}"
    line = f"    {quotes}fn wrong(x: f64) -> f64 = x * z{quotes.lstrip('r')}"
    (tmp_path / f"{name}.py").write_text(f"import difflang\n\n@difflang.define\ndef wrong(x):\n{line}\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(difflang.CheckError) as found:
        importlib.import_module(name)
    (label, *_) = found.value.diagnostics[0].labels
    assert label.span.source.position(label.span.start) == (5, line.index("z") + 1)


def without_a_program(x: Any) -> Any:
    return x


@pytest.mark.parametrize("given", [without_a_program, lambda x: x, 3, int, None])
def test_what_has_no_docstring_is_refused(given: Any) -> None:
    with pytest.raises(difflang.ArgumentError, match="takes a function with a program in its docstring"):
        difflang.define(given)


def test_a_function_that_is_wrapped_already() -> None:
    import jax

    @difflang.define
    @jax.jit
    def twice(x: Any) -> Any:
        """fn twice(x: f64) -> f64 = 2 * x"""

    assert float(twice(3.0)) == 6.0


@pytest.mark.parametrize("given", [b"fn f(x: f64) -> f64 = x", 3, None, Path("a.dfl")])
def test_what_is_no_text_is_refused(given: Any) -> None:
    with pytest.raises(difflang.DifflangError, match="takes the text"):
        difflang.compile(given)


def test_a_function_is_its_own_copy() -> None:
    f = difflang.compile(SQUARE)
    assert copy.deepcopy({"f": f})["f"] is f
