from __future__ import annotations

import json
from pathlib import Path

import pytest

from autotuner.core.codec import SCHEMA_VERSION, to_plain
from autotuner.core.measurement import LinkEvent, LinkEventKind
from autotuner.core.timeline import StepTimeline
from autotuner.core.trial import FailureKind
from autotuner.launch.reports import Reports, TrialFiles
from tests.builders import breakdown, measurement, step_report


def line(type_: str, **fields: object) -> str:
    return json.dumps({"schema_version": SCHEMA_VERSION, "type": type_, **fields}) + "\n"


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def test_before_the_file_exists_there_is_nothing(tmp_path: Path) -> None:
    assert list(Reports(tmp_path / "none").new_steps()) == []


def test_steps_come_once_each_and_in_order(tmp_path: Path) -> None:
    path = tmp_path / "reports"
    reports = Reports(path)
    append(path, line("step", **to_plain(step_report(0))))
    assert list(reports.new_steps()) == [step_report(0)]
    append(path, line("step", **to_plain(step_report(1))) + line("step", **to_plain(step_report(2))))
    assert list(reports.new_steps()) == [step_report(1), step_report(2)]


def test_a_line_still_being_written_waits_for_its_end(tmp_path: Path) -> None:
    path = tmp_path / "reports"
    reports = Reports(path)
    text = line("step", **to_plain(step_report(0)))
    append(path, text[:20])
    assert list(reports.new_steps()) == []
    append(path, text[20:])
    assert list(reports.new_steps()) == [step_report(0)]


def test_the_measurement_and_the_failures_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "reports"
    append(path, line("started", world_size=2) + line("measurement", **to_plain(measurement())))
    append(path, line("failure", rank=1, kind="oom", message="no memory", traceback="..."))
    reports = Reports(path)
    assert list(reports.new_steps()) == []
    assert reports.measurement == measurement()
    assert [(f.rank, f.kind) for f in reports.failures] == [(1, FailureKind.OOM)]


def test_events_of_links_come_once_each_and_all_of_them_are_part_of_the_measurement(tmp_path: Path) -> None:
    path = tmp_path / "reports"
    slow = LinkEvent(step=8, kind=LinkEventKind.LINK_SLOW, stages=(2, 3), delay_s=0.06)
    well = LinkEvent(step=31, kind=LinkEventKind.LINK_RECOVERED, stages=(2, 3))
    reports = Reports(path)
    append(path, line("link_event", **to_plain(slow)))
    assert (list(reports.new_steps()), reports.new_link_events(), reports.new_link_events()) == ([], [slow], [])
    append(path, line("measurement", **to_plain(measurement())) + line("link_event", **to_plain(well)))
    assert (list(reports.new_steps()), reports.new_link_events()) == ([], [well])
    assert reports.measurement == measurement(link_events=(slow, well))


def test_a_breakdown_joins_the_measurement_before_it(tmp_path: Path) -> None:
    path = tmp_path / "reports"
    parts = breakdown(forward_s=0.1)
    append(path, line("measurement", **to_plain(measurement())) + line("breakdown", **to_plain(parts)))
    reports = Reports(path)
    assert list(reports.new_steps()) == []
    assert reports.measurement == measurement(breakdown=parts)


def test_a_breakdown_whose_measurement_was_torn_by_a_full_disk_is_worth_nothing(tmp_path: Path) -> None:
    path = tmp_path / "reports"
    append(path, line("breakdown", **to_plain(breakdown())))
    reports = Reports(path)
    assert list(reports.new_steps()) == []
    assert reports.measurement is None


def test_what_a_rank_printed_is_found_however_deep_it_lies(tmp_path: Path) -> None:
    files = TrialFiles(tmp_path)
    for rank, parents in ((0, "."), (1, "run/attempt_0")):
        folder = files.rank_logs / parents / str(rank)
        folder.mkdir(parents=True)
        (folder / "stderr.log").write_text(f"rank {rank}")
    assert files.read_rank_logs() == {0: "rank 0", 1: "rank 1"}


@pytest.mark.parametrize(
    "torn",
    [
        *("[]", "null", "1", "{}", '{"type": []}', "[" * 5_000, '{"type": "step"}'),
        *('{"type": "measurement", "mfu": 1}', '{"type": "failure", "rank": 0, "kind": "?"}'),
    ],
)
def test_a_line_that_is_none_of_ours_is_passed_over(tmp_path: Path, torn: str) -> None:
    path = tmp_path / "reports"
    append(path, f"{torn}\n" + line("step", **to_plain(step_report(1))))
    assert list(Reports(path).new_steps()) == [step_report(1)]


def test_a_timeline_joins_the_measurement_before_it(tmp_path: Path) -> None:
    path = tmp_path / "reports.jsonl"
    step = StepTimeline(step_s=0.5, num_micro_batches=4, num_ranks=2, ranks=())
    append(path, line("measurement", **to_plain(measurement())) + line("timeline", **to_plain(step)))
    reports = Reports(path)
    reports.new_steps()
    assert reports.measurement == measurement(timeline=step)
