"""The page of a sweep in a browser: its answer, its table, how it follows the sweep, its front."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from autotuner.cli import main
from autotuner.core.choices import AttentionKernel, Precision, Recompute, ShardLevel
from autotuner.core.comment import CommentCreate
from autotuner.core.convergence_gate import GateOutcome
from autotuner.core.run import RunState
from autotuner.core.sweep import Sweep
from autotuner.core.trial import EngineJob, Stopped
from tests.api.service import NOW, FixedClock, StoreDriver, gate_result
from tests.browser.stores import sweep_with_front
from tests.builders import big_job, cpu_cluster, cpu_layout, failure, measurement, sweep_request, tiny_job, tiny_model
from tests.fake_launcher import FakeLauncher, sweep_worker
from tests.unit.runs.challenged import a_fifth_slower_incumbent, challenge, challenged, nights

# ---------------------------------------------------------------- sweep


def ranked(driver: StoreDriver, *mfus: float, sweep: Sweep | None = None) -> Sweep:
    """A running sweep whose trials reached these, with micro-batches of 1, 2, 4 ..."""
    sweep = sweep or driver.sweep()
    for number, mfu in enumerate(mfus):
        layout = cpu_layout(tensor_parallel_degree=2, micro_batch_size=2**number)
        found = measurement(mfu=mfu, step_time_s=0.125 / mfu, tokens_per_s=4096 * mfu, step_time_interval_s=0.001)
        driver.ended(sweep, number, found, layout)
    return sweep


def cells(page: Page, label: str) -> list[str]:
    """What a column of the ranking says, row by row."""
    return page.locator(f'.ranking tbody td[data-label="{label}"]').all_inner_texts()


def trials(page: Page) -> list[str]:
    """The trials of the ranking, in order."""
    return page.locator(".ranking tbody td.trial a").all_inner_texts()


# ---------------------------------------------------------------- the answer
def test_the_answer_stands_first_what_how_fast_how_sure_and_what_it_beats(page: Page, driver: StoreDriver) -> None:
    sweep = ranked(driver, 0.2, 0.4)
    page.goto(f"/sweeps/{sweep.id}")
    card = page.locator("section.answer")
    expect(card.get_by_role("heading", level=2)).to_have_text("Best layout so far")
    expect(card.locator(".layout")).to_contain_text("mb2")
    expect(card.locator(".figure.first dd")).to_contain_text("40.0 %")
    expect(card).to_contain_text("The chance that it is the best of the 2 ranked layouts")
    expect(card.get_by_role("link", name="rank 2").first).to_be_visible()
    driver.finish(sweep)
    expect(card.get_by_role("heading", level=2)).to_have_text("Train with this layout")
    expect(card.locator(".answer-said")).to_contain_text("1.64 ktokens/s")  # with its prefix, as everywhere
    card.get_by_role("link", name="Why it is fast").click()
    expect(page).to_have_url(re.compile(rf"/trials/{sweep.id}-0001"))


def test_a_layout_that_was_only_simulated_and_not_gated_is_not_what_to_train_with_yet(
    page: Page, driver: StoreDriver
) -> None:
    sweep = driver.sweep(sweep_request(job=tiny_job(cluster=cpu_cluster(engine="simulated"))))
    driver.ended(
        sweep, 0, measurement(precision_flop_per_s=100e9, is_simulated=True), cpu_layout(precision=Precision.FP8)
    )
    driver.finish(sweep)
    page.goto(f"/sweeps/{sweep.id}")
    expect(page.locator("#answer")).to_have_text(
        "Best found; measure it, and compare its losses, before you train with it"
    )


def test_before_anything_ran_the_page_shows_what_is_predicted_in_pencil(page: Page, driver: StoreDriver) -> None:
    page.goto(f"/sweeps/{driver.sweep().id}")
    expect(page.locator(".answer.pencil")).to_contain_text("Predicted best; no trial is complete yet")
    expect(page.get_by_role("heading", name="Predicted, not tried")).to_be_visible()
    expect(page.locator(".ranking.pencil tbody tr").first).to_be_visible()
    expect(page.locator(".measured")).to_have_count(0)
    page.locator(".ranking").get_by_role("link", name="explore").first.click()
    expect(page).to_have_url(re.compile(r"/explore\?model=sweep:"))


def test_slow_predictions_come_after_the_first_view(page: Page, driver: StoreDriver) -> None:
    path = f"/sweeps/{ranked(driver, 0.2).id}"
    assert "data-later" in page.request.get(path).text()
    page.request.get(f"{path}?part=live")
    assert "data-later" not in page.request.get(path).text()


# ---------------------------------------------------------------- the ranking
def test_the_ranking_shows_measured_beside_predicted_and_says_which_is_which(page: Page, driver: StoreDriver) -> None:
    sweep = driver.sweep()
    found = measurement(mfu=0.25, step_time_s=0.5, step_time_interval_s=0.01, peak_bytes=(10**7, 9 * 10**6))
    driver.end(driver.start(sweep, 0, relative_error=0.12), found)
    page.goto(f"/sweeps/{sweep.id}?columns=rank,tp,mfu,predicted,step,memory,predicted_memory,tokens")
    row = page.locator(".ranking tbody tr").first
    expect(row.locator("td.main")).to_have_text("25.0 ± 0.5")
    expect(row.locator('td[data-label="predicted, %"]')).to_have_text("40.0 ± 4.8")
    expect(row.locator('td[data-label="step, ms"]')).to_have_text("500 ± 2 %")
    expect(row.locator('td[data-label="memory, MB"]')).to_have_text("10.0")
    expect(row.locator('td[data-label="predicted memory, MB"]')).to_have_text("5.20")
    expect(row.locator('td[data-label="ktokens/s"]')).to_have_text("1.02")
    expect(page.locator(".filters")).to_contain_text("measured, 95 % interval")
    expect(page.locator(".filters")).to_contain_text("predicted before the trial, 80 % interval")
    expect(page.locator("#live")).to_contain_text("not validated on this stack and device")


def test_rows_are_sorted_filtered_and_given_columns_in_place_and_by_address(page: Page, driver: StoreDriver) -> None:
    sweep = ranked(driver, 0.2, 0.4, 0.3)
    page.goto(f"/sweeps/{sweep.id}")
    page.evaluate("window.unreloaded = true")
    assert trials(page) == ["1", "2", "0"]
    page.get_by_role("link", name="mb", exact=True).click()
    expect(page.locator("th:has(#by-mb)")).to_have_attribute("aria-sort", "ascending")
    assert trials(page) == ["0", "1", "2"]
    expect(page.locator("#by-mb")).to_be_focused()
    page.get_by_label("Filter rows").fill("mb>1 tp=2")
    page.get_by_label("Filter rows").press("Enter")
    expect(page.locator(".pager")).to_contain_text("1–2 of 2, 3 without the filter")
    page.locator("#columns summary").click()
    page.get_by_role("checkbox", name=re.compile("^step ")).check()
    expect(page.get_by_role("columnheader", name="step, ms")).to_be_visible()
    assert trials(page) == ["1", "2"]
    assert page.evaluate("window.unreloaded")
    page.reload()
    assert trials(page) == ["1", "2"]
    expect(page.get_by_role("columnheader", name="step, ms")).to_be_visible()
    page.get_by_role("link", name="Drop mb>1").click()
    expect(page.locator(".ranking tbody tr")).to_have_count(3)
    page.go_back()
    expect(page.locator(".ranking tbody tr")).to_have_count(2)


def test_the_ranking_needs_no_script(plain_page: Page, driver: StoreDriver) -> None:
    sweep = ranked(driver, 0.2, 0.4, 0.3)
    plain_page.goto(f"/sweeps/{sweep.id}")
    plain_page.get_by_label("Filter rows").fill("mb>1")
    plain_page.get_by_label("Sort by").select_option("mb")
    plain_page.get_by_role("button", name="Show").first.click()
    expect(plain_page).to_have_url(re.compile(r"where=mb%3E1&sort=mb"))
    assert trials(plain_page) == ["1", "2"]
    plain_page.get_by_role("link", name="Show predicted only").click()
    expect(plain_page.get_by_role("heading", name="Predicted, not tried")).to_be_visible()


def test_a_filter_that_cannot_be_read_says_what_can_and_one_that_nothing_meets_says_which_to_drop(
    page: Page, driver: StoreDriver
) -> None:
    sweep = ranked(driver, 0.2, 0.4)
    page.goto(f"/sweeps/{sweep.id}?where=tpp=4")
    expect(page.get_by_role("alert")).to_contain_text("Tpp: is not a column of the table of trials; nearest: tp")
    expect(page.locator(".ranking tbody tr")).to_have_count(2)
    page.goto(f"/sweeps/{sweep.id}?where=tp=2+mb>8")
    expect(page.locator(".empty")).to_contain_text("Without mb>8: 2 rows")
    page.get_by_role("link", name="Without mb>8").click()
    expect(page.locator(".ranking tbody tr")).to_have_count(2)


def test_rows_come_fifty_a_page_and_numbers_are_those_of_the_whole_ranking(page: Page, driver: StoreDriver) -> None:
    sweep = driver.sweep()
    for number in range(51):
        layout = cpu_layout(tensor_parallel_degree=2, micro_batch_size=number + 1)
        driver.end(driver.start(sweep, number, layout), measurement(mfu=0.4 - number / 1000))
    page.goto(f"/sweeps/{sweep.id}")
    expect(page.locator(".pager")).to_contain_text("1–50 of 51")
    page.get_by_role("link", name="Next 50").click()
    expect(page.locator(".pager")).to_contain_text("51–51 of 51")
    assert trials(page) == ["50"]
    expect(page.locator(".ranking td.rankno")).to_contain_text("51")


def test_the_table_can_be_taken_along_as_it_is_shown(page: Page, driver: StoreDriver) -> None:
    sweep = ranked(driver, 0.2, 0.4, 0.3)
    page.goto(f"/sweeps/{sweep.id}?where=mb>1&sort=mb&columns=trial,mb")
    with page.expect_download() as download:
        page.get_by_role("link", name="CSV").click()
    lines = download.value.path().read_text().splitlines()
    assert [line.split(",")[:2] for line in lines] == [["trial", "mb"], ["1", "2"], ["2", "4"]]
    link = page.get_by_role("link", name="JSON").get_attribute("href")
    assert page.request.get(link or "").json()["total"] == 2


def test_a_whole_layout_is_a_column_where_one_click_marks_it(page: Page, driver: StoreDriver) -> None:
    sweep = driver.sweep()
    driver.ended(sweep, 0, measurement(mfu=0.25))
    page.goto(f"/sweeps/{sweep.id}?columns=layout")
    shown = page.locator(".ranking .words")
    shown.click()
    layout = driver.store.get_trial(f"{sweep.id}-0000").layout
    assert page.evaluate("getSelection().toString()").strip() == str(layout) == shown.inner_text()


def test_the_outcome_of_a_convergence_gate_is_in_the_ranking_and_takes_a_rank_where_it_failed(
    page: Page, driver: StoreDriver
) -> None:
    sweep = driver.sweep()
    layouts = [cpu_layout(precision=Precision.FP8, micro_batch_size=2**number) for number in range(3)]
    gated = [
        driver.ended(sweep, number, measurement(precision_flop_per_s=100e9), layout)
        for number, layout in enumerate(layouts)
    ]
    driver.gated(gated[0], gate_result())
    driver.gated(gated[1], gate_result(outcome=GateOutcome.FAILED, detail="not shown to be within 2 %"))
    page.goto(f"/sweeps/{sweep.id}")
    rows = page.locator(".ranking tbody tr")
    expect(rows).to_contain_text(["convergence gate passed", "loss not gated"])
    expect(rows.first).to_contain_text("50.0 % of fp8")
    page.get_by_text("1 ended for another reason").click()
    expect(page.locator("#unranked")).to_contain_text("convergence gate failed: not shown to be within 2 %")


def test_rows_with_many_choices_take_three_lines_at_most_and_the_table_fits_a_desk(
    page: Page, driver: StoreDriver
) -> None:
    sweep = driver.sweep(sweep_request(job=big_job()))
    many = cpu_layout(
        tensor_parallel_degree=4,
        pipeline_parallel_degree=4,
        data_parallel_shard_degree=4,
        shard_level=ShardLevel.OPTIMIZER,
        first_stage_less_layers=1,
        last_stage_less_layers=1,
        sequence_parallel=True,
        recompute=Recompute.SELECTIVE,
        precision=Precision.FP8,
        attention_kernel=AttentionKernel.CUDNN,
    )
    for number, layout in enumerate((many, cpu_layout(tensor_parallel_degree=64))):
        driver.ended(sweep, number, measurement(mfu=0.4 - 0.1 * number, peak_bytes=(70_000_000_000,)), layout)
    page.goto(f"/sweeps/{sweep.id}")
    rows = page.locator(".ranking tbody tr")
    expect(rows.first.locator(".chip")).to_have_count(9)
    first, second = (rows.nth(number).evaluate("row => row.getBoundingClientRect().height") for number in range(2))
    assert first <= 56  # three lines of 16 pixels, and their padding
    assert second <= 38  # the height of a row in one line
    table = page.get_by_role("region", name="Ranking, table")
    assert table.evaluate("region => region.scrollWidth - region.clientWidth") == 0


# ---------------------------------------------------------------- what else it tells


def test_two_choices_at_a_time_are_those_that_are_asked_for(page: Page, driver: StoreDriver) -> None:
    sweep = ranked(driver, 0.2, 0.4)
    full = cpu_layout(tensor_parallel_degree=2, recompute=Recompute.FULL)
    driver.ended(sweep, 2, measurement(mfu=0.3), full)
    page.goto(f"/sweeps/{sweep.id}?sort=mb&down=recompute&across=mb")
    table = page.locator("table.heat")
    expect(table.get_by_role("row").filter(has_text="full")).to_contain_text("30.0")
    expect(table.get_by_role("row").filter(has_text="none")).to_contain_text("40.0")
    page.locator("#heat-across").select_option("recompute")
    expect(page).to_have_url(re.compile(r"across=recompute"))
    page.locator("#heat-down").select_option("mb")
    expect(page).to_have_url(re.compile(r"(?=.*sort=mb)(?=.*down=mb)(?=.*across=recompute)"))
    expect(table.get_by_role("columnheader", name="full")).to_be_visible()
    page.go_back()
    expect(page).to_have_url(re.compile(r"down=recompute"))


def test_failures_are_grouped_by_cause_with_what_to_do_and_their_logs(page: Page, driver: StoreDriver) -> None:
    sweep = driver.sweep()
    driver.ended(sweep, 0, failure(log_tail="tried to allocate 1.2 GB"))
    driver.ended(sweep, 1, failure(), layout=cpu_layout(micro_batch_size=2))
    driver.ended(sweep, 2, Stopped(reason="pruned", detail="its steps take 1.4 s, the best 0.5 s"))
    page.goto(f"/sweeps/{sweep.id}")
    group = page.locator("section[aria-labelledby=ended] > .scroll tbody tr")
    expect(group).to_have_count(1)
    expect(group).to_contain_text("out of memory")
    page.get_by_text("The 2 trials with their logs").click()
    page.get_by_text("Log of rank 1").first.click()
    expect(page.get_by_text("tried to allocate 1.2 GB")).to_be_visible()
    page.get_by_text("1 ended for another reason").click()
    expect(page.locator("#unranked")).to_contain_text("its steps take 1.4 s, the best 0.5 s")


def test_jobs_of_an_engine_say_how_they_stand_and_how_long_they_wait(page: Page, driver: StoreDriver) -> None:
    sweep = driver.sweep(sweep_request(job=tiny_job(cluster=cpu_cluster(engine="slurm", queue="batch"))))
    trial = driver.running(sweep, 0, num_steps=0)
    job = EngineJob(engine="slurm", name="t-trial-0-1", handle="4712", submitted_at=200.0, detail="Resources")
    driver.placed(trial, job)
    page.goto(f"/sweeps/{sweep.id}")
    expect(page.locator(".meta")).to_contain_text("by slurm, queue batch")
    under_way = page.locator("section").filter(has=page.get_by_role("heading", name="Under way"))
    expect(under_way).to_contain_text("slurm job 4712 waits: Resources, ")


def test_a_sweep_that_challenges_a_layout_shows_what_it_compared_and_lists_the_runs_again_with_it(
    page: Page, driver: StoreDriver
) -> None:
    sweep, _ = driver.store.create_sweep(challenged(challenge(baseline=nights(1000.0, 1))), now=NOW)
    sweep_worker(
        driver.store, FakeLauncher(a_fifth_slower_incumbent), FixedClock(), owner="one", lease_s=15.0
    ).run_once()
    repeats = [trial for trial in driver.store.list_trials(sweep.id)[0] if trial.repeats is not None]
    page.goto(f"/sweeps/{sweep.id}")
    compared = page.locator("section").filter(has=page.get_by_role("heading", name="Compared"))
    expect(compared.get_by_role("row").filter(has_text="Baseline of 1 session")).to_contain_text("25.0 %")
    expect(compared.get_by_role("row").filter(has_text="In use, now")).to_contain_text("mb2")
    expect(compared.get_by_role("row").filter(has_text="Best found")).to_be_visible()
    expect(compared.locator("p").last).to_contain_text("faster (95 % interval")
    expect(compared.locator("summary")).to_contain_text(f"{len(repeats)} repeated runs")
    expect(compared.locator("details tbody tr")).to_have_count(len(repeats))
    expect(page.get_by_role("heading", name="Ended without a rank")).to_have_count(0)
    expect(page.locator(".ranking")).to_contain_text("in use")
    page.goto(f"/trials/{repeats[0].id}")
    expect(page.locator("#live")).to_contain_text("repeats the layout of trial 0")


def test_text_of_a_caller_is_shown_and_never_run(page: Page, driver: StoreDriver) -> None:
    attack = "<img src=x onerror=\"document.title='taken'\"><script>document.title='taken'</script>"
    sweep = driver.sweep(sweep_request(name=attack, job=tiny_job(model=tiny_model(name=attack))))
    driver.ended(sweep, 0, failure(message=attack, log_tail=attack))
    driver.store.comments.add(sweep.id, CommentCreate(text=attack), now=NOW)
    page.goto(f"/sweeps/{sweep.id}?where={attack}&down={attack}")
    expect(page.locator("#comments-section")).to_contain_text(attack)
    expect(page.get_by_role("heading", level=1)).to_have_text(attack)
    driver.ended(sweep, 1, failure(message=attack))  # once more through the script that redraws
    page.get_by_text("The 2 trials with their logs").click()
    expect(page.locator("#failed-1 p").nth(1)).to_contain_text(attack)
    assert page.locator("main script[src=x], main img").count() == 0
    assert "taken" not in page.title().replace(attack, "")


def test_nothing_is_loaded_from_elsewhere(own_page: Page, driver: StoreDriver, address: str) -> None:
    sweep = ranked(driver, 0.2, 0.4)
    asked: list[str] = []
    own_page.on("request", lambda request: asked.append(request.url))
    own_page.goto("/")
    own_page.goto(f"/sweeps/{sweep.id}")
    expect(own_page.locator("#connection")).to_have_text("Live")
    assert asked
    assert all(url.startswith(address) for url in asked)


@pytest.mark.parametrize("query", ["", "?rows=untried", "?columns=layout,mfu,sharding"])
def test_on_a_phone_every_number_is_in_sight(page: Page, driver: StoreDriver, query: str) -> None:
    sweep = driver.sweep(sweep_request(name="a-very-long-name-" * 12))
    driver.end(driver.start(sweep, 0, relative_error=0.12, fit_probability=0.97))
    driver.ended(sweep, 1, failure(log_tail="x" * 500, message="y" * 500), layout=cpu_layout(micro_batch_size=2))
    page.set_viewport_size({"width": 360, "height": 740})
    page.goto(f"/sweeps/{sweep.id}{query}")
    expect(page.locator(".ranking tbody td:visible").first).to_be_visible()
    # all at once: the page replaces its cells when the sweep moves
    edges = page.locator(".ranking tbody td:visible").evaluate_all(
        "cells => cells.map(cell => cell.getBoundingClientRect()).map(box => [box.left, box.right])"
    )
    assert edges
    assert all(0 <= left < right <= 360 for left, right in edges)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


# ---------------------------------------------------------------- sweep live


def test_the_page_follows_a_sweep_to_its_end_without_a_reload(page: Page, driver: StoreDriver) -> None:
    sweep = driver.sweep()
    page.goto(f"/sweeps/{sweep.id}")
    expect(page.locator("#connection")).to_have_text("Live")
    expect(page.locator("#live")).to_contain_text("no trial is complete yet")
    page.evaluate("window.unreloaded = true")

    trial = driver.running(sweep, 0)
    under_way = page.locator("section").filter(has=page.get_by_role("heading", name="Under way"))
    expect(under_way).to_contain_text("step 1, measuring")
    driver.step(trial, 1)
    expect(under_way).to_contain_text("step 2, measuring")
    driver.end(trial, measurement(mfu=0.25))
    expect(page.locator(".ranking:not(.pencil) tbody tr")).to_have_count(1)
    driver.ended(sweep, 1, measurement(mfu=0.35))
    expect(page.locator(".ranking tbody td.measured").first).to_contain_text("35.0")
    driver.finish(sweep)
    expect(page.locator("#connection")).to_have_text("Finished")
    expect(page.locator("#stopped")).to_contain_text("trial budget")
    assert page.evaluate("window.unreloaded")


def test_a_page_follows_a_sweep_that_was_opened_again_past_its_first_end(page: Page, driver: StoreDriver) -> None:
    sweep = driver.sweep()
    driver.ended(sweep, 0)
    driver.finish(sweep)
    driver.store.control.change_budget(sweep.id, {"num_trials": 9}, now=NOW + 90)
    page.goto(f"/sweeps/{sweep.id}")
    expect(page.locator("#standing .state")).to_have_text("queued")
    page.wait_for_timeout(1500)  # longer than a page waits for more behind an end
    driver.store.runs.pause("sweep", sweep.id, now=NOW + 95)
    expect(page.locator("#standing .state")).to_have_text("paused")
    driver.store.request_cancel(sweep.id, now=NOW + 99)
    expect(page.locator("#connection")).to_have_text("Finished")


def test_an_open_log_and_the_focus_stay_while_the_page_changes(page: Page, driver: StoreDriver) -> None:
    sweep = driver.sweep()
    first = driver.ended(sweep, 0)
    driver.ended(sweep, 1, failure(log_tail="tried to allocate 1.2 GB"), cpu_layout(micro_batch_size=2))
    page.goto(f"/sweeps/{sweep.id}")
    page.get_by_text("The trial with its log").click()
    page.get_by_text("Log of rank 1").click()
    log = page.get_by_text("tried to allocate 1.2 GB")
    expect(log).to_be_visible()
    page.locator(f"#trial-{first.id}").focus()
    driver.ended(sweep, 2, measurement(mfu=0.1), cpu_layout(micro_batch_size=4))
    expect(page.locator(".ranking tbody tr")).to_have_count(2)
    expect(page.locator(f"#trial-{first.id}")).to_be_focused()
    expect(log).to_be_visible()


def test_typed_and_chosen_inputs_stay_while_the_page_changes(page: Page, driver: StoreDriver) -> None:
    sweep = driver.sweep()
    driver.ended(sweep, 0)
    page.goto(f"/sweeps/{sweep.id}?sort=-mb")
    page.get_by_label("Filter rows").press_sequentially("mb>")
    page.evaluate("document.getElementById('columns').open = true")
    driver.ended(sweep, 1, measurement(mfu=0.1), cpu_layout(micro_batch_size=4))
    expect(page.locator(".ranking tbody tr")).to_have_count(2)
    expect(page.locator(".ranking tbody td.trial a").first).to_have_text("1")  # by micro-batch, as the address says
    expect(page.get_by_label("Filter rows")).to_have_value("mb>")
    expect(page.get_by_label("Filter rows")).to_be_focused()
    expect(page.locator("#columns fieldset")).to_be_visible()


def test_pieces_that_say_the_same_are_not_touched(page: Page, driver: StoreDriver) -> None:
    sweep = driver.sweep()
    driver.ended(sweep, 0)
    trial = driver.running(sweep, 1, cpu_layout(micro_batch_size=4))
    page.goto(f"/sweeps/{sweep.id}")
    expect(page.locator("#connection")).to_have_text("Live")
    driver.step(trial, 1)
    expect(page.locator("#live")).to_contain_text("step 2, measuring")
    page.evaluate(
        "document.querySelector('.ranking tbody tr').kept = document.querySelector('section.answer').kept = true"
    )
    driver.step(trial, 2)
    expect(page.locator("#live")).to_contain_text("step 3, measuring")
    assert page.evaluate(
        "document.querySelector('.ranking tbody tr').kept && document.querySelector('section.answer').kept"
    )


def test_a_sweep_is_paused_resumed_given_more_and_cancelled_from_its_page(page: Page, driver: StoreDriver) -> None:
    sweep = driver.sweep()
    driver.ended(sweep, 0)
    driver.finish(sweep)
    page.goto(f"/sweeps/{sweep.id}")
    page.get_by_text("Open it again with a larger budget").click()
    page.get_by_label("Trials", exact=True).fill("9")
    page.get_by_role("button", name="Open again").click()
    expect(page.locator("#standing .state")).to_have_text("queued")
    assert driver.store.get_sweep(sweep.id).request.budget.num_trials == 9
    page.get_by_role("button", name="Pause").click()
    expect(page.locator("#standing .state")).to_have_text("paused")
    page.get_by_role("button", name="Resume").click()
    expect(page.locator("#standing .state")).to_have_text("queued")
    page.get_by_role("button", name="Cancel").click()
    expect(page.locator("#standing .state")).to_have_text("cancelled")
    assert driver.store.get_sweep(sweep.id).state is RunState.CANCELLED


def test_a_budget_that_is_refused_says_why_on_the_page(page: Page, driver: StoreDriver, complaints: list[str]) -> None:
    sweep = driver.sweep()
    page.goto(f"/sweeps/{sweep.id}")
    page.get_by_text("Change its budget").click()
    page.get_by_label("Trials", exact=True).fill("many")
    page.get_by_role("button", name="Change").click()
    expect(page.get_by_role("alert")).to_contain_text("num_trials = 'many': must be a number")
    complaints.clear()  # the browser reports the 422


def test_a_comment_is_written_and_deleted_without_a_script_on_a_sweep_and_on_a_trial(
    plain_page: Page, driver: StoreDriver
) -> None:
    sweep = ranked(driver, 0.4)
    for address, about in ((f"/sweeps/{sweep.id}", "the sweep"), (f"/trials/{sweep.id}-0000", "trial 0")):
        plain_page.goto(address)
        plain_page.get_by_label("Comment", exact=True).fill(f"on {about}:\na bad link")
        plain_page.get_by_label("Tags").fill("baseline")
        plain_page.get_by_role("button", name="Comment", exact=True).click()
        expect(plain_page).to_have_url(re.compile(f"{address}#comments$"))
        expect(plain_page.locator("#comments-section")).to_contain_text(f"on {about}:")
    plain_page.get_by_role("button", name="Delete the comment").click()
    expect(plain_page.locator("#comments-section")).to_contain_text("None yet.")
    plain_page.goto(f"/sweeps/{sweep.id}")
    plain_page.get_by_role("link", name="#baseline").click()
    expect(plain_page.locator("#all-sweeps")).to_be_visible()
    expect(plain_page).to_have_url(re.compile(r"/\?tag=baseline$"))
    plain_page.get_by_label("Tag", exact=True).fill("other")
    plain_page.locator("#filter").click()
    expect(plain_page.get_by_role("link", name="without tag other")).to_be_visible()


# ---------------------------------------------------------------- fronts


def test_weights_chosen_by_keyboard_keep_the_focus_and_come_back_with_the_address(
    page: Page, driver: StoreDriver
) -> None:
    sweep = sweep_with_front(driver, 12)
    page.goto(f"/sweeps/{sweep.id}")
    weight = page.get_by_label("Weight of MFU")
    weight.focus()
    page.keyboard.press("ArrowDown")  # from 2 to 4
    expect(page).to_have_url(re.compile("mfu%3D4"))
    expect(weight).to_be_focused()
    expect(weight).to_have_value("mfu=4")
    page.reload()
    expect(weight).to_have_value("mfu=4")
    page.go_back()
    expect(weight).to_have_value("mfu=2")


# ---------------------------------------------------------------- one file
def test_a_sweep_in_one_file_shows_its_answer_charts_ranking_and_comments_and_loads_nothing(
    plain_page: Page, driver: StoreDriver, address: str, tmp_path: Path
) -> None:
    sweep = driver.finish(ranked(driver, 0.2, 0.4))
    driver.store.comments.add(sweep.id, CommentCreate(text="</script> kept"), now=NOW)
    file = tmp_path / "report.html"
    with pytest.raises(SystemExit, match="0"):
        main(["show", sweep.id, "--server", address, "--html", str(file)])
    loaded: list[str] = []
    plain_page.on("request", lambda request: loaded.append(request.url))
    plain_page.goto(file.as_uri())
    expect(plain_page.get_by_role("heading", level=1)).to_have_text(f"Sweep {sweep.id}")
    for heading in ("How sure", "MFU against memory", "What mattered", "Ranking by measured MFU"):
        expect(plain_page.get_by_role("heading", name=heading, exact=True)).to_be_visible()
    expect(plain_page.get_by_text("</script> kept")).to_be_visible()
    assert loaded == [file.as_uri()]
    data = json.loads(plain_page.locator("#data").text_content() or "")
    assert [one["rank"] for one in data["ranking"]["items"]] == [1, 2]
