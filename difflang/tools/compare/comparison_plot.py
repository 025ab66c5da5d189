"""The picture of a comparison: the sizes of expressions by order, errors by step, and the operations of each way."""

from __future__ import annotations

from math import isfinite
from pathlib import Path
from typing import Any

from difflang.base.source import NO_SPAN
from difflang.base.source_files import write_or_report
from difflang.host.plotting import FORMATS, figure_bytes
from difflang.tools.compare.comparison import Comparison, size_text
from difflang.types.type_errors import make_error

SIZE = 15.0, 4.2  # inches
LEAST = 1e-20  # for an error on a logarithmic axis, where there is no 0


def save_plot(found: Comparison, path: Path) -> None:
    """Draw a comparison to a file. Errors: DL0709 without Matplotlib; DL0710 for a file that cannot be written."""
    require_format(path)

    def fill(figure: Any) -> None:
        orders, steps, ways = figure.subplots(1, 3)
        draw_orders(orders, found)
        draw_steps(steps, found)
        draw_ways(ways, found)
        figure.suptitle(f"{found.call} = {found.value}, differentiated in {', '.join(found.wrt)}")

    write_or_report(path, figure_bytes(fill, path.suffix, NO_SPAN, SIZE))


def require_format(path: Path) -> None:
    """Errors: DL0710 for a suffix of no format."""
    if path.suffix not in FORMATS:
        way = f"the file name must end with {' or '.join(FORMATS)}"
        raise make_error("DL0710", f"cannot draw {path}: `{path.suffix}` is not a known format", help=way)


def draw_orders(axes: Any, found: Comparison) -> None:
    """Nodes of the expression and of the graph, by order."""
    for name, label in (("expression", "expression"), ("graph", "graph")):
        rows = [(row.order, getattr(row, name)) for row in found.orders if getattr(row, name)]
        axes.plot([order for order, _ in rows], [float(n) for _, n in rows], "o-", label=label)
    axes.set(title="symbolic: size of the derivative", xlabel=f"order in {found.along}", ylabel="nodes", yscale="log")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.legend()


def draw_steps(axes: Any, found: Comparison) -> None:
    """Errors of both differences and their parts, by step; the errors of both modes as levels."""
    for (method, label), color in zip((("one_sided", "one-sided"), ("central", "central")), ("C0", "C1"), strict=True):
        for part, style in (("total", "o-"), ("truncation", "--"), ("rounding", ":")):
            rows = [(row.step, getattr(getattr(row, method), part)) for row in found.errors.steps]
            kept = [(h, max(LEAST, e)) for h, e in rows if e is not None and isfinite(e)]
            text = label if part == "total" else f"{label}: {part}"
            axes.plot([h for h, _ in kept], [e for _, e in kept], style, color=color, markersize=3, label=text)
    for mode, color in (("forward", "C2"), ("reverse", "C3")):
        level = max(LEAST, getattr(found.errors, mode))
        axes.axhline(level, color=color, linestyle="-." if mode == "reverse" else "-", label=f"{mode} mode")
    axes.set(title="numerical: error by step", xlabel="step h", ylabel="relative error", xscale="log", yscale="log")
    axes.set_xlim(found.errors.steps[-1].step / 2, 2 * found.errors.steps[0].step)
    axes.xaxis.get_major_locator().set_params(numticks=6)
    axes.legend(fontsize="x-small")


def draw_ways(axes: Any, found: Comparison) -> None:
    """The operations of each way, all runs and passes together."""
    ways = [way for way in found.ways if way.in_all]
    bars = axes.barh([way.name for way in ways], [float(way.in_all or 0) for way in ways])
    axes.bar_label(bars, [f" {size_text(way.in_all)}" for way in ways], fontsize="x-small")
    axes.invert_yaxis()
    most = max([float(way.in_all or 1) for way in found.ways])
    axes.set(title="operations in all", xscale="log", xlim=(0.5, most**1.2 * 2))
    axes.xaxis.get_major_locator().set_params(numticks=6)
