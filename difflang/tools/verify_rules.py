"""Verifies the derivative rules that a program declares: each is compared with its function at drawn arguments.

A wrong rule is an error of the program, like a wrong type: `check`, `run` and `load` report it before anything runs.
Rules of the library are verified by its tests. Results are cached, so an unchanged rule costs a look into a file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from difflang.base.diagnostics import Diagnostic, DifflangError
from difflang.driver.check_and_run import CheckedProgram
from difflang.elaborate.module_imports import ModuleFile
from difflang.syntax import tree
from difflang.types.module_scope import HostVars

if TYPE_CHECKING:
    from difflang.driver.interactive_session import SessionSnapshot


def verify_rules(checked: CheckedProgram, path: Path | None) -> None:
    """Report wrong rules of a program without mistakes to its session, and warn of those that cannot be verified.

    Cost: nothing for a program without rules of its own.
    """
    files = {} if checked.has_mistakes else own_files(checked, path)
    rules = [(rule, program) for program in files for rule in rules_to_verify(program)]
    if not rules:
        return
    from difflang.tools.rule_cache import RuleCache

    cache = RuleCache(checked, path)
    try:
        for rule, program in rules:
            found = cache.get(rule)
            if found is None:
                # Heavy imports, which a remembered verdict does without.
                from difflang.tools.rule_faults import lazy_leaves, verify_rule

                found = verify_rule(rule, program, list(files), partial(lazy_leaves, files))
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


def own_files(checked: CheckedProgram, path: Path | None) -> dict[CheckedProgram, Path | None]:
    """The program as each of its own files sees it, with its path; nothing if none has rules."""
    own = {program_of_import(checked, file): file.path for file in checked.imported if not file.library}
    files = {**own, checked: path}
    return files if any(program.module.rules for program in files) else {}


def rules_to_verify(program: CheckedProgram) -> Iterator[tree.Rule]:
    """The rules of a file, except those with `@unchecked` and of functions of Python that are not bound."""
    for rule in program.module.rules.values():
        decl = program.module.fns.get(rule.name)
        if decl is None or rule.unchecked:
            continue
        if not isinstance(decl.body, tree.Foreign) or rule.name in program.module.externs:
            yield rule


def session_rule_faults(snapshot: SessionSnapshot, rules: Sequence[tree.Rule]) -> Iterator[Diagnostic]:
    """The errors and warnings about rules that an interactive session declares."""
    program = snapshot.checked
    for rule in rules:
        if not rule.unchecked and rule.name in program.module.fns:
            from difflang.tools.rule_faults import verify_rule

            yield from verify_rule(rule, program, (program,), lambda _: snapshot.leaves)


def program_of_import(checked: CheckedProgram, file: ModuleFile) -> CheckedProgram:
    """The program as an imported file sees it."""
    before = checked.imported[: checked.imported.index(file)]
    return replace(checked, module=file.module, items=file.items, imported=before)
