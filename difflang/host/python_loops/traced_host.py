"""What a host loop reads, computes and assigns, as source of Python: units written out, variables as names."""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from msgspec import Struct
from msgspec.structs import replace

from difflang.base.source import Span
from difflang.elaborate.context import Session
from difflang.elaborate.trampoline import Walk
from difflang.execution.python_source import PythonWriter, is_number_or_list
from difflang.host.builtins import RunningProgram
from difflang.host.call_frames import HostFrame
from difflang.host.compiled_units import HostUnit
from difflang.host.expected_type import ExpectedType
from difflang.host.python_loops.traced_values import (
    TRACED_TEXT,
    TracedNumber,
    TracedText,
    Untranslatable,
    array_of,
    has_numbers,
    input_value,
    is_constant_text,
    is_traced_text,
    leaf_codes,
    narrowed,
    traced_numbers,
    with_full_bounds,
)
from difflang.host.statement_walk import HostWalk
from difflang.host.unit_cache import UnitCache
from difflang.host.values import HostValue
from difflang.ir.symbolic_dims import Dim
from difflang.ir.tensor_types import BOOL, Tensor
from difflang.ops.elementwise.python_rules import PythonNumber, integer_range
from difflang.syntax import tree
from difflang.syntax.tree_queries import all_nodes, mentioned_names, target_variables
from difflang.types.annotations import AnnotationResolver
from difflang.types.join_types import has_runtime_text
from difflang.types.language_types import LangType, leaf_types
from difflang.types.module_scope import GlobalName, HostNumber, HostVar, ModuleScope


class LoopHost(RunningProgram, Protocol):
    """The host that runs a loop, as far as its translation needs it."""

    session: Session
    values: dict[str, HostValue]
    hosts: dict[ModuleScope, HostWalk]
    frames: list[HostFrame]
    units: UnitCache
    depth: int

    def read(self, name: GlobalName) -> HostValue: ...

    def update_variable(self, name: str, value: HostValue) -> None: ...

    def fail_assertion(self, e: tree.Assert, blocks: list[VisibleBlock]) -> None: ...


class VisibleBlock(Struct, frozen=True, eq=False):
    """A block around a statement, with the names bound in it so far."""

    block: Span
    names: tuple[tuple[HostVar, HostValue], ...]


