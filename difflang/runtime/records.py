"""The names by which records were pickled by difflang 0.1.0; pickles of it load through this module."""

from difflang.runtime.record_classes import RecordShape as Shape
from difflang.runtime.record_classes import VariantShape as Variant
from difflang.runtime.record_classes import unpickle_record as restored

__all__ = ["Shape", "Variant", "restored"]
