"""Dry runs on this machine, in a process with torch."""

from __future__ import annotations

from autotuner.domain.dry_run import DryRun, DryRunRequest
from autotuner.domain.wire import dumps, loads
from autotuner.launch.torch_job import ask_torch

__all__ = ["dry_run"]

_TIMEOUT_S = 3600.0
"""An exact run of hundreds of layers and micro-batches takes minutes; nobody waits for longer than this."""


def dry_run(request: DryRunRequest) -> DryRun:
    """What the ranks would hold and compute at full size.

    Raises:
        InvalidInput: torch is missing.
        AutotunerError: The run broke.
    """
    return loads(DryRun, ask_torch("trials.dry_run.dry_run", dumps(request), timeout_s=_TIMEOUT_S))
