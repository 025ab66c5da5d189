"""The examples once more, by hand in JAX: what difflang's values and gradients are compared with.

Each module has `loss`, the function of the same name in the example; `WRT`, the parameter that the example
differentiates in; and `arguments(dtype)`, the arguments on the example's own data: parameters as NamedTuples whose
fields are those of the example's record, then arrays. Nothing here imports difflang.
"""

from __future__ import annotations

from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
NAMES = ("fit_curve", "logistic", "digits", "digits_conv")
