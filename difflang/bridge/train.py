"""Training with optax: one step as a compiled program, and a loop with progress, checkpoints and metrics.

A loss is a function of parameters, then of a batch: one of the language, or any that JAX takes. Parameters are any
structure of arrays; what has no derivative, integers and texts, stays as it is. Where a loss or a gradient is not
finite nothing is updated any more, and the loop ends with an error that says where that came from.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, cast

import jax
import numpy as np
import optax

from difflang.api.loaded import doorway
from difflang.base.diagnostics import Diagnostic, DifflangError
from difflang.bridge import files
from difflang.bridge.nested import named
from difflang.driver.progress import progress

Loss = Callable[..., Any]
Batches = Iterable[Any] | Callable[[int], Any]


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class State:
    """Where a training stands: all that the next step depends on. It is a structure of arrays."""

    params: Any
    optimizer: Any
    step: Any
    key: Any
    loss: Any  # of the last step
    bad: Any  # per leaf of the gradient and for the loss, whether it was not finite


@dataclass(frozen=True, eq=False)
class Fitted:
    """What a training came to: the parameters, the whole state, and a row for each report."""

    params: Any
    state: State
    history: list[dict[str, float]] = field(default_factory=list[dict[str, float]])

    def __repr__(self) -> str:
        return f"<{int(self.state.step)} steps, loss {float(self.state.loss):.6g}>"


def start(params: Any, optimizer: optax.GradientTransformation, *, key: Any = None) -> State:
    """The state before the first step. A loss that draws needs a `key`, a number or a key; each step has its own."""
    moving, _ = parted(params)
    words = (
        np.asarray(jax.random.key_data(jax.random.key(key) if isinstance(key, int) else key))
        if key is not None
        else None
    )
    with precision(params):
        loss = np.asarray(np.nan, jax.numpy.result_type(float))
        nothing = [np.bool_(False) for _ in (0, *jax.tree_util.tree_leaves(moving))]
        return State(params, optimizer.init(moving), np.int32(0), words, loss, nothing)


def precision(params: Any) -> Any:
    """JAX with types of 64 bits if parameters have such, else as it is set up."""
    wide = any(getattr(x, "dtype", None) in (np.float64, np.complex128) for x in jax.tree_util.tree_leaves(params))
    return jax.enable_x64(True) if wide else nullcontext()


def keyed(state: State) -> dict[str, Any]:
    """The key of a step."""
    if state.key is None:
        return {}
    return {"key": jax.random.fold_in(jax.random.wrap_key_data(state.key), state.step)}


def step(loss: Loss, optimizer: optax.GradientTransformation) -> Callable[..., State]:
    """A compiled function from a state and a batch to the next state."""

    def advanced(state: State, *batch: Any) -> State:
        moving, fixed = parted(state.params)
        more = keyed(state)

        def of(moving: Any) -> Any:
            return loss(joined(moving, fixed), *batch, **more)

        value, slope = jax.value_and_grad(of)(moving)
        bad = [~jax.numpy.isfinite(value), *[~jax.numpy.isfinite(g).all() for g in jax.tree_util.tree_leaves(slope)]]
        updates, after = optimizer.update(slope, state.optimizer, moving)
        proposed = (optax.apply_updates(moving, updates), after)
        stopped = jax.numpy.stack(bad).any()
        kept = jax.tree_util.tree_map(lambda a, b: jax.numpy.where(stopped, a, b), (moving, state.optimizer), proposed)
        return State(joined(kept[0], fixed), kept[1], state.step + 1, state.key, value.astype(state.loss.dtype), bad)

    compiled = jax.jit(advanced)

    def called(state: State, *batch: Any) -> State:
        with precision(state.params):
            return compiled(state, *batch)

    return called


def fit(
    loss: Loss,
    params: Any,
    batches: Batches,
    optimizer: optax.GradientTransformation,
    *,
    steps: int | None = None,
    key: Any = None,
    metrics: Mapping[str, Loss] | None = None,
    every: int = 100,
    report: Callable[[dict[str, float]], object] | None = None,
    checkpoint: str | Path | None = None,
) -> Fitted:
    """Train for so many steps, or until the batches end.

    `batches` gives tuples of what `loss` takes after the parameters, or is a function from the number of a step to one.
    Each `every` steps, and at the end, there is a row with step, loss and the `metrics` of the batch; `report` is told
    it. With a `checkpoint`, an npz file, the state is written then, and a training that finds the file goes on from it
    as if it had not been interrupted.

    Errors: NonFiniteError where the loss or a gradient is not finite, naming the step and the parameter; or the error
    of the check that failed in the loss.
    """
    with doorway():
        state = start(params, optimizer, key=key)
        if checkpoint is not None and os.path.exists(checkpoint):
            state = files.load(checkpoint, state)
        return Loop(loss, step(loss, optimizer), dict(metrics or {}), every, report, checkpoint).run(
            state, batches, steps
        )


@dataclass(eq=False)
class Loop:
    """One run of `fit`. A step is looked at while the next one runs, so that nothing waits."""

    loss: Loss
    advance: Callable[..., State]
    metrics: dict[str, Loss]
    every: int
    report: Callable[[dict[str, float]], object] | None
    checkpoint: str | Path | None
    history: list[dict[str, float]] = field(default_factory=list[dict[str, float]])

    def run(self, state: State, batches: Batches, steps: int | None) -> Fitted:
        first = int(state.step)
        before: tuple[State, tuple[Any, ...]] | None = None
        for batch in progress(given(batches, first, steps), (steps or first) - first):
            after = self.advance(state, *batch)
            if before is not None:
                self.look(state, *before)
            before, state = (state, batch), after
        if before is not None:
            self.look(state, *before, last=True)
        return Fitted(state.params, state, self.history)

    def look(self, state: State, before: State, batch: tuple[Any, ...], *, last: bool = False) -> None:
        """Look at what a step has come to."""
        if any(map(bool, state.bad)):
            raise self.stopped(before, state, batch)
        if last or int(state.step) % self.every == 0:
            row = {"step": int(state.step), "loss": float(state.loss)}
            with precision(state.params):
                row |= {name: float(f(state.params, *batch)) for name, f in self.metrics.items()}
            self.history.append(row)
            if self.report is not None:
                self.report(row)
            if self.checkpoint is not None:
                files.save(self.checkpoint, state)

    def stopped(self, before: State, after: State, batch: tuple[Any, ...]) -> DifflangError:
        """Why the state is not one to go on from: the check that failed, or what is not finite."""
        try:
            self.loss(before.params, *batch, **keyed(before))
        except DifflangError as error:
            return error
        names = [name for name, _ in named(parted(before.params)[0])]
        wrong = [f"the gradient in `{name}`" for name, bad in zip(names, after.bad[1:], strict=True) if bool(bad)]
        what = f"the loss is {float(after.loss)}" if bool(after.bad[0]) else f"{wrong[0]} is not finite"
        way = "a smaller rate, or `optax.clip_by_global_norm`, may help; the parameters are those before the step"
        return DifflangError(Diagnostic("DL0908", f"{what} in step {int(after.step)}", (), (way,)))


def given(batches: Batches, first: int, steps: int | None) -> Iterator[tuple[Any, ...]]:
    """The batches from a step on."""
    if callable(batches):
        numbers = count(first) if steps is None else range(first, steps)
        found: Iterator[Any] = (batches(k) for k in numbers)
    else:
        found = (batch for k, batch in enumerate(batches) if k >= first and (steps is None or k < steps))
    return (cast("tuple[Any, ...]", b) if isinstance(b, tuple) else (b,) for b in found)


def parted(params: Any) -> tuple[Any, Any]:
    """Parameters in two: what has a derivative, and the rest, with nothing in the place of what is in the other."""
    moving = jax.tree_util.tree_map(lambda x: x if is_smooth(x) else None, params)
    return moving, jax.tree_util.tree_map(lambda x: None if is_smooth(x) else x, params)


def joined(moving: Any, fixed: Any) -> Any:
    return jax.tree_util.tree_map(lambda a, b: b if a is None else a, moving, fixed, is_leaf=lambda x: x is None)


def is_smooth(x: Any) -> bool:
    return isinstance(x, float) or (hasattr(x, "dtype") and bool(jax.numpy.issubdtype(x.dtype, np.inexact)))
