from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from autotuner.catalog.hardware import accelerator_facts, load_accelerator, load_cluster
from autotuner.core import codec
from autotuner.core.amounts import (
    listed,
    read_amount,
    read_count,
    read_duration_s,
    read_number,
    read_prices,
    written_amount,
)
from autotuner.core.choices import Recompute
from autotuner.core.errors import InvalidInput
from autotuner.core.job import Job
from autotuner.core.named import resolved
from autotuner.core.space import SearchSpace
from autotuner.costmodel.predict import predict_one
from autotuner.costmodel.resource_cost import resource_cost_of
from autotuner.report.caveats import caveats_in_words
from autotuner.report.plan import advice_in_words
from autotuner.search.compute import Inline
from autotuner.search.planning.decision import Belief, Decision, Loss, PilotResult
from autotuner.search.planning.next_steps import UpgradeKind
from autotuner.search.planning.offers import changed, offers, prices_of, rentable
from autotuner.search.planning.outcomes import job_on
from autotuner.search.planning.plan import Candidate, Plan, plan, plan_id_of
from autotuner.search.planning.request import (
    ChangePrices,
    Failures,
    Goal,
    PlanRequest,
)
from autotuner.search.predicted_ranking import BestLayouts, best_predicted
from autotuner.search.space.legal import SpaceTooLarge
from tests.builders import present
from tests.unit.search.planning.requests import DAY_S, FEW, request_of


# ---------------------------------------------------------------- amounts
@pytest.mark.parametrize(
    ("text", "value"), [("15.6T", 15.6e12), ("400b", 4e11), ("2e12", 2e12), ("$3.5M", 3.5e6), ("1,000", 1000.0)]
)
def test_an_amount_may_have_a_letter_for_its_size(text: str, value: float) -> None:
    assert read_amount("tokens", text) == pytest.approx(value)


@pytest.mark.parametrize("value", [15.6e12, 4e11, 3.5e6, 12.0, 0.5])
def test_an_amount_that_was_written_is_read_as_it_was(value: float) -> None:
    assert read_amount("tokens", written_amount(value)) == pytest.approx(value)


@pytest.mark.parametrize(("text", "seconds"), [("60d", 60 * 86_400), ("8 weeks", 56 * 86_400), ("36h", 36 * 3600)])
def test_a_time_has_its_unit(text: str, seconds: float) -> None:
    assert read_duration_s("deadline", text) == seconds


def test_times_prices_and_lists_are_read_with_their_units() -> None:
    with pytest.raises(InvalidInput, match="60d"):
        read_duration_s("deadline", "60")
    assert read_prices("price", "h100=2.1, b200 = $3") == {"h100": 2.1, "b200": 3.0}
    with pytest.raises(InvalidInput, match=r"such as h100=2\.1"):
        read_prices("price", "h200")
    assert listed("a, b,") == listed("a\nb") == ("a", "b")
    assert (read_number("sizes", "16.5"), read_count("sizes", "1,024")) == (16.5, 1024)
    for text in ("x", "8.5", "inf"):
        with pytest.raises(InvalidInput, match="must be a "):
            read_count("sizes", text)


@pytest.mark.parametrize("text", ["", "-1", "1.2.3", "nan", "1e999", "2 trillion"])
def test_a_text_that_is_not_an_amount_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="tokens"):
        read_amount("tokens", text)


# ---------------------------------------------------------------- decision
FACTORS = 14  # the parts of a step, and the cluster's speed


def belief(shared: float, own: float = 0.0, log_hours: tuple[float, float] = (np.log(100), np.log(100))) -> Belief:
    """Two clusters of two accelerators, each with one shared factor of that deviation."""
    weights = np.zeros((2, 2 * FACTORS))
    weights[0, FACTORS - 1], weights[1, 2 * FACTORS - 1] = shared, shared
    return Belief(
        log_hours=np.array(log_hours),
        weights=weights,
        covariance=np.eye(2 * FACTORS),
        own=np.array([own, own]),
        accelerators=("a", "b"),
    )


def loss(limit_h: float = np.inf, prices: tuple[float, float] = (10.0, 10.0), weight: float = 3.0) -> Loss:
    return Loss(rates=np.array(prices), limits_h=np.full(2, limit_h), weight=weight, dollars=np.ones(2))


