"""The oracle of a dry run is the trial, and of a proxy trial its target: what ranks hold, compute and exchange."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autotuner.core.blocks import MixtureOfExperts
from autotuner.core.choices import AttentionKernel, GradientSync, PipelineSchedule, Precision, Recompute, ShardLevel
from autotuner.core.codec import dumps, loads
from autotuner.core.dry_run import DryRun, DryRunRequest, RankDryRun
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.model import TransformerSpec
from autotuner.core.stages import stage_layers
from autotuner.core.trial import ProxyTrial
from autotuner.core.trial_spec import TrialSpec
from autotuner.core.workload import Workload
from autotuner.search.sampler.proxy import proxy_trial
from autotuner.trials.dry_run.dry_run import Extrapolation, dry_run, run_rank
from tests.builders import cpu_cluster, cpu_layout, llama_70b, tiny_model
from tests.trials.fork_server import ForkServer
from tests.trials.specs import CONTEXT, ONE_STEP, PIPELINE, SEQUENCE, ddp, fsdp, hsdp, trial_spec, zero

# ---------------------------------------------------------------- dry run

TOLERANCE = 0.05
"""Gloo may free the copy that one collective made after the next has made its own, which is a layer here; where it
does not, both agree to the byte. 1.5 % at most were found."""

DENSE = tiny_model(hidden_size=128, num_heads=4, head_dim=32, ffn_size=384, vocab_size=1024)
"""Wide enough that tensors of one number, which the allocator rounds up, do not matter."""
SHALLOW = replace(DENSE, name="shallow", num_layers=1)
SPARSE = replace(
    DENSE, name="sparse", experts=MixtureOfExperts(num_experts=4, experts_per_token=2, expert_ffn_size=192)
)

TWO_STAGES: dict[str, Any] = {**PIPELINE, "virtual_stages_per_rank": 2}
DEMO: dict[str, Any] = {"gradient_sync": GradientSync.DEMO}
CHEAP = (
    (DENSE, fsdp(2, micro_batch_size=2, reshard_after_forward=True, attention_kernel=AttentionKernel.FLASH)),
    (DENSE, cpu_layout(**TWO_STAGES, micro_batch_size=2, pipeline_schedule=PipelineSchedule.INTERLEAVED_1F1B)),
    (replace(SPARSE, num_layers=2), cpu_layout(micro_batch_size=4)),
)
OTHERS = (
    (DENSE, cpu_layout(micro_batch_size=2, recompute=Recompute.FULL, precision=Precision.BF16)),
    (DENSE, cpu_layout(micro_batch_size=4, attention_kernel=AttentionKernel.FLASH)),
    (DENSE, cpu_layout(micro_batch_size=4, precision=Precision.FP8_EMULATED)),
    (DENSE, ddp(2, micro_batch_size=2)),
    (DENSE, ddp(2, **DEMO, micro_batch_size=2)),
    (DENSE, ddp(2, gradient_sync=GradientSync.RANDOM, sync_sign=False, micro_batch_size=2)),
    (DENSE, hsdp(2, 2, gradient_sync=GradientSync.DILOCO, micro_batch_size=1)),
    (DENSE, zero(2, micro_batch_size=2)),
    (DENSE, fsdp(2, micro_batch_size=2, precision=Precision.BF16)),
    (DENSE, cpu_layout(**SEQUENCE, micro_batch_size=2)),
    (DENSE, cpu_layout(**CONTEXT, micro_batch_size=2, attention_kernel=AttentionKernel.FLASH)),
    (DENSE, cpu_layout(**PIPELINE, micro_batch_size=1)),
    (DENSE, fsdp(2, **PIPELINE, micro_batch_size=1, pipeline_schedule=PipelineSchedule.GPIPE)),
    (DENSE, cpu_layout(**TWO_STAGES, micro_batch_size=2, pipeline_schedule=PipelineSchedule.ZERO_BUBBLE)),
    (DENSE, cpu_layout(**TWO_STAGES, micro_batch_size=2, pipeline_schedule=PipelineSchedule.ZBV)),
    (DENSE, cpu_layout(**TWO_STAGES, micro_batch_size=1, pipeline_schedule=PipelineSchedule.DUALPIPEV)),
)


def wide(layout: Layout, model: TransformerSpec = DENSE) -> TrialSpec:
    """A step of four sequences."""
    workload = Workload(seq_len=128, global_batch_size=4)
    return trial_spec(layout, model=model, workload=workload, settings=ONE_STEP)


def full_size(layout: Layout) -> TrialSpec:
    """A step of Llama 3 70 B."""
    return TrialSpec(
        trial_id="full",
        model=llama_70b(),
        workload=Workload(seq_len=8192, global_batch_size=8),
        layout=layout,
        device="cuda",
    )


@pytest.fixture(scope="module", autouse=True)
def warm() -> None:
    """What torch works out once per process is there before dry runs are forked from this one."""
    run_rank(wide(cpu_layout(micro_batch_size=4), SHALLOW), 0)


def alone(spec: TrialSpec) -> RankDryRun:
    """The first rank, with nothing left out."""
    return dry_run(DryRunRequest(spec=spec, ranks=(0,), exact=True)).fullest


def peaks(spec: TrialSpec, fork_server: ForkServer, folder: Path) -> tuple[list[float], list[float]]:
    """Peaks of every rank: as found by a dry run, and as measured by a trial."""
    measured = fork_server.run(spec, folder).measurement.peak_bytes
    answer = dry_run(DryRunRequest(spec=spec, ranks=tuple(range(spec.layout.world_size)), exact=True))
    return [rank.held.peak_bytes for rank in answer.ranks], list(measured)


@pytest.mark.parametrize(
    ("model", "layout"),
    [*CHEAP, *(pytest.param(*job, marks=pytest.mark.oracle) for job in OTHERS)],
    ids=lambda value: value.name if isinstance(value, TransformerSpec) else str(value),
)
def test_the_peak_is_that_of_the_real_trial_on_every_rank(
    model: TransformerSpec, layout: Layout, fork_server: ForkServer, tmp_path: Path
) -> None:
    found, measured = peaks(wide(layout, model), fork_server, tmp_path)
    assert found == pytest.approx(measured, rel=TOLERANCE)


@pytest.mark.oracle
def test_ranks_of_experts_hold_together_what_those_of_the_real_trial_hold(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    layout = fsdp(2, expert_parallel_degree=2, micro_batch_size=2)
    found, measured = peaks(wide(layout, SPARSE), fork_server, tmp_path)
    # which of them gets more tokens is for the router to choose, by values that a dry run does not have
    assert sum(found) == pytest.approx(sum(measured), rel=TOLERANCE)


def test_parameters_and_optimizer_are_the_bytes_of_the_model() -> None:
    spec = wide(cpu_layout(micro_batch_size=2, precision=Precision.BF16), SHALLOW)
    held, num_parameters = alone(spec).held, spec.model.num_parameters
    assert held.parameters_bytes == 2 * num_parameters
    assert held.gradients_bytes == 2 * num_parameters
    # a master and two moments; each parameter's count of steps is one number more
    assert held.optimizer_bytes == pytest.approx(12 * num_parameters, rel=1e-3)
    assert held.gathered_bytes == 0


@pytest.mark.parametrize(("precision", "num_bytes"), [(Precision.FP32, 4), (Precision.BF16, 2)])
def test_zero_1_splits_the_optimizer_and_neither_parameters_nor_gradients(precision: Precision, num_bytes: int) -> None:
    spec = wide(zero(2, micro_batch_size=1, precision=precision), SHALLOW)
    held, num_parameters = alone(spec).held, spec.model.num_parameters
    assert held.parameters_bytes == num_bytes * num_parameters
    assert held.gradients_bytes == num_bytes * num_parameters  # of two micro-batches, the second one under way
    # two moments, and a master where the parameters are not fp32
    optimizer_bytes = (8 if precision == Precision.FP32 else 12) * num_parameters / 2
    assert held.optimizer_bytes == pytest.approx(optimizer_bytes, rel=1e-3)  # and the counts of steps


@pytest.mark.parametrize(
    ("exchange", "num_values"),
    [
        (DEMO, 1),  # the momentum, and a cosine basis; sign descent has no moments
        ({**DEMO, "sync_sign": False}, 3),
        ({"gradient_sync": GradientSync.DILOCO}, 3),  # anchors and moments
    ],
)
def test_the_state_of_an_exchange_counts_as_optimizer_memory(exchange: dict[str, Any], num_values: int) -> None:
    spec = wide(ddp(2, **exchange, micro_batch_size=2), SHALLOW)
    held, num_parameters = alone(spec).held, spec.model.num_parameters
    basis = 64 * 64 if exchange["gradient_sync"] is GradientSync.DEMO else 0
    # chunks are filled up, and counts of steps are a number more per parameter
    assert held.optimizer_bytes == pytest.approx(4 * (num_values * num_parameters + basis), rel=1e-3)


def test_the_buffers_of_a_reduction_count_as_gradients() -> None:
    # one micro-batch of few tokens: most is held while the one bucket is reduced
    spec = wide(zero(4, micro_batch_size=1), SHALLOW)
    held, num_parameters = alone(spec).held, spec.model.num_parameters
    # its own, the flat copy, and the shard that is summed
    assert held.gradients_bytes == 4 * num_parameters * (1 + 1 + 1 / 4)
    assert held.activations_bytes < 1e4


@pytest.mark.oracle  # two long dry runs
def test_progress_is_reported_after_each_run() -> None:
    told: list[str] = []
    request = DryRunRequest(spec=wide(zero(2, micro_batch_size=2)), ranks=(0, 1), exact=True)
    dry_run(request, told.append)
    assert told == ["0 of 2 runs done", "1 of 2 runs done", "2 of 2 runs done"]


def test_flop_are_those_of_the_formula_where_nothing_is_recomputed() -> None:
    spec = wide(cpu_layout(micro_batch_size=4), SHALLOW)
    expected = spec.model.model_flop_per_token(spec.workload.seq_len) * spec.workload.tokens_per_step
    assert alone(spec).counts.flop == expected


def test_collectives_are_counted_with_the_bytes_of_the_whole_tensors() -> None:
    spec = wide(fsdp(2, micro_batch_size=2), SHALLOW)
    collectives = {c.kind: c for c in alone(spec).counts.collectives}
    # one micro-batch: every parameter is gathered once, and every gradient reduced
    assert collectives["all_gather"].num_bytes == 4 * spec.model.num_parameters
    assert collectives["reduce_scatter"].num_bytes == 4 * spec.model.num_parameters


def assert_few_tell_about_many(spec: TrialSpec) -> DryRun:
    """The extrapolation's answer, which is that of the whole job."""
    request = DryRunRequest(spec=spec, ranks=(0,))
    short, whole = dry_run(request), dry_run(replace(request, exact=True))
    assert (whole.layers_run, whole.micro_batches_run) == ((), ())
    few, all_of_them = short.fullest.counts, whole.fullest.counts
    assert (few.flop, few.num_operations, few.collectives) == (
        all_of_them.flop,
        all_of_them.num_operations,
        all_of_them.collectives,
    )
    assert few.moved_bytes == pytest.approx(all_of_them.moved_bytes, rel=1e-4)  # sums of rounded shares
    assert short.fullest.held.peak_bytes == pytest.approx(whole.fullest.held.peak_bytes, rel=1e-3)  # one straight line
    return short


