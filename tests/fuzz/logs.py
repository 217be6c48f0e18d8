"""What trainers print, and what their reporter writes."""

from __future__ import annotations

import json
from collections.abc import Sequence

from autotuner.core.codec import dumps
from autotuner.core.measuring import Peak
from autotuner.core.node_line import NodeEnd, NodeLine, Printed, TrainerLine
from autotuner.launch.trainer_reports import TrainerReports
from autotuner.launch.trainers.logs import READERS
from tests.fuzz.target import Target, text_of
from tests.unit.launch.trainers.log_readers.specs import spec

_PEAK = Peak(flop_per_s=1e12, source="nobody")

_PRINTED = {
    "megatron-lm": (
        " [2026-01-02 03:04:05.678901] iteration        1/     100 | consumed samples:          128 | elapsed time per"
        " iteration (ms): 812.5 | learning rate: 1.5E-05 | lm loss: 9.876543E+00 | number of nan iterations:   0 |\n"
        "[Rank 0] (after 1 iterations) memory (MB) | allocated: 1.0 | max allocated: 20000.5 | reserved: 3.0\n"
        "Training epoch 0, iteration 1/100 | lr: 1e-05 | reduced_train_loss: 9.1 | train_step_timing in s: 0.8\n"
    ),
    "torchtitan": (
        "[rank0]:[titan] 2026-01-02 03:04:05 - root - INFO - step:  1  loss:  8.1309  grad_norm:  1.5  memory: "
        " 1.50GiB(1.9%)  tps: 1,234  tflops: 0.51  mfu: 0.1%\n"
    ),
    "deepspeed": (
        "[2026-01-02 03:04:05,678] [INFO] [logging.py:96:log_dist] [Rank 0] step=10, skipped=0, lr=[1e-05], mom=[0.9]\n"
        "[2026-01-02 03:04:05,678] [INFO] [timer.py:260:stop] epoch=0/micro_step=10/global_step=10, RunningAvgSamples"
        "PerSec=12.3, CurrSamplesPerSec=12.4, MemAllocated=1.5GB, MaxMemAllocated=2.5GB\n"
        "steps: 10 loss: 2.5 iter time (s): 0.5 samples/sec: 16.0\n"
    ),
    "transformers": (
        " 10%|# | 1/10 [00:01<00:09,  1.0s/it]\n{'loss': 2.5, 'grad_norm': 1.0, 'learning_rate': 5e-05, 'epoch': 0.1}\n"
    ),
}
_DIED = (
    "[rank1]: Traceback (most recent call last):\n[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to\n"
    "Root Cause (first observed failure):\n[0]:\n  time : 2026\n  rank      : 1 (local_rank: 1)\n  exitcode  : 1\n"
)
_TOLD = (
    {"step": 0, "rank": 0, "step_time_s": 0.5, "loss": 5.0, "peak_bytes": 1000, "environment": {"host": "a"}},
    {"step": 1, "rank": 0, "num_steps": 1, "tokens": 4096},
)


def _target(name: str) -> Target:
    def check(data: bytes) -> None:
        """Whatever is printed, the steps that were understood make a result that can be stored."""
        trial, lines = spec(), text_of(data).splitlines()
        reader = READERS[name](trial)
        for line in lines:
            reader.read(line)  # what it raises costs a trial no more than the line
        printed = [Printed(text=line, at=float(at)) for at, line in enumerate(lines)]
        _end(TrainerReports(trial, _PEAK, READERS[name](trial), {}), printed)

    return Target(
        name=name.replace("-", "_"),
        check=check,
        seeds=((_PRINTED[name] * 3).encode(), (_PRINTED[name] + _DIED).encode()),
        words=(
            *("nan", "inf", "1E+400", "step:", "loss:", "rank", "[rank1]:", "exitcode  : ", "Root Cause", "²", "|"),
            "1,0",
        ),
    )


def _told(data: bytes) -> None:
    _end(
        TrainerReports(spec(), _PEAK, None, {}), [TrainerLine(line=line, at=0.0) for line in text_of(data).split("\n")]
    )


def _end(reports: TrainerReports, lines: Sequence[NodeLine]) -> None:
    for step in reports.take([*lines, NodeEnd(node=0, exit_code=0)]):
        dumps(step)
    for value in (reports.measurement, reports.failure):
        if value is not None:
            dumps(value)


TARGETS = (
    *(_target(name) for name in READERS),
    Target(
        name="reporter",
        check=_told,
        seeds=("\n".join(json.dumps(line) for line in _TOLD * 2).encode() + b"\n",),
        words=('"step"', '"rank"', '"loss"', "NaN", "Infinity", "1e400", "null", "\n", '"environment"', '"num_steps"'),
    ),
)
