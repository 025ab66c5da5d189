"""Graphs on numbers as source of Python: what host statements on numbers run as, once they are repeated.

Each number is what `ops.elementwise.python_rules` says, a small array of which elements are read or replaced is a flat
list of numbers. The source gives the bits of the interpreter.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Collection, Generator, Sequence
from contextlib import contextmanager
from math import prod
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from difflang.execution.check_failures import ArrayProgram
from difflang.ir.graph import Eqn, Graph, Value, graphs_postorder
from difflang.ir.interpreter import evaluate
from difflang.ir.tensor_types import BOOL, F32, F64, I32, I64, INTEGERS, DType, Tensor, Type, numpy_dtype
from difflang.ops.arrays.constants import const, const_fill_value
from difflang.ops.arrays.gather_scatter import dynamic_slice, dynamic_update
from difflang.ops.arrays.shape_manipulation import reshape, slice_
from difflang.ops.control.call import call
from difflang.ops.control.cond import cond
from difflang.ops.elementwise.python_rules import (
    HELPERS,
    PYTHON_RULES,
    PythonNumber,
    hull,
    integer_range,
    rounded,
    write_add,
    write_mul,
)

NUMBER_DTYPES = (BOOL, *INTEGERS, F32, F64)
MAX_INLINE = 24  # ops and names in one expression
RUNS_INTERPRETED = 8  # compilation takes longer than so many runs
MAX_LIST = 4096  # numbers in an array that is a list
MAX_BITS = 128  # of an integer that has not been wrapped yet


def is_number(type: Type) -> bool:
    """Whether a value of a type is one number that Python has."""
    return isinstance(type, Tensor) and type.dtype in NUMBER_DTYPES and not type.shape


def is_element(type: Type) -> bool:
    """Whether a value of a type is a number, or an array of one."""
    return isinstance(type, Tensor) and type.dtype in NUMBER_DTYPES and all(n == 1 for n in type.shape)


def is_list(type: Type) -> bool:
    """Whether a value of a type is an array that is a list here: of several numbers, but not many."""
    if not isinstance(type, Tensor) or type.dtype not in NUMBER_DTYPES or not type.shape:
        return False
    return 1 < prod([n if isinstance(n, int) else MAX_LIST + 1 for n in type.shape]) <= MAX_LIST


def is_number_or_list(type: Type) -> bool:
    return is_number(type) or is_list(type)


def count_number_ops(graph: Graph) -> int | None:
    """The ops of a graph on numbers, with those in its branches and calls; None for any other graph."""
    counts: dict[Graph, int] = {}
    for inner in graphs_postorder(graph)[0]:
        ends = (*inner.params, *inner.results)
        if not all(is_number_or_list(v.type) for v in ends) or not all(is_written(e) for e in inner.eqns):
            return None
        # A region is counted, and written, wherever it is used.
        counts[inner] = len(inner.eqns) + sum(counts[r] for e in inner.eqns for r in e.regions)
    return counts[graph]


def is_written(eqn: Eqn) -> bool:
    """Whether an equation is on numbers, reads an element of a list, or replaces one."""
    operands, results = [v.type for v in eqn.operands], [v.type for v in eqn.results]
    if eqn.regions:
        return eqn.op in (cond, call) and all(map(is_number, results))
    if eqn.op in (dynamic_slice, slice_):
        return is_list(operands[0]) and all(map(is_element, results))
    if eqn.op is dynamic_update:
        return is_list(operands[0]) and is_element(operands[1])
    alone = all(map(is_number, operands + results))
    return (
        not eqn.op.effect
        and (alone or (eqn.op in (const, reshape) or eqn.op.elementwise))
        and all(map(is_element, operands + results))
    )


def python_number(array: Any) -> Any:
    """The number in an array, or the list of its numbers, as generated code has it."""
    array = np.asarray(array)
    if array.dtype != np.float32:
        return array.ravel().tolist() if array.ndim else array.item()
    return list(array.ravel()) if array.ndim else array[()]


class LoopSource(Struct, frozen=True, eq=False):
    """The source of a loop, unfinished: the line and the indent of its head, how many names there were before it, and
    those of them that it assigns. `invariants` are the lines before the head: what no step changes is computed there.
    """

    head: int
    indent: int
    names: int
    assigned: Collection[str]
    invariants: list[str]

    def leaves_alone(self, name: str) -> bool:
        """Whether a name has one value, known before the loop, in all its steps."""
        return int(name[1:]) <= self.names and name not in self.assigned


class PythonWriter:
    """Writes source of Python line by line. `namespace` holds the objects that it names.

    `variables` are the names of what the program may assign again.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.namespace: dict[str, Any] = dict(HELPERS)
        self.indent = self.names = 0
        self.variables: set[str] = set()
        self.loops: list[LoopSource] = []
        self.reads: dict[str, frozenset[str]] = {}  # the names that an invariant of a loop is computed from

    def line(self, text: str) -> None:
        self.lines.append("    " * self.indent + text)

    @contextmanager
    def block(self, head: str) -> Generator[None]:
        """An indented block; `pass` if nothing is written in it."""
        self.line(head)
        self.indent += 1
        start = len(self.lines)
        yield
        if len(self.lines) == start:
            self.line("pass")
        self.indent -= 1

    @contextmanager
    def loop(self, assigned: Collection[str]) -> Generator[LoopSource]:
        """The loop that is written inside, with its invariants before it; it assigns these names."""
        loop = LoopSource(len(self.lines), self.indent, self.names, assigned, [])
        self.loops.append(loop)
        yield loop
        self.loops.pop()
        self.lines[loop.head : loop.head] = loop.invariants

    @contextmanager
    def before(self, loop: LoopSource) -> Generator[None]:
        """What is written inside comes before a loop."""
        place = self.lines, self.indent, self.loops
        self.lines, self.indent, self.loops = loop.invariants, loop.indent, []
        yield
        self.lines, self.indent, self.loops = place

    def new_name(self) -> str:
        """A name with its number, so that those before a loop are known."""
        self.names += 1
        return f"v{self.names}"

    def name_object(self, thing: Any) -> str:
        """A name for an object of this process."""
        self.namespace[name := f"o{len(self.namespace)}"] = thing
        return name

    # ---- Numbers

    def constant(self, number: Any, dtype: DType) -> PythonNumber:
        """A constant; `number` is a number of NumPy or Python."""
        value = np.asarray(number, numpy_dtype(dtype))[()]
        zero = bool(value == 0)
        if dtype is F32:
            return PythonNumber(self.name_object(value), dtype, atom=True, is_zero=zero)
        whole = value.item()
        code = repr(whole) if dtype is not F64 or np.isfinite(whole) else self.name_object(whole)
        bounds = (whole, whole) if dtype.is_integer else (0, 0)
        return PythonNumber(code, dtype, bounds, atom=True, is_zero=zero)

    def in_range(self, x: PythonNumber, name: str = "") -> PythonNumber:
        """The number, wrapped if its bounds leave its type: then it is assigned to `name`, or a new one."""
        x = rounded(x)
        low, high = integer_range(x.dtype)
        tests = [f"{{}} < {low}"] if x.bounds[0] < low else []
        tests += [f"{{}} > {high}"] if x.bounds[1] > high else []
        if not x.dtype.is_integer or not tests:
            return x
        name = name or self.new_name()
        self.line(f"{name} = {x.code}")
        wrapped = f"({name} + {-low} & {high - low}) - {-low}" if low else f"{name} & {high}"
        self.line(f"if {' or '.join(tests).format(name, name)}: {name} = {wrapped}")
        return PythonNumber(name, x.dtype, (low, high), atom=True)

    def atom(self, x: PythonNumber) -> PythonNumber:
        """The number in range, as a name or a literal."""
        x = self.in_range(x)
        return x if x.atom else self.assigned(self.new_name(), x)

    def assigned(self, name: str, x: PythonNumber) -> PythonNumber:
        """The name, after the number was assigned to it, or a copy of the list."""
        if x.shape:
            return self.assigned_list(name, x)
        x = self.in_range(x, name)
        if x.code != name:
            self.line(f"{name} = {x.code}")
        return PythonNumber(name, x.dtype, x.bounds, atom=True)

    def assigned_list(self, name: str, x: PythonNumber) -> PythonNumber:
        if x.code != name:
            self.line(f"{name} = {x.code}[:]")
        for position, number in x.updates:
            self.line(f"{name}[{position}] = {number}")
        return PythonNumber(name, x.dtype, x.bounds, atom=True, shape=x.shape)

    # ---- Graphs

    def graph(self, graph: Graph, operands: Sequence[PythonNumber]) -> list[PythonNumber]:
        """The results of a graph that `count_number_ops` counts."""
        uses = Counter(v for e in graph.eqns for v in e.operands)
        uses.update(graph.results)
        env: dict[Value, PythonNumber] = dict(zip(graph.params, operands, strict=True))
        for eqn in graph.eqns:
            operands = [env[v] for v in eqn.operands]
            found = self.invariant(eqn, operands) or self.equation(eqn, operands)
            for value, x in zip(eqn.results, found, strict=True):
                once = uses[value] == 1 and x.size <= MAX_INLINE and is_narrow(x)
                env[value] = x if x.atom or once else self.atom(x)
        return [env[r] for r in graph.results]

    def invariant(self, eqn: Eqn, operands: list[PythonNumber]) -> list[PythonNumber]:
        """The results of an equation on floats that all steps of a loop would repeat, from before it; none otherwise.

        An integer may divide by what the condition of the loop says is not 0.
        """
        if not eqn.operands or not all(isinstance(v.type, Tensor) and v.type.dtype in (F32, F64) for v in eqn.results):
            return []
        if eqn.regions or any(x.shape or not x.atom for x in operands):
            return []
        reads = frozenset[str]().union(*map(self.names_read, operands))
        loop, indent = None, self.indent
        for outer in reversed(self.loops):
            # What a branch computes is computed in some steps only.
            if indent != outer.indent + 1 or not all(map(outer.leaves_alone, reads)):
                break
            loop, indent = outer, outer.indent
        if loop is None:
            return []
        with self.before(loop):
            found = [x if x.atom else self.atom(x) for x in self.equation(eqn, operands)]
        self.reads.update((x.code, reads) for x in found)
        return found

    def names_read(self, x: PythonNumber) -> frozenset[str]:
        """The names from outside of its loops that an atom is computed from; none for a literal."""
        return self.reads.get(x.code) or frozenset([x.code] if x.code.startswith("v") else [])

    def equation(self, eqn: Eqn, operands: list[PythonNumber]) -> list[PythonNumber]:
        if eqn.op is const:
            type = eqn.results[0].type
            assert isinstance(type, Tensor)
            return [self.constant(const_fill_value(**eqn.attrs), type.dtype)]
        if eqn.op is reshape:
            return operands
        if eqn.op in (dynamic_slice, slice_):
            array, *starts = operands
            array = self.assigned(self.new_name(), array) if array.updates else array
            starts = starts or [self.constant(n, I32) for n in eqn.attrs["starts"]]
            code = f"{array.code}[{self.position(array, starts)}]"
            return [PythonNumber(code, array.dtype, integer_range(array.dtype))]
        if eqn.op is dynamic_update:
            array, number, *starts = operands
            update = (self.position(array, starts), self.atom(number).code)
            return [replace(array, updates=(*array.updates, update), atom=False)]
        if eqn.op is call:
            return self.graph(eqn.regions[0], list(map(self.atom, operands)))
        if eqn.op is cond:
            return self.branches(eqn, operands)
        rule = PYTHON_RULES.get(eqn.op)
        if rule is not None:
            if not rule.takes_weak or all(x.weak for x in operands):
                operands = list(map(rounded, operands))
            if not rule.modular:
                operands = [x if x.weak else self.in_range(x) for x in operands]
            if rule.repeats:
                operands = [x if x.weak else self.atom(x) for x in operands]
            found = rule.write(*operands, **eqn.attrs)
            if found is not None:
                return [found]
        operands = list(map(self.in_range, operands))
        return self.ufunc(eqn, operands) or self.reference(eqn, operands)

    def position(self, array: PythonNumber, starts: Sequence[PythonNumber]) -> str:
        """The position of an element in a list: a name or a number. Starts outside of the array are moved inside."""
        whole = self.constant(0, I64)
        for size, start in zip(array.shape, starts, strict=True):
            start = self.in_range(start)
            if start.bounds[0] < 0 or start.bounds[1] >= size:
                start = self.atom(start)
                code = f"({start.code} if 0 <= {start.code} < {size} else 0 if {start.code} < 0 else {size - 1})"
                start = PythonNumber(code, start.dtype, (0, size - 1), size=4)
            whole = write_add(write_mul(whole, self.constant(size, I64)), start) if whole.code != "0" else start
        return self.atom(whole).code

    def branches(self, eqn: Eqn, operands: list[PythonNumber]) -> list[PythonNumber]:
        condition, *rest = operands
        rest = list(map(self.atom, rest))
        names = [self.new_name() for _ in eqn.results]
        found: list[list[PythonNumber]] = []
        for head, region in zip((f"if {condition.code}:", "else:"), eqn.regions, strict=True):
            with self.block(head):
                results = self.graph(region, rest)
                found.append([self.assigned(name, x) for name, x in zip(names, results, strict=True)])
        return [PythonNumber(x.code, x.dtype, hull(x.bounds, y.bounds), atom=True) for x, y in zip(*found, strict=True)]

    def ufunc(self, eqn: Eqn, operands: list[PythonNumber]) -> list[PythonNumber]:
        """A function of NumPy on floats, which takes numbers; nothing for any other reference."""
        function = inspect.unwrap(eqn.op.reference)
        dtypes = {v.type.dtype for v in (*eqn.operands, *eqn.results) if isinstance(v.type, Tensor)}
        if not isinstance(function, np.ufunc) or dtypes not in ({F32}, {F64}):
            return []
        code = f"{self.name_object(function)}({', '.join(x.code for x in operands)})"
        (dtype,) = dtypes
        size = 1 + sum(x.size for x in operands)
        return [PythonNumber(code if dtype is F32 else f"float({code})", dtype, size=size)]

    def reference(self, eqn: Eqn, operands: list[PythonNumber]) -> list[PythonNumber]:
        """The results of an op by its reference."""
        types = [v.type for v in eqn.results]
        function = self.name_object(reference_on_numbers(eqn))
        codes = ", ".join(x.code for x in operands)
        names = [self.new_name() for _ in types]
        self.line(f"{', '.join(names)}{',' if len(names) > 1 else ''} = {function}({codes})")
        dtypes = [t.dtype for t in types if isinstance(t, Tensor)]
        return [PythonNumber(n, d, integer_range(d), atom=True) for n, d in zip(names, dtypes, strict=True)]


