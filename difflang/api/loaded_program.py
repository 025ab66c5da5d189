"""A loaded file behind its functions: the checked program, its values, and elaboration of calls.

A call finds its specialization by a cheap key; this module creates one, once, from declared types to a graph.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from difflang.api.argument_types import ArgumentReader
from difflang.api.item_arrays import LeafSource
from difflang.api.record_classes import RecordClasses
from difflang.api.signature import Parameter, Signature
from difflang.api.vmap_axes import VmapSizes
from difflang.base.diagnostics import Diagnostic, DifflangError
from difflang.base.gc_pause import pause_gc
from difflang.base.recently_used import RecentlyUsed
from difflang.driver.checked_program import CheckedProgram
from difflang.driver.elaborate_call import CallArgument, ElaboratedCall, elaborate_call
from difflang.driver.python_warnings import issue_warning
from difflang.driver.run_program import load_values
from difflang.elaborate.context import Session
from difflang.embed.mesh_program import Mesh
from difflang.execution.callable_graph import SharedContext
from difflang.execution.random_keys import key_stream
from difflang.lower.capacity import Capacity, capacity_numbers
from difflang.passes.substitute_dims import DimValues, substitute_graph_dims, substitute_in_attr
from difflang.runtime import pytrees
from difflang.syntax import tree
from difflang.tools.emit import transitive_effects
from difflang.tools.export.export_function import ExportedFunction
from difflang.types.annotations import AnnotationResolver
from difflang.types.function_code import FnCode, LinearMapCode
from difflang.types.language_types import (
    UNIT,
    ClosureType,
    LangType,
    RecordType,
    SumType,
    TupleType,
    VariantType,
    default_open_dtypes,
    map_tensors,
    tangent_type,
)
from difflang.types.type_errors import make_error
from difflang.types.unify import Unifier

Dims = tuple[tuple[str, int], ...]


class CallArguments(Struct, frozen=True, eq=False):
    """The arguments of one call: their names, their sizes (`dim`s), and the leaves of the rest."""

    names: tuple[str, ...]
    dims: Dims
    leaves: list[Any]
    structure: Any
    expected_type: LangType | None = None  # the argument type of a linear map
    sizes: Dims = ()  # bound sizes

    @property
    def key(self) -> Hashable:
        return (self.structure, self.names, self.dims, tuple([pytrees.leaf_key(x) for x in self.leaves]))


class TypedArguments(Struct, frozen=True, eq=False):
    """The types of a call's arguments, and which leaves the program takes."""

    order: tuple[LeafSource, ...]
    arguments: tuple[CallArgument, ...]
    keys: tuple[int, ...]  # the positions of random keys among the leaves


