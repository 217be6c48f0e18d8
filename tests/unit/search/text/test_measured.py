from __future__ import annotations

from dataclasses import fields

import pytest

from autotuner.domain.runs.link_event import LinkEvent, LinkEventKind
from autotuner.domain.runs.measurement import Breakdown
from autotuner.search.text.measured import PHASE_WORDS, certainty, facts, has_own_peak, overlap_sentence, phases
from tests.builders import breakdown, measurement


def test_a_step_time_is_said_with_the_interval_of_its_median() -> None:
    assert certainty(measurement(step_time_interval_s=0.003)) == "± 3 ms"


def test_a_step_time_of_few_steps_is_said_with_its_quartiles() -> None:
    assert certainty(measurement(step_time_interval_s=None, step_time_spread_s=0.02)) == "quartiles 20 ms apart"


def test_the_parts_of_a_step_come_longest_first_and_without_those_that_took_no_time() -> None:
    found = phases(breakdown(forward_s=1.0, backward_s=2.0, pipeline_idle_s=1.0))
    assert [(phase.name, phase.share) for phase in found] == [
        ("backward", 0.5),
        ("forward", 0.25),
        ("pipeline idle", 0.25),
    ]


def test_every_part_of_a_breakdown_has_a_word() -> None:
    assert set(PHASE_WORDS) == {field.name for field in fields(Breakdown)} - {"rank"}


def test_an_older_record_says_what_it_knows() -> None:
    assert facts(measurement()) == {
        "steps": "5 measured",
        "others used": "2 % of the machine's CPU time",
        "peak memory per rank": "10 MB allocated",
    }


@pytest.mark.parametrize(
    ("changes", "name", "text"),
    [
        ({"num_warmup_steps": 3}, "steps", "5 measured after 3 to warm up"),
        ({"noise_floor": 0.021}, "equal runs differ by", "2 %"),
        ({"num_disturbed": 2}, "disturbed runs", "2, thrown away"),
        ({"breakdown_failure": "oom: no memory"}, "no breakdown", "oom: no memory"),
        (
            {"extrapolated_from": (2, 4)},
            "extrapolated",
            "from 2 and 4 layers per stage, not measured on the whole model",
        ),
        ({"compile_s": 18.2}, "compilation", "18.2 s, before the steps that count"),
        ({"hfu": 0.31}, "HFU", "31.0 %, with what is computed again"),
        ({"reserved_bytes": (20_000_000,)}, "peak memory per rank", "10 MB allocated, 20 MB reserved"),
        (
            {"link_events": (LinkEvent(step=8, kind=LinkEventKind.LINK_DEAD, stages=(0, 1)),)},
            "links",
            "step 8: the link between stages 0 and 1 is dead",
        ),
        ({"power_w": 612.3}, "power per accelerator", "612 W"),
        ({"sync_payload_bytes": 12_340.0}, "sent to other replicas", "12.3 kB of a rank per step"),
        ({"overlapped_share": 0.875}, "reduced under backward", "88 % of the bytes of gradients"),
    ],
)
def test_what_else_is_known_of_a_measurement_is_said(changes: dict[str, object], name: str, text: str) -> None:
    assert facts(measurement(**changes))[name] == text


def test_a_precision_has_a_peak_of_its_own_where_its_utilization_is_not_the_mfu() -> None:
    assert has_own_peak(0.4, 0.2)
    assert not has_own_peak(0.4, 0.4)
    assert not has_own_peak(0.4, None)
    assert not has_own_peak(0.4, float("nan"))


def test_the_overlap_is_told_as_predicted_and_as_measured() -> None:
    words = "Gradients whose reduction starts before the last backward pass ends"
    assert overlap_sentence(0.9, 0.875) == f"{words}: 90 % predicted, 88 % measured, by bytes."
    assert overlap_sentence(0.9, None) == f"{words}: 90 % predicted, by bytes."
    assert overlap_sentence(None, None) == ""
