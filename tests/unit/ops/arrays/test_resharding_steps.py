"""The exchanges that bring an array from one split to another."""

from __future__ import annotations

from itertools import permutations, product

import pytest

from difflang.ops.arrays.reshard import Split
from difflang.ops.arrays.resplit import resharding_steps

SIZES = {"a": 2, "b": 2, "c": 3}
ONE = [p for count in range(4) for p in permutations(SIZES, count)]
SPLITS: list[Split] = sorted({(along[:k], along[k:]) for along in ONE for k in range(len(along) + 1)})


@pytest.mark.parametrize(
    ("given", "wanted", "kinds"),
    [
        ((("a",), ()), (("a",), ()), []),
        (((), ()), (("a",), ("b",)), ["cut", "cut"]),
        ((("a", "b"), ()), ((), ()), ["all-gather"]),
        ((("a",), ()), ((), ("a",)), ["all-to-all"]),
        ((("a", "b"), ()), ((), ("a", "b")), ["all-to-all"]),
        ((("a",), ()), (("b",), ()), ["collective-permute"]),
        ((("a", "b"), ()), (("b", "a"), ()), ["collective-permute"]),
        ((("a",), ()), (("b",), ("a",)), ["all-to-all", "cut"]),
    ],
)
def test_what_is_sent(given: Split, wanted: Split, kinds: list[str]) -> None:
    assert [step.kind for step in resharding_steps(given, wanted, SIZES)] == kinds


def test_every_split_leads_to_every_other() -> None:
    for given, wanted in product(SPLITS, SPLITS):
        steps = resharding_steps(given, wanted, SIZES)
        assert [*[s.before for s in steps], wanted] == [given, *[s.after for s in steps]]
        for step in steps:
            names = [name for along in step.after for name in along]
            assert len(names) == len(set(names))


def test_an_axis_of_one_device_changes_nothing() -> None:
    assert resharding_steps((("a", "b"),), (("b",),), {"a": 1, "b": 2}) == []
