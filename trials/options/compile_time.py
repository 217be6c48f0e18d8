"""Seconds that torch.compile took in this process."""

from __future__ import annotations

import sys
from typing import Any

__all__ = ["compile_time_s"]


def compile_time_s() -> float:
    """Of all compilations so far, forward and backward, as dynamo itself counts them; 0.0 where nothing compiled.

    The first step less a later one would count what else happens once: shapes exchanged, moments allocated, rules of
    DTensor worked out.
    """
    dynamo: Any = sys.modules.get("torch._dynamo.utils")  # a process that compiles nothing need not import it
    return float(dynamo.calculate_time_spent()["total_wall_time"]) if dynamo else 0.0
