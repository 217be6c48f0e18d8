"""The noise floor (A/A): repeats the same trial on fresh ranks and shows how much its medians differ.

``python -m research.noise`` runs a small Llama on two cores, in three layouts. A difference between two layouts that is
smaller than the difference of equal trials means nothing. It takes minutes, and its result only holds for this machine
at this time.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from autotuner.catalog.models import load_model
from autotuner.core.choices import AttentionKernel, Precision, ShardLevel
from autotuner.core.layout import Layout
from autotuner.core.measurement import FinishedRun, LinkEvent, Measurement, StepReport
from autotuner.core.trial import EngineJob, Stopped
from autotuner.core.trial_spec import TrialSettings, TrialSpec
from autotuner.core.units import format_seconds
from autotuner.core.workload import Workload
from autotuner.launch.devices import DevicePool
from autotuner.launch.local import LocalLauncher
from autotuner.report.trial_facts import certainty
from autotuner.report.words import percent
from research import say


class Patient:
    """A trial watcher that ignores all reports and never stops the trial, so that the trial runs to its end."""

    def on_step(self, step: StepReport) -> None:
        """Ignore the report of a training step."""

    def on_link_event(self, event: LinkEvent) -> None:
        """Ignore the report that a link or a rank became slow."""

    def on_note(self, note: str) -> None:
        """Ignore the note about the trial."""

    def on_wait(self, reason: str | None) -> None:
        """Ignore the reason why the trial waits for devices."""

    def on_run(self, run: FinishedRun) -> None:
        """Ignore the report of a finished run of the trial."""

    def on_job(self, job: EngineJob) -> None:
        """Ignore the state of the trial's job on an engine."""

    def stop_requested(self) -> Stopped | None:
        """Return None, which means that the trial may go on."""
        return None


_PLAIN = Layout(precision=Precision.FP32, attention_kernel=AttentionKernel.FLASH, micro_batch_size=8)
_LAYOUTS = (
    replace(_PLAIN, data_parallel_replicate_degree=2),
    replace(_PLAIN, data_parallel_shard_degree=2, shard_level=ShardLevel.PARAMETERS),
    replace(_PLAIN, pipeline_parallel_degree=2, micro_batch_size=4),
)


def main() -> None:
    """Repeat equal trials, and print the step time of each and how much the step times of one layout differ."""
    parser = argparse.ArgumentParser(prog="python -m research.noise", description="Measure equal trials.")
    parser.add_argument("--runs", type=int, default=6, help="trials of each layout")
    num_runs = parser.parse_args().runs
    settings = TrialSettings(profiled_steps=0)
    with (
        tempfile.TemporaryDirectory() as folder,
        closing(LocalLauncher(Path(folder), devices=DevicePool.of_this_machine())) as launcher,
    ):
        for layout in _LAYOUTS:
            say(f"{layout}: {_spread([_measured(launcher, _spec(layout, settings)) for _ in range(num_runs)])}")


def _spec(layout: Layout, settings: TrialSettings) -> TrialSpec:
    """Return a trial of the demonstration's model and workload.

    The peak is given, so that no trial has to measure it.
    """
    return TrialSpec(
        trial_id="noise",
        model=load_model("llama-demo"),
        workload=Workload(seq_len=128, global_batch_size=16),
        layout=layout,
        device="cpu",
        settings=settings,
        reference_flop_per_s=1e11,
    )


def _measured(launcher: LocalLauncher, spec: TrialSpec) -> Measurement:
    outcome = launcher.run(spec, Patient())
    assert isinstance(outcome, Measurement), outcome
    step = f"{format_seconds(outcome.step_time_s)} {certainty(outcome)}"
    steps, foreign = f"{outcome.num_steps} steps after {outcome.num_warmup_steps}", percent(outcome.foreign_cpu_share)
    say(f"  step {step}, {steps}, others used {foreign} of the machine")
    return outcome


def _spread(measured: list[Measurement]) -> str:
    """Return the medians' range and standard deviation, and how often an interval held the median of medians."""
    medians_s = [m.step_time_s for m in measured]
    middle_s = statistics.median(medians_s)
    held = sum(abs(m.step_time_s - middle_s) <= (m.step_time_interval_s or 0.0) for m in measured)
    deviation = statistics.stdev(medians_s) / middle_s
    extent = (max(medians_s) - min(medians_s)) / middle_s
    return (
        f"{len(measured)} medians with a standard deviation of {100 * deviation:.1f} % and a range of "
        f"{100 * extent:.1f} %; {held} of their intervals hold the middle one"
    )


if __name__ == "__main__":
    main()
