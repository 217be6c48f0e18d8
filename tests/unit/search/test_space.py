"""Spaces of layouts, and the legal layouts in them."""

from __future__ import annotations

import re
import tracemalloc
from dataclasses import replace
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

import optuna
import pytest

from autotuner.catalog.hardware import load_cluster
from autotuner.catalog.models import load_model
from autotuner.core.blocks import MixtureOfExperts
from autotuner.core.choices import (
    AttentionKernel,
    ContextExchange,
    Fp8Recipe,
    PipelineSchedule,
    Precision,
    Recompute,
    ShardLevel,
)
from autotuner.core.columns import LayoutColumns
from autotuner.core.convergence_gate import ConvergenceGate
from autotuner.core.errors import InvalidInput
from autotuner.core.job import Job
from autotuner.core.layout import DEFAULT_BUCKET_BYTES, OPTIONS, Layout
from autotuner.core.rules.legality import RULES, reasons
from autotuner.core.rules.trial_job import TRIAL_RULES
from autotuner.core.space import SearchSpace
from autotuner.core.stages import stage_sizes
from autotuner.core.trial_spec import TrialSettings
from autotuner.core.workload import Workload
from autotuner.search.preview import require_layouts
from autotuner.search.space.elimination import Sieved, eliminate, explain_empty
from autotuner.search.space.legal import MAX_CANDIDATES, MAX_SPLITS, MAX_VALUES, SpaceTooLarge, legal_layouts, splits_of
from autotuner.search.space.trainers import trial_rules, trial_space
from tests.builders import big_job, h100_cluster, llama_70b, present, sweep_request, tiny_job, tiny_model, tiny_space

# ---------------------------------------------------------------- space
DEGREES = (1, 2, 3, 4)
RANK_AXES = (
    "data_parallel_replicate_degree",
    "data_parallel_shard_degree",
    "tensor_parallel_degree",
    "context_parallel_degree",
    "pipeline_parallel_degree",
)
ALL = SearchSpace(
    context_parallel_degree=DEGREES,
    expert_parallel_degree=(1, 2),
    data_parallel_shard_degree=DEGREES,
    virtual_stages_per_rank=(1, 2),
    first_stage_less_layers=(0,),
    last_stage_less_layers=(0,),
    micro_batch_size=(1, 2, 3),
    pipeline_schedule=tuple(PipelineSchedule),
    shard_level=tuple(ShardLevel),
    recompute=(Recompute.NONE, Recompute.FULL),
    attention_kernel=(AttentionKernel.MATH, AttentionKernel.FLASH),
    precision=(Precision.FP32, Precision.BF16),
)


FLASH = (AttentionKernel.FLASH,)


def rows(columns: LayoutColumns) -> list[Layout]:
    return [columns.row(index) for index in range(len(columns))]


def four_gpus(**model: object) -> Job:
    cluster = h100_cluster(num_nodes=2, accelerators_per_node=2)
    return Job(model=tiny_model(**model), cluster=cluster, workload=Workload(seq_len=64, global_batch_size=12))


def brute_force(job: Job, space: SearchSpace) -> set[Layout]:
    """Every combination of values that keeps every rule, one scalar verdict at a time."""
    axes = {name: getattr(space, name, None) or DEGREES for name in OPTIONS}
    rank_axes = {name: axes.pop(name) for name in RANK_AXES}
    legal = set()
    for degrees in product(*rank_axes.values()):
        if prod(degrees) != job.cluster.world_size:  # the rule on world_size, first because it is cheap
            continue
        for values in product(*axes.values()):
            layout = dict(zip((*rank_axes, *axes), (*degrees, *values), strict=True))
            if layout["pipeline_parallel_degree"] == 1:  # runs no schedule: the space's schedules do not apply
                layout |= {"pipeline_schedule": PipelineSchedule.ONE_F_ONE_B, "virtual_stages_per_rank": 1}
            candidate = Layout(**layout)
            if candidate not in legal and not reasons(candidate, job):
                legal.add(candidate)
    return legal


