"""What dealing and packing save of real steps, beside what the cost model predicts of it.

``python -m bench.balance_live [REPETITIONS] [RANKS]`` trains a small decoder on this machine's cores, on batches of
unequal sequences: as they come, dealt by length, and packed. Each layout reads the same global batches, so a step is
compared with the same step of another layout; the fastest of its repetitions counts, as neighbours only ever slow it.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from autotuner.catalog.hardware import load_cluster
from autotuner.core.choices import AttentionKernel, BatchBalance, Precision
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.measurement import StepReport
from autotuner.core.model import TransformerSpec
from autotuner.core.trial_spec import TrialSettings, TrialSpec
from autotuner.core.workload import LengthDistribution, Workload
from autotuner.costmodel.predict import predict_one
from autotuner.launch.local import LocalLauncher
from autotuner.launch.zygote import Forks
from bench.patient import Patient

_REPETITIONS, _RANKS, _STEPS = 3, 2, 24

_MODEL = TransformerSpec(
    name="four-layers",
    num_layers=4,
    hidden_size=256,
    num_heads=8,
    num_kv_heads=4,
    head_dim=32,
    ffn_size=704,
    vocab_size=1024,
)
_LENGTHS = LengthDistribution(lengths=(32, 64, 128, 256), weights=(6.0, 3.0, 2.0, 5.0))
"""As many of each quarter of the longest as the BERT record of arXiv 2402.02447 has in a rank's batch."""


def _layouts(num_ranks: int) -> Mapping[str, Layout]:
    plain = Layout(
        data_parallel_replicate_degree=num_ranks,
        micro_batch_size=1,
        precision=Precision.FP32,
        attention_kernel=AttentionKernel.FLASH,
    )
    return {
        "as they come": plain,
        "stratified": replace(plain, batch_balance=BatchBalance.STRATIFIED),
        "stratified + snake": replace(plain, batch_balance=BatchBalance.STRATIFIED_SNAKE),
        "as they come, 4 padded": replace(plain, micro_batch_size=4),
        "as they come, 4 packed": replace(plain, micro_batch_size=4, sequence_packing=True),
        "stratified + snake, 4 packed": replace(
            plain, micro_batch_size=4, sequence_packing=True, batch_balance=BatchBalance.STRATIFIED_SNAKE
        ),
    }


class _Timed(Patient):
    """Remembers how long each measured step took."""

    def __init__(self) -> None:
        self.steps_s: dict[int, float] = {}

    def on_step(self, step: StepReport) -> None:
        """Note a step that counts."""
        if step.is_measured:
            self.steps_s[step.step] = step.step_time_s


def main() -> None:
    """Print a line per layout."""
    given = [int(one) for one in sys.argv[1:]]
    repetitions, num_ranks = (*given, *(_REPETITIONS, _RANKS)[len(given) :])
    workload = Workload(seq_len=256, global_batch_size=8 * num_ranks, lengths=_LENGTHS)
    job = Job(model=_MODEL, cluster=load_cluster(f"cpu:1x{num_ranks}"), workload=workload)
    layouts = _layouts(num_ranks)
    fastest_s: dict[str, dict[int, float]] = {name: {} for name in layouts}
    forks = Forks()
    with tempfile.TemporaryDirectory() as directory:
        launcher = LocalLauncher(Path(directory), forks)
        for _ in range(repetitions):
            for name, layout in layouts.items():
                for number, step_s in _steps_s(launcher, _trial(job, layout)).items():
                    fastest_s[name][number] = min(step_s, fastest_s[name].get(number, step_s))
    forks.close()
    measured_s = {name: sum(of_steps.values()) / len(of_steps) for name, of_steps in fastest_s.items()}
    predicted_s = {name: predict_one(layout, job).step_time.total_s for name, layout in layouts.items()}
    for name in layouts:
        _print_line(name, "as they come", measured_s, predicted_s)
    _print_line("as they come, 4 packed", "as they come, 4 padded", measured_s, predicted_s)


def _trial(job: Job, layout: Layout) -> TrialSpec:
    settings = TrialSettings(
        warmup_steps=2,
        max_warmup_steps=2,
        measured_steps=_STEPS,
        max_measured_steps=_STEPS,
        profiled_steps=0,
        max_repeats=0,
    )
    return TrialSpec(
        trial_id="balance",
        model=job.model,
        workload=job.workload,
        layout=layout,
        device="cpu",
        settings=settings,
        reference_flop_per_s=100e9,
    )


def _steps_s(launcher: LocalLauncher, spec: TrialSpec) -> dict[int, float]:
    timed = _Timed()
    outcome = launcher.run(spec, timed)
    if len(timed.steps_s) != _STEPS:
        raise RuntimeError(str(outcome))
    return timed.steps_s


def _print_line(name: str, base: str, measured_s: Mapping[str, float], predicted_s: Mapping[str, float]) -> None:
    measured, predicted = (of[name] / of[base] for of in (measured_s, predicted_s))
    print(  # noqa: T201  # a benchmark prints its result
        f"{name:30s} step {1e3 * measured_s[name]:7.1f} ms, {measured:5.3f} of '{base}'; predicted {predicted:5.3f}, "
        f"off by {measured / predicted - 1:+6.1%}",
        flush=True,
    )


if __name__ == "__main__":
    main()
