"""Decorators of functions, loops and `let`: `@checkpoint`, `@memory`, `@unchecked`, `@deterministic`, `@device`.

They choose a strategy, never a meaning. `@checkpoint` sets attributes of a loop's equation: `keep`, the number of slots
for states and of steps between them, 0 for automatic; and `host`, which moves saved states to the host's memory.
`@memory` becomes an attribute of the reverse-mode derivative of its function. `@device` is only checked here:
`syntax.placed_spans` finds it for the dataflow machine.
"""

from __future__ import annotations

from math import isqrt

from difflang.base.byte_sizes import MAX_BYTES as MOST_BYTES
from difflang.base.byte_sizes import UNITS, format_bytes, tightest_limit, to_bytes
from difflang.base.diagnostics import Diagnostic, Label
from difflang.base.fixes import did_you_mean
from difflang.base.source import Span
from difflang.elaborate.context import ElabContext
from difflang.syntax import tree
from difflang.syntax.placed_spans import MAX_DEVICES, device_number
from difflang.syntax.tree_queries import child_nodes
from difflang.types.type_errors import make_error

DECORATOR_NAMES = ("checkpoint", "memory", "unchecked", "deterministic", "device")
BINDING_DECORATORS = ("unchecked", "device")
# The strategies, each with the name of the number that it takes.
CHECKPOINT_STRATEGIES: dict[str, tuple[str, ...]] = {
    "full": ("cap",),
    "sqrt": (),
    "every": ("steps",),
    "revolve": ("slots",),
    "offload": (),
    "auto": (),
}
SlotsAndInterval = tuple[int, int]
DEFAULT_SLOTS: SlotsAndInterval = (0, 0)
# A limit for slots and for steps between them: they are counted in 32 bits, and each slot costs time.
MAX_SLOTS = 1_000_000
FULL_SLOTS = 4096  # the slots of `full` for a loop of unknown length


def apply_decorators(
    cx: ElabContext, attributes: tuple[tree.Attribute, ...], span: Span, *, loop: bool = False
) -> None:
    """Apply the decorators of a function or loop. Errors: DL0209, DL0219, DL0220."""
    for i, attribute in enumerate(attributes):
        if attribute.name in [a.name for a in attributes[:i]]:
            raise cx.error("DL0209", f"`@{attribute.name}` appears twice", attribute.span)
        match attribute.name:
            case "unchecked" | "deterministic" if attribute.args:
                raise cx.error("DL0209", f"`@{attribute.name}` takes no arguments", attribute.span)
            case "unchecked":
                cx.session.unchecked_spans.add(span)
            case "deterministic":
                cx.session.deterministic = True
            case "checkpoint":
                cx.session.checkpoint_strategies[span] = parse_strategy(cx, attribute)
            case "device" if device_number(attribute) is None:
                message = f"`@device` takes the number of a device, from 0 to {MAX_DEVICES - 1}"
                raise cx.error("DL0209", message, attribute.span, "", "`@device(1)`")
            case "device":
                pass
            case "memory" if loop:
                raise cx.error("DL0220", "`@memory` goes before a function", attribute.span)
            case "memory":
                apply_memory_limit(cx, (attribute,))
            case name:
                way, fixes = did_you_mean(name, DECORATOR_NAMES, attribute.span, "@")
                way = way or f"the attributes are @{', @'.join(DECORATOR_NAMES)}"
                raise cx.error("DL0209", f"there is no attribute `@{name}`", attribute.span, "", way, fixes)


def apply_binding_decorators(cx: ElabContext, e: tree.Let | tree.Var) -> None:
    """Apply the decorators of a `let` or `var`. Errors: DL0209."""
    for attribute in e.attributes:
        if attribute.name in DECORATOR_NAMES and attribute.name not in BINDING_DECORATORS:
            way = f"the attributes of a `let` or `var` are @{', @'.join(BINDING_DECORATORS)}"
            raise cx.error("DL0209", f"a `let` or `var` does not take `@{attribute.name}`", attribute.span, "", way)
    apply_decorators(cx, e.attributes, e.span)


def check_rule_attributes(rule: tree.Rule) -> None:
    """Check that a rule has no attribute but `@unchecked`. Errors: DL0209."""
    for i, attribute in enumerate(rule.attributes):
        if attribute.name != "unchecked":
            message = f"a rule does not take `@{attribute.name}`"
            raise make_error("DL0209", message, (attribute.span, ""), help="the attribute of a rule is `@unchecked`")
        if attribute.args:
            raise make_error("DL0209", "`@unchecked` takes no arguments", (attribute.span, ""))
        if i:
            raise make_error("DL0209", "`@unchecked` appears twice", (attribute.span, ""))


def warn_unused_checkpoint(cx: ElabContext, attributes: tuple[tree.Attribute, ...], why: str) -> None:
    """Warn of a `@checkpoint` that keeps nothing: DL0219."""
    for attribute in attributes:
        if attribute.name == "checkpoint":
            message, way = (
                f"`@checkpoint` has no effect here: {why}",
                "put it before a loop, or before a function with a loop",
            )
            label = Label(attribute.span)
            cx.session.warn(Diagnostic("DL0219", message, (label,), (way,), severity="warning"))


def contains_loop(node: tree.Node) -> bool:
    """Whether a node contains a loop, also in nested functions."""
    return isinstance(node, tree.Loop) or any(map(contains_loop, child_nodes(node)))


