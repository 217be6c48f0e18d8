"""Tries every option of a trial on one GPU.

``python -m research.gpu_options --output DIRECTORY`` trains a small model for the same few steps with one option
changed at a time, and writes ``options.csv``: the loss of the last step and the peak memory, or the failure. Several
trials share the GPU, so it writes no times. ``research/data/h200_options.csv`` is what it wrote on an H200.
"""

from __future__ import annotations

import argparse
import csv
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from autotuner.core.blocks import MixtureOfExperts
from autotuner.core.choices import AttentionKernel, OptimizerKernel, Precision
from autotuner.core.layout import Layout
from autotuner.core.measurement import Measurement
from autotuner.core.model import TransformerSpec
from autotuner.core.trial import Outcome, Stopped, TrialFailure
from autotuner.core.trial_spec import OptimizerName, OptimizerSettings, TrialSettings, TrialSpec
from autotuner.core.workload import LengthDistribution, Workload
from autotuner.launch.devices import DevicePool
from autotuner.launch.local import LocalLauncher
from research import say
from research.h200_sweep import COMPILED, CUDNN, EFFICIENT, FLEX, FP8, FULL, MATH, ON_HOST, ROWWISE, SELECTIVE
from research.noise import Patient

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


_OPTIONS = (
    Option(name="flash, bf16"),
    Option(name="math", layout=MATH),
    Option(name="efficient", layout=EFFICIENT, spec={"model": _ALL_HEADS}),
    Option(name="cudnn", layout=CUDNN),
    Option(name="flex", layout=FLEX),
    Option(name="fp32", layout={"precision": Precision.FP32, **MATH}),
    Option(name="fp8 tensorwise", layout=FP8),
    Option(name="fp8 rowwise", layout=ROWWISE),
    Option(name="fp8 tensorwise, compiled", layout={**FP8, **COMPILED}),
    Option(name="fp8 rowwise, compiled", layout={**ROWWISE, **COMPILED}),
    Option(name="fp8, compiled, selective", layout={**FP8, **COMPILED, **SELECTIVE}),
    Option(name="fp8 emulated", layout={"precision": Precision.FP8_EMULATED}),
    Option(name="compiled", layout=COMPILED),
    Option(name="compiled, cudnn", layout={**COMPILED, **CUDNN}),
    Option(name="compiled, flex", layout={**COMPILED, **FLEX}),
    Option(name="selective", layout=SELECTIVE),
    Option(name="selective, cudnn", layout={**SELECTIVE, **CUDNN}),
    Option(name="selective, flex", layout={**SELECTIVE, **FLEX}),
    Option(name="selective, compiled", layout={**SELECTIVE, **COMPILED}),
    Option(name="full", layout=FULL),
    Option(name="full, compiled", layout={**FULL, **COMPILED}),
    Option(name="full, every second layer", layout={**FULL, "recompute_every": 2}),
    Option(name="fused norm", layout={"fused_norm": True}),
    Option(name="foreach optimizer", layout={"optimizer_kernel": OptimizerKernel.FOREACH}),
    Option(name="activations on the host", layout=ON_HOST),
    Option(name="activations on the host, full", layout={**ON_HOST, **FULL}),
    Option(name="experts", spec={"model": _SPARSE}),
    Option(name="tied tables, norms of heads", spec={"model": replace(_MODEL, tied_embeddings=True, qk_norm=True)}),
    Option(name="lengths that differ", spec={"workload": _LENGTHS}),
    Option(name="lengths that differ, packed", spec={"workload": _LENGTHS}, layout={"sequence_packing": True}),
    Option(name="LAMB", spec={"optimizer": OptimizerSettings(name=OptimizerName.LAMB, learning_rate=1e-3)}),
    Option(name="MADGRAD", spec={"optimizer": OptimizerSettings(name=OptimizerName.MADGRAD, learning_rate=1e-3)}),
    Option(name="profiled", profiled_steps=1),
    Option(name="profiled, compiled", profiled_steps=1, layout=COMPILED),
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Try all options, several at a time, write the table and print it."""
    parser = argparse.ArgumentParser(prog="python -m research.gpu_options", description="Try options on one GPU.")
    parser.add_argument("--output", type=Path, required=True, help="directory for options.csv")
    output = parser.parse_args(arguments).output
    output.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="autotuner-options-") as folder,
        (output / "options.csv").open("w", newline="") as file,
        ThreadPoolExecutor(_AT_ONCE) as pool,
    ):
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("option", "loss", "memory_gb", "failure"))
        outcomes = pool.map(partial(_outcome, folder=Path(folder)), _OPTIONS)
        for option, outcome in zip(_OPTIONS, outcomes, strict=True):
            cells = (option.name, *_cells(outcome))
            writer.writerow(cells)
            file.flush()
            say(f"{cells[0]:32} {cells[1]:>9} {cells[2]:>8} {cells[3][-1500:]}")


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
    with closing(LocalLauncher(folder, devices=DevicePool())) as launcher:
        return launcher.run(spec, Patient())


if __name__ == "__main__":
    main()
