"""The programs of GradBench in JAX, as somebody who knows JAX well first writes them.

Sums over layers and steps are scans, recursion goes level by level, and equal minors are computed once. Everything is
in double precision. Where reverse mode would go through a loop of unknown length, which JAX cannot, a particle makes a
known number of steps of which those after its landing do nothing; a saddle point has no such twin.
"""

from __future__ import annotations

from gradbench.twins import geometry, searches, sequences, sums
from gradbench.twins.registry import TWINS, Twin

__all__ = ["TWINS", "Twin", "geometry", "searches", "sequences", "sums"]
