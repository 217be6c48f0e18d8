"""Attempts: what their processes report, how they are followed, and the verdict on them."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from autotuner.core.codec import SCHEMA_VERSION, to_plain
from autotuner.core.errors import AutotunerError, InvalidInput
from autotuner.core.measurement import Breakdown, LinkEvent, LinkEventKind, Measurement
from autotuner.core.timeline import StepTimeline
from autotuner.core.trial import FailureKind, TrialFailure
from autotuner.core.trial_spec import TrialSettings, TrialSpec
from autotuner.launch.attempts import GRACE_S, follow, verdict
from autotuner.launch.exclusive import DevicePool
from autotuner.launch.local import LocalLauncher, work_folder
from autotuner.launch.ranks import CannotRun, Death, Ranks
from autotuner.launch.reports import RankFailure, Reports, TrialFiles
from autotuner.launch.this_machine import ask_torch
from autotuner.launch.torchrun import dead_ranks
from tests.builders import breakdown, cpu_cluster, cpu_layout, measurement, step_report, tiny_job, tiny_model
from tests.patience import PATIENCE_S
from tests.trials.launching import SHORT, Watcher, failed, interrupted, measured, spec


# ---------------------------------------------------------------- torch jobs
def module(folder: Path, monkeypatch: pytest.MonkeyPatch, *lines: str) -> str:
    """The name of a module that a new process finds."""
    (folder / "answering.py").write_text("\n".join(("import sys", *lines)))
    monkeypatch.setenv("PYTHONPATH", str(folder))
    return "answering"


def test_the_last_line_is_the_answer_and_progress_stands_on_standard_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = module(tmp_path, monkeypatch, "print('noise')", "print(sys.stdin.read().upper())")
    assert ask_torch(name, "question", timeout_s=PATIENCE_S) == "QUESTION"
    told: list[str] = []
    lines = ("print('1 of 2\\n2 of 2', file=sys.stderr)", "print('done')")
    name = module(tmp_path, monkeypatch, *lines)
    assert ask_torch(name, "", timeout_s=PATIENCE_S, progress=told.append) == "done"
    assert told == ["1 of 2", "2 of 2"]


@pytest.mark.parametrize(
    ("line", "error", "said"),
    [
        ("sys.exit(print('too large', file=sys.stderr) or 2)", InvalidInput, "too large"),  # the caller's mistake
        ("raise ModuleNotFoundError(\"No module named 'torch'\")", InvalidInput, "is not installed here"),
        ("raise ValueError('odd shapes')", AutotunerError, "odd shapes"),
        ("__import__('time').sleep(60)", AutotunerError, "no answer after 1 s"),
    ],
)
def test_a_process_that_refuses_breaks_or_never_answers_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, error: type[Exception], said: str
) -> None:
    timeout_s = 1.0 if "sleep" in line else PATIENCE_S
    with pytest.raises(error, match=said):
        ask_torch(module(tmp_path, monkeypatch, line), "", timeout_s=timeout_s)


# ---------------------------------------------------------------- torchrun
@pytest.fixture
def deaths(tmp_path: Path) -> Path:
    return tmp_path / "deaths.json"


def test_ranks_come_in_the_order_in_which_they_died_of_themselves(deaths: Path) -> None:
    assert dead_ranks(deaths) == ()  # an agent that wrote nothing found nobody dead
    deaths.write_text(json.dumps([[1, -9], [0, 1]]))
    assert dead_ranks(deaths) == [Death(rank=1, exit_code=-9), Death(rank=0, exit_code=1)]
    deaths.write_text(json.dumps([[0, 1], [1, -15]]))
    assert dead_ranks(deaths) == [Death(rank=0, exit_code=1)]


# ---------------------------------------------------------------- work folder
HELD = """
import sys
from pathlib import Path
from autotuner.launch.local import work_folder
with work_folder(Path(sys.argv[1]), "another") as folder:
    (folder / "rank-0.log").write_text("step 1")
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_folder_is_gone_with_its_block_and_all_that_was_put_there(tmp_path: Path) -> None:
    with work_folder(tmp_path / "trials", "mine") as folder:
        (folder / "logs").mkdir()
        (folder / "logs" / "rank-0.log").write_text("step 1")
    assert list((tmp_path / "trials").iterdir()) == []


