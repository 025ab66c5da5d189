"""The unparser: writes a graph as statements of the language, in one pass over its equations.

A value that is used once is written where it is used, if that stays readable. One that is used more often, or inside a
loop or a branch, gets a name: the user's if it is known, else a number. Each op has a rule that writes it, in a module
beside this one, or its reason in `NOT_UNPARSED`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct, field

from difflang.base.source import NO_SPAN, Span
from difflang.ir.graph import Eqn, Graph, Value
from difflang.ir.tensor_types import U32, History, Tensor, Type
from difflang.unparse.fragments import (
    CannotUnparse,
    CannotUnparseNestedHistory,
    Fragment,
    name_fragment,
    with_dtype,
    with_full_shape,
)

ALWAYS_INLINE = ("const", "iota")  # literals and iotas are written wherever they are used
IOTA_CALL = re.compile(r"iota\([^()]*\)")  # such as a clamped iota that is known to be in range
MAX_INLINE = 56  # characters of an expression inside another
HISTORY_MESSAGE = "only other loops can read the saved values of a loop whose length is known only at run time"
KEY = Tensor(U32, (2,))
VALID_IDENTIFIER = re.compile(r"[^\W\d]\w*")

# The reasons are shown to users.
RECURSION_REASON = "a recursive function is compiled to a stack machine, which cannot be written as a program"
COMPILED_REASON = "it appears only in programs that are compiled"
NOT_UNPARSED = {
    "unique_position": COMPILED_REASON,
    "with_derivative": COMPILED_REASON,
    "swap_window": COMPILED_REASON,
    "shift": COMPILED_REASON,
    "resplit": COMPILED_REASON,
    "on_devices": COMPILED_REASON,
    "swap_item": RECURSION_REASON,
    "random_bits": "the random bits of a draw cannot be written in the language",
    "print": "the output of `print` cannot be written into a derivative",
    "extern": (
        "a Python function belongs to the program that declares it, and the derivative would be a different program"
    ),
    "add_history": "a sum of the saved values of two loops cannot be written",
    "empty_history": "a loop that reads values saved by no loop cannot be written",
    **dict.fromkeys(("jvp", "vjp", "jet"), "derivatives are expanded before a program is written"),
    **dict.fromkeys(
        ("custom_derivative", "self_call", "custom_linear_solve", "invertible"),
        "rules are expanded before a program is written",
    ),
    "checkpoint": "checkpoints are expanded before a program is written",
    "sin_and_cos": "sines and cosines are fused only when a program is compiled",
    "call": "calls are inlined before a program is written",
    **dict.fromkeys(("to_host", "to_device"), "the language cannot say in which memory a number is kept"),
}

LineComment = Callable[[Span], str]  # the comment after a statement


class UnparsedHistory(Struct, frozen=True):
    """The output of a loop whose length is known only at run time: only other loops read it."""

    text: str
    item_type: Type
    loop: object  # the loop that made it: a loop may read several histories of one loop
    steps: object  # the loop that defines its number of steps
    backwards: bool = False  # whether its first item is that of the last step


class StepCount(Struct, frozen=True):
    """The number of steps of a loop `maker`, with a `fragment` if it is counted."""

    maker: object
    fragment: Fragment | None


Unparsed = Fragment | UnparsedHistory | StepCount


class NamePool(Struct, eq=False):
    """The names in use in a program, and fresh ones."""

    used: set[str]
    lambda_params: list[str] = field(default_factory=list[str])  # the parameters of lambdas

    def valid_identifier(self, wanted: str) -> str:
        """The valid identifier nearest to a name."""
        base = re.sub(r"\W", "_", wanted).strip("_") or "t"
        return base if VALID_IDENTIFIER.fullmatch(base) else f"t_{base}"

    def fresh(self, wanted: str) -> str:
        """A new name like the wanted one, with a number if that is a keyword or in use."""
        base = self.valid_identifier(wanted)
        found, count = base, 1
        if base == "t":
            found = "t1"
        while found in self.used:
            count += 1
            found = f"{base}{count}" if base == "t" else f"{base}_{count}"
        self.used.add(found)
        return found


class Unparser(Struct, eq=False):
    """Writes the statements of one graph. Its regions are written by unparsers of their own."""

    names: NamePool
    note: LineComment
    user_names: Mapping[Value, str]
    env: dict[Value, Unparsed] = field(default_factory=dict[Value, Unparsed])
    lines: list[str] = field(default_factory=list[str])
    uses: Counter[Value] = field(default_factory=Counter[Value])
    at: Span = NO_SPAN
    last: Eqn | None = None
    eqns: Sequence[Eqn] = ()  # the equations of the graph
    results: tuple[Value, ...] = ()
    single_expression: bool = False  # whether everything must be one expression
    nested: bool = False  # whether it writes a region
    hidden: frozenset[str] = frozenset()  # names of the library that the program redefines
    counted_loops: set[Value] = field(default_factory=set[Value])  # step counts that are read by name
    read_as_array: set[Value] = field(default_factory=set[Value])  # outputs of loops that not only loops read
    # Whether something is indexed without a check; shared with the unparsers of regions.
    unchecked: list[bool] = field(default_factory=lambda: [False])

    def for_region(self) -> Unparser:
        """An unparser for a region, which shares only the names with this one."""
        return Unparser(
            self.names, self.note, self.user_names, unchecked=self.unchecked, nested=True, hidden=self.hidden
        )

    # ---- Statements

    def graph(self, graph: Graph) -> None:
        """Write all statements of a graph whose params are in `env`. A value used once may stay an expression there."""
        self.eqns, self.last, self.results = graph.eqns, graph.eqns[-1] if graph.eqns else None, graph.results
        self.uses, self.counted_loops, self.read_as_array = (
            count_uses(graph),
            counted_loop_lengths(graph),
            values_read_as_arrays(graph),
        )
        for eqn in graph.eqns:
            self.at = eqn.span
            try:
                found = rule_for(eqn)(self, eqn)
            except CannotUnparse as error:
                raise error if error.span else error.__class__(error.reason, eqn.span, error.help) from None
            for result, spelled in zip(eqn.results, found, strict=True):
                self.env[result] = (
                    self.inline_or_bind(eqn, result, spelled) if isinstance(spelled, Fragment) else spelled
                )

    def inline_or_bind(self, eqn: Eqn, result: Value, words: Fragment) -> Fragment:
        """The fragment itself if it may be part of a larger expression, else a name bound to it."""
        if words.is_atomic or IOTA_CALL.fullmatch(words.text) or eqn.op.name in ALWAYS_INLINE or not self.uses[result]:
            return words
        if self.is_block_value(eqn, result):
            return words
        if self.uses[result] == 1 and len(words.text) <= MAX_INLINE and not self.has_user_name(result):
            return words
        return self.emit_let(result, words, eqn.span)

    def has_user_name(self, result: Value) -> bool:
        """Whether a value has a user's name that is not already that of a variable it is assigned to."""
        hint = self.user_name(result)
        return bool(hint) and not (
            self.nested and (result in self.results or self.names.valid_identifier(hint) in self.names.used)
        )

    def is_block_value(self, eqn: Eqn, result: Value) -> bool:
        """Whether it is the only result of a block and its last equation: then it needs no name."""
        return self.nested and self.last is eqn and self.results == (result,) and self.uses[result] == 1

    def user_name(self, value: Value) -> str:
        """The user's name for a value, if there is one."""
        # A derived key has the hint of the call that draws with it, which names the result, not the key.
        if value.type == KEY:
            return ""
        return self.user_names.get(value, "") or value.hint

    def emit_let(self, value: Value, words: Fragment, span: Span) -> Fragment:
        """Bind a name to the fragment by a `let` statement."""
        words = with_dtype(words)
        text = self.names.fresh(self.user_name(value) or "t")
        self.emit(f"let {text} = {words.text}", span)
        return Fragment(text, 11, words.shape, words.dtype, folded_key=words.folded_key)

    def emit(self, text: str, span: Span | None = None) -> None:
        """Write a statement, with its source line as a comment."""
        comment = self.note(span) if span is not None else ""
        self.lines.append(f"{text}  # {comment}" if comment else text)

    # ---- Values

    def words(self, value: Value) -> Fragment:
        """The fragment of a value, perhaps without the axes along which it is broadcast."""
        found = self.env[value]
        if isinstance(found, StepCount) and found.fragment is not None:
            return found.fragment
        if not isinstance(found, Fragment):
            raise CannotUnparseNestedHistory(HISTORY_MESSAGE)
        return found

    def full_shape(self, value: Value) -> Fragment:
        """The fragment of a value with all its axes."""
        # The history of a loop of known length is an array in the language.
        if isinstance(value.type, History):
            return with_dtype(self.words(value))
        return with_full_shape(self.words(value), tensor_type(value))

    def as_name(self, value: Value, *, whole: bool = False) -> Fragment:
        """A value as a name, so that it can be written more than once."""
        words = self.full_shape(value) if whole else self.words(value)
        if not words.is_atomic and not self.single_expression:
            words = self.emit_let(value, words, self.at)
            self.env[value] = words
        return words

    def bind_name(self, text: str, value: Value) -> None:
        """Use a name for the value from here on."""
        self.env[value] = name_fragment(text, tensor_type(value))