@pytest.mark.parametrize("experts", [None, MixtureOfExperts(num_experts=2, experts_per_token=1, expert_ffn_size=64)])
def test_the_space_is_exactly_what_brute_force_finds(experts: MixtureOfExperts | None) -> None:
    job = four_gpus(experts=experts)
    space = ALL.with_axes(recompute=(Recompute.NONE,), precision=(Precision.BF16,), attention_kernel=FLASH)
    found = rows(legal_layouts(job, space))
    assert set(found) == brute_force(job, space)
    assert len(found) == len(set(found)) > 100


def test_every_layout_keeps_every_rule_once_and_more_rules_leave_fewer() -> None:
    assert rows(legal_layouts(four_gpus(), ALL)) == rows(legal_layouts(four_gpus(), ALL))
    job = big_job(num_nodes=2)
    found = rows(legal_layouts(job))
    assert len(found) == len(set(found)) > 500
    assert all(not reasons(layout, job) for layout in found[::17])
    job, space = big_job(num_nodes=2), SearchSpace(pipeline_schedule=(PipelineSchedule.ZERO_BUBBLE,), compiled=(True,))
    tried = rows(legal_layouts(job, space, rules=(*RULES, *TRIAL_RULES)))
    assert set(tried) < set(rows(legal_layouts(job, space)))
    assert {layout.pipeline_parallel_degree for layout in tried} == {1}  # the compiler splits no backward


def test_a_choice_that_means_nothing_keeps_its_default_whatever_the_space_names() -> None:
    space = tiny_space(
        precision=(Precision.BF16, Precision.FP8_EMULATED),
        recompute_every=(2, 4),
        fp8_recipe=(Fp8Recipe.ROWWISE,),
        loss_parallel=(False,),
        context_exchange=(ContextExchange.ALL_GATHER,),
        gradient_bucket_bytes=(1_000_000, 2_000_000),
        fp32_gradient_reduce=(True,),
    )
    found = rows(legal_layouts(tiny_job(2), space))
    assert len(found) == len(set(found))
    for row in found:
        assert row.recompute_every == 1 if row.recompute == Recompute.NONE else row.recompute_every in {2, 4}
        assert (row.fp8_recipe == Fp8Recipe.ROWWISE) == (row.precision == Precision.FP8_EMULATED)
        assert row.loss_parallel == (row.tensor_parallel_degree == 1)
        assert row.context_exchange == ContextExchange.RING
        reduces_by_layer = row.shard_level in (ShardLevel.GRADIENTS, ShardLevel.PARAMETERS)
        fills_buckets = row.data_parallel_degree > 1 and not reduces_by_layer
        assert (row.gradient_bucket_bytes != DEFAULT_BUCKET_BYTES) == fills_buckets
        assert row.fp32_gradient_reduce == (row.data_parallel_degree > 1)
    assert {row.recompute for row in found} == {Recompute.NONE, Recompute.FULL}
    assert {row.tensor_parallel_degree for row in found} == {1, 2}


def test_equal_runs_are_listed_once_and_ends_are_crossed_with_pipelines_only() -> None:
    job = tiny_job(1)
    plain = tiny_space(recompute=(Recompute.NONE,))
    wide = plain.with_axes(recompute_every=(1, 2, 4), fp8_recipe=tuple(Fp8Recipe), loss_parallel=(False, True))
    assert rows(legal_layouts(job, wide)) == rows(legal_layouts(job, plain))
    found = rows(legal_layouts(tiny_job(2), tiny_space(last_stage_less_layers=(0, 1))))
    piped = {row.last_stage_less_layers for row in found if row.pipeline_parallel_degree > 1}
    alone = {row.last_stage_less_layers for row in found if row.pipeline_parallel_degree == 1}
    assert (piped, alone) == ({0, 1}, {0})


