from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from autotuner.core.run import Lease
from autotuner.runs.lease import LeaseWatch
from tests.clocks import ManualClock

LEASE = Lease(run_id="sw-1", owner="worker-a", claim=1, renewals=3, lease_s=20.0)


class Watching:
    """A watch, and the leases that it is shown."""

    def __init__(self, *held: Lease, owner: str | None = None) -> None:
        self.clock = ManualClock()
        self.held = list(held)
        self.watch = LeaseWatch(self.clock, owner=owner)

    def look(self) -> Sequence[Lease]:
        return self.watch.lapsed(lambda: self.held)

    def lapses_after_s(self, step_s: float = 1.0) -> float:
        """How long it takes, with a look every so often."""
        begun_at = self.clock.monotonic()
        while not self.look():
            self.clock.sleep(step_s)
        return self.clock.monotonic() - begun_at


def test_a_lease_lapses_once_it_was_watched_for_its_length_without_a_sign_of_life() -> None:
    assert Watching(LEASE).lapses_after_s() == 20.0


def test_a_lease_that_is_renewed_never_lapses() -> None:
    watching = Watching(LEASE)
    for renewals in range(100):
        watching.held = [replace(LEASE, renewals=renewals)]
        assert not watching.look()
        watching.clock.sleep(19.0)


def test_a_change_of_the_wall_clock_does_not_affect_a_lease() -> None:
    watching = Watching(LEASE)
    for jump_s in (3600.0, -7200.0, 86400.0):
        watching.clock.time += jump_s
        assert not watching.look()


def test_a_look_after_an_hour_of_other_work_takes_nothing_from_a_holder_that_lives() -> None:
    watching = Watching(LEASE)
    watching.look()
    watching.clock.sleep(3600.0)
    assert not watching.look()
    assert watching.lapses_after_s() == 15.0  # the hour counts for a quarter of the lease


def test_time_in_which_the_store_did_not_answer_counts_for_a_quarter_of_a_lease() -> None:
    watching = Watching(LEASE)
    watching.look()

    def answered_late() -> Sequence[Lease]:
        watching.clock.sleep(60.0)
        return watching.held

    assert not watching.watch.lapsed(answered_late)
    assert watching.lapses_after_s() == 20.0  # it was asked at once: what was answered may be as old as the question


def test_a_lease_is_watched_however_seldom_somebody_looks() -> None:
    assert Watching(LEASE).lapses_after_s(step_s=100.0) == 400.0


def test_a_worker_without_work_takes_up_at_once_what_stands_under_its_own_name() -> None:
    watching = Watching(LEASE, replace(LEASE, run_id="sw-2", owner="worker-b"), owner="worker-a")
    assert watching.look() == [LEASE]


def test_a_lease_that_lapsed_and_was_taken_over_is_watched_anew() -> None:
    watching = Watching(LEASE)
    watching.lapses_after_s()
    watching.held = [replace(LEASE, owner="worker-b", renewals=4)]
    assert watching.lapses_after_s() == 20.0
