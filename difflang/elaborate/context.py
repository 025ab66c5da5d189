"""The elaboration context: the session, and the module, scope and graph builder of the current expression."""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Mapping
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

from msgspec import Struct, field

from difflang.base.check_sites import CheckSite
from difflang.base.diagnostics import Diagnostic, DifflangError, Fix
from difflang.base.source import Span
from difflang.elaborate.calls.call_args import CallArgs
from difflang.elaborate.effects import CheckpointSaves, WriteLog, YieldItem
from difflang.elaborate.elaborated_graphs import (
    CheckedDefinition,
    FunctionInstance,
    HostComputedSize,
    InvertibleFunction,
    RootGraph,
    RuleGraphs,
)
from difflang.elaborate.functions_in_progress import FunctionStack, InstanceKey
from difflang.elaborate.recorded_types import RecordedTypes
from difflang.elaborate.reports.op_messages import surface_name
from difflang.elaborate.reports.operand_mismatches import not_a_size_error, refused_operand_help
from difflang.elaborate.scope import BlockScope, LocalBinding
from difflang.elaborate.terms import (
    Array,
    Closure,
    PoisonTerm,
    Term,
    Tuple,
    leaf_hints,
    leaves,
    term_from_leaves,
    type_of,
)
from difflang.elaborate.trampoline import Walk
from difflang.ir.builder import Builder
from difflang.ir.graph import Graph, Value
from difflang.ir.op import TypeMismatch
from difflang.ir.structural_equality import StructuralKeys
from difflang.ir.symbolic_dims import Dim, Poly
from difflang.ir.tensor_types import I32, U32, DType, Tensor, is_scalar_integer
from difflang.syntax import tree
from difflang.types.annotations import AnnotationResolver
from difflang.types.function_code import FnCode
from difflang.types.language_types import leaf_types, show_type
from difflang.types.module_scope import GlobalName, HostNumber, HostVar, ModuleScope, StaticNumber
from difflang.types.type_errors import make_error
from difflang.types.unify import Unifier

# A failure is three of these: the number of its check site, and two values for its report. 0 is no failure.
FAILURE_WORD = Tensor(I32)
FAILURE_TYPES = (FAILURE_WORD,) * 3
# Emits, at a source position, the flag whether no check has failed before.
OkBefore = Callable[[Span], Value | None]
MAX_AXES = 32  # NumPy allows 64, compilers fewer


class AlreadyReported(Exception):
    """The mistake has been reported already; what depends on it reports nothing more."""