def told(accelerator: str, noise: float = 1e-6) -> PilotResult:
    rows = np.zeros((1, FACTORS))
    rows[0, -1] = 1.0
    return PilotResult(accelerator=accelerator, rows=rows, noise=np.array([noise]))


def test_a_measured_layout_is_known_up_to_its_noise_and_others_are_unchanged() -> None:
    after = belief(0.3, own=0.1).after(told("a"))
    # 1e-6 of noise and what a layout has for itself are left
    assert after.deviations == pytest.approx([0.1, np.hypot(0.3, 0.1)], rel=1e-4)
    assert belief(0.3).after(told("a", noise=1.0)).deviations[0] == pytest.approx(0.3 / np.sqrt(2))


def test_a_measurement_saves_regret_two_save_more_and_neither_more_than_is_open() -> None:
    far = belief(0.05, log_hours=(np.log(100), np.log(300)))
    assert Decision(belief=far, loss=loss()).regret_saved(far.after(told("a"))) == pytest.approx(0.0, abs=1e-9)
    equal = belief(0.2)
    saved = Decision(belief=equal, loss=loss()).regret_saved(equal.after(told("a")))
    # E max(0, m - 1) of a log-normal m of mean 1 and deviation s is 2 cdf(s / 2) - 1: that of a call at the money
    expected = 10 * 100 * np.exp(0.02) * 0.07966
    assert saved == pytest.approx(expected, rel=0.06)  # three standard errors of 2,048 draws
    equal = belief(0.2, own=0.1)
    decision = Decision(belief=equal, loss=loss())
    assert decision.regret > decision.regret_saved(equal.after(told("a"))) > 0
    equal = belief(0.2)
    decision, first = Decision(belief=equal, loss=loss()), equal.after(told("a"))
    assert decision.regret_saved(first.after(told("b"))) > decision.regret_saved(first)


def test_chances_are_log_normal_and_broken_limits_cost_more_runs() -> None:
    chances = Decision(belief=belief(0.2), loss=loss(limit_h=100 * np.exp(0.2))).chances_kept
    assert chances == pytest.approx([0.8413, 0.8413], abs=1e-3)  # one deviation above the median
    chances = Decision(belief=belief(0.2), loss=loss()).chances_best()
    assert chances.sum() == pytest.approx(1.0)
    assert chances[0] == pytest.approx(0.5, abs=0.035)  # three standard errors of 2,048 draws
    sure = belief(1e-6, log_hours=(np.log(100), np.log(120)))
    losses = Decision(belief=sure, loss=loss(limit_h=110.0)).losses
    assert losses == pytest.approx([1000.0, 1200.0 * 4], rel=1e-3)
    late = belief(0.3, log_hours=(np.log(100), np.log(50)))
    assert Decision(belief=late, loss=loss(limit_h=105.0, prices=(10.0, 25.0))).best == 1
    assert Decision(belief=late, loss=loss(prices=(10.0, 25.0))).best == 0


@pytest.mark.parametrize(
    ("goal", "rates", "limits"),
    [
        (Goal(num_tokens=1, deadline_s=3600 * 50), [100.0, 400.0], [50.0, 50.0]),
        (Goal(num_tokens=1, price_limit=2000), [1.0, 1.0], [20.0, 5.0]),
        (Goal(num_tokens=1, deadline_s=3600 * 10, price_limit=2000), [100.0, 400.0], [10.0, 5.0]),
        (Goal(num_tokens=1), [10.0, 20.0], [np.inf, np.inf]),
    ],
)
def test_a_goal_says_what_is_lost_and_up_to_when(goal: Goal, rates: list[float], limits: list[float]) -> None:
    found = Loss.by_prices(np.array([100.0, 400.0]), goal)
    assert list(found.rates) == rates
    assert list(found.limits_h) == limits
    assert list(found.rates * found.dollars) == [100.0, 400.0]


# ---------------------------------------------------------------- goal
def test_interruptions_take_a_tenth_of_the_time_of_llama_3_405b_and_less_of_smaller_runs() -> None:
    # the report says more than 90 %; the defaults are derived from exactly that
    assert Failures().goodput(16_384) == pytest.approx(0.9, abs=0.0005)
    assert 0.99 < Failures().goodput(1024) < 1
    assert Failures(lost_s=0.0).goodput(10**6) == 1


