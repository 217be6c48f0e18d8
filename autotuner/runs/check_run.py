"""The check of a cluster as a durable run: it asks the engine, runs a trial, and measures devices and links."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, Any, TypeVar

import structlog

from autotuner.core.cluster_check import CheckFindings, ClusterCheck
from autotuner.core.errors import AutotunerError
from autotuner.core.measurement import StepReport
from autotuner.core.named import cluster_profile
from autotuner.core.profile import CollectivePoint, DeviceProfile, Measurements, Wanted, keeping_links, with_links
from autotuner.core.run import Finish, RunState, Stop
from autotuner.core.trial import EngineJob, EngineJobPhase, Stopped, TrialFailure, with_job
from autotuner.core.trial_spec import TrialSpec
from autotuner.costmodel.profile_fit import fit_profile
from autotuner.launch.engines.engine import EngineRefused, EngineUnavailable
from autotuner.launch.engines.launcher import EngineLauncher
from autotuner.launch.work import BenchmarkWork, benchmark_spec, small_trial
from autotuner.report.check import (
    collective_said,
    each_link_said,
    failure_said,
    job_said,
    links_said,
    queue_said,
    stored_said,
    trial_said,
)
from autotuner.runs.kind import LONG_LEASE_S, Do, Kind, OneAction, Work
from autotuner.runs.lease import Hold, StopRequested

if TYPE_CHECKING:
    from autotuner.store.sql import Store

R = TypeVar("R")

_log = structlog.get_logger(__name__)


def check_kind(store: Store, launchers: Mapping[str, EngineLauncher]) -> Kind:
    """Return the kind of run with which a worker checks clusters: a small trial, and measurements of devices and links.

    ``launchers`` holds the launchers of the registered engines, by name. An engine, such as Slurm, runs the jobs of a
    check.
    """

    def begin(hold: Hold) -> Work:
        check = _Check(hold, store, launchers)
        return Work(machine=OneAction(Do(action=None, ends_jobs=True)), perform=lambda _: check.run())

    return Kind(name="check", begin=begin, span="check.run", least_lease_s=LONG_LEASE_S)


class _Failed(AutotunerError):
    """Raised when the check has to end; its message says why."""


class _Findings:
    """The findings of a check so far. Findings made while the store cannot be reached are stored with the next one."""

    def __init__(self, hold: Hold) -> None:
        self.hold = hold
        self.known: CheckFindings = hold.run.progress

    def say(self, text: str) -> None:
        """Add a line to the findings."""
        self._store(self.known.said(text, self.hold.now()))

    def add(self, **found: Any) -> None:
        """Store new findings of the check."""
        self._store(replace(self.known, **found))

    def _store(self, found: CheckFindings) -> None:
        self.known = found
        self.hold.report(found)
        self.hold.renew()


class _Check:
    """Runs one check."""

    def __init__(self, hold: Hold, store: Store, launchers: Mapping[str, EngineLauncher]) -> None:
        self._hold = hold
        self._found = _Findings(hold)
        self._store = store
        self._launchers = launchers
        self._check: ClusterCheck = hold.run.request
        self._cluster = self._check.cluster

    def run(self) -> Finish:
        """Do the whole check and return how it ended."""
        end = self._end()
        _log.info("check.finished", check_id=self._hold.run.id, state=end.state.value, detail=end.detail)
        return end

    def _end(self) -> Finish:
        try:
            launcher = self._launcher()
            self._ask(launcher)
            if not self._check.request.links:
                self._try(launcher)
            profile = self._measure(launcher)
        except _Failed as failed:
            return Finish(state=RunState.FAILED, detail=str(failed))
        except StopRequested:
            if self._hold.stop() is not Stop.CANCEL:
                raise
            return Finish(state=RunState.CANCELLED, detail="the check was cancelled, and all its jobs have ended")
        return Finish(state=RunState.COMPLETE, detail=stored_said(self._cluster, profile))

    # ------------------------------------------------------------------ the engine
    def _launcher(self) -> EngineLauncher:
        launcher = self._launchers.get(self._cluster.engine)
        if launcher is None:
            known = ", ".join(self._launchers) or "none"
            raise _Failed(
                f"the engine {self._cluster.engine} is not registered on the machine that runs trials; "
                f"registered engines: {known}"
            )
        if refusal := launcher.refuses(self._check.nodes):
            raise _Failed(refusal)
        return launcher

    def _ask(self, launcher: EngineLauncher) -> None:
        try:
            queue = launcher.registration.placed(self._cluster).queue
            answer = launcher.engine.check((queue,) if queue else ())
        except EngineRefused as error:
            raise _Failed(f"the engine {self._cluster.engine} cannot run the jobs of this check: {error}") from error
        except EngineUnavailable as error:
            raise _Failed(f"the engine {self._cluster.engine} does not answer: {error}") from error
        if not self._found.known.engine:
            self._found.say(f"the engine {self._cluster.engine} answers: {answer}")
        self._found.add(engine=answer)

    # ------------------------------------------------------------------ a trial on its nodes
    def _try(self, launcher: EngineLauncher) -> None:
        if self._found.known.trial is not None:
            return  # it was done before an interruption
        spec = small_trial(self._hold.run.id, self._check, self._found.known.jobs)
        measured = self._expected("trial", launcher.run(spec, _Watcher(self._found, self._check, "trial")))
        self._found.add(trial=measured)
        self._found.say(trial_said(measured))

    # ------------------------------------------------------------------ the speed of devices and links
    def _measure(self, launcher: EngineLauncher) -> DeviceProfile:
        spec = benchmark_spec(self._hold.run.id, self._check, self._found.known.jobs)
        quick, known = self._check.request.quick, cluster_profile(self._store.descriptions, self._cluster.name)
        wanted: Wanted = "links" if known and self._check.request.links else "devices_and_links"
        work = BenchmarkWork(spec, quick=quick, wanted=wanted)
        watcher = _Watcher(self._found, self._check, "benchmarks", lambda: work.reports.collectives)
        measured = self._expected("benchmarks", launcher.run_work(lambda: work, spec, watcher))
        watcher.tell_collectives(are_complete=True)
        found = known if known and wanted == "links" else self._profile(measured, spec)
        num_nodes = self._check.nodes.num_nodes
        found = with_links(found, measured.links, measured_at=self._hold.now(), num_nodes=num_nodes)
        profile = found if known is None else keeping_links(found, known)
        self._store.descriptions.save(profile)
        self._found.add(num_points=len(measured.collectives), profile_at=profile.measured_at, links=measured.links)
        self._tell(found, of_devices=wanted != "links")
        return profile

    def _tell(self, found: DeviceProfile, *, of_devices: bool) -> None:
        for line in links_said(self._cluster, found) if of_devices else ():
            self._found.say(line)
        for line in each_link_said(self._cluster, found):
            self._found.say(line)

    def _profile(self, measured: Measurements, spec: TrialSpec) -> DeviceProfile:
        profile = fit_profile(
            measured,
            name=self._cluster.name,
            measured_at=self._hold.now(),
            num_ranks=spec.layout.world_size,
            accelerator=self._cluster.accelerator,
        )
        return replace(profile, cluster=self._cluster.name, num_nodes=self._check.nodes.num_nodes)

    # ------------------------------------------------------------------ shared by both jobs
    def _expected(self, what: str, outcome: R | TrialFailure | Stopped) -> R:
        """Return the job's result.

        Raises:
            _Failed: The job failed, or its nodes were lost or never came.
            StopRequested: The job was stopped for another reason.
        """
        match outcome:
            case TrialFailure():
                raise _Failed(failure_said(what, outcome, self._cluster))
            case Stopped(reason="infrastructure" | "budget"):  # nodes were lost or never assigned
                raise _Failed(f"{what}: {outcome.detail}")
            case Stopped():
                raise StopRequested(outcome.reason)
            case _:
                return outcome


class _Watcher:
    """A ``TrialWatcher`` that adds a job's progress to the findings, and stops the job if it waits too long.

    Args:
        found: The findings, to which lines are added.
        check: The check.
        what: The job's name in these lines.
        collectives: Returns the timings of collectives that the job has reported so far.
    """

    def __init__(
        self,
        found: _Findings,
        check: ClusterCheck,
        what: str,
        collectives: Callable[[], Sequence[CollectivePoint]] = tuple,
    ) -> None:
        self._found = found
        self._hold = found.hold
        self._check = check
        self._what = what
        self._collectives = collectives
        self._job: EngineJob | None = None
        self._num_groups_shown = 0
        self._has_met = False
        self._is_stopped = False

    def on_step(self, step: StepReport) -> None:
        """Add a line to the findings, after the first step, that all ranks have connected."""
        del step
        if not self._has_met:
            self._has_met = True
            self._found.say(f"{self._what}: all ranks have connected, and the first step is done")

    def on_link_event(self, event: object) -> None:
        """Do nothing, because no job of a check has a pipeline."""

    def on_note(self, note: str) -> None:
        """Add the launcher's note to the findings."""
        self._found.say(f"{self._what}: {note}")

    def on_wait(self, reason: str | None) -> None:
        """Add the reason why the job waits to the findings."""
        if reason is not None:
            self.on_note(reason)

    def on_run(self, run: object) -> None:
        """Do nothing, because each job of a check is one run."""

    def on_job(self, job: EngineJob) -> None:
        """Store the state of a job, with which the check continues after an interruption, and report what changed."""
        known = next((one for one in self._found.known.jobs if one.name == job.name), None)
        self._job = job
        self._found.add(jobs=with_job(self._found.known.jobs, job))
        is_news = known is None or (known.phase, known.detail) != (job.phase, job.detail)
        if is_news and not self._is_stopped:  # the check's last line describes a job that was stopped
            self._found.say(job_said(self._what, job, self._check.nodes))

    def stop_requested(self) -> Stopped | None:
        """Return why the job must end, or None.

        It must end if the run has to stop, or if the job waited in the queue too long.
        """
        self.tell_collectives()
        stopped = self._hold.stopped() or self._waited_too_long()
        self._is_stopped = stopped is not None
        return stopped

    def tell_collectives(self, *, are_complete: bool = False) -> None:
        """Add a line to the findings for each group of ranks, once all of the group's collectives are timed."""
        groups = [list(group) for _, group in groupby(self._collectives(), lambda p: (p.num_nodes, p.num_ranks))]
        shown = groups if are_complete else groups[:-1]
        for group in shown[self._num_groups_shown :]:
            longest = max((p for p in group if p.kind == "all_reduce"), key=lambda p: p.num_bytes)
            self._found.say(collective_said(longest))
        self._num_groups_shown = len(shown)

    def _waited_too_long(self) -> Stopped | None:
        job, longest_s = self._job, self._check.request.max_queued_s
        if job is None or job.phase is not EngineJobPhase.QUEUED or job.queued_s(self._hold.now()) < longest_s:
            return None
        return Stopped(reason="budget", detail=queue_said(job, longest_s))
