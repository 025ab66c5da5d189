"""An engine for values that a check needs: it interprets, and gives up on a value that takes too long."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from difflang.execution.check_failures import ArrayProgram
from difflang.execution.engine import Engine
from difflang.ir.graph import Graph
from difflang.ir.interpreter import TextSink, evaluate_with_limit

MAX_STEPS = 100_000


class BoundedEngine(Engine, frozen=True):
    """Interprets every graph for at most `MAX_STEPS` equations. Errors: StepLimitExceeded. Prints are discarded."""

    def run_finished(self, ready: Graph, says: TextSink) -> ArrayProgram:
        def program(*arrays: Any) -> Sequence[Any]:
            return evaluate_with_limit(MAX_STEPS, ready, *[np.asarray(a) for a in arrays])

        return program
