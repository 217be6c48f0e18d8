"""The door: every question that the product answers, with one method for each.

The command line calls it in its own process, and the service uses it for REST and pages. A question that stores nothing
needs no database, and importing this module imports none: SQLAlchemy is imported together with the store, when it is
needed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np

from autotuner.catalog.hardware import accelerators, load_accelerator
from autotuner.catalog.models import load_model, models
from autotuner.catalog.named import load
from autotuner.catalog.software import StackProfile, load_stack, stack_profiles, stacks
from autotuner.core.accelerator import Accelerator
from autotuner.core.cluster import LOCAL, Cluster
from autotuner.core.columns import LayoutColumns
from autotuner.core.documents import extended
from autotuner.core.errors import InvalidInput, NotFound
from autotuner.core.fault_trace import at_worst
from autotuner.core.job import Job, PhasedJob
from autotuner.core.listed import Listed
from autotuner.core.model import TransformerSpec
from autotuner.core.named import KINDS, Described, StoredNames, cluster_profile, names_in, resolve, resolved
from autotuner.core.objective import require_known
from autotuner.core.profile import DeviceProfile, profiled
from autotuner.core.requests import (
    ExplanationRequest,
    ExportRequest,
    ImportRequest,
    JobQuestion,
    LayersRequest,
    PhasesRequest,
    PredictedJobRequest,
    PredictionRequest,
)
from autotuner.core.rules.legality import require_asked
from autotuner.core.stack import Stack
from autotuner.costmodel.calibration import MeasuredRuns, calibrated
from autotuner.costmodel.evidence import NAMES
from autotuner.search.compute import ComputeService, Inline
from autotuner.search.preview import PredictionTable, Question, best_of_space, prediction_of_layout
from autotuner.search.space.trainers import trial_rules, trial_space

if TYPE_CHECKING:
    from autotuner.core.study import OptimizerStudyRequest
    from autotuner.core.sweep import SweepRequest
    from autotuner.core.sweep_requests import GateCreate, OptimizerStudyCreate, RetuneCreate, SweepClone, SweepCreate
    from autotuner.core.trial_spec import Trainer
    from autotuner.core.upkeep import RegressionGateRequest, RetuneRequest
    from autotuner.exports.shared.target import Export, Imported
    from autotuner.runs.past_trials import CalibrationCache
    from autotuner.search.explain.bandwidth import BandwidthCurve
    from autotuner.search.explain.explanation import Explanation
    from autotuner.search.explain.layers import LayerReport
    from autotuner.search.planning.phases import PhasesPlan
    from autotuner.search.planning.plan import PlanRun
    from autotuner.search.planning.request import PlanRequest
    from autotuner.search.support import Support
    from autotuner.store.sql import Store

T = TypeVar("T")

MAX_WORLD_SIZE = 2**20
"""Largest number of accelerators of a cluster: several times the largest existing cluster. The limit keeps a typing
error from making the service compute for long."""

PROFILE = "profile:"
"""Prefix that marks the name of a profile where a cluster is expected."""


class NoNames:
    """A store of named models and clusters that is empty, so that only the names in the catalog are known."""

    def get(self, cls: type[Described], name: str) -> Described:
        """Raise ``NotFound``, because this store is empty."""
        raise NotFound(KINDS[cls], name)


def _no_store() -> Store:
    raise AssertionError("this question needs a store, but none was opened")


@dataclass(frozen=True, slots=True, kw_only=True)
class Autotuner:
    """The product as a Python object, with one method for each question that it answers.

    Raises (methods that take a job):
        InvalidInput: A description breaks a rule.
        NotFound: A name is neither stored nor in the catalog.
    """

    stored_names: StoredNames | None = field(default_factory=NoNames)
    """Stored models, clusters and profiles to use instead of the store's; None: those of the store."""
    open_store: Callable[[], Store] = _no_store
    """Function that opens the store. It is called once, when the store is first needed; a prediction needs none."""
    compute: ComputeService = field(default_factory=Inline)
    """Runs the computations that may take long, in this process or in others."""
    _made: dict[str, Any] = field(default_factory=dict, init=False)
    _making: threading.RLock = field(default_factory=threading.RLock, init=False)  # reentrant

    def _once(self, name: str, make: Callable[[], T]) -> T:
        """Return the object with this name; the first call makes it."""
        with self._making:
            if name not in self._made:
                self._made[name] = make()
            return cast("T", self._made[name])

    @property
    def store(self) -> Store:
        """Return the store of sweeps, trials and other records. Its database is opened at the first call."""
        return self._once("store", self.open_store)

    @property
    def names(self) -> StoredNames:
        """Return the store in which named models, clusters and profiles are looked up before the catalog."""
        return self.stored_names or self.store.descriptions

    # ------------------------------------------------------------------ names
    def model(self, name: str) -> TransformerSpec:
        """Return the stored model of that name; if none is stored, return the model of that name in the catalog."""
        try:
            return self.names.get(TransformerSpec, name)
        except NotFound:
            return load(TransformerSpec, name)

    def cluster(self, name: str, *, is_measured: bool = True) -> Cluster:
        """Return a stored cluster, this machine (``local``), or accelerators of the catalog (``h100:64``).

        If this machine or a stored cluster has a device profile, its measurements replace the usual constants.
        ``profile:NAME`` is this machine with the measurements of the profile NAME.

        Args:
            name: Name of the cluster.
            is_measured: True to measure this machine's cores if the name means this machine. The first measurement
                takes seconds.

        Raises:
            InvalidInput: The profile of that name belongs to a stored cluster, and not to a machine.
        """
        if name == LOCAL:
            own = self._own_profile()
            return _this_machine(is_measured=is_measured) if own is None else _profiled_machine(own)
        if name.startswith(PROFILE):
            profile = self.names.get(DeviceProfile, name.removeprefix(PROFILE))
            if profile.cluster:
                rule = (
                    "must be the profile of this machine, but this profile belongs to the stored cluster "
                    f"{profile.cluster}"
                )
                raise InvalidInput("cluster", name, rule, profile.cluster)
            return replace(_profiled_machine(profile), name=name)
        try:
            stored = self.names.get(Cluster, name)
        except NotFound:
            return load(Cluster, name)
        measured = cluster_profile(self.names, name)
        return stored if measured is None else profiled(stored, measured)

    def _would_measure(self, request: Any) -> bool:
        """Return True if the request names this machine and neither a profile nor a run has measured its cores."""
        if not any(cls is Cluster and name == LOCAL for cls, name in names_in(request)):
            return False
        from autotuner.launch.this_machine import has_to_measure  # noqa: PLC0415  # only where this machine is asked about

        return has_to_measure() and self._own_profile() is None

    def _own_profile(self) -> DeviceProfile | None:
        """Return the profile of this machine under its usual name, if it was taken on this host; else None."""
        from autotuner.host.machine_facts import is_this_host  # noqa: PLC0415  # most predictions are of no measured machine

        try:
            profile = self.names.get(DeviceProfile, LOCAL)
        except NotFound:
            return None
        return profile if is_this_host(profile.host) else None

    def trainer(self, name: str) -> Trainer:
        """Return the trainer that an operator registered under that name. Only a service has registered trainers.

        Raises:
            NotFound: Always, because this object is not a service. A service overrides the method.
        """
        raise NotFound("trainer", name)

    def thing(self, cls: type[T], given: T | str, path: str, *, is_measured: bool = True) -> T:
        """Return the object that a field of a request holds or names, such as a cluster.

        Args:
            cls: Type of the object.
            given: The value of the field: a name, or the object itself.
            path: Path of the field in the request, for messages.
            is_measured: True to measure this machine if it is named, as in ``cluster``.

        Raises:
            InvalidInput: The text is not a name, or the cluster is larger than ``MAX_WORLD_SIZE``.
            NotFound: The name is neither stored nor in the catalog.
        """
        found: Any = self._named(cls, given, is_measured=is_measured) if isinstance(given, str) else given
        if isinstance(found, Cluster):
            found = found if isinstance(given, str) else as_described(found)
            if found.world_size > MAX_WORLD_SIZE:
                rule = f"has {found.world_size:,} accelerators, but may have at most {MAX_WORLD_SIZE:,}"
                raise InvalidInput(path, found.name, rule)
        return cast("T", found)

    def _named(self, cls: type[Any], name: str, *, is_measured: bool) -> Any:
        if cls is Cluster:
            return self.cluster(name, is_measured=is_measured)
        if cls is TransformerSpec:
            return self.model(name)
        return load(cls, name) if cls is Stack else self.trainer(name)

    def resolve(self, request: T, *, is_measured: bool = True) -> T:
        """Return the request with each name, also in nested fields, replaced by the object of that name.

        It raises the same errors as ``thing``. ``is_measured`` is True to measure this machine if it is named.
        """
        return resolve(request, partial(self.thing, is_measured=is_measured))

    # ------------------------------------------------------------------ jobs
    @property
    def calibration_cache(self) -> CalibrationCache:
        """Return the cache of calibrations: the corrections that stored trials give to predictions."""
        from autotuner.runs.past_trials import CalibrationCache  # noqa: PLC0415  # only beside a store

        return self._once("calibration_cache", lambda: CalibrationCache(self.store.history))

    def calibrated(self, job: Job, trainer: str | None = None) -> Job:
        """Return the job with the corrections that stored trials give its predictions; unchanged without such trials.

        ``trainer`` is the name of the trainer that will run the job; None: the built-in decoder.
        """
        return job if self.stored_names is not None else self.calibration_cache.calibrated(job, trainer)

    def job(self, request: JobQuestion) -> Job:
        """Return the job of a request, calibrated by stored trials and by the measured runs in the request.

        Calibration corrects the predictions for the job.
        """
        request = self.resolve(request)
        job = self.measured_job(request, resolved(request.stack))
        return self.calibrated(job) if request.uses_history else job

    def measured_job(self, request: PredictedJobRequest, stack: Stack) -> Job:
        """Return the job of a request, calibrated by the measured runs in the request.

        Calibration corrects the predictions for the job.

        Args:
            request: The request, with each name replaced by the object of that name.
            stack: Training software to predict for.
        """
        job, runs = request.job(stack), []
        for number, run in enumerate(request.measured):
            try:
                own = run.job_like(job)
            except InvalidInput as error:
                raise error.under(f"measured.{number}") from error
            layouts, seconds = LayoutColumns.from_layouts([run.layout]), np.array([run.seconds_of(own)])
            runs.append(MeasuredRuns(job=own, layouts=layouts, step_time_s=seconds))
        return self.compute.ask(calibrated, job, runs) if runs else job

    # ------------------------------------------------------------------ requests to store, with all names resolved
    def sweep(self, request: SweepCreate, check: Callable[[SweepRequest], None] = lambda sweep: None) -> SweepRequest:
        """Return the sweep request with each name replaced by its object.

        Trials of the sweep run the built-in decoder, or the trainer that the request names. Mistakes are refused before
        this machine is measured, because the measurement takes seconds.

        Args:
            request: The request as a caller wrote it, with names.
            check: Function that raises an error for sweeps that the caller refuses. It is also called before the
                measurement.

        Raises:
            InvalidInput: The trainer does not support a value of the search space.
            NotFound: No trainer is registered under that name.
        """
        if self._would_measure(request):
            check(self._sweep(self.resolve(request, is_measured=False)))
        return self._sweep(self.resolve(request))

    def _sweep(self, request: SweepCreate) -> SweepRequest:
        from autotuner.core.sweep import SweepRequest  # noqa: PLC0415  # predictions need none of it

        trainer = None if request.trainer is None else resolved(request.trainer)
        job = self.measured_job(request, Stack() if trainer is None else load(Stack, trainer.stack))
        is_gated, space = request.convergence_gate.enabled, request.space
        return extended(
            SweepRequest,
            request,
            job=job,
            space=self.compute.search(trial_space, job, trainer, space, is_gated=is_gated)
            if trainer
            else trial_space(at_worst(job, request.fault_trace), None, space, is_gated=is_gated),
            objective=replace(request.objective, under_faults=request.fault_trace is not None),
        )

    def clone(self, request: SweepClone, original: SweepRequest) -> SweepRequest:
        """Return the request for a copy of the sweep ``original`` with the changes of ``request``.

        A copy of a sweep that compared runs for a retune or a gate does not compare runs.

        Raises:
            InvalidInput: A changed value breaks a rule together with values of the original.
        """
        request = self.resolve(request)
        job, gate = request.job_like(original.job), replace(original.convergence_gate, **request.convergence_gate)
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
            convergence_gate=gate,
            challenge=None,
            **{name: value for name, value in said.items() if value is not None},
        )

    def gate(self, request: GateCreate) -> RegressionGateRequest:
        """Return the request for a performance regression gate, with each name replaced by its object.

        It raises the errors of ``sweep``, too.

        Raises:
            InvalidDocument: The layout cannot run. The error names every rule that it breaks.
        """
        from autotuner.core.upkeep import RegressionGateRequest  # noqa: PLC0415  # predictions need none of it

        sweep = self.sweep(request)
        if request.layout is not None:
            require_asked(request.layout, sweep.trial_job, trial_rules(sweep.trainer))
        return extended(RegressionGateRequest, request, sweep=sweep)

    def retune(self, request: RetuneCreate) -> RetuneRequest:
        """Return the request for a retune, with each name replaced by its object; raises the errors of ``sweep``.

        A retune is a sweep that starts again on a schedule.
        """
        from autotuner.core.upkeep import RetuneRequest  # noqa: PLC0415  # predictions need none of it

        try:
            template = self.sweep(request.sweep)
        except InvalidInput as error:
            raise error.under("sweep") from error
        return extended(RetuneRequest, request, cron=" ".join(request.cron.split()), template=template)

    def study(self, request: OptimizerStudyCreate) -> OptimizerStudyRequest:
        """Return the request for an optimizer study, with each name replaced by its object."""
        from autotuner.core.study import OptimizerStudyRequest  # noqa: PLC0415  # predictions need none of it

        return extended(OptimizerStudyRequest, request, job=self.resolve(request).job(Stack()))

    # ------------------------------------------------------------------ questions that need no trial
    def predict(self, request: PredictionRequest) -> PredictionTable:
        """Predict the layout that the request names, or find the best layouts of its search space by prediction.

        Raises:
            InvalidInput: The space has no legal layout or too many, the export format cannot express a named value, or
                the cluster lacks a value that the objective needs.
            InvalidDocument: The layout cannot run. The error names every rule that it breaks.
        """
        job = self.job(request)
        require_known(request.objective, job.cluster)
        question = extended(Question, request, job=job, axes=request.space)
        if request.layout is None:
            return self.compute.search(best_of_space, question)
        return self.compute.ask(prediction_of_layout, question, request.layout)

    def layers(self, request: LayersRequest) -> LayerReport:
        """Predict the gain of each layer of communication options for a job; raises the errors of ``predict``.

        A layer is a group of options: parallel strategy, task scheduling, collectives, flow scheduling, network. Each
        layer is searched together with the options of the layers before it.
        """
        from autotuner.search.explain.layers import layer_report  # noqa: PLC0415  # predictions need none of it

        return self.compute.search(layer_report, self.job(request))

    def phases(self, request: PhasesRequest) -> PhasesPlan:
        """Predict the best layout for each phase of a job; raises the errors of ``predict``, too.

        A phase is a part of the training run that has, for example, its own sequence length or batch size.

        Raises:
            InvalidInput: A job cannot have these phases.
        """
        from autotuner.search.planning.phases import PhasesQuestion, plan_phases  # noqa: PLC0415  # predictions need none

        phased = extended(PhasedJob, request, job=self.job(request))
        question = PhasesQuestion(phased=phased, axes=request.space, current=request.current)
        return self.compute.search(plan_phases, question)

    def explain(self, request: ExplanationRequest) -> Explanation:
        """Explain a layout: which parts its time and memory go to, what limits it, and which change would help.

        Raises:
            InvalidDocument: The layout cannot run. The error names every rule that it breaks.
        """
        from autotuner.search.explain.explanation import explain  # noqa: PLC0415  # predictions need none of it

        job = self.job(request)
        require_asked(request.layout, job)
        return self.compute.ask(explain, request.layout, job)

    def bandwidth_curve(self, request: ExplanationRequest) -> BandwidthCurve:
        """Find the fastest way to exchange gradients at each bandwidth between nodes; raises as ``explain`` does."""
        from autotuner.search.explain.bandwidth import bandwidth_curve  # noqa: PLC0415  # predictions need none of it

        job = self.job(request)
        require_asked(request.layout, job)
        return self.compute.ask(bandwidth_curve, request.layout, job)

    def export(self, request: ExportRequest) -> Export:
        """Write a layout as arguments or files of a trainer.

        Without a stack in the request, the format's own stack is assumed.

        Raises:
            InvalidDocument: The layout cannot run. The error names every rule that it breaks.
        """
        from autotuner.exports.formats import export  # noqa: PLC0415  # predictions need none of it
        from autotuner.exports.shared.target import stack_of  # noqa: PLC0415

        request = self.resolve(request)
        stack = load(Stack, stack_of(request.format)) if request.stack is None else resolved(request.stack)
        job = request.job(stack)
        require_asked(request.layout, job)
        return self.compute.ask(export, job, request.layout, request.format, request.launcher)

    def import_configuration(self, request: ImportRequest) -> Imported:
        """Read a trainer's configuration and return the layout in it. A script is parsed and never run.

        Raises:
            InvalidInput: The text is in no known format, or a setting has an impossible value.
        """
        from autotuner.exports.formats import read_with_model  # noqa: PLC0415  # predictions need none of it

        return self.compute.ask(read_with_model, request.text, request.format, request.num_ranks)

    # ------------------------------------------------------------------ catalog
    def list_accelerators(self) -> Listed[Accelerator]:
        """Return the accelerators of the catalog, by name."""
        return Listed.whole([load_accelerator(name) for name in accelerators()])

    def list_catalog_models(self) -> Listed[TransformerSpec]:
        """Return the models of the catalog, by name."""
        return Listed.whole([load_model(name) for name in models()])

    def list_stacks(self) -> Listed[Stack]:
        """Return the training software of the catalog, with the constants that predictions use."""
        return Listed.whole([load_stack(name) for name in stacks()])

    def list_stack_profiles(self) -> Listed[StackProfile]:
        """Return the training software of the catalog, with the measured runs that its constants were fitted to."""
        return Listed.whole([_with_names(profile) for profile in stack_profiles()])

    def read_support(
        self, *, model: str | None = None, accelerator: str | None = None, stack: str | None = None
    ) -> Support:
        """Return what is measured, borrowed and assumed in predictions for accelerators and software stacks.

        Args:
            model: Name of a model; None: all models.
            accelerator: Name or alias of an accelerator of the catalog; None: all accelerators.
            stack: Name of a software stack of the catalog; None: all stacks.
        """
        from autotuner.search.support import support  # noqa: PLC0415  # predictions need none of it

        return support(self.model(model) if model else None, accelerator or "", stack or "")

    # ------------------------------------------------------------------ plans
    def plan(self, request: PlanRequest, hear: Callable[[int, int], None] = lambda done, known: None) -> PlanRun:
        """Compare whole clusters for a training run, and return the finished plan, which is not stored.

        Args:
            request: Request that names or describes clusters.
            hear: Function that is called after each piece of work, with the number of finished pieces and the number of
                all pieces known so far.

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

        found = plan(asked, self.compute, count)
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
        """Close the store if it was opened. This object must not be used afterwards."""
        if "store" in self._made:
            self.store.close()


def _with_names(profile: StackProfile) -> StackProfile:
    """Return the profile with the texts of answers in the place of the words that the catalog counts runs by."""
    compared = tuple(
        replace(entry, options={NAMES.get(word, word): count for word, count in entry.options.items()})
        for entry in profile.compared
    )
    return replace(profile, compared=compared)


def as_described(cluster: Cluster) -> Cluster:
    """Return a cluster from a request with ``peak_is_measured`` set to False.

    A request cannot prove that the peak rates of its accelerator were measured on this machine.
    """
    return replace(cluster, accelerator=replace(cluster.accelerator, peak_is_measured=False))


def is_this_machine(name: str) -> bool:
    """Return True if the name of a cluster means this machine: ``local`` or ``profile:NAME``."""
    return name == LOCAL or name.startswith(PROFILE)


def _profiled_machine(profile: DeviceProfile) -> Cluster:
    """Return this machine as a cluster, with the peaks of a stored profile in place of a measurement."""
    return profiled(_this_machine(is_measured=False), profile)


def _this_machine(*, is_measured: bool) -> Cluster:
    from autotuner.launch.this_machine import (  # noqa: PLC0415  # only where this machine is asked about
        detect_cluster,
        has_to_measure,
        unmeasured_cluster,
    )

    return (detect_cluster if is_measured or not has_to_measure() else unmeasured_cluster)()
