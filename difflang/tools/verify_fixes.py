"""Verifies proposed fixes by checking the fixed text: a certain fix removes its error and adds no other.

The checker decides. The code that reports an error only proposes what was probably meant.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from difflang.base.diagnostics import Diagnostic, Edit, Fix
from difflang.base.fixes import apply_fixes, fixes_overlap
from difflang.base.source import Source, Span

MAX_CHECKS = 20  # proposals verified at once: each checks the whole file
# The most characters checked for them, so that a long file does not make anyone wait.
MAX_CHARACTERS = 500_000
MAX_JOINED_FIXES = 4  # fixes that may be joined into one
MAX_ROUNDS = 50

Recheck = Callable[[Source], Sequence[Diagnostic]]
DiagnosticKey = tuple[str, str, str, int]


class FixedSource(Struct, frozen=True):
    """A text after its certain fixes, the fixes with their lines, and the remaining diagnostics."""

    source: Source
    made: tuple[tuple[int, Fix], ...]
    remaining: tuple[Diagnostic, ...]


def verify_fixes(source: Source, found: Sequence[Diagnostic], again: Recheck) -> tuple[Diagnostic, ...]:
    """The same diagnostics; the first proposal of each that the checker accepts is marked certain.

    `again` checks another text in place of `source`, the only source that changes. Cost: one check for each proposal;
    after `MAX_CHECKS` proposals, fewer for a long file, the rest is not verified.
    """
    judge = FixVerifier(source, tuple(found), again, min(MAX_CHECKS, 1 + MAX_CHARACTERS // (1 + len(source.text))))
    return tuple(replace(d, fixes=judge.fixes(d)) if d.fixes else d for d in found)


class FixVerifier(Struct):
    """Tries proposals on a text whose diagnostics are known."""

    source: Source
    diagnostics: tuple[Diagnostic, ...]
    recheck: Recheck
    checks_left: int

    def fixes(self, diagnostic: Diagnostic) -> tuple[Fix, ...]:
        """The proposals of a diagnostic, with the certain one completed."""
        fixes = list(diagnostic.fixes)
        for i, fix in enumerate(fixes):
            if not fix.leaves_hole and (whole := self.complete_fix(fix, diagnostic)) is not None:
                fixes[i] = replace(whole, is_certain=True)
                break
        return tuple(fixes)

    def complete_fix(self, fix: Fix, diagnostic: Diagnostic) -> Fix | None:
        """A fix that removes a diagnostic and adds none; None if there is none.

        An error can hide others: if these have fixes too, they are joined to it.
        """
        for _ in range(MAX_JOINED_FIXES):
            if not self.checks_left or any(edit.span.source is not self.source for edit in fix.edits):
                return None
            self.checks_left -= 1
            text = Source(self.source.name, apply_fixes(self.source, [fix]))
            after = self.recheck(text)
            # Compare as multisets, with positions mapped back to the text before the fix.
            left = Counter(diagnostic_key(d, [fix]) for d in after)
            before = Counter(map(diagnostic_key, self.diagnostics))
            new, gone = left - before, diagnostic_key(diagnostic)
            if not new:
                return fix if left[gone] < before[gone] else None
            hidden = [d for d in after if diagnostic_key(d, [fix]) in new]
            if not all(d.fixes and not d.fixes[0].leaves_hole for d in hidden):
                return None
            further = rebase_fix(hidden[0].fixes[0], fix, text, self.source)
            if further is None:
                return None
            said = fix.title if further.title in fix.title.split(", ") else f"{fix.title}, {further.title}"
            fix = Fix(said, (*fix.edits, *further.edits))
        return None


def rebase_fix(later: Fix, fix: Fix, text: Source, source: Source) -> Fix | None:
    """A fix of the text after another fix, as a fix of the text before it; None if they overlap."""
    edits = list[Edit]()
    for edit in later.edits:
        if edit.span.source is not text:
            return None
        start, end = (original_offset(Span(text, at, at), [fix]) for at in (edit.span.start, edit.span.end))
        # The edit touches text that the first fix inserted.
        if source.text[start:end] != edit.span.text:
            return None
        edits.append(Edit(Span(source, start, end), edit.replacement))
    moved = Fix(later.title, tuple(edits))
    return None if fixes_overlap(moved, fix) else moved


def certain_fixes(diagnostics: Sequence[Diagnostic]) -> list[Fix]:
    """The certain fixes of verified diagnostics, at most one of each."""
    return [fix for diagnostic in diagnostics for fix in diagnostic.fixes if fix.is_certain]


def apply_certain_fixes(source: Source, again: Recheck) -> FixedSource:
    """Apply the certain fixes of a source, and repeat until none is left."""
    made = list[tuple[int, Fix]]()
    for _ in range(MAX_ROUNDS):
        found = tuple(again(source))
        # Usually all fixes are right together, which takes a single check.
        fixes = try_all_fixes(source, found, again)
        if not fixes:
            found = verify_fixes(source, found, again)
            fixes = drop_overlapping(certain_fixes(found))
        if not fixes:
            return FixedSource(source, tuple(made), found)
        after = Source(source.name, apply_fixes(source, fixes))
        if len(fixes) > 1 and adds_diagnostics(found, again(after), fixes):
            fixes = fixes[:1]  # each is right alone, but they conflict
            after = Source(source.name, apply_fixes(source, fixes))
        made += [(fix.edits[0].span.position[0], fix) for fix in fixes]
        source = after
    return FixedSource(source, tuple(made), tuple(again(source)))


def try_all_fixes(source: Source, found: Sequence[Diagnostic], again: Recheck) -> list[Fix]:
    """The first proposals of all diagnostics, if together they remove them all: a single check verifies many."""
    proposing = [
        d for d in found
        if d.fixes and not d.fixes[0].leaves_hole and all(edit.span.source is source for edit in d.fixes[0].edits)
    ]  # fmt: skip
    fixes = list(dict.fromkeys(d.fixes[0] for d in proposing))
    if len(fixes) < 2 or len(drop_overlapping(fixes)) < len(fixes):
        return []
    after = again(Source(source.name, apply_fixes(source, fixes)))
    left = {diagnostic_key(d, fixes) for d in after}
    return [] if adds_diagnostics(found, after, fixes) or any(diagnostic_key(d) in left for d in proposing) else fixes


def drop_overlapping(fixes: Sequence[Fix]) -> list[Fix]:
    """The fixes that do not overlap with an earlier one."""
    kept = list[Fix]()
    for fix in fixes:
        if not any(fixes_overlap(fix, other) for other in kept):
            kept.append(fix)
    return kept


def adds_diagnostics(before: Sequence[Diagnostic], after: Sequence[Diagnostic], fixes: Sequence[Fix]) -> bool:
    """Whether there are diagnostics after the fixes that were not there before."""
    return bool(Counter(diagnostic_key(d, fixes) for d in after) - Counter(map(diagnostic_key, before)))


def diagnostic_key(diagnostic: Diagnostic, fixes: Sequence[Fix] = ()) -> DiagnosticKey:
    """The identity of a diagnostic, with its position mapped to the text before the fixes."""
    span = diagnostic.span
    name, place = (span.source.name, original_offset(span, fixes)) if span is not None else ("", 0)
    return (diagnostic.code, diagnostic.message, name, place)


def original_offset(span: Span, fixes: Sequence[Fix]) -> int:
    """The offset of a span in the text before the fixes."""
    at = span.start
    edits = [edit for fix in fixes for edit in fix.edits if edit.span.source.name == span.source.name]
    moved = 0  # the growth of the text before it
    for edit in sorted(edits, key=lambda edit: edit.span.start):
        start = edit.span.start + moved
        if at < start:
            break
        if at < start + len(edit.replacement):
            return edit.span.start
        moved += len(edit.replacement) - (edit.span.end - edit.span.start)
    return at - moved
