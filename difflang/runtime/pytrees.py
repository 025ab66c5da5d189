"""JAX pytrees of arguments and results: flattening, unflattening and cheap cache keys. No leaf is converted here."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import jax
import jax.core
import numpy as np
from jax.experimental.multihost_utils import process_allgather

from difflang.base.diagnostics import Diagnostic, DifflangError
from difflang.ir.tensor_types import DType
from difflang.runtime.argument_conversion import DTYPE_BY_NUMPY, is_weak

Tracer = jax.core.Tracer
NUMBERS = frozenset((bool, int, float, complex))
ARRAYS = (np.ndarray, np.generic, jax.Array, jax.ShapeDtypeStruct)


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class LeafSlot:
    """A leaf of a structure, and its index among the leaves."""

    index: int
    value: Any


def flatten_jax_tree(tree: Any) -> tuple[list[Any], Any]:
    """JAX's `tree_flatten`. Errors: DL1207 for a dict with keys of several kinds, which JAX cannot sort."""
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
    # JAX takes an unregistered dataclass for a leaf: flatten it by its fields, as the language's structs are.
    if any(dataclasses.is_dataclass(x) and not isinstance(x, type) for x in leaves):
        return flatten_tree(jax.tree_util.tree_map(dataclass_to_fields, tree))
    return leaves, structure


class DataclassFields(dict[str, Any]):
    """The fields of a dataclass that JAX does not know: a structure, distinct from a user's dict."""


def dataclass_to_fields(leaf: Any) -> Any:
    """A dataclass that JAX does not know, as its fields."""
    if not dataclasses.is_dataclass(leaf) or isinstance(leaf, type):
        return leaf
    fields = {f.name: getattr(leaf, f.name) for f in dataclasses.fields(leaf)}
    return DataclassFields({name: jax.tree_util.tree_map(dataclass_to_fields, value) for name, value in fields.items()})


def tree_of_slots(leaves: Sequence[Any], structure: Any) -> Any:
    """The structure with each leaf in a `LeafSlot`."""
    return jax.tree_util.tree_unflatten(structure, [LeafSlot(i, x) for i, x in enumerate(leaves)])


def leaf_key(leaf: Any) -> Hashable:
    """The facts that a specialization may depend on: class, shape and element type; the value of a string."""
    kind = leaf.__class__
    if kind in NUMBERS:
        return kind
    if isinstance(leaf, str):
        return str(leaf)
    if isinstance(leaf, jax.Array):
        kind = jax.Array  # tracers share specializations with concrete arrays
    try:
        return kind, leaf.shape, leaf.dtype, is_weak(leaf)
    except AttributeError:
        return kind


def fast_tree_key(leaves: Sequence[Any], structure: Any) -> Hashable:
    """A key for leaves and their structure, computed fast; None where `leaf_key` is needed."""
    if np.str_ in map(type, leaves):  # it has a shape and an element type, but its value counts
        return None
    try:
        kinds = [x.__class__ if x.__class__ in NUMBERS else (x.__class__, x.shape, x.dtype) for x in leaves]
    except AttributeError:
        return None
    return structure, tuple(kinds)


def has_tracers(leaves: Sequence[Any]) -> bool:
    """Whether any of these is a value inside a JAX transformation."""
    return any(isinstance(x, Tracer) for x in leaves)


def is_tracing() -> bool:
    """Whether a JAX transformation is active that traces every new value."""
    return isinstance(jax.numpy.zeros((), np.float32), Tracer)


def array_type(value: Any) -> tuple[DType | None, tuple[int, ...]] | None:
    """The element type (None if the language lacks it) and the shape of an array; None for anything else."""
    if isinstance(value, ARRAYS):
        return DTYPE_BY_NUMPY.get(np.dtype(value.dtype)) if is_numpy_dtype(value.dtype) else None, tuple(value.shape)
    if hasattr(value, "__array__") and not isinstance(value, type):
        array = np.asarray(value)
        return DTYPE_BY_NUMPY.get(array.dtype), array.shape
    return None


def from_dlpack(tensor: Any) -> Any:
    """The array of JAX with the numbers of a tensor of another library, on its device and without a copy."""
    with jax.enable_x64(True):
        return jax.dlpack.from_dlpack(tensor)


