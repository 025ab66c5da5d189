"""Hover texts, inlay hints and signature help."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from lsprotocol import types as lsp
from msgspec import Struct
from msgspec.structs import replace

from difflang.base.diagnostics import DifflangError
from difflang.base.source import Source
from difflang.driver.checked_program import CheckedProgram
from difflang.elaborate.context import Session
from difflang.elaborate.module_declarations import check_definition, load_prelude
from difflang.ir.symbolic_dims import Dim
from difflang.ir.tensor_types import Tensor
from difflang.lsp.incremental_check import DocumentAnalysis
from difflang.lsp.incremental_parse import ParsedPart, PartResult
from difflang.lsp.name_resolution import (
    Definition,
    NameOccurrence,
    declared_type,
    definition_of,
    document_part_at,
    resolve_in_file,
    type_at,
)
from difflang.lsp.positions import PositionMap
from difflang.lsp.symbol_table import NameBinding, symbols_of
from difflang.lsp.workspace import Document
from difflang.ops.arrays.reshard import split_type_text
from difflang.syntax import tree
from difflang.syntax.builtin_page import SignatureText, builtin_entries, signature_texts
from difflang.syntax.doc_pages import entry_as_markdown
from difflang.syntax.parse import parse
from difflang.tools.completion_candidates import unfinished_call
from difflang.tools.emit import declared_signature, typed_signature
from difflang.types.dtype_variables import default_dtype
from difflang.types.language_types import ClosureType, FnType, LangType, show_type

# The rest of a parameter list; a `)` in a comment does not end it.
PARAMETER_LIST_END = re.compile(r"(?:[^)#]++|#[^\n]*+)*+\)")
MAX_HINT_CHARS = 60  # a longer hint would hide more than it tells


# ---- Hover


def expression_hover(document: Document, offset: int) -> tuple[str, tuple[int, int]] | None:
    """The type of the smallest expression around an offset, and its range."""
    piece = document_part_at(document, offset)
    if piece is None or piece.result is None:
        return None
    at = offset - piece.position.offset
    around = [(b - a, a, b) for a, b in piece.result.types if a <= at < b]
    if not around or not piece.text[at : at + 1].strip() or any(c.start <= at < c.end for c in piece.comments):
        return None
    _, a, b = min(around)
    type, text = piece.result.types[a, b], piece.text[a:b]
    if isinstance(type, ClosureType) or "\n" in text:
        return None
    shown = code_block(f"{text}: {type_text(piece, type, a, b)}") + device_text(piece, type, a, b)
    return shown, (piece.position.offset + a, piece.position.offset + b)


def name_hover(found: NameOccurrence) -> str:
    """The hover text of a name: its declaration or type in the language's notation, and its doc comment."""
    goal = definition_of(found)
    name = found.name
    if goal is None:
        type = type_at(found.piece, name.span.start, name.span.end)
        return builtin_hover(name.name, type)
    if goal.binding is None:
        return code_block(f"import {goal.document.name}")
    # A declaration says more than the type of a function.
    (head, doc), each = declaration_text(goal), ""
    if goal.binding.kind in ("value", "variable", "parameter", "field") or head == name.name:
        type = type_at(found.piece, name.span.start, name.span.end) or declared_type(goal)
        if type is not None and not isinstance(type, ClosureType):
            head = f"{name.name}: {type_text(found.piece, type, name.span.start, name.span.end)}"
            each = device_text(found.piece, type, name.span.start, name.span.end)
    return code_block(head) + each + (f"\n\n{doc.strip()}" if doc else "")


def type_text(piece: ParsedPart, type: LangType, start: int, end: int) -> str:
    """The type at a range, with the axes of a mesh that split it: `f32[n @data, h]`."""
    split = piece.result.splits.get((start, end)) if piece.result is not None else None
    return split_type_text(type, split) if split is not None and isinstance(type, Tensor) else show_type(type)


