from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from autotuner.catalog.models import load_model
from autotuner.core.choices import (
    AttentionKernel,
    ContextExchange,
    GradientClip,
    GradientSync,
    PipelineSchedule,
    Precision,
    Recompute,
    ShardLevel,
)
from autotuner.core.columns import LayoutColumns
from autotuner.core.errors import InvalidInput
from autotuner.core.field_change import difference
from autotuner.core.job import Job
from autotuner.core.layout import OPTIONS, Layout
from autotuner.core.link import LinkHealth
from autotuner.core.rules.legality import IDLE_RULES, reasons
from autotuner.core.workload import Workload
from autotuner.costmodel.predict import predict_one
from autotuner.report.explanation import effect_in_words
from autotuner.report.words import changes_in_words
from autotuner.search.explain.choosable import Choosable, choices_of, what_if
from autotuner.search.explain.communication import rank_groups
from autotuner.search.results.pairs import MeasuredLayouts, PairEffect, pair_effects
from autotuner.search.space.moves import arrange, neighbours
from tests.builders import big_job, cpu_layout, present, tiny_job

# ---------------------------------------------------------------- neighbours
PLAIN = Layout(tensor_parallel_degree=4, data_parallel_replicate_degree=16)
PIPED = Layout.parse("fsdp8 tp2 pp4 v4 interleaved_1f1b mb2 sp reshard")


def changes(layout: Layout) -> set[str]:
    return {changes_in_words(difference(layout, after)) for after in neighbours(layout, big_job())}


@pytest.mark.parametrize("layout", [PLAIN, PIPED, Layout()])
def test_each_neighbour_comes_once_and_differs_in_neither_ranks_nor_number_format(layout: Layout) -> None:
    found = neighbours(layout, big_job())
    assert len(set(found)) == len(found)
    assert layout not in found
    assert {(after.world_size, after.precision) for after in found} == {(layout.world_size, layout.precision)}


AGAIN = replace(PLAIN, recompute=Recompute.FULL, recompute_every=2)
EVERYWHERE = replace(PLAIN, context_parallel_degree=2, compiled=True, sequence_parallel=True)
TO_NOBODY = ("sequence", "loss", "async", "exchange", "bucket")


@pytest.mark.parametrize(
    ("layout", "tried", "never"),
    [
        (PLAIN, {"tensor 4 → 2, replicate 16 → 32", "tensor 4 → 8, replicate 16 → 8"}, ("schedule",)),
        (PLAIN, {"tensor 4 → 2, pipeline 1 → 2", "pipeline 1 → 2, replicate 16 → 8"}, ("fewer layers", "interval")),
        (PLAIN, {f"sharding none → {level}" for level in ("optimizer", "gradients", "parameters")}, ()),
        (PIPED, {"tensor 2 → 4, shard 8 → 4", "micro-batch 2 → 1", "micro-batch 2 → 4"}, ()),
        (PIPED, {"stages per rank 4 → 2", "stages per rank 4 → 5"}, ()),  # of 20 layers per rank
        (
            PIPED,
            {f"stages per rank 4 → {n}, schedule interleaved 1f1b → {to}" for n, to in ((2, "zbv"), (1, "1f1b"))},
            (),
        ),
        (PIPED, {"sharding parameters → none, reshard after forward on → off", "reshard after forward on → off"}, ()),
        (PIPED, {"fewer layers on the first stage 0 → 1", "fewer layers on the last stage 0 → 1"}, ()),
        (replace(PIPED, last_stage_less_layers=2), {"fewer layers on the last stage 2 → 1"}, ()),
        (AGAIN, {"recompute interval 2 → 1", "recompute interval 2 → 4"}, ()),
        (AGAIN, {"recompute full → none, recompute interval 2 → 1"}, ()),
        (EVERYWHERE, {"loss parallel on → off", "async tensor parallel off → on"}, ()),
        (EVERYWHERE, {"context exchange ring → all gather", "context exchange ring → all to all"}, ()),
        (EVERYWHERE, {f"gradient bucket 26214400 → {size}" for size in (52428800, 13107200)}, ()),
        (Layout(), {"compiled off → on", "optimizer kernel fused → foreach", "activation offload off → on"}, TO_NOBODY),
    ],
)
def test_options_go_one_step_up_and_down_where_that_says_more(
    layout: Layout, tried: set[str], never: tuple[str, ...]
) -> None:
    found = changes(layout)
    assert tried <= found
    assert not [change for change in found if any(word in change for word in never)]


