"""Incremental checking of a file by parts: after a keystroke only the affected parts are checked again.

A part affects another that mentions a name it declares, directly or through others. The result of a check is kept with
its part: diagnostics, bindings, types. The check itself is that of `difflang check`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct, field

from difflang.base.diagnostics import Diagnostic, DifflangError
from difflang.base.gc_pause import pause_gc
from difflang.base.source import Span
from difflang.driver.checked_program import drop_followup_errors
from difflang.driver.doc_examples import find_examples
from difflang.elaborate.context import Session
from difflang.elaborate.module_declarations import check_block_names, enter_declaration
from difflang.elaborate.recorded_types import RecordedTypes
from difflang.host.check_statements import HostChecker
from difflang.host.statement_walk import HostWalk
from difflang.lsp.incremental_parse import ParsedPart, PartResult
from difflang.syntax import tree
from difflang.types.module_scope import ModuleScope

MODULE_TABLES = (
    "fns", "variants", "rules", "invalid_names", "host", "used", "loop_yield_types", "arguments", "needs", "declared",
    "modules", "imported", "axes",
)  # fmt: skip
PART_TABLES = ("host", "arguments", "needs")  # the tables that checking a part adds to
DECLARATION = re.compile(r"^(?:pub +)?(?:host +)?(?:fn|record|enum|rule|let|var) +(\w+)", re.MULTILINE)
UNKNOWN_NAME_CODES = ("DL0201", "DL0202")
MAX_SESSION_PASSES = 100  # then a new session frees the specializations made so far


class GlobalReads(dict[str, Span]):
    """The top-level names that functions read, with their spans: in the whole file, and in the part being checked."""

    def __init__(self) -> None:
        super().__init__()
        self.part_reads: dict[str, Span] = {}

    def setdefault(self, key: str, default: Span) -> Span:  # type: ignore[override]
        self.part_reads.setdefault(key, default)
        return super().setdefault(key, default)


class CheckCancelled(Exception):
    """The text has changed, so that the running check is obsolete."""


class DocumentAnalysis(Struct, eq=False):
    """The analysis of a file being edited: its module, and its diagnostics."""

    module: ModuleScope
    hosts: dict[ModuleScope, HostWalk] = field(default_factory=dict[ModuleScope, HostWalk])
    session: Session = field(default_factory=Session)
    declaration_errors: tuple[Diagnostic, ...] = ()  # errors of names and imports
    examples: dict[ParsedPart, tuple[Diagnostic, ...]] = field(default_factory=dict[ParsedPart, Any])
    parts: tuple[ParsedPart, ...] = ()
    stale: set[ParsedPart] = field(default_factory=set[ParsedPart])
    # Whether examples in doc comments are checked: only in open files.
    with_examples: bool = False
    # The parts of the last complete check.
    finished: tuple[ParsedPart, ...] | None = None
    passes: int = 0
    version: int = 0  # incremented when something changes for importers
    imported: tuple[DocumentAnalysis, ...] = ()  # transitively

    def __post_init__(self) -> None:
        self.module.used = GlobalReads()

    # ---- Affected parts

    def concern(self, parts: tuple[ParsedPart, ...], changed_imports: Iterable[str]) -> bool:
        """Mark the parts to check again; whether only statements are affected. `changed_imports` are names of changed
        imports.
        """
        old, new = set(self.parts), set(parts)
        changed = (old - new) | (new - old) | {p for p in new if has_moved(p)}
        dirty = affected_parts(changed, self.stale & new, parts, changed_imports)
        if any(p.result is not None and p.result.reports_elsewhere for p in dirty):
            dirty = set(parts)
        self.stale = {p for p in dirty if p in new}
        self.parts = parts
        declarations = (tree.Fn, tree.Record, tree.Enum, tree.Rule, tree.Import, tree.Axes)
        return not any(isinstance(item, declarations) for p in dirty for item in p.items)

    # ---- Checking

    def declare_items(
        self, parts: tuple[ParsedPart, ...], keep: bool, link: Callable[[Sequence[tree.Item], Session], None]
    ) -> None:
        """Declare all items again and keep the errors. With `keep` the elaborated functions stay valid."""
        self.passes += 1
        if not keep or self.passes % MAX_SESSION_PASSES == 0:
            self.session = Session()
        session = self.session
        clear_diagnostics(session)
        for name in MODULE_TABLES:
            getattr(self.module, name).clear()
        self.module.records.clear()
        items = [item for p in parts for item in p.items]
        for item in items:
            enter_declaration(self.module, item, session)
        check_block_names(tuple(items), session)
        link(items, session)
        self.declaration_errors = tuple(session.diagnostics)
        session.definition_results.clear()
        session.checked_definitions.clear()
        for other in self.imported:
            for p in other.parts:
                if p.result is not None:
                    session.definition_results |= p.result.elaborated
                    session.checked_definitions |= p.result.checked

    def check(self, typed: Sequence[ParsedPart], pause: Callable[[], None], on_ready: Callable[[], None]) -> None:
        """Check the stale parts. `on_ready` is called when the edited ones are done.

        Errors: CheckCancelled; results up to then are kept.
        """
        # Imported modules keep their bindings but report to this session.
        for host in self.hosts.values():
            host.session = self.session
        waiting = {p for p in typed if p in self.stale}
        try:
            with pause_gc():
                # The person waits for the edited parts, so check them before stale parts above them, then again in
                # order.
                if waiting and next(p for p in self.parts if p in self.stale) not in waiting:
                    self.check_edited_first(waiting, pause)
                    on_ready()
                    waiting.clear()
                self.check_in_order(waiting, pause, on_ready)
        # An interrupted elaboration may be half done: start afresh.
        except CheckCancelled:
            self.session = Session()
            raise

    def check_edited_first(self, typed: set[ParsedPart], pause: Callable[[], None]) -> None:
        """Check the edited parts before everything that they affect, with the known results of the parts above."""
        checker = HostChecker(self.session, self.module, self.hosts)
        above: list[tree.Item] = []
        for p in self.parts:
            if p in typed:
                self.part(p, checker, tuple(above), pause)
                self.stale.add(p)
            elif p.latest_result is not None:
                restore_result(p.latest_result, checker)
            above += p.items
        clear_diagnostics(self.session)
        for name in (*PART_TABLES, "used"):
            getattr(self.module, name).clear()

    def check_in_order(self, typed: set[ParsedPart], pause: Callable[[], None], on_ready: Callable[[], None]) -> None:
        """Check the stale parts in the order of the file."""
        checker = HostChecker(self.session, self.module, self.hosts)
        above: list[tree.Item] = []
        for p in self.parts:
            if p in self.stale or p.result is None:
                self.part(p, checker, tuple(above), pause)
                if p in typed:
                    typed.remove(p)
                    if not typed:
                        on_ready()
            else:
                restore_result(p.result, checker)
            above += p.items
        self.check_examples(checker, tuple(above), pause)

    def part(
        self, p: ParsedPart, checker: HostChecker, above: tuple[tree.Item, ...], pause: Callable[[], None]
    ) -> None:
        """Check one part, and keep its result."""
        pause()
        session, module = self.session, self.module
        session.diagnostics, session.issued_warnings = [], set()
        before = {name: dict(getattr(module, name)) for name in PART_TABLES}
        values, known = dict(checker.values), (set(session.definition_results), set(session.checked_definitions))
        notes = session.type_notes = RecordedTypes(p.source, pause)
        used = module.used
        assert isinstance(used, GlobalReads)
        used.part_reads = {}
        # Notes whether a message contains the line number: only then does moving the part outdate it.
        p.position.was_read, line = False, p.position.line
        try:
            for i, item in enumerate(p.items):
                checker.item(item, above + p.items[:i])
        finally:
            session.type_notes = None
        p.record_result(PartResult(
            p.source,
            tuple(session.diagnostics),
            notes.types,
            {name: changed_entries(before[name], getattr(module, name)) for name in PART_TABLES},
            changed_entries(values, checker.values),
            used.part_reads,
            {d: f for d, f in session.definition_results.items() if d not in known[0]},
            {d: f for d, f in session.checked_definitions.items() if d not in known[1]},
            line,
            p.position.was_read,
            any(d.span is not None and d.span.source is not p.source for d in session.diagnostics),
            notes.splits,
        ))  # fmt: skip
        self.examples.pop(p, None)
        self.stale.discard(p)

    def check_examples(self, checker: HostChecker, items: tuple[tree.Item, ...], pause: Callable[[], None]) -> None:
        """Check the examples in doc comments, which see the whole file."""
        session = self.session
        self.examples = {p: self.examples[p] for p in self.parts if p in self.examples}
        for p in self.parts:
            if p not in self.examples:
                pause()
                session.diagnostics, session.issued_warnings = [], set()
                for comment in find_examples(p.source, p.items) if self.with_examples else ():
                    for diagnostic in comment.diagnostics:
                        session.report(DifflangError(diagnostic))
                    checker.check_isolated(items, comment.block, "example", echo=True)
                self.examples[p] = tuple(session.diagnostics)

    # ---- Diagnostics

    def diagnostics(self) -> list[Diagnostic]:
        """All diagnostics; stale parts keep their old ones."""
        syntax = [d for p in self.parts for d in p.diagnostics]
        # A part with syntax errors parses as something other than what was meant: leave out what checking says of it.
        read = [p for p in self.parts if not p.diagnostics]
        found = [*self.declaration_errors, *[d for p in read if p.result is not None for d in p.result.reports]]
        found += [d for p in read for d in self.examples.get(p, ())]
        broken = [*syntax, *[d for d in found if d.code.startswith("DL01")]]
        others = [d for d in found if not d.code.startswith("DL01")]
        unread = [p for p in self.parts if p.diagnostics]
        return deduplicate(
            [*broken, *[d for d in drop_followup_errors(broken, others) if not follows_syntax_error(d, unread)]]
        )


def follows_syntax_error(diagnostic: Diagnostic, unread: Sequence[ParsedPart]) -> bool:
    """Whether a diagnostic concerns a declaration with syntax errors."""
    texts = {p.source for p in unread}
    if any(label.span.source in texts for label in diagnostic.labels):
        return True
    lost = {name for p in unread for name in DECLARATION.findall(p.text)}
    return diagnostic.code in UNKNOWN_NAME_CODES and diagnostic.span is not None and diagnostic.span.text in lost


def has_moved(p: ParsedPart) -> bool:
    """Whether a part's result refers to an old line number."""
    return p.result is not None and p.result.uses_line and p.result.line != p.position.line