def test_folders_of_a_launcher_that_was_killed_go_with_the_next_and_those_of_one_that_lives_stay(
    tmp_path: Path,
) -> None:
    (tmp_path / "not-ours").mkdir()
    with subprocess.Popen(
        [sys.executable, "-c", HELD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with work_folder(tmp_path, "mine"):
            assert {path.name for path in tmp_path.iterdir()} == {"another", "mine", "not-ours"}
        other.kill()
        other.wait()
        assert (tmp_path / "another" / "rank-0.log").exists()
    with work_folder(tmp_path, "mine"):
        assert {path.name for path in tmp_path.iterdir()} == {"mine", "not-ours"}


# ---------------------------------------------------------------- reports
def line(type_: str, **fields: object) -> str:
    return json.dumps({"schema_version": SCHEMA_VERSION, "type": type_, **fields}) + "\n"


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def test_steps_come_once_each_in_order_and_a_line_that_is_still_being_written_waits(tmp_path: Path) -> None:
    path = tmp_path / "reports"
    reports = Reports(path)
    assert list(reports.new_steps()) == []
    append(path, line("step", **to_plain(step_report(0))))
    assert list(reports.new_steps()) == [step_report(0)]
    text = line("step", **to_plain(step_report(1)))
    append(path, text[:20])
    assert list(reports.new_steps()) == []
    append(path, text[20:] + line("step", **to_plain(step_report(2))))
    assert list(reports.new_steps()) == [step_report(1), step_report(2)]


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


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("breakdown", breakdown(forward_s=0.1)),
        ("timeline", StepTimeline(step_s=0.5, num_micro_batches=4, num_ranks=2, ranks=())),
    ],
)
def test_a_breakdown_or_timeline_joins_the_measurement_before_it_and_is_worth_nothing_where_that_was_torn(
    tmp_path: Path, kind: str, value: Breakdown | StepTimeline
) -> None:
    whole = line("measurement", **to_plain(measurement()))
    for name, before, expected in (("whole", whole, measurement(**{kind: value})), ("torn", "", None)):
        append(tmp_path / name, before + line(kind, **to_plain(value)))
        reports = Reports(tmp_path / name)
        assert list(reports.new_steps()) == []
        assert reports.measurement == expected


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


# ---------------------------------------------------------------- following
class PretendRanks:
    """Ranks that end after a number of looks, or never, and report one step as they start.

    Args:
        num_looks: After which they have ended; None: never.
        error: Raised where they are started or looked at.
        deaths: What each look finds, before it finds ``found``.
        stuck: Pids of processes that cannot be ended.
    """

    def __init__(
        self,
        num_looks: int | None = None,
        error: Exception | None = None,
        deaths: Sequence[Sequence[Death]] = (),
        stuck: tuple[int, ...] = (),
    ) -> None:
        self._num_looks, self._error, self._stuck = num_looks, error, stuck
        self._deaths = deque(deaths)
        self.found: Sequence[Death] = ()
        self.text = ""
        self.environment: Mapping[str, str] = {}

    def start(self, spec: TrialSpec, files: TrialFiles, environment: Mapping[str, str]) -> Ranks:
        del spec
        if self._error:
            raise self._error
        self.environment = environment
        append(files.reports, line("step", **to_plain(step_report(0))))
        return self

    def close(self) -> None:
        pass

    def ended(self) -> bool:
        if self._error:
            raise self._error
        if self._num_looks is None:
            return False
        self._num_looks -= 1
        return self._num_looks < 0

    def deaths(self) -> Sequence[Death]:
        return self._deaths.popleft() if self._deaths else self.found

    def log(self) -> str:
        return self.text

    def end(self, *, grace_s: float) -> tuple[int, ...]:
        del grace_s
        return self._stuck


