"""The unknown names of what could not be checked to its end."""

from __future__ import annotations

from collections.abc import Iterator

from difflang.base.diagnostics import DifflangError
from difflang.elaborate.calls.builtin_functions import TRANSFORMS
from difflang.elaborate.context import Context, Reported
from difflang.elaborate.expressions import qualified_names
from difflang.elaborate.expressions.primary_expressions import lookup
from difflang.syntax import tree
from difflang.syntax.tree_queries import nodes


def with_others(cx: Context, error: DifflangError, stmt: tree.Node) -> Iterator[DifflangError]:
    """An error, and where it is of an unknown name those of the others in the statement: all are mended at once."""
    yield error
    if error.diagnostics[0].code == "DL0201":
        yield from unknown_in(cx, stmt)


def unknown_in(cx: Context, node: tree.Node) -> Iterator[DifflangError]:
    """What is wrong with the names of a function or a statement, wherever they stand in it."""
    parts = nodes(node)
    bound = {p.name for p in parts if isinstance(p, (tree.NamePattern, tree.Param, tree.Fn, tree.Generic))}
    bound |= {name for p in parts if isinstance(p, tree.TypeName) for name in p.path} | {"newaxis"}
    bound |= {*TRANSFORMS, *cx.module.modules}
    wrt = [p for p in parts if isinstance(p, tree.Index) and isinstance(p.base, tree.Name) and p.base.id in TRANSFORMS]
    bound |= {n.id for p in wrt for each in p.subscripts for n in nodes(each) if isinstance(n, tree.Name)}  # parameters
    for part in parts:
        try:
            if isinstance(part, tree.Name) and part.id not in bound:
                lookup(cx, part.id, part.span)
            elif isinstance(part, tree.Member) and (module := qualified_names.module_of(cx, part.base)) is not None:
                qualified_names.member_of(cx, module, part)
        except DifflangError as error:
            yield error
        except Reported:
            pass
