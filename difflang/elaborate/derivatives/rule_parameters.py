"""The parameters of rules: those of their functions, under the same names."""

from __future__ import annotations

from difflang.base.source import Span
from difflang.elaborate.calls.signatures import is_dim
from difflang.elaborate.context import AlreadyReported, ElabContext
from difflang.elaborate.expressions.names import bind_sizes
from difflang.elaborate.terms import Term, type_of
from difflang.ir.symbolic_dims import Dim
from difflang.syntax import tree
from difflang.types.function_code import FnCode
from difflang.types.type_errors import declared_type_error, make_error

RULE_KINDS = ("implicit", "linear_solve", "inverse")


def check_same_parameters(code: FnCode, rule: tree.Rule) -> None:
    """Check that a rule has the parameters of its function, under the same names. Errors: DL1104.

    A rule by inverse may have none. Repeated names and unknown kinds of rules were reported before.
    """
    if rule.by is not None and rule.by not in RULE_KINDS:
        raise AlreadyReported
    if rule.by == "inverse" and not rule.params:
        return
    names = [p.name for p in code.decl.params]
    way = f"write `rule {code}({', '.join(names)})`"
    if len(rule.params) != len(names):
        raise make_error(
            "DL1104",
            f"the rule of `{code}` must have the same number of parameters as `{code}`",
            (rule.name_span, f"{len(rule.params)} here"),
            (code.decl.name_span, f"it takes {', '.join(names) or 'none'}"),
            help=way,
        )
    if len({p.name for p in rule.params}) < len(names):
        raise AlreadyReported
    for mine, theirs in zip(rule.params, code.decl.params, strict=True):
        if mine.name != theirs.name:
            raise make_error(
                "DL1104",
                f"the parameters of a rule must have the names of those of `{code}`",
                (mine.span, f"`{code}` names this one `{theirs.name}`"),
                (theirs.span, ""),
                help=way,
            )


def bind_parameters(cx: ElabContext, code: FnCode, rule: tree.Rule, arguments: dict[str, Term]) -> None:
    """Bind the function's parameters for the rule. Errors: DL1104 if they differ."""
    check_same_parameters(code, rule)
    for mine, theirs in zip(rule.params, code.decl.params, strict=bool(rule.params)):
        size = cx.annotations.bound.get(theirs.name)
        term = size if is_dim(theirs.type) and isinstance(size, Dim) else arguments.get(theirs.name)
        assert term is not None
        if mine.type is not None and not isinstance(term, Dim) and not cx.annotations.match(mine.type, type_of(term)):
            raise declared_type_error(mine.type, type_of(term), mine.span, f"the parameter `{mine.name}`")
        cx.scope.bind(mine.name, term, span=mine.span)
    bind_sizes(cx)


def dim_argument(cx: ElabContext, param: tree.Param, span: Span) -> Term:
    size = cx.annotations.dim(tree.TypeName(param.span, (param.name,)))
    return cx.integer_array(size, span)
