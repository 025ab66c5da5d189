"""Translates a host loop on numbers to source of Python: a third walk over host statements beside checking and running.

Each expression is the unit that the host would run, written out; what prints calls the host. A loop with anything else
(arithmetic on arrays, random numbers, host functions) is not translated.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from difflang.elaborate.trampoline import Walk, run_walk
from difflang.execution.check_failures import step_limit_error
from difflang.execution.python_source import is_number
from difflang.host.builtins import UNIT_VALUE, BuiltinCall, HostBuiltin
from difflang.host.expected_type import ExpectedType
from difflang.host.loop_iterables import HostIterable
from difflang.host.match import bind_pattern, possible_cases
from difflang.host.python_loops.traced_host import TracedHost, VisibleBlock
from difflang.host.python_loops.traced_values import (
    TRACED_TEXT,
    TracedNumber,
    TracedText,
    Untranslatable,
    concrete,
    condition_code,
    has_numbers,
    input_value,
    is_plain_item,
    is_traced_text,
    leaf_codes,
    traced_numbers,
    with_full_bounds,
)
from difflang.host.values import HostValue, format_value, joined_text
from difflang.ir.tensor_types import BOOL, I32, Tensor
from difflang.ops.elementwise.python_rules import PythonNumber, integer_range
from difflang.syntax import tree
from difflang.types.join_types import contains_kind
from difflang.types.language_types import UNIT, RangeType, TextType, leaf_types
from difflang.types.match_patterns import TUPLE_KEY, CheckedPattern, IrrefutablePattern

# The value of an `if` whose branches have none in common: a statement has no use for it, and anything else refuses it.
NO_COMMON_VALUE = HostValue(UNIT, (None,))


class LoopTranslator(TracedHost):
    """Writes the source of one loop."""

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

    def match(self, e: tree.Match, subject: HostValue, expected: ExpectedType | None) -> Walk[HostValue]:
        subject = self.snapshot(subject)
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
        """`and` or `or`, whose right side may write lines of its own: they run only if the left one does not decide."""
        answer = self.writer.new_name()
        self.writer.line(f"{answer} = {condition_code((yield self.condition(e.lhs)))}")
        with self.writer.block(f"if {answer}:" if e.op == "and" else f"if not {answer}:"):
            self.writer.line(f"{answer} = {condition_code((yield self.condition(e.rhs)))}")
        return HostValue(Tensor(BOOL), (TracedNumber(PythonNumber(answer, BOOL, atom=True)),))

    def repeat(self, e: tree.While) -> Walk[None]:
        return self.while_loop(e, "0")

    def while_loop(self, e: tree.While, start: str) -> Walk[None]:
        steps = self.step_counter(start)
        with self.writer.loop(self.assigned_in(e)) as loop, self.writer.block("while True:"):
            condition = yield self.condition(e.condition)
            test = condition_code(condition)
            # A condition that is one expression stands in the head.
            if len(self.writer.lines) == loop.head + 1:
                self.writer.lines[loop.head] = self.writer.lines[loop.head].replace("True", test)
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
        with self.writer.loop(self.assigned_in(e)):
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
        if not is_plain_item(type):
            raise Untranslatable
        value = input_value(HostValue(type, ()), self.names)
        if not isinstance(type, Tensor):
            return f"({', '.join(leaf_codes(self.writer, [value]))},)", value
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
            if not is_plain_item(over.type):
                raise Untranslatable
            lists = [leaf.number.code for leaf in traced_numbers(over.value)]
            return lists[0] if isinstance(over.type, Tensor) else f"zip({', '.join(lists)})"
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
        if not self.is_repeatable(e.condition):
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
                value = self.snapshot((yield self.value_of(part.value)))
                pieces.append((part.format, self.printable(value), part.span))
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
        """The value, if it may be passed to the host while the code runs. Errors: Untranslatable."""
        text = self.text_code(value)
        if text is None:
            traced_numbers(value)
        if not has_numbers(value.type) or (contains_kind(value.type, (TextType,)) and text is None):
            raise Untranslatable
        return value


class FailedAssertion(Exception):
    """An assertion that generated code found false, and the names around it."""

    def __init__(self, e: tree.Assert, blocks: list[VisibleBlock]) -> None:
        self.e, self.blocks = e, blocks
