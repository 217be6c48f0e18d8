from __future__ import annotations

import json
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler

import pytest
from standardwebhooks.webhooks import Webhook as Verifier

from autotuner.announcing.backoff import DELAYS_S, MOST_ATTEMPTS
from autotuner.announcing.posting import Poster
from autotuner.announcing.sender import Sender
from autotuner.clock import SystemClock
from autotuner.core.announcement import Delivery, DeliveryState, Webhook
from autotuner.forever import forever
from autotuner.networks import read_networks
from autotuner.ports import AnnouncementStore
from autotuner.store.sql import memory_store
from tests.announcements import AT, Receiver, announcement, receiver, status, webhook
from tests.clocks import ManualClock
from tests.patience import PATIENCE_S

HOME = Poster(read_networks("127.0.0.0/8", "AUTOTUNER_WEBHOOK_ALLOW"))


@pytest.fixture
def store() -> AnnouncementStore:
    return memory_store().announcements


def announced(store: AnnouncementStore, there: Receiver) -> Webhook:
    """A webhook of that receiver, and an announcement that is on its way to it."""
    stored = webhook(url=f"http://127.0.0.1:{there.port}/in")
    store.save_webhook(stored)
    store.announce(announcement())
    return stored


def only(store: AnnouncementStore) -> Delivery:
    ((delivery,), _) = store.deliveries()
    return delivery


def test_an_announcement_arrives_signed_and_is_not_posted_again(store: AnnouncementStore) -> None:
    clock = SystemClock()
    with receiver() as there:
        ours = announced(store, there)
        sender = Sender(store, HOME, clock, owner="sender", public_url="https://tuner.example")
        assert [sender.send_next(), sender.send_next()] == [True, False]
    (got,) = there.received
    told = Verifier(ours.secret).verify(got.body, got.headers)
    assert told["type"] == "retune.regression"
    assert told["data"]["url"] == "https://tuner.example/retunes/nightly"
    assert got.headers["webhook-id"] == "an-1"
    done = only(store)
    assert (done.state, done.attempts, done.detail) == (DeliveryState.DELIVERED, 1, "HTTP 204 No Content")


def test_what_fails_is_put_off_longer_each_time_and_arrives_with_one_id(store: AnnouncementStore) -> None:
    clock = ManualClock(AT)
    with receiver(status(500), status(302), status(204)) as there:
        announced(store, there)
        sender = Sender(store, HOME, clock, owner="sender", luck=lambda: 0.0)
        for delay_s in DELAYS_S[:2]:
            assert sender.send_next()
            assert only(store).next_attempt_at == clock.now() + delay_s
            clock.time += delay_s - 1
            assert not sender.send_next()
            clock.time += 1
        assert sender.send_next()
    assert {got.headers["webhook-id"] for got in there.received} == {"an-1"}
    assert len({got.headers["webhook-timestamp"] for got in there.received}) == 3
    assert (only(store).state, only(store).attempts) == (DeliveryState.DELIVERED, 3)


def test_after_the_last_attempt_a_delivery_is_dead_until_somebody_sends_it_again(store: AnnouncementStore) -> None:
    clock = ManualClock(AT)
    with receiver(status(503)) as there:
        announced(store, there)
        sender = Sender(store, HOME, clock, owner="sender")
        for _ in range(MOST_ATTEMPTS):
            assert sender.send_next()
            clock.time += 2 * DELAYS_S[-1]
        assert not sender.send_next()
        dead = only(store)
        assert (dead.state, dead.attempts, dead.detail) == (DeliveryState.DEAD, 8, "HTTP 503 Service Unavailable")
        there.replies[:] = [status(200)]
        store.send_again(dead.id, now=clock.now())
        assert sender.send_next()
    assert (only(store).state, len(there.received)) == (DeliveryState.DELIVERED, 9)


def test_a_receiver_that_is_gone_is_left_alone_at_once(store: AnnouncementStore) -> None:
    with receiver(status(410)) as there:
        announced(store, there)
        assert Sender(store, HOME, ManualClock(AT), owner="sender").send_next()
    assert (only(store).state, only(store).detail) == (DeliveryState.DEAD, "HTTP 410 Gone")


