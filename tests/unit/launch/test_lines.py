"""What ranks and nodes report, line by line, and what is known of an attempt by it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotuner.core.codec import SCHEMA_VERSION, to_plain
from autotuner.core.measurement import Breakdown, LinkEvent, LinkEventKind
from autotuner.core.node_line import (
    KINDS,
    PREFIX,
    Death,
    NodeEnd,
    Printed,
    RankLog,
    TrainerLine,
    Untagged,
    node_line,
)
from autotuner.core.timeline import StepTimeline
from autotuner.core.trial import FailureKind
from autotuner.launch.lines import LineReader, NodeOutputs, RankReports
from tests.builders import breakdown, measurement, step_report


def line(type_: str, **fields: object) -> bytes:
    return json.dumps({"schema_version": SCHEMA_VERSION, "type": type_, **fields}).encode() + b"\n"


# ---------------------------------------------------------------- one stream
def test_values_come_once_each_in_order_and_a_line_that_is_still_being_written_waits() -> None:
    reader, second = LineReader(), line("step", **to_plain(step_report(1)))
    assert reader.read(line("step", **to_plain(step_report(0))) + second[:20]) == [step_report(0)]
    assert reader.read(b"") == []
    assert reader.read(second[20:] + line("step", **to_plain(step_report(2)))) == [step_report(1), step_report(2)]


@pytest.mark.parametrize(
    "torn",
    [
        *("[]", "null", "1", "{}", '{"type": []}', "[" * 5_000, '{"type": "step"}', '{"type": "started"}'),
        *('{"type": "measurement", "mfu": 1}', '{"type": "failure", "rank": 0, "kind": "?"}'),
    ],
)
@pytest.mark.parametrize("prefix", [b"", PREFIX], ids=["a rank's", "a node's"])
def test_a_line_that_is_none_of_ours_is_passed_over(torn: str, prefix: bytes) -> None:
    step = line("step", **to_plain(step_report(1)))
    assert LineReader(prefix).read(prefix + torn.encode() + b"\n" + prefix + step) == [step_report(1)]


def test_other_lines_of_a_node_are_text_and_cannot_claim_another_node() -> None:
    said = node_line(NodeEnd(node=7, exit_code=1)) + b"srun: error: \xff\n" + node_line(TrainerLine(line="{}", node=7))
    assert LineReader(PREFIX, 1).read(said) == [
        *(NodeEnd(node=1, exit_code=1), Untagged(text="srun: error: \ufffd"), TrainerLine(line="{}", node=1))
    ]


def test_fields_of_a_newer_release_are_skipped() -> None:
    assert LineReader().read(line("printed", text="x", at=1.0, colour="blue")) == [Printed(text="x", at=1.0)]


ANYTHING = st.recursive(
    st.none() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(("exit_code", "deaths", "text", "line")), inner),
    max_leaves=6,
)


@given(st.binary(max_size=200), st.integers(0, 200), ANYTHING, st.sampled_from(sorted(KINDS)))
def test_any_bytes_and_any_document_are_taken_without_an_error(
    printed: bytes, cut: int, document: object, kind: str
) -> None:
    outputs = NodeOutputs(2, 4)
    for piece in (PREFIX + printed[:cut], printed[cut:] + b"\n"):
        outputs.read(0, piece)
    for said in (document, {**document, "type": kind} if isinstance(document, dict) else None):
        outputs.read(0, PREFIX + json.dumps(said).encode() + b"\n")
    outputs.attempt_end(timed_out=False)


# ---------------------------------------------------------------- the nodes of a job
def end(**changes: Any) -> bytes:
    return node_line(NodeEnd(**{"node": 0, "exit_code": 0, **changes}))


def test_the_job_has_ended_when_every_node_has_said_how() -> None:
    outputs = NodeOutputs(2, 4)
    outputs.read(0, end(exit_code=1, deaths=((5, -9), (4, -15), (1,))))
    assert (outputs.has_ended, outputs.silent, outputs.attempt_end(timed_out=False).exit_code) == (False, [1], 1)
    outputs.read(1, end(timed_out=True, oom_killed=True))
    ended = outputs.attempt_end(timed_out=False)
    assert outputs.has_ended
    assert ended.deaths == [Death(rank=5, exit_code=-9)], "torchrun itself ended the other"
    assert (ended.exit_code, ended.timed_out, ended.oom_killed) == (1, True, True)


@pytest.mark.parametrize(
    ("ends", "told"),
    [
        ((end(told_to_end=True, exit_code=-15), end(told_to_end=True)), [0, 1]),
        ((end(exit_code=1), end(told_to_end=True)), []),  # the engine ended the others of a job that failed
        ((end(), end(told_to_end=True)), [1]),
    ],
)
def test_nodes_that_were_told_to_end_count_unless_another_node_failed(
    ends: tuple[bytes, bytes], told: list[int]
) -> None:
    outputs = NodeOutputs(2, 1)
    for node, said in enumerate(ends):
        outputs.read(node, said)
    assert outputs.told_to_end == told


def test_last_words_of_a_rank_are_kept_by_its_rank_in_the_job_and_the_last_lines_that_were_printed() -> None:
    outputs = NodeOutputs(2, 4)
    for rank in (2, -1, 4, 10**100):
        outputs.read(1, node_line(RankLog(local_rank=rank, text="Traceback")))
    outputs.read(0, b"srun: error: no such program\n" + b"x" * 10_000 + b"\n" + node_line(Printed(text="bye", at=0.0)))
    ended = outputs.attempt_end(timed_out=True, detail="NODE_FAIL")
    assert (ended.rank_logs, ended.timed_out) == ({6: "Traceback"}, True)
    first, long, *last = ended.log.splitlines()
    assert (first, len(long), last) == ("srun: error: no such program", 2000, ["bye", "NODE_FAIL"])


# ---------------------------------------------------------------- ranks of ours
def test_the_measurement_the_failures_and_every_event_of_links_are_kept() -> None:
    slow = LinkEvent(step=8, kind=LinkEventKind.LINK_SLOW, stages=(2, 3), delay_s=0.06)
    well = LinkEvent(step=31, kind=LinkEventKind.LINK_RECOVERED, stages=(2, 3))
    reader, reports = LineReader(), RankReports()
    assert reports.take(reader.read(line("link_event", **to_plain(slow)))) == [slow]
    assert reports.take(reader.read(line("measurement", **to_plain(measurement())))) == []
    failure = line("failure", rank=1, kind="oom", message="no memory", traceback="...")
    assert reports.take(reader.read(line("link_event", **to_plain(well)) + failure)) == [well]
    assert reports.measurement == measurement(link_events=(slow, well))
    assert [(one.rank, one.kind) for one in reports.failures] == [(1, FailureKind.OOM)]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("breakdown", breakdown(forward_s=0.1)),
        ("timeline", StepTimeline(step_s=0.5, num_micro_batches=4, num_ranks=2, ranks=())),
    ],
)
def test_a_breakdown_or_timeline_joins_the_measurement_before_it_and_is_worth_nothing_where_that_was_torn(
    kind: str, value: Breakdown | StepTimeline
) -> None:
    whole, torn = RankReports(), RankReports()
    whole.take([measurement(), value])
    torn.take([value])
    assert (whole.measurement, torn.measurement) == (measurement(**{kind: value}), None)
