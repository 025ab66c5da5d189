"""Looks up JAX devices by platform name, and lists those of this machine."""

from __future__ import annotations

from typing import Any

import jax

from difflang.base.diagnostics import Diagnostic, DifflangError
from difflang.base.error_codes import nearest_word

PLATFORMS = ("cpu", "gpu", "cuda", "rocm", "tpu")


def find_device(name: str) -> Any:
    """The first device of a platform. Errors: DL0601 if there is none on this machine."""
    try:
        return jax.devices(name)[0]
    except RuntimeError:
        here = sorted({d.platform for d in jax.devices()})
        near = nearest_word(name, [*PLATFORMS, *here]) if name not in PLATFORMS else None
        way = f"did you mean `{near}`?" if near else f"the devices here are {', '.join(here)}"
        raise DifflangError(Diagnostic("DL0601", f"there is no device `{name}` here", (), (way,))) from None


def local_devices() -> list[tuple[str, str]]:
    """The name and kind of each device of this machine."""
    return [(f"{d.platform}:{d.id}", str(d.device_kind)) for d in jax.devices()]
