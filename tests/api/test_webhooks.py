"""Webhooks, deliveries and the feed over REST."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from xml.etree import ElementTree as ET

import httpx
import pytest
from standardwebhooks.webhooks import Webhook as Verifier

from autotuner.core.announcement import AnnouncementKind
from autotuner.runs.clock import SystemClock
from autotuner.service.build import build
from autotuner.service.settings import Settings
from autotuner.service.webhooks import new_secret
from autotuner.store.sql import Store
from tests.announcements import announce, announcement, receiver, status
from tests.api.bodies import WEBHOOK
from tests.api.service import NOW, serve
from tests.fake_launcher import FakeLauncher
from tests.patience import PATIENCE_S
from tests.runs import give_up_delivery


@pytest.fixture
def home(store: Store) -> Iterator[httpx.Client]:
    """Of a service that may post to this machine, and knows its address."""
    settings = Settings(num_workers=0, webhook_allow="127.0.0.0/8", public_url="https://tuner.example/")
    app = build(settings, store=store, launcher=FakeLauncher(), clock=SystemClock())
    with serve(app) as address, httpx.Client(base_url=f"{address}/api/v1", timeout=60) as client:
        yield client


def added(client: httpx.Client, **changes: object) -> httpx.Response:
    return client.post("/webhooks", json=WEBHOOK | changes)


def test_the_secret_is_shown_once_and_the_path_of_the_url_never(client: httpx.Client, store: Store) -> None:
    created = added(client)
    secret = created.json()["secret"]
    announce(store.announcements, announcement())
    answers = [client.get(path) for path in ("/webhooks", "/webhooks/ours", "/deliveries", "/feed.json", "/feed.atom")]
    assert [answer for answer in answers if secret in answer.text or "credential" in answer.text] == []
    assert "credential" not in created.text


def test_a_secret_may_be_brought_along_and_a_name_is_taken_once(client: httpx.Client) -> None:
    secret = new_secret()
    assert added(client, secret=secret).json()["secret"] == secret
    assert added(client).status_code == 409


def test_a_test_is_posted_at_once_signed_and_stored_nowhere(home: httpx.Client) -> None:
    with receiver(status(200), status(404)) as there:
        secret = added(home, url=f"http://127.0.0.1:{there.port}/in").json()["secret"]
        first, second = home.post("/webhooks/ours/test"), home.post("/webhooks/ours/test")
    accepted, refused = (
        [answer.json()[name] for name in ("is_accepted", "status", "detail")] for answer in (first, second)
    )
    assert accepted == [True, 200, "HTTP 200 OK"]
    assert refused == [False, 404, "HTTP 404 Not Found"]
    told = Verifier(secret).verify(there.received[0].body, there.received[0].headers)
    assert (told["type"], told["data"]["url"]) == ("webhook.test", "https://tuner.example/webhooks")
    assert home.get("/deliveries").json()["total"] == home.get("/feed.json").json()["items"].__len__() == 0


def test_a_test_says_why_nothing_was_posted(client: httpx.Client) -> None:
    added(client, url="https://localhost/")
    told = client.post("/webhooks/ours/test").json()
    assert (told["is_accepted"], told["status"]) == (False, None)
    assert "loopback" in told["detail"]


def test_deliveries_are_listed_by_webhook_and_state_and_sent_again(client: httpx.Client, store: Store) -> None:
    added(client)
    added(client, name="gates", kinds=["gate.failed"])
    announce(store.announcements, announcement())
    (waits,) = client.get("/deliveries").json()["items"]
    assert (waits["webhook"], waits["state"], waits["announcement"]["title"]) == (
        "ours",
        "pending",
        announcement().title,
    )
    assert client.get("/webhooks/ours").json()["num_pending"] == 1
    assert client.get("/deliveries", params={"webhook": "gates"}).json()["total"] == 0
    assert client.post(f"/deliveries/{waits['id']}/send-again").status_code == 409
    give_up_delivery(store, waits["id"], "HTTP 500", now=NOW)
    (dead,) = client.get("/deliveries", params={"state": "dead", "webhook": "ours"}).json()["items"]
    assert (dead["detail"], dead["next_attempt_at"]) == ("HTTP 500", None)
    assert client.post(f"/deliveries/{dead['id']}/send-again").json()["state"] == "pending"


def test_a_webhook_that_is_not_there_is_not_found_with_the_nearest(client: httpx.Client) -> None:
    added(client)
    for path in ("/webhooks/our", "/deliveries?webhook=our"):
        problem = client.get(path)
        assert (problem.status_code, problem.json()["nearest"]) == (404, "ours")
    assert client.post("/deliveries/dl-none/send-again").status_code == 404


# ---------------------------------------------------------------- the feed
def test_the_json_feed_lists_the_newest_first_and_links_to_older_entries(client: httpx.Client, store: Store) -> None:
    for number in range(3):
        announce(store.announcements, replace(announcement(), id=f"an-{number}", at=NOW + number))
    answer = client.get("/feed.json", params={"limit": 2})
    assert answer.headers["content-type"] == "application/feed+json"
    feed = answer.json()
    assert feed["version"] == "https://jsonfeed.org/version/1.1"
    assert [item["id"] for item in feed["items"]] == ["an-2", "an-1"]
    item = feed["items"][0]
    assert (item["tags"], item["date_published"]) == (["retune.regression"], "2025-10-09T08:53:22Z")
    assert item["url"].endswith("/retunes/nightly")
    assert [item["id"] for item in httpx.get(feed["next_url"], timeout=PATIENCE_S).json()["items"]] == ["an-0"]
    assert "next_url" not in httpx.get(feed["next_url"], timeout=PATIENCE_S).json()


def test_the_atom_feed_is_xml_whatever_was_announced(client: httpx.Client, store: Store) -> None:
    odd = replace(announcement(), title="<b>&\x07", kind=AnnouncementKind.GATE_FAILED)
    announce(store.announcements, odd)
    answer = client.get("/feed.atom")
    assert answer.headers["content-type"].startswith("application/atom+xml")
    feed, atom = ET.fromstring(answer.text), "{http://www.w3.org/2005/Atom}"
    assert {f"{atom}{name}" for name in ("id", "title", "updated", "author", "link")} <= {each.tag for each in feed}
    (entry,) = feed.findall(f"{atom}entry")
    assert [entry.findtext(f"{atom}{name}") for name in ("id", "title", "updated", "content")] == [
        "urn:autotuner:announcement:an-1",
        "<b>&\N{REPLACEMENT CHARACTER}",
        "2025-10-09T08:53:20Z",
        odd.text,
    ]
    assert [each.attrib["term"] for each in entry.iter(f"{atom}category")] == ["gate.failed"]


def test_a_feed_without_announcements_is_one(client: httpx.Client) -> None:
    assert client.get("/feed.json").json()["items"] == []
    assert ET.fromstring(client.get("/feed.atom").text).findtext("{http://www.w3.org/2005/Atom}updated")


def test_links_are_those_that_people_reach_the_service_by(home: httpx.Client, store: Store) -> None:
    announce(store.announcements, announcement())
    feed = home.get("/feed.json").json()
    assert feed["feed_url"] == "https://tuner.example/api/v1/feed.json"
    assert feed["items"][0]["url"] == "https://tuner.example/retunes/nightly"
