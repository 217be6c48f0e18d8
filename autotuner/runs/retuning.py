"""Retuning: handles requests of users and of the scheduler for retunings; the store decides which request is first."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from autotuner.core.access import NOBODY_ASKED, Caller, Quota, Scope
from autotuner.core.cluster import LOCAL, Cluster
from autotuner.core.comparison import Challenge
from autotuner.core.errors import Conflict, InvalidInput, NotFound, QuotaExceeded
from autotuner.core.layout import Layout
from autotuner.core.named import cluster_profile
from autotuner.core.profile import profiled
from autotuner.core.rules.legality import reasons, require_legal
from autotuner.core.sweep import SweepRequest, job_key
from autotuner.core.trial import PastTrial
from autotuner.core.upkeep import Retune, RetuneRequest, RetuneRun, Trigger, Verdict
from autotuner.runs.clock import Clock
from autotuner.search.space.trainers import trial_rules
from autotuner.search.upkeep.cron import Cron, DueRun
from autotuner.store.options import Page

if TYPE_CHECKING:
    from autotuner.store.sql import Store

_MINUTE_S = 60


def challenged_sweep(
    retune: Retune,
    incumbent: Layout | None,
    *,
    due_at: float,
    cluster: Cluster | None = None,
    is_new_phase: bool = False,
) -> SweepRequest:
    """Return the request for the sweep that measures for one run of a retune (a job that is tuned again on a schedule).

    Each run has its own seed, so that runs explore different parts of the search space. The sweep uses the present
    state of the links for its predictions, and stores that state with its results.

    Args:
        retune: The retune to which the run belongs.
        incumbent: The layout in use; None if there is none.
        due_at: Due time of the run, in epoch seconds.
        cluster: The job's cluster with the present state of its links; None: the cluster in the retune's request.
        is_new_phase: True if the incumbent's baseline does not count, because it was measured with other links.
    """
    request = retune.request
    baseline = () if is_new_phase else retune.baseline
    challenge = Challenge(incumbent=incumbent, baseline=baseline, test=request.test, searches=request.searches)
    seed = request.template.seed + int(due_at) // _MINUTE_S
    job = request.template.job
    job = replace(job, cluster=cluster or job.cluster)
    return replace(request.template, job=job, challenge=challenge, seed=seed, name=f"retune {retune.name}")


def best_known(request: SweepRequest, past: Iterable[PastTrial]) -> Layout | None:
    """Return the fastest layout that earlier trials measured for the job, or None.

    Layouts that are not numerically equivalent are left out, because one trial does not show whether they train equally
    well.
    """
    rules = trial_rules(request.trainer)
    measured = [(one.step_time_s, one.layout) for one in past if one.step_time_s is not None]
    for _, layout in sorted(measured, key=lambda pair: pair[0]):
        if layout.is_equivalent and not reasons(layout, request.trial_job, rules):
            return layout
    return None


_NUM_RECENT = 50
"""Number of recent runs that are searched for the last one that measured; skipped runs lie between."""


def the_cron(request: RetuneRequest) -> Cron:
    """Return the cron schedule of a retune, which gives the times at which the retune's runs are due.

    Raises:
        InvalidInput: The expression or the time zone is not legal.
    """
    return Cron.read(request.cron, request.time_zone)


def runs_here(request: RetuneRequest) -> bool:
    """Return True if the trials of a retune (a scheduled search) run on this machine with the built-in decoder.

    Only such trials use the same software as the service itself.
    """
    return request.template.trainer is None and request.template.runs_on.engine == LOCAL


def last_measured(store: Store, name: str) -> RetuneRun | None:
    """Return the latest run of the retune ``name`` that measured something; None if none of its recent runs did."""
    runs, _ = store.retunes.runs(name, page=Page(limit=_NUM_RECENT))
    return next((run for run in runs if run.result and run.result.findings and run.result.findings.runs), None)


class Retuning:
    """Carries out users' requests about scheduled retunings ("retunes"): to add, change and run them."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    # ------------------------------------------------------------------ retunes
    def add(self, request: RetuneRequest, caller: Caller = NOBODY_ASKED) -> Retune:
        """Store a retune of the caller: a search for a better layout that starts again on a schedule.

        Its first run is due at the next time of its cron expression.

        Raises:
            InvalidInput: The cron expression or the time zone is not legal, the layout in use (incumbent) cannot run as
                a trial, or the retune should react to new software or new links, which this service cannot detect.
            Conflict: Another retune has that name.
        """
        cron, now = the_cron(request), self._clock.now()
        if request.incumbent is not None:
            self._require_legal(request, request.incumbent, "incumbent")
        if request.on_new_environment and not runs_here(request):
            rule = "must be left out, because this machine cannot see the software on the engine that runs the trials"
            raise InvalidInput("on_new_environment", True, rule, False)
        cluster = request.template.job.cluster
        if request.on_new_links and self.links_today(cluster) is None:
            rule = (
                f"must be left out, because the service sees changes of links only on a stored cluster, and no cluster "
                f"{cluster.name} of this size is stored"
            )
            raise InvalidInput("on_new_links", True, rule, False)
        next_due_at = cron.next_due_at(after=now)  # missed due times are not caught up
        return self._store.retunes.save(request, now=now, next_due_at=next_due_at, created_by=caller.name)

    def pause(self, name: str) -> Retune:
        """Pause a retune, so that its schedule starts no more runs. A run in progress continues."""
        return self._store.retunes.set_paused(name, True, next_due_at=None)

    def resume(self, name: str) -> Retune:
        """Resume a paused retune, so that its schedule starts runs again, from its next due time on.

        Runs that were due during the pause do not take place.
        """
        retune = self._store.retunes.get(name)
        if not retune.is_paused:
            return retune
        next_due_at = the_cron(retune.request).next_due_at(after=self._clock.now())
        return self._store.retunes.set_paused(name, False, next_due_at=next_due_at)

    def adopt(self, name: str, layout: Layout | None = None) -> Retune:
        """Replace a retune's layout in use (the incumbent) by the given layout, or by the best that its last run found.

        A given layout starts without a baseline, and the next run measures one. This is also true if the given layout
        is the present incumbent: its present speed then becomes the new baseline.

        Raises:
            InvalidInput: The layout cannot run as a trial.
            Conflict: No layout is given, and the last run that measured something found no better one.
        """
        retune = self._store.retunes.get(name)
        if layout is not None:
            self._require_legal(retune.request, layout, "layout")
            return self._store.retunes.set_incumbent(name, layout, ())
        last = last_measured(self._store, name)
        found = last.result if last else None
        if found is None or found.verdict is not Verdict.BETTER_FOUND or found.findings is None:
            raise Conflict(f"the last run of the retune {name} found no better layout; name the layout to adopt")
        challenger, runs = found.findings.challenger, found.findings.challenger_runs
        assert challenger is not None  # without a challenger, nothing was better
        return self._store.retunes.set_incumbent(name, challenger, () if runs is None else (runs,))

    @staticmethod
    def _require_legal(request: RetuneRequest, layout: Layout, field: str) -> None:
        template = request.template
        try:
            require_legal(layout, template.job, trial_rules(template.trainer))
        except InvalidInput as error:
            path = error.field.replace("layout", field, 1)
            raise InvalidInput(path, error.value, error.rule, error.nearest) from error

    # ------------------------------------------------------------------ runs
    def run_now(self, name: str, caller: Caller = NOBODY_ASKED) -> RetuneRun:
        """Start a run of a retune now, outside of its schedule. The next due time does not change.

        The sweep of the run belongs to the creator of the retune, even if another caller starts the run. If an admin
        starts a run of another caller's retune, the quota of that caller does not limit the run.

        Raises:
            Conflict: A run of the retune is not finished.
            QuotaExceeded: The creator's quota is used up.
        """
        retune = self._store.retunes.get(name)
        quota = caller.quota if caller.name == retune.created_by else Quota()
        run = self.begin_out_of_turn(retune, Trigger.MANUAL, quota)
        if run is None:
            unfinished = self._store.retunes.unfinished_run(name)
            which = f"run {unfinished.id}" if unfinished else "another run"
            raise Conflict(f"{which} of the retune {name} is not finished; wait for it, or cancel its sweep")
        return run

    def begin_out_of_turn(self, retune: Retune, trigger: Trigger, quota: Quota | None = None) -> RetuneRun | None:
        """Start a run of a retune now, outside of its schedule, for the reason ``trigger``.

        The result is None if another run is unfinished or was started at the same moment. ``quota`` limits the sweep of
        the run; None: the quota of the retune's creator.

        Raises:
            QuotaExceeded: The quota is used up.
        """
        now, unchanged = self._clock.now(), retune.next_due_at
        due = DueRun(expected_due_at=unchanged, due_at=now, next_due_at=unchanged, trigger=trigger)
        sweep = self._sweep(retune, now, is_new_phase=trigger is Trigger.LINKS)
        return self._start(retune, due, sweep, quota)

    def begin_due(self, retune: Retune, due: DueRun) -> RetuneRun | None:
        """Start or skip the run of a retune that is due by its schedule, and return it.

        The result is None if another process has already done so. If the quota of the retune's creator is used up, the
        run gets no sweep and ends at once.
        """
        sweep = None if due.skipped else self._sweep(retune, due.due_at)
        try:
            return self._start(retune, due, sweep)
        except QuotaExceeded:
            return self._start(retune, due, None)

    def _sweep(self, retune: Retune, due_at: float, *, is_new_phase: bool = False) -> SweepRequest:
        today = self.links_today(retune.request.template.job.cluster)
        return challenged_sweep(retune, self.incumbent(retune), due_at=due_at, cluster=today, is_new_phase=is_new_phase)

    def links_today(self, cluster: Cluster) -> Cluster | None:
        """Return ``cluster`` with the present links of the stored cluster of the same name and size.

        The result is None if there is no such stored cluster. If a check has measured the stored cluster, the links are
        as the latest check measured them.
        """
        try:
            stored = self._store.descriptions.get(Cluster, cluster.name)
        except NotFound:
            return None
        if (stored.num_nodes, stored.accelerators_per_node) != (cluster.num_nodes, cluster.accelerators_per_node):
            return None
        if (profile := cluster_profile(self._store.descriptions, cluster.name)) is None:
            return replace(cluster, link_health=stored.link_health)
        checked = profiled(stored, profile)
        return replace(
            cluster,
            link_health=checked.link_health,
            intra_node_link=checked.intra_node_link,
            inter_node_link=checked.inter_node_link,
        )

    def _start(
        self, retune: Retune, due: DueRun, sweep: SweepRequest | None, quota: Quota | None = None
    ) -> RetuneRun | None:
        now, maker = self._clock.now(), self._maker(retune, quota)
        return self._store.retunes.start_run(retune.name, due, now=now, sweep=sweep, caller=maker)

    def incumbent(self, retune: Retune) -> Layout | None:
        """Return the layout that a retune has in use, with which its runs compare other layouts; None if there is none.

        If no layout is set, it is the fastest layout that earlier trials measured for the job.
        """
        if retune.incumbent is not None:
            return retune.incumbent
        template = retune.request.template
        return best_known(template, self._store.history.of_job(job_key(template), before=self._clock.now()))

    def _maker(self, retune: Retune, quota: Quota | None) -> Caller:
        """Return the caller that owns the retuning's runs.

        If no quota is given, the newest valid token with the owner's name sets it.
        """
        name = retune.created_by
        if quota is None and name:
            now = self._clock.now()
            tokens = [one for one in self._store.access.list_tokens() if one.name == name and one.is_valid(now)]
            quota = tokens[0].quota if tokens else None
        return Caller(name=name, scope=Scope.RUN, quota=quota or Quota())
