"""Bindings over others that stay as they are."""

from __future__ import annotations

import pytest

from difflang.types.language_types import TupleType
from difflang.types.layered_bindings import LayeredBindings
from difflang.types.module_scope import HostVar, HostVars


def test_the_base_stays_as_it_is() -> None:
    base = {"n": 3, "m": 4}
    names = LayeredBindings(base)
    names["n"] = 5
    names |= {"k": 6}
    del names["m"]
    assert dict(names) == {"n": 5, "k": 6} and len(names) == 2 and base == {"n": 3, "m": 4}
    with pytest.raises(KeyError):
        del names["m"]
    names["m"] = 7
    del names["n"]
    assert dict(names) == {"k": 6, "m": 7} and "n" not in names and names.get("n") is None
    names.clear()
    assert not names


def test_sizes_are_the_whole_numbers_that_do_not_change() -> None:
    names = HostVars()
    for name, static, mutable in (("n", 3, False), ("v", 3, True), ("b", True, False), ("x", None, False)):
        names[name] = HostVar(name, TupleType(()), mutable, static)
    assert names.sizes == {"n": 3} == names.copy().sizes
    names["n"] = HostVar("n", TupleType(()))
    assert names.sizes == {}
    names.update({"k": HostVar("k", TupleType(()), static=4), "m": HostVar("m", TupleType(()), static=5)})
    names.pop("k")
    del names["m"]
    assert names.sizes == {}
