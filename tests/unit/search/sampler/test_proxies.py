"""Proxy trials, and searches by them."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from optuna.trial import FrozenTrial, TrialState, create_trial

from autotuner.core.blocks import MixtureOfExperts
from autotuner.core.choices import PipelineSchedule, Recompute, ShardLevel
from autotuner.core.cluster import Cluster
from autotuner.core.columns import Floats
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.rules.legality import RULES, reasons
from autotuner.core.rules.rule import Reason
from autotuner.core.rules.trial_job import TRIAL_RULES
from autotuner.core.space import SearchSpace
from autotuner.core.stages import stage_sizes
from autotuner.core.trial import PastTrial, ProxyTrial
from autotuner.core.workload import Workload
from autotuner.costmodel.predict import predict, predict_one
from autotuner.search.sampler.observations import FULL_SIZE, OUT_OF_MEMORY, STEP_TIME_S, params_of
from autotuner.search.sampler.optuna_sampler import LayoutSampler
from autotuner.search.sampler.proxies import ProxyTrials, proxy_trials
from autotuner.search.sampler.proxy import fewer_layers, proxy_trial
from autotuner.search.sampler.transfer import ProxyRun
from autotuner.search.space.legal import legal_layouts
from tests.builders import (
    big_job,
    cpu_cluster,
    h100,
    h100_cluster,
    llama_70b,
    present,
    tiny_job,
    tiny_model,
    tiny_space,
)

# ---------------------------------------------------------------- measured parts
PIPELINE = Layout.parse("zero8 tp4 pp2 1f1b mb1")


def measured(layout: Layout, num_nodes: int = 2) -> set[str]:
    trial = proxy_trial(big_job(), layout, h100_cluster(num_nodes))
    assert isinstance(trial, ProxyTrial)
    return set(trial.measured_parts)


def test_times_of_rank_groups_are_measured_only_for_the_same_placement() -> None:
    assert {"matrix_s", "attention_s", "pointwise_s", "recompute_s"} <= measured(PIPELINE)
    found = measured(PIPELINE)
    assert {"tensor_communication_s", "bubble_s"} <= found
    assert not {"data_communication_s", "optimizer_s"} & found
    assert not {"context_communication_s", "expert_communication_s"} & measured(PIPELINE)
    assert "optimizer_s" in measured(Layout(data_parallel_replicate_degree=64))
    deep = replace(PIPELINE, pipeline_parallel_degree=4, data_parallel_shard_degree=4)
    found = measured(deep)
    assert "bubble_s" not in found
    assert "matrix_s" in found
    assert "pipeline_communication_s" in measured(PIPELINE)
    assert "pipeline_communication_s" not in measured(PIPELINE, num_nodes=1)


# ---------------------------------------------------------------- smaller
TWO_NODES = h100_cluster(2)

FSDP = Layout.parse("fsdp16 tp4 mb2 reshard")
SMALLER_PIPELINE = Layout.parse("dp4 tp4 pp4 v5 interleaved_1f1b mb1 sp")


def trial_of(layout: Layout, job: Job | None = None, **asked: int) -> ProxyTrial:
    found = proxy_trial(job or big_job(), layout, TWO_NODES, most_layers_per_stage=asked.get("layers"))
    assert isinstance(found, ProxyTrial)
    return found


def sparse_job(num_dense_layers: int = 3) -> Job:
    experts = MixtureOfExperts(
        num_experts=64, experts_per_token=4, expert_ffn_size=2048, num_dense_layers=num_dense_layers
    )
    return replace(big_job(), model=llama_70b(num_layers=64, experts=experts))


def test_shards_and_pipelines_shrink_and_stages_and_one_expert_group_stay_whole() -> None:
    trial = trial_of(FSDP)
    assert trial.layout == replace(FSDP, data_parallel_shard_degree=4)
    assert trial.num_layers == big_job().model.num_layers
    layout = Layout(data_parallel_shard_degree=64, expert_parallel_degree=8, shard_level=ShardLevel.PARAMETERS)
    trial = trial_of(layout, sparse_job())
    assert trial.layout.expert_parallel_degree == 8
    assert trial.layout.data_parallel_shard_degree == 16
    trial = trial_of(SMALLER_PIPELINE)
    assert (trial.layout.pipeline_parallel_degree, trial.layout.virtual_stages_per_rank) == (2, 5)
    assert trial.num_layers == 80 // 4 * 2
    assert trial_of(SMALLER_PIPELINE).layout.data_parallel_replicate_degree == 2


def test_a_trial_keeps_every_rule_and_as_many_micro_batches_on_its_part_of_the_cluster() -> None:
    for layout in (FSDP, SMALLER_PIPELINE):
        trial = trial_of(layout)
        job = trial.job(big_job(), TWO_NODES)
        assert job.cluster.world_size == trial.num_ranks <= 16
        assert not reasons(trial.layout, job)
    job = big_job()
    for layout in (FSDP, SMALLER_PIPELINE):
        trial = trial_of(layout)
        small = trial.job(job, TWO_NODES)
        assert small.workload.num_micro_batches(trial.layout) == job.workload.num_micro_batches(layout)


def test_options_of_pipelines_and_shards_leave_with_their_last_rank() -> None:
    wide = replace(
        SMALLER_PIPELINE, tensor_parallel_degree=8, context_parallel_degree=2, data_parallel_replicate_degree=1
    )
    trial = trial_of(wide)
    assert trial.layout.pipeline_parallel_degree == trial.layout.virtual_stages_per_rank == 1
    assert trial.layout.pipeline_schedule is PipelineSchedule.ONE_F_ONE_B
    assert trial.num_layers == 20  # what one rank holds
    wide = replace(FSDP, tensor_parallel_degree=8, context_parallel_degree=2, data_parallel_shard_degree=4)
    assert trial_of(wide).layout.shard_level is ShardLevel.PARAMETERS  # context ranks share on
    lone = replace(FSDP, tensor_parallel_degree=8, data_parallel_shard_degree=8)
    found = proxy_trial(big_job(), lone, h100_cluster(1))
    assert isinstance(found, ProxyTrial)
    assert found.layout.shard_level is ShardLevel.NONE
    assert not found.layout.reshard_after_forward


def test_a_trial_takes_part_of_a_node_or_whole_nodes_and_larger_groups_are_refused() -> None:
    three_nodes = replace(h100_cluster(3))
    trial = proxy_trial(big_job(), FSDP, three_nodes)
    assert isinstance(trial, ProxyTrial)
    cluster = trial.job(big_job(), three_nodes).cluster
    assert (cluster.num_nodes, cluster.accelerators_per_node) == (2, 8)
    layout = Layout.parse("fsdp8 tp8 ep64 mb1")
    found = proxy_trial(sparse_job(), layout, TWO_NODES)
    assert isinstance(found, Reason)
    assert found.field == "expert_parallel_degree"
    assert "8 tensor and 64 expert ranks need 64 accelerators, but the smaller cluster has 16" in found.message
    nodes_of_four = replace(h100_cluster(4), accelerators_per_node=4)
    found = proxy_trial(big_job(), replace(FSDP, tensor_parallel_degree=8, data_parallel_shard_degree=8), nodes_of_four)
    assert isinstance(found, Reason)
    assert found.field == "tensor_parallel_degree"


def test_ends_dense_layers_and_recomputed_ones_keep_their_share_of_fewer_layers() -> None:
    layout = replace(
        SMALLER_PIPELINE,
        pipeline_schedule=PipelineSchedule.ONE_F_ONE_B,
        virtual_stages_per_rank=1,
        pipeline_parallel_degree=4,
        last_stage_less_layers=1,
    )
    whole = stage_sizes(80, 4, 0, 1)
    trial = trial_of(layout)
    few = stage_sizes(trial.num_layers, 2, 0, 1)
    assert (few[0], few[-1]) == (whole[0], whole[-1])
    layout = Layout(data_parallel_replicate_degree=8, pipeline_parallel_degree=8)
    trial = trial_of(layout, sparse_job(num_dense_layers=3))
    assert trial.num_dense_layers == 3
    assert trial.job(sparse_job(), TWO_NODES).model.num_sparse_layers == trial.num_layers - 3
    layout = Layout(data_parallel_replicate_degree=64)
    assert trial_of(layout, sparse_job(num_dense_layers=16), layers=16).num_dense_layers == 4
    layout = replace(FSDP, recompute=Recompute.FULL, recompute_every=2)
    assert fewer_layers(big_job(), layout, 10) == 6
    assert fewer_layers(big_job(), layout, 2) is None


def test_a_rank_may_hold_fewer_layers_or_the_whole_model_its_pipeline() -> None:
    trial = trial_of(FSDP, layers=20)
    assert trial.num_layers == 20
    assert not trial.measured_parts
    found = proxy_trial(big_job(), SMALLER_PIPELINE, TWO_NODES, whole_model=True)
    assert isinstance(found, ProxyTrial)
    assert found.layout == replace(SMALLER_PIPELINE, data_parallel_replicate_degree=1)
    assert found.num_layers == 80


@pytest.mark.parametrize(("layers", "fewer"), [(20, 10), (5, 2), (2, 1), (1, None)])
def test_layers_are_halved(layers: int, fewer: int | None) -> None:
    assert fewer_layers(big_job(), FSDP, layers) == fewer


# ---------------------------------------------------------------- table
TRIED = (*RULES, *TRIAL_RULES)


@cache
def of_big_job(cluster: Cluster) -> ProxyTrials:
    job, space = big_job(), SearchSpace(tensor_parallel_degree=(1, 8), micro_batch_size=(1, 2))
    return proxy_trials(job, legal_layouts(job, space, TRIED), cluster, TRIED)


@cache
def of_cores() -> ProxyTrials:
    """Two cores stand for eight."""
    job = replace(
        tiny_job(8), model=tiny_model(num_layers=8, num_kv_heads=4), workload=Workload(seq_len=64, global_batch_size=32)
    )
    return proxy_trials(job, legal_layouts(job, tiny_space(), TRIED), cpu_cluster(2), TRIED)


def test_trials_of_a_table_keep_the_rules_of_trials_and_fit_with_fewer_layers() -> None:
    trials = of_cores()
    assert len(trials) > 50
    for row in range(len(trials)):
        trial = trials.trial_of(trials.layouts.row(row))
        assert not reasons(trial.layout, trial.job(trials.job, trials.cluster), TRIED)
    trials = of_big_job(h100_cluster(2))
    for row in range(0, len(trials), len(trials) // 40):
        layout = trials.layouts.row(row)
        trial = trials.trial_of(layout)
        small = predict_one(trial.layout, trial.job(trials.job, trials.cluster))
        assert present(small.fit_probability) >= 0.5


def test_layouts_share_trials() -> None:
    trials = of_cores()
    own = [trials.trial_of(trials.layouts.row(row)) for row in range(len(trials))]
    for number in np.unique(trials.which):
        assert (
            len(
                {
                    (t.layout, t.num_layers, t.global_batch_size)
                    for t, w in zip(own, trials.which, strict=True)
                    if w == number
                }
            )
            == 1
        )
    assert len(np.unique(trials.which)) == len({(t.layout, t.num_layers, t.global_batch_size) for t in own}) < len(own)


def test_layouts_without_a_trial_are_counted_with_their_reason() -> None:
    trials = of_cores()
    every = legal_layouts(trials.job, tiny_space(), TRIED)
    assert trials.num_refused == len(every) - len(trials)
    assert "4 tensor ranks do not divide the 2 accelerators of a node" in trials.refused[0][0]
    assert not (trials.layouts.tensor_parallel_degree > 2).any()
    small_cards = replace(h100_cluster(2), accelerator=h100(memory_bytes=8 * 10**9))
    trials = of_big_job(small_cards)
    assert any("no trial fits in 8 GB" in why for why, _ in trials.refused)
    assert len(trials) < len(of_big_job(h100_cluster(2)))


def test_a_table_finds_the_trial_of_a_layout_by_its_value_and_may_be_empty() -> None:
    trials = of_cores()
    plain = replace(trials.layouts.row(0))
    assert isinstance(plain, Layout)
    assert trials.trial_of(plain).num_ranks <= 2
    job = big_job()
    none = of_cores().layouts.take(slice(0, 0))
    assert len(proxy_trials(job, none, h100_cluster(2), TRIED)) == 0


# ---------------------------------------------------------------- scaled search
FEW = h100_cluster(2)
JOB = replace(big_job(16), workload=Workload(seq_len=4096, global_batch_size=128))
SPACE = SearchSpace(
    tensor_parallel_degree=(1, 2, 4, 8),
    pipeline_parallel_degree=(1, 2, 4, 8),
    micro_batch_size=(1, 2, 4),
    pipeline_schedule=(PipelineSchedule.ONE_F_ONE_B,),
    virtual_stages_per_rank=(1,),
    shard_level=(ShardLevel.OPTIMIZER,),
    recompute=(Recompute.NONE, Recompute.FULL),
)
SMALL = proxy_trials(JOB, legal_layouts(JOB, SPACE), FEW, RULES)
LAYOUTS = SMALL.layouts
PREDICTIONS = predict(LAYOUTS, JOB)
PREDICTED_S = PREDICTIONS.step_time.total_s


def scale_down(layout: Layout) -> ProxyRun:
    trial = SMALL.trial_of(layout)
    return ProxyRun(job=trial.job(JOB, FEW), layout=trial.layout)


def sampler(*, limit_bytes: float = 1e13) -> LayoutSampler:
    return LayoutSampler(LAYOUTS, PREDICTIONS, job=JOB, limit_bytes=limit_bytes, scale_down=scale_down)


def small_s(row: int, slower_tensor: float = 1.0) -> float:
    """What the proxy trial of a row takes where tensor communication takes longer than predicted."""
    run = scale_down(LAYOUTS.row(row))
    step_time = predict_one(run.layout, run.job).step_time
    return step_time.total_s + (slower_tensor - 1) * step_time.tensor_communication_s


def true_s(slower_tensor: float) -> Floats:
    """The same of the rows themselves."""
    seconds: Floats = PREDICTED_S + (slower_tensor - 1) * PREDICTIONS.step_time.tensor_communication_s
    return seconds


def trial(
    proposer: LayoutSampler, row: int, told: dict[str, float | bool], state: TrialState = TrialState.COMPLETE
) -> FrozenTrial:
    return create_trial(
        state=state,
        value=1.0 if state == TrialState.COMPLETE else None,  # counts for nothing beside the step time
        params=params_of(LAYOUTS.row(row)),
        distributions=proposer.distributions,
        user_attrs=dict(told),
    )


def proposed(proposer: LayoutSampler, trials: Sequence[FrozenTrial]) -> int:
    proposal = present(proposer.propose(trials))
    return proposal.row


def searched(proposer: LayoutSampler, num_trials: int, slower_tensor: float) -> list[int]:
    trials: list[FrozenTrial] = []
    rows = []
    for _ in range(num_trials):
        rows.append(proposed(proposer, trials))
        trials.append(trial(proposer, rows[-1], {STEP_TIME_S: small_s(rows[-1], slower_tensor)}))
    return rows


def test_proxy_trials_lead_to_the_best_layout_at_full_size_and_none_is_asked_for_twice() -> None:
    truth = true_s(slower_tensor=6.0)
    assert truth[np.argmin(PREDICTED_S)] > 1.1 * truth.min()  # what is predicted to be best is not
    rows = searched(sampler(), 8, slower_tensor=6.0)
    assert truth[rows].min() < 1.02 * truth.min()
    rows = searched(sampler(), 8, slower_tensor=1.0)
    assert len({*rows}) == len(rows)


def test_proxy_trials_that_were_as_predicted_leave_less_to_gain_and_at_once_differ() -> None:
    proposer, order = sampler(), np.argsort(PREDICTED_S)[:4].tolist()
    trials = [trial(proposer, row, {STEP_TIME_S: small_s(row)}) for row in order]
    gains = [proposer.propose(trials[:count]) for count in (1, 2, 4)]
    values = [gain.expected_gain for gain in gains if gain]
    assert values == sorted(values, reverse=True)
    assert 0 < values[-1] < 0.2
    proposer = sampler()
    done = trial(proposer, 0, {STEP_TIME_S: small_s(0)})
    first = proposed(proposer, [done])
    assert proposed(proposer, [done, trial(proposer, first, {}, TrialState.RUNNING)]) != first


def test_the_value_of_a_proxy_trial_is_not_that_of_its_layout_and_full_ones_count_more() -> None:
    proposer = sampler()
    untold = trial(proposer, 0, {})
    proposal = present(proposer.propose([untold]))
    assert proposal.expected_gain == np.inf
    assert proposal.row != 0
    proposer, best = sampler(), int(np.argmin(PREDICTED_S))
    small = trial(proposer, best, {STEP_TIME_S: small_s(best)})
    full = trial(proposer, best, {STEP_TIME_S: float(PREDICTED_S[best]), FULL_SIZE: True})
    after_small, after_full = proposer.propose([small]), proposer.propose([full])
    assert after_small is not None
    assert after_full is not None
    assert after_full.expected_gain < after_small.expected_gain  # the best is known, and so is its residual


def test_a_proxy_trial_that_ran_out_of_memory_lowers_the_chance_of_the_layouts_like_it() -> None:
    needed = np.sort(PREDICTIONS.memory.total_bytes)
    proposer = sampler(limit_bytes=float(needed[len(needed) // 2]))
    before = present(proposer.propose([]))
    after = present(proposer.propose([trial(proposer, before.row, {OUT_OF_MEMORY: True}, TrialState.FAIL)]))
    assert PREDICTIONS.memory.total_bytes[after.row] < PREDICTIONS.memory.total_bytes[before.row]


def test_a_sampler_that_scales_down_can_be_saved() -> None:
    proposer = sampler()
    trials = [trial(proposer, 3, {STEP_TIME_S: small_s(3)})]
    again = pickle.loads(pickle.dumps(proposer))  # our own bytes
    assert proposed(again, trials) == proposed(proposer, trials)


@pytest.mark.parametrize("row", [0, 5])
def test_a_negative_step_time_of_a_proxy_trial_is_refused(row: int) -> None:
    proposer = sampler()
    with pytest.raises(ValueError, match="step_time_s"):
        proposer.propose([trial(proposer, row, {STEP_TIME_S: -1.0})])


def test_proxy_trials_and_those_of_earlier_sweeps_are_evidence_together() -> None:
    small = scale_down(LAYOUTS.row(3))
    seconds = 1.5 * predict_one(small.layout, small.job).step_time.total_s
    earlier = PastTrial(job=small.job, layout=small.layout, step_time_s=seconds, sweep_id="earlier", finished_at=0.0)
    informed = LayoutSampler(LAYOUTS, PREDICTIONS, job=JOB, limit_bytes=1e13, scale_down=scale_down, past=[earlier])
    row = proposed(informed, [])
    trials = [trial(informed, row, {STEP_TIME_S: small_s(row)})]
    assert proposed(informed, trials) != row
    assert proposed(informed, [*trials, trial(informed, 5, {STEP_TIME_S: small_s(5)})]) not in (row, 5)
