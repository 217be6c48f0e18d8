"""Scenarios: how well simulated trials behave, and how fast they pass."""

from __future__ import annotations

import math
from collections.abc import Mapping

from autotuner.core.value import NonNegative, Positive, Seconds, Share, value
from autotuner.costmodel.uncertainty import MEMORY_DEVIATION, RESIDUAL


@value
class Scenario:
    """How simulated trials behave.

    Attributes:
        noise: Standard deviation of log(step time / predicted) from layout to layout.
        run_noise: The same from run to run of one trial.
        step_noise: The same from step to step of one run.
        memory_noise: Standard deviation of log(peak / predicted) from layout to layout.
        crashes: Share of layouts whose ranks die before the first step, in every attempt.
        hangs: Share of layouts that never end a step, in every attempt.
        lost_nodes: Share of attempts whose nodes vanish.
        queue_s: What a job waits for its accelerators.
        start_s: What ranks take to their first step.
        speed: Simulated seconds per second.
    """

    noise: NonNegative = RESIDUAL
    run_noise: NonNegative = 0.003
    step_noise: NonNegative = 0.01
    memory_noise: NonNegative = MEMORY_DEVIATION
    crashes: Share = 0.0
    hangs: Share = 0.0
    lost_nodes: Share = 0.0
    queue_s: Seconds = 0.0
    start_s: Seconds = 30.0
    speed: Positive = math.inf


SCENARIOS: Mapping[str, Scenario] = {
    "plain": Scenario(),
    "flaky": Scenario(crashes=0.05, hangs=0.03, lost_nodes=0.1),
    "watched": Scenario(lost_nodes=0.05, queue_s=60.0, speed=20.0),
}
"""The queues of the simulated engine; a cluster that names none gets the first. Noise from layout to layout is what the
cost model says of itself (``costmodel.uncertainty``); the rest is in the order of what trials on GPUs showed."""
