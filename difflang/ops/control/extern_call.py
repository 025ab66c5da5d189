"""The `extern` op: calls of Python functions that a program declares with `extern fn`.

The attribute `function` is an `ExternFunction`, which `embed` makes; here is what the compiler knows of it: its types,
that it is pure, and its derivatives. The derivative of `f` at x along dx is a call of `f.jvp` on x and dx, linear in
dx; its transpose is a call of `f.vjp` on x and the cotangents. Where Python gave neither, the derivative is an error,
and so are further derivatives.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np
from ml_dtypes import finfo

from difflang.base.diagnostics import Diagnostic, DifflangError, Label
from difflang.base.source import Span
from difflang.ir.array_types import Array, Jax, JaxArray
from difflang.ir.builder import Builder
from difflang.ir.graph import Eqn, ExternalObject, Value, Values
from difflang.ir.op import OPS, EquationRules, MaybeValue, Op, TypeSolver
from difflang.ir.tensor_types import Tensor, Type, numpy_dtype
from difflang.ops.ad_interface import Ad, Mask, Tangents, TransposeRequest, or_zeros, require_same_types, spread_by_mask
from difflang.ops.control.custom_linear_solve import mask_unchosen

WIDE_DTYPES = (np.dtype(np.longdouble), np.dtype(np.clongdouble))


class ExternFunction(ExternalObject):
    """A Python function for arguments of certain types. Equality is identity.

    `jvp` maps operands and a tangent for each differentiable operand to a tangent for each differentiable result. `vjp`
    maps operands and cotangents of these results to cotangents of these operands. Each is the other's `transposed`.
    """

    def __init__(self, name: str, params: tuple[Tensor, ...], results: tuple[Tensor, ...], span: Span) -> None:
        super().__init__(name)
        self.params, self.results = params, results
        self.span = span  # where it is declared
        self.host = False  # a callback into Python while the program runs
        # The error of its last run, until it is reported.
        self.failure: DifflangError | KeyboardInterrupt | None = None
        self.jvp: ExternFunction | None = None
        self.vjp: ExternFunction | None = None
        self.transposed: ExternFunction | None = None

    def run(self, *arrays: Array) -> list[Array]:
        """Its results on NumPy arrays."""
        raise NotImplementedError

    def lower(self, jax: Jax, *arrays: JaxArray) -> list[JaxArray]:
        """Its results in the current trace."""
        raise NotImplementedError


class MissingExtern(ExternFunction):
    """Stands for a function that was not bound: its callers can be checked, differentiated and dropped, but not run."""

    def __init__(
        self, name: str, params: tuple[Tensor, ...], results: tuple[Tensor, ...], span: Span, error: DifflangError
    ) -> None:
        super().__init__(name, params, results, span)
        self.error = error

    def run(self, *arrays: Array) -> NoReturn:
        raise self.error

    def lower(self, jax: Jax, *arrays: JaxArray) -> NoReturn:
        raise self.error


class MissingOp(MissingExtern):
    """Stands for an op that nobody declared. Its derivative is missing for the same reason."""


def extern_type(same: TypeSolver, *types: Type, function: ExternFunction, linear: int) -> tuple[Type, ...]:
    """extern(*operands) -> results, with the types of `function`. It is linear in the last `linear` operands."""
    require_same_types(same, function.name, types, function.params)
    return function.results


class PrecisionUnsupported(TypeError):
    """A Python function cannot compute in a wider type; `epsilon` is the precision of its own types."""

    def __init__(self, types: Sequence[Tensor]) -> None:
        super().__init__("a function of Python has no wide numbers")
        self.epsilon = max([float(finfo(real_dtype(t)).eps) for t in types if t.dtype.differentiable], default=0.0)


def real_dtype(type: Tensor) -> np.dtype[Any]:
    """The float type of an array's real parts."""
    return np.real(np.zeros((), numpy_dtype(type.dtype))).dtype


def extern_reference(*arrays: Array, function: ExternFunction, linear: int) -> Array | list[Array]:
    """Errors: PrecisionUnsupported for longdouble arrays, which only gradient checks use."""
    if any(x.dtype in WIDE_DTYPES for x in arrays):
        raise PrecisionUnsupported((*function.params, *function.results))
    converted = [np.asarray(x, numpy_dtype(t.dtype)) for x, t in zip(arrays, function.params, strict=True)]
    found = function.run(*converted)
    return found[0] if len(found) == 1 else found


def extern_lower(jax: Jax, *arrays: JaxArray, function: ExternFunction, linear: int) -> JaxArray | list[JaxArray]:
    found = function.lower(jax, *arrays)
    return found[0] if len(found) == 1 else found


def tangent_mask(types: Sequence[Type]) -> Mask:
    """Which of these have a tangent."""
    return tuple([t.tangent is not None for t in types])


def differentiable_types(types: Sequence[Tensor]) -> tuple[Tensor, ...]:
    return tuple([t for t in types if t.tangent is not None])


