"""From recordings of steps to a ``Breakdown``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields

import torch

from autotuner.core.layout import Layout
from autotuner.core.measurement import Breakdown
from autotuner.core.measuring import mean_over_period
from autotuner.core.stages import steps_per_exchange
from trials.measurement.device_time import device_time_ns
from trials.measurement.host_time import host_time_ns
from trials.measurement.recording import Recording

_PARTS = tuple(field.name for field in fields(Breakdown) if field.name != "rank")


def breakdown_of(recordings: Mapping[int, Recording], layout: Layout, device: torch.device, *, rank: int) -> Breakdown:
    """Mean parts of this rank's recorded steps, by their numbers, of which there is one at least."""
    pipelined = layout.pipeline_parallel_degree > 1
    steps = [
        device_time_ns(recording.host, recording.device, pipelined=pipelined)
        if device.type == "cuda"
        else host_time_ns(recording.host, pipelined=pipelined)
        for recording in recordings.values()
    ]
    numbers, period = list(recordings), steps_per_exchange(layout)
    parts = {part: mean_over_period(numbers, [step[part] for step in steps], period) / 1e9 for part in _PARTS}
    return Breakdown(rank=rank, **parts)


def longest_computing(breakdowns: Sequence[Breakdown]) -> Breakdown:
    """The breakdown of the rank that computes longest: the one that the others wait for."""
    return max(breakdowns, key=lambda b: b.forward_s + b.backward_s + b.optimizer_s)
