"""The reference and the lowering of a user's op as the engines call them: what they return is held against the type."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, cast

import numpy as np

from difflang.base.diagnostics import DifflangError
from difflang.base.wording import count_of
from difflang.embed.extern_functions import read_only_view
from difflang.gradcheck.op_calls import epsilon
from difflang.graph.graph_errors import graph_error
from difflang.graph.op_registry.rule_graphs import GraphRule, UserRule
from difflang.ir.array_types import Jax
from difflang.ir.graph import Attr
from difflang.ir.op import STRICT_SOLVER, TypeMismatch, TypeRule
from difflang.ir.symbolic_dims import Dim, Poly
from difflang.ir.tensor_types import Tensor, Type, numpy_dtype
from difflang.ops.control.extern_call import WIDE_DTYPES
from difflang.runtime.argument_conversion import DTYPE_BY_NUMPY

Array = Any
UserFunction = Callable[..., Any]  # (*arrays, **attributes) -> array or arrays


class ResultTypes:
    """The types of an op's results by those of its operands, computed once for each list of them."""

    def __init__(self, rule: TypeRule) -> None:
        self.rule = rule
        self.known: dict[Any, tuple[Type, ...]] = {}

    def __call__(self, types: Sequence[Type], attrs: Mapping[str, Attr]) -> tuple[Type, ...]:
        """Errors: TypeMismatch."""
        key = (tuple(types), tuple(attrs.items()))
        if key not in self.known:
            found = self.rule(STRICT_SOLVER, *types, **attrs)
            self.known[key] = found if isinstance(found, tuple) else (found,)
        return self.known[key]

    def of_arrays(self, arrays: Sequence[Array], attrs: Mapping[str, Attr]) -> tuple[Type, ...] | None:
        """The same for arrays; None for element types that the op does not take: gradient checks use other ones."""
        dtypes = [DTYPE_BY_NUMPY.get(np.dtype(x.dtype)) for x in arrays]
        types = [Tensor(d, tuple(x.shape)) for d, x in zip(dtypes, arrays, strict=True) if d is not None]
        try:
            return self(types, attrs) if len(types) == len(arrays) else None
        except TypeMismatch:
            return None


def rule_fault(name: str, rule: str, problem: str, help: str = "", cause: BaseException | None = None) -> NoReturn:
    """Errors: DL1271, which says of which op."""
    raise graph_error("DL1271", f"the {rule} of `{name}` {problem}", help=help) from cause


def call_rule(name: str, rule: str, function: UserFunction, arrays: Sequence[Array], attrs: Mapping[str, Attr]) -> Any:
    """What a function of the user returns. Errors: DL1271 with what it raises."""
    try:
        return function(*arrays, **attrs)
    except DifflangError:
        raise
    except (Exception, SystemExit) as error:  # noqa: BLE001  whatever a function of the user raises
        first = next(iter(str(error).splitlines()), "")
        problem = f"raised {error.__class__.__name__}{': ' if first else ''}{first}"
        given = ", ".join(map(array_text, arrays))
        keywords = "".join([f", {n}=…" for n in attrs])
        rule_fault(name, rule, problem, f"it was called with ({given}{keywords})", error)


def checked_reference(name: str, function: UserFunction, result_types: ResultTypes) -> UserFunction:
    """The reference of an op. Its operands are read-only, as others read them too. Floats of 16 bits are computed in
    f32 and rounded once.

    Errors: DL1271.
    """

    def reference(*arrays: Array, **attrs: Attr) -> Array | list[Array]:
        arrays = tuple([read_only_view(np.asarray(x)) for x in arrays])
        wanted = result_types.of_arrays(arrays, attrs)
        if wanted is None:
            return wide_reference(function, arrays, attrs)
        found = call_rule(name, "reference", function, [upcast_half(x) for x in arrays], attrs)
        results = as_results(name, "reference", found, len(wanted))
        arrays = tuple([downcast_half(np.asarray(y), t) for y, t in zip(results, wanted, strict=True)])
        for y, type in zip(arrays, wanted, strict=True):
            if (y.dtype, y.shape) != (numpy_dtype(type_of_array(type).dtype), type_of_array(type).shape):
                rule_fault(name, "reference", f"gives {array_text(y)}, not {type}")
        return arrays[0] if len(arrays) == 1 else list(arrays)

    return reference


def wide_reference(function: UserFunction, arrays: Sequence[Array], attrs: Mapping[str, Attr]) -> Array | list[Array]:
    """The reference in extended precision. Errors: TypeError if it does not compute in that, as for `evaluate_wide`."""
    try:
        found = function(*arrays, **attrs)
    except Exception as error:
        raise TypeError(f"it raised {error.__class__.__name__} in extended precision") from error
    several = isinstance(found, (tuple, list))
    results = [np.asarray(y) for y in (cast(Sequence[Any], found) if several else (found,))]
    narrow = [y.dtype for y in results if y.dtype.kind in "fc" and y.dtype not in WIDE_DTYPES]
    if narrow and any(x.dtype in WIDE_DTYPES for x in arrays):
        error = TypeError(f"it gives {narrow[0]} in extended precision")
        error.epsilon = max(map(epsilon, narrow))  # type: ignore[attr-defined]  gradient checks read it
        raise error
    return results if several else results[0]


