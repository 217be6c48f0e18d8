"""What pages say: the text of every page over sweeps, gates, retunes, studies and clusters that stand still."""

from __future__ import annotations

import html
import random
import re
import secrets
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from html.parser import HTMLParser
from urllib.parse import urldefrag, urljoin, urlsplit

import httpx
import pytest

from autotuner.store.sql import memory_store
from tests.api.service import NOW, FixedClock, StoreDriver, app_on, serve
from tests.browser.pages import PAGES, stocked
from tests.browser.stores import DAY_S
from tests.builders import failure, sweep_request
from tests.golden.golden import Golden
from tests.golden.normal import Normal
from tests.patience import PATIENCE_S

NUM_TRIALS = 12

_COSTLY = {"explore-nodes", "explore-lengths", "explore-network", "new-slow", "phases-short", "plan"}
"""Pages that compute for seconds, and have the same parts as others of their kind."""

HOSTILE = "<script>alert(1)</script>'\"&amp;"


class _Text(HTMLParser):
    """Collects what people read or hear: texts, and the words of labels and titles, a line for each.

    Of pictures, it counts the marks of each class. It keeps ids and links, too.
    """

    _HIDDEN = frozenset({"script", "style", "template"})

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.marks: Counter[str] = Counter()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self._hidden = 0
        self._in_picture = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._hidden += tag in self._HIDDEN
        self._in_picture += tag == "svg"
        if self._in_picture:
            self.marks[f"{tag} {dict(attrs).get('class') or ''}".strip()] += 1
        self.lines += [f"{name}: {value}" for name, value in attrs if name in ("aria-label", "title") and value]
        self.ids |= {value for name, value in attrs if name == "id" and value}
        self.links += [value for name, value in attrs if (tag, name) == ("a", "href") and value]

    def handle_endtag(self, tag: str) -> None:
        self._hidden -= tag in self._HIDDEN
        self._in_picture -= tag == "svg"

    def handle_data(self, data: str) -> None:
        if not self._hidden and (words := " ".join(data.split())):
            self.lines.append(words)


@dataclass(frozen=True)
class Site:
    """A service whose store has something for every page, and what the addresses name."""

    http: httpx.Client
    names: Mapping[str, str]
    pages: dict[str, _Text] = field(default_factory=dict)

    def page(self, path: str) -> _Text:
        """A page once all of it is computed: its status, what it says, and the marks of its pictures."""
        if path not in self.pages:
            self.pages[path] = self._read(path)
        return self.pages[path]

    def _read(self, path: str) -> _Text:
        answer = self.http.get(path)
        if "data-later" in answer.text and (part := re.search(r'data-part="([^"]*)"', answer.text)):
            self.http.get(str(httpx.URL(path).join(html.unescape(part[1]))))  # from now on the page shows all at once
            answer = self.http.get(path)
        ends = time.monotonic() + PATIENCE_S
        while path.startswith("/plan?") and "data-every-s" in answer.text:  # a part of the plan is still being computed
            assert time.monotonic() < ends, path
            time.sleep(0.1)
            answer = self.http.get(path)
        text = _Text()
        text.feed(answer.text)
        marks = (f"{count} × {mark}" for mark, count in sorted(text.marks.items()))
        text.lines = [str(answer.status_code), *text.lines, *marks]
        return text

    def broken(self, *paths: str) -> tuple[set[str], list[str]]:
        """The parts that links on those pages lead to, and the addresses of those that are not there."""
        targets: dict[tuple[str, str], str] = {}
        for path in paths:
            for link in self.page(path).links:
                target, part = urldefrag(urljoin(path, link))
                if part:  # one of the many links that differ in their query alone, such as a rank's
                    targets.setdefault((urlsplit(target).path, part), target)
        lost = [f"{path}#{part}" for (_, part), path in targets.items() if part not in self.page(path).ids]
        return {part for _, part in targets}, lost


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    driver = StoreDriver(store=memory_store())
    with pytest.MonkeyPatch.context() as patch:  # all is created at one moment, and lists put what is equally old by id
        patch.setattr(secrets, "choice", random.Random(1).choice)
        names = stocked(driver, NUM_TRIALS)
    app = app_on(driver.store, clock=FixedClock(NOW + 13 * DAY_S))
    with serve(app) as address, httpx.Client(base_url=address, timeout=PATIENCE_S) as http:
        yield Site(http, names)


@pytest.mark.parametrize("name", PAGES)
def test_a_page_says_what_was_recorded(name: str, site: Site, golden: Golden) -> None:
    normal = Normal()
    page = site.page(PAGES[name].format(**site.names))
    golden.check(f"pages/{name}", [normal.text(line) for line in page.lines])


def test_every_link_into_a_part_of_a_page_finds_that_part(site: Site) -> None:
    parts, broken = site.broken(*(path.format(**site.names) for name, path in PAGES.items() if name not in _COSTLY))
    assert {"main", "ranking", "use", "timeline"} <= parts
    assert broken == []


def test_the_pages_of_a_sweep_whose_trials_died_lead_to_their_logs_where_there_are_any() -> None:
    driver = StoreDriver(store=memory_store())
    died = driver.sweep()
    trials = driver.ended(died, 0, failure()), driver.ended(died, 1, failure(log_tail=""))
    with serve(app_on(driver.store)) as address, httpx.Client(base_url=address, timeout=PATIENCE_S) as http:
        site = Site(http, {})
        parts, broken = site.broken(f"/sweeps/{died.id}", *(f"/trials/{trial.id}" for trial in trials))
    assert "log" in parts
    assert broken == []


def test_names_that_people_type_never_become_code_of_a_page() -> None:
    driver = StoreDriver(store=memory_store())
    sweep = driver.sweep(sweep_request(name=HOSTILE))
    driver.ended(sweep, 0, failure(message=HOSTILE, log_tail=HOSTILE))
    with serve(app_on(driver.store)) as address, httpx.Client(base_url=address, timeout=PATIENCE_S) as http:
        for path in (
            "/",
            f"/sweeps/{sweep.id}",
            f"/trials/{sweep.id}-0000",
            f"/compare?of={HOSTILE}",
            f"/find?q={HOSTILE}",
        ):
            text = http.get(path).text
            assert "<script>alert" not in text, path
            assert "alert(1)" in text, path
