"""Which random programs are tested: DIFFLANG_FUZZ says how many, DIFFLANG_SEED which; `random` are others each time.

Without it they are always the same, fewer by day than at night: what fails in one's tests is what one changed.
`just fuzz` looks for new ones.
"""

from __future__ import annotations

import os
import time
import zlib

from support.nightly import by_day


def seed(asked: str) -> int:
    """The number asked for; for `random` a new one each run, the same in all its workers."""
    if asked.isdigit():
        return int(asked)
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID") or str(time.time_ns())
    return zlib.crc32(run.encode()) % 100_000


COUNT = int(os.environ.get("DIFFLANG_FUZZ") or by_day(20, 50))
SEED = seed(os.environ.get("DIFFLANG_SEED", "0"))
SEEDS = [SEED * 10_000 + i for i in range(COUNT)]
