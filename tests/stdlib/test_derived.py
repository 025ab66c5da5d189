"""Every function of the library and of the examples, its derivative written down: checked again, and equal to itself.

`DIFFLANG_SWEEP=1` takes those that need more than two seconds as well.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from support.derived import checked_file, outcome

ROOT = Path(__file__).parents[2]
FILES = sorted([*(ROOT / "stdlib").glob("*.dfl"), *(ROOT / "examples").rglob("*.dfl")])
LONG = {
    "bayes": "chain", "bundle": "loss views", "char_transformer": "apply logits loss",
    "hypergeometric": """gauss gauss_in_a gauss_in_a_c gauss_in_c gauss_rest gauss_series gauss_sums hyp1f1 hyp2f1
        kummer kummer_far kummer_in_a kummer_in_b kummer_series kummer_sums""",
    "math": "betainc", "minimize": "lbfgs lbfgs_from newton_cg newton_from",
    "ode": "dopri5 dopri5_adjoint dopri5_until drawn rosenbrock23", "pendulum": "fit loss",
    "physics": "swing", "quad": "gauss_kronrod_tail",
    "stats": "beta_part cdf density gamma_drawn ks_distance log_density log_gamma_drawn",
}  # fmt: skip
NOT_WRITTEN = {
    "adaptive": "takes a function of records",
    "along": "a record's own sizes are asked for",
    "asked": "takes a function that nobody says which it is",
    "asked_adaptively": "takes a function that nobody says which it is",
    "unmoved": "has no derivative, and says so by NaN",
    "unpacked": "its sizes fit together in one way only",
    "draw": "draws, and takes an enum",
    "drawn": "draws, and takes an enum",
    "levenberg_marquardt": "there are as many residuals as parameters at least",
    "pendulum": "gives a function",
    "quasi_newton": "takes a function to more than one number",
    "resample": "sizes that are drawn do not fit",
}
NOT_DRAWN = {
    "coo_of": "places in a matrix", "csr_dense": "rows in order", "csr_matmul": "rows in order",
    "csr_solve": "rows in order", "csr_times": "rows in order", "counted": "a function that is asked within a domain",
    "dopri5_at": "times in order", "infinite": "its derivative is NaN", "jumping": "its derivative is NaN",
    "linear_interp": "rising places", "mixing": "a map of a factorization", "nearest": "rising places",
    "passed": "moments that are not negative",
}  # fmt: skip
NO_DERIVATIVE = ("DL0401", "DL0402")  # of integers, truth values and what is made of them


@pytest.mark.slow
@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
@pytest.mark.nightly_cases(
    "math|ode|linalg|minimize|stats|special|interp|orbit|geometry|roots|quad|sequence|digits_conv"
)
@pytest.mark.nightly_except(
    "matrices|image|fit_curve|particles|kalman|spatial|losses|adaptive|prelude|molecules|digits|data|logistic|bundle|physics|letters|pendulum"
)
def test_it_is_written_down(path: Path) -> None:
    checked = checked_file(path)
    wrong: list[str] = []
    for name, decl in checked.module.fns.items():
        if (
            decl.host
            or name in NOT_DRAWN
            or (name in LONG.get(path.stem, "").split() and not os.environ.get("DIFFLANG_SWEEP"))
        ):
            continue
        what, text = outcome(checked, decl)
        if what == "refused" and (text.startswith(NO_DERIVATIVE) or name in NOT_WRITTEN):
            continue
        if not what.startswith("right") or name in NOT_WRITTEN:
            wrong.append(f"{name}: {what} {text[:300]}")
    assert not wrong, "\n".join(wrong)
