"""Verifies the derivative rules that a program declares: each is compared with its function at drawn arguments.

A wrong rule is an error of the program, like a wrong type: `check`, `run` and `load` report it before anything runs.
Rules of the library are verified by its tests. Results are cached, so an unchanged rule costs a look into a file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from difflang.base.diagnostics import Diagnostic, DifflangError, Label
from difflang.base.package_data import PACKAGE_FOLDER, data_folder
from difflang.base.private_cache import private_subfolder, read_entry, write_entry
from difflang.driver.checked_program import CheckedProgram
from difflang.elaborate.module_imports import ModuleFile
from difflang.ir.op import OPS
from difflang.syntax import tree
from difflang.syntax.tree_queries import mentioned_names, pattern_names
from difflang.types.module_scope import HostVars

if TYPE_CHECKING:
    from difflang.driver.interactive_session import SessionSnapshot
    from difflang.tools.rule_faults import LeavesOf


def verify_rules(checked: CheckedProgram, path: Path | None) -> None:
    """Report wrong rules of a program without mistakes to its session, and warn of those that cannot be verified.

    Cost: nothing for a program without rules of its own.
    """
    files = {} if checked.has_mistakes else own_files(checked, path)
    rules = [(rule, program) for program in files for rule in rules_to_verify(program)]
    if not rules:
        return
    cache = RuleCache(checked, path)
    try:
        for rule, program in rules:
            found = cache.get(rule)
            if found is None:
                found = verdict_of(rule, program, files)
                cache.put(rule, found)
            for diagnostic in found:
                if diagnostic.severity == "warning":
                    checked.session.warn(diagnostic)
                else:
                    checked.session.report(DifflangError(diagnostic))
    finally:
        # The values of the files were bound for these comparisons only.
        for module in checked.module.transitive_imports():
            module.host = HostVars()


def verdict_of(
    rule: tree.Rule,
    program: CheckedProgram,
    files: Mapping[CheckedProgram, Path | None],
    leaves: LeavesOf | None = None,
) -> tuple[Diagnostic, ...]:
    """What is wrong with a rule; `leaves` are the top-level values of a program, read from its file by default."""
    # Heavy imports, which a remembered verdict does without.
    from difflang.tools.rule_faults import lazy_leaves, verify_rule

    return verify_rule(rule, program, list(files), leaves or partial(lazy_leaves, files))


def own_files(checked: CheckedProgram, path: Path | None) -> dict[CheckedProgram, Path | None]:
    """The program as each of its own files sees it, with its path; nothing if none has rules."""
    own = {program_of_import(checked, file): file.path for file in checked.imported if not file.library}
    files = {**own, checked: path}
    return files if any(program.module.rules for program in files) else {}


def rules_to_verify(program: CheckedProgram) -> Iterator[tree.Rule]:
    """The rules of a file, except those with `@unchecked` and of functions of Python that are missing."""
    for rule in program.module.rules.values():
        decl = program.module.fns.get(rule.name)
        if decl is None or rule.unchecked:
            continue
        if not isinstance(decl.body, tree.Foreign) or (
            rule.name in OPS if decl.body.op else rule.name in program.module.externs
        ):
            yield rule


def session_rule_faults(snapshot: SessionSnapshot, rules: Sequence[tree.Rule]) -> Iterator[Diagnostic]:
    """The errors and warnings about rules that an interactive session declares."""
    program = snapshot.checked
    for rule in rules:
        if not rule.unchecked and rule.name in program.module.fns:
            yield from verdict_of(rule, program, {program: None}, lambda _: snapshot.leaves)


def program_of_import(checked: CheckedProgram, file: ModuleFile) -> CheckedProgram:
    """The program as an imported file sees it."""
    before = checked.imported[: checked.imported.index(file)]
    return replace(checked, module=file.module, items=file.items, imported=before)


# ---- Remembered verdicts


class RuleCache:
    """The verdicts of a program's rules. A program that calls Python has none: its functions cannot be hashed."""

    def __init__(self, checked: CheckedProgram, path: Path | None) -> None:
        modules = checked.module.transitive_imports()
        self.usable = not any(m.externs for m in modules)
        self.reads = [(read.given.span, read.given.text(0)) for read in checked.reads]
        self.folders = [path.parent if path is not None else Path.cwd(), *[f.folder for f in checked.imported]]
        self.imported = [f.module for f in checked.imported if not f.library]
        self.module, self.declared = checked.module, dict(declared_items(checked.items))

    def get(self, rule: tree.Rule) -> tuple[Diagnostic, ...] | None:
        """The warnings of a verified rule; None if it must be verified."""
        key = self.key(rule) if self.usable else None
        if key is None:
            return None
        try:
            data = read_entry(verdict_file(key), key)
            warnings = [] if data is None else json.loads(data)
            return None if data is None else tuple([warning_at(rule, w["message"], w["helps"]) for w in warnings])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def put(self, rule: tree.Rule, found: tuple[Diagnostic, ...]) -> None:
        """Remember a verdict, except an error. If the folder cannot be used, the next check only takes longer."""
        key = self.key(rule) if self.usable and all(d.severity != "error" for d in found) else None
        if key is None:
            return
        with suppress(OSError):
            data = json.dumps([{"message": d.message, "helps": d.helps} for d in found])
            write_entry(verdict_file(key), key, data.encode())

    def key(self, rule: tree.Rule) -> str | None:
        """A hash of the compiler, the imported files, all declarations that the rule, its function and its callers
        mention, and the data files that these read; None if the name of one is known only at run time.

        What a name of another file stands for is not followed: a file counts as a whole.
        """
        digest = hashlib.sha256(f"{compiler_stamp()}\0{rule.name}\0{rule.span.text}".encode())
        digest.update(f"\0{rule.span.source.name}".encode())
        for module in (self.module, *self.imported):
            digest.update(f"\0{module.source.name}\0{module.default_float}".encode())
        for module in self.imported:
            digest.update(f"\0{module.source.text}".encode())
        reached = [decl for name in reached_names(rule, self.declared) for decl in self.declared[name]]
        for decl in reached:
            digest.update(b"\0" + decl.span.text.encode())
        for span, name in self.reads:
            if span.source is not self.module.source or any([d.span.contains(span) for d in reached]):
                if name is None:
                    return None
                digest.update("".join([f"\0{file_stamp(folder / name)}" for folder in self.folders]).encode())
        return digest.hexdigest()