class LoadedProgram:
    """A checked file and everything made from it. Without `values` they are evaluated lazily.

    `records` are existing classes of its records, for Python functions that were bound before.
    """

    def __init__(
        self,
        checked: CheckedProgram,
        name: str,
        path: Path | None,
        seed: int,
        values: Any = None,
        records: RecordClasses | None = None,
        mesh: Mesh | None = None,
    ) -> None:
        self.checked, self.name = checked, name
        self.module = checked.module
        self.global_values = values or load_values(checked, path, seed=seed)
        self.records = records or RecordClasses(checked.module, name)
        # Elaboration changes the session, and callers may use several threads.
        self.lock = threading.RLock()
        self.tables: dict[Any, Any] = {}
        self.recent = RecentlyUsed[Any, Any]()  # the table of each specialization
        self.run_context = SharedContext(checked.session, self.lock, {}, mesh)
        self.key_stream = key_stream(seed)
        self.resized_types: dict[tuple[ClosureType, Capacity], ClosureType] = {}
        self.effects: dict[tree.Fn, tuple[str, ...]] = {}

    def warn(self, warnings: Sequence[Diagnostic]) -> None:
        """Issue warnings to the caller. Errors: the warnings, if the program was loaded as strict."""
        if warnings and self.checked.session.strict:
            raise DifflangError(*[d.as_error() for d in warnings])
        issue_warning(warnings)

    def effects_of(self, type: ClosureType) -> tuple[str, ...]:
        """The effects of a declared function, as `difflang info` names them."""
        if not isinstance(type.code, FnCode):
            return ()
        decl = type.code.decl
        if decl not in self.effects:
            self.effects[decl] = tuple(sorted(transitive_effects(self.checked, decl)))
        return self.effects[decl]

    def with_capacity(self, type: ClosureType, capacity: Capacity) -> ClosureType:
        """The type of a function value from a program with this capacity: its captured buffers have that size."""
        with self.lock:
            if (type, capacity) not in self.resized_types:
                self.resized_types[type, capacity] = substitute_sizes(type, capacity_numbers(capacity))
            return self.resized_types[type, capacity]

    def continue_from(self, other: LoadedProgram) -> None:
        """Continue another program's state: its random stream, and its classes for records that both declare."""
        self.key_stream = other.key_stream
        self.records.share_classes(other.records)

    def next_key(self) -> np.ndarray:
        """The key of the next random call."""
        with self.lock:
            return self.key_stream.next()

    def type_arguments(
        self, name: str, signature: Signature, call: CallArguments, *, specs: bool = False
    ) -> TypedArguments:
        """Type the arguments by the declared types. Errors: DL12."""
        reader = ArgumentReader(signature.module or self.module, specs)
        captured, values = pytrees.tree_of_slots(call.leaves, call.structure)
        reader.leaf_order += [slot.index for slot in captured]
        reader.generics = dict(signature.generics)
        types = ArgumentMatcher(self, name, signature, reader).types(call, values)
        sizes = dict(call.dims)
        gap = False
        arguments: list[CallArgument] = []
        for parameter in signature.parameters if signature.fixed else [Parameter(n) for n in call.names]:
            # Arguments after an omitted one are passed by name.
            if parameter.name not in types:
                gap = True
                continue
            arguments.append(CallArgument(parameter.name, types[parameter.name], sizes.get(parameter.name), gap))
        return TypedArguments(tuple(reader.leaf_order), tuple(arguments), tuple(reader.key_positions))

    def elaborate_call(
        self, name: str, type: ClosureType, arguments: Sequence[CallArgument], session: Session | None = None
    ) -> ElaboratedCall:
        """The graph of a call, with the globals that it needs."""
        with self.lock, pause_gc():
            return elaborate_call(session or self.checked.session, self.module, name, type, arguments)

    def export_unit(
        self, function: Any, entry: ElaboratedCall, arguments: Sequence[CallArgument], session: Session
    ) -> ExportedFunction:
        """A function elaborated in a `session` of its own, for export."""
        name: str = function.__name__
        declared = {p.name: (p.type_text, p.span) for p in function.signature.parameters}
        constants = [np.asarray(c) for c in self.constants(entry)]
        about = name, function.__doc__ or "", self.name
        return ExportedFunction(
            *about, entry, arguments, declared, session, self.checked.session.deterministic, constants
        )

    def constants(self, entry: ElaboratedCall) -> tuple[Any, ...]:
        """The file's values that a graph reads."""
        return tuple(pytrees.to_device(leaf) for name in entry.globals for leaf in self.global_values.leaves(name))


