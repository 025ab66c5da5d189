"""Holds derivatives that are written down against the derivatives themselves, at arguments that are drawn."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from msgspec.structs import replace

from difflang.base.diagnostics import DifflangError
from difflang.base.source import Source
from difflang.driver.checked_program import CheckedProgram, check_program
from difflang.driver.elaborate_call import CallArgument, ElaboratedCall, elaborate_call
from difflang.driver.run_program import load_values
from difflang.driver.type_specs import function_size_names, symbolic_arguments
from difflang.elaborate.context import Session
from difflang.execution.check_failures import DETAIL_RESULTS
from difflang.execution.engine import Engine
from difflang.ir.graph import Graph, graphs_postorder
from difflang.ir.interpreter import StepLimitExceeded, evaluate, evaluate_with_limit
from difflang.ir.tensor_types import Tensor
from difflang.lower.lowering_pipeline import finalize_graph
from difflang.syntax import tree
from difflang.tools.check_grad import elaborate_first_choice, find_finite_arguments
from difflang.tools.derive.derive import DerivativeRequest, DeriveOptions, derive_function
from difflang.tools.random_arguments import sample_arguments, sampling_attempts
from difflang.types.function_code import FnCode
from difflang.types.language_types import ClosureType, leaf_types
from difflang.types.module_scope import ModuleScope
from support.given import KINDS, closed

SIZES = ((3, 4, 5), (5, 4, 3), (4, 4), (7, 1, 2), (4, 2), (2, 4), (6, 1))
FEW = 20_000  # operations of a function that takes functions
FREE = {"const", "broadcast", "reshape", "transpose", "iota", "convert", "stop"}  # nobody counts these as operations


@dataclass(frozen=True, slots=True)
class Held:
    """A derivative that was written down, and how much it takes beside the function itself."""

    text: str
    ratio: float
    functions: int = 0  # for how many kinds of functions, if it takes one


def checked_file(path: Path) -> CheckedProgram:
    """A file, its top-level values at hand."""
    checked = check_program(Source(str(path), path.read_text(encoding="utf-8")), "f64", path)
    load_values(checked, path, Engine("interpret"))
    return checked


def checked_text(text: str, name: str = "derived.dfl") -> CheckedProgram:
    checked = check_program(Source(name, text))
    assert not checked.errors, (checked.errors[0].message, text)
    load_values(checked, None, Engine("interpret"))
    return checked


def suitable(checked: CheckedProgram, decl: tree.Fn) -> DeriveOptions:
    """The gradient of a function with one real number for a result, else its pullback, in all that has a tangent."""
    told = numbers(checked, decl)
    asked = DerivativeRequest(checked, decl, DeriveOptions(argument_specs=told))
    arguments = asked.symbolic_arguments()
    wrt = [a.name for a in arguments if any(t.tangent for t in leaf_types(a.type))]
    plain = elaborate_call(
        Session(), checked.module, decl.name, ClosureType(FnCode(decl, checked.module), ()), arguments
    )
    scalar = isinstance(plain.type, Tensor) and not plain.type.shape and plain.type.dtype.is_float
    return DeriveOptions(wrt=",".join(wrt) or None, mode="grad" if scalar else "vjp")


def numbers(checked: CheckedProgram, decl: tree.Fn) -> dict[str, str]:
    """Sizes that the function takes: the first of a few, else those that go first."""
    names = function_size_names(checked.module, decl)
    found = [{n: str(sizes[i % len(sizes)]) for i, n in enumerate(names)} for sizes in SIZES]
    for told in found if names else ():
        with suppress(DifflangError):
            arguments = DerivativeRequest(checked, decl, DeriveOptions(argument_specs=told)).symbolic_arguments()
            elaborate_call(Session(), checked.module, decl.name, function(decl, checked.module), arguments)
            return told
    return found[0]


def held(checked: CheckedProgram, decl: tree.Fn, options: DeriveOptions, seed: int = 0) -> Held:
    """The derivative as text, which gives at drawn arguments what the derivative itself gives.

    Errors: DifflangError where it is not written down; AssertionError where it differs.
    """
    text = derive_function(checked, decl, options)
    again = checked_text(text)
    (written,) = again.module.fns.values()
    options = replace(options, argument_specs={**numbers(checked, decl), **options.argument_specs})
    sizes = {n: v for n, v in options.argument_specs.items() if n in function_size_names(again.module, written)}
    if any(isinstance(a.type, ClosureType) for a in DerivativeRequest(checked, decl, options).symbolic_arguments()):
        return held_with_functions(checked, decl, options, text, sizes, seed)
    entry, arguments = elaborate_first_choice(Session(), again, written, sizes)
    # Where the derivative has a value: the text has no guards, and gives `1.0 / x` for a negative x too.
    session = Session()
    due = DerivativeRequest(checked, decl, options).derivative_graph(session)
    arrays = find_finite_arguments(session, written, due, arguments, [], seed)
    equal(text, results(entry, arrays), results(due, arrays))
    primal, _ = elaborate_first_choice(Session(), checked, decl, options.argument_specs)
    return Held(text, operations(finalize_graph(entry.graph)) / max(1, operations(finalize_graph(primal.graph))))


def equal(text: str, found: list[np.ndarray], due: list[np.ndarray]) -> None:
    assert len(found) == len(due), text
    for a, b in zip(found, due, strict=True):
        close = 2e-5 if b.dtype.name in ("float32", "complex64") else 1e-9
        np.testing.assert_allclose(a, b, rtol=close, atol=close * (1.0 + float(np.max(np.abs(b), initial=0.0))))


class Closed(DerivativeRequest):
    """A derivative of a function with functions for those that it takes."""

    kind: str = ""

    def symbolic_arguments(self) -> tuple[CallArgument, ...]:
        return closed(self.checked.module, super().symbolic_arguments(), self.kind)

    def plain(self) -> ElaboratedCall:
        """The function itself, of the same functions."""
        decl, module = self.decl, self.checked.module
        return elaborate_call(Session(), module, decl.name, function(decl, module), self.symbolic_arguments())


def held_with_functions(
    checked: CheckedProgram, decl: tree.Fn, options: DeriveOptions, text: str, sizes: dict[str, str], seed: int
) -> Held:
    """The same of a function that takes functions, with each kind of these for which arguments are found."""
    again = checked_text(text)
    (written,) = again.module.fns.values()
    open_, _ = symbolic_arguments(again.module, written, sizes, functions=True)
    done = 0
    for kind in KINDS:
        arguments = closed(again.module, open_, kind)
        arrays = at_which_it_ends(Closed(checked, decl, options, kind=kind).plain(), arguments, seed)
        if arrays is not None:
            entry = elaborate_call(Session(), again.module, written.name, function(written, again.module), arguments)
            equal(
                text,
                results(entry, arrays),
                results(Closed(checked, decl, options, kind=kind).derivative_graph(), arrays),
            )
            done += 1
    assert done, f"`{decl.name}` was not run with any function: {text}"
    return Held(text, 0.0, done)


def at_which_it_ends(plain: ElaboratedCall, arguments: tuple[CallArgument, ...], seed: int) -> list[np.ndarray] | None:
    """Arguments of a derivative at which the function itself ends soon and has a value."""
    rng, graph = np.random.default_rng(seed), finalize_graph(plain.graph)
    for drawing in sampling_attempts(rng):
        arrays = sample_arguments(rng, arguments, drawing)
        with suppress(StepLimitExceeded, DifflangError):
            own = len(graph.params) - plain.random
            values = evaluate_with_limit(FEW, graph, *arrays[:own], *arrays[len(arrays) - plain.random :])
            failed = plain.fails and values[-1 - DETAIL_RESULTS]
            if not failed and all(np.isfinite(y).all() for y in map(np.asarray, values) if y.dtype.kind in "fc"):
                return arrays
    return None


def function(decl: tree.Fn, module: ModuleScope) -> ClosureType:
    return ClosureType(FnCode(decl, module), ())


def results(entry: ElaboratedCall, arrays: list[np.ndarray]) -> list[np.ndarray]:
    found = [np.asarray(x) for x in evaluate(finalize_graph(entry.graph), *arrays)]
    return found[: -1 - DETAIL_RESULTS] if entry.fails else found


def operations(graph: Graph) -> int:
    return sum(e.op.name not in FREE for g in graphs_postorder(graph)[0] for e in g.eqns)


def twice(found: Held) -> Held:
    """The derivative of a derivative, both as text. Errors: as `held`."""
    again = checked_text(found.text)
    (written,) = again.module.fns.values()
    return held(again, written, suitable(again, written))


def outcome(checked: CheckedProgram, decl: tree.Fn, told: dict[str, str] | None = None) -> tuple[str, str]:
    """What comes of a function: `right`, `refused` or `wrong`, with the text or the reason."""
    try:
        options = replace(suitable(checked, decl), argument_specs=told or {})
    except DifflangError as error:
        return "refused", f"{error.diagnostics[0].code} {error.diagnostics[0].message}"
    try:
        found = held(checked, decl, options)
    except DifflangError as error:
        if "is a different program for" in error.diagnostics[0].message and not options.argument_specs:
            return outcome(checked, decl, numbers(checked, decl))
        return "refused", f"{error.diagnostics[0].code} {error.diagnostics[0].message}"
    except AssertionError as error:
        return "wrong", str(error)[:400]
    shown = f"with {found.functions} kinds of functions" if found.functions else f"{found.ratio:.1f}"
    return f"right {shown}{' told' if told else ''}", found.text
