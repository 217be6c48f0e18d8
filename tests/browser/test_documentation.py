"""The documentation site in a browser that opens it from the disk: its search, and nothing from the network."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from tests.patience import PATIENCE_S

ROOT = Path(__file__).parents[2]

TASKS = {
    "gate a pull request": "how-to/gate-a-pull-request",
    "read a megatron script": "how-to/read-a-megatron-script",
    "survive a slow link": "how-to/survive-a-slow-link",
    "how do I run a sweep on slurm": "how-to/run-a-sweep-on-slurm",
    "check memory without a gpu": "how-to/check-memory-without-a-gpu",
    "back up the database": "how-to/back-up-and-restore",
    "describe my own model": "how-to/describe-your-model",
    "create a token": "how-to/give-people-and-ci-their-tokens",
    "exit codes": "reference/exit-codes",
    "nightly retune": "how-to/retune-every-night",
}
"""Words that a user types, and the page that must be the first one found."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site that `make docs` has just built, or one that is built here."""
    if built := os.environ.get("AUTOTUNER_TEST_SITE"):
        return Path(built).resolve(strict=True)
    folder = tmp_path_factory.mktemp("documentation") / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(folder)]
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=quiet, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def page(browser: Browser, site: Path) -> Iterator[Page]:
    page = browser.new_page()
    page.set_default_timeout(1000 * PATIENCE_S)
    wrong: list[str] = []
    page.on("request", lambda request: wrong.append(request.url))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.goto(f"file://{site}/index.html")
    yield page
    assert [one for one in wrong if not one.startswith(("file:", "data:", "about:"))] == []
    page.close()


@pytest.mark.oracle  # a site takes half a minute to build: `make docs` runs this on the one that it has built
def test_the_search_finds_the_page_of_a_task_first(page: Page, site: Path) -> None:
    found = {}
    for words in TASKS:
        page.goto(f"file://{site}/index.html")
        page.click("input.md-search__input")
        page.keyboard.type(words)
        page.wait_for_selector(".md-search-result__item")
        page.wait_for_timeout(500)  # results are shown after each key, and nothing says which are the last
        first = page.locator(".md-search-result__item > a").first.get_attribute("href") or ""
        found[words] = first.partition("?")[0].partition("#")[0].removesuffix(".html").removeprefix(f"file://{site}/")
    assert found == TASKS
