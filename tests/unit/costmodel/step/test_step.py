"""Steps: data-parallel and planned pipelines, and totals of their parts."""

from __future__ import annotations

import random
from dataclasses import fields, replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotuner.core.choices import GradientClip, GradientSync, PipelineSchedule, ShardLevel
from autotuner.core.columns import LayoutColumns
from autotuner.core.job import Job
from autotuner.core.layout import OPTIONS, Layout
from autotuner.core.prediction import StepTime
from autotuner.core.stack import Stack
from autotuner.core.workload import Workload
from autotuner.costmodel.layer.model_work import ModelWork
from autotuner.costmodel.layer.work import Passes
from autotuner.costmodel.memory.peak import rank_memories
from autotuner.costmodel.predict import predict
from autotuner.costmodel.shared.stages import fullest_candidates, slowest_candidates
from autotuner.costmodel.shared.table import columns_of
from autotuner.costmodel.step.bubble import rank_bubble_s
from autotuner.costmodel.step.data_parallel import early_share
from autotuner.costmodel.step.planned import NOTICED, Planned
from autotuner.costmodel.step.rank_step import RANK_STEP_FIELDS, RankStep
from autotuner.costmodel.step.sends import Hops, StagePasses
from autotuner.schedules.planner import plan
from autotuner.schedules.simulate import PassTimes
from tests.builders import big_job, h100_cluster, llama_70b
from tests.pipelines import Case, draw, predicted_s, simulated_s
from tests.unit.costmodel.works import with_stack


# ---------------------------------------------------------------- planned
def planned(times: PassTimes, *, slack: int = 0, num_micro_batches: int = 1) -> Planned:
    passes = StagePasses(**{name: np.array([getattr(times, name)]) for name in ("forward_s", "input_s", "weight_s")})
    flies_s = np.array([(*times.send_s, 0.0)])
    nothing = np.zeros_like(flies_s)
    hops = Hops(blocks_s=nothing, flies_s=flies_s, receives_s=nothing, num_delegates=np.zeros(1, np.int64))
    return Planned.of(passes, hops, np.array([slack]), np.array([num_micro_batches]))


def step_s(times: PassTimes, num_micro_batches: int) -> float:
    form = planned(times, num_micro_batches=num_micro_batches)
    carried_s = np.zeros((1, len(times.send_s)))
    return float(form.step_s(np.array([num_micro_batches]), carried_s)[0])


@pytest.mark.parametrize(("delay_s", "published_s"), [(0.0, 930), (12, 942), (30, 960), (51, 981)])
def test_a_slow_link_costs_a_planned_pipeline_no_more_than_itself(delay_s: float, published_s: float) -> None:
    times = PassTimes(forward_s=(10,) * 4, input_s=(10,) * 4, weight_s=(10,) * 4, send_s=(0, 0, delay_s))
    assert step_s(times, 30) == published_s  # simulated by the authors of arXiv 2504.19232


def drawn_pipeline(source: random.Random) -> tuple[PassTimes, int]:
    p = source.choice((2, 4, 8))
    layers, slower, weight = source.choice((1.0, 2.0)), source.uniform(1, 2.2), source.uniform(0.5, 1)
    output = source.choice((0.0, source.random()))
    send_s = [0.01] * (p - 1)
    send_s[source.randrange(p - 1)] = source.choice((0.0, 0.5, 1, 2, 4))
    times = PassTimes(
        forward_s=(*(layers,) * (p - 1), layers + output),
        input_s=(*(slower * layers,) * (p - 1), slower * layers + output),
        weight_s=(*(weight * layers,) * (p - 1), weight * layers + output),
        send_s=tuple(send_s),
    )
    return times, p * source.choice((1, 2, 4))


def test_a_plan_is_off_by_few_percent_keeps_what_is_counted_and_warms_up_as_its_planner_says() -> None:
    source = random.Random(0)
    for _ in range(60):
        times, m = drawn_pipeline(source)
        best_s = plan(times, m).makespan_s
        # 250 were off by 0.4 % in the mean and 5.4 % at most; above where delays are too short to plan for
        assert best_s * 0.94 <= step_s(times, m) <= best_s * 1.03
    source = random.Random(1)
    for _ in range(20):
        times, m = drawn_pipeline(source)
        seen = replace(times, send_s=tuple(s if s > NOTICED * times.forward_s[0] else 0.0 for s in times.send_s))
        most = int(planned(times, num_micro_batches=m).warm_up[0, 0])
        assert max(plan(seen, m).schedule.peak_in_flight()) <= most
    times = PassTimes(forward_s=(10,) * 4, input_s=(10,) * 4, weight_s=(10,) * 4, send_s=(1, 4, 12))
    assert planned(times, num_micro_batches=30).warm_up.tolist() == [[9, 7, 5, 1]]
    assert planned(times, slack=1, num_micro_batches=30).warm_up.tolist() == [[12, 9, 6, 1]]
    assert planned(times, num_micro_batches=6).warm_up.tolist() == [[6, 6, 5, 1]]


