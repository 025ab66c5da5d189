"""Which of the proposed repairs are certain: those after which the error is gone and nothing else is reported.

The checker is the judge. Whoever reports only proposes what a person will have meant.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from difflang.base.diagnostics import Diagnostic, Fix
from difflang.base.fixes import applied, overlap
from difflang.base.source import Source, Span

MOST = 20  # proposals that are judged in one go: each is a check of the whole file
ROUNDS = 50

Again = Callable[[Source], Sequence[Diagnostic]]
Key = tuple[str, str, str, int]


@dataclass(frozen=True, slots=True)
class Mended:
    """A text after its certain fixes, what they were, with the lines they were made in, and what is left to report."""

    source: Source
    made: tuple[tuple[int, Fix], ...]
    left: tuple[Diagnostic, ...]


def judged(source: Source, found: Sequence[Diagnostic], again: Again, most: int = MOST) -> tuple[Diagnostic, ...]:
    """The same reports, and of each the first proposal that the checker is content with is certain.

    `again` checks another text in place of `source`, the only one that is changed. Cost: a check for each proposal, and
    none where nothing is proposed; what comes after the first `most` proposals is not judged.
    """
    judged = list[Diagnostic]()
    for diagnostic in found:
        certain = None
        for fix in diagnostic.fixes:
            if most and certain is None and all(edit.span.source is source for edit in fix.edits):
                most -= 1
                if mends(source, found, diagnostic, (fix,), again):
                    certain = fix
        fixes = tuple(replace(fix, certain=fix is certain) for fix in diagnostic.fixes)
        judged.append(replace(diagnostic, fixes=fixes) if fixes else diagnostic)
    return tuple(judged)


def certain(diagnostics: Sequence[Diagnostic]) -> list[Fix]:
    """The certain fixes of reports that were judged, at most one of each."""
    return [fix for diagnostic in diagnostics for fix in diagnostic.fixes if fix.certain]


def mended(source: Source, again: Again) -> Mended:
    """A source after its certain fixes, and after those that are certain then, until none is."""
    made = list[tuple[int, Fix]]()
    for _ in range(ROUNDS):
        found = judged(source, again(source), again)
        fixes = apart(certain(found))
        if not fixes:
            return Mended(source, tuple(made), found)
        if len(fixes) > 1 and worse(found, again(Source(source.name, applied(source, fixes))), fixes):
            del fixes[1:]  # each is right by itself, and not all together
        made += [(fix.edits[0].span.position[0], fix) for fix in fixes]
        source = Source(source.name, applied(source, fixes))
    return Mended(source, tuple(made), tuple(again(source)))


def apart(fixes: Sequence[Fix]) -> list[Fix]:
    """Those that do not overlap with one before them."""
    kept = list[Fix]()
    for fix in fixes:
        if not any(overlap(fix, other) for other in kept):
            kept.append(fix)
    return kept


def mends(
    source: Source, found: Sequence[Diagnostic], diagnostic: Diagnostic, fixes: Sequence[Fix], again: Again
) -> bool:
    """Whether a report is gone after fixes, and no other one is there that was not before."""
    after = again(Source(source.name, applied(source, fixes)))
    if worse(found, after, fixes):
        return False
    gone = key(diagnostic, ())
    return [key(d, fixes) for d in after].count(gone) < [key(d, ()) for d in found].count(gone)


def worse(before: Sequence[Diagnostic], after: Sequence[Diagnostic], fixes: Sequence[Fix]) -> bool:
    """Whether something is reported after fixes that was not before."""
    return bool(Counter(key(d, fixes) for d in after) - Counter(key(d, ()) for d in before))


def key(diagnostic: Diagnostic, fixes: Sequence[Fix]) -> Key:
    """What tells a report from others, its place being that in the text before fixes."""
    span = diagnostic.span
    place = (span.source.name, back(span, fixes)) if span is not None else ("", 0)
    return (diagnostic.code, diagnostic.message, *place)


def back(span: Span, fixes: Sequence[Fix]) -> int:
    """Where a place was before fixes."""
    at = span.start
    edits = [edit for fix in fixes for edit in fix.edits if edit.span.source.name == span.source.name]
    moved = 0  # by how much the text before it grew
    for edit in sorted(edits, key=lambda edit: edit.span.start):
        start = edit.span.start + moved
        if at < start:
            break
        if at < start + len(edit.replacement):
            return edit.span.start
        moved += len(edit.replacement) - (edit.span.end - edit.span.start)
    return at - moved
