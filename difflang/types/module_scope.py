"""Module scopes: the symbol table of a file, with its declarations, imports and host variables."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any, Protocol

from msgspec import Struct, field
from msgspec.structs import replace

from difflang.base.source import Source, Span
from difflang.ir.symbolic_dims import Dim, Poly
from difflang.ir.tensor_types import F32, DType
from difflang.ops.control.extern_call import ExternFunction
from difflang.syntax import tree
from difflang.types.language_types import LangType
from difflang.types.type_errors import rebound_name_error

StaticNumber = float | bool | Dim | None  # a number known to specialization


class HostVar(Struct, eq=False):
    """A top-level `let` or `var` as functions see it: its type, and its value if specialization may use it."""

    name: str
    type: LangType
    mutable: bool = False
    static: StaticNumber = None
    span: Span | None = None
    invalid: bool = False
    # The block in which the name has this meaning; None for the file, where functions see it only below `span`.
    block: Span | None = None
    hides: HostVar | None = None  # the variable of that name outside the block

    def visible_from(self, place: Span, *, by_function: bool) -> bool:
        """Whether the name refers to this variable at a source position."""
        if self.block is not None:
            return self.block.contains(place)
        above = self.span is None or place.starts_after(self.span)
        return above or not by_function


class HostVars(dict[str, HostVar]):
    """Top-level variables by name. `sizes` holds those that may be sizes: to search all for each statement would cost
    the square of a program's length.
    """

    def __init__(self) -> None:
        super().__init__()
        self.sizes: dict[str, Dim] = {}

    def __setitem__(self, name: str, var: HostVar) -> None:
        super().__setitem__(name, var)
        self.sizes.pop(name, None)
        if isinstance(var.static, (int, Poly)) and not isinstance(var.static, bool) and not var.mutable:
            self.sizes[name] = var.static

    def __delitem__(self, name: str) -> None:
        super().__delitem__(name)
        self.sizes.pop(name, None)

    def pop(self, name: str, *default: Any) -> Any:
        self.sizes.pop(name, None)
        return super().pop(name, *default)

    def clear(self) -> None:
        super().clear()
        self.sizes.clear()

    def update(self, other: Mapping[str, HostVar]) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        for name, var in other.items():
            self[name] = var

    def copy(self) -> HostVars:
        found = HostVars()
        found.update(self)
        return found


class ProgramArgument(Struct, frozen=True, eq=False):
    """An argument of a program on the command line: its name, type, default as written, and a line of help."""

    name: str
    type: LangType
    default: str | None
    help: str
    span: Span


class DeclaredName(Struct, frozen=True):
    """A name that a file declares: its span, and whether other modules may use it."""

    span: Span
    public: bool


class ExternBinding(Protocol):
    """The Python function bound to an `extern fn`."""

    def at(
        self, decl: tree.Fn, module: ModuleScope, arguments: tuple[LangType | int, ...], result: LangType
    ) -> ExternFunction:
        """The function for arguments of these types, and these numbers for its dims.

        Errors: DL1230 if its result has another type; DL1232 if it cannot be called with such arguments.
        """
        ...


class RecordTable(dict[str, "tree.Record | tree.Enum"]):
    """The records and enums that a module can name: its own, imported ones such as `Net`, and `model.Net`.

    `declaring_modules` maps each record and enum of the program to the module that declares it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.declaring_modules: dict[tree.Record | tree.Enum, ModuleScope] = {}
        self.module: ModuleScope | None = None  # the module that this table belongs to


