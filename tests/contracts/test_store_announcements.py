"""Store contract: announcements, webhooks, and deliveries that one sender makes at a time."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import pytest

from autotuner.core.announcement import AnnouncementKind, Delivery, DeliveryState, PayloadFormat
from autotuner.core.errors import Conflict, InvalidInput, NotFound
from autotuner.core.run import HeldLease, SweepState
from autotuner.ports import Page, Store
from tests.contracts.acts import OTHER, OWNER, claim, create, finish, held_sweep, measure
from tests.contracts.crowd import in_threads
from tests.contracts.upkeep import (
    announcement,
    asked_gate,
    end_sweep,
    outcome,
    saved_retune,
    started_run,
    webhook,
)

NUM_THREADS = 8


def pending(store: Store, *, now: float = 20.0) -> Delivery:
    """The delivery of one announcement to one webhook."""
    store.announcements.save_webhook(webhook())
    store.announcements.announce(announcement(at=now))
    ((delivery,), _) = store.announcements.deliveries()
    return delivery


def claimed(store: Store, *, now: float = 21.0, lapsed: Collection[HeldLease] = ()) -> Delivery:
    delivery = store.announcements.claim_delivery(owner=OWNER, now=now, lease_s=10.0, lapsed=lapsed)
    assert delivery is not None
    return delivery


# ---------------------------------------------------------------------- the feed
def test_the_feed_is_read_newest_first_in_pages(store: Store) -> None:
    told = [announcement(f"rt-{number}", at=float(number)) for number in range(3)]
    for one in (told[1], told[0], told[2]):
        store.announcements.announce(one)
    assert store.announcements.feed(page=Page(limit=2)) == ([told[2], told[1]], 3)
    assert store.announcements.feed(page=Page(offset=2)) == ([told[0]], 3)


def test_an_outcome_is_announced_once(store: Store) -> None:
    store.announcements.announce(announcement())
    with pytest.raises(Conflict, match="an-rt-x"):
        store.announcements.announce(announcement())


def test_a_finished_sweep_is_announced_with_the_best_that_it_found(store: Store) -> None:
    sweep = held_sweep(store, name="weekly")
    measure(store, sweep, 0, mfu=0.382)
    finish(store, sweep)
    ((told,), _) = store.announcements.feed()
    assert (told.kind, told.at, told.subject_id) == (AnnouncementKind.SWEEP_FINISHED, 20.0, sweep.id)
    assert told.title == "Sweep weekly, tiny on cpu:2: complete, best MFU 38.2 % measured"
    assert (told.text, told.path) == ("4 of 4 trials ran", f"/sweeps/{sweep.id}")
    assert (told.facts["stop_reason"], told.facts["best_measured_mfu"]) == ("trial_budget", 0.382)


def test_a_sweep_that_is_cancelled_while_nobody_holds_it_is_announced_once(store: Store) -> None:
    sweep = create(store)
    for now in (5.0, 6.0):
        store.request_cancel(sweep.id, now=now)
    ((told,), _) = store.announcements.feed()
    assert (told.at, told.facts["state"]) == (5.0, SweepState.CANCELLED.value)


def test_sweeps_of_retunes_and_gates_are_not_announced_by_themselves(store: Store) -> None:
    saved_retune(store)
    end_sweep(store, started_run(store).sweep_id)
    end_sweep(store, asked_gate(store).sweep_id)
    assert store.announcements.feed() == ([], 0)


# ---------------------------------------------------------------------- webhooks
def test_a_webhook_is_read_as_it_was_saved(store: Store) -> None:
    kinds = (AnnouncementKind.GATE_FAILED, AnnouncementKind.RETUNE_REGRESSION)
    saved = webhook(kinds=kinds, format=PayloadFormat.SLACK, created_at=3.0)
    store.announcements.save_webhook(saved)
    assert store.announcements.get_webhook("team") == saved
    with pytest.raises(Conflict, match="team"):
        store.announcements.save_webhook(webhook())
    with pytest.raises(InvalidInput, match="printable"):
        store.announcements.save_webhook(webhook(""))


def test_webhooks_are_listed_by_name(store: Store) -> None:
    for name in ("b", "a", "C"):
        store.announcements.save_webhook(webhook(name))
    assert [hook.name for hook in store.announcements.list_webhooks()] == ["C", "a", "b"]


def test_a_webhook_that_is_not_stored_is_missing_and_the_nearest_named(store: Store) -> None:
    store.announcements.save_webhook(webhook())
    with pytest.raises(NotFound) as missing:
        store.announcements.get_webhook("teams")
    assert missing.value.nearest == "team"
    with pytest.raises(NotFound, match="teams"):
        store.announcements.remove_webhook("teams")


def test_a_removed_webhook_takes_its_deliveries_along(store: Store) -> None:
    pending(store)
    held = claimed(store)
    store.announcements.remove_webhook("team")
    assert store.announcements.list_webhooks() == []
    assert store.announcements.deliveries() == ([], 0)
    assert store.announcements.end_delivery(held.id, DeliveryState.DELIVERED, "200", now=22.0) is None
    assert store.announcements.feed()[1] == 1


# ---------------------------------------------------------------------- deliveries
def test_an_announcement_goes_to_every_webhook_that_wants_its_kind(store: Store) -> None:
    store.announcements.save_webhook(webhook("all"))
    store.announcements.save_webhook(webhook("regressions", kinds=(AnnouncementKind.RETUNE_REGRESSION,)))
    store.announcements.save_webhook(webhook("gates", kinds=(AnnouncementKind.GATE_FAILED,)))
    store.announcements.announce(announcement())
    deliveries, total = store.announcements.deliveries()
    assert {delivery.webhook for delivery in deliveries} == {"all", "regressions"}
    assert total == 2
    for delivery in deliveries:
        assert (delivery.announcement, delivery.state) == (announcement(), DeliveryState.PENDING)
        assert (delivery.attempts, delivery.created_at, delivery.next_attempt_at) == (0, 20.0, 20.0)


def test_what_was_told_before_a_webhook_came_is_not_delivered_to_it(store: Store) -> None:
    store.announcements.announce(announcement())
    store.announcements.save_webhook(webhook())
    assert store.announcements.deliveries() == ([], 0)


def test_a_delivery_is_claimed_when_it_is_due_and_counts_as_an_attempt(store: Store) -> None:
    waiting = pending(store)
    assert store.announcements.claim_delivery(owner=OWNER, now=19.0, lease_s=10.0) is None
    assert claimed(store) == replace(waiting, attempts=1, next_attempt_at=31.0)
    assert store.announcements.claim_delivery(owner=OWNER, now=30.0, lease_s=10.0) is None


def test_a_delivery_whose_sender_was_seen_to_be_silent_is_due_again(store: Store) -> None:
    pending(store)
    held = claimed(store)
    assert store.announcements.claim_delivery(owner=OTHER, now=1e9, lease_s=10.0) is None
    (lease,) = store.announcements.held_deliveries()
    assert (lease.id, lease.owner, lease.renewals) == (held.id, OWNER, 1)
    assert claimed(store, lapsed=[lease]).attempts == 2
    assert store.announcements.claim_delivery(owner=OTHER, now=1e9, lease_s=10.0, lapsed=[lease]) is None


@pytest.mark.parametrize("state", [None, DeliveryState.DEAD])
def test_nobody_holds_a_delivery_that_was_put_off_or_ended(store: Store, state: DeliveryState | None) -> None:
    pending(store)
    if state is None:
        store.announcements.retry_delivery(claimed(store).id, next_attempt_at=60.0, detail="503 busy")
    else:
        store.announcements.end_delivery(claimed(store).id, state, "said", now=22.0)
    assert store.announcements.held_deliveries() == []


def test_the_delivery_that_is_due_longest_comes_first(store: Store) -> None:
    store.announcements.save_webhook(webhook())
    for number, at in ((0, 12.0), (1, 10.0), (2, 11.0)):
        store.announcements.announce(announcement(f"rt-{number}", at=at))
    assert [claimed(store).announcement.subject_id for _ in range(3)] == ["rt-1", "rt-2", "rt-0"]


def test_each_delivery_is_claimed_by_one_thread(store: Store) -> None:
    store.announcements.save_webhook(webhook())
    for number in range(12):
        store.announcements.announce(announcement(f"rt-{number}"))

    def claim_all(_: int) -> list[str]:
        got = []
        while delivery := store.announcements.claim_delivery(owner=OWNER, now=21.0, lease_s=10.0):
            got.append(delivery.id)
        return got

    every = [delivery_id for mine in in_threads(NUM_THREADS, claim_all) for delivery_id in mine]
    assert len(every) == len(set(every)) == 12


def test_a_delivery_that_failed_is_put_off(store: Store) -> None:
    pending(store)
    put_off = store.announcements.retry_delivery(claimed(store).id, next_attempt_at=60.0, detail="503 busy")
    assert put_off is not None
    assert (put_off.state, put_off.next_attempt_at, put_off.detail) == (DeliveryState.PENDING, 60.0, "503 busy")
    assert store.announcements.claim_delivery(owner=OWNER, now=59.0, lease_s=10.0) is None
    assert claimed(store, now=60.0).attempts == 2


@pytest.mark.parametrize("state", [DeliveryState.DELIVERED, DeliveryState.DEAD])
def test_an_ended_delivery_is_not_tried_or_ended_again(store: Store, state: DeliveryState) -> None:
    pending(store)
    ended = store.announcements.end_delivery(claimed(store).id, state, "said", now=22.0)
    assert ended is not None
    assert (ended.state, ended.ended_at, ended.next_attempt_at, ended.detail) == (state, 22.0, None, "said")
    assert store.announcements.claim_delivery(owner=OWNER, now=1000.0, lease_s=10.0) is None
    assert store.announcements.end_delivery(ended.id, DeliveryState.DELIVERED, "late", now=23.0) is None
    assert store.announcements.retry_delivery(ended.id, next_attempt_at=60.0, detail="late") is None
    assert store.announcements.deliveries() == ([ended], 1)


def test_an_end_is_no_pending(store: Store) -> None:
    pending(store)
    with pytest.raises(InvalidInput, match="must be an end"):
        store.announcements.end_delivery(claimed(store).id, DeliveryState.PENDING, "", now=22.0)


def test_a_dead_delivery_is_sent_again_from_the_start(store: Store) -> None:
    pending(store)
    dead = store.announcements.end_delivery(claimed(store).id, DeliveryState.DEAD, "503", now=22.0)
    assert dead is not None
    anew = store.announcements.send_again(dead.id, now=40.0)
    assert (anew.state, anew.attempts, anew.next_attempt_at, anew.ended_at) == (DeliveryState.PENDING, 0, 40.0, None)
    with pytest.raises(Conflict, match=dead.id):
        store.announcements.send_again(dead.id, now=41.0)
    with pytest.raises(NotFound, match="dl-none"):
        store.announcements.send_again("dl-none", now=41.0)
    assert claimed(store, now=42.0).id == dead.id


def test_deliveries_are_listed_newest_first_by_webhook_and_state(store: Store) -> None:
    store.announcements.save_webhook(webhook("a"))
    for number in range(2):
        store.announcements.announce(announcement(f"rt-{number}", at=10.0 + number))
    store.announcements.save_webhook(webhook("b"))
    store.announcements.announce(announcement("rt-2", at=12.0))
    first = claimed(store)
    store.announcements.end_delivery(first.id, DeliveryState.DEAD, "", now=22.0)

    def listed(name: str | None = None, state: DeliveryState | None = None) -> list[str]:
        found, total = store.announcements.deliveries(webhook=name, state=state)
        assert total == len(found)
        return [delivery.announcement.subject_id for delivery in found]

    assert listed() == ["rt-2", "rt-2", "rt-1", "rt-0"]
    assert listed("a") == ["rt-2", "rt-1", "rt-0"]
    assert listed("b") == ["rt-2"]
    assert listed("a", DeliveryState.DEAD) == listed(None, DeliveryState.DEAD) == ["rt-0"]
    assert len(store.announcements.deliveries(page=Page(limit=1))[0]) == 1


def test_a_conclusion_that_is_told_is_delivered_and_one_that_lost_is_not(store: Store) -> None:
    store.announcements.save_webhook(webhook())
    saved_retune(store)
    run = started_run(store)
    for number in range(2):
        store.retunes.conclude(run.id, outcome(), now=130.0, announcement=announcement(f"try {number}"))
    deliveries, _ = store.announcements.deliveries()
    assert [delivery.announcement.subject_id for delivery in deliveries] == ["try 0"]


def test_the_end_of_a_sweep_is_delivered(store: Store) -> None:
    store.announcements.save_webhook(webhook())
    create(store)
    sweep = claim(store)
    finish(store, sweep)
    assert claimed(store).announcement.subject_id == sweep.id
