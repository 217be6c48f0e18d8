from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

JOB = "model=llama-3-8b&cluster=h100:16&global_batch_size=256"


@pytest.fixture
def browser(address: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=address, headers={"Accept": "text/html"}, timeout=60) as client:
        yield client


def text_of(browser: httpx.Client, address: str) -> str:
    answer = browser.get(address)
    assert answer.status_code == 200, answer.text
    return answer.text


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


def test_each_input_that_is_wrong_is_named_at_once(browser: httpx.Client) -> None:
    page = text_of(browser, "/phases?tokens=many&seq_len=long&restart=soon&phases=main")
    assert "aria-invalid" in page
    for name in ("tokens", "seq_len", "restart", "phases"):
        assert f'id="wrong-{name}"' in page
        assert f'<a href="#{name}">' in page
    assert 'id="wrong-storage"' not in page
