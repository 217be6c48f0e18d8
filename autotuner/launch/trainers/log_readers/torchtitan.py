"""Lines of torchtitan.

Shapes: torchtitan 0.2.2 and 0.3.0, torchtitan/components/metrics.py (MetricsProcessor.log); as printed in
pytorch/torchtitan pull requests 950 (2025-03), 1287 (2025-06), 2389 (2026-02, every rank prints) and 3393 (2026-05).
"""

from __future__ import annotations

import re

from autotuner.core.trial_spec import TrialSpec
from autotuner.core.units import GIB
from autotuner.launch.trainers.log_readers.figures import COUNT, NUMBER, Intervals, num_bytes, number, plain
from autotuner.launch.trainers.reported import ReportedStep

_STEP = re.compile(rf"(?<!validate )\bstep:\s*({COUNT})\s+loss:\s*({NUMBER})\b.*\btps:\s*({NUMBER})")
_MEMORY = re.compile(rf"\bmemory:\s*({NUMBER})GiB")
_RANK = re.compile(rf"\[(?:rank|default)({COUNT})\]:")

_NO_LOSS = -1.0
"""What a pipeline rank without the last stage prints."""


class TorchtitanLog:
    """Reads steps, which every rank prints unless its launcher filters them, at the first and every ``log_freq``-th.

    Tokens per second are those of one device, averaged since the last line. Memory is what the allocator held since the
    last line. Which rank prints is known where torchrun says so before the line.
    """

    def __init__(self, spec: TrialSpec) -> None:
        self._tokens_per_rank = spec.workload.tokens_per_step / spec.layout.world_size
        self._intervals = Intervals()
        self._peak_bytes: dict[int | None, int] = {}

    def read(self, line: str) -> ReportedStep | None:
        """What a line says, without its end; None where it says nothing of a step."""
        line = plain(line)
        found = _STEP.search(line)
        if found is None:
            return None
        step, loss, tokens_per_s = int(found[1]), number(found[2]), number(found[3])
        prefix = _RANK.search(line)
        rank = int(prefix[1]) if prefix else None
        return ReportedStep(
            step=step,
            rank=rank,
            step_time_s=self._tokens_per_rank / tokens_per_s if tokens_per_s and tokens_per_s > 0 else None,
            num_steps=self._intervals.num_steps(step),
            loss=None if loss == _NO_LOSS else loss,
            peak_bytes=self._highest(rank, line),
        )

    def _highest(self, rank: int | None, line: str) -> int | None:
        found = _MEMORY.search(line)
        held_bytes = num_bytes(number(found[1]), GIB) if found else None
        if held_bytes is None:
            return None
        self._peak_bytes[rank] = max(held_bytes, self._peak_bytes.get(rank, 0))
        return self._peak_bytes[rank]
