from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import islice, pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotuner.core.comparison import Challenge, ChallengeFindings, Decision, EnvironmentChange, SequentialTest
from autotuner.core.errors import InvalidInput
from autotuner.core.layout import Layout
from autotuner.core.link import LinkHealth
from autotuner.core.measuring import LINKS
from autotuner.core.run import RunState
from autotuner.core.sweep import Sweep
from autotuner.core.trial import Trial
from autotuner.core.upkeep import Retune, RetuneOutcome, Trigger, Verdict
from autotuner.report.verdicts import explanation, retune_verdict
from autotuner.runs.retune_clock import links_changed
from autotuner.search.upkeep.cron import Cron, DueRun, due_run
from autotuner.search.upkeep.retune import Standing, outcome_of, retune_announcement, trend
from tests.builders import breakdown, cpu_layout, h100_cluster, measurement, present, tiny_job, trial
from tests.unit.search.upkeep.builders import (
    BETTER,
    CHALLENGER,
    INCUMBENT,
    NIGHT,
    SLOWER,
    comparison,
    ended,
    findings,
    retune,
    retune_run,
    runs,
)

# ---------------------------------------------------------------- Why a better layout is better
BEFORE = cpu_layout(pipeline_parallel_degree=2)
AFTER = cpu_layout(data_parallel_replicate_degree=2)


def profiled(layout: Layout, **parts: float) -> Trial:
    return trial(layout, measurement=measurement(breakdown=breakdown(**parts)))


def better_than_before(trials: Sequence[Trial]) -> list[str]:
    sweep = replace(ended(), request=replace(ended().request, job=tiny_job()))
    return list(explanation(outcome_of(sweep, replace(BETTER, measured=BEFORE, challenger=AFTER), trials), "UTC"))


def test_a_better_layout_is_described_by_what_changes_and_what_was_predicted_and_measured() -> None:
    changed, predicted = better_than_before([])
    assert changed == "pipeline 2 → 1, replicate 1 → 2"
    assert predicted.startswith("predicted: it removes ")
    trials = [
        profiled(BEFORE, forward_s=0.5, pipeline_idle_s=0.4, optimizer_s=0.1),
        profiled(AFTER, forward_s=0.5, all_reduce_s=0.05, optimizer_s=0.105),
    ]
    assert better_than_before(trials)[2] == (
        "measured, in shares of the incumbent's step: pipeline idle −40 %, all-reduce +5 %"
    )


# ---------------------------------------------------------------- changed links
CLUSTER = h100_cluster(2)
LATE = LinkHealth(ends=(0, 1), delay_s=0.06, source="measured 2026-03-02")


@pytest.mark.parametrize(("factor", "changed"), [(0.8, False), (1.2, False), (0.7, True), (2.0, True)])
def test_a_network_has_changed_if_its_bandwidth_did_by_more_than_measurements_do(factor: float, changed: bool) -> None:
    link = CLUSTER.inter_node_link
    now = replace(CLUSTER, inter_node_link=link.with_bandwidth(factor * link.bandwidth_bytes_per_s))
    assert links_changed(CLUSTER, now) is changed


def test_a_link_that_begins_to_ail_is_a_change_and_its_next_measurement_is_none() -> None:
    ailing = CLUSTER.with_link_health((LATE,))
    again = replace(CLUSTER, link_health=(replace(LATE, delay_s=0.0603, source="measured 2026-03-03"),))
    assert links_changed(CLUSTER, ailing)
    assert not links_changed(ailing, again)
    assert links_changed(ailing, CLUSTER)


# ---------------------------------------------------------------- cron
BERLIN = "Europe/Berlin"


def at(text: str, zone: str = BERLIN, *, fold: int = 0) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone), fold=fold).timestamp()


def due(expression: str, after: str, count: int, zone: str = BERLIN) -> list[str]:
    """The next due times, in the zone's own wall-clock time with its distance from UTC."""
    cron = Cron.read(expression, zone)
    found = islice(cron.due_times(after=at(after, zone)), count)
    return [datetime.fromtimestamp(each, ZoneInfo(zone)).strftime("%m-%d %H:%M %z") for each in found]


