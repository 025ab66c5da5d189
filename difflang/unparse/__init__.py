"""From a graph to source of the language. Importing this package registers the rules of the ops."""

from difflang.unparse import (
    array_ops,
    branches_and_maps,
    contractions,
    convolutions,
    elementwise,
    indexing,
    linear_algebra,
    loops,
    opaque_calls,
    random_draws,
)

__all__ = [
    "array_ops",
    "branches_and_maps",
    "contractions",
    "convolutions",
    "elementwise",
    "indexing",
    "linear_algebra",
    "loops",
    "opaque_calls",
    "random_draws",
]
