"""Services killed with -9 while retunes are due, start, run and end: no due time is lost, and none is run twice.

``python -m tests.chaos.retune_kills URL`` starts services that share that empty database, again and again, and kills
each at a random moment. Their retunes are due every minute; their clocks run as any, but each life begins just before a
due time, one to four minutes after the last. Trials are simulated: the account is of who starts and concludes what.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from autotuner.catalog.hardware import load_cluster
from autotuner.catalog.models import load_model
from autotuner.core.choices import Recompute
from autotuner.core.cluster import SIMULATED
from autotuner.core.comparison import SequentialTest
from autotuner.core.job import Job
from autotuner.core.space import SearchSpace
from autotuner.core.sweep import Budget, SweepRequest
from autotuner.core.trial_spec import TrialSettings
from autotuner.core.upkeep import RetuneRequest
from autotuner.core.workload import Workload
from autotuner.service.build import build
from autotuner.service.settings import Settings
from autotuner.store.schema import migrate
from autotuner.store.sql import Store, open_store
from tests.chaos.due_times import DueTimes, account

_MINUTE_S = 60.0
_FIRST_DUE_AT = 30_000_000 * _MINUTE_S
"""Some minute in 2027: clocks of services are put forward to it."""

_LEAD_S = 0.3
"""A life begins so long before a due time."""

_START_S = 0.3
"""About what six runs take to start, one after the other; half of the lives end in it."""

_LIFE_S = 4.0
"""About what six runs take to end; the other half of the lives end somewhere in it."""

_PRELOADED = ["autotuner.runs.sweep_trials", "autotuner.runs.retune_clock", "psycopg"]
"""What a service imports once it works, so that each life begins at once."""

_POLL_S = 0.05
_SETTLE_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Kills:
    """What came of the kills."""

    num_survived: int
    """Kills after which every due time was accounted for, once all services were dead."""
    num_kills: int
    """All."""
    found: Counter[str] = field(default_factory=Counter)
    """What the kills left undone, by the number of kills: runs due, running, or to be concluded."""
    due_times: DueTimes = field(default_factory=DueTimes)
    """The account after the last life, which nobody cut short."""
    num_unfinished: int = 0
    """Runs that did not end by then."""

    @property
    def all_survived(self) -> bool:
        """Nothing was lost, done twice or left undone."""
        return self.num_survived == self.num_kills and self.due_times.is_right and not self.num_unfinished

    def __str__(self) -> str:
        times, left = self.due_times, ", ".join(f"{count} with runs {what}" for what, count in self.found.most_common())
        return (
            f"{self.num_kills} kills: {left}\n"
            f"{times.due} due times: {times.started} runs ({times.caught_up} of them late, for {times.missed} more due"
            f" times), {times.skipped} skipped; {times.concluded} concluded, {self.num_unfinished} unfinished\n"
            f"due times lost {times.lost}, run or told twice {times.twice}, not told {times.untold}\n"
            f"survived {self.num_survived} of {self.num_kills}"
        )


def main() -> None:
    """Print the account, and end with 1 if it does not balance."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.retune_kills", description="Kill services.")
    parser.add_argument("database", metavar="URL", help="an empty database")
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--retunes", type=int, default=6, help="all due every minute")
    given = parser.parse_args()
    result = killed(given.database, num_kills=given.kills, num_retunes=given.retunes)
    sys.stdout.write(f"{result}\n")
    raise SystemExit(not result.all_survived)


def killed(url: str, *, num_kills: int, num_services: int = 2, num_retunes: int = 6, seed: int = 0) -> Kills:
    """Kill services on that empty database so often, and account for the due times of its retunes in between."""
    migrate(url)
    chance, found, num_survived, done, due_at = random.Random(seed), Counter[str](), 0, 0, _FIRST_DUE_AT
    with closing(open_store(url)) as store:
        for number in range(num_retunes):
            store.retunes.save(_retune(number), now=_FIRST_DUE_AT - _MINUTE_S, next_due_at=_FIRST_DUE_AT)
        while done < num_kills:
            _live(url, due_at - _LEAD_S, _moments(chance, num_services))
            found[_left(store, due_at)] += num_services
            num_survived += num_services * account(store, _FIRST_DUE_AT).is_right
            done += num_services
            due_at += _MINUTE_S * chance.randint(1, 4)
        num_unfinished = _settled(url, due_at - _LEAD_S, store)
        times = account(store, _FIRST_DUE_AT)
    return Kills(num_survived=num_survived, num_kills=done, found=found, due_times=times, num_unfinished=num_unfinished)


