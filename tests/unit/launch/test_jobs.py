from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from autotuner.core.codec import SCHEMA_VERSION, to_plain
from autotuner.core.errors import AutotunerError, InvalidInput
from autotuner.core.measurement import LinkEvent, LinkEventKind, StepReport
from autotuner.core.timeline import StepTimeline
from autotuner.core.trial import FailureKind
from autotuner.launch.attempts import GRACE_S, follow
from autotuner.launch.local import work_folder
from autotuner.launch.ranks import CannotRun, Death
from autotuner.launch.reports import RankFailure, Reports, TrialFiles
from autotuner.launch.this_machine import ask_torch
from autotuner.launch.torchrun import dead_ranks
from tests.builders import breakdown, measurement, step_report
from tests.patience import PATIENCE_S
from tests.trials.launching import Watcher, spec


# ---------------------------------------------------------------- torch jobs
def module(folder: Path, monkeypatch: pytest.MonkeyPatch, *lines: str) -> str:
    """The name of a module that a new process finds."""
    (folder / "answering.py").write_text("\n".join(("import sys", *lines)))
    monkeypatch.setenv("PYTHONPATH", str(folder))
    return "answering"


def test_the_last_line_is_the_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = module(tmp_path, monkeypatch, "print('noise')", "print(sys.stdin.read().upper())")
    assert ask_torch(name, "question", timeout_s=PATIENCE_S) == "QUESTION"


def test_progress_is_what_it_says_on_standard_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    lines = ("print('1 of 2\\n2 of 2', file=sys.stderr)", "print('done')")
    name = module(tmp_path, monkeypatch, *lines)
    assert ask_torch(name, "", timeout_s=PATIENCE_S, progress=told.append) == "done"
    assert told == ["1 of 2", "2 of 2"]


def test_a_refusal_is_the_callers_mistake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = module(tmp_path, monkeypatch, "sys.stderr.write('too large')", "sys.exit(2)")
    with pytest.raises(InvalidInput, match="too large"):
        ask_torch(name, "", timeout_s=PATIENCE_S)


def test_a_missing_torch_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = module(tmp_path, monkeypatch, "raise ModuleNotFoundError(\"No module named 'torch'\")")
    with pytest.raises(InvalidInput, match="is not installed here"):
        ask_torch(name, "", timeout_s=PATIENCE_S)


def test_a_process_that_breaks_says_how(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = module(tmp_path, monkeypatch, "raise ValueError('odd shapes')")
    with pytest.raises(AutotunerError, match="odd shapes"):
        ask_torch(name, "", timeout_s=PATIENCE_S)


def test_a_process_that_never_answers_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = module(tmp_path, monkeypatch, "import time", "time.sleep(60)")
    with pytest.raises(AutotunerError, match="no answer after 1 s"):
        ask_torch(name, "", timeout_s=1.0)


# ---------------------------------------------------------------- torchrun
@pytest.fixture
def deaths(tmp_path: Path) -> Path:
    return tmp_path / "deaths.json"


def test_ranks_come_in_the_order_in_which_the_agent_found_them_dead(deaths: Path) -> None:
    deaths.write_text(json.dumps([[1, -9], [0, 1]]))
    assert dead_ranks(deaths) == [Death(rank=1, exit_code=-9), Death(rank=0, exit_code=1)]


def test_a_rank_that_the_agent_ended_because_of_another_did_not_die_of_itself(deaths: Path) -> None:
    deaths.write_text(json.dumps([[0, 1], [1, -15]]))
    assert dead_ranks(deaths) == [Death(rank=0, exit_code=1)]


def test_an_agent_that_wrote_nothing_found_nobody_dead(deaths: Path) -> None:
    assert dead_ranks(deaths) == ()


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


# ---------------------------------------------------------------- following
class PretendRanks:
    """Ranks that end after a number of looks, or never."""

    def __init__(
        self, num_looks: int | None = None, error: OSError | None = None, deaths: Sequence[Sequence[Death]] = ()
    ) -> None:
        self._num_looks = num_looks
        self._error = error
        self._deaths = deque(deaths)

    def ended(self) -> bool:
        if self._error:
            raise self._error
        if self._num_looks is None:
            return False
        self._num_looks -= 1
        return self._num_looks < 0

    def deaths(self) -> Sequence[Death]:
        return self._deaths.popleft() if self._deaths else ()

    def log(self) -> str:
        return ""

    def end(self, *, grace_s: float) -> tuple[int, ...]:
        del grace_s
        return ()


def report(path: Path, type_: str, fields: Mapping[str, object]) -> None:
    with path.open("a") as file:
        file.write(json.dumps({"type": type_, **fields}) + "\n")


def followed(
    path: Path, ranks: PretendRanks, watcher: Watcher, *, limit_s: float = 60.0, peers_s: float = GRACE_S
) -> object:
    return follow(spec("followed"), ranks, Reports(path), watcher, deadline=time.monotonic() + limit_s, peers_s=peers_s)


@pytest.fixture
def reports(tmp_path: Path) -> Path:
    path = tmp_path / "reports.jsonl"
    report(path, "step", to_plain(step_report(0)))
    return path


def test_a_complete_result_ends_it_before_the_ranks_do(reports: Path) -> None:
    report(reports, "measurement", to_plain(measurement()))
    watcher = Watcher()
    assert followed(reports, PretendRanks(), watcher) == "measured"
    assert watcher.steps == [step_report(0)]


def test_ranks_that_are_gone_end_it(reports: Path) -> None:
    assert followed(reports, PretendRanks(2), Watcher()) == "ended"


def test_ranks_that_only_lost_a_peer_are_followed_until_it_is_known_which_one_died(reports: Path) -> None:
    lost = RankFailure(rank=0, kind=FailureKind.COMMUNICATION, message="connection closed by peer", traceback="")
    report(reports, "failure", to_plain(lost))
    own_end = Death(rank=0, exit_code=1)
    ranks = PretendRanks(deaths=[[], [own_end], [own_end, Death(rank=1, exit_code=-9)], [own_end]])
    assert followed(reports, ranks, Watcher(), peers_s=0.0) == "failed"
    assert ranks.deaths() == [own_end], "the third look told which rank died, and the fourth was never made"


def test_a_rank_that_says_why_it_failed_ends_it(reports: Path) -> None:
    out_of_memory = RankFailure(rank=1, kind=FailureKind.OOM, message="out of memory", traceback="")
    report(reports, "failure", to_plain(out_of_memory))
    assert followed(reports, PretendRanks(), Watcher(), peers_s=0.0) == "failed"


def test_the_watchers_answer_ends_it(reports: Path) -> None:
    watcher = Watcher(stop_after=1)
    assert followed(reports, PretendRanks(), watcher) == watcher.stop_requested()


def test_the_deadline_ends_it(reports: Path) -> None:
    assert followed(reports, PretendRanks(), Watcher(), limit_s=0.0) == "timeout"


def test_ranks_that_cannot_be_looked_at_are_the_launchers_own_trouble(reports: Path) -> None:
    with pytest.raises(CannotRun, match="gone"):
        followed(reports, PretendRanks(error=OSError("gone")), Watcher())


def test_a_watcher_that_cannot_store_a_step_is_not_taken_for_the_launchers_trouble(reports: Path) -> None:
    class FullStore(Watcher):
        def on_step(self, step: StepReport) -> None:
            raise OSError(f"no space left for step {step.step}")

    with pytest.raises(OSError, match="no space left for step 0"):
        followed(reports, PretendRanks(), FullStore())
