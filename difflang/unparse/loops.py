"""Unparse rule for loops: `for` and `while`, with carries as variables and outputs by `yield`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from msgspec import Struct

from difflang.ir.graph import Eqn, Graph, Value
from difflang.ir.symbolic_dims import Dim
from difflang.ir.tensor_types import History, Tensor
from difflang.unparse.branches_and_maps import item_at, named_outside
from difflang.unparse.fragments import (
    ATOM,
    NOT,
    POSTFIX,
    CannotUnparse,
    CannotUnparseNestedHistory,
    Fragment,
    name_fragment,
    number_fragment,
    size_text,
    with_full_shape,
)
from difflang.unparse.unparser import (
    StepCount,
    Unparsed,
    UnparsedHistory,
    Unparser,
    count_uses,
    tensor_type,
    tuple_text,
    unparse_rule,
)


class LoopWriter(Struct, eq=False):
    """A loop being unparsed: the parts of its equation."""

    unparser: Unparser
    eqn: Eqn
    inner: Unparser

    @property
    def step(self) -> Graph:
        return self.eqn.regions[0]

    @property
    def consts(self) -> int:
        return self.eqn.attrs["consts"]

    @property
    def carry(self) -> int:
        return self.eqn.attrs["carry"]

    @property
    def backwards(self) -> bool:
        return self.eqn.attrs["reverse"]

    @property
    def length(self) -> Dim | None:
        """The number of steps, if it is a size or a number literal."""
        if self.eqn.attrs["exact"]:
            return self.eqn.attrs["length"]
        limit = self.unparser.env[self.eqn.operands[0]]
        words = limit.fragment if isinstance(limit, StepCount) else limit
        number = words.integer if isinstance(words, Fragment) and len(self.eqn.regions) == 1 else None
        return None if number is None else max(number, 0)

    @property
    def has_static_length(self) -> bool:
        """Whether the number of steps is known."""
        return self.length is not None

    @property
    def xs(self) -> Sequence[Value]:
        return self.eqn.operands[1 + self.consts + self.carry :]

    @property
    def x_params(self) -> Sequence[Value]:
        return self.step.params[1 + self.consts + self.carry :]

    @property
    def carried(self) -> Sequence[Value]:
        return self.step.params[1 + self.consts : 1 + self.consts + self.carry]

    @property
    def index(self) -> Value:
        return self.step.params[0]

    @property
    def read_outputs(self) -> list[int]:
        """The outputs that are read."""
        return [i for i, r in enumerate(self.eqn.results[1 + self.carry :]) if self.unparser.uses[r]]

    @property
    def array_outputs(self) -> list[int]:
        """The outputs of a loop of unknown length that are read as arrays: these are written item by item."""
        if self.has_static_length:
            return []
        results = self.eqn.results[1 + self.carry :]
        return [
            i
            for i in self.read_outputs
            if results[i] in self.unparser.read_as_array and isinstance(results[i].type, Tensor)
        ]


@unparse_rule("loop")
def loop(writer: Unparser, eqn: Eqn) -> list[Unparsed]:
    at = LoopWriter(writer, eqn, writer.for_region())
    inner = at.inner
    for p, v in zip(at.step.params[1 : 1 + at.consts], eqn.operands[1 : 1 + at.consts], strict=True):
        inner.env[p] = named_outside(writer, v)
    # Carries are declared before the head, which may read them in the condition of a `while`.
    variables = declare_carries(at)
    head = loop_header(at)
    inner.graph(at.step)
    results = at.step.results
    # A list of lists of different lengths is no value of the language.
    if any(isinstance(inner.env[results[at.carry + i]], UnparsedHistory) for i in at.read_outputs):
        raise CannotUnparseNestedHistory("a loop inside a loop whose length is known only at run time", eqn.span)
    items = {i: inner.full_shape(results[at.carry + i]) for i in at.read_outputs}
    arrays = write_output_arrays(at, items)
    ys = {i: w for i, w in items.items() if i not in arrays}
    tail = assignment_statements(variables, [inner.full_shape(r).text for r in results[: at.carry]])
    if ys:
        inner.emit(f"yield {tuple_text([w.text for w in ys.values()])}")
    counter = step_counter(at)
    lines = [*head.prologue, *inner.lines, *tail, *head.epilogue, *counter.last]
    text = head.text + " {\n" + "\n".join(lines) + "\n}"
    names = {i: writer.names.fresh(writer.user_name(eqn.results[1 + at.carry + i]) or "saved") for i in ys}
    if names:
        writer.emit(f"let {tuple_text(list(names.values()))} = {text}", eqn.span)
    else:
        writer.lines.append(text if not writer.note(eqn.span) else f"# {writer.note(eqn.span)}\n{text}")
    return [counter.steps, *carry_results(at, variables), *output_results(at, arrays | names, items)]


def declare_carries(at: LoopWriter) -> list[str]:
    """Declare a variable for each carry."""
    found: list[str] = []
    first = at.eqn.operands[1 + at.consts : 1 + at.consts + at.carry]
    for param, start, result in zip(at.carried, first, at.eqn.results[1:], strict=False):
        wanted = at.unparser.user_name(result) or at.inner.user_name(param) or "s"
        text = at.unparser.names.fresh(wanted)
        at.unparser.emit(f"var {text} = {at.unparser.full_shape(start).text}")
        at.inner.bind_name(text, param)
        found.append(text)
    return found


def write_output_arrays(at: LoopWriter, items: Mapping[int, Fragment]) -> dict[int, str]:
    """Declare an array for each of the `array_outputs`, into which the step writes at its index."""
    names: dict[int, str] = {}
    for i in at.array_outputs:
        type = tensor_type(at.eqn.results[1 + at.carry + i])
        names[i] = at.unparser.names.fresh(at.unparser.user_name(at.eqn.results[1 + at.carry + i]) or "saved")
        at.unparser.emit(f"var {names[i]} = {with_full_shape(number_fragment(0, Tensor(type.dtype)), type).text}")
        at.unparser.unchecked[0] = True
        at.inner.emit(f"{names[i]}[{at.inner.words(at.index).text}] = {items[i].text}")
    return names


# ---- Heads


class LoopHeader(Struct, frozen=True):
    """The head of a loop, and the first and last statements of its body."""

    text: str
    prologue: tuple[str, ...] = ()
    epilogue: tuple[str, ...] = ()


# ---- Heads of loops


def loop_header(at: LoopWriter) -> LoopHeader:
    go = at.eqn.regions[1:]
    uses = count_uses(at.step)
    reads_index = bool(uses[at.index] or (go and count_uses(go[0])[go[0].params[0]]) or at.array_outputs)
    if at.has_static_length:
        return counted_header(at, reads_index)
    histories = [v for v in at.xs if isinstance(at.unparser.env[v], UnparsedHistory)]
    if histories or at.backwards:
        return history_header(at, reads_index, go)
    return forward_header(at, reads_index, go)


def counted_header(at: LoopWriter, reads_index: bool) -> LoopHeader:
    """`for i in 0..n` with arrays read at `i`; for a reverse loop, `for x in reverse(xs)`."""
    length = at.length
    assert length is not None
    if not at.backwards:
        index = at.unparser.names.fresh("i")
        for v, p in zip(at.xs, at.x_params, strict=True):
            at.inner.env[p] = item_at(at.unparser, refuse_history(at, v), p, index)
        at.inner.bind_name(index, at.index)
        return LoopHeader(f"for {index if reads_index or at.xs else '_'} in 0..{size_text(length)}")
    names: list[str] = []
    through: list[str] = []
    if reads_index or not at.xs:
        names.append(at.unparser.names.fresh("i"))
        at.inner.bind_name(names[0], at.index)
        through.append(f"reverse(iota({size_text(length)}))")
    for v, p in zip(at.xs, at.x_params, strict=True):
        names.append(at.unparser.names.fresh(at.inner.user_name(p) or "x"))
        whole = at.unparser.full_shape(refuse_history(at, v))
        at.inner.env[p] = Fragment(names[-1], ATOM, whole.shape[1:], whole.dtype)
        through.append(reversed_array_text(whole))
    if len(names) == 1:
        return LoopHeader(f"for {names[0]} in {through[0]}")
    return LoopHeader(f"for ({', '.join(names)}) in zip({', '.join(through)})")


def refuse_history(at: LoopWriter, value: Value) -> Value:
    if isinstance(at.unparser.env[value], UnparsedHistory):
        raise CannotUnparseNestedHistory(
            "a loop of known length that reads saved values of a loop of unknown length", at.eqn.span
        )
    return value


def reversed_array_text(whole: Fragment) -> str:
    """An array reversed; of a reversed array the original."""
    inner = whole.text.removeprefix("reverse(")
    if inner != whole.text and IDENTIFIER.fullmatch(inner[:-1]):
        return inner[:-1]
    return f"reverse({whole.text})"


def history_header(at: LoopWriter, reads_index: bool, go: Sequence[Graph]) -> LoopHeader:
    """A loop over the saved values of another loop, which has the same length."""
    if go:
        raise CannotUnparse("a loop that ends by a condition and reads saved values of another loop", at.eqn.span)
    writer = at.unparser
    limit = writer.env[at.eqn.operands[0]]
    saved = [writer.env[v] for v in at.xs]
    found = [s for s in saved if isinstance(s, UnparsedHistory)]
    if not found:
        return backward_header(at, reads_index)
    maker = found[0].loop
    if any(s.loop is not maker for s in found):
        raise CannotUnparseNestedHistory("a loop that reads saved values of two others", at.eqn.span)
    if not isinstance(limit, StepCount) or limit.maker is not found[0].steps:
        raise CannotUnparseNestedHistory("a loop that reads some of the saved values of another loop", at.eqn.span)
    first: list[str] = []
    names: list[str] = []
    through: list[str] = []
    arrays = [(v, p) for v, p, s in zip(at.xs, at.x_params, saved, strict=True) if not isinstance(s, UnparsedHistory)]
    for s, p in zip(saved, at.x_params, strict=True):
        if not isinstance(s, UnparsedHistory):
            continue
        text = f"reverse({s.text})" if at.backwards != s.backwards else s.text
        # One variable for a history that is read twice.
        if text not in through:
            names.append(writer.names.fresh(at.inner.user_name(p) or "x"))
            through.append(text)
        at.inner.bind_name(names[through.index(text)], p)
    last: tuple[str, ...] = ()
    if reads_index or arrays:
        index = writer.names.fresh("i")
        last = emit_step_index(at, index, limit, first)
        read_arrays_at(at, arrays, index)
    head = names[0] if len(names) == 1 else f"({', '.join(names)})"
    over = through[0] if len(through) == 1 else f"zip({', '.join(through)})"
    return LoopHeader(f"for {head} in {over}", tuple(first), last)


def read_arrays_at(at: LoopWriter, arrays: Sequence[tuple[Value, Value]], index: str) -> None:
    """Bind params to arrays at the index of the step, which is not proved to be in range."""
    for value, param in arrays:
        at.unparser.unchecked[0] = True
        at.inner.env[param] = item_at(at.unparser, value, param, index)


def emit_step_index(at: LoopWriter, index: str, limit: StepCount, first: list[str]) -> tuple[str, ...]:
    """Emit a step counter, which counts down in a reverse loop; returns the last statements of the body."""
    at.inner.bind_name(index, at.index)
    if not at.backwards:
        at.unparser.emit(f"var {index} = 0")
        return (f"{index} += 1",)
    if limit.fragment is None:
        raise CannotUnparse("a reverse loop with numbered steps", at.eqn.span)
    at.unparser.emit(f"var {index} = {limit.fragment.text}")
    first.append(f"{index} -= 1")
    return ()


def backward_header(at: LoopWriter, reads_index: bool) -> LoopHeader:
    """A reverse loop of run-time length whose steps read their index, or arrays at it."""
    limit = at.unparser.words(at.eqn.operands[0])
    if not reads_index and not at.xs:
        return LoopHeader(f"for _ in 0..{limit.text}")
    step, index = at.unparser.names.fresh("k"), at.unparser.names.fresh("i")
    at.inner.bind_name(index, at.index)
    read_arrays_at(at, list(zip(at.xs, at.x_params, strict=True)), index)
    return LoopHeader(f"for {step} in 0..{limit.at(6)}", (f"let {index} = {limit.at(6)} - 1 - {step}",))


def forward_header(at: LoopWriter, reads_index: bool, go: Sequence[Graph]) -> LoopHeader:
    """A forward loop up to a limit, or while a condition holds."""
    writer = at.unparser
    limit = writer.env[at.eqn.operands[0]]
    # A negative limit means that only the condition ends the loop.
    endless = isinstance(limit, Fragment) and limit.integer is not None and limit.integer < 0 and bool(go)
    index = writer.names.fresh("i") if reads_index or at.xs else "_"
    if index != "_":
        at.inner.bind_name(index, at.index)
    read_arrays_at(at, list(zip(at.xs, at.x_params, strict=True)), index)
    first, condition = condition_text(at, go[0]) if go else ([], None)
    if endless:
        if index != "_":
            writer.emit(f"var {index} = 0")
        last = (f"{index} += 1",) if index != "_" else ()
        assert condition is not None
        whole = condition.text if not first else "{\n" + "\n".join([*first, condition.text]) + "\n}"
        return LoopHeader(f"while {whole}", (), last)
    over = limit_text(at, limit)
    stop = [*first, f"if {negated_text(condition)} {{ break }}"] if condition is not None else []
    return LoopHeader(f"for {index} in 0..{over}", tuple(stop))


def negated_text(condition: Fragment) -> str:
    """The negation of a condition; that of `not stop` is `stop`."""
    return condition.text.removeprefix("not ") if condition.level == NOT else f"not ({condition.text})"


def limit_text(at: LoopWriter, limit: Unparsed) -> str:
    if isinstance(limit, StepCount):
        if limit.fragment is None:
            raise CannotUnparse("a loop that takes as many steps as another one", at.eqn.span)
        return limit.fragment.at(6)
    if not isinstance(limit, Fragment):
        raise CannotUnparse("a loop of this length", at.eqn.span)
    return limit.at(6)


def condition_text(at: LoopWriter, go: Graph) -> tuple[list[str], Fragment]:
    """The statements before a condition, and the condition."""
    inner = at.unparser.for_region()
    known = at.step.params[: 1 + at.consts + at.carry]
    for p, v in zip(go.params, known, strict=True):
        if v in at.inner.env:
            inner.env[p] = at.inner.env[v]
    inner.graph(go)
    return inner.lines, inner.words(go.results[0])


# ---- Results


class StepCounter(Struct, frozen=True):
    """The number of steps of a loop, and the statements that count them."""

    steps: Unparsed
    last: tuple[str, ...] = ()


# ---- Counting steps


def step_counter(at: LoopWriter) -> StepCounter:
    """The number of steps; a variable counts them only if something reads it besides loops over saved values."""
    count = at.eqn.results[0]
    if at.length is not None:
        words = number_fragment(at.length, tensor_type(count))
        return StepCounter(StepCount(at.eqn, words))
    limit = at.unparser.env[at.eqn.operands[0]]
    if isinstance(limit, StepCount):
        return StepCounter(limit)
    if len(at.eqn.regions) == 1 and isinstance(limit, Fragment):
        return StepCounter(StepCount(at.eqn, limit))
    if not reads_step_count(at):
        return StepCounter(StepCount(at.eqn, None))
    text = at.unparser.names.fresh("steps")
    at.unparser.emit(f"var {text} = 0")
    return StepCounter(StepCount(at.eqn, name_fragment(text, tensor_type(count))), (f"{text} += 1",))


def reads_step_count(at: LoopWriter) -> bool:
    """Whether its number of steps is read by name."""
    return at.eqn.results[0] in at.unparser.counted_loops


# ---- Results


def carry_results(at: LoopWriter, variables: Sequence[str]) -> list[Unparsed]:
    return [name_fragment(v, tensor_type(r)) for v, r in zip(variables, at.eqn.results[1:], strict=False)]


def output_results(at: LoopWriter, names: Mapping[int, str], items: Mapping[int, Fragment]) -> list[Unparsed]:
    """The outputs: arrays if the length is known or they are read as such, else histories that only loops read."""
    found: list[Unparsed] = []
    for i, result in enumerate(at.eqn.results[1 + at.carry :]):
        if i not in names:
            found.append(Fragment("_", ATOM, (), tensor_type(at.eqn.results[0]).dtype))
            continue
        text, item, item_type = names[i], items[i], at.step.results[at.carry + i].type
        if i in at.array_outputs:
            found.append(name_fragment(text, tensor_type(result)))
            continue
        if not at.has_static_length:
            if isinstance(item_type, History):
                raise CannotUnparseNestedHistory(
                    "a loop inside a loop whose length is known only at run time", at.eqn.span
                )
            found.append(UnparsedHistory(text, item_type, at.eqn, length_defining_loop(at), at.backwards))
            continue
        assert at.length is not None
        shape = (at.length, *item.shape)
        if at.backwards:
            found.append(Fragment(f"reverse({text})", POSTFIX, shape, item.dtype))
        else:
            found.append(Fragment(text, ATOM, shape, item.dtype))
    return found


def length_defining_loop(at: LoopWriter) -> object:
    """The loop whose number of steps this one shares."""
    limit = at.unparser.env[at.eqn.operands[0]]
    return limit.maker if isinstance(limit, StepCount) else at.eqn


# ---- Assignments

IDENTIFIER = re.compile(r"[^\W\d]\w*")
LOOSE_OPERATORS = re.compile(r" [-+] |[<>=]| and | or ")  # what binds no tighter than a sum


# ---- Assignments at the end of a step


def assignment_statements(variables: Sequence[str], texts: Sequence[str]) -> list[str]:
    """The assignments of carries; simultaneous if some read the old values of others."""
    pairs = [(v, e) for v, e in zip(variables, texts, strict=True) if v != e]
    for i, (variable, _) in enumerate(pairs):
        if any(variable in IDENTIFIER.findall(e) for _, e in pairs[i + 1 :]):
            return [f"({', '.join(v for v, _ in pairs)}) = ({', '.join(e for _, e in pairs)})"]
    return [compound_assignment(v, e) for v, e in pairs]


def compound_assignment(variable: str, text: str) -> str:
    """`x = x + e` as `x += e`."""
    for op in ("+", "-"):
        first, sign, rest = text.partition(f" {op} ")
        if sign and first == variable and not LOOSE_OPERATORS.search(strip_brackets(rest)):
            return f"{variable} {op}= {rest}"
    return f"{variable} = {text}"


def strip_brackets(text: str) -> str:
    """The text without parts in brackets."""
    depth, found = 0, ""
    for c in text:
        depth -= c in ")]}"
        if not depth:
            found += c
        depth += c in "([{"
    return found
