"""StableHLO for `while_loop`, `cond` and `jit`, which `jax_facade` offers in place of JAX's.

A StableHLO region can read the values before it, so only loop carries are passed in. Constants are emitted anew in each
region, as JAX does: XLA would carry them along.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jax.extend.mlir.dialects import func, stablehlo
from jax.interpreters import mlir

from difflang.base.diagnostics import InternalError
from difflang.lower.stablehlo.hlo_array import HloArray

if TYPE_CHECKING:
    from difflang.lower.stablehlo.jax_facade import JaxFacade

ir = mlir.ir
HloArrays = list[HloArray]


def flatten_tree(writer: JaxFacade, tree: Any) -> tuple[HloArrays, Any]:
    """The leaves of a pytree as HLO arrays, and its structure."""
    leaves, shape = jax.tree.flatten(tree)
    return [writer.array(x) for x in leaves], shape


def mlir_types(cells: Sequence[HloArray]) -> list[Any]:
    return [x.writer.type(x.dtype, x.shape) for x in cells]


def block_arguments(block: Any, like: Sequence[HloArray]) -> HloArrays:
    return [x.like(value) for value, x in zip(block.arguments, like, strict=True)]


def emit_return(writer: JaxFacade, tree: Any, like: Sequence[HloArray], shape: Any) -> None:
    """End a region with its results, which must have the expected types."""
    found, structure = flatten_tree(writer, tree)
    if structure != shape or any([(x.dtype, x.shape) != (y.dtype, y.shape) for x, y in zip(found, like, strict=True)]):
        raise InternalError(f"a region gives {structure} of other types than {shape}")
    stablehlo.return_([x.value for x in found])


@contextmanager
def region_scope(writer: JaxFacade, block: Any) -> Generator[None]:
    """Emit into a region. Constants of other regions are not visible inside it, nor its own outside."""
    before, writer.numbers = writer.numbers, {}
    try:
        with ir.InsertionPoint(block):
            yield
    finally:
        writer.numbers = before


def while_loop(writer: JaxFacade, goes_on: Callable[[Any], Any], body: Callable[[Any], Any], start: Any) -> Any:
    """As `jax.lax.while_loop`."""
    state, shape = flatten_tree(writer, start)
    types = mlir_types(state)
    loop = stablehlo.WhileOp(types, [x.value for x in state])
    condition, step = [region.blocks.append(*types) for region in loop.regions]
    with region_scope(writer, condition):
        stablehlo.return_([writer.array(goes_on(jax.tree.unflatten(shape, block_arguments(condition, state)))).value])
    with region_scope(writer, step):
        emit_return(writer, body(jax.tree.unflatten(shape, block_arguments(step, state))), state, shape)
    return jax.tree.unflatten(shape, [x.like(value) for x, value in zip(state, loop.results, strict=True)])


def cond(writer: JaxFacade, truth: Any, yes: Callable[..., Any], no: Callable[..., Any], *operands: Any) -> Any:
    """As `jax.lax.cond`: the result of one of two functions; the other is not computed."""
    which = writer.convert(truth, np.int32)
    # MLIR wants the result types first, which are known only when the branches have been emitted: so emit twice, and
    # move the blocks over.
    draft = stablehlo.CaseOp([], which.value, 2)
    like, shape = HloArrays(), None
    for region, function in zip(draft.regions, (no, yes), strict=True):
        with region_scope(writer, region.blocks.append()):
            found = function(*operands)
            if shape is None:
                like, shape = flatten_tree(writer, found)
            emit_return(writer, found, like, shape)
    branch = stablehlo.CaseOp(mlir_types(like), which.value, 2)
    for written, region in zip(draft.regions, branch.regions, strict=True):
        written.blocks[0].append_to(region)
    draft.operation.erase()
    return jax.tree.unflatten(shape, [x.like(value) for x, value in zip(like, branch.results, strict=True)])


@contextmanager
def no_inline(writer: JaxFacade, enabled: bool = True) -> Generator[None]:
    """A scope in which the functions called are kept apart: XLA does not inline them."""
    before, writer.calls_not_inlined = writer.calls_not_inlined, enabled
    try:
        yield
    finally:
        writer.calls_not_inlined = before


def jit(writer: JaxFacade, function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that is emitted once for each combination of operand types, beside the program, and called."""
    made: dict[tuple[Any, ...], tuple[Any, HloArrays, Any]] = {}

    def emit_call(*operands: Any) -> Any:
        args, tree = flatten_tree(writer, operands)
        key = (tree, *[(x.dtype, x.shape) for x in args])
        if key not in made:
            made[key] = emit_function(writer, function, args, tree)
        symbol, like, shape = made[key]
        call = func.CallOp(mlir_types(like), symbol, [*writer.ctx.dim_var_values, *[x.value for x in args]])
        if writer.calls_not_inlined:
            call.operation.attributes["mhlo.frontend_attributes"] = ir.DictAttr.get(
                {"inlineable": ir.StringAttr.get("false")}
            )
        return jax.tree.unflatten(shape, [x.like(value) for x, value in zip(like, call.results, strict=True)])

    return emit_call


def emit_function(
    writer: JaxFacade, function: Callable[..., Any], args: HloArrays, tree: Any
) -> tuple[Any, HloArrays, Any]:
    """Emit a function; return its symbol, its results' types and their structure.

    A function reads nothing from around it: what JAX holds for every function (symbolic sizes, and the platform it runs
    for) comes first among its operands.
    """
    outside, context = writer.ctx, writer.ctx.module_context
    held = list(outside.dim_var_values)
    types = [*[x.type for x in held], *mlir_types(args)]
    draft = func.FuncOp(function.__name__, (types, []), ip=ir.InsertionPoint(context.module.body))
    block = draft.add_entry_block()
    with region_scope(writer, block), no_inline(writer, False):
        writer.ctx = outside.replace(dim_var_values=list(block.arguments)[: len(held)])
        operands = [x.like(v) for x, v in zip(args, list(block.arguments)[len(held) :], strict=True)]
        like, shape = flatten_tree(writer, function(*jax.tree.unflatten(tree, operands)))
        func.ReturnOp([x.value for x in like])
    writer.ctx = outside
    draft.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(types, mlir_types(like)))
    draft.attributes["sym_visibility"] = ir.StringAttr.get("private")
    return ir.FlatSymbolRefAttr.get(context.symbol_table.insert(draft).value), like, shape
