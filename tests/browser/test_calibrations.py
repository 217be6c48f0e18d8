from __future__ import annotations

from playwright.sync_api import Page, expect

from autotuner.costmodel.predict import predict_one
from tests.api.service import StoreDriver
from tests.builders import cpu_layout, measurement, tiny_job

LAYOUT = cpu_layout(tensor_parallel_degree=2)


def test_the_page_says_that_nothing_was_learnt_and_then_what(page: Page, driver: StoreDriver) -> None:
    page.goto("/")
    page.get_by_text("More", exact=True).click()  # in the head of the page
    page.get_by_role("link", name="Calibrations").click()
    expect(page.get_by_role("heading", name="Nothing learnt yet")).to_be_visible()
    sweep = driver.sweep()
    step_time_s = 2 * predict_one(LAYOUT, tiny_job()).step_time.total_s
    driver.ended(sweep, 0, measurement(step_time_s=step_time_s), layout=LAYOUT)
    page.goto("/calibrations")
    row = page.get_by_role("row").filter(has_text="torch")
    expect(row.get_by_role("rowheader")).to_have_text("cpu")
    expect(row).to_contain_text("×")
    expect(row).to_contain_text("50.0 %")
