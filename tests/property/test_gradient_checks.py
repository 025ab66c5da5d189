"""A gradient check raises no false alarm: it confirms every derivative of random programs, in f64 and in f32."""

from __future__ import annotations

import pytest

from difflang.base.source import Source
from difflang.driver.checked_program import check_program
from difflang.tools.check_grad import CheckGradOptions, check_grad
from support.random_programs import HEADER, random_program


@pytest.mark.parametrize("dtype", ["f64", "f32"])
@pytest.mark.parametrize("seed", range(100, 106))
@pytest.mark.nightly_except("10[012]-.*")
def test_random_programs_are_found_right(seed: int, dtype: str) -> None:
    checked = check_program(Source("program.dfl", (HEADER + random_program(seed)).replace("f64", dtype)))
    assert not checked.errors
    options = CheckGradOptions(directions=1, seed=seed, compiled=False)
    report = check_grad(checked, None, checked.module.fns["f"], options)
    assert report.right, str(report)
