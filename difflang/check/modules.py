"""A file as its functions see it: declarations, and top-level names with their types."""

from __future__ import annotations

from dataclasses import dataclass, field

from difflang.base.source import Source, Span
from difflang.check.types import LangType
from difflang.ir.dims import Dim
from difflang.ir.types import F32, DType
from difflang.syntax import tree

Static = float | bool | Dim | None  # what specialization may know of a number


@dataclass(eq=False, slots=True)
class HostVar:
    """A top-level `let` or `var` as functions see it: its type, and its value where specialization may know it."""

    name: str
    type: LangType
    mutable: bool = False
    static: Static = None
    span: Span | None = None
    broken: bool = False


@dataclass(frozen=True, eq=False, slots=True)
class ProgramArgument:
    """What the command line may tell a program: its name and type, the default as written, a line of help."""

    name: str
    type: LangType
    default: str | None
    help: str
    span: Span


@dataclass(eq=False)
class Module:
    """A file: its declarations and top-level names. Compared by identity."""

    source: Source
    default_float: DType = F32
    fns: dict[str, tree.Fn] = field(default_factory=dict[str, tree.Fn])
    records: dict[str, tree.Record] = field(default_factory=dict[str, tree.Record])
    rules: dict[str, tree.Rule] = field(default_factory=dict[str, tree.Rule])  # by the function they are for
    later: dict[str, tree.Node] = field(default_factory=dict[str, tree.Node])  # declared, but of a kind not there yet
    host: dict[str, HostVar] = field(default_factory=dict[str, HostVar])
    used: dict[str, Span] = field(default_factory=dict[str, Span])  # top-level names that functions read, and where
    yielded: dict[tree.Node, LangType] = field(default_factory=dict[tree.Node, LangType])  # what host loops yield
    arguments: dict[str, ProgramArgument] = field(default_factory=dict[str, ProgramArgument])
    needs: dict[str, Span] = field(default_factory=dict[str, Span])  # optional packages, and what needs them first
    prelude: Module | None = None
