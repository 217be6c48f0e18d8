"""Attempts: how they are followed, and the verdict on our own ranks."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from autotuner.core.measurement import Measurement
from autotuner.core.node_line import Death, NodeEnd, NodeLine, RankFailure
from autotuner.core.trial import FailureKind, Stopped, TrialFailure
from autotuner.core.trial_spec import NodeTask
from autotuner.launch.contract import AttemptEnd, CannotRun, Ending, Ranks
from autotuner.launch.devices import DevicePool
from autotuner.launch.follow import follow, verdict
from autotuner.launch.lines import RankReports
from autotuner.launch.local import LocalLauncher, work_folder
from autotuner.launch.node_processes import with_stuck
from autotuner.launch.work import DecoderWork
from tests.builders import breakdown, cpu_cluster, cpu_layout, measurement, step_report, tiny_model
from tests.trials.launching import SHORT, Watcher, failed, interrupted, spec


@dataclass
class PretendRanks:
    """Ranks that go through looks that a test wants, and stay as in the last; they start themselves."""

    looks: Sequence[Sequence[NodeLine] | None] = ((),)
    """Lines of each look; None: the ranks have ended."""
    error: Exception | None = None
    """Raised where they are started or looked at."""
    stuck: tuple[int, ...] = ()
    peers_s: float = 0.0
    slack_s: float = 0.0
    ended: list[Ending] = field(default_factory=list)
    task: NodeTask | None = None

    def __post_init__(self) -> None:
        self.left = deque(self.looks)

    def start(self, task: NodeTask, folder: Path) -> Ranks:
        del folder
        if self.error:
            raise self.error
        self.task = task
        return self

    def close(self) -> None:
        pass

    def has_ended(self) -> bool:
        if self.error:
            raise self.error
        return bool(self.left) and self.left[0] is None

    def poll(self) -> Sequence[NodeLine]:
        return (self.left.popleft() or ()) if self.left else ()

    def end(self, why: Ending) -> AttemptEnd:
        self.ended.append(why)
        return AttemptEnd(timed_out=why == "timeout")

    def explain(self, failure: TrialFailure) -> TrialFailure | Stopped:
        return with_stuck(failure, self.stuck)


def followed(ranks: PretendRanks, watcher: Watcher | None = None, *, limit_s: float = 60.0) -> object:
    work, deadline = DecoderWork(spec("followed")), time.monotonic() + limit_s
    return follow(work, ranks, watcher or Watcher(), deadline=deadline)


LOST = RankFailure(rank=0, kind=FailureKind.COMMUNICATION, message="connection closed by peer", traceback="")
OUT = RankFailure(rank=1, kind=FailureKind.OOM, message="out of memory", traceback="")
OWN_END, KILLED = Death(rank=0, exit_code=1), Death(rank=1, exit_code=-9)


@pytest.mark.parametrize(
    ("looks", "limit_s", "why"),
    [
        ([[step_report(0), measurement()]], 60.0, "measured"),
        ([[], None], 60.0, "ended"),
        ([[]], 0.0, "timeout"),
        ([[OUT]], 60.0, "ended"),
        ([[NodeEnd(node=0, exit_code=1)]], 60.0, "ended"),
        # a rank that only lost a peer is followed until it is known which one died: the last look is never made
        ([[LOST], [OWN_END], [KILLED], [measurement()]], 60.0, "ended"),
        ([[LOST], [NodeEnd(node=0, exit_code=1, deaths=((0, 1), (1, -9)))], [measurement()]], 60.0, "ended"),
    ],
    ids=["a result", "gone", "late", "a failure", "a bad node", "a lost peer", "a lost peer on a node"],
)
def test_an_attempt_ends_with_its_result_its_ranks_their_failure_or_its_time(
    looks: Sequence[Sequence[NodeLine] | None], limit_s: float, why: str
) -> None:
    ranks = PretendRanks(looks)
    followed(ranks, limit_s=limit_s)
    assert ranks.ended == [why]


def test_steps_are_passed_on_those_told_last_too_and_the_watchers_answer_ends_it() -> None:
    watcher = Watcher()
    assert followed(PretendRanks([[step_report(0)], [measurement()], [step_report(1)]]), watcher) == measurement()
    assert watcher.steps == [step_report(0), step_report(1)]
    ranks, watcher = PretendRanks([[step_report(0)]]), Watcher(stop_after=1)
    assert followed(ranks, watcher) == watcher.stop_requested()
    assert ranks.ended == [watcher.stop_requested()]


def test_ranks_that_cannot_be_looked_at_are_the_launchers_own_trouble_and_are_ended() -> None:
    ranks = PretendRanks(error=OSError("gone"))
    with pytest.raises(CannotRun, match="gone"):
        followed(ranks)
    assert ranks.ended == ["abandoned"]


# ---------------------------------------------------------------- the verdict
SPEC = spec("judged", replace(SHORT, timeout_s=60.0, profiled_steps=1))

WAITING = 'Current thread 0x1 (most recent call first):\n  File "torch/distributed/c10d.py", line 1 in wait\n'
WORKING = (
    "Current thread 0x1 (most recent call first):\n"
    '  File "trials/step/step.py", line 1 in spin\n  File "x.py", line 2\n'
)


def judged(*lines: NodeLine, **end: object) -> Measurement | TrialFailure:
    reports = RankReports()
    reports.take(lines)
    return verdict(SPEC, reports, AttemptEnd(**end))  # type: ignore[arg-type]


def test_profiled_steps_that_die_or_hang_cost_the_breakdown_and_nothing_else() -> None:
    assert judged(measurement(), breakdown()) == measurement(breakdown=breakdown())
    assert judged(measurement(), timed_out=True) == measurement(breakdown_failure="timeout: no result within 60 s")
    assert judged(measurement(), OUT) == measurement(breakdown_failure="oom: out of memory")


@pytest.mark.parametrize(
    ("lines", "end", "kind", "rank", "words"),
    [
        ([LOST], {}, FailureKind.COMMUNICATION, 0, "connection closed"),  # where it is all that was reported
        ([LOST, OUT], {"timed_out": True, "deaths": [KILLED]}, FailureKind.OOM, 1, "out of memory"),
        ([LOST], {"deaths": [OWN_END, KILLED], "rank_logs": {1: "last words"}}, FailureKind.CRASH, 1, "SIGKILL"),
        ([], {"deaths": [KILLED], "oom_killed": True}, FailureKind.OOM, 1, "out-of-memory killer"),
        ([LOST], {"timed_out": True, "deaths": [KILLED]}, FailureKind.TIMEOUT, None, "60 s"),
        ([], {"timed_out": True, "rank_logs": {0: WAITING, 1: WORKING}}, FailureKind.TIMEOUT, 1, "rank 1 hangs"),
        ([], {"timed_out": True, "rank_logs": {0: WAITING, 1: ""}}, FailureKind.TIMEOUT, 1, "rank 1 hangs"),
        ([], {"timed_out": True, "rank_logs": {0: WAITING, 1: WAITING}}, FailureKind.TIMEOUT, None, "60 s"),
        ([], {"log": "ModuleNotFoundError: no torch\n"}, FailureKind.CRASH, None, "without a report"),
    ],
    ids=[
        *("a lost peer alone", "its own failure before all", "a silent death before a lost peer", "killed for memory"),
        *("time before a silent death", "one works outside a collective", "one does not even answer", "all wait"),
        "no report",
    ],
)
def test_causes_are_believed_in_their_order(
    lines: list[NodeLine], end: dict[str, object], kind: FailureKind, rank: int | None, words: str
) -> None:
    failure = judged(*lines, **end)
    assert isinstance(failure, TrialFailure)
    assert (failure.kind, failure.rank) == (kind, rank)
    assert words in failure.message
    if "log" in end:
        assert "no torch" in failure.log_tail
    if rank == 1 and end.get("rank_logs") == {1: "last words"}:
        assert failure.log_tail == "last words"


# ---------------------------------------------------------------- on this machine
def test_a_trial_with_a_process_that_cannot_be_ended_ends_at_its_limit_and_names_the_process(tmp_path: Path) -> None:
    trial = spec("stuck", replace(SHORT, timeout_s=0.1))
    outcome = failed(LocalLauncher(tmp_path, PretendRanks(stuck=(4711,))).run(trial, Watcher()))
    assert outcome.kind == FailureKind.TIMEOUT
    assert outcome.message.endswith("SIGKILL did not end process 4711")


def test_ranks_on_gpus_see_those_alone_that_no_other_trial_has(tmp_path: Path) -> None:
    ranks, pool = PretendRanks(), DevicePool(lambda: ("0", "1", "2", "3"))
    with pool.claim(spec("beside", device="cuda"), Watcher()):
        LocalLauncher(tmp_path, ranks, pool).run(spec("gpus", replace(SHORT, timeout_s=0.1), device="cuda"), Watcher())
    assert ranks.task is not None
    assert ranks.task.variables == {"CUDA_VISIBLE_DEVICES": "2,3"}


def test_ranks_that_cannot_be_started_say_why_and_nothing_of_the_trial(tmp_path: Path) -> None:
    unstartable = PretendRanks(error=BlockingIOError("too many processes"))
    assert "too many processes" in interrupted(LocalLauncher(tmp_path, unstartable).run(spec("unstarted"), Watcher()))
    assert list(tmp_path.iterdir()) == []


NO_RANKS = PretendRanks(error=AssertionError("ranks were started"))


def test_more_ranks_than_the_cores_share_are_refused_and_never_started(tmp_path: Path) -> None:
    launcher = LocalLauncher(tmp_path, NO_RANKS)
    refusal = launcher.refuses(cpu_cluster(num_nodes=2**17, accelerators_per_node=8))
    assert refusal is not None
    assert "1048576 ranks, but the CPU cores of this machine can run" in refusal
    crowd = spec("crowd", layout=cpu_layout(data_parallel_replicate_degree=2**20))
    outcome = failed(launcher.run(crowd, Watcher()))
    assert (outcome.kind, "1048576 ranks are too many" in outcome.message) == (FailureKind.CRASH, True)


def test_weights_that_the_machine_cannot_hold_are_out_of_memory_before_a_rank_starts(tmp_path: Path) -> None:
    huge = replace(spec("huge"), model=tiny_model(num_layers=2**31 - 1, ffn_size=2**20))
    outcome = failed(LocalLauncher(tmp_path, NO_RANKS).run(huge, Watcher()))
    assert (outcome.kind, "the weights alone need" in outcome.message) == (FailureKind.OOM, True)


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
