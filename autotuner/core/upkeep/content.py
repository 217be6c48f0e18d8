"""Content keys: which runs may be compared with each other, and which measure the very same thing."""

from __future__ import annotations

from collections.abc import Mapping

from autotuner.core.runs.job_key import job_key
from autotuner.core.runs.sweep import SweepRequest
from autotuner.core.upkeep.mfu_gate import MfuGateRequest
from autotuner.core.wire import content_key

__all__ = ["gate_content", "gate_key"]


def gate_key(request: SweepRequest) -> str:
    """Content key of the job and of how much of it a trial runs: runs that share it may be compared.

    Whatever layout and versions they had.
    """
    trial = request.trial
    return content_key(job_key(request), trial.proxy_layers_per_stage, trial.max_gradient_norm)


def gate_content(request: MfuGateRequest, software: Mapping[str, str]) -> str:
    """Content key of all that a gate measures: gates that share it would measure the same, so the runs of one do.

    Args:
        request: What is gated; against which baseline and how strictly is no part of what is measured.
        software: Versions of what runs, as far as they are known before anything has run.
    """
    sweep = request.sweep
    searched = None if request.layout else [sweep.space, sweep.objective, sweep.budget, sweep.loss_gate, sweep.seed]
    return content_key(gate_key(sweep), request.layout, searched, sweep.trial, request.software, dict(software))
