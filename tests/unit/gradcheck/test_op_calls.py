"""What counts as the same number when an op's rules are compared."""

from __future__ import annotations

import numpy as np
import pytest

from difflang.gradcheck.op_calls import LawBroken, OpCall, check_close
from difflang.graph.op_registry.op_laws import compiled
from difflang.ir.op import OPS

INF, NAN = np.inf, np.nan


@pytest.mark.parametrize(
    ("got", "want"),
    [(5.0, INF), (-INF, INF), (INF, 5.0), (NAN, INF), (5 + 0j, complex(INF, 0)), (complex(INF, 2), complex(INF, 1))],
)
def test_an_infinity_is_no_finite_number(got: complex, want: complex) -> None:
    with pytest.raises(LawBroken):
        check_close(np.array(got), np.array(want), np.zeros(()), 32, "a test")


@pytest.mark.parametrize("want", [1.0, INF, NAN, complex(INF, 1), 1 + 1e-20j])
def test_numbers_are_equal_but_for_rounding(want: complex) -> None:
    got = complex(np.real(want) * (1 + 1e-15), np.imag(want) * (1 + 1e-15)) if isinstance(want, complex) else want
    check_close(np.array(got), np.array(want), np.zeros(()), 32, "a test")


@pytest.mark.parametrize(
    ("name", "x"),
    [
        ("slogdet", np.array([[NAN, -0.1], [0.2, 2.0]])),
        ("slogdet", np.array([[NAN, -0.1], [0.2, 2.0 + 1j]])),
    ],
)
def test_the_interpreter_gives_special_values_as_xla_does(name: str, x: np.ndarray) -> None:
    call = OpCall(OPS[name], (x,), {})
    (found,) = compiled([call.graph()], [[x]])
    for got, want in zip(found, call.references(), strict=True):
        check_close(np.asarray(got), want, np.zeros(()), 4, name)
