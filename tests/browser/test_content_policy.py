"""Every page under the policy that it is served with; the fixture fails a test for what the browser complains of."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from autotuner.core.upkeep import MfuGateOutcome, Verdict
from tests.announcements import webhook
from tests.api.service import StoreDriver
from tests.browser.in_use import finished_gate, finished_run, retune
from tests.builders import cpu_cluster, sweep_request

HOSTILE = '<script>window.broken = 1</script><img src="x" onerror="window.broken = 2">'
"""What a caller may write into a name."""


def stocked(driver: StoreDriver) -> list[str]:
    """A page of every kind, with something on it."""
    sweep = driver.sweep(sweep_request(name=HOSTILE))
    trial = driver.ended(sweep, 0)
    driver.running(sweep, 1)
    retune(driver)
    for night in range(3):
        finished_run(driver, Verdict.UNCHANGED, 1000.0 + night, HOSTILE, "nightly", night)
    gate = finished_gate(driver, MfuGateOutcome.PASSED, 1000.0, HOSTILE)
    driver.store.announcements.save_webhook(webhook(name="ours"))
    driver.store.descriptions.save(cpu_cluster(name="lab"))
    pages = ("/", "/retunes", "/gates", "/clusters", "/calibrations", "/webhooks", "/login", "/explore", "/nothing")
    return [
        *pages,
        *("/new", f"/new?clone={sweep.id}"),
        *(f"/sweeps/{sweep.id}", f"/trials/{trial.id}", f"/trials/{trial.id}?format=arguments"),
        *("/retunes/nightly", f"/gates/{gate.id}", "/clusters/lab"),
    ]


def test_every_page_works_under_its_policy(page: Page, driver: StoreDriver, complaints: list[str]) -> None:
    for path in stocked(driver):
        answer = page.goto(path)
        assert answer is not None
        assert "script-src 'self'" in answer.headers["content-security-policy"]
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        assert page.evaluate("window.broken") is None, path
        if answer.status == 404:  # the browser tells it as an error
            complaints.clear()
        assert complaints == [], path


@pytest.mark.parametrize(
    "attack",
    [
        "document.body.append(Object.assign(document.createElement('script'), {textContent: 'window.broken = 1'}))",
        "document.body.insertAdjacentHTML('beforeend', '<img src=/none onerror=\"window.broken = 1\">')",
        "document.body.insertAdjacentHTML('beforeend', '<p style=\"color: red\" onclick=\"window.broken = 1\">')",
    ],
)
def test_what_was_smuggled_into_a_page_does_not_run(page: Page, complaints: list[str], attack: str) -> None:
    page.goto("/")
    page.evaluate(attack)
    page.wait_for_timeout(300)
    assert page.evaluate("window.broken") is None
    assert any("Content Security Policy" in complaint for complaint in complaints)
    complaints.clear()