def test_an_empty_space_is_explained_by_hardware_schedules_and_counts() -> None:
    found = {reason.rule for reason in explain_empty(tiny_job(1), tiny_space(offload_activations=(True,)))}
    assert "offload-on-hardware" in found
    assert len(legal_layouts(tiny_job(1), tiny_space(offload_activations=(True,)))) == 0
    assert len(legal_layouts(tiny_job(2), tiny_space(tensor_parallel_degree=(3,)))) == 0
    space = SearchSpace(pipeline_parallel_degree=(4,), pipeline_schedule=(PipelineSchedule.INTERLEAVED_1F1B,))
    job = replace(big_job(num_nodes=1), model=tiny_model())
    assert len(legal_layouts(job, space)) == 0
    assert "layers-per-stage" in {reason.rule for reason in explain_empty(job, space)}
    # half of the layouts have the micro-batch that does not divide
    reason = explain_empty(tiny_job(1), tiny_space(micro_batch_size=(1, 3), sequence_parallel=(False,)))
    counted = {r.rule: r.message for r in reason}
    assert "12 of 24 layouts" in counted["whole-micro-batches"]


def test_micro_batches_default_to_powers_of_two_and_named_ones_need_not_be_any() -> None:
    job = tiny_job(1, workload=Workload(seq_len=64, global_batch_size=24))
    assert {layout.micro_batch_size for layout in rows(legal_layouts(job, tiny_space()))} == {1, 2, 4, 8}
    found = rows(legal_layouts(job, tiny_space(micro_batch_size=(3, 5))))
    assert {layout.micro_batch_size for layout in found} == {3}


def test_pipelines_have_even_or_smaller_ends_by_what_their_layers_leave() -> None:
    """126 layers, as Llama 3 405B has them: 16 ranks of 8 stages of one layer each, none on either end."""
    space = SearchSpace(tensor_parallel_degree=(1,), pipeline_parallel_degree=(1, 8))
    found = rows(legal_layouts(big_job(), space))
    ends = {(r.pipeline_parallel_degree, r.first_stage_less_layers, r.last_stage_less_layers) for r in found}
    assert ends == {(1, 0, 0), (8, 0, 0), (8, 0, 1), (8, 1, 1)}
    job = replace(big_job(), model=llama_70b(num_layers=126))
    space = SearchSpace(pipeline_parallel_degree=(16,), pipeline_schedule=(PipelineSchedule.INTERLEAVED_1F1B,))
    found = rows(legal_layouts(job, space))
    assert {(r.virtual_stages_per_rank, r.first_stage_less_layers, r.last_stage_less_layers) for r in found} >= {
        (2, 1, 1),
        (4, 1, 1),
    }
    job = replace(big_job(), model=llama_70b(num_layers=61))
    space = SearchSpace(pipeline_parallel_degree=(2,), pipeline_schedule=(PipelineSchedule.ONE_F_ONE_B,))
    found = rows(legal_layouts(job, space))
    assert {(r.first_stage_less_layers, r.last_stage_less_layers) for r in found} == {(0, 0)}


def test_a_named_first_stage_has_a_last_stage_that_is_as_small() -> None:
    found = rows(legal_layouts(tiny_job(2, model=tiny_model(num_layers=6)), tiny_space(first_stage_less_layers=(2,))))
    sizes = {(x.pipeline_parallel_degree, x.first_stage_less_layers, x.last_stage_less_layers) for x in found}
    assert sizes == {(1, 0, 0), (2, 2, 2)}


def test_degrees_and_stages_default_to_what_divides_the_job() -> None:
    space = SearchSpace(tensor_parallel_degree=(2,), pipeline_parallel_degree=(1,))
    found = rows(legal_layouts(big_job(), space))
    splits = {(row.data_parallel_replicate_degree, row.data_parallel_shard_degree) for row in found}
    assert splits == {(32, 1), (8, 4), (1, 32)}
    space = SearchSpace(pipeline_parallel_degree=(8,), pipeline_schedule=(PipelineSchedule.INTERLEAVED_1F1B,))
    found = rows(legal_layouts(big_job(), space))
    assert {layout.virtual_stages_per_rank for layout in found} == {2, 5, 10}
    experts = MixtureOfExperts(num_experts=8, experts_per_token=2, expert_ffn_size=64)
    job = replace(big_job(num_nodes=1), model=tiny_model(experts=experts))
    assert {row.expert_parallel_degree for row in rows(legal_layouts(job))} == {1, 2, 4, 8}


