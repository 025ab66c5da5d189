"""Reports of sizes that a definition claims to be equal: numbers for which they differ, and claims without a proof."""

from __future__ import annotations

from msgspec.structs import replace

from difflang.base.diagnostics import Diagnostic, DifflangError, Label
from difflang.elaborate.context import Session
from difflang.ir.symbolic_dims import Dim, substitute_dims
from difflang.syntax import tree
from difflang.types.unify import Unifier

# The reports of sizes that should be equal.
SIZE_CODES = frozenset({"DL0304", "DL0310", "DL0312", "DL0324", "DL0330", "DL0332", "DL0336"})


def with_differing_sizes(unifier: Unifier, error: DifflangError) -> DifflangError:
    """The report, and if sizes were found to differ: numbers for which they do, and a way out."""
    if unifier.differing is None or error.diagnostics[0].code not in SIZE_CODES:
        return error
    (a, b, numbers), unifier.differing = unifier.differing, None
    case = ", ".join(f"{name} = {n}" for name, n in numbers.items())
    one, other = [substitute_dims(size, numbers.__getitem__) for size in (a, b)]
    help = f"for {case} the sizes are {one} and {other}; if every call has equal ones, write `where {a} == {b}`"
    first, *rest = error.diagnostics
    return DifflangError(replace(first, helps=(help, *first.helps)), *rest)


def warn_unproved_sizes(session: Session, decl: tree.Fn, claims: list[tuple[Dim, Dim]]) -> None:
    """Warn of a definition whose sizes fit only if an equation holds that nothing proves: DL0318."""
    for a, b in dict.fromkeys(claims):
        message = f"the sizes in `{decl.name}` fit only if {a} == {b}"
        label = Label(decl.name_span, "neither proved nor refuted here, so each call is checked")
        help = f"state it after the signature: `where {a} == {b}`"
        session.warn(Diagnostic("DL0318", message, (label,), (help,), "warning"))
