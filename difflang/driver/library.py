"""All functions of the host, by name: each file registers its own."""

from __future__ import annotations

from difflang.driver import arguments, plotting, reading, writing
from difflang.driver.hosted import HOSTED

__all__ = ["HOSTED", "arguments", "plotting", "reading", "writing"]
