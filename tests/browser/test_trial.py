"""The page of a trial, and timelines."""

from __future__ import annotations

import re

from playwright.sync_api import Page, expect

from autotuner.core.choices import Precision
from autotuner.core.trial import EngineJob, EngineJobPhase, Stopped
from tests.api.service import StoreDriver
from tests.builders import cpu_cluster, cpu_layout, failure, measurement, step_timeline, sweep_request, tiny_job


# ---------------------------------------------------------------- trial
def test_a_change_of_one_step_leads_to_its_layout_by_hand(page: Page, driver: StoreDriver) -> None:
    trial = driver.ended(driver.sweep(), 0, measurement())
    page.goto(f"/trials/{trial.id}")
    page.get_by_role("region", name="Effects of single changes").get_by_role("link").first.click()
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    assert "/explore?" in page.url


def test_another_rank_lights_its_own_groups(page: Page, driver: StoreDriver) -> None:
    trial = driver.ended(driver.sweep(), 0, measurement())
    page.goto(f"/trials/{trial.id}?rank=1")
    expect(page.locator("#ranks ~ p")).to_contain_text("The groups of rank 1")


def test_the_jobs_of_a_trial_say_where_they_stand_and_how_long_they_waited(page: Page, driver: StoreDriver) -> None:
    sweep = driver.sweep(sweep_request(job=tiny_job(cluster=cpu_cluster(engine="slurm", queue="batch"))))
    trial = driver.running(sweep, 0, num_steps=0)
    lost = EngineJob(
        engine="slurm",
        name="t-trial-0-0",
        handle="4711",
        submitted_at=100.0,
        phase=EngineJobPhase.LOST,
        detail="node2 does not answer",
        started_at=135.0,
        ended_at=200.0,
    )
    waits = EngineJob(engine="slurm", name="t-trial-0-1", handle="4712", submitted_at=200.0, detail="Resources")
    driver.placed(trial, lost, waits)
    page.goto(f"/trials/{trial.id}")
    rows = page.get_by_role("region", name="Jobs").locator("tbody tr")
    expect(rows.nth(0)).to_contain_text("slurm 4711")
    expect(rows.nth(0).locator("td")).to_have_text(["lost", "35 s", "1 min 5 s", "node2 does not answer"])
    expect(rows.nth(1).locator("td").nth(0)).to_have_text("queued")
    expect(rows.nth(1).locator("td").nth(3)).to_have_text("Resources")


def test_the_page_of_a_measured_trial_says_how_it_was_measured(page: Page, driver: StoreDriver) -> None:
    careful = measurement(
        num_warmup_steps=4,
        num_steps=12,
        noise_floor=0.02,
        num_disturbed=1,
        compile_s=18.0,
        power_w=612.0,
        precision_flop_per_s=100e9,
    )
    trial = driver.ended(driver.sweep(), 0, careful, cpu_layout(precision=Precision.FP8))
    page.goto(f"/trials/{trial.id}")
    expect(page.locator(".trial-figures")).to_contain_text("of its fp8 peak")
    for said in ("12 measured after 4 to warm up", "2 %", "1, thrown away", "18 s", "612 W"):
        expect(page.locator("#measured + dl")).to_contain_text(said)


def test_a_failed_trial_has_a_page_with_its_log_and_its_explanation(page: Page, driver: StoreDriver) -> None:
    trial = driver.ended(driver.sweep(), 0, failure(log_tail="tried to allocate 1.2 GB"))
    page.goto(f"/trials/{trial.id}")
    expect(page.locator(".standing")).to_contain_text("failed")
    page.get_by_text("Log of rank 1").click()
    expect(page.get_by_text("tried to allocate 1.2 GB")).to_be_visible()
    expect(page.locator(".notice.bad")).to_contain_text("What to do:")
    expect(page.locator("#changes")).to_be_visible()


def test_the_page_of_a_running_trial_follows_it_to_its_end(page: Page, driver: StoreDriver) -> None:
    trial = driver.running(driver.sweep(), 0)
    page.goto(f"/trials/{trial.id}")
    expect(page.locator(".standing")).to_contain_text("running")
    driver.end(trial, measurement(mfu=0.35))
    expect(page.locator(".standing")).to_contain_text("complete")
    expect(page.locator(".trial-figures")).to_contain_text("35.0 %")


def test_a_trial_s_layout_can_be_had_in_the_words_of_a_trainer_and_copied(page: Page, driver: StoreDriver) -> None:
    trial = driver.ended(driver.sweep(), 0, measurement())
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto(f"/trials/{trial.id}")
    expect(page.locator("pre.copied")).to_contain_text("tensor_parallel_degree = 2")
    page.get_by_role("navigation", name="Formats").get_by_role("link", name="megatron-lm", exact=True).click()
    expect(page.locator("pre.copied")).to_contain_text("--tensor-model-parallel-size 2")
    expect(page.get_by_text("Settings that keep their value")).to_be_visible()
    expect(page.get_by_role("navigation", name="Formats").locator("[aria-current=true]")).to_have_text("megatron-lm")
    page.get_by_role("button", name="Copy").click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied == page.locator("pre.copied").text_content()


