"""The fork server by itself: what it forks, what it tells, and how it and its ranks end."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from autotuner.core.node_line import Death
from autotuner.launch.contract import ATTEMPT_ID
from autotuner.launch.forks import ForkedRanks, Forks, ForkServer
from tests.patience import PATIENCE_S
from tests.trials.launching import left_over


class Nursery:
    """A fork server, and errands with folders of their own."""

    def __init__(self, fork_server: ForkServer, directory: Path) -> None:
        self.fork_server = fork_server
        self._directory = directory
        self._sent: list[ForkedRanks] = []

    def send(self, task: str, num_ranks: int = 2, **variables: str) -> tuple[ForkedRanks, Path]:
        """Have ranks do one of ``tests.trials.rank_tasks``; their attempt is named after it."""
        attempt_id = f"{os.getpid()}-{task}-{len(self._sent)}"
        folder = self._directory / attempt_id
        folder.mkdir()
        name = task if ":" in task else f"tests.trials.rank_tasks:{task}"
        self._sent.append(self.fork_server.start(name, folder, num_ranks, {ATTEMPT_ID: attempt_id, **variables}))
        return self._sent[-1], folder

    def facts(self, num_ranks: int = 2, **variables: str) -> list[dict[str, Any]]:
        """What ranks say of themselves."""
        ranks, folder = self.send("confess", num_ranks, **variables)
        wait(ranks.has_ended)
        return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(num_ranks)]

    def close(self) -> None:
        """Leave the fork server to others."""
        for ranks in self._sent:
            ranks.end("measured")


@pytest.fixture
def nursery(forks: Forks, tmp_path: Path) -> Iterator[Nursery]:
    """That of all tests, unless one has killed it."""
    nursery = Nursery(forks.idle_fork_server(), tmp_path)
    yield nursery
    nursery.close()


@pytest.fixture
def doomed(tmp_path: Path) -> Iterator[Nursery]:
    """One whose fork server does not survive the test."""
    nursery = Nursery(ForkServer(), tmp_path)
    yield nursery
    nursery.fork_server.close()


def wait(is_true: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def both_run(folder: Path) -> Callable[[], bool]:
    return lambda: all((folder / f"{rank}.running").exists() for rank in range(2))


def test_ranks_know_their_places_and_their_exit_codes_and_output_come_back(nursery: Nursery) -> None:
    ranks, folder = nursery.send("confess", 3)
    wait(ranks.has_ended)
    assert ranks.exit_codes == {0: 0, 1: 1, 2: 2}
    facts = [json.loads((folder / f"{rank}.json").read_text()) for rank in range(3)]
    assert [fact["environment"]["RANK"] for fact in facts] == ["0", "1", "2"]
    assert {fact["environment"]["WORLD_SIZE"] for fact in facts} == {"3"}
    assert (folder / "ranks" / "1" / "stdout.log").read_text() == "rank 1 was here\n"


def test_a_rank_is_a_process_and_a_session_of_its_own_with_one_thread_and_no_device(nursery: Nursery) -> None:
    facts = nursery.facts()
    assert len({fact["pid"] for fact in facts}) == 2
    for fact in facts:
        assert fact["session"] == fact["pid"]
        assert (fact["threads"], fact["torch_threads"], fact["cuda"]) == (1, 1, False)


def test_a_rank_gets_the_variables_of_its_request_and_none_of_another(nursery: Nursery) -> None:
    assert {fact["environment"]["COLOUR"] for fact in nursery.facts(COLOUR="blue")} == {"blue"}
    assert {fact["environment"]["COLOUR"] for fact in nursery.facts()} == {None}


def test_a_task_that_raises_ends_its_rank_with_the_traceback_in_its_log(nursery: Nursery) -> None:
    ranks, folder = nursery.send("raise_error")
    wait(ranks.has_ended)
    assert set(ranks.exit_codes.values()) == {70}
    assert "ValueError: rank 1 is broken" in (folder / "ranks" / "1" / "stderr.log").read_text()


@pytest.mark.parametrize(
    ("task", "reason"),
    [("tests.trials.nowhere:run", "ModuleNotFoundError"), ("tests.trials.rank_tasks:nothing", "AttributeError")],
)
def test_a_task_that_there_is_not_is_refused_with_the_reason(nursery: Nursery, task: str, reason: str) -> None:
    ranks, _ = nursery.send(task)
    wait(ranks.has_ended)
    assert reason in ranks.log()
    assert ranks.exit_codes == {}


def test_a_rank_that_dies_is_distinguished_from_those_that_are_ended(nursery: Nursery) -> None:
    ranks, folder = nursery.send("die")
    wait(lambda: not ranks.has_ended() and ranks.deaths)
    ranks.end("measured")
    assert ranks.deaths == [Death(rank=1, exit_code=-signal.SIGKILL)]
    assert set(ranks.exit_codes) == {0, 1}
    assert left_over(folder.name) == []


@pytest.mark.parametrize("task", ["ask_back", "ignore_sigterm"])
def test_ranks_are_ended_whether_they_want_to_or_not(nursery: Nursery, task: str) -> None:
    ranks, folder = nursery.send(task)
    wait(both_run(folder))
    wait(lambda: not ranks.has_ended() and ranks.has_started)  # while it forks, the fork server carries their id itself
    assert len(left_over(folder.name)) == 2
    ranks.end("timeout")
    assert left_over(folder.name) == []
    assert nursery.fork_server.is_alive


def test_a_process_that_a_rank_has_started_ends_with_the_ranks(nursery: Nursery) -> None:
    ranks, folder = nursery.send("hire")
    wait(ranks.has_ended)
    assert len(left_over(folder.name)) == 2
    ranks.end("measured")
    assert left_over(folder.name) == []


def test_a_fork_server_does_not_grow(nursery: Nursery) -> None:
    """Memory that is not given back would end a service of weeks: half a megabyte is ten pages per rank forked here."""
    nursery.facts()  # the first request imports the task
    process = psutil.Process(nursery.fork_server.pid)
    before, (first, _) = process.memory_info().rss, nursery.facts()
    for _ in range(10):
        nursery.facts()
    assert process.memory_info().rss - before < 500_000
    assert nursery.facts()[0]["descriptors"] == first["descriptors"]
    assert process.num_threads() == 1
    assert process.children() == []


def test_ranks_that_were_not_forked_yet_are_ended_with_their_fork_server(doomed: Nursery) -> None:
    ranks, folder = doomed.send("ask_back")
    ranks.end("measured")
    assert not doomed.fork_server.is_alive
    assert left_over(folder.name) == []


@pytest.mark.oracle  # a fork server of its own, and its patience
def test_a_fork_server_that_is_stuck_is_given_up_with_its_ranks(doomed: Nursery) -> None:
    ranks, folder = doomed.send("ask_back")
    wait(both_run(folder))
    wait(lambda: not ranks.has_ended() and ranks.has_started)
    os.kill(doomed.fork_server.pid, signal.SIGSTOP)
    ranks.end("measured")
    assert left_over(folder.name) == []
    assert not doomed.fork_server.is_alive


def test_a_fork_server_that_cannot_start_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('no torch on this machine')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    fork_server = ForkServer()
    ranks = fork_server.start("tests.trials.rank_tasks:confess", tmp_path, 1, {ATTEMPT_ID: "torchless"})
    wait(ranks.has_ended)
    assert "no torch on this machine" in ranks.log()
    fork_server.close()


def test_a_fork_server_whose_launcher_died_before_torch_was_imported_forks_nothing(nursery: Nursery) -> None:
    """Its ranks would write into a folder that was cleared up when the launcher was found dead."""
    ranks, folder = nursery.send("serve_a_dead_launcher", 1)
    wait(ranks.has_ended)
    assert ranks.exit_codes == {0: 0}
    assert [(folder / "ranks" / "0" / name).read_text() for name in ("stdout.log", "stderr.log")] == ["", ""]
    assert not (folder / "asked").exists()


def test_ranks_die_with_their_fork_server(nursery: Nursery) -> None:
    """The last test, so that no other waits for another fork server."""
    ranks, folder = nursery.send("ignore_sigterm")
    wait(both_run(folder))
    os.kill(nursery.fork_server.pid, signal.SIGKILL)
    wait(ranks.has_ended)
    wait(lambda: not left_over(folder.name))
