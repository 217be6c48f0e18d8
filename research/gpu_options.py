"""Tries every option of a trial on one GPU, and measures layouts of larger models one after the other.

``python -m research.gpu_options --output DIRECTORY`` trains a small model for the same few steps with one option
changed at a time, and writes ``options.csv``: the loss of the last step and the peak memory, or the failure. Several
trials share the GPU, so it writes no times. ``research/data/h200_options.csv`` is what it wrote on an H200.

``--alone`` measures layouts one after the other instead, and writes them with their predictions into
``own_h200.csv``, as ``research.h200_sweep`` does. It takes six minutes.
"""

from __future__ import annotations

import argparse
import csv
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from autotuner.core.blocks import MixtureOfExperts
from autotuner.core.choices import AttentionKernel, Fp8Recipe, OptimizerKernel, Precision, Recompute
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.measurement import FinishedRun, LinkEvent, Measurement, StepReport
from autotuner.core.model import TransformerSpec
from autotuner.core.trial import EngineJob, Outcome, Stopped, TrialFailure
from autotuner.core.trial_spec import OptimizerName, OptimizerSettings, TrialSettings, TrialSpec
from autotuner.core.workload import LengthDistribution, Workload
from autotuner.costmodel.predict import predict_one
from autotuner.launch.devices import DevicePool
from autotuner.launch.local import LocalLauncher
from research.h200_sweep import ONE_B, THREE_B, one_gpu, row, write

_NUM_STEPS = 4
_AT_ONCE = 6
"""Number of trials that share the GPU; each compiles or starts on the host most of the time."""

