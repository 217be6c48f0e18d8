from __future__ import annotations

from dataclasses import replace
from itertools import combinations

from playwright.sync_api import Page, expect

from autotuner.core.cluster_check import CheckFindings, CheckRequest
from autotuner.core.profile import with_links
from autotuner.core.profile_fit import fit_profile
from autotuner.core.run import RunState
from tests import runs
from tests.api.service import NOW, StoreDriver
from tests.builders import cpu_cluster, engine_job, link_point, pair_measurements

PAIR = replace(cpu_cluster(2), name="pair", num_nodes=2, engine="two", queue="long")


def test_without_a_cluster_the_page_says_how_to_store_and_check_one(page: Page, address: str) -> None:
    page.goto("/")
    page.get_by_role("link", name="Clusters").click()
    expect(page.get_by_role("heading", name="No cluster yet")).to_be_visible()
    expect(page.locator("pre")).to_contain_text(f"autotuner cluster check ours --server {address}")


def test_the_page_of_a_cluster_follows_its_check_to_the_measured_links(page: Page, driver: StoreDriver) -> None:
    store = driver.store
    store.descriptions.save(PAIR)
    check = store.descriptions.create_check("pair", CheckRequest(), now=NOW)
    held = runs.claimed(store, "check", now=NOW + 1)
    found = CheckFindings(engine="processes", jobs=(engine_job(),)).said("trial: job 17 waits", NOW + 6)
    runs.report(store, held, found)
    page.goto("/clusters/pair")
    expect(page.locator(f"#{check.id} tbody tr")).to_have_text(["5 strial: job 17 waits"])
    expect(page.locator(f"#{check.id}")).to_contain_text("two: processes · job 17 queued")
    links = page.get_by_role("region", name="Links", exact=True).first
    expect(links).to_contain_text("Nobody measured them")

    taken = fit_profile(pair_measurements(), name="pair", measured_at=NOW, num_ranks=4, peaks={}, on_cores=True)
    store.descriptions.save(replace(taken, cluster="pair"))
    runs.end(store, held, RunState.COMPLETE, "done", now=NOW + 9)
    cells = links.locator("tbody tr").nth(1).locator("td")
    expect(cells).to_have_text(["500 MB/s", "800 MB/s", "200 µs", "100 µs", "loopback"])
    expect(links).to_contain_text("Measured on 2 nodes")
    expect(page.locator(f"#{check.id} summary")).to_contain_text("complete")


def test_the_pages_of_clusters_fit_a_phone(page: Page, driver: StoreDriver) -> None:
    driver.store.descriptions.save(PAIR)
    driver.store.descriptions.create_check("pair", CheckRequest(), now=NOW)
    found = CheckFindings().said("x" * 500, NOW)
    runs.report(driver.store, runs.claimed(driver.store, "check", now=NOW), found)
    page.set_viewport_size({"width": 360, "height": 740})
    for path in ("/clusters", "/clusters/pair"):
        page.goto(path)
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_the_page_shows_which_link_is_late_and_fits_a_phone(page: Page, driver: StoreDriver) -> None:
    four = replace(PAIR, num_nodes=4)
    driver.store.descriptions.save(four)
    points = tuple(link_point(*ends, delay=0.03 if ends == (2, 3) else 50e-6) for ends in combinations(range(4), 2))
    taken = fit_profile(pair_measurements(), name="pair", measured_at=NOW, num_ranks=8, peaks={}, on_cores=True)
    driver.store.descriptions.save(with_links(replace(taken, cluster="pair"), points, measured_at=NOW, num_nodes=4))
    page.goto("/clusters")
    page.get_by_role("link", name="1 unhealthy").click()
    matrix = page.locator("table.pairs")
    expect(matrix.locator("td.ailing")).to_have_text(["30 ms !"])
    expect(matrix.locator("td.measured")).to_have_count(12)
    expect(page.get_by_role("listitem")).to_contain_text(["nodes 2 and 3: 29.9 ms late"])
    page.set_viewport_size({"width": 360, "height": 740})
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