def test_schedules_do_not_apply_without_a_pipeline_and_context_ranks_take_one_sequence() -> None:
    job = tiny_job(2)
    found = rows(legal_layouts(job, tiny_space(pipeline_schedule=(PipelineSchedule.GPIPE,))))
    assert {(row.pipeline_parallel_degree, row.pipeline_schedule.label) for row in found} == {(1, "1f1b"), (2, "gpipe")}
    split = SearchSpace(tensor_parallel_degree=(8,), context_parallel_degree=(1, 2))
    found = rows(legal_layouts(big_job(), split))
    batches = {degree: {r.micro_batch_size for r in found if r.context_parallel_degree == degree} for degree in (1, 2)}
    assert (batches[2], len(batches[1]) > 1) == ({1}, True)
    alone = rows(legal_layouts(big_job(), split.with_axes(context_parallel_degree=(2,))))
    assert {row.micro_batch_size for row in alone} > {1}


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"tensor_parallel_degree": (4,), "pipeline_parallel_degree": (1,)}, "world-size"),
        ({"micro_batch_size": (3,)}, "whole-micro-batches"),
        ({"precision": (Precision.FP8,)}, "precision-on-hardware"),
        ({"attention_kernel": (AttentionKernel.EFFICIENT,)}, "attention-kernel-on-hardware"),
        (
            {"pipeline_parallel_degree": (2,), "pipeline_schedule": (PipelineSchedule.ZBV,), "micro_batch_size": (8,)},
            "micro-batches-fill-pipeline",
        ),
    ],
)
def test_an_empty_space_names_the_rule_that_empties_it(changes: dict[str, tuple[int, ...]], rule: str) -> None:
    job, space = tiny_job(2), tiny_space(**changes)
    assert len(legal_layouts(job, space)) == 0
    first, *_ = explain_empty(job, space)
    assert first.rule == rule
    total = int(first.message.split(" of ")[1].split()[0])
    assert first.message.startswith(f"{total} of {total} layouts")


def test_a_space_with_more_candidates_than_are_judged_at_once_is_the_union_of_its_parts() -> None:
    space = SearchSpace(
        context_parallel_degree=None,
        shard_level=tuple(ShardLevel),
        attention_kernel=tuple(AttentionKernel),
        precision=(Precision.BF16, Precision.FP8),
    )
    whole = legal_layouts(big_job(), space)
    parts = [legal_layouts(big_job(), space.with_axes(precision=(value,))) for value in space.values("precision") or ()]
    assert len(whole) == sum(len(part) for part in parts) > 1 << 16
    assert len(whole.distinct(*OPTIONS)[0]) == len(whole)


def test_combinations_of_choices_are_counted_and_refused_before_any_is_built() -> None:
    space = tiny_space(recompute_every=tuple(range(1, 1001)), gradient_bucket_bytes=tuple(range(1, 1001)))
    tracemalloc.start()
    with pytest.raises(SpaceTooLarge, match=r"space = \d{7,}: combinations of options \(1000 of recompute_every, 1000"):
        legal_layouts(tiny_job(1), space)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 50e6


def test_an_empty_space_of_very_many_candidates_is_explained_by_the_first_of_them() -> None:
    space = SearchSpace(
        context_parallel_degree=None,
        micro_batch_size=(3 * 4096,),
        recompute_every=tuple(range(1, 101)),
        recompute=(Recompute.FULL,),
        gradient_bucket_bytes=tuple(range(1, 51)),
    )
    first, *_ = explain_empty(big_job(), space)
    assert first.rule == "whole-micro-batches"
    assert 1_000_000 < int(first.message.split(" of ")[1].split()[0]) < 1_300_000