def test_a_receiver_that_asks_for_time_gets_it(store: AnnouncementStore) -> None:
    with receiver(status(429, Retry_After="1000")) as there:
        announced(store, there)
        Sender(store, HOME, ManualClock(AT), owner="sender", luck=lambda: 0.0).send_next()
    assert only(store).next_attempt_at == AT + 1000


def test_an_address_that_nobody_allowed_any_more_gets_nothing_and_the_list_says_why(store: AnnouncementStore) -> None:
    with receiver() as there:
        announced(store, there)
        Sender(store, Poster(), ManualClock(AT), owner="sender").send_next()
    assert there.received == []
    assert (only(store).state, "loopback" in only(store).detail) == (DeliveryState.PENDING, True)


def test_a_port_that_an_older_release_took_ends_the_delivery_after_the_usual_attempts(store: AnnouncementStore) -> None:
    store.save_webhook(webhook(url="https://hooks.example.com:99999/in"))
    store.announce(announcement())
    clock = ManualClock(AT)
    sender = Sender(store, HOME, clock, owner="sender")
    while sender.send_next():
        clock.time += 2 * DELAYS_S[-1]
    done = only(store)
    assert (done.state, done.attempts) == (DeliveryState.DEAD, MOST_ATTEMPTS)
    assert done.detail == "not posted: must have a port from 1 to 65535"


def test_what_a_sender_that_died_had_taken_is_posted_by_the_next(store: AnnouncementStore) -> None:
    clock = ManualClock(AT)
    with receiver() as there:
        announced(store, there)
        assert store.claim_delivery(owner="dead", now=clock.now(), lease_s=60.0) is not None
        sender = Sender(store, HOME, clock, owner="sender")
        clock.time += 3600  # somebody sets the clock: that is no reason to post what another posts
        assert not sender.send_next()
        for _ in range(60):
            clock.sleep(1.0)
            if sender.send_next():
                break
    assert only(store).attempts == 2


def test_of_many_senders_each_delivery_is_made_by_one(store: AnnouncementStore) -> None:
    with receiver() as there:
        announced(store, there)
        for number in range(2, 9):
            store.announce(replace(announcement(), id=f"an-{number}"))
        senders = [Sender(store, HOME, ManualClock(AT), owner=f"sender-{number}") for number in range(4)]
        threads = [
            threading.Thread(target=lambda s=sender: [None for _ in iter(s.send_next, False)]) for sender in senders
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(json.loads(got.body)["data"]["id"] for got in there.received) == [f"an-{n}" for n in range(1, 9)]


def sending(sender: Sender, shutdown: threading.Event) -> threading.Thread:
    """A thread that posts as a service's does."""
    return threading.Thread(target=lambda: forever(sender.send_next, poll_s=0.01, shutdown=shutdown, name="deliveries"))


def test_a_sender_runs_until_it_is_told_to_stop(store: AnnouncementStore) -> None:
    shutdown, arrived = threading.Event(), threading.Event()

    def accept(handler: BaseHTTPRequestHandler) -> None:
        status(204)(handler)
        arrived.set()

    with receiver(accept) as there:
        announced(store, there)
        sender = Sender(store, HOME, SystemClock(), owner="sender", shutdown=shutdown)
        thread = sending(sender, shutdown)
        thread.start()
        assert arrived.wait(PATIENCE_S)
        shutdown.set()
        thread.join()
    assert only(store).state is DeliveryState.DELIVERED


def test_a_sender_that_is_stopped_gives_back_what_nobody_answers(store: AnnouncementStore) -> None:
    shutdown, asked, done = threading.Event(), threading.Event(), threading.Event()

    def hold(_handler: BaseHTTPRequestHandler) -> None:
        asked.set()
        done.wait(PATIENCE_S)

    with receiver(hold) as there:
        announced(store, there)
        thread = sending(Sender(store, HOME, ManualClock(AT), owner="sender", shutdown=shutdown), shutdown)
        thread.start()
        assert asked.wait(PATIENCE_S)
        shutdown.set()
        thread.join()
        done.set()
    waits = only(store)
    assert (waits.state, waits.attempts, waits.next_attempt_at) == (DeliveryState.PENDING, 1, AT)