class Session(Struct, eq=False):
    """State shared by all functions of a program: its specializations, diagnostics and check sites."""

    instances: dict[InstanceKey, FunctionInstance] = field(default_factory=dict[InstanceKey, FunctionInstance])
    # For `check_splits`: how regions split their results, by the splits of their params, and regions with notes.
    region_splits: dict[Any, Any] = field(default_factory=dict[Any, Any])
    noted_graphs: dict[Graph, Graph] = field(default_factory=dict[Graph, Graph])
    diagnostics: list[Diagnostic] = field(default_factory=list[Diagnostic])
    in_progress: FunctionStack = field(default_factory=FunctionStack)
    checked_definitions: dict[tree.Fn, bool] = field(default_factory=dict[tree.Fn, bool])
    # Graphs whose element types are all resolved.
    finalized_graphs: set[Graph] = field(default_factory=set[Graph])
    # The outcome of checking each definition.
    definition_results: dict[tree.Fn, CheckedDefinition] = field(default_factory=dict[tree.Fn, CheckedDefinition])
    errors: int = 0
    keys: StructuralKeys = field(default_factory=StructuralKeys)
    # One representative of structurally equal linear graphs, by its key.
    linear_maps: dict[int, Graph] = field(default_factory=dict[int, Graph])
    # Lambdas proved linear, with the captures and parameters concerned.
    proven_linear: set[Hashable] = field(default_factory=set[Hashable])
    # The derivative rule of an instance's graph, and its inverse.
    derivative_rules: dict[Graph, RuleGraphs] = field(default_factory=dict[Graph, RuleGraphs])
    inverses: dict[Graph, InvertibleFunction] = field(default_factory=dict[Graph, InvertibleFunction])
    # Instances whose rules are being elaborated: a stack.
    ruling: list[Graph] = field(default_factory=list[Graph])
    # Codes and lines of the warnings issued so far.
    issued_warnings: set[Hashable] = field(default_factory=set[Hashable])
    # Source ranges under `unchecked`, where indices are not checked.
    unchecked_spans: set[Span] = field(default_factory=set[Span])
    # The checkpoint strategy of the loops under a decorator.
    checkpoint_strategies: dict[Span, tuple[str, int]] = field(default_factory=dict[Span, tuple[str, int]])
    # Whether the program asks for scatters that add in a fixed order.
    deterministic: bool = False
    # The run-time checks, numbered from 1.
    sites: list[CheckSite] = field(default_factory=list[CheckSite])
    # Default values of parameters that are being evaluated, to detect cycles.
    defaults_in_progress: list[tree.Expr] = field(default_factory=list[tree.Expr])
    # Keys of recursive instances to elaborate for all variants: see `variant_specific_keys`.
    generalized_instances: set[InstanceKey] = field(default_factory=set[InstanceKey])
    # Where checking met a read of a data file: `FileRead`, which only the host knows.
    file_reads: list[Any] = field(default_factory=list[Any])
    # Conditions of functions that only numbers for symbolic sizes decide.
    undecided_conditions: dict[Span, None] = field(default_factory=dict[Span, None])
    # From this place of the stack of functions on, what is elaborated never runs: only its type is asked for.
    unreachable_from: int | None = None
    strict: bool = False  # warnings are errors
    strict_errors: list[Diagnostic] = field(default_factory=list[Diagnostic])  # those that would be warnings
    most_steps: int = 0  # limit for the steps of an unbounded loop; 0 for none
    mesh: Mapping[str, int] = field(default_factory=dict[str, int])  # the sizes of axes of a mesh, where they are known
    # Records the type of every expression, for editors.
    type_notes: RecordedTypes | None = None

    def add_check_site(self, site: CheckSite) -> int:
        """Number a run-time check."""
        self.sites.append(site)
        return len(self.sites)

    def report(self, error: DifflangError) -> None:
        """Keep the new diagnostics."""
        # A mistake in a definition recurs at each size it is used for: one report for each code and position.
        for diagnostic in error.diagnostics:
            self.errors += diagnostic.severity == "error"
            if all((d.code, d.span or d.message) != (diagnostic.code, diagnostic.span or diagnostic.message)
                   for d in self.diagnostics):  # fmt: skip
                self.diagnostics.append(diagnostic)

    def warn(self, warning: Diagnostic) -> None:
        """Report legal code that is probably a mistake, once for each line however often it is elaborated."""
        if self.strict:
            self.strict_errors.append(warning.as_error())
            self.report(DifflangError(self.strict_errors[-1]))
            return
        at = warning.labels[0].span
        place = warning.code, warning.message, at.source, at.position[0], warning.labels[1:]
        if place not in self.issued_warnings:
            self.issued_warnings.add(place)
            self.report(DifflangError(warning))

    @contextmanager
    def silenced(self) -> Generator[None]:
        """Whatever is reported inside is forgotten."""
        before = self.diagnostics, self.errors, self.issued_warnings, self.strict
        self.diagnostics, self.issued_warnings, self.strict = [], set(), False
        try:
            yield
        finally:
            self.diagnostics, self.errors, self.issued_warnings, self.strict = before

    @contextmanager
    def unreachable(self) -> Generator[None]:
        """What is elaborated inside never runs: it is not reported, and no call outside takes its instances.

        They are those of one place: functions in progress there have no bodies in them.
        """
        if self.unreachable_from is not None:
            with self.silenced():
                yield
            return
        kept, self.instances = self.instances, dict(self.instances)
        self.unreachable_from = len(self.in_progress.stack)
        try:
            with self.silenced():
                yield
        finally:
            self.instances, self.unreachable_from = kept, None


class HostCalls(Protocol):
    """What executes calls that only the host can make."""

    def call(self, cx: ElabContext, code: FnCode, args: CallArgs) -> Walk[Term]: ...


