"""`check_op` runs the laws on an op: what holds for every op of the package, on samples of its own declaration.

The laws themselves are in `gradcheck`; here they get calls of the op, and become a report that says what differs where.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from inspect import signature
from typing import Any

import numpy as np
from msgspec import Struct

from difflang.base.diagnostics import Diagnostic, DifflangError
from difflang.base.error_codes import suggestion
from difflang.base.errors import OpLawError
from difflang.base.wording import count_of
from difflang.gradcheck.op_calls import THOROUGH, Array, LawBroken, OpCall, calls_of, check_close
from difflang.gradcheck.op_derivatives import (
    active_arrays,
    check_adjoint,
    check_jvp,
    check_second_order,
    float_results,
    jvp_graph,
    random_tangents,
    rounding_scales,
    rounding_sensitivity,
    vjp_graph,
)
from difflang.graph.graph_errors import graph_error
from difflang.graph.run_graph import GraphProgram, free_context
from difflang.ir.builder import Builder
from difflang.ir.graph import Graph
from difflang.ir.interpreter import evaluate
from difflang.ir.op import OPS, Op, TypeMismatch, result_types
from difflang.ir.symbolic_dims import Dim, dim_name
from difflang.ir.tensor_types import C64, C128, F32, F64, DType, Tensor, numpy_dtype, stacked_type
from difflang.ops.control.map import map_
from difflang.passes.substitute_dims import substitute_graph_dims

ULPS = 32.0
INSTANCES = 2  # of a batch
SPECIAL = (np.nan, np.inf, -np.inf, 0.0)
SEED = 20_2407


class LawResult(Struct, frozen=True, eq=False):
    """What a law found: on how many calls it held, or what differs, or why there was nothing to test."""

    law: str
    help: str
    calls: int = 0
    fault: str = ""
    skipped: str = ""

    def __str__(self) -> str:
        if self.fault:
            return f"{self.law}: broken. {self.fault}"
        return f"{self.law}: {f'not tested, {self.skipped}' if self.skipped else self.held}"

    @property
    def held(self) -> str:
        return f"holds for {count_of(self.calls, 'call')}"


class OpReport(Struct, frozen=True, eq=False):
    """The results of all laws on an op. It is `right` if none is broken."""

    op: str
    laws: tuple[LawResult, ...]

    @property
    def right(self) -> bool:
        return not any(law.fault for law in self.laws)

    def __str__(self) -> str:
        return "\n".join([f"{self.op}", *[f"  {law}" for law in self.laws]])

    __repr__ = __str__


class Skipped(Exception):
    """A law has nothing to test, for the reason that it gives."""


class LawRun(Struct, frozen=True, eq=False):
    """An op with its calls, and how far a compiled number may be off."""

    op: Op
    calls: Sequence[OpCall]
    ulps: float

    @property
    def active(self) -> list[OpCall]:
        """The calls that have a derivative. Errors: Skipped if there is none."""
        if self.op.inactive:
            raise Skipped("it has no derivative")
        found = [c for c in self.calls if c.active]
        if not found:
            raise Skipped("no sample has a derivative")
        return found

    def precise(self) -> tuple[list[OpCall], bool]:
        """Calls in which differences can be taken: in f64 or c128, else in f32 and then in extended precision."""
        double = [c for c in self.active if in_dtypes(c, (F64, C128))]
        single = [c for c in self.active if in_dtypes(c, (F32, C64))]
        if not double and not single:
            raise Skipped("no sample is in f64 or f32")
        return double or single, not double


def in_dtypes(call: OpCall, dtypes: Sequence[DType]) -> bool:
    """Whether all that has a derivative in a call is of these types."""
    operands = [t for t, w in zip(call.types, call.wrt, strict=True) if w]
    active = [t for t in (*operands, *call.results) if t.tangent is not None]
    return all(isinstance(t, Tensor) and t.dtype in dtypes for t in active)


def check_op(op: Any, *, ulps: float = ULPS) -> OpReport:
    """Run the laws on an op of the registry, by its name or as `op` returned it.

    They are: types, symbolic sizes, reference against lowering, special values, jvp against differences, transpose
    against jvp, second order, compiled derivatives, batching. `ulps` is how far a compiled number may be off, in units
    of the last place.

    Errors: OpLawError (DL1274) that says of each broken law what differs where; DL0201 for an unknown op.
    """
    name = op if isinstance(op, str) else str(getattr(op, "name", op))
    if name not in OPS:
        raise graph_error("DL0201", f"there is no op `{name}`", help=suggestion(name, OPS, "`dg.op` declares one"))
    found = OPS[name]
    if found.samples is None:
        message = f"the op `{name}` has no samples, so no law can be tested on it"
        raise graph_error("DL1270", message, help="ops with regions are tested as parts of programs")
    report = OpReport(name, tuple(run_laws(found, ulps)))
    if not report.right:
        raise law_error(report)
    return report


def run_laws(op: Op, ulps: float) -> Iterator[LawResult]:
    """Each law in order. If types, rules or lowering cannot be used at all, the rest makes no sense."""
    names = list(signature(op.type).parameters)[1:]
    for law, help, test in LAWS:
        try:
            count = test(LawRun(op, sorted(calls_of(op), key=narrowness), ulps))
        except Skipped as reason:
            yield LawResult(law, help, skipped=str(reason))
        except Exception as error:  # noqa: BLE001  whatever a rule of the user raises
            yield LawResult(law, help, fault=fault_text(error, names))
            if test is check_types or not isinstance(error, LawBroken):
                return
        else:
            yield LawResult(law, help, count)


def narrowness(call: OpCall) -> int:
    """How few digits a report on it would show: calls with many are tested first."""
    return max([0 if t.dtype in (F64, C128) else 1 if t.dtype in THOROUGH else 2 for t in call.types])


def fault_text(error: Exception, names: Sequence[str]) -> str:
    """What differs where, on lines of their own."""
    match error:
        case LawBroken():
            rows = [(label, x) for role, xs in error.inputs.items() for label, x in labelled(role, xs, names)]
            rows += [("got", error.got), ("expected", error.expected)]
            width = max(len(label) for label, _ in rows)
            return "\n".join([str(error.what), *[f"      {label:<{width}} = {array_line(x)}" for label, x in rows]])
        case DifflangError(diagnostics=(first, *_)):
            return first.message
        case TypeMismatch():
            return f"its type refuses a sample: {error.message}"
        case _:
            return f"{type(error).__name__}: {error}"


def labelled(role: str, arrays: Sequence[Array], names: Sequence[str]) -> Iterator[tuple[str, Array]]:
    """Arrays with names: operands as the op calls them, `dx` for the tangent of `x`."""
    for i, x in enumerate(arrays):
        name = names[i] if i < len(names) else f"operand {i + 1}"
        yield {"operands": name, "tangents": f"d{name}"}.get(role, f"ct{i + 1 if len(arrays) > 1 else ''}"), x


def array_line(x: Any) -> str:
    if isinstance(x, np.ndarray):
        return np.array2string(x, threshold=8, max_line_width=100, precision=8).replace("\n", " ")
    return str(x)


def law_error(report: OpReport) -> OpLawError:
    broken = [law for law in report.laws if law.fault]
    named = ", ".join([law.law for law in broken])
    message = f"the op `{report.op}` breaks {count_of(len(broken), 'law')}: {named}"
    error = OpLawError(Diagnostic("DL1274", message, helps=tuple([str(law) for law in broken])))
    error.report = report
    return error


# ---- Laws. Each gives the number of calls for which it held. Errors: LawBroken.


def check_types(run: LawRun) -> int:
    """The reference gives what the type rule says, in every element type."""
    for call in run.calls:
        for y, want in zip(call.references(), call.results, strict=True):
            assert isinstance(want, Tensor)
            if (y.dtype, y.shape) != (numpy_dtype(want.dtype), want.shape):
                raise LawBroken(f"the reference of {call}", f"{y.dtype}{list(y.shape)}", want, operands=call.arrays)
    return len(run.calls)


def check_symbolic_sizes(run: LawRun) -> int:
    """The type rule with names for sizes says what it says for their numbers."""
    for call in run.calls:
        types = [Tensor(t.dtype, tuple(map(symbolic_size, t.shape))) for t in call.types]
        builder = Builder()
        params = [builder.param(t) for t in types]
        found = builder.append(run.op, tuple(params), result_types(run.op, types, (), call.attrs), **call.attrs)
        graph = substitute_graph_dims(builder.finish(found), number_of_size)
        given = tuple([r.type for r in graph.results])
        if given != call.results:
            shown = [", ".join(map(str, ts)) for ts in (given, call.results)]
            raise LawBroken(f"the type of {run.op}({', '.join(map(str, types))})", *shown)
    return len(run.calls)


def check_rules(run: LawRun) -> int:
    """The derivative rules can be used: they give the right types, and each is linear."""
    for call in run.active:
        jvp_graph(call.graph(), call.wrt)
        vjp_graph(call.graph(), call.wrt)
    return len(run.active)


def symbolic_size(size: Dim) -> Dim:
    """Equal sizes get equal names; 0 and 1 mean what they say."""
    return dim_name(f"n{size}") if isinstance(size, int) and size > 1 else size


def number_of_size(name: str) -> Dim:
    return int(name[1:])


def check_lowering(run: LawRun) -> int:
    """Compiled, it is the reference."""
    compare_compiled(run, run.calls)
    return len(run.calls)


def check_special_values(run: LawRun) -> int:
    """Also where operands are NaN or infinite."""
    calls = [c for c in run.calls if any(x.size and x.dtype.kind == "f" for x in c.arrays)]
    if not calls:
        raise Skipped("no operand is a float")
    marked = [OpCall(c.op, tuple(with_special(c, special)), c.attrs) for c in calls for special in SPECIAL]
    compare_compiled(run, marked, special=True)
    return len(marked)


def with_special(call: OpCall, special: float) -> list[Array]:
    """The operands of a call with a special number as first element of each float operand."""
    found: list[Array] = []
    for x in call.arrays:
        if x.size and x.dtype.kind == "f":
            x = x.copy()
            x.flat[0] = special
        found.append(x)
    return found


def compare_compiled(run: LawRun, calls: Sequence[OpCall], *, special: bool = False) -> None:
    """All calls in one executable against the reference. Numbers beside special ones are compared loosely."""
    found = compiled([c.graph() for c in calls], [list(c.arrays) for c in calls])
    for call, got in zip(calls, found, strict=True):
        exact = call.op.inactive and "bit exact" in call.op.traits
        scales = [np.abs(np.nan_to_num(y.astype(np.float64), posinf=0, neginf=0)) if special and y.dtype.kind == "f"
                  else np.zeros(()) for y in call.references()] if special else rounding_scales(call)  # fmt: skip
        for y, want, scale in zip(got, call.references(), scales, strict=True):
            ulps = 0.0 if exact else run.ulps * (1024 if special else 1)
            check_close(np.asarray(y), want, scale, ulps, f"compiled, {call}", call.arrays)


def compiled(graphs: Sequence[Graph], arguments: Sequence[Sequence[Array]]) -> list[list[Array]]:
    """The results of each graph on its arguments, all compiled as one program."""
    builder = Builder()
    params = [[builder.param(p.type) for p in g.params] for g in graphs]
    results = [builder.inline(g, *ps) for g, ps in zip(graphs, params, strict=True)]
    whole = builder.finish([r for rs in results for r in rs], [p for ps in params for p in ps])
    program = GraphProgram(whole, free_context(), False)
    values = iter(program.call([x for xs in arguments for x in xs]))
    return [[np.asarray(next(values)) for _ in rs] for rs in results]


def check_elementwise(run: LawRun) -> int:
    """An op that says so computes each element from those in its place."""
    if not run.op.elementwise:
        raise Skipped("it does not say that it is elementwise")
    for call in run.calls:
        reversed_results = call.references(*map(reverse_elements, call.arrays))
        for y, want in zip(reversed_results, call.references(), strict=True):
            what = f"elements in another order, {call}"
            check_close(reverse_elements(y), want, np.abs(want), run.ulps, what, call.arrays)
    return len(run.calls)


def reverse_elements(x: Array) -> Array:
    return x.reshape(-1)[::-1].reshape(x.shape)


def check_jvps(run: LawRun) -> int:
    """The jvp is the derivative, by differences in f64."""
    calls, wide = run.precise()
    with extended_precision(wide):
        for call in calls:
            check_jvp(call.smooth(), call.arrays, call.wrt, rng(), call, wide=wide)
    return len(calls)


def check_transposes(run: LawRun) -> int:
    """The transpose is the adjoint of the jvp, in every float type."""
    for call in run.active:
        check_adjoint(call.graph(), call.arrays, call.wrt, rng(), call)
    return len(run.active)


def check_second_orders(run: LawRun) -> int:
    """Jvp and vjp are differentiated again, in both modes."""
    calls, wide = run.precise()
    with extended_precision(wide):
        for call in calls[:3]:
            check_second_order(call, rng(), wide=wide)
    return len(calls[:3])


@contextmanager
def extended_precision(wide: bool) -> Generator[None]:
    """Around a comparison, maybe in extended precision. Errors: Skipped if the reference does not compute in that."""
    try:
        yield
    except TypeError as error:
        if not wide:
            raise
        raise Skipped(f"no sample is in f64, and of its reference: {error}") from None


def check_compiled_derivatives(run: LawRun) -> int:
    """Compiled, jvp and vjp are the interpreted ones."""
    jobs: list[tuple[str, Graph, list[Array]]] = []
    for call in run.active[:6]:
        graph, dxs = call.graph(), random_tangents(rng(), active_arrays(call.arrays, call.wrt))
        cts = random_tangents(rng(), evaluate(float_results(graph), *call.arrays))
        jobs.append((f"the jvp of {call}", jvp_graph(graph, call.wrt), [*call.arrays, *dxs]))
        jobs.append((f"the vjp of {call}", vjp_graph(graph, call.wrt), [*call.arrays, *cts]))
    found = compiled([graph for _, graph, _ in jobs], [xs for _, _, xs in jobs])
    for (what, graph, xs), got in zip(jobs, found, strict=True):
        scales = rounding_sensitivity(graph, xs, rng())
        for y, want, scale in zip(got, evaluate(graph, *xs), scales, strict=True):
            check_close(np.asarray(y), want, scale, run.ulps, f"compiled, {what}", xs)
    return len(jobs) // 2


def check_batching(run: LawRun) -> int:
    """A batch is computed as its instances are, one by one; also where only some operands are batched."""
    calls = [c for c in run.calls if all(x.dtype.kind != "V" for x in c.arrays)][:4]
    cases = [(c, mask) for c in calls for mask in batch_masks(len(c.arrays))]
    jobs = [(batched_graph(c, mask), batched_arrays(c, mask)) for c, mask in cases]
    found = compiled([graph for graph, _ in jobs], [xs for _, xs in jobs])
    for (call, mask), (_, xs), got in zip(cases, jobs, found, strict=True):
        for i in range(INSTANCES):
            instance = OpCall(call.op, tuple([x[i] if b else x for x, b in zip(xs, mask, strict=True)]), call.attrs)
            for y, want, scale in zip(got, instance.references(), rounding_scales(instance), strict=True):
                check_close(np.asarray(y[i]), want, scale, run.ulps, f"batched, {instance}", instance.arrays)
    return len(cases)


def batch_masks(count: int) -> list[tuple[bool, ...]]:
    """All operands batched, and each alone."""
    alone = [tuple([i == j for j in range(count)]) for i in range(count)]
    return list(dict.fromkeys([(True,) * count, *alone]))


def batched_arrays(call: OpCall, mask: Sequence[bool]) -> list[Array]:
    return [np.stack([x, reverse_elements(x)]) if b else x for x, b in zip(call.arrays, mask, strict=True)]


def batched_graph(call: OpCall, mask: Sequence[bool]) -> Graph:
    """A map of the op over its batched operands."""
    inner, outer = Builder(), Builder()
    params = [outer.param(stacked_type(t, INSTANCES) if b else t) for t, b in zip(call.types, mask, strict=True)]
    own = [inner.param(t) for t in call.types]
    order = sorted(range(len(own)), key=lambda i: mask[i])  # those that are fixed come first
    body = inner.finish(call.op(*own, **call.attrs), [own[i] for i in order])
    fixed = len(mask) - sum(mask)
    results = outer.emit(map_, [params[i] for i in order], (body,), consts=fixed, length=INSTANCES)
    return outer.finish(results)


def rng() -> np.random.Generator:
    return np.random.default_rng(SEED)


Law = tuple[str, str, Callable[[LawRun], int]]
LAWS: tuple[Law, ...] = tuple([
    (name, (test.__doc__ or "").strip(), test)
    for name, test in [
        ("types", check_types), ("symbolic sizes", check_symbolic_sizes), ("rules", check_rules),
        ("lowering", check_lowering),
        ("special values", check_special_values), ("elementwise", check_elementwise), ("jvp", check_jvps),
        ("transpose", check_transposes), ("second order", check_second_orders),
        ("compiled derivatives", check_compiled_derivatives), ("batching", check_batching),
    ]
])  # fmt: skip