def test_an_export_is_read_without_a_script(plain_page: Page, driver: StoreDriver) -> None:
    trial = driver.ended(driver.sweep(), 0, measurement())
    plain_page.goto(f"/trials/{trial.id}")
    plain_page.get_by_role("link", name="torchrun", exact=True).click()
    expect(plain_page.locator("pre.copied")).to_contain_text("-m autotuner.trials --spec")
    plain_page.get_by_role("link", name="accelerate", exact=True).click()
    expect(plain_page.locator("pre.copied")).to_have_count(2)
    expect(plain_page.locator("#use-section h3").filter(has_not_text="cannot")).to_have_text(
        ["arguments", "accelerate.yaml"]
    )
    expect(plain_page.get_by_role("button", name="Copy")).to_have_count(0)


def test_the_page_of_a_trial_fits_a_phone(page: Page, driver: StoreDriver) -> None:
    sweep = driver.sweep()
    driver.end(driver.start(sweep, 0, relative_error=0.12, fit_probability=0.97))
    failed = driver.ended(sweep, 1, failure(log_tail="x" * 500))
    page.set_viewport_size({"width": 360, "height": 740})
    page.goto(f"/trials/{failed.id}")
    expect(page.locator("#changes")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_a_pruned_trial_says_why_it_ended(page: Page, driver: StoreDriver) -> None:
    sweep = driver.sweep()
    trial = driver.ended(sweep, 0, Stopped(reason="pruned", detail="its steps take 1.4 s, the best 0.5 s"))
    page.goto(f"/trials/{trial.id}")
    expect(page.locator("#live")).to_contain_text("its steps take 1.4 s, the best 0.5 s")


# ---------------------------------------------------------------- timeline
DEEP = "/explore?layout=zero2+tp8+pp4+1f1b+mb1+sp+flash+bf16&global_batch_size=256"


def first_block(page: Page) -> str:
    """Where the first forward of the first lane lies, as the picture says it."""
    found = page.locator("#timeline-section svg path.forward").first.get_attribute("d")
    assert found is not None
    return found.split("z")[0]


def test_a_link_looks_closer_without_another_page_and_the_address_says_where(page: Page) -> None:
    page.goto(DEEP)
    page.evaluate("window.isSame = true")
    whole = first_block(page)
    page.get_by_role("link", name="Zoom in").click()
    expect(page).to_have_url(re.compile(r"zoom=0\.25-0\.75"))
    expect(page.get_by_role("link", name="Later")).to_be_visible()
    assert first_block(page) != whole
    assert page.evaluate("window.isSame")
    expect(page.get_by_role("link", name="Zoom in")).to_be_focused()
    page.reload()
    expect(page.get_by_role("link", name="Zoom out")).to_be_visible()


def test_keys_and_the_wheel_with_control_do_what_the_links_do(page: Page) -> None:
    page.goto(DEEP)
    picture = page.locator("[data-zoomed]")
    picture.focus()
    page.keyboard.press("+")
    expect(page).to_have_url(re.compile(r"zoom=0\.25-0\.75"))
    expect(page.locator("[data-zoomed]")).to_be_focused()
    page.keyboard.press("ArrowLeft")
    expect(page).to_have_url(re.compile(r"zoom=0-0\.5"))
    page.locator("[data-zoomed]").hover()
    page.keyboard.down("Control")
    page.mouse.wheel(0, 120)
    page.keyboard.up("Control")
    expect(page).to_have_url(re.compile(r"zoom=0-1"))


def test_without_script_the_same_links_are_pages(plain_page: Page) -> None:
    plain_page.goto(DEEP)
    plain_page.get_by_role("link", name="Zoom in").click()
    expect(plain_page).to_have_url(re.compile(r"zoom=0\.25-0\.75"))
    expect(plain_page.get_by_role("link", name="Whole step")).to_be_visible()


def test_a_recorded_step_is_drawn_over_the_predicted_one_and_each_may_be_seen_alone(
    page: Page, driver: StoreDriver
) -> None:
    layout = cpu_layout(pipeline_parallel_degree=2, micro_batch_size=2)
    trial = driver.ended(driver.sweep(), 0, measurement(timeline=step_timeline()), layout)
    page.goto(f"/trials/{trial.id}")
    section = page.locator("#timeline-section")
    expect(section).to_contain_text("Thick blocks were measured")
    section.get_by_role("link", name="Predicted", exact=True).click()
    expect(section).to_contain_text("Predicted by the schedule simulator")
    ranks = page.locator("#ranks-section")
    ranks.get_by_role("link", name="rank 1", exact=True).click()
    expect(ranks).to_contain_text("The groups of rank 1")
    expect(page).to_have_url(re.compile(r"rank=1"))
    expect(ranks.get_by_role("link", name="rank 1", exact=True)).to_be_focused()
