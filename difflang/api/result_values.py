"""Builds Python results from leaves: arrays, tuples, and records as their dataclasses.

The gradient in a record that was passed as a dict is a dict too, so that it has the structure of the argument.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from difflang.api.record_classes import RecordClasses
from difflang.execution.type_layouts import layout_of_type
from difflang.runtime import value_layouts
from difflang.runtime.value_layouts import RecordLayout, ValueBuilder
from difflang.types.language_types import ClosureType, LangType, RecordType, VariantType


def result_maker(
    type: LangType,
    records: RecordClasses,
    make_function: Callable[[ClosureType, tuple[Any, ...]], Any],
    like: Any = None,
) -> ValueBuilder:
    """A function from leaves, in order, to a value of that type, in the form of `like` where possible."""

    def class_of(layout: RecordLayout) -> Any:
        of: object = layout.source_type
        if isinstance(of, VariantType):
            return records.enums.class_for_type(of)
        assert isinstance(of, RecordType)
        return records.class_for_type(of)

    return value_layouts.value_builder(layout_of_type(type, records.name), class_of, make_function, like)