# ---- The rules of ops

UnparseRule = Callable[[Unparser, Eqn], Sequence[Unparsed]]
UNPARSE_RULES: dict[str, UnparseRule] = {}


def unparse_rule(*names: str) -> Callable[[UnparseRule], UnparseRule]:
    """A decorator that registers the rule of some ops."""

    def register(rule: UnparseRule) -> UnparseRule:
        UNPARSE_RULES.update(dict.fromkeys(names, rule))
        return rule

    return register


def rule_for(eqn: Eqn) -> UnparseRule:
    """The rule of an equation's op. Errors: CannotUnparse."""
    found = UNPARSE_RULES.get(eqn.op.name)
    if found is None:
        where = (
            f"a module of Python, `{eqn.op.module}`, declares the op `{eqn.op}`: it" if eqn.op.module else f"`{eqn.op}`"
        )
        raise CannotUnparse(NOT_UNPARSED.get(eqn.op.name, f"{where} cannot be written in the language"), eqn.span)
    return found


# ---- Values and their uses


def tensor_type(value: Value) -> Tensor:
    """The type of a value that is an array."""
    if isinstance(value.type, History):
        raise CannotUnparseNestedHistory(HISTORY_MESSAGE)
    return value.type


def count_uses(graph: Graph) -> Counter[Value]:
    """The number of uses of each value; an operand of a region op counts twice, so that it gets a name."""
    uses: Counter[Value] = Counter(graph.results)
    for eqn in graph.eqns:
        for value in eqn.operands:
            uses[value] += 2 if eqn.regions else 1
    return uses


