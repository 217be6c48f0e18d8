"""Pages of what is in use: retunes, gates, webhooks, the audit log, and what predictions learnt."""

from __future__ import annotations

from dataclasses import replace

from playwright.sync_api import Page, expect

from autotuner.core.access import AuditEntry, Caller, Scope
from autotuner.core.run import RunState
from autotuner.core.upkeep import RegressionGateOutcome, Verdict
from autotuner.costmodel.predict import predict_one
from tests.announcements import AT, announce, announcement, webhook
from tests.api.service import NOW, StoreDriver
from tests.browser.stores import INCUMBENT, finished_gate, finished_run, queued_gate, retune, started_run
from tests.builders import cpu_cluster, cpu_layout, measurement, sweep_request, tiny_job, tiny_model
from tests.runs import claimed, end

# ---------------------------------------------------------------- in use


def test_an_empty_page_says_how_to_begin(page: Page, address: str) -> None:
    page.goto("/")
    for name, heading, command in (
        ("Retunes", "Retunes", "autotuner retune add nightly"),
        ("Gates", "Performance regression gates", "--set-baseline"),
        ("Webhooks", "No webhook yet", "autotuner webhook add ours https://hooks.example.com/autotuner"),
    ):
        if not (link := page.get_by_role("link", name=name)).is_visible():
            page.get_by_text("More", exact=True).click()
        link.click()
        expect(page.get_by_text(heading).first).to_be_visible()
        expect(page.locator("pre")).to_contain_text(command)
        expect(page.locator("pre")).to_contain_text(f"--server {address}")


def test_the_pages_fit_a_phone(page: Page, driver: StoreDriver) -> None:
    retune(driver, "n" * 80)
    for night in range(9):
        finished_run(driver, Verdict.UNCHANGED, 1000.0 + night, "word " * 60 + "x" * 200, "n" * 80, night)
    gate = finished_gate(driver, RegressionGateOutcome.PASSED, 1000.0, "x" * 300, software="s" * 120)
    driver.store.announcements.save_webhook(webhook(name="w" * 100, url=f"https://{'h' * 60}.example.com/"))
    announce(driver.store.announcements, replace(announcement(), title="t" * 200))
    page.set_viewport_size({"width": 360, "height": 740})
    for path in ("/retunes", f"/retunes/{'n' * 80}", "/gates", f"/gates/{gate.id}", "/webhooks"):
        page.goto(path)
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, path


# ---------------------------------------------------------------- retunes


def test_retunes_are_listed_with_when_they_are_due_and_how_they_ended(page: Page, driver: StoreDriver) -> None:
    retune(driver)
    retune(driver, "weekly", cron="0 4 * * 1", time_zone="Europe/Berlin")
    driver.store.retunes.set_paused("weekly", True, next_due_at=None)
    finished_run(driver, Verdict.UNCHANGED, 1000.0, "the incumbent reached 1 ktoken/s")
    page.goto("/retunes")
    nightly, weekly = (page.get_by_role("row").filter(has_text=name) for name in ("nightly", "weekly"))
    expect(nightly).to_contain_text("At 02:00 every day, UTC")
    expect(nightly).to_contain_text("unchanged")
    expect(nightly).to_contain_text("25.0 %")
    expect(weekly).to_contain_text("paused")
    expect(weekly).to_contain_text("never ran")
    nightly.get_by_role("link").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("nightly")


