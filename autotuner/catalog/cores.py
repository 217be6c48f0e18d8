"""What a core does beside the work itself, and what its collectives take, until a profile measures the very machine."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from autotuner.core.accelerator import CoreTimes
from autotuner.core.link import MeasuredCollective
from autotuner.core.wire import from_dict

__all__ = ["core_collectives", "core_times"]


@cache
def core_times() -> CoreTimes:
    """What was measured on the machine that cores.toml names."""
    return from_dict(CoreTimes, _table()["core"], "core")


@cache
def core_collectives() -> tuple[MeasuredCollective, ...]:
    """Lines of gloo's collectives on that machine."""
    return tuple(from_dict(MeasuredCollective, line, "collectives") for line in _table()["collectives"])


@cache
def _table() -> Mapping[str, Any]:
    return tomllib.loads(files("autotuner.catalog").joinpath("cores.toml").read_text(encoding="utf-8"))
