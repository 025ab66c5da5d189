"""Names: binding patterns to values, what a name stands for, names of other modules, and what functions capture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from difflang.base.source import Span
from difflang.elaborate.calls.builtin_registry import BUILTINS
from difflang.elaborate.context import AlreadyReported, ElabContext, record_type
from difflang.elaborate.patterns.sum_types import variant_constructor
from difflang.elaborate.reports.name_errors import CONSTANTS, is_language_name, unknown_name_error
from difflang.elaborate.reports.operand_mismatches import tuple_pattern_error
from difflang.elaborate.scope import BlockScope, LocalBinding
from difflang.elaborate.terms import Array, Closure, PoisonTerm, Term, Tuple, ZipTerm, type_of
from difflang.ir.symbolic_dims import Dim, Poly
from difflang.ir.tensor_types import DTYPES, DType, Tensor
from difflang.syntax import tree
from difflang.syntax.tree_queries import mentioned_names, mentioned_type_names, pattern_names
from difflang.types.dtype_variables import literal_dtype
from difflang.types.function_code import (
    BuiltinCode,
    ConvertCode,
    EnclosingGeneric,
    FnCode,
    LambdaCode,
    RecordCode,
    StaticCapture,
)
from difflang.types.language_types import show_type
from difflang.types.module_name_errors import access_error
from difflang.types.module_scope import GlobalName, HostVar, ModuleScope


def bind_pattern(
    cx: ElabContext, pattern: tree.Pattern, term: Term, span: Span, *, mutable: bool = False, counts: bool = False
) -> None:
    """Bind the names of a pattern. Errors: DL0321 if the value has another structure."""
    if isinstance(pattern, tree.NamePattern):
        record_type(cx, pattern.span, term)
        cx.scope.bind(pattern.name, term, mutable=mutable, span=pattern.span, counts=counts)
        return
    if isinstance(term, PoisonTerm):
        for name in pattern_names(pattern):
            cx.scope.bind(name, term, mutable=mutable)
        return
    items = term.items if isinstance(term, (Tuple, ZipTerm)) else None
    if items is None or len(items) != len(pattern.items):
        found = f"a tuple of {len(items)}" if items is not None else show_type(type_of(term))
        raise tuple_pattern_error(pattern, len(items) if items is not None else None, (span, f"this is {found}"))
    for item, part in zip(pattern.items, items, strict=True):
        bind_pattern(cx, item, part, span, mutable=mutable, counts=counts)


def bind_sizes(cx: ElabContext) -> None:
    """Bind the sizes of a signature that no parameter has bound."""
    for name, size in cx.annotations.bound.items():
        if isinstance(size, Dim) and cx.scope.find(name) is None:
            cx.scope.bind(name, size)


# ---- Names in expressions


def lookup_name(cx: ElabContext, id: str, span: Span) -> Term:
    """Resolve a name: innermost scope first, then the file, then the language."""
    binding = cx.scope.find(id)
    if binding is not None:
        return binding_term(cx, binding, span)
    if id in cx.annotations.undetermined:
        raise cx.annotations.unbound_error(span, id)
    var = cx.host_value(id, span)
    if var is not None:
        return host_value_term(cx, GlobalName(cx.module, id), var, span)
    found = lookup_declaration(cx, id, span)
    if found is not None:
        return found
    raise unknown_name_error(cx, id, span)


def is_user_defined(cx: ElabContext, e: tree.Name) -> bool:
    """Whether the program declares or binds this name itself."""
    declared = any(e.id in names for names in (cx.module.fns, cx.module.records, cx.module.imported))
    return declared or cx.scope.find(e.id) is not None or cx.host_value(e.id, e.span) is not None


def binding_term(cx: ElabContext, binding: LocalBinding, span: Span) -> Term:
    binding.was_read = True
    if isinstance(binding.term, (int, Poly)):
        return cx.integer_array(binding.term, span)
    if isinstance(binding.term, PoisonTerm):
        raise AlreadyReported
    return binding.term


def host_value_term(cx: ElabContext, name: GlobalName, var: HostVar, span: Span) -> Term:
    if var.invalid:
        raise AlreadyReported
    if cx.root.demand is None:
        # For the report of a later rebinding, which would change what the function sees.
        name.module.used.setdefault(var.name, span)
    if (known := host_constant(var)) is not None:
        return host_constant_term(cx, known, span)
    if var.mutable and cx.root.demand is None:
        raise cx.error(
            "DL0211",
            f"a function cannot use the top-level variable `{var.name}`",
            span,
            "it may change between calls",
            "pass it as an argument, or bind it with `let`",
        )
    return cx.global_term(name)


def host_constant(var: HostVar) -> StaticCapture | None:
    """An immutable scalar of the host that specialization may use as a constant, or None."""
    if var.static is None or var.mutable or not isinstance(var.type, Tensor):
        return None
    return StaticCapture(var.name, var.static, var.type)


def host_constant_term(cx: ElabContext, known: StaticCapture, span: Span) -> Array:
    return Array(cx.emit("const", span, value=known.value, type=known.type), known.value)


def bind_host_constants(cx: ElabContext, scope: BlockScope, code: FnCode | LambdaCode) -> None:
    """Bind the host constants that a function captured where it is defined."""
    for known in code.static_captures:
        scope.bind(known.name, host_constant_term(cx, known, code.decl.span))


def lookup_declaration(cx: ElabContext, id: str, span: Span) -> Term | None:
    """The declaration, constant or built-in of that name, in order of precedence."""
    module = cx.module
    if id in module.fns:
        return Closure(FnCode(module.fns[id], module), ())
    record = module.records.get(id)
    if isinstance(record, tree.Record):
        # Fields are resolved where the record is declared, not where it is used.
        return Closure(RecordCode(record, module.declaring_module(record)), ())
    if id in module.variants:
        return variant_constructor(*module.variants[id], module)
    if id in module.imported:
        return resolve_imported(cx, module.imported[id], span)
    if id in module.invalid_names:
        raise AlreadyReported  # its declaration was reported
    if id in CONSTANTS:
        return cx.literal_array(CONSTANTS[id], span, literal_dtype(CONSTANTS[id], module.default_float), CONSTANTS[id])
    if id in DTYPES or isinstance(cx.annotations.bound.get(id), DType):
        bound = cx.annotations.bound.get(id)
        return Closure(ConvertCode(bound if isinstance(bound, DType) else DTYPES[id]), ())
    if id in BUILTINS:
        return Closure(BuiltinCode(id), ())
    if module.prelude is not None and id in module.prelude.fns:
        return Closure(FnCode(module.prelude.fns[id], module.prelude), ())
    return None


# ---- Names of other modules


def module_named_by(cx: ElabContext, e: tree.Node) -> ModuleScope | None:
    """The module that an expression names, unless a value shadows that name."""
    if not isinstance(e, tree.Name) or cx.scope.find(e.id) is not None or cx.host_value(e.id, e.span) is not None:
        return None
    return cx.module.modules.get(e.id)


def module_member(cx: ElabContext, module: ModuleScope, e: tree.Member) -> Term:
    """`model.f`. Errors: DL0723 for a name that the module does not have, DL0724 for a private one."""
    here = cx.scope.find(e.name) is not None or e.name in cx.module.declared or e.name in cx.module.imported
    alone = module.source.library and not here and is_language_name(cx.module, e.name)
    if error := access_error(module, e.name, e.name_span, whole=e.span, is_builtin=alone):
        raise error
    return resolve_imported(cx, GlobalName(module, e.name), e.span)


def resolve_imported(cx: ElabContext, name: GlobalName, span: Span) -> Term:
    """The value of a public name of another module."""
    module = name.module
    if name.name in module.fns:
        return Closure(FnCode(module.fns[name.name], module), ())
    record = module.records.get(name.name)
    if isinstance(record, tree.Record):
        return Closure(RecordCode(record, module), ())
    if isinstance(record, tree.Enum):
        names = ", ".join(v.name for v in record.variants)
        way = f"its variants are in `{module.name}`: {names}"
        raise cx.error("DL0201", f"`{name.name}` is an enum, not a value", span, "", way)
    if name.name in module.variants:
        return variant_constructor(*module.variants[name.name], module)
    if name.var is None:
        raise AlreadyReported  # its declaration was reported
    return host_value_term(cx, name, name.var, span)


# ---- What functions capture


def closure_values(
    cx: ElabContext, node: tree.Lambda | tree.Fn
) -> tuple[tuple[str, ...], tuple[Term, ...], tuple[StaticCapture, ...]]:
    """The captured variables of a function, their values, and the captured host constants.

    Only host code captures top-level values of the file; inside a `fn` they are globals.
    """
    own = {name for p in node.params for name in names_of_param(p)}
    names: list[str] = []
    known: list[StaticCapture] = []
    for name in mentioned_names(node):
        if (binding := cx.scope.find(name)) is not None:
            names += [] if isinstance(binding.term, PoisonTerm) else [name]
        elif cx.host is not None and name not in own and (var := cx.host_value(name, node.span)) is not None:
            found = host_constant(var)
            known += [] if found is None else [found]
            names += [] if found is not None or var.invalid else [name]
    return tuple(names), tuple(lookup_name(cx, n, node.span) for n in names), tuple(known)


def generic_bindings(cx: ElabContext, node: tree.Lambda | tree.Fn) -> tuple[EnclosingGeneric, ...]:
    """The bindings of generic names that a function uses from enclosing scopes."""
    generics, bound = cx.annotations.generics, cx.annotations.bound
    own = {g.name for g in node.generics} if isinstance(node, tree.Fn) else set[str]()
    names = [n for n in generics if n not in own] if generics else []
    mentioned = mentioned_type_names(node) if names else set[str]()
    return tuple([EnclosingGeneric(n, generics[n], cast("Any", bound.get(n))) for n in names if n in mentioned])


def names_of_param(param: tree.LambdaParam | tree.Param) -> Sequence[str]:
    return (param.name,) if isinstance(param, tree.Param) else pattern_names(param.pattern)