def file_stamp(path: Path) -> str:
    """The size and the time of a file; empty if there is none."""
    try:
        status = path.stat()
    except (OSError, ValueError):
        return ""
    return f"{status.st_size}/{status.st_mtime_ns}"


def declared_items(items: tuple[tree.Item, ...]) -> Iterator[tuple[str, list[tree.Node]]]:
    """The declarations of a file by the names that they declare."""
    found: dict[str, list[tree.Node]] = {}
    for item in items:
        match item:
            case tree.Fn(name=name) | tree.Record(name=name) | tree.Rule(name=name):
                found.setdefault(name, []).append(item)
            case tree.Enum():
                for name in (item.name, *[v.name for v in item.variants]):
                    found.setdefault(name, []).append(item)
            case tree.Let() | tree.Var():
                for name in pattern_names(item.pattern):
                    found.setdefault(name, []).append(item)
            case tree.Import():
                found.setdefault("import", []).append(item)
            case _:
                pass
    yield from found.items()


def reached_names(rule: tree.Rule, declared: dict[str, list[tree.Node]]) -> list[str]:
    """The declared names of a file that a rule depends on, also through functions that call its function."""
    callers = [n for n, decls in declared.items() if any(rule.name in mentioned_names(d) for d in decls)]
    todo, seen = [rule.name, "import", *mentioned_names(rule), *callers], dict[str, None]()
    while todo:
        name = todo.pop()
        if name in declared and name not in seen:
            seen[name] = None
            todo += [n for decl in declared[name] for n in mentioned_names(decl)]
    return sorted(seen)


def warning_at(rule: tree.Rule, message: str, helps: list[str]) -> Diagnostic:
    return Diagnostic("DL1110", str(message), (Label(rule.name_span),), tuple(map(str, helps)), "warning")


def verdict_file(key: str) -> Path:
    """The file of a verdict. Errors: OSError if the cache folder cannot be used."""
    return private_subfolder("rules") / f"{key}.json"


@cache
def compiler_stamp() -> str:
    """A hash of the installed compiler and library: names, sizes and times of their files."""
    digest = hashlib.sha256()
    files = [*sorted(PACKAGE_FOLDER.rglob("*.py")), *sorted(data_folder("stdlib").glob("*.dfl"))]
    for path in files:
        status = path.stat()
        digest.update(f"{path.name}\0{status.st_size}\0{status.st_mtime_ns}\0".encode())
    return digest.hexdigest()
