"""Desugars `break`, `continue` and early `return` into flag variables and branches, before elaboration.

A jump sets a flag, the statements after it are guarded by it, and a loop with a `break` tests it before each step.
So an early exit is ordinary assignment, and derivatives, checks and batching need no rule for it. A `return` inside
branches only needs no flag: the following statements move into the other branch. So do the statements after a branch
that gives a value, `let x = if c { return y } else { z }`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from difflang.base.diagnostics import DifflangError
from difflang.base.source import Span
from difflang.elaborate.statements.jump_analysis import (
    JUMPS,
    Statements,
    case_bindings,
    continuing_branch,
    else_statements,
    ends_in_jump,
    jumps_inside,
    jumps_leaving,
    mark_jump_free,
    names_used_after,
    statement_bindings,
)
from difflang.elaborate.trampoline import Walk, run_walk
from difflang.syntax import tree
from difflang.syntax.tree_queries import all_nodes, child_nodes, mentioned_names
from difflang.syntax.tree_queries import assigned_names as assigned_in
from difflang.types.type_errors import make_error

NodeT = TypeVar("NodeT", bound=tree.Node)
BODY_STATEMENTS = (tree.Checkpoint, tree.WithKey)  # statements with a block as their body
VALUE_STATEMENTS = (tree.Let, tree.Var, tree.Assign, tree.Update, tree.Return, tree.Yield)


class ForUntil(tree.For, frozen=True, eq=False):
    """A `for` loop that ends before its next step once the variable `stop` is true."""

    stop: str


class UnsetResult(tree.Int, frozen=True, eq=False):
    """Any value of the function's result type; it is never read."""


class JumpFlags(Struct, frozen=True):
    """The flags that jumps set: to skip the rest of a step, to end the loop, and that there is a `result`."""

    skip: str | None = None
    stop: str | None = None
    returned: str | None = None
    result: str | None = None


@lru_cache(maxsize=4096)
def desugar_function(body: tree.Expr) -> tree.Expr:
    """The body of a function with its jumps desugared. Errors: DL0506 for unreachable statements."""
    if not isinstance(body, tree.Block) or not any(isinstance(n, JUMPS) for n in all_nodes(body)):
        return body
    return run_walk(JumpDesugarer(body).function_block(body.stmts, body.span))


@lru_cache(maxsize=4096)
def desugar_loop(loop: tree.Loop) -> tree.Block | None:
    """A loop inside an expression with its jumps desugared; None if it has no jump, or a `return` leaves it."""
    if not jumps_inside(loop):
        return None
    found = jumps_leaving(loop)
    if found.get(loop) or not any(isinstance(n, (tree.Break, tree.Continue)) for n in found):
        return None
    body = tree.Block(loop.span, (loop,))
    return replace(body, stmts=run_walk(JumpDesugarer(body).flag_statements(body.stmts, JumpFlags())))


