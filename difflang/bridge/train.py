"""Training loop for optax optimizers: compiled steps, progress, checkpoints and metrics.

A loss is a function of parameters, then of a batch: a loaded function, or any that JAX can trace. Parameters are any
pytree; leaves without a derivative, integers and texts, stay unchanged. If a loss or a gradient is not finite, updates
stop, and the loop ends with an error that names the cause.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from errno import EIO, ENOENT
from itertools import islice
from operator import index
from pathlib import Path
from typing import Any, cast

import jax
import numpy as np
import optax

from difflang.api.option_values import class_with_article
from difflang.base.diagnostics import Diagnostic, DifflangError
from difflang.base.errors import classify_errors
from difflang.base.source_files import write_error
from difflang.base.wording import count_of
from difflang.bridge import files
from difflang.bridge.nested import is_differentiable, named_leaves
from difflang.bridge.orbax import Checkpoints
from difflang.host.progress_bar import with_progress
from difflang.runtime import pytrees
from difflang.runtime.foreign_values import convert_foreign, is_foreign
from difflang.runtime.joined_processes import current_group, lost_process_error
from difflang.types.type_errors import make_error

Loss = Callable[..., Any]
Batch = tuple[Any, ...]  # the arguments of the loss after the parameters
Batches = Iterable[Any] | Callable[[int], Any]
FLOAT_KINDS, REAL_KINDS = ("float",), ("float", "int", "uint", "bool")


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class TrainState:
    """The state of a training: everything that the next step depends on, as a pytree of arrays."""

    params: Any
    optimizer: Any
    step: Any
    key: Any
    loss: Any  # of the last step
    bad: Any  # whether the loss, and each leaf of the gradient, was not finite


@dataclass(frozen=True, eq=False)
class FitResult:
    """The result of a training: the parameters, the whole state, and a row for each report."""

    params: Any
    state: TrainState
    history: list[dict[str, float]] = field(default_factory=list[dict[str, float]])

    def __repr__(self) -> str:
        return f"<{count_of(int(self.state.step), 'step')}, loss {float(self.state.loss):.6g}>"


def start(params: Any, optimizer: optax.GradientTransformation, *, key: Any = None) -> TrainState:
    """The state before the first step. A random loss needs a `key`, a number or a key; each step derives its own.

    Errors: ArgumentError for an invalid optimizer or key, and for parameters without derivative.
    """
    with classify_errors(), matching_precision(params):
        if not (hasattr(optimizer, "init") and hasattr(optimizer, "update")):
            way = "pass one from optax, such as `optax.adam(1e-3)`"
            raise make_error("DL1207", f"{class_with_article(optimizer)} is not an optimizer", help=way)
        moving, _ = split_differentiable(params)
        leaves = jax.tree_util.tree_leaves(moving)
        if not leaves:
            raise make_error("DL1207", "no parameter has a derivative", help="pass floats, such as f32[n]")
        loss = np.asarray(np.nan, jax.numpy.result_type(float))
        nothing = [np.bool_(False) for _ in (0, *leaves)]
        return TrainState(params, optimizer.init(moving), np.int32(0), key_data_words(key), loss, nothing)


def key_data_words(key: Any) -> Any:
    """The words of a random key, given as a key or a number; None for None."""
    if key is None:
        return None
    typed = pytrees.key_data(key)
    if typed is not key:
        return np.asarray(typed)
    # A raw key, from `jax.random.PRNGKey`.
    if getattr(key, "shape", ()) and key.dtype == np.uint32:
        return np.asarray(key)
    try:
        return np.asarray(jax.random.key_data(jax.random.key(index(key))))
    except (TypeError, OverflowError):
        raise make_error(
            "DL1207", f"{key!r} is not a random key", help="pass a number, or `jax.random.key(0)`"
        ) from None


def matching_precision(params: Any) -> Any:
    """JAX with 64-bit types if the parameters have some, else with its current setting."""
    wide = any(getattr(x, "dtype", None) in (np.float64, np.complex128) for x in jax.tree_util.tree_leaves(params))
    return jax.enable_x64(True) if wide else nullcontext()


def step_key(state: TrainState, part: Any = None) -> dict[str, Any]:
    """The random key of a step, or of a part of one, as a keyword argument."""
    if state.key is None:
        return {}
    key = jax.random.fold_in(jax.random.wrap_key_data(state.key), state.step)
    return {"key": key if part is None else jax.random.fold_in(key, part)}


def step(loss: Loss, optimizer: optax.GradientTransformation) -> Callable[..., TrainState]:
    """A compiled function from a state and a batch to the next state.

    Errors: ArgumentError if the loss is not one real number.
    """
    run_step = step_of_parts(loss, optimizer)
    return lambda state, *batch: run_step(state, (batch,))


def step_of_parts(
    loss: Loss, optimizer: optax.GradientTransformation
) -> Callable[[TrainState, Sequence[Batch]], TrainState]:
    """A compiled function from a state and the parts of a batch to the next state, as for the batch as a whole.

    The gradients of several parts are computed one after the other and added, each by its share of the rows.
    """
    optimize = optax.with_extra_args_support(optimizer)

    def part_loss(state: TrainState, fixed: Any, batch: Batch, number: Any) -> Callable[[Any], Any]:
        more = step_key(state, number)
        return lambda moving: require_real_number(
            "the loss", loss(join_params(moving, fixed), *batch, **more), FLOAT_KINDS
        )

    def part_gradient(state: TrainState, batch: Batch, number: Any, share: Any, before: Any) -> Any:
        moving, fixed = split_differentiable(state.params)
        found = jax.value_and_grad(part_loss(state, fixed, batch, number))(moving)
        found = jax.tree_util.tree_map(lambda x: share * x, found)
        return found if before is None else jax.tree_util.tree_map(jax.numpy.add, before, found)

    def update_state(state: TrainState, parts: Sequence[Batch], shares: Sequence[Any], found: Any) -> TrainState:
        moving, fixed = split_differentiable(state.params)

        def loss_value(moving: Any) -> Any:
            if found is None:
                return part_loss(state, fixed, parts[0], None)(moving)
            losses = [part_loss(state, fixed, part, number) for number, part in enumerate(parts)]
            first, *rest = [share * part(moving) for share, part in zip(shares, losses, strict=True)]
            return sum(rest, first)

        value, slope = jax.value_and_grad(loss_value)(moving) if found is None else found
        # JAX's complex gradient is the conjugate of the direction of steepest ascent.
        slope = jax.tree_util.tree_map(jax.numpy.conj, slope)
        bad = [~jax.numpy.isfinite(value), *[~jax.numpy.isfinite(g).all() for g in jax.tree_util.tree_leaves(slope)]]
        updates, after = optimize.update(slope, state.optimizer, moving, value=value, grad=slope, value_fn=loss_value)
        proposed = (optax.apply_updates(moving, updates), after)
        # Keep the old parameters after a non-finite step: the error can then be traced from them.
        stopped = jax.numpy.stack(bad).any()
        kept = jax.tree_util.tree_map(lambda a, b: jax.numpy.where(stopped, a, b), (moving, state.optimizer), proposed)
        return TrainState(
            join_params(kept[0], fixed), kept[1], state.step + 1, state.key, value.astype(state.loss.dtype), bad
        )

    update, gradient = jax.jit(update_state), jax.jit(part_gradient, donate_argnums=4)

    def run_step(state: TrainState, parts: Sequence[Batch]) -> TrainState:
        with classify_errors(), matching_precision(state.params):
            shares, found = row_shares(parts), None
            for number, (batch, share) in enumerate(zip(parts, shares, strict=True)) if len(parts) > 1 else ():
                found = gradient(state, batch, number, share, found)
            return update(state, parts, shares, found)

    return run_step


def row_shares(parts: Sequence[Batch]) -> tuple[float, ...]:
    """The share of each part in the rows of all; rows are counted by the first array of a part that has some."""
    rows = [next((x.shape[0] for x in jax.tree_util.tree_leaves(part) if np.ndim(x)), 1) for part in parts]
    return tuple([n / max(sum(rows), 1) for n in rows])


def require_real_number(what: str, value: Any, kinds: tuple[str, ...] = REAL_KINDS) -> Any:
    """The value, if it is one real number of these kinds. Errors: DL1207."""
    if isinstance(value, (int, float)):
        value = jax.numpy.asarray(value)
    dtype, shape = pytrees.array_type(value) or (None, None)
    if shape == () and dtype is not None and dtype.kind in kinds:
        return value
    array = f"{dtype}[{', '.join(map(str, shape))}]" if shape else f"one {dtype}"
    given = class_with_article(value) if shape is None else array
    way = "reduce an array with `mean` or `sum`" if shape else "only a float has a derivative" if dtype else ""
    raise make_error("DL1207", f"{what} is {given}, but it must be one real number", help=way)


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
    accumulate: int = 1,
    report: Callable[[dict[str, float]], object] | None = None,
    checkpoint: str | Path | Checkpoints | None = None,
) -> FitResult:
    """Train for a number of steps, or until the batches end.

    `batches` yields tuples of the loss's arguments after the parameters, or is a function from a step number to such a
    tuple. With `accumulate=k` a step takes k batches, of which memory holds one at a time, and is the step of all their
    rows as one batch, if the loss is a mean over rows, the first axis of a batch's first array; the last step takes
    what is left. `steps` counts steps, and a function of batches is then called with the number of a batch. Every
    `every` steps and at the end, a row is recorded with step, loss and the `metrics` of the batch, and
    passed to `report`. With a `checkpoint` the state is written then, and a training that finds one continues as if it
    had not been interrupted, its arrays split over devices as those of `params` are. The checkpoint is a `.npz` or
    `.safetensors` file, or a folder in which orbax keeps the last three; see `orbax`. In several processes all must
    call this: process 0 writes the file, and with orbax each its parts. If one of them is gone, the others end with an
    error within JAX's `heartbeat_timeout_seconds`, or JAX ends them.

    Errors: NonFiniteError if the loss or a gradient is not finite, naming the step and the parameter; or the error of
    the check that failed in the loss. ArgumentError if there is no batch, and for invalid arguments; DataError for the
    checkpoint of another training; LimitError if another process is gone.
    """
    with classify_errors(), lost_process_error("start all again: with a `checkpoint` the training goes on from there"):
        check_positive("every", every)
        check_positive("accumulate", accumulate)
        if steps is None and callable(batches):
            way = "pass `steps`, or batches that end"
            raise make_error("DL1207", "the number of steps is not known", help=way)
        if not callable(batches):
            way = "pass a list or an iterator of tuples, or a function from a step to a tuple"
            check_kind(batches, Iterable, "`batches`", way)
        state = start(params, optimizer, key=key)
        with open_checkpoint(checkpoint) as kept:
            if kept is not None and kept.steps:
                state = pytrees.place_like(kept.load(state), state)
            loop = TrainingLoop(loss, step_of_parts(loss, optimizer), dict(metrics or {}), every, report, kept)
            return loop.run(state, batches, steps, accumulate)


def check_positive(name: str, value: object) -> None:
    """Errors: DL1207 for what is no number of at least 1."""
    check_kind(value, int, f"`{name}`", "pass 1 or more")
    if cast("int", value) < 1:
        raise make_error("DL1207", f"`{name}` is {value}, but it must be at least 1", help="pass 1 or more")


def check_kind(value: object, kind: type, what: str, way: str) -> None:
    """Errors: DL1207 for a value of another kind."""
    if not isinstance(value, kind):
        raise make_error("DL1207", f"{class_with_article(value)} is not a {what}", help=way)


@contextmanager
def open_checkpoint(checkpoint: str | Path | Checkpoints | None) -> Generator[CheckpointFile | Checkpoints | None]:
    """The checkpoint store at a path. Errors: DL1207 for another kind of file, DL0709 without orbax, DL0710."""
    if checkpoint is None or isinstance(checkpoint, Checkpoints):
        yield checkpoint
    elif Path(checkpoint).suffix:
        yield CheckpointFile(Path(checkpoint))
    else:
        # Opened here, so closed here.
        opened = Checkpoints(checkpoint)
        try:
            yield opened
        finally:
            opened.close()


class CheckpointFile:
    """A file with the last state."""

    def __init__(self, path: Path) -> None:
        self.path = path
        files.archive_format(path)
        if not os.path.isdir(path.parent):
            raise write_error(str(path), FileNotFoundError(ENOENT, "there is no such folder"))

    @property
    def steps(self) -> list[int]:
        """A list of one entry if the file has a state; the state itself holds its step."""
        return [0] if os.path.exists(self.path) else []

    def save(self, step: int, state: TrainState) -> None:
        """Write the state: the first process does, once all have given their parts, and the others wait for it."""
        whole = pytrees.to_host(state)
        refused = write_error(str(self.path), OSError(EIO, "process 0 could not"))
        current_group().run_once(lambda: files.save(self.path, whole), refused)

    def load(self, like: TrainState) -> TrainState:
        return files.load(self.path, like, whole=True)


@dataclass(eq=False)
class TrainingLoop:
    """One run of `fit`. A step is examined while the next one runs, so that the device never waits."""

    loss: Loss
    advance: Callable[[TrainState, Sequence[Batch]], TrainState]
    metrics: dict[str, Loss]
    every: int
    report: Callable[[dict[str, float]], object] | None
    checkpoint: CheckpointFile | Checkpoints | None
    history: list[dict[str, float]] = field(default_factory=list[dict[str, float]])

    def run(self, state: TrainState, batches: Batches, steps: int | None, accumulate: int) -> FitResult:
        first = int(state.step)
        before: tuple[TrainState, Sequence[Batch]] | None = None
        taken = grouped(
            iterate_batches(batches, first * accumulate, None if steps is None else steps * accumulate), accumulate
        )
        for parts in with_progress(taken, (steps or first) - first):
            after = self.advance(state, parts)
            if before is not None:
                self.record_step(state, *before)
            before, state = (state, parts), after
        if before is not None:
            self.record_step(state, *before, last=True)
        elif not first and steps != 0:
            raise make_error("DL1207", "there are no batches", help="an iterator is empty after one pass")
        return FitResult(state.params, state, self.history)

    def record_step(self, state: TrainState, before: TrainState, parts: Sequence[Batch], *, last: bool = False) -> None:
        """Examine and record the result of a step."""
        if any(map(bool, state.bad)):
            raise self.stopped(before, state, parts)
        if last or int(state.step) % self.every == 0:
            row = {"step": int(state.step), "loss": float(state.loss)}
            with matching_precision(state.params):
                row |= {name: self.metric(name, state.params, parts) for name in self.metrics}
            self.history.append(row)
            if self.report is not None:
                self.report(row)
            if self.checkpoint is not None:
                self.checkpoint.save(int(state.step), state)

    def metric(self, name: str, params: Any, parts: Sequence[Batch]) -> float:
        """A metric of a batch; of several parts the mean of theirs, each by its share of the rows."""
        found = [float(require_real_number(f"`{name}`", self.metrics[name](params, *batch))) for batch in parts]
        return sum([share * x for share, x in zip(row_shares(parts), found, strict=True)])

    def stopped(self, before: TrainState, after: TrainState, parts: Sequence[Batch]) -> DifflangError:
        """The error for a state that training cannot continue from: the failed check, or what is not finite."""
        try:
            with matching_precision(before.params):
                for number, batch in enumerate(parts):
                    self.loss(before.params, *batch, **step_key(before, number if len(parts) > 1 else None))
        except DifflangError as error:
            return error
        names = [name for name, _ in named_leaves(split_differentiable(before.params)[0])]
        wrong = [name for name, bad in zip(names, after.bad[1:], strict=True) if bool(bad)]
        what = f"the gradient with respect to `{wrong[0]}` is not finite" if wrong else ""
        what = f"the loss is {float(after.loss)}" if bool(after.bad[0]) else what
        way = "try a smaller learning rate or `optax.clip_by_global_norm`; the parameters are those before the step"
        return DifflangError(Diagnostic("DL0908", f"{what} in step {int(after.step)}", (), (way,)))


def grouped(batches: Iterator[Batch], size: int) -> Iterator[tuple[Batch, ...]]:
    """So many batches at a time; the last group has what is left."""
    while group := tuple(islice(batches, size)):
        yield group


def iterate_batches(batches: Batches, first: int, stop: int | None) -> Iterator[Batch]:
    """The batches from a number on; an iterator is read only as far as needed."""
    if callable(batches):
        found: Iterator[Any] = (batches(k) for k in range(first, stop or 0))
    else:
        found = islice(iter(batches), first, None if stop is None else max(stop, first))
    return (tuple(map(plain, cast("Batch", b) if isinstance(b, tuple) else (b,))) for b in found)


def plain(value: Any) -> Any:
    """A part of a batch as JAX takes it: a tensor of another library as an array. Errors: DL1206."""
    return convert_foreign(value, None, "a batch") if is_foreign(value) else value


def split_differentiable(params: Any) -> tuple[Any, Any]:
    """Parameters split into differentiable leaves and the rest, with None in place of the other's leaves."""
    moving = jax.tree_util.tree_map(lambda x: x if is_differentiable(x) else None, params)
    return moving, jax.tree_util.tree_map(lambda x: None if is_differentiable(x) else x, params)


def join_params(moving: Any, fixed: Any) -> Any:
    return jax.tree_util.tree_map(lambda a, b: b if a is None else a, moving, fixed, is_leaf=lambda x: x is None)
