"""Links into parts of pages, on every page."""

from __future__ import annotations

from collections.abc import Iterator
from html.parser import HTMLParser
from urllib.parse import urldefrag, urljoin, urlsplit

import httpx
import pytest

from autotuner.store.sql import memory_store
from tests.api.service import StoreDriver, app_on, serve
from tests.browser.pages import PAGES, stocked
from tests.builders import failure

_COSTLY = {"explore-nodes", "explore-lengths", "explore-network", "new-slow", "phases-short", "plan"}
"""Pages that compute for seconds, and have the same parts as others of their kind."""


class _Page(HTMLParser):
    """Collects the ids and the links of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.ids |= {values["id"] or ""} if "id" in values else set()
        self.links += [values["href"] or ""] if tag == "a" and "href" in values else []


@pytest.fixture(scope="module")
def service() -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the address of a service with something on every page, and the names in the addresses of these."""
    driver = StoreDriver(store=memory_store())
    died = driver.sweep()
    loud, silent = driver.ended(died, 0, failure()), driver.ended(died, 1, failure(log_tail=""))
    names = stocked(driver, 12) | {"died": died.id, "loud": loud.id, "silent": silent.id}
    with serve(app_on(driver.store)) as address:
        yield address, names


def test_every_link_into_a_part_of_a_page_finds_that_part(service: tuple[str, dict[str, str]]) -> None:
    address, names = service
    pages: dict[str, _Page] = {}
    with httpx.Client(headers={"Accept": "text/html"}, timeout=60, follow_redirects=True) as client:

        def read(url: str) -> _Page:
            if url not in pages:
                pages[url] = _Page(client.get(url).text)
            return pages[url]

        targets: dict[tuple[str, str], str] = {}
        usual = [path for name, path in PAGES.items() if name not in _COSTLY]
        for path in (*usual, "/sweeps/{died}", "/trials/{loud}", "/trials/{silent}"):
            url = urljoin(address, path.format(**names))
            for link in read(url).links:
                target, fragment = urldefrag(urljoin(url, link))
                if fragment:  # one of the many links that differ in their query alone, such as a rank's
                    targets.setdefault((urlsplit(target).path, fragment), target)
        broken = [f"{url}#{part}" for (_, part), url in targets.items() if part not in read(url).ids]
    assert {"main", "ranking", "use", "timeline", "log"} <= {part for _, part in targets}
    assert broken == []