@pytest.mark.parametrize("field", ["num_tokens", "deadline_s", "price_limit"])
@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
def test_an_amount_that_is_none_is_refused_by_its_name(field: str, value: float) -> None:
    with pytest.raises(InvalidInput, match=field):
        Goal(**({"num_tokens": 1e9} | {field: value}))


# ---------------------------------------------------------------- plan
def planned(request: PlanRequest) -> Plan:
    return plan(request, Inline())


REQUEST = request_of(goal=Goal(num_tokens=1e11, deadline_s=20 * DAY_S))


@pytest.fixture(scope="module")
def found() -> Plan:
    return planned(REQUEST)


def job_of(one: Candidate) -> Job:
    return job_on(REQUEST, load_cluster(one.cluster))


def test_time_cost_and_energy_follow_from_the_best_layout_of_each_cluster(found: Plan) -> None:
    assert len(found.candidates) == found.num_compared == 4
    for one in found.candidates:
        run, prediction = one.predicted, predict_one(one.layout, job_of(one))
        assert run.num_steps == 1e11 / (4096 * 256)
        assert run.time_s.median == pytest.approx(run.num_steps * prediction.step_time.total_s / run.goodput)
        hours = run.time_s.median / 3600
        assert run.accelerator_hours.median == pytest.approx(hours * one.num_accelerators)
        assert run.cost.median == pytest.approx(hours * one.num_accelerators * one.price_per_accelerator_hour)
        power = present(resource_cost_of(one.layout, job_of(one), prediction).power)
        assert present(run.energy_kwh).median == pytest.approx(hours * power.total_w / 1000)


def test_intervals_are_at_least_those_of_steps_and_nobody_beats_the_front_in_time_and_cost(found: Plan) -> None:
    for one in found.candidates:
        error, time_s = predict_one(one.layout, job_of(one)).relative_error, one.predicted.time_s
        assert time_s.high / time_s.median >= 1 + present(error)
        assert time_s.low * time_s.high == pytest.approx(time_s.median**2)
        cost = one.predicted.cost.median
        beaten = any(
            other.predicted.time_s.median < time_s.median and other.predicted.cost.median < cost
            for other in found.candidates
        )
        assert one.is_on_front == (not beaten)


def test_the_prices_of_accelerators_and_energy_turn_the_choice() -> None:
    cheap_h100 = planned(request_of(prices={"h100": 0.5, "b200": 9.0}))
    cheap_b200 = planned(request_of(prices={"h100": 9.0, "b200": 0.5}))
    assert cheap_h100.candidates[0].accelerator == "h100-sxm"
    assert cheap_b200.candidates[0].accelerator == "b200"
    hours = {"h100": 1.0, "b200": 2.3}
    goal = Goal(num_tokens=1e11, deadline_s=400 * DAY_S)
    cheap, dear = (
        planned(request_of(goal=goal, sizes=(16,), prices=hours, tariff={"energy_price_per_kwh": price}))
        for price in (0.0, 5.0)
    )
    drawn = {one.cluster: kwh.median for one in dear.candidates if (kwh := one.predicted.energy_kwh)}
    least = min(drawn, key=lambda name: drawn[name])
    assert dear.candidates[0].cluster == least
    assert cheap.candidates[0].cluster != least
    assert cheap.candidates[0].predicted.cost.median == min(one.predicted.cost.median for one in cheap.candidates)


def test_more_of_something_buys_time_at_its_price(found: Plan) -> None:
    changes = {one.change: one for one in found.upgrades}
    assert set(changes) >= {UpgradeKind.TWICE_THE_NETWORK, UpgradeKind.MORE_MEMORY}
    network, today = changes[UpgradeKind.TWICE_THE_NETWORK], found.candidates[0]
    assert network.saved_s >= 0  # the present layout may stay
    assert network.price_per_hour == pytest.approx(0.1 * today.num_accelerators * today.price_per_accelerator_hour)
    assert network.mfu_per_dollar == pytest.approx(network.mfu / network.price_per_hour)
    worth = present(network.worth_per_accelerator_hour)
    hours = present(network.predicted).accelerator_hours.median
    at_that_price = hours * (today.price_per_accelerator_hour + worth)
    assert at_that_price == pytest.approx(today.predicted.cost.median)  # so much more, and the run costs the same


