"""Pictures: the same bytes for the same numbers, no window, and what cannot be drawn is said beforehand."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from difflang.base.diagnostics import DifflangError
from difflang.base.source import Source
from difflang.driver.checked_program import check_program
from difflang.driver.run_program import run_program
from difflang.execution.engine import Engine
from difflang.host.data.file_access import FileAccess

CALLS = {
    "a line": "plot([1.0, 2.0, 0.5], file = FILE)",
    "series": 'plot([1.0, 2.0], [[1.0, 2.0], [3.0, 4.0]], file = FILE, labels = ("a", "$b$"), title = "t_1 $x$")',
    "axes": 'plot([1.0, 10.0], [1.0, 100.0], file = FILE, xlog = true, ylog = true, xlabel = "steps", ylabel = "loss")',
    "points": "scatter(normal(50), normal(50), file = FILE)",
    "bars": "histogram(normal(500), file = FILE, bins = 12)",
    "pixels": "image(uniform(8, 8), file = FILE)",
    "colours": "image(uniform(8, 8, 3), file = FILE)",
    "numbers of other types": "plot(iota(3), bf16([1.0, nan, inf]), file = FILE)",
    "nothing": "plot(zeros(0), file = FILE)",
}


def ran(folder: Path, program: str) -> None:
    run_program(check_program(Source("test.dfl", program)), Engine("interpret"), FileAccess(folder), 0, print)


@pytest.mark.parametrize("suffix", ["svg", "png"])
@pytest.mark.parametrize("name", CALLS)
def test_a_picture_is_the_same_twice(name: str, suffix: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    seen: list[bytes] = []
    for _ in range(2):
        ran(tmp_path, CALLS[name].replace("FILE", f'"a.{suffix}"') + "\n")
        seen.append((tmp_path / f"a.{suffix}").read_bytes())
    assert seen[0] == seen[1]
    assert seen[0].startswith(b"\x89PNG" if suffix == "png" else b"<?xml")


def test_the_numbers_at_a_logarithmic_axis_are_plain(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    ran(tmp_path, 'plot([1e-3, 10.0], [1e-9, 100.0], file = "a.svg", xlog = true, ylog = true)\n')
    shown = (tmp_path / "a.svg").read_text(encoding="utf-8")
    assert "<!-- 1e" in shown and "mathdefault" not in shown


def test_settings_of_others_do_not_matter_and_stay(tmp_path: Path) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    ran(tmp_path, 'plot([1.0, 2.0], file = "a.svg", title = "t")\n')
    with matplotlib.rc_context({"lines.linewidth": 9, "font.size": 30}):
        ran(tmp_path, 'plot([1.0, 2.0], file = "b.svg", title = "t")\n')
        assert matplotlib.rcParams["lines.linewidth"] == 9
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


@pytest.mark.nightly
def test_no_window_is_asked_for(tmp_path: Path) -> None:
    """`pyplot`, which opens windows and keeps figures, is never imported; Matplotlib itself only where it is used."""
    pytest.importorskip("matplotlib")
    (tmp_path / "a.dfl").write_text('plot([1.0, 2.0], file = "a.svg")\n', encoding="utf-8")
    (tmp_path / "b.dfl").write_text("print(1)\n", encoding="utf-8")
    code = """import sys
from difflang.cli import main
main(["run", "--engine=interpret", sys.argv[1]], standalone_mode=False)
print("matplotlib" in sys.modules, "matplotlib.pyplot" in sys.modules)
"""
    for name, said in (("a.dfl", "True False"), ("b.dfl", "False False")):
        words = [sys.executable, "-c", code, str(tmp_path / name)]
        result = subprocess.run(words, capture_output=True, text=True, check=True)
        assert result.stdout.splitlines()[-1] == said


@pytest.mark.parametrize(
    ("call", "code"),
    [
        ("plot([1.0])", "DL0319"),
        ('plot([1.0], file = "a.pdf")', "DL0708"),
        ('plot([1.0], file = "a.dfl")', "DL0708"),
        ('plot(1.0, file = "a.svg")', "DL0319"),
        ('plot([1j], file = "a.svg")', "DL0319"),
        ('plot([1.0], fil = "a.svg")', "DL0319"),
        ('plot([1.0], file = "a.svg", xlog = 1)', "DL0319"),
        ('plot([1.0], file = "a.svg", labels = 1)', "DL0319"),
        ('image([1.0], file = "a.svg")', "DL0319"),
        ('let x = plot([1.0], file = "a.svg") + 1', "DL0313"),
        ('fn f(x: f32[n]) -> f32 {\n  plot(x, file = "a.svg")\n  1.0\n}', "DL0322"),
    ],
)
def test_what_is_not_drawn(call: str, code: str) -> None:
    assert [d.code for d in check_program(Source("test.dfl", call + "\n")).errors] == [code]


@pytest.mark.parametrize(
    "call",
    [
        'plot([1.0, 2.0], [1.0], file = "a.svg")',
        'image(ones(2, 2, 5), file = "a.svg")',
        'histogram([1.0], file = "a.svg", bins = 0)',
    ],
)
def test_what_only_the_sizes_say(call: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    with pytest.raises(DifflangError) as raised:
        ran(tmp_path, call + "\n")
    assert [d.code for d in raised.value.diagnostics] == ["DL0319"]
    assert not list(tmp_path.iterdir())
