from __future__ import annotations

from playwright.sync_api import Browser, Page, expect

from autotuner.domain.layouts.choice import Precision, Recompute
from autotuner.domain.layouts.words import layout_of
from autotuner.domain.runs.engine_job import EngineJob, JobPhase
from autotuner.domain.runs.loss_gate import GateOutcome
from autotuner.domain.runs.trial import Stopped
from autotuner.launch.fake import FakeLauncher
from autotuner.search.sweeps.worker import Worker
from autotuner.search.text.sentences import size_in_words
from tests.api.service import NOW, FixedClock, StoreDriver, loss_gate_result
from tests.builders import breakdown, cpu_cluster, cpu_layout, failure, measurement, sweep_request, tiny_job, tiny_model
from tests.unit.search.sweeps.challenged import a_fifth_slower_incumbent, challenge, challenged, nights


def test_the_ranking_shows_measured_beside_predicted_and_says_which_is_which(page: Page, driver: StoreDriver) -> None:
    sweep = driver.sweep()
    driver.ended(
        sweep, 0, measurement(mfu=0.25, step_time_s=0.5, step_time_interval_s=0.01, peak_bytes=(10**7, 9 * 10**6))
    )
    page.goto(f"/sweeps/{sweep.id}")
    table = page.get_by_role("table")
    expect(table.locator("th[scope=colgroup]")).to_have_text(["MFU", "Step time", "Peak memory per rank", "Throughput"])
    expect(table.locator("thead tr").nth(1).locator("th")).to_have_text(["measured", "predicted"] * 3 + ["measured"])
    cells = table.locator("tbody tr").first.locator("td")
    expect(cells).to_have_text(
        ["1", "25.0 %", "40.0 %", "500 ms± 10 ms", "1.36 s", "10 MB", "5.2 MBfits", "1.02 ktoken/s"]
    )
    expect(table.locator("tbody th a")).to_have_text("tensor 2 · micro-batch 1 · fp32 · math attention")


def test_a_layout_that_a_small_trial_stands_for_is_estimated_and_never_called_measured(
    page: Page, driver: StoreDriver
) -> None:
    sweep = driver.sweep(sweep_request(job=tiny_job(8), trial_cluster=cpu_cluster(2)))
    trial = driver.estimated(sweep, 0)
    page.goto(f"/sweeps/{sweep.id}")
    expect(page.locator(".lead")).to_contain_text("tried on cpu:2 (2 of these)")
    expect(page.get_by_role("heading", name="Ranking by estimated MFU")).to_be_visible()
    expect(page.locator("tbody th")).to_contain_text("estimated from a trial on 2 of 8 ranks, which ran 4 layers")
    expect(page.locator(".measured, .measured-tag")).to_have_count(0)
    cells = page.get_by_role("table").locator("tbody tr").first.locator("td.estimated")
    expect(cells).to_have_text(["18.8 ± 2.3 %", "625 ms ± 12 %", "12 MBfits, 88 % sure", "819 token/s"])
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
    page.goto(f"/sweeps/{sweep.id}")
    expect(page.locator(".lead")).to_contain_text("simulated, queue flaky")
    expect(page.get_by_role("heading", name="Ranking by simulated MFU")).to_be_visible()
    for path in (f"/sweeps/{sweep.id}", f"/trials/{trial.id}"):
        page.goto(path)
        expect(page.locator("#live")).to_contain_text("nothing ran")
        expect(page.locator(".measured, .measured-tag")).to_have_count(0)