def linearize(ad: Ad, eqn: Eqn, xs: Values, dxs: Tangents) -> tuple[list[Value], list[MaybeValue]]:
    """A call of the derivative at the same arguments. For a linear call, the call itself on the tangents."""
    function, linear = extern_attrs(eqn)
    ys, builder = list(xs[0].home.copy(eqn, xs)), dxs.builder
    fixed = len(xs) - linear
    if linear and not any(dxs.active[:fixed]):
        rows = [or_zeros(builder, d, x.type) for d, x in zip(dxs.values[fixed:], xs[fixed:], strict=True)]
        return ys, list(emit_extern_call(builder, function, [*xs[:fixed], *rows], linear))
    there = tangent_mask(function.results)
    if not any(there):
        return ys, [None] * len(ys)
    pushed = function.jvp or missing_jvp(function, eqn.span, bool(linear))
    rows = [or_zeros(builder, d, x.type) for d, x in zip(dxs.values, xs, strict=True) if x.type.tangent is not None]
    return ys, spread_by_mask(emit_extern_call(builder, pushed, [*xs, *rows], len(rows)), there)


def emit_extern_call(builder: Builder, function: ExternFunction, operands: Sequence[Value], linear: int) -> Values:
    own = tuple(map(builder.capture, operands))
    return builder.append(extern, own, function.results, function=function, linear=linear)


def missing_jvp(function: ExternFunction, span: Span, second_order: bool) -> MissingExtern:
    """Stands for a missing forward derivative of a call at `span`; its transpose, the vjp, may exist all the same."""
    params = (*function.params, *differentiable_types(function.params))
    if isinstance(function, MissingOp):
        return MissingOp(function.name, params, differentiable_types(function.results), function.span, function.error)
    error = (
        no_derivative_error(function, span, second_order)
        if function.vjp is None
        else wrong_mode_error(function, span, "vjp", "jvp")
    )
    found = MissingExtern(function.name, params, differentiable_types(function.results), function.span, error)
    found.transposed = function.vjp
    return found


def no_derivative_error(function: ExternFunction, span: Span, second_order: bool) -> DifflangError:
    """Errors: DL0413."""
    name = display_name(function)
    if second_order:
        message = f"the derivative of `{name}` was supplied from Python and has no derivative itself"
        fixes = (f"write it as `rule {name}(…)`, which has derivatives of any order",)
    else:
        message = f"`{name}` is a Python function: its derivative is not known"
        fixes = (
            f"write a rule: `rule {name}(x) {{ ({name}(x), linear |dx| …) }}`",
            f"or bind it with its derivative: `difflang.extern({name}, jvp=…, vjp=…)`",
            f"if it should not contribute to the derivative, write `{name}(stop(x))`",
        )
    labels = (Label(span, "a derivative goes through this call"), Label(function.span, "declared here"))
    return DifflangError(Diagnostic("DL0413", message, labels, fixes))


def wrong_mode_error(function: ExternFunction, span: Span, bound: str, required: str) -> DifflangError:
    """Errors: DL0413, where one mode is required and the other was bound."""
    mode = "forward" if required == "jvp" else "reverse"
    message = (
        f"`{display_name(function)}` was bound with a `{bound}` but no `{required}`: this derivative needs {mode} mode"
    )
    labels = (Label(span, "a derivative goes through this call"), Label(function.span, "declared here"))
    return DifflangError(Diagnostic("DL0413", message, labels, ("bind both: `jvp=…, vjp=…`",)))


def transpose(ad: Ad, eqn: Eqn, at: TransposeRequest) -> list[MaybeValue]:
    """The transposed derivative. It mixes all cotangents, so it is zero only where no incoming one is chosen."""
    function, count = extern_attrs(eqn)
    fixed = len(eqn.operands) - count
    if function.transposed is None:
        raise (
            function.error
            if isinstance(function, MissingExtern)
            else wrong_mode_error(function, eqn.span, "jvp", "vjp")
        )
    rows = [or_zeros(at.builder, ct, r.type) for ct, r in zip(at.cts, eqn.results, strict=True)]
    operands = [v for v in at.nonlinear[:fixed] if v is not None]
    found = list(emit_extern_call(at.builder, function.transposed, [*operands, *rows], len(rows)))
    found = mask_unchosen(found, at)
    return [None] * fixed + [ct if here else None for ct, here in zip(found, at.linear[fixed:], strict=True)]


def display_name(function: ExternFunction) -> str:
    """The function's name in the program, without suffixes such as `.jvp`."""
    return function.name.partition(".")[0]


def extern_attrs(eqn: Eqn) -> tuple[ExternFunction, int]:
    function, linear = eqn.attrs["function"], eqn.attrs["linear"]
    assert isinstance(function, ExternFunction) and isinstance(linear, int)
    return function, linear


def linear_in(eqn: Eqn) -> Mask:
    linear = extern_attrs(eqn)[1]
    return (False,) * (len(eqn.operands) - linear) + (True,) * linear


extern = OPS.declare(
    Op(
        "extern",
        extern_type,
        extern_reference,
        extern_lower,
        derivative=EquationRules(
            linearize=linearize,
            transpose=transpose,
            linear_in=linear_in,
            custom_rule_name=lambda eqn: display_name(eqn.attrs["function"]),
        ),
        doc="""extern(*operands): the results of a `function` that Python gives; it is linear in the last `linear`
        operands. Units: as declared. Kinks: those of the rule that it has.""",
    )
)
