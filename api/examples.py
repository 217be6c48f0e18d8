"""Examples of OpenAPI: a body of each operation and what a service answered to it.

They are recorded of one real run, by ``make golden``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

PATH = Path(__file__).parent / "examples.json"


@cache
def examples() -> Mapping[str, Mapping[str, Any]]:
    """Return the examples by operation: ``answer``, and ``body`` if it takes one."""
    found: Mapping[str, Mapping[str, Any]] = json.loads(PATH.read_text(encoding="utf-8"))
    return found