class ElabContext(Struct, eq=False):
    """The context of one elaborated function: where its expressions stand and the graph that they build."""

    session: Session
    module: ModuleScope
    root: RootGraph
    builder: Builder
    scope: BlockScope
    unifier: Unifier
    annotations: AnnotationResolver
    # The counters of enclosing loops, folded into the key of each random draw.
    keys: list[tuple[Builder, Value]] = field(default_factory=list[tuple[Builder, Value]])
    # Executes calls that only the host can make; None inside functions.
    host: HostCalls | None = None
    depth: int = 0  # nested control flow
    lambda_depth: int = 0  # nested calls of lambdas
    # The items that each enclosing loop yields; None where none can be yielded.
    loop_yields: list[list[YieldItem] | None] = field(default_factory=list[list[YieldItem] | None])
    checkpoint_saves: CheckpointSaves | None = None  # of the enclosing `checkpoint` block
    # Arrays that the enclosing loop only writes into.
    write_logs: dict[LocalBinding, WriteLog] = field(default_factory=dict[LocalBinding, WriteLog])
    # The failures before this region, which counts its own; None outermost.
    ok_before: OkBefore | None = None
    # The hidden variable that holds the first failure.
    failure_word: LocalBinding = field(default_factory=lambda: LocalBinding("failure", 0))

    def __post_init__(self) -> None:
        self.failure_word = LocalBinding("failure", self.no_failure(), mutable=True)

    @property
    def failure(self) -> Tuple:
        """The first failure so far: the number of the check site, and two values for its report."""
        assert isinstance(self.failure_word.term, Tuple)
        return self.failure_word.term

    def no_failure(self) -> Tuple:
        return Tuple((Array(self.builder.const(0, FAILURE_WORD), static=0),) * 3)

    # ---- Graphs and scopes

    @contextmanager
    def child_scope(self) -> Generator[BlockScope, None, None]:
        """A scope inside the current one."""
        outer, self.scope = self.scope, BlockScope(self.scope)
        try:
            yield self.scope
        finally:
            self.scope = outer

    @contextmanager
    def nested_graph(self, span: Span) -> Generator[Builder, None, None]:
        """A graph inside the current one, and a scope."""
        if self.depth >= 100:
            raise make_error(
                "DL1002",
                "control flow is nested deeper than 100 levels",
                (span, ""),
                help="move an inner part into a function of its own",
            )
        outer, scope = self.builder, self.scope
        self.builder, self.scope, self.depth = Builder(outer, span), BlockScope(scope), self.depth + 1
        try:
            yield self.builder
        finally:
            self.builder, self.scope, self.depth = outer, scope, self.depth - 1

    def emit(self, name: str, span: Span, *operands: Value, **attrs: Any) -> Value:
        """The one result of an op. Errors: TypeMismatch, DL0303, DL1005."""
        self.builder.span = span
        value = self.builder.one(name, *operands, **attrs)
        if isinstance(value.type, Tensor) and len(value.type.shape) > MAX_AXES:
            way = "merge axes with `reshape`"
            raise self.error("DL1005", f"an array has at most {MAX_AXES} axes", span, "this has more", way)
        if isinstance(value.type, Tensor) and any([isinstance(n, int) and n < 0 for n in value.type.shape]):
            raise self.error("DL0303", "a size cannot be negative", span, f"this is {show_type(value.type)}")
        return value

    def emit_op(
        self,
        name: str,
        span: Span,
        *operands: Array,
        spans: tuple[Span, ...] = (),
        display_name: str = "",
        **attrs: Any,
    ) -> Array:
        """An op on arrays. A type mismatch becomes a report with the type of each operand.

        `display_name` is the name in the source text, where it differs from that of the op.
        """
        try:
            return Array(self.emit(name, span, *[x.value for x in operands], **attrs))
        except TypeMismatch as refused:
            raise self.op_error(refused, name, span, operands, spans, display_name) from None

    def op_error(
        self,
        refused: TypeMismatch,
        name: str,
        span: Span,
        operands: tuple[Array, ...],
        spans: tuple[Span, ...],
        display_name: str = "",
    ) -> DifflangError:
        places = spans if len(spans) == len(operands) else ()
        labels = (
            [(s, f"this is {show_type(x.tensor)}") for s, x in zip(places, operands, strict=bool(places))]
            if places
            else []
        )
        labels += [(x.origin, f"declared {x.origin.text}") for x in operands if x.origin is not None]
        of_dtypes = refused.message.startswith(("takes", "element types"))
        first = labels or [(span, ", ".join(show_type(x.tensor) for x in operands))]
        colon = "" if refused.message.startswith("takes") else ":"
        message = f"`{display_name or surface_name(name)}`{colon} {refused.message}"
        default = self.module.default_float
        way, fixes = refused_operand_help(display_name or name, refused.message, operands, places, first[0][0], default)
        return make_error("DL0311" if of_dtypes else "DL0312", message, *first, help=way, fixes=fixes)

    def literal_array(self, value: complex, span: Span, dtype: DType, static: StaticNumber = None) -> Array:
        """A number literal."""
        return Array(self.emit("const", span, value=value, type=Tensor(dtype)), static, literal=True)

    def integer_array(self, value: Dim, span: Span) -> Array:
        """A size as an `i32` constant."""
        return Array(self.emit("const", span, value=value, type=Tensor(I32)), value)

    # ---- Names

    def error(
        self, code: str, message: str, span: Span, text: str = "", help: str = "", fixes: tuple[Fix, ...] = ()
    ) -> DifflangError:
        return make_error(code, message, (span, text), help=help, fixes=fixes)

    def host_value(self, name: str, place: Span) -> HostVar | None:
        """The host variable that a name refers to at a source position. Errors: DL0212."""
        return self.module.value_for(name, place, by_function=self.host is None or self.lambda_depth > 0)

    def global_term(self, name: GlobalName) -> Term:
        """A top-level value inside a graph: a param of the outermost builder, created at its first use."""
        var = name.var
        if var is None or var.invalid:
            raise AlreadyReported
        if name not in self.root.globals:
            builder = self.root.builder
            params = zip(leaf_types(var.type), leaf_hints(var.type, var.name), strict=True)
            term = term_from_leaves(var.type, [builder.param(t, hint) for t, hint in params])
            if isinstance(term, Array):
                term = Array(term.value, origin=var.span)
                self.root.host_numbers |= {v: HostNumber(name) for v in leaves(term) if is_scalar_integer(v.type)}
            elif isinstance(term, Closure):
                whole = {v: HostNumber(name, i) for i, v in enumerate(leaves(term)) if is_scalar_integer(v.type)}
                self.root.host_numbers |= whole
            self.root.globals[name] = term
            self.root.global_types[name] = var.type
        return self.root.globals[name]

    def static(self, term: Term, span: Span, what: str) -> Dim:
        """The number as a size. Errors: DL0305 if it is known only at run time."""
        if isinstance(term, Array) and (found := self.static_number(term)) is not None:
            return found
        if isinstance(term, PoisonTerm):
            raise AlreadyReported
        raise not_a_size_error(term, span, what)

    def static_number(self, term: Array) -> Dim | None:
        """The value of an integer that specialization or the host knows; reading it from the host pins it."""
        if isinstance(term.static, (int, Poly)) and not isinstance(term.static, bool):
            return term.static
        found = self.root.host_numbers.get(term.value)
        if isinstance(found, HostComputedSize):
            if found.value is None:
                parts = [self.static_number(part) for part in found.operands]
                found.value = None if None in parts else found.fold(*parts)
            return found.value
        return self.root.demand(found) if found is not None and self.root.demand is not None else None

    # ---- Randomness

    @contextmanager
    def with_random_key(self, key: Value | None) -> Generator[None, None, None]:
        """Draws inside use this key, counted from 0; with None, they use the current key."""
        if key is None:
            yield
            return
        root, before, keys = self.root, (self.root.key, self.root.draw_count), self.keys
        root.key, root.draw_count, self.keys = key, 0, []
        try:
            yield
        finally:
            (root.key, root.draw_count), self.keys = before, keys

    def draw_key(self, span: Span) -> Value:
        """A fresh key: the function's own, with the counter of each enclosing loop and the draw's ordinal folded in."""
        self.root.effects.add("rand")
        if self.root.key is None:
            self.root.key = self.root.builder.param(Tensor(U32, (2,)), "key")
        key = self.root.key
        for builder, index in self.keys:
            builder.span = span
            # A counter i is folded in as 2 i + 1 and an ordinal o as 2 o, so that a draw in a loop and one in a called
            # function never share a key.
            bits = builder.one("truncate", index, dtype=U32)
            key = builder.one("fold_in", key, bits * 2 + 1)
        self.root.draw_count += 1
        ordinal = self.emit("const", span, value=2 * (self.root.draw_count - 1), type=Tensor(U32))
        return self.emit("fold_in", span, key, ordinal)


