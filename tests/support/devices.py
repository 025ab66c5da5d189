"""Python in another process that has several devices, each a part of this CPU."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

COUNT = 4


def python_on_devices(*arguments: str, count: int = COUNT) -> subprocess.CompletedProcess[str]:
    """What Python says, run with these arguments where JAX has `count` devices."""
    # More calls in flight than the machine has cores stop each other for ever: tests wait for each call.
    paths = [str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]  # for `support`
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={count}"
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=600,
        env={**os.environ, "XLA_FLAGS": flags, "PYTHONPATH": os.pathsep.join(paths)},
    )  # fmt: skip
