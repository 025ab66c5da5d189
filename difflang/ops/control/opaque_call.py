"""The `opaque_call` op: calls of functions of which only the types are known, such as parameters of function type.

Nothing that contains one is run. The derivative of `f(x)` is a call of what the language's operators make of the
function: `f'` for one number, else `jvp(f)`, whose transpose is `grad(f)` or `vjp(f)`. These have derivatives of their
own, made in the same way, so there is no last order. Printed derivatives contain such calls.
"""

from __future__ import annotations

from typing import NoReturn

from difflang.base.diagnostics import InternalError
from difflang.ir.array_types import Array
from difflang.ir.builder import Builder
from difflang.ir.graph import Eqn, ExternalObject, Value, Values
from difflang.ir.op import OPS, EquationRules, MaybeValue, Op, TypeSolver
from difflang.ir.tensor_types import Tensor, Type
from difflang.ops.ad_interface import (
    Ad,
    Mask,
    Tangents,
    TransposeRequest,
    nonlinear_operands,
    or_zeros,
    require_same_types,
    spread_by_mask,
)
from difflang.ops.control.custom_linear_solve import mask_unchosen

TensorTypes = tuple[Tensor, ...]


class OpaqueFunction(ExternalObject):
    """A function, or an operator applied to one. Equality is identity.

    `operator` is None for the function itself, else it is applied to `of` with respect to the operands at `wrt`:

    * `deriv`: the derivative of a function of one number;
    * `grad`: the gradients of a scalar function, one per operand in `wrt`;
    * `jvp`: operands and tangents of those in `wrt` -> tangents of the differentiable results;
    * `vjp`: operands and cotangents of these results -> cotangents of those in `wrt`;
    * `transpose`: the transpose of a linear function.
    """

    def __init__(
        self,
        name: str,
        params: TensorTypes,
        results: TensorTypes,
        linear: int = 0,
        operator: str | None = None,
        of: OpaqueFunction | None = None,
        wrt: tuple[int, ...] = (),
    ) -> None:
        super().__init__(name)
        self.params, self.results = params, results
        # The number of last operands in which it is jointly linear.
        self.linear = linear
        self.operator, self.of, self.wrt = operator, of, wrt
        self.made: dict[tuple[str, tuple[int, ...]], OpaqueFunction] = {}

    def run(self, *arrays: Array) -> NoReturn:
        """Errors: InternalError: only its types are known."""
        return reject_opaque_call(self)

    def derived(self, operator: str, wrt: tuple[int, ...]) -> OpaqueFunction:
        """An operator applied to this function; the same object each time."""
        if (operator, wrt) not in self.made:
            params, results = self.derived_types(operator, wrt)
            linear = {"jvp": len(wrt), "vjp": len(params) - len(self.params), "transpose": len(params)}
            name = f"{operator}({self.name})"
            made = self.__class__(name, params, results, linear.get(operator, 0), operator, self, wrt)
            self.made[operator, wrt] = made
        return self.made[operator, wrt]

    def derived_types(self, operator: str, places: tuple[int, ...]) -> tuple[TensorTypes, TensorTypes]:
        """The param and result types of the derived function."""
        there = tuple([self.params[p] for p in places])
        smooth = tuple([r for r in self.results if r.tangent is not None])
        match operator:
            case "deriv":
                return self.params, self.results
            case "grad":
                return self.params, there
            case "jvp":
                return (*self.params, *there), smooth
            case "vjp":
                return (*self.params, *smooth), there
            case _:
                return self.results, self.params

    @property
    def one_number(self) -> bool:
        """Whether the result is one real number."""
        return len(self.results) == 1 and self.results[0].dtype.is_float and not self.results[0].shape

    @property
    def transposed(self) -> OpaqueFunction:
        """The transpose of a function that is linear in its last operands, with respect to these."""
        if self.operator not in ("jvp", "vjp") or self.of is None:
            return self.of if self.operator == "transpose" and self.of is not None else self.derived("transpose", ())
        if self.operator == "jvp" and self.of.operator == "grad" and self.of.wrt == self.wrt:
            return self  # a Hessian is its own transpose
        return self.of.derived("vjp" if self.operator == "jvp" else "jvp", self.wrt)


