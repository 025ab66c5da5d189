"""Errors of `derive` for derivatives without a source form, placed at the user's line."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from difflang.base.diagnostics import Diagnostic, DifflangError, Label
from difflang.syntax import tree
from difflang.types.type_errors import make_error
from difflang.unparse.fragments import CannotUnparse

SYNTHETIC_SOURCES = ("<derivative>", "<call>")  # generated texts, which no report may show


def relocate_to_user(error: DifflangError, decl: tree.Fn) -> DifflangError:
    """The error without labels in generated texts; at the function if no label is left."""
    found: list[Diagnostic] = []
    for each in error.diagnostics:
        labels = tuple([at for at in each.labels if at.span.source.name not in SYNTHETIC_SOURCES])
        found.append(replace(each, labels=labels or (Label(decl.name_span, ""),)))
    return DifflangError(*found)


def size_dependent_error(decl: tree.Fn, names: Sequence[str], what: str = "") -> DifflangError:
    """The error for a derivative that depends on sizes."""
    message = f"how the derivative of `{decl.name}` is computed depends on {what or 'its sizes'}"
    told = " ".join(f"--arg {n}=3" for n in names) or "--arg x=f32[3]"
    return make_error("DL0802", message, (decl.name_span, ""), help=f"tell them: `{told}` writes it down for these")


def unsupported_error(decl: tree.Fn, error: CannotUnparse) -> DifflangError:
    """The error for a derivative without a source form, at the user's line."""
    inside = error.span.source is decl.span.source
    labels = [Label(error.span, "")] if error.span else []
    if not inside or not labels:
        labels.append(Label(decl.name_span, "in the derivative of this function"))
    way = error.help or f"`grad({decl.name})` computes it all the same"
    return DifflangError(
        Diagnostic("DL0802", f"a derivative that is not written down: {error.reason}", tuple(labels), (way,))
    )
