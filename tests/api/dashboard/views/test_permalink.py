from __future__ import annotations

from dataclasses import replace

import pytest

from api.dashboard.views.address import DEFAULT, Permalink
from autotuner.catalog.hardware import load_cluster
from autotuner.catalog.models import load_model
from autotuner.core.errors import InvalidInput, NotFound
from autotuner.core.layout import Layout
from tests.api.service import StoreDriver, app_on
from tests.builders import sweep_request, tiny_model

LINK = replace(DEFAULT, layout=Layout.parse("zero2 tp8 pp4 1f1b mb1 sp recompute-selective flash bf16"))


def test_an_address_is_read_back_as_it_was_written() -> None:
    whole = replace(LINK, stack="megatron-core", optimizer_state_precision="bf16", seq_len=4096, model="a model")
    assert Permalink.read(whole.to("/explore")) == whole
    assert Permalink.read(whole.query) == whole


def test_an_address_says_a_layout_in_the_words_of_the_command_line() -> None:
    assert LINK.query.startswith("model=llama-3-70b&cluster=h100:64&seq_len=8192&global_batch_size=1024&layout=zero2+")


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
    job = Permalink.read(link.query).job(app_on(driver.store))
    assert (job.model, job.cluster) == (tiny_model(), sweep.request.job.cluster)


def test_a_name_that_nobody_knows_is_refused(driver: StoreDriver) -> None:
    with pytest.raises(NotFound):
        replace(LINK, model="llama-3-71b").job(app_on(driver.store))
    with pytest.raises(NotFound):
        replace(LINK, model="sweep:sw-nothing").job(app_on(driver.store))
