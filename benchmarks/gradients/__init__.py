"""Programs as scientists write them, each with its best twins in JAX, for the table of gradients.

Every program stands in a file of its own beside this one and has a function `loss`, differentiated in its first
parameter. All are in f64, as simulations and likelihoods are; so `run.py` turns JAX's 64-bit setting on for this table.
"""

from __future__ import annotations

from collections.abc import Callable

from cases import Case
from gradients import dynamics, inference, networks, searches

GRADIENTS: dict[str, Callable[[], Case]] = {
    case.__name__: case
    for case in (
        dynamics.neural_ode,
        dynamics.n_body,
        dynamics.heat,
        dynamics.dormand_prince,
        inference.kalman,
        inference.hidden_markov,
        inference.gaussian_process,
        networks.gru,
        networks.attention,
        searches.kepler,
        searches.conjugate_gradients,
        searches.ray_march,
    )
}
