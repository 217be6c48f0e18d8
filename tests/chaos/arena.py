"""A database with members on it, and faults that strike there, one after the other."""

from __future__ import annotations

import random
import secrets
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from autotuner.core.errors import NotFound, StoreUnavailable
from autotuner.core.trial import Trial
from autotuner.launch.node_processes import free_port
from autotuner.store.schema import migrate
from autotuner.store.sql import Store, open_store
from tests.chaos.account import (
    Account,
    account_of,
    announced,
    completed,
    differences,
    lost_or_twice,
    run_again,
    undisturbed,
)
from tests.chaos.databases import Database, Disk, StoreName, database, small_disk
from tests.chaos.faults import Fault
from tests.chaos.jobs import Job
from tests.chaos.members import Kind, Member, MemberSpec, context, create_sweep, orphans, unexpected_answer
from tests.chaos.scene import Scene
from tests.system.service import until

_MEMBERS: tuple[tuple[str, Kind], ...] = (("service", "service"), ("worker", "worker"))
_END_S = 240.0
"""Far more than any sweep takes on a machine that does nothing else."""

_TIDY_S = 10.0
_TRIALS_DISK_BYTES = 8 << 20
"""A trial of pretending ranks writes some kilobytes."""

_LOOK_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Struck:
    """What came of one fault."""

    said: str
    """What was done, when, to which sweep."""
    took_s: float
    problems: Sequence[str]
    """What did not hold afterwards."""