# ---------------------------------------------------------------- how many ways to split a job are looked at
def test_axes_splits_and_shapes_beyond_what_is_looked_at_are_refused_with_their_number() -> None:
    with pytest.raises(SpaceTooLarge, match=r"space\.recompute_every = 3000: names more values .* at most 1000"):
        splits_of(tiny_job(1), SearchSpace(recompute_every=tuple(range(1, 3001))))
    space = SearchSpace(first_stage_less_layers=tuple(range(100)), last_stage_less_layers=tuple(range(100)))
    with pytest.raises(SpaceTooLarge, match=r"space = 20000: pipeline_schedule, .*; name fewer values"):
        splits_of(tiny_job(2), space)
    space = SearchSpace(recompute_every=tuple(range(1, 101)), gradient_bucket_bytes=tuple(range(1, 101)))
    with pytest.raises(
        SpaceTooLarge, match=r"\d+ splits of the job x \d+ .*; nearest legal value: 10000000"
    ) as refused:
        legal_layouts(big_job(), space)
    assert int(str(refused.value.value)) > MAX_CANDIDATES


@pytest.mark.parametrize("divides", [True, False])
def test_more_splits_than_are_looked_at_are_refused_with_the_axes_that_make_them(divides: bool) -> None:
    many = tuple(range(1, MAX_VALUES + 1))
    space = SearchSpace(
        tensor_parallel_degree=(1,) if divides else many[1:], expert_parallel_degree=many, micro_batch_size=many
    )
    with pytest.raises(SpaceTooLarge, match=r"1000 of expert_parallel_degree.* too many ways to split"):
        splits_of(tiny_job(1), space)


def test_a_million_ranks_are_split_without_listing_the_stages_of_a_million_pipeline_ranks() -> None:
    job = replace(big_job(), cluster=h100_cluster(num_nodes=2**17))
    space = SearchSpace(context_parallel_degree=None, pipeline_schedule=tuple(PipelineSchedule))
    degrees = splits_of(job, space)
    assert 10_000 < len(degrees) < MAX_SPLITS
    assert degrees.pipeline_parallel_degree.max() == 2**20


@pytest.mark.parametrize("num_layers", [1, 2, 7, 12, 61])
@pytest.mark.parametrize("pipeline", [2, 3, 5, 8])
def test_ends_that_deal_the_same_layers_to_every_stage_are_one_split(num_layers: int, pipeline: int) -> None:
    job = replace(big_job(), model=llama_70b(num_layers=num_layers), cluster=h100_cluster(accelerators_per_node=30))
    ends = tuple(range(4))
    space = SearchSpace(
        tensor_parallel_degree=(1,),
        pipeline_parallel_degree=(pipeline,),
        pipeline_schedule=(PipelineSchedule.ONE_F_ONE_B,),
        first_stage_less_layers=ends,
        last_stage_less_layers=ends,
    )
    found = splits_of(job, space)
    dealt = {
        (int(first), int(last))
        for first, last in zip(found.first_stage_less_layers, found.last_stage_less_layers, strict=True)
    }
    sizes = {stage_sizes(num_layers, pipeline, first, last) for first, last in product(ends, ends)}
    assert {stage_sizes(num_layers, pipeline, first, last) for first, last in dealt} == sizes
    assert len(dealt) == len(sizes)


