"""Compares a rule's derivative with the derivative of the function's body, and with its own transpose.

A wrong rule still loads; this finds it. One function is compared at one point along random tangents.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from difflang.driver.capacity_for_call import with_fitted_capacity
from difflang.driver.checked_program import CheckedProgram
from difflang.driver.elaborate_call import CallArgument, ElaboratedCall, elaborate_call
from difflang.driver.run_program import load_values
from difflang.elaborate.context import Session
from difflang.host.lazy_globals import LazyGlobals
from difflang.host.values import HostValue
from difflang.ir.graph import Eqn, Graph
from difflang.ir.interpreter import evaluate, evaluate_eqn, run_equations
from difflang.ir.tensor_types import Tensor
from difflang.lower.lowering_pipeline import expand_keeping_rules, finalize_graph
from difflang.ops.loop.invertible_op import invertible
from difflang.types.function_code import DerivativeCode, FnCode
from difflang.types.language_types import UNIT, ClosureType, LangType, TupleType, leaf_types, tangent_type
from difflang.types.module_scope import GlobalName, ModuleScope

Arrays = Sequence[Any]


class RuleComparison(Struct, frozen=True):
    """The largest relative differences of elements; a few ε for correct rules.

    `value` and `tangent` compare the derivative by rules with that of the bodies; `adjoint_gap` is
    <ct, J dx> - <Jᵀ ct, dx>| over the sum of absolute terms.
    """

    value: float
    tangent: float
    adjoint_gap: float

    def within(self, tolerance: float) -> bool:
        return max(self.value, self.tangent, self.adjoint_gap) <= tolerance


def compare_rule(
    checked: CheckedProgram, name: str, arguments: Sequence[HostValue], *, path: Path | None = None, seed: int = 0
) -> RuleComparison:
    """Compare a function's derivative by the rules of its file and imports with its derivative without rules, in NumPy.

    The function and its callees may have rules. It takes no function arguments: pass a function that closes over them.
    Errors: DifflangError as in a call of its `jvp`.
    """
    module = checked.module
    captured = load_values(checked, path)
    rng = np.random.default_rng(seed)
    tangents = random_tangents(rng, arguments)
    # The same tangents and arguments for both modules.
    ruled, bare = (DerivativeCalls(m, name, arguments, captured) for m in (module, without_rules(module, captured)))
    by_rule, by_body = ruled.push(tangents), bare.push(tangents)
    count = len(leaf_types(ruled.result))
    cts = [random_array(rng, t) for t in leaf_types(tangent_type(ruled.result))]
    pulled = ruled.pull(cts)
    return RuleComparison(
        max_relative_difference(by_rule[:count], by_body[:count]),
        max_relative_difference(by_rule[count:], by_body[count:]),
        adjoint_error(cts, by_rule[count:], pulled, tangents),
    )


def inverse_error(
    checked: CheckedProgram, name: str, arguments: Sequence[HostValue], of: str, *, path: Path | None = None
) -> float:
    """The error of the inverse of the function `of`, wherever `name` calls it: its inverse against the original state.

    The largest difference of two numbers, relative to the magnitude of each array. Errors: DifflangError as in a call.
    """
    calls = DerivativeCalls(checked.module, name, arguments, load_values(checked, path))
    entry, given = calls.entry(calls.function, [], arguments)
    found = [0.0]

    def step(eqn: Eqn, operands: list[Any]) -> list[Any]:
        results = evaluate_eqn(eqn, operands, run)
        if eqn.op is invertible and eqn.attrs["name"] == of:
            state = eqn.attrs["state"]
            restored = run(eqn.regions[1], *results[:state], *operands[state:])
            found.extend(map(relative_distance, restored, operands[:state], results[:state]))
        return results

    def run(graph: Graph, *arrays: Any) -> list[Any]:
        return run_equations(graph, arrays, step)

    with np.errstate(all="ignore"):
        run(expand_keeping_rules(entry.graph), *given)
    return max(found)


def relative_distance(found: Any, expected: Any, between: Any) -> float:
    """The largest difference of two arrays, relative to the largest number in the expected one and in `between`."""
    if not np.size(expected):
        return 0.0
    if not np.issubdtype(np.asarray(expected).dtype, np.inexact):
        return 0.0 if np.array_equal(found, expected) else np.inf
    size = max(float(np.max(np.abs(np.asarray(x, complex)))) for x in (expected, between))
    most = float(np.max(np.abs(np.asarray(found, complex) - np.asarray(expected, complex))))
    return float(np.nan_to_num(most / size if size else most, nan=np.inf))


def rounding_sensitivity(
    checked: CheckedProgram, name: str, arguments: Sequence[HostValue], *, path: Path | None = None, seed: int = 0
) -> float:
    """The relative change of the body's derivative when the last digits of the arguments change.

    For an iteration that wanders before it converges, rounding decides the derivative, which then says nothing of a
    rule.
    """
    captured = load_values(checked, path)
    module = without_rules(checked.module, captured)
    tangents = random_tangents(np.random.default_rng(seed), arguments)
    changes: list[Arrays] = []
    for values in (arguments, [perturb_value(a) for a in arguments]):
        calls = DerivativeCalls(module, name, values, captured)
        pushed = calls.push(tangents)
        changes.append(pushed[len(leaf_types(calls.result)) :])
    return max_relative_difference(*changes)


def perturb_value(value: HostValue) -> HostValue:
    """The value with its floats changed by some ulps: enough to change a sum with something larger."""
    if value.leaves is None:
        return value
    types = leaf_types(value.type)
    steps = [64.0 * float(ml_dtypes.finfo(t.dtype.numpy).eps) if t.tangent is not None else None for t in types]
    moved = [x if s is None else np.asarray(x * (1.0 + s)).astype(np.asarray(x).dtype)
             for x, s in zip(value.leaves, steps, strict=True)]  # fmt: skip
    return replace(value, leaves=tuple(moved))


def random_tangents(rng: np.random.Generator, arguments: Sequence[HostValue]) -> list[np.ndarray]:
    return [random_array(rng, t) for a in arguments for t in leaf_types(tangent_type(a.type))]


def without_rules(module: ModuleScope, captured: LazyGlobals) -> ModuleScope:
    """The module without rules, its own and imported; its top-level values are the same."""
    # Imports must refer to the copies too: a rule may be in any module.
    copies = {m: replace(m, rules={}) for m in module.transitive_imports()}
    for original, copy in copies.items():
        copy.modules = {name: copies[m] for name, m in original.modules.items()}
        copy.imported = {name: GlobalName(copies[g.module], g.name) for name, g in original.imported.items()}
        captured.runner.hosts[copy] = captured.runner.hosts[original]
    return copies[module]


class DerivativeCalls:
    """Derivatives of a function at a point, by the interpreter."""

    def __init__(self, module: ModuleScope, name: str, arguments: Sequence[HostValue], captured: LazyGlobals) -> None:
        self.module, self.name, self.arguments, self.captured = module, name, arguments, captured
        self.function = ClosureType(FnCode(module.fns[name], module), ())
        self.wrt = tuple((i,) for i, a in enumerate(arguments) if leaf_types(tangent_type(a.type)))
        self.result: LangType = TupleType(())

    def push(self, tangents: Arrays) -> list[np.ndarray]:
        """The value and its tangent, as leaves."""
        rest = iter(tangents)
        moving = [self.arguments[i] for (i,) in self.wrt]
        types = [tangent_type(a.type) for a in moving]
        given = [HostValue(t, tuple([next(rest) for _ in leaf_types(t)])) for t in types]
        found, type = self.run(self.derivative("jvp"), [], [*self.arguments, *given])
        assert isinstance(type, TupleType)
        self.result = type.items[0]
        return found

    def pull(self, cts: Arrays) -> list[np.ndarray]:
        """The cotangents of the arguments."""
        found, type = self.run(self.derivative("vjp"), [], self.arguments)
        assert isinstance(type, TupleType)
        value, map = type.items
        assert isinstance(map, ClosureType)
        residuals = found[len(leaf_types(value)) :]
        back, _ = self.run(map, residuals, [HostValue(tangent_type(value), tuple(cts))])
        return back

    def derivative(self, operator: str) -> ClosureType:
        return ClosureType(DerivativeCode(operator, self.wrt), (self.function,))

    def run(
        self, function: ClosureType, captures: Arrays, values: Sequence[HostValue]
    ) -> tuple[list[np.ndarray], LangType]:
        entry, given = self.entry(function, captures, values)
        results = [np.asarray(x) for x in evaluate(finalize_graph(entry.graph), *given)]
        return results[: len(leaf_types(entry.type))], entry.type

    def entry(
        self, function: ClosureType, captures: Arrays, values: Sequence[HostValue]
    ) -> tuple[ElaboratedCall, Arrays]:
        """The elaborated graph of a function, and its arguments."""
        arguments = [CallArgument(f"x{i}", v.type, static_size(v)) for i, v in enumerate(values)]
        session = Session()
        entry = elaborate_call(session, self.module, self.name, function, arguments)
        arrays = [*captures, *[leaf for v in values for leaf in v.leaves or ()]]
        arrays += [np.zeros(2, np.uint32)] * entry.random
        arrays += [leaf for name in entry.globals for leaf in self.captured.leaves(name)]
        given = [np.asarray(x) for x in arrays]
        return with_fitted_capacity(session, entry, given), given


def static_size(value: HostValue) -> int | None:
    """The number passed for a `dim` parameter."""
    return value.static if value.type == UNIT and isinstance(value.static, int) else None


def random_array(rng: np.random.Generator, type: Tensor) -> np.ndarray:
    shape = tuple([d for d in type.shape if isinstance(d, int)])
    drawn = rng.standard_normal(shape)
    if type.dtype.kind == "complex":
        drawn = drawn + 1j * rng.standard_normal(shape)
    return np.asarray(drawn).astype(type.dtype.numpy)


def max_relative_difference(found: Arrays, expected: Arrays) -> float:
    """The largest relative difference of two numbers; 0 if both are 0 or both NaN."""
    most = 0.0
    for a, b in zip(found, expected, strict=True):
        x, y = np.asarray(a, complex).ravel(), np.asarray(b, complex).ravel()
        # Equal infinities count as equal, and so do NaNs.
        differ = ~((x == y) | (np.isnan(x) & np.isnan(y)))
        if differ.any():
            scale = np.abs(x[differ]) + np.abs(y[differ])
            most = max(most, float(np.nan_to_num(np.abs(x - y)[differ] / scale, nan=np.inf).max()))
    return most


def inner_terms(cts: Arrays, changes: Arrays) -> np.ndarray:
    """The terms of the inner product of cotangents and tangents."""
    return np.concatenate([np.ravel(np.real(np.conj(c) * d)) for c, d in zip(cts, changes, strict=True)])


def adjoint_error(cts: Arrays, pushed: Arrays, pulled: Arrays, tangents: Arrays) -> float:
    left, right = inner_terms(cts, pushed), inner_terms(pulled, tangents)
    total = float(np.abs(left).sum() + np.abs(right).sum())
    return abs(float(left.sum() - right.sum())) / total if total else 0.0
