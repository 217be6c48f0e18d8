"""The door: every question that the product answers, one method each.

The command line asks it in its own process, and the service answers REST and pages by it. A question that stores
nothing touches no database, and importing this module imports none: SQLAlchemy comes with the store, when it is needed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np

from autotuner.catalog.named import load
from autotuner.core.cluster import LOCAL, Cluster
from autotuner.core.columns import LayoutColumns
from autotuner.core.documents import extended
from autotuner.core.errors import InvalidInput, NotFound
from autotuner.core.fault_trace import at_worst
from autotuner.core.job import Job, PhasedJob
from autotuner.core.model import TransformerSpec
from autotuner.core.named import KINDS, Described, StoredNames, cluster_profile, names_in, resolve, resolved
from autotuner.core.objective import require_told
from autotuner.core.profile import DeviceProfile, profiled
from autotuner.core.requests import (
    ExportRequest,
    JobQuestion,
    LayersRequest,
    PhasesRequest,
    PredictedJobRequest,
    PredictionRequest,
)
from autotuner.core.rules.legality import require_asked
from autotuner.core.stack import Stack
from autotuner.costmodel.calibration import MeasuredRuns, calibrated
from autotuner.search.asides import Asides, Inline
from autotuner.search.preview import PredictionTable, Question, best_of_space, prediction_of_layout
from autotuner.search.space.trainers import trial_rules, trial_space

if TYPE_CHECKING:
    from autotuner.core.study import OptimizerStudyRequest
    from autotuner.core.sweep import SweepRequest
    from autotuner.core.sweep_requests import GateCreate, OptimizerStudyCreate, RetuneCreate, SweepClone, SweepCreate
    from autotuner.core.trial_spec import Trainer
    from autotuner.core.upkeep import MfuGateRequest, RetuneRequest
    from autotuner.runs.past_trials import Recollection
    from autotuner.search.explain.layers import LayerReport
    from autotuner.search.planning.phases import PhasesPlan
    from autotuner.search.planning.plan import PlanRun
    from autotuner.search.planning.request import PlanRequest
    from autotuner.store.sql import Store

T = TypeVar("T")

MAX_WORLD_SIZE = 2**20
"""Several times the largest cluster there is; a caller's slip must not keep the service counting its layouts."""

PROFILE = "profile:"
"""Before the name of a profile, where a cluster's is expected."""


class NoNames:
    """Nothing is stored under any name: what is in the catalog is all there is."""

    def get(self, cls: type[Described], name: str) -> Described:
        """Nothing has that name."""
        raise NotFound(KINDS[cls], name)


def _no_store() -> Store:
    raise AssertionError("what asks without a store needs none")