def _moments(chance: random.Random, num_services: int) -> list[float]:
    """Seconds after the beginning of a life at which each service ends: while runs start, or at any time."""
    first, last = (_LEAD_S - 0.1, _LEAD_S + _START_S) if chance.random() < 0.5 else (0.0, _LIFE_S)
    return [chance.uniform(first, last) for _ in range(num_services)]


def _left(store: Store, due_at: float) -> str:
    """What a kill left undone."""
    runs = [run for retune in store.retunes.list() if (run := store.retunes.unfinished_run(retune.name)) is not None]
    if any(run.child_id is None or store.get_sweep(run.child_id).state.is_finished for run in runs):
        return "to be concluded"
    is_running = bool(runs)
    if store.retunes.due(due_at):
        return "due and others under way" if is_running else "due"
    return "under way" if is_running else "all ended"


# ---------------------------------------------------------------------- what is killed
class _PutForward:
    """A clock that can be put forward, and goes on from there as any."""

    def __init__(self) -> None:
        self._shift_s = 0.0

    def put(self, at: float) -> None:
        """Show that time now."""
        self._shift_s = at - time.time()

    def now(self) -> float:
        return time.time() + self._shift_s

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


def _serve(url: str, folder: str, at: float, parent: Connection) -> None:
    """What ``autotuner worker`` does, once it is told to, by a clock that then shows ``at``."""
    settings = Settings(database_url=url, work_dir=Path(folder), lease_s=1.0, poll_s=_POLL_S, log_level="error")
    clock = _PutForward()
    app = build(settings, clock=clock)
    signal.signal(signal.SIGTERM, lambda *_: app.background.request_stop())
    parent.send(None)
    parent.recv()
    clock.put(at)
    app.background.work()
    app.close()


@contextmanager
def _services(url: str, at: float, count: int) -> Iterator[list[ForkServerProcess]]:
    """Processes of their own, which begin to work at one moment."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, *_PRELOADED])
    with ExitStack() as stack:
        started = []
        for _ in range(count):
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            here, there = context.Pipe()
            stack.callback(here.close)
            process = context.Process(target=_serve, args=(url, folder, at, there))
            process.start()
            stack.callback(_end, process)
            there.close()
            started.append((process, here))
        for _, here in started:
            here.recv()
        for _, here in started:
            here.send(None)
        yield [process for process, _ in started]


def _end(process: ForkServerProcess) -> None:
    process.kill()
    process.join()
    process.close()


def _live(url: str, at: float, moments: list[float]) -> None:
    """Services that begin together; each is killed at a moment of its own."""
    with _services(url, at, len(moments)) as services:
        began = time.monotonic()
        for moment, process in sorted(zip(moments, services, strict=True), key=lambda pair: pair[0]):
            time.sleep(max(0.0, began + moment - time.monotonic()))
            process.kill()
            process.join()
            assert process.exitcode == -signal.SIGKILL, "it had ended by itself"


def _settled(url: str, at: float, store: Store) -> int:
    """Let a service end what is left; how many runs did not end."""

    def num_unfinished() -> int:
        return sum(store.retunes.unfinished_run(retune.name) is not None for retune in store.retunes.list())

    deadline = time.monotonic() + _SETTLE_S
    with _services(url, at, 1) as (process,):
        time.sleep(2 * _LEAD_S)  # past the due time
        while (left := num_unfinished()) and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        process.terminate()
        process.join(_SETTLE_S)
    return left


# ---------------------------------------------------------------------- what they do
def _retune(number: int) -> RetuneRequest:
    """Of a small job on accelerators that are simulated, measured with as few trials as a challenge needs."""
    cluster = replace(load_cluster("h100:8"), name="pretended", engine=SIMULATED)
    job = Job(model=load_model("llama-3-8b"), cluster=cluster, workload=Workload(seq_len=4096, global_batch_size=64))
    template = SweepRequest(
        job=job,
        space=SearchSpace().with_axes(recompute=(Recompute.FULL,), micro_batch_size=(1,)),
        budget=Budget(num_trials=1),
        trial=TrialSettings(max_repeats=0),
        uses_history=False,
    )
    test = SequentialTest(min_runs=2, max_runs=2)
    return RetuneRequest(name=f"retune {number}", cron="* * * * *", template=template, test=test)


if __name__ == "__main__":
    main()