def apply_memory_limit(cx: ElabContext, attributes: tuple[tree.Attribute, ...]) -> None:
    """Apply a function's memory limit to its caller. Errors: DL0220."""
    for attribute in attributes:
        if attribute.name == "memory":
            cx.root.memory_limit = tightest_limit(cx.root.memory_limit, parse_memory_limit(cx, attribute))


def parse_memory_limit(cx: ElabContext, attribute: tree.Attribute) -> int:
    """The bytes of `@memory(…)`. Errors: DL0220."""
    match attribute.args:
        case (tree.Quantity(number=tree.Int() | tree.Float() as number, unit=unit),) if unit in UNITS:
            if (bytes := to_bytes(number.value, unit)) is not None:
                return bytes
            message = f"a memory limit is between 1 B and {format_bytes(MOST_BYTES)}"
            raise cx.error("DL0220", message, attribute.span)
        case (tree.Quantity(unit=unit) as wrong,):
            way, fixes = did_you_mean(unit, UNITS, wrong.span)
            way = way or f"the units are {', '.join(UNITS)}"
            raise cx.error("DL0220", f"there is no memory unit `{unit}`", wrong.span, "", way, fixes)
        case _:
            way = "`@memory(256 MiB)`"
            raise cx.error("DL0220", "`@memory` takes a number and a unit", attribute.span, "", way)


def parse_strategy(cx: ElabContext, attribute: tree.Attribute) -> tuple[str, int]:
    """The strategy and number of `@checkpoint(…)`, 0 without a number. Errors: DL0219."""
    first, *rest = attribute.args or (None,)
    word = first.value.id if isinstance(first, tree.Arg) and isinstance(first.value, tree.Name) else ""
    if word not in CHECKPOINT_STRATEGIES or first is None or (isinstance(first, tree.Arg) and first.name is not None):
        place = (first or attribute).span
        way, fixes = did_you_mean(word, CHECKPOINT_STRATEGIES, place)
        way = strategy_hint(first) or way or f"the strategies are {', '.join(CHECKPOINT_STRATEGIES)}"
        raise cx.error("DL0219", "the first argument of `@checkpoint` is a strategy", place, "", way, fixes)
    needs, number = CHECKPOINT_STRATEGIES[word], 0
    for arg in rest:
        if not isinstance(arg, tree.Arg) or arg.name is None or arg.name not in needs:
            takes = f"`{word}` takes only {needs[0]} = an integer" if needs else f"`{word}` takes no other arguments"
            raise cx.error("DL0219", f"`{word}` does not take this argument", arg.span, "", takes)
        if number:
            raise cx.error("DL0219", f"`{arg.name}` is given twice", arg.span)
        number = arg.value.value if isinstance(arg.value, tree.Int) else 0
        if not 1 <= number <= MAX_SLOTS:
            way = f"such as `{arg.name} = 32`"
            message = f"`{arg.name}` must be a literal integer from 1 to {MAX_SLOTS:,}"
            raise cx.error("DL0219", message, arg.span, "", way)
    if needs and not number and word != "full":
        way = f"`@checkpoint({word}, {needs[0]} = 32)`"
        raise cx.error("DL0219", f"`{word}` needs {needs[0]}", attribute.span, "", way)
    return word, number


def strategy_hint(first: object) -> str:
    """The help for `revolve(5)` and `every = 5`, which are written otherwise."""
    match first:
        case tree.Arg(value=tree.Call(fn=tree.Name(id=word), args=(tree.Arg(value=tree.Int(value=n)),))):
            pass
        case tree.Arg(name=str(word), value=tree.Int(value=n)):
            pass
        case _:
            return ""
    return next((f"`@checkpoint({word}, {number} = {n})`" for number in CHECKPOINT_STRATEGIES.get(word, ())), "")


def checkpoint_attrs(cx: ElabContext, loop: Span, length: object) -> dict[str, SlotsAndInterval | bool]:
    """The checkpoint attributes of a loop's equation."""
    word, number = strategy_of_loop(cx, loop)
    keep = slots_and_interval(word, number, length)
    kept: dict[str, SlotsAndInterval | bool] = {} if keep == DEFAULT_SLOTS else {"keep": keep}
    return {**kept, "host": True} if word == "offload" else kept


def strategy_of_loop(cx: ElabContext, loop: Span) -> tuple[str, int]:
    """The strategy of a loop: its own, or that of the innermost function around it."""
    around = [
        s
        for s in cx.session.checkpoint_strategies
        if s.source is loop.source and s.start <= loop.start <= loop.end <= s.end
    ]
    return cx.session.checkpoint_strategies[max(around, key=lambda s: (s.start, -s.end))] if around else ("auto", 0)


def slots_and_interval(word: str, number: int, length: object) -> SlotsAndInterval:
    """The number of slots of a strategy, and of steps between saved states."""
    match word:
        case "full" | "offload" if isinstance(length, int):
            return number or max(1, length), 1
        case "full" if number or length is None:
            return number or FULL_SLOTS, 1
        # For an unknown length, as many slots as for a loop of `FULL_SLOTS` steps.
        case "sqrt" if length is None:
            return isqrt(FULL_SLOTS), 0
        case "sqrt" if isinstance(length, int) and length > 0:
            slots = isqrt(length - 1) + 1
            return slots, -(-length // slots)
        case "every":
            return 0, number
        case "revolve":
            return number, 0
        case _:
            return DEFAULT_SLOTS
