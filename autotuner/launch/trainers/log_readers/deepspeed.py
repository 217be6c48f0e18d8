"""Lines of DeepSpeed's engine.

Shapes: DeepSpeed 0.19.8, deepspeed/runtime/engine.py (_report_progress), utils/timer.py (ThroughputTimer,
SynchronizedWallClockTimer) and runtime/pipe/engine.py (train_batch); as printed in deepspeedai/DeepSpeed issues 1825
(2022-03, the older throughput line) and 3742 (2023-07, the older names of timers), and in huggingface/transformers
issue 14531 (2021-11).
"""

from __future__ import annotations

import math
import re

from autotuner.core.trial_spec import TrialSpec
from autotuner.core.units import GIB
from autotuner.launch.trainers.log_readers.figures import COUNT, NUMBER, Intervals, labelled, num_bytes, number, plain
from autotuner.launch.trainers.reported import ReportedStep

_PROGRESS = re.compile(rf"\bstep=({COUNT}), skipped={COUNT}\b")
_THROUGHPUT = re.compile(rf"\bglobal_step=({COUNT}), .*?\bCurrSamplesPerSec=({NUMBER})")
_MEMORY = re.compile(rf"\bMaxMemAllocated=({NUMBER})GB")
_PIPELINE = re.compile(rf"\bsteps: ({COUNT}) loss: ({NUMBER})\b.*iter time \(s\): ({NUMBER}) samples/sec: ({NUMBER})")
_TIMERS = ("fwd", "bwd", "step"), ("forward", "backward", "step")
"""Of one optimizer step; those of its micro-steps have other names. The second are older."""

_SAYS_ENOUGH_S = 1.0
"""From here on, three decimals of a step's seconds are as good as three of the samples per second."""


class DeepspeedLog:
    """Reads steps, of which rank 0 prints up to three lines each, every ``steps_per_print``.

    A line of progress without a time; one of throughput, of all ranks together and of that step alone, from the third
    step on (not the older one, whose mean runs from the start); and with ``wall_clock_breakdown`` one of timers, which
    names no step. The first two are hidden unless DeepSpeed's log level is ``info``. The pipeline engine prints one of
    its own, a mean over ``steps_per_print``, and the only one with a loss.

    A step comes out once: with its time if a line has it, else when the next step is announced.
    """

    def __init__(self, spec: TrialSpec) -> None:
        self._global_batch_size = spec.workload.global_batch_size
        self._intervals = Intervals()
        self._announced: int | None = None
        self._latest = 0

    def read(self, line: str) -> ReportedStep | None:
        """What a line says, without its end; None where it says nothing of a step."""
        line = plain(line)
        if found := _PIPELINE.search(line):
            return self._pipeline(found)
        if found := _THROUGHPUT.search(line):
            return self._throughput(found, line)
        if found := _PROGRESS.search(line):
            return self._progress(int(found[1]))
        return self._timers(line) if "time (ms) |" in line else None

    def _progress(self, step: int) -> ReportedStep | None:
        before, self._announced = self._announced, step or None  # 0 is said when the engine is made
        if before is None or before <= self._latest:
            return None
        self._latest = before
        return ReportedStep(step=before, rank=0, num_steps=self._intervals.num_steps(before))

    def _throughput(self, found: re.Match[str], line: str) -> ReportedStep | None:
        step, samples_per_s = int(found[1]), number(found[2])
        if step <= self._latest:
            return None
        self._latest = step
        memory = _MEMORY.search(line)
        return ReportedStep(
            step=step,
            rank=0,
            step_time_s=self._step_time_s(samples_per_s),
            peak_bytes=num_bytes(number(memory[1]), GIB) if memory else None,  # "GB" are GiB: bytes / 1024**3
        )

    def _pipeline(self, found: re.Match[str]) -> ReportedStep:
        step, loss, mean_s, samples_per_s = int(found[1]), number(found[2]), number(found[3]), number(found[4])
        self._latest = max(step, self._latest)
        if mean_s is None or not _SAYS_ENOUGH_S <= mean_s < math.inf:
            mean_s = self._step_time_s(samples_per_s)
        return ReportedStep(step=step, rank=0, step_time_s=mean_s, num_steps=self._intervals.num_steps(step), loss=loss)

    def _timers(self, line: str) -> ReportedStep | None:
        """The sum of what the engine timed, of a step that no line of throughput told of."""
        values = labelled(line)
        named = next((names for names in _TIMERS if all(name in values for name in names)), None)
        if named is None:
            return None
        announced, self._announced = self._announced, None
        if announced is not None and announced <= self._latest:
            return None
        self._latest = announced or self._latest + 1
        step_time_s = sum(values[name] for name in named) / 1e3
        return ReportedStep(step=self._latest, rank=0, step_time_s=step_time_s if 0 < step_time_s < math.inf else None)

    def _step_time_s(self, samples_per_s: float | None) -> float | None:
        return self._global_batch_size / samples_per_s if samples_per_s and samples_per_s > 0 else None