def test_the_jobs_of_a_trial_say_where_they_stand_and_how_long_they_waited(page: Page, driver: StoreDriver) -> None:
    sweep = driver.sweep(sweep_request(job=tiny_job(cluster=cpu_cluster(engine="slurm", queue="batch"))))
    trial = driver.running(sweep, 0, num_steps=0)
    lost = EngineJob(
        engine="slurm",
        name="t-trial-0-0",
        handle="4711",
        submitted_at=100.0,
        phase=JobPhase.LOST,
        detail="node2 does not answer",
        started_at=135.0,
        ended_at=200.0,
    )
    waits = EngineJob(engine="slurm", name="t-trial-0-1", handle="4712", submitted_at=200.0, detail="Resources")
    driver.placed(trial, lost, waits)
    page.goto(f"/sweeps/{sweep.id}")
    expect(page.locator(".lead")).to_contain_text("by slurm, queue batch")
    expect(page.locator("#running + ul")).to_contain_text("slurm job 4712 waits: Resources, ")
    page.goto(f"/trials/{trial.id}")
    rows = page.locator("#jobs + div tbody tr")
    expect(rows.nth(0)).to_contain_text("slurm 4711")
    expect(rows.nth(0).locator("td")).to_have_text(["lost", "35 s", "1 min 5 s", "node2 does not answer"])
    expect(rows.nth(1).locator("td").nth(0)).to_have_text("queued")
    expect(rows.nth(1).locator("td").nth(3)).to_have_text("Resources")


def test_every_layout_stands_whole_beside_its_words_where_one_click_marks_it(page: Page, driver: StoreDriver) -> None:
    sweep = driver.sweep()
    ended = driver.ended(sweep, 0, measurement(mfu=0.25))
    driver.ended(sweep, 1, failure())
    layouts = [driver.store.get_trial(f"{sweep.id}-{number:04d}").layout for number in (0, 1)]
    page.goto(f"/sweeps/{sweep.id}")
    shown = page.locator("tbody th .words")
    assert [layout_of(text) for text in shown.all_inner_texts()] == layouts
    shown.first.click()
    assert page.evaluate("getSelection().toString()").strip() == str(layouts[0])
    page.goto(f"/trials/{ended.id}")
    whole = [layout_of(text) for text in page.locator(".words").all_inner_texts()]
    assert whole[0] == layouts[0]
    assert len(whole) == len(set(whole)) > 1


def test_what_of_a_model_is_only_approximated_is_said_where_its_predictions_are(
    page: Page, driver: StoreDriver
) -> None:
    model = tiny_model(approximations=("its vision tower is left out",))
    sweep = driver.sweep(sweep_request(job=tiny_job(model=model)))
    trial = driver.ended(sweep, 0, measurement())
    for path in (f"/sweeps/{sweep.id}", f"/trials/{trial.id}"):
        page.goto(path)
        expect(page.locator("main")).to_contain_text("Its vision tower is left out.")


def test_the_pages_of_a_sweep_and_of_a_trial_say_how_large_the_model_is(page: Page, driver: StoreDriver) -> None:
    sweep = driver.sweep()
    trial = driver.ended(sweep, 0, measurement())
    size = size_in_words(sweep.request.job.model.num_parameters, sweep.request.job.model.num_active_parameters)
    for path in (f"/sweeps/{sweep.id}", f"/trials/{trial.id}"):
        page.goto(path)
        expect(page.locator("main")).to_contain_text(f"({size})")


def test_every_predicted_number_of_the_ranking_has_its_interval(page: Page, driver: StoreDriver) -> None:
    sweep = driver.sweep()
    driver.end(driver.start(sweep, 0, relative_error=0.12, fit_probability=0.97, validated=True))
    page.goto(f"/sweeps/{sweep.id}")
    cells = page.locator(".ranking tbody tr").first.locator("td.predicted")
    expect(cells).to_have_text(["40.0 ± 4.8 %", "1.36 s ± 12 %", "5.2 MBfits, 97 % sure"])
    expect(page.locator("#live")).not_to_contain_text("not validated")
    expect(page.locator("line.interval")).to_have_count(1)


def test_an_interval_that_is_an_assumption_is_called_so(page: Page, driver: StoreDriver) -> None:
    sweep = driver.sweep()
    trial = driver.end(driver.start(sweep, 0, relative_error=0.4, validated=False))
    for path in (f"/sweeps/{sweep.id}", f"/trials/{trial.id}"):
        page.goto(path)
        expect(page.locator("#live")).to_contain_text("not validated on this stack and device")