@pytest.mark.parametrize(
    ("layout", "num_layers", "num_sequences", "layers_run", "micro_batches_run"),
    [
        (cpu_layout(micro_batch_size=4), 7, 4, (4, 6), ()),
        pytest.param(cpu_layout(**PIPELINE, micro_batch_size=1), 2, 5, (), (3, 4), marks=pytest.mark.oracle),
        pytest.param(
            fsdp(2, **SEQUENCE, **PIPELINE, micro_batch_size=1), 16, 12, (4, 6), (3, 4), marks=pytest.mark.oracle
        ),
    ],
    ids=["layers", "micro-batches", "both"],
)
def test_few_layers_and_micro_batches_predict_many(
    layout: Layout, num_layers: int, num_sequences: int, layers_run: Any, micro_batches_run: Any
) -> None:
    workload = Workload(seq_len=64, global_batch_size=num_sequences)
    spec = replace(wide(layout), model=tiny_model(num_layers=num_layers), workload=workload)
    short = assert_few_tell_about_many(spec)
    assert (short.layers_run, short.micro_batches_run) == (layers_run, micro_batches_run)


def test_seventy_billion_parameters_take_no_memory(fork_server: ForkServer, tmp_path: Path) -> None:
    """A run is forked, and what forks it must not hold gigabytes of other tests, as this process may."""
    layout = Layout(data_parallel_shard_degree=8, shard_level=ShardLevel.PARAMETERS)
    (tmp_path / "request.json").write_text(dumps(DryRunRequest(spec=full_size(layout), ranks=(0,))))
    asked = fork_server.have_done("tests.trials.rank_tasks:run_dry", tmp_path, 1)
    assert asked.exit_codes == (0,), asked.logs
    answer = loads(DryRun, (tmp_path / "answer.json").read_text())
    assert answer.fullest.held.peak_bytes > 140e9  # parameters, optimizer and gradients alone
    assert int((tmp_path / "taken").read_text()) < 2e9  # torch and the shapes of 80 layers take less than one


