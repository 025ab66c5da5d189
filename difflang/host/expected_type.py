"""The expected type of a host value: its annotation, the names that it binds, and whether a value matches."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from difflang.base.source import Span
from difflang.elaborate.context import ElabContext
from difflang.elaborate.statements.basic_statements import check_declared_type
from difflang.elaborate.terms import Term
from difflang.elaborate.trampoline import Walk
from difflang.ir.symbolic_dims import Dim, Poly
from difflang.syntax import tree
from difflang.types.annotations import AnnotationResolver
from difflang.types.language_types import LangType
from difflang.types.type_errors import declared_type_error
from difflang.types.type_resolver import TypeBinding


class ExpectedType(Struct, eq=False):
    """A written type, the names in it, and the names that it binds when it meets a value.

    `names` are those of a signature; None for a type beside the value, whose names are looked up there.
    """

    annotation: tree.TypeExpr
    subject: str = "the value"
    names: AnnotationResolver | None = None
    binds: dict[str, TypeBinding] = field(default_factory=dict[str, Any])

    @property
    def key(self) -> Hashable:
        """A cache key: the current bindings of the signature's names."""
        return None if self.names is None else (self.annotation, *sorted(self.names.bound.items(), key=lambda b: b[0]))

    @property
    def sizes(self) -> dict[str, Dim]:
        """The newly bound names that are sizes."""
        return {n: d for n, d in self.binds.items() if isinstance(d, (int, Poly))}

    def ascribe(self, cx: ElabContext, value: Term, span: Span) -> Walk[Term]:
        """Ascribe this type to a term of a unit. Errors: DL0304."""
        outer = cx.annotations
        if self.names is not None:
            # Shares the table of names.
            cx.annotations = replace(self.names, unifier=cx.unifier)
        # Names bound before are matched, not bound again.
        known = set(cx.annotations.bound)
        try:
            value = yield check_declared_type(cx, self.annotation, value, span, self.subject)
            self.bind({n: d for n, d in cx.annotations.bound.items() if n not in known})
        finally:
            cx.annotations = outer
        return value

    def match_value(self, type: LangType, here: AnnotationResolver, span: Span) -> None:
        """Match a value that the host has with this type; `here` are the names in scope. Errors: DL0304."""
        names = self.names or here
        known = set(names.bound)
        if not names.match(self.annotation, type):
            raise declared_type_error(self.annotation, type, span, self.subject)
        self.bind({n: d for n, d in names.bound.items() if n not in known})

    def bind(self, new: dict[str, TypeBinding]) -> None:
        self.binds |= new
        if self.names is not None:
            self.names.bound |= new
