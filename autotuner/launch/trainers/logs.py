"""Readers of the lines that trainers print about their steps: one reader per trainer, for the formats of its releases.

Any line may be given to any reader. A reader returns nothing for a line that it does not know, and no line makes it
raise.
"""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Callable, Mapping

from autotuner.core.trial_spec import TrialSpec
from autotuner.core.units import GIB, MIB
from autotuner.launch.trainers.progress import LogReader, Reported, ReportedMemory, ReportedStep

# Numbers as log lines hold them: what can be read of any text, and which steps a figure is a mean over.

COUNT = r"[0-9]{1,15}"
"""Pattern of a step number or a rank, with at most 15 digits: no run has more steps."""

NUMBER = r"[-+]?(?:[0-9][0-9,]{0,20}\.?[0-9]{0,20}(?:[eE][-+]?[0-9]{1,4})?|nan|inf)"
"""Pattern of a number. Its length is bounded, so that a long line of digits is rejected as quickly as it is read."""

_LONGEST = 4096
"""Maximum number of characters of a line that are read; a line about a step has a tenth of that."""

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def plain(line: str) -> str:
    """Return a log line without terminal colours. A line that is too long to report a training step is cut."""
    return _COLOUR.sub("", line[:_LONGEST])


def number(text: str | None) -> float | None:
    """Return the number that a text represents, with or without thousands separators; None if it is not a number."""
    try:
        return None if text is None else float(text.replace(",", ""))
    except ValueError:
        return None


def num_bytes(amount: float | None, unit: int) -> int | None:
    """Return an amount in a unit of ``unit`` bytes as whole bytes.

    It is None if the amount is None, negative or not finite.
    """
    if amount is None or not math.isfinite(amount) or amount < 0:
        return None
    return round(amount * unit)


def labelled(line: str) -> dict[str, float]:
    """Return the numbers in a log line by their labels, for example in ``| lm loss: 2.5E+00 | grad norm: 3.2 |``.

    If a label occurs twice, its first number counts.
    """
    found: dict[str, float] = {}
    for part in line.split("|"):
        label, colon, text = part.rpartition(":")
        value = number(text.strip())
        if colon and value is not None:
            found.setdefault(label.strip(), value)
    return found


class Intervals:
    """Counts the training steps between two log lines, for trainers that print only every n-th step.

    Each line may occur once per rank, and lines may be slightly out of order.
    """

    def __init__(self) -> None:
        self._latest: deque[int] = deque(maxlen=8)

    def num_steps(self, step: int) -> int:
        """Return the number of steps since the latest line about an earlier step, at least 1.

        If there is no earlier line, steps are counted from 0.
        """
        before = max((seen for seen in self._latest if seen < step), default=0)
        if step not in self._latest:
            self._latest.append(step)
        return max(1, step - before)


# Lines of DeepSpeed's engine.
#
# Shapes: DeepSpeed 0.19.8, deepspeed/runtime/engine.py (_report_progress), utils/timer.py (ThroughputTimer,
# SynchronizedWallClockTimer) and runtime/pipe/engine.py (train_batch); as printed in deepspeedai/DeepSpeed issues
# 1825 (2022-03, the older throughput line) and 3742 (2023-07, the older names of timers), and in
# huggingface/transformers issue 14531 (2021-11).

_PROGRESS = re.compile(rf"\bstep=({COUNT}), skipped={COUNT}\b")
_THROUGHPUT = re.compile(rf"\bglobal_step=({COUNT}), .*?\bCurrSamplesPerSec=({NUMBER})")
_MEMORY = re.compile(rf"\bMaxMemAllocated=({NUMBER})GB")
_PIPELINE = re.compile(rf"\bsteps: ({COUNT}) loss: ({NUMBER})\b.*iter time \(s\): ({NUMBER}) samples/sec: ({NUMBER})")
_TIMERS = ("fwd", "bwd", "step"), ("forward", "backward", "step")
"""Names of the timers of one optimizer step; timers of micro-steps have other names. Older releases use the second
group."""

_SAYS_ENOUGH_S = 1.0
"""Step time in seconds from which three decimals of it are as precise as three decimals of the samples per second."""


