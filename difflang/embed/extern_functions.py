"""Extern functions, Python functions that a program calls: traced by JAX, or called back on the host.

A JAX function is traced once for each list of types, with 64-bit types if its declaration has one. A host function is
called with NumPy arrays; it must be pure, as the compiler may call it any number of times.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.dtypes
import numpy as np

from difflang.base.diagnostics import Diagnostic, DifflangError, Label
from difflang.base.source import Span
from difflang.ir.tensor_types import Tensor, numpy_dtype
from difflang.ops.control.extern_call import ExternFunction
from difflang.ops.control.print_effect import join_64bit, split_64bit

Array = Any
FlatFunction = Callable[..., Sequence[Array]]
"""A function of leaves that raises an error if its results are not of the declared types."""


class JaxExtern(ExternFunction):
    """A function that JAX traces, with 64-bit types enabled if its types have some, or if `wide`."""

    def __init__(
        self,
        name: str,
        params: tuple[Tensor, ...],
        results: tuple[Tensor, ...],
        span: Span,
        f: FlatFunction,
        wide: bool,
    ) -> None:
        super().__init__(name, params, results, span)
        self.wide = wide or any(is_64_bit(t) for t in (*params, *results))

        def function(*arrays: Array) -> list[Array]:
            found = f(*arrays)
            return [jax.numpy.asarray(x, numpy_dtype(t.dtype)) for x, t in zip(found, results, strict=True)]

        function.__name__ = function.__qualname__ = name
        self.function = jax.jit(function)
        self.check_traceable()

    def check_traceable(self) -> None:
        """Trace it. Errors: those of reading its results; DL1232 if it fails or is not pure."""
        specs = [jax.ShapeDtypeStruct(t.shape, numpy_dtype(t.dtype)) for t in self.params]
        try:
            with jax.enable_x64(self.wide):
                traced = self.function.trace(*specs).jaxpr
        except DifflangError:
            raise
        except (Exception, SystemExit) as error:
            raise extern_error(self, error) from error
        # JAX turns captured values of an outer trace into further arguments.
        if len(traced.in_avals) != len(specs):
            message = f"`{self.name}` captured a value that is inside a JAX transformation"
            way = "pass that value to the function as an argument, through the program"
            raise DifflangError(Diagnostic("DL1232", message, (Label(self.span, "declared here"),), (way,)))
        if traced.effects:
            message = f"`{self.name}` prints or calls back to Python, but functions of a program must be pure"
            way = "print its result in the program; for a NumPy function, use `difflang.extern(f, host=True)`"
            raise DifflangError(Diagnostic("DL1232", message, (Label(self.span, "declared here"),), (way,)))

    def run(self, *arrays: Array) -> list[Array]:
        return [np.asarray(x) for x in self.lower(jax, *arrays)]

    def lower(self, jax: Any, *arrays: Array) -> list[Array]:
        with jax.enable_x64(self.wide):
            return self.function(*arrays)


def is_unhandled_record(record: logging.LogRecord) -> bool:
    """Whether a record of JAX's log is about an error that is not raised elsewhere anyway."""
    return record.exc_info is None or not isinstance(record.exc_info[1], (DifflangError, KeyboardInterrupt))


# JAX logs every exception of a callback; ours reach the user as diagnostics.
logging.getLogger("jax._src.callback").addFilter(is_unhandled_record)