def test_offloaded_activations_are_held_by_a_cpu_and_not_by_a_device() -> None:
    layout = cpu_layout(micro_batch_size=4, offload_activations=True)
    # 1 MiB and more is what is offloaded
    workload = Workload(seq_len=512, global_batch_size=4)
    spec = replace(wide(layout, SHALLOW), workload=workload)
    on_cpu = dry_run(DryRunRequest(spec=spec, ranks=(0,)))
    off_device = dry_run(DryRunRequest(spec=replace(spec, device="cuda"), ranks=(0,)))
    assert off_device.fullest.held.activations_bytes < on_cpu.fullest.held.activations_bytes
    assert on_cpu.notes != off_device.notes


def test_options_that_need_another_device_are_replaced_with_a_note() -> None:
    spec = wide(cpu_layout(micro_batch_size=4, attention_kernel=AttentionKernel.CUDNN, compiled=True), SHALLOW)
    notes = dry_run(DryRunRequest(spec=spec, ranks=(0,), exact=True)).notes
    assert [note.split()[0] for note in notes] == ["attention", "nothing"]


# ---------------------------------------------------------------- extrapolate


def deep(num_layers: int, num_sequences: int, **layout: object) -> TrialSpec:
    return trial_spec(
        cpu_layout(**layout),
        model=tiny_model(num_layers=num_layers),
        workload=Workload(seq_len=32, global_batch_size=num_sequences),
    )


