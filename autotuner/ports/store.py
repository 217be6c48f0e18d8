"""Store: sweeps and trials, descriptions by name, checks of clusters, and the parts that keep the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from autotuner.core.access import NOBODY_ASKED, Caller
from autotuner.core.cluster import Cluster
from autotuner.core.cluster_check import CheckRequest
from autotuner.core.convergence_gate import GateResult
from autotuner.core.layout import Layout
from autotuner.core.measurement import FinishedRun, LinkEvent, StepReport
from autotuner.core.model import TransformerSpec
from autotuner.core.prediction import Prediction, TrialEstimate
from autotuner.core.profile import DeviceProfile
from autotuner.core.run import Lease, Run, RunState
from autotuner.core.sweep import Event, Prospects, Sweep, SweepOverview, SweepRequest
from autotuner.core.trial import EngineJob, Outcome, ScaledTrial, Trial
from autotuner.ports.access import AccessStore
from autotuner.ports.accounts import AccountStore
from autotuner.ports.announcements import AnnouncementStore
from autotuner.ports.control import ControlStore
from autotuner.ports.gauges import GaugeStore
from autotuner.ports.history import HistoryStore
from autotuner.ports.mfu_gates import MfuGateStore
from autotuner.ports.names import Names
from autotuner.ports.optimizer_studies import OptimizerStudyStore
from autotuner.ports.page import Page
from autotuner.ports.rankings import RankedTime, TrialFilter, TrialsVersion
from autotuner.ports.retention import RetentionStore
from autotuner.ports.retunes import RetuneStore
from autotuner.ports.sweep_lists import ALL_SWEEPS, NEWEST_FIRST, SweepFilter, SweepOrder
from autotuner.ports.troubles import TroubleStore
from autotuner.ports.workers import WorkerStore


class Store(Names, Protocol):
    """Sweeps, trials, their outcomes and events; models and clusters by name.

    Every method is one transaction and may be called from any thread. Writes that a worker makes for a sweep
    (``add_trial`` to ``set_estimates``) name the lease of its run and raise ``LeaseLost`` if the run has been claimed
    since, so a worker that was thought dead cannot disturb its successor. A database that is out of
    reach or cannot write raises ``StoreUnavailable``. An id that is not stored raises ``NotFound``.
    """

    # ------------------------------------------------------------------ parts
    @property
    def accounts(self) -> AccountStore:
        """What callers take and did."""
        ...

    @property
    def retunes(self) -> RetuneStore:
        """Retunes and their runs."""
        ...

    @property
    def mfu_gates(self) -> MfuGateStore:
        """MFU gates and their baselines."""
        ...

    @property
    def optimizer_studies(self) -> OptimizerStudyStore:
        """Optimizer studies and their trials."""
        ...

    @property
    def runs(self) -> Any:  # the ports know no room above them
        """The ``RunStore``: sweeps, plans, checks, studies and deliveries."""
        ...

    @property
    def announcements(self) -> AnnouncementStore:
        """Outcomes, the webhooks that they go to, and their deliveries."""
        ...

    @property
    def workers(self) -> WorkerStore:
        """Who runs sweeps."""
        ...

    @property
    def history(self) -> HistoryStore:
        """What trials of all sweeps measured."""
        ...

    @property
    def retention(self) -> RetentionStore:
        """What is removed because of its age."""
        ...

    @property
    def gauges(self) -> GaugeStore:
        """What an operator watches of all of this."""
        ...

    @property
    def troubles(self) -> TroubleStore:
        """What went wrong and stands unmended."""
        ...

    @property
    def control(self) -> ControlStore:
        """What people change of sweeps that they asked for."""
        ...

    @property
    def access(self) -> AccessStore:
        """Tokens of callers, and sessions of browsers."""
        ...

    # ------------------------------------------------------------------ sweeps
    def create_sweep(
        self,
        request: SweepRequest,
        *,
        now: float,
        idempotency_key: str | None = None,
        caller: Caller = NOBODY_ASKED,
    ) -> tuple[Sweep, bool]:
        """Store a queued sweep of the caller and say whether it is new.

        The same key of the same caller with an equal request returns the stored sweep and False, whatever became of its
        budget since; with another request it raises ``Conflict``. Two concurrent calls with one key create one sweep.
        Writes the event ``sweep.created``.

        A new sweep is held to the caller's quota, however many ask at once: ``QuotaExceeded`` where nothing is left of
        it, and where it counts accelerator-hours, no more of them than are left.
        """
        ...

    def get_sweep(self, sweep_id: str) -> Sweep:
        """As it stands now."""
        ...

    def list_sweeps(self, *, state: RunState | None = None, page: Page = Page()) -> tuple[Sequence[Sweep], int]:
        """Newest first, and how many there are in all."""
        ...

    def overview(self, sweep_id: str, *, now: float) -> SweepOverview:
        """The sweep with its trials counted, by queries that read no trial."""
        ...

    def list_overviews(
        self, *, now: float, where: SweepFilter = ALL_SWEEPS, order: SweepOrder = NEWEST_FIRST, page: Page = Page()
    ) -> tuple[Sequence[SweepOverview], int]:
        """Those that pass, in that order, and how many there are; as many queries for a thousand sweeps as for one."""
        ...

    def sweep_owners(self) -> Sequence[str]:
        """Names of all callers who asked for a sweep, by name."""
        ...

    def request_cancel(self, sweep_id: str, *, now: float) -> Sweep:
        """Ask for the end: of a sweep that a worker holds it comes by that worker, of another at once.

        Where an engine still runs jobs of a sweep that nobody holds, the next worker to claim it ends these, and it.
        A finished sweep stays as it is.
        """
        ...

    # ------------------------------------------------------------------ trials
    def add_trial(
        self,
        sweep_id: str,
        *,
        lease: Lease,
        number: int,
        layout: Layout,
        prediction: Prediction,
        scaled: ScaledTrial | None = None,
        repeats: int | None = None,
        prospects: Prospects | None = None,
    ) -> Trial:
        """Store a queued trial. ``number`` is unique in its sweep: adding it again raises ``Conflict``.

        Args:
            sweep_id: Whose it is.
            lease: Of the sweep.
            number: Counts from 0.
            layout: Of the sweep's job.
            prediction: Of that layout.
            scaled: What runs in its place, on fewer ranks; None: the layout itself.
            repeats: Number of the trial whose layout it runs again; None: it is the first of its layout.
            prospects: What the search expected when it chose the layout, kept with the sweep and in part with the
                trial; None: it did not choose it, and the sweep's stay as they were.
        """
        ...

    def start_trial(self, trial_id: str, *, lease: Lease, now: float) -> Trial:
        """From queued to running; ``attempts`` grows by one, but for a trial of which a job goes on.

        Writes ``trial.started``.
        """
        ...

    def add_step(self, trial_id: str, step: StepReport, *, lease: Lease, now: float) -> None:
        """Store a step of the running attempt. Writes ``trial.step``."""
        ...

    def finish_trial(self, trial_id: str, outcome: Outcome, *, lease: Lease, now: float) -> Trial:
        """Store how the trial ended: complete, failed, pruned, cancelled; or queued again for any other stop.

        A stop for ``shutdown`` gives the attempt back, unless a job of the trial goes on. Writes ``trial.finished``, or
        ``trial.interrupted`` when the trial is queued again.
        """
        ...

    def add_link_event(self, trial_id: str, event: LinkEvent, *, lease: Lease, now: float) -> None:
        """Write the event ``trial.link_event``: what a running trial's pipeline found out about its links and ranks."""
        ...

    def add_note(self, trial_id: str, note: str, *, lease: Lease, now: float) -> None:
        """Write the event ``trial.note``: what a person who waits should know of a running trial."""
        ...

    def set_job(self, trial_id: str, job: EngineJob, *, lease: Lease, now: float) -> Trial:
        """Store how a job of a running trial stands, in the place of what was known of that name, or behind the others.

        The trial waits while the job is in a queue. Interruptions keep a trial's jobs. Writes the event ``trial.job``.
        """
        ...

    def set_waiting(self, trial_id: str, reason: str | None, *, lease: Lease, now: float) -> Trial:
        """Store that a started trial waits for devices, and why; None: it has them, unless a job of it is in a queue.

        The time that it waited is no accelerator time. Writes ``trial.waiting`` or ``trial.resumed``.
        """
        ...

    def add_run(self, trial_id: str, run: FinishedRun, *, lease: Lease, now: float) -> None:
        """Store a finished run of a started trial, which interruptions keep and the trial's end forgets."""
        ...

    def add_gate(self, trial_id: str, result: GateResult, *, lease: Lease, now: float) -> Trial:
        """Store what the loss gate found of a complete trial, which loses its rank if it failed.

        Writes ``trial.gated``. A second result of one trial raises ``Conflict``.
        """
        ...

    def set_estimates(
        self, sweep_id: str, estimates: Mapping[str, TrialEstimate], *, lease: Lease, now: float
    ) -> Sequence[Trial]:
        """Store what is estimated of trials by their ids, in the place of what was; each is then ranked by it.

        The trials as they are now, in that order. Writes ``sweep.estimated`` once. A trial that nobody measured on
        fewer ranks than its job has raises ``Conflict``.
        """
        ...

    def get_trial(self, trial_id: str) -> Trial:
        """With its steps, and the timeline of its measurement."""
        ...

    def list_trials(
        self, sweep_id: str, *, where: TrialFilter = TrialFilter(), page: Page = Page()
    ) -> tuple[Sequence[Trial], int]:
        """By number, without steps and timelines, and how many match in all."""
        ...

    def ranking(
        self, sweep_id: str | None = None, *, where: TrialFilter = TrialFilter(), page: Page = Page()
    ) -> tuple[Sequence[Trial], int]:
        """Trials that have a rank, the best first; equal ones by id. An indexed query.

        Those of one sweep are ordered by its objective's value, those of all sweeps by MFU.
        """
        ...

    def ranked_times(self, sweep_id: str) -> Sequence[RankedTime]:
        """What the order of every ranked trial of a sweep rests on, in that order, from columns alone."""
        ...

    def trials_version(self, sweep_id: str) -> TrialsVersion:
        """What changes whenever ``list_trials`` of the sweep would, so that who keeps its answer may ask for this."""
        ...

    # ------------------------------------------------------------------ events
    def events(self, sweep_id: str, *, after: int = 0, limit: int = 500) -> Sequence[Event]:
        """Events with ``sequence > after``, in order."""
        ...

    # ------------------------------------------------------------------ names
    def save_model(self, model: TransformerSpec, *, created_by: str = "") -> None:
        """Store under its name; an equal one stored before stays its maker's, a different one raises ``Conflict``."""
        ...

    def list_models(self) -> Sequence[TransformerSpec]:
        """By name."""
        ...

    def model_owners(self) -> Mapping[str, str]:
        """Who stored each model, by the model's name; empty text where nobody was asked."""
        ...

    def remove_model(self, name: str) -> None:
        """Forget it; sweeps keep what they were given."""
        ...

    def save_cluster(self, cluster: Cluster, *, created_by: str = "") -> None:
        """Store under its name, as ``save_model`` does."""
        ...

    def list_clusters(self) -> Sequence[Cluster]:
        """By name."""
        ...

    def cluster_owners(self) -> Mapping[str, str]:
        """Who stored each cluster, by the cluster's name."""
        ...

    def remove_cluster(self, name: str) -> None:
        """Forget it with its checks and with the profile that one of them took; sweeps keep what they were given.

        A check that is not finished raises ``Conflict``.
        """
        ...

    def save_profile(self, profile: DeviceProfile) -> None:
        """Store under its name, in the place of an older one of that name: a machine is what it was last measured."""
        ...

    def list_profiles(self) -> Sequence[DeviceProfile]:
        """By name."""
        ...

    # ------------------------------------------------------------------ checks of clusters
    def create_check(self, name: str, request: CheckRequest, *, now: float, created_by: str = "") -> Run:
        """Queue a check of the stored cluster of that name; while another of it is not finished, ``Conflict``."""
        ...

    # ------------------------------------------------------------------ health
    def check(self) -> str:
        """The schema revision: the one of this program, or of a newer one.

        Raises:
            StoreUnavailable: The database does not answer, is not migrated or takes no write: its disk is full, say.
        """
        ...

    def close(self) -> None:
        """Release connections; the store is not used afterwards."""
        ...