class JumpDesugarer:
    """Rewrites the body of one function without jumps. `jumps` maps each node to the kinds of jumps that leave it."""

    def __init__(self, body: tree.Block) -> None:
        self.used_names = set(mentioned_names(body))
        for node in all_nodes(body):
            if isinstance(node, tree.NamePattern):
                self.used_names.add(node.name)
        self.jumps = jumps_leaving(body)

    def fresh_name(self, what: str) -> str:
        """A name that is not used in the function."""
        count = 0
        while f"{what}_{count}" in self.used_names:
            count += 1
        self.used_names.add(f"{what}_{count}")
        return f"{what}_{count}"

    # ---- The function's own statements: `return` moves code into branches

    def function_block(self, stmts: Sequence[tree.Stmt], span: Span) -> Walk[tree.Block]:
        """Desugar statements in tail position, whose last value is the function's."""
        done: list[tree.Stmt] = []
        for i, stmt in enumerate(stmts):
            # The code after a jump is never copied: it moves to the one side that continues.
            rest = tuple(stmts[i + 1 :])
            if (opened := self.move_into_value(stmt, rest)) is not None:
                return (yield self.function_block((*done, *opened), span))
            if isinstance(stmt, tree.Return):
                refuse_unreachable(stmt, rest)
                return tree.Block(span, (*done, *([stmt.value] if stmt.value is not None else [])))
            if isinstance(stmt, (tree.Break, tree.Continue)):
                set_flags(stmt, JumpFlags())
            if tree.Return not in self.jumps.get(stmt, ()):
                done += yield self.desugar_nested_loops(stmt)
            elif isinstance(stmt, tree.Block) and not rest:
                return tree.Block(span, (*done, (yield self.function_block(stmt.stmts, stmt.span))))
            elif isinstance(stmt, BODY_STATEMENTS) and not rest:
                inner = yield self.function_block(stmt.body.stmts, stmt.body.span)
                return tree.Block(span, (*done, replace(stmt, body=inner)))
            elif isinstance(stmt, tree.If) and (moved := self.move_into_branch(stmt, rest)):
                then = yield self.function_block(moved[0], stmt.then.span)
                other = yield self.function_block(moved[1], (stmt.orelse or stmt).span)
                return tree.Block(span, (*done, tree.If(stmt.span, stmt.condition, then, other)))
            elif isinstance(stmt, tree.Match) and (into := self.move_into_cases(stmt, rest)):
                cases: list[tree.Case] = []
                for case, side in zip(stmt.cases, into, strict=True):
                    cases.append(replace(case, body=(yield self.function_block(side, case.body.span))))
                return tree.Block(span, (*done, replace(stmt, cases=tuple(cases))))
            else:
                # A `return` inside a loop: the only case in which the result needs a variable.
                flags = JumpFlags(returned=self.fresh_name("returned"), result=self.fresh_name("result"))
                assert flags.returned and flags.result
                done.append(tree.Var(stmt.span, flag_pattern(stmt, flags.result), None, UnsetResult(stmt.span, 0)))
                done.append(declare_flag(stmt, flags.returned))
                done += yield self.flag_statements((stmt,), flags)
                then = tree.Block(stmt.span, (tree.Name(stmt.span, flags.result),))
                other = yield self.function_block(rest, span)
                flag = tree.Name(stmt.span, flags.returned)
                return tree.Block(span, (*done, tree.If(stmt.span, flag, then, other)))
        return tree.Block(span, tuple(done))

    def move_into_branch(self, stmt: tree.If, rest: Statements) -> tuple[Statements, Statements] | None:
        """Both sides, with the rest moved into the side that does not return; None if that is not possible."""
        then, other = stmt.then.stmts, else_statements(stmt.orelse)
        if ends_in_jump(then) and ends_in_jump(other):
            refuse_unreachable(stmt, rest)
        if not rest or (ends_in_jump(then) and ends_in_jump(other)):
            return then, other
        if ends_in_jump(then):
            longer = self.after(other, rest)
            return None if longer is None else (then, longer)
        longer = self.after(then, rest) if ends_in_jump(other) else None
        return None if longer is None else (longer, other)

    def move_into_cases(self, stmt: tree.Match, rest: Statements) -> list[Statements] | None:
        """Every case, with the rest moved into the only case that does not return; None if that is not possible."""
        into = [else_statements(case.body) for case in stmt.cases]
        going_on = [i for i, side in enumerate(into) if not ends_in_jump(side)]
        if not going_on:
            refuse_unreachable(stmt, rest)
        if not going_on or not rest:
            return into
        (place, *more), names = going_on, {n for s in rest for n in mentioned_names(s)}
        # The names that the case binds must not capture those of the moved code.
        apart = case_bindings(stmt.cases[place].pattern).isdisjoint(names)
        longer = self.after(into[place], rest) if not more and apart else None
        return None if longer is None else [*into[:place], longer, *into[place + 1 :]]

    def after(self, stmts: Statements, rest: Statements) -> Statements | None:
        """A block's statements and the rest, nested if they would shadow its names; None if neither works."""
        if not self.shadows(stmts, rest):
            return (*stmts, *rest)
        return None if self.has_return(stmts) else (tree.Block(stmts[0].span, stmts), *rest)

    def has_return(self, stmts: Statements) -> bool:
        return any(tree.Return in self.jumps.get(s, ()) for s in stmts)

    # ---- Statements whose value is a branch with a jump

    def move_into_value(self, stmt: tree.Stmt, rest: Statements) -> Statements | None:
        """A statement and the rest, moved into the only branch that gives its value; None if there is not one.

        Errors: DL0509 where a name would be shadowed there.
        """
        value = stmt.value if isinstance(stmt, VALUE_STATEMENTS) else None
        if value is None or not self.jumps.get(value):
            return None
        if isinstance(value, tree.Block) and value.stmts:
            *before, last = value.stmts
            self.refuse_shadowing(stmt, rest, statement_bindings(before))
            return (*before, self.with_value(stmt, last), *rest)
        if isinstance(value, tree.If) and value.orelse is not None:
            ways = [value.then, value.orelse]
            if (at := continuing_branch(ways)) is None:
                return None
            self.refuse_shadowing(stmt, rest, set())
            then, other = self.extend_side(stmt, ways, rest, at)
            return (self.inherit_jumps(tree.If(value.span, value.condition, then, other)),)
        if isinstance(value, tree.Match):
            bodies = [case.body for case in value.cases]
            if (at := continuing_branch(bodies)) is None:
                return None
            self.refuse_shadowing(stmt, rest, case_bindings(value.cases[at].pattern))
            pairs = zip(value.cases, self.extend_side(stmt, bodies, rest, at), strict=True)
            return (
                self.inherit_jumps(
                    replace(value, cases=tuple([self.inherit_jumps(replace(c, body=body)) for c, body in pairs]))
                ),
            )
        return None

    def extend_side(self, stmt: tree.Stmt, places: Sequence[tree.Expr], rest: Statements, at: int) -> list[tree.Block]:
        """The sides of a branch, with the statement and the rest moved into side `at`."""
        blocks = [tree.Block(side.span, else_statements(side)) for side in places]
        blocks[at] = tree.Block(places[at].span, (self.with_value(stmt, places[at]), *rest))
        return [self.inherit_jumps(block) for block in blocks]

    def refuse_shadowing(self, stmt: tree.Stmt, rest: Statements, bound: set[str]) -> None:
        """Errors: DL0509 where names bound in a statement's value would shadow those of the statement or the rest.

        An update reads its target first, so its value must not assign what the target reads.
        """
        target = set(mentioned_names(stmt.target)) if isinstance(stmt, (tree.Assign, tree.Update)) else set[str]()
        hidden = bound & (target | names_used_after(stmt, rest)) if bound else set[str]()
        moved = target & set(assigned_in(stmt.value)) if isinstance(stmt, tree.Update) else set[str]()
        for name in sorted(hidden | moved):
            jump = next(n for n in all_nodes(stmt) if isinstance(n, JUMPS))
            message = f"`{jump_keyword(jump)}` leaves an expression that has its own `{name}`"
            way = f"rename the inner `{name}`" if name in hidden else f"assign `{name}` in a statement before it"
            raise make_error("DL0509", message, (jump.span, ""), help=way)

    def with_value(self, stmt: tree.Stmt, value: tree.Node) -> tree.Stmt:
        return self.inherit_jumps(replace(stmt, value=value))  # type: ignore[arg-type]

    def inherit_jumps(self, node: NodeT) -> NodeT:
        """A new node, with the jumps of its parts recorded for it."""
        if found := set[type[tree.Node]]().union(*[self.jumps.get(part, set()) for part in child_nodes(node)]):
            self.jumps[node] = found | ({type(node)} if isinstance(node, JUMPS) else set())
        return node

    def shadows(self, stmts: Statements, rest: Statements) -> bool:
        """Whether statements bind a name that the rest uses from outside."""
        return not statement_bindings(stmts).isdisjoint(n for s in rest for n in mentioned_names(s))

    # ---- Loops and branches in them: jumps set flags

    def desugar_nested_loops(self, stmt: tree.Stmt) -> Walk[Statements]:
        """A statement that no jump leaves, with the loops in it desugared."""
        if isinstance(stmt, (tree.Let, tree.Var)):
            *before, value = yield self.desugar_nested_loops(stmt.value)
            return (*before, replace(stmt, value=value))
        if isinstance(stmt, tree.Loop):
            return (yield self.flag_loop(stmt, JumpFlags()))
        if isinstance(stmt, (tree.If, tree.Match, tree.Block)):
            return (yield self.flag_compound(stmt, JumpFlags()))
        return (stmt,)

    def flag_statements(self, stmts: Sequence[tree.Stmt], flags: JumpFlags) -> Walk[Statements]:
        """Statements in which jumps set flags; the statements after a jump are guarded by the flag."""
        done: list[tree.Stmt] = []
        for i, stmt in enumerate(stmts):
            rest = tuple(stmts[i + 1 :])
            if (opened := self.move_into_value(stmt, rest)) is not None:
                return (*done, *(yield self.flag_statements(opened, flags)))
            if isinstance(stmt, JUMPS):
                refuse_unreachable(stmt, rest)
                return (*done, *set_flags(stmt, flags))
            if not self.jumps.get(stmt):
                done += yield self.desugar_nested_loops(stmt)
                continue
            done += yield self.flag_compound(stmt, flags)
            if rest:
                flag = tree.Name(stmt.span, flags.skip or flags.returned or "")
                go_on = tree.Block(stmt.span, (yield self.flag_statements(rest, flags)))
                done.append(tree.If(stmt.span, tree.Unary(stmt.span, "not", flag), go_on, None))
            break
        return tuple(done)

    def flag_compound(self, stmt: tree.Stmt, flags: JumpFlags) -> Walk[Statements]:
        """Desugar a compound statement that a jump may leave. Errors: DL0509 for a jump inside an expression."""
        self.refuse_within(header_expression(stmt))
        if isinstance(stmt, tree.Loop):
            return (yield self.flag_loop(stmt, flags))
        if isinstance(stmt, tree.Block):
            return (replace(stmt, stmts=(yield self.flag_statements(stmt.stmts, flags))),)
        if isinstance(stmt, BODY_STATEMENTS):
            return (replace(stmt, body=replace(stmt.body, stmts=(yield self.flag_statements(stmt.body.stmts, flags)))),)
        if isinstance(stmt, tree.If):
            then = replace(stmt.then, stmts=(yield self.flag_statements(stmt.then.stmts, flags)))
            other = None
            if stmt.orelse is not None:
                other = tree.Block(stmt.orelse.span, (yield self.flag_statements(else_statements(stmt.orelse), flags)))
            return (tree.If(stmt.span, stmt.condition, then, other),)
        if isinstance(stmt, tree.Match):
            cases: list[tree.Case] = []
            for case in stmt.cases:
                body = tree.Block(case.body.span, (yield self.flag_statements(else_statements(case.body), flags)))
                cases.append(replace(case, body=body))
            return (replace(stmt, cases=tuple(cases)),)
        return (stmt,)

    def refuse_within(self, e: tree.Node | None) -> None:
        if e is not None and self.jumps.get(e):
            raise misplaced_jump(next(n for n in all_nodes(e) if isinstance(n, JUMPS)))

    def flag_loop(self, stmt: tree.Loop, outer_flags: JumpFlags) -> Walk[Statements]:
        """A loop with its flags declared before it and, after it, a `return` passed on to the outer loop."""
        inside: set[type[tree.Node]] = set().union(*[self.jumps.get(s, set()) for s in stmt.body.stmts])
        if not inside:
            return (
                mark_jump_free(
                    replace(
                        stmt, body=replace(stmt.body, stmts=(yield self.flag_statements(stmt.body.stmts, JumpFlags())))
                    )
                ),
            )
        # `skip` is reset at every step; `stop` outlives the step and needs a declaration before the loop.
        skip, stop = self.fresh_name("skip"), self.fresh_name("stop") if inside - {tree.Continue} else None
        flags = JumpFlags(skip, stop, outer_flags.returned, outer_flags.result)
        stmts = yield self.flag_statements(stmt.body.stmts, flags)
        loop = replace(stmt, body=replace(stmt.body, stmts=(declare_flag(stmt, skip), *stmts)))
        if stop is None:
            return (mark_jump_free(loop),)
        if isinstance(loop, tree.While):
            go_on = tree.Unary(loop.condition.span, "not", tree.Name(loop.condition.span, stop))
            at = loop.condition.span
            # The flag first: after a `break` the old condition may not be evaluated, since it could fail.
            loop = replace(loop, condition=tree.Binary(at, "and", go_on, loop.condition, at))
        else:
            assert isinstance(loop, tree.For)
            loop = ForUntil(loop.span, loop.pattern, loop.iterable, loop.body, loop.attributes, stop)
        after: Statements = ()
        if tree.Return in inside and outer_flags.skip:
            flag = tree.Name(stmt.span, outer_flags.returned or "")
            left = [set_flag(stmt, name) for name in (outer_flags.skip, outer_flags.stop) if name]
            after = (tree.If(stmt.span, flag, tree.Block(stmt.span, tuple(left)), None),)
        return (declare_flag(stmt, stop), mark_jump_free(loop), *after)


