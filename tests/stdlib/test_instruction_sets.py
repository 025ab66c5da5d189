"""The library's numbers do not depend on the CPU: its tests and digits hold under older instruction sets too.

Vector widths decide in which order a sum is added and whether products and sums are fused. That may change the last
digits, but not what a search finds. (Whether a search in f32 meets a tolerance below the rounding of its gradients, as
the default of `lbfgs` and `newton_cg` can be, is luck.)
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

STDLIB = Path(__file__).parents[2] / "stdlib"
X86 = platform.machine().lower() in ("x86_64", "amd64")
# Modules whose functions iterate until a criterion holds.
ITERATING = ("adaptive", "minimize", "ode", "quad", "roots")
OLDER = {
    "xla": {"XLA_FLAGS": "--xla_cpu_max_isa=AVX"},
    "interpret": {"OPENBLAS_CORETYPE": "Prescott"},
}
# Searches at their default tolerances, in each element type, with as many digits as these tolerances give.
DIGITS = {"f64": "8g", "f32": "3g"}
PROGRAM = """
import roots (newton, secant, chandrupatla, newton_system)
import minimize (lbfgs, levenberg_marquardt)
import ode (dopri5, dopri5_until)
import quad (gauss_kronrod, tanh_sinh)
import linalg (cg, logm)

fn valley[T: float](x: T[n]) -> T = sum(100.0 * (x[1..] - x[..n - 1]^2)^2 + (1.0 - x[..n - 1])^2)
fn spiral[T: float](t: T, y: T[2]) -> T[2] = [y[1], -y[0] - 0.1 * y[1]]

fn far(n: dim) -> real[n] = [for i in 0..n => sin(3.0 * real(i)) * 2.0]
fn stiff(n: dim) -> real[n, n] = [for i in 0..n, j in 0..n => exp(-abs(real(i - j))) + if i == j { 1.0 } else { 0.0 }]

let a = lbfgs(|x: real[5]| valley(x), far(5))
print("lbfgs {a.x[0]:.DIGITS}")
let t: real[33] = linspace(0.0, 3.0, 33)
let seen = 4.0 * exp(-0.7 * t) + 0.01 * sin(9.0 * t)
let c = levenberg_marquardt(|p| p[0] * exp(-p[1] * t) + p[2] - seen, [1.0, 0.1, 0.0])
print("levenberg_marquardt {c.converged} {c.x:.DIGITS}")
print("newton {newton(|x: real| x^3 - x - 2.0, 1.5):.DIGITS}")
print("newton_system {newton_system(|x: real[3]| x^3 + sum(x) - 1.0, [0.5, 0.2, 0.9]):.DIGITS}")
print("secant {secant(|x: real| cos(x) - x, 0.0, 1.0):.DIGITS}")
print("chandrupatla {chandrupatla(|x: real| exp(x) - 2.0 * x - 3.0, 0.0, 2.0):.DIGITS}")
print("dopri5 {dopri5(|t, y| spiral(t, y), [1.0, 0.0], real(0.0), 10.0):.DIGITS}")
let until = dopri5_until(|t, y| spiral(t, y), |t, y| y[0], [1.0, 0.0], real(0.0), 10.0)
print("dopri5_until {until.t:.DIGITS}")
let e = gauss_kronrod(|x: real| sqrt(x) * sin(9.0 * x), 0.0, 3.0)
print("gauss_kronrod {e.converged} {e.value:.DIGITS}")
print("tanh_sinh {tanh_sinh(|x: real| log(x), 0.0, 1.0):.DIGITS}")
print("cg {cg(linear |x: real[9]| stiff(9) @ x, far(9)):.DIGITS}")
print("logm {logm(stiff(5))[0]:.DIGITS}")
"""


@pytest.mark.nightly
@pytest.mark.skipif(not X86, reason="the flags choose among the instruction sets of x86")
@pytest.mark.parametrize("module", ITERATING)
@pytest.mark.parametrize("engine", OLDER)
def test_a_module_passes_its_tests_under_an_older_instruction_set(module: str, engine: str) -> None:
    """The examples compare what is printed, digit by digit."""
    command = [sys.executable, "-m", "difflang", "test", "--engine", engine, str(STDLIB / f"{module}.dfl")]
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, **OLDER[engine]}, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.nightly
@pytest.mark.skipif(not X86, reason="the flags choose among the instruction sets of x86")
@pytest.mark.parametrize("dtype", DIGITS)
@pytest.mark.parametrize("engine", OLDER)
def test_digits_do_not_depend_on_the_instruction_set(dtype: str, engine: str, tmp_path: Path) -> None:
    file = tmp_path / "digits.dfl"
    text = PROGRAM.replace("real", dtype).replace("DIGITS", DIGITS[dtype])
    file.write_text(f"float {dtype}\n{text}")
    command = [sys.executable, "-m", "difflang", "run", "--engine", engine, str(file)]
    here, older = [
        subprocess.run(
            command, capture_output=True, text=True, env={**os.environ, **more}, stdin=subprocess.DEVNULL, check=True
        )
        for more in ({}, OLDER[engine])
    ]
    assert here.stdout.count("\n") >= 11
    assert older.stdout == here.stdout
