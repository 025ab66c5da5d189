"""Random arguments for a function from its declaration: sizes, element types and numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from difflang.base.diagnostics import DifflangError
from difflang.driver.elaborate_call import CallArgument
from difflang.driver.type_specs import declared_arguments
from difflang.elaborate.calls.signatures import is_dim
from difflang.ir.tensor_types import F32, Tensor, numpy_dtype
from difflang.syntax import tree
from difflang.syntax.tree_queries import all_nodes
from difflang.types.annotations import AnnotationResolver, size_names
from difflang.types.language_types import (
    KeyType,
    LangType,
    RecordType,
    SumType,
    TextType,
    TupleType,
    VariantType,
    leaf_types,
    show_type,
)
from difflang.types.module_scope import ModuleScope
from difflang.types.type_errors import make_error
from difflang.types.type_resolver import TypeBinding
from difflang.types.unify import Unifier

Range = tuple[float, float] | None  # uniform; None is a normal distribution
# Domains of common functions: positive, above one, inside the unit interval.
RANGES: tuple[Range, ...] = (None, (0.1, 0.9), (1.1, 2.0), (-0.9, 0.9))
INTEGERS = ((0, 3), (1, 4), (0, 2), (0, 1))  # half-open ranges
ATTEMPTS = 24
# Sizes of arrays, cycled through: distinct first, then all equal for functions that need square arrays, and others that
# `where` clauses may ask for.
SIZES = ((3, 4, 5, 6, 7, 8), (4,), (8,), (16,), (12,), (8, 4), (4, 8), (1,), (2,), (60,))
# For `dim` parameters: small, since they often select a part of an array.
DIMS = (2, 3)


class SamplingRanges(Struct, frozen=True):
    """The ranges of one sampling attempt: a float comes from one of `ranges`, an integer from `integers`."""

    ranges: tuple[Range, ...]
    integers: tuple[int, int]


def sampling_attempts(rng: np.random.Generator) -> Iterator[SamplingRanges]:
    """First the same range for all floats, then one per parameter."""
    for k in range(ATTEMPTS):
        # Most functions have one domain for all their arguments.
        if k < len(RANGES):
            yield SamplingRanges((RANGES[k],), INTEGERS[k])
        else:
            yield SamplingRanges(RANGES, INTEGERS[int(rng.integers(len(INTEGERS)))])


def argument_choices(
    module: ModuleScope, decl: tree.Fn, specs: Mapping[str, str]
) -> Iterator[tuple[CallArgument, ...]]:
    """The arguments by their declaration, for one choice of sizes after another.

    Errors: DL1210 if a type cannot be chosen; DL1207 for an unknown name.
    """
    refuse_functions_and_texts(decl)
    specs = {**{p.name: "f32" for p in decl.params if p.type is None and p.default is None}, **specs}
    open_names = open_sizes(module, decl, specs)
    dims = [p.name for p in decl.params if is_dim(p.type) and p.name in open_names]
    open_names = [n for n in open_names if n not in dims]
    for sizes in SIZES if open_names else SIZES[:1]:
        chosen: dict[str, TypeBinding] = {n: sizes[i % len(sizes)] for i, n in enumerate(open_names)}
        chosen |= {n: DIMS[i % len(DIMS)] for i, n in enumerate(dims)}
        yield declared_arguments(module, decl, specs, {**default_bindings(decl, specs, sizes), **chosen})


def refuse_functions_and_texts(decl: tree.Fn) -> None:
    """Errors: DL1210 for a parameter whose type cannot be sampled."""
    for param in decl.params:
        text = isinstance(param.type, tree.TypeName) and param.type.path == ("str",)
        if param.default is None and (text or isinstance(param.type, tree.TypeFn)):
            kind = "a text" if text else "a function"
            raise make_error(
                "DL1210", f"`{param.name}` is {kind}, for which no random values can be drawn", (param.span, ""),
                help=f"check a function that calls `{decl.name}` with one",
            )  # fmt: skip


def open_sizes(module: ModuleScope, decl: tree.Fn, specs: Mapping[str, str]) -> list[str]:
    """The sizes of a function without a given value."""
    annotations = AnnotationResolver(Unifier(), module.records.get, {}, {g.name: g.bound for g in decl.generics})
    found: dict[str, None] = {}
    known = set(specs)
    for param in decl.params:
        if is_dim(param.type):
            found[param.name] = None
        elif param.type is not None:
            names = size_names(param.type, annotations)
            known.update(names if param.name in specs else ())
            found.update(dict.fromkeys(names))
    return [n for n in found if n not in known]


def default_bindings(decl: tree.Fn, specs: Mapping[str, str], sizes: Sequence[int]) -> dict[str, TypeBinding]:
    """Bindings for generic element types and shapes of any rank that the given types do not determine."""
    found: dict[str, TypeBinding] = {g.name: F32 for g in decl.generics}
    for param in decl.params:
        for node in all_nodes(param.type) if param.type is not None else ():
            if isinstance(node, tree.AnyShape):
                found[node.name] = (sizes[0], sizes[1 % len(sizes)])
    known = {n for p in decl.params if p.name in specs and p.type is not None for n in annotation_names(p.type)}
    return {name: binding for name, binding in found.items() if name not in known}


def annotation_names(written: tree.TypeExpr) -> Iterator[str]:
    """The names in a written type."""
    for node in all_nodes(written):
        match node:
            case tree.TypeName(path=(name,)) | tree.TypeApply(path=(name,)) | tree.AnyShape(name=name):
                yield name
            case _:
                pass


def sample_arguments(rng: np.random.Generator, arguments: Sequence[CallArgument], drawing: SamplingRanges) -> list[Any]:
    """Random leaves of the arguments."""
    return [leaf for a in arguments if a.size is None for leaf in sample_leaves(rng, a.type, drawing)]


def sample_leaves(rng: np.random.Generator, type: LangType, drawing: SamplingRanges) -> list[Any]:
    match type:
        case KeyType():
            return [sample_key(rng)]
        case TupleType(items=items) | RecordType(fields=items) | VariantType(fields=items):
            return [leaf for t in items for leaf in sample_leaves(rng, t, drawing)]
        case TextType(number=Tensor(shape=shape)):
            return [np.zeros([n for n in shape if isinstance(n, int)], np.int32)]
        case SumType():
            return sample_sum(rng, type, drawing)
        case _:
            return [sample_array(rng, t, drawing) for t in leaf_types(type)]


def sample_sum(rng: np.random.Generator, type: SumType, drawing: SamplingRanges) -> list[Any]:
    """A random tag and the leaves of all options; those of options not selected are zero, as in any value."""
    tag = np.asarray(rng.choice(type.tag_values, tuple(n for n in type.tag.shape if isinstance(n, int))), np.int32)
    leaves: list[Any] = []
    for value, option in zip(type.tag_values, type.options, strict=True):
        for leaf in sample_leaves(rng, option, drawing):
            chosen = np.reshape(tag == value, (*tag.shape, *[1] * (leaf.ndim - tag.ndim)))
            leaves.append(np.where(chosen, leaf, np.zeros_like(leaf)))
    return [tag, *leaves]


def sample_key(rng: np.random.Generator) -> Any:
    return rng.integers(0, 2**32, 2, np.uint32)


def sample_array(rng: np.random.Generator, type: Tensor, drawing: SamplingRanges) -> Any:
    """A random array: fair booleans, small integers, floats of magnitude about one."""
    shape = tuple(n for n in type.shape if isinstance(n, int))
    if type.dtype.kind == "bool":
        return np.asarray(rng.random(shape) < 0.5)
    if type.dtype.is_integer:
        return np.asarray(rng.integers(*drawing.integers, shape)).astype(numpy_dtype(type.dtype))
    within = drawing.ranges[int(rng.integers(len(drawing.ranges)))]
    found = sample_floats(rng, shape, within)
    if type.dtype.kind == "complex":
        found = found + 1j * sample_floats(rng, shape, within)
    return np.asarray(found).astype(numpy_dtype(type.dtype))


def sample_floats(rng: np.random.Generator, shape: tuple[int, ...], within: Range) -> Any:
    return rng.normal(size=shape) if within is None else rng.uniform(*within, shape)


def arguments_text(arguments: Sequence[CallArgument]) -> str:
    """`x: f32[3], n = 4`."""
    return ", ".join(
        f"{a.name} = {a.size}" if a.size is not None else f"{a.name}: {show_type(a.type)}" for a in arguments
    )


def undrawable_error(decl: tree.Fn, error: DifflangError) -> DifflangError:
    return make_error(
        "DL1210", f"no random arguments of `{decl.name}` could be found: {error.diagnostics[0].message}",
        (decl.name_span, ""), help="check it from Python, `f.check_grad(…)`, at arguments of your choice",
    )  # fmt: skip
