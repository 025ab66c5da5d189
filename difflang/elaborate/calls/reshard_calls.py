"""The call `reshard(x, @data, _)`: the same array, split along other axes of a mesh. Its transpose leaves a cotangent
to the layout of the array that it belongs to.
"""

from __future__ import annotations

from difflang.base.source import Span
from difflang.base.wording import count_of
from difflang.elaborate.calls.builtin_registry import register_builtin
from difflang.elaborate.calls.call_args import CallArgs
from difflang.elaborate.context import ElabContext, elaborate, elaborates
from difflang.elaborate.expressions.broadcasting import as_array
from difflang.elaborate.terms import Array, Term
from difflang.elaborate.trampoline import Walk
from difflang.syntax import tree
from difflang.types.language_types import show_type
from difflang.types.mesh_axis_errors import check_mesh_axes

USAGE = "write the array, and `@` and an axis of the mesh or `_` for each of its axes: `reshard(x, @data, _)`"


def elaborate_reshard(cx: ElabContext, e: tree.Call) -> Walk[Term]:
    """The call, whose arguments after the first are no values. Errors: DL0319, DL0604, DL0606, DL0610."""
    entries = [arg.value for arg in e.args[1:]]
    for arg in e.args:
        if arg.name is not None:
            raise cx.error("DL0319", f"`reshard` has no parameter `{arg.name}`", arg.span, "", USAGE)
    wrong = [x.span for x in entries if not is_entry(x)]
    if not e.args or isinstance(e.args[0].value, (tree.MeshAxes, tree.Comprehension)) or wrong:
        raise cx.error("DL0610", "this is not how an array is split", (wrong or [e.span])[0], "", USAGE)
    first = e.args[0].value
    x = as_array(cx, (yield elaborate(cx, first)), first.span)
    check_mesh_axes([entry for entry in entries if isinstance(entry, tree.MeshAxes)], cx.module)
    splits = tuple([entry.names if isinstance(entry, tree.MeshAxes) else () for entry in entries])
    if len(splits) != len(x.tensor.shape):
        message = f"this has {count_of(len(x.tensor.shape), 'axis', 'axes')}, and {len(splits)} are said how to split"
        raise cx.error("DL0610", message, first.span, f"this is {show_type(x.tensor)}", USAGE)
    return Array(cx.emit("reshard", e.span, x.value, splits=splits, source=()))


def is_entry(value: tree.Node) -> bool:
    return isinstance(value, tree.MeshAxes) or (isinstance(value, tree.Name) and value.id == "_")


@elaborates(tree.MeshAxes)
def misplaced_axes(cx: ElabContext, e: tree.MeshAxes) -> Walk[Term]:
    raise cx.error("DL0610", "only `reshard(x, …)` takes axes of a mesh", e.span, "", USAGE)
    yield


def reshard_without_axes(cx: ElabContext, args: CallArgs) -> Walk[Term]:
    """`reshard` as a value, as in `x |> reshard`."""
    place: Span = args.fn_span or args.span
    raise cx.error("DL0610", "`reshard` needs to be told how to split the array", place, "", USAGE)
    yield


register_builtin("reshard", reshard_without_axes, "x ..axes")
