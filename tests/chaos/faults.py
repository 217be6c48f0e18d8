"""All faults: each does something that goes wrong, waits for as long as it is to last, and says what was done."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass

import psutil

from tests.chaos.databases import PostgresqlServer, StoreName
from tests.chaos.jobs import JOBS, RANKS, Job
from tests.chaos.scene import Scene


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Something that goes wrong."""

    strike: Callable[[Scene], str]
    stores: tuple[StoreName, ...] = ("sqlite", "postgresql")
    """Databases that it can happen to."""
    jobs: tuple[Job, ...] = JOBS
    """Sweeps that it can happen to."""
    spares_workers: bool = False
    """Nothing that runs trials is touched, so none may be run a second time."""

    @property
    def name(self) -> str:
        """That of what strikes."""
        return self.strike.__name__


# ---------------------------------------------------------------- members, and what they started
def kill_service(scene: Scene) -> str:
    """SIGKILL to a service; its supervisor starts it again."""
    service = scene.chance.choice(scene.services)
    service.kill()
    return f"SIGKILL to {service.spec.name}, away for {scene.a_moment():.1f} s"


def kill_worker(scene: Scene) -> str:
    """SIGKILL to a worker; its supervisor starts it again."""
    worker = scene.chance.choice(scene.workers)
    worker.kill()
    return f"SIGKILL to {worker.spec.name}, away for {scene.a_moment():.1f} s"


def kill_all(scene: Scene) -> str:
    """SIGKILL to every member: their machine fails, and starts again."""
    for member in scene.members:
        member.kill()
    return f"SIGKILL to all, away for {scene.a_moment():.1f} s"


def end_member(scene: Scene) -> str:
    """SIGTERM to a service or a worker, as by an upgrade."""
    member = scene.some_member()
    member.end()
    return f"SIGTERM to {member.spec.name}, away for {scene.a_moment():.1f} s"


def stop_member(scene: Scene) -> str:
    """SIGSTOP to a service or a worker for longer than its lease is kept, then SIGCONT, as if nothing had been."""
    member = scene.some_member()
    member.stop()
    seconds = scene.beyond_the_lease()
    member.go_on()
    return f"SIGSTOP to {member.spec.name} for {seconds:.1f} s"


def kill_fork_server(scene: Scene) -> str:
    """SIGKILL to a process that forks ranks, which die with it."""
    fork_server = scene.chance.choice(scene.fork_servers())
    fork_server.kill()
    return f"SIGKILL to fork server {fork_server.pid}"


def kill_rank(scene: Scene) -> str:
    """SIGKILL to a rank by somebody who is not the kernel."""
    rank = scene.chance.choice(scene.ranks())
    with contextlib.suppress(psutil.NoSuchProcess):
        rank.kill()
    return f"SIGKILL to rank {rank.pid}"


def jump_clock(scene: Scene) -> str:
    """Another time on one member, by minutes or hours, forward or back."""
    member = scene.some_member()
    jump_s = scene.chance.choice([-1, 1]) * scene.chance.choice([20.0, 600.0, 7200.0])
    member.put_clock(jump_s)
    if is_killed := scene.chance.random() < 0.5:
        scene.a_moment()
        member.kill()
    seconds = scene.beyond_the_lease()
    member.put_clock(0.0)
    return f"clock of {member.spec.name} {jump_s:+.0f} s for {seconds:.1f} s" + (", killed meanwhile" * is_killed)


def second_service(scene: Scene) -> str:
    """One service more on the same database; it is killed or ends in good order."""
    other = scene.spare()
    other.start()
    other.wait_until_it_answers()
    seconds = scene.beyond_the_lease()
    is_killed = scene.chance.random() < 0.5
    other.kill() if is_killed else other.end()
    return f"a second service for {seconds:.1f} s, " + ("killed" if is_killed else "ended")