def shape_struct_like(shape: tuple[int, ...], of: Any) -> Any:
    """A placeholder for an array of another shape with the element type of `of`."""
    dtype = of.dtype if isinstance(of, ARRAYS) else np.asarray(of).dtype
    return jax.ShapeDtypeStruct(shape, dtype, weak_type=is_weak(of))


def shape_struct(shape: Sequence[int], dtype: Any) -> Any:
    """A placeholder for an array of this shape and element type."""
    return jax.ShapeDtypeStruct(tuple(shape), dtype)


def map_slots(tree: Any, name: str, change: Callable[[LeafSlot, str], LeafSlot]) -> Any:
    """The structure called `name` with each slot changed; `change` takes the slot and its path, as `m.w`."""

    def change_slot(path: Sequence[Any], slot: LeafSlot) -> LeafSlot:
        return change(slot, name + "".join([path_step(key) for key in path]))

    return jax.tree_util.tree_map_with_path(change_slot, tree)


def path_step(key: Any) -> str:
    """One step of the path to a leaf, `.w` or `[0]`."""
    text = jax.tree_util.keystr((key,), simple=True)
    by_place = isinstance(key, (jax.tree_util.SequenceKey, jax.tree_util.FlattenedIndexKey))
    return f"[{text}]" if by_place else f".{text}"


def is_numpy_dtype(dtype: Any) -> bool:
    """Whether it is a dtype of NumPy, not one of JAX's own, such as that of random keys."""
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
    """Register a dataclass as a pytree whose leaves are its data fields."""
    jax.tree_util.register_dataclass(cls, list(data), list(static))


def register_node(cls: type, take: Callable[[Any], tuple[Any, Hashable]], make: Callable[[Any, Any], Any]) -> None:
    jax.tree_util.register_pytree_node(cls, take, make)


register_node(
    DataclassFields,
    lambda f: (tuple(f.values()), tuple(f)),
    lambda names, xs: DataclassFields(zip(names, xs, strict=True)),
)


def to_host(tree: Any) -> Any:
    """The same structure with NumPy arrays in place of JAX arrays. Every process that holds a part must call this."""
    return jax.tree_util.tree_map(lambda x: host_array(x) if isinstance(x, jax.Array) else x, tree)


def host_array(x: Any) -> np.ndarray:
    """An array in NumPy; one that is split over processes is gathered, and each of them must call this."""
    if isinstance(x, jax.Array) and not (x.is_fully_addressable or x.is_fully_replicated):
        return np.asarray(process_allgather(x, tiled=True))
    return np.asarray(x)


def place_like(tree: Any, like: Any) -> Any:
    """A structure of NumPy arrays, each put where the JAX array is that stands in its place in `like`."""

    def place(x: Any, like: Any) -> Any:
        if not (isinstance(like, jax.Array) and like.committed and isinstance(x, np.ndarray)):
            return x
        with jax.enable_x64(True):
            return jax.make_array_from_callback(x.shape, like.sharding, lambda index: x[index])

    return jax.tree_util.tree_map(place, tree, like)


def map_tree(change: Callable[[Any], Any], tree: Any) -> Any:
    """The structure with each leaf changed."""
    return jax.tree_util.tree_map(change, tree)


def unflatten_tree(structure: Any, leaves: Sequence[Any]) -> Any:
    """The structure with these leaves."""
    return jax.tree_util.tree_unflatten(structure, leaves)


def index_array(array: Any, index: Any) -> Any:
    """A part of an array, whose element type it keeps: without x64, JAX would narrow that of an f64 array."""
    if not isinstance(array, jax.Array):
        return array[index]
    with jax.enable_x64(True):
        return array[index]


def stack_arrays(arrays: Sequence[Any], axis: int, dtype: np.dtype[Any] | None = None) -> Any:
    """Arrays stacked along a new axis, in NumPy if none is a JAX array; numbers and weak values get the `dtype`."""
    if not any(isinstance(x, jax.Array) for x in arrays):
        return np.stack([np.asarray(x, dtype) if type(x) in NUMBERS else np.asarray(x) for x in arrays], axis)
    with jax.enable_x64(True):
        parts = [jax.numpy.asarray(x, dtype) if type(x) in NUMBERS or is_weak(x) else x for x in arrays]
        return jax.numpy.stack(parts, axis)


def to_device(array: Any) -> Any:
    """A JAX array of the same element type, also inside a JAX transformation."""
    with jax.ensure_compile_time_eval(), jax.enable_x64(True):
        return jax.numpy.asarray(array)