def device_text(piece: ParsedPart, type: LangType, start: int, end: int) -> str:
    """How much of a split array each device has; empty for what is not split."""
    split = piece.result.splits.get((start, end)) if piece.result is not None else None
    if split is None or not isinstance(type, Tensor):
        return ""
    size: Dim = max(1, default_dtype(type.dtype).bits // 8)
    for n in type.shape:
        size = size * n
    whole = f"({size})" if " " in str(size) else str(size)
    return f"\n\n`{' / '.join([whole, *[axis for along in split for axis in along]])}` bytes on each device"


def code_block(text: str) -> str:
    return f"```difflang\n{text}\n```"


def builtin_hover(name: str, type: LangType | None) -> str:
    """The hover text of a name that every file knows."""
    decl = load_prelude().fns.get(name)
    if decl is not None:
        return code_block(declared_signature(decl)) + (f"\n\n{decl.doc}" if decl.doc else "")
    entry = builtin_entries().get(name)
    typed = f"{name}: {show_type(type)}" if type is not None and not isinstance(type, (ClosureType, FnType)) else ""
    if entry is None:
        return code_block(typed) if typed else ""
    return "\n\n".join(entry_as_markdown(replace(entry, head=typed or entry.head), "difflang"))


def declaration_text(goal: Definition) -> tuple[str, str | None]:
    """A declaration, in one line or in full, and its doc comment."""
    binding, document = goal.binding, goal.document
    assert binding is not None
    node = binding.node
    match node:
        case tree.Fn():
            return signature_text(document.analysis, node), node.doc
        case tree.Record() | tree.Enum():
            return node.span.text, node.doc
        case tree.Variant() | tree.Field() if binding.owner is not None:
            of = "variant" if isinstance(node, tree.Variant) else "field"
            return f"{node.span.text}  # {of} of {binding.owner.name}", getattr(node, "doc", None)
        case tree.Param() | tree.LambdaParam():
            return node.span.text, None
        case tree.Let():
            return f"let {binding.name}", node.doc
        case tree.Axes():
            return f"axes {binding.span.text}", None
        case _ if binding.kind == "size":
            return f"{binding.name}: dim", None
        case _:
            return binding.name, None


def signature_text(analysis: DocumentAnalysis | None, decl: tree.Fn) -> str:
    """A function's signature with inferred types."""
    if analysis is None:
        return declared_signature(decl)
    return typed_signature(CheckedProgram(analysis.module, (), analysis.session), decl)


# ---- The gradient of a function


def gradient_hover(found: NameOccurrence, pause: Callable[[], None]) -> str:
    """The type and the cost of a function's gradient, if it has one, checked as if the gradient stood in the file.

    Errors: what `pause` raises, at any step.
    """
    goal = definition_of(found)
    decl = goal.binding.node if goal is not None and goal.binding is not None else None
    if goal is None or not isinstance(decl, tree.Fn) or decl.host or goal.document.analysis is None:
        return ""
    if goal.piece is None or goal.piece.result is None or goal.binding is None or goal.binding.scope is not None:
        return ""
    result, question = goal.piece.result, f"gradient of {decl.name}"
    # Valid only for the same check result.
    kept = goal.piece.cache.get(question)
    if isinstance(kept, CachedGradient) and kept.result is result:
        return kept.text
    type = gradient_type(goal.document.analysis, decl)
    wrt = decl.params[0].name if decl.params else ""
    text = f"`grad({decl.name})`: the derivative with respect to `{wrt}`, of type `{type}`" if type else ""
    if type and (takes := gradient_cost(goal.document.analysis, decl, pause)):
        text = f"{text}\n\n{takes}"
    goal.piece.cache[question] = CachedGradient(result, text)
    return text


class CachedGradient(Struct, frozen=True):
    """A cached answer, with the check result that it belongs to."""

    result: PartResult
    text: str


def gradient_cost(analysis: DocumentAnalysis, decl: tree.Fn, pause: Callable[[], None]) -> str:
    """The operation counts of a function and its gradient; empty if there is no formula."""
    from difflang.tools.cost import cost_formulas

    found = cost_formulas(CheckedProgram(analysis.module, (), analysis.session), decl, pause)
    if found is None:
        return ""
    plain, both = found
    step = "; for a loop of unknown length, this counts one step" if plain.per_step or both.per_step else ""
    return f"`{decl.name}` takes `{plain}` operations, its gradient `{both}`{step}"


def gradient_type(analysis: DocumentAnalysis, decl: tree.Fn) -> str:
    """The type of a function's gradient; empty if it does not check."""
    if not decl.params or any(p.type is None for p in decl.params):
        return ""
    generics = ", ".join(g.span.text for g in decl.generics)
    params = ", ".join(f"{p.name}: {p.type.span.text}" for p in decl.params if p.type is not None)
    args = ", ".join(p.name for p in decl.params)
    head = f"fn gradient{f'[{generics}]' if generics else ''}({params})"
    parsed = parse(Source("<gradient>", f"{head} = grad({decl.name})({args})\n"))
    (made,) = parsed.module.items if len(parsed.module.items) == 1 else (None,)
    if parsed.diagnostics or not isinstance(made, tree.Fn):
        return ""
    # A session of its own, so that the question leaves no diagnostics behind.
    session = Session(
        definition_results=dict(analysis.session.definition_results),
        checked_definitions=dict(analysis.session.checked_definitions),
    )
    try:
        check_definition(analysis.module, made, session)
    except DifflangError:
        return ""
    found = session.definition_results.get(made)
    return show_type(found.type) if found is not None and not session.errors else ""


# ---- Inlay hints


def inlay_hints(document: Document, start: int, end: int, places: PositionMap) -> Iterator[lsp.InlayHint]:
    """The types of names bound without one, and of undeclared results."""
    for piece in document.parts:
        at = piece.position.offset
        if at + len(piece.text) < start or at > end:
            continue
        for b in symbols_of(piece).bindings:
            text = type_hint(piece, b)
            if text and start <= at + b.span.end <= end:
                yield lsp.InlayHint(places.position(at + b.span.end), f": {text}", lsp.InlayHintKind.Type)
        for decl in (b.node for b in symbols_of(piece).bindings if isinstance(b.node, tree.Fn)):
            found = next(
                (r.elaborated[decl] for r in (piece.result, piece.last_good) if r and decl in r.elaborated), None
            )
            if found is not None and decl.result is None and len(text := show_type(found.type)) <= MAX_HINT_CHARS:
                first = decl.params[-1].span.end if decl.params else decl.name_span.end
                if (closed := PARAMETER_LIST_END.match(decl.span.source.text, first, decl.body.span.start)) is not None:
                    yield lsp.InlayHint(places.position(at + closed.end()), f" -> {text}", lsp.InlayHintKind.Type)


def type_hint(piece: ParsedPart, b: NameBinding) -> str:
    """The hint beside a name; empty if its type is declared, or if it is a function."""
    type = type_at(piece, b.span.start, b.span.end)
    if type is None or b.kind not in ("value", "variable") or isinstance(type, ClosureType):
        return ""
    if isinstance(b.node, (tree.Let, tree.Var)) and b.node.type is not None:
        return ""
    text = type_text(piece, type, b.span.start, b.span.end)
    return text if len(text) <= MAX_HINT_CHARS else ""


# ---- Signature help


def signature_help(document: Document, offset: int) -> lsp.SignatureHelp | None:
    """The signature of the call around an offset, and its active parameter."""
    piece = document_part_at(document, offset)
    call = unfinished_call(piece.text[: offset - piece.position.offset]) if piece is not None else None
    if piece is None or call is None:
        return None
    owner, point, name = call.name.rpartition(".")
    goal = resolve_in_file(document, owner) if point else None
    of_module = goal is not None and goal.binding is None
    there = goal.document if goal is not None and of_module else document
    goal = resolve_in_file(there, name, piece if there is document else None)
    shown = symbols_of(piece).visible_at(call.start).get(name)
    node = shown.node if shown is not None else goal.binding.node if goal is not None and goal.binding else None
    node = node or load_prelude().fns.get(name)
    params: list[str] = []
    if isinstance(node, tree.Fn):
        analysis = there.analysis if node.name not in load_prelude().fns else None
        label, doc = signature_text(analysis, node), node.doc
        params = [p.span.text for p in node.params]
        keys = [p.name for p in node.params]
    elif isinstance(node, (tree.Record, tree.Variant)):
        params, keys = [f"{f.name}: {f.type.span.text}" for f in node.fields], [f.name for f in node.fields]
        label, doc = f"{name}({', '.join(params)})", getattr(node, "doc", None)
    else:
        entry = builtin_entries().get(name)
        if entry is None:
            return None
        *_, last = signature_texts(entry) or (SignatureText(entry.head, ()),)
        label, doc = last.text, "\n\n".join([*entry_as_markdown(entry, "difflang")][1:])
        params, keys = [p.text for p in last.parameters], [p.name for p in last.parameters]
    place = call.arg_index + (bool(point) and not of_module)  # `x.f(y)` is `f(x, y)`
    active = keys.index(call.arg_name) if call.arg_name in keys else place
    information = lsp.SignatureInformation(
        label, markdown_content(doc) if doc else None, [lsp.ParameterInformation(p) for p in params]
    )
    return lsp.SignatureHelp([information], 0, active if active < len(params) else None)


def markdown_content(text: str) -> lsp.MarkupContent:
    return lsp.MarkupContent(lsp.MarkupKind.Markdown, text)
