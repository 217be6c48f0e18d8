"""The profile of one GPU, and layouts of larger models that are measured on it one after the other.

``python -m research.h200_sweep --output DIRECTORY`` takes less than ten minutes and writes into the directory

* ``profile.json``: the profile (products, attention and memory, fp8 where the hardware has it), whose points calibrate
  the laws of ``catalog/kernels.toml``;
* ``own_h200.csv``: every run in the columns of ``tests/published``, with the prediction, device, versions and date.

It prints each measured step time beside the predictions by the catalog's constants and by the profile's.
"""

from __future__ import annotations

import argparse
import csv
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from autotuner.core.blocks import MixtureOfExperts
from autotuner.core.choices import NARROW_PRECISIONS, AttentionKernel, Fp8Recipe, OptimizerKernel, Precision, Recompute
from autotuner.core.cluster import Cluster
from autotuner.core.codec import dumps
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.measurement import Measurement
from autotuner.core.model import TransformerSpec
from autotuner.core.prediction import Prediction
from autotuner.core.profile import profiled
from autotuner.core.trial import Outcome, TrialFailure
from autotuner.core.trial_spec import TrialSettings, TrialSpec
from autotuner.core.workload import Workload
from autotuner.costmodel.predict import predict_one
from autotuner.launch.devices import DevicePool
from autotuner.launch.local import LocalLauncher
from autotuner.launch.this_machine import detect_cluster, profile_of
from research import say
from research.noise import Patient

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

# options of layouts, which are combined
COMPILED = {"compiled": True}
SELECTIVE = {"recompute": Recompute.SELECTIVE}
FULL = {"recompute": Recompute.FULL}
CUDNN = {"attention_kernel": AttentionKernel.CUDNN}
FLEX = {"attention_kernel": AttentionKernel.FLEX}
EFFICIENT = {"attention_kernel": AttentionKernel.EFFICIENT}
MATH = {"attention_kernel": AttentionKernel.MATH}
FP8 = {"precision": Precision.FP8}
ROWWISE = {**FP8, "fp8_recipe": Fp8Recipe.ROWWISE}
ON_HOST = {"offload_activations": True}

_SETTINGS = TrialSettings(
    timeout_s=120.0, max_warmup_steps=5, max_measured_steps=12, measuring_budget_s=2.0, profiled_steps=0
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Take the profile, measure the layouts, write both files and print the step times."""
    parser = argparse.ArgumentParser(prog="python -m research.h200_sweep", description="Profile and measure one GPU.")
    parser.add_argument("--output", type=Path, required=True, help="directory for own_h200.csv and profile.json")
    output = parser.parse_args(arguments).output
    output.mkdir(parents=True, exist_ok=True)
    cluster = one_gpu()
    profile = profile_of(cluster, name="sweep", measured_at=time.time())
    (output / "profile.json").write_text(dumps(profile) + "\n")
    say(f"profile: {profile.device}, bf16 {profile.bf16_flop_per_s:.3g} FLOP/s in its best product")
    with (
        tempfile.TemporaryDirectory(prefix="autotuner-sweep-") as folder,
        closing(LocalLauncher(Path(folder), devices=DevicePool())) as launcher,
    ):
        rows: list[dict[str, Any]] = []
        for model, workload, layout in _cases():
            by_catalog = Job(model=model, cluster=cluster, workload=workload)
            by_profile = replace(by_catalog, cluster=profiled(cluster, profile))
            outcome, predicted = _measured(launcher, by_catalog, layout), predict_one(layout, by_catalog)
            found = outcome if isinstance(outcome, Measurement) else None
            if found or (isinstance(outcome, TrialFailure) and outcome.kind == "oom"):
                rows.append(row(by_catalog, layout, predicted, found))
                write(output / "own_h200.csv", rows)  # after each run, so that an interrupted call leaves results
            profiled_s = predict_one(layout, by_profile).step_time.total_s
            said = f"{found.step_time_s:.4f} s, MFU {100 * found.mfu:.1f} %" if found else f"{outcome!r}"[:400]
            say(
                f"{model.name} {workload.seq_len} {layout}: {said}; predicted {predicted.step_time.total_s:.4f} s by "
                f"the catalog, {profiled_s:.4f} s by the profile"
            )


def _measured(launcher: LocalLauncher, job: Job, layout: Layout) -> Outcome:
    spec = TrialSpec(
        trial_id="alone",
        model=job.model,
        workload=job.workload,
        layout=layout,
        device="cuda",
        settings=_SETTINGS,
        reference_flop_per_s=job.cluster.accelerator.bf16_flop_per_s,
    )
    return launcher.run(spec, Patient())


def _cases() -> Iterator[tuple[TransformerSpec, Workload, Layout]]:
    """Yield what is measured, the most telling first."""
    short, long = Workload(seq_len=2048, global_batch_size=16), Workload(seq_len=8192, global_batch_size=4)
    flash = {"attention_kernel": AttentionKernel.FLASH}
    fp8, rowwise = {**CUDNN, **FP8}, {**CUDNN, **ROWWISE}
    of_one_b: tuple[dict[str, Any], ...] = (
        {**CUDNN, **COMPILED},
        {**fp8, **COMPILED},
        CUDNN,
        flash,
        {**CUDNN, **SELECTIVE},
        {**CUDNN, **FULL},
        {**CUDNN, "micro_batch_size": 1},
        {**CUDNN, "micro_batch_size": 8},
        fp8,
        rowwise,
        {**CUDNN, "optimizer_kernel": OptimizerKernel.FOREACH},
        {**CUDNN, **ON_HOST},
        {**CUDNN, "fused_norm": True},
        FLEX,
        {**MATH, "micro_batch_size": 1},
        {**CUDNN, "micro_batch_size": 16},
        {**CUDNN, **COMPILED, **SELECTIVE},
        {**rowwise, **COMPILED},
        {**CUDNN, **COMPILED, **FULL},
        {**flash, **COMPILED},
    )
    for options in of_one_b:
        yield ONE_B, short, _bf16(**{"micro_batch_size": 4, **options})
    sparse = replace(
        ONE_B, name="Llama-MoE", experts=MixtureOfExperts(num_experts=8, experts_per_token=2, expert_ffn_size=4096)
    )
    yield sparse, short, _bf16(micro_batch_size=4, **CUDNN)
    yield ONE_B, long, _bf16(**COMPILED, **CUDNN)
    yield ONE_B, long, _bf16(**flash)
    yield THREE_B, Workload(seq_len=4096, global_batch_size=8), _bf16(micro_batch_size=2, **COMPILED, **CUDNN)
    yield THREE_B, Workload(seq_len=4096, global_batch_size=8), _bf16(micro_batch_size=2, **FULL, **CUDNN)


def _bf16(**options: Any) -> Layout:
    return Layout(**{"precision": Precision.BF16, **options})


def one_gpu() -> Cluster:
    """Return the first GPU of this machine as a cluster."""
    return replace(detect_cluster(), name="one", accelerators_per_node=1)


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


if __name__ == "__main__":
    main()
