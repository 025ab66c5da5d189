"""Lexical scopes of blocks: bindings of local names to terms."""

from __future__ import annotations

from msgspec import Struct, field

from difflang.base.source import Span
from difflang.elaborate.terms import Term
from difflang.ir.symbolic_dims import Dim


class LocalBinding(Struct, eq=False):
    """The binding of a local name. Assignment to a `var` replaces its term; a dim becomes a constant when read."""

    name: str
    term: Term | Dim
    mutable: bool = False
    span: Span | None = None
    was_read: bool = False
    is_loop_variable: bool = False  # a loop rebinds it at each step
    is_captured: bool = False  # it stands outside of the lambda that reads it


class BlockScope(Struct, eq=False):
    """The names of a block, nested in an outer scope."""

    outer: BlockScope | None = None
    names: dict[str, LocalBinding] = field(default_factory=dict[str, LocalBinding])
    outer_is_read_only: bool = False  # outer variables cannot be assigned here

    def find(self, name: str) -> LocalBinding | None:
        scope: BlockScope | None = self
        while scope is not None:
            if name in scope.names:
                return scope.names[name]
            scope = scope.outer
        return None

    def hidden_variable(self, name: str) -> Span | None:
        """The span of the innermost variable with a name that another binding of that name hides, or None."""
        scope: BlockScope | None = self
        while scope is not None:
            if name in scope.names and scope.names[name].mutable:
                return scope.names[name].span
            scope = scope.outer
        return None

    def is_assignable(self, name: str) -> bool:
        """Whether code here may assign the variable of that name."""
        scope: BlockScope | None = self
        while scope is not None and name not in scope.names:
            if scope.outer_is_read_only:
                return False
            scope = scope.outer
        return True

    def bind(
        self, name: str, term: Term | Dim, *, mutable: bool = False, span: Span | None = None, counts: bool = False
    ) -> None:
        # `_` binds nothing, so it can repeat in a pattern.
        if name != "_":
            self.names[name] = LocalBinding(name, term, mutable, span, is_loop_variable=counts)

    def visible_names(self) -> list[str]:
        found: list[str] = []
        scope: BlockScope | None = self
        while scope is not None:
            found += scope.names
            scope = scope.outer
        return found
