"""A real sweep of one accelerator, with its profile, in a single call of less than ten minutes.

``python -m research.h200_sweep --output DIRECTORY`` takes the device profile (products, attention and memory, fp8 where
the hardware has it), sweeps a model of 1.5 billion parameters at sequences of 2k over micro-batch size, recomputation,
attention kernel, precision and compilation, and writes into the directory

* ``own_h200.csv``: every trial in the columns of ``tests/published``, with the prediction, device, versions and date;
* ``profile.json``: the profile, whose points calibrate the laws of ``catalog/kernels.toml``;

and prints predicted beside measured, by the catalog's constants and by the profile's, and the best MFU of each sweep.
``--device cpu`` does the same on one core, with smaller sizes.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from autotuner.catalog.hardware import load_cluster
from autotuner.core.choices import NARROW_PRECISIONS, AttentionKernel, Precision, Recompute
from autotuner.core.cluster import Cluster
from autotuner.core.codec import dumps
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.measurement import Measurement
from autotuner.core.model import TransformerSpec
from autotuner.core.prediction import Prediction
from autotuner.core.profile import profiled
from autotuner.core.rules.legality import RULES, reasons
from autotuner.core.space import SearchSpace
from autotuner.core.sweep import Budget, SweepRequest
from autotuner.core.trial import Trial, TrialState
from autotuner.core.trial_spec import TrialSettings
from autotuner.core.workload import Workload
from autotuner.costmodel.predict import predict_one
from autotuner.launch.this_machine import detect_cluster, profile_of
from autotuner.runs.sweep_trials import sweep_kind
from autotuner.runs.worker import Worker
from autotuner.service.build import App, build
from autotuner.service.settings import Settings
from autotuner.store.options import Page
from autotuner.store.sql import memory_store

_LARGEST_PAGE = 500

ONE_B = TransformerSpec(
    name="Llama-1.5B",
    num_layers=16,
    hidden_size=2048,
    num_heads=32,
    num_kv_heads=8,
    head_dim=64,
    ffn_size=8192,
    vocab_size=128256,
)
"""Shapes of Llama 3.2 1B (its config.json, 2024-09), with tables of its own at both ends."""

THREE_B = replace(ONE_B, name="Llama-3.6B", num_layers=28, hidden_size=3072, num_heads=24, head_dim=128)
"""Shapes of Llama 3.2 3B, with tables of its own at both ends."""

TINY = TransformerSpec(
    name="Llama-tiny",
    num_layers=2,
    hidden_size=64,
    num_heads=4,
    num_kv_heads=2,
    head_dim=16,
    ffn_size=128,
    vocab_size=256,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The models and settings that are measured on one kind of device."""

    models: tuple[tuple[TransformerSpec, Workload], ...]
    space: SearchSpace
    budget: Budget
    settings: TrialSettings
    quick_profile: bool


GPU = Plan(
    models=((ONE_B, Workload(seq_len=2048, global_batch_size=16)),),
    space=SearchSpace(
        micro_batch_size=(1, 2, 4, 8),
        recompute=(Recompute.NONE, Recompute.SELECTIVE, Recompute.FULL),
        attention_kernel=(AttentionKernel.FLASH, AttentionKernel.CUDNN),
        precision=(Precision.BF16, Precision.FP8),
        compiled=(False, True),
    ),
    # compiling takes up to 40 s: three sweeps of 100 s measured one layout each
    budget=Budget(num_trials=40, wall_clock_s=360.0, prune_below=0.0, min_gain=0.0),
    settings=TrialSettings(measuring_budget_s=3.0, timeout_s=90.0, profiled_steps=0, max_repeats=0),
    quick_profile=False,
)