def test_a_layout_of_the_ranking_leads_to_its_trial_explained(page: Page, driver: StoreDriver) -> None:
    sweep = driver.sweep(sweep_request(name="nightly"))
    driver.ended(sweep, 0, measurement(mfu=0.25))
    page.goto(f"/sweeps/{sweep.id}")
    page.get_by_role("link", name="tensor 2").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Trial 0")
    expect(page.locator(".facing tbody tr").first.locator("td")).to_have_text(["25.0 %", "40.0 %"])
    expect(page.locator("#time + div")).to_contain_text("collectives of 2 tensor ranks over loopback")
    expect(page.locator("#memory + div caption")).to_contain_text("below the limit of 4 GB")
    expect(page.locator("#changes + div")).to_contain_text("Would help")
    shares = page.locator("#time + div rect.share")
    assert shares.count() > 3
    page.get_by_role("link", name="nightly").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("nightly")


def test_a_failed_trial_has_a_page_with_its_log_and_its_explanation(page: Page, driver: StoreDriver) -> None:
    trial = driver.ended(driver.sweep(), 0, failure(log_tail="tried to allocate 1.2 GB"))
    page.goto(f"/trials/{trial.id}")
    expect(page.locator("#standing")).to_contain_text("failed")
    page.get_by_text("Log of rank 1").click()
    expect(page.get_by_text("tried to allocate 1.2 GB")).to_be_visible()
    expect(page.locator("#changes")).to_be_visible()


def test_the_page_of_a_running_trial_follows_it_to_its_end(page: Page, driver: StoreDriver) -> None:
    trial = driver.running(driver.sweep(), 0)
    page.goto(f"/trials/{trial.id}")
    expect(page.locator("#standing")).to_contain_text("running")
    driver.end(trial, measurement(mfu=0.35))
    expect(page.locator("#standing")).to_contain_text("complete")
    expect(page.locator(".facing")).to_contain_text("35.0 %")


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
    expect(page.locator(".facing")).to_contain_text("500 ms± 3 ms")
    for said in ("12 measured after 4 to warm up", "2 %", "1, thrown away", "18 s", "612 W"):
        expect(page.locator("#measured + dl")).to_contain_text(said)
    rows = page.locator("#phases + div tbody tr")
    expect(rows.locator("th")).to_have_text(["backward", "forward", "pipeline idle"])
    expect(rows.first.locator("td.measured")).to_have_text(["300 ms", "60 %"])
    page.get_by_text("Environment").click()
    expect(page.get_by_role("row").filter(has_text="NCCL_ALGO")).to_contain_text("Ring")


def test_a_trial_that_was_extrapolated_is_marked_in_the_ranking(page: Page, driver: StoreDriver) -> None:
    sweep = driver.sweep()
    driver.ended(sweep, 0, measurement(extrapolated_from=(2, 4)))
    page.goto(f"/sweeps/{sweep.id}")
    expect(page.locator(".ranking tbody th")).to_contain_text("extrapolated from 2 and 4 layers per stage")


def test_what_measured_pairs_say_is_on_the_page_of_the_sweep(page: Page, driver: StoreDriver) -> None:
    sweep = driver.sweep()
    driver.ended(sweep, 0, measurement(step_time_s=0.5))
    page.goto(f"/sweeps/{sweep.id}")
    expect(page.locator("#ranking")).to_be_visible()
    expect(page.locator("#rules")).to_have_count(0)
    full = cpu_layout(tensor_parallel_degree=2, recompute=Recompute.FULL)
    driver.ended(sweep, 1, measurement(step_time_s=0.75), layout=full)
    expect(page.locator("#rules + div tbody tr")).to_have_count(1)
    expect(page.locator("#rules + div tbody tr")).to_contain_text("recompute full → none")
    expect(page.locator("#rules + div tbody td")).to_have_text(["+50.0 %", "–", "1 of 1"])