def test_small_sweeps_are_worth_more_than_they_cost_and_smaller_than_the_sweep_that_they_prepare() -> None:
    goal = Goal(num_tokens=2e12, deadline_s=90 * DAY_S)
    found = planned(request_of(goal=goal, accelerators=("h100", "mi300x"), sizes=(128,), prices={"mi300x": 3.2}))
    assert found.pilot_sweeps
    for one in found.pilot_sweeps:
        assert one.worth > 0
        assert one.num_accelerators < 128
        before = next(each.predicted.time_s for each in found.candidates if each.cluster == one.target)
        assert 1 + one.error_after < before.high / before.median
    assert sum(one.saved for one in found.pilot_sweeps) <= 1.05 * found.regret  # draws of 2,048, to a few percent


def test_own_clusters_are_compared_models_that_fit_nowhere_named_and_progress_reported() -> None:
    own = replace(load_cluster("a100:16"), name="ours", price_per_accelerator_hour=0.4)
    found = planned(request_of(clusters=(own,), sizes=(16,)))
    assert "ours" in [one.cluster for one in found.candidates]
    with pytest.raises(InvalidInput, match="llama-3-8b"):
        planned(request_of(accelerators=("rtx-4090",), sizes=(1,)))
    told: list[tuple[int, int]] = []
    plan(request_of(sizes=(8,)), Inline(), lambda done, known: told.append((done, known)))
    assert [done for done, _ in told] == list(range(1, len(told) + 1))
    assert told[-1][0] == told[-1][1]


def too_many_layouts_of(monkeypatch: pytest.MonkeyPatch, limits: Mapping[int, int]) -> None:
    """Have clusters of so many accelerators refuse spaces of more tensor-parallel degrees than named."""

    def refusing(job: Job, space: SearchSpace, **options: Any) -> BestLayouts:
        degrees = space.values("tensor_parallel_degree")
        if (most := limits.get(job.cluster.world_size)) is not None and (degrees is None or len(degrees) > most):
            raise SpaceTooLarge("space", "more than 4", f"{job.cluster.world_size} ranks split in more ways", 4)
        return best_predicted(job, space, **options)

    monkeypatch.setattr("autotuner.search.planning.outcomes.best_predicted", refusing)


def test_sizes_with_too_many_layouts_are_left_out_or_thinly_looked_through(monkeypatch: pytest.MonkeyPatch) -> None:
    too_many_layouts_of(monkeypatch, {32: 0})
    found = planned(request_of(accelerators=("h100",)))
    assert [one.num_accelerators for one in found.candidates] == [16]
    assert "h100-sxm:32 was left out: 32 ranks split in more ways" in caveats_in_words(found.caveats)
    with pytest.raises(InvalidInput, match="h100-sxm:32 was left out: 32 ranks split in more ways"):
        planned(request_of(accelerators=("h100",), sizes=(32,)))
    axes = {name: values for name, values in FEW.items() if name != "tensor_parallel_degree"}
    too_many_layouts_of(monkeypatch, {16: 4})
    found = planned(request_of(accelerators=("h100",), sizes=(16,), space=axes))
    assert [one.is_thorough for one in found.candidates] == [False]
    said = "on h100-sxm:16 only a part of the layouts was predicted: 16 ranks split in more ways"
    assert caveats_in_words(found.caveats).count(said) == 1
    too_many_layouts_of(monkeypatch, {24: 0})
    found = planned(request_of(accelerators=("h100",), sizes=(16,)))
    (more, *_) = found.upgrades
    assert (more.change, more.num_nodes) == (UpgradeKind.MORE_NODES, 2)  # the next size that is tried, and of use
    assert any("24 ranks split in more ways" in one.subjects for one in found.caveats)


# ---------------------------------------------------------------- question
ASKED = replace(
    request_of(),
    prices={"h100": 2.0, "b200": 4.0},
    space={"recompute": (Recompute.NONE,), "tensor_parallel_degree": None},
)


def test_a_question_is_read_as_it_was_written_and_equal_ones_have_equal_ids() -> None:
    read = codec.loads(PlanRequest, codec.dumps(ASKED))
    assert read == ASKED
    assert isinstance(read.space["recompute"][0], Recompute)
    turned = replace(ASKED, prices={"b200": 4, "h100": 2})
    assert plan_id_of(turned) == plan_id_of(ASKED) == plan_id_of(codec.loads(PlanRequest, codec.dumps(ASKED)))
    assert plan_id_of(replace(ASKED, prices={"h100": 2.1, "b200": 4.0})) != plan_id_of(ASKED)