def test_ranks_that_move_keep_replicas_whole_and_take_with_them_what_one_of_a_kind_cannot_have() -> None:
    moved = [after for after in neighbours(PLAIN, big_job()) if after.tensor_parallel_degree != 4]
    assert {after.shard_level for after in moved} == {ShardLevel.NONE}
    alone = replace(PIPED, pipeline_parallel_degree=2, data_parallel_shard_degree=2)
    for after in neighbours(alone, big_job()):
        assert after.tensor_parallel_degree > 1 or not after.sequence_parallel
        assert after.pipeline_parallel_degree > 1 or after.pipeline_schedule == PipelineSchedule.ONE_F_ONE_B
        has_shards = after.data_parallel_shard_degree * after.context_parallel_degree > 1
        assert has_shards == (after.shard_level != ShardLevel.NONE)


def test_kernels_and_recomputations_are_those_that_the_accelerator_has() -> None:
    found = neighbours(PLAIN, big_job())
    assert {after.recompute for after in found} == set(Recompute)
    assert {after.attention_kernel for after in found} == {
        AttentionKernel.MATH,
        AttentionKernel.EFFICIENT,
        AttentionKernel.FLASH,
    }
    assert "fused norm on → off" in changes(PLAIN)
    on_cores = {changes_in_words(difference(cpu_layout(), after)) for after in neighbours(cpu_layout(), tiny_job(1))}
    assert "activation offload off → on" not in on_cores


def test_a_step_away_from_every_choice_takes_with_it_what_would_mean_nothing() -> None:
    full = replace(
        PLAIN,
        tensor_parallel_degree=2,
        data_parallel_replicate_degree=2,
        pipeline_parallel_degree=2,
        context_parallel_degree=2,
        loss_parallel=False,
        sequence_parallel=True,
        compiled=True,
        async_tensor_parallel=True,
        context_exchange=ContextExchange.ALL_GATHER,
        gradient_bucket_bytes=2**20,
        first_stage_less_layers=1,
        last_stage_less_layers=1,
        recompute=Recompute.FULL,
        recompute_every=2,
    )
    for after in neighbours(full, big_job(1)):
        broken = {reason.rule for reason in reasons(after, big_job(1), IDLE_RULES)}
        assert not broken
        assert after.pipeline_parallel_degree > 1 or not after.first_stage_less_layers + after.last_stage_less_layers


def test_a_step_keeps_the_sharding_among_context_ranks() -> None:
    sharded = replace(
        PLAIN,
        data_parallel_replicate_degree=1,
        data_parallel_shard_degree=1,
        context_parallel_degree=2,
        shard_level=ShardLevel.PARAMETERS,
    )
    compiled = replace(sharded, compiled=not sharded.compiled)
    assert compiled in neighbours(sharded, big_job(1))


def test_a_step_may_leave_a_lossy_exchange_or_an_early_clip_and_takes_up_none() -> None:
    """They change the mathematics; so do the details of an exchange."""
    full = Layout(data_parallel_replicate_degree=64)
    demo, pre = replace(full, gradient_sync=GradientSync.DEMO), replace(full, gradient_clip=GradientClip.PRE)
    assert all(step.is_equivalent for step in neighbours(full, big_job()))
    assert full in neighbours(demo, big_job())
    assert full in neighbours(pre, big_job())
    for step in (*neighbours(demo, big_job()), *neighbours(pre, big_job())):
        assert (step.sync_chunk, step.sync_top_k) == (full.sync_chunk, full.sync_top_k)
        assert step.gradient_sync in (GradientSync.FULL, GradientSync.DEMO)
        assert step.gradient_clip in (GradientClip.POST, GradientClip.PRE)


