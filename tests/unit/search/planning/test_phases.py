from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from autotuner.catalog.hardware import load_cluster
from autotuner.catalog.models import load_model
from autotuner.core.choices import Precision, Recompute
from autotuner.core.errors import InvalidInput
from autotuner.core.job import Job, JobPhase, PhasedJob, SwitchCost
from autotuner.core.layout import Layout
from autotuner.core.rules.legality import reasons
from autotuner.core.workload import Workload
from autotuner.costmodel.predict import predict_one
from autotuner.report.jobs import course_in_words
from autotuner.search.planning.phases import (
    PhasesPlan,
    PhasesQuestion,
    cheapest_course,
    course_s,
    each_phase_its_own,
    plan_phases,
)
from tests.builders import present

# ---------------------------------------------------------------- course
INF = float("inf")


def test_a_layout_changes_where_that_saves_more_than_the_switches_cost() -> None:
    phase_s = np.array([[1.0, 5.0], [5.0, 1.0]])
    assert cheapest_course(phase_s, 3.9) == (0, 1)
    assert cheapest_course(phase_s, 4.1) in ((0, 0), (1, 1))
    phase_s = np.array([[1.0, 5.0], [3.0, 1.0], [1.0, 5.0]])
    assert cheapest_course(phase_s, 1.5) == (0, 0, 0)
    assert each_phase_its_own(phase_s) == (0, 1, 0)
    assert course_s((0, 1, 0), phase_s, 1.5) == 6.0
    phase_s = np.array([[2.0, 1.0]])
    assert cheapest_course(phase_s, 1.5, start=0) == (0,)
    assert cheapest_course(phase_s, 0.5, start=0) == (1,)
    assert course_s((1,), phase_s, 0.5, start=0) == 1.5
    assert cheapest_course(np.array([[1.0, INF], [INF, 1.0]]), 100.0) == (0, 1)
    assert cheapest_course(np.array([[1.0, INF], [INF, INF]]), 1.0) is None
    assert each_phase_its_own(np.array([[1.0, INF], [INF, INF]])) is None


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("start", [None, 2])
def test_no_course_is_cheaper_than_the_one_that_is_found(seed: int, start: int | None) -> None:
    phase_s = np.random.default_rng(seed).uniform(0.0, 3.0, (4, 5))
    found = present(cheapest_course(phase_s, 0.7, start))
    every = [course_s(course, phase_s, 0.7, start) for course in product(range(5), repeat=4)]
    assert course_s(found, phase_s, 0.7, start) == pytest.approx(min(every))  # sums in another order


# ---------------------------------------------------------------- plan
JOB = Job(
    model=load_model("llama-3-8b"),
    cluster=load_cluster("h100:16"),
    workload=Workload(seq_len=8192, global_batch_size=256),
)
AXES = {"precision": (Precision.BF16,), "recompute": (Recompute.NONE,)}
PHASES = (JobPhase(name="main", token_share=0.8), JobPhase(name="thin", token_share=0.2, bandwidth_bytes_per_s=1e9))


def planned(phased: PhasedJob) -> PhasesPlan:
    return plan_phases(PhasesQuestion(phased=phased, axes=AXES))


def of(num_tokens: float, *phases: JobPhase, switch: SwitchCost | None = None) -> PhasedJob:
    return PhasedJob(job=JOB, num_tokens=num_tokens, phases=phases or PHASES, switch=switch or SwitchCost())


def test_a_phase_gets_a_layout_and_a_number_format_of_its_own_where_that_is_worth_it() -> None:
    plan = planned(of(1e12))
    assert plan.best.num_switches == 1
    assert plan.best == plan.greedy
    assert present(plan.saved_s) > 0.0
    for choice, phase in zip(plan.best.choices, PHASES, strict=True):
        there = phase.job(JOB)
        assert not reasons(choice.layout, there)
        assert choice.step_s == predict_one(choice.layout, there).step_time.total_s
    phases = (
        JobPhase(name="main", token_share=0.9, precision=Precision.FP8),
        JobPhase(name="cooldown", token_share=0.1, precision=Precision.BF16),
    )
    plan = planned(of(1e12, *phases))
    assert [choice.layout.precision for choice in plan.best.choices] == [Precision.FP8, Precision.BF16]
    assert plan.statics == ()
    assert list(course_in_words(plan))[-1].startswith("no layout can run in every phase")


def test_a_short_training_stays_in_one_layout_and_the_best_course_takes_no_longer() -> None:
    plan = planned(of(1e7))
    assert plan.best.num_switches == 0
    assert plan.best == plan.statics[0]
    assert list(course_in_words(plan))[-1].startswith("one layout for all phases is best")
    for num_tokens in (1e8, 1e9, 1e10):
        plan = planned(of(num_tokens))
        assert plan.best.total_s <= min(plan.statics[0].total_s, plan.greedy.total_s)
        parts_s = sum(choice.expected_s + choice.switch_s for choice in plan.best.choices)
        assert plan.best.total_s == pytest.approx(parts_s)  # the same sum in another order


def test_the_layout_that_runs_today_is_left_where_that_is_worth_a_switch() -> None:
    today = planned(of(1e12)).best.choices[1].layout
    whole = JobPhase(name="all", token_share=1.0)
    questions = (PhasesQuestion(phased=of(tokens, whole), axes=AXES, current=today) for tokens in (1e7, 1e12))
    stays, leaves = map(plan_phases, questions)
    assert stays.best.choices[0].layout == today
    assert stays.best.num_switches == 0
    assert leaves.best.num_switches == 1
    assert leaves.best.choices[0].switch_s == leaves.switch_s


def test_an_impossible_plan_is_refused_with_its_field() -> None:
    phased = of(1e9)
    with pytest.raises(InvalidInput, match=f"of the cluster, {phased.job.cluster.world_size}, but it is 5"):
        PhasesQuestion(phased=phased, current=Layout(tensor_parallel_degree=5))
    small = replace(JOB, cluster=load_cluster("h100:1"))
    phased = replace(of(1e9), job=replace(small, model=load_model("llama-3-70b")))
    with pytest.raises(InvalidInput, match=r"phases\.0 = 'main'.*fits in memory"):
        planned(phased)
