from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from autotuner.aside.asides import Inline
from autotuner.catalog.hardware import load_cluster
from autotuner.core.errors import InvalidInput
from autotuner.core.job import Job
from autotuner.core.space import SearchSpace
from autotuner.costmodel.predict import predict_one
from autotuner.costmodel.resource_cost import footprint_of
from autotuner.search.planning.best_layouts import job_on
from autotuner.search.planning.goal import Goal
from autotuner.search.planning.plan import Candidate, Plan, plan
from autotuner.search.planning.request import PlanRequest
from autotuner.search.ranking import PredictionTable, best_predicted
from autotuner.search.splits import SpaceTooLarge
from tests.unit.search.planning.requests import DAY_S, FEW, request_of


def planned(request: PlanRequest) -> Plan:
    return plan(request, Inline())


REQUEST = request_of(goal=Goal(num_tokens=1e11, deadline_s=20 * DAY_S))


@pytest.fixture(scope="module")
def found() -> Plan:
    return planned(REQUEST)


def job_of(one: Candidate) -> Job:
    return job_on(REQUEST, load_cluster(one.cluster))


def test_time_cost_and_energy_follow_from_the_best_layout_of_each_cluster(found: Plan) -> None:
    assert len(found.contenders) == found.num_compared == 4
    for one in found.contenders:
        run, prediction = one.predicted, predict_one(one.layout, job_of(one))
        assert run.num_steps == 1e11 / (4096 * 256)
        assert run.time_s.median == pytest.approx(run.num_steps * prediction.step_time.total_s / run.goodput)
        hours = run.time_s.median / 3600
        assert run.accelerator_hours.median == pytest.approx(hours * one.num_accelerators)
        assert run.cost.median == pytest.approx(hours * one.num_accelerators * one.price_per_accelerator_hour)
        power = footprint_of(one.layout, job_of(one), prediction).power
        assert run.energy_kwh is not None
        assert power is not None
        assert run.energy_kwh.median == pytest.approx(hours * power.total_w / 1000)


def test_an_interval_is_at_least_that_of_the_step(found: Plan) -> None:
    for one in found.contenders:
        error, time_s = predict_one(one.layout, job_of(one)).relative_error, one.predicted.time_s
        assert error is not None
        assert time_s.high / time_s.median >= 1 + error
        assert time_s.low * time_s.high == pytest.approx(time_s.median**2)


def test_nobody_beats_the_front_in_both_time_and_cost(found: Plan) -> None:
    for one in found.contenders:
        time_s, cost = one.predicted.time_s.median, one.predicted.cost.median
        beaten = any(
            other.predicted.time_s.median < time_s and other.predicted.cost.median < cost for other in found.contenders
        )
        assert one.is_on_front == (not beaten)


def test_the_price_of_an_accelerator_turns_the_choice() -> None:
    cheap_h100 = planned(request_of(prices={"h100": 0.5, "b200": 9.0}))
    cheap_b200 = planned(request_of(prices={"h100": 9.0, "b200": 0.5}))
    assert cheap_h100.contenders[0].accelerator == "h100-sxm"
    assert cheap_b200.contenders[0].accelerator == "b200"


def test_the_price_of_energy_turns_the_choice_to_who_draws_less() -> None:
    hours = {"h100": 1.0, "b200": 2.3}
    goal = Goal(num_tokens=1e11, deadline_s=400 * DAY_S)
    cheap, dear = (
        planned(request_of(goal=goal, sizes=(16,), prices=hours, tariff={"energy_price_per_kwh": price}))
        for price in (0.0, 5.0)
    )
    drawn = {one.cluster: kwh.median for one in dear.contenders if (kwh := one.predicted.energy_kwh)}
    least = min(drawn, key=lambda name: drawn[name])
    assert dear.contenders[0].cluster == least
    assert cheap.contenders[0].cluster != least
    assert cheap.contenders[0].predicted.cost.median == min(one.predicted.cost.median for one in cheap.contenders)


