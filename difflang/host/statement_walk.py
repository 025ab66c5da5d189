"""The walk over host statements that checking and running share, at the top level and in `host fn`s.

It is a trampolined walk (see `elaborate/trampoline.py`), so that a `host fn` may recurse to any depth.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Generator
from contextlib import contextmanager

import numpy as np

from difflang.base.source import Span
from difflang.elaborate.calls.call_args import CallArgs
from difflang.elaborate.calls.signatures import is_dim
from difflang.elaborate.context import ElabContext, Session, elaborate
from difflang.elaborate.statements.basic_statements import VALUELESS
from difflang.elaborate.statements.decorators import apply_decorators, warn_unused_checkpoint
from difflang.elaborate.terms import Term
from difflang.elaborate.trampoline import Walk, run_walk
from difflang.host.bindings import HostBindings
from difflang.host.builtin_registry import HOST_BUILTINS
from difflang.host.builtins import UNIT_VALUE, BuiltinCall, HostBuiltin
from difflang.host.call_frames import HostFrame, check_size_argument, host_call_error, match_arguments, single_argument
from difflang.host.data.batches import batch_iterable
from difflang.host.expected_type import ExpectedType
from difflang.host.hoist_host_calls import ControlNode, HoistedExpr, hoist_host_calls
from difflang.host.loop_iterables import HostIterable, loop_iterable
from difflang.host.values import HostValue, known_texts
from difflang.ir.symbolic_dims import Dim, Poly, dim_name
from difflang.ir.tensor_types import Tensor
from difflang.syntax import tree
from difflang.syntax.tree_queries import find_node
from difflang.types.annotations import AnnotationResolver
from difflang.types.function_code import FnCode
from difflang.types.language_types import TupleType
from difflang.types.module_scope import GlobalName, HostNumber, ModuleScope
from difflang.types.type_errors import condition_type_error, make_error
from difflang.types.unify import Unifier

MAX_NESTING = 100  # levels of loops and branches
DECLARATIONS = (tree.Fn, tree.Record, tree.Enum, tree.Rule, tree.Test, tree.Bench, tree.Import, tree.Axes)


class HostWalk(HostBindings):
    """Walks host statements; subclasses check or run them."""

    def __init__(self, session: Session, module: ModuleScope, hosts: dict[ModuleScope, HostWalk] | None = None) -> None:
        super().__init__(session, module)
        # The walks of all modules of the program.
        self.hosts = {} if hosts is None else hosts
        self.hosts[module] = self
        self.frames = [HostFrame(None)]
        self.lifts: dict[tree.Node, HoistedExpr | None] = {}

    @property
    def signature(self) -> AnnotationResolver | None:
        """The names of the enclosing function's signature; None at the top level."""
        return self.frames[-1].names

    # ---- Differences between checking and running

    @abstractmethod
    def perform(self, function: HostBuiltin, given: BuiltinCall) -> HostValue: ...

    @abstractmethod
    def text(self, e: tree.Str) -> Walk[HostValue]: ...

    @abstractmethod
    def branch(self, e: tree.If, condition: HostValue, expected: ExpectedType | None) -> Walk[HostValue]: ...

    @abstractmethod
    def match(self, e: tree.Match, subject: HostValue, expected: ExpectedType | None) -> Walk[HostValue]: ...

    @abstractmethod
    def logic(self, e: tree.Binary) -> Walk[HostValue]: ...

    @abstractmethod
    def repeat(self, e: tree.While) -> Walk[None]: ...

    @abstractmethod
    def go_through(self, e: tree.For, over: HostIterable, shown: bool) -> Walk[None]: ...

    @abstractmethod
    def gathered(self, e: tree.Loop, items: list[HostValue], over: HostIterable | None) -> HostValue: ...

    @abstractmethod
    def asserted(self, e: tree.Assert) -> Walk[None]: ...

    @abstractmethod
    def leave(self, stmt: tree.Return | tree.Break | tree.Continue, value: HostValue) -> None: ...

    @property
    def draw_key(self) -> Callable[[], np.ndarray] | None:
        """Draws the next random key; None while the program is checked."""
        return None

    @abstractmethod
    def enter(
        self, e: tree.Node, decl: tree.Fn, names: AnnotationResolver, values: list[HostValue]
    ) -> Walk[HostValue]: ...

    # ---- Statements

    def statement(self, stmt: tree.Node, *, last: bool = False) -> HostValue:
        """Execute one statement; the value of an expression. Errors: DifflangError, AlreadyReported."""
        return run_walk(self.do(stmt, last=last))

    def block(self, block: tree.Block) -> HostValue:
        """Execute the statements of a block."""
        return run_walk(self.do_block(block))

    def do(self, stmt: tree.Node, *, last: bool = False, expected: ExpectedType | None = None) -> Walk[HostValue]:
        match stmt:
            case tree.Let() | tree.Var():
                yield self.let(stmt)
            case tree.Assign() | tree.Update():
                yield self.assign(stmt)
            case tree.Fn() if self.depth:
                self.local_function(stmt)
            case tree.Assert():
                yield self.asserted(stmt)
            case tree.Return():
                yield self.returned(stmt)
            case tree.Break() | tree.Continue():
                self.in_loop(stmt, "break" if isinstance(stmt, tree.Break) else "continue")
                self.leave(stmt, UNIT_VALUE)
            case tree.Yield():
                collected = self.in_loop(stmt, "yield")
                value = yield self.value_of(stmt.value)
                if collected is not None:
                    collected.append(value)
            case tree.Save():
                raise make_error(
                    "DL0510", "`save` is outside a `checkpoint` block", (stmt.span, "these are host statements")
                )
            case _ if isinstance(stmt, DECLARATIONS):
                pass
            case _:
                return (yield self.expression(stmt, last=last, expected=expected))
        return UNIT_VALUE

    def expression(self, e: tree.Node, *, last: bool, expected: ExpectedType | None) -> Walk[HostValue]:
        # Nothing is differentiated between host statements: a checkpoint is a plain block.
        if isinstance(e, tree.Checkpoint):
            e = e.body
        if isinstance(e, ControlNode):
            return (yield self.control(e, expected))
        # Only calls have effects; any other unused value is a mistake.
        if not last and not isinstance(e, (tree.Call, tree.Pipe, *VALUELESS)):
            raise make_error(
                "DL0323", "this value is not used", (e.span, ""), help="print it: `print(…)`, or bind it with `let`"
            )
        return (yield self.value_of(e, expected))  # type: ignore[arg-type]

    def do_block(self, block: tree.Block, expected: ExpectedType | None = None) -> Walk[HostValue]:
        """Execute the statements of a block in a scope of its own; the value of the last."""
        value = UNIT_VALUE
        with self.scope(block.span):
            for stmt in block.stmts:
                last = stmt is block.stmts[-1]
                value = yield self.do(stmt, last=last, expected=expected if last else None)
        return value

    def local_function(self, decl: tree.Fn) -> None:
        """Bind a `fn` inside a host block: a value like a lambda."""
        if decl.host:
            message, way = "a `host fn` must be at the top level of a file", "declare it there, or write a `fn` here"
            raise make_error("DL0221", message, (decl.name_span, ""), help=way)

        def body(cx: ElabContext) -> Walk[list[Term]]:
            yield elaborate(cx, decl)
            if decl.name == "_":
                return []
            term = cx.scope.names[decl.name].term
            assert not isinstance(term, int)
            return [term]  # type: ignore[list-item]

        values, _ = self.unit(decl, body)
        for value in values:
            self.bind(tree.NamePattern(decl.name_span, decl.name), value, False, decl.name_span)

    @contextmanager
    def nested(self, span: Span) -> Generator[None, None, None]:
        if self.depth >= MAX_NESTING:
            message, way = (
                f"control flow is nested deeper than {MAX_NESTING} levels",
                "move an inner part into a function",
            )
            raise make_error("DL1002", message, (span, ""), help=way)
        self.depth += 1
        try:
            yield
        finally:
            self.depth -= 1

    # ---- Loops, branches and jumps

    def control(self, e: ControlNode, expected: ExpectedType | None) -> Walk[HostValue]:
        match e:
            case tree.Block():
                return (yield self.do_block(e, expected))
            case tree.If():
                condition = yield self.condition(e.condition)
                with self.nested(e.span):
                    return (yield self.branch(e, condition, expected))
            case tree.Match():
                subject = yield self.value_of(e.subject)
                with self.nested(e.span):
                    return (yield self.match(e, subject, expected))
            case _:
                return (yield self.loop(e))

    def loop(self, e: tree.Loop) -> Walk[HostValue]:
        """Run a loop; the array of the values that it yields, if it yields any."""
        apply_decorators(self.current_context(), e.attributes, e.span, loop=True)
        warn_unused_checkpoint(self.current_context(), e.attributes, "this loop runs on the host and is not compiled")
        frame, items = self.frames[-1], list[HostValue]()
        yields = find_node(e.body, (tree.Yield,)) is not None
        over: HostIterable | None = None
        shown = not isinstance(e, tree.While) and self.host_callee(e.iterable) is HOST_BUILTINS["progress"]
        if not isinstance(e, tree.While):
            usage = "usage of `progress`: `progress(0..n)`"
            over = yield self.over(single_argument(e.iterable, usage) if shown else e.iterable)
        frame.loops.append(items if yields else None)
        try:
            with self.nested(e.span):
                if isinstance(e, tree.While):
                    yield self.repeat(e)
                else:
                    assert over is not None
                    yield self.go_through(e, over, shown)
        finally:
            frame.loops.pop()
        return self.gathered(e, items, over) if yields else UNIT_VALUE

    def over(self, e: tree.Expr) -> Walk[HostIterable]:
        """What a loop iterates over. Errors: DL0329, DL0330."""
        name = e.fn.id if isinstance(e, tree.Call) and isinstance(e.fn, tree.Name) and self.is_free(e.fn.id) else ""
        callee = self.host_callee(e)
        if callee is HOST_BUILTINS["batches"]:
            given = yield self.builtin_call(e, callee, None)  # type: ignore[arg-type]
            return batch_iterable(given, self.draw_key)
        if name == "enumerate":
            inside = yield self.over(single_argument(e, "usage of `enumerate`: `enumerate(xs)`"))
            return HostIterable(inside.type, parts=(inside,), enumerated=True)
        if name == "zip" and isinstance(e, tree.Call) and e.args:
            parts: list[HostIterable] = []
            for arg in e.args:
                assert not isinstance(arg.value, tree.Comprehension)
                parts.append((yield self.over(arg.value)))
            if any(
                a is not None and b is not None and a != b for a in [parts[0].length] for b in [p.length for p in parts]
            ):
                lengths = " and ".join(str(p.length) for p in parts)
                raise make_error("DL0330", "the arguments of `zip` must have the same length", (e.span, lengths))
            return HostIterable(TupleType(tuple(p.type for p in parts)), parts=tuple(parts))
        value = self.snapshot((yield self.value_of(e)))
        return loop_iterable(value, e.span)

    def in_loop(self, stmt: tree.Node, word: str) -> list[HostValue] | None:
        """The list that the enclosing loop yields into. Errors: DL0501 outside a loop."""
        if not self.frames[-1].loops:
            raise make_error("DL0501", f"`{word}` is outside a loop", (stmt.span, ""))
        return self.frames[-1].loops[-1]

    def returned(self, stmt: tree.Return) -> Walk[None]:
        frame = self.frames[-1]
        if frame.decl is None:
            way = "a file ends with its last statement; to end early, put the code into a `host fn`"
            raise make_error("DL0501", "`return` is outside a function", (stmt.span, ""), help=way)
        value = UNIT_VALUE
        if stmt.value is not None:
            value = yield self.value_of(stmt.value, frame.expected_result)
        self.leave(stmt, value)

    def condition(self, e: tree.Expr) -> Walk[HostValue]:
        value = yield self.value_of(e)
        if not isinstance(value.type, Tensor) or value.type.dtype.name != "bool" or value.type.shape:
            raise condition_type_error(value.type, e.span)
        return value

    # ---- Expressions

    def host_callee(self, e: tree.Node) -> GlobalName | HostBuiltin | None:
        """The host function that an expression calls; None if it calls none. Errors: DL0724 as `host_function`."""
        fn = e.fn if isinstance(e, (tree.Call, tree.Pipe)) else None
        if isinstance(fn, tree.Name) and self.is_free(fn.id):
            return HOST_BUILTINS.get(fn.id)
        return self.host_function(fn) if fn is not None else None

    def is_host(self, e: tree.Node) -> bool:
        """Whether the host evaluates this itself: a string with interpolations, or a call of a host function."""
        if isinstance(e, tree.Str):
            return any(not isinstance(p, str) for p in e.parts)
        return self.host_callee(e) is not None

    def work(self, e: tree.Node) -> HoistedExpr | None:
        """The host calls hoisted out of an expression, memoized; None if there are none."""
        if e not in self.lifts:
            self.lifts[e] = hoist_host_calls(e, self)
        return self.lifts[e]

    def changes(self, e: tree.Node) -> bool:
        """Whether this may assign to a variable."""
        return isinstance(e, (tree.Assign, tree.Update)) or isinstance(self.host_callee(e), GlobalName)

    def value_of(self, e: tree.Expr, expected: ExpectedType | None = None) -> Walk[HostValue]:
        """The value of an expression, with an expected type if given. Errors: DifflangError, AlreadyReported."""
        work = self.work(e)
        if isinstance(e, tree.Loop) or (work is not None and work.compiled is None):
            return (yield self.own_value(e, expected))
        if work is None:
            return self.compiled_value(e, expected)
        with self.scope(e.span):
            yield self.lift(work)
            return self.compiled_value(work.compiled or e, expected)

    def lift(self, work: HoistedExpr) -> Walk[None]:
        """Evaluate the hoisted parts and bind each to its temporary name."""
        for name, part in work.parts:
            variable = part.id if isinstance(part, tree.Name) else ""
            value = self.values[variable] if self.varies(variable) else (yield self.value_of(part))
            if value.type == TupleType(()):
                raise make_error("DL0313", "this call has no value", (part.span, "expected a value here"))
            self.bind_name(name, value, False, part.span)

    def snapshot(self, value: HostValue) -> HostValue:
        """A value that is used once others have been computed, which may assign to variables."""
        return value

    def own_value(self, e: tree.Expr, expected: ExpectedType | None) -> Walk[HostValue]:
        """The value of an expression that the host evaluates itself."""
        match e:
            case tree.If() | tree.Match() | tree.Block():
                # Matches the type at the end of each branch.
                return (yield self.control(e, expected))
            case tree.For() | tree.While():
                value = yield self.control(e, None)
            case tree.Str():
                value = yield self.text(e)
            case tree.Binary():
                value = yield self.logic(e)
            case _:
                value = yield self.call_value(e, expected)
        if expected is not None:
            expected.match_value(value.type, self.current_context().annotations, e.span)
        return value

    def call_value(self, e: tree.Node, expected: ExpectedType | None) -> Walk[HostValue]:
        function = self.host_callee(e)
        if isinstance(function, GlobalName):
            return (yield self.host_call(e, self.call_args(e), function))
        assert function is not None
        return self.perform(function, (yield self.builtin_call(e, function, expected)))

    def call_args(self, e: tree.Node) -> tuple[tree.Arg, ...]:
        assert isinstance(e, (tree.Call, tree.Pipe))
        args = e.args if isinstance(e, tree.Call) else (tree.Arg(e.value.span, None, e.value),)
        if isinstance(e.fn, tree.Member) and self.named_module(e.fn.base) is None:
            args = (tree.Arg(e.fn.base.span, None, e.fn.base), *args)
        for arg in args:
            if isinstance(arg.value, tree.Comprehension):
                raise make_error("DL0319", "a host function takes an array: write `[for …]`", (arg.span, ""))
        return args

    def builtin_call(self, e: tree.Node, function: HostBuiltin, expected: ExpectedType | None) -> Walk[BuiltinCall]:
        """A call of a host builtin with its arguments evaluated."""
        items: list[tuple[HostValue, Span]] = []
        named: dict[str, tuple[HostValue, Span]] = {}
        for arg in self.call_args(e):
            like = expected if arg.name in function.like_result else None
            value = self.snapshot(known_texts((yield self.value_of(arg.value, like))))  # type: ignore[arg-type]
            if arg.name is None:
                items.append((value, arg.span))
            elif arg.name in named:
                raise make_error("DL0319", f"the argument `{arg.name}` is given twice", (arg.span, ""))
            else:
                named[arg.name] = (value, arg.span)
        return BuiltinCall(e, function, tuple(items), named, expected)

    # ---- Calls of `host fn`s

    def host_call(self, e: tree.Node, args: tuple[tree.Arg, ...], function: GlobalName) -> Walk[HostValue]:
        """Call a `host fn`: run its statements in its module, with the arguments bound to its parameters."""
        there, decl = self.hosts[function.module], function.module.fns[function.name]
        given = match_arguments(e, args, decl)
        names = AnnotationResolver(Unifier(), there.module.records.get, {}, {g.name: g.bound for g in decl.generics})
        values: list[HostValue] = []
        dims: list[tuple[tree.Param, tree.Expr, Dim | None]] = []
        for param in decl.params:
            what = f"the argument `{param.name}` of `{decl.name}`"
            expected = ExpectedType(param.type, what, names) if param.type is not None else None
            if param.name in given:
                here, argument = self, given[param.name]
                values.append((yield self.value_of(argument, expected)))
            else:
                assert param.default is not None
                here, argument = there, param.default
                with there.in_frame(HostFrame(None)):
                    values.append((yield there.value_of(argument, expected)))
            if is_dim(param.type):
                dims.append((param, argument, here.argument_size(argument, values[-1])))
        # Arrays bind their sizes first: what is known of these holds for numbers that are not known yet.
        for param, argument, size in dims:
            bound = names.bound.setdefault(param.name, dim_name(param.name) if size is None else size)
            check_size_argument(decl, param, size, bound, argument.span)
        return (yield there.enter(e, decl, names, values))

    def argument_size(self, e: tree.Expr, value: HostValue) -> Dim | None:
        """The size that an argument stands for; None where it is not known before the program runs."""
        if isinstance(value.static, (int, Poly)):
            return value.static
        if value.leaves is not None:
            return int(value.number)
        var = self.module.host.get(e.id) if isinstance(e, tree.Name) else None
        return None if var is None or var.mutable else self.demand(HostNumber(GlobalName(self.module, var.name)))

    @contextmanager
    def in_frame(self, frame: HostFrame) -> Generator[None, None, None]:
        """Inside, `frame` is the innermost call: names of the file are visible, not those around the call."""
        depth, self.depth = self.depth, 0
        self.frames.append(frame)
        try:
            with self.top_level():
                yield
        finally:
            self.frames.pop()
            self.depth = depth

    def body_value(self, e: tree.Node, frame: HostFrame, values: list[HostValue]) -> Walk[HostValue]:
        """The value of the last statement in the body of a `host fn`."""
        decl, names = frame.decl, frame.names
        assert decl is not None and names is not None
        with self.in_frame(frame), self.scope(decl.span):
            # Sizes of the signature are ordinary names in the body.
            for name, size in names.bound.items():
                if isinstance(size, (int, Poly)):
                    self.bind_size(name, size, decl.name_span)
            for param, value in zip(decl.params, values, strict=True):
                self.bind(tree.NamePattern(param.span, param.name), value, False, e.span)
            if isinstance(decl.body, tree.Block):
                return (yield self.do_block(decl.body, frame.expected_result))
            return (yield self.value_of(decl.body, frame.expected_result))

    def call(self, cx: ElabContext, code: FnCode, args: CallArgs) -> Walk[Term]:
        """Refuse a host call in compiled code: in a derivative, a batched function or a lambda."""
        raise host_call_error(code.decl, args.fn_span or args.span, cx.root.derivative_depth > 0)
        yield