# ---------------------------------------------------------------- choosable
JOB = big_job()


def arranged(words: str, job: Job = JOB) -> Layout:
    return arrange(Layout.parse(words), job)


def by_value(layout: Layout, field: str, job: Job = JOB) -> dict[int, Choosable]:
    return {one.value: one for one in choices_of(layout, job)[field]}


def test_every_option_has_values_of_which_one_is_chosen_and_the_legal_ones_can_run() -> None:
    layout = arranged("zero2 tp8 pp4 1f1b mb1 sp flash bf16")
    choices = choices_of(layout, JOB)
    assert choices.keys() == OPTIONS.keys() - {"data_parallel_replicate_degree"}
    for field, values in choices.items():
        assert [one.value for one in values if one.is_chosen] == [getattr(layout, field)]
    legal = [one for values in choices_of(layout, JOB).values() for one in values if one.is_legal]
    assert len(legal) > 40
    assert [str(one.layout) for one in legal if reasons(one.layout, JOB)] == []


def test_degrees_that_break_a_rule_are_struck_with_their_reason_and_others_are_not() -> None:
    tensor = by_value(arranged("tp8 pp4 1f1b mb1 flash bf16"), "tensor_parallel_degree")
    assert list(tensor) == [1, 2, 4, 8, 16]
    assert tensor[4].is_legal
    assert "8 kv heads do not split over 16 tensor ranks" in [reason.message for reason in tensor[16].reasons]
    layout = arranged("tp16 pp2 1f1b mb1 flash bf16")
    assert not by_value(layout, "tensor_parallel_degree")[16].is_legal
    assert by_value(layout, "tensor_parallel_degree")[8].is_legal
    assert by_value(layout, "recompute")[0].is_legal
    layout = arranged("tp8 pp3 1f1b mb1 flash bf16")
    assert not by_value(layout, "pipeline_parallel_degree")[3].is_legal
    assert not by_value(layout, "context_parallel_degree")[2].is_legal
    assert by_value(layout, "pipeline_parallel_degree")[4].is_legal


def test_idle_values_and_formats_that_hardware_lacks_are_struck_with_the_reason() -> None:
    schedule = by_value(arranged("dp64 mb1 flash bf16"), "pipeline_schedule")
    assert schedule[PipelineSchedule.GPIPE].is_idle
    assert "with one pipeline rank the schedule has no effect" in schedule[PipelineSchedule.GPIPE].reasons[0].message
    shards = by_value(arranged("tp8 pp8 1f1b mb1 flash bf16"), "shard_level")
    assert shards[ShardLevel.PARAMETERS].is_idle
    precisions = by_value(arranged("dp8 tp8 mb1 flash bf16"), "precision")
    assert not precisions[Precision.NVFP4].is_legal
    assert Precision.FP8_EMULATED not in precisions


def test_a_choice_brings_the_ranks_and_the_stages_that_it_needs() -> None:
    shards = by_value(arranged("dp8 tp8 mb1 flash bf16"), "shard_level")
    assert str(shards[ShardLevel.PARAMETERS].layout) == "fsdp8 tp8 mb1 flash bf16"
    groups = by_value(arranged("fsdp8 tp8 mb1 flash bf16"), "data_parallel_shard_degree")
    assert list(groups) == [2, 4, 8]
    assert str(groups[2].layout) == "dp4 fsdp2 tp8 mb1 flash bf16"
    schedules = by_value(arranged("dp16 pp4 1f1b mb1 flash bf16"), "pipeline_schedule")
    assert schedules[PipelineSchedule.INTERLEAVED_1F1B].layout.virtual_stages_per_rank == 2
    assert schedules[PipelineSchedule.ZBV].is_legal
    adaptive = by_value(arranged("zero2 tp8 pp4 interleaved_1f1b v2 mb1 sp flash bf16"), "pipeline_schedule")
    assert adaptive[PipelineSchedule.ADAPTIVE].layout.virtual_stages_per_rank == 1


