"""What pages say: the text of every page over sweeps, gates, retunes, studies and clusters that stand still."""

from __future__ import annotations

import html
import random
import re
import secrets
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html.parser import HTMLParser

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

HOSTILE = "<script>alert(1)</script>'\"&amp;"


class _Text(HTMLParser):
    """Collects what people read or hear: texts, and the words of labels and titles, a line for each.

    Of pictures, it counts the marks of each class.
    """

    _HIDDEN = frozenset({"script", "style", "template"})

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.marks: Counter[str] = Counter()
        self._hidden = 0
        self._in_picture = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._hidden += tag in self._HIDDEN
        self._in_picture += tag == "svg"
        if self._in_picture:
            self.marks[f"{tag} {dict(attrs).get('class') or ''}".strip()] += 1
        self.lines += [f"{name}: {value}" for name, value in attrs if name in ("aria-label", "title") and value]

    def handle_endtag(self, tag: str) -> None:
        self._hidden -= tag in self._HIDDEN
        self._in_picture -= tag == "svg"

    def handle_data(self, data: str) -> None:
        if not self._hidden and (words := " ".join(data.split())):
            self.lines.append(words)


def text_of(page: str) -> list[str]:
    """The lines of a page."""
    text = _Text()
    text.feed(page)
    return [*text.lines, *(f"{count} × {mark}" for mark, count in sorted(text.marks.items()))]


@dataclass(frozen=True)
class Site:
    """A service whose store has something for every page, and what the addresses name."""

    http: httpx.Client
    names: Mapping[str, str]

    def read(self, path: str) -> list[str]:
        """The status of a page, and what it says once all of it is computed."""
        answer = self.http.get(path)
        if "data-later" in answer.text and (part := re.search(r'data-part="([^"]*)"', answer.text)):
            self.http.get(str(httpx.URL(path).join(html.unescape(part[1]))))  # from now on the page shows all at once
            answer = self.http.get(path)
        ends = time.monotonic() + PATIENCE_S
        while path.startswith("/plan?") and "data-every-s" in answer.text:  # a part of the plan is still being computed
            assert time.monotonic() < ends, path
            time.sleep(0.1)
            answer = self.http.get(path)
        normal = Normal()
        return [normal.text(line) for line in (str(answer.status_code), *text_of(answer.text))]


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
    said = site.read(PAGES[name].format(**site.names))
    golden.check(f"pages/{name}", said)


def test_what_people_call_things_is_no_part_of_a_page_s_code() -> None:
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