class DeepspeedLog:
    """A reader of DeepSpeed's log. Every ``steps_per_print`` steps, rank 0 prints up to three lines about a step.

    The first line shows the progress, without a time. The second line shows the throughput of all ranks together, for
    this step alone; it is printed from the third step on. (An older form of this line, with the mean since the start,
    is ignored.) The third line needs ``wall_clock_breakdown``; it shows timers, and does not name the step. The first
    two lines are printed only if DeepSpeed's log level is ``info``. The pipeline engine prints another line, with means
    over ``steps_per_print`` steps. Only that line has a loss.

    Each step is returned once: when a line shows its time, or else when the next step begins.
    """

    def __init__(self, spec: TrialSpec) -> None:
        self._global_batch_size = spec.workload.global_batch_size
        self._intervals = Intervals()
        self._announced: int | None = None
        self._latest = 0

    def read(self, line: str) -> ReportedStep | None:
        """Return the step that a line (without its line end) reports; None if the line reports no step."""
        line = plain(line)
        if found := _PIPELINE.search(line):
            return self._pipeline(found)
        if found := _THROUGHPUT.search(line):
            return self._throughput(found, line)
        if found := _PROGRESS.search(line):
            return self._progress(int(found[1]))
        return self._timers(line) if "time (ms) |" in line else None

    def _progress(self, step: int) -> ReportedStep | None:
        before, self._announced = self._announced, step or None  # the engine prints step 0 when it is created
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
        """Return the step with the sum of the engine's timers, unless a throughput line already reported this step."""
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


# Lines of Megatron-LM, and of those who print as it does: Megatron-Bridge, NeMo 2, GPT-NeoX.
#
# Shapes: Megatron-LM core_v0.16.1 and core_v0.19.0, megatron/training/training.py (training_log) and utils.py
# (report_memory); as printed in NVIDIA/Megatron-LM issue 756 (2024-04) and pull request 5662 (2026-07), in
# epfLLM/Megatron-LLM issue 11, deepspeedai/DeepSpeed issue 3742 (2023-07, GPT-NeoX), and, of NeMo 2, in
# NVIDIA-BioNeMo/bionemo-recipes pull request 740 and NVIDIA-NeMo/Speech pull request 10128 (2024-08).

_ITERATION = re.compile(rf"\biteration\s+({COUNT})\s*/\s*{COUNT}\s*\|")
_NEMO = re.compile(rf"\bTraining epoch {COUNT}, iteration ({COUNT})/{COUNT} \|")
_MEGATRON_MEMORY = re.compile(r"\[Rank (" + COUNT + r")\].*memory \(MB\) \|.*\bmax allocated: ([0-9.]{1,20})")

_TIMES = {"elapsed time per iteration (ms)": 1000, "train_step_timing in s": 1}
"""Units per second of the step times, by their label in the log."""

_LOSSES = ("lm loss", "lm_loss", "reduced_train_loss", "loss")
"""Labels of the language model's loss. Mixture-of-experts models print other losses beside it: ``load_balancing_loss``,
``z_loss``."""


class MegatronLog:
    """A reader of the logs of Megatron-LM and NeMo. It finds iterations, and the memory that a rank has allocated.

    The last rank prints an iteration every ``--log-interval`` iterations. The printed time is the mean over these
    iterations, and the printed loss is the mean over the iterations that were not skipped. The line does not name the
    rank.
    """

    def __init__(self, spec: TrialSpec) -> None:
        del spec  # a line says all
        self._intervals = Intervals()

    def read(self, line: str) -> Reported | None:
        """Return the step or the memory use that a line (without its line end) reports; None if it reports neither."""
        line = plain(line)
        if memory := _MEGATRON_MEMORY.search(line):
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
    """Return the loss of the language model.

    Return NaN if the line has no loss but counts iterations whose loss was NaN, since the trainer does not print a NaN
    mean.
    """
    for label in _LOSSES:
        if label in values:
            return values[label]
    return math.nan if values.get("number of nan iterations", 0) > 0 else None