# ---------------------------------------------------------------- what a sweep is refused for before it is stored
def test_a_sweep_of_more_layouts_than_it_may_hold_is_refused_with_their_number() -> None:
    require_layouts(sweep_request())
    with pytest.raises(
        SpaceTooLarge,
        match=(
            r"space = 'more than 2': is the number of legal layouts, which is "
            r"too many .*; name fewer values"
        ),
    ):
        require_layouts(sweep_request(), most=2)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"trial": TrialSettings(timeout_s=1e30)}, "trial.timeout_s"),
        ({"trial": TrialSettings(num_runs=2**31 - 1)}, "trial.num_runs"),
        ({"trial": TrialSettings(measured_steps=2**31 - 1)}, "trial.measured_steps"),
        ({"convergence_gate": ConvergenceGate(num_steps=2**31 - 1)}, "convergence_gate.num_steps"),
        ({"max_parallel_trials": 2**31 - 1}, "max_parallel_trials"),
        ({"job": replace(tiny_job(2), model=tiny_model(num_layers=2**31 - 1, ffn_size=2**20))}, "model"),
    ],
)
def test_a_sweep_that_asks_for_what_is_beyond_use_is_refused(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        require_layouts(sweep_request(**changes))
    assert refused.value.field == field
    assert (
        refused.value.nearest is not None
        or "for one copy of its weights, but all accelerators of" in refused.value.rule
    )


# ---------------------------------------------------------------- sampler page
PAGE = Path(__file__).parents[3] / "docs/explanation/sampler.md"


def test_the_example_of_the_page_finds_a_layout_and_stops_by_itself(capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(example, PAGE.name, "exec"), names)  # our own page
    study: optuna.Study = names["study"]
    assert len(study.trials) < 50
    assert names["sampler"].remaining_gain(study) < 0.01
    assert capsys.readouterr().out.startswith(f"{len(study.trials)} trials, ")


# ---------------------------------------------------------------- sieve
LAYOUTS_RULES = trial_rules(None)


def job(model: str = "llama-3-8b", cluster: str = "h100:8", batch: int = 64) -> Job:
    workload = Workload(seq_len=4096, global_batch_size=batch)
    return Job(model=load_model(model), cluster=load_cluster(cluster), workload=workload)


def whole(job: Job, space: SearchSpace) -> Sieved:
    return present(eliminate(job, space, LAYOUTS_RULES))


@pytest.mark.parametrize("model", ["llama-3-8b", "mixtral-8x7b", "llama-demo"])
def test_candidates_less_what_falls_out_are_the_legal_layouts(model: str) -> None:
    found, space = whole(job(model), trial_space(job(model), None, {})), trial_space(job(model), None, {})
    assert found.num_candidates - sum(fall.num_layouts for fall in found.falls) == found.num_legal
    assert found.num_legal == len(legal_layouts(job(model), space, LAYOUTS_RULES))


@pytest.mark.parametrize("narrowed", [{"sequence_parallel": (True,)}, {"recompute_every": (2,)}, {"compiled": (True,)}])
def test_a_space_without_a_choices_default_is_counted_alike(narrowed: dict[str, tuple[int, ...]]) -> None:
    space = trial_space(job(), None, narrowed)
    assert whole(job(), space).num_legal == len(legal_layouts(job(), space, LAYOUTS_RULES))


def test_rules_that_take_layouts_out_come_by_their_number_and_explain_an_empty_space() -> None:
    space = trial_space(job(cluster="h100:16"), None, {"tensor_parallel_degree": (16,)})
    found = whole(job(cluster="h100:16"), space)
    assert [fall.num_layouts for fall in found.falls] == sorted((f.num_layouts for f in found.falls), reverse=True)
    (fall,) = (fall for fall in found.falls if fall.rule == "kv-heads-per-tensor-rank")
    assert fall.field == "tensor_parallel_degree"
    assert fall.message == "8 kv heads do not split over 16 tensor ranks"
    assert found.num_legal == 0
    space = trial_space(job(), None, {"micro_batch_size": (3,)})
    explained = {reason.rule for reason in explain_empty(job(), space, LAYOUTS_RULES)}
    assert {fall.rule for fall in whole(job(), space).falls} <= explained


def test_spaces_too_large_are_left_unexplained_and_idle_choices_are_no_candidates() -> None:
    switches = ("fused_norm", "loss_parallel", "compiled", "fp32_gradient_reduce", "offload_activations")
    space = trial_space(job(cluster="h100:64", batch=512), None, dict.fromkeys(switches, (False, True)))
    assert eliminate(job(cluster="h100:64", batch=512), space, LAYOUTS_RULES) is None
    narrow = trial_space(job(), None, {"pipeline_parallel_degree": (1,), "pipeline_schedule": (1,)})
    wide = trial_space(job(), None, {"pipeline_parallel_degree": (1,), "pipeline_schedule": (1, 2)})
    assert whole(job(), narrow).num_candidates == whole(job(), wide).num_candidates
