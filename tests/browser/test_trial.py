"""The page of a trial in a real browser."""

from __future__ import annotations

from playwright.sync_api import Browser, Page, expect

from autotuner.core.choices import Precision
from autotuner.core.trial import EngineJob, EngineJobPhase, Stopped
from autotuner.search.text.sentences import size_in_words
from tests.api.service import StoreDriver, loss_gate_result
from tests.builders import breakdown, cpu_cluster, cpu_layout, failure, measurement, sweep_request, tiny_job, tiny_model


def test_every_part_of_a_trial_s_page_stands_on_it_in_order(page: Page, driver: StoreDriver) -> None:
    trial = driver.ended(driver.sweep(), 0, measurement(mfu=0.25))
    page.goto(f"/trials/{trial.id}")
    expect(page.get_by_role("heading", level=1)).to_have_text("Trial 0: tp2mb1")
    expect(page.locator("#standing")).to_contain_text("rank 1 of 1")
    expect(page.locator(".trial-figures dd").first).to_contain_text("25.0 %")
    expect(page.locator(".standing .notice")).to_contain_text("of the step computes")
    headings = page.locator("main h2").all_inner_texts()
    first = ["Where a step’s time goes", "Timeline of a step", "Memory per stage", "One step away", "Ranks on nodes"]
    assert [heading for heading in headings if heading in first] == first
    assert headings[-1] == "Launch flags"
    expect(page.locator("#memory ~ p")).to_contain_text("below the limit of 4 GB")


def test_a_change_of_one_step_leads_to_its_layout_by_hand(page: Page, driver: StoreDriver) -> None:
    trial = driver.ended(driver.sweep(), 0, measurement())
    page.goto(f"/trials/{trial.id}")
    page.get_by_role("region", name="One step away").get_by_role("link").first.click()
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    assert "/explore?" in page.url


def test_another_rank_lights_its_own_groups(page: Page, driver: StoreDriver) -> None:
    trial = driver.ended(driver.sweep(), 0, measurement())
    page.goto(f"/trials/{trial.id}?rank=1")
    expect(page.locator("#ranks ~ p")).to_contain_text("The groups of rank 1")


def test_a_loss_gate_shows_its_curves_and_what_it_found(page: Page, driver: StoreDriver) -> None:
    layout = cpu_layout(precision=Precision.FP8)
    trial = driver.ended(driver.sweep(), 0, measurement(precision_flop_per_s=100e9), layout)
    driver.gated(trial, loss_gate_result())
    page.goto(f"/trials/{trial.id}")
    expect(page.locator("#standing")).to_contain_text("loss gate passed")
    expect(page.get_by_role("img", name="Loss by step: ").first).to_be_visible()
    expect(page.locator(".trial-figures")).to_contain_text("of its fp8 peak")


def test_the_page_of_a_measured_trial_says_how_it_was_measured_and_where_its_step_went(
    page: Page, driver: StoreDriver
) -> None:
    careful = measurement(
        num_warmup_steps=4,
        num_steps=12,
        step_time_interval_s=0.003,
        noise_floor=0.02,
        num_disturbed=1,
        compile_s=18.0,
        power_w=612.0,
        breakdown=breakdown(forward_s=0.1, backward_s=0.3, pipeline_idle_s=0.1),
        environment={"torch": "2.13.0", "NCCL_ALGO": "Ring"},
    )
    trial = driver.ended(driver.sweep(), 0, careful)
    page.goto(f"/trials/{trial.id}")
    expect(page.locator(".trial-figures")).to_contain_text("500 ms ± 3 ms")
    for said in ("12 measured after 4 to warm up", "2 %", "1, thrown away", "18 s", "612 W"):
        expect(page.locator("#measured + dl")).to_contain_text(said)
    rows = page.locator(".step-parts tbody tr")
    expect(rows.locator("th")).to_have_text(
        [
            *("forward", "backward", "tensor collectives", "data collectives", "pipeline idle", "optimizer"),
            *("anything else", "step"),
        ]
    )
    expect(rows.nth(1).locator("td.measured")).to_have_text("0.300")
    page.get_by_text("Environment", exact=True).click()
    expect(page.get_by_role("row").filter(has_text="NCCL_ALGO")).to_contain_text("Ring")


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


def test_a_failed_trial_has_a_page_with_its_log_and_its_explanation(page: Page, driver: StoreDriver) -> None:
    trial = driver.ended(driver.sweep(), 0, failure(log_tail="tried to allocate 1.2 GB"))
    page.goto(f"/trials/{trial.id}")
    expect(page.locator("#standing")).to_contain_text("failed")
    page.get_by_text("Log of rank 1").click()
    expect(page.get_by_text("tried to allocate 1.2 GB")).to_be_visible()
    expect(page.locator(".notice.bad")).to_contain_text("Way out:")
    expect(page.locator("#changes")).to_be_visible()


