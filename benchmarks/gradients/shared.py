"""What the twins share: the case of a program, and the ways to write a loop in JAX that reverse mode goes through."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cases import Case, Twin, normal, written

HERE = Path(__file__).resolve().parent
Loop = Callable[[Callable[[Any], Any], Callable[[Any], Any], Any], Any]

draw = partial(normal, dtype=np.float64)


def program(name: str, wrt: str, arguments: tuple[Any, ...], ways: dict[str, Twin]) -> Case:
    return written(HERE / f"{name}.dfl", "loss", wrt, arguments, ways)


def plain_and_remat(plain: Twin) -> dict[str, Twin]:
    return {"plain": plain, "remat": jax.checkpoint(plain)}


def scans(loss: Callable[..., Any]) -> dict[str, Twin]:
    """A loss whose first argument is how to scan: as it is, unrolled, with each step computed again, and both."""

    def scanned(remat: bool, unroll: int) -> Callable[..., Any]:
        def scan(step: Callable[..., Any], state: Any, xs: Any, length: int | None = None) -> Any:
            return jax.lax.scan(jax.checkpoint(step) if remat else step, state, xs, length, unroll=unroll)

        return partial(loss, scan)

    return {f"{'remat' if r else 'scan'}{u}": scanned(r, u) for r in (False, True) for u in (1, 4)}


def loops(loss: Callable[..., Any], most: int) -> dict[str, Twin]:
    """A loss whose first argument is a `while` loop that reverse mode goes through, in at most so many steps."""
    ways: dict[str, Loop] = {
        "masked": partial(masked, most),
        "masked, remat": partial(masked, most, through=jax.checkpoint),
        "skipping": partial(skipping, most),
    }
    try:
        from equinox.internal import while_loop
    except ImportError:
        pass
    else:
        ways["equinox"] = partial(while_loop, kind="checkpointed", max_steps=most)
    return {name: partial(loss, way) for name, way in ways.items()}


def masked(
    most: int,
    going: Callable[[Any], Any],
    step: Callable[[Any], Any],
    state: Any,
    through: Callable[..., Any] = lambda f: f,
) -> Any:
    """All of the steps there may be; those past the end change nothing."""

    def body(state: Any, _: None) -> tuple[Any, None]:
        on = going(state)
        return jax.tree.map(lambda new, old: jnp.where(on, new, old), step(state), state), None

    return jax.lax.scan(through(body), state, None, length=most)[0]


def skipping(most: int, going: Callable[[Any], Any], step: Callable[[Any], Any], state: Any) -> Any:
    """The same with a branch, so that steps past the end cost next to nothing."""

    def body(state: Any, _: None) -> tuple[Any, None]:
        return jax.lax.cond(going(state), step, lambda state: state, state), None

    return jax.lax.scan(body, state, None, length=most)[0]
