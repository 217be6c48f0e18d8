"""What a trial costs beyond its training steps: forked from a zygote (warm) against torchrun (cold).

``python -m bench.trial_overhead [REPETITIONS]`` runs the same trial both ways in turn, so that the load of the machine
is the same for both, and prints for each the median of launch-to-outcome seconds less the sum of the step times, their
``ratio <cold/warm>``, and the MFU of both beside the noise floor: the spread of equal warm trials.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from autotuner.core.choices import AttentionKernel, Precision
from autotuner.core.layout import Layout
from autotuner.core.measurement import FinishedRun, LinkEvent, Measurement, StepReport
from autotuner.core.model import TransformerSpec
from autotuner.core.trial import EngineJob, Stopped
from autotuner.core.trial_spec import TrialSettings, TrialSpec
from autotuner.core.units import format_seconds
from autotuner.core.workload import Workload
from autotuner.launch.exclusive import DevicePool
from autotuner.launch.local import LocalLauncher
from autotuner.launch.ranks import Starter
from autotuner.launch.torchrun import Torchrun
from autotuner.launch.zygote import Forks

_REPETITIONS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Launched:
    """One trial as whoever launched it saw it."""

    wall_s: float
    steps_s: float
    mfu: float

    @property
    def overhead_s(self) -> float:
        """What was not a training step."""
        return self.wall_s - self.steps_s


class _Steps:
    """A watcher that adds up the step times."""

    def __init__(self) -> None:
        self.total_s = 0.0

    def on_step(self, step: StepReport) -> None:
        self.total_s += step.step_time_s

    def on_link_event(self, event: LinkEvent) -> None:
        pass

    def on_note(self, note: str) -> None:
        pass

    def on_wait(self, reason: str | None) -> None:
        pass

    def on_run(self, run: FinishedRun) -> None:
        pass

    def on_job(self, job: EngineJob) -> None:
        pass

    def stop_requested(self) -> Stopped | None:
        return None


def trial(*, profiled_steps: int) -> TrialSpec:
    """Two replicas of a small Llama; its peak is given, as a sweep gives what was measured once with the cluster."""
    return TrialSpec(
        trial_id="overhead",
        model=TransformerSpec(
            name="small",
            num_layers=4,
            hidden_size=128,
            num_heads=4,
            num_kv_heads=2,
            head_dim=32,
            ffn_size=352,
            vocab_size=1024,
        ),
        workload=Workload(seq_len=128, global_batch_size=8),
        layout=Layout(
            data_parallel_replicate_degree=2,
            micro_batch_size=4,
            precision=Precision.FP32,
            attention_kernel=AttentionKernel.MATH,
        ),
        device="cpu",
        settings=TrialSettings(profiled_steps=profiled_steps, max_warmup_steps=5, max_measured_steps=15),
        reference_flop_per_s=100e9,
    )


def launched(spec: TrialSpec, starter: Starter, work_dir: Path) -> Launched:
    """Run it once.

    Raises:
        RuntimeError: It was not measured.
    """
    steps, start_s = _Steps(), time.perf_counter()
    outcome = LocalLauncher(work_dir, starter, DevicePool.of_this_machine()).run(spec, steps)
    wall_s = time.perf_counter() - start_s
    if not isinstance(outcome, Measurement):
        raise RuntimeError(str(outcome))
    return Launched(wall_s=wall_s, steps_s=steps.total_s, mfu=outcome.mfu)


def main() -> None:
    """Print what both ways cost, with and without the profiled step."""
    repetitions = int(sys.argv[1]) if len(sys.argv) > 1 else _REPETITIONS
    forks, torchrun = Forks(), Torchrun()
    with tempfile.TemporaryDirectory() as directory:
        first = launched(trial(profiled_steps=0), forks, Path(directory))
        _print(f"the zygote's first trial: {format_seconds(first.overhead_s)} beyond its steps, torch imported once")
        for profiled_steps, ratio in ((0, "ratio"), (1, "with a profiled step: ratio")):
            spec = trial(profiled_steps=profiled_steps)
            pairs = [[launched(spec, way, Path(directory)) for way in (forks, torchrun)] for _ in range(repetitions)]
            warm, cold = (list(way) for way in zip(*pairs, strict=True))
            _compare(warm, cold, ratio)
    forks.close()


def _compare(warm: list[Launched], cold: list[Launched], ratio: str) -> None:
    warm_s, cold_s = (statistics.median(run.overhead_s for run in runs) for runs in (warm, cold))
    for name, runs, overhead_s in (("warm", warm, warm_s), ("cold", cold, cold_s)):
        lowest, highest = min(run.overhead_s for run in runs), max(run.overhead_s for run in runs)
        steps_s = statistics.median(run.steps_s for run in runs)
        _print(
            f"{name}: {format_seconds(overhead_s)} beyond {format_seconds(steps_s)} of steps"
            f" ({format_seconds(lowest)} .. {format_seconds(highest)} in {len(runs)} trials)"
        )
    _print(f"{ratio} {cold_s / warm_s:.1f}")
    warm_mfu, cold_mfu = (statistics.median(run.mfu for run in runs) for runs in (warm, cold))
    floor = (max(run.mfu for run in warm) - min(run.mfu for run in warm)) / warm_mfu
    _print(
        f"MFU warm {warm_mfu:.1%}, cold {cold_mfu:.1%}, {cold_mfu / warm_mfu - 1:+.1%}; noise floor (A/A) {floor:.1%}"
    )


def _print(line: str) -> None:
    print(line, flush=True)  # noqa: T201  # a benchmark prints its result


if __name__ == "__main__":
    main()