_MODEL = TransformerSpec(
    name="Llama-options",
    num_layers=4,
    hidden_size=2048,
    num_heads=16,
    num_kv_heads=4,
    head_dim=128,
    ffn_size=5632,
    vocab_size=32000,
)
_ALL_HEADS = replace(_MODEL, num_kv_heads=16)
_SPARSE = replace(_MODEL, experts=MixtureOfExperts(num_experts=8, experts_per_token=2, expert_ffn_size=1408))
_WORKLOAD = Workload(seq_len=2048, global_batch_size=4)
_LENGTHS = replace(_WORKLOAD, lengths=LengthDistribution(lengths=(512, 2048), weights=(1.0, 1.0)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """A trial of the small model with one change."""

    name: str
    layout: Mapping[str, Any] = field(default_factory=dict)
    spec: Mapping[str, Any] = field(default_factory=dict)
    profiled_steps: int = 0


_COMPILED = {"compiled": True}
_SELECTIVE = {"recompute": Recompute.SELECTIVE}
_FULL = {"recompute": Recompute.FULL}
_CUDNN = {"attention_kernel": AttentionKernel.CUDNN}
_FLEX = {"attention_kernel": AttentionKernel.FLEX}
_EFFICIENT = {"attention_kernel": AttentionKernel.EFFICIENT}
_MATH = {"attention_kernel": AttentionKernel.MATH}
_FP8 = {"precision": Precision.FP8}
_ROWWISE = {**_FP8, "fp8_recipe": Fp8Recipe.ROWWISE}
_ON_HOST = {"offload_activations": True}

_OPTIONS = (
    Option(name="flash, bf16"),
    Option(name="math", layout=_MATH),
    Option(name="efficient", layout=_EFFICIENT, spec={"model": _ALL_HEADS}),
    Option(name="cudnn", layout=_CUDNN),
    Option(name="flex", layout=_FLEX),
    Option(name="fp32", layout={"precision": Precision.FP32, **_MATH}),
    Option(name="fp8 tensorwise", layout=_FP8),
    Option(name="fp8 rowwise", layout=_ROWWISE),
    Option(name="fp8 tensorwise, compiled", layout={**_FP8, **_COMPILED}),
    Option(name="fp8 rowwise, compiled", layout={**_ROWWISE, **_COMPILED}),
    Option(name="fp8, compiled, selective", layout={**_FP8, **_COMPILED, **_SELECTIVE}),
    Option(name="fp8 emulated", layout={"precision": Precision.FP8_EMULATED}),
    Option(name="compiled", layout=_COMPILED),
    Option(name="compiled, cudnn", layout={**_COMPILED, **_CUDNN}),
    Option(name="compiled, flex", layout={**_COMPILED, **_FLEX}),
    Option(name="selective", layout=_SELECTIVE),
    Option(name="selective, cudnn", layout={**_SELECTIVE, **_CUDNN}),
    Option(name="selective, flex", layout={**_SELECTIVE, **_FLEX}),
    Option(name="selective, compiled", layout={**_SELECTIVE, **_COMPILED}),
    Option(name="full", layout=_FULL),
    Option(name="full, compiled", layout={**_FULL, **_COMPILED}),
    Option(name="full, every second layer", layout={**_FULL, "recompute_every": 2}),
    Option(name="fused norm", layout={"fused_norm": True}),
    Option(name="foreach optimizer", layout={"optimizer_kernel": OptimizerKernel.FOREACH}),
    Option(name="activations on the host", layout=_ON_HOST),
    Option(name="activations on the host, full", layout={**_ON_HOST, **_FULL}),
    Option(name="experts", spec={"model": _SPARSE}),
    Option(name="tied tables, norms of heads", spec={"model": replace(_MODEL, tied_embeddings=True, qk_norm=True)}),
    Option(name="lengths that differ", spec={"workload": _LENGTHS}),
    Option(name="lengths that differ, packed", spec={"workload": _LENGTHS}, layout={"sequence_packing": True}),
    Option(name="LAMB", spec={"optimizer": OptimizerSettings(name=OptimizerName.LAMB, learning_rate=1e-3)}),
    Option(name="MADGRAD", spec={"optimizer": OptimizerSettings(name=OptimizerName.MADGRAD, learning_rate=1e-3)}),
    Option(name="profiled", profiled_steps=1),
    Option(name="profiled, compiled", profiled_steps=1, layout=_COMPILED),
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Try all options or measure the layouts, write the table and print it."""
    parser = argparse.ArgumentParser(prog="python -m research.gpu_options", description="Try options on one GPU.")
    parser.add_argument("--alone", action="store_true", help="measure layouts one after the other")
    parser.add_argument("--output", type=Path, required=True, help="directory for options.csv or own_h200.csv")
    given = parser.parse_args(arguments)
    given.output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="autotuner-options-") as folder:
        (_measure_alone if given.alone else _try_all)(given.output, Path(folder))


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


# Every option once, several at a time.


def _try_all(output: Path, folder: Path) -> None:
    with (output / "options.csv").open("w", newline="") as file, ThreadPoolExecutor(_AT_ONCE) as pool:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("option", "loss", "memory_gb", "failure"))
        for option, outcome in zip(_OPTIONS, pool.map(partial(_outcome, folder=folder), _OPTIONS), strict=True):
            cells = (option.name, *_cells(outcome))
            writer.writerow(cells)
            file.flush()
            _say(f"{cells[0]:32} {cells[1]:>9} {cells[2]:>8} {cells[3][-1500:]}")


def _outcome(option: Option, *, folder: Path) -> Outcome:
    layout = {"micro_batch_size": 2, "attention_kernel": AttentionKernel.FLASH, "precision": Precision.BF16}
    settings = TrialSettings(timeout_s=240.0).just_steps(_NUM_STEPS)
    spec = TrialSpec(
        trial_id=option.name.replace(" ", "-").replace(",", ""),
        model=_MODEL,
        workload=_WORKLOAD,
        layout=Layout(**{**layout, **option.layout}),
        device="cuda",
        settings=replace(settings, profiled_steps=option.profiled_steps),
        reference_flop_per_s=1e12,
    )
    return _run(replace(spec, **option.spec), folder)


def _cells(outcome: Outcome) -> tuple[str, str, str]:
    match outcome:
        case Measurement():
            return f"{outcome.losses[-1]:.5f}", f"{max(outcome.peak_bytes) / 1e9:.3f}", ""
        case TrialFailure():
            return "", "", f"{outcome.kind}: {outcome.message} {outcome.log_tail}"
        case Stopped():
            return "", "", f"stopped: {outcome.detail}"


def _run(spec: TrialSpec, folder: Path) -> Outcome:
    # a launcher and a pool of devices for each trial: trials of one pool would wait for the GPU
    launcher = LocalLauncher(folder, devices=DevicePool())
    try:
        return launcher.run(spec, _Quiet())
    finally:
        launcher.close()


# Layouts that are measured alone.


def _cases() -> Iterator[tuple[TransformerSpec, Workload, Layout]]:
    """Yield what is measured, the most telling first."""
    short, long = Workload(seq_len=2048, global_batch_size=16), Workload(seq_len=8192, global_batch_size=4)
    flash = {"attention_kernel": AttentionKernel.FLASH}
    fp8, rowwise = {**_CUDNN, **_FP8}, {**_CUDNN, **_ROWWISE}
    of_one_b: tuple[dict[str, Any], ...] = (
        {**_CUDNN, **_COMPILED},
        {**fp8, **_COMPILED},
        _CUDNN,
        flash,
        {**_CUDNN, **_SELECTIVE},
        {**_CUDNN, **_FULL},
        {**_CUDNN, "micro_batch_size": 1},
        {**_CUDNN, "micro_batch_size": 8},
        fp8,
        rowwise,
        {**_CUDNN, "optimizer_kernel": OptimizerKernel.FOREACH},
        {**_CUDNN, **_ON_HOST},
        {**_CUDNN, "fused_norm": True},
        _FLEX,
        {**_MATH, "micro_batch_size": 1},
        {**_CUDNN, "micro_batch_size": 16},
        {**_CUDNN, **_COMPILED, **_SELECTIVE},
        {**rowwise, **_COMPILED},
        {**_CUDNN, **_COMPILED, **_FULL},
        {**flash, **_COMPILED},
    )
    for options in of_one_b:
        yield ONE_B, short, _bf16(**{"micro_batch_size": 4, **options})
    sparse = replace(
        ONE_B, name="Llama-MoE", experts=MixtureOfExperts(num_experts=8, experts_per_token=2, expert_ffn_size=4096)
    )
    yield sparse, short, _bf16(micro_batch_size=4, **_CUDNN)
    yield ONE_B, long, _bf16(**_COMPILED, **_CUDNN)
    yield ONE_B, long, _bf16(**flash)
    yield THREE_B, Workload(seq_len=4096, global_batch_size=8), _bf16(micro_batch_size=2, **_COMPILED, **_CUDNN)
    yield THREE_B, Workload(seq_len=4096, global_batch_size=8), _bf16(micro_batch_size=2, **_FULL, **_CUDNN)


def _bf16(**options: Any) -> Layout:
    return Layout(**{"precision": Precision.BF16, **options})


def _measure_alone(output: Path, folder: Path) -> None:
    """Measure layouts one after the other and write them after each, so that an interrupted call leaves results."""
    settings = TrialSettings(
        timeout_s=120.0, max_warmup_steps=5, max_measured_steps=12, measuring_budget_s=2.0, profiled_steps=0
    )
    launcher = LocalLauncher(folder, devices=DevicePool())
    rows: list[dict[str, Any]] = []
    for number, (model, workload, layout) in enumerate(_cases()):
        job = Job(model=model, cluster=one_gpu(), workload=workload)
        spec = TrialSpec(
            trial_id=f"alone-{number}",
            model=model,
            workload=workload,
            layout=layout,
            device="cuda",
            settings=settings,
            reference_flop_per_s=job.cluster.accelerator.bf16_flop_per_s,
        )
        outcome, predicted = launcher.run(spec, _Quiet()), predict_one(layout, job)
        found = outcome if isinstance(outcome, Measurement) else None
        if found or (isinstance(outcome, TrialFailure) and outcome.kind == "oom"):
            rows.append(row(job, layout, predicted, found))
            write(output / "own_h200.csv", rows)
        said = f"{found.step_time_s:.4f} s, MFU {100 * found.mfu:.1f} %" if found else f"{outcome!r}"[:400]
        _say(f"{model.name} {workload.seq_len} {layout}: predicted {predicted.step_time.total_s:.4f} s; {said}")
    launcher.close()


class _Quiet:
    """A watcher that asks for nothing."""

    def on_step(self, step: StepReport) -> None: ...
    def on_link_event(self, event: LinkEvent) -> None: ...
    def on_note(self, note: str) -> None: ...
    def on_wait(self, reason: str | None) -> None: ...
    def on_run(self, run: FinishedRun) -> None: ...
    def on_job(self, job: EngineJob) -> None: ...
    def stop_requested(self) -> Stopped | None:
        return None


if __name__ == "__main__":
    main()
