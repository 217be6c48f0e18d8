"""What a trial of a registered trainer costs beyond its steps, and how far equal ones lie apart, beside our own trial.

``python -m bench.foreign_overhead [REPETITIONS]`` runs the same model, batch and layout on two cores in three ways, in
turn, so that the load of the machine is the same for all: ``examples/train.py`` as ``examples/trainers.toml`` registers
it, under torchrun; our own decoder under torchrun; our own decoder forked from a zygote. Printed of each: seconds from
the launch to the first step, of the steps, and from the last report to the outcome; the noise floor (A/A): deviation
and range of the medians of equal trials. Then what one call of the reporter and one line of a log cost.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import autotuner_report
from autotuner.catalog.hardware import load_cluster
from autotuner.core.choices import AttentionKernel
from autotuner.core.measurement import FinishedRun, LinkEvent, Measurement, StepReport
from autotuner.core.trial import EngineJob, Stopped
from autotuner.core.trial_spec import TrialSpec
from autotuner.core.units import format_seconds
from autotuner.launch.exclusive import DevicePool
from autotuner.launch.local import LocalLauncher
from autotuner.launch.torchrun import Torchrun
from autotuner.launch.trainers.logs import READERS
from autotuner.launch.trainers.registration import read_trainers
from autotuner.launch.zygote import Forks
from bench.trial_overhead import trial

_TRAINERS = Path(__file__).parents[1] / "examples/trainers.toml"
_TRAINER = "train"

_REPETITIONS = 5

_NUM_CALLS = 2000

_LINES = {
    "megatron-lm": " [2026-01-02 03:04:05.678901] iteration       12/     100 | consumed samples:         1536 |"
    " elapsed time per iteration (ms): 812.3 | learning rate: 1.500000E-05 | global batch size:   128 |"
    " lm loss: 9.876543E+00 | loss scale: 1.0 | grad norm: 3.210 | number of skipped iterations:   0 |"
    " number of nan iterations:   0 |",
    "torchtitan": "[rank0]:[titan] 2026-01-02 03:04:05,678 - root - INFO - step: 12  loss:  7.94336  grad_norm:  2.7038"
    "  memory: 40.12GiB(50.15%)  tps: 1,234  tflops: 98.76  mfu: 31.20%",
    "deepspeed": "[2026-01-02 03:04:05,678] [INFO] [timer.py:264:stop] epoch=0/micro_step=40/global_step=10,"
    " RunningAvgSamplesPerSec=331.49, CurrSamplesPerSec=314.82, MemAllocated=0.47GB, MaxMemAllocated=0.47GB",
    "transformers": "{'loss': '6.251', 'grad_norm': '0.7303', 'learning_rate': '0.001', 'epoch': '0.1667'}",
}
"""Values are made up; shapes are those of the readers' sources."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """One trial as whoever launched it saw it."""

    start_s: float
    steps_s: float
    stop_s: float
    step_time_s: float

    @property
    def overhead_s(self) -> float:
        """What was no step that was reported."""
        return self.start_s + self.stop_s


class _Clock:
    """A watcher that notes when it heard of steps, and how long they took."""

    def __init__(self) -> None:
        self.step_times_s: list[float] = []
        self.heard_at_s: list[float] = []

    def on_step(self, step: StepReport) -> None:
        self.step_times_s.append(step.step_time_s)
        self.heard_at_s.append(time.perf_counter())

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


def _run(spec: TrialSpec, launcher: LocalLauncher) -> _Run:
    clock, start_s = _Clock(), time.perf_counter()
    outcome = launcher.run(spec, clock)
    end_s = time.perf_counter()
    if not isinstance(outcome, Measurement):
        raise RuntimeError(str(outcome))
    steps_s = sum(clock.step_times_s)
    stop_s = end_s - clock.heard_at_s[-1]
    return _Run(
        start_s=end_s - start_s - steps_s - stop_s, steps_s=steps_s, stop_s=stop_s, step_time_s=outcome.step_time_s
    )


