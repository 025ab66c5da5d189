"""Calls of `extern op`: one equation with that op of the registry. Parameters that are `dim` or `str` are attributes.

The declaration is what a program is checked with, so `check` needs no Python; where the op is known, both types must
agree.
"""

from __future__ import annotations

from typing import Any

from difflang.base.diagnostics import DifflangError
from difflang.base.error_codes import nearest_word
from difflang.base.source import Span
from difflang.elaborate.calls.signatures import is_dim
from difflang.elaborate.context import ElabContext
from difflang.elaborate.terms import Array, Term, TextTerm, term_from_leaves
from difflang.ir.graph import Attr, Values
from difflang.ir.op import OPS, Op
from difflang.ir.tensor_types import Tensor
from difflang.ir.verify import TYPE_RULE_ERRORS
from difflang.ops.control.extern_call import MissingOp, extern
from difflang.syntax import tree
from difflang.types.annotations import AnnotationResolver
from difflang.types.dtype_variables import default_dtype, prune_dtype
from difflang.types.language_types import LangType, TupleType, leaf_types, show_type
from difflang.types.type_errors import make_error


def call_extern_op(
    cx: ElabContext, decl: tree.Fn, terms: dict[str, Term], annotations: AnnotationResolver, span: Span
) -> Term:
    """The result of a call. Errors: DL1273 if the declaration does not fit the op, DL1272 when a missing op runs."""
    assert decl.result is not None
    result = annotations.type(decl.result)
    check_result(decl, result)
    operands = tuple([cx.builder.capture(array_operand(decl, name, term).value) for name, term in terms.items()
                      if not isinstance(term, TextTerm)])  # fmt: skip
    cx.builder.span = span
    op = OPS.get(decl.name)
    if op is None:
        # What runs is refused, but by its types: those of literals are decided here.
        solve = prune_dtype if cx.root.definition_only else default_dtype
        types = tuple([Tensor(solve(v.type.dtype), v.type.shape) for v in operands if isinstance(v.type, Tensor)])
        tensors = tuple([Tensor(solve(t.dtype), t.shape) for t in leaf_types(result)])
        missing = MissingOp(decl.name, types, tensors, decl.name_span, undeclared_op_error(decl, span))
        return term_from_leaves(result, cx.builder.append(extern, operands, tensors, function=missing, linear=0))
    check_usable(decl, op)
    attrs = call_attributes(decl, terms, annotations)
    return term_from_leaves(result, emit_op(cx, op, decl, operands, attrs, result, span))


def emit_op(
    cx: ElabContext, op: Op, decl: tree.Fn, operands: Values, attrs: dict[str, Attr], result: LangType, span: Span
) -> Values:
    """The equation. Errors: DL1273 if the op refuses what is declared, or gives something else."""
    try:
        found = cx.builder.emit(op, operands, **attrs)
    except TYPE_RULE_ERRORS as refused:
        types = ", ".join([show_type(v.type) for v in operands if isinstance(v.type, Tensor)])
        reason = f"it does not take ({types}): {refused}" if str(refused) else f"it does not take ({types})"
        raise misfit_error(decl, reason, decl.name_span, op, span) from None
    wanted = leaf_types(result)
    given = [v.type for v in found]
    if len(given) != len(wanted) or not all(
        [isinstance(t, Tensor) and cx.unifier.same(t, w) for t, w in zip(given, wanted, strict=True)]
    ):
        assert decl.result is not None
        shown = ", ".join([show_type(t) for t in given if isinstance(t, Tensor)])
        raise misfit_error(decl, f"it gives {shown}, not {show_type(result)}", decl.result.span, op, span)
    return found


def call_attributes(decl: tree.Fn, terms: dict[str, Term], annotations: AnnotationResolver) -> dict[str, Attr]:
    """The attributes of a call: sizes, and texts that are known. Errors: DL1273."""
    found: dict[str, Any] = {p.name: annotations.bound.get(p.name) for p in decl.params if is_dim(p.type)}
    for param in decl.params:
        term = terms.get(param.name)
        if isinstance(term, TextTerm):
            if term.value is None and not term.parts:
                # Only the declaration is checked: any text will do.
                found[param.name] = ""
                continue
            if term.value is None:
                way = "pass a literal, or a `str` that is known when the program is compiled"
                message = f"the text for `{param.name}` of `{decl.name}` is known only at run time"
                raise make_error("DL1273", message, (param.span, "an attribute of the op"), help=way)
            found[param.name] = term.value
    return found


def array_operand(decl: tree.Fn, name: str, term: Term) -> Array:
    """Errors: DL1273 for a parameter that is neither an array nor an attribute."""
    if isinstance(term, Array):
        return term
    span = next(p.span for p in decl.params if p.name == name)
    way = "declare its arrays one by one; a function of the program can take a record apart"
    message = f"`{name}` of the op `{decl.name}` is no array, `dim` or `str`"
    raise make_error("DL1273", message, (span, "declared here"), help=way)


def check_result(decl: tree.Fn, result: LangType) -> None:
    """Errors: DL1273 unless it is an array or a tuple of arrays."""
    parts = result.items if isinstance(result, TupleType) else (result,)
    if not parts or not all(isinstance(t, Tensor) for t in parts):
        assert decl.result is not None
        message = f"the op `{decl.name}` gives arrays, not {show_type(result)}"
        raise make_error("DL1273", message, (decl.result.span, "declared here"), help="write `f64[n]`, or a tuple")


def check_usable(decl: tree.Fn, op: Op) -> None:
    """Errors: DL1273 for an op that is more than a function of arrays and attributes."""
    if op.samples is None:
        message = f"the op `{op}` is a part of the compiler, which programs cannot use by its name"
        way = "branches, loops and calls have a syntax of their own"
        raise make_error("DL1273", message, (decl.name_span, "declared here"), help=way)


def misfit_error(decl: tree.Fn, reason: str, span: Span, op: Op, call: Span) -> DifflangError:
    message = f"`{decl.name}` does not fit the op of that name: {reason}"
    # Where the declaration itself is checked, the call is the whole of it.
    called = () if call.source is decl.span.source and call.start == decl.span.start else ((call, "called here"),)
    way = f"`difflang ops {op}` shows its type"
    return make_error("DL1273", message, (span, "declared here"), *called, help=way)


def undeclared_op_error(decl: tree.Fn, span: Span) -> DifflangError:
    """Errors: DL1272."""
    near = nearest_word(decl.name, OPS)
    way = "import the module that declares it with `dg.op`; on the command line, `--plugin MODULE`"
    help = f"{way}; or did you mean `{near}`?" if near else way
    message = f"no op `{decl.name}` is declared"
    return make_error("DL1272", message, (span, "called here"), (decl.name_span, "named here"), help=help)
