"""What libraries raise for files that they cannot read, as diagnostics."""

from __future__ import annotations

import struct
import tokenize
import zipfile
import zlib
from collections.abc import Generator
from contextlib import contextmanager

from difflang.base.source import Span
from difflang.host.data.json_values import JsonTypeMismatch
from difflang.types.type_errors import make_error

# What NumPy and its dependencies raise for damaged bytes; RuntimeError for encrypted or too deeply nested content.
BROKEN = (
    OSError, ValueError, TypeError, LookupError, ArithmeticError, EOFError, MemoryError, RuntimeError,
    SyntaxError, tokenize.TokenError, zipfile.BadZipFile, zlib.error, struct.error,
)  # fmt: skip


@contextmanager
def report_read_errors(name: str, span: Span) -> Generator[None, None, None]:
    """Convert errors of the file libraries to diagnostics. Errors: DL0701, DL0704."""
    try:
        yield
    except JsonTypeMismatch as error:
        raise make_error("DL0704", f"`{name}`: {error}", (span, "read here")) from None
    except BROKEN as error:
        why = str(error).splitlines()[0] if str(error) else "it is damaged"
        raise make_error("DL0701", f"cannot read `{name}`: {why}", (span, "")) from None
