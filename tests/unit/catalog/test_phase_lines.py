from __future__ import annotations

import re

import pytest

from autotuner.catalog.phase_lines import read_phases, written_phases
from autotuner.core.choices import Precision
from autotuner.core.errors import InvalidInput
from autotuner.core.job import JobPhase
from autotuner.core.link import LinkHealth

LINES = {
    "main: 75 %": JobPhase(name="main", token_share=0.75),
    "long: 5%; seq_len 131072; batch 64": JobPhase(name="long", token_share=0.05, seq_len=131072, global_batch_size=64),
    "thin: 12.5 %; bandwidth=10gbit": JobPhase(name="thin", token_share=0.125, bandwidth_bytes_per_s=1.25e9),
    "cool down: 7.5 %; precision bf16": JobPhase(name="cool down", token_share=0.075, precision=Precision.BF16),
}


@pytest.mark.parametrize("line", LINES)
def test_a_line_says_a_phase_and_what_changes_in_it(line: str) -> None:
    assert read_phases(line) == (LINES[line],)


def test_what_is_written_is_read_back_in_lines_where_these_suffice() -> None:
    phases = tuple(LINES.values())
    assert read_phases(written_phases(phases)) == phases
    assert len(written_phases(phases).splitlines()) == len(phases)


@pytest.mark.parametrize(
    "phase",
    [
        JobPhase(name="slow", token_share=1.0, link_health=(LinkHealth(ends=(0, 1), delay_s=0.1),)),
        JobPhase(name="a | b", token_share=1.0),
    ],
)
def test_what_lines_cannot_say_is_written_as_json(phase: JobPhase) -> None:
    assert written_phases((phase,)).startswith("[")
    assert read_phases(written_phases((phase,))) == (phase,)


def test_lines_may_be_parted_by_bars_and_remarks_are_left_out() -> None:
    assert [phase.name for phase in read_phases("# a plan\nmain: 90 % | last: 10 %  # anneal\n\n")] == ["main", "last"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("main", "must be name: share %"),
        ("main: 75", "must be name: share %"),
        ("main: 75 %; batch", "must be a word and a value"),
        ("main: 75 %; batches 5", "nearest legal value: batch"),
        ("main: 75 %; batch x", "must be whole"),
        ("main: 75 %; bandwidth dead", "nearest legal value: 10gbit"),
        ("main: 75 %; precision bf15", "nearest legal value: bf16"),
        ("main: 175 %", "must lie in 0..1"),
        ("[1]", "must be an object"),
        ("[", "must be lines or JSON"),
        ('[{"nam": "x"}]', "nam"),
    ],
)
def test_what_says_no_phase_is_refused_with_the_rule(text: str, said: str) -> None:
    with pytest.raises(InvalidInput, match=re.escape(said)):
        read_phases(text)
