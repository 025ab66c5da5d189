"""The examples once more, by hand in JAX: what difflang's values and gradients are compared with.

Each module has `loss`, the function of the same name in the example, or of the name `ENTRY`; `WRT`, the parameter that
the example differentiates in; and `arguments(dtype)`, the arguments on the example's own data or like it: parameters as
NamedTuples whose fields are those of the example's record, then arrays and sizes. Nothing here imports difflang.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import jax
import numpy as np

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
NAMES = ("fit_curve", "logistic", "digits", "digits_conv", "recurrent", "vae_digits", "char_transformer")
NAMES += ("neural_ode", "learned_rate", "cart_pole", "kalman", "orbit", "molecules")
NAMES += ("heat_inverse", "bayes", "lens", "bundle", "particles")

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


@cache
def differentiated(name: str) -> tuple[Any, Any]:
    """The value and the gradient of a twin at its arguments, in f64."""
    twin = import_module(f"twins.{name}")
    with jax.enable_x64(True):
        first, *rest = twin.arguments(np.float64)
        return jax.tree.map(np.asarray, jax.jit(jax.value_and_grad(lambda p: twin.loss(p, *rest)))(first))
