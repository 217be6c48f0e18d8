"""Lines of Megatron-LM, and of those who print as it does: Megatron-Bridge, NeMo 2, GPT-NeoX.

Shapes: Megatron-LM core_v0.16.1 and core_v0.19.0, megatron/training/training.py (training_log) and utils.py
(report_memory); as printed in NVIDIA/Megatron-LM issue 756 (2024-04) and pull request 5662 (2026-07), in
epfLLM/Megatron-LLM issue 11, deepspeedai/DeepSpeed issue 3742 (2023-07, GPT-NeoX), and, of NeMo 2, in
NVIDIA-BioNeMo/bionemo-recipes pull request 740 and NVIDIA-NeMo/Speech pull request 10128 (2024-08).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from autotuner.core.trial_spec import TrialSpec
from autotuner.core.units import MIB
from autotuner.launch.trainers.log_readers.figures import COUNT, Intervals, labelled, num_bytes, number, plain
from autotuner.launch.trainers.reported import Reported, ReportedMemory, ReportedStep

_ITERATION = re.compile(rf"\biteration\s+({COUNT})\s*/\s*{COUNT}\s*\|")
_NEMO = re.compile(rf"\bTraining epoch {COUNT}, iteration ({COUNT})/{COUNT} \|")
_MEMORY = re.compile(r"\[Rank (" + COUNT + r")\].*memory \(MB\) \|.*\bmax allocated: ([0-9.]{1,20})")

_TIMES = {"elapsed time per iteration (ms)": 1000, "train_step_timing in s": 1}
"""How many of its unit make a second, by label."""

_LOSSES = ("lm loss", "lm_loss", "reduced_train_loss", "loss")
"""Others stand beside these in models of experts: ``load_balancing_loss``, ``z_loss``."""


class MegatronLog:
    """Reads iterations, and what a rank has allocated.

    The last rank prints an iteration every ``--log-interval``; its time is the mean over these, and its loss over those
    that were not skipped. Which rank that is, the line does not say.
    """

    def __init__(self, spec: TrialSpec) -> None:
        del spec  # a line says all
        self._intervals = Intervals()

    def read(self, line: str) -> Reported | None:
        """What a line says, without its end; None where it says nothing of a step."""
        line = plain(line)
        if memory := _MEMORY.search(line):
            peak_bytes = num_bytes(number(memory[2]), MIB)  # "MB" are MiB: bytes / 1024 / 1024
            return None if peak_bytes is None else ReportedMemory(rank=int(memory[1]), peak_bytes=peak_bytes)
        if nemo := _NEMO.search(line):  # iterations count from 0
            return self._step(int(nemo[1]), self._intervals.num_steps(int(nemo[1]) + 1), line[nemo.end() :])
        if iteration := _ITERATION.search(line):
            return self._step(int(iteration[1]), self._intervals.num_steps(int(iteration[1])), line)
        return None

    def _step(self, step: int, num_steps: int, line: str) -> ReportedStep:
        values = labelled(line)
        return ReportedStep(step=step, num_steps=num_steps, step_time_s=_step_time_s(values), loss=_loss(values))


def _step_time_s(values: Mapping[str, float]) -> float | None:
    times_s = (values[label] / per_second for label, per_second in _TIMES.items() if label in values)
    return next((time_s for time_s in times_s if 0 < time_s < math.inf), None)


def _loss(values: Mapping[str, float]) -> float | None:
    """The loss of the language model; a mean that is no number is not printed, only how many iterations had such."""
    for label in _LOSSES:
        if label in values:
            return values[label]
    return math.nan if values.get("number of nan iterations", 0) > 0 else None
