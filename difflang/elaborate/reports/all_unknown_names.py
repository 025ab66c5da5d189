"""Reports all unknown names of a statement whose checking stopped at the first one."""

from __future__ import annotations

from collections.abc import Iterator

from difflang.base.diagnostics import DifflangError
from difflang.elaborate.calls.builtin_registry import TRANSFORM_NAMES
from difflang.elaborate.context import AlreadyReported, ElabContext
from difflang.elaborate.expressions.names import lookup_name, module_member, module_named_by
from difflang.syntax import tree
from difflang.syntax.tree_queries import all_nodes


def with_other_unknown_names(cx: ElabContext, error: DifflangError, stmt: tree.Node) -> Iterator[DifflangError]:
    """An error and, if it is an unknown name, those of all others in the statement, to be fixed at once."""
    yield error
    if error.diagnostics[0].code == "DL0201":
        yield from unknown_names_in(cx, stmt)


def unknown_names_in(cx: ElabContext, node: tree.Node) -> Iterator[DifflangError]:
    """The errors of all names in a function or a statement."""
    parts = all_nodes(node)
    bound = {p.name for p in parts if isinstance(p, (tree.NamePattern, tree.Param, tree.Fn, tree.Generic))}
    bound |= {name for p in parts if isinstance(p, tree.TypeName) for name in p.path} | {"newaxis"}
    bound |= {*TRANSFORM_NAMES, *cx.module.modules}
    wrt = [
        p for p in parts if isinstance(p, tree.Index) and isinstance(p.base, tree.Name) and p.base.id in TRANSFORM_NAMES
    ]
    # The names in `grad[w]` are parameters of the function.
    bound |= {n.id for p in wrt for each in p.subscripts for n in all_nodes(each) if isinstance(n, tree.Name)}
    for part in parts:
        try:
            if isinstance(part, tree.Name) and part.id not in bound:
                lookup_name(cx, part.id, part.span)
            elif isinstance(part, tree.Member) and (module := module_named_by(cx, part.base)) is not None:
                module_member(cx, module, part)
        except DifflangError as error:
            yield error
        except AlreadyReported:
            pass
