"""Comments over REST and on pages: the surfaces are wired, and who may write and remove."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from autotuner.core.access import Scope
from tests.api.access import People
from tests.api.bodies import CPU
from tests.api.service import StoreDriver
from tests.api.test_login import csrf_on, logged_in


def test_a_comment_is_written_listed_found_by_its_tag_and_removed(client: httpx.Client, driver: StoreDriver) -> None:
    sweep, other = driver.sweep(), client.post("/sweeps", json=CPU).json()
    driver.queued(sweep, 2)
    path = f"/sweeps/{sweep.id}/comments"
    first = client.post(path, json={"text": "NCCL 2.28", "tags": ["Baseline"]})
    assert (first.status_code, first.json()["sweep_id"], first.json()["trial_number"]) == (201, sweep.id, None)
    second = client.post(path, json={"text": "slow", "trial_number": 2}).json()
    assert client.get(path, params={"limit": 1}).json()["total"] == 2
    assert client.get(path, params={"trial_number": 2}).json()["items"] == [second]
    assert [one["id"] for one in client.get("/sweeps", params={"tag": "baseline"}).json()["items"]] == [sweep.id]
    assert client.get("/sweeps").json()["total"] == 2
    removed = client.delete(f"/comments/{first.json()['id']}")
    assert (removed.status_code, removed.json()) == (200, first.json())
    assert client.get(path).json()["items"] == [second]
    assert client.get(f"/sweeps/{other['id']}/comments").json()["items"] == []


def test_an_illegal_comment_or_one_on_an_unknown_subject_is_refused(client: httpx.Client, driver: StoreDriver) -> None:
    path = f"/sweeps/{driver.sweep().id}/comments"
    refused = client.post(path, json={"text": "x" * 2001})
    assert (refused.status_code, refused.json()["field"], refused.json()["nearest"]) == (422, "text", "x" * 2000)
    assert client.post(path, json={"text": "x", "trial_number": 7}).status_code == 404
    assert client.get("/sweeps", params={"tag": "a b"}).json()["nearest"] == "a-b"
    for method, missing in (("POST", "/sweeps/sw-none/comments"), ("DELETE", "/comments/cm-none")):
        answer = client.request(method, missing, json={"text": "x"} if method == "POST" else None)
        assert answer.status_code == 404, missing


def test_callers_who_run_sweeps_may_comment_and_only_the_author_or_an_admin_removes_a_comment(
    people: People,
) -> None:
    with people.client(name="ada") as ada, people.client(name="bob") as bob:
        path = f"/sweeps/{ada.post('/sweeps', json=CPU).json()['id']}/comments"
        written = [bob.post(path, json={"text": text}).json() for text in ("one", "two")]
        assert {one["created_by"] for one in written} == {"bob"}
        refused = ada.delete(f"/comments/{written[0]['id']}")
        assert (refused.status_code, refused.json()["type"]) == (403, "urn:autotuner:problem:not-yours")
        assert bob.delete(f"/comments/{written[0]['id']}").is_success
        with people.client(Scope.ADMIN, "root") as root:
            assert root.delete(f"/comments/{written[1]['id']}").is_success


# ---------------------------------------------------------------------- pages
@pytest.fixture
def browser(people: People) -> Iterator[httpx.Client]:
    with people.stranger(Accept="text/html") as client:
        yield client


def test_a_page_has_a_form_and_buttons_for_what_its_reader_may_do_that_carry_what_shows_where_they_come_from(
    people: People, browser: httpx.Client
) -> None:
    with people.client(name="ada") as ada:
        sweep_id = ada.post("/sweeps", json=CPU).json()["id"]
        path = f"/sweeps/{sweep_id}/comments"
        own, page = ada.post(path, json={"text": "<b>own</b>"}).json(), f"/sweeps/{sweep_id}"
        with people.client(name="bob") as bob:
            others = bob.post(path, json={"text": "others'"}).json()
        logged_in(browser, people.token())
        shown = browser.get(page)
        assert f"/comments/{own['id']}/delete" in shown.text
        assert f"/comments/{others['id']}/delete" not in shown.text
        assert "&lt;b&gt;own&lt;/b&gt;" in shown.text
        assert "<b>own" not in shown.text
        assert browser.post(f"{path}/{own['id']}/delete").status_code == 403
        carried = {"csrf": csrf_on(shown)}
        assert browser.post(f"{path}/{own['id']}/delete", data=carried).headers["location"] == f"{page}#comments"
        sent = browser.post(path, data=carried | {"text": '{"a"}\r\nb', "tag": "x, y"})
        assert sent.headers["location"] == f"{page}#comments"
        (left,) = (one for one in ada.get(path).json()["items"] if one["id"] != others["id"])
        assert (left["text"], left["tags"], left["created_by"]) == ('{"a"}\nb', ["x", "y"], "ada")
        refused = browser.post(path, data=carried | {"text": "kept", "tag": "a b"})
        assert refused.status_code == 422
        assert ">kept</textarea>" in refused.text
        assert "nearest: a-b" in refused.text
    browser.cookies.clear()
    logged_in(browser, people.token(Scope.READ, "rita"))
    assert 'class="comment"' not in browser.get(page).text
    assert "/delete" not in browser.get(page).text