@dataclass(frozen=True, slots=True, kw_only=True)
class Autotuner:
    """The product as its users ask it.

    Raises (every question that is about a job):
        InvalidInput: A description breaks a rule.
        NotFound: A name is neither stored nor in the catalog.
    """

    stored_names: StoredNames | None = field(default_factory=NoNames)
    """In the place of those that the store holds; None asks the store."""
    open_store: Callable[[], Store] = _no_store
    """Called once, when the store is first needed: a prediction needs none."""
    asides: Asides = field(default_factory=Inline)
    """What may take long is computed by these."""
    _made: dict[str, Any] = field(default_factory=dict, init=False)
    _making: threading.RLock = field(default_factory=threading.RLock, init=False)  # one thing is made of another

    def _once(self, name: str, make: Callable[[], T]) -> T:
        """The one thing of that name, made unless it is."""
        with self._making:
            if name not in self._made:
                self._made[name] = make()
            return cast("T", self._made[name])

    @property
    def store(self) -> Store:
        """Sweeps, trials and whatever else is kept; opened unless it is."""
        return self._once("store", self.open_store)

    @property
    def names(self) -> StoredNames:
        """Models, clusters and profiles that were stored."""
        return self.stored_names or self.store.descriptions

    # ------------------------------------------------------------------ names
    def model(self, name: str) -> TransformerSpec:
        """A stored model, else one of the catalog."""
        try:
            return self.names.get(TransformerSpec, name)
        except NotFound:
            return load(TransformerSpec, name)

    def cluster(self, name: str, *, is_measured: bool = True) -> Cluster:
        """A stored cluster, this machine (``local``), else a catalog accelerator with a count (``h100:64``).

        This machine and stored clusters are described by their profiles, if they have one; ``profile:NAME`` is this
        machine by a profile of another name.

        Args:
            name: Of the cluster.
            is_measured: False: this machine's cores are not measured, which takes seconds the first time.

        Raises:
            InvalidInput: The profile of that name is a stored cluster's, which is no machine.
        """
        if name == LOCAL:
            own = self._own_profile()
            return _this_machine(is_measured=is_measured) if own is None else _profiled_machine(own)
        if name.startswith(PROFILE):
            profile = self.names.get(DeviceProfile, name.removeprefix(PROFILE))
            if profile.cluster:
                rule = f"is of nodes of the stored cluster {profile.cluster}, not of this machine"
                raise InvalidInput("cluster", name, rule, profile.cluster)
            return replace(_profiled_machine(profile), name=name)
        try:
            stored = self.names.get(Cluster, name)
        except NotFound:
            return load(Cluster, name)
        measured = cluster_profile(self.names, name)
        return stored if measured is None else profiled(stored, measured)

    def _would_measure(self, request: Any) -> bool:
        """Return whether the request names this machine, whose cores neither a profile nor a run measured."""
        if not any(cls is Cluster and name == LOCAL for cls, name in names_in(request)):
            return False
        from autotuner.launch.this_machine import has_to_measure  # noqa: PLC0415  # only where this machine is asked about

        return has_to_measure() and self._own_profile() is None

    def _own_profile(self) -> DeviceProfile | None:
        """The profile of this machine under its usual name, where it was taken on this host."""
        from autotuner.host.facts import is_this_host  # noqa: PLC0415  # most predictions are of no measured machine

        try:
            profile = self.names.get(DeviceProfile, LOCAL)
        except NotFound:
            return None
        return profile if is_this_host(profile.host) else None

    def trainer(self, name: str) -> Trainer:
        """The trainer that an operator registered under that name; a service has some.

        Raises:
            NotFound: With the nearest name.
        """
        raise NotFound("trainer", name)

    def thing(self, cls: type[T], given: T | str, path: str, *, is_measured: bool = True) -> T:
        """What has the given name, or what was given, held to what a request may hold.

        Args:
            cls: What it is.
            given: A name, or the thing.
            path: Where a request has it.
            is_measured: As ``cluster`` has it.

        Raises:
            InvalidInput: It is no name, or a cluster beyond what is counted.
            NotFound: It is neither stored nor in the catalog.
        """
        found: Any = self._named(cls, given, is_measured=is_measured) if isinstance(given, str) else given
        if isinstance(found, Cluster):
            found = found if isinstance(given, str) else as_described(found)
            if found.world_size > MAX_WORLD_SIZE:
                raise InvalidInput(path, found.name, f"must have at most {MAX_WORLD_SIZE} accelerators")
        return cast("T", found)

    def _named(self, cls: type[Any], name: str, *, is_measured: bool) -> Any:
        if cls is Cluster:
            return self.cluster(name, is_measured=is_measured)
        if cls is TransformerSpec:
            return self.model(name)
        return load(cls, name) if cls is Stack else self.trainer(name)

    def resolve(self, request: T, *, is_measured: bool = True) -> T:
        """Return a request with a thing for each name, stored or of the catalog, at all depths; errors as ``thing``."""
        return resolve(request, partial(self.thing, is_measured=is_measured))

    # ------------------------------------------------------------------ jobs
    @property
    def recollection(self) -> Recollection:
        """What the stored trials teach."""
        from autotuner.runs.past_trials import Recollection  # noqa: PLC0415  # only beside a store

        return self._once("recollection", lambda: Recollection(self.store.history))

    def calibrated(self, job: Job, trainer: str | None = None) -> Job:
        """The job with what the stored trials say of its speed; as it is where nothing is stored."""
        return job if self.stored_names is not None else self.recollection.calibrated(job, trainer)

    def job(self, request: JobQuestion) -> Job:
        """The job that a question is about, with what measured runs and stored trials say of its cluster."""
        request = self.resolve(request)
        job = self.measured_job(request, resolved(request.stack))
        return self.calibrated(job) if request.uses_history else job

    def measured_job(self, request: PredictedJobRequest, stack: Stack) -> Job:
        """The job of a request whose names were resolved, with what its measured runs say of its cluster."""
        job, runs = request.job(stack), []
        for number, run in enumerate(request.measured):
            try:
                own = run.job_like(job)
            except InvalidInput as error:
                raise error.under(f"measured.{number}") from error
            layouts, seconds = LayoutColumns.from_layouts([run.layout]), np.array([run.seconds_of(own)])
            runs.append(MeasuredRuns(job=own, layouts=layouts, step_time_s=seconds))
        return self.asides.ask(calibrated, job, runs) if runs else job

    # ------------------------------------------------------------------ what is stored of a request: it names nothing
    def sweep(self, request: SweepCreate, check: Callable[[SweepRequest], None] = lambda sweep: None) -> SweepRequest:
        """The sweep that is asked for; its trials run PyTorch itself, or the trainer.

        What is wrong is refused before this machine is measured, which takes seconds.

        Args:
            request: With names.
            check: Refuses what is not wanted, also before that.

        Raises:
            InvalidInput: The trainer cannot be told what the space asks for.
            NotFound: No trainer is registered under that name.
        """
        if self._would_measure(request):
            check(self._sweep(self.resolve(request, is_measured=False)))
        return self._sweep(self.resolve(request))

    def _sweep(self, request: SweepCreate) -> SweepRequest:
        from autotuner.core.sweep import SweepRequest  # noqa: PLC0415  # predictions need none of it

        trainer = None if request.trainer is None else resolved(request.trainer)
        job = self.measured_job(request, Stack() if trainer is None else load(Stack, trainer.stack))
        is_gated, space = request.loss_gate.enabled, request.space
        return extended(
            SweepRequest,
            request,
            job=job,
            space=self.asides.search(trial_space, job, trainer, space, is_gated=is_gated)
            if trainer
            else trial_space(at_worst(job, request.fault_trace), None, space, is_gated=is_gated),
            objective=replace(request.objective, under_faults=request.fault_trace is not None),
        )

    def clone(self, request: SweepClone, original: SweepRequest) -> SweepRequest:
        """The sweep that is asked for as another was; what a retune or an MFU gate compares is none of it.

        Raises:
            InvalidInput: A value breaks a rule together with those of the original.
        """
        request = self.resolve(request)
        job, gate = request.job_like(original.job), replace(original.loss_gate, **request.loss_gate)
        space = trial_space(job, original.trainer, request.space, is_gated=gate.enabled)
        if request.is_of_same_job:
            space = original.space.with_axes(**{axis: getattr(space, axis) for axis in request.space})
        said = {name: getattr(request, name) for name in ("seed", "name", "objective", "max_parallel_trials")}
        return replace(
            original,
            job=job,
            space=space,
            budget=replace(original.budget, **request.budget),
            trial=replace(original.trial, **request.trial),
            loss_gate=gate,
            challenge=None,
            **{name: value for name, value in said.items() if value is not None},
        )

    def gate(self, request: GateCreate) -> MfuGateRequest:
        """The gate that is asked for; errors as of a sweep.

        Raises:
            InvalidDocument: Its layout cannot run, with every rule that it breaks.
        """
        from autotuner.core.upkeep import MfuGateRequest  # noqa: PLC0415  # predictions need none of it

        sweep = self.sweep(request)
        if request.layout is not None:
            require_asked(request.layout, sweep.trial_job, trial_rules(sweep.trainer))
        return extended(MfuGateRequest, request, sweep=sweep)

    def retune(self, request: RetuneCreate) -> RetuneRequest:
        """The retune that is asked for; errors of its sweep as ``sweep`` has them."""
        from autotuner.core.upkeep import RetuneRequest  # noqa: PLC0415  # predictions need none of it

        try:
            template = self.sweep(request.sweep)
        except InvalidInput as error:
            raise error.under("sweep") from error
        return extended(RetuneRequest, request, cron=" ".join(request.cron.split()), template=template)

    def study(self, request: OptimizerStudyCreate) -> OptimizerStudyRequest:
        """The study that is asked for."""
        from autotuner.core.study import OptimizerStudyRequest  # noqa: PLC0415  # predictions need none of it

        return extended(OptimizerStudyRequest, request, job=self.resolve(request).job(Stack()))

    # ------------------------------------------------------------------ questions that nothing has to run for
    def predict(self, request: PredictionRequest) -> PredictionTable:
        """Predict the layout of the request, or the best of its space.

        Raises:
            InvalidInput: The space holds no legal layout or too many, the format cannot say a value that was named, or
                the cluster does not tell what layouts are to be compared by.
            InvalidDocument: The layout cannot run, with every rule that it breaks.
        """
        job = self.job(request)
        require_told(request.objective, job.cluster)
        question = extended(Question, request, job=job, axes=request.space)
        if request.layout is None:
            return self.asides.search(best_of_space, question)
        return self.asides.ask(prediction_of_layout, question, request.layout)

    def layers(self, request: LayersRequest) -> LayerReport:
        """Search the layers of communication of a job one after the other; errors as of ``predict``."""
        from autotuner.search.explain.layers import layer_report  # noqa: PLC0415  # predictions need none of it

        return self.asides.search(layer_report, self.job(request))

    def phases(self, request: PhasesRequest) -> PhasesPlan:
        """Predict the best layout for each phase of a job; errors as of ``predict``.

        Raises:
            InvalidInput: The phases are none that a job can go through.
        """
        from autotuner.search.planning.phases import PhasesQuestion, plan_phases  # noqa: PLC0415  # predictions need none

        phased = extended(PhasedJob, request, job=self.job(request))
        question = PhasesQuestion(phased=phased, axes=request.space, current=request.current)
        return self.asides.search(plan_phases, question)

    def export_job(self, request: ExportRequest) -> Job:
        """The job that a layout is written down for, by default with the software of the format.

        Raises:
            InvalidDocument: The layout cannot run, with every rule that it breaks.
        """
        from autotuner.export.target import stack_of  # noqa: PLC0415  # predictions need none of it

        request = self.resolve(request)
        job = request.job(load(Stack, stack_of(request.format)) if request.stack is None else resolved(request.stack))
        require_asked(request.layout, job)
        return job

    def plan(self, request: PlanRequest, hear: Callable[[int, int], None] = lambda done, known: None) -> PlanRun:
        """Compare whole clusters for a training run; the run is complete and stored nowhere.

        Args:
            request: Of clusters, with names still to be resolved.
            hear: Hears how many pieces of work are done, and how many there are as far as is known.

        Raises:
            InvalidInput: There are no clusters to compare, or too many.
        """
        from autotuner.core.run import RunState  # noqa: PLC0415  # predictions need none of it
        from autotuner.search.planning.plan import PlanProgress, PlanRun, plan, plan_id_of  # noqa: PLC0415

        asked, began_at, pieces = self.resolve(request), time.time(), PlanProgress()

        def count(done: int, known: int) -> None:
            nonlocal pieces
            pieces = PlanProgress(num_done=done, num_known=known)
            hear(done, known)

        found = plan(asked, self.asides, count)
        return PlanRun(
            id=plan_id_of(asked),
            state=RunState.COMPLETE,
            subject="",
            created_by="",
            created_at=began_at,
            due_at=began_at,
            started_at=began_at,
            finished_at=time.time(),
            request=asked,
            progress=pieces,
            result=found,
            detail="computed",
        )

    def close(self) -> None:
        """Release what was opened."""
        if "store" in self._made:
            self.store.close()


def as_described(cluster: Cluster) -> Cluster:
    """A cluster that a caller wrote down: whatever its peaks are, nobody measured them on this machine just now."""
    return replace(cluster, accelerator=replace(cluster.accelerator, peak_is_measured=False))


def is_this_machine(name: str) -> bool:
    """Whether a cluster's name means the machine that is asked."""
    return name == LOCAL or name.startswith(PROFILE)


def _profiled_machine(profile: DeviceProfile) -> Cluster:
    """This machine by a profile, which has the peaks that a measurement would give."""
    return profiled(_this_machine(is_measured=False), profile)


def _this_machine(*, is_measured: bool) -> Cluster:
    from autotuner.launch.this_machine import (  # noqa: PLC0415  # only where this machine is asked about
        detect_cluster,
        has_to_measure,
        unmeasured_cluster,
    )

    return (detect_cluster if is_measured or not has_to_measure() else unmeasured_cluster)()