Elaborator = Callable[[ElabContext, Any], Walk[Term]]
ElaboratorT = TypeVar("ElaboratorT", bound=Elaborator)
ELABORATORS: dict[type, Elaborator] = {}


def elaborates(*nodes: type) -> Callable[[ElaboratorT], ElaboratorT]:
    """Registers the elaborator of a kind of syntax node."""

    def register(walk: ElaboratorT) -> ElaboratorT:
        for node in nodes:
            ELABORATORS[node] = walk
        return walk

    return register


def elaborate(cx: ElabContext, node: tree.Node) -> Walk[Term]:
    """Elaborate any expression or statement."""
    walked = ELABORATORS[type(node)](cx, node)
    return walked if cx.session.type_notes is None else record_value_type(cx, node, walked, cx.session.type_notes)


def record_value_type(cx: ElabContext, node: tree.Node, walked: Walk[Term], notes: RecordedTypes) -> Walk[Term]:
    """Elaborate a node and record the type of its value."""
    notes.poll()
    value = yield walked
    record_type(cx, node.span, value)
    return value


def record_type(cx: ElabContext, span: Span, term: Term | Dim) -> None:
    """Record the type of the value at a source range, if types are recorded."""
    if cx.session.type_notes is not None and not isinstance(term, (int, Poly, PoisonTerm)):
        cx.session.type_notes.put(span, type_of(term), None if cx.host is not None else cx.root)
        if isinstance(term, Array) and cx.root is cx.session.type_notes.definition_root:
            cx.session.type_notes.put_value(span, term.value)
