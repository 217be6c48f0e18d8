"""Runs of retunes from their due time to their outcome, on a store, with a clock that tests set."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from threading import Event

import pytest

from autotuner.core.access import Caller, Quota, Scope, Token
from autotuner.core.announcement import AnnouncementKind
from autotuner.core.cluster import Cluster
from autotuner.core.comparison import EnvironmentChange
from autotuner.core.errors import Conflict, InvalidInput
from autotuner.core.link import LinkHealth
from autotuner.core.measurement import Measurement
from autotuner.core.sweep import Budget
from autotuner.core.trial_spec import TrialSpec
from autotuner.core.upkeep import Retune, RetuneRequest, RetuneRun, Trigger, Verdict
from autotuner.runs.retune_clock import RetuneScheduler, software_changes
from autotuner.runs.retune_run import retune_kind
from autotuner.runs.retuning import Retuning
from autotuner.runs.worker import Worker
from autotuner.store.sql import Store, memory_store
from tests.builders import cpu_layout, profile, sweep_request
from tests.fake_launcher import FakeLauncher, plain_measurement, sweep_worker
from tests.unit.search.upkeep.builders import INCUMBENT, NIGHT

DAY = 86400.0
HOST = {"host": "a", "torch": "2.12"}
LATE = LinkHealth(ends=(0, 1), delay_s=0.06, source="measured 2026-03-02")


@dataclass
class Night:
    """A machine with a service, whose clock, speed and software a test sets."""

    store: Store = field(default_factory=memory_store)
    at: float = NIGHT - 3600
    slowness: float = 1.0
    pipeline_pace: float = 1.2
    software: Mapping[str, str] = field(default_factory=lambda: dict(HOST))
    noise: random.Random = field(default_factory=lambda: random.Random(7))

    def now(self) -> float:
        return self.at

    def monotonic(self) -> float:
        return self.at

    def sleep(self, seconds: float) -> None:
        self.at += seconds

    @property
    def retuning(self) -> Retuning:
        return Retuning(self.store, self)

    def scheduler(self, *, starts: bool = True) -> Service:
        kind = retune_kind(self.store)
        worker = Worker(self.store.runs, {kind.name: kind}, self, owner="two", lease_s=1e6, shutdown=Event())
        scheduler = RetuneScheduler(self.store, self, lambda: self.software)
        return Service(worker=worker, scheduler=scheduler if starts else None)

    def add(self, **asked: object) -> Retune:
        template = sweep_request(budget=Budget(num_trials=2, min_gain=0))
        request = RetuneRequest(
            name="nightly", cron="0 2 * * *", template=template, incumbent=INCUMBENT, searches=False
        )
        return self.retuning.add(replace(request, **asked))  # type: ignore[arg-type]  # the test's business

    def work(self) -> None:
        """Run every sweep that waits."""
        worker = sweep_worker(self.store, FakeLauncher(self.measure), self, owner="one", lease_s=1e6)
        while worker.run_once():
            pass

    def measure(self, spec: TrialSpec) -> Measurement:
        """What the machine reaches, within a thousandth; pipelines are slow."""
        self.at += 1.0
        pace = 1.0 if spec.layout.pipeline_parallel_degree == 1 else self.pipeline_pace
        measured = plain_measurement(spec, step_time_s=pace * self.slowness * self.noise.gauss(1.0, 0.001))
        return replace(measured, environment=dict(self.software))

    def relink(self, cluster: Cluster) -> None:
        """Store the cluster as it is by now."""
        self.store.descriptions.remove(Cluster, cluster.name)
        self.store.descriptions.save(cluster)

    def pass_night(self, at: float) -> RetuneRun:
        """Let it become that time, and do all that is due then."""
        self.at = at
        scheduler = self.scheduler()
        scheduler.step()
        self.work()
        scheduler.step()
        return self.runs()[0]

    def runs(self) -> list[RetuneRun]:
        return list(self.store.retunes.runs("nightly")[0])


@dataclass
class Service:
    """What ends the runs of retunes, and what starts them unless it may not."""

    worker: Worker
    scheduler: RetuneScheduler | None

    def step(self) -> None:
        while self.worker.run_once():
            pass
        if self.scheduler is not None:
            self.scheduler.step()


@pytest.fixture
def night() -> Night:
    """A night with one retune."""
    made = Night()
    made.add()
    return made


def verdict(run: RetuneRun) -> Verdict | None:
    return run.result.verdict if run.result else None


def test_a_retune_runs_by_itself_and_finds_a_machine_that_became_slower(night: Night) -> None:
    first, second = (night.pass_night(NIGHT + number * DAY) for number in range(2))
    night.slowness, night.software = 1.1, {"host": "a", "torch": "2.13"}
    third = night.pass_night(NIGHT + 2 * DAY)
    assert [verdict(run) for run in (first, second, third)] == [
        Verdict.UNCHANGED,
        Verdict.UNCHANGED,
        Verdict.REGRESSION,
    ]
    assert third.result is not None
    assert third.result.changes == (EnvironmentChange(name="torch", then="2.12", now="2.13"),)
    assert third.result.since is not None
    assert NIGHT + DAY <= third.result.since < NIGHT + DAY + 600
    kept = night.store.retunes.get("nightly")
    assert [NIGHT <= group.at < NIGHT + DAY + 600 for group in kept.baseline] == [True, True]


def test_every_outcome_is_announced_once(night: Night) -> None:
    night.pass_night(NIGHT)
    night.scheduler().step()
    (told,), _ = night.store.announcements.feed()
    assert (told.kind, told.title) == (AnnouncementKind.RETUNE_UNCHANGED, "nightly: the baseline is set")
    assert told.facts["verdict"] == "unchanged"


def test_nothing_is_started_before_it_is_due_or_twice(night: Night) -> None:
    night.scheduler().step()
    assert night.runs() == []
    night.at = NIGHT
    for scheduler in (night.scheduler(), night.scheduler()):
        scheduler.step()
    assert len(night.runs()) == 1


def test_a_retune_that_cannot_be_started_keeps_no_other_from_its_run() -> None:
    night = Night()
    request = replace(night.add().request, name="broken", cron="no expression")
    night.store.retunes.save(request, now=0.0, next_due_at=NIGHT - 1)
    assert verdict(night.pass_night(NIGHT)) is Verdict.UNCHANGED


def test_a_due_time_while_the_run_before_goes_on_is_stored_as_skipped(night: Night) -> None:
    night.at = NIGHT
    night.scheduler().step()
    night.at = NIGHT + DAY
    night.scheduler().step()
    assert [run.word for run in night.runs()] == ["skipped", "running"]


def test_a_service_that_was_away_for_days_runs_once_for_all_of_them(night: Night) -> None:
    run = night.pass_night(NIGHT + 3 * DAY + 7200)
    assert (run.request.trigger, run.request.due_at, run.request.num_missed, len(night.runs())) == (
        Trigger.CAUGHT_UP,
        NIGHT + 3 * DAY,
        3,
        1,
    )
    assert night.store.retunes.get("nightly").next_due_at == NIGHT + 4 * DAY


def test_a_loop_that_may_not_start_runs_concludes_them(night: Night) -> None:
    night.at = NIGHT
    quiet = night.scheduler(starts=False)
    quiet.step()
    assert night.runs() == []
    night.retuning.run_now("nightly")
    night.work()
    quiet.step()
    assert verdict(night.runs()[0]) is Verdict.UNCHANGED


# ---------------------------------------------------------------- people
def test_a_run_out_of_turn_leaves_the_next_due_time_alone_and_there_is_one_at_a_time(night: Night) -> None:
    assert night.retuning.run_now("nightly").request.trigger is Trigger.MANUAL
    assert night.store.retunes.get("nightly").next_due_at == NIGHT
    with pytest.raises(Conflict, match="is not finished"):
        night.retuning.run_now("nightly")


def test_due_times_during_a_pause_of_a_retune_are_not_caught_up(night: Night) -> None:
    night.retuning.pause("nightly")
    night.at = NIGHT + DAY + 60
    night.scheduler().step()
    assert night.runs() == []
    assert night.retuning.resume("nightly").next_due_at == NIGHT + 2 * DAY
    assert night.retuning.resume("nightly").next_due_at == NIGHT + 2 * DAY


def test_a_better_layout_is_found_and_becomes_the_incumbent_once_it_is_adopted() -> None:
    night = Night()
    night.add(searches=True, incumbent=cpu_layout(pipeline_parallel_degree=2))
    run = night.pass_night(NIGHT)
    assert run.result is not None
    assert verdict(run) is Verdict.BETTER_FOUND, run.detail
    adopted = night.retuning.adopt("nightly")
    assert run.result.findings is not None
    assert adopted.incumbent == run.result.findings.challenger
    assert len(adopted.baseline) == 1


def test_nothing_is_adopted_where_nothing_better_was_found(night: Night) -> None:
    night.pass_night(NIGHT)
    with pytest.raises(Conflict, match="found no better layout"):
        night.retuning.adopt("nightly")


def test_the_incumbent_adopted_again_is_held_to_what_it_reaches_from_then_on(night: Night) -> None:
    night.pass_night(NIGHT)
    night.slowness = 1.1
    assert night.retuning.adopt("nightly", INCUMBENT).baseline == ()
    assert verdict(night.pass_night(NIGHT + DAY)) is Verdict.UNCHANGED
    assert verdict(night.pass_night(NIGHT + 2 * DAY)) is Verdict.UNCHANGED


def test_a_layout_that_cannot_run_is_not_taken_for_the_one_in_use() -> None:
    with pytest.raises(InvalidInput, match="incumbent"):
        Night().add(incumbent=cpu_layout(tensor_parallel_degree=3))


def test_without_an_incumbent_the_fastest_that_was_measured_of_the_job_is_challenged(night: Night) -> None:
    night.pass_night(NIGHT)
    named = replace(night.store.retunes.get("nightly").request, name="other", incumbent=None, searches=True)
    other = night.retuning.add(named)
    assert night.retuning.incumbent(other) == INCUMBENT


# ---------------------------------------------------------------- software
def test_new_software_starts_one_run() -> None:
    night = Night()
    night.add(on_new_environment=True)
    night.pass_night(NIGHT)
    scheduler = night.scheduler()
    night.software = {"host": "a", "torch": "2.13"}
    for hour in (1, 2, 3):
        night.at = NIGHT + hour * 3600
        scheduler.step()
        night.work()
        scheduler.step()
    assert [run.request.trigger for run in night.runs()] == [Trigger.ENVIRONMENT, Trigger.CRON]


def test_a_retune_that_does_not_ask_for_it_is_not_run_for_new_software(night: Night) -> None:
    night.pass_night(NIGHT)
    night.software = {"host": "a", "torch": "2.13"}
    assert night.pass_night(NIGHT + 3600).request.trigger is Trigger.CRON


def test_new_software_cannot_be_waited_for_where_it_is_not_seen() -> None:
    template = sweep_request()
    elsewhere = replace(template.job, cluster=replace(template.job.cluster, engine="slurm"))
    with pytest.raises(InvalidInput, match="this machine cannot see the software"):
        Night().add(on_new_environment=True, template=replace(template, job=elsewhere))


@pytest.mark.parametrize(
    ("then", "now", "changed"),
    [
        ({"host": "a", "torch": "1"}, {"host": "a", "torch": "2"}, ["torch"]),
        ({"host": "a", "torch": "1"}, {"host": "b", "torch": "2"}, []),
        ({"host": "a", "OMP_NUM_THREADS": "1"}, {"host": "a", "driver": "570"}, []),
    ],
)
def test_software_has_changed_where_both_know_a_fact_of_one_machine(
    then: dict[str, str], now: dict[str, str], changed: list[str]
) -> None:
    assert [change.name for change in software_changes(then, now)] == changed


def test_a_run_that_comes_due_when_its_maker_has_nothing_left_could_not_run_and_says_so() -> None:
    night = Night()
    token = Token(id="t", name="ada", scope=Scope.RUN, quota=Quota(unfinished_sweeps=1), created_at=0.0)
    night.store.access.add_token(token, "digest")
    request = replace(night.add().request, name="ada's")
    night.store.retunes.save(request, now=0.0, next_due_at=NIGHT, created_by="ada")
    busy, _ = night.store.create_sweep(request.template, now=1.0, caller=Caller(name="ada", scope=Scope.RUN))
    night.at = NIGHT
    for _ in range(2):
        night.scheduler().step()
    (run,), _ = night.store.retunes.runs("ada's")
    assert run.result is not None
    assert (run.child_id, run.result.verdict) == (None, Verdict.COULD_NOT_RUN)
    assert "quota" in run.detail
    night.store.request_cancel(busy.id, now=NIGHT)
    night.at = NIGHT + DAY
    night.scheduler().step()
    newest = night.store.retunes.runs("ada's")[0][0]
    assert night.store.get_sweep(newest.child_id or "").created_by == "ada"


def test_a_run_predicts_by_the_links_that_the_clusters_last_check_found_and_keeps_them() -> None:
    night = Night()
    retune = night.add()
    cluster = retune.request.template.job.cluster
    night.store.descriptions.save(replace(cluster, link_health=(LATE,)))
    run = night.retuning.run_now(retune.name)
    assert run.child_id is not None
    assert night.store.get_sweep(run.child_id).request.job.cluster.link_health == (LATE,)


# ---------------------------------------------------------------- links
def test_new_links_start_one_run_that_is_not_held_to_what_the_incumbent_reached_on_the_old_ones() -> None:
    night = Night()
    cluster = sweep_request().job.cluster
    night.store.descriptions.save(cluster)
    night.add(on_new_links=True)
    night.pass_night(NIGHT)
    night.relink(replace(cluster, link_health=(LATE,)))
    night.slowness = 3.0
    for hour in (1, 2, 3):
        night.pass_night(NIGHT + hour * 3600)
    assert [(run.request.trigger, verdict(run)) for run in night.runs()] == [
        (Trigger.LINKS, Verdict.UNCHANGED),
        (Trigger.CRON, Verdict.UNCHANGED),
    ]
    (held_to,) = night.store.retunes.get("nightly").baseline
    assert held_to.at > NIGHT + 3600


def test_a_better_layout_on_new_links_is_adopted_though_the_incumbent_became_slower() -> None:
    night = Night()
    cluster = sweep_request().job.cluster
    night.store.descriptions.save(cluster)
    night.add(on_new_links=True, searches=True, adopts=True)
    assert verdict(night.pass_night(NIGHT)) is Verdict.UNCHANGED
    night.relink(replace(cluster, link_health=(LATE,)))
    night.slowness, night.pipeline_pace = 3.0, 0.2
    run = night.pass_night(NIGHT + 3600)
    assert (run.request.trigger, verdict(run)) == (Trigger.LINKS, Verdict.BETTER_FOUND)
    incumbent = night.store.retunes.get("nightly").incumbent
    assert incumbent is not None
    assert incumbent.pipeline_parallel_degree == 2


def test_a_check_of_the_network_sets_the_present_links() -> None:
    night = Night()
    cluster = replace(sweep_request().job.cluster, num_nodes=2, accelerators_per_node=1)
    night.store.descriptions.save(cluster)
    slow = replace(profile(cluster.name), cluster=cluster.name, inter_node_bandwidth_bytes_per_s=1e6)
    night.store.descriptions.save(replace(slow, inter_node_latency_s=1e-4))
    today = night.retuning.links_today(cluster)
    assert today is not None
    assert today.inter_node_link.bandwidth_bytes_per_s == 1e6
    assert today.accelerator == cluster.accelerator


def test_links_that_differ_by_no_more_than_measurements_do_start_no_run() -> None:
    night = Night()
    cluster = sweep_request().job.cluster
    night.store.descriptions.save(replace(cluster, link_health=(LATE,)))
    night.add(on_new_links=True)
    night.pass_night(NIGHT)
    night.relink(replace(cluster, link_health=(replace(LATE, delay_s=0.0603, source="a day later"),)))
    assert night.pass_night(NIGHT + 3600).request.trigger is Trigger.CRON


def test_new_links_cannot_be_waited_for_where_no_cluster_is_stored() -> None:
    with pytest.raises(InvalidInput, match="the service sees changes of links only on a stored cluster"):
        Night().add(on_new_links=True)
