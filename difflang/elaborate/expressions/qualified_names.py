"""Names of other modules in expressions: `model.f`, and those that are imported by name."""

from __future__ import annotations

from difflang.base.source import Span
from difflang.elaborate.context import Context, Reported
from difflang.elaborate.patterns.sum_types import constructor
from difflang.elaborate.reports.name_errors import stands_alone
from difflang.elaborate.terms import Closure, Term
from difflang.syntax import tree
from difflang.types.function_code import FnCode, RecordCode
from difflang.types.module_name_errors import refused
from difflang.types.module_scope import Global, Module


def module_of(cx: Context, e: tree.Node) -> Module | None:
    """The module that an expression names, where no value of that name hides it."""
    if not isinstance(e, tree.Name) or cx.scope.find(e.id) is not None or cx.host_value(e.id, e.span) is not None:
        return None
    return cx.module.modules.get(e.id)


def member_of(cx: Context, module: Module, e: tree.Member) -> Term:
    """`model.f`. Errors: DL0723 and DL0724 for what the module does not have, or keeps to itself."""
    here = cx.scope.find(e.name) is not None or e.name in cx.module.declared or e.name in cx.module.imported
    alone = module.source.library and not here and stands_alone(cx.module, e.name)
    if error := refused(module, e.name, e.name_span, whole=e.span, alone=alone):
        raise error
    return meant(cx, Global(module, e.name), e.span)


def meant(cx: Context, name: Global, span: Span) -> Term:
    """What a public name of another module stands for."""
    from difflang.elaborate.expressions.primary_expressions import host_term

    module = name.module
    if name.name in module.fns:
        return Closure(FnCode(module.fns[name.name], module), ())
    record = module.records.get(name.name)
    if isinstance(record, tree.Record):
        return Closure(RecordCode(record, module), ())
    if isinstance(record, tree.Enum):
        names = ", ".join(v.name for v in record.variants)
        way = f"its variants stand in `{module.name}`: {names}"
        raise cx.error("DL0201", f"`{name.name}` is an enum, not a value", span, "", way)
    if name.name in module.variants:
        return constructor(*module.variants[name.name], module)
    if name.var is None:
        raise Reported  # what is wrong with it was said where it is declared
    return host_term(cx, name, name.var, span)
