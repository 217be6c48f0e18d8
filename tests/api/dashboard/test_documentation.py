"""The documentation site under /docs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from autotuner.store.sql import memory_store
from tests.api.access import People
from tests.api.service import app_on, serve


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    (folder / "index.html").write_text("<h1>Home</h1>")
    (folder / "how-to").mkdir()
    (folder / "how-to" / "gate.html").write_text("<h1>Gate</h1>")
    (folder.parent / "secret.txt").write_text("secret")
    return folder


@pytest.fixture(scope="module")
def reader(site: Path) -> Iterator[httpx.Client]:
    page = {"Accept": "text/html"}
    app = app_on(memory_store(), site_dir=site)
    with serve(app) as address, httpx.Client(base_url=address, headers=page) as client:
        yield client


def test_the_site_is_served_under_docs(reader: httpx.Client) -> None:
    home = reader.get("/docs")
    assert (home.status_code, home.headers["location"]) == (307, "/docs/index.html")
    assert reader.get("/docs/index.html").text == "<h1>Home</h1>"
    assert reader.get("/docs/how-to/gate.html").text == "<h1>Gate</h1>"


def test_a_page_of_the_site_loads_only_its_own_files_and_is_asked_for_again(reader: httpx.Client) -> None:
    page = reader.get("/docs/index.html")
    policy = page.headers["content-security-policy"]
    assert "script-src 'self'; style-src 'self'; img-src 'self' data:" in policy
    assert page.headers["cache-control"] == "private, no-cache"
    again = reader.get("/docs/index.html", headers={"If-None-Match": page.headers["etag"]})
    assert again.status_code == 304


@pytest.mark.parametrize("path", ["/docs/nothing.html", "/docs/%2e%2e/secret.txt", "/docs/how-to"])
def test_nothing_but_files_of_the_site_is_served(reader: httpx.Client, path: str) -> None:
    assert reader.get(path).status_code == 404


def test_a_service_without_a_site_says_how_to_build_it(tmp_path: Path) -> None:
    with serve(app_on(memory_store(), site_dir=tmp_path / "none")) as address:
        page = httpx.get(f"{address}/docs", headers={"Accept": "text/html"})
    assert page.status_code == 200
    assert "make docs" in page.text
    assert "/api/v1/openapi.json" in page.text


def test_the_site_is_for_people_who_are_logged_in(people: People) -> None:
    with people.stranger() as client:
        assert client.get("/docs/index.html").status_code == 401
