"""Structures of arrays as JAX sees them: taken apart, put together, told apart cheaply. Nothing is converted here."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import jax
import jax.core
import numpy as np

from difflang.base.diagnostics import Diagnostic, DifflangError
from difflang.ir.tensor_types import DType
from difflang.runtime.argument_conversion import DTYPE_BY_NUMPY, is_weak

Tracer = jax.core.Tracer
NUMBERS = frozenset((bool, int, float, complex))
ARRAYS = (np.ndarray, np.generic, jax.Array, jax.ShapeDtypeStruct)


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class LeafSlot:
    """A leaf of a structure, and its place among the leaves."""

    index: int
    value: Any


def flatten_jax_tree(tree: Any) -> tuple[list[Any], Any]:
    """As JAX's. Errors: DL1207 for a dict with keys that are not all of one kind, which JAX cannot put in order."""
    try:
        return jax.tree_util.tree_flatten(tree)
    except ValueError as error:
        if "dictionary keys" not in str(error):
            raise
        message = "the keys of a dict must have the same type"
        raise DifflangError(Diagnostic("DL1207", message, helps=("its keys must be the names of fields",))) from None


def flatten_tree(tree: Any) -> tuple[list[Any], Any]:
    """The leaves of a structure, and a hashable description of the rest."""
    leaves, structure = flatten_jax_tree(tree)
    if any(dataclasses.is_dataclass(x) and not isinstance(x, type) for x in leaves):
        return flatten_tree(jax.tree_util.tree_map(dataclass_to_fields, tree))
    return leaves, structure


class DataclassFields(dict[str, Any]):
    """The fields of a dataclass that JAX does not know: a structure, and no dict that somebody gave."""


def dataclass_to_fields(leaf: Any) -> Any:
    """A dataclass that JAX does not know, as its fields."""
    if not dataclasses.is_dataclass(leaf) or isinstance(leaf, type):
        return leaf
    fields = {f.name: getattr(leaf, f.name) for f in dataclasses.fields(leaf)}
    return DataclassFields({name: jax.tree_util.tree_map(dataclass_to_fields, value) for name, value in fields.items()})


def tree_of_slots(leaves: Sequence[Any], structure: Any) -> Any:
    """The structure again, each leaf in a `LeafSlot`."""
    return jax.tree_util.tree_unflatten(structure, [LeafSlot(i, x) for i, x in enumerate(leaves)])


def leaf_key(leaf: Any) -> Hashable:
    """What a specialization may depend on: class, shape and element type; the value of a string."""
    kind = leaf.__class__
    if kind in NUMBERS:
        return kind
    if isinstance(leaf, str):
        return str(leaf)
    if isinstance(leaf, jax.Array):
        kind = jax.Array  # a value inside a transformation finds what one outside has made
    try:
        return kind, leaf.shape, leaf.dtype, is_weak(leaf)
    except AttributeError:
        return kind


def fast_tree_key(leaves: Sequence[Any], structure: Any) -> Hashable:
    """A key for leaves and their structure, found fast; none where a closer look is needed."""
    if np.str_ in map(type, leaves):  # it has a shape and an element type, and its value counts
        return None
    try:
        kinds = [x.__class__ if x.__class__ in NUMBERS else (x.__class__, x.shape, x.dtype) for x in leaves]
    except AttributeError:
        return None
    return structure, tuple(kinds)


def has_tracers(leaves: Sequence[Any]) -> bool:
    """Whether any of these is a value inside a JAX transformation."""
    return any(isinstance(x, Tracer) for x in leaves)


def all_outside_jax(leaves: Sequence[Any]) -> bool:
    """Whether none of these is in JAX."""
    return not any(isinstance(x, jax.Array) for x in leaves)


def has_multi_device(leaves: Sequence[Any]) -> bool:
    """Whether any of these lies on several devices."""
    return any(isinstance(x, jax.Array) and len(x.sharding.device_set) > 1 for x in leaves)


def is_tracing() -> bool:
    """Whether a JAX transformation is going on that every new value belongs to."""
    return isinstance(jax.numpy.zeros((), np.float32), Tracer)


def array_type(value: Any) -> tuple[DType | None, tuple[int, ...]] | None:
    """The element type, None if the language has no such, and the shape of an array; None for anything else."""
    if isinstance(value, ARRAYS):
        return DTYPE_BY_NUMPY.get(np.dtype(value.dtype)) if is_numpy_dtype(value.dtype) else None, tuple(value.shape)
    if hasattr(value, "__array__") and not isinstance(value, type):
        array = np.asarray(value)
        return DTYPE_BY_NUMPY.get(array.dtype), array.shape
    return None


def shape_struct_like(shape: tuple[int, ...], of: Any) -> Any:
    """What stands for an array of another shape with the element type of `of`."""
    dtype = of.dtype if isinstance(of, ARRAYS) else np.asarray(of).dtype
    return jax.ShapeDtypeStruct(shape, dtype, weak_type=is_weak(of))


def shape_struct(shape: Sequence[int], dtype: Any) -> Any:
    """What stands for an array of which no more is known."""
    return jax.ShapeDtypeStruct(tuple(shape), dtype)


def map_slots(tree: Any, name: str, change: Callable[[LeafSlot, str], LeafSlot]) -> Any:
    """The structure of that `name` with each of its slots changed, by what is there and how it is called: `m.w`."""

    def change_slot(path: Sequence[Any], slot: LeafSlot) -> LeafSlot:
        return change(slot, name + "".join([path_step(key) for key in path]))

    return jax.tree_util.tree_map_with_path(change_slot, tree)


def path_step(key: Any) -> str:
    """One step on the way to a leaf, `.w` or `[0]`."""
    text = jax.tree_util.keystr((key,), simple=True)
    by_place = isinstance(key, (jax.tree_util.SequenceKey, jax.tree_util.FlattenedIndexKey))
    return f"[{text}]" if by_place else f".{text}"


def is_numpy_dtype(dtype: Any) -> bool:
    """Not one of JAX's own, such as that of random keys."""
    return isinstance(dtype, np.dtype)


def key_data(value: Any) -> Any:
    """The two words of one of JAX's typed random keys; anything else as it is."""
    if (
        isinstance(value, jax.Array)
        and not is_numpy_dtype(value.dtype)
        and jax.numpy.issubdtype(value.dtype, jax.dtypes.prng_key)
    ):
        return jax.random.key_data(value)
    return value


def register_record(cls: type, data: Sequence[str], static: Sequence[str]) -> None:
    """A dataclass as a structure whose leaves are its data fields."""
    jax.tree_util.register_dataclass(cls, list(data), list(static))


def register_node(cls: type, take: Callable[[Any], tuple[Any, Hashable]], make: Callable[[Any, Any], Any]) -> None:
    jax.tree_util.register_pytree_node(cls, take, make)


register_node(
    DataclassFields,
    lambda f: (tuple(f.values()), tuple(f)),
    lambda names, xs: DataclassFields(zip(names, xs, strict=True)),
)


def to_host(tree: Any) -> Any:
    """The same structure, its JAX arrays as NumPy ones."""
    return jax.tree_util.tree_map(lambda x: np.asarray(x) if isinstance(x, jax.Array) else x, tree)


def to_device(array: Any) -> Any:
    """A JAX array, its element type kept, also inside a JAX transformation."""
    with jax.ensure_compile_time_eval(), jax.enable_x64(True):
        return jax.numpy.asarray(array)
