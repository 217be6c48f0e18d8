"""Who is let in, by what they show: over HTTP, as programs and browsers do it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from autotuner.api.edge.caller import SESSION_COOKIE
from autotuner.core.access import Scope
from autotuner.store.sql import Store
from tests.api.access import People, bearing
from tests.api.service import app_on, serve

PAGE = {"Accept": "text/html"}
WRONG = "at_nobody_" + 40 * "x"


@pytest.fixture
def browser(people: People) -> Iterator[httpx.Client]:
    with people.stranger(**PAGE) as client:
        yield client


def csrf_on(page: httpx.Response) -> str:
    found = re.search(r'name="csrf" value="([^"]+)"', page.text)
    assert found is not None
    return found[1]


def logged_in(browser: httpx.Client, token: str, wanted: str = "/") -> httpx.Response:
    form = browser.get("/login", params={"next": wanted})
    return browser.post("/login", data={"token": token, "csrf": csrf_on(form), "next": wanted})


# ---------------------------------------------------------------------- programs
@pytest.mark.parametrize("headers", [{}, bearing(WRONG), {"Authorization": "Basic YWRhOg=="}])
@pytest.mark.parametrize("path", ["/api/v1/sweeps", "/api/v1/openapi.json", "/api/v1/nothing", "/nothing", "/"])
def test_every_request_without_a_token_is_asked_for_one(people: People, path: str, headers: dict[str, str]) -> None:
    with people.stranger(**headers) as client:
        answer = client.get(path)
    assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
    assert answer.json()["type"] == "urn:autotuner:problem:not-let-in"
    assert WRONG not in answer.text


def test_a_forbidden_change_is_refused_before_its_body_is_read(people: People) -> None:
    with people.stranger() as client:
        assert client.post("/api/v1/sweeps", content=b"{ no JSON").status_code == 401


@pytest.mark.parametrize("path", ["/api/v1/health", "/api/v1/ready", "/login", "/static/style.css"])
def test_probes_and_the_login_are_open_to_everybody(people: People, path: str) -> None:
    with people.stranger() as client:
        assert client.get(path).status_code == 200


def test_a_caller_reads_who_they_are_taken_for(people: People) -> None:
    with people.client(Scope.READ, "ci") as client:
        who = client.get("/caller").json()
    assert (who["name"], who["scope"], who["quota"]["unfinished_sweeps"]) == ("ci", "read", None)


def test_without_a_login_everybody_is_an_admin_without_a_name(client: httpx.Client) -> None:
    who = client.get("/caller").json()
    assert (who["name"], who["scope"], who["token_id"]) == ("", "admin", None)
    assert client.get("/caller", headers=bearing(WRONG)).status_code == 200


def test_a_token_that_is_taken_back_counts_no_more_from_the_next_request_on(people: People) -> None:
    with people.client(Scope.READ, "ada") as ada, people.client(Scope.ADMIN, "root") as root:
        token_id = ada.get("/caller").json()["token_id"]
        assert root.post(f"/tokens/{token_id}/revoke").status_code == 200
        assert ada.get("/caller").status_code == 401


def test_a_caller_who_guesses_tokens_is_told_when_to_retry(store: Store) -> None:
    with serve(app_on(store, login="tokens")) as address, httpx.Client(base_url=address, timeout=60) as client:
        answers = [client.get("/api/v1/sweeps", headers=bearing(WRONG)) for _ in range(21)]
    assert {answer.status_code for answer in answers[:20]} == {401}
    assert answers[20].status_code == 429
    assert 1 <= int(answers[20].headers["retry-after"]) <= 60


# ---------------------------------------------------------------------- browsers
def test_a_browser_that_opens_a_page_is_led_to_the_login_and_back(people: People, browser: httpx.Client) -> None:
    led = browser.get("/sweeps/sw-x?part=no&x=1")  # a part of a page is not led anywhere
    assert led.status_code == 401
    led = browser.get("/clusters?x=1")
    assert (led.status_code, led.headers["location"]) == (303, "/login?next=%2Fclusters%3Fx%3D1")
    back = logged_in(browser, people.token(), "/clusters?x=1")
    assert (back.status_code, back.headers["location"]) == (303, "/clusters?x=1")
    assert "ada" in browser.get("/clusters").text
    assert browser.get("/login").headers["location"] == "/"


def test_a_link_from_another_site_leads_through_a_page_of_ours(browser: httpx.Client) -> None:
    arriving = browser.get("/clusters", headers={"Sec-Fetch-Site": "cross-site"})
    assert arriving.status_code == 401
    assert 'content="0; url=/login?next=%2Fclusters"' in arriving.text


def test_the_audit_log_says_who_logged_in(people: People, browser: httpx.Client) -> None:
    logged_in(browser, people.token(name="grace"))
    (entry,), _ = people.app.store.access.audit(caller="grace")
    assert (entry.action, entry.status) == ("log_in", 303)
    assert entry.token_id is not None


@pytest.mark.parametrize(
    "wanted",
    ["//evil.example/", "https://evil.example/", "/\\evil.example", "/\t/evil.example", "javascript:x()", ""],
)
def test_the_login_leads_to_no_other_site(people: People, browser: httpx.Client, wanted: str) -> None:
    assert logged_in(browser, people.token(), wanted).headers["location"] == "/"
    assert browser.get("/login", params={"next": wanted}).headers["location"] == "/"


def test_the_cookie_of_a_session_is_kept_from_scripts_and_other_sites(people: People, browser: httpx.Client) -> None:
    cookie = logged_in(browser, people.token()).headers["set-cookie"]
    assert cookie.startswith(f"{SESSION_COOKIE}=")
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(cookie.partition(",")[0].split("; "))
    assert "Secure" not in cookie


def test_behind_https_the_cookie_goes_by_https_alone(store: Store) -> None:
    cases: tuple[tuple[dict[str, Any], dict[str, str]], ...] = (
        ({"public_url": "https://tuner.example"}, {}),
        ({"proxy_networks": "127.0.0.1"}, {"X-Forwarded-Proto": "https"}),
    )
    for settings, headers in cases:
        app = app_on(store, login="tokens", **settings)
        with serve(app) as address, httpx.Client(base_url=address, headers=PAGE | headers, timeout=60) as browser:
            form = browser.get("/login")
            assert "Secure" in form.headers["set-cookie"]
            held = {"Cookie": form.headers["set-cookie"].partition(";")[0]}
            data = {"token": app.tokens.add("ada", Scope.RUN)[1], "csrf": csrf_on(form)}
            assert "Secure" in browser.post("/login", data=data, headers=held).headers["set-cookie"]


def test_nobody_else_says_that_a_request_came_by_https(browser: httpx.Client) -> None:
    assert "Secure" not in browser.get("/login", headers={"X-Forwarded-Proto": "https"}).headers["set-cookie"]


def test_a_wrong_token_is_said_so_on_the_form_and_not_shown(browser: httpx.Client) -> None:
    answer = logged_in(browser, WRONG)
    assert answer.status_code == 401
    assert "not known" in answer.text
    assert WRONG not in answer.text
    assert SESSION_COOKIE not in answer.headers["set-cookie"]


def test_a_token_in_the_wrong_place_is_neither_in_the_log_nor_in_the_audit_log(
    people: People, capsys: pytest.CaptureFixture[str], browser: httpx.Client
) -> None:
    text = people.token(Scope.ADMIN)
    secret = text.rpartition("at_")[2].partition("_")[2]
    with people.stranger(**bearing(text)) as client:
        client.post(f"/api/v1/tokens/{text}/revoke", headers={"X-Request-ID": text})
        client.get(f"/{text}")
    with people.stranger() as client:
        client.post(f"/api/v1/tokens/{text}/revoke")
    logged_in(browser, text + 2000 * "x")
    logged_in(browser, text)
    captured = capsys.readouterr()
    assert "/api/v1/tokens/at_" in captured.err
    assert secret not in captured.err + captured.out
    audited, _ = people.app.store.access.audit()
    assert any(entry.subject.startswith("/api/v1/tokens/at_") for entry in audited)
    assert secret not in str(audited)


def test_a_login_that_another_site_sends_is_refused(people: People, browser: httpx.Client) -> None:
    browser.get("/login")
    for form in ({}, {"csrf": "guessed"}, {"csrf": "half a pair \udc80".encode("utf-8", "surrogateescape").hex()}):
        assert browser.post("/login", data={"token": people.token()} | form).status_code == 403
    browser.cookies.clear()
    assert browser.post("/login", data={"token": people.token(), "csrf": ""}).status_code == 403


def test_logging_out_ends_the_session_wherever_its_cookie_lies(people: People, browser: httpx.Client) -> None:
    logged_in(browser, people.token())
    stolen = dict(browser.cookies)
    out = browser.post("/logout", data={"csrf": csrf_on(browser.get("/clusters"))})
    assert (out.status_code, out.headers["location"]) == (303, "/login")
    assert SESSION_COOKIE not in browser.cookies
    with people.stranger(Cookie="; ".join(f"{name}={value}" for name, value in stolen.items())) as thief:
        assert thief.get("/api/v1/caller").status_code == 401


def test_a_session_changes_nothing_without_what_our_own_pages_carry(people: People, browser: httpx.Client) -> None:
    logged_in(browser, people.token(Scope.ADMIN))
    csrf = csrf_on(browser.get("/clusters"))
    for headers, data in (({}, {}), ({"X-CSRF-Token": "x"}, {}), ({}, {"csrf": "x"}), ({}, {"csrf": ""})):
        refused = browser.post("/logout", headers=headers | PAGE, data=data)
        assert refused.status_code == 403
    body = {"name": "bob"}
    refused = browser.post("/api/v1/tokens", json=body)
    assert refused.json()["type"] == "urn:autotuner:problem:cross-site"
    assert browser.post("/api/v1/tokens", json=body, headers={"X-CSRF-Token": csrf}).status_code == 201


@pytest.mark.parametrize("authorization", ["Basic YWRhOg==", "x", ""])
def test_a_header_that_shows_no_token_does_not_stand_for_what_our_own_pages_carry(
    people: People, browser: httpx.Client, authorization: str
) -> None:
    logged_in(browser, people.token(Scope.ADMIN))
    csrf, shown = csrf_on(browser.get("/clusters")), {"Authorization": authorization}
    refused = browser.post("/api/v1/tokens", json={"name": "bob"}, headers=shown)
    assert (refused.status_code, refused.json()["type"]) == (403, "urn:autotuner:problem:cross-site")
    carried = shown | {"X-CSRF-Token": csrf}
    assert browser.post("/api/v1/tokens", json={"name": "bob"}, headers=carried).status_code == 201


def test_no_page_can_be_read_the_cookie_from(people: People, browser: httpx.Client) -> None:
    logged_in(browser, people.token())
    assert browser.cookies[SESSION_COOKIE] not in browser.get("/clusters").text


def test_without_a_login_there_is_no_form_for_it(client: httpx.Client, address: str) -> None:
    for method in ("GET", "POST"):
        assert client.request(method, f"{address}/login", headers=PAGE).headers["location"] == "/"
    assert "Log out" not in client.get(f"{address}/clusters", headers=PAGE).text


# ---------------------------------------------------------------------- a proxy
def behind(store: Store, networks: str) -> People:
    return People(
        app=app_on(store, login="proxy", proxy_header="X-Forwarded-User", proxy_networks=networks, proxy_admins="root"),
        address="",
    )


def test_callers_are_who_a_believed_proxy_says_and_tokens_work_beside(store: Store) -> None:
    people = behind(store, "127.0.0.0/8")
    with serve(people.app) as address, httpx.Client(base_url=f"{address}/api/v1", timeout=60) as client:
        named = [client.get("/caller", headers={"X-Forwarded-User": name}).json() for name in ("ada", "root")]
        assert [(who["name"], who["scope"]) for who in named] == [("ada", "run"), ("root", "admin")]
        assert client.get("/caller", headers=bearing(people.token(name="ci"))).json()["name"] == "ci"
        assert client.get("/caller").status_code == 401
        twice = [("X-Forwarded-User", "root"), ("X-Forwarded-User", "ada")]
        assert client.get("/caller", headers=twice).status_code == 401
        assert "ada" in client.get(f"{address}/clusters", headers=PAGE | {"X-Forwarded-User": "ada"}).text


def test_somebody_else_who_sends_the_header_of_the_proxy_is_a_stranger(store: Store) -> None:
    with serve(behind(store, "192.0.2.0/24").app) as address:
        forged = {"X-Forwarded-User": "root", "X-Forwarded-For": "192.0.2.1"}
        assert httpx.get(f"{address}/api/v1/caller", headers=forged, timeout=60).status_code == 401