def test_more_of_something_buys_time_at_its_price(found: Plan) -> None:
    changes = {one.change: one for one in found.marginals}
    assert set(changes) >= {"twice the network", "40 GB more memory"}
    network, present = changes["twice the network"], found.contenders[0]
    assert network.predicted is not None
    assert network.saved_s >= 0  # the present layout may stay
    assert network.price_per_hour == pytest.approx(0.1 * present.num_accelerators * present.price_per_accelerator_hour)
    assert network.mfu_per_dollar == pytest.approx(network.mfu / network.price_per_hour)
    worth = network.worth_per_accelerator_hour
    assert worth is not None
    hours = network.predicted.accelerator_hours.median
    at_that_price = hours * (present.price_per_accelerator_hour + worth)
    assert at_that_price == pytest.approx(present.predicted.cost.median)  # so much more, and the run costs the same


def test_small_sweeps_are_worth_more_than_they_cost_and_smaller_than_what_they_stand_for() -> None:
    goal = Goal(num_tokens=2e12, deadline_s=90 * DAY_S)
    found = planned(request_of(goal=goal, accelerators=("h100", "mi300x"), sizes=(128,), prices={"mi300x": 3.2}))
    assert found.proofs
    for one in found.proofs:
        assert one.worth > 0
        assert one.num_accelerators < 128
        before = next(each.predicted.time_s for each in found.contenders if each.cluster == one.target)
        assert 1 + one.error_after < before.high / before.median
    assert sum(one.saved for one in found.proofs) <= 1.05 * found.regret  # draws of 2,048, to a few percent


def test_own_clusters_are_compared_beside_those_that_are_named() -> None:
    own = replace(load_cluster("a100:16"), name="ours", price_per_accelerator_hour=0.4)
    found = planned(request_of(clusters=(own,), sizes=(16,)))
    assert "ours" in [one.cluster for one in found.contenders]


def test_where_no_layout_fits_the_model_is_named() -> None:
    with pytest.raises(InvalidInput, match="llama-3-8b"):
        planned(request_of(accelerators=("rtx-4090",), sizes=(1,)))


def test_progress_is_told_piece_by_piece() -> None:
    told: list[tuple[int, int]] = []
    plan(request_of(sizes=(8,)), Inline(), lambda done, known: told.append((done, known)))
    assert [done for done, _ in told] == list(range(1, len(told) + 1))
    assert told[-1][0] == told[-1][1]


def too_many_layouts_of(monkeypatch: pytest.MonkeyPatch, limits: Mapping[int, int]) -> None:
    """Have clusters of so many accelerators refuse spaces of more tensor-parallel degrees than named."""

    def refusing(job: Job, space: SearchSpace, **options: Any) -> PredictionTable:
        degrees = space.values("tensor_parallel_degree")
        if (most := limits.get(job.cluster.world_size)) is not None and (degrees is None or len(degrees) > most):
            raise SpaceTooLarge("space", "more than 4", f"{job.cluster.world_size} ranks split in more ways", 4)
        return best_predicted(job, space, **options)

    monkeypatch.setattr("autotuner.search.planning.best_layouts.best_predicted", refusing)


def test_a_size_with_too_many_layouts_is_left_out_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    too_many_layouts_of(monkeypatch, {32: 0})
    found = planned(request_of(accelerators=("h100",)))
    assert [one.num_accelerators for one in found.contenders] == [16]
    assert "h100-sxm:32 was left out: 32 ranks split in more ways" in found.caveats
    with pytest.raises(InvalidInput, match="h100-sxm:32 was left out: 32 ranks split in more ways"):
        planned(request_of(accelerators=("h100",), sizes=(32,)))


def test_a_leading_size_with_too_many_layouts_keeps_the_best_of_a_thin_space(monkeypatch: pytest.MonkeyPatch) -> None:
    axes = {name: values for name, values in FEW.items() if name != "tensor_parallel_degree"}
    too_many_layouts_of(monkeypatch, {16: 4})
    found = planned(request_of(accelerators=("h100",), sizes=(16,), axes=axes))
    assert [one.is_thorough for one in found.contenders] == [False]
    said = "on h100-sxm:16 a thin space of layouts was looked through: 16 ranks split in more ways"
    assert found.caveats.count(said) == 1


def test_one_more_node_with_too_many_layouts_does_not_end_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    too_many_layouts_of(monkeypatch, {24: 0})
    found = planned(request_of(accelerators=("h100",), sizes=(16,)))
    (more, *_) = found.marginals
    assert more.change == "2 more nodes"  # the next size that is tried, and of use
    assert any("was left out: 24 ranks split in more ways" in caveat for caveat in found.caveats)
