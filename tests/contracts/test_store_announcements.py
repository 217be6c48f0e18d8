"""Store contract: announcements, webhooks, and deliveries that one sender makes at a time."""

from __future__ import annotations

import pytest

from autotuner.core.announcement import AnnouncementKind, Delivery, DeliveryState, PayloadFormat
from autotuner.core.errors import Conflict, InvalidInput, LeaseLost, NotFound
from autotuner.core.run import RunState
from autotuner.store.options import Page
from autotuner.store.sql import Store
from tests.announcements import announce
from tests.contracts.acts import claim, create, finish, held_sweep, measure
from tests.contracts.upkeep import (
    announcement,
    asked_gate,
    end_sweep,
    outcome,
    saved_retune,
    started_run,
    webhook,
)
from tests.runs import claimed, conclude_retune, end, give_up_delivery


def pending(store: Store, *, now: float = 20.0) -> Delivery:
    """The delivery of one announcement to one webhook."""
    store.announcements.save_webhook(webhook())
    announce(store.announcements, announcement(at=now))
    ((delivery,), _) = store.announcements.deliveries()
    return delivery


# ---------------------------------------------------------------------- the feed
def test_the_feed_is_read_newest_first_in_pages(store: Store) -> None:
    told = [announcement(f"rt-{number}", at=float(number)) for number in range(3)]
    for one in (told[1], told[0], told[2]):
        announce(store.announcements, one)
    assert store.announcements.feed(page=Page(limit=2)) == ([told[2], told[1]], 3)
    assert store.announcements.feed(page=Page(offset=2)) == ([told[0]], 3)


def test_an_outcome_is_announced_once(store: Store) -> None:
    announce(store.announcements, announcement())
    with pytest.raises(Conflict, match="an-rt-x"):
        announce(store.announcements, announcement())


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
    assert (told.at, told.facts["state"]) == (5.0, RunState.CANCELLED.value)


def test_sweeps_of_retunes_and_gates_are_not_announced_by_themselves(store: Store) -> None:
    saved_retune(store)
    end_sweep(store, started_run(store).child_id)
    end_sweep(store, asked_gate(store).child_id)
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
    held = claimed(store, "delivery")
    store.announcements.remove_webhook("team")
    assert store.announcements.list_webhooks() == []
    assert store.announcements.deliveries() == ([], 0)
    with pytest.raises(LeaseLost):
        end(store, held, RunState.COMPLETE, "200")
    assert store.announcements.feed()[1] == 1


# ---------------------------------------------------------------------- deliveries
def test_an_announcement_goes_to_every_webhook_that_wants_its_kind(store: Store) -> None:
    store.announcements.save_webhook(webhook("all"))
    store.announcements.save_webhook(webhook("regressions", kinds=(AnnouncementKind.RETUNE_REGRESSION,)))
    store.announcements.save_webhook(webhook("gates", kinds=(AnnouncementKind.GATE_FAILED,)))
    announce(store.announcements, announcement())
    deliveries, total = store.announcements.deliveries()
    assert {delivery.webhook for delivery in deliveries} == {"all", "regressions"}
    assert total == 2
    for delivery in deliveries:
        assert (delivery.announcement, delivery.state) == (announcement(), DeliveryState.PENDING)
        assert (delivery.attempts, delivery.created_at, delivery.next_attempt_at) == (0, 20.0, 20.0)


def test_announcements_from_before_a_webhook_existed_are_not_delivered_to_it(store: Store) -> None:
    announce(store.announcements, announcement())
    store.announcements.save_webhook(webhook())
    assert store.announcements.deliveries() == ([], 0)


def test_a_dead_delivery_is_sent_again_from_the_start(store: Store) -> None:
    waits = pending(store)
    give_up_delivery(store, waits.id, "503", now=22.0)
    ((dead,), _) = store.announcements.deliveries(state=DeliveryState.DEAD)
    assert (dead.detail, dead.ended_at, dead.next_attempt_at) == ("503", 22.0, None)
    anew = store.announcements.send_again(dead.id, now=40.0)
    assert (anew.state, anew.attempts, anew.next_attempt_at, anew.ended_at) == (DeliveryState.PENDING, 0, 40.0, None)
    with pytest.raises(Conflict, match=dead.id):
        store.announcements.send_again(dead.id, now=41.0)
    with pytest.raises(NotFound, match="dl-none"):
        store.announcements.send_again("dl-none", now=41.0)
    assert claimed(store, "delivery", now=42.0).id == dead.id


def test_deliveries_are_listed_newest_first_by_webhook_and_state(store: Store) -> None:
    store.announcements.save_webhook(webhook("a"))
    for number in range(2):
        announce(store.announcements, announcement(f"rt-{number}", at=10.0 + number))
    store.announcements.save_webhook(webhook("b"))
    announce(store.announcements, announcement("rt-2", at=12.0))
    end(store, claimed(store, "delivery"), RunState.FAILED)

    def listed(name: str | None = None, state: DeliveryState | None = None) -> list[str]:
        found, total = store.announcements.deliveries(webhook=name, state=state)
        assert total == len(found)
        return [delivery.announcement.subject_id for delivery in found]

    assert listed() == ["rt-2", "rt-2", "rt-1", "rt-0"]
    assert listed("a") == ["rt-2", "rt-1", "rt-0"]
    assert listed("b") == ["rt-2"]
    assert listed("a", DeliveryState.DEAD) == listed(None, DeliveryState.DEAD) == ["rt-0"]
    assert len(store.announcements.deliveries(page=Page(limit=1))[0]) == 1


def test_the_end_of_a_run_of_a_retune_is_delivered_and_that_of_its_sweep_is_not(store: Store) -> None:
    store.announcements.save_webhook(webhook())
    saved_retune(store)
    run = conclude_retune(store, started_run(store), outcome(), now=130.0)
    deliveries, _ = store.announcements.deliveries()
    assert [delivery.announcement.subject_id for delivery in deliveries] == [run.id]


def test_the_end_of_a_sweep_is_delivered(store: Store) -> None:
    store.announcements.save_webhook(webhook())
    create(store)
    sweep = claim(store)
    finish(store, sweep)
    assert claimed(store, "delivery").request.subject_id == sweep.id
