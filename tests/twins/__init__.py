"""The examples once more, by hand in JAX: what difflang's values and gradients are compared with.

Each module has `loss`, the function of the same name in the example, or of the name `ENTRY`; `WRT`, the parameter that
the example differentiates in; and `arguments(dtype)`, the arguments on the example's own data or like it: parameters as
NamedTuples whose fields are those of the example's record, then arrays. Nothing here imports difflang.
"""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType
from typing import Any

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
NAMES = ("fit_curve", "logistic", "digits", "digits_conv", "kalman", "orbit", "molecules")

DECLARATIONS = ("fn ", "pub ", "record ", "enum ", "rule ", "import ", "@", "##", "float ")


def source(name: str, swap: tuple[str, str] | None = None) -> str:
    """The declarations of an example, without the statements that train; `swap` writes another float dtype.

    A line at the margin begins a declaration or a statement, and lines that are indented or only close go with it.
    """
    kept: list[str] = []
    keep = False
    for line in (EXAMPLES / f"{name}.dfl").read_text(encoding="utf-8").splitlines():
        if line and not line[0].isspace() and line[0] not in "})]":
            keep = line.startswith(DECLARATIONS)
        kept.append(line if keep else "")
    text = "\n".join(kept) + "\n"
    if swap is None:
        return text
    return f"float {swap[1]}\n" + re.sub(r"(?m)^float .*", "", text).replace(*swap)


def entry(program: Any, twin: ModuleType) -> Any:
    """The function of a loaded example that its twin's `loss` is."""
    return getattr(program, getattr(twin, "ENTRY", "loss"))