def main() -> None:
    """Run all three ways in turn and print what each costs."""
    repetitions = int(sys.argv[1]) if len(sys.argv) > 1 else _REPETITIONS
    with tempfile.TemporaryDirectory() as directory:
        ways = _ways(Path(directory))
        runs: dict[str, list[_Run]] = {name: [] for name in ways}
        for repetition in range(repetitions + 1):
            for name, way in ways.items():
                run = way()
                if repetition:  # the first of each imports from a cold disk, or for all that follow
                    runs[name].append(run)
        for name, of_way in runs.items():
            _say(f"{name}: {_costs(of_way)}; {_noise(of_way)}")
        _compare(runs)
        _say(f"reporter: {format_seconds(_reporter_s(Path(directory)))} per step and rank")
    for name, line in _LINES.items():
        _say(f"reader of {name}: {format_seconds(_reader_s(name, line))} per line")


def _ways(directory: Path) -> Mapping[str, Callable[[], _Run]]:
    trainers = read_trainers(_TRAINERS)
    own = trial(profiled_steps=0)
    own = replace(own, layout=replace(own.layout, attention_kernel=AttentionKernel.FLASH))
    foreign = replace(own, trainer=trainers[_TRAINER].trainer, cluster=load_cluster("cpu:2"))
    forked = LocalLauncher(directory, Forks(), DevicePool.of_this_machine(), trainers)
    torchrun = LocalLauncher(directory, Torchrun(), DevicePool.of_this_machine())
    return {
        "examples/train.py under torchrun": lambda: _run(foreign, forked),
        "our decoder under torchrun": lambda: _run(own, torchrun),
        "our decoder forked": lambda: _run(own, forked),
    }


def _costs(runs: list[_Run]) -> str:
    start_s, steps_s, stop_s, total_s = (
        format_seconds(statistics.median(getattr(run, name) for run in runs))
        for name in ("start_s", "steps_s", "stop_s", "overhead_s")
    )
    return f"{total_s} beyond {steps_s} of steps ({start_s} to start, {stop_s} to stop)"


def _noise(runs: list[_Run]) -> str:
    medians_s = [run.step_time_s for run in runs]
    middle_s = statistics.median(medians_s)
    extent = (max(medians_s) - min(medians_s)) / middle_s
    return (
        f"{len(runs)} medians around {format_seconds(middle_s)} with a standard deviation of"
        f" {statistics.stdev(medians_s) / middle_s:.1%} and a range of {extent:.1%}"
    )


def _compare(runs: Mapping[str, list[_Run]]) -> None:
    foreign, *others = runs.values()
    foreign_s = statistics.median(run.overhead_s for run in foreign)
    foreign_noise = statistics.stdev(run.step_time_s for run in foreign) / statistics.median(
        run.step_time_s for run in foreign
    )
    for name, other in zip(list(runs)[1:], others, strict=True):
        other_s = statistics.median(run.overhead_s for run in other)
        middle_s = statistics.median(run.step_time_s for run in other)
        noise = statistics.stdev(run.step_time_s for run in other) / middle_s
        _say(f"beside {name}: ratio of overheads {foreign_s / other_s:.1f}, of deviations {foreign_noise / noise:.1f}")


def _reporter_s(directory: Path) -> float:
    """What a call takes, with its line on the disk."""
    reporter = autotuner_report.Reporter(str(directory), rank=0)
    start_s = time.perf_counter()
    for _ in range(_NUM_CALLS):
        reporter.step(loss=6.25, tokens=8192)
    return (time.perf_counter() - start_s) / _NUM_CALLS


def _reader_s(name: str, line: str) -> float:
    reader = READERS[name](trial(profiled_steps=0))
    start_s = time.perf_counter()
    for _ in range(_NUM_CALLS):
        reader.read(line)
    return (time.perf_counter() - start_s) / _NUM_CALLS


def _say(line: str) -> None:
    print(line, flush=True)  # noqa: T201  # a benchmark prints its result


if __name__ == "__main__":
    main()