def is_narrow(x: PythonNumber) -> bool:
    return max(map(abs, x.bounds)) < 1 << MAX_BITS


def reference_on_numbers(eqn: Eqn) -> Callable[..., Any]:
    """The reference of an equation, on numbers of generated code."""
    types = [v.type for v in (*eqn.operands, *eqn.results)]
    dtypes = [t.dtype for t in types if isinstance(t, Tensor)]
    reference, attrs = eqn.op.reference, dict(eqn.attrs)
    kinds = [numpy_dtype(d) for d in dtypes[: len(eqn.operands)]]

    def run(*numbers: Any) -> Any:
        found = reference(*map(np.asarray, numbers, kinds), **attrs)
        return python_number(found) if len(eqn.results) == 1 else tuple(map(python_number, found))

    return run


def compile_python(graph: Graph) -> ArrayProgram:
    """A graph that `count_number_ops` counts as a program of Python, from arrays to arrays."""
    writer = PythonWriter()
    types = [v.type for v in graph.params]
    dtypes = [t.dtype for t in types if isinstance(t, Tensor)]
    params = [PythonNumber(f"x{i}", d, integer_range(d), atom=True) for i, d in enumerate(dtypes)]
    with writer.block(f"def program({', '.join(x.code for x in params)}):"):
        results = [writer.in_range(x).code for x in writer.graph(graph, params)]
        writer.line(f"return [{', '.join(results)}]")
    exec(compile("\n".join(writer.lines), "<host>", "exec"), writer.namespace)  # noqa: S102
    program = writer.namespace["program"]
    kinds = [numpy_dtype(r.type.dtype) for r in graph.results if isinstance(r.type, Tensor)]

    def run(*arrays: Any) -> list[Any]:
        with np.errstate(all="ignore"):
            return list(map(np.asarray, program(*map(python_number, arrays)), kinds))

    return run


class NumberProgram:
    """A graph that `count_number_ops` counts as a program from arrays to arrays.

    It is interpreted at first, and compiled to Python, which gives the same bits, once it has run a few times. With
    arrays it is not: to make lists of them takes longer.
    """

    def __init__(self, graph: Graph) -> None:
        lists = any(is_list(v.type) for v in (*graph.params, *graph.results))
        self.graph, self.runs = graph, RUNS_INTERPRETED if lists else 0
        self.compiled: ArrayProgram | None = None

    def __call__(self, *arrays: Any) -> list[Any]:
        if self.compiled is not None:
            return list(self.compiled(*arrays))
        self.runs += 1
        if self.runs == RUNS_INTERPRETED:
            self.compiled = compile_python(self.graph)
        return evaluate(self.graph, *map(np.asarray, arrays))