# ---------------------------------------------------------------- whole clusters
def test_clusters_are_rentable_hold_the_model_and_keep_the_deadline() -> None:
    names = rentable()
    assert {"h100-sxm", "h200", "b200", "mi300x", "gb200"} <= set(names)
    assert not {"cpu", "v100", "h800", "h20", "rtx-4090", "a10"} & set(names)
    for name in names:
        assert accelerator_facts(name)["price_per_accelerator_hour"].value > 0
    goal = Goal(num_tokens=1e12, deadline_s=30 * DAY_S)
    found = [one.cluster for one in offers(request_of(goal=goal, accelerators=("h100",), sizes=()))]
    sizes = [cluster.world_size for cluster in found]
    assert sizes == [size << power for power, size in enumerate([sizes[0]] * len(sizes))]  # powers of two of one node
    peak = load_accelerator("h100").bf16_flop_per_s
    flop = 1e12 * resolved(request_of().model).model_flop_per_token(4096)
    assert flop / (sizes[0] * peak) < 30 * DAY_S  # at its peak, the smallest would be done
    assert flop / (sizes[0] / 2 * peak) > 0.65 * 30 * DAY_S  # half of it never was, in any published run


def test_prices_are_the_listed_ones_with_their_source_unless_others_are_given() -> None:
    request = request_of(accelerators=("h100",), sizes=(8,), prices={"h100": 2.0}, tariff={"energy_price_per_kwh": 0.1})
    (offer,) = offers(request)
    tariff = replace(load_cluster("h100:8").tariff, energy_price_per_kwh=0.1)  # what hosts draw stays the catalog's
    assert (offer.cluster.price_per_accelerator_hour, offer.cluster.tariff) == (2.0, tariff)
    (price,) = prices_of(request, [offer])
    assert (price.accelerator, price.per_hour, price.source) == ("h100-sxm", 2.0, "")
    request = request_of(accelerators=("h100",), sizes=(8,))
    (price,) = prices_of(request, offers(request))
    assert (price.per_hour, price.source, price.date) == (
        3.95,
        "Modal price list, per second times 3,600",
        "2026-05-07",
    )


def test_hypothetical_clusters_have_another_network_or_memory_at_the_catalogs_price() -> None:
    cluster = load_cluster("h100:16")
    other = changed(cluster, ChangePrices(), network_factor=2.0, extra_bytes=40_000_000_000)
    assert other.inter_node_link.bandwidth_bytes_per_s == 2 * cluster.inter_node_link.bandwidth_bytes_per_s
    assert other.accelerator.memory_bytes == cluster.accelerator.memory_bytes + 40_000_000_000
    assert other.price_per_accelerator_hour == pytest.approx(3.95 * 1.1 + 40 * 0.009)
    assert other.name == "h100:16 2 x network +40 GB"
    h100, h200 = (accelerator_facts(name) for name in ("h100", "h200"))
    more = h200["price_per_accelerator_hour"].value - h100["price_per_accelerator_hour"].value
    gigabytes = (h200["memory_bytes"].value - h100["memory_bytes"].value) / 1e9
    assert ChangePrices().memory_per_gb_hour == pytest.approx(
        more / gigabytes, rel=0.01
    )  # rounded to a tenth of a cent


def test_every_factor_meets_every_memory_and_size_and_what_has_no_answer_is_refused() -> None:
    found = offers(request_of(network_factors=(1.0, 2.0), extra_memory_bytes=(0, 10**10)))
    assert len(found) == 2 * 2 * 2 * 2
    assert sum(not offer.is_hypothetical for offer in found) == 4
    goal = Goal(num_tokens=1e15, deadline_s=DAY_S)
    with pytest.raises(InvalidInput, match=r"1e\+15 tokens, 1 days"):
        offers(request_of(goal=goal, accelerators=("h100",), sizes=(), max_accelerators=64))
    with pytest.raises(InvalidInput, match="512"):
        offers(request_of(sizes=tuple(8 * size for size in range(1, 300))))


# ---------------------------------------------------------------- Figures of plans in words
@pytest.mark.parametrize(
    ("chance", "said"),
    [(0.97, "Take h100:64"), (0.5, "Take h100:64"), (0.1, "No clear choice: h100:64 is slightly ahead")],
)
def test_a_cluster_that_is_likelier_not_the_best_is_said_to_lead_alone(chance: float, said: str) -> None:
    assert advice_in_words("h100:64", chance) == said
