"""Reads a jaxpr into instructions by cost class, as input to the models of XLA's fusion and memory.

Loops, branches and outlined segments appear as they run. Other calls are inlined, and common subexpressions are merged,
as XLA does. The primitives named here are JAX's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from math import prod
from typing import Any, Literal

from jax.extend.core import Literal as Constant
from msgspec import Struct
from msgspec.structs import replace

from difflang.lower.local_shapes import Parts, body_params, carried_parts, pinned_parts, result_parts
from difflang.lower.source_locations import FRAME_NAME

InstructionKind = Literal[
    "alias", "made", "fused", "costly", "sum", "product", "array", "update", "while", "scan", "cond", "call"
]
SourceLine = tuple[str, int]  # the name of a source, and a line of it

ALIASES = frozenset({"reshape", "squeeze", "expand_dims", "optimization_barrier", "copy_p", "stop_gradient"})
# Made anew in each kernel that reads it, if the operand is a scalar.
GENERATED = frozenset({"broadcast_in_dim", "iota", "empty"})
# Cheap: recomputed in each kernel that reads it.
FUSED = frozenset(
    {"add", "add_any", "sub", "mul", "neg", "abs", "max", "min", "sign", "clamp", "square", "integer_pow", "copy"}
    | {"and", "or", "not", "xor", "eq", "ne", "lt", "le", "gt", "ge", "is_finite", "select_n", "floor", "ceil", "round"}
    | {"shift_left", "shift_right_logical", "shift_right_arithmetic", "convert_element_type", "bitcast_convert_type"}
    | {"real", "imag", "complex", "conj", "slice", "dynamic_slice", "pad", "concatenate", "rev", "transpose"}
)
# Expensive: computed once, if several kernels read it.
COSTLY = frozenset(
    {"div", "rem", "exp", "exp2", "expm1", "log", "log1p", "sin", "cos", "tan", "asin", "acos", "atan", "atan2"}
    | {"sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "sqrt", "rsqrt", "cbrt", "pow", "logistic", "erf", "erfc"}
    | {"erf_inv", "lgamma", "digamma", "nextafter", "gather", "population_count", "clz"}
)
REDUCTIONS = frozenset(
    {"reduce_sum", "reduce_max", "reduce_min", "reduce_prod", "reduce_and", "reduce_or", "argmax", "argmin"}
)
DATA_MOVEMENT = frozenset({"slice", "dynamic_slice", "pad", "concatenate", "rev", "transpose", "gather", *GENERATED})
CHEAP = frozenset({"add", "add_any", "sub", "mul", "neg", "exp", "sqrt", "rsqrt", "integer_pow", "square", *GENERATED})
UPDATES = frozenset({"dynamic_update_slice", "scatter", "scatter-add", "scatter_add", "scatter_mul"})
KINDS: tuple[tuple[frozenset[str], InstructionKind], ...] = (
    (FUSED, "fused"), (COSTLY, "costly"), (REDUCTIONS, "sum"), (UPDATES, "update")
)  # fmt: skip
CONTROL_FLOW = frozenset({"while", "scan", "cond"})


class ArrayValue(Struct, frozen=True, eq=False):
    """A value of a program: its size in bytes, and the source line it is made for, if it has one."""

    bytes: int
    shape: tuple[int, ...]
    source_line: SourceLine | None
    constant: bool = False  # a literal or constant of the program
    parts: Parts = ()  # into how many parts each axis is split over devices; `bytes` are those of one


ArrayValues = list[ArrayValue]


class JaxprInstruction(Struct, frozen=True, eq=False):
    """One primitive: its operands and results, and the bodies of a loop or a branch."""

    kind: InstructionKind
    reads: ArrayValues
    makes: ArrayValues
    bodies: tuple[Computation, ...] = ()
    # Of a while: the constants of the condition and of the body; of a scan: its constants and carries.
    sizes: tuple[int, int] = (0, 0)
    quick: bool = False  # a sum or a product that alone reads it computes it in its own kernel
    broadcasts: bool = False
    moves: bool = False  # its elements come from other positions


class Computation(Struct, frozen=True, eq=False):
    """A program, or the body of a loop or a branch: its params, its instructions, and its results."""

    takes: ArrayValues
    steps: list[JaxprInstruction]
    gives: ArrayValues


def read_jaxpr(jaxpr: Any, params: Sequence[Parts] = ()) -> Computation:
    """A jaxpr with its calls inlined and without dead instructions.

    `params` says into how many parts the axes of its params are split over devices: then bytes are those of one device.
    """
    return eliminate_dead(JaxprReader().computation(jaxpr, params))


class JaxprReader:
    """Reads one jaxpr."""

    def __init__(self) -> None:
        self.spread: set[ArrayValue] = set()  # broadcasts of something smaller
        self.constant: set[ArrayValue] = set()  # scalars that are known at compile time

    def computation(self, jaxpr: Any, params: Sequence[Parts] = ()) -> Computation:
        takes = [array_value(v, None, parts) for v, parts in zip_longest(jaxpr.invars, params, fillvalue=())]
        env: dict[Any, ArrayValue] = dict(zip(jaxpr.invars, takes, strict=True))
        steps: list[JaxprInstruction] = []
        gives = self.equations(jaxpr, env, steps, {}, None)
        return Computation(takes, steps, gives)

    def equations(
        self,
        jaxpr: Any,
        env: dict[Any, ArrayValue],
        steps: list[JaxprInstruction],
        known: dict[object, ArrayValues],
        place: SourceLine | None,
    ) -> ArrayValues:
        """Append instructions to `steps` and return the results, merging common subexpressions. `place` is the caller's
        line.
        """
        pins = pinned_parts(jaxpr)
        for v in jaxpr.constvars:
            env[v] = replace(array_value(v, None), constant=True)
        for eqn in jaxpr.eqns:
            reads = [self.read(v, env) for v in eqn.invars]
            inner = callee_jaxpr(eqn)
            if inner is not None and not is_outlined(eqn):
                inner_env: dict[Any, ArrayValue] = dict(zip(inner.invars, reads, strict=True))
                gives = self.equations(inner, inner_env, steps, known, source_line(eqn) or place)
                env.update(zip(eqn.outvars, gives, strict=True))
                continue
            key = cse_key(eqn, reads)
            makes = known.get(key) if key is not None else None
            if makes is None:
                here = source_line(eqn) or place
                bodies, taken, parts = self.bodies(eqn, inner, [v.parts for v in reads], pins)
                reads = [self.cut(v, each, steps) for v, each in zip(reads, taken, strict=True)]
                makes = [array_value(v, here, each) for v, each in zip(eqn.outvars, parts, strict=True)]
                self.instruction(eqn, bodies, reads, makes, steps)
                if key is not None:
                    known[key] = makes
            env.update(zip(eqn.outvars, makes, strict=True))
        return [self.read(v, env) for v in jaxpr.outvars]

    def bodies(
        self, eqn: Any, inner: Any, reads: list[Parts], pins: Mapping[Any, Parts]
    ) -> tuple[tuple[Computation, ...], list[Parts], list[Parts]]:
        """The bodies of an equation, and the parts of its operands and results.

        What a loop carries is split if a step leaves it so.
        """
        while True:
            bodies = tuple([self.computation(body, parts) for body, parts in body_params(eqn, inner, reads)])
            found = result_parts(eqn, reads, [[v.parts for v in body.gives] for body in bodies], pins)
            after = carried_parts(eqn, reads, found)
            if after == reads:
                return bodies, reads, found
            reads = after

    def cut(self, v: ArrayValue, parts: Parts, steps: list[JaxprInstruction]) -> ArrayValue:
        """The part of a value that a device needs; of a broadcast it makes no more."""
        if v.parts == parts:
            return v
        part = replace(v, bytes=v.bytes * prod(v.parts) // prod(parts), parts=parts)
        if v in self.spread:
            self.spread.add(part)
            steps.append(JaxprInstruction("made", [], [part], broadcasts=True))
        else:
            steps.append(JaxprInstruction("fused", [v], [part], moves=True))
        return part

    def instruction(
        self,
        eqn: Any,
        bodies: tuple[Computation, ...],
        reads: ArrayValues,
        makes: ArrayValues,
        steps: list[JaxprInstruction],
    ) -> None:
        match eqn.primitive.name, eqn.params:
            case "while", {"cond_nconsts": first, "body_nconsts": second}:
                steps.append(JaxprInstruction("while", reads, makes, bodies, (first, second)))
            case "scan", {"num_consts": consts, "num_carry": carry}:
                steps.append(JaxprInstruction("scan", reads, makes, bodies, (consts, carry)))
            case "cond", _:
                steps.append(JaxprInstruction("cond", reads, makes, bodies))
            # An outer product contracts nothing and is fused.
            case "dot_general", {"dimension_numbers": ((summed, _), _)} if not summed:
                steps.append(JaxprInstruction("fused", reads, makes, quick=True, moves=True))
            case "dot_general", {"dimension_numbers": numbers}:
                steps.append(
                    JaxprInstruction(
                        "product", [self.with_axis_order(*side, steps) for side in dot_operands(reads, numbers)], makes
                    )
                )
            case "conv_general_dilated", {"dimension_numbers": numbers}:
                self.convolution(reads, makes, numbers, steps)
            case "sharding_constraint", _:
                same = reads[0].bytes == makes[0].bytes
                steps.append(JaxprInstruction("alias" if same else "array", reads, makes))
            case _ if bodies:
                steps.append(JaxprInstruction("call", reads, makes, bodies))
            case name, _:
                self.plain(name, reads, makes, steps)

    def plain(self, name: str, reads: ArrayValues, makes: ArrayValues, steps: list[JaxprInstruction]) -> None:
        if name in GENERATED:
            self.spread.update(makes)
        if self.constant.issuperset(reads) and not any(v.shape for v in makes):
            self.constant.update(makes)
            return
        # Division by a scalar becomes a multiplication.
        cheap = name == "div" and (reads[1] in self.constant or reads[1] in self.spread)
        kind = "fused" if cheap else instruction_kind(name, reads)
        steps.append(
            JaxprInstruction(
                kind,
                reads,
                makes,
                quick=cheap or name in CHEAP,
                broadcasts=name in GENERATED,
                moves=name in DATA_MOVEMENT,
            )
        )

    def convolution(self, reads: ArrayValues, makes: ArrayValues, numbers: Any, steps: list[JaxprInstruction]) -> None:
        """A convolution in channels-last layout; operands in other layouts are copied."""
        last = len(numbers.lhs_spec) - 1
        plain = (0, last, *range(1, last))
        lhs = self.with_axis_order(reads[0], axis_order(numbers.lhs_spec, plain), steps)
        rhs = self.with_axis_order(reads[1], axis_order(numbers.rhs_spec, (last, last - 1, *range(last - 1))), steps)
        out = axis_order(numbers.out_spec, plain)
        made = (
            makes if out == sorted(out) else [ArrayValue(v.bytes, v.shape, v.source_line, parts=v.parts) for v in makes]
        )
        steps.append(JaxprInstruction("array", [lhs, rhs], made))
        if made is not makes:
            steps.append(JaxprInstruction("fused", made, makes, moves=True))

    def with_axis_order(self, x: ArrayValue, order: Sequence[int], steps: list[JaxprInstruction]) -> ArrayValue:
        """An operand with its axes in that order: a copy, unless they already are."""
        if list(order) == sorted(order):
            return x
        copy = ArrayValue(x.bytes, tuple(x.shape[i] for i in order), x.source_line)
        steps.append(JaxprInstruction("fused", [x], [copy], moves=True))
        return copy

    def read(self, v: Any, env: Mapping[Any, ArrayValue]) -> ArrayValue:
        if not isinstance(v, Constant):
            return env[v]
        self.constant.add(number := ArrayValue(0, (), None))
        return number


def array_value(v: Any, place: SourceLine | None, parts: Parts = ()) -> ArrayValue:
    shape = tuple(v.aval.shape)
    return ArrayValue(prod(shape) * v.aval.dtype.itemsize // prod(parts), shape, place, parts=parts)


def axis_order(axes: Sequence[int], plain: Sequence[int]) -> list[int]:
    """The permutation that brings `axes` into the order `plain`."""
    return [axis for _, axis in sorted(zip(plain, axes, strict=True))]


def instruction_kind(name: str, reads: ArrayValues) -> InstructionKind:
    if name in ALIASES:
        return "alias"
    if name in GENERATED:
        return "made" if all(not r.shape for r in reads) else "fused"
    for names, kind in KINDS:
        if name in names:
            return kind
    return "array"


def callee_jaxpr(eqn: Any) -> Any:
    """The jaxpr that an equation calls on its operands for its results, if it is a call. A kernel has references and
    a grid of its own: it is one instruction.
    """
    if eqn.primitive.name in CONTROL_FLOW or eqn.primitive.name.startswith(("reduce", "scatter", "select_and", "sort")):
        return None
    found = next((eqn.params[k] for k in ("jaxpr", "call_jaxpr", "fun_jaxpr") if k in eqn.params), None)
    inner = getattr(found, "jaxpr", found)
    if inner is None or (len(inner.invars), len(inner.outvars)) != (len(eqn.invars), len(eqn.outvars)):
        return None
    return inner


def is_outlined(eqn: Any) -> bool:
    """Whether XLA must not inline a call."""
    return "inlineable" in dict(eqn.ctx.xla_metadata or {})


def cse_key(eqn: Any, reads: ArrayValues) -> object:
    """A key for what an equation computes; `None` for calls and control flow."""
    if callee_jaxpr(eqn) is not None or eqn.primitive.name in CONTROL_FLOW:
        return None
    numbers = [
        (str(v.val), str(v.aval)) if isinstance(v, Constant) else x for v, x in zip(eqn.invars, reads, strict=True)
    ]
    return eqn.primitive.name, tuple(numbers), str(sorted(eqn.params.items())), str([v.aval for v in eqn.outvars])


def dot_operands(reads: ArrayValues, numbers: Any) -> list[tuple[ArrayValue, list[int]]]:
    """The operands of a product, each with the axis order in which XLA multiplies."""
    # Contracted axes and batch axes of each side.
    (lhs, rhs), (lhs_batch, rhs_batch) = numbers
    found: list[tuple[ArrayValue, list[int]]] = []
    for x, summed, batch, last in ((reads[0], lhs, lhs_batch, True), (reads[1], rhs, rhs_batch, False)):
        rank = len(x.shape)
        free = [i for i in range(rank) if i not in summed and i not in batch]
        plain = list(batch) == list(range(len(batch))) and len(summed) == 1 and len(free) <= 1
        order = [*batch, *free, *summed] if last else [*batch, *summed, *free]
        found.append((x, list(range(rank)) if plain else order))
    return found


def source_line(eqn: Any) -> SourceLine | None:
    """The source line an equation comes from: see `source_locations`."""
    trace = eqn.source_info.traceback
    for frame in trace.frames if trace is not None else ():
        if frame.function_name == FRAME_NAME:
            return frame.file_name, frame.line_num
    return None


def eliminate_dead(part: Computation) -> Computation:
    """The computation without instructions whose results nothing reads."""
    used = set(part.gives)
    live: list[JaxprInstruction] = []
    for step in reversed(part.steps):
        if not used.isdisjoint(step.makes) or not step.makes:
            used.update(step.reads)
            live.append(step)
    inner = [replace(s, bodies=tuple(map(eliminate_dead, s.bodies))) if s.bodies else s for s in reversed(live)]
    return Computation(part.takes, inner, part.gives)
