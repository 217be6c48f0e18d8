"""What this machine has room for: so many ranks on its cores, and weights that its memory holds."""

from __future__ import annotations

import psutil

from autotuner.domain.runs.trial_failure import FailureKind, TrialFailure
from autotuner.domain.runs.trial_spec import TrialSpec
from autotuner.launch.detect import num_usable_cores
from autotuner.units import format_bytes

__all__ = ["most_core_ranks", "no_room"]

_RANKS_PER_CORE = 16
"""Ranks may share a core, at a price in step time; beyond this they wait for each other and say nothing of a layout."""

_FEWEST = 64
"""Ranks that the smallest machine forks."""


def most_core_ranks() -> int:
    """Ranks that this machine's cores share at most."""
    return max(_FEWEST, _RANKS_PER_CORE * num_usable_cores())


def no_room(spec: TrialSpec) -> TrialFailure | None:
    """Why a trial on cores must not begin here; None where it may."""
    if spec.device != "cpu":
        return None
    if spec.layout.world_size > most_core_ranks():
        message = f"{spec.layout.world_size} ranks are more than the {most_core_ranks()} that these cores share"
        return TrialFailure(kind=FailureKind.CRASH, message=message)
    has_bytes, is_whole = psutil.virtual_memory().total, not spec.settings.proxy_layers_per_stage
    needs_bytes = 4 * spec.model.num_parameters
    if spec.trainer is None and is_whole and needs_bytes > has_bytes:
        needs = f"the weights alone need {format_bytes(needs_bytes)}"
        message = f"{needs}, and this machine has {format_bytes(has_bytes)}"
        return TrialFailure(kind=FailureKind.OOM, message=message)
    return None
