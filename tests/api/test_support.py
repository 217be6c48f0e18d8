"""``GET /support`` and its page: what of predictions is measured, borrowed and assumed."""

from __future__ import annotations

import httpx

from autotuner.core import documents
from autotuner.door import Autotuner


def test_rest_answers_as_the_product_in_its_own_process(client: httpx.Client) -> None:
    asked = {"model": "llama-3-8b", "accelerator": "h100", "stack": "nemo"}
    answer = client.get("/support", params=asked)
    assert answer.json() == documents.write(Autotuner().read_support(**asked))
    every = client.get("/support").json()
    assert (len(every["pairs"]) > 100, every["details"]) == (True, None)


def test_an_unknown_name_is_answered_with_the_most_similar_one(client: httpx.Client) -> None:
    answer = client.get("/support", params={"accelerator": "h1000"})
    assert answer.status_code == 404
    assert "did you mean 'h100'" in answer.json()["detail"]


def test_the_page_shows_the_matrix_and_a_filter_that_keeps_the_choice(browser: httpx.Client) -> None:
    text = browser.get("/support").text
    assert 'href="/support?accelerator=h100-sxm&amp;stack=nemo"' in text
    chosen = browser.get("/support", params={"model": "llama-3-8b", "accelerator": "h100", "stack": "nemo"}).text
    for name in ("llama-3-8b", "h100-sxm", "nemo"):
        assert f"<option selected>{name}</option>" in chosen
    assert "as FlashAttention 3" in chosen
    assert browser.get("/support", params={"model": "", "accelerator": "h100", "stack": ""}).status_code == 200
    assert browser.get("/support", params={"stack": "nemoo"}).status_code == 404
