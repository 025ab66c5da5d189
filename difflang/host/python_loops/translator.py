"""Translates a host loop on numbers to source of Python: a third walk over host statements beside checking and running.

Each expression is the unit that the host would run, written out; what prints calls the host. A loop with anything else
(arithmetic on arrays, random numbers, host functions) is not translated.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from msgspec import Struct
from msgspec.structs import replace

from difflang.base.source import Span
from difflang.elaborate.context import Session
from difflang.elaborate.trampoline import Walk, run_walk
from difflang.execution.check_failures import step_limit_error
from difflang.execution.python_source import PythonWriter, is_number, is_number_or_list
from difflang.host.builtins import UNIT_VALUE, BuiltinCall, HostBuiltin, RunningProgram
from difflang.host.call_frames import HostFrame
from difflang.host.compiled_units import HostUnit
from difflang.host.expected_type import ExpectedType
from difflang.host.loop_iterables import HostIterable
from difflang.host.match import bind_pattern, possible_cases
from difflang.host.python_loops.traced_values import (
    TRACED_TEXT,
    TracedNumber,
    TracedText,
    Untranslatable,
    array_of,
    concrete,
    condition_code,
    has_numbers,
    input_value,
    is_traced_text,
    leaf_codes,
    narrowed,
    traced_numbers,
    with_full_bounds,
)
from difflang.host.statement_walk import HostWalk
from difflang.host.unit_cache import UnitCache
from difflang.host.values import HostValue, format_value, joined_text
from difflang.ir.symbolic_dims import Dim
from difflang.ir.tensor_types import BOOL, I32, Tensor
from difflang.ops.elementwise.python_rules import PythonNumber, integer_range
from difflang.syntax import tree
from difflang.syntax.tree_queries import all_nodes, mentioned_names, target_variables
from difflang.types.annotations import AnnotationResolver
from difflang.types.join_types import contains_kind, has_runtime_text
from difflang.types.language_types import UNIT, LangType, RangeType, TextType, leaf_types
from difflang.types.match_patterns import TUPLE_KEY, CheckedPattern, IrrefutablePattern
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


# The value of an `if` whose branches have none in common: a statement has no use for it, and anything else refuses it.
NO_COMMON_VALUE = HostValue(UNIT, (None,))


class LoopTranslator(HostWalk):
    """Writes the source of one loop. `inputs` and `outputs` are the outer values that it reads and assigns."""

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
        if isinstance(value.type, TextType) and value.type.value is not None and variable:
            value = self.inputs[name] = HostValue(TRACED_TEXT, (TracedText(next(self.names)),))
        elif value.leaves and has_numbers(value.type):
            value = self.inputs[name] = input_value(value, self.names, variable=variable)
        return value

    # ---- Source

    def function(self, e: tree.Loop, over: HostIterable | None) -> list[str]:
        """The lines of `loop(inputs…, items, start, yielded, out)`. The host has run the first `start` steps.

        It appends what it yields, and leaves the outputs in `out` however it ends. Errors: Untranslatable.
        """
        writer = self.writer
        writer.indent = 2
        with self.scope(e.span):
            if isinstance(e, tree.While):
                run_walk(self.while_loop(e, "start"))
            else:
                assert over is not None
                run_walk(self.for_loop(e, over, "items", "start"))
        body, writer.lines, writer.indent = writer.lines, [], 0
        inputs, outputs = (leaf_codes(writer, list(found.values())) for found in (self.inputs, self.outputs))
        # A local name is found faster than a global one.
        objects = [f"{name}={name}" for name in writer.namespace]
        with writer.block(f"def loop({', '.join([*inputs, 'items', 'start', 'yielded', 'out', *objects])}):"):
            with writer.block("try:"):
                writer.lines += body
            with writer.block("finally:"):
                writer.line(f"out[:] = [{', '.join(outputs)}]")
        return writer.lines

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
        return [self.marked(value) for value in values], unit

    def staged_unit(self, node: tree.Node, body: Any, key: Hashable) -> HostUnit:
        """A unit that the host has not run yet."""
        said = len(self.session.diagnostics)
        unit = self.staged(node, body)
        # Its warnings belong to the moment when it runs first.
        if len(self.session.diagnostics) > said:
            raise Untranslatable
        return unit

    def marked(self, value: HostValue) -> HostValue:
        """The value, in which a result that is a variable itself says so."""
        variables = self.variable_names
        leaves = [replace(leaf, variable=leaf.number.code in variables) for leaf in traced_numbers(value)]
        return replace(value, leaves=tuple(leaves))

    @property
    def variable_names(self) -> set[str]:
        leaves = [leaf for value in self.values.values() for leaf in value.leaves or ()]
        return {leaf.number.code for leaf in leaves if isinstance(leaf, TracedNumber) and leaf.variable}

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
        """The value of an expression without host calls: here a text, or whether two texts are equal, too."""
        text = self.text_of(e)
        if text is not None and not isinstance(e, tree.Str):
            return HostValue(TRACED_TEXT, (TracedText(text),))
        if isinstance(e, tree.Compare) and len(e.rest) == 1:
            ((sign, other, _),) = e.rest
            sides = (self.text_of(e.first), self.text_of(other))
            if sign in ("==", "!=") and None not in sides:
                equal = PythonNumber(f"({sides[0]} {sign} {sides[1]})", BOOL)
                return HostValue(Tensor(BOOL), (TracedNumber(equal),))
        return super().compiled_value(e, expected)

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
        if leaf.number.atom and not (leaf.number.weak or leaf.variable or mutable):
            return leaf
        number = self.writer.assigned(self.writer.new_name(), leaf.number)
        bounds = integer_range(number.dtype) if mutable else number.bounds
        return TracedNumber(replace(number, bounds=bounds), mutable)

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

    def forget_bounds(self, e: tree.Loop) -> None:
        """Of the variables that a loop assigns nothing is known inside, but their types."""
        for stmt in all_nodes(e):
            for name in target_variables(stmt.target) if isinstance(stmt, (tree.Assign, tree.Update)) else ():
                if name in self.values:
                    self.values[name] = with_full_bounds(self.values[name])

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

    # ---- Control flow

    def do(self, stmt: tree.Node, *, last: bool = False, expected: ExpectedType | None = None) -> Walk[HostValue]:
        if isinstance(stmt, tree.Yield) and len(self.frames[-1].loops) == 1:
            return self.collect(stmt)
        return super().do(stmt, last=last, expected=expected)

    def collect(self, stmt: tree.Yield) -> Walk[HostValue]:
        """Append what the whole loop yields to the list `yielded`."""
        value = yield self.value_of(stmt.value)
        if (
            not all(is_number(t) for t in leaf_types(value.type))
            or not traced_numbers(value)
            or (self.yielded is not None and self.yielded.type != value.type)
        ):
            raise Untranslatable
        self.yielded = HostValue(value.type, value.leaves)
        self.writer.line(f"yielded.append(({', '.join(leaf_codes(self.writer, [value]))},))")
        return UNIT_VALUE

    def branch(self, e: tree.If, condition: HostValue, expected: ExpectedType | None) -> Walk[HostValue]:
        test = condition_code(condition)
        with self.writer.block(f"if {test}:"), self.assuming(condition):
            first = self.joined((yield self.do_block(e.then, expected)))
        if e.orelse is None:
            return UNIT_VALUE
        with self.writer.block("else:"):
            second = self.joined((yield self.control(e.orelse, expected)), first)
        return second

    def joined(self, value: HostValue, first: HostValue | None = None) -> HostValue:
        """The value of a branch, assigned to names that it shares with the `first` branch."""
        text = self.text_code(value)
        if text is not None:
            value = HostValue(TRACED_TEXT, (TracedText(text),))
        if first is None:
            names = [self.writer.new_name() for _ in value.leaves or ()]
        elif first.type != value.type or is_traced_text(first) is not is_traced_text(value):
            return NO_COMMON_VALUE
        else:
            names = leaf_codes(self.writer, [first])
        if text is not None:
            self.writer.line(f"{names[0]} = {text}")
            return HostValue(TRACED_TEXT, (TracedText(names[0]),))
        numbers = [self.writer.assigned(n, x.number) for n, x in zip(names, traced_numbers(value), strict=True)]
        return with_full_bounds(HostValue(value.type, tuple(map(TracedNumber, numbers))))

    def text_code(self, value: HostValue) -> str | None:
        """A text as an expression of Python; None for any other value."""
        if is_traced_text(value):
            return leaf_codes(self.writer, [value])[0]
        if isinstance(value.type, TextType) and value.type.value is not None:
            return repr(value.type.value)
        return None

    def match(self, e: tree.Match, subject: HostValue, expected: ExpectedType | None) -> Walk[HostValue]:
        subject = self.stored(subject, mutable=False)
        first: HostValue | None = None
        result = UNIT_VALUE
        cases = possible_cases(self, e, subject)
        tests = [self.case_test(fit, subject) for fit, _ in cases]
        for i, (fit, case) in enumerate(cases):
            last = tests[i] == "True" or i == len(cases) - 1
            head = "if True:" if last and not i else "else:" if last else f"{'elif' if i else 'if'} {tests[i]}:"
            with self.writer.block(head), self.scope(case.span):
                bind_pattern(self, fit, subject, case.pattern.span)
                result = self.joined((yield self.do(case.body, last=True, expected=expected)), first)
                first = result if first is None else first
            if last:
                break
        return result

    def case_test(self, fit: CheckedPattern, subject: HostValue) -> str:
        """The condition under which a value matches a pattern."""
        if isinstance(fit, IrrefutablePattern):
            return "True"
        kind, literal = fit.key
        if fit.key == TUPLE_KEY and has_numbers(subject.type):
            tests = [self.case_test(item, subject.part(i)) for i, item in enumerate(fit.items)]
            return " and ".join(test for test in tests if test != "True") or "True"
        text = self.text_code(subject)
        if kind != "literal" or (text is None and not isinstance(subject.type, Tensor)):
            raise Untranslatable
        if text is not None:
            return f"{text} == {str(literal)!r}"
        (leaf,) = traced_numbers(subject)
        return f"{self.writer.atom(leaf.number).code} == {self.writer.constant(literal, leaf.number.dtype).code}"

    def logic(self, e: tree.Binary) -> Walk[HostValue]:
        raise Untranslatable
        yield

    def repeat(self, e: tree.While) -> Walk[None]:
        return self.while_loop(e, "0")

    def while_loop(self, e: tree.While, start: str) -> Walk[None]:
        steps = self.step_counter(start)
        self.forget_bounds(e)
        head = len(self.writer.lines)
        with self.writer.block("while True:"):
            condition = yield self.condition(e.condition)
            test = condition_code(condition)
            # A condition that is one expression stands in the head.
            if len(self.writer.lines) == head + 1:
                self.writer.lines[head] = self.writer.lines[head].replace("True", test)
            else:
                self.writer.line(f"if not {test}: break")
            self.count_step(steps, e)
            with self.assuming(condition):
                yield self.do_block(e.body)

    def go_through(self, e: tree.For, over: HostIterable, shown: bool) -> Walk[None]:
        if shown:
            raise Untranslatable
        return self.for_loop(e, over, self.iteration(over), "0")

    def for_loop(self, e: tree.For, over: HostIterable, items: str, start: str) -> Walk[None]:
        steps = self.step_counter(start)
        self.forget_bounds(e)
        target, item = self.item(over)
        with self.writer.block(f"for {target} in {items}:"):
            self.count_step(steps, e)
            with self.scope(e.span):
                self.bind(e.pattern, item, False, e.iterable.span)
                yield self.do_block(e.body)

    def item(self, over: HostIterable) -> tuple[str, HostValue]:
        """The target of a loop, and an item as a value."""
        if over.enumerated or over.value is None:
            parts = [self.item(part) for part in over.parts]
            targets, items = [p[0] for p in parts], [p[1] for p in parts]
            if over.enumerated:
                name = self.writer.new_name()
                counter = TracedNumber(PythonNumber(name, I32, integer_range(I32), atom=True))
                targets, items = [name, *targets], [HostValue(Tensor(I32), (counter,)), *items]
            leaves = tuple(leaf for item in items for leaf in item.leaves or ())
            return f"({', '.join(targets)},)", HostValue(over.item, leaves)
        type = over.type
        if not isinstance(type, Tensor) or not is_number(type):
            raise Untranslatable
        value = input_value(HostValue(type, ()), self.names, variable=False)
        (leaf,) = traced_numbers(value)
        if isinstance(over.value.type, RangeType):
            ends = [x.number.bounds for x in over.value.leaves or () if isinstance(x, TracedNumber)]
            ends = ends[:2] or [(n, n) if isinstance(n, int) else leaf.number.bounds for n in over.value.type.ends[:2]]
            # The step is positive.
            start, stop = ends
            bounds = (start[0], max(start[0], stop[1] - 1))
            leaf = TracedNumber(replace(leaf.number, bounds=bounds))
        return leaf.number.code, HostValue(type, (leaf,))

    def iteration(self, over: HostIterable) -> str:
        """What a loop inside this one goes through, as an expression of Python."""
        if over.enumerated:
            return f"enumerate({self.iteration(over.parts[0])})"
        if over.value is None:
            return f"zip({', '.join(map(self.iteration, over.parts))})"
        if not isinstance(over.value.type, RangeType):
            (leaf,) = traced_numbers(over.value)
            # The loop goes through what the array was when it began.
            return f"{leaf.number.code}[:]" if leaf.variable else leaf.number.code
        return f"range({', '.join(self.writer.atom(x.number).code for x in traced_numbers(over.value))})"

    def step_counter(self, start: str) -> str:
        """The name that counts the steps of a loop; none if there is no limit."""
        if not self.session.most_steps:
            return ""
        name = self.writer.new_name()
        self.writer.line(f"{name} = {start}")
        return name

    def count_step(self, steps: str, e: tree.Loop) -> None:
        if not steps:
            return
        most = self.session.most_steps

        def stop() -> None:
            raise step_limit_error(e.span, most)

        self.writer.line(f"if {steps} >= {most}: {self.writer.name_object(stop)}()")
        self.writer.line(f"{steps} += 1")

    def gathered(self, e: tree.Loop, items: list[HostValue], over: HostIterable | None) -> HostValue:
        raise Untranslatable

    def leave(self, stmt: tree.Return | tree.Break | tree.Continue, value: HostValue) -> None:
        if isinstance(stmt, tree.Return):
            raise Untranslatable
        self.writer.line("break" if isinstance(stmt, tree.Break) else "continue")

    # ---- Effects

    def asserted(self, e: tree.Assert) -> Walk[None]:
        if self.work(e.condition) is not None:
            raise Untranslatable
        blocks = [
            VisibleBlock(block, tuple((self.module.host[name], self.values[name]) for name in names))
            for block, names in zip(self.blocks, self.shadowed, strict=True)
        ]
        values = [value for block in blocks for _, value in block.names]
        condition = yield self.condition(e.condition)
        test = condition_code(condition)

        def fail(*numbers: Any) -> None:
            rest = iter(numbers)
            found = [
                VisibleBlock(block.block, tuple((var, concrete(value, rest)) for var, value in block.names))
                for block in blocks
            ]
            raise FailedAssertion(e, found)

        codes = ", ".join(leaf_codes(self.writer, values))
        self.writer.line(f"if not {test}: {self.writer.name_object(fail)}({codes})")

    def text(self, e: tree.Str) -> Walk[HostValue]:
        pieces: list[tuple[str, HostValue | None, Any]] = []
        for part in e.parts:
            if isinstance(part, str):
                pieces.append((part, None, None))
            else:
                pieces.append((part.format, self.printable((yield self.value_of(part.value))), part.span))
        values = [value for _, value, _ in pieces if value is not None]

        def join(*numbers: Any) -> str:
            rest = iter(numbers)
            return joined_text(
                [p if v is None else format_value(concrete(v, rest), p, at) for p, v, at in pieces], e.span
            )

        return HostValue(TRACED_TEXT, (TracedText(self.called(join, values)),))

    def perform(self, function: HostBuiltin, given: BuiltinCall) -> HostValue:
        if function.check(self, given) != UNIT:
            raise Untranslatable
        items = [(self.printable(value), span) for value, span in given.items]
        named = {name: (self.printable(value), span) for name, (value, span) in given.named.items()}
        host = self.host

        def run(*numbers: Any) -> None:
            rest = iter(numbers)
            positional = tuple((concrete(value, rest), span) for value, span in items)
            options = {name: (concrete(value, rest), span) for name, (value, span) in named.items()}
            function.run(host, replace(given, items=positional, named=options))

        self.called(run, [*[value for value, _ in items], *[value for value, _ in named.values()]])
        return UNIT_VALUE

    def printable(self, value: HostValue) -> HostValue:
        """The value, as something that may be passed to the host while the code runs."""
        text = self.text_code(value)
        if text is None:
            traced_numbers(value)
        if not has_numbers(value.type) or (contains_kind(value.type, (TextType,)) and text is None):
            raise Untranslatable
        return self.stored(value, mutable=False)

    def called(self, function: Callable[..., Any], values: list[HostValue]) -> str:
        """A name for what a function of this process gives for the numbers of these values."""
        name = self.writer.new_name()
        self.writer.line(f"{name} = {self.writer.name_object(function)}({', '.join(leaf_codes(self.writer, values))})")
        return name

    def enter(self, e: tree.Node, decl: tree.Fn, names: AnnotationResolver, values: list[HostValue]) -> Walk[HostValue]:
        raise Untranslatable
        yield


class FailedAssertion(Exception):
    """An assertion that generated code found false, and the names around it."""

    def __init__(self, e: tree.Assert, blocks: list[VisibleBlock]) -> None:
        self.e, self.blocks = e, blocks