# ---------------------------------------------------------------- data parallel
REPLICAS = Layout(data_parallel_replicate_degree=8)
ZERO_1 = Layout(data_parallel_shard_degree=8, shard_level=ShardLevel.OPTIMIZER)
MATRIX_BYTES = 2 * 1024 * 1024
"""The smallest matrix of the small model, in bf16."""


def small_job(**stack: float | bool) -> Job:
    """Matrices small enough to share a bucket, and too few tokens to hide all that is sent."""
    job = Job(
        model=llama_70b(num_layers=8, hidden_size=1024, num_heads=8, num_kv_heads=8, ffn_size=2048),
        cluster=h100_cluster(1),
        workload=Workload(seq_len=512, global_batch_size=8),
    )
    return with_stack(job, **stack)


def exposed_s(layout: Layout, job: Job | None = None) -> float:
    step = predict(LayoutColumns.from_layouts([layout]), job or small_job(overlaps_data_parallel=1.0)).step_time
    return float(step.data_communication_s[0])


def by_bucket(layout: Layout, *sizes: int) -> tuple[float, ...]:
    return tuple(exposed_s(replace(layout, gradient_bucket_bytes=size)) for size in sizes)


def test_the_best_bucket_is_neither_small_nor_all_unless_the_stack_has_none() -> None:
    # Small ones start a collective too often; one for all gradients starts when nothing is left to hide under.
    small, medium, whole = by_bucket(REPLICAS, MATRIX_BYTES, 64 * MATRIX_BYTES, 2**40)
    assert medium < small
    assert medium < whole
    small, whole = (
        exposed_s(replace(REPLICAS, gradient_bucket_bytes=2**n), small_job(fills_buckets=False)) for n in (16, 40)
    )
    assert small == whole
    # All their sizes gather the new parameters uncovered, in as many collectives.
    small, large = by_bucket(ZERO_1, MATRIX_BYTES, 64 * MATRIX_BYTES)
    assert large < small


@pytest.mark.parametrize("layout", [REPLICAS, ZERO_1], ids=str)
def test_a_bucket_holds_a_whole_matrix_at_least(layout: Layout) -> None:
    smaller, small, large = by_bucket(layout, 1, 2**10, 64 * MATRIX_BYTES)
    assert smaller == small != large


@pytest.mark.parametrize(
    "layout",
    [
        Layout.parse("dp4 pp2 v2 interleaved_1f1b"),
        replace(
            ZERO_1,
            data_parallel_shard_degree=4,
            pipeline_parallel_degree=2,
            virtual_stages_per_rank=2,
            pipeline_schedule=PipelineSchedule.INTERLEAVED_1F1B,
        ),
    ],
    ids=str,
)
def test_a_stage_that_reduces_all_its_buckets_together_gains_nothing_by_more_of_them(layout: Layout) -> None:
    """Further ones just take further starts, and hide no more."""
    times = by_bucket(layout, MATRIX_BYTES, 8 * MATRIX_BYTES, 64 * MATRIX_BYTES, 2**40)
    assert list(times) == sorted(times, reverse=True)
    assert times[0] > times[-1]


def test_replicas_of_more_stages_per_rank_hide_more_of_their_reductions() -> None:
    layout = Layout(
        data_parallel_replicate_degree=4,
        pipeline_parallel_degree=2,
        virtual_stages_per_rank=2,
        pipeline_schedule=PipelineSchedule.INTERLEAVED_1F1B,
        gradient_bucket_bytes=2**40,
    )
    assert exposed_s(replace(layout, virtual_stages_per_rank=4)) < exposed_s(layout)


@pytest.mark.parametrize("layout", [REPLICAS, ZERO_1], ids=str)
def test_clipping_whole_gradients_before_their_reduction_leaves_nothing_to_hide_it_under(layout: Layout) -> None:
    """Bucket by bucket it hides as much as behind the reduction."""
    hides, waits = small_job(overlaps_data_parallel=1.0), small_job(overlaps_data_parallel=0.0)
    post, pre, bucket = (exposed_s(replace(layout, gradient_clip=clip), hides) for clip in GradientClip)
    assert bucket == post < pre
    assert pre == exposed_s(layout, waits)


