from __future__ import annotations

import json
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler

import pytest
from standardwebhooks.webhooks import Webhook as Verifier

from autotuner.core.announcement import Delivery, DeliveryProgress, DeliveryState, Webhook
from autotuner.runs.clock import Clock, SystemClock
from autotuner.runs.delivery import DELAYS_S, MOST_ATTEMPTS, delay_s, delivery_kind
from autotuner.runs.worker import Worker, forever
from autotuner.service.networks import read_networks
from autotuner.service.posting import Poster
from autotuner.service.webhooks import Webhooks
from autotuner.store.announcements import AnnouncementStore
from autotuner.store.sql import Store, memory_store
from tests.announcements import AT, Receiver, announce, announcement, receiver, status, webhook
from tests.clocks import ManualClock
from tests.patience import PATIENCE_S
from tests.runs import lease_of

HOME = Poster(read_networks("127.0.0.0/8", "AUTOTUNER_WEBHOOK_ALLOW"))


@pytest.fixture
def whole() -> Store:
    return memory_store()


@pytest.fixture
def store(whole: Store) -> AnnouncementStore:
    return whole.announcements


class Sender(Worker):
    """A worker that delivers."""

    def __init__(
        self,
        store: Store,
        poster: Poster,
        clock: Clock,
        *,
        owner: str = "sender",
        public_url: str | None = None,
        shutdown: threading.Event | None = None,
        luck: float = 0.0,
    ) -> None:
        hooks = Webhooks(store=store.announcements, poster=poster, clock=clock, public_url=public_url)
        kind = delivery_kind(hooks.post, store.announcements.get_webhook, luck=lambda: luck)
        stop = shutdown or threading.Event()
        super().__init__(store.runs, {kind.name: kind}, clock, owner=owner, lease_s=15.0, shutdown=stop)


def announced(store: AnnouncementStore, there: Receiver) -> Webhook:
    """A webhook of that receiver, and an announcement that is on its way to it."""
    stored = webhook(url=f"http://127.0.0.1:{there.port}/in")
    store.save_webhook(stored)
    announce(store, announcement())
    return stored


def only(store: AnnouncementStore) -> Delivery:
    ((delivery,), _) = store.deliveries()
    return delivery


def test_an_announcement_arrives_signed_and_is_not_posted_again(whole: Store, store: AnnouncementStore) -> None:
    clock = SystemClock()
    with receiver() as there:
        ours = announced(store, there)
        sender = Sender(whole, HOME, clock, public_url="https://tuner.example")
        assert [sender.run_once(), sender.run_once()] == [True, False]
    (got,) = there.received
    told = Verifier(ours.secret).verify(got.body, got.headers)
    assert told["type"] == "retune.regression"
    assert told["data"]["url"] == "https://tuner.example/retunes/nightly"
    assert got.headers["webhook-id"] == "an-1"
    done = only(store)
    assert (done.state, done.attempts, done.detail) == (DeliveryState.DELIVERED, 1, "HTTP 204 No Content")


def test_a_failing_delivery_waits_longer_each_time_and_keeps_its_id(whole: Store, store: AnnouncementStore) -> None:
    clock = ManualClock(AT)
    with receiver(status(500), status(302), status(204)) as there:
        announced(store, there)
        sender = Sender(whole, HOME, clock)
        for delay_s in DELAYS_S[:2]:
            assert sender.run_once()
            assert only(store).next_attempt_at == clock.now() + delay_s
            clock.time += delay_s - 1
            assert not sender.run_once()
            clock.time += 1
        assert sender.run_once()
    assert {got.headers["webhook-id"] for got in there.received} == {"an-1"}
    assert len({got.headers["webhook-timestamp"] for got in there.received}) == 3
    assert (only(store).state, only(store).attempts) == (DeliveryState.DELIVERED, 3)


def test_after_the_last_attempt_a_delivery_is_dead_until_somebody_sends_it_again(
    whole: Store, store: AnnouncementStore
) -> None:
    clock = ManualClock(AT)
    with receiver(status(503)) as there:
        announced(store, there)
        sender = Sender(whole, HOME, clock)
        for _ in range(MOST_ATTEMPTS):
            assert sender.run_once()
            clock.time += 2 * DELAYS_S[-1]
        assert not sender.run_once()
        dead = only(store)
        assert (dead.state, dead.attempts, dead.detail) == (DeliveryState.DEAD, 8, "HTTP 503 Service Unavailable")
        there.replies[:] = [status(200)]
        store.send_again(dead.id, now=clock.now())
        assert sender.run_once()
    assert (only(store).state, len(there.received)) == (DeliveryState.DELIVERED, 9)


