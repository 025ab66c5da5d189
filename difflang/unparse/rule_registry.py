"""How each op is spelled: by its own name where the language has a function of that name, else by a rule here.

An op that has neither is listed in `UNSPELLED` with the reason. A test goes through the registry.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from difflang.ir.graph import Eqn
from difflang.unparse.fragments import CannotUnparse
from difflang.unparse.unparser import Unparsed, Unparser

UnparseRule = Callable[[Unparser, Eqn], Sequence[Unparsed]]

UNPARSE_RULES: dict[str, UnparseRule] = {}

RECURSION_REASON = "a function that calls itself is compiled to a machine of frames, which no program spells"
NOT_UNPARSED = {
    "exchange": RECURSION_REASON,
    "random_bits": "the bits behind a draw have no name in the language",
    "say": "what a function prints is not written into its derivative",
    "extern": "a function of Python is declared in the program that calls it, and the derivative would be another one",
    "add_history": "a sum of what two loops keep step by step has no spelling",
    "empty_history": "a loop that reads what no loop kept has no spelling",
    **dict.fromkeys(("jvp", "vjp", "jet"), "a derivative within is taken before anything is spelled"),
    **dict.fromkeys(
        ("ruled", "again", "solved", "invertible"), "rules have done their work before anything is spelled"
    ),
    "checkpoint": "what is computed again has done its work before anything is spelled",
    **dict.fromkeys(
        ("exp_of_few", "exp_sub_of_few"),
        "exponentials of few numbers are told apart where code is made, after all spelling",
    ),
    "sin_and_cos": "sines and cosines are joined where code is made of them, after all spelling",
    "tanh_and_slope": "a function and its slope are joined where code is made of them, after all spelling",
    "call": "calls are written out before anything is spelled",
    **dict.fromkeys(("to_host", "to_device"), "where a number lies is no part of a program"),
}


def unparse_rule(*names: str) -> Callable[[UnparseRule], UnparseRule]:
    """Registers the rule of an op."""

    def register(rule: UnparseRule) -> UnparseRule:
        UNPARSE_RULES.update(dict.fromkeys(names, rule))
        return rule

    return register


def rule_for(eqn: Eqn) -> UnparseRule:
    """The rule of an equation's op. Errors: Unspelled."""
    found = UNPARSE_RULES.get(eqn.op.name)
    if found is None:
        raise CannotUnparse(NOT_UNPARSED.get(eqn.op.name, f"`{eqn.op.name}` has no spelling"), eqn.span)
    return found


# They register their rules here.
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