def followed(
    path: Path, ranks: PretendRanks, watcher: Watcher, *, limit_s: float = 60.0, peers_s: float = GRACE_S
) -> object:
    return follow(spec("followed"), ranks, Reports(path), watcher, deadline=time.monotonic() + limit_s, peers_s=peers_s)


@pytest.fixture
def reports(tmp_path: Path) -> Path:
    path = tmp_path / "reports.jsonl"
    append(path, line("step", **to_plain(step_report(0))))
    return path


def test_a_complete_result_ends_it_before_the_ranks_do(reports: Path) -> None:
    append(reports, line("measurement", **to_plain(measurement())))
    watcher = Watcher()
    assert followed(reports, PretendRanks(), watcher) == "measured"
    assert watcher.steps == [step_report(0)]


def test_ranks_that_are_gone_say_why_or_outlast_the_deadline_end_it(reports: Path) -> None:
    assert followed(reports, PretendRanks(2), Watcher()) == "ended"
    assert followed(reports, PretendRanks(), Watcher(), limit_s=0.0) == "timeout"
    out_of_memory = RankFailure(rank=1, kind=FailureKind.OOM, message="out of memory", traceback="")
    append(reports, line("failure", **to_plain(out_of_memory)))
    assert followed(reports, PretendRanks(), Watcher(), peers_s=0.0) == "failed"


def test_ranks_that_only_lost_a_peer_are_followed_until_it_is_known_which_one_died(reports: Path) -> None:
    lost = RankFailure(rank=0, kind=FailureKind.COMMUNICATION, message="connection closed by peer", traceback="")
    append(reports, line("failure", **to_plain(lost)))
    own_end = Death(rank=0, exit_code=1)
    ranks = PretendRanks(deaths=[[], [own_end], [own_end, Death(rank=1, exit_code=-9)], [own_end]])
    assert followed(reports, ranks, Watcher(), peers_s=0.0) == "failed"
    assert ranks.deaths() == [own_end], "the third look told which rank died, and the fourth was never made"


def test_the_watchers_answer_ends_it(reports: Path) -> None:
    watcher = Watcher(stop_after=1)
    assert followed(reports, PretendRanks(), watcher) == watcher.stop_requested()


def test_ranks_that_cannot_be_looked_at_are_the_launchers_own_trouble(reports: Path) -> None:
    with pytest.raises(CannotRun, match="gone"):
        followed(reports, PretendRanks(error=OSError("gone")), Watcher())


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


class Case:
    """The files of one ended trial."""

    def __init__(self, directory: Path) -> None:
        self.ranks = PretendRanks(0)
        self.rank_logs: dict[int, str] = {}
        self.reports = Reports(directory / "reports")

    def rank_log(self, rank: int, text: str) -> None:
        self.rank_logs[rank] = text

    def fails(self, rank: int, kind: FailureKind) -> None:
        failure = RankFailure(rank=rank, kind=kind, message=f"{kind.value} on {rank}", traceback="Traceback")
        self.reports.failures.append(failure)

    def judge(self, *, timed_out: bool = False, oom_killed: bool = False) -> Measurement | TrialFailure:
        return verdict(
            SPEC, self.reports, self.ranks, rank_logs=self.rank_logs, timed_out=timed_out, oom_killed=oom_killed
        )

    def failure(self, *, timed_out: bool = False, oom_killed: bool = False) -> TrialFailure:
        return failed(self.judge(timed_out=timed_out, oom_killed=oom_killed))


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return Case(tmp_path)


def test_profiled_steps_that_die_or_hang_cost_the_breakdown_and_nothing_else(case: Case) -> None:
    case.reports.measurement = measurement(breakdown=breakdown())
    assert case.judge() == case.reports.measurement
    case.reports.measurement = measurement()
    judged = measured(case.judge(timed_out=True))
    assert judged.breakdown_failure == "timeout: no result within 60 s"
    case.reports.measurement = measurement()
    case.fails(1, FailureKind.OOM)
    assert case.judge() == measurement(breakdown_failure="oom: oom on 1")


