"""Specializations of a function for argument types, and the dispatch cache that finds them for a call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import compress, islice
from typing import Any

import numpy as np
from msgspec import Struct

from difflang.api.item_arrays import read_source
from difflang.api.loaded_program import CallArguments, LoadedProgram
from difflang.api.result_values import result_maker
from difflang.api.signature import Signature
from difflang.base.diagnostics import DifflangError
from difflang.driver.capacity_for_call import with_fitted_capacity
from difflang.driver.elaborate_call import ElaboratedCall
from difflang.execution.callable_graph import CallableGraph, MakeProgram, random_key
from difflang.gradcheck.report import GradcheckReport
from difflang.ir.tensor_types import Tensor
from difflang.runtime import pytrees
from difflang.runtime.argument_conversion import on_device
from difflang.runtime.compile import compile_graph
from difflang.runtime.devices import default_device
from difflang.runtime.forked_process import uses_threads
from difflang.runtime.value_layouts import field_or_none
from difflang.tools import check_grad, trace_call
from difflang.tools.check_grad import CheckGradOptions
from difflang.types.function_code import DerivativeCode, VmapCode
from difflang.types.language_types import ClosureType
from difflang.types.type_errors import make_error

UNKNOWN = object()
ONLY_INT = frozenset([int])
NUMPY_CLASSES = (np.ndarray, np.generic)
# Classes that are pytree leaves.
LEAF_CLASSES = pytrees.NUMBERS | {np.ndarray, *np.sctypeDict.values()}


# To keep a number on the device takes as long as so many calls lose to sending it.
CALLS_BEFORE_SENT = 8


class NumberOnDevice(Struct):
    """A number of Python that the last calls passed, and its array once there were enough of them."""

    number: Any
    calls: int = 0
    array: Any = None


class Specialization(CallableGraph):
    """A function specialized to argument types: its program, and the conversion of arguments and results.

    `function` makes the function values in a result.
    """

    def __init__(
        self,
        loaded: LoadedProgram,
        name: str,
        signature: Signature,
        type: ClosureType,
        given: CallArguments,
        function: Any,
    ) -> None:
        typed = loaded.type_arguments(name, signature, given)
        self.loaded, self.name = loaded, name
        self.order, self.key_positions = typed.order, typed.keys
        # Whether the program takes the leaves in the order of the arguments.
        self.identity_order = typed.order == tuple(range(len(given.leaves)))
        instances = loaded.checked.session.instances
        before = len(instances)
        self.entry: ElaboratedCall = loaded.elaborate_call(name, type, typed.arguments)
        # What elaboration has kept for this program only, in the order in which it was made.
        self.instance_keys = tuple(islice(instances, before, None))
        with loaded.lock:
            self.constants = loaded.constants(self.entry)
        self.random = self.entry.random
        super().__init__(loaded.run_context, self.entry.graph, self.entry.fails, type, self.entry.limit)
        self.numbers_on_device: dict[int, NumberOnDevice] = {}  # by place among the arguments
        # Whether the arguments can be passed to the program unchanged.
        self.direct = self.identity_order and not self.random and not self.constants
        like = gradient_template(type, signature, given)

        def function_value(made: MakeProgram, type: ClosureType, leaves: tuple[Any, ...]) -> Any:
            return function(loaded, loaded.with_capacity(type, made().capacity), leaves)

        self.build_result, self.build_interpreted = [
            result_maker(self.entry.type, loaded.records, partial(function_value, made), like)
            for made in (lambda: self.program, lambda: self.reference)
        ]

    def release(self) -> None:
        """Let go of the programs and of what elaboration kept; a call that still runs keeps what it needs."""
        for key in self.instance_keys:
            self.loaded.checked.session.instances.pop(key, None)
        self.programs.clear()
        self.numbers_on_device.clear()
        self.drop_jax_programs()

    def program_inputs(self, leaves: Sequence[Any], key: Any) -> list[Any]:
        """The inputs of the program."""
        arrays = list(leaves) if self.identity_order else self.ordered(leaves)
        for i in self.key_positions:
            arrays[i] = random_key(arrays[i])
        if self.random:
            arrays.append(self.random_key(key, arrays))
        elif key is not None:
            raise make_error("DL1207", "a key was given, but this function draws no random numbers")
        return [*arrays, *self.constants]

    def ordered(self, leaves: Sequence[Any]) -> list[Any]:
        """The leaves in the order of the program's inputs, lists of items stacked."""
        types = [p.type if isinstance(p.type, Tensor) else None for p in self.graph.params]
        return [read_source(source, leaves, type) for source, type in zip(self.order, types, strict=False)]

    def random_key(self, key: Any, arrays: Sequence[Any]) -> Any:
        if key is not None:
            return random_key(key)
        if pytrees.has_tracers(arrays) or pytrees.is_tracing():
            raise make_error(
                "DL1208", "inside a JAX transformation, a random function needs a key", help="pass one: `key=key`"
            )
        return self.loaded.next_key()

    def convert_mixed(self, leaves: Sequence[Any], there: frozenset[type]) -> list[Any] | None:
        """The inputs of the program for numbers, NumPy arrays and arrays of the JAX classes `there`.

        None for anything else, and for numbers and NumPy arrays of other types; the program itself checks the types of
        JAX arrays.
        """
        arrays, converters = list(leaves), self.executable.converters
        for i, x in enumerate(leaves):
            # JAX arrays pass as they are: the program compares their types itself.
            if x.__class__ not in there:
                is_number = x.__class__ in pytrees.NUMBERS
                if not is_number and not isinstance(x, NUMPY_CLASSES):
                    return None
                try:
                    arrays[i] = self.array_of_number(i, x) if is_number else converters[i](x)
                except DifflangError:
                    return None
        return arrays

    def array_of_number(self, place: int, number: Any) -> Any:
        """The argument at a place for a number of Python; one that call after call passes stays on the device.

        Errors: those of `argument_converter`.
        """
        known = self.numbers_on_device.get(place)
        if known is None or known.number is not number:
            known = self.numbers_on_device[place] = NumberOnDevice(number)
        if known.array is not None:
            return known.array
        known.calls += 1
        converted = self.executable.converters[place](number)
        if known.calls == CALLS_BEFORE_SENT and default_device() == self.executable.setting:
            known.array = on_device(converted)
        return converted

    def bare_compiled(self) -> BareProgram | None:
        """The compiled program, if its single result is the value and it needs no checks before or after."""
        made = self.program.made
        compiled = made.executable.compiled
        if compiled is None or compiled is not made.executable.xla_executable:
            return None
        if not self.direct or self.build_result is not next or made.fails:
            return None
        return BareProgram(compiled, made.executable.setting)

    def try_compiled(self, arrays: Sequence[Any], there: frozenset[type]) -> Any:
        """The value for NumPy arrays and those of classes `there`; `UNKNOWN` if the program takes other types, or is
        not compiled.
        """
        executable = self.program.made.executable
        if executable.compiled is None or default_device() != executable.setting:
            return UNKNOWN
        met = self.voice.met
        try:
            in_jax = there.issuperset(map(type, arrays))
            results = executable.compiled(*arrays) if in_jax else executable.on_arrays(arrays)
        except (TypeError, ValueError):  # other types, or another device
            return UNKNOWN
        return self.checked_value(results, arrays, met)

    def run(self, leaves: Sequence[Any], key: Any = None) -> Any:
        self.sync_capacity()
        return self.call(self.program_inputs(leaves, key))

    def run_checked(self, leaves: Sequence[Any], key: Any) -> tuple[list[Any], Any]:
        """The failure word, and the value."""
        self.sync_capacity(raises=False)
        return self.call_with_failure(self.program_inputs(leaves, key))

    def gradient_report(self, leaves: Sequence[Any], key: Any, options: CheckGradOptions) -> GradcheckReport:
        """The gradient check at arguments. Errors: as in a call, and those of `check_grad.run_gradient_check`."""
        converted = self.concrete_arrays(self.program_inputs(leaves, key), "a gradient check")
        if self.fails:
            silent = compile_graph(self.executable.graph) if self.graph.effectful else self.executable
            self.checked_value(list(silent(*converted)), converted, self.voice.met)
        inputs = len(converted) - len(self.constants)
        entry = with_fitted_capacity(self.loaded.checked.session, self.entry, converted)
        return check_grad.run_gradient_check(self.loaded.module, self.name, entry, converted, inputs, options)

    def evaluation_trace(self, leaves: Sequence[Any], key: Any, options: trace_call.TraceOptions) -> trace_call.Trace:
        """The trace of a call, by the interpreter. Errors: as in a call, and those of `trace_call.trace_entry`."""
        converted = self.concrete_arrays(self.program_inputs(leaves, key), "a trace")
        inputs = len(converted) - len(self.constants) - self.random
        return trace_call.trace_entry(self.loaded.checked.session, self.name, self.entry, converted, inputs, options)

    def interpret(self, leaves: Sequence[Any], key: Any) -> Any:
        """The same in NumPy, by the reference implementation of each op."""
        return self.interpreted(self.program_inputs(leaves, key))


