"""What a function gives, in Python: arrays, tuples, and records as their dataclasses.

A change of a record that was given as a dict is a dict too, so that it has the structure of what it changes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from difflang.api.record_classes import Records
from difflang.execution.type_layouts import described
from difflang.runtime import value_layouts
from difflang.runtime.value_layouts import Fields, Make
from difflang.types.language_types import ClosureType, LangType, RecordType, VariantType


def maker(
    type: LangType, records: Records, function: Callable[[ClosureType, tuple[Any, ...]], Any], like: Any = None
) -> Make:
    """A function from leaves, in order, to a value of that type, where it can be one of the kind of `like`."""

    def class_of(layout: Fields) -> Any:
        of: object = layout.of
        if isinstance(of, VariantType):
            return records.enums.of(of)
        assert isinstance(of, RecordType)
        return records.of(of)

    return value_layouts.maker(described(type, records.name), class_of, function, like)
