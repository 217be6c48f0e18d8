"""Logging in and out, and tokens handed out and taken back, in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import httpx
import pytest
from playwright.sync_api import Page, expect

from autotuner.core.access import Scope
from tests.api.access import People, bearing
from tests.patience import PATIENCE_S

# ---------------------------------------------------------------- login


@pytest.fixture
def address(people: People) -> str:
    return people.address


def log_in(page: Page, token: str) -> None:
    page.get_by_label("Token").fill(token)
    page.get_by_role("button", name="Log in").click()


def test_a_login_with_a_token_returns_to_the_requested_page(page: Page, people: People) -> None:
    page.goto("/clusters")
    expect(page.get_by_role("heading", name="Log in")).to_be_visible()
    expect(page.get_by_label("Token")).to_be_focused()
    log_in(page, people.token(Scope.READ, "ada"))
    expect(page).to_have_url(f"{people.address}/clusters")
    expect(page.locator(".who")).to_contain_text("ada")
    expect(page.locator("#connection")).to_have_text("Live")


def test_a_wrong_token_is_said_so_beside_the_field(page: Page, complaints: list[str]) -> None:
    page.goto("/login")
    log_in(page, "hunter2")
    expect(page.get_by_role("alert")).to_contain_text("not known")
    expect(page.get_by_label("Token")).to_have_value("")
    assert [one for one in complaints if "401" not in one] == []
    complaints.clear()


def test_logging_in_and_out_needs_no_script(plain_page: Page, people: People) -> None:
    plain_page.goto("/")
    log_in(plain_page, people.token())
    expect(plain_page.get_by_role("heading", name="Sweeps", exact=True)).to_be_visible()
    plain_page.get_by_role("button", name="Log out").click()
    expect(plain_page).to_have_url(f"{people.address}/login")
    plain_page.goto("/clusters")
    expect(plain_page.get_by_role("heading", name="Log in")).to_be_visible()


def test_a_page_whose_session_ends_leads_to_the_login(page: Page, people: People, complaints: list[str]) -> None:
    page.goto("/clusters")
    token, text = people.app.tokens.add("ada", Scope.READ)
    log_in(page, text)
    expect(page.locator("#connection")).to_have_text("Live")
    people.app.tokens.revoke(token.id)
    expect(page.get_by_role("heading", name="Log in")).to_be_visible()
    complaints.clear()


class Elsewhere(BaseHTTPRequestHandler):
    """A page of another site, with a link and a form that lead to the service."""

    target = ""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        form = f'<form method="post" action="{self.target}/logout"><button>Prize</button></form>'
        self.wfile.write(f'<a href="{self.target}/clusters">Clusters</a>{form}'.encode())

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # as its base has it
        pass


@pytest.fixture
def elsewhere(people: People) -> Iterator[str]:
    """The address of another site: another name of this machine."""
    Elsewhere.target = people.address
    server = HTTPServer(("127.0.0.1", 0), Elsewhere)
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield f"http://localhost:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_link_of_another_site_finds_the_browser_logged_in_and_a_form_of_it_does_nothing(
    page: Page, people: People, elsewhere: str, complaints: list[str]
) -> None:
    page.goto("/login")
    log_in(page, people.token(Scope.READ, "ada"))
    page.goto(elsewhere)
    page.get_by_role("link", name="Clusters").click()
    expect(page.get_by_role("heading", name="Clusters", exact=True)).to_be_visible()
    page.goto(elsewhere)
    page.get_by_role("button", name="Prize").click()
    expect(page.locator("body")).to_contain_text("site")
    page.goto("/clusters")
    expect(page.locator(".who")).to_contain_text("ada")
    complaints.clear()


# ---------------------------------------------------------------- tokens


def test_an_admin_makes_a_token_that_lets_in_and_takes_it_back(
    page: Page, people: People, complaints: list[str]
) -> None:
    page.goto("/tokens")
    log_in(page, people.token(Scope.ADMIN, "root"))
    page.get_by_label("Name of its user or program").fill("ci0")  # no id holds a 0
    page.get_by_label("Scope").select_option("read")
    page.get_by_label("Unfinished sweeps").fill("two")
    page.get_by_role("button", name="Make a token").click()
    expect(page.get_by_role("alert")).to_contain_text("must be a number")
    expect(page.get_by_label("Name of its user or program")).to_have_value("ci0")
    page.get_by_label("Unfinished sweeps").fill("2")
    page.get_by_role("button", name="Make a token").click()
    text = page.locator("pre").inner_text()
    sweeps = f"{people.address}/api/v1/sweeps"
    assert httpx.get(sweeps, headers=bearing(text), timeout=PATIENCE_S).status_code == 200
    row = page.get_by_role("row").filter(has_text="ci0").first
    expect(row).to_contain_text("2 sweeps")
    page.goto("/tokens")
    expect(page.locator("pre")).to_have_count(0)
    page.get_by_role("button", name="of ci0").click()
    expect(page.get_by_role("row").filter(has_text="ci0").first).to_contain_text("revoked")
    assert httpx.get(sweeps, headers=bearing(text), timeout=PATIENCE_S).status_code == 401
    complaints[:] = [one for one in complaints if "422" not in one and "401" not in one]
