"""Functions that Python gives: `extern fn` in a program, bound from outside.

`extern(*operands)` is a call of one. What it does is in its attribute `function`, a `Foreign`, which `embed` makes;
here is what the compiler knows of it: the types, that it is pure, and how its derivative goes. That of `f` at x along
dx is a call of `f.pushed` on x and dx, linear in dx; turned round it is a call of `f.pulled` on x and the cotangents.
Where Python gives neither the derivative is refused, and so are further derivatives: nothing here knows them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np
from ml_dtypes import finfo

from difflang.base.diagnostics import Diagnostic, DifflangError, Label
from difflang.base.source import Span
from difflang.ir.builder import Builder
from difflang.ir.graph import Eqn, Outside, Value, Values
from difflang.ir.interpreter import numpy_dtype
from difflang.ir.op import OPS, MaybeValue, Op, Solver
from difflang.ir.tensor_types import Tensor, Type
from difflang.ops.ad_interface import Ad, Mask, Tangents, Turning, alike, or_zeros, spread
from difflang.ops.control.custom_linear_solve import mixed

WIDE = (np.dtype(np.longdouble), np.dtype(np.clongdouble))


class Foreign(Outside):
    """A function of Python for arguments of certain types. Two are equal if they are the same.

    `pushed` is its derivative: operands, then a tangent for each operand that has one -> a tangent for each result that
    has one. `pulled` is that turned round: operands, then cotangents of these results -> cotangents of these operands.
    Of such a pair, each is `turned` the other.
    """

    def __init__(self, name: str, params: tuple[Tensor, ...], results: tuple[Tensor, ...], span: Span) -> None:
        super().__init__(name)
        self.params, self.results = params, results
        self.span = span  # where it is declared
        self.host = False  # it runs in Python while the program does
        self.failure: DifflangError | KeyboardInterrupt | None = None  # of its last run, while nobody has asked for it
        self.pushed: Foreign | None = None
        self.pulled: Foreign | None = None
        self.turned: Foreign | None = None

    def run(self, *arrays: Any) -> list[Any]:
        """Its results on NumPy arrays."""
        raise NotImplementedError

    def lower(self, jax: Any, *arrays: Any) -> list[Any]:
        """Its results in the trace that is going on."""
        raise NotImplementedError


class Missing(Foreign):
    """Stands where a function is not there; what it stands in may be checked, derived and dropped, and never runs."""

    def __init__(
        self, name: str, params: tuple[Tensor, ...], results: tuple[Tensor, ...], span: Span, error: DifflangError
    ) -> None:
        super().__init__(name, params, results, span)
        self.error = error

    def run(self, *arrays: Any) -> NoReturn:
        raise self.error

    def lower(self, jax: Any, *arrays: Any) -> NoReturn:
        raise self.error


def extern_type(same: Solver, *types: Type, function: Foreign, linear: int) -> tuple[Type, ...]:
    """extern(*operands) -> results, of the types that `function` has. It is linear in the last `linear` operands."""
    alike(same, function.name, types, function.params)
    return function.results


class Narrow(TypeError):
    """What Python gives computes in its own numbers; `epsilon` is the relative distance between two of them."""

    def __init__(self, types: Sequence[Tensor]) -> None:
        super().__init__("a function of Python has no wide numbers")
        self.epsilon = max([float(finfo(part_of(t)).eps) for t in types if t.dtype.differentiable], default=0.0)


def part_of(type: Tensor) -> Any:
    """The floats that an array is made of."""
    return np.real(np.zeros((), numpy_dtype(type.dtype))).dtype


def extern_reference(*arrays: Any, function: Foreign, linear: int) -> Any:
    """Errors: Narrow for numbers wider than any that Python is told of: an audit's."""
    if any(x.dtype in WIDE for x in arrays):
        raise Narrow((*function.params, *function.results))
    given = [np.asarray(x, numpy_dtype(t.dtype)) for x, t in zip(arrays, function.params, strict=True)]
    found = function.run(*given)
    return found[0] if len(found) == 1 else found


def extern_lower(jax: Any, *arrays: Any, function: Foreign, linear: int) -> Any:
    found = function.lower(jax, *arrays)
    return found[0] if len(found) == 1 else found


def smooth(types: Sequence[Type]) -> Mask:
    """Which of these have a tangent."""
    return tuple([t.tangent is not None for t in types])


def tangents_of(types: Sequence[Tensor]) -> tuple[Tensor, ...]:
    return tuple([t for t in types if t.tangent is not None])