def test_small_models_and_exact_requests_run_whole() -> None:
    spec = deep(6, 3)
    extrapolation = Extrapolation.of(spec, exact=False)
    assert extrapolation.is_whole
    assert (extrapolation.specs(), extrapolation.weights()) == ([spec], [1.0])
    assert Extrapolation.of(deep(80, 100), exact=True).is_whole


def test_weights_give_back_what_is_linear_in_layers_and_micro_batches() -> None:
    extrapolation = Extrapolation.of(deep(40, 64, pipeline_parallel_degree=2), exact=False)
    sizes = [(spec.model.num_layers, spec.workload.global_batch_size) for spec in extrapolation.specs()]
    figures = [3 + 5 * layers + 7 * batch + 11 * layers * batch for layers, batch in sizes]
    total = sum(weight * figure for weight, figure in zip(extrapolation.weights(), figures, strict=True))
    assert total == 3 + 5 * 40 + 7 * 64 + 11 * 40 * 64


def test_unequal_stages_stay_as_unequal() -> None:
    spec = deep(41, 8, pipeline_parallel_degree=4, first_stage_less_layers=1, last_stage_less_layers=2)

    def sizes(of: TrialSpec) -> list[int]:
        return [len(stage_layers(of.layout, of.model.num_layers, stage)) for stage in range(4)]

    for smaller in Extrapolation.of(spec, exact=False).specs():
        fewer = sizes(spec)[1] - sizes(smaller)[1]
        assert fewer > 0
        assert sizes(smaller) == [size - fewer for size in sizes(spec)]


def test_recomputed_layers_keep_their_pattern() -> None:
    extrapolation = Extrapolation.of(deep(50, 2, recompute_every=3), exact=False)
    assert {layers % 3 for layers in extrapolation.layers} == {50 % 3}


def test_interleaved_micro_batches_come_in_rounds() -> None:
    layout = {
        "pipeline_parallel_degree": 4,
        "virtual_stages_per_rank": 2,
        "pipeline_schedule": PipelineSchedule.INTERLEAVED_1F1B,
    }
    assert Extrapolation.of(deep(64, 128, **layout), exact=False).micro_batches == (8, 12)