def header_expression(stmt: tree.Stmt) -> tree.Node | None:
    """The expression that a statement evaluates before its blocks."""
    match stmt:
        case tree.If() | tree.While():
            return stmt.condition
        case tree.Match():
            return stmt.subject
        case tree.For():
            return stmt.iterable
        case tree.WithKey():
            return stmt.key
        case tree.Block() | tree.Checkpoint():
            return None
        case _:
            return stmt


def misplaced_jump(jump: tree.Node) -> DifflangError:
    """The report of a jump inside an expression."""
    way = "a branch may jump if the other branch gives the value: `let v = if c { return x } else { y }`"
    return make_error(
        "DL0509", f"`{jump_keyword(jump)}` cannot be in the middle of an expression", (jump.span, ""), help=way
    )


def jump_keyword(jump: tree.Node) -> str:
    return "return" if isinstance(jump, tree.Return) else "break" if isinstance(jump, tree.Break) else "continue"


def refuse_unreachable(jump: tree.Node, rest: Statements) -> None:
    """Errors: DL0506 for statements after a jump."""
    if rest:
        raise make_error(
            "DL0506", "this never runs", (rest[0].span, ""), (jump.span, "this leaves the block"), help="remove it"
        )


def set_flags(stmt: tree.Stmt, flags: JumpFlags) -> Statements:
    """The assignments that replace a jump. Errors: DL0501 outside a loop."""
    if isinstance(stmt, (tree.Break, tree.Continue)):
        if flags.skip is None:
            word = "break" if isinstance(stmt, tree.Break) else "continue"
            raise make_error("DL0501", f"`{word}` is outside a loop", (stmt.span, ""))
        names = (flags.skip, flags.stop) if isinstance(stmt, tree.Break) else (flags.skip,)
        return tuple(set_flag(stmt, n) for n in names if n)
    assert isinstance(stmt, tree.Return)
    value = stmt.value or tree.TupleExpr(stmt.span, ())
    result = tree.Assign(stmt.span, tree.Name(stmt.span, flags.result or ""), value)
    return (result, *[set_flag(stmt, n) for n in (flags.returned, flags.skip, flags.stop) if n])


def flag_pattern(at: tree.Node, name: str) -> tree.NamePattern:
    return tree.NamePattern(at.span, name)


def declare_flag(at: tree.Node, name: str) -> tree.Var:
    return tree.Var(at.span, flag_pattern(at, name), None, tree.Bool(at.span, False))


def set_flag(at: tree.Node, name: str) -> tree.Assign:
    return tree.Assign(at.span, tree.Name(at.span, name), tree.Bool(at.span, True))
