"""Qualified and imported names in expressions: `model.f`, and names imported from other modules."""

from __future__ import annotations

from difflang.base.source import Span
from difflang.elaborate.context import AlreadyReported, ElabContext
from difflang.elaborate.patterns.sum_types import variant_constructor
from difflang.elaborate.reports.name_errors import is_language_name
from difflang.elaborate.terms import Closure, Term
from difflang.syntax import tree
from difflang.types.function_code import FnCode, RecordCode
from difflang.types.module_name_errors import access_error
from difflang.types.module_scope import GlobalName, ModuleScope


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
    from difflang.elaborate.expressions.primary_expressions import host_value_term

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
