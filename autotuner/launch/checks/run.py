"""CheckRun: one check of a cluster, from the first question to its engine to the stored profile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from threading import Event as Flag
from typing import TypeVar

from autotuner.core.choices import Precision
from autotuner.core.cluster_check import CheckState
from autotuner.core.errors import AutotunerError, NotFound
from autotuner.core.profile import DeviceProfile, Measurements, Wanted, keeping_links, with_links
from autotuner.core.profile_fit import fit_profile
from autotuner.core.trial import Stopped, TrialFailure
from autotuner.core.trial_spec import TrialSpec
from autotuner.launch.checks.benchmark_job import BenchmarkJob
from autotuner.launch.checks.hold import Hold
from autotuner.launch.checks.sentences import each_link_said, failure_said, links_said, stored_said, trial_said
from autotuner.launch.checks.small_trial import benchmark_spec, small_trial
from autotuner.launch.checks.watcher import CheckWatcher
from autotuner.launch.engines.engine import EngineRefused, EngineUnavailable
from autotuner.launch.engines.launcher import EngineLauncher
from autotuner.launch.reports import TrialFiles
from autotuner.ports import Store

R = TypeVar("R")


class _CheckFailed(AutotunerError):
    """The check ends here, and the sentence says why."""


class _CheckStopped(AutotunerError):
    """Somebody wants it to stop; the reason is a ``Stopped``'s."""


class CheckRun:
    """Runs one check.

    Args:
        hold: On the check; another worker's findings are in it.
        store: Gets the profile.
        launchers: Of the engines that are registered here, by name.
        shutdown: Set when the worker is told to stop: jobs are left alone, and whoever goes on finds them.
    """

    def __init__(self, hold: Hold, store: Store, launchers: Mapping[str, EngineLauncher], shutdown: Flag) -> None:
        self._hold = hold
        self._store = store
        self._launchers = launchers
        self._shutdown = shutdown
        self._cluster = hold.check.cluster

    def run(self) -> None:
        """All of it; the check is finished or given back."""
        try:
            launcher = self._launcher()
            self._ask(launcher)
            if not self._hold.check.request.links:
                self._try(launcher)
            profile = self._measure(launcher)
            self._hold.finish(CheckState.COMPLETE, stored_said(self._cluster, profile))
        except _CheckFailed as failed:
            self._hold.finish(CheckState.FAILED, str(failed))
        except _CheckStopped as stopped:
            self._stop(str(stopped))

    def _stop(self, reason: str) -> None:
        """A check that another worker took over is left to it."""
        match reason:
            case "cancelled":
                self._hold.finish(CheckState.CANCELLED, "cancelled; no job of it is left")
            case "shutdown":
                self._hold.release()

    # ------------------------------------------------------------------ does the engine answer
    def _launcher(self) -> EngineLauncher:
        launcher = self._launchers.get(self._cluster.engine)
        if launcher is None:
            known = ", ".join(self._launchers) or "none"
            raise _CheckFailed(f"no engine {self._cluster.engine} is registered where trials run (there are: {known})")
        if refusal := launcher.refuses(self._hold.check.nodes):
            raise _CheckFailed(refusal)
        return launcher

    def _ask(self, launcher: EngineLauncher) -> None:
        try:
            queue = launcher.registration.placed(self._cluster).queue
            answer = launcher.engine.check((queue,) if queue else ())
        except EngineRefused as error:
            raise _CheckFailed(f"the engine {self._cluster.engine} cannot take its jobs: {error}") from error
        except EngineUnavailable as error:
            raise _CheckFailed(f"the engine {self._cluster.engine} does not answer: {error}") from error
        if not self._hold.check.findings.engine:
            self._hold.say(f"the engine {self._cluster.engine} answers: {answer}")
        self._hold.found(engine=answer)

    # ------------------------------------------------------------------ does a trial run on its nodes
    def _try(self, launcher: EngineLauncher) -> None:
        if self._hold.check.findings.trial is not None:
            return  # before an interruption
        spec = small_trial(self._hold.check)
        measured = self._expected("trial", launcher.run(spec, CheckWatcher(self._hold, "trial", self._shutdown)))
        self._hold.found(trial=measured)
        self._hold.say(trial_said(measured))

    # ------------------------------------------------------------------ how fast are devices and links
    def _measure(self, launcher: EngineLauncher) -> DeviceProfile:
        spec, jobs = benchmark_spec(self._hold.check), list[BenchmarkJob]()
        quick, known = self._hold.check.request.quick, self._known_profile()
        wanted: Wanted = "links" if known and self._hold.check.request.links else "devices_and_links"

        def make(files: TrialFiles) -> BenchmarkJob:
            jobs.append(BenchmarkJob(spec, files, quick=quick, wanted=wanted))
            return jobs[-1]

        watcher = CheckWatcher(
            self._hold, "benchmarks", self._shutdown, lambda: jobs[-1].reports.collectives if jobs else ()
        )
        measured = self._expected("benchmarks", launcher.run_job(spec, make, watcher))
        watcher.tell_collectives(are_complete=True)
        found = known if known and wanted == "links" else self._profile(measured, spec)
        num_nodes = self._hold.check.nodes.num_nodes
        found = with_links(found, measured.links, measured_at=self._hold.now(), num_nodes=num_nodes)
        profile = found if known is None else keeping_links(found, known)
        self._store.save_profile(profile)
        self._hold.found(num_points=len(measured.collectives), profile_at=profile.measured_at, links=measured.links)
        self._tell(found, of_devices=wanted != "links")
        return profile

    def _tell(self, found: DeviceProfile, *, of_devices: bool) -> None:
        for line in links_said(self._cluster, found) if of_devices else ():
            self._hold.say(line)
        for line in each_link_said(self._cluster, found):
            self._hold.say(line)

    def _known_profile(self) -> DeviceProfile | None:
        """What an earlier check of the cluster stored."""
        try:
            known = self._store.get_profile(self._cluster.name)
        except NotFound:
            return None
        return known if known.cluster == self._cluster.name else None

    def _profile(self, measured: Measurements, spec: TrialSpec) -> DeviceProfile:
        accelerator, nodes = self._cluster.accelerator, self._hold.check.nodes
        on_cores = accelerator.kind == "cpu"
        peaks = {} if on_cores else {precision: accelerator.peak_flop_per_s(precision) for precision in Precision}
        profile = fit_profile(
            measured,
            name=self._cluster.name,
            measured_at=self._hold.now(),
            num_ranks=spec.layout.world_size,
            peaks=peaks,
            on_cores=on_cores,
        )
        return replace(profile, cluster=self._cluster.name, num_nodes=nodes.num_nodes)

    # ------------------------------------------------------------------ what both jobs have in common
    def _expected(self, what: str, outcome: R | TrialFailure | Stopped) -> R:
        """What the job found out, where it did."""
        match outcome:
            case TrialFailure():
                raise _CheckFailed(failure_said(what, outcome, self._cluster))
            case Stopped(reason="infrastructure" | "budget"):  # nodes were lost, or never came
                raise _CheckFailed(f"{what}: {outcome.detail}")
            case Stopped():
                raise _CheckStopped(outcome.reason)
            case _:
                return outcome