def test_all_parts_of_a_reduction_but_the_last_may_start_before_the_backward_pass_ends() -> None:
    """None of them where a norm, or a lossy exchange, waits for all gradients, or there is one replica."""

    def share(layout: Layout) -> float:
        job = replace(small_job(), cluster=h100_cluster(1))
        x = LayoutColumns.from_layouts([layout])
        window = RankStep.of(x, job, slowest_candidates(x, job), ModelWork.of(x, job).for_layouts(x)).window
        return float(early_share(x, job, window)[0])

    whole = replace(REPLICAS, gradient_bucket_bytes=2**40)
    assert share(REPLICAS) == share(replace(REPLICAS, gradient_clip=GradientClip.BUCKET)) > 0.5
    assert share(replace(REPLICAS, gradient_clip=GradientClip.PRE)) == share(whole) == 0.0
    assert share(replace(REPLICAS, gradient_sync=GradientSync.DEMO)) == 0.0
    assert share(Layout(tensor_parallel_degree=8)) == 0.0


@pytest.mark.parametrize("shard_level", list(ShardLevel))
def test_gradients_summed_in_fp32_travel_twice_as_wide(shard_level: ShardLevel) -> None:
    sharded = shard_level != ShardLevel.NONE
    layout = replace(
        REPLICAS,
        shard_level=shard_level,
        data_parallel_shard_degree=8 if sharded else 1,
        data_parallel_replicate_degree=1 if sharded else 8,
    )
    wide = replace(layout, fp32_gradient_reduce=True)
    assert exposed_s(wide) > exposed_s(layout)
    job = replace(small_job(), stack=Stack(allocates_gradients=True, fills_buckets=False))
    sizes = predict(LayoutColumns.from_layouts([layout, wide]), job).memory
    assert sizes.gradients_bytes[1] == 2 * sizes.gradients_bytes[0]


def test_a_pipeline_reduces_sharded_gradients_once_and_gathers_again_only_where_it_reshards() -> None:
    def seconds(*, pipeline: int, reshard: bool, global_batch_size: int) -> float:
        job = small_job(overlaps_data_parallel=0.0)
        job = replace(job, workload=replace(job.workload, global_batch_size=global_batch_size))
        sharded = Layout(
            data_parallel_shard_degree=8 // pipeline,
            pipeline_parallel_degree=pipeline,
            shard_level=ShardLevel.PARAMETERS,
            reshard_after_forward=reshard,
        )
        return exposed_s(sharded, job)

    def growth(*, pipeline: int, reshard: bool) -> float:
        """With twice the micro-batches."""
        once, twice = (seconds(pipeline=pipeline, reshard=reshard, global_batch_size=size) for size in (32, 64))
        return twice / once

    assert growth(pipeline=1, reshard=False) == pytest.approx(2.0)
    assert growth(pipeline=2, reshard=False) == pytest.approx(1.0)
    assert 1.5 < growth(pipeline=2, reshard=True) < 2.0  # all but one reduction


def test_the_step_is_the_sum_of_every_part_in_one_order_however_many_rows_there_are() -> None:
    parts = {f.name: np.array([2.0**place, 3.0**place]) for place, f in enumerate(fields(StepTime))}
    assert StepTime(**parts).total_s.tolist() == [2.0**13 - 1, (3.0**13 - 1) / 2]
    source = np.random.default_rng(0)
    parts = {f.name: source.random(1000) for f in fields(StepTime)}
    together = StepTime(**parts).total_s
    alone = StepTime(**{name: values[:1] for name, values in parts.items()}).total_s
    one = StepTime(**{name: float(values[0]) for name, values in parts.items()})
    assert together[0] == alone[0] == one.total_s
    assert {*RANK_STEP_FIELDS, *SHARED, *UPDATED} == {*OPTIONS, "data_parallel_degree", "pipeline_stride"}


SHARED = ("data_parallel_replicate_degree", "data_parallel_shard_degree", "shard_level", "reshard_after_forward")
"""How data-parallel ranks share the model."""

UPDATED = (
    "gradient_bucket_bytes",
    "optimizer_kernel",
    "optimizer_offload_percent",
    "gradient_sync",
    "sync_sparsity",
    "sync_chunk",
    "sync_top_k",
    "sync_period",
    "sync_sign",
    "sync_decay_permille",
    "payload_precision",
    "gradient_clip",
    "collective_hierarchy",
)
"""How gradients are reduced and what steps with them."""

LAYOUT = Layout(tensor_parallel_degree=4, pipeline_parallel_degree=4, data_parallel_replicate_degree=4)
SHARDED = [
    replace(
        LAYOUT,
        data_parallel_replicate_degree=replicate,
        data_parallel_shard_degree=4 // replicate,
        shard_level=level,
        reshard_after_forward=reshard,
    )
    for replicate, level, reshard in product((1, 2, 4), ShardLevel, (False, True))
]


