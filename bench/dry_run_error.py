"""How far dry runs are from the peaks of real trials, rank by rank.

``python -m bench.dry_run_error`` runs small layouts on gloo, one core per rank, and prints for each the highest peak of
its ranks as measured, and the relative error of every rank's dry run. Memory hardly depends on the machine's load.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from autotuner.core.blocks import MixtureOfExperts
from autotuner.core.choices import AttentionKernel, ContextExchange, PipelineSchedule, Precision, Recompute, ShardLevel
from autotuner.core.dry_run import DryRunRequest
from autotuner.core.errors import AutotunerError
from autotuner.core.layout import Layout
from autotuner.core.measurement import Measurement
from autotuner.core.model import TransformerSpec
from autotuner.core.trial_spec import TrialSettings, TrialSpec
from autotuner.core.units import format_bytes
from autotuner.core.workload import Workload
from autotuner.launch.exclusive import DevicePool
from autotuner.launch.local import LocalLauncher
from autotuner.launch.this_machine import dry_run
from bench.patient import Patient

MODEL = TransformerSpec(
    name="small",
    num_layers=8,
    hidden_size=256,
    num_heads=8,
    num_kv_heads=4,
    head_dim=32,
    ffn_size=704,
    vocab_size=1024,
)
SPARSE = replace(
    MODEL, name="sparse", experts=MixtureOfExperts(num_experts=4, experts_per_token=2, expert_ffn_size=352)
)
WORKLOAD = Workload(seq_len=128, global_batch_size=8)
SETTINGS = TrialSettings(
    warmup_steps=0, max_warmup_steps=1, measured_steps=1, max_measured_steps=1, profiled_steps=0, timeout_s=200.0
)

_PLAIN = Layout(precision=Precision.FP32, attention_kernel=AttentionKernel.FLASH, micro_batch_size=2)
_FSDP = replace(_PLAIN, data_parallel_shard_degree=2, shard_level=ShardLevel.PARAMETERS)
_TENSOR = replace(_PLAIN, tensor_parallel_degree=2, sequence_parallel=True)
_PIPELINE = replace(_PLAIN, pipeline_parallel_degree=2, micro_batch_size=1)
_SHARDED_PIPELINE = replace(_PIPELINE, data_parallel_shard_degree=2, shard_level=ShardLevel.PARAMETERS)

_TWO_STAGES = replace(_PIPELINE, virtual_stages_per_rank=2)
_CONTEXT = replace(_PLAIN, context_parallel_degree=2)

_DENSE_LAYOUTS = (
    _PLAIN,
    replace(_PLAIN, attention_kernel=AttentionKernel.MATH),
    replace(_PLAIN, precision=Precision.BF16, recompute=Recompute.FULL),
    replace(_PLAIN, precision=Precision.FP8_EMULATED),
    replace(_PLAIN, recompute=Recompute.SELECTIVE),
    replace(_PLAIN, data_parallel_replicate_degree=2),
    replace(_PLAIN, data_parallel_shard_degree=2, shard_level=ShardLevel.OPTIMIZER),
    replace(_FSDP, shard_level=ShardLevel.GRADIENTS),
    _FSDP,
    replace(_FSDP, precision=Precision.BF16),
    replace(_FSDP, reshard_after_forward=True),
    _TENSOR,
    replace(_TENSOR, sequence_parallel=False),
    *(replace(_CONTEXT, context_exchange=exchange) for exchange in ContextExchange),
    _PIPELINE,
    replace(_PIPELINE, pipeline_schedule=PipelineSchedule.GPIPE),
    replace(_PIPELINE, pipeline_schedule=PipelineSchedule.ZERO_BUBBLE),
    replace(_PIPELINE, data_parallel_shard_degree=2, shard_level=ShardLevel.OPTIMIZER),
    replace(_TWO_STAGES, pipeline_schedule=PipelineSchedule.INTERLEAVED_1F1B),
    replace(_TWO_STAGES, pipeline_schedule=PipelineSchedule.ZERO_BUBBLE),
    replace(_TWO_STAGES, pipeline_schedule=PipelineSchedule.ZBV),
    replace(_TWO_STAGES, pipeline_schedule=PipelineSchedule.DUALPIPEV),
    _SHARDED_PIPELINE,
    replace(_SHARDED_PIPELINE, tensor_parallel_degree=2, sequence_parallel=True),
)

JOBS = (
    *((MODEL, layout) for layout in _DENSE_LAYOUTS),
    (SPARSE, _PLAIN),
    (SPARSE, replace(_FSDP, expert_parallel_degree=2)),
    (SPARSE, replace(_TENSOR, expert_parallel_degree=2)),
)


def errors(
    jobs: Iterable[tuple[TransformerSpec, Layout]],
) -> Iterator[tuple[TrialSpec, Measurement, list[float]]]:
    """Each job that ran, its trial, and how far the dry run of each rank is off, as a share; others say why."""
    with tempfile.TemporaryDirectory(prefix="autotuner-dry-run-") as folder:
        launcher = LocalLauncher(Path(folder), devices=DevicePool.of_this_machine())
        for model, layout in jobs:
            spec = TrialSpec(
                trial_id="dry-run-error",
                model=model,
                workload=WORKLOAD,
                layout=layout,
                device="cpu",
                settings=SETTINGS,
                reference_flop_per_s=1e11,
            )
            outcome = launcher.run(spec, Patient())
            if not isinstance(outcome, Measurement):
                sys.stdout.write(f"{model.name} {layout}: the trial did not run: {outcome}\n")
                continue
            try:
                answer = dry_run(DryRunRequest(spec=spec, ranks=tuple(range(layout.world_size)), exact=True))
            except AutotunerError as error:
                sys.stdout.write(f"{model.name} {layout}: the dry run did not run: {error}\n")
                continue
            pairs = zip(answer.ranks, outcome.peak_bytes, strict=True)
            yield spec, outcome, [found.held.peak_bytes / measured - 1 for found, measured in pairs]
        launcher.close()


def main() -> None:
    """Print the table and its summary."""
    all_errors: list[float] = []
    for spec, trial, by_rank in errors(JOBS):
        all_errors += map(abs, by_rank)
        name = f"{spec.model.name} {spec.layout}"
        words = " ".join(f"{100 * error:+.1f}" for error in by_rank)
        sys.stdout.write(f"{name:60} {format_bytes(max(trial.peak_bytes)):>8}  error by rank in %: {words}\n")
        sys.stdout.flush()
    sys.stdout.write(
        f"{len(all_errors)} ranks: median error {100 * statistics.median(all_errors):.2f} %, "
        f"largest {100 * max(all_errors):.2f} %\n"
    )


if __name__ == "__main__":
    main()