def test_the_page_follows_a_sweep_to_its_end_without_a_reload(page: Page, driver: StoreDriver) -> None:
    sweep = driver.sweep()
    page.goto(f"/sweeps/{sweep.id}")
    expect(page.locator("#connection")).to_have_text("Live")
    expect(page.locator("#live")).to_contain_text("No trial is complete yet")
    page.evaluate("window.unreloaded = true")

    trial = driver.running(sweep, 0)
    expect(page.get_by_role("listitem")).to_contain_text("step 1, measuring")
    driver.step(trial, 1)
    expect(page.get_by_role("listitem")).to_contain_text("step 2, measuring")
    driver.end(trial, measurement(mfu=0.25))
    expect(page.locator("tbody tr")).to_have_count(1)
    driver.ended(sweep, 1, measurement(mfu=0.35))
    expect(page.locator("tbody tr").first).to_contain_text("35.0 %")
    driver.finish(sweep)
    expect(page.locator("#connection")).to_have_text("Finished")
    expect(page.locator("#standing")).to_contain_text("trial budget")
    assert page.evaluate("window.unreloaded")


def test_a_page_follows_a_sweep_that_was_opened_again_past_its_first_end(page: Page, driver: StoreDriver) -> None:
    sweep = driver.sweep()
    driver.ended(sweep, 0)
    driver.finish(sweep)
    driver.store.control.change_budget(sweep.id, {"num_trials": 9}, now=NOW + 90)
    page.goto(f"/sweeps/{sweep.id}")
    expect(page.locator("#standing .state")).to_have_text("queued")
    page.wait_for_timeout(1500)  # longer than a page waits for more behind an end
    driver.store.control.pause(sweep.id, now=NOW + 95)
    expect(page.locator("#standing .state")).to_have_text("paused")
    driver.store.request_cancel(sweep.id, now=NOW + 99)
    expect(page.locator("#connection")).to_have_text("Finished")


def test_a_finished_sweep_is_shown_whole(page: Page, driver: StoreDriver) -> None:
    sweep = driver.sweep()
    driver.ended(sweep, 0, measurement(mfu=0.25))
    driver.finish(sweep)
    page.goto(f"/sweeps/{sweep.id}")
    expect(page.locator("#standing")).to_contain_text("complete")
    expect(page.locator("#live")).to_contain_text("4 of 4 trials ran")
    expect(page.locator("circle.point")).to_have_count(1)


def test_failures_show_their_kind_and_an_open_log_stays_open_while_the_page_changes(
    page: Page, driver: StoreDriver
) -> None:
    sweep = driver.sweep()
    driver.ended(sweep, 0, failure(log_tail="tried to allocate 1.2 GB"))
    driver.ended(sweep, 1, Stopped(reason="pruned"))
    page.goto(f"/sweeps/{sweep.id}")
    expect(page.locator("#ended + div tbody tr")).to_have_count(2)
    expect(page.locator("#ended + div")).to_contain_text("oom: rank 1 ran out of memory")
    page.get_by_text("Log of rank 1").click()
    log = page.get_by_text("tried to allocate 1.2 GB")
    expect(log).to_be_visible()
    driver.ended(sweep, 2)
    expect(page.locator("#ranking + div tbody tr")).to_have_count(1)
    expect(log).to_be_visible()


def test_the_focus_stays_where_it_was_while_the_page_changes(page: Page, driver: StoreDriver) -> None:
    sweep = driver.sweep()
    first = driver.ended(sweep, 0)
    page.goto(f"/sweeps/{sweep.id}")
    page.locator(f"#trial-{first.id}").focus()
    driver.ended(sweep, 1)
    expect(page.locator("tbody tr")).to_have_count(2)
    expect(page.locator(f"#trial-{first.id}")).to_be_focused()


