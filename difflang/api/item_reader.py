"""Reads arrays of texts, records and enums from Python: lists, and values whose arrays have the axes of the items."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from difflang.api.argument_leaves import LeafReader
from difflang.api.item_arrays import LeadingAxes, LeafSource, StackedLeaves, widened_sources
from difflang.runtime.pytrees import LeafSlot
from difflang.runtime.value_layouts import is_list
from difflang.syntax import tree
from difflang.types.dtype_variables import DTYPE_BOUNDS
from difflang.types.join_types import least_common_type
from difflang.types.language_types import LangType, add_axes, add_tags, show_type
from difflang.types.unify import Unifier


class ItemReader(LeafReader):
    """Reads arrays of items, each item as `read_declared` does."""

    def read_declared(self, value: Any, declared: tree.TypeExpr | None, path: str) -> LangType:
        """The type of a value with this declared type."""
        raise NotImplementedError

    def array_parts(self, value: Any, declared: tree.TypeExpr) -> tuple[tree.TypeExpr, int] | None:
        """The item type and the number of axes, if a value is declared as an array of texts, records or enums."""
        match declared:
            case tree.TypeArray(item=item, axes=axes):
                return item, len(axes)
            case tree.TypeApply(path=path, args=axes):
                name = ".".join(path)
                if name in self.generics:
                    whole = self.generics[name] not in DTYPE_BOUNDS and not isinstance(value, LeafSlot)
                else:
                    decl = self.module.records.get(name)
                    whole = name == "str" or (decl is not None and not decl.generics)
                return (tree.TypeName(declared.span, path), len(axes)) if whole else None
            case _:
                return None

    def read_items(self, value: Any, item: tree.TypeExpr, axes: int, path: str) -> LangType:
        """An array of items: a list of them, or a value whose arrays have the axes in front. Errors: DL12."""
        if isinstance(value, LeafSlot) and isinstance(value.value, str):
            raise self.refused(path, item.span.text, value, "write a list of texts")
        if is_list(value):
            return self.read_list(value, path, partial(self.read_part, item, axes - 1))
        return self.read_stacked(axes, path, lambda: self.read_declared(value, item, path))

    def read_part(self, item: tree.TypeExpr, axes: int, value: Any, path: str) -> LangType:
        """One part of a list: an item, or an array of items with fewer axes."""
        return self.read_items(value, item, axes, path) if axes else self.read_declared(value, item, path)

    def read_stacked(self, axes: int, path: str, read: Callable[[], LangType]) -> LangType:
        """An array of items whose leaves have the axes in front; `read` reads one of the items."""
        before, lead = len(self.leaf_order), LeadingAxes(axes)
        self.leading.append(lead)
        try:
            type = read()
        finally:
            self.leading.pop()
        if lead.shape is None:
            raise self.error("DL1206", f"`{path}` has no arrays, so the number of its items is unknown")
        whole = add_tags(type)
        self.leaf_order[before:] = widened_sources(type, whole, iter(self.leaf_order[before:]))
        return add_axes(whole, lead.shape)

    def read_list(self, value: Sequence[Any], path: str, read: Callable[[Any, str], LangType]) -> LangType:
        """A list of items, which a call stacks; `read` reads one of them."""
        if self.mapped or not value:
            message = f"`{path}` is a list of items, which is {'mapped' if self.mapped else 'empty'}"
            way = "pass one record whose arrays have the axis of the items in front; texts as `np.array(texts, str)`"
            raise self.error("DL1206", message, way)
        items: list[tuple[LangType, list[LeafSource]]] = []
        before, keys = len(self.leaf_order), len(self.key_positions)
        for i, part in enumerate(value):
            items.append((read(part, f"{path}[{i}]"), self.leaf_order[before:]))
            del self.leaf_order[before:]
            if len(self.key_positions) > keys:
                raise self.error("DL1206", f"`{path}[{i}]` contains a key, which an array cannot hold")
        whole = add_tags(items[0][0])
        for i, (type, _) in enumerate(items):
            both = least_common_type(Unifier(), whole, add_tags(type))
            if both is None:
                found = f"`{path}[{i}]` is {show_type(type)}, but `{path}[0]` is {show_type(items[0][0])}"
                raise self.error("DL1202", f"the items of an array must have one type: {found}")
            whole = both
        axis = sum(lead.count for lead in self.leading)
        rows = [widened_sources(type, whole, iter(sources)) for type, sources in items]
        self.leaf_order += [StackedLeaves(column, axis) for column in zip(*rows, strict=True)]
        return add_axes(whole, (len(value),))
