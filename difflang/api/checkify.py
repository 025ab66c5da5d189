"""`checked(f)`: returns a failure beside the result instead of raising, for use inside JAX transformations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from difflang.api.function import Function
from difflang.api.loaded_program import LoadedProgram
from difflang.base.diagnostics import DifflangError
from difflang.base.errors import classify_error, classify_errors
from difflang.execution.check_failures import failure_error
from difflang.runtime import pytrees
from difflang.types.type_errors import make_error


@dataclass(frozen=True, eq=False)
class Failure:
    """The failed check of a program, if there is one: a pytree of three integers.

    `number` is zero if all checks passed, else the number of a check; the others are details for its message. Under
    `jax.vmap` each is a batch of numbers.
    """

    loaded: LoadedProgram
    number: Any
    first: Any
    second: Any

    @property
    def happened(self) -> Any:
        """Whether a check failed, as a boolean array."""
        return self.number != 0

    def __bool__(self) -> bool:
        return bool(np.any(np.asarray(self.number)))

    def __repr__(self) -> str:
        if pytrees.has_tracers([self.number]):
            return "<failure of a run that is not over>"
        return f"<failure: {self.error()}>" if self else "<no failure>"

    def error(self) -> DifflangError | None:
        """The error of the first batch element that failed; None if no check failed.

        Errors: ArgumentError inside a JAX transformation, where the value is not known yet.
        """
        if pytrees.has_tracers([self.number]):
            message = "inside a JAX transformation, whether a check failed is not known yet"
            raise classify_error(make_error("DL1206", message, help="return the failure, and inspect it outside"))
        # Under `jax.vmap` each number is an array: report the first element that failed.
        lanes = [np.asarray(x).reshape(-1) for x in (self.number, self.first, self.second)]
        for number, first, second in zip(*lanes, strict=True):
            if number:
                sites = self.loaded.checked.session.sites
                return classify_error(failure_error(sites[int(number) - 1], int(first), int(second)))
        return None

    def throw(self) -> None:
        """Raise the error if a check failed."""
        error = self.error()
        if error is not None:
            raise error


def checked(f: object) -> Callable[..., tuple[Failure, Any]]:
    """A function that returns a failure and the result of `f`, and never raises for a failed check.

    It works under `jax.jit`, `jax.vmap` and the rest; if there is a failure, the result is meaningless.
    """
    if not isinstance(f, Function):
        raise classify_error(
            make_error("DL1207", "`checked` takes a function of a loaded module", help="`difflang.checked(m.f)`")
        )

    def call(*args: Any, **kwargs: Any) -> tuple[Failure, Any]:
        with classify_errors():
            word, value = f.run_checked(args, kwargs)
            return Failure(f.loaded, *word), value

    call.__name__ = call.__qualname__ = f.__name__
    call.__doc__ = f.__doc__
    return call


def flatten_failure(failure: Failure) -> tuple[tuple[Any, ...], LoadedProgram]:
    return (failure.number, failure.first, failure.second), failure.loaded


pytrees.register_node(Failure, flatten_failure, lambda loaded, numbers: Failure(loaded, *numbers))