def test_a_regression_is_reported_with_what_differs_and_drawn_below_its_band(page: Page, driver: StoreDriver) -> None:
    retune(driver)
    finished_run(driver, Verdict.UNCHANGED, 1000.0, "the incumbent reached 1 ktoken/s")
    page.goto("/retunes/nightly")
    now = page.locator("section", has=page.locator("#now"))
    expect(now).to_contain_text("unchanged")
    finished_run(driver, Verdict.REGRESSION, 929.0, "the incumbent lost 7.1 % ± 0.8", night=1)
    page.reload()
    expect(now).to_contain_text("regression")
    expect(now.locator(".said li").first).to_have_text("The incumbent lost 7.1 % ± 0.8.")
    expect(now.locator(".said li").last).to_have_text("OMP_NUM_THREADS 2 → 1")
    trend = page.locator("section", has=page.locator("#trend")).locator(".hide-narrow .chart")
    expect(trend.locator("circle.m-dot")).to_have_count(1)
    band, square = trend.locator(".p-band").bounding_box(), trend.locator("rect.m-dot.bad").bounding_box()
    assert band is not None
    assert square is not None
    assert square["y"] > band["y"] + band["height"]
    expect(trend).to_contain_text("regression, 929 tokens/s")
    rows = page.locator("section", has=page.locator("#runs")).locator("tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.first).to_contain_text("the incumbent lost 7.1 %")


def test_a_run_under_way_leads_to_its_sweep(page: Page, driver: StoreDriver) -> None:
    retune(driver)
    run = started_run(driver)
    page.goto("/retunes/nightly")
    expect(page.locator("section", has=page.locator("#now"))).to_contain_text("running")
    page.locator("section", has=page.locator("#runs")).get_by_role("link", name=str(run.child_id)).click()
    expect(page).to_have_url(f"{page.url.split('/sweeps/')[0]}/sweeps/{run.child_id}")


def test_the_page_shows_how_a_better_layout_differs(page: Page, driver: StoreDriver) -> None:
    retune(driver)
    finished_run(driver, Verdict.BETTER_FOUND, 1000.0, "data 2 is 6.0 % ± 0.9 faster")
    page.goto("/retunes/nightly")
    now = page.locator("section", has=page.locator("#now"))
    expect(now).to_contain_text("better found")
    expect(now.locator(".said li").first).to_have_text("Data 2 is 6.0 % ± 0.9 faster.")
    expect(now.locator(".said li").nth(1)).to_have_text("Tensor 2 → 1.")


# ---------------------------------------------------------------- gates


def test_gates_are_listed_with_how_they_ended_beside_their_baselines(page: Page, driver: StoreDriver) -> None:
    passed = finished_gate(
        driver, RegressionGateOutcome.PASSED, 1004.0, "within 2 % of main", software="pull request 6"
    )
    waiting = queued_gate(driver)
    page.goto("/gates")
    rows = page.locator("section:has(caption:text('newest first')) tbody tr")
    expect(rows.filter(has_text=passed.id)).to_contain_text("passed")
    expect(rows.filter(has_text=passed.id)).to_contain_text("+0.4 %")
    expect(rows.filter(has_text=passed.id)).to_contain_text("pull request 6")
    expect(rows.filter(has_text=waiting.id)).to_contain_text("running")
    baseline = page.locator("#baselines + div tbody tr")
    expect(baseline).to_contain_text("main")
    expect(baseline).to_contain_text("1,002 tokens/s")
    expect(baseline).to_contain_text("6 runs in 2 sessions")
    baseline.get_by_role("link").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("MFU of tiny on cpu:2")
    expect(page.locator(".lead")).to_contain_text(passed.id)


def test_a_gate_shows_the_layout_of_its_baseline_where_it_is_another_one(page: Page, driver: StoreDriver) -> None:
    other = replace(INCUMBENT, micro_batch_size=4)
    gate = finished_gate(driver, RegressionGateOutcome.FAILED, 939.0, "6.1 % ± 0.8 slower than main", held_to=other)
    page.goto(f"/gates/{gate.id}")
    expect(page.get_by_text("the baseline has another layout")).to_be_visible()
    expect(page.locator("#live")).to_contain_text(str(other))


# ---------------------------------------------------------------- webhooks


def test_deliveries_are_shown_with_their_announcements_and_filtered_by_state(page: Page, driver: StoreDriver) -> None:
    store = driver.store.announcements
    store.save_webhook(webhook(url="https://hooks.example.com/credential"))
    announce(store, announcement())
    end(driver.store, claimed(driver.store, "delivery", now=AT), RunState.FAILED, "HTTP 404 Not Found", now=AT)
    announce(store, replace(announcement(), id="an-2", title="weekly: unchanged", path="/retunes/weekly"))
    page.goto("/webhooks")
    expect(page.locator("main")).not_to_contain_text("credential")
    hook = page.get_by_role("row").filter(has_text="everything")
    expect(hook).to_contain_text("https://hooks.example.com")
    rows = page.locator("#deliveries ~ div tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.filter(has_text="weekly")).to_contain_text("pending")
    page.get_by_role("link", name="given up").click()
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text("HTTP 404 Not Found")
    expect(rows.get_by_role("link")).to_have_attribute("href", "/retunes/nightly")
    rows.get_by_role("button", name="Send the delivery").click()
    expect(rows).to_have_count(2)
    expect(rows.filter(has_text="nightly")).to_contain_text("pending")


def test_many_deliveries_are_turned_over_by_pages(page: Page, driver: StoreDriver) -> None:
    store = driver.store.announcements
    store.save_webhook(webhook())
    for number in range(30):
        announce(store, replace(announcement(), id=f"an-{number}", title=f"told {number}", at=AT + number))
    page.goto("/webhooks?state=pending")
    rows = page.locator("#deliveries ~ div tbody tr")
    expect(rows).to_have_count(25)
    page.get_by_role("link", name="Older").click()
    expect(rows).to_have_count(5)
    page.get_by_role("link", name="Newer").click()
    expect(rows).to_have_count(25)


# ---------------------------------------------------------------- audit

ENTRY = AuditEntry(
    at=NOW,
    caller="ada",
    token_id="k3v7q2mxn5",
    action="create_sweep",
    subject="/api/v1/sweeps",
    status=201,
    request_id="r-1",
    address="10.0.0.3",
)


def test_the_audit_log_is_shown_newest_first_and_of_one_caller(page: Page, driver: StoreDriver) -> None:
    page.goto("/audit")
    expect(page.get_by_text("Nothing was changed or refused yet")).to_be_visible()
    driver.store.access.record(ENTRY)
    refused = replace(ENTRY, at=NOW + 60, caller="<b>bob</b>", action="cancel_run", status=403)
    driver.store.access.record(refused)
    page.reload()
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.first).to_contain_text("<b>bob</b>")
    expect(rows.first).to_contain_text("refused")
    page.get_by_role("link", name="ada").click()
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text("create sweep")
    expect(page.get_by_role("heading", level=1)).to_have_text("Audit log of ada")
    page.get_by_role("link", name="everybody").click()
    expect(rows).to_have_count(2)


def test_pages_say_who_asked_for_a_sweep(page: Page, driver: StoreDriver) -> None:
    caller = Caller(name="ada", scope=Scope.RUN)
    sweep, _ = driver.store.create_sweep(sweep_request(), now=NOW, caller=caller)
    page.goto("/")
    expect(page.get_by_role("row").filter(has_text="ada")).to_be_visible()
    page.goto(f"/sweeps/{sweep.id}")
    expect(page.locator("main")).to_contain_text("by ada")


# ---------------------------------------------------------------- calibrations

LEARNT = cpu_layout(tensor_parallel_degree=2)


def test_the_page_says_that_nothing_was_learnt_and_then_what(page: Page, driver: StoreDriver) -> None:
    page.goto("/")
    page.get_by_text("More", exact=True).click()  # in the head of the page
    page.get_by_role("link", name="Calibrations").click()
    expect(page.get_by_text("No correction was learnt yet")).to_be_visible()
    sweep = driver.sweep()
    step_time_s = 2 * predict_one(LEARNT, tiny_job()).step_time.total_s
    driver.ended(sweep, 0, measurement(step_time_s=step_time_s), layout=LEARNT)
    page.goto("/calibrations")
    row = page.get_by_role("row").filter(has_text="torch")
    expect(row.get_by_role("rowheader")).to_have_text("cpu")
    expect(row).to_contain_text("×")
    expect(row).to_contain_text("50.0 %")


# ---------------------------------------------------------------- what was not measured
def test_figures_that_were_not_measured_are_never_called_so(page: Page, driver: StoreDriver) -> None:
    simulated = sweep_request(job=tiny_job(cluster=cpu_cluster(engine="simulated", queue="flaky")))
    sweep = driver.sweep(simulated)
    driver.ended(sweep, 0, measurement(mfu=0.25, is_simulated=True))
    small = driver.sweep(sweep_request(job=tiny_job(8), trial_cluster=cpu_cluster(2)))
    driver.estimated(small, 0)
    retune(driver, template=simulated)
    finished_run(driver, Verdict.UNCHANGED, 1000.0, "the incumbent reached 1 ktoken/s")
    gate = finished_gate(driver, RegressionGateOutcome.PASSED, 1000.0, "within 2 % of main", sweep=simulated)
    tried_as = (
        "tried on cpu:2 (2 of these)",
        "stimated from a trial on 2 of 8 ranks",
        "18.8 ± 2.3",
        "tried as tp2 mb1",
    )
    for path, says in {
        f"/sweeps/{sweep.id}": ("simulated, queue flaky", "no trial ran", "simulated, 95 % interval"),
        f"/trials/{sweep.id}-0000": ("nothing ran",),
        f"/sweeps/{small.id}": tried_as,
        **dict.fromkeys(("/retunes", "/retunes/nightly", "/gates", f"/gates/{gate.id}"), ("simulated",)),
    }.items():
        page.goto(path)
        for words in says:
            expect(page.locator("main"), path).to_contain_text(words)
        expect(page.locator(".measured, .measured-tag"), path).to_have_count(0)
    page.goto(f"/trials/{small.id}-0000")
    expect(page.locator("#live")).to_contain_text("not measured at this size")
    heading = page.get_by_role("heading", name="The proxy trial that ran in its place")
    parts = page.locator("section").filter(has=heading)
    expect(parts).to_contain_text("2 of 8")
    expect(parts.get_by_role("row").filter(has_text="matrix products")).to_contain_text("the proxy trial")
    expect(parts.get_by_role("row").filter(has_text="data communication")).to_contain_text("the cost model")


def test_approximated_parts_of_a_model_are_named_beside_its_figures(page: Page, driver: StoreDriver) -> None:
    model = tiny_model(approximations=("its vision tower is left out",))
    sweep = driver.sweep(sweep_request(job=tiny_job(model=model)))
    driver.ended(sweep, 0, measurement())
    for path in (f"/sweeps/{sweep.id}", f"/trials/{sweep.id}-0000"):
        page.goto(path)
        expect(page.locator("main"), path).to_contain_text("Its vision tower is left out.")