class HostExtern(ExternFunction):
    """A function of NumPy arrays that is called back while the program runs."""

    def __init__(
        self, name: str, params: tuple[Tensor, ...], results: tuple[Tensor, ...], span: Span, f: FlatFunction
    ) -> None:
        super().__init__(name, params, results, span)
        self.host = True
        self.function = f

    def run(self, *arrays: Array) -> list[Array]:
        """Its results as copies; its arguments are read-only, as others read them too."""
        try:
            found = self.function(*map(read_only_view, arrays))
            return [np.array(x, numpy_dtype(t.dtype)) for x, t in zip(found, self.results, strict=True)]
        except DifflangError:
            raise
        except (Exception, SystemExit) as error:  # even `sys.exit` must not end the process here
            raise extern_error(self, error) from error

    def lower(self, jax: Any, *arrays: Array) -> list[Array]:
        """The results by a JAX callback."""
        # Callbacks narrow 64-bit values to 32 bits in both directions, so these are passed as pairs of words.
        dtypes = [numpy_dtype(t.dtype) for t in self.params]

        def run_on_host(*words: Any) -> list[Any]:
            try:
                found = self.run(*[join_64bit(np.asarray(x), dtype) for x, dtype in zip(words, dtypes, strict=True)])
            except (DifflangError, KeyboardInterrupt) as error:
                self.failure = error
                raise
            return [split_into_words(x) for x in found]

        given = [split_64bit(jax, x) for x in arrays]
        back = jax.pure_callback(run_on_host, [word_struct(t) for t in self.results], *given, vmap_method="sequential")
        return [join_words(jax, x, t) for x, t in zip(back, self.results, strict=True)]


def read_only_view(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A view of the array that cannot be written to."""
    seen = x.view()
    seen.flags.writeable = False
    return seen


def is_x64_enabled() -> bool:
    """Whether 64-bit types are enabled in JAX."""
    return bool(jax.dtypes.canonicalize_dtype(np.float64) == np.float64)


def is_64_bit(type: Tensor) -> bool:
    """Whether its numbers, or their real and imaginary parts, have 64 bits, which JAX would narrow."""
    dtype = numpy_dtype(type.dtype)
    return dtype.itemsize // (2 if dtype.kind == "c" else 1) == 8


def word_struct(type: Tensor) -> jax.ShapeDtypeStruct:
    """The type of the words in which an array is returned."""
    dtype = numpy_dtype(type.dtype)
    if not is_64_bit(type):
        return jax.ShapeDtypeStruct(type.shape, dtype)
    return jax.ShapeDtypeStruct((*type.shape, dtype.itemsize // 4), np.dtype(np.uint32))


def split_into_words(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    words = x.dtype.itemsize // 4
    if words < (4 if x.dtype.kind == "c" else 2):
        return x
    return np.ascontiguousarray(x).reshape(*x.shape, 1).view(np.uint32).reshape(*x.shape, words)


def join_words(jax: Any, words: Array, type: Tensor) -> Array:
    """The array from its words."""
    if not is_64_bit(type):
        return words
    dtype, lax = numpy_dtype(type.dtype), jax.lax
    if dtype.kind != "c":
        return lax.bitcast_convert_type(words, dtype)
    parts = lax.bitcast_convert_type(words.reshape(*type.shape, 2, 2), np.dtype(np.float64))
    return lax.complex(parts[..., 0], parts[..., 1])


def is_size_independent(errors: Sequence[BaseException]) -> bool:
    """Whether a function that raised these errors, each for other sizes, would fail for any sizes."""
    first = errors[0]
    if any(type(e) is not type(first) for e in errors):
        return False
    if isinstance(first, (NameError, AttributeError, ImportError, NotImplementedError, jax.errors.JAXTypeError)):
        return not isinstance(first, UnboundLocalError)  # a branch that depends on a size may have left it out
    return isinstance(first, TypeError) and len({str(e) for e in errors}) == 1 < len(errors)


def extern_error(function: ExternFunction, error: BaseException) -> DifflangError:
    """Errors: DL1232, with what the function raised."""
    first = next(iter(str(error).splitlines()), "")
    message = f"`{function.name}` raised {type(error).__name__}{': ' if first else ''}{first}"
    traced = isinstance(error, (jax.errors.JAXTypeError, jax.errors.JAXIndexError))
    way = "JAX traces this function; to bind a NumPy function, use `difflang.extern(f, host=True)`" if traced else ""
    given = f"for {', '.join(map(str, function.params)) or 'no arguments'}"
    if isinstance(error, SystemExit):
        way = "the function must return a value here: do not raise an error"
    helps = (way,) if way else ()
    label = Label(function.span, f"declared here; called {given}")
    return DifflangError(Diagnostic("DL1232", message, (label,), helps))
