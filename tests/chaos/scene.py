"""Where a fault strikes: members on one database, and one sweep under way."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from random import Random

import psutil

from autotuner.launch.contract import ATTEMPT_ID
from tests.chaos.databases import Database, Disk
from tests.chaos.jobs import Job
from tests.chaos.members import LEASE_S, Member, marked
from tests.system.service import until


@dataclass(slots=True, kw_only=True)
class Scene:
    """What a fault may touch."""

    database: Database
    trials_disk: Disk
    """Where the files of trials lie."""
    members: Sequence[Member]
    chance: Random
    """Of this fault alone: all that is decided at random is asked of it."""
    job: Job
    spare: Callable[[], Member]
    """Makes a further member, which is there until the scene ends."""
    sweep_id: Future[str]
    """Of the sweep under way, once a service has taken it."""
    mark: str
    """Of all processes of members."""

    @property
    def services(self) -> Sequence[Member]:
        """Those that take requests."""
        return [member for member in self.members if member.spec.kind == "service"]

    @property
    def workers(self) -> Sequence[Member]:
        """Those that only run sweeps."""
        return [member for member in self.members if member.spec.kind == "worker"]

    def beyond_the_lease(self) -> float:
        """Wait for longer than a lease is kept for who says nothing; how long."""
        seconds = self.chance.uniform(1.5, 3.0) * LEASE_S
        time.sleep(seconds)
        return seconds

    def a_moment(self) -> float:
        """Wait for a second at most; how long."""
        seconds = self.chance.uniform(0.0, 1.0)
        time.sleep(seconds)
        return seconds

    def some_member(self) -> Member:
        """Any of them; the one that holds the sweep as likely as not."""
        return self.chance.choice(self.members)

    def fork_servers(self) -> list[psutil.Process]:
        """Processes that fork ranks, of any member; waits until there is one."""

        def found() -> list[psutil.Process]:
            return [
                process for process in marked(self.mark) if "autotuner.trials.process.fork_server" in process.cmdline()
            ]

        processes: list[psutil.Process] = until("a fork server", found)
        return processes

    def ranks(self) -> list[psutil.Process]:
        """Ranks of the sweep's trials; waits until there are some."""
        sweep_id = self.sweep_id.result()

        def found() -> list[psutil.Process]:
            children = [child for fork_server in self.fork_servers() for child in fork_server.children()]
            return [child for child in children if child.environ().get(ATTEMPT_ID, "").startswith(sweep_id)]

        processes: list[psutil.Process] = until("ranks", lambda: _unless_gone(found))
        return processes


def _unless_gone(find: Callable[[], list[psutil.Process]]) -> list[psutil.Process]:
    try:
        return find()
    except psutil.NoSuchProcess:
        return []