class TracedHost(HostWalk):
    """Walks a loop with traced values. `inputs` and `outputs` are the outer values that it reads and assigns."""

    definition = False

    def __init__(self, host: LoopHost, e: tree.Loop) -> None:
        super().__init__(host.session, host.module, dict(host.hosts))
        self.host, self.writer = host, PythonWriter()
        self.depth = host.depth
        frame = host.frames[-1]
        self.frames = [HostFrame(frame.decl, frame.names, loops=[None])]
        self.names: Iterator[str] = iter(self.writer.new_name, "")
        self.inputs: dict[GlobalName, HostValue] = {}
        self.outputs: dict[str, HostValue] = {}
        self.yielded: HostValue | None = None
        for name in mentioned_names(e):
            if name in host.values and name in self.module.host:
                self.values[name] = self.as_input(GlobalName(self.module, name))

    def as_input(self, name: GlobalName) -> HostValue:
        """A value from outside the loop: numbers and texts that vary are arguments of the code."""
        value, var = self.host.read(name), name.var
        variable = var is not None and var.mutable
        if is_constant_text(value.type) and variable:
            value = self.inputs[name] = HostValue(TRACED_TEXT, (TracedText(next(self.names)),))
        elif value.leaves and has_numbers(value.type):
            value = self.inputs[name] = input_value(value, self.names)
            if variable:
                self.writer.variables.update(leaf.number.code for leaf in traced_numbers(value))
        return value

    # ---- Units

    def unit(self, node: tree.Node, body: Any, key: Hashable = None) -> tuple[list[HostValue], HostUnit]:
        if any(is_traced_text(self.values[n]) for n in mentioned_names(node) if n in self.values):
            raise Untranslatable
        unit = self.host.units.find(node, key, self.module, self.demand) or self.staged_unit(node, body, key)
        ends = (*unit.graph.params, *unit.graph.results)
        if unit.random or not all(is_number_or_list(v.type) for v in ends) or any(map(has_runtime_text, unit.types)):
            raise Untranslatable
        graph = self.host.engine.finished(unit.graph, guard=unit.fails)
        if not self.host.engine.runs_numbers(graph):
            raise Untranslatable
        operands = [leaf.number for name in unit.reads for leaf in traced_numbers(self.read(name))]
        results = self.writer.graph(graph, operands)
        if unit.fails:
            self.check(unit, self.writer.in_range(results.pop()), operands)
        leaves = iter(results)
        values = [
            HostValue(type, tuple(TracedNumber(next(leaves)) for _ in leaf_types(type)), static)
            for type, static in zip(unit.types, unit.statics, strict=True)
        ]
        return values, unit

    def staged_unit(self, node: tree.Node, body: Any, key: Hashable) -> HostUnit:
        """A unit that the host has not run yet."""
        said = len(self.session.diagnostics)
        unit = self.staged(node, body)
        # Its warnings belong to the moment when it runs first.
        if len(self.session.diagnostics) > said:
            raise Untranslatable
        return unit

    def check(self, unit: HostUnit, site: PythonNumber, operands: list[PythonNumber]) -> None:
        """Fail as the unit does where its check fails."""
        if site.is_zero:
            return
        units = self.host.units

        def fail(*numbers: Any) -> None:
            program = unit if unit.program is not None else replace(unit, program=units.program(unit))
            units.execute(program, list(map(array_of, operands, numbers)), None)

        codes = ", ".join(self.writer.atom(x).code for x in operands)
        self.writer.line(f"if {site.code}: {self.writer.name_object(fail)}({codes})")

    def demand(self, number: HostNumber) -> Dim:
        raise Untranslatable

    def read(self, name: GlobalName) -> HostValue:
        if name.module is self.module and name.name in self.values:
            return self.values[name.name]
        if name not in self.inputs:
            self.as_input(name)
        return self.inputs.get(name) or self.host.read(name)

    def compiled_value(self, e: tree.Node, expected: ExpectedType | None) -> HostValue:
        """The value of an expression without host calls: here a text, too."""
        text = self.text_of(e)
        if text is not None and not isinstance(e, tree.Str):
            return HostValue(TRACED_TEXT, (TracedText(text),))
        return super().compiled_value(e, expected)

    def is_host(self, e: tree.Node) -> bool:
        """Whether the host evaluates this itself: here whether two texts are equal, too."""
        return super().is_host(e) or self.equal_texts(e) is not None

    def is_repeatable(self, e: tree.Node) -> bool:
        """Whether the host may evaluate an expression once more: it calls no host function and assigns nothing."""
        is_host = super().is_host
        return not any([is_host(node) or self.changes(node) for node in all_nodes(e)])

    def own_value(self, e: tree.Expr, expected: ExpectedType | None) -> Walk[HostValue]:
        equal = self.equal_texts(e)
        if equal is None:
            return (yield super().own_value(e, expected))
        return HostValue(Tensor(BOOL), (TracedNumber(PythonNumber(equal, BOOL)),))

    def equal_texts(self, e: tree.Node) -> str | None:
        """Whether two texts are equal, as an expression of Python; None for anything else."""
        if not isinstance(e, tree.Compare) or len(e.rest) != 1:
            return None
        ((sign, other, _),) = e.rest
        sides = (self.text_of(e.first), self.text_of(other))
        return f"({sides[0]} {sign} {sides[1]})" if sign in ("==", "!=") and None not in sides else None

    def text_of(self, e: tree.Node) -> str | None:
        """A literal text, or a name of a text, as an expression of Python; None for anything else."""
        if isinstance(e, tree.Str) and not self.is_host(e):
            return repr("".join(part for part in e.parts if isinstance(part, str)))
        value = self.values.get(e.id) if isinstance(e, tree.Name) else None
        return None if value is None else self.text_code(value)

    # ---- Names

    def assign(self, e: tree.Assign | tree.Update) -> Walk[None]:
        target = self.values.get(e.target.id) if isinstance(e.target, tree.Name) else None
        if target is None or not is_traced_text(target) or isinstance(e, tree.Update):
            return super().assign(e)
        return self.assign_text(e, target)

    def assign_text(self, e: tree.Assign, target: HostValue) -> Walk[None]:
        text = self.text_code((yield self.value_of(e.value)))
        if text is None:
            raise Untranslatable
        assert isinstance(e.target, tree.Name)
        self.lookup_variable(e.target.id, e.target.span)
        self.record_output(e.target.id, target)
        self.writer.line(f"{leaf_codes(self.writer, [target])[0]} = {text}")

    def held(self, node: tree.Node, value: HostValue, type: LangType) -> HostValue:
        return value if is_traced_text(value) else super().held(node, value, type)

    def bind_name(self, name: str, value: HostValue, mutable: bool, span: Span) -> None:
        super().bind_name(name, self.stored(value, mutable), mutable, span)

    def snapshot(self, value: HostValue) -> HostValue:
        return self.stored(value, mutable=False)

    def stored(self, value: HostValue, mutable: bool) -> HostValue:
        """The value under names of its own, where it is, or comes from, a variable."""
        text = self.text_code(value)
        # The name of a text that does not vary stands for it everywhere.
        if text is not None and (mutable or is_traced_text(value)):
            name = self.writer.new_name()
            self.writer.line(f"{name} = {text}")
            return HostValue(TRACED_TEXT, (TracedText(name),))
        return replace(value, leaves=tuple(self.stored_leaf(leaf, mutable) for leaf in value.leaves or ()))

    def stored_leaf(self, leaf: Any, mutable: bool) -> Any:
        if not isinstance(leaf, TracedNumber):
            if mutable:
                raise Untranslatable
            return leaf
        variables = self.writer.variables
        if leaf.number.atom and not (leaf.number.weak or leaf.number.code in variables or mutable):
            return leaf
        number = self.writer.assigned(self.writer.new_name(), leaf.number)
        if mutable:
            variables.add(number.code)
            number = replace(number, bounds=integer_range(number.dtype))
        return TracedNumber(number)

    def update_variables(self, names: list[str], values: list[HostValue]) -> None:
        targets: list[PythonNumber] = []
        sources: list[PythonNumber] = []
        for name, value in zip(names, values, strict=True):
            old = self.values[name]
            if old.type != value.type:
                raise Untranslatable
            self.record_output(name, old)
            targets += [leaf.number for leaf in traced_numbers(old)]
            sources += [leaf.number for leaf in traced_numbers(value)]
            # What a condition around it implied no longer holds.
            self.values[name] = with_full_bounds(old)
        if len(targets) == 1:
            self.writer.assigned(targets[0].code, sources[0])
        elif targets:
            self.assign_at_once(targets, sources)

    def assign_at_once(self, targets: list[PythonNumber], sources: list[PythonNumber]) -> None:
        """Assign all sources, which may read the targets. A list that stays where it is changes after they are read."""
        writer, kept = self.writer, [x.code == y.code and bool(y.shape) for x, y in zip(targets, sources, strict=True)]
        lists = any(y.shape for y in sources)
        codes: list[tuple[str, str]] = []
        for x, y, stays in zip(targets, sources, kept, strict=True):
            if not stays:
                codes.append((x.code, (writer.assigned(writer.new_name(), y) if lists else writer.in_range(y)).code))
        for x, y, stays in zip(targets, sources, kept, strict=True):
            if stays:
                writer.assigned(x.code, y)
        if codes:
            writer.line(f"{', '.join(x for x, _ in codes)} = {', '.join(y for _, y in codes)}")

    def record_output(self, name: str, value: HostValue) -> None:
        """Remember that the code assigns to a variable from outside the loop."""
        if not self.is_local(name):
            self.outputs[name] = value

    def assigned_in(self, e: tree.Loop) -> set[str]:
        """The names of what a loop assigns. Nothing is known of it inside, but its types."""
        targets = [stmt.target for stmt in all_nodes(e) if isinstance(stmt, (tree.Assign, tree.Update))]
        names = {name for target in targets for name in target_variables(target) if name in self.values}
        self.values.update((name, with_full_bounds(self.values[name])) for name in names)
        return set(leaf_codes(self.writer, [self.values[name] for name in names]))

    @contextmanager
    def assuming(self, condition: HostValue) -> Generator[None]:
        """Inside, integers have the bounds that a condition implies, until they are assigned."""
        (leaf,) = traced_numbers(condition)
        before = dict(self.values)
        after = {name: narrowed(value, dict(leaf.number.implies)) for name, value in before.items()}
        self.values.update(after)
        try:
            yield
        finally:
            for name, value in after.items():
                if self.values.get(name) is value:
                    self.values[name] = before[name]

    def text_code(self, value: HostValue) -> str | None:
        """A text as an expression of Python; None for any other value."""
        if is_traced_text(value):
            return leaf_codes(self.writer, [value])[0]
        if is_constant_text(value.type):
            return repr(value.type.value)
        return None

    def called(self, function: Callable[..., Any], values: list[HostValue]) -> str:
        """A name for what a function of this process gives for the numbers of these values."""
        name = self.writer.new_name()
        self.writer.line(f"{name} = {self.writer.name_object(function)}({', '.join(leaf_codes(self.writer, values))})")
        return name

    def enter(self, e: tree.Node, decl: tree.Fn, names: AnnotationResolver, values: list[HostValue]) -> Walk[HostValue]:
        raise Untranslatable
        yield
