"""Checks the axes of a mesh that a program names, and reports wrong ones: DL0604, DL0606, DL0610."""

from __future__ import annotations

from collections.abc import Sequence

from difflang.base.diagnostics import DifflangError
from difflang.base.fixes import did_you_mean
from difflang.base.source import Span
from difflang.syntax import tree
from difflang.types.module_scope import ModuleScope
from difflang.types.type_errors import make_error


def check_mesh_axes(splits: Sequence[tree.MeshAxes], module: ModuleScope) -> None:
    """Check the axes that split one array. Errors: DL0606 for an unknown axis, DL0604 for one that is named twice."""
    first: dict[str, Span] = {}
    for name, span in [pair for axes in splits for pair in zip(axes.names, axes.name_spans, strict=True)]:
        if name not in module.axes:
            raise unknown_axis_error(name, span, module)
        if name in first:
            message = f"`{name}` splits two axes of one array"
            way = "a device has one place along it: split one of the two, or use another axis of the mesh"
            raise make_error("DL0604", message, (span, "here again"), (first[name], "first here"), help=way)
        first[name] = span


def unknown_axis_error(name: str, span: Span, module: ModuleScope) -> DifflangError:
    way, fixes = did_you_mean(name, module.axes, span)
    known = ", ".join([*module.axes, name])
    way = way or f"declare it at the top of the file: `axes {known}`"
    return make_error("DL0606", f"there is no axis `{name}` of a mesh", (span, "not declared"), help=way, fixes=fixes)


def misplaced_axes_error(written: tree.TypeApply) -> DifflangError:
    """The report of an `@` in the arguments of a record."""
    at = next(axes for axes in written.splits if axes is not None)
    way = "write it in the types of the fields: the sizes of arrays are split"
    return make_error("DL0610", "only a size of an array is split along an axis of a mesh", (at.span, ""), help=way)