def test_numbers_are_offered_that_divide_the_job_and_no_more_than_fit() -> None:
    job = replace(JOB, workload=Workload(seq_len=8192, global_batch_size=720 * 64))
    for size in (1, 45, 720):
        values = by_value(arrange(Layout.parse(f"dp64 mb{size} flash bf16"), job), "micro_batch_size", job)
        assert len(values) <= 7
        assert size in values
    job = replace(JOB, model=load_model("mixtral-8x7b"))
    assert list(by_value(arrange(Layout.parse("fsdp64 ep4 mb1"), job), "expert_parallel_degree", job)) == [1, 2, 4, 8]
    assert list(by_value(arranged("fsdp64 mb1 flash bf16"), "expert_parallel_degree")) == [1]
    late = replace(JOB, cluster=replace(JOB.cluster, link_health=(LinkHealth(ends=(2, 4), delay_s=0.01),)))
    layout = arranged("zero2 tp8 pp4 1f1b delegated mb1 sp flash bf16", late)
    rotations, delegates = by_value(layout, "stage_rotation", late), by_value(layout, "num_delegates", late)
    assert list(rotations) == [0, 1, 2, 3]
    assert all(one.is_legal for one in (*rotations.values(), *delegates.values()))
    assert list(delegates)[:3] == [1, 2, 4]


# ---------------------------------------------------------------- pairwise
BASE = Layout(tensor_parallel_degree=4, pipeline_parallel_degree=2, data_parallel_replicate_degree=8)


def measured(*runs: tuple[Layout, float]) -> MeasuredLayouts:
    return LayoutColumns.from_layouts(layout for layout, _ in runs), np.array([seconds for _, seconds in runs])


def effect(found: tuple[PairEffect, ...], subject: str, before: str = "", after: str = "") -> PairEffect:
    (one,) = [i for i in found if (i.subject, i.before, i.after) == (subject, before, after)]
    return one


def test_a_pair_of_one_choice_states_the_throughput_gained_by_the_medians_of_its_layouts() -> None:
    full = replace(BASE, recompute=Recompute.FULL)
    one = effect(pair_effects([measured((full, 1.3), (BASE, 1.0))]), "recompute", "full", "none")
    assert (one.num_pairs, one.num_faster) == (1, 1)
    assert one.median_gain == one.least_gain == one.greatest_gain == pytest.approx(0.3)  # 1.3 / 1.0 in binary
    assert effect_in_words(one) == "recompute full → none: +30.0 % throughput, one pair"
    one = effect(pair_effects([measured((full, 1.4), (BASE, 1.0), (full, 1.2))]), "recompute", "full", "none")
    assert one.num_pairs == 1
    assert one.median_gain == pytest.approx(0.3)  # the mean of 1.2 and 1.4 in binary
    sharded = replace(
        BASE, data_parallel_replicate_degree=1, data_parallel_shard_degree=8, shard_level=ShardLevel.PARAMETERS
    )
    assert (
        effect(pair_effects([measured((BASE, 1.0), (sharded, 2.0))]), "sharding", "none", "parameters").num_pairs == 1
    )


