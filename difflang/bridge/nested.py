"""Records as nested dicts of arrays by field name, and leaf paths: for flax, optax and files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
from jax.tree_util import DictKey, FlattenedIndexKey, GetAttrKey, SequenceKey
from msgspec import Struct

from difflang.base.error_codes import suggestion
from difflang.base.errors import classify_errors
from difflang.host.data.array_files import UNNAMED
from difflang.types.type_errors import make_error

Path = tuple[str, ...]


class TreeShape(Struct, frozen=True):
    """The shape of a pytree: the path of each leaf, JAX's tree structure, and the texts in it."""

    paths: tuple[Path, ...]
    structure: Any
    texts: tuple[tuple[Path, str], ...]

    def rebuild(self, nested: Any, read: Callable[[Any], Any] = lambda leaf: leaf) -> Any:
        """The structure, with its leaves read from nested dicts."""
        texts = dict(self.texts)
        leaves = [texts[p] if p in texts else read(lookup_path(nested, p)) for p in self.paths]
        return jax.tree_util.tree_unflatten(self.structure, leaves)


def tree_shape(tree: Any) -> TreeShape:
    """The shape of a record, or of any pytree."""
    leaves, structure = jax.tree_util.tree_flatten_with_path(tree)
    named = [(tuple(map(path_key_name, path)), leaf) for path, leaf in leaves]
    texts = [(path, leaf) for path, leaf in named if isinstance(leaf, str)]
    return TreeShape(tuple([path for path, _ in named]), structure, tuple(texts))


def to_nested_dict(tree: Any, make: Callable[[Any], Any] = lambda leaf: leaf) -> dict[str, Any]:
    """A structure as nested dicts by field name; sequence items are named by index."""
    root: dict[str, Any] = {}
    for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
        *outer, last = map(path_key_name, path) if path else (UNNAMED,)
        here = root
        for name in outer:
            here = here.setdefault(name, {})
        here[last] = make(leaf)
    return root


def lookup_path(nested: Any, path: Path) -> Any:
    """The entry at a path of nested dicts."""
    for name in path or (UNNAMED,):
        nested = nested[name]
    return nested


def named_leaves(tree: Any) -> Iterator[tuple[str, Any]]:
    """The leaves with their paths as texts: `layer1.w`. A lone leaf is called `value`."""
    for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
        yield ".".join(map(path_key_name, path)) or UNNAMED, leaf


def path_key_name(key: Any) -> str:
    """The name of one step of a JAX path."""
    match key:
        case GetAttrKey(name=name):
            return name
        case DictKey(key=name) | FlattenedIndexKey(key=name):
            return str(name)
        case SequenceKey(idx=number):
            return str(number)
        case _:
            return str(key)


def masked(tree: Any, *patterns: str) -> Any:
    """A boolean for each leaf: whether its path begins with one of the patterns, as `"layer1"` or `"layer1.w"`, or ends
    with it, as `"*.b"`. This is the mask that optax takes.

    Errors: ArgumentError for a pattern that matches no leaf.
    """
    with classify_errors():
        return path_mask(tree, patterns)


def path_mask(tree: Any, patterns: tuple[str, ...]) -> Any:
    paths = [name for name, _ in named_leaves(tree)]
    for pattern in patterns:
        # A pattern without a match is a typing error, which would silently train nothing.
        if not any(matches_pattern(path, pattern) for path in paths):
            way = suggestion(pattern, paths, f"there are {', '.join(paths) or 'none'}")
            raise make_error("DL1207", f"no parameter matches `{pattern}`", help=way)
    truths = [any(matches_pattern(path, pattern) for pattern in patterns) for path in paths]
    return jax.tree_util.tree_unflatten(jax.tree_util.tree_structure(tree), truths)


def matches_pattern(path: str, pattern: str) -> bool:
    if pattern.startswith("*."):
        return f".{path}".endswith(pattern[1:])
    return path == pattern or path.startswith(f"{pattern}.")


def is_differentiable(x: Any) -> bool:
    return isinstance(x, float) or (hasattr(x, "dtype") and bool(jax.numpy.issubdtype(x.dtype, np.inexact)))
