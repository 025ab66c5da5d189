"""Import resolution: finds the file of each import and loads all modules of a program in dependency order.

A path in quotes is relative to the folder of the importing file and may not leave it; a bare name is in the standard
library. The command line can add folders for both.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path, PurePath, PureWindowsPath

from msgspec import Struct, field
from msgspec.structs import replace

from difflang.base import package_data
from difflang.base.diagnostics import DifflangError, Fix, Label
from difflang.base.fixes import did_you_mean, replacement_fix
from difflang.base.source import Source, Span
from difflang.base.source_files import read_source
from difflang.elaborate.context import Session
from difflang.elaborate.module_declarations import declare_module
from difflang.elaborate.reports.name_errors import PACKAGE_NAMES, is_language_name
from difflang.syntax import tree
from difflang.syntax.library_trees import parse_library
from difflang.types.module_name_errors import access_error
from difflang.types.module_scope import DeclaredName, GlobalName, ModuleScope
from difflang.types.type_errors import make_error


class ImportSearch(Struct, frozen=True):
    """The search path of a program: its own folder, and the folders of the command line."""

    folder: Path
    paths: tuple[Path, ...] = ()


class ImportTarget(Struct, frozen=True):
    """The file that an import names, and its name in messages. `library` is true in the standard library."""

    path: Path
    name: str
    library: bool = False


class ModuleFile(Struct, eq=False):
    """A module of a program: its items, the folder of its own imports, and the import that led to it."""

    module: ModuleScope
    items: tuple[tree.Item, ...]
    path: Path | None
    folder: Path
    library: bool = False
    imported_by: tree.Import | None = None
    done: bool = False  # all its imports are loaded
    # The imports not followed yet.
    pending_imports: Iterator[tree.Import] = field(default_factory=lambda: iter(()))

    def __post_init__(self) -> None:
        self.pending_imports = iter([item for item in self.items if isinstance(item, tree.Import)])

    @property
    def checked_items(self) -> tuple[tree.Item, ...]:
        """The items to check when imported: all, except the tests of the standard library, which has its own run."""
        if not self.library:
            return self.items
        return tuple([item for item in self.items if not isinstance(item, (tree.Test, tree.Bench))])


def load_modules(
    source: Source, path: Path | None, search: ImportSearch, session: Session, default: str | None
) -> list[ModuleFile]:
    """All modules of a program in dependency order; the file itself is the last.

    Mistakes are reported to the session. Cost: each file is read once; nesting of imports needs no recursion.
    """
    module, parsed = declare_module(source, session, default)
    first = ModuleFile(module, parsed.items, path.resolve() if path is not None else None, search.folder)
    return follow_imports(first, search, session, default, {first.path: first})


def follow_imports(
    first: ModuleFile, search: ImportSearch, session: Session, default: str | None, known: dict[Path | None, ModuleFile]
) -> list[ModuleFile]:
    """Load a file and all its imports that are not in `known` yet, in dependency order, and add them there."""
    # An explicit stack: depth-first search, where an import of an unfinished file is a cycle.
    module = first.module
    stack, program = [first], list[ModuleFile]()
    while stack:
        file = stack[-1]
        item = next(file.pending_imports, None)
        if item is None:
            file.done = True
            program.append(stack.pop())
            continue
        try:
            found = find_import(item, file, search)
            other = known.get(found.path)
            if other is None:
                other = known[found.path] = open_module(found, item, module, session, default)
                stack.append(other)
            elif not other.done:
                raise import_cycle_error(stack[stack.index(other) :], item)
            bind_import(file.module, item, other.module, session)
        except DifflangError as error:
            session.report(error)
            file.module.invalid_names |= dict.fromkeys(import_names(item), item)
    return program


def open_module(
    found: ImportTarget, item: tree.Import, first: ModuleScope, session: Session, default: str | None
) -> ModuleFile:
    """Open and declare the module of a file. Errors: DL07 at the import where it cannot be read."""
    try:
        source, parsed = (
            parse_library(found.path, found.name) if found.library else (read_source(found.path, found.name), None)
        )
    except DifflangError as error:
        raise DifflangError(*[replace(d, labels=(Label(item.module_span),)) for d in error.diagnostics]) from None
    # The library follows the program's default float, so that its literals unify.
    default = first.default_float.name if found.library else default
    module, parsed = declare_module(source, session, default, first, parsed)
    return ModuleFile(module, parsed.items, found.path, found.path.parent, found.library, item)


def import_cycle_error(files: list[ModuleFile], last: tree.Import) -> DifflangError:
    """The report of an import cycle: each file imports the next, and the last one the first."""
    names = [file.module.source.name for file in (*files, files[0])]
    labels = (
        (last.module_span, ""),
        *((file.imported_by.module_span, "") for file in files[1:] if file.imported_by is not None),
    )
    way = "move the shared declarations into a third module, and import it in both"
    return make_error("DL0722", f"modules import each other: {' → '.join(names)}", *labels, help=way)


# ---- Names


def import_names(item: tree.Import) -> list[str]:
    """The names that an import binds: those listed, and `as name`; without either, the name of the file."""
    qualifier = item.alias or (None if item.names else PurePath(item.module).stem if item.path else item.module)
    return [*item.names, *([qualifier] if qualifier is not None else [])]


def bind_import(module: ModuleScope, item: tree.Import, other: ModuleScope, session: Session) -> None:
    """Bind the names of an import. Errors are reported: DL0210, DL0720 for a file name that is no name, DL0723."""
    for name, span in zip(item.names, item.name_spans, strict=True):
        if error := access_error(other, name, span, is_builtin=is_language_name(module, name)):
            session.report(error)
            module.invalid_names[name] = item
        elif claim_name(module, name, span, session, f"`import … as m` without names, and write `m.{name}`"):
            module.imported[name] = GlobalName(other, name)
            if name in other.records:
                module.records[name] = other.records[name]
    for name in import_names(item)[len(item.names) :]:
        if not name.isidentifier():
            way = f'name it: `import "{item.module}" as name`'
            raise make_error("DL0720", f"`{name}` is not a valid name", (item.module_span, ""), help=way)
        if claim_name(module, name, item.module_span, session, "rename it: `import … as name`"):
            module.modules[name] = other
            module.records.update({f"{name}.{r}": other.records[r] for r in other.public_names if r in other.records})


def claim_name(module: ModuleScope, name: str, span: Span, session: Session, way: str) -> bool:
    """Claim a name of the file for an import, unless it is taken. Errors are reported: DL0210."""
    taken = module.declared.get(name)
    if taken is not None:
        labels = ((span, "declared again here"), (taken.span, "first declared here"))
        session.report(make_error("DL0210", f"`{name}` is declared twice", *labels, help=f"use {way}"))
        return False
    module.declared[name] = DeclaredName(span, public=False)
    return True


# ---- Files


def find_import(item: tree.Import, file: ModuleFile, search: ImportSearch) -> ImportTarget:
    """The file that an import names. Errors: DL0720 if it does not exist, DL0721 if it is outside the folder."""
    if not item.path:
        return find_library(item, file, search)
    text = item.module
    leads_out = os.path.normpath(text).split(os.sep)[0] == ".."
    if PurePath(text).is_absolute() or PureWindowsPath(text).drive or leads_out:
        raise outside_folder_error(item, "an import must name a file in the folder of the program or below it")
    if not text.endswith(".dfl"):
        there = existing_file(file.folder, f"{text}.dfl") is not None
        fixes = (replacement_fix(item.module_span, f'"{text}.dfl"'),) if there else ()
        way = f'write `"{text}.dfl"`' if there else ""
        raise missing_module_error(
            item, f"`{text}` is not a module: its file name must end with `.dfl`", "", way, fixes
        )
    beside = os.path.normpath(os.path.join(os.path.dirname(file.module.source.name), text))
    for folder, shown in [(file.folder, beside), *[(p, str(p / text)) for p in search.paths]]:
        if (path := existing_file(folder, text)) is not None:
            return ImportTarget(resolve_within(path, folder, item), shown, file.library)
    prefix = text.removesuffix(PurePath(text).name)
    way, fixes = did_you_mean(text, [prefix + name for name in files_of(file.folder / prefix)], item.module_span)
    raise missing_module_error(item, f"there is no file `{text}`", f"looked in {folder_text(file)}", way, fixes)


def find_library(item: tree.Import, file: ModuleFile, search: ImportSearch) -> ImportTarget:
    """A module by its bare name: in the folders of the command line, then in the standard library."""
    text = f"{item.module}.dfl"
    for folder in () if file.library else search.paths:
        if (path := existing_file(folder, text)) is not None:
            return ImportTarget(resolve_within(path, folder, item), str(folder / text))
    known = {p.stem: p for p in package_data.stdlib_files() if p.stem != "prelude"}
    if item.module in known:
        return ImportTarget(known[item.module].resolve(), f"stdlib/{text}", library=True)
    way, fixes = did_you_mean(item.module, known, item.module_span)
    if existing_file(file.folder, text):
        way = f'to import the file beside this one, write `import "./{text}"`'
        fixes = (replacement_fix(item.module_span, f'"./{text}"'),)
    elif way:
        pass
    elif item.module.split(".")[0] in PACKAGE_NAMES:
        way = "built-in functions such as `sin` and `sum` need no import"
    else:
        way = f"the modules are {', '.join(known)}; to import from other folders, run with `--path DIR`"
    raise missing_module_error(item, f"there is no module `{item.module}` in the standard library", "", way, fixes)


def files_of(folder: Path) -> list[str]:
    """The names of the programs in a folder, none if there is no such folder."""
    try:
        return sorted(p.name for p in folder.glob("*.dfl") if os.path.isfile(p))
    except (OSError, ValueError):  # not a valid folder name
        return []


def existing_file(folder: Path, text: str) -> Path | None:
    """The file of that name in a folder, or None."""
    try:
        path = folder / text
        return path if os.path.isfile(path) else None
    except (OSError, ValueError):  # not a valid file name
        return None


def resolve_within(path: Path, folder: Path, item: tree.Import) -> Path:
    """The file with symbolic links resolved. Errors: DL0721 if they lead out of the folder."""
    real = path.resolve()
    if not real.is_relative_to(folder.resolve()):
        raise outside_folder_error(item, "a link leads out of the folder")
    return real


def outside_folder_error(item: tree.Import, why: str) -> DifflangError:
    way = "allow its folder on the command line, `--path DIR`, and import it from there"
    return make_error("DL0721", f"`{item.module}` is outside the program's folder", (item.module_span, why), help=way)


def missing_module_error(
    item: tree.Import, message: str, label: str, way: str, fixes: tuple[Fix, ...] = ()
) -> DifflangError:
    return make_error("DL0720", message, (item.module_span, label), help=way, fixes=fixes)


def folder_text(file: ModuleFile) -> str:
    return os.path.dirname(file.module.source.name) or "the folder of the program"
