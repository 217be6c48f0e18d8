"""Whether what trials teach agrees with what they measured: four fp32 trials on this machine's cores, then bf16 runs.

``python -m bench.learning_live`` runs both and prints, for each layout that ran, its step as predicted before learning,
as predicted after it with the 80 % interval, and as measured, and the same of the optimizer. Others that use the
machine slow trials down: their share is printed, learning counts such trials for less, and their times may lie outside.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from autotuner.catalog.hardware import load_cluster
from autotuner.catalog.models import load_model
from autotuner.core.choices import Precision, ShardLevel
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.measurement import Measurement
from autotuner.core.trial import PastTrial
from autotuner.core.trial_spec import TrialSettings, TrialSpec
from autotuner.core.units import format_seconds
from autotuner.core.workload import Workload
from autotuner.costmodel.predict import predict_one
from autotuner.launch.exclusive import DevicePool
from autotuner.launch.local import LocalLauncher
from autotuner.search.sampler.calibration import Learnt
from bench.patient import Patient

JOB = Job(
    model=load_model("llama-demo"),
    cluster=load_cluster("cpu:1x2"),
    workload=Workload(seq_len=64, global_batch_size=8),
)
"""Short steps: where cores emulate bf16, one of them takes as long as thirty in fp32."""

WHOLE = Layout(data_parallel_replicate_degree=2, micro_batch_size=4, precision=Precision.FP32)
SHARDED = Layout(
    data_parallel_shard_degree=2, shard_level=ShardLevel.OPTIMIZER, micro_batch_size=2, precision=Precision.FP32
)
SWEEP = (WHOLE, replace(WHOLE, micro_batch_size=2), SHARDED, replace(SHARDED, micro_batch_size=4))
RETUNE = (replace(WHOLE, precision=Precision.BF16), replace(SHARDED, precision=Precision.BF16))

_SETTINGS = TrialSettings(warmup_steps=1, max_warmup_steps=3, measured_steps=3, measuring_budget_s=2.0, max_repeats=0)


def main() -> None:
    """Run the trials and print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.learning_live", description=__doc__)
    parser.add_argument("--runs", type=int, default=10, help="runs of the retune")
    runs = parser.parse_args().runs
    layouts = [*SWEEP, *(RETUNE[number % len(RETUNE)] for number in range(runs))]
    trials = list(measured(layouts))
    for line in lines(trials):
        print(line)  # noqa: T201  # a benchmark prints its result


def measured(layouts: list[Layout]) -> Iterator[PastTrial]:
    """Run each layout on this machine's cores; one that fails is left out."""
    with (
        tempfile.TemporaryDirectory() as folder,
        closing(LocalLauncher(Path(folder), devices=DevicePool.of_this_machine())) as launcher,
    ):
        for number, layout in enumerate(layouts):
            spec = TrialSpec(
                trial_id=f"learning-{number}",
                model=JOB.model,
                workload=JOB.workload,
                layout=layout,
                device="cpu",
                settings=_SETTINGS,
                reference_flop_per_s=JOB.cluster.accelerator.reference_flop_per_s,
            )
            found = launcher.run(spec, Patient())
            if isinstance(found, Measurement):
                yield PastTrial(
                    job=JOB,
                    layout=layout,
                    step_time_s=found.step_time_s,
                    sweep_id="sweep" if number < len(SWEEP) else "retune",
                    finished_at=float(number),
                    parts=found.breakdown or found.phases,
                    foreign_share=found.foreign_cpu_share,
                )


def lines(trials: list[PastTrial]) -> Iterator[str]:
    """What was predicted of each layout before and after the trials, and what its runs measured."""
    job = Learnt(trials).calibrated(JOB)
    yield "| layout | step before | step after | measured, others' share | optimizer before → after, measured |"
    yield "| --- | --- | --- | --- | --- |"
    for layout in dict.fromkeys(trial.layout for trial in trials):
        before, after = predict_one(layout, JOB), predict_one(layout, job)
        step_s, ratio = after.step_time.total_s, 1 + (after.relative_error or 0.0)
        own = [trial for trial in trials if trial.layout == layout]
        times = ", ".join(_measured(trial, step_s / ratio, step_s * ratio) for trial in own)
        optimizer_s = (before.step_time.optimizer_s, after.step_time.optimizer_s)
        optimizer = ", ".join(format_seconds(trial.parts.optimizer_s) for trial in own if trial.parts)
        yield (
            f"| {layout} | {format_seconds(before.step_time.total_s)} | {format_seconds(step_s)}, "
            f"{format_seconds(step_s / ratio)} to {format_seconds(step_s * ratio)} | {times} | "
            f"{' → '.join(map(format_seconds, optimizer_s))}, {optimizer} |"
        )


def _measured(trial: PastTrial, low_s: float, high_s: float) -> str:
    step_s = trial.step_time_s or 0.0
    where = "" if low_s <= step_s <= high_s else " outside"
    return f"{format_seconds(step_s)} ({100 * trial.foreign_share:.0f} %){where}"


if __name__ == "__main__":
    main()
