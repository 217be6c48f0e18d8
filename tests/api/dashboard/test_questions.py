"""Pages of questions: their forms, their answers and their addresses."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass, replace
from typing import Any, get_type_hints
from urllib.parse import urlsplit

import httpx
import pytest
import typer

from autotuner.api.dashboard.forms import Question
from autotuner.api.dashboard.pages.questions import PHASES, PLAN, PREDICT
from autotuner.api.dashboard.sweep_form import INPUTS
from autotuner.api.dashboard.views.address import DEFAULT, Permalink
from autotuner.api.dashboard.views.finding import Words, exact_place, find
from autotuner.api.openapi import examples
from autotuner.catalog.hardware import load_cluster
from autotuner.catalog.models import load_model
from autotuner.cli.main import app
from autotuner.core.choices import Recompute
from autotuner.core.cluster_check import CheckRequest
from autotuner.core.documents import GivenFields
from autotuner.core.errors import InvalidInput, NotFound
from autotuner.core.layout import Layout
from autotuner.core.requests import ExplanationRequest, ExportRequest, LayersRequest, PhasesRequest, PredictionRequest
from autotuner.core.sweep_requests import (
    Adoption,
    BudgetChange,
    GateCreate,
    OptimizerStudyCreate,
    RetuneCreate,
    SweepClone,
    SweepCreate,
)
from autotuner.core.text import inputs_of
from autotuner.core.value import mark_of
from autotuner.remote import Remote
from autotuner.report.finding import finding_report
from autotuner.search.planning.request import PlanRequest
from tests.api.service import NOW, StoreDriver, app_on
from tests.builders import (
    cpu_cluster,
    cpu_layout,
    failure,
    measurement,
    sweep_request,
    tiny_model,
)
from tests.patience import PATIENCE_S
from tests.unit.report.surfaces import surfaces

# ---------------------------------------------------------------- explore

TP8 = "layout=zero2+tp8+pp4+1f1b+mb1+sp+flash+bf16"


def text_of(browser: httpx.Client, address: str) -> str:
    answer = browser.get(address)
    assert answer.status_code == 200, answer.text
    return answer.text


def test_the_permalink_of_an_answer_asks_the_same_again(browser: httpx.Client) -> None:
    page = text_of(browser, f"/explore?{TP8}")
    link = page.split('data-permalink="')[1].split('"')[0].replace("&amp;", "&")
    assert Permalink.read(link).layout == Layout.parse("zero2 tp8 pp4 1f1b mb1 sp flash bf16")
    assert text_of(browser, link).split("data-said")[1] == page.split("data-said")[1]


def test_the_form_without_a_script_leads_to_the_permalink(browser: httpx.Client) -> None:
    sent = {
        "model": "llama-3-8b",
        "accelerator": "h100-sxm",
        "count": "16",
        "seq_len": "4,096",
        "layout": "fsdp8 mb1 flash bf16",
        "tensor_parallel_degree": "2",
        "recompute": "full",
    }
    answer = browser.get("/explore", params=sent)
    assert answer.status_code == 303
    link = Permalink.read(urlsplit(answer.headers["location"]).query)
    assert (link.model, link.cluster, link.seq_len) == ("llama-3-8b", "h100-sxm:16", 4096)
    assert str(link.layout) == "fsdp8 tp2 mb1 recompute-full flash bf16"
    assert "Memory calculator" in text_of(browser, answer.headers["location"])


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("seq_len=long", "must be a whole number"),
        ("seq_len=0", "must be 1 or more"),
        ("model=llama-3-71b", "did you mean"),
        ("model=sweep:sw-nothing", "no sweep"),
        ("cluster=h101:8", "no accelerator"),
        ("cluster=h100:many", "must"),
        ("stack=torhc", "no stack"),
        ("model=gpt2&seq_len=4096", "must be at most 1024, the number of learned positions of gpt2"),
        ("optimizer_state_precision=fp4", "must be one of fp32, bf16"),
        ("layout=tq8", "is not a word of a layout"),
        ("recompute=everything", "must be one of none, selective, full"),
        ("accelerator=h100-sxm&count=x", "must be a whole number"),
        ("model=%00", "no model"),
    ],
)
def test_a_wrong_input_is_named_and_the_page_still_answers(browser: httpx.Client, query: str, said: str) -> None:
    page = text_of(browser, f"/explore?{query}")
    assert said in page
    assert "Errors to correct" in page
    assert "Degrees" in page


def test_typed_text_stays_in_its_input(browser: httpx.Client) -> None:
    page = text_of(browser, '/explore?seq_len="><script>alert(1)</script>')
    assert "<script>alert" not in page
    assert 'value="&#34;&gt;&lt;script&gt;alert(1)&lt;/script&gt;"' in page


def test_stored_models_and_clusters_can_be_chosen(browser: httpx.Client, driver: StoreDriver) -> None:
    driver.store.descriptions.save(tiny_model(name="ours"))
    driver.store.descriptions.save(cpu_cluster(name="lab"))
    page = text_of(browser, "/explore?model=ours&cluster=lab&seq_len=64&global_batch_size=8")
    assert "<option selected>ours</option>" in page
    assert "<option selected>lab</option>" in page
    assert "Memory calculator" in page


def test_the_job_of_a_sweep_can_be_explored(browser: httpx.Client, driver: StoreDriver) -> None:
    sweep = driver.sweep(replace(sweep_request(), name="of ours"))
    page = text_of(browser, Permalink.of_sweep(sweep).to("/explore"))
    assert "Memory calculator" in page
    assert f"<option selected>sweep:{sweep.id}</option>" in page


def test_a_part_is_what_stands_in_the_page(browser: httpx.Client) -> None:
    part = text_of(browser, "/explore?layout=fsdp64+mb1&part=explore")
    assert "<html" not in part
    assert part.strip() in text_of(browser, "/explore?layout=fsdp64+mb1")


def test_the_timeline_of_a_pipeline_is_a_part_of_its_own(browser: httpx.Client) -> None:
    timeline = text_of(browser, f"/explore?{TP8}&part=timeline")
    assert "Timeline of a step" in timeline
    assert timeline.strip() in text_of(browser, f"/explore?{TP8}")
    assert "Timeline of a step" not in text_of(browser, f"/explore?{TP8}&part=explore")


@pytest.mark.parametrize("query", ["layout=fsdp64+mb1", "layout=tp16+pp4+1f1b+mb1", "layout=pp4&seq_len=x"])
def test_a_layout_without_a_pipeline_or_an_illegal_one_has_no_timeline(browser: httpx.Client, query: str) -> None:
    assert text_of(browser, f"/explore?{query}&part=timeline").strip() == ""


def test_more_accelerators_than_there_are_on_earth_are_refused(browser: httpx.Client) -> None:
    assert "accelerators" in text_of(browser, "/explore?cluster=h100:2000000000")


def test_lengths_that_say_nothing_are_reported_beside_their_input(browser: httpx.Client) -> None:
    assert "must be a number of tokens, or tokens:weight" in browser.get("/explore?lengths=many").text


# ---------------------------------------------------------------- job phases


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("phases=main:+80+%25", "must sum to 1"),
        ("phases=main", "must be a line of the form NAME: SHARE %"),
        ("tokens=many", "must be a number"),
        ("model=llama-9", "llama-9"),
        ("global_batch_size=0", "global_batch_size"),
    ],
)
def test_errors_of_a_question_take_the_place_of_the_answer(browser: httpx.Client, asked: str, said: str) -> None:
    assert said in text_of(browser, f"/phases?{asked}")


def test_the_input_that_is_wrong_is_marked_with_its_value_and_the_nearest_and_keeps_what_was_typed(
    browser: httpx.Client,
) -> None:
    page = text_of(browser, "/phases?tokens=many&storage=12&phases=main:+100+%25")
    assert 'name="tokens" value="many"' in page
    assert 'aria-describedby="wrong-tokens"' in page
    assert "&#39;many&#39;: must be a number" in page
    assert "must be a number such as 2000, 400B or 2T" in page
    assert 'name="storage" value="12"' in page


# ---------------------------------------------------------------- plan


def planned(browser: httpx.Client, query: str) -> str:
    """The page once its plan is computed."""
    give_up_at = time.monotonic() + PATIENCE_S
    while "data-every-s" in (page := browser.get(f"/plan?{query}").text):
        assert time.monotonic() < give_up_at, "the plan was not computed in time"
        time.sleep(0.2)
    return page


def test_while_it_is_computed_the_page_asks_again(browser: httpx.Client) -> None:
    page = browser.get("/plan?model=llama-3-70b&tokens=2T&deadline=60d&accelerators=h100").text
    assert 'data-every-s="1"' in page
    assert 'http-equiv="refresh"' in page  # without a script


def test_fields_left_out_have_defaults_except_limits(browser: httpx.Client) -> None:
    page = planned(browser, "model=llama-3-8b&tokens=100B&accelerators=h100&sizes=16")
    assert 'id="deadline" name="deadline" value=""' in page
    assert 'id="seq_len" name="seq_len" value="8192"' in page


# ---------------------------------------------------------------- forms
COMMANDS: Any = typer.main.get_group(app).commands
ASKED: Mapping[str, tuple[type[Any], Callable[..., Any]]] = {
    "predict": (PredictionRequest, Remote.predict),
    "explain": (ExplanationRequest, Remote.explain_layout),
    "phases": (PhasesRequest, Remote.plan_job_phases),
    "layers": (LayersRequest, Remote.report_layers),
    "plan": (PlanRequest, Remote.create_plan),
    "export": (ExportRequest, Remote.export_layout),
    "sweep": (SweepCreate, Remote.create_sweep),
    "clone": (SweepClone, Remote.clone_sweep),
    "extend": (BudgetChange, Remote.change_budget),
    "gate": (GateCreate, Remote.create_gate),
    "retune add": (RetuneCreate, Remote.create_retune),
    "retune adopt": (Adoption, Remote.adopt_layout),
    "optimizer tune": (OptimizerStudyCreate, Remote.create_optimizer_study),
    "cluster check": (CheckRequest, Remote.create_check),
}
PAGES: Mapping[str, Question[Any, Any]] = {"predict": PREDICT, "phases": PHASES, "plan": PLAN}


def command(name: str) -> Any:
    found = COMMANDS
    for word in name.split():
        found = found[word] if isinstance(found, dict) else found.commands[word]
    return found


def paths_of(cls: type[Any], *above: str) -> Iterator[tuple[str, ...]]:
    """Every field of a request, and of the values in it that have a field each."""
    hints = get_type_hints(cls)
    for field in fields(cls):
        yield (*above, field.name)
        made = MISSING if field.default_factory is MISSING else field.default_factory()
        given = mark_of(get_type_hints(cls, include_extras=True)[field.name], GivenFields)
        if given:
            yield from paths_of(given.cls, *above, field.name)
        elif is_dataclass(made) or (field.default is MISSING and made is MISSING and is_dataclass(hints[field.name])):
            yield from paths_of(hints[field.name], *above, field.name)


@pytest.mark.parametrize("name", ASKED)
def test_every_field_of_a_request_has_a_flag_and_its_client_takes_the_request(name: str) -> None:
    request, remote = ASKED[name]
    inputs = inputs_of(request)
    said = {option for parameter in command(name).params for option in parameter.opts}
    assert [one for one in inputs if not said & {one.flag, one.name}] == []  # some are arguments
    for path in paths_of(request):
        assert any(one.path[: len(path)] == path or path[: len(one.path)] == one.path for one in inputs), path
    assert request in get_type_hints(remote).values()


@pytest.mark.parametrize("name", PAGES)
def test_every_field_of_a_request_has_an_input_on_its_page(browser: httpx.Client, name: str) -> None:
    assert PAGES[name].request is ASKED[name][0]
    page = browser.get(f"/{name}?model=llama-9").text  # which asks for no computation
    for one in inputs_of(PAGES[name].request):
        assert f'id="{one.name}" name="{one.name}"' in page, one.name
        assert f'for="{one.name}"' in page


def test_every_field_of_a_sweep_has_an_input_on_its_page(browser: httpx.Client) -> None:
    page = browser.get("/new?model=llama-9").text
    for one in inputs_of(SweepCreate, has_all=True):
        assert f'name="{one.name}' in page, one.name  # of a space there is one for each axis
    for path in paths_of(SweepCreate):
        assert any(one.path[: len(path)] == path or path[: len(one.path)] == one.path for one in INPUTS), path


@pytest.mark.parametrize("name", ASKED)
def test_inputs_of_a_request_have_names_of_their_own(name: str) -> None:
    names = [one.name for one in inputs_of(ASKED[name][0])]
    assert len(set(names)) == len(names)


def test_all_errors_stand_beside_their_inputs_with_the_value_and_the_nearest_one(
    browser: httpx.Client,
) -> None:
    page = browser.get("/plan?model=llama-3-8b&tokens=1T&deadline=20&seq_len=8192.5&prices=h100=cheap").text
    assert "&#39;20&#39;: must be a number of hours, days or weeks, such as 36h, 60d or 8w; nearest: 20d" in page
    assert "&#39;8192.5&#39;: must be a whole number of tokens" in page
    for name in ("deadline", "seq_len", "price"):
        assert f'aria-describedby="wrong-{name}"' in page
    assert 'id="deadline" name="deadline" value="20" aria-invalid="true" aria-describedby="wrong-deadline"' in page


@pytest.mark.parametrize(
    ("query", "name"), [("accelerators=h10", "accelerators"), ("accelerators=h100&sizes=63", "sizes")]
)
def test_an_error_of_a_plan_stands_beside_its_input(browser: httpx.Client, query: str, name: str) -> None:
    page = browser.get(f"/plan?model=llama-3-8b&tokens=1T&{query}").text
    assert f'id="wrong-{name}"' in page


def test_a_form_reads_no_file_of_the_service(browser: httpx.Client) -> None:
    page = browser.get("/predict?model=/etc/hostname&cluster=h100:8&layout=fsdp8&space=/etc/passwd").text
    assert "must be JSON" in page
    assert "root:" not in page


def test_the_examples_of_questions_are_known() -> None:
    assert {"predict", "create_plan", "plan_job_phases", "report_layers"} <= set(examples())


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
def test_a_text_that_is_not_a_number_is_refused_with_its_field(given: str) -> None:
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
