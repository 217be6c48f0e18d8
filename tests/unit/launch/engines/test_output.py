"""What nodes print, sorted into an attempt's files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotuner.launch.engines.output import PREFIX, JobOutput
from autotuner.launch.ranks import Death
from autotuner.launch.reports import TrialFiles
from trials.process import node

WORDS = ("type", "node", "exit_code", "deaths", "local_rank", "at", "text", "file", "line")


class Printing:
    """Two nodes that print what a test has them print."""

    def __init__(self, folder: Path) -> None:
        self.files = TrialFiles(folder)
        self.printed = [b"", b""]
        self.heard: list[tuple[str, float]] = []
        self.output = JobOutput(
            self.files,
            num_nodes=2,
            ranks_per_node=4,
            read=lambda node_rank, offset: self.printed[node_rank][offset:],
            heard=lambda line, at: self.heard.append((line, at)),
        )

    def tell(self, node_rank: int, **document: Any) -> None:
        self.printed[node_rank] += PREFIX + json.dumps(document).encode() + b"\n"
        self.output.pump()


@pytest.fixture
def nodes(tmp_path: Path) -> Printing:
    return Printing(tmp_path)


def end(**changes: Any) -> dict[str, Any]:
    return {"type": "node", "exit_code": 0, "deaths": [], "timed_out": False, "oom_killed": False, **changes}


def test_both_sides_begin_their_lines_alike() -> None:
    assert node.PREFIX.encode() == PREFIX


def test_what_ranks_report_is_kept_line_by_line_once_a_line_is_whole(nodes: Printing) -> None:
    nodes.printed[1] = PREFIX + b'{"type":"st'
    nodes.output.pump()
    assert not nodes.files.reports.exists()
    nodes.printed[1] += b'ep"}\n'
    nodes.tell(0, type="step", step=1)
    assert sorted(nodes.files.reports.read_text().splitlines()) == ['{"type": "step", "step": 1}', '{"type":"step"}']


def test_a_trainers_lines_and_reports_lie_by_rank_in_its_folder_alone(nodes: Printing) -> None:
    nodes.tell(1, type="printed", at=5.5, text="loss 1.0")
    nodes.tell(1, type="told", file="rank-4.jsonl", line='{"step":0}')
    assert nodes.heard == [("loss 1.0", 5.5)]
    assert (nodes.files.trainer_reports / "rank-4.jsonl").read_text() == '{"step":0}\n'
    nodes.tell(1, type="told", file="../../elsewhere/rank-4.jsonl", line="x")
    assert [path.name for path in nodes.files.trainer_reports.iterdir()] == ["rank-4.jsonl"]


@pytest.mark.parametrize("name", ["..", "a\0b", "\ud800", "x" * 5_000, "", "."])
def test_a_report_has_a_name_that_any_file_system_takes(nodes: Printing, name: str) -> None:
    nodes.tell(0, type="told", file=name, line="a line")
    (path,) = nodes.files.trainer_reports.iterdir()
    assert path.read_text() == "a line\n"


@pytest.mark.parametrize("rank", [-1, 4, 10**100])
def test_last_words_of_a_rank_that_is_none_are_passed_over(nodes: Printing, rank: int) -> None:
    nodes.tell(0, type="log", local_rank=rank, text="Traceback")
    assert not nodes.files.rank_logs.exists()


def test_last_words_of_a_rank_are_found_by_its_rank_in_the_job_and_what_is_no_report_is_kept(nodes: Printing) -> None:
    nodes.tell(1, type="log", local_rank=2, text="Traceback")
    assert nodes.files.read_rank_logs() == {6: "Traceback"}
    nodes.printed[0] = b"srun: error: no such program\n"
    nodes.output.pump()
    assert nodes.output.text == "srun: error: no such program"


def test_the_job_has_ended_when_every_node_has_said_how(nodes: Printing) -> None:
    nodes.tell(0, **end(exit_code=1, deaths=[[5, -9]]))
    ended = [nodes.output.has_ended]
    nodes.tell(1, **end(timed_out=True))
    assert [*ended, nodes.output.has_ended] == [False, True]
    assert nodes.output.ends[0].deaths == (Death(rank=5, exit_code=-9),)
    assert nodes.output.ends[1].timed_out


ANYTHING = st.recursive(
    st.none() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(WORDS), inner),
    max_leaves=6,
)


@given(st.binary(max_size=200), st.integers(0, 200))
def test_any_bytes_in_any_pieces_are_taken_without_an_error(
    tmp_path_factory: pytest.TempPathFactory, printed: bytes, cut: int
) -> None:
    nodes = Printing(tmp_path_factory.mktemp("any"))
    for until in (cut, len(printed)):
        nodes.printed[0] = PREFIX + printed[:until]
        nodes.output.pump()


@given(ANYTHING)
def test_any_document_is_taken_without_an_error(tmp_path_factory: pytest.TempPathFactory, document: object) -> None:
    nodes = Printing(tmp_path_factory.mktemp("any"))
    for kind in ("log", "node", "printed", "told"):
        nodes.printed[0] += PREFIX + json.dumps(document).encode() + b"\n"
        if isinstance(document, dict):
            nodes.printed[0] += PREFIX + json.dumps({**document, "type": kind}).encode() + b"\n"
        nodes.output.pump()
