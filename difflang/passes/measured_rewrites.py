"""Rewrites that only make programs faster: what each gains over whole programs, and a way to measure that again.

Each was left out over 81 whole programs on the CPU: kernels, gradients, index notation, examples, training steps,
counted loops, GradBench. What serves one kernel and gains less than 3 % over all of them does not stay here.
`benchmarks/rewrites.py` measures again.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from msgspec import Struct


class MeasuredRewrite(Struct, frozen=True):
    """A pass, or a rewrite of the lowering. `gain` is run time without it over run time with it."""

    name: str
    help: str
    gain: float  # in geometric mean over all programs
    where: str  # the programs that gain most


REWRITES = (
    MeasuredRewrite(
        "branch_on_small_arguments",
        "on the CPU sines and cosines of many numbers are polynomials, where no argument is large",
        1.131,
        "random features 5.5, Box and Muller 5.6, Kuramoto 4.3, wave 4.1, pendula 2.7, SIREN 2.8",
    ),
    MeasuredRewrite(
        "split_fusion_chains",
        "on the CPU long chains of elementwise operations are cut into functions; some compile at all only so",
        1.013,
        "dormand_prince 2.3, a transformer's training 1.2; first call 1.2 where it applies",
    ),
    MeasuredRewrite(
        "contract_after_loops",
        "products that a reverse loop adds up are one contraction after the loop",
        1.030,
        "scan 3.9, a neural ODE's training 1.4, recurrent 1.2, kalman 1.1, gru 1.1",
    ),
    MeasuredRewrite(
        "dot_cpu_lower",
        "on the CPU products over columns are transposed",
        1.010,
        "20 programs, of which neural_ode 1.2, recurrent 1.1, gru 1.1, ode 1.1",
    ),
    MeasuredRewrite(
        "unroll",
        "short loops inside loops, and over layers that are differentiated, become their steps",
        1.007,
        "neural_ode 1.2, its training 1.3, matmul 1.1; first call 1.06 where it applies",
    ),
    MeasuredRewrite(
        "drop_batch_axes",
        "products of a batch that are summed, or share a factor, are one larger product",
        1.002,
        "a transformer's training 1.1; contract_after_loops needs it in maps",
    ),
)
LEFT_OUT: set[str] = set()


@contextmanager
def leave_out(*names: str) -> Generator[None]:
    """A scope in which programs are compiled without some of `REWRITES`; what is compiled already stays as it is.

    Errors: ValueError for another name.
    """
    if unknown := set(names) - {r.name for r in REWRITES}:
        raise ValueError(f"there are no rewrites {', '.join(sorted(unknown))}")
    added = set(names) - LEFT_OUT
    LEFT_OUT.update(added)
    try:
        yield
    finally:
        LEFT_OUT.difference_update(added)