# Lines of torchtitan.
#
# Shapes: torchtitan 0.2.2 and 0.3.0, torchtitan/components/metrics.py (MetricsProcessor.log); as printed in
# pytorch/torchtitan pull requests 950 (2025-03), 1287 (2025-06), 2389 (2026-02, every rank prints) and 3393
# (2026-05).

_STEP = re.compile(rf"(?<!validate )\bstep:\s*({COUNT})\s+loss:\s*({NUMBER})\b.*\btps:\s*({NUMBER})")
_TORCHTITAN_MEMORY = re.compile(rf"\bmemory:\s*({NUMBER})GiB")
_RANK = re.compile(rf"\[(?:rank|default)({COUNT})\]:")

_NO_LOSS = -1.0
"""Loss that a pipeline rank without the last stage prints."""


class TorchtitanLog:
    """A reader of torchtitan's log. Every rank prints the first step and every ``log_freq``-th step.

    A launcher may show the lines of some ranks only. Tokens per second are counted for one device, and averaged since
    the last line. Memory is the peak that the allocator held since the last line. The rank of a line is known only if
    torchrun prints it before the line.
    """

    def __init__(self, spec: TrialSpec) -> None:
        self._tokens_per_rank = spec.workload.tokens_per_step / spec.layout.world_size
        self._intervals = Intervals()
        self._peak_bytes: dict[int | None, int] = {}

    def read(self, line: str) -> ReportedStep | None:
        """Return the step that a line (without its line end) reports; None if the line reports no step."""
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
        found = _TORCHTITAN_MEMORY.search(line)
        held_bytes = num_bytes(number(found[1]), GIB) if found else None
        if held_bytes is None:
            return None
        self._peak_bytes[rank] = max(held_bytes, self._peak_bytes.get(rank, 0))
        return self._peak_bytes[rank]


# Lines of Hugging Face's Trainer.
#
# Shapes: transformers 5.23.0, src/transformers/trainer_callback.py (ProgressCallback, PrinterCallback); as printed,
# with numbers in place of their texts, in h2oai/h2ogpt pull request 86, modal-labs/llm-finetuning pull request 82 and
# hiyouga/LlamaFactory issue 3529 (2024-04).

_LOSS = re.compile(rf"\{{'loss': '?({NUMBER})'?[,}}]")
_BAR = re.compile(rf"\b({COUNT})/{COUNT} \[")


class TransformersLog:
    """A reader of the dictionaries that the first rank of a Transformers trainer prints every ``logging_steps`` steps.

    The default of ``logging_steps`` is 500. A dictionary contains neither the number of its step nor the time.
    Therefore the reader counts the steps. The number of steps between two lines is known only if the progress bar is in
    the same stream, since the bar shows the step after each line. Otherwise every line counts as one step, so
    ``logging_steps`` must be 1.
    """

    def __init__(self, spec: TrialSpec) -> None:
        del spec  # a line says all
        self._step = 0
        self._num_steps = 1
        self._seen_at = 0
        self._awaits_bar = False

    def read(self, line: str) -> ReportedStep | None:
        """Return the step that a line (without its line end) reports; None if the line reports no step."""
        found = _LOSS.search(line)
        self._follow(_BAR.search(line, 0, found.start() if found else len(line)))
        if found is None:
            return None
        self._step += self._num_steps
        self._awaits_bar = True
        return ReportedStep(step=self._step, num_steps=self._num_steps, loss=number(found[1]))

    def _follow(self, bar: re.Match[str] | None) -> None:
        """Read the step number from the first progress bar after a line of figures; later bars may lag behind."""
        if bar is None or not self._awaits_bar:
            return
        self._awaits_bar = False
        step = int(bar[1])
        self._num_steps = max(1, step - self._seen_at)
        self._step = self._seen_at = step


NewReader = Callable[[TrialSpec], LogReader]
"""A function that makes a reader for one run: a reader keeps state, since lines arrive in the order of printing."""

READERS: Mapping[str, NewReader] = {
    "megatron-lm": MegatronLog,
    "torchtitan": TorchtitanLog,
    "deepspeed": DeepspeedLog,
    "transformers": TransformersLog,
}
"""Log readers by the name that a registration gives (``reports = "megatron-lm"``)."""
