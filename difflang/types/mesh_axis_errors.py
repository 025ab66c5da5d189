"""Checks the axes of a mesh that a program names, and reports wrong ones: DL0604, DL0606, DL0610."""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

from difflang.base.diagnostics import DifflangError
from difflang.base.fixes import did_you_mean
from difflang.base.source import Span
from difflang.ir.symbolic_dims import Dim, Poly, polynomial_terms
from difflang.ir.tensor_types import Tensor
from difflang.syntax import tree
from difflang.types.language_types import AxisSpread, show_type
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


def divides(count: int, size: Dim | AxisSpread) -> bool:
    """Whether a size may be a multiple of `count`: one with unknown names may be, unless it never is."""
    if not isinstance(size, Poly):
        return isinstance(size, AxisSpread) or size % count == 0
    names = [coefficient for term, coefficient in polynomial_terms(size) if term]
    constant = sum([coefficient for term, coefficient in polynomial_terms(size) if not term])
    return constant % gcd(count, *names) == 0


def undivided_error(
    type: Tensor, size: Dim, count: int, along: Sequence[str], split: Span, array: Span
) -> DifflangError:
    by = " and ".join([f"`{name}`" for name in along])
    message = f"{size} is not a multiple of {count}, the size of {by}"
    labels = ((split, f"split into {count} parts"), (array, f"this is {show_type(type)}"))
    return make_error("DL0603", message, *labels, help="pad the array, split another axis, or use another mesh")