def affected_parts(
    changed: set[ParsedPart], stale: set[ParsedPart], parts: Sequence[ParsedPart], outside: Iterable[str]
) -> set[ParsedPart]:
    """The parts that a change affects."""
    dirty = changed | stale
    names = set(outside) | {n for p in dirty for n in p.declares}
    # A name may be bound again only if nothing has read it before: its uses depend on all its declarations.
    several = Counter(n for p in parts for n in p.declares)
    names |= {n for p in dirty for n in p.words if several[n] > 1}
    if names:  # suggestions depend on the names that exist
        dirty |= {p for p in parts if p.result is not None and p.result.has_guesses}
    hosts = [(i.name, p) for p in (*parts, *changed) for i in p.items if isinstance(i, tree.Fn) and i.host]
    assigning = {name: p.declares for name, p in hosts}
    while True:
        for p in dirty:
            names |= {n for w in p.words & assigning.keys() for n in assigning[w]}
        more = {p for p in parts if p not in dirty and not names.isdisjoint(p.words)}
        if not more:
            return dirty
        dirty |= more
        names |= {n for p in more for n in p.declares}


def clear_diagnostics(session: Session) -> None:
    session.diagnostics, session.issued_warnings, session.errors = [], set(), 0


def restore_result(result: PartResult, checker: HostChecker) -> None:
    """Apply the effects of a part that was checked before."""
    for name, table in result.tables.items():
        getattr(checker.module, name).update(table)
    for name, span in result.used.items():
        checker.module.used.setdefault(name, span)
    checker.values.update(result.values)
    checker.session.definition_results.update(result.elaborated)
    checker.session.checked_definitions.update(result.checked)


def changed_entries(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in after.items() if before.get(name) is not value}


def deduplicate(found: Iterable[Diagnostic]) -> list[Diagnostic]:
    """Diagnostics without repetitions, as in `Session.report`, in the order of the file."""
    kept: dict[tuple[str, Span | str], Diagnostic] = {}
    for diagnostic in found:
        kept.setdefault((diagnostic.code, diagnostic.span or diagnostic.message), diagnostic)
    return list(kept.values())
