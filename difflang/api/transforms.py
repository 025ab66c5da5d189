"""Transformations of a loaded function: derivatives, `vmap`, and binding of sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from difflang.api.loaded_program import Dims, LoadedProgram
from difflang.api.option_values import class_with_article, parse_jet_order, parse_size
from difflang.api.signature import Signature
from difflang.api.vmap_axes import InAxes, parse_in_axes, parse_out_axes
from difflang.base.error_codes import nearest_word
from difflang.base.errors import Unpicklable, classify_errors
from difflang.driver.type_specs import MOST
from difflang.types.function_code import DerivativeCode, VmapCode, Wrt
from difflang.types.language_types import ClosureType
from difflang.types.type_errors import make_error

WrtSpec = int | str | Sequence[int | str]


class TransformMixin(Unpicklable):
    """Methods that derive functions. `sizes` are the bound sizes; `full_signature` includes their parameters."""

    __name__: str
    loaded: LoadedProgram
    function_type: ClosureType
    captures: tuple[Any, ...]
    signature: Signature
    full_signature: Signature
    sizes: Dims

    # ---- Derivatives

    def grad(self, wrt: WrtSpec = 0, *more: int | str) -> Self:
        """The gradient in a parameter: by position, by name, or by a path of fields such as `"m.w"`.

        Several parameters give a record with those names. The function's result must be one real number.
        """
        return self._derivative("grad", wrt, more)

    def value_and_grad(self, wrt: WrtSpec = 0, *more: int | str) -> Self:
        """The value, and the gradient as by `grad`."""
        return self._derivative("value_and_grad", wrt, more)

    def jvp(self, wrt: WrtSpec = 0, *more: int | str) -> Self:
        """A function of the arguments, then a tangent for each `wrt`: the value, and its tangent."""
        return self._derivative("jvp", wrt, more)

    def vjp(self, wrt: WrtSpec = 0, *more: int | str) -> Self:
        """A function of the arguments: the value, and the pullback, a function of a cotangent of the value."""
        return self._derivative("vjp", wrt, more)

    def linearize(self, wrt: WrtSpec = 0, *more: int | str) -> Self:
        """A function of the arguments: the value, and the derivative there, a function of a tangent."""
        return self._derivative("linearize", wrt, more)

    def hvp(self, wrt: WrtSpec = 0, *more: int | str) -> Self:
        """A function of the arguments, then a tangent for each `wrt`: the Hessian-vector product."""
        return self._derivative("hvp", wrt, more)

    def hessian(self, wrt: int | str = 0) -> Self:
        """All second derivatives as an array, `[..argument, ..argument]`."""
        return self._derivative("hessian", wrt, ())

    def jacobian(self, wrt: int | str = 0) -> Self:
        """All derivatives of an array as an array, `[..result, ..argument]`, in the cheaper mode."""
        return self._derivative("jacobian", wrt, ())

    def jacfwd(self, wrt: int | str = 0) -> Self:
        """The Jacobian in forward mode."""
        return self._derivative("jacfwd", wrt, ())

    def jacrev(self, wrt: int | str = 0) -> Self:
        """The Jacobian in reverse mode."""
        return self._derivative("jacrev", wrt, ())

    def deriv(self, wrt: int | str = 0) -> Self:
        """The derivative of a function of one number."""
        return self._derivative("deriv", wrt, ())

    def jet(self, order: int, wrt: int | str = 0) -> Self:
        """The Taylor coefficients up to an order, 0 to 64, in a scalar parameter, along a new first axis.

        Errors: DL0405 for an invalid order.
        """
        with classify_errors():
            known = parse_jet_order(order)
        return self._derivative("jet", wrt, (), known)

    def _derivative(self, operator: str, wrt: WrtSpec, more: tuple[int | str, ...], order: int = 1) -> Self:
        with classify_errors():
            places = tuple(self._wrt_path(w) for w in (*wrt_list(wrt), *more))
            if not places:
                help = f"`{self.__name__}.{operator}()` differentiates with respect to the first"
                raise make_error("DL0403", "name at least one parameter to differentiate with respect to", help=help)
            return self._with_type(ClosureType(DerivativeCode(operator, places, order), (self.function_type,)))

    def _with_type(self, type: ClosureType, sizes: Dims | None = None) -> Self:
        raise NotImplementedError

    def _wrt_path(self, wrt: object) -> Wrt:
        """A parameter, and a path of fields in it. Errors: DL0403."""
        names = self.signature.names
        if not isinstance(wrt, (int, str)) or isinstance(wrt, bool):
            help = f"the derivative is itself a function of the arguments: `{self.__name__}.grad()(…)`"
            raise make_error(
                "DL0403", f"name a parameter by a string or a number, not by {class_with_article(wrt)}", help=help
            )
        if isinstance(wrt, int):
            if self.signature.fixed and not -len(names) <= wrt < len(names):
                raise make_error(
                    "DL0403", f"`{self.__name__}` has no parameter {wrt}", help=f"it has {', '.join(names) or 'none'}"
                )
            # Positions change when `dim` parameters are bound: refer to the parameter by name.
            if self.sizes:
                return (names[wrt],)
            return (wrt % len(names) if self.signature.fixed else wrt,)
        first, *path = wrt.split(".")
        if first not in names:
            near = nearest_word(first, names)
            help = f"did you mean `{near}`?" if near else f"it has {', '.join(names) or 'none'}"
            if "," in wrt:
                several = [repr(w.strip()) for w in wrt.split(",") if w.strip()]
                help = f"pass several as separate strings: {', '.join(several)}"
            raise make_error("DL0403", f"`{self.__name__}` has no parameter `{first}`", help=help)
        return (first, *path)

    def _wrt_name(self, place: Wrt) -> str:
        """A parameter, or a field of it, by the name of its values."""
        first, *path = place
        return ".".join([self.signature.names[first] if isinstance(first, int) else first, *map(str, path)])

    # ---- `vmap`, and binding of sizes

    def vmap(self, in_axes: InAxes = 0, out_axes: int | Sequence[int] = 0) -> Self:
        """The function on a batch, element by element, like `vmap` and comprehensions in the language.

        `in_axes` is the batch axis of each argument: one number for all, one per argument in order, or by name. None,
        or a missing name, means that the whole batch shares the argument; sizes, texts and functions are always shared.
        For a record the axis applies to each array in it. `out_axes` is the batch axis of the result: a number, or one
        for each item of a tuple.

        A batch element that does not run, as behind a condition, prints nothing, fails no check and keeps no loop
        running. If a check fails the call raises, for the first element that failed. Random draws differ between
        elements.

        Errors: ArgumentError for invalid axes, here or at the call; CheckError for a result that is a function.
        """
        with classify_errors():
            axes = dict(zip(self.signature.names, parse_in_axes(self.__name__, self.signature, in_axes), strict=True))
            code = VmapCode(tuple([axes.get(n) for n in self.full_signature.names]), parse_out_axes(out_axes))
            return self._with_type(ClosureType(code, (self.function_type,)))

    def bind(self, **dims: int) -> Self:
        """The function with sizes bound: its `dim` parameters, and size names in the types of its parameters.

        A bound `dim` is no longer a parameter; arguments of other sizes are refused. `ir`, `lower`, `memory`, `cost`
        and `export` use bound sizes: with every size bound they need no specs, except for a mapped function, whose
        batch size only arguments determine.

        Errors: ArgumentError for an unknown or already bound size, and for a value that is not a valid size.
        """
        with classify_errors():
            free, bound = self.signature.dims, dict(self.sizes)
            for name in dims:
                if name in bound:
                    way = "bind the sizes of the function it was made from"
                    raise make_error("DL1207", f"the size `{name}` is already bound to {bound[name]}", help=way)
                if name not in free:
                    near = nearest_word(name, free)
                    has = f"its sizes are {', '.join(free)}" if free else "it has no free sizes"
                    way = f"did you mean `{near}`?" if near else has
                    raise make_error("DL1207", f"`{self.__name__}` has no size `{name}`", help=way)
            declared = {p.name: p.span for p in self.signature.parameters if p.is_dim}
            given = {
                name: parse_size(name, size, declared.get(name), least=-MOST if name in declared else 0)
                for name, size in dims.items()
            }
            return self._with_type(self.function_type, tuple(sorted([*self.sizes, *given.items()])))


def wrt_list(wrt: WrtSpec) -> list[object]:
    """The requested parameters as a list."""
    return list(wrt) if isinstance(wrt, (list, tuple)) else [wrt]