def start_too_early(scene: Scene) -> str:
    """SIGKILL to all; members start while PostgreSQL is away, or the disk of the file is full."""
    for member in scene.members:
        member.kill()
    server = scene.database
    server.kill() if isinstance(server, PostgresqlServer) else server.disk.fill()
    for member in scene.members:
        member.start()
    seconds = scene.beyond_the_lease()
    for member in scene.members:
        assert member.is_alive, f"{member.spec.name} does not wait for its database"
    server.disk.empty()
    return f"members are back {seconds:.1f} s before their database"


# ---------------------------------------------------------------- disks and locks
def fill_disk(scene: Scene) -> str:
    """Not a byte left on the disk of the database, then all of it."""
    scene.database.disk.fill()
    seconds = scene.beyond_the_lease()
    scene.database.disk.empty()
    return f"disk full for {seconds:.1f} s"


def fill_trials_disk(scene: Scene) -> str:
    """Not a byte left for the files of trials, then all of it: no layout may lose its rank by that."""
    scene.trials_disk.fill()
    seconds = scene.beyond_the_lease()
    scene.trials_disk.empty()
    return f"disk of trials full for {seconds:.1f} s"


def hold_lock(scene: Scene) -> str:
    """A transaction that writes to SQLite and does not end within a lease, as of a process that is stopped in it."""
    path = scene.database.direct_url.removeprefix("sqlite:///")
    with closing(sqlite3.connect(path, timeout=30.0, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        seconds = scene.beyond_the_lease()
        connection.execute("ROLLBACK")
    return f"write lock held for {seconds:.1f} s"


# ---------------------------------------------------------------- PostgreSQL and the way to it
_ALL = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname IS NOT NULL"


def kill_postgresql(scene: Scene) -> str:
    """SIGKILL to the server, every process of it."""
    _server(scene).kill()
    seconds = scene.beyond_the_lease() if scene.chance.random() < 0.5 else scene.a_moment()
    return f"SIGKILL to PostgreSQL, away for {seconds:.1f} s"


def stop_postgresql(scene: Scene) -> str:
    """SIGSTOP to the server, then SIGCONT: it neither answers nor refuses meanwhile."""
    server = _server(scene)
    server.stop()
    seconds = scene.beyond_the_lease()
    server.go_on()
    return f"SIGSTOP to PostgreSQL for {seconds:.1f} s"


def cut_connections(scene: Scene) -> str:
    """Cut all, by the server's own command or on their way, again and again within a second."""
    server = _server(scene)
    assert server.proxy is not None
    is_by_server, num_cuts = scene.chance.random() < 0.5, scene.chance.randint(1, 8)
    for _ in range(num_cuts):
        server.execute(_ALL) if is_by_server else server.proxy.cut()
        time.sleep(scene.chance.uniform(0.0, 0.2))
    return f"connections cut {num_cuts} times, " + ("by the server" if is_by_server else "on their way")


def hold_connections(scene: Scene) -> str:
    """Hold every byte on its way to the server; then pass them on, or reset what they came by."""
    server = _server(scene)
    assert server.proxy is not None
    server.proxy.hold()
    seconds = scene.beyond_the_lease()
    if is_cut := scene.chance.random() < 0.5:
        server.proxy.cut()
    server.proxy.let_go()
    return f"network silent for {seconds:.1f} s" + (", then reset" * is_cut)


def _server(scene: Scene) -> PostgresqlServer:
    assert isinstance(scene.database, PostgresqlServer)
    return scene.database


_TO_MEMBERS = (
    *(Fault(strike=strike) for strike in (kill_service, kill_worker, kill_all, end_member, stop_member)),
    *(Fault(strike=strike, jobs=(RANKS,)) for strike in (kill_fork_server, kill_rank)),
    *(Fault(strike=strike) for strike in (jump_clock, fill_disk)),
    Fault(strike=fill_trials_disk, jobs=(RANKS,)),
    *(Fault(strike=strike) for strike in (second_service, start_too_early)),
)
_TO_POSTGRESQL = (kill_postgresql, stop_postgresql, cut_connections, hold_connections)

FAULTS = (
    *_TO_MEMBERS,
    Fault(strike=hold_lock, stores=("sqlite",), spares_workers=True),
    *(Fault(strike=strike, stores=("postgresql",), spares_workers=True) for strike in _TO_POSTGRESQL),
)
