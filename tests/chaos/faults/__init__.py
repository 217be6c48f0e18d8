"""All faults, each in a file of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.chaos.databases import StoreName
from tests.chaos.faults import (
    cut_connections,
    end_member,
    fill_disk,
    fill_trials_disk,
    hold_connections,
    hold_lock,
    jump_clock,
    kill_all,
    kill_postgresql,
    kill_rank,
    kill_service,
    kill_worker,
    kill_zygote,
    second_service,
    start_too_early,
    stop_member,
    stop_postgresql,
)
from tests.chaos.jobs import JOBS, RANKS, Job
from tests.chaos.scene import Scene

__all__ = ["FAULTS", "Fault"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Something that goes wrong.

    Attributes:
        strike: Does it, waits for as long as it is to last, and says what was done.
        stores: Databases that it can happen to.
        jobs: Sweeps that it can happen to.
        spares_workers: Nothing that runs trials is touched, so none may be run a second time.
    """

    name: str
    strike: Callable[[Scene], str]
    stores: tuple[StoreName, ...] = ("sqlite", "postgresql")
    jobs: tuple[Job, ...] = JOBS
    spares_workers: bool = False


FAULTS = (
    Fault(name="kill_service", strike=kill_service.strike),
    Fault(name="kill_worker", strike=kill_worker.strike),
    Fault(name="kill_all", strike=kill_all.strike),
    Fault(name="end_member", strike=end_member.strike),
    Fault(name="stop_member", strike=stop_member.strike),
    Fault(name="kill_zygote", strike=kill_zygote.strike, jobs=(RANKS,)),
    Fault(name="kill_rank", strike=kill_rank.strike, jobs=(RANKS,)),
    Fault(name="jump_clock", strike=jump_clock.strike),
    Fault(name="fill_disk", strike=fill_disk.strike),
    Fault(name="fill_trials_disk", strike=fill_trials_disk.strike, jobs=(RANKS,)),
    Fault(name="second_service", strike=second_service.strike),
    Fault(name="start_too_early", strike=start_too_early.strike),
    Fault(name="hold_lock", strike=hold_lock.strike, stores=("sqlite",), spares_workers=True),
    Fault(name="kill_postgresql", strike=kill_postgresql.strike, stores=("postgresql",), spares_workers=True),
    Fault(name="stop_postgresql", strike=stop_postgresql.strike, stores=("postgresql",), spares_workers=True),
    Fault(name="cut_connections", strike=cut_connections.strike, stores=("postgresql",), spares_workers=True),
    Fault(name="hold_connections", strike=hold_connections.strike, stores=("postgresql",), spares_workers=True),
)