def test_the_page_of_a_running_trial_follows_it_to_its_end(page: Page, driver: StoreDriver) -> None:
    trial = driver.running(driver.sweep(), 0)
    page.goto(f"/trials/{trial.id}")
    expect(page.locator("#standing")).to_contain_text("running")
    driver.end(trial, measurement(mfu=0.35))
    expect(page.locator("#standing")).to_contain_text("complete")
    expect(page.locator(".trial-figures")).to_contain_text("35.0 %")


def test_a_trial_s_layout_can_be_had_in_the_words_of_a_trainer_and_copied(page: Page, driver: StoreDriver) -> None:
    trial = driver.ended(driver.sweep(), 0, measurement())
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto(f"/trials/{trial.id}")
    expect(page.locator("pre.copied")).to_contain_text("tensor_parallel_degree = 2")
    page.get_by_role("navigation", name="Formats").get_by_role("link", name="megatron-lm", exact=True).click()
    expect(page.locator("pre.copied")).to_contain_text("--tensor-model-parallel-size 2")
    expect(page.get_by_text("Left as it is there")).to_be_visible()
    expect(page.get_by_role("navigation", name="Formats").locator("[aria-current=true]")).to_have_text("megatron-lm")
    page.get_by_role("button", name="Copy").click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied == page.locator("pre.copied").text_content()


def test_an_export_is_read_without_a_script(browser: Browser, address: str, driver: StoreDriver) -> None:
    trial = driver.ended(driver.sweep(), 0, measurement())
    context = browser.new_context(base_url=address, java_script_enabled=False)
    page = context.new_page()
    page.goto(f"/trials/{trial.id}")
    page.get_by_role("link", name="torchrun", exact=True).click()
    expect(page.locator("pre.copied")).to_contain_text("-m trials --spec")
    page.get_by_role("link", name="accelerate", exact=True).click()
    expect(page.locator("pre.copied")).to_have_count(2)
    expect(page.locator("#use-section h3").filter(has_not_text="cannot")).to_have_text(["arguments", "accelerate.yaml"])
    expect(page.get_by_role("button", name="Copy")).to_have_count(0)
    context.close()


def test_what_a_trainer_cannot_say_of_a_trial_s_layout_stands_beside_its_export(
    page: Page, driver: StoreDriver
) -> None:
    gathered = cpu_layout(tensor_parallel_degree=2, loss_parallel=False)
    trial = driver.ended(driver.sweep(), 0, measurement(), layout=gathered)
    page.goto(f"/trials/{trial.id}?format=megatron-lm")
    said = page.locator("h3", has_text="What it cannot say").locator("+ ul")
    expect(said).to_contain_text("keeps its part of the logits")


def test_a_layout_that_a_small_trial_stands_for_is_estimated_and_never_called_measured(
    page: Page, driver: StoreDriver
) -> None:
    sweep = driver.sweep(sweep_request(job=tiny_job(8), trial_cluster=cpu_cluster(2)))
    trial = driver.estimated(sweep, 0)
    page.goto(f"/trials/{trial.id}")
    expect(page.locator("#live")).to_contain_text("never measured at this size")
    small = page.locator("section").filter(has=page.get_by_role("heading", name="The small trial that stands for it"))
    expect(small).to_contain_text("2 of 8")
    expect(small.get_by_role("row").filter(has_text="matrix products")).to_contain_text("the small trial")
    expect(small.get_by_role("row").filter(has_text="data communication")).to_contain_text("the model")


def test_figures_that_are_simulated_are_never_called_measured(page: Page, driver: StoreDriver) -> None:
    job = tiny_job(cluster=cpu_cluster(engine="simulated", queue="flaky"))
    sweep = driver.sweep(sweep_request(job=job))
    trial = driver.ended(sweep, 0, measurement(mfu=0.25, is_simulated=True))
    page.goto(f"/trials/{trial.id}")
    expect(page.locator("#live")).to_contain_text("nothing ran")
    expect(page.locator(".measured, .measured-tag")).to_have_count(0)


def test_what_of_a_model_is_only_approximated_is_said_where_its_predictions_are(
    page: Page, driver: StoreDriver
) -> None:
    model = tiny_model(approximations=("its vision tower is left out",))
    sweep = driver.sweep(sweep_request(job=tiny_job(model=model)))
    trial = driver.ended(sweep, 0, measurement())
    page.goto(f"/trials/{trial.id}")
    expect(page.locator("main")).to_contain_text("Its vision tower is left out.")


def test_the_page_of_a_trial_says_how_large_the_model_is(page: Page, driver: StoreDriver) -> None:
    sweep = driver.sweep()
    trial = driver.ended(sweep, 0, measurement())
    size = size_in_words(sweep.request.job.model.num_parameters, sweep.request.job.model.num_active_parameters)
    page.goto(f"/trials/{trial.id}")
    expect(page.locator("main")).to_contain_text(f"({size})")


def test_an_interval_that_is_an_assumption_is_called_so(page: Page, driver: StoreDriver) -> None:
    sweep = driver.sweep()
    trial = driver.end(driver.start(sweep, 0, relative_error=0.4, validated=False))
    page.goto(f"/trials/{trial.id}")
    expect(page.locator("#live")).to_contain_text("not validated on this stack and device")


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
