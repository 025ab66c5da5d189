"""Plotting builtins `plot`, `scatter`, `histogram` and `image`: png and svg files, reproducible to the byte."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from difflang.base.source import Span
from difflang.base.wording import count_of
from difflang.host.bindings import HostBindings
from difflang.host.builtins import UNIT_VALUE, BuiltinCall, RunningProgram, host_builtin
from difflang.host.data.file_access import write_output
from difflang.host.optional_packages import import_optional, require_package
from difflang.host.values import HostValue
from difflang.ir.tensor_types import Tensor
from difflang.types.language_types import UNIT, LangType, show_type
from difflang.types.type_errors import make_error

FORMATS = (".png", ".svg")
TEXTS = ("file", "title", "xlabel", "ylabel")
COMMON = (*TEXTS, "labels", "xlog", "ylog")
# Fixed settings, so that the same numbers give the same bytes on every machine.
SETTINGS = {
    "svg.hashsalt": "difflang",  # seeds the ids inside an svg
    "svg.fonttype": "path",  # independent of the viewer's fonts
    "font.family": "DejaVu Sans",  # ships with Matplotlib
    "text.usetex": False,
    "text.parse_math": False,  # a `$` in a title is literal
    "figure.figsize": (6.4, 4.2),
    "savefig.dpi": 150,
    "axes.grid": True,
    "grid.alpha": 0.3,
}
METADATA = {".svg": {"Date": None, "Creator": None}, ".png": {"Software": None}}
Draw = Callable[[Any, "BuiltinCall", list[np.ndarray], list[str]], None]


def plot_check(
    least: int, most: int, ranks: tuple[int, ...], *options: str
) -> Callable[[HostBindings, BuiltinCall], LangType]:
    """A type check for arrays of real numbers and options. Errors: DL0319, DL0708."""

    def check(host: HostBindings, given: BuiltinCall) -> LangType:
        require_package(host.module, "matplotlib", given.span)
        given.check_arity(least, most, (*COMMON, *options))
        for value, span in given.items:
            if (
                not isinstance(value.type, Tensor)
                or len(value.type.shape) not in ranks
                or value.type.dtype.kind == "complex"
            ):
                axes = " or ".join([count_of(n, "axis", "axes") for n in ranks])
                raise given.usage_error(span, f"this is {show_type(value.type)}; expected real numbers with {axes}")
        if "file" not in given.named:
            raise given.usage_error(text="the picture needs a `file`")
        for name in TEXTS:
            given.text(name)
        for name in ("xlog", "ylog"):
            given.flag(name)
        series_labels(given)
        check_format(given)
        return UNIT

    return check


def check_format(given: BuiltinCall) -> None:
    """Errors: DL0708 if the file name is known and has no supported suffix."""
    file = given.text("file")
    if file is not None and Path(file).suffix not in FORMATS:
        message = "the suffix of a file name gives its format"
        raise make_error("DL0708", message, (given.named["file"][1], ""), help=f"the formats are {', '.join(FORMATS)}")


def series_labels(given: BuiltinCall) -> list[str]:
    """The labels of the series. Errors: DL0319."""
    return [text or "" for text in given.texts("labels") or ()]


def register_plot(
    name: str, usage: str, check: Callable[[HostBindings, BuiltinCall], LangType]
) -> Callable[[Draw], Draw]:
    """Decorator: registers a kind of plot by its drawing function."""

    def register(draw: Draw) -> Draw:
        def run(host: RunningProgram, given: BuiltinCall) -> HostValue:
            check_format(given)  # again: the name may be known only at run time
            file = given.text("file") or ""
            arrays = [plottable_array(value.array) for value, _ in given.items]
            picture = render_plot(draw, given, arrays, Path(file).suffix)
            host.pictures.append(write_output(host.access, host.engine.group, picture, file, given.span))
            return UNIT_VALUE

        host_builtin(name, usage, check)(run)
        return draw

    return register


def plottable_array(array: np.ndarray) -> np.ndarray:
    """The array in a type that Matplotlib supports: it lacks bf16."""
    return array if array.dtype.kind in "biuf" else array.astype(np.float32)


def render_plot(draw: Draw, given: BuiltinCall, arrays: list[np.ndarray], suffix: str) -> bytes:
    """The bytes of the picture."""

    def fill(figure: Any) -> None:
        axes = figure.add_subplot()
        labels = series_labels(given)
        draw(axes, given, arrays, labels)
        axes.set(title=given.text("title") or "", xlabel=given.text("xlabel") or "", ylabel=given.text("ylabel") or "")
        if given.flag("xlog"):
            axes.set_xscale("log")
        if given.flag("ylog"):
            axes.set_yscale("log")
        if labels:
            axes.legend()

    return figure_bytes(fill, suffix, given.span)


def figure_bytes(
    fill: Callable[[Any], None], suffix: str, span: Span, size: tuple[float, float] | None = None
) -> bytes:
    """The bytes of a Matplotlib figure that `fill` draws in, as `.svg` or `.png`; `size` is in inches. Errors: DL0709.

    No window is opened, and Matplotlib's global settings are unchanged.
    """
    library, file = import_optional("matplotlib", span), io.BytesIO()
    # `rc_context` restores the settings of a program that uses Matplotlib itself.
    with library.rc_context(), np.errstate(all="ignore"):
        # The user's matplotlibrc must not change the file.
        library.rcdefaults()
        library.rcParams.update(SETTINGS)
        figure = import_optional("matplotlib.figure", span).Figure(figsize=size, layout="tight")
        import_optional("matplotlib.backends.backend_agg", span).FigureCanvasAgg(figure)
        fill(figure)
        plain_powers(figure, import_optional("matplotlib.ticker", span))
        figure.savefig(file, format=suffix[1:], metadata=METADATA[suffix])
    return file.getvalue()


def plain_powers(figure: Any, ticker: Any) -> None:
    """Write the numbers at logarithmic axes as `1e-03`: the default needs formulas, which are off."""
    for axis in [axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis) if axis.get_scale() == "log"]:
        axis.set_major_formatter(ticker.LogFormatter())
        axis.set_minor_formatter(ticker.LogFormatter(labelOnlyBase=False))


def split_series(given: BuiltinCall, arrays: list[np.ndarray]) -> tuple[np.ndarray, list[np.ndarray]]:
    """The x coordinates and the rows of y. Errors: DL0319 if their lengths differ."""
    *xs, ys = arrays
    rows = list(ys) if ys.ndim == 2 else [ys]
    x = xs[0] if xs else np.arange(ys.shape[-1])
    if x.ndim != 1 or len(x) != ys.shape[-1]:
        raise given.usage_error(
            given.items[0][1], f"{x.shape} and {ys.shape} do not match: the last axes must have the same length"
        )
    return x, rows


def label_at(labels: list[str], i: int) -> str | None:
    return labels[i] if i < len(labels) else None


@register_plot("plot", '`plot(x, y, file = "a.svg")`; the rows of `y` are series', plot_check(1, 2, (1, 2)))
def plot(axes: Any, given: BuiltinCall, arrays: list[np.ndarray], labels: list[str]) -> None:
    x, rows = split_series(given, arrays)
    for i, row in enumerate(rows):
        axes.plot(x, row, label=label_at(labels, i))


@register_plot("scatter", '`scatter(x, y, file = "a.svg")`', plot_check(2, 2, (1, 2)))
def scatter(axes: Any, given: BuiltinCall, arrays: list[np.ndarray], labels: list[str]) -> None:
    x, rows = split_series(given, arrays)
    for i, row in enumerate(rows):
        axes.scatter(x, row, s=12, label=label_at(labels, i))


@register_plot("histogram", '`histogram(x, file = "a.svg", bins = 20)`', plot_check(1, 1, (1,), "bins"))
def histogram(axes: Any, given: BuiltinCall, arrays: list[np.ndarray], labels: list[str]) -> None:
    bins = int(given.named["bins"][0].number) if "bins" in given.named else 20
    if not 0 < bins <= 10_000:
        raise given.usage_error(given.named["bins"][1], "from 1 to 10000 bins")
    # Matplotlib cannot bin infinities and NaNs.
    x = arrays[0][np.isfinite(arrays[0])]
    axes.hist(x, bins=bins, label=label_at(labels, 0))


@register_plot("image", '`image(pixels, file = "a.png")`', plot_check(1, 1, (2, 3)))
def image(axes: Any, given: BuiltinCall, arrays: list[np.ndarray], labels: list[str]) -> None:
    """Rows from the top. A third axis of 3 or 4 holds colours from 0 to 1; otherwise numbers are shown in grey."""
    pixels = arrays[0]
    if pixels.ndim == 3 and pixels.shape[-1] not in (3, 4):
        raise given.usage_error(given.items[0][1], "colours need a last axis of size 3 or 4")
    axes.imshow(np.clip(pixels, 0, 1) if pixels.ndim == 3 and pixels.dtype.kind == "f" else pixels, cmap="gray")
    axes.grid(visible=False)
