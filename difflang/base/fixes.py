"""Fixes that diagnostics propose: building replacements and insertions, spelling suggestions, applying edits."""

from __future__ import annotations

from collections.abc import Iterable

from difflang.base.diagnostics import Edit, Fix
from difflang.base.error_codes import edit_distance, nearest_word
from difflang.base.source import Source, Span

# Functions of NumPy, SciPy, JAX and optax that are spelled like one of ours and compute something else.
FOREIGN_NAMES = """
adamaxw adan amsgrad anglit append average bdtri bdtrik bdtrin berp bessel_jn betainccinv betaln binom block boxcar
butter chain chdtri cho_solve complex_ convolve1d coshm cov curve_fit deconvolve direct dsplit dstack ecdf ei eig
erfcinv expit expon factorialk fdtri fftn fit fmax fmin fsolve gammaln gdtria gdtrib gdtrix glu gmean gstd hanning
helmert histogramdd hmean hsplit hstack identity ifftn info iqr irfftn iscomplex isnat isreal jacobi jve kei ker kerp
leastsq lmoment logspace long lsim minimize minimum moment nbdtrc nbdtri nbdtrik nbdtrin ncfdtri ndenumerate ndtr nsum
oaconvolve pade pdtri pdtrik pinvh pmean psi radian resample residue rfftn rint rotate savez scale sem shichi short
signm signum single sinhm skewtest softmin spalde splint splrep step tanhm tmax tmean tmin tstd uint ulong unstack
ushort vdot vsplit vstack zipf
"""
FOREIGN_FUNCTIONS = frozenset(FOREIGN_NAMES.split())


def replacement_fix(span: Span, text: str, title: str = "") -> Fix:
    """A fix that replaces the text of a span."""
    return Fix(title or f"write `{text}`", (Edit(span, text),))


def insertion_fix(span: Span, text: str, title: str) -> Fix:
    """A fix that inserts a text before a span."""
    return Fix(title, (Edit(Span(span.source, span.start, span.start), text),))


def did_you_mean(name: str, known: Iterable[str], span: Span, sign: str = "") -> tuple[str, tuple[Fix, ...]]:
    """The help and the fix for an unknown name; empty if no known name is near.

    `sign` stands before the name in the program, as in `@grad`.
    """
    known = list(known)
    near = nearest_word(name, known)
    if near is None:
        return "", ()
    place = span if span.text == name else span_of_name(span, name)
    fixes = (replacement_fix(place, near),) if place is not None and is_typo(name, near, known) else ()
    return f"did you mean `{sign}{near}`?", fixes


def is_typo(name: str, near: str, known: Iterable[str]) -> bool:
    """Whether a name is a typing error for the nearest one in `known`, and for no other."""
    # A checker cannot tell `w1` from `w2`, so digits must agree, and a short name may differ in little.
    if name in FOREIGN_FUNCTIONS or len(name) < 3 or digits_of(name) != digits_of(near):
        return False
    if name.casefold() == near.casefold():
        return sum(name.casefold() == other.casefold() for other in dict.fromkeys(known)) == 1
    most = 1 if len(name) <= 5 else 2
    far = edit_distance(name, near, most)
    return far <= most and not any(other != near and edit_distance(name, other, far) <= far for other in known)


def span_of_name(span: Span, name: str) -> Span | None:
    """The only occurrence of a name in a span; None if there is none or several."""
    text = span.text
    if text.count(name) != 1:
        return None
    start = span.start + text.index(name)
    return Span(span.source, start, start + len(name))


def digits_of(name: str) -> str:
    return "".join(char for char in name if char.isdigit())


def fixes_overlap(a: Fix, b: Fix) -> bool:
    """Whether two fixes edit the same or adjoining text."""
    return any(
        x.span.source is y.span.source and x.span.start <= y.span.end and y.span.start <= x.span.end
        for x in a.edits
        for y in b.edits
    )


def apply_fixes(source: Source, fixes: Iterable[Fix]) -> str:
    """The text of a source after fixes that do not overlap. Edits of other sources are ignored."""
    edits = [edit for fix in fixes for edit in fix.edits if edit.span.source is source]
    text = source.text
    # Last edit first, so that the offsets of the earlier ones stay valid.
    for edit in sorted(edits, key=lambda edit: edit.span.start, reverse=True):
        text = text[: edit.span.start] + edit.replacement + text[edit.span.end :]
    return text
