"""What names stand for, block inside block."""

from __future__ import annotations

from msgspec import Struct, field

from difflang.base.source import Span
from difflang.elaborate.terms import Term
from difflang.ir.symbolic_dims import Dim


class LocalBinding(Struct, eq=False):
    """What a name stands for. A `var` gets a new term at each assignment; a dim makes its value when it is read."""

    name: str
    term: Term | Dim
    mutable: bool = False
    span: Span | None = None
    was_read: bool = False
    is_loop_variable: bool = False  # a loop binds it anew at each step


class BlockScope(Struct, eq=False):
    """Names in a block, inside the names around it."""

    outer: BlockScope | None = None
    names: dict[str, LocalBinding] = field(default_factory=dict[str, LocalBinding])
    outer_is_read_only: bool = False  # what is outside can be read here, not assigned

    def find(self, name: str) -> LocalBinding | None:
        scope: BlockScope | None = self
        while scope is not None:
            if name in scope.names:
                return scope.names[name]
            scope = scope.outer
        return None

    def is_assignable(self, name: str) -> bool:
        """Whether an assignment here reaches the variable of that name."""
        scope: BlockScope | None = self
        while scope is not None and name not in scope.names:
            if scope.outer_is_read_only:
                return False
            scope = scope.outer
        return True

    def bind(
        self, name: str, term: Term | Dim, *, mutable: bool = False, span: Span | None = None, counts: bool = False
    ) -> None:
        if name != "_":
            self.names[name] = LocalBinding(name, term, mutable, span, is_loop_variable=counts)

    def visible_names(self) -> list[str]:
        found: list[str] = []
        scope: BlockScope | None = self
        while scope is not None:
            found += scope.names
            scope = scope.outer
        return found