def test_many_pairs_state_count_median_and_range_and_ranks_that_move_are_one_subject() -> None:
    runs = []
    for size, gain in ((1, 1.1), (2, 1.2), (4, 0.9)):
        plain = replace(BASE, micro_batch_size=size, fused_norm=False)
        runs += [(plain, gain), (replace(plain, fused_norm=True), 1.0)]
    one = effect(pair_effects([measured(*runs)]), "fused norm", "off", "on")
    assert effect_in_words(one) == (
        "fused norm off → on: +10.0 % throughput in the median of 3 pairs (−10.0 % to +20.0 %), faster in 2 of them"
    )
    runs = [
        (replace(BASE, tensor_parallel_degree=tensor, pipeline_parallel_degree=8 // tensor), seconds)
        for tensor, seconds in ((8, 1.44), (4, 1.2), (2, 1.0))
    ]
    one = effect(pair_effects([measured(*runs)]), "tensor → pipeline")
    assert (one.num_pairs, one.num_faster) == (2, 2)  # each split against the next, not 8 against 2
    assert one.median_gain == pytest.approx(0.2)  # 1.44 / 1.2 and 1.2 / 1.0 in binary


def test_layouts_of_two_changes_or_without_a_time_make_no_pair_and_pairs_are_of_one_job() -> None:
    other = replace(BASE, recompute=Recompute.FULL, micro_batch_size=2)
    assert not [i for i in pair_effects([measured((BASE, 1.0), (other, 2.0))]) if i.num_pairs]
    full = replace(BASE, recompute=Recompute.FULL)
    assert not [i for i in pair_effects([measured((full, float("nan")), (BASE, 1.0))]) if i.num_pairs]
    apart = pair_effects([measured((full, 1.3)), measured((BASE, 1.0))])
    assert not [i for i in apart if i.num_pairs]
    together = pair_effects([measured((full, 1.3), (BASE, 1.0)), measured((full, 12.0), (BASE, 10.0))])
    assert effect(together, "recompute", "full", "none").num_pairs == 2


def test_numbers_are_compared_with_the_next_and_kernels_two_by_two_the_older_first() -> None:
    sizes = pair_effects([measured(*((replace(BASE, micro_batch_size=size), 1.0 / size) for size in (4, 1, 2)))])
    assert {(i.before, i.after) for i in sizes if i.subject == "micro-batch"} == {("1", "2"), ("2", "4")}
    kernels = (AttentionKernel.FLASH, AttentionKernel.FLASH_1, AttentionKernel.MATH)
    found = pair_effects([measured(*((replace(BASE, attention_kernel=kernel), 1.0) for kernel in kernels))])
    assert {(i.before, i.after) for i in found if i.subject == "attention"} == {
        ("math", "flash"),
        ("math", "flash 1"),
        ("flash 1", "flash"),
    }


def test_the_six_subjects_of_the_paper_are_answered_even_without_a_measurement() -> None:
    found = pair_effects([])
    assert [i.subject for i in found] == [
        "recompute",
        "fused norm",
        "attention",
        "micro-batch",
        "tensor → pipeline",
        "sequence parallel",
    ]
    assert {i.num_pairs for i in found} == {0}
    assert all(i.median_gain is None and "no pairs" in effect_in_words(i) for i in found)
    assert pair_effects([measured()]) == found


# ---------------------------------------------------------------- what if
def test_a_layout_is_predicted_stage_by_stage_or_says_why_it_cannot_run_and_what_near_it_can() -> None:
    answer = what_if(Layout.parse("tp8 pp4 1f1b mb1 sp flash bf16"), JOB)
    assert answer.legal is not None
    assert answer.reasons == ()
    assert answer.legal.explanation.prediction == predict_one(answer.layout, JOB)
    peaks = [memory.total_bytes for memory in answer.legal.explanation.stages]
    assert len(peaks) == 4
    assert max(peaks) == pytest.approx(answer.legal.explanation.prediction.memory.total_bytes)
    answer = what_if(Layout.parse("tp16 pp4 1f1b mb1 flash bf16"), JOB)
    assert answer.legal is None
    assert "kv-heads-per-tensor-rank" in [reason.rule for reason in answer.reasons]
    assert present(answer.nearest).tensor_parallel_degree == 8


def test_options_of_other_software_are_predicted_and_marked_as_untried() -> None:
    answer = what_if(Layout.parse("fsdp64 mb1 flash nvfp4"), JOB)
    assert answer.legal is None  # this hardware has no nvfp4
    answer = what_if(Layout.parse("dp64 mb1 recompute-selective offload flash bf16"), JOB)
    assert answer.legal is not None
    assert answer.legal.untried == ()
    answer = what_if(Layout.parse("dp16 pp4 zbv mb1 recompute-selective flash bf16"), JOB)
    assert "trial-recomputes-selectively-once" in [reason.rule for reason in present(answer.legal).untried]


# ---------------------------------------------------------------- rank groups
LAYOUT = Layout.parse("zero2 tp4 cp2 pp4 1f1b mb1 sp")


def test_a_rank_has_a_group_along_every_axis_and_each_crosses_the_slowest_link_between_its_ranks() -> None:
    found = rank_groups(LAYOUT, big_job(), 21)
    assert (found.node, found.pipeline_rank, found.ranks_per_stage) == (2, 1, 16)
    assert {group.axis: group.ranks for group in found.groups} == {
        "tensor": (20, 21, 22, 23),
        "context": (17, 21),
        "pipeline": (5, 21, 37, 53),
        "data": (17, 21, 25, 29),
    }
    cluster = big_job().cluster
    inside, across = cluster.intra_node_link.name, cluster.inter_node_link.name
    assert [(group.link, group.num_nodes) for group in found.groups] == [
        (inside, 1),
        (inside, 1),
        (across, 4),
        (across, 2),
    ]


def test_every_rank_is_a_member_of_its_own_groups_and_groups_of_one_are_left_out() -> None:
    for rank in (0, 21, 63):
        for group in rank_groups(LAYOUT, big_job(), rank).groups:
            assert rank in group.ranks
            peers = {one.axis: one.ranks for one in rank_groups(LAYOUT, big_job(), group.ranks[-1]).groups}
            assert peers[group.axis] == group.ranks
    alone = replace(LAYOUT, tensor_parallel_degree=1, context_parallel_degree=1, data_parallel_shard_degree=16)
    assert [group.axis for group in rank_groups(alone, big_job(), 0).groups] == ["pipeline", "data"]


@pytest.mark.parametrize("rank", [-1, 64])
def test_a_rank_that_the_layout_lacks_is_refused_with_the_nearest_that_it_has(rank: int) -> None:
    with pytest.raises(InvalidInput, match="0 to 63"):
        rank_groups(LAYOUT, big_job(), rank)


# ---------------------------------------------------------------------- places, and links that are not healthy
TURNED = Layout.parse("dp2 tp8 pp4 1f1b replicas_outermost rotate1 mb1")


def slow_job() -> Job:
    late = LinkHealth(ends=(1, 2), delay_s=0.03)
    return replace(big_job(), cluster=replace(big_job().cluster, link_health=(late,)))


def test_ranks_that_are_turned_lie_elsewhere_and_meet_other_slow_links() -> None:
    found = rank_groups(TURNED, slow_job(), 8)
    assert (found.pipeline_rank, found.stages_in_order) == (0, False)
    assert {group.axis: group.ranks for group in found.groups if group.axis != "tensor"} == {
        "pipeline": (8, 16, 24, 0),
        "data": (8, 40),
    }
    slow = {group.axis: group.slow_links for group in rank_groups(TURNED, slow_job(), 8).groups}
    assert [health.ends for health in slow["pipeline"]] == [(1, 2)]
    assert slow["tensor"] == slow["data"] == ()
    other = {group.axis: group.slow_links for group in rank_groups(TURNED, slow_job(), 40).groups}
    assert other["pipeline"] == ()
    apart = replace(TURNED, stage_rotation=2)  # node 1 holds the last stage, node 2 the first
    slow = {group.axis: group.slow_links for group in rank_groups(apart, slow_job(), 16).groups}
    assert slow["pipeline"] == ()