class ArgumentMatcher:
    """Types the arguments in order, and the names of the signature that they bind."""

    def __init__(self, loaded: LoadedProgram, name: str, signature: Signature, reader: ArgumentReader) -> None:
        self.loaded, self.name, self.signature, self.reader = loaded, name, signature, reader
        module = reader.module
        self.annotations = AnnotationResolver(Unifier(), module.records.get, {}, dict(signature.generics))
        self.vmap_sizes = VmapSizes(name)
        # The type of each argument in one batch element.
        self.instance_types: dict[str, LangType] = {}

    def types(self, given: CallArguments, values: Sequence[Any]) -> dict[str, LangType]:
        parameters = {p.name: p for p in self.signature.parameters}
        types: dict[str, LangType] = {}
        rest = iter(values)
        sizes = dict(given.dims)
        self.annotations.bound |= dict(given.sizes)
        self.reader.bound_sizes = dict(given.sizes)
        for name in given.names:
            parameter = parameters.get(name, Parameter(name))
            self.reader.span = parameter.span
            self.reader.mapped = any(axis is not None for axis in parameter.axes)
            if name in sizes:
                self.annotations.bound[name] = sizes[name]
                types[name] = UNIT
                continue
            # Types are read for one batch element, then batched again.
            value, keys = self.vmap_sizes.one(next(rest), parameter, self.reader), len(self.reader.key_positions)
            with self.vmap_sizes.explain_errors(parameter):
                self.instance_types[name] = self.instance_type(value, parameter, given)
            if len(self.reader.key_positions) > keys:
                self.vmap_sizes.reject_key(parameter, self.reader)
            types[name] = self.vmap_sizes.batched_type(self.instance_types[name], parameter.axes)
        return {n: default_open_dtypes(t) for n, t in types.items()}

    def instance_type(self, value: Any, parameter: Parameter, given: CallArguments) -> LangType:
        """The type of an argument in one batch element."""
        if parameter.tangent_of is not None:
            return self.reader.read_expected(value, self.expected_tangent(parameter), parameter.name)
        if given.expected_type is not None:
            return self.reader.read_expected(value, given.expected_type, parameter.name)
        return self.match_declared(parameter, value)

    def match_declared(self, parameter: Parameter, value: Any) -> LangType:
        type = self.reader.read_declared(value, parameter.declared_type, parameter.name)
        if parameter.declared_type is not None and not self.annotations.match(parameter.declared_type, type):
            assert parameter.span is not None
            others = self.signature.parameters
            earlier = [(p.name, p.declared_type) for p in others[: others.index(parameter)]]
            written, span = parameter.declared_type, parameter.span
            raise self.reader.declared_mismatch(parameter.name, written, type, self.annotations, span, earlier)
        return type

    def expected_tangent(self, parameter: Parameter) -> LangType:
        """The required type of a tangent, from the argument that it belongs to."""
        assert parameter.tangent_of is not None
        position, path = parameter.tangent_of
        base, depth = self.signature.parameters[position], len(parameter.axes)
        type = self.vmap_sizes.batched_type(self.instance_types[base.name], base.axes[depth:], depth)
        return tangent_type_at(type, path)


def substitute_sizes(type: ClosureType, number: DimValues) -> ClosureType:
    """A function value with numbers for size names in its captures, and in the linear maps in it."""

    def substitute(part: LangType) -> LangType:
        match part:
            case ClosureType():
                return substitute_sizes(part, number)
            case TupleType(items=items):
                return replace(part, items=tuple(map(substitute, items)))
            case RecordType(fields=fields) | VariantType(fields=fields):
                return replace(part, fields=tuple(map(substitute, fields)))
            case SumType(options=options):
                return replace(part, options=tuple(map(substitute, options)))
            case _:
                return map_tensors(part, lambda t: substitute_in_attr(t, number))

    code = type.code
    if isinstance(code, LinearMapCode):
        code = replace(
            code,
            graph=substitute_graph_dims(code.graph, number),
            transposed=code.transposed and substitute_graph_dims(code.transposed, number),
        )
    return ClosureType(code, tuple(map(substitute, type.captures)))


def tangent_type_at(type: LangType, path: Sequence[str]) -> LangType:
    """The type of the tangent of a part of a value. Errors: DL0403."""
    for field in path:
        if not isinstance(type, RecordType) or field not in type.names:
            raise make_error("DL0403", f"there is no field `{field}` to differentiate with respect to")
        type = type.fields[type.names.index(field)]
    return tangent_type(default_open_dtypes(type))