class BareProgram(Struct, frozen=True):
    """A compiled program, and JAX's setting of the default device that it was compiled under."""

    program: Callable[..., list[Any]]
    setting: Any


class DispatchCache:
    """The specializations of a function, and shortcuts to them for positional arguments.

    Most calls resemble the previous one: the last specialization for a structure is tried first, since its compiled
    program compares array types itself, faster than Python code could.
    """

    __slots__ = (
        *("__weakref__", "ambiguous", "bare", "by_structure", "by_types", "concrete"),
        *("is_array", "is_size", "specializations"),
    )

    def __init__(self, is_size: Sequence[bool]) -> None:
        uses_threads(self)
        # Which arguments are sizes and which are not, if any is.
        self.is_size, self.is_array = (is_size, [not size for size in is_size]) if any(is_size) else ((), ())
        self.specializations: dict[Any, Specialization] = {}
        self.by_structure: dict[Any, Specialization] = {}  # by structure
        self.by_types: dict[Any, Specialization] = {}  # by structure and types
        # Structures with several specializations: types must be compared.
        self.ambiguous = set[Any]()
        # The class of concrete JAX arrays.
        self.concrete: frozenset[type] = frozenset()
        # Programs for arrays whose result is the value, by structure, unless it is ambiguous.
        self.bare: dict[Any, BareProgram] = {}

    def try_call(self, args: tuple[Any, ...]) -> Any:
        """The value for such arguments; `UNKNOWN` if the slow path is needed."""
        sizes: tuple[Any, ...] = ()
        if self.is_size:
            if len(args) > len(self.is_size):
                return UNKNOWN
            sizes, args = tuple(compress(args, self.is_size)), tuple(compress(args, self.is_array))
            if not ONLY_INT.issuperset(map(type, sizes)):
                return UNKNOWN
        if self.concrete.issuperset(map(type, args)):
            leaves, structure, concrete = args, (len(args), *sizes), True
            bare = self.bare.get(structure)
            if bare is not None and default_device() == bare.setting:
                # After a long program has emptied the CPU cache, each Python frame costs microseconds.
                try:
                    return bare.program(*args)[0]
                except (TypeError, ValueError):  # other types, or another device
                    pass
        else:
            leaves, structure = flatten_arguments(args, sizes)
            concrete = self.concrete.issuperset(map(type, leaves))
        last = self.by_structure.get(structure)
        if last is None:
            return UNKNOWN
        if last.direct and (concrete or structure not in self.ambiguous):
            arrays = leaves if concrete else last.convert_mixed(leaves, self.concrete)
            value = UNKNOWN if arrays is None else last.try_compiled(arrays, self.concrete)
            if value is not UNKNOWN:
                return value
        key = pytrees.fast_tree_key(leaves, structure)
        known = self.by_types.get(key)
        if known is None:
            return UNKNOWN
        self.by_structure[structure] = known
        known.loaded.recent.get(known)
        arrays = known.convert_mixed(leaves, self.concrete) if known.direct else None
        value = UNKNOWN if arrays is None else known.try_compiled(arrays, self.concrete)
        return known.run(leaves) if value is UNKNOWN else value

    def forget(self, gone: Specialization) -> None:
        """Drop a specialization that was not used for long."""
        for table in (self.specializations, self.by_structure, self.by_types):
            for key in [key for key, found in table.items() if found is gone]:
                del table[key]
        self.bare.clear()

    def stop_after_fork(self) -> None:
        self.bare.clear()

    def remember(self, found: Specialization, args: tuple[Any, ...]) -> None:
        """Record a shortcut for the next call with such arguments."""
        self.concrete = found.executable.array_classes
        sizes: tuple[Any, ...] = ()
        if self.is_size:
            sizes, args = tuple(compress(args, self.is_size)), tuple(compress(args, self.is_array))
            if not ONLY_INT.issuperset(map(type, sizes)):
                return
        arrays = self.concrete.issuperset(map(type, args))
        leaves, structure = (args, (len(args), *sizes)) if arrays else flatten_arguments(args, sizes)
        quick = pytrees.fast_tree_key(leaves, structure)
        if quick is not None and not pytrees.has_tracers(leaves):
            if self.by_structure.get(structure, found) is not found:
                self.ambiguous.add(structure)
            bare = found.bare_compiled() if arrays and structure not in self.ambiguous else None
            if bare is not None:
                self.bare[structure] = bare
            else:
                self.bare.pop(structure, None)
            self.by_types[quick] = self.by_structure[structure] = found


