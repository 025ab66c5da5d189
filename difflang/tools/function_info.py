"""`difflang info`: the functions of a file, their types, differentiable parameters, and the memory of a gradient.

The memory of a gradient is a formula in the sizes. Each size is set to a prime of its own, so that the bytes of each
array live at the peak factor into the sizes. Which arrays are live at the peak depends on which sizes are larger than
others, so a formula holds for similar proportions, which can be given. It is compared with the prediction for half and
double the sizes; if it deviates by more than a prediction may, there is no formula.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from math import isqrt, prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from difflang.base.byte_sizes import format_bytes
from difflang.base.diagnostics import DifflangError
from difflang.base.error_codes import suggestion
from difflang.driver.checked_program import CheckedProgram
from difflang.driver.run_program import load_values
from difflang.driver.type_specs import function_size_names
from difflang.execution.engine import Engine
from difflang.ir.graph import Graph
from difflang.ir.tensor_types import Tensor
from difflang.lower.lowering_pipeline import finalize_graph
from difflang.plan.budget_search import memory_limit, predict_buffers
from difflang.syntax import tree
from difflang.tools.emit import EFFECTS, EmitRequest, function_graph, transitive_effects
from difflang.types.language_types import show_type
from difflang.types.type_errors import make_error

if TYPE_CHECKING:
    from difflang.lower.buffer_assignment import BufferAssignment

DEFAULT_SIZE = 97  # a size without a given value
# The smallest prime that is unlikely to divide other numbers of a program.
MIN_PRIME = 37
TOLERANCE = 0.1  # the allowed relative error of a prediction

Powers = tuple[tuple[str, int], ...]


class MemoryFormula(Struct, frozen=True):
    """A sum of products of sizes, each with its bytes. Its `str` is an expression of the language and of Python."""

    terms: Mapping[Powers, int]

    def at(self, sizes: Mapping[str, int]) -> int:
        """The bytes at these sizes."""
        return sum([n * prod([sizes[name] ** power for name, power in powers]) for powers, n in self.terms.items()])

    def __str__(self) -> str:
        ordered = sorted(self.terms.items(), key=lambda t: (-sum([p for _, p in t[0]]), t[0]))
        texts = ["*".join([str(n), *[name for name, p in powers for _ in range(p)]]) for powers, n in ordered if n]
        return " + ".join(texts) or "0"


class FunctionInfo(Struct, frozen=True):
    """One function of a file. It has a gradient in `wrt` if its result is a real number."""

    name: str
    arguments: Mapping[str, str | None]
    dims: tuple[str, ...]
    result: str | None
    effects: tuple[str, ...]
    dtypes: Mapping[str, str] = field(default_factory=dict[str, str])
    differentiable: tuple[str, ...] = ()
    wrt: tuple[str, ...] = ()
    at: Mapping[str, int] = field(default_factory=dict[str, int])  # the sizes at which the formula was found
    formula: MemoryFormula | None = None
    why: str | None = None  # why there is no formula, or no differentiable parameter
    # The memory limit in bytes of the function or its callees; 0 for none.
    limit: int = 0

    def to_json(self) -> dict[str, Any]:
        arguments = [{"name": n, "type": t, "dtype": self.dtypes.get(n)} for n, t in self.arguments.items()]
        bytes = None if self.formula is None else str(self.formula)
        gradient = {"wrt": self.wrt, "bytes": bytes, "sizes_like": self.at, "limit": self.limit or None}
        return {
            "name": self.name, "arguments": arguments, "dims": self.dims, "result": self.result,
            "effects": self.effects, "differentiable_in": self.differentiable,
            "gradient": gradient if self.wrt else None, "why_not": self.why,
        }  # fmt: skip

    def __str__(self) -> str:
        params = ", ".join([f"{n}: {t}" if t else n for n, t in self.arguments.items()])
        head = f"{self.name}({params})" + (f" -> {self.result}" if self.result else "")
        lines = [head + (f"  # {', '.join(EFFECTS[e] for e in self.effects)}" if self.effects else "")]
        if self.differentiable:
            lines.append(f"  differentiable with respect to {', '.join(self.differentiable)}")
        if self.formula is not None:
            like = ", ".join([f"{name} = {size}" for name, size in self.at.items()])
            lines.append(f"  the gradient takes {self.formula} bytes" + (f", for sizes like {like}" if like else ""))
        if self.limit:
            lines.append(f"  `@memory` limits it to {format_bytes(self.limit)}")
        return "\n".join([*lines, *([f"  {self.why}"] if self.why else [])])


def describe_functions(
    checked: CheckedProgram, path: Path | None, sizes: Mapping[str, int], words: tuple[str, ...] = ()
) -> list[FunctionInfo]:
    """The functions of a file, with formulas for about these sizes. Errors: as a run of its statements; DL1207."""
    load_values(checked, path, Engine("interpret"), words)
    decls = list(checked.module.fns.values())
    known = dict.fromkeys([n for decl in decls for n in function_size_names(checked.module, decl)])
    for name in sizes:
        if name not in known:
            message = f"no function of {checked.module.source.name} has a size `{name}`"
            raise make_error("DL1207", message, help=suggestion(name, known))
    return [describe_function(checked, decl, sizes) for decl in decls]


def describe_function(checked: CheckedProgram, decl: tree.Fn, sizes: Mapping[str, int]) -> FunctionInfo:
    dims, found = function_size_names(checked.module, decl), checked.session.definition_results.get(decl)
    arguments = {p.name: None if p.type is None else p.type.span.text for p in decl.params}
    written = decl.result.span.text if decl.result is not None else None
    result = written or (show_type(found.type) if found is not None else None)
    head = decl.name, arguments, dims, result, tuple(sorted(transitive_effects(checked, decl)))
    if decl.host:
        return FunctionInfo(*head, why="it is a host function: it is not compiled")
    # Distinct primes identify the sizes in byte counts.
    primes = primes_near({name: sizes.get(name, DEFAULT_SIZE) for name in dims})
    try:
        plain = specialized_graph(checked, decl, primes, None)
    except DifflangError as error:
        return FunctionInfo(*head, why=f"no figure: {error.diagnostics[0].message}")
    dtypes = {p.hint: p.type.dtype.name for p in plain.params if isinstance(p.type, Tensor) and p.hint}
    try:
        wrt = tuple([p.name for p in decl.params if has_gradient(checked, decl, primes, p.name)])
    except DifflangError as error:
        why = f"no gradient: {error.diagnostics[0].message}"
        return FunctionInfo(*head, dtypes, differentiable_params(decl, plain), why=why)
    if not wrt:
        return FunctionInfo(*head, dtypes, differentiable_params(decl, plain))
    try:
        limit = memory_limit(specialized_graph(checked, decl, primes, ",".join(wrt)))
        formula, why = memory_formula(checked, decl, primes, wrt)
    except DifflangError as error:  # no derivative, as for a Python function
        return FunctionInfo(*head, dtypes, why=error.diagnostics[0].message)
    return FunctionInfo(*head, dtypes, wrt, wrt, primes, formula, why, limit)


def differentiable_params(decl: tree.Fn, plain: Graph) -> tuple[str, ...]:
    """The parameters with a tangent, if the result has one."""
    if all(r.type.tangent is None for r in plain.results):
        return ()
    hints = {p.hint.partition(".")[0] for p in plain.params if p.hint and p.type.tangent is not None}
    return tuple([p.name for p in decl.params if p.name in hints])


def has_gradient(checked: CheckedProgram, decl: tree.Fn, primes: Mapping[str, int], wrt: str) -> bool:
    """Whether there is a gradient in a parameter. Errors: those not about differentiation."""
    try:
        specialized_graph(checked, decl, primes, wrt)
    except DifflangError as error:
        if any(not d.code.startswith("DL04") for d in error.diagnostics if d.severity == "error"):
            raise
        return False
    return True


def specialized_graph(checked: CheckedProgram, decl: tree.Fn, primes: Mapping[str, int], wrt: str | None) -> Graph:
    return function_graph(
        checked, decl, EmitRequest("ir", decl.name, {n: str(size) for n, size in primes.items()}, wrt)
    )


# ---- Memory as a formula


def memory_formula(
    checked: CheckedProgram, decl: tree.Fn, primes: Mapping[str, int], wrt: Sequence[str]
) -> tuple[MemoryFormula | None, str | None]:
    """The bytes of the gradient as a formula, or why there is none."""

    def account(sizes: Mapping[str, int]) -> BufferAssignment:
        return predict_buffers(finalize_graph(specialized_graph(checked, decl, sizes, ",".join(wrt))))

    formula = MemoryFormula(
        sum([factor_bytes(b.bytes, primes) for b in account(primes).live_at_peak()], Counter[Powers]())
    )
    # The formula is an extrapolation: verify it on both sides.
    for part in (0.5, 2.0):
        sizes = {name: round(part * size) for name, size in primes.items()}
        peak = account(sizes).peak
        if abs(formula.at(sizes) - peak) > TOLERANCE * peak:
            return None, "the memory of its gradient is not a sum of products of sizes"
    return formula, None


def primes_near(sizes: Mapping[str, int]) -> dict[str, int]:
    """A distinct prime for each size, close to it."""
    found: dict[str, int] = {}
    for name, size in sizes.items():
        number = max(size, MIN_PRIME)
        while number in found.values() or any(number % n == 0 for n in range(2, isqrt(number) + 1)):
            number += 1
        found[name] = number
    return found


def factor_bytes(bytes: int, primes: Mapping[str, int]) -> Counter[Powers]:
    """A byte count as a product of sizes: each size is a prime that divides nothing else here."""
    powers: list[tuple[str, int]] = []
    for name, prime in sorted(primes.items()):
        power = 0
        while bytes and bytes % prime == 0:
            bytes, power = bytes // prime, power + 1
        if power:
            powers.append((name, power))
    return Counter({tuple(powers): bytes})