def test_what_a_caller_wrote_is_shown_and_never_run(page: Page, driver: StoreDriver) -> None:
    attack = "<img src=x onerror=\"document.title='taken'\"><script>document.title='taken'</script>"
    sweep = driver.sweep(sweep_request(name=attack, job=tiny_job(model=tiny_model(name=attack))))
    driver.ended(sweep, 0, failure(message=attack, log_tail=attack))
    page.goto("/")
    expect(page.get_by_role("row").nth(1)).to_contain_text(attack)
    page.goto(f"/sweeps/{sweep.id}")
    expect(page.get_by_role("heading", level=1)).to_have_text(attack)
    driver.ended(sweep, 1, failure(message=attack))  # once more through the script that redraws
    expect(page.locator("#ended + div tbody tr")).to_have_count(2)
    expect(page.locator("#ended + div tbody tr").nth(1)).to_contain_text(attack)
    assert page.locator("main script, main img").count() == 0
    assert "taken" not in page.title().replace(attack, "")


def test_an_unknown_sweep_is_a_page_that_leads_back(page: Page, complaints: list[str]) -> None:
    answer = page.goto("/sweeps/sw-none")
    assert answer is not None
    assert answer.status == 404
    expect(page.get_by_role("heading", level=1)).to_have_text("Not found")
    page.get_by_role("link", name="All sweeps").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Sweeps")
    complaints.clear()  # the browser reports the 404 that this test is about


def test_nothing_is_loaded_from_elsewhere(page: Page, driver: StoreDriver, address: str) -> None:
    sweep = driver.sweep()
    driver.ended(sweep, 0)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto("/")
    page.goto(f"/sweeps/{sweep.id}")
    expect(page.locator("#connection")).to_have_text("Live")
    assert asked
    assert all(url.startswith(address) for url in asked)


def test_the_pages_fit_a_phone(page: Page, driver: StoreDriver) -> None:
    sweep = driver.sweep()
    driver.end(driver.start(sweep, 0, relative_error=0.12, fit_probability=0.97))
    failed = driver.ended(sweep, 1, failure(log_tail="x" * 500))
    page.set_viewport_size({"width": 360, "height": 740})
    for path, last in ((f"/sweeps/{sweep.id}", "#ended"), (f"/trials/{failed.id}", "#changes")):
        page.goto(path)
        expect(page.locator(last)).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_on_a_phone_every_number_of_the_ranking_is_in_sight(page: Page, driver: StoreDriver) -> None:
    sweep = driver.sweep()
    driver.end(driver.start(sweep, 0, relative_error=0.12, fit_probability=0.97))
    page.set_viewport_size({"width": 360, "height": 740})
    page.goto(f"/sweeps/{sweep.id}")
    expect(page.locator(".ranking tbody td").first).to_be_visible()
    # all at once: the page replaces its cells when the sweep moves
    edges = page.locator(".ranking tbody td").evaluate_all(
        "cells => cells.map(cell => cell.getBoundingClientRect()).map(box => [box.left, box.right])"
    )
    assert edges
    assert all(0 <= left < right <= 360 for left, right in edges)


def test_trials_that_cannot_be_told_from_the_first_are_marked(page: Page, driver: StoreDriver) -> None:
    sweep = driver.sweep()
    for number, step_time_s in enumerate((0.5, 0.501, 0.8)):
        found = measurement(step_time_s=step_time_s, mfu=0.125 / step_time_s, step_time_interval_s=0.005)
        driver.ended(sweep, number, found, layout=cpu_layout(tensor_parallel_degree=2, micro_batch_size=2**number))
    page.goto(f"/sweeps/{sweep.id}")
    rows = page.locator(".ranking tbody th")
    expect(rows.nth(0)).to_contain_text("likely the fastest")
    expect(rows.nth(1)).to_contain_text("tied with the first, ")
    expect(rows.nth(2)).not_to_contain_text("likely the fastest")
    expect(page.locator("#live")).to_contain_text("cannot be told from it")