CPU = Plan(
    models=((TINY, Workload(seq_len=64, global_batch_size=4)),),
    space=SearchSpace(
        micro_batch_size=(1, 2),
        recompute=(Recompute.NONE, Recompute.FULL),
        attention_kernel=(AttentionKernel.MATH, AttentionKernel.FLASH),
        precision=(Precision.FP32, Precision.BF16),
    ),
    budget=Budget(num_trials=3, wall_clock_s=300.0, prune_below=0.0, min_gain=0.0),
    settings=TrialSettings(
        warmup_steps=1, measured_steps=2, max_measured_steps=2, timeout_s=120.0, profiled_steps=0, max_repeats=0
    ),
    quick_profile=True,
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Take the profile, run the sweeps, write the files and print the tables."""
    parser = argparse.ArgumentParser(prog="python -m research.h200_sweep", description="Profile and sweep one device.")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--output", type=Path, required=True, help="directory for own_h200.csv and profile.json")
    given = parser.parse_args(arguments)
    plan, cluster = (GPU, one_gpu()) if given.device == "cuda" else (CPU, load_cluster("cpu:1x1"))
    given.output.mkdir(parents=True, exist_ok=True)
    profile = profile_of(cluster, name="sweep", measured_at=time.time(), quick=plan.quick_profile)
    (given.output / "profile.json").write_text(dumps(profile) + "\n")
    _say(f"profile: {profile.device}, bf16 {profile.bf16_flop_per_s:.3g} FLOP/s in its best product")
    rows: list[dict[str, Any]] = []
    for model, workload in plan.models:
        job = Job(model=model, cluster=profiled(cluster, profile), workload=workload)
        trials = _swept(SweepRequest(job=job, space=plan.space, budget=plan.budget, trial=plan.settings))
        rows += [row(job, one.layout, one.prediction, one.measurement) for one in trials if _is_told(one)]
        write(given.output / "own_h200.csv", rows)  # after each sweep, so that an interrupted call leaves results
        _print(job, replace(job, cluster=cluster), trials)


def one_gpu() -> Cluster:
    """Return the first GPU of this machine as a cluster."""
    return replace(detect_cluster(), name="one", accelerators_per_node=1)


def _swept(request: SweepRequest) -> list[Trial]:
    """Run one sweep as the service does, and return all its trials."""
    with tempfile.TemporaryDirectory(prefix="autotuner-sweep-") as folder:
        settings = Settings(num_workers=0, log_level="warning", work_dir=Path(folder))
        application = build(settings, store=memory_store())
        try:
            return _run(application, request)
        finally:
            application.close()


def _run(application: App, request: SweepRequest) -> list[Trial]:
    sweep, _ = application.start(request)
    store = application.store
    kinds, lease_s = {"sweep": sweep_kind(store, application.launcher)}, application.settings.lease_s
    Worker(
        store.runs, kinds, application.clock, owner="research", lease_s=lease_s, shutdown=threading.Event()
    ).run_once()
    trials, _ = store.list_trials(sweep.id, page=Page(limit=_LARGEST_PAGE))
    return list(trials)


def _is_told(trial: Trial) -> bool:
    """Return True if the trial was measured or ran out of memory, since other outcomes say nothing about the layout."""
    return trial.measurement is not None or (trial.failure is not None and trial.failure.kind == "oom")


def row(job: Job, layout: Layout, predicted: Prediction, found: Measurement | None) -> dict[str, Any]:
    """Return a row in the columns of the published tables, followed by columns that only our own runs have.

    ``found`` is None if the layout ran out of memory.
    """
    model = job.model
    environment = found.environment if found else {}
    return {
        "source": "own measurement, research/h200_sweep.py",
        "model": model.name,
        "params_b": round(model.num_parameters / 1e9, 6),
        "layers": model.num_layers,
        "hidden": model.hidden_size,
        "heads": model.num_heads,
        "kv_heads": model.num_kv_heads,
        "head_dim": model.head_dim,
        "ffn": model.ffn_size,
        "vocab": model.vocab_size,
        "seq_len": job.workload.seq_len,
        "gpu": job.cluster.accelerator.name,
        "num_gpus": layout.world_size,
        "global_batch": job.workload.global_batch_size,
        "micro_batch": layout.micro_batch_size,
        "tp": 1,
        "pp": 1,
        "dp": 1,
        "zero_or_fsdp": "none",
        "act_ckpt": layout.recompute.label,
        "recompute_every": layout.recompute_every,
        "attention": layout.attention_kernel.label,
        "precision": layout.precision.label,
        "fp8_recipe": layout.fp8_recipe.label if layout.precision in NARROW_PRECISIONS else "",
        "compiled": int(layout.compiled),
        "fused_norm": int(layout.fused_norm),
        "optimizer_kernel": layout.optimizer_kernel.label,
        "offload_activations": int(layout.offload_activations),
        "step_time_s": found.step_time_s if found else "",
        "tokens_per_s_per_gpu": found.tokens_per_s / layout.world_size if found else "",
        "compile_s": found.compile_s if found else "",
        "memory_gb": max(found.peak_bytes) / 1e9 if found else "",
        "oom": int(found is None),
        "predicted_step_time_s": predicted.step_time.total_s,
        "predicted_memory_gb": predicted.memory.total_bytes / 1e9,
        "device": environment.get("device", ""),
        "torch": environment.get("torch", ""),
        "cuda": environment.get("cuda", ""),
        "date": datetime.now(UTC).date().isoformat(),
    }


def write(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Write rows as a CSV file with a header; without rows, write no file."""
    if not rows:
        return
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def _print(job: Job, by_catalog: Job, trials: Sequence[Trial]) -> None:
    """Print each trial, the best first: measured, predicted with the profile, predicted with the catalog."""
    _say(f"\n{job.model.name}, {job.workload.global_batch_size} sequences of {job.workload.seq_len}")
    ranked = sorted(_measured(trials), key=lambda pair: pair[1].step_time_s)
    _say(f"{'layout':60} {'MFU':>7} {'step':>9} {'by profile':>11} {'by catalog':>11} {'memory':>9}")
    for trial, found in ranked:
        catalog_s = _predicted_s(by_catalog, trial)
        _say(
            f"{trial.layout!s:60} {100 * found.mfu:6.1f}% {found.step_time_s:8.4f}s"
            f" {trial.prediction.step_time.total_s:10.4f}s {catalog_s:10.4f}s {max(found.peak_bytes) / 1e9:7.2f}GB"
        )
    for trial in trials:
        if trial.state != TrialState.COMPLETE:
            why = f"{trial.failure.kind}: {trial.failure.message}" if trial.failure else trial.state.value
            _say(f"{trial.layout!s:60} {why}")
    if ranked:
        _say(f"best MFU {100 * max(found.mfu for _, found in ranked):.1f} %; median error of the step time:")
        for words, times in (
            ("by the profile", [t.prediction.step_time.total_s for t, _ in ranked]),
            ("by the catalog", [_predicted_s(by_catalog, t) for t, _ in ranked]),
        ):
            errors = [abs(s / found.step_time_s - 1) for s, (_, found) in zip(times, ranked, strict=True)]
            _say(f"  {words}: {100 * statistics.median(errors):.1f} %")


def _measured(trials: Sequence[Trial]) -> Iterator[tuple[Trial, Measurement]]:
    for trial in trials:
        if trial.measurement is not None:
            yield trial, trial.measurement


def _predicted_s(job: Job, trial: Trial) -> float:
    assert not reasons(trial.layout, job, RULES), "the catalog's device runs what the profiled one ran"
    return predict_one(trial.layout, job).step_time.total_s


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