def test_a_receiver_that_is_gone_is_left_alone_at_once_and_one_that_asks_for_time_gets_it(
    whole: Store, store: AnnouncementStore
) -> None:
    with receiver(status(429, Retry_After="1000"), status(410)) as there:
        announced(store, there)
        clock = ManualClock(AT)
        sender = Sender(whole, HOME, clock)
        sender.run_once()
        assert only(store).next_attempt_at == AT + 1000
        clock.time += 1000
        assert sender.run_once()
    assert (only(store).state, only(store).detail) == (DeliveryState.DEAD, "HTTP 410 Gone")


def test_an_address_that_nobody_allowed_any_more_gets_nothing_and_the_list_says_why(
    whole: Store, store: AnnouncementStore
) -> None:
    with receiver() as there:
        announced(store, there)
        Sender(whole, Poster(), ManualClock(AT)).run_once()
    assert there.received == []
    assert (only(store).state, "loopback" in only(store).detail) == (DeliveryState.PENDING, True)


def test_a_port_that_an_older_release_took_ends_the_delivery_after_the_usual_attempts(
    whole: Store, store: AnnouncementStore
) -> None:
    store.save_webhook(webhook(url="https://hooks.example.com:99999/in"))
    announce(store, announcement())
    clock = ManualClock(AT)
    sender = Sender(whole, HOME, clock)
    while sender.run_once():
        clock.time += 2 * DELAYS_S[-1]
    done = only(store)
    assert (done.state, done.attempts) == (DeliveryState.DEAD, MOST_ATTEMPTS)
    assert done.detail == "not posted: must have a port from 1 to 65535, or no port, which means 443"


def test_the_next_sender_posts_deliveries_of_a_dead_sender(whole: Store, store: AnnouncementStore) -> None:
    clock = ManualClock(AT)
    with receiver() as there:
        announced(store, there)
        dead = whole.runs.claim(["delivery"], owner="dead", now=clock.now(), lease_s=60.0)
        assert dead is not None
        whole.runs.renew(lease_of(dead), DeliveryProgress(num_attempts=1), now=clock.now())
        sender = Sender(whole, HOME, clock)
        clock.time += 3600  # somebody sets the clock: that is no reason to post what another posts
        assert not sender.run_once()
        for _ in range(60):
            clock.sleep(1.0)
            if sender.run_once():
                break
    assert only(store).attempts == 2


def test_only_one_of_many_senders_makes_a_delivery(whole: Store, store: AnnouncementStore) -> None:
    with receiver() as there:
        announced(store, there)
        for number in range(2, 9):
            announce(store, replace(announcement(), id=f"an-{number}"))
        senders = [Sender(whole, HOME, ManualClock(AT), owner=f"sender-{number}") for number in range(4)]
        threads = [
            threading.Thread(target=lambda s=sender: [None for _ in iter(s.run_once, False)]) for sender in senders
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(json.loads(got.body)["data"]["id"] for got in there.received) == [f"an-{n}" for n in range(1, 9)]


def sending(sender: Sender, shutdown: threading.Event) -> threading.Thread:
    """A thread that posts as a service's does."""
    return threading.Thread(target=lambda: forever(sender.run_once, poll_s=0.01, shutdown=shutdown, name="deliveries"))


def test_a_sender_that_is_stopped_gives_back_what_nobody_answers(whole: Store, store: AnnouncementStore) -> None:
    shutdown, asked, done = threading.Event(), threading.Event(), threading.Event()

    def hold(_handler: BaseHTTPRequestHandler) -> None:
        asked.set()
        done.wait(PATIENCE_S)

    with receiver(hold) as there:
        announced(store, there)
        thread = sending(Sender(whole, HOME, ManualClock(AT), shutdown=shutdown), shutdown)
        thread.start()
        assert asked.wait(PATIENCE_S)
        shutdown.set()
        thread.join()
        done.set()
    waits = only(store)
    assert (waits.state, waits.attempts, waits.next_attempt_at) == (DeliveryState.PENDING, 1, AT)


def test_a_delay_is_longer_than_the_one_before_by_luck_and_by_what_a_receiver_asks_for() -> None:
    delays = [delay_s(attempt, 0.0) for attempt in range(1, MOST_ATTEMPTS)]
    assert delays == sorted(DELAYS_S)
    assert (MOST_ATTEMPTS, delay_s(MOST_ATTEMPTS, 0.0), delay_s(MOST_ATTEMPTS + 5, 0.0)) == (8, None, None)
    assert sum(DELAYS_S) / 3600 == pytest.approx(20.6, abs=0.05)  # hours, as the page says
    assert (delay_s(1, 0.0), delay_s(1, 0.5), delay_s(1, 1.0)) == (10.0, 11.25, 12.5)
    assert delay_s(1, 0.0, retry_after_s=90.0) == 90.0
    assert delay_s(3, 0.0, retry_after_s=90.0) == 300.0
    assert delay_s(1, 0.0, retry_after_s=999_999.0) == DELAYS_S[-1]