def test_times_are_of_the_clock_of_a_zone_due_once_in_its_gaps_and_repeats() -> None:
    assert due("0 4 * * *", "2026-03-28T00:00", 2) == ["03-28 04:00 +0100", "03-29 04:00 +0200"]
    assert due("30 2 * * *", "2026-03-28T12:00", 2) == ["03-29 03:00 +0200", "03-30 02:30 +0200"]
    assert due("0,30 2 * * *", "2026-03-28T12:00", 3) == ["03-29 03:00 +0200", "03-30 02:00 +0200", "03-30 02:30 +0200"]
    assert due("10 2 * * *", "2026-10-03T12:00", 1, "Australia/Lord_Howe") == ["10-04 02:30 +1100"]
    assert due("30 2 * * *", "2026-10-24T12:00", 2) == ["10-25 02:30 +0200", "10-26 02:30 +0100"]
    between = at("2026-10-25T02:10", fold=1)  # 02:10 for the second time; 02:30 was due before the clock was put back
    assert Cron.read("30 2 * * *", BERLIN).next_due_at(after=between) == at("2026-10-26T02:30")
    times = list(islice(Cron.read("*/30 * * * *", BERLIN).due_times(after=at("2026-10-25T01:45")), 5))
    assert {later - earlier for earlier, later in pairwise(times)} == {1800.0}
    assert Cron.read("15 3 * * *", "UTC").next_due_at(after=0.0) == datetime(1970, 1, 1, 3, 15, tzinfo=UTC).timestamp()
    assert Cron.read("0  2 * *   1-5", "UTC").in_words == "At 02:00 on Monday through Friday"


