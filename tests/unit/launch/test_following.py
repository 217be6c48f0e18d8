"""Following ranks that never were; with real ones it is in tests/contracts and tests/trials."""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from autotuner.core.codec import to_plain
from autotuner.core.measurement import StepReport
from autotuner.core.trial import FailureKind
from autotuner.launch.following import GRACE_S, follow
from autotuner.launch.ranks import CannotRun, Death
from autotuner.launch.reports import RankFailure, Reports
from tests.builders import measurement, step_report
from tests.trials.launching import Watcher, spec


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