def flatten_arguments(args: tuple[Any, ...], sizes: tuple[int, ...]) -> tuple[Sequence[Any], Any]:
    """The leaves of arguments and their structure, which is their number if each is a leaf, with the sizes and the
    classes of Python's numbers.
    """
    leaves, structure = (
        (args, len(args)) if LEAF_CLASSES.issuperset(map(type, args)) else pytrees.flatten_jax_tree(args)
    )
    return leaves, (structure, *sizes, *[x.__class__ for x in leaves if x.__class__ in pytrees.NUMBERS])


def gradient_template(type: ClosureType, signature: Signature, given: CallArguments) -> Any:
    """The arguments whose Python form a gradient, or a value with a gradient, is to have."""
    while isinstance(type.code, VmapCode) and isinstance(type.captures[0], ClosureType):
        type = type.captures[0]
    code = type.code
    if not isinstance(code, DerivativeCode) or code.operator not in ("grad", "value_and_grad", "hvp"):
        return None
    _, values = pytrees.tree_of_slots(given.leaves, given.structure)
    named = dict(zip([n for n in given.names if n not in dict(given.dims)], values, strict=True))
    found: list[Any] = []
    for first, *path in code.wrt:
        value = named.get(signature.names[first] if isinstance(first, int) else first)
        for name in path:
            value = field_or_none(value, str(name))
        found.append(value)
    if len(found) > 1:
        found = [pytrees.DataclassFields({str(w[-1]): x for w, x in zip(code.wrt, found, strict=True)})]
    return (None, *found) if code.operator == "value_and_grad" else found[0]


def derivative_operator(type: ClosureType) -> str:
    """The derivative operator that made a function, or an empty string."""
    return type.code.operator if isinstance(type.code, DerivativeCode) else ""
