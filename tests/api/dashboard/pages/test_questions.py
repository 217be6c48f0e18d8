from __future__ import annotations

import time
from dataclasses import replace
from urllib.parse import urlsplit

import httpx
import pytest

from api.dashboard.views.address import Permalink
from autotuner.core.layout import Layout
from tests.api.service import StoreDriver
from tests.builders import cpu_cluster, sweep_request, tiny_model
from tests.patience import PATIENCE_S

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
        ("model=gpt2&seq_len=4096", "must not exceed the 1024 learned positions of gpt2"),
        ("optimizer_state_precision=fp4", "must be one of fp32, bf16"),
        ("layout=tq8", "is no word of a layout"),
        ("recompute=everything", "must be one of none, selective, full"),
        ("accelerator=h100-sxm&count=x", "must be a whole number"),
        ("model=%00", "no model"),
    ],
)
def test_what_is_wrong_with_an_input_is_said_and_nothing_fails(browser: httpx.Client, query: str, said: str) -> None:
    page = text_of(browser, f"/explore?{query}")
    assert said in page
    assert "What to mend" in page
    assert "Degrees" in page


def test_what_was_typed_stays_in_its_input(browser: httpx.Client) -> None:
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
def test_what_has_no_pipeline_or_cannot_run_has_no_timeline(browser: httpx.Client, query: str) -> None:
    assert text_of(browser, f"/explore?{query}&part=timeline").strip() == ""


def test_more_accelerators_than_there_are_on_earth_are_refused(browser: httpx.Client) -> None:
    assert "accelerators" in text_of(browser, "/explore?cluster=h100:2000000000")


def test_lengths_that_say_nothing_are_told_beside_their_input(browser: httpx.Client) -> None:
    assert "must be tokens, or tokens:weight" in browser.get("/explore?lengths=many").text


# ---------------------------------------------------------------- job phases


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("phases=main:+80+%25", "must sum to 1"),
        ("phases=main", "must be name: share %"),
        ("tokens=many", "must be a number"),
        ("model=llama-9", "llama-9"),
        ("global_batch_size=0", "global_batch_size"),
    ],
)
def test_what_is_wrong_with_a_question_stands_in_the_place_of_the_answer(
    browser: httpx.Client, asked: str, said: str
) -> None:
    assert said in text_of(browser, f"/phases?{asked}")


def test_the_input_that_is_wrong_is_marked_with_its_value_and_the_nearest_and_keeps_what_was_typed(
    browser: httpx.Client,
) -> None:
    page = text_of(browser, "/phases?tokens=many&storage=12&phases=main:+100+%25")
    assert 'name="tokens" value="many"' in page
    assert 'aria-describedby="wrong-tokens"' in page
    assert "&#39;many&#39;: must be a number" in page
    assert "nearest: 2T" in page
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


def test_what_is_left_out_is_as_usual_but_for_limits(browser: httpx.Client) -> None:
    page = planned(browser, "model=llama-3-8b&tokens=100B&accelerators=h100&sizes=16")
    assert 'id="deadline" name="deadline" value=""' in page
    assert 'id="seq_len" name="seq_len" value="8192"' in page