def upcast_half(x: Array) -> Array:
    return x.astype(np.float32) if x.dtype.itemsize == 2 and x.dtype.kind in "fV" else x


def downcast_half(x: Array, wanted: Type) -> Array:
    dtype = type_of_array(wanted).dtype
    return x.astype(numpy_dtype(dtype)) if x.dtype == np.float32 and dtype.bits == 16 and dtype.is_float else x


def checked_lowering(name: str, rule: str, function: UserFunction, result_types: ResultTypes) -> Callable[..., Any]:
    """The lowering of an op, as the package calls it: with JAX as its first argument. Errors: DL1271."""

    def lower(jax: Jax, *arrays: Array, **attrs: Attr) -> Array | list[Array]:
        wanted = result_types.of_arrays(arrays, attrs)
        assert wanted is not None
        results = as_results(name, rule, call_rule(name, rule, function, arrays, attrs), len(wanted))
        found = [convert_result(jax, name, rule, y, t) for y, t in zip(results, wanted, strict=True)]
        return found[0] if len(found) == 1 else found

    return lower


def convert_result(jax: Jax, name: str, rule: str, result: Any, wanted: Type) -> Array:
    type = type_of_array(wanted)
    try:
        found = jax.numpy.asarray(result)
    except (TypeError, ValueError) as error:
        rule_fault(name, rule, f"gives {result!r:.60}, which is no array", cause=error)
    if (found.dtype, found.shape) != (numpy_dtype(type.dtype), type.shape):
        rule_fault(name, rule, f"gives {array_text(found)}, not {wanted}")
    return jax.lax.convert_element_type(found, found.dtype)  # whose element type is not weak


def as_results(name: str, rule: str, found: Any, count: int) -> Sequence[Any]:
    """What a rule returned, one array for each result. Errors: DL1271 for another number."""
    results = cast(Sequence[Any], found) if isinstance(found, (tuple, list)) else (found,)
    if len(results) != count:
        rule_fault(name, rule, f"gives {count_of(len(results), 'array')}, not {count}")
    return results


def array_text(x: Array) -> str:
    dtype = DTYPE_BY_NUMPY.get(np.dtype(x.dtype))
    return str(Tensor(dtype, tuple(x.shape))) if dtype else f"an array of {x.dtype}"


def type_of_array(type: Type) -> Tensor:
    assert isinstance(type, Tensor)
    return type


def checked_cost(name: str, function: Callable[..., Any]) -> Callable[..., Dim]:
    """The cost of an op: a number of operations for the types of its operands. Errors: DL1271."""

    def cost(*types: Type, **attrs: Attr) -> Dim:
        try:
            found = function(*types, **attrs)
        except (Exception, SystemExit) as error:  # noqa: BLE001  whatever a function of the user raises
            rule_fault(name, "cost", f"raised {error.__class__.__name__}: {error}", cause=error)
        if isinstance(found, (int, float, np.integer)) and found >= 0 and np.isfinite(found):
            return int(found)
        if not isinstance(found, Poly):
            rule_fault(name, "cost", f"is {found!r:.40}, no number of operations")
        return found

    return cost


# ---- Derivatives


def operand_jvp(name: str, operand: str, rule: UserRule, names: Sequence[str], result_types: ResultTypes) -> GraphRule:
    """The jvp in one operand: `(b, dx, y, *operands)`, linear in the tangent `dx`."""

    def expected(arguments: Sequence[Any], attrs: Mapping[str, Attr]) -> list[Type]:
        types = result_types([x.type for x in arguments[2:]], attrs)
        # A result without a tangent has no term, whatever the rule gives: None stands for it.
        return [t.tangent or t for t in types]

    what = f"the jvp of `{name}` in `{operand}`"
    return GraphRule(what, rule, [f"d{operand}", "y", *names], expected, linear=True)


def operand_transpose(name: str, place: int, rule: UserRule, names: Sequence[str]) -> GraphRule:
    """The transpose in one operand: `(b, ct, *operands)`, where those that it is transposed in are only types."""

    def expected(arguments: Sequence[Any], attrs: Mapping[str, Attr]) -> list[Type]:
        return [arguments[1 + place].type]

    what = f"the transpose of `{name}` in `{names[min(place, len(names) - 1)]}`"
    return GraphRule(what, rule, ["ct", *names], expected, linear=True)
