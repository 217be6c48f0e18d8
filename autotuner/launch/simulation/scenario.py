"""Scenarios: how well simulated trials behave, and how fast they pass."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from autotuner.core import check
from autotuner.costmodel.uncertainty import MEMORY_DEVIATION, RESIDUAL


@dataclass(frozen=True, slots=True, kw_only=True)
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

    noise: float = RESIDUAL
    run_noise: float = 0.003
    step_noise: float = 0.01
    memory_noise: float = MEMORY_DEVIATION
    crashes: float = 0.0
    hangs: float = 0.0
    lost_nodes: float = 0.0
    queue_s: float = 0.0
    start_s: float = 30.0
    speed: float = math.inf

    def __post_init__(self) -> None:
        check.non_negative(self, "noise", "run_noise", "step_noise", "memory_noise", "queue_s", "start_s")
        for name in ("crashes", "hangs", "lost_nodes"):
            check.fraction(self, name)
        check.positive(self, "speed")


SCENARIOS: Mapping[str, Scenario] = {
    "plain": Scenario(),
    "flaky": Scenario(crashes=0.05, hangs=0.03, lost_nodes=0.1),
    "watched": Scenario(lost_nodes=0.05, queue_s=60.0, speed=20.0),
}
"""The queues of the simulated engine; a cluster that names none gets the first. Noise from layout to layout is what the
cost model says of itself (``costmodel.uncertainty``); the rest is in the order of what trials on GPUs showed."""