def reject_opaque_call(function: OpaqueFunction) -> NoReturn:
    raise InternalError(f"of `{function.name}` only the type is known: it does not run")


def opaque_call_type(same: TypeSolver, *types: Type, function: OpaqueFunction) -> tuple[Type, ...]:
    """opaque_call(*operands) -> results, with the types of `function`."""
    require_same_types(same, function.name, types, function.params)
    return function.results


def emit_opaque_call(builder: Builder, function: OpaqueFunction, *operands: Value) -> Values:
    return builder.append(opaque_call, tuple(map(builder.capture, operands)), function.results, function=function)


def linearize(ad: Ad, eqn: Eqn, xs: Values, dxs: Tangents) -> tuple[list[Value], list[MaybeValue]]:
    """The derivative times the tangent for one number, the call on the tangents if linear, else a call of its `jvp`."""
    function, builder = function_of(eqn), dxs.builder
    ys, fixed = list(xs[0].home.copy(eqn, xs)), len(xs) - function.linear
    there = tuple([r.tangent is not None for r in function.results])
    if function.linear and not any(dxs.active[:fixed]):
        rows = [or_zeros(builder, d, x.type) for d, x in zip(dxs.values[fixed:], xs[fixed:], strict=True)]
        return ys, list(emit_opaque_call(builder, function, *xs[:fixed], *rows))
    if not any(there):
        return ys, [None] * len(ys)
    if len(xs) == 1 and function.one_number and xs[0].type == function.results[0]:
        (slope,) = emit_opaque_call(xs[0].home, function.derived("deriv", (0,)), *xs)
        return ys, [builder.capture(slope) * dxs.present[0]]
    places = tuple([i for i, active in enumerate(dxs.active) if active])
    return ys, spread_by_mask(emit_opaque_call(builder, function.derived("jvp", places), *xs, *dxs.present), there)


def transpose(ad: Ad, eqn: Eqn, at: TransposeRequest) -> list[MaybeValue]:
    """The transposed function, or for one number its gradient; zero only where no incoming cotangent is chosen."""
    function, builder = function_of(eqn), at.builder
    cts = [or_zeros(builder, ct, r.type) for ct, r in zip(at.cts, eqn.results, strict=True)]
    known = nonlinear_operands(at.nonlinear, at.linear)
    if len(known) > len(function.params) - function.linear:
        raise InternalError(f"{function.name} is linear in all its last operands together")
    if function.operator == "jvp" and function.of is not None and function.of.one_number:
        slopes = emit_opaque_call(builder, function.of.derived("grad", function.wrt), *known)
        (ct,) = cts
        found = [fill_like(builder, ct, s.type) * s for s in slopes]
    else:
        found = list(emit_opaque_call(builder, function.transposed, *known, *cts))
    return spread_by_mask(mask_unchosen(found, at), at.linear)


def fill_like(builder: Builder, number: Value, like: Type) -> Value:
    """An array filled with that number."""
    shape = like.shape if isinstance(like, Tensor) else ()
    return builder.one("broadcast", number, shape=shape, axes=()) if shape else number


def linear_in(eqn: Eqn) -> Mask:
    linear = function_of(eqn).linear
    return (False,) * (len(eqn.operands) - linear) + (True,) * linear


def function_of(eqn: Eqn) -> OpaqueFunction:
    function = eqn.attrs["function"]
    assert isinstance(function, OpaqueFunction)
    return function


opaque_call = OPS.declare(
    Op(
        "opaque_call",
        opaque_call_type,
        lambda *arrays, function: function.run(*arrays),
        lambda jax, *arrays, function: reject_opaque_call(function),
        derivative=EquationRules(
            linearize=linearize,
            transpose=transpose,
            linear_in=linear_in,
            custom_rule_name=lambda eqn: function_of(eqn).name,
        ),
        doc="""opaque_call(*operands): the results of a `function` of which only the types are known; it is linear in
        its last `linear` operands. Units: as declared. Kinks: its own.""",
    )
)
