"""Dependencies among top-level `let`s: which of them a piece of host code needs, directly or through functions.

Tests and benchmarks run without the rest of the file, so its statements are skipped, and its variables, whose values
only a run gives, are errors.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator, Sequence
from typing import NamedTuple

from difflang.elaborate.calls.builtin_registry import TRANSFORM_NAMES
from difflang.elaborate.context import Session
from difflang.syntax import tree
from difflang.syntax.tree_queries import all_nodes, child_nodes, pattern_names
from difflang.types.module_scope import ModuleScope
from difflang.types.type_errors import make_error


def required_lets(module: ModuleScope, above: Sequence[tree.Item], node: tree.Node) -> list[tree.Let]:
    """The `let`s among the items `above` that a node may read, in the order of the file."""
    binding: dict[str, list[int]] = {}
    for i, item in enumerate(above):
        if isinstance(item, tree.Let):
            for name in (*pattern_names(item.pattern), *lone_type_names(item.type)):
                binding.setdefault(name, []).append(i)
    variables = variable_dependents(above)
    chosen: set[int] = set()
    seen: set[str] = set()
    todo = list(free_file_names(node))
    while todo:
        name = todo.pop()
        # Variables have no value without a run; `refuse_variables` reports them.
        if name in seen or name in variables:
            continue
        seen.add(name)
        found = [i for i in binding.get(name, ()) if i not in chosen]
        chosen.update(found)
        reached: list[tree.Node] = [above[i] for i in found]
        reached += [d for d in (module.fns.get(name), module.rules.get(name)) if d is not None]
        for other in reached:
            todo += free_file_names(other)
    return [item for i, item in enumerate(above) if i in chosen and isinstance(item, tree.Let)]


def free_file_names(node: tree.Node) -> Iterator[str]:
    """The names in a node that may refer to the file, excluding names that the node binds itself.

    A size in the signature of a top-level function is always the function's own; in the signature of a function inside
    a block it may refer to the file.
    """
    bound = Counter(signature_sizes(node))
    todo: list[tree.Node | BindingChange] = [node]
    while todo:
        part = todo.pop()
        if isinstance(part, BindingChange):
            bound.update(dict.fromkeys(part.names, part.times))
            continue
        match part:
            case tree.Name(id=name) | tree.Save(name=name) | tree.TypeName(path=(name,)):
                if not bound[name]:
                    yield name
            case tree.Call(fn=tree.Member(name=name)):  # `x.f(y)` may be `f(x, y)`; any other `x.f` is a field
                yield name
            case _:
                pass
        todo += reversed(scoped_parts(part))


class BindingChange(NamedTuple):
    """From here on these names are bound once more, or once less if `times` is -1."""

    names: Sequence[str]
    times: int = 1


def scoped_parts(node: tree.Node) -> list[tree.Node | BindingChange]:
    """The children of a node, with markers between them where the scope of its own names begins and ends."""
    match node:
        case tree.Block(stmts=stmts):
            return close_scope([part for stmt in stmts for part in (stmt, BindingChange(names_bound_by(stmt)))])
        case tree.For():
            return [node.iterable, *node.attributes, *close_scope([BindingChange(names_bound_by(node)), node.body])]
        case tree.Comprehension(iterators=iterators):
            heads = [part for it in iterators for part in (*child_nodes(it), BindingChange(names_bound_by(it)))]
            return close_scope([*heads, *([node.condition] if node.condition else []), node.body])
        case tree.Case():
            return close_scope([BindingChange(names_bound_by(node)), node.body])
        case tree.Fn() | tree.Rule() | tree.Lambda():
            own = [
                BindingChange([name for p in node.params for name in names_bound_by(p)]),
                BindingChange(names_bound_by(node)),
            ]
            heads = [part for p in node.params for part in child_nodes(p)]
            rest = [part for part in child_nodes(node) if not isinstance(part, (tree.Param, tree.LambdaParam))]
            return [*heads, *close_scope([*own, *rest])]
        case tree.Call(fn=tree.Index(base=tree.Name(id=name) as base), args=args) if name in TRANSFORM_NAMES:
            # `grad[w, m.b](f)`: the index names parameters of `f`, not variables.
            return [base, *args]
        case _:
            return [*child_nodes(node)]


def close_scope(parts: Sequence[tree.Node | BindingChange]) -> list[tree.Node | BindingChange]:
    """The parts, followed by markers that end the bindings among them."""
    return [*parts, *(BindingChange(part.names, -1) for part in parts if isinstance(part, BindingChange))]


def signature_sizes(node: tree.Node) -> list[str]:
    """The names that a top-level function's signature binds besides its parameters."""
    if isinstance(node, tree.Fn):
        return [*(g.name for g in node.generics), *(n for p in node.params for n in lone_type_names(p.type))]
    return [n for p in node.params for n in lone_type_names(p.type)] if isinstance(node, tree.Rule) else []


def variable_dependents(items: Sequence[tree.Item]) -> dict[str, str]:
    """The top-level names whose values depend on a `var`, with that variable; a `var` depends on itself.

    A host function that reads a variable is among them.
    """
    found: dict[str, str] = {}
    for item in items:
        if isinstance(item, tree.Var):
            found |= {name: name for name in pattern_names(item.pattern)}
        elif isinstance(item, tree.Let) or (isinstance(item, tree.Fn) and item.host):
            variable = next((found[use.id] for use in name_uses(item, found)), None)
            for name in pattern_names(item.pattern) if isinstance(item, tree.Let) else (item.name,):
                if variable is None:
                    # A later `let` with the name no longer depends on the variable.
                    found.pop(name, None)
                else:
                    found[name] = variable
    return found


def name_uses(node: tree.Node, names: Container[str]) -> Iterator[tree.Name]:
    """The uses of these names in a node that does not rebind them."""
    value = node.value if isinstance(node, tree.Let) else node
    parts = all_nodes(value)
    # Conservative: a name bound anywhere inside counts as local.
    own = {name for part in parts for name in names_bound_by(part)}
    return (part for part in parts if isinstance(part, tree.Name) and part.id in names and part.id not in own)


def refuse_variables(session: Session, above: Sequence[tree.Item], node: tree.Node, what: str) -> bool:
    """Whether a block reads no variable of the file. Errors are reported: DL0211."""
    variables = variable_dependents(above)
    use = next(name_uses(node, variables), None)
    if use is None:
        return True
    variable = variables[use.id]
    why = "it has a value only while the file runs" if variable == use.id else f"it depends on `{variable}`"
    message, way = f"a {what} cannot use the top-level variable `{variable}`", f"bind it with `let` in the {what}"
    session.report(make_error("DL0211", message, (use.span, why), help=way))
    return False


def lone_type_names(written: tree.TypeExpr | None) -> list[str]:
    """The single-word names in a written type, which it may bind."""
    if written is None:
        return []
    return [part.path[0] for part in all_nodes(written) if isinstance(part, tree.TypeName) and len(part.path) == 1]


def names_bound_by(node: tree.Node) -> Sequence[str]:
    match node:
        case tree.Let(pattern=pattern) | tree.Var(pattern=pattern) | tree.For(pattern=pattern):
            return pattern_names(pattern)
        case tree.LambdaParam(pattern=pattern) | tree.Iterator(pattern=pattern):
            return pattern_names(pattern)
        case tree.Case(pattern=pattern):
            return [part.name for part in all_nodes(pattern) if isinstance(part, tree.NamePattern)]
        case tree.Param(name=name) | tree.Fn(name=name):
            return (name,)
        case _:
            return ()