class ModuleScope(Struct, eq=False, dict=True):
    """The scope of a file: its declarations and top-level names. Compared by identity."""

    source: Source
    default_float: DType = F32
    fns: dict[str, tree.Fn] = field(default_factory=dict[str, tree.Fn])
    records: RecordTable = field(default_factory=RecordTable)
    variants: dict[str, tuple[tree.Enum, int]] = field(default_factory=dict[str, "tuple[tree.Enum, int]"])
    # The axes of a mesh that the file declares.
    axes: dict[str, Span] = field(default_factory=dict[str, Span])
    # The bindings of `extern fn` declarations.
    externs: dict[str, ExternBinding] = field(default_factory=dict[str, "ExternBinding"])
    # Derivative rules by the name of their function.
    rules: dict[str, tree.Rule] = field(default_factory=dict[str, tree.Rule])
    # Declared names that are unusable because of a reported error.
    invalid_names: dict[str, tree.Node] = field(default_factory=dict[str, tree.Node])
    host: HostVars = field(default_factory=HostVars)
    # Top-level names that functions read, with their first use.
    used: dict[str, Span] = field(default_factory=dict[str, Span])
    # The types that host loops yield.
    loop_yield_types: dict[tree.Node, LangType] = field(default_factory=dict[tree.Node, LangType])
    arguments: dict[str, ProgramArgument] = field(default_factory=dict[str, ProgramArgument])
    # Optional Python packages, with the first use that needs each.
    needs: dict[str, Span] = field(default_factory=dict[str, Span])
    prelude: ModuleScope | None = None
    declared: dict[str, DeclaredName] = field(default_factory=dict[str, DeclaredName])
    # Imported modules by their qualifier.
    modules: dict[str, ModuleScope] = field(default_factory=dict[str, "ModuleScope"])
    # Names imported from other modules.
    imported: dict[str, GlobalName] = field(default_factory=dict[str, "GlobalName"])

    def __post_init__(self) -> None:
        self.records.module = self.records.module or self

    def __repr__(self) -> str:
        return f"Module({self.source.name})"

    def join_program(self, other: ModuleScope) -> None:
        """Join the program of another module: share the tables that a program has once."""
        self.records.declaring_modules, self.arguments, self.needs = (
            other.records.declaring_modules,
            other.arguments,
            other.needs,
        )

    @property
    def name(self) -> str:
        """The name in messages: the file name without folder and suffix."""
        return PurePath(self.source.name).stem

    @property
    def knows_axes(self) -> bool:
        """Whether it or a module that it imports from declares axes of a mesh."""
        others = (*self.modules.values(), *[g.module for g in self.imported.values()])
        return bool(self.axes) or any([bool(m.axes) for m in others])

    @property
    def public_names(self) -> list[str]:
        """The names that other modules may use."""
        return [name for name, found in self.declared.items() if found.public]

    def transitive_imports(self) -> list[ModuleScope]:
        """This module and all that it imports, directly or indirectly, in breadth-first order."""
        found: dict[ModuleScope, None] = {self: None}
        todo = [self]
        while todo:
            here = todo.pop(0)
            others = [*here.modules.values(), *[g.module for g in here.imported.values()]]
            todo += [m for m in dict.fromkeys(others) if m not in found]
            found |= dict.fromkeys(others)
        return list(found)

    def value_for(self, name: str, place: Span, *, by_function: bool) -> HostVar | None:
        """The host variable that a name refers to at `place`. Errors: DL0212 where a block shadows it now."""
        var = inner = self.host.get(name)
        while var is not None and not var.invalid and not var.visible_from(place, by_function=by_function):
            var = var.hides
        known = var is not None and var.static is not None and not var.mutable
        if var is None or inner is None or var is inner or var.invalid or known:
            return var
        raise rebound_name_error(name, inner.span, place, var.span)

    def snapshot(self) -> ModuleScope:
        """A copy with the current declarations, unaffected by later changes."""
        tables = {f: dict(t) for f in self.__struct_fields__ if type(t := getattr(self, f)) is dict}
        if type(self.host) is HostVars:
            tables["host"] = self.host.copy()
        copy = replace(self, records=RecordTable(), **tables)
        copy.records.update(self.records)
        copy.records.declaring_modules.update(
            {r: copy if home is self else home for r, home in self.records.declaring_modules.items()}
        )
        return copy

    def declaring_module(self, record: tree.Record | tree.Enum) -> ModuleScope:
        """The module that declares a record or an enum."""
        return self.records.declaring_modules.get(record, self)


class GlobalName(Struct, frozen=True):
    """A top-level name of a module. Its variable may change while host code runs; the name does not."""

    module: ModuleScope
    name: str

    @property
    def var(self) -> HostVar | None:
        """The current top-level variable of that name."""
        return self.module.host.get(self.name)


class HostNumber(Struct, frozen=True):
    """An integer of the host: a top-level value, or a leaf of a top-level closure's captures."""

    global_name: GlobalName
    leaf: int | None = None
