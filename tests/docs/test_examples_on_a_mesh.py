"""Examples print on a mesh of four devices what they print on one."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from docs.test_examples import EXAMPLES, SHORT
from support.devices import python_on_devices

RUNNER = Path(__file__).with_name("examples_on_four_devices.py")
MESHES = {"transformer_parallel": "data=2,model=2"}
# Sums are added in another order: this may change the last digits that are printed.
TOLERANCE = 2e-3
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")


@pytest.mark.slow
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
@pytest.mark.nightly_except("digits_parallel")
def test_an_example_prints_the_same(path: Path) -> None:
    done = python_on_devices(str(RUNNER), str(path), MESHES.get(path.stem, "data=4"), *SHORT.get(path.stem, ()))
    assert done.stdout, done.stderr
    one, many = json.loads(done.stdout.splitlines()[-1])
    assert words_of(many) == words_of(one), many
    assert numbers_of(many) == pytest.approx(numbers_of(one), rel=TOLERANCE, abs=TOLERANCE, nan_ok=True)


def words_of(lines: list[str]) -> list[str]:
    return [words.strip() for words in NUMBER.split("\n".join(lines))]


def numbers_of(lines: list[str]) -> list[float]:
    return [float(number) for number in NUMBER.findall("\n".join(lines))]
