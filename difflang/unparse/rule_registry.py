"""The registry of unparse rules: for each op a function that writes it as source text.

An op without a rule is listed in `NOT_UNPARSED` with the reason, which a test checks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from difflang.ir.graph import Eqn
from difflang.unparse.fragments import CannotUnparse
from difflang.unparse.unparser import Unparsed, Unparser

UnparseRule = Callable[[Unparser, Eqn], Sequence[Unparsed]]

UNPARSE_RULES: dict[str, UnparseRule] = {}

# The reasons are shown to users.
RECURSION_REASON = "a recursive function is compiled to a stack machine, which cannot be written as a program"
NOT_UNPARSED = {
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
        raise CannotUnparse(
            NOT_UNPARSED.get(eqn.op.name, f"`{eqn.op.name}` cannot be written in the language"), eqn.span
        )
    return found


# These modules register their rules when they are imported, and import `unparse_rule` from here.
from difflang.unparse import (  # noqa: E402
    array_ops,
    branches_and_maps,
    contractions,
    convolutions,
    elementwise,
    indexing,
    linear_algebra,
    loops,
    opaque_calls,
    random_draws,
)

__all__ = [
    "NOT_UNPARSED",
    "UNPARSE_RULES",
    "array_ops",
    "branches_and_maps",
    "contractions",
    "convolutions",
    "elementwise",
    "indexing",
    "linear_algebra",
    "loops",
    "opaque_calls",
    "random_draws",
    "rule_for",
    "unparse_rule",
]