def linearize(ad: Ad, eqn: Eqn, xs: Values, dxs: Tangents) -> tuple[list[Value], list[MaybeValue]]:
    """A call of the derivative at the same arguments. Of a call that is linear, the call itself on the tangents."""
    function, linear = parts(eqn)
    ys, builder = list(xs[0].home.copy(eqn, xs)), dxs.builder
    fixed = len(xs) - linear
    if linear and not any(dxs.active[:fixed]):
        rows = [or_zeros(builder, d, x.type) for d, x in zip(dxs.values[fixed:], xs[fixed:], strict=True)]
        return ys, list(called(builder, function, [*xs[:fixed], *rows], linear))
    there = smooth(function.results)
    if not any(there):
        return ys, [None] * len(ys)
    pushed = function.pushed or underived(function, eqn.span, bool(linear))
    rows = [or_zeros(builder, d, x.type) for d, x in zip(dxs.values, xs, strict=True) if x.type.tangent is not None]
    return ys, spread(called(builder, pushed, [*xs, *rows], len(rows)), there)


def called(builder: Builder, function: Foreign, operands: Sequence[Value], linear: int) -> Values:
    own = tuple(map(builder.own, operands))
    return builder.append(extern, own, function.results, function=function, linear=linear)


def underived(function: Foreign, span: Span, again: bool) -> Missing:
    """What stands for a derivative that nobody gave, of a call at `span`; the way back may be there all the same."""
    params = (*function.params, *tangents_of(function.params))
    error = no_rule(function, span, again) if function.pulled is None else one_way(function, span, "vjp", "jvp")
    found = Missing(function.name, params, tangents_of(function.results), function.span, error)
    found.turned = function.pulled
    return found


def no_rule(function: Foreign, span: Span, again: bool) -> DifflangError:
    """Errors: DL0413."""
    name = named(function)
    if again:
        message = f"the derivative of `{name}` was given from Python, and has no derivative itself"
        ways = (f"write it as `rule {name}(…)`, which has derivatives of any order",)
    else:
        message = f"`{name}` is a function of Python: its derivative is not known"
        ways = (
            f"write it: `rule {name}(x) {{ ({name}(x), linear |dx| …) }}`",
            f"or bind it with its derivative: `difflang.extern({name}, jvp=…, vjp=…)`",
            f"where it shall not matter, `{name}(stop(x))` says so",
        )
    labels = (Label(span, "a derivative goes through this"), Label(function.span, "declared here"))
    return DifflangError(Diagnostic("DL0413", message, labels, ways))


def one_way(function: Foreign, span: Span, given: str, wanted: str) -> DifflangError:
    """Errors: DL0413, where one mode is asked for and the other was given."""
    mode = "forward" if wanted == "jvp" else "reverse"
    message = f"`{named(function)}` was bound with a `{given}` and no `{wanted}`: this is {mode} mode"
    labels = (Label(span, "a derivative goes through this"), Label(function.span, "declared here"))
    return DifflangError(Diagnostic("DL0413", message, labels, ("bind it with both: `jvp=…, vjp=…`",)))


def transpose(ad: Ad, eqn: Eqn, at: Turning) -> list[MaybeValue]:
    """The derivative turned round, zero where nothing that arrives is chosen: it mixes all of that."""
    function, count = parts(eqn)
    fixed = len(eqn.operands) - count
    if function.turned is None:
        raise function.error if isinstance(function, Missing) else one_way(function, eqn.span, "jvp", "vjp")
    rows = [or_zeros(at.builder, ct, r.type) for ct, r in zip(at.cts, eqn.results, strict=True)]
    operands = [v for v in at.known[:fixed] if v is not None]
    found = list(called(at.builder, function.turned, [*operands, *rows], len(rows)))
    found = mixed(found, at)
    return [None] * fixed + [ct if here else None for ct, here in zip(found, at.linear[fixed:], strict=True)]


def named(function: Foreign) -> str:
    """What the program calls it, or what it is the derivative of."""
    return function.name.partition(".")[0]


def parts(eqn: Eqn) -> tuple[Foreign, int]:
    function, linear = eqn.attrs["function"], eqn.attrs["linear"]
    assert isinstance(function, Foreign) and isinstance(linear, int)
    return function, linear


def linear_in(eqn: Eqn) -> Mask:
    linear = parts(eqn)[1]
    return (False,) * (len(eqn.operands) - linear) + (True,) * linear


extern = OPS.declare(
    Op(
        "extern",
        extern_type,
        extern_reference,
        extern_lower,
        linearize=linearize,
        transpose_region=transpose,
        linear_in=linear_in,
        declared=lambda eqn: named(eqn.attrs["function"]),
        doc="""extern(*operands): the results of a `function` that Python gives; it is linear in the last `linear`
        operands. Units: as declared. Kinks: those of the rule that it has.""",
    )
)