def test_the_rank_that_ran_out_of_memory_is_guilty_not_its_peers_who_lost_the_connection(case: Case) -> None:
    case.fails(0, FailureKind.COMMUNICATION)
    assert case.failure().kind == FailureKind.COMMUNICATION, "where it is all that was reported it is believed"
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


@pytest.mark.parametrize(
    ("other", "guilty"),
    [(WORKING, 1), ("", 1), (WAITING, None)],
    ids=["one works outside a collective", "one does not even answer", "all wait"],
)
def test_of_ranks_that_hang_the_one_that_does_not_wait_for_the_others_is_named(
    case: Case, other: str, guilty: int | None
) -> None:
    case.rank_log(0, WAITING)
    case.rank_log(1, other)
    judged = case.failure(timed_out=True)
    assert (judged.kind, judged.rank) == (FailureKind.TIMEOUT, guilty)
    assert "60 s" in judged.message


def test_an_end_without_any_report_is_a_crash_with_the_last_lines_of_who_started_the_ranks(case: Case) -> None:
    case.ranks.text = "ModuleNotFoundError: no torch\n"
    judged = case.failure()
    assert (judged.kind, judged.rank) == (FailureKind.CRASH, None)
    assert "no torch" in judged.log_tail


def test_a_trial_with_a_process_that_cannot_be_ended_ends_at_its_limit_and_names_the_process(tmp_path: Path) -> None:
    trial = spec("stuck", replace(SHORT, timeout_s=0.1))
    outcome = failed(LocalLauncher(tmp_path, PretendRanks(stuck=(4711,))).run(trial, Watcher()))
    assert outcome.kind == FailureKind.TIMEOUT
    assert outcome.message.endswith("SIGKILL did not end process 4711")


def test_ranks_on_gpus_see_those_alone_that_no_other_trial_has(tmp_path: Path) -> None:
    ranks, pool = PretendRanks(), DevicePool(lambda: ("0", "1", "2", "3"))
    with pool.claim(spec("beside", device="cuda"), Watcher()):
        LocalLauncher(tmp_path, ranks, pool).run(spec("gpus", replace(SHORT, timeout_s=0.1), device="cuda"), Watcher())
    assert ranks.environment["CUDA_VISIBLE_DEVICES"] == "2,3"


def test_ranks_that_cannot_be_started_say_why_and_nothing_of_the_trial(tmp_path: Path) -> None:
    unstartable = PretendRanks(error=BlockingIOError("too many processes"))
    assert "too many processes" in interrupted(LocalLauncher(tmp_path, unstartable).run(spec("unstarted"), Watcher()))
    assert list(tmp_path.iterdir()) == []


NO_RANKS = PretendRanks(error=AssertionError("ranks were started"))


def test_more_ranks_than_the_cores_share_are_refused_and_never_started(tmp_path: Path) -> None:
    launcher = LocalLauncher(tmp_path, NO_RANKS)
    refusal = launcher.refuses(cpu_cluster(num_nodes=2**17, accelerators_per_node=8))
    assert refusal is not None
    assert "1048576 ranks, these cores share" in refusal
    crowd = spec("crowd", layout=cpu_layout(data_parallel_replicate_degree=2**20))
    outcome = failed(launcher.run(crowd, Watcher()))
    assert (outcome.kind, "1048576 ranks are more than" in outcome.message) == (FailureKind.CRASH, True)


def test_weights_that_the_machine_cannot_hold_are_out_of_memory_before_a_rank_starts(tmp_path: Path) -> None:
    huge = replace(spec("huge"), model=tiny_model(num_layers=2**31 - 1, ffn_size=2**20))
    outcome = failed(LocalLauncher(tmp_path, NO_RANKS).run(huge, Watcher()))
    assert (outcome.kind, "the weights alone need" in outcome.message) == (FailureKind.OOM, True)
