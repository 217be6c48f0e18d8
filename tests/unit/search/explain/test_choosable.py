from __future__ import annotations

from dataclasses import replace

from autotuner.catalog.models import load_model
from autotuner.core.choices import PipelineSchedule, Precision, ShardLevel
from autotuner.core.job import Job
from autotuner.core.layout import OPTIONS, Layout
from autotuner.core.link import LinkHealth
from autotuner.core.rules.legality import reasons
from autotuner.core.workload import Workload
from autotuner.search.explain.arranging import arranged
from autotuner.search.explain.choosable import Choosable, choices_of
from tests.builders import h100_cluster, llama_70b

JOB = Job(model=llama_70b(), cluster=h100_cluster(), workload=Workload(seq_len=8192, global_batch_size=1024))


def arrange(words: str, job: Job = JOB) -> Layout:
    return arranged(Layout.parse(words), job)


def by_value(layout: Layout, field: str, job: Job = JOB) -> dict[int, Choosable]:
    return {one.value: one for one in choices_of(layout, job)[field]}


def test_every_option_has_values_and_one_of_each_is_chosen() -> None:
    layout = arrange("zero2 tp8 pp4 1f1b mb1 sp flash bf16")
    choices = choices_of(layout, JOB)
    assert choices.keys() == OPTIONS.keys() - {"data_parallel_replicate_degree"}
    for field, values in choices.items():
        assert [one.value for one in values if one.is_chosen] == [getattr(layout, field)]


def test_what_is_called_legal_can_run() -> None:
    layout = arrange("zero2 tp8 pp4 1f1b mb1 sp flash bf16")
    legal = [one for values in choices_of(layout, JOB).values() for one in values if one.is_legal]
    assert len(legal) > 40
    assert [str(one.layout) for one in legal if reasons(one.layout, JOB)] == []


def test_a_degree_that_does_not_split_the_model_says_so() -> None:
    tensor = by_value(arrange("tp8 pp4 1f1b mb1 flash bf16"), "tensor_parallel_degree")
    assert list(tensor) == [1, 2, 4, 8, 16]
    assert tensor[4].is_legal
    assert "8 kv heads do not split over 16 tensor ranks" in [reason.message for reason in tensor[16].reasons]


def test_the_value_that_breaks_a_rule_is_told_apart_from_others_of_the_layout() -> None:
    layout = arrange("tp16 pp2 1f1b mb1 flash bf16")
    assert not by_value(layout, "tensor_parallel_degree")[16].is_legal
    assert by_value(layout, "tensor_parallel_degree")[8].is_legal
    assert by_value(layout, "recompute")[0].is_legal


def test_degrees_that_leave_ranks_over_are_struck_on_each_of_them() -> None:
    layout = arrange("tp8 pp3 1f1b mb1 flash bf16")
    assert not by_value(layout, "pipeline_parallel_degree")[3].is_legal
    assert not by_value(layout, "context_parallel_degree")[2].is_legal
    assert by_value(layout, "pipeline_parallel_degree")[4].is_legal


def test_what_would_change_nothing_is_idle_and_says_why() -> None:
    schedule = by_value(arrange("dp64 mb1 flash bf16"), "pipeline_schedule")
    assert schedule[PipelineSchedule.GPIPE].is_idle
    assert "one pipeline rank runs no schedule" in schedule[PipelineSchedule.GPIPE].reasons[0].message
    shards = by_value(arrange("tp8 pp8 1f1b mb1 flash bf16"), "shard_level")
    assert shards[ShardLevel.PARAMETERS].is_idle


def test_sharding_is_offered_with_the_ranks_it_would_take() -> None:
    shards = by_value(arrange("dp8 tp8 mb1 flash bf16"), "shard_level")
    assert str(shards[ShardLevel.PARAMETERS].layout) == "fsdp8 tp8 mb1 flash bf16"
    groups = by_value(arrange("fsdp8 tp8 mb1 flash bf16"), "data_parallel_shard_degree")
    assert list(groups) == [2, 4, 8]
    assert str(groups[2].layout) == "dp4 fsdp2 tp8 mb1 flash bf16"


def test_a_schedule_brings_the_stages_that_it_runs_with() -> None:
    schedules = by_value(arrange("dp16 pp4 1f1b mb1 flash bf16"), "pipeline_schedule")
    assert schedules[PipelineSchedule.INTERLEAVED_1F1B].layout.virtual_stages_per_rank == 2
    assert schedules[PipelineSchedule.ZBV].is_legal


def test_formats_that_hardware_lacks_are_struck_and_emulated_ones_are_not_offered() -> None:
    precisions = by_value(arrange("dp8 tp8 mb1 flash bf16"), "precision")
    assert not precisions[Precision.NVFP4].is_legal
    assert Precision.FP8_EMULATED not in precisions


def test_no_more_numbers_are_offered_than_fit_and_the_present_one_is_among_them() -> None:
    job = replace(JOB, workload=Workload(seq_len=8192, global_batch_size=720 * 64))
    for size in (1, 45, 720):
        values = by_value(arranged(Layout.parse(f"dp64 mb{size} flash bf16"), job), "micro_batch_size", job)
        assert len(values) <= 7
        assert size in values


def test_expert_ranks_are_offered_by_the_experts_of_the_model() -> None:
    job = replace(JOB, model=load_model("mixtral-8x7b"))
    assert list(by_value(arranged(Layout.parse("fsdp64 ep4 mb1"), job), "expert_parallel_degree", job)) == [1, 2, 4, 8]
    assert list(by_value(arrange("fsdp64 mb1 flash bf16"), "expert_parallel_degree")) == [1]


def test_rotations_are_fewer_than_stages_and_delegates_divide_the_micro_batches() -> None:
    late = replace(JOB, cluster=replace(JOB.cluster, link_health=(LinkHealth(ends=(2, 4), delay_s=0.01),)))
    layout = arrange("zero2 tp8 pp4 1f1b delegated mb1 sp flash bf16", late)
    rotations, delegates = by_value(layout, "stage_rotation", late), by_value(layout, "num_delegates", late)
    assert list(rotations) == [0, 1, 2, 3]
    assert all(one.is_legal for one in (*rotations.values(), *delegates.values()))
    assert list(delegates)[:3] == [1, 2, 4]


def test_a_planned_schedule_has_one_stage_per_rank() -> None:
    adaptive = by_value(arrange("zero2 tp8 pp4 interleaved_1f1b v2 mb1 sp flash bf16"), "pipeline_schedule")
    assert adaptive[PipelineSchedule.ADAPTIVE].layout.virtual_stages_per_rank == 1
