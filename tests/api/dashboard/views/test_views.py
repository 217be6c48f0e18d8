from __future__ import annotations

from dataclasses import replace

import pytest

from api.dashboard.views.address import DEFAULT, Permalink
from api.dashboard.views.finding import Words, exact_place, find
from autotuner.catalog.hardware import load_cluster
from autotuner.catalog.models import load_model
from autotuner.core.choices import Recompute
from autotuner.core.errors import InvalidInput, NotFound
from autotuner.core.layout import Layout
from autotuner.report.finding import finding_report
from tests.api.service import NOW, StoreDriver, app_on
from tests.builders import (
    cpu_layout,
    failure,
    measurement,
    sweep_request,
    tiny_model,
)
from tests.unit.report.surfaces import surfaces

# ---------------------------------------------------------------- finding


def test_a_search_is_taken_apart_into_a_number_a_layout_and_words_of_sweeps() -> None:
    words = Words.of("Llama tp 4 pp=2 dp8 recompute-full trial 12")
    assert words.number == 12
    assert words.layout == {
        "tensor_parallel_degree": 4,
        "pipeline_parallel_degree": 2,
        "data_parallel_degree": 8,
        "recompute": "full",
    }
    assert words.rest == "llama"
    assert Words.of("zz9 tp0").rest == "zz9 tp0"


def test_replicas_count_sharded_or_not() -> None:
    words = Words.of("dp4")
    assert words.is_meant_by(cpu_layout(data_parallel_replicate_degree=4))
    assert words.is_meant_by(cpu_layout(data_parallel_replicate_degree=2, data_parallel_shard_degree=2))
    assert not words.is_meant_by(cpu_layout(tensor_parallel_degree=4))


def test_an_id_leads_to_its_page_at_once(driver: StoreDriver) -> None:
    sweep = driver.sweep()
    trial = driver.ended(sweep, 0)
    assert exact_place(driver.store, f" {sweep.id} ") == f"/sweeps/{sweep.id}"
    assert exact_place(driver.store, trial.id) == f"/trials/{trial.id}"
    assert exact_place(driver.store, "llama") is None


def test_words_find_sweeps_and_a_number_their_trials(driver: StoreDriver) -> None:
    for name in ("nightly", "other"):
        sweep = driver.sweep(sweep_request(name=name))
        for number in range(3):
            driver.ended(sweep, number, failure() if number == 2 else None)
        driver.finish(sweep)
    found = find(driver.store, "nightly 2", now=NOW)
    assert [sweep.name for sweep in found.sweeps] == ["nightly"]
    assert [(sweep.name, trial.number, trial.is_ranked) for trial, sweep in found.numbered] == [("nightly", 2, False)]
    both = find(driver.store, "trial 1", now=NOW)
    assert {sweep.name for _, sweep in both.numbered} == {"nightly", "other"}


def test_words_of_a_layout_find_the_fastest_trials_that_have_them_all(driver: StoreDriver) -> None:
    sweep = driver.sweep(sweep_request(name="nightly"))
    for number, (mfu, recompute) in enumerate([(0.2, Recompute.FULL), (0.3, Recompute.NONE), (0.4, Recompute.FULL)]):
        layout = cpu_layout(tensor_parallel_degree=2, recompute=recompute)
        driver.ended(sweep, number, measurement(mfu=mfu), layout)
    assert [trial.number for trial, _ in find(driver.store, "tp2", now=NOW).alike] == [2, 1, 0]
    found = find(driver.store, "tp2 recompute-full", now=NOW)
    assert [trial.number for trial, _ in found.alike] == [2, 0]
    for text in surfaces(finding_report("tp2", found)):
        assert all(f"{mfu}" in text for mfu in ("40.0", "20.0", "nightly"))
    assert find(driver.store, "tp2 elsewhere", now=NOW).alike == ()
    assert find(driver.store, "tp4", now=NOW).alike == ()


# ---------------------------------------------------------------- permalink

LINK = replace(DEFAULT, layout=Layout.parse("zero2 tp8 pp4 1f1b mb1 sp recompute-selective flash bf16"))


def test_an_address_is_read_back_as_it_was_written() -> None:
    whole = replace(LINK, stack="megatron-core", optimizer_state_precision="bf16", seq_len=4096, model="a model")
    assert Permalink.read(whole.to("/explore")) == whole
    assert Permalink.read(whole.to("/explore")) == whole


def test_an_address_says_a_layout_in_the_words_of_the_command_line() -> None:
    asked = "/explore?model=llama-3-70b&cluster=h100:64&seq_len=8192&global_batch_size=1024&layout=zero2+"
    assert LINK.to("/explore").startswith(asked)


def test_an_empty_address_asks_about_the_default_job() -> None:
    assert Permalink.read("/explore") == DEFAULT


def test_numbers_are_read_as_people_type_them() -> None:
    assert Permalink.of_query({"seq_len": "8,192", "global_batch_size": " 1 024 "}).global_batch_size == 1024


@pytest.mark.parametrize("given", ["many", "-1", "1.5", "9" * 400, "٣"])
def test_what_is_no_number_is_refused_with_its_field(given: str) -> None:
    with pytest.raises(InvalidInput, match="whole number") as refused:
        Permalink.of_query({"seq_len": given})
    assert refused.value.field == "seq_len"


def test_a_job_is_resolved_by_its_names(driver: StoreDriver) -> None:
    job = LINK.job(app_on(driver.store))
    assert (job.model, job.cluster) == (load_model("llama-3-70b"), load_cluster("h100:64"))


def test_a_job_of_the_catalog_is_linked_by_its_names(driver: StoreDriver) -> None:
    request = sweep_request()
    job = replace(request.job, model=load_model("llama-3-8b"), cluster=load_cluster("h100:8"))
    sweep = driver.sweep(replace(request, job=job))
    link = Permalink.of_sweep(sweep)
    assert (link.model, link.cluster) == ("llama-3-8b", "h100:8")


def test_a_job_that_no_name_says_is_asked_of_its_sweep(driver: StoreDriver) -> None:
    sweep = driver.sweep(sweep_request())
    link = Permalink.of_sweep(sweep)
    assert link.model == f"sweep:{sweep.id}"
    job = Permalink.read(link.to("/explore")).job(app_on(driver.store))
    assert (job.model, job.cluster) == (tiny_model(), sweep.request.job.cluster)


def test_a_name_that_nobody_knows_is_refused(driver: StoreDriver) -> None:
    with pytest.raises(NotFound):
        replace(LINK, model="llama-3-71b").job(app_on(driver.store))
    with pytest.raises(NotFound):
        replace(LINK, model="sweep:sw-nothing").job(app_on(driver.store))