@given(
    after=st.floats(1_700_000_000, 1_900_000_000),
    minute=st.integers(0, 59),
    hour=st.integers(0, 23),
    zone=st.sampled_from([BERLIN, "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "UTC"]),
)
def test_nightly_due_times_rise_and_there_is_one_on_each_day(after: float, minute: int, hour: int, zone: str) -> None:
    times = list(islice(Cron.read(f"{minute} {hour} * * *", zone).due_times(after=after), 4))
    days = [datetime.fromtimestamp(each, ZoneInfo(zone)).date() for each in times]
    assert times[0] > after
    assert all((later - earlier).days == 1 for earlier, later in pairwise(days))


@pytest.mark.parametrize(
    ("cron", "named", "nearest"),
    [
        ("61 2 * * *", "61 in the field minute", "59 2 * * *"),
        ("0 25 * * *", "25 in the field hour", "0 23 * * *"),
        ("0 2 0 * *", "0 in the field day of month", "0 2 1 * *"),
        ("0 2 * * fryday", "fryday in the field day of week", "0 2 * * *"),
        ("0 2 * *", "five fields", None),
        ("@daily", "five fields", None),
        ("0 0 2 * * *", "five fields", None),
        ("0 2 30 2 *", "never due", None),
        ("", "five fields", None),
    ],
)
def test_an_illegal_expression_is_refused_with_its_field_and_the_nearest(
    cron: str, named: str, nearest: str | None
) -> None:
    with pytest.raises(InvalidInput, match=named) as refused:
        Cron.read(cron, "UTC")
    assert (refused.value.field, refused.value.nearest) == ("cron", nearest)


@pytest.mark.parametrize(("zone", "nearest"), [("Europe/Berlni", BERLIN), ("../etc/passwd", None), ("Europe", None)])
def test_a_time_zone_that_does_not_exist_is_refused_with_the_nearest_that_does(zone: str, nearest: str | None) -> None:
    with pytest.raises(InvalidInput, match="IANA") as refused:
        Cron.read("0 2 * * *", zone)
    assert refused.value.field == "time_zone"
    assert nearest is None or refused.value.nearest == nearest


# ---------------------------------------------------------------- due
DAY = 86400.0


def test_runs_are_due_in_the_retunes_own_zone_unless_one_runs_or_it_is_paused() -> None:
    assert due_run(retune(), now=NIGHT - 1, is_running=False) is None
    assert due_run(retune(is_paused=True, next_due_at=None), now=NIGHT, is_running=False) is None
    found = present(due_run(retune(), now=NIGHT, is_running=True))
    assert (found.skipped, found.next_due_at) == (True, NIGHT + DAY)
    berlin = retune(cron="0 3 * * *", time_zone="Europe/Berlin")
    found = present(due_run(berlin, now=NIGHT, is_running=False))
    assert found.next_due_at == NIGHT + DAY


@pytest.mark.parametrize("late", [0.0, 5.0])
def test_a_due_time_that_has_just_come_starts_a_run_and_sets_the_next(late: float) -> None:
    assert due_run(retune(), now=NIGHT + late, is_running=False) == DueRun(
        expected_due_at=NIGHT, due_at=NIGHT, next_due_at=NIGHT + DAY, trigger=Trigger.CRON
    )


def test_one_run_catches_up_with_all_due_times_that_were_missed() -> None:
    found = present(due_run(retune(), now=NIGHT + 3600, is_running=False))
    assert (found.due_at, found.num_missed, found.trigger) == (NIGHT, 0, Trigger.CAUGHT_UP)
    assert due_run(retune(), now=NIGHT + 3 * DAY + 1, is_running=False) == DueRun(
        expected_due_at=NIGHT,
        due_at=NIGHT + 3 * DAY,
        next_due_at=NIGHT + 4 * DAY,
        trigger=Trigger.CAUGHT_UP,
        num_missed=3,
    )
    now = NIGHT + 30 * DAY
    found = present(due_run(retune(cron="* * * * *"), now=now, is_running=False))
    assert (found.num_missed, found.next_due_at) == (10_000, now + 60)


# ---------------------------------------------------------------- outcome
def outcome(found: ChallengeFindings, sweep: Sweep | None = None) -> RetuneOutcome:
    return outcome_of(sweep or ended(), found, [])


def said(found: ChallengeFindings, sweep: Sweep | None = None, **asked: object) -> str:
    return retune_verdict(retune(**asked).request, sweep or ended(), outcome(found, sweep))


def explained(found: ChallengeFindings, trials: Sequence[Trial] = ()) -> list[str]:
    return list(explanation(outcome_of(ended(), found, trials), "UTC"))


def test_an_incumbent_that_runs_as_it_did_or_faster_is_unchanged() -> None:
    unchanged = outcome(findings())
    assert (unchanged.verdict, unchanged.word) == (Verdict.UNCHANGED, "unchanged")
    assert said(findings()) == (
        "the incumbent (layout in use) is as fast as before: +0.1 % ± 1.0, 1 ktoken/s (25.0 % MFU), "
        "3 measurements compared with 4 of the run before, which scatter by 0.4 %"
    )
    faster = findings(against_baseline=comparison(change=0.08))
    assert outcome(faster).verdict is Verdict.UNCHANGED
    assert "8.0 % ± 1.0 faster than it was" in said(faster)


def test_a_regression_says_what_was_lost_since_when_and_what_differs_if_anything() -> None:
    slower = outcome(SLOWER)
    assert slower.verdict is Verdict.REGRESSION
    assert said(SLOWER, time_zone="Europe/Berlin") == (
        "the incumbent lost 7.0 % ± 1.0 since 2026-03-01 03:00 CET: 930 token/s instead of 1 ktoken/s, 3 measurements "
        "compared with 4 of the run before, which scatter by 0.4 %; what differs: torch was 2.12 and is 2.13"
    )
    assert slower.since == NIGHT - 86400
    assert slower.changes == (EnvironmentChange(name="torch", then="2.12", now="2.13"),)
    same = replace(SLOWER, runs=runs(930.0))
    assert said(same).endswith("everything that trials record of their environment is unchanged")
    both = replace(BETTER, runs=SLOWER.runs, against_baseline=SLOWER.against_baseline)
    assert outcome(both).verdict is Verdict.REGRESSION
    assert explained(both) == [f"in the present environment, {CHALLENGER} is 10.0 % ± 1.0 faster; it was not adopted"]


def test_better_layouts_wait_or_are_adopted_and_say_what_made_them_better() -> None:
    assert outcome(BETTER).verdict is Verdict.BETTER_FOUND
    assert said(BETTER).startswith(f"{CHALLENGER} is 10.0 % ± 1.0 faster than the incumbent {INCUMBENT}")
    assert said(BETTER).endswith("adopt it, or the incumbent (layout in use) stays")
    change, predicted = explained(BETTER)
    assert change == "tensor 1 → 2, replicate 2 → 1"
    assert predicted.startswith("predicted: it ")
    assert said(BETTER, adopts=True).endswith("it is the incumbent (layout in use) from now on")
    assert after(Verdict.BETTER_FOUND, BETTER).incumbent == INCUMBENT
    adopted = after(Verdict.BETTER_FOUND, BETTER, retune(adopts=True))
    assert adopted == Standing(incumbent=CHALLENGER, baseline=(runs(1100.0),))
    late = {**runs(1000.0).environment, LINKS: "nodes 2 and 3: 60 ms late"}
    better = replace(BETTER, runs=replace(runs(1000.0), environment=late))
    assert outcome(better).verdict is Verdict.BETTER_FOUND
    assert explained(better)[-1] == (
        "since 2026-03-01 02:00 UTC links have changed: links before: all healthy; links now: nodes 2 and 3: 60 ms late"
    )


def test_a_first_run_without_an_incumbent_names_the_best_that_it_found() -> None:
    alone = replace(ended().request, challenge=Challenge())
    found, sweep = findings(against_baseline=None), replace(ended(), request=alone)
    first = outcome(found, sweep)
    assert (first.verdict, first.word) == (Verdict.UNCHANGED, "baseline_set")
    assert retune_announcement(retune_run(), first, "", at=NIGHT).title == "nightly: the baseline is set"
    assert f"{INCUMBENT}, the best layout that the search found, reaches 1 ktoken/s" in said(found, sweep)


def test_a_possible_slowdown_within_the_noise_is_not_called_unchanged() -> None:
    hidden = findings(against_baseline=comparison(Decision.UNDECIDED, -0.002, noise=0.05))
    assert outcome(hidden).verdict is Verdict.UNCHANGED
    undecided = said(hidden, test=SequentialTest(loss=0.06))
    assert undecided.startswith("no slowdown was found, but a slowdown of 6 % is not ruled out: −0.2 % ± 1.0")
    disturbed = findings(against_baseline=comparison(Decision.UNDECIDED, -0.3))
    assert outcome(disturbed).verdict is Verdict.COULD_NOT_RUN
    assert said(disturbed).startswith("the incumbent (layout in use) may have become slower, but the measurements")


@pytest.mark.parametrize(
    ("sweep", "found", "why"),
    [
        (ended(RunState.FAILED, "no GPU"), ChallengeFindings(), "its sweep failed: no GPU"),
        (
            ended(),
            ChallengeFindings(measured=INCUMBENT, death="the trial failed (oom): rank 1 ran out of memory"),
            f"the incumbent {INCUMBENT} could not be measured: the trial failed (oom): rank 1 ran out of memory",
        ),
        (ended(), ChallengeFindings(), "nothing was measured: tried all"),
        (
            ended(RunState.CANCELLED, "by request"),
            findings(against_baseline=comparison(Decision.UNDECIDED)),
            "its sweep was cancelled before the incumbent was compared: by request",
        ),
    ],
)
def test_a_run_that_measured_nothing_says_why(sweep: Sweep, found: ChallengeFindings, why: str) -> None:
    assert (outcome(found, sweep).verdict, said(found, sweep)) == (Verdict.COULD_NOT_RUN, why)


def test_decisions_stand_after_a_cancel_and_simulated_ones_are_said_to_be() -> None:
    assert outcome(SLOWER, ended(RunState.CANCELLED)).verdict is Verdict.REGRESSION
    simulated = trial(INCUMBENT, measurement=measurement(is_simulated=True))
    assert {explained(found, [simulated])[-1] for found in (findings(), SLOWER, BETTER)} == {
        "no trial ran: these are times of the cost model, with random noise (fixed seed)"
    }


# ---------------------------------------------------------------- What becomes of incumbent and baseline
STANDING_BEFORE = Standing(incumbent=INCUMBENT, baseline=(runs(),))


def after(verdict: Verdict, found: ChallengeFindings | None, held: Retune | None = None) -> Standing:
    outcome = RetuneOutcome(verdict=verdict, findings=found)
    return Standing.after(held or retune(), outcome)


def test_a_baseline_grows_by_unchanged_runs_begins_anew_by_faster_ones_and_waits_for_undecided_ones() -> None:
    longer = Standing(incumbent=INCUMBENT, baseline=(runs(), runs(at=NIGHT)))
    assert after(Verdict.UNCHANGED, findings()) == longer
    faster = findings(against_baseline=comparison(change=0.08))
    assert after(Verdict.UNCHANGED, faster).baseline == (runs(at=NIGHT),)
    for change in (-0.3, 0.3):
        unsure = findings(against_baseline=comparison(Decision.UNDECIDED, change))
        assert after(Verdict.UNCHANGED, unsure) == STANDING_BEFORE


@pytest.mark.parametrize(
    ("verdict", "found"),
    [
        (Verdict.REGRESSION, SLOWER),
        (Verdict.REGRESSION, replace(BETTER, against_baseline=SLOWER.against_baseline)),
        (Verdict.COULD_NOT_RUN, ChallengeFindings(death="it died")),
        (Verdict.COULD_NOT_RUN, None),
    ],
)
def test_a_regression_or_a_run_without_results_changes_neither(
    verdict: Verdict, found: ChallengeFindings | None
) -> None:
    assert after(verdict, found, retune(adopts=True)) == STANDING_BEFORE


def test_the_first_incumbent_is_the_best_that_was_found_and_an_adopted_one_stays() -> None:
    first = after(Verdict.UNCHANGED, findings(against_baseline=None), retune(incumbent=None, baseline=()))
    assert first == Standing(incumbent=INCUMBENT, baseline=(runs(at=NIGHT),))
    adopted = retune(incumbent=CHALLENGER, baseline=())
    assert after(Verdict.UNCHANGED, findings(), adopted) == Standing(incumbent=CHALLENGER, baseline=())


# ---------------------------------------------------------------- What a retune's runs show over time
RUN = retune_run(id="rr-2")
SLOW = replace(RUN, result=RetuneOutcome(verdict=Verdict.REGRESSION, findings=SLOWER))
FIRST = retune_run(
    due_at=NIGHT - 86400,
    result=RetuneOutcome(verdict=Verdict.UNCHANGED, findings=findings(against_baseline=None)),
)


def test_a_run_is_drawn_by_its_measurements_below_the_band_that_it_left() -> None:
    (point,) = trend([SLOW])
    assert (point.run_id, point.layout, point.tokens_per_s) == ("rr-2", str(INCUMBENT), 930.0)
    assert point.reference == pytest.approx(1000.0)
    assert point.band_low == pytest.approx(990.0)
    assert point.tokens_per_s < (point.band_low or 0.0)
    scattered = replace(runs(), rates=(990.0, 1000.0, 1004.0))
    outcome = RetuneOutcome(verdict=Verdict.UNCHANGED, findings=findings(runs=scattered))
    (point,) = trend([replace(RUN, result=outcome)])
    assert (point.lowest, point.highest, point.num_measurements) == (990.0, 1004.0, 3)


def test_runs_come_from_the_oldest_on_without_a_band_at_first_and_only_if_they_measured() -> None:
    assert [(point.run_id, point.band_low is None) for point in trend([SLOW, FIRST])] == [
        ("rr-1", True),
        ("rr-2", False),
    ]
    died = replace(RUN, result=RetuneOutcome(verdict=Verdict.COULD_NOT_RUN))
    assert trend([retune_run(is_skipped=True), died]) == ()