def test_the_outcome_of_a_loss_gate_is_in_the_ranking_and_takes_a_rank_where_it_failed(
    page: Page, driver: StoreDriver
) -> None:
    sweep = driver.sweep()
    layouts = [cpu_layout(precision=Precision.FP8, micro_batch_size=2**number) for number in range(3)]
    trials = [
        driver.ended(sweep, number, measurement(precision_flop_per_s=100e9), layout)
        for number, layout in enumerate(layouts)
    ]
    driver.gated(trials[0], loss_gate_result())
    driver.gated(trials[1], loss_gate_result(outcome=GateOutcome.FAILED, detail="not shown to be within 2 %"))
    page.goto(f"/sweeps/{sweep.id}")
    rows = page.locator(".ranking tbody tr")
    expect(rows.locator("th")).to_contain_text(["loss gate passed", "loss not gated"])
    expect(rows.first).to_contain_text("50.0 % of fp8")
    expect(page.locator("#ended + div")).to_contain_text("loss gate failed: not shown to be within 2 %")
    page.goto(f"/trials/{trials[0].id}")
    expect(page.locator("#standing ~ p").first).to_contain_text("Loss gate passed: after 2 steps")
    expect(page.locator(".facing")).to_contain_text("Utilization of fp8")


def test_a_pruned_trial_says_why_it_ended(page: Page, driver: StoreDriver) -> None:
    sweep = driver.sweep()
    trial = driver.ended(sweep, 0, Stopped(reason="pruned", detail="its steps take 1.4 s, the best 0.5 s"))
    for path in (f"/sweeps/{sweep.id}", f"/trials/{trial.id}"):
        page.goto(path)
        expect(page.locator("#live")).to_contain_text("its steps take 1.4 s, the best 0.5 s")


def test_a_trial_s_layout_can_be_had_in_the_words_of_a_trainer_and_copied(page: Page, driver: StoreDriver) -> None:
    trial = driver.ended(driver.sweep(), 0, measurement())
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto(f"/trials/{trial.id}")
    expect(page.locator("pre.copied")).to_have_count(0)
    page.get_by_role("navigation", name="Formats").get_by_role("link", name="megatron-lm", exact=True).click()
    expect(page.locator("pre.copied")).to_contain_text("--tensor-model-parallel-size 2")
    expect(page.get_by_role("heading", name="Left as it is there")).to_be_visible()
    expect(page.locator("[aria-current=true]")).to_have_text("megatron-lm")
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
    expect(page.locator("h4")).to_have_text(["arguments", "accelerate.yaml"])
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


def test_a_sweep_that_challenges_a_layout_shows_what_it_compared_and_lists_the_runs_again_with_it(
    page: Page, driver: StoreDriver
) -> None:
    sweep, _ = driver.store.create_sweep(challenged(challenge(baseline=nights(1000.0, 1))), now=NOW)
    Worker(driver.store, FakeLauncher(a_fifth_slower_incumbent), FixedClock(), owner="one", lease_s=15.0).run_once()
    repeats = [trial for trial in driver.store.list_trials(sweep.id)[0] if trial.repeats is not None]
    page.goto(f"/sweeps/{sweep.id}")
    compared = page.locator("section").filter(has=page.get_by_role("heading", name="Compared"))
    expect(compared.get_by_role("row").filter(has_text="Baseline of 1 sitting")).to_contain_text("25.0 %")
    expect(compared.get_by_role("row").filter(has_text="In use, now")).to_contain_text("micro-batch 2")
    expect(compared.get_by_role("row").filter(has_text="Best found")).to_be_visible()
    expect(compared.locator("p").last).to_contain_text("faster (95 % interval")
    expect(compared.locator("summary")).to_contain_text(f"{len(repeats)} runs")
    expect(compared.locator("details li")).to_have_count(len(repeats))
    expect(page.get_by_role("heading", name="Ended without a rank")).to_have_count(0)
    page.goto(f"/trials/{repeats[0].id}")
    expect(page.locator("#live")).to_contain_text("Runs the layout of trial 0 again")
