"""Which trial on a smaller cluster stands for each layout of a table."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np

from autotuner.core.cluster import Cluster
from autotuner.core.layout import Layout
from autotuner.core.rules.legality import RULES, reasons
from autotuner.core.rules.trial import TRIAL_RULES
from autotuner.core.workload import Workload
from autotuner.costmodel.predict import predict_one
from autotuner.search.scaling.table import SmallTrials, small_trials
from autotuner.search.space import legal_layouts
from tests.builders import big_job, cpu_cluster, h100, h100_cluster, tiny_job, tiny_model, tiny_space

TRIED = (*RULES, *TRIAL_RULES)


@cache
def of_big_job(cluster: Cluster) -> SmallTrials:
    job = big_job()
    return small_trials(job, legal_layouts(job, None, TRIED), cluster, TRIED)


def of_cores() -> SmallTrials:
    """Two cores stand for eight."""
    job = replace(
        tiny_job(8), model=tiny_model(num_layers=8, num_kv_heads=4), workload=Workload(seq_len=64, global_batch_size=32)
    )
    return small_trials(job, legal_layouts(job, tiny_space(), TRIED), cpu_cluster(2), TRIED)


def test_every_trial_keeps_the_rules_of_trials_on_its_own_ranks() -> None:
    trials = of_cores()
    assert len(trials) > 50
    for row in range(len(trials)):
        trial = trials.trial_of(trials.layouts.row(row))
        assert not reasons(trial.layout, trial.job(trials.job, trials.cluster), TRIED)


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


def test_layouts_whose_groups_outgrow_the_cluster_are_counted_with_their_reason() -> None:
    trials = of_cores()
    every = legal_layouts(trials.job, tiny_space(), TRIED)
    assert trials.num_refused == len(every) - len(trials)
    assert "4 tensor ranks do not divide the 2 of its nodes" in trials.refused[0][0]
    assert not (trials.layouts.tensor_parallel_degree > 2).any()


def test_trials_run_fewer_layers_where_fewer_ranks_would_not_hold_all() -> None:
    trials = of_big_job(h100_cluster(2))
    for row in range(0, len(trials), len(trials) // 40):
        layout = trials.layouts.row(row)
        trial = trials.trial_of(layout)
        small = predict_one(trial.layout, trial.job(trials.job, trials.cluster))
        assert small.fit_probability is not None
        assert small.fit_probability >= 0.5


def test_without_room_for_a_single_layer_there_is_no_trial() -> None:
    small_cards = replace(h100_cluster(2), accelerator=h100(memory_bytes=8 * 10**9))
    trials = of_big_job(small_cards)
    assert any("no trial fits in 8 GB" in why for why, _ in trials.refused)
    assert len(trials) < len(of_big_job(h100_cluster(2)))


def test_an_empty_table_has_no_trials() -> None:
    job = big_job()
    none = legal_layouts(job, None, TRIED).take(slice(0, 0))
    assert len(small_trials(job, none, h100_cluster(2), TRIED)) == 0


def test_a_layout_of_the_table_is_found_by_its_value() -> None:
    trials = of_cores()
    plain = replace(trials.layouts.row(0))
    assert isinstance(plain, Layout)
    assert trials.trial_of(plain).num_ranks <= 2