def tuple_text(parts: Sequence[str]) -> str:
    """One text by itself, several as a tuple."""
    return parts[0] if len(parts) == 1 else f"({', '.join(parts)})"


def counted_loop_lengths(graph: Graph) -> set[Value]:
    """The values that something reads besides the limits of loops over histories: step counts that need a name."""
    found = set(graph.results)
    for eqn in graph.eqns:
        found.update(eqn.operands[1:] if is_history_scan(eqn) else eqn.operands)
    return found


def values_read_as_arrays(graph: Graph) -> set[Value]:
    """The values that something reads besides loops that read items of one loop's outputs step by step."""
    found, makers = set(graph.results), dict[Value, Eqn]()
    for eqn in graph.eqns:
        is_loop = eqn.op.name == "loop"
        end = 1 + eqn.attrs["consts"] + eqn.attrs["carry"] if is_loop else len(eqn.operands)
        several = len({makers[v] for v in eqn.operands[end:] if v in makers}) > 1
        found.update(eqn.operands if several else eqn.operands[:end])
        if is_loop:
            makers |= dict.fromkeys(eqn.results, eqn)
    return found


def is_history_scan(eqn: Eqn) -> bool:
    """Whether an equation is a loop that reads only histories step by step, and not its index."""
    if eqn.op.name != "loop":
        return False
    step, xs = eqn.regions[0], eqn.operands[1 + eqn.attrs["consts"] + eqn.attrs["carry"] :]
    return bool(xs) and all(isinstance(x.type, History) for x in xs) and not count_uses(step)[step.params[0]]
