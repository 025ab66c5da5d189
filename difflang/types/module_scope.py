"""A file as its functions see it: declarations, and top-level names with their types, its own and those it imports."""

from __future__ import annotations

from pathlib import PurePath
from typing import Protocol

from msgspec import Struct, field
from msgspec.structs import replace

from difflang.base.source import Source, Span
from difflang.ir.symbolic_dims import Dim
from difflang.ir.tensor_types import F32, DType
from difflang.ops.control.extern_call import ExternFunction
from difflang.syntax import tree
from difflang.types.language_types import LangType
from difflang.types.type_errors import rebound_name_error

StaticNumber = float | bool | Dim | None  # what specialization may know of a number


class HostVar(Struct, eq=False):
    """A `let` or `var` of the host as functions see it: its type, and its value where specialization may know it."""

    name: str
    type: LangType
    mutable: bool = False
    static: StaticNumber = None
    span: Span | None = None
    invalid: bool = False
    block: Span | None = None  # where the name stands for this; None for the file, functions below `span` only
    hides: HostVar | None = None  # what the name stands for around the block

    def visible_from(self, place: Span, *, by_function: bool) -> bool:
        """Whether a name that is written there means this, whatever calls what."""
        if self.block is not None:
            return self.block.contains(place)
        above = self.span is None or place.starts_after(self.span)
        return above or not by_function


class ProgramArgument(Struct, frozen=True, eq=False):
    """What the command line may tell a program: its name and type, the default as written, a line of help."""

    name: str
    type: LangType
    default: str | None
    help: str
    span: Span


class DeclaredName(Struct, frozen=True):
    """A name of a file: where it is declared, and whether other modules may use it."""

    span: Span
    public: bool


class ExternBinding(Protocol):
    """What a door bound to an `extern fn`."""

    def at(
        self, decl: tree.Fn, module: ModuleScope, arguments: tuple[LangType | int, ...], result: LangType
    ) -> ExternFunction:
        """The function for arguments of these types, and of these numbers for its dims.

        Errors: DL1230 where it gives something else; DL1232 where it cannot be called with such.
        """
        ...


class RecordTable(dict[str, "tree.Record | tree.Enum"]):
    """The records and enums that a module can name: its own, `Net` that it imports by name, and `model.Net`.

    `homes` says of each of the program, however it is come by, which module declares it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.declaring_modules: dict[tree.Record | tree.Enum, ModuleScope] = {}
        self.module: ModuleScope | None = None  # whose records these are


class ModuleScope(Struct, eq=False, dict=True):
    """A file: its declarations and top-level names. Compared by identity."""

    source: Source
    default_float: DType = F32
    fns: dict[str, tree.Fn] = field(default_factory=dict[str, tree.Fn])
    records: RecordTable = field(default_factory=RecordTable)
    variants: dict[str, tuple[tree.Enum, int]] = field(default_factory=dict[str, "tuple[tree.Enum, int]"])
    externs: dict[str, ExternBinding] = field(
        default_factory=dict[str, "ExternBinding"]
    )  # what `extern fn`s are bound to
    rules: dict[str, tree.Rule] = field(default_factory=dict[str, tree.Rule])  # by the function they are for
    invalid_names: dict[str, tree.Node] = field(
        default_factory=dict[str, tree.Node]
    )  # declared, and of no use: that was said
    host: dict[str, HostVar] = field(default_factory=dict[str, HostVar])
    used: dict[str, Span] = field(default_factory=dict[str, Span])  # top-level names that functions read, and where
    loop_yield_types: dict[tree.Node, LangType] = field(
        default_factory=dict[tree.Node, LangType]
    )  # what host loops yield
    arguments: dict[str, ProgramArgument] = field(default_factory=dict[str, ProgramArgument])
    needs: dict[str, Span] = field(default_factory=dict[str, Span])  # optional packages, and what needs them first
    prelude: ModuleScope | None = None
    declared: dict[str, DeclaredName] = field(default_factory=dict[str, DeclaredName])
    modules: dict[str, ModuleScope] = field(default_factory=dict[str, "ModuleScope"])  # by what stands before the point
    imported: dict[str, GlobalName] = field(default_factory=dict[str, "GlobalName"])  # what is imported by name

    def __post_init__(self) -> None:
        self.records.module = self.records.module or self

    def __repr__(self) -> str:
        return f"Module({self.source.name})"

    def join_program(self, other: ModuleScope) -> None:
        """Be of one program with another module: what a program has once is shared."""
        self.records.declaring_modules, self.arguments, self.needs = (
            other.records.declaring_modules,
            other.arguments,
            other.needs,
        )

    @property
    def name(self) -> str:
        """What messages call it: its file without folder and ending."""
        return PurePath(self.source.name).stem

    @property
    def public_names(self) -> list[str]:
        """The names that other modules may use."""
        return [name for name, found in self.declared.items() if found.public]

    def transitive_imports(self) -> list[ModuleScope]:
        """This module and all that it imports, directly or through others, the nearest first."""
        found: dict[ModuleScope, None] = {self: None}
        todo = [self]
        while todo:
            here = todo.pop(0)
            others = [*here.modules.values(), *[g.module for g in here.imported.values()]]
            todo += [m for m in dict.fromkeys(others) if m not in found]
            found |= dict.fromkeys(others)
        return list(found)

    def value_for(self, name: str, place: Span, *, by_function: bool) -> HostVar | None:
        """The value of the host that a name written there stands for. Errors: DL0212 where a block now hides it."""
        var = inner = self.host.get(name)
        while var is not None and not var.invalid and not var.visible_from(place, by_function=by_function):
            var = var.hides
        known = var is not None and var.static is not None and not var.mutable
        if var is None or inner is None or var is inner or var.invalid or known:
            return var
        raise rebound_name_error(name, inner.span, place, var.span)

    def snapshot(self) -> ModuleScope:
        """What it declares now, as a module that stays as it is."""
        tables = {f: dict(t) for f in self.__struct_fields__ if type(t := getattr(self, f)) is dict}
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
    """A name of a module. What stands for it may change while host code runs; this does not."""

    module: ModuleScope
    name: str

    @property
    def var(self) -> HostVar | None:
        """The top-level value of that name."""
        return self.module.host.get(self.name)


class HostNumber(Struct, frozen=True):
    """A whole number that the host has: a value, or a leaf of what a function of the host captured."""

    global_name: GlobalName
    leaf: int | None = None
