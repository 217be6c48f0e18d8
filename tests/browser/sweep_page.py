"""What the page of a sweep costs: ``python -m tests.browser.sweep_page`` prints seconds of one core and bytes.

Seconds are those of this process, so that what else the machine does is not counted. The first request reads and
decodes every trial and compiles the templates; the others find them kept.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

import structlog
from starlette.testclient import TestClient

from api.main import create_app
from autotuner.store.sql import memory_store
from tests.api.service import StoreDriver, app_on
from tests.browser.large import large_sweep

_REQUESTS = {
    "the page, for the first time": ("", 1),
    "the page": ("", 5),
    "all that is live": ("?part=live", 5),
    "the ranking, sorted": ("?part=ranking&sort=-tokens_per_s", 20),
    "the ranking, filtered": ("?part=ranking&where=tp=4+pp>1", 20),
    "its third page": ("?part=ranking&page=3", 20),
    "predicted only": ("?part=ranking&rows=untried", 20),
}
"""What is asked for, and how often."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the median and the most of each."""
    parser = argparse.ArgumentParser(prog="python -m tests.browser.sweep_page", description=__doc__)
    parser.add_argument("--trials", type=int, default=1000)
    chosen = parser.parse_args(arguments)
    driver = StoreDriver(store=memory_store())
    sweep = large_sweep(driver, chosen.trials, num_running=1, finished=False)
    app = app_on(driver.store)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    client = TestClient(create_app(app), headers={"Accept": "text/html"})
    for name, (query, times) in _REQUESTS.items():
        taken = sorted(_seconds(client, f"/sweeps/{sweep.id}{query}") for _ in range(times))
        weight = len(client.get(f"/sweeps/{sweep.id}{query}").content)
        middle, most = 1e3 * taken[len(taken) // 2], 1e3 * taken[-1]
        sys.stdout.write(f"{name:32s} {middle:6.0f} ms, {most:6.0f} ms at most, {weight / 1e3:6.0f} kB\n")
    app.close()
    return 0


def _seconds(client: TestClient, path: str) -> float:
    begun = time.process_time()
    answer = client.get(path)
    assert answer.status_code == 200, path
    return time.process_time() - begun


if __name__ == "__main__":
    sys.exit(main())
