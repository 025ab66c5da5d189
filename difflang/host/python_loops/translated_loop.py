"""Loops of the host on numbers, translated to Python once they have taken a few steps, and kept for the next time."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from msgspec import Struct

from difflang.base.diagnostics import DifflangError
from difflang.base.gc_pause import pause_gc
from difflang.base.process_termination import atomic
from difflang.elaborate.context import AlreadyReported
from difflang.host.data.mapped_files import mapping_of
from difflang.host.loop_iterables import HostIterable, range_numbers
from difflang.host.python_loops.traced_host import LoopHost
from difflang.host.python_loops.traced_values import (
    TRACED_TEXT,
    Untranslatable,
    concrete,
    is_constant_text,
    is_plain_item,
    python_leaves,
)
from difflang.host.python_loops.translator import FailedAssertion, LoopTranslator
from difflang.host.values import HostValue
from difflang.ir.tensor_types import F32, Tensor
from difflang.syntax import tree
from difflang.syntax.tree_queries import mentioned_names
from difflang.types.language_types import LangType, RangeType, leaf_types
from difflang.types.module_scope import GlobalName
from difflang.types.type_errors import DeferCheck

STEPS_BEFORE = 16  # a translation takes about as long as so many steps
CHUNK = 1 << 16  # items of an array that are numbers of Python at a time
MAX_TRANSLATIONS = 8  # of one loop, for names of different types


class TranslatedLoop(Struct, frozen=True, eq=False):
    """A loop as a function of Python, for names of the types `seen`. Without `function` it has no translation."""

    seen: tuple[tuple[str, LangType | None, Any], ...]
    function: Any = None
    inputs: tuple[GlobalName, ...] = ()
    outputs: tuple[tuple[str, HostValue], ...] = ()
    yielded: HostValue | None = None

    def fits(self, host: LoopHost) -> bool:
        return all(seen_as(host, name) == (type, static) for name, type, static in self.seen)

    def run(self, host: LoopHost, start: int, items: Iterable[Any] = ()) -> None:
        """Run the loop from step `start` on. Errors: as the host has them, DifflangError."""
        numbers = [number for name in self.inputs for number in python_leaves(host.read(name))]
        out: list[Any] = []
        rows: list[tuple[Any, ...]] = []
        try:
            try:
                with np.errstate(all="ignore"):
                    self.function(*numbers, items, start, rows, out)
            finally:
                self.write_back(host, out)
        except FailedAssertion as failed:
            host.fail_assertion(failed.e, failed.blocks)
        collected = host.frames[-1].loops[-1]
        if collected is not None and self.yielded is not None:
            collected += [concrete(self.yielded, iter(row)) for row in rows]

    @atomic
    def write_back(self, host: LoopHost, out: list[Any]) -> None:
        """Give the host's variables what the code has assigned to them."""
        numbers = iter(out)
        for name, value in self.outputs if out else ():
            host.update_variable(name, concrete(value, numbers))


def seen_as(host: LoopHost, name: str) -> tuple[LangType | None, Any]:
    """What a translation knows of a name. A text that is a variable itself is no part of that, one in a record is."""
    # `LazyGlobals.get` would evaluate it.
    var = dict.get(host.module.host, name)
    if var is None:
        return None, None
    return TRACED_TEXT if var.mutable and is_constant_text(var.type) else var.type, var.static


class LoopCache:
    """The translations of the loops of a program."""

    def __init__(self) -> None:
        self.by_node: dict[tree.Loop, list[TranslatedLoop]] = {}
        self.steps: Counter[tree.Loop] = Counter()
        self.translating = False

    def clear(self) -> None:
        """Forget all translations: what they call means something else now."""
        self.by_node.clear()
        self.steps.clear()

    def at_step(self, host: LoopHost, e: tree.Loop, number: int, over: HostIterable | None) -> TranslatedLoop | None:
        """The translation of a loop that is about to take this step; None before it is worth one, or if it has none."""
        self.steps[e] += 1
        if self.steps[e] < STEPS_BEFORE or (number and self.steps[e] > STEPS_BEFORE):
            return None
        known = self.by_node.setdefault(e, [])
        found = next((loop for loop in reversed(known) if loop.fits(host)), None)
        if found is None and len(known) < MAX_TRANSLATIONS:
            self.translating = True
            try:
                found = translate(host, e, over)
            finally:
                self.translating = False
            known.append(found)
        return found if found is not None and found.function is not None else None


def translate(host: LoopHost, e: tree.Loop, over: HostIterable | None) -> TranslatedLoop:
    """The translation of a loop; without a function if something in it is not translated."""
    session = host.session
    seen = tuple((name, *seen_as(host, name)) for name in mentioned_names(e) if name in host.module.host)
    diagnostics, strict_errors = list(session.diagnostics), list(session.strict_errors)
    errors, warned = session.errors, set(session.issued_warnings)
    translator = LoopTranslator(host, e)
    try:
        with pause_gc():
            code = compile("\n".join(translator.function(e, over)), f"<loop at {e.span}>", "exec")
    except (Untranslatable, DifflangError, AlreadyReported, DeferCheck, SyntaxError, RecursionError):
        # What is wrong is reported when the host comes to it.
        session.diagnostics[:], session.strict_errors[:] = diagnostics, strict_errors
        session.errors, session.issued_warnings = errors, warned
        return TranslatedLoop(seen)
    exec(code, translator.writer.namespace)  # noqa: S102
    outputs = tuple(translator.outputs.items())
    return TranslatedLoop(
        seen, translator.writer.namespace["loop"], tuple(translator.inputs), outputs, translator.yielded
    )


def python_items(over: HostIterable) -> Iterator[Any]:
    """The items of a loop as generated code takes them apart. Errors: Untranslatable."""
    if over.enumerated:
        return enumerate(python_items(over.parts[0]))
    if over.value is None:
        return zip(*map(python_items, over.parts), strict=True)
    if isinstance(over.value.type, RangeType):
        return iter(range_numbers(over.value))
    columns = map(numbers_of, leaf_types(over.type), over.value.leaves or ())
    return next(columns) if isinstance(over.type, Tensor) else zip(*columns, strict=True)


def numbers_of(type: Tensor, array: Any) -> Iterator[Any]:
    """The numbers of an array along its first axis, as generated code has them."""
    array = np.asarray(array)
    if type.dtype is F32:
        return iter(array)
    return itertools.chain.from_iterable(array[i : i + CHUNK].tolist() for i in range(0, len(array), CHUNK))


def has_plain_items(over: HostIterable) -> bool:
    """Whether the items of a loop are numbers in memory, or records of them."""
    if over.parts:
        return all(map(has_plain_items, over.parts))
    leaves = (over.value and over.value.leaves) or ()
    return is_plain_item(over.type) and all(mapping_of(x) is None for x in leaves)


def rest_of(over: HostIterable, start: int) -> Iterator[Any]:
    """The items from number `start` on."""
    return itertools.islice(python_items(over), start, None)
