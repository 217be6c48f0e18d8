from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from autotuner.core.measurement import Measurement
from autotuner.core.trial import FailureKind, TrialFailure
from autotuner.core.trial_spec import TrialSettings, TrialSpec
from autotuner.launch.attempts import verdict
from autotuner.launch.ranks import Death
from autotuner.launch.reports import RankFailure, Reports
from tests.builders import breakdown, cpu_layout, measurement, tiny_job, tiny_model

SPEC = TrialSpec(
    trial_id="t",
    model=tiny_model(),
    workload=tiny_job().workload,
    layout=cpu_layout(data_parallel_replicate_degree=2),
    device="cpu",
    settings=TrialSettings(timeout_s=60.0),
)

WAITING = 'Current thread 0x1 (most recent call first):\n  File "torch/distributed/c10d.py", line 1 in wait\n'
WORKING = (
    "Current thread 0x1 (most recent call first):\n"
    '  File "trials/training/step.py", line 1 in spin\n  File "x.py", line 2\n'
)


class Seen:
    """Ranks that have ended, as whoever started them saw them."""

    def __init__(self) -> None:
        self.found: list[Death] = []
        self.text = ""

    def ended(self) -> bool:
        return True

    def deaths(self) -> Sequence[Death]:
        return self.found

    def log(self) -> str:
        return self.text

    def end(self, *, grace_s: float) -> tuple[int, ...]:
        del grace_s
        return ()


class Case:
    """The files of one ended trial."""

    def __init__(self, directory: Path) -> None:
        self.ranks = Seen()
        self.rank_logs: dict[int, str] = {}
        self.reports = Reports(directory / "reports")

    def rank_log(self, rank: int, text: str) -> None:
        self.rank_logs[rank] = text

    def fails(self, rank: int, kind: FailureKind) -> None:
        failure = RankFailure(rank=rank, kind=kind, message=f"{kind.value} on {rank}", traceback="Traceback")
        self.reports.failures.append(failure)

    def judge(self, *, timed_out: bool = False, oom_killed: bool = False) -> Measurement | TrialFailure:
        return verdict(
            SPEC,
            self.reports,
            self.ranks,
            rank_logs=self.rank_logs,
            timed_out=timed_out,
            oom_killed=oom_killed,
        )

    def failure(self, *, timed_out: bool = False, oom_killed: bool = False) -> TrialFailure:
        judged = self.judge(timed_out=timed_out, oom_killed=oom_killed)
        assert isinstance(judged, TrialFailure)
        return judged


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return Case(tmp_path)


def test_a_reported_measurement_is_the_result(case: Case) -> None:
    case.reports.measurement = measurement(breakdown=breakdown())
    assert case.judge() == case.reports.measurement


def test_a_rank_that_dies_in_a_profiled_step_costs_the_breakdown_and_nothing_else(case: Case) -> None:
    case.reports.measurement = measurement()
    case.fails(1, FailureKind.OOM)
    assert case.judge() == measurement(breakdown_failure="oom: oom on 1")


def test_profiled_steps_that_hang_end_with_the_measurement(case: Case) -> None:
    case.reports.measurement = measurement()
    judged = case.judge(timed_out=True)
    assert isinstance(judged, Measurement)
    assert judged.breakdown_failure == "timeout: no result within 60 s"


def test_the_rank_that_ran_out_of_memory_is_guilty_not_its_peers_who_lost_the_connection(case: Case) -> None:
    case.fails(0, FailureKind.COMMUNICATION)
    case.fails(1, FailureKind.OOM)
    assert (case.failure().kind, case.failure().rank) == (FailureKind.OOM, 1)


def test_a_killed_rank_is_named_with_its_signal_and_its_last_lines(case: Case) -> None:
    case.ranks.found = [Death(rank=0, exit_code=1), Death(rank=1, exit_code=-9)]
    case.rank_log(1, "last words")
    case.fails(0, FailureKind.COMMUNICATION)
    judged = case.failure()
    assert (judged.kind, judged.rank, judged.log_tail) == (FailureKind.CRASH, 1, "last words")
    assert "SIGKILL" in judged.message


def test_a_rank_killed_by_the_kernel_for_memory_ran_out_of_memory(case: Case) -> None:
    case.ranks.found = [Death(rank=1, exit_code=-9)]
    assert case.failure(oom_killed=True).kind == FailureKind.OOM


def test_when_all_that_was_reported_is_communication_it_is_believed(case: Case) -> None:
    case.fails(0, FailureKind.COMMUNICATION)
    assert case.failure().kind == FailureKind.COMMUNICATION


def test_a_rank_that_hangs_outside_a_collective_is_named(case: Case) -> None:
    case.rank_log(0, WAITING)
    case.rank_log(1, WORKING)
    judged = case.failure(timed_out=True)
    assert (judged.kind, judged.rank) == (FailureKind.TIMEOUT, 1)
    assert "60 s" in judged.message


def test_a_rank_that_does_not_even_answer_is_the_one_that_hangs(case: Case) -> None:
    case.rank_log(0, WAITING)
    case.rank_log(1, "")
    assert case.failure(timed_out=True).rank == 1


def test_a_timeout_in_which_all_ranks_wait_names_no_rank(case: Case) -> None:
    case.rank_log(0, WAITING)
    case.rank_log(1, WAITING)
    assert case.failure(timed_out=True).rank is None


def test_an_end_without_any_report_is_a_crash_with_the_last_lines_of_who_started_the_ranks(case: Case) -> None:
    case.ranks.text = "ModuleNotFoundError: no torch\n"
    judged = case.failure()
    assert (judged.kind, judged.rank) == (FailureKind.CRASH, None)
    assert "no torch" in judged.log_tail
