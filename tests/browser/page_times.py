"""What pages weigh, and how soon a browser shows them, with a sweep of a thousand trials.

``python -m tests.browser.page_times`` serves sweeps as large jobs have them from a process of its own, opens each page
in Chromium several times, and prints per page: kilobytes of its HTML, of that without its pictures, and of everything
that it loads; milliseconds until the first byte, and until all of it is there. Then it sorts, filters and pages the
ranking as a person does, and prints what each of these takes until the new rows are shown.
"""

from __future__ import annotations

import argparse
import re
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from playwright.sync_api import Page, sync_playwright

from autotuner.launch.fake import FakeLauncher
from autotuner.service.build import build
from autotuner.service.settings import Settings
from autotuner.store.schema import migrate
from bench.costly_requests import running_service
from tests.api.service import StoreDriver
from tests.browser.screenshots import PAGES, stocked

_PICTURE = re.compile(r"<svg.*?</svg>", re.DOTALL)

_LOADED = "performance.getEntriesByType('resource').reduce((all, one) => all + one.decodedBodySize, 0)"

_SHOWN = (
    *("home", "find", "sweep", "trial", "explore", "new", "compare"),
    *("retunes", "retune", "gates", "gate", "clusters", "engines", "calibrations", "webhooks", "tokens", "audit"),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.browser.page_times", description="Weigh and time the pages.")
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--times", type=int, default=5)
    given = parser.parse_args(arguments)
    with ExitStack() as stack:
        url = f"sqlite:///{stack.enter_context(tempfile.TemporaryDirectory(prefix='autotuner-pages-'))}/autotuner.db"
        names = _filled(url, given.trials)
        _, address = stack.enter_context(running_service(url))
        page = stack.enter_context(_browser_page(address))
        _say(f"ms are the median of {given.times}; {given.trials} trials")
        _say(f"{'page':14}{'HTML kB':>9}{'no pictures':>13}{'all kB':>8}{'first byte':>12}{'shown':>8}")
        for name in _SHOWN:
            _say(_line(page, name, PAGES[name].format(**names), given.times))
        _say(f"\n{'in the ranking':30}{'until shown, ms':>18}")
        for what, took_ms in _interactions(page, PAGES["sweep"].format(**names), given.times):
            _say(f"{what:30}{took_ms:18.0f}")
    return 0


def _filled(url: str, num_trials: int) -> dict[str, str]:
    migrate(url)
    app = build(Settings(database_url=url, num_workers=0), launcher=FakeLauncher())
    names = stocked(StoreDriver(store=app.store), num_trials)
    app.close()
    return names


@contextmanager
def _browser_page(address: str) -> Iterator[Page]:
    executable = shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=["--headless", "--no-sandbox"])
        yield browser.new_context(base_url=address).new_page()
        browser.close()


def _line(page: Page, name: str, path: str, times: int) -> str:
    answer = page.goto(path)
    assert answer is not None
    html = answer.text()
    page.wait_for_load_state("networkidle")
    all_kb = len(html.encode()) / 1e3 + page.evaluate(_LOADED) / 1e3
    first_ms, shown_ms = zip(*(_opened(page, path) for _ in range(times)), strict=True)
    bare_kb = len(_PICTURE.sub("", html).encode()) / 1e3
    return (
        f"{name:14}{len(html.encode()) / 1e3:9.0f}{bare_kb:13.0f}{all_kb:8.0f}"
        f"{statistics.median(first_ms):12.0f}{statistics.median(shown_ms):8.0f}"
    )


def _opened(page: Page, path: str) -> tuple[float, float]:
    """Milliseconds until the first byte, and until heading and first row are laid out."""
    began = time.perf_counter()
    page.goto(path, wait_until="commit")
    first_ms = 1e3 * (time.perf_counter() - began)
    page.locator("h1").first.wait_for()
    page.wait_for_function("document.readyState !== 'loading'")
    return first_ms, 1e3 * (time.perf_counter() - began)


def _interactions(page: Page, path: str, times: int) -> Iterator[tuple[str, float]]:
    """What people do with a ranking, and how long it takes until its rows are others."""
    page.goto(path)
    yield "sort by memory", _median(times, lambda: _swapped(page, path, lambda: _head(page, "memory").click()))
    yield "filter tp=4 pp>1", _median(times, lambda: _swapped(page, path, lambda: _filter(page)))
    yield "the next 50", _median(times, lambda: _swapped(page, path, lambda: page.get_by_text("Next 50").click()))


def _head(page: Page, word: str):  # type: ignore[no-untyped-def]
    return page.locator("thead a, thead button").filter(has_text=word).first


def _filter(page: Page) -> None:
    field = page.locator("input[placeholder*='tp=4']")
    field.fill("tp=4 pp>1")
    field.press("Enter")


def _swapped(page: Page, path: str, act: Callable[[], None]) -> float:
    page.goto(path)
    page.wait_for_load_state("networkidle")
    before = page.locator("table.ranking tbody").inner_text()
    began = time.perf_counter()
    act()
    page.wait_for_function(
        "before => document.querySelector('table.ranking tbody')?.innerText !== before", arg=before, polling=5
    )
    return 1e3 * (time.perf_counter() - began)


def _median(times: int, measure: Callable[[], float]) -> float:
    return statistics.median(measure() for _ in range(times))


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
