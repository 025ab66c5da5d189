"""Which top-level `let`s a piece of host code needs, by the names it mentions and those of the functions it reaches.

Blocks of tests and benchmarks run without the rest of the file: its statements are left out, and so are its variables,
whose values only a run gives.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence

from difflang.check.modules import Module
from difflang.check.reports import mistake
from difflang.elaborate.context import Session
from difflang.elaborate.names import bound_names, nodes
from difflang.syntax import tree


def needed(module: Module, above: Sequence[tree.Item], node: tree.Node) -> list[tree.Let]:
    """The `let`s among the items `above` that a node may read, in the order of the file."""
    binding: dict[str, list[int]] = {}
    for i, item in enumerate(above):
        if isinstance(item, tree.Let):
            for name in (*bound_names(item.pattern), *sizes_in(item.type)):
                binding.setdefault(name, []).append(i)
    variables = unsettled(above)
    chosen: set[int] = set()
    seen: set[str] = set()
    todo = list(from_outside(node))
    while todo:
        name = todo.pop()
        if name in seen or name in variables:
            continue
        seen.add(name)
        found = [i for i in binding.get(name, ()) if i not in chosen]
        chosen.update(found)
        reached: list[tree.Node] = [above[i] for i in found]
        reached += [d for d in (module.fns.get(name), module.rules.get(name)) if d is not None]
        for other in reached:
            todo += mentioned(other)
    return [item for i, item in enumerate(above) if i in chosen and isinstance(item, tree.Let)]


def from_outside(node: tree.Node) -> Iterator[str]:
    """The names that a block mentions before it binds them itself."""
    own: set[str] = set()
    for stmt in node.stmts if isinstance(node, tree.Block) else (node,):
        yield from (name for name in mentioned(stmt) if name not in own)
        if isinstance(stmt, (tree.Let, tree.Var)):
            own.update(bound_names(stmt.pattern))


def mentioned(node: tree.Node) -> Iterator[str]:
    """Every name in a node that may stand for something of the file."""
    for part in nodes(node):
        match part:
            case tree.Name(id=name) | tree.Save(name=name) | tree.TypeName(path=(name,)):
                yield name
            case tree.Call(fn=tree.Member(name=name)):  # `x.f(y)` may be `f(x, y)`; any other `x.f` is a field
                yield name
            case _:
                pass


def unsettled(items: Sequence[tree.Item]) -> dict[str, str]:
    """The top-level names without a value of their own, and the variable that each depends on: itself, for a `var`.

    A host function that reads a variable is one of them.
    """
    found: dict[str, str] = {}
    for item in items:
        if isinstance(item, tree.Var):
            found |= {name: name for name in bound_names(item.pattern)}
        elif isinstance(item, tree.Let) or (isinstance(item, tree.Fn) and item.host):
            variable = next((found[use.id] for use in uses(item, found)), None)
            for name in bound_names(item.pattern) if isinstance(item, tree.Let) else (item.name,):
                if variable is None:
                    found.pop(name, None)
                else:
                    found[name] = variable
    return found


def uses(node: tree.Node, names: Container[str]) -> Iterator[tree.Name]:
    """Where a node mentions one of these names and binds no other thing to it."""
    value = node.value if isinstance(node, tree.Let) else node
    parts = nodes(value)
    own = {name for part in parts for name in bound_here(part)}
    return (part for part in parts if isinstance(part, tree.Name) and part.id in names and part.id not in own)


def refuse_variables(session: Session, above: Sequence[tree.Item], node: tree.Node, what: str) -> bool:
    """Whether a block reads no variable of the file. Errors are reported: DL0211."""
    variables = unsettled(above)
    use = next(uses(node, variables), None)
    if use is None:
        return True
    variable = variables[use.id]
    why = "it has a value only while the file runs" if variable == use.id else f"it depends on `{variable}`"
    message, way = f"a {what} cannot use the top-level variable `{variable}`", f"bind it with `let` in the {what}"
    session.report(mistake("DL0211", message, (use.span, why), help=way))
    return False


def sizes_in(written: tree.TypeExpr | None) -> list[str]:
    """The lone names in a written type: what it may have bound."""
    if written is None:
        return []
    return [part.path[0] for part in nodes(written) if isinstance(part, tree.TypeName) and len(part.path) == 1]


def bound_here(node: tree.Node) -> Sequence[str]:
    match node:
        case tree.Let(pattern=pattern) | tree.Var(pattern=pattern) | tree.For(pattern=pattern):
            return bound_names(pattern)
        case tree.LambdaParam(pattern=pattern) | tree.Iterator(pattern=pattern):
            return bound_names(pattern)
        case tree.Case(pattern=pattern):
            return [part.name for part in nodes(pattern) if isinstance(part, tree.NamePattern)]
        case tree.Param(name=name):
            return (name,)
        case _:
            return ()
