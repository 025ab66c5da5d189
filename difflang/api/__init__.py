"""The Python API: `load` a file or a text, and call, differentiate, interpret and lower its functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from difflang.api.checkify import Failure, checked
from difflang.api.externs import Extern, extern, verify_externs
from difflang.api.externs import bind_externs as bind_externs
from difflang.api.function import Function
from difflang.api.loaded_program import LoadedProgram
from difflang.api.notebook_display import module_mimebundle
from difflang.api.option_values import class_with_article
from difflang.api.record_classes import RecordClasses
from difflang.base.diagnostics import DifflangError
from difflang.base.error_codes import nearest_word
from difflang.base.errors import Unpicklable, classify_errors
from difflang.base.source import Source
from difflang.base.source_files import read_source
from difflang.driver.checked_program import check_program
from difflang.driver.python_warnings import issue_warning
from difflang.embed.mesh_program import Mesh, check_mesh
from difflang.syntax import tree
from difflang.tools.verify_rules import verify_rules
from difflang.types.function_code import FnCode
from difflang.types.language_types import ClosureType
from difflang.types.module_scope import ModuleScope as Declarations
from difflang.types.type_errors import make_error

__all__ = ["Extern", "Failure", "Function", "Module", "checked", "extern", "load", "loads"]

MeshLike = Mesh | Mapping[str, int] | None
ExternBindings = Mapping[str, Callable[..., Any] | Extern]


class Module(Unpicklable):
    """A loaded file. Its functions, record classes and imported modules are attributes and items."""

    def __init__(self, loaded: LoadedProgram, declarations: Declarations, name: str, file: str | None) -> None:
        self.__name__ = name
        self.__file__ = file
        self._loaded, self._module = loaded, declarations
        # Each member is one object, so that its specializations are shared.
        self._members: dict[str, Function | Module] = {}

    def __getattr__(self, name: str) -> Any:
        # Python probes for special names, which no program declares.
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            return self[name]
        except KeyError as error:
            raise AttributeError(error.args[0], name=name, obj=self) from None

    def __getitem__(self, name: str) -> Any:
        found = self._members.get(name)
        if found is not None:
            return found
        module = self._module
        if name in module.imported:
            return self._imported_module(module.imported[name].module)[name]
        if name in module.modules:
            return self._members.setdefault(name, self._imported_module(module.modules[name]))
        if name in module.fns and not module.fns[name].host:
            type = ClosureType(FnCode(module.fns[name], module), ())
            return self._members.setdefault(name, Function(self._loaded, type))
        if isinstance(record := module.records.get(name), tree.Record):
            return self._loaded.records.declared(record)
        if record is not None:
            return self._loaded.records.enums.base_class(record)
        if name in module.variants:
            return self._loaded.records.enums.declared_class(*module.variants[name])
        near = nearest_word(name, self._public_names())
        raise KeyError(f"{self.__name__} has no function `{name}`" + (f"; did you mean `{near}`?" if near else ""))

    def _imported_module(self, module: Declarations) -> Module:
        """A module that this one imports."""
        return Module(self._loaded, module, module.name, module.source.name)

    def __contains__(self, name: object) -> bool:
        return name in self._public_names()

    def __iter__(self) -> Iterator[str]:
        return iter(self._public_names())

    def _public_names(self) -> list[str]:
        module = self._module
        own = [name for name, record in module.records.items() if module.declaring_module(record) is module]
        return [*(n for n, f in module.fns.items() if not f.host), *own, *module.variants]

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self]

    def __repr__(self) -> str:
        return f"<difflang module {self.__name__}: {', '.join(self)}>"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """The notebook display: its functions and records with their docs, as plain text, HTML and Markdown."""
        functions = [f for name in self if isinstance(f := self[name], Function)]
        return module_mimebundle(self.__name__, self._module, functions)


def load(
    path: str | Path,
    *,
    seed: int = 0,
    paths: Sequence[str | Path] = (),
    externs: ExternBindings | None = None,
    strict: bool = False,
    mesh: MeshLike = None,
) -> Module:
    """Load and check a file; its functions are attributes. Its statements are not run.

    A top-level `let` that a function uses is evaluated at its first use, without output; it may read files in the
    program's folder. Values that depend on a `var` need a run of the file. `seed` starts the random streams, `paths`
    are further folders to search for imports. `externs` binds Python functions to its `extern fn`s by name, or by
    `model.name` to those of an imported module: functions that JAX can trace, or results of `extern`.
    If `strict`, warnings are errors, here and at calls. Functions run on a `mesh`, one of JAX or the sizes of its axes
    such as `{"data": 4}`: arguments are laid out there as their types say.

    Errors: ParseError, CheckError; DataError if there is no such file; ArgumentError for a Python function that does
    not have its declared type.
    """
    with classify_errors():
        place = Path(path)
        # A likely confusion with `loads`.
        if "\n" in str(path) or "{" in str(path) or str(path).startswith("fn "):
            way = "`difflang.loads(…)` takes the text of a program"
            raise make_error("DL0701", "`load` takes the name of a file", help=way)
        return build_module(
            read_source(place, str(path)), place.stem, place, seed, paths, externs, strict=strict, mesh=mesh
        )


def loads(
    source: str,
    name: str = "<string>",
    origin: tuple[str, int] | None = None,
    *,
    seed: int = 0,
    paths: Sequence[str | Path] = (),
    externs: ExternBindings | None = None,
    strict: bool = False,
    mesh: MeshLike = None,
) -> Module:
    """Load and check a text, as `load` does a file. Files are read and imported from the current folder.

    `origin` is the file and the line where the text begins: reports then point there.
    """
    with classify_errors():
        if origin is not None:
            file, line = origin
            # Empty lines above the text make its line numbers those of the file.
            text = Source(file, "\n" * (line - 1) + source)
            return build_module(text, name, None, seed, paths, externs, strict=strict, mesh=mesh)
        if not isinstance(cast(object, source), str):
            raise make_error("DL0102", f"`loads` takes the text of a program, but got {class_with_article(source)}",
                          help="decode the bytes first: `source.decode()`")  # fmt: skip
        if source.endswith(".dfl") and "\n" not in source:
            raise make_error("DL0102", f"`loads` takes the text of a program, but `{source}` is the name of a file",
                          help=f'write `difflang.load("{source}")`')  # fmt: skip
        return build_module(Source(name, source), name, None, seed, paths, externs, strict=strict, mesh=mesh)


def build_module(
    source: Source,
    name: str,
    path: Path | None,
    seed: int,
    paths: Sequence[str | Path],
    externs: ExternBindings | None = None,
    *,
    strict: bool = False,
    mesh: MeshLike = None,
) -> Module:
    with classify_errors():
        devices = check_mesh(mesh)
    classes: list[RecordClasses] = []

    def bind(module: Declarations) -> None:
        classes.append(RecordClasses(module, name))
        bind_externs(module, classes[0], externs or {})

    axes = {} if devices is None else dict(devices.shape)
    checked = check_program(source, path=path, paths=tuple(map(Path, paths)), bind=bind, strict=strict, mesh=axes)
    if checked.has_mistakes:
        raise DifflangError(*checked.diagnostics)
    # After checking, since it elaborates the declared types.
    verify_externs(checked.module)
    verify_rules(checked, path)
    if checked.errors:
        raise DifflangError(*checked.diagnostics)
    if checked.diagnostics:
        issue_warning(checked.diagnostics)
        # The warnings have been issued: later elaborations must not repeat them.
        checked.session.diagnostics.clear()
    file = str(path) if path is not None else None
    return Module(
        LoadedProgram(checked, name, path, seed, records=classes[0], mesh=devices), checked.module, name, file
    )