def test_the_batch_of_a_replica_is_what_shrinks() -> None:
    spec = deep(4, 64, data_parallel_replicate_degree=2, micro_batch_size=4)
    (first, second) = Extrapolation.of(spec, exact=False).specs()
    assert [first.workload.num_micro_batches(first.layout), second.workload.num_micro_batches(second.layout)] == [2, 3]
    assert replace(first, workload=spec.workload) == spec


# ---------------------------------------------------------------- proxy trials
MULTI_HEAD = tiny_model(num_kv_heads=4)
EIGHT_EXPERTS = replace(MULTI_HEAD, experts=MixtureOfExperts(num_experts=8, experts_per_token=2, expert_ffn_size=64))
"""As many experts as ranks: FSDP pads a router with fewer rows than it has shards, and gathers the padding, too."""
FOUR_STAGES: dict[str, Any] = {**PIPELINE, "pipeline_parallel_degree": 4}

WHOLE = (
    (MULTI_HEAD, ddp(8)),
    (MULTI_HEAD, ddp(4, tensor_parallel_degree=2, sequence_parallel=True)),
    (MULTI_HEAD, ddp(4, **PIPELINE)),
    (MULTI_HEAD, fsdp(8, reshard_after_forward=True, recompute=Recompute.FULL)),
    (MULTI_HEAD, fsdp(4, context_parallel_degree=2)),
    (EIGHT_EXPERTS, fsdp(8, expert_parallel_degree=2)),
)
"""Layouts of eight ranks whose trials on four keep every group but the replicas."""

SHORTER = (
    (MULTI_HEAD, ddp(2, **FOUR_STAGES)),
    (
        replace(MULTI_HEAD, num_layers=8),
        cpu_layout(
            **FOUR_STAGES,
            tensor_parallel_degree=2,
            virtual_stages_per_rank=2,
            pipeline_schedule=PipelineSchedule.INTERLEAVED_1F1B,
        ),
    ),
)
"""Layouts of eight ranks whose trials on four lose stages, too."""


def both(model: Any, layout: Layout) -> tuple[RankDryRun, RankDryRun]:
    """The first rank of the layout, and of the trial on four ranks that stands for it."""
    job = Job(model=model, cluster=cpu_cluster(8), workload=Workload(seq_len=32, global_batch_size=16))
    small = proxy_trial(job, layout, cpu_cluster(4))
    assert isinstance(small, ProxyTrial)
    assert small.num_ranks < layout.world_size
    return first_rank(job, layout), first_rank(small.job(job, cpu_cluster(4)), small.layout)


def first_rank(job: Job, layout: Layout) -> RankDryRun:
    spec = trial_spec(layout, model=job.model, workload=job.workload, settings=ONE_STEP)
    return dry_run(DryRunRequest(spec=spec, ranks=(0,), exact=True)).fullest


def exchanged(rank: RankDryRun) -> Mapping[str, tuple[float, float]]:
    return {one.kind: (one.num_calls, one.num_bytes) for one in rank.counts.collectives}


@pytest.mark.oracle
@pytest.mark.parametrize(("model", "layout"), WHOLE, ids=lambda one: str(one) if isinstance(one, Layout) else "")
def test_a_rank_computes_exchanges_and_holds_at_least_what_it_does_in_the_target(model: Any, layout: Layout) -> None:
    target, small = both(model, layout)
    assert small.counts.flop == target.counts.flop
    assert exchanged(small) == exchanged(target)
    for held in ("parameters_bytes", "optimizer_bytes", "peak_bytes"):  # no less of what is shared
        assert getattr(small.held, held) >= getattr(target.held, held), held


@pytest.mark.oracle
@pytest.mark.parametrize(("model", "layout"), SHORTER, ids=lambda one: str(one) if isinstance(one, Layout) else "")
def test_a_rank_of_a_shorter_pipeline_computes_and_sends_as_much(model: Any, layout: Layout) -> None:
    target, small = both(model, layout)
    assert small.counts.flop == target.counts.flop
    for kind in ("send", "receive"):
        assert exchanged(small).get(kind) == exchanged(target).get(kind)