def blocking_job() -> Job:
    """A stack that uses every choice it has."""
    stack = replace(big_job().stack, tensor_wait_s=1e-4, send_wait_s=1e-4, blocks_sends=True, gathers_logits=True)
    return replace(big_job(), stack=stack)


@pytest.mark.parametrize("job", [big_job(), blocking_job()])
def test_a_rank_computes_and_saves_the_same_with_every_way_to_share_the_model(job: Job) -> None:
    x = LayoutColumns.from_layouts(SHARDED)
    ranks = fullest_candidates(x, job)
    for table in (RankStep.of(x, job, ranks, ModelWork.of(x, job).for_layouts(x)), *rank_memories(x, job, ranks)):
        assert all((column == column[0]).all() for column in columns_of(table))


GPIPE, ONE_F_ONE_B, INTERLEAVED, ZERO_BUBBLE, ZBV, DUALPIPEV, ADAPTIVE = PipelineSchedule


SIMULATED = tuple(schedule for schedule in PipelineSchedule if schedule not in (DUALPIPEV, ADAPTIVE))
"""The simulator runs a pair of passes that DualPipe overlaps one after the other: see test_zero_bubble. The adaptive
schedule is planned from the times of its stages."""


@given(
    schedule=st.sampled_from(SIMULATED),
    p=st.integers(2, 6),
    rounds=st.integers(2, 5),
    forward=st.floats(1, 30),
    slower=st.floats(1.0, 2.2),
    weight=st.floats(0.1, 1.0),
    send=st.sampled_from((0.0, 0.01)),
)
def test_equal_ranks_wait_exactly_as_long_as_in_the_simulator(
    schedule: PipelineSchedule, p: int, rounds: int, forward: float, slower: float, weight: float, send: float
) -> None:
    stages = {INTERLEAVED: 3, ZBV: 2}.get(schedule, 1)
    times = PassTimes.equal(p * stages, forward, slower * forward, weight * forward, send_s=send * forward)
    case = Case(
        pipeline_schedule=schedule, num_ranks=p, stages_per_rank=stages, num_micro_batches=rounds * p, times=times
    )
    # sums of floats in another order; nothing else differs
    assert predicted_s(case, blocking_sends=False) == pytest.approx(simulated_s(case, blocking_sends=False), rel=1e-12)


@pytest.mark.parametrize("blocking", [False, True])
@pytest.mark.parametrize("schedule", SIMULATED)
def test_unequal_ranks_and_slow_links_are_off_by_less_than_a_percent(
    schedule: PipelineSchedule, blocking: bool
) -> None:
    source = random.Random(0)
    cases = [draw(schedule, source) for _ in range(40)]
    errors = [
        abs(predicted_s(case, blocking_sends=blocking) / simulated_s(case, blocking_sends=blocking) - 1)
        for case in cases
    ]
    # 250 cases had means to 0.21 % and single cases to 5.4 %, where layers do not divide;
    # of a V 0.65 % and 10.6 %, where it has no more micro-batches than ranks
    assert np.mean(errors) < (0.008 if schedule == ZBV else 0.003)
    assert max(errors) < (0.11 if schedule == ZBV else 0.055)


STAGES = ((GPIPE, 1), (ONE_F_ONE_B, 1), (INTERLEAVED, 2), (ZERO_BUBBLE, 1), (ZERO_BUBBLE, 2), (ZBV, 2), (DUALPIPEV, 2))
"""Schedules and a number of stages per rank."""


def column(value: float, size: int) -> Passes:
    seconds = np.full(size, value)
    return Passes(forward_s=seconds, input_s=2 * seconds, weight_s=seconds)


def test_one_rank_waits_for_nobody_and_a_column_of_schedules_is_its_rows_one_by_one() -> None:
    x = LayoutColumns.from_layouts([Layout()])
    bubble = rank_bubble_s(x, np.array([8]), np.array([0]), column(1.0, 1), column(0.0, 1), np.array([1.0]))
    assert bubble.tolist() == [0.0]
    layouts = [
        Layout(pipeline_parallel_degree=p, pipeline_schedule=schedule, virtual_stages_per_rank=stages)
        for p in (2, 4)
        for schedule, stages in STAGES
    ]

    def bubbles(rows: list[Layout]) -> list[float]:
        x, size = LayoutColumns.from_layouts(rows), len(rows)
        last = x.pipeline_parallel_degree - 1
        others = column(1.0, size) * last.astype(np.float64)
        return list(rank_bubble_s(x, np.full(size, 8), last, column(1.5, size), others, np.full(size, 0.1)))

    assert bubbles(layouts) == [bubbles([layout])[0] for layout in layouts]
