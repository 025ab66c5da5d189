"""Values of other libraries as arguments: tables of pandas, polars, pyarrow and xarray, and tensors by DLPack.

No such library is imported here: a value says what it is by its methods. What has `__array__` is an array anyway.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from difflang.base.diagnostics import Diagnostic, DifflangError
from difflang.base.wording import with_article
from difflang.runtime import pytrees
from difflang.runtime.argument_conversion import refuse_masked

LIBRARIES = ("pandas", "polars", "pyarrow", "xarray", "torch")


def is_foreign(value: Any) -> bool:
    """Whether a value belongs to another library, and is converted before anything else looks at it."""
    if isinstance(value, dict):
        return any(map(is_foreign, value.values()))
    kind = type(value)
    return kind.__module__.partition(".")[0] in LIBRARIES or (
        hasattr(kind, "__dlpack__") and not hasattr(kind, "__array__")
    )


def convert_foreign(value: Any, fields: Sequence[str] | None, path: str) -> Any:
    """The value as arrays: a table as a dict of the columns that are `fields` of the declared record, if it is one.

    Errors: DL1206 for what has missing values, or cannot be exported by DLPack.
    """
    if isinstance(value, dict):
        return {n: convert_foreign(v, None, f"{path}.{n}") if is_foreign(v) else v for n, v in value.items()}
    if not is_foreign(value):
        return value
    names = column_names(value)
    if names is not None and fields is not None:
        return {n: convert_foreign(value[n], None, f"{path}.{n}") for n in fields if n in names}
    if hasattr(value, "__dlpack__") and (type(value).__module__.startswith("torch") or not hasattr(value, "__array__")):
        return from_dlpack(value, path)
    if names is not None and (hasattr(value, "data_vars") or not hasattr(value, "__array__")):
        message = f"`{path}` is no record, so {with_article(type(value).__name__)} cannot be passed for it"
        raise foreign_error(message, f"pass one of its columns: {', '.join(names[:6])}")
    refuse_missing(value, path)
    return np.asarray(value)


def column_names(value: Any) -> list[str] | None:
    """The names of the columns of a table; None for what is no table."""
    names = getattr(value, "data_vars", None)  # xarray
    if names is None:
        names = getattr(value, "column_names", None)  # pyarrow
    if names is None:
        names = getattr(value, "columns", None)  # pandas, polars
    return None if names is None else [str(name) for name in names]


def refuse_missing(value: Any, path: str) -> None:
    """Errors: DL1206 for nulls, which are no numbers: NumPy would make NaN or objects of them."""
    refuse_masked(value, path)
    # A column of pandas with NumPy's floats has NaN, which is a number.
    masked = not isinstance(getattr(value, "dtype", None), np.dtype)
    nulls = getattr(value, "null_count", None)
    found = nulls() if callable(nulls) else nulls if isinstance(nulls, int) else None
    if found is None and masked and hasattr(value, "isna") and not hasattr(value, "columns"):
        found = int(np.asarray(value.isna()).sum())
    if found is not None and np.asarray(found).sum():
        fill = "fill_null" if callable(nulls) or isinstance(nulls, int) else "fillna"
        message = f"`{path}` has missing values, but the language has no missing numbers"
        raise foreign_error(message, f"fill them: `x.{fill}(…)`, with NaN for instance")


def from_dlpack(value: Any, path: str) -> Any:
    """A tensor on its device. Errors: DL1206 where its library or JAX refuses, as for one that requires a gradient."""
    try:
        # JAX takes no strides.
        return pytrees.from_dlpack(value.contiguous() if hasattr(value, "contiguous") else value)
    except (BufferError, RuntimeError, ValueError, TypeError) as error:
        why = str(error).partition("\n")[0]
        message = f"`{path}`: {with_article(type(value).__name__)} cannot be passed by DLPack: {why}"
        raise foreign_error(message, "pass a dense tensor without a gradient: `x.detach()`") from None


def foreign_error(message: str, way: str) -> DifflangError:
    return DifflangError(Diagnostic("DL1206", message, helps=(way,)))
