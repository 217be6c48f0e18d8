from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from autotuner.announcing.payloads import payload
from autotuner.core.announcement import PayloadFormat
from tests.announcements import announcement


def slack(**changes: Any) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(payload(replace(announcement(), **changes), PayloadFormat.SLACK, "https://tuner"))
    return told


def test_a_program_reads_type_time_and_facts() -> None:
    told = json.loads(payload(announcement(), PayloadFormat.JSON, "https://tuner.example/"))
    assert (told["type"], told["timestamp"]) == ("retune.regression", "2025-10-09T08:53:20Z")
    assert told["data"] == {
        "id": "an-1",
        "title": "nightly: regression",
        "text": "nightly lost 7.1 % ± 0.8 % since 2026-11-20: OMP_NUM_THREADS was 2 and is 1",
        "url": "https://tuner.example/retunes/nightly",
        "path": "/retunes/nightly",
        "subject_id": "rr-1",
        "facts": {"loss": 0.071, "since": "2026-11-20"},
    }


def test_without_an_address_of_the_service_nothing_is_linked() -> None:
    assert json.loads(payload(announcement(), PayloadFormat.JSON, None))["data"]["url"] is None
    assert "http" not in payload(announcement(), PayloadFormat.SLACK, None).decode()


def test_slack_gets_a_linked_title_the_text_and_the_facts() -> None:
    told = slack()
    assert told["text"].startswith("nightly: regression: nightly lost")
    head, facts = told["blocks"]
    assert head["text"]["text"].startswith("*<https://tuner/retunes/nightly|nightly: regression>*\nnightly lost")
    assert [field["text"] for field in facts["fields"]] == ["*loss*\n0.071", "*since*\n2026-11-20"]


def test_slack_gets_times_as_dates_and_shares_as_percents() -> None:
    found = {
        "due_at": 1_796_000_000.0,
        "tokens_per_s": 12_345.6,
        "mfu": 0.509,
        "change": -0.0712,
        "gain": 0.1,
        "best_measured_mfu": 0.4,
    }
    facts = [field["text"] for field in slack(facts=found)["blocks"][1]["fields"]]
    assert facts == [
        "*due at*\n2026-11-30 00:53 UTC",
        "*throughput*\n12.3 ktoken/s",
        "*MFU*\n50.9 %",
        "*change*\n−7.1 %",
        "*gain*\n+10.0 %",
        "*best measured MFU*\n40.0 %",
    ]


def test_slack_finds_no_command_in_what_somebody_called_a_thing() -> None:
    told = slack(title="<!channel> & co", text="<https://evil|here>", facts={"name": "<@U1>"})
    assert "<!" not in json.dumps(told).replace("*<https://tuner", "")
    assert "<https://evil" not in json.dumps(told)
    assert told["blocks"][1]["fields"][0]["text"] == "*name*\n&lt;@U1&gt;"


def test_slack_gets_no_more_than_it_takes() -> None:
    told = slack(text="x" * 9000, facts={f"fact_{i}": "y" * 3000 for i in range(20)})
    assert len(told["blocks"][0]["text"]["text"]) == 3000
    assert [len(field["text"]) for field in told["blocks"][1]["fields"]] == [2000] * 10
    assert len(slack(facts={})["blocks"]) == 1