@dataclass(slots=True, kw_only=True)
class Arena:
    """Members that outlive faults, and the sweeps that they have run."""

    store_name: StoreName
    seed: int
    folder: Path
    mark: str
    database: Database
    trials_disk: Disk
    members: list[Member]
    store: Store
    _num_sweeps: int = 0
    _undisturbed: dict[str, Account] = field(default_factory=dict)
    _known_left: set[str] = field(default_factory=set)
    _spares: list[Member] = field(default_factory=list)

    def struck(self, number: int, faults: Sequence[Fault], jobs: Sequence[Job] = ()) -> Struck:
        """Have the fault of that number strike one of those sweeps, else of its own, and judge what is left."""
        chance = random.Random(f"{self.seed} {self.store_name} {number}")
        fault = faults[number % len(faults)]
        job, began = chance.choice(jobs or fault.jobs), time.monotonic()
        moment = chance.uniform(0.0, job.length_s)
        with ThreadPoolExecutor(1) as client, self._watched() as (seen, heard):
            body = {**job.body, "name": f"{fault.name} {number}"}
            sweep = client.submit(create_sweep, self._services, body, f"{self.mark}-{number}")
            time.sleep(moment)
            scene = Scene(
                database=self.database,
                trials_disk=self.trials_disk,
                members=self.members,
                chance=chance,
                job=job,
                spare=self._spare,
                sweep_id=sweep,
                mark=self.mark,
            )
            said = fault.strike(scene)
            self.mend()
            problems = list(self._judged(sweep.result(), job, seen))
            if fault.spares_workers:
                problems += run_again(self.store, sweep.result())
        self._num_sweeps += 1
        said = f"{fault.name}: after {moment:.2f} s of {job.name}, {said}"
        return Struck(said=said, took_s=time.monotonic() - began, problems=[*problems, *heard])

    def mend(self) -> None:
        """Have the database serve and every member live."""
        self.database.mend()
        for member in self.members:
            member.start()
        for member in self.members:
            member.wait_until_it_answers()

    @property
    def _services(self) -> Sequence[Member]:
        return [member for member in self.members if member.spec.kind == "service"]

    def _spare(self) -> Member:
        spec = MemberSpec(
            name=f"spare-{len(self._spares)}",
            kind="service",
            url=self.database.url,
            folder=self.folder,
            port=free_port(),
            mark=self.mark,
        )
        self._spares.append(Member(spec, context()))
        return self._spares[-1]

    def _has_ended(self, sweep_id: str) -> bool:
        return self.store.get_sweep(sweep_id).state.is_finished

    # ------------------------------------------------------------------ what must hold
    def _judged(self, sweep_id: str, job: Job, seen: Mapping[str, Trial]) -> Iterator[str]:
        try:
            until("the sweep to end", lambda: self._has_ended(sweep_id), _END_S)
        except TimeoutError:
            yield f"the sweep did not end: {self.store.get_sweep(sweep_id).state.value}"
        found = account_of(self.store, sweep_id, is_ordered=job.is_ordered)
        yield from differences(found, self._expected(sweep_id, job))
        yield from lost_or_twice(self.store, sweep_id, {k: t for k, t in seen.items() if t.sweep_id == sweep_id})
        yield from announced(self.store, sweep_id)
        total = self.store.runs.list("sweep")[1]
        if total != self._num_sweeps + 1:
            yield f"there are {total} sweeps of {self._num_sweeps + 1} that were asked for"
        yield from self._left()

    def _expected(self, sweep_id: str, job: Job) -> Account:
        if job.name not in self._undisturbed:
            request = self.store.get_sweep(sweep_id).request
            self._undisturbed[job.name] = undisturbed(request, is_ordered=job.is_ordered)
        return self._undisturbed[job.name]

    def _left(self) -> Iterator[str]:
        """What nobody holds any more, and should be gone."""

        def is_tidy() -> bool:
            return not (orphans(self.mark, self.members) or self._folders_left())

        try:
            until("no process and no folder is left", is_tidy, _TIDY_S)
        except TimeoutError:
            yield from (f"orphan process {process}" for process in orphans(self.mark, self.members))
            yield from (f"work folder left: {name}" for name in self._folders_left())
            self._known_left |= self._folders_left()

    def _folders_left(self) -> set[str]:
        """Names of work folders that no earlier fault is to blame for."""
        folder = self.members[0].spec.work_dir
        names = {path.name for path in folder.iterdir()} if folder.exists() else set()
        return names - self._known_left

    @contextmanager
    def _watched(self) -> Iterator[tuple[dict[str, Trial], list[str]]]:
        """Completed trials as they were first seen, and answers that no fault excuses, while the block runs."""
        done, seen, heard = threading.Event(), dict[str, Trial](), list[str]()

        def watch() -> None:
            while not done.wait(_LOOK_S):
                for found in self._seen():
                    seen.setdefault(found.id, found)
                answers = [unexpected_answer(service, "/sweeps?limit=3") for service in self._services]
                heard.extend(answer for answer in answers if answer and answer not in heard)

        thread = threading.Thread(target=watch)
        thread.start()
        try:
            yield seen, heard
        finally:
            done.set()
            thread.join()

    def _seen(self) -> Sequence[Trial]:
        try:
            sweeps, _ = self.store.runs.list("sweep")
            return list(completed(self.store, sweeps[0].id).values()) if sweeps else []
        except (StoreUnavailable, NotFound):
            return []


@contextmanager
def arena(store_name: StoreName, seed: int, folder: Path) -> Iterator[Arena]:
    """A service and a worker on an empty database."""
    folder.mkdir()
    mark = secrets.token_hex(6)
    with ExitStack() as stack:
        there = stack.enter_context(database(store_name, folder))
        migrate(there.direct_url)
        store = stack.enter_context(closing(open_store(there.direct_url)))
        made_by = context()
        members = [
            Member(MemberSpec(name=name, kind=kind, url=there.url, folder=folder, port=free_port(), mark=mark), made_by)
            for name, kind in _MEMBERS
        ]
        trials_disk = stack.enter_context(small_disk(members[0].spec.work_dir, _TRIALS_DISK_BYTES))
        for member in members:
            stack.callback(_killed, member)
        found = Arena(
            store_name=store_name,
            seed=seed,
            folder=folder,
            mark=mark,
            database=there,
            trials_disk=trials_disk,
            members=members,
            store=store,
        )
        found.mend()
        yield found


def _killed(member: Member) -> None:
    if member.is_alive:
        member.kill()
