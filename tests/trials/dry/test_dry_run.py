"""The oracle of a dry run is the trial: what its ranks held at their peak, and what torch counts in a real step."""

from __future__ import annotations

import resource
from dataclasses import replace
from pathlib import Path

import pytest

from autotuner.domain.choice import AttentionKernel, PipelineSchedule, Precision, Recompute, ShardLevel
from autotuner.domain.dry_run import DryRunRequest, RankDryRun, telling_ranks
from autotuner.domain.layout import Layout
from autotuner.domain.trial import TrialSpec
from autotuner.domain.workload import Workload
from tests.builders import cpu_layout, llama_70b, tiny_model
from tests.trials.specs import fsdp, trial_spec
from tests.trials.zygote import Zygote
from trials.dry.dry_run import dry_run

TOLERANCE = 0.05
"""The issue's: kernels take workspaces that no operation returns, and gloo stages what it sends."""

LAYOUTS = (
    cpu_layout(micro_batch_size=2),
    cpu_layout(micro_batch_size=2, recompute=Recompute.FULL, precision=Precision.BF16),
    cpu_layout(data_parallel_replicate_degree=2, micro_batch_size=2),
    fsdp(2, micro_batch_size=2, precision=Precision.BF16),
    cpu_layout(micro_batch_size=4, attention_kernel=AttentionKernel.FLASH),
    cpu_layout(tensor_parallel_degree=2, sequence_parallel=True, micro_batch_size=2),
    cpu_layout(pipeline_parallel_degree=2, micro_batch_size=1),
    fsdp(2, pipeline_parallel_degree=2, micro_batch_size=1, pipeline_schedule=PipelineSchedule.GPIPE),
)


def wide(layout: Layout) -> TrialSpec:
    """Wide enough that tensors of one number, which the allocator rounds up, do not matter."""
    model = tiny_model(hidden_size=128, num_heads=4, head_dim=32, ffn_size=384, vocab_size=1024)
    return trial_spec(layout, model=model, workload=Workload(seq_len=64, global_batch_size=8))


def full_size(layout: Layout) -> TrialSpec:
    """A step of Llama 3 70 B with a few micro-batches."""
    return TrialSpec(
        trial_id="full",
        model=llama_70b(),
        workload=Workload(seq_len=8192, global_batch_size=8),
        layout=layout,
        device="cuda",
    )


def alone(spec: TrialSpec) -> RankDryRun:
    """The first rank, with nothing left out."""
    return dry_run(DryRunRequest(spec=spec, ranks=(0,), exact=True)).fullest


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_the_peak_is_that_of_the_real_trial_on_every_rank(layout: Layout, zygote: Zygote, tmp_path: Path) -> None:
    spec = wide(layout)
    measured = zygote.run(spec, tmp_path).measurement.peak_bytes
    answer = dry_run(DryRunRequest(spec=spec, ranks=tuple(range(layout.world_size)), exact=True))
    found = [rank.held.peak_bytes for rank in answer.ranks]
    assert found == pytest.approx(list(measured), rel=TOLERANCE)


def test_parameters_and_optimizer_are_the_bytes_of_the_model() -> None:
    spec = wide(cpu_layout(micro_batch_size=2, precision=Precision.BF16))
    held, num_parameters = alone(spec).held, spec.model.num_parameters
    assert held.parameters_bytes == 2 * num_parameters
    assert held.gradients_bytes == 2 * num_parameters
    # a master and two moments; each parameter's count of steps is one number more
    assert held.optimizer_bytes == pytest.approx(12 * num_parameters, rel=1e-3)
    assert held.gathered_bytes == 0


def test_flop_are_those_of_the_formula_where_nothing_is_recomputed() -> None:
    spec = wide(cpu_layout(micro_batch_size=2))
    expected = spec.model.model_flop_per_token(spec.workload.seq_len) * spec.workload.tokens_per_step
    assert alone(spec).counts.flop == expected


def test_collectives_are_counted_with_the_bytes_of_the_whole_tensors() -> None:
    spec = wide(fsdp(2, micro_batch_size=4))
    collectives = {c.kind: c for c in alone(spec).counts.collectives}
    # one micro-batch: every parameter is gathered once, and every gradient reduced
    assert collectives["all_gather"].num_bytes == 4 * spec.model.num_parameters
    assert collectives["reduce_scatter"].num_bytes == 4 * spec.model.num_parameters


def test_few_layers_and_micro_batches_tell_about_many() -> None:
    layout = fsdp(2, tensor_parallel_degree=2, sequence_parallel=True, pipeline_parallel_degree=2, micro_batch_size=1)
    workload = Workload(seq_len=64, global_batch_size=12)
    spec = replace(wide(layout), model=tiny_model(num_layers=16), workload=workload)
    request = DryRunRequest(spec=spec, ranks=(0,))
    short, whole = dry_run(request), dry_run(replace(request, exact=True))
    assert (short.layers_run, short.micro_batches_run) == ((4, 6), (3, 4))
    assert (whole.layers_run, whole.micro_batches_run) == ((), ())
    few, all_of_them = short.fullest.counts, whole.fullest.counts
    assert (few.flop, few.num_operations, few.collectives) == (
        all_of_them.flop,
        all_of_them.num_operations,
        all_of_them.collectives,
    )
    assert few.moved_bytes == pytest.approx(all_of_them.moved_bytes, rel=1e-4)  # sums of rounded shares
    assert short.fullest.held.peak_bytes == pytest.approx(whole.fullest.held.peak_bytes, rel=1e-3)  # one straight line


def test_seventy_billion_parameters_take_no_memory() -> None:
    layout = Layout(
        tensor_parallel_degree=8,
        sequence_parallel=True,
        pipeline_parallel_degree=4,
        data_parallel_shard_degree=2,
        shard_level=ShardLevel.PARAMETERS,
    )
    answer = dry_run(DryRunRequest(spec=full_size(layout), ranks=telling_ranks(layout)[:1]))
    assert answer.fullest.held.peak_bytes > 40e9  # parameters, optimizer and gradients alone
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024 < 2e9


def test_what_needs_a_device_is_replaced_and_said() -> None:
    spec = wide(cpu_layout(attention_kernel=AttentionKernel.CUDNN, compiled=True))
    notes = dry_run(DryRunRequest(spec=spec, ranks=(0,), exact=True)).notes
    assert [note.split()[0] for note in notes] == ["attention", "nothing"]
