"""Predictions of a space, of a layout, and of a sweep before it starts, including whether the sweep can run at all."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Self

from autotuner.core.caveat import Caveat
from autotuner.core.choices import ExportFormat, Precision
from autotuner.core.cluster import Cluster
from autotuner.core.codec import to_plain
from autotuner.core.columns import LayoutColumns, concatenate
from autotuner.core.errors import InvalidInput, Violation
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.model import ModelSize
from autotuner.core.objective import Objective
from autotuner.core.rules.legality import RULES, require_asked
from autotuner.core.rules.rule import Rule
from autotuner.core.space import SearchSpace, default_space
from autotuner.core.units import format_bytes
from autotuner.costmodel.predict import predict_one
from autotuner.costmodel.resource_cost import resource_cost_of
from autotuner.search.caveats import caveats
from autotuner.search.compute import ComputeService
from autotuner.search.predicted_ranking import BestLayouts, ComparedBy, PredictedLayout, best_predicted
from autotuner.search.space.elimination import MOST_REASONS, Sieved, eliminate, empty_space
from autotuner.search.space.legal import SpaceTooLarge, legal_chunks
from autotuner.search.space.moves import Alternative
from autotuner.search.space.trainers import sayable_space, trial_rules
from autotuner.search.suggestions import Advice, Current, Shortfall, advice, current_beside

if TYPE_CHECKING:
    from autotuner.core.sweep import SweepRequest
    from autotuner.search.sampler.proxies import ProxyTrials

_DAY_S = 86_400.0

_MOST: Mapping[str, float] = {
    "trial.timeout_s": 7 * _DAY_S,
    "trial.measuring_budget_s": 7 * _DAY_S,
    "trial.num_runs": 1000,
    "trial.max_repeats": 1000,
    "trial.warmup_steps": 100_000,
    "trial.max_warmup_steps": 100_000,
    "trial.measured_steps": 100_000,
    "trial.max_measured_steps": 100_000,
    "trial.profiled_steps": 1000,
    "trial.num_validation_batches": 1000,
    "convergence_gate.num_steps": 100_000,
    "convergence_gate.num_lossy_steps": 100_000,
    "max_parallel_trials": 1000,
}
"""Largest values of settings that are useful. A trial that takes a week holds its devices for a week."""

MAX_SEARCHED = 2_000_000
"""Largest number of legal layouts of a sweep. A sweep keeps each with its prediction, half a kilobyte, and evaluates
all of them before each trial."""


def require_modest(request: SweepRequest) -> None:
    """Raise an error if a number in a sweep request is too large, or if the weights do not fit into the cluster.

    The cluster must hold at least one copy of the weights. This check is skipped for a registered trainer, for trials
    with fewer layers, and for trials on another cluster.

    Raises:
        InvalidInput: A number exceeds its limit, or the weights need more memory than the whole cluster has.
    """
    for name, most in _MOST.items():
        if (value := attrgetter(name)(request)) > most:
            raise InvalidInput(name, value, f"must be {most:g} or less", most)
    if request.trainer is not None or request.trial.proxy_layers_per_stage or request.trial_cluster is not None:
        return
    cluster, model = request.job.cluster, request.job.model
    has_bytes = cluster.world_size * cluster.accelerator.memory_bytes
    needs_bytes = (2 if cluster.accelerator.kind != "cpu" else 4) * model.num_parameters
    if needs_bytes > has_bytes:
        needs = f"needs {format_bytes(needs_bytes)} of memory for one copy of its weights"
        rule = (
            f"{needs}, but all accelerators of {cluster.name} together have {format_bytes(has_bytes)}; "
            "use a larger cluster"
        )
        raise InvalidInput("model", model.name, rule)


def require_layouts(request: SweepRequest, *, most: int = MAX_SEARCHED) -> None:
    """Raise an error unless a trial can run at least one layout of the search space of a sweep request.

    If trials run on a smaller cluster, they are proxy trials, which run smaller layouts in place of the job's layouts.
    In this case, at least one layout of the job must have a proxy trial.

    Args:
        request: The sweep request.
        most: Maximum number of legal layouts that the space may have.

    Raises:
        InvalidInput: A trial can run no layout (the error gives the reasons), or a number of the request exceeds its
            limit.
        SpaceTooLarge: The space has more than ``most`` legal layouts, or it is too large to be enumerated.
    """
    require_modest(request)
    rules = trial_rules(request.trainer)
    chunks, num_legal = [], 0
    for chunk in legal_chunks(request.job, request.space, rules):
        chunks.append(chunk)
        num_legal += len(chunk)
        if num_legal > most:
            rule = "is the number of legal layouts, which is too many to search; name fewer values for some options"
            raise SpaceTooLarge("space", f"more than {most}", rule, most)
    if not num_legal:
        raise empty_space(request.job, request.space, rules, "holds no layout that a trial can run")
    if request.small_cluster:
        trials = trials_on(request, request.small_cluster, concatenate(chunks))
        if not len(trials):
            whys = "; ".join(f"{count} layouts: {why}" for why, count in trials.refused[:MOST_REASONS])
            rule = f"no trial on this smaller cluster can represent a layout of the job: {whys}"
            raise InvalidInput("trial_cluster", request.small_cluster.name, rule)


def trials_on(request: SweepRequest, cluster: Cluster, layouts: LayoutColumns) -> ProxyTrials:
    """Return the proxy trials of a sweep. A proxy trial runs a smaller layout in place of a layout of the sweep's job.

    Args:
        request: The sweep request.
        cluster: The smaller cluster, on which the proxy trials run.
        layouts: Legal layouts of the sweep's job.
    """
    from autotuner.search.sampler.proxies import proxy_trials  # noqa: PLC0415  # predictions need none of it

    is_whole = request.trainer is not None
    return proxy_trials(request.trial_job, layouts, cluster, trial_rules(request.trainer), whole_model=is_whole)


# ---------------------------------------------------------------- answers
@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A request for predictions for a job: either of the best layouts of a search space, or of one given layout."""

    job: Job
    axes: Mapping[str, tuple[int, ...] | None] = field(default_factory=dict)
    """Values that were named, by axis. Axes without an entry take the values that suit the job."""
    limit: int = 10
    """Number of layouts that are returned."""
    current: Layout | None = None
    """Layout that runs today."""
    format: ExportFormat | None = None
    """Export format that must be able to express the layouts; None: any layout."""
    objective: Objective = field(default_factory=Objective)
    """Objective by which layouts are compared."""

    @property
    def searched(self) -> tuple[SearchSpace, tuple[Rule, ...]]:
        """The search space of the request, with defaults for options that it does not name, and its rules."""
        if self.format is None:
            return default_space(self.job).with_axes(**self.axes), RULES
        return sayable_space(self.job, self.format, self.axes, self.current)


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionTable:
    """A table of predicted layouts, such as the best ones of a search space. Nothing in it was measured."""

    model_size: ModelSize
    """Size of the model."""
    items: tuple[PredictedLayout, ...]
    """Layouts that are predicted to fit, the highest first by predicted value (MFU or the requested objective) x
    probability to fit; or the one layout that was requested."""
    reference_precision: Precision
    """Format of the reference peak."""
    reference_flop_per_s: float
    """Dense peak of one accelerator, which is the reference of every MFU in the table."""
    num_legal: int | None = None
    """Number of layouts of the space that break no rule; null if one layout was requested."""
    num_fitting: int | None = None
    """Number of legal layouts that are predicted to fit in memory; null if one layout was requested."""
    caveats: tuple[Caveat, ...]
    """Caveats for the reader: parts that were never compared with a measured run, parts with constants from other
    hardware, and results of the measured runs that were sent."""
    unchanged: PredictedLayout | None = None
    """Best layout that is numerically equivalent to plain training; null if a row of the table is equivalent already,
    or if there is no such layout."""
    not_searched: tuple[Alternative, ...] = ()
    """Layouts outside the space that differ from the best one in one option and are expected to be better, the fastest
    first."""
    shortfall: Shortfall | None = None
    """Missing memory and possible remedies, if no layout fits."""
    current: Current | None = None
    """Layout that runs today, if the request names it."""

    @classmethod
    def of(cls, job: Job, items: tuple[PredictedLayout, ...], caveats: tuple[Caveat, ...], **beside: Any) -> Self:
        """Return a table with these rows. The job gives its model size, and the peak FLOP/s by which MFU is computed.

        Args:
            job: The job for which the layouts were predicted.
            items: The rows.
            caveats: Caveats for the reader.
            beside: Values of other fields of the table.
        """
        accelerator = job.cluster.accelerator
        return cls(
            model_size=ModelSize.of(job.model),
            items=items,
            reference_precision=accelerator.reference_precision,
            reference_flop_per_s=accelerator.reference_flop_per_s,
            caveats=caveats,
            **beside,
        )

    @classmethod
    def of_best(cls, job: Job, best: BestLayouts, advice: Advice, current: Current | None = None) -> Self:
        """Return a table of the best layouts of a space, with their ranks, advice and the layout that runs today.

        Args:
            job: The job.
            best: The best layouts of the space.
            advice: Options outside the space that would be faster, or remedies if no layout fits in memory.
            current: The layout that runs today; None: unknown.
        """
        shown = [row.layout for row in best.rows]
        return cls.of(
            job,
            tuple(replace(row, rank=rank) for rank, row in enumerate(best.rows, 1)),
            best.caveats if current is None else _caveats(job, shown, current),
            num_legal=best.num_legal,
            num_fitting=best.num_fitting,
            unchanged=best.unchanged,
            not_searched=advice.not_searched,
            shortfall=advice.shortfall,
            current=current,
        )


def best_of_space(question: Question) -> PredictionTable:
    """Return the best predicted layouts of a question's search space, with advice on options outside the space.

    If the question names the layout that runs today, the answer compares this layout with the best one.

    Raises:
        InvalidInput: The space has no legal layout or too many. Or the question names a value that its export format
            cannot express.
    """
    job, (space, rules) = question.job, question.searched
    compared = ComparedBy(objective=question.objective)
    best = best_predicted(job, space, limit=question.limit, rules=rules, compared_by=compared)
    if not best.num_legal:
        raise empty_space(job, space, rules, "holds no legal layout")
    current = _current(question, (best.rows or (None,))[0], best.unchanged)
    return PredictionTable.of_best(job, best, advice(job, space, best, rules), current)


def prediction_of_layout(question: Question, layout: Layout) -> PredictionTable:
    """Return the prediction of one layout, compared with the layout that runs today if the question names one.

    Raises:
        InvalidDocument: The layout cannot run; the error lists every rule that it breaks.
    """
    job = question.job
    require_asked(layout, job)
    prediction = predict_one(layout, job)
    resource_cost = resource_cost_of(layout, job, prediction)
    row = PredictedLayout(rank=1, layout=layout, prediction=prediction, resource_cost=resource_cost)
    current = _current(question, row, None)
    return PredictionTable.of(job, (row,), _caveats(job, [layout], current), current=current)


def _current(question: Question, best: PredictedLayout | None, unchanged: PredictedLayout | None) -> Current | None:
    if question.current is None:
        return None
    return current_beside(question.current, question.job, best=best, unchanged=unchanged)


def _caveats(job: Job, shown: list[Layout], current: Current | None) -> tuple[Caveat, ...]:
    today = [] if current is None or current.candidate is None else [current.layout]
    return caveats(job, LayoutColumns.from_layouts([*shown, *today]))


# ---------------------------------------------------------------- a sweep before it is asked for
@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutsWithoutProxy:
    """One reason why layouts have no proxy trial, and the number of layouts to which it applies.

    A proxy trial runs a smaller layout on the smaller cluster in place of a layout of the job.
    """

    why: str
    num_layouts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyCoverage:
    """The number of layouts that have a proxy trial, and for each reason the number of layouts that have none.

    A proxy trial runs a smaller layout on the smaller cluster in place of a layout of the job.
    """

    num_layouts: int
    """Number of legal layouts of the job that have a proxy trial."""
    refused: tuple[LayoutsWithoutProxy, ...]
    """Reasons why the other layouts have no proxy trial, the most frequent first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepPreview:
    """A preview of a sweep: the layouts that it would search, with predictions. It measures and stores nothing."""

    space: SearchSpace
    """Axes with the values that the sweep would try; null: every legal value."""
    sieved: Sieved | None
    """Number of layouts that each rule removes from all combinations of these values. Each layout counts for one rule.
    Null if there are too many layouts to apply the rules one by one."""
    predicted: PredictionTable
    """Number of layouts that a trial can run, number of these that are predicted to fit, the best by prediction, and
    remedies if none fits."""
    proxy_trials: ProxyCoverage | None
    """Layouts that proxy trials cover, if trials run on a smaller cluster."""
    refusal: Violation | None = None
    """Reason why this service would refuse the sweep; null if it would start it."""


def preview(request: SweepRequest, *, limit: int = 3, with_remedies: bool = True) -> SweepPreview:
    """Return a preview of a sweep: the space that it would search, and the best layouts by prediction.

    Args:
        request: The sweep request.
        limit: Maximum number of best layouts to return.
        with_remedies: Search for remedies if no layout fits in memory. This takes several times as long as the rest of
            the preview.

    Raises:
        InvalidInput: The space has no layout that a trial can run; the error gives the reasons.
        SpaceTooLarge: The space is too large to be enumerated.
    """
    job, space, rules = request.legal_job, request.space, trial_rules(request.trainer)
    compared = ComparedBy(objective=request.objective, trace=request.fault_trace)
    table = best_predicted(request.trial_job, space, limit=limit, rules=rules, compared_by=compared)
    if not table.num_legal:
        raise empty_space(job, space, rules, "holds no layout that a trial can run")
    if table.nearest is not None and not with_remedies:
        lacks = max(0.0, table.nearest.prediction.memory.total_bytes - job.cluster.accelerator.memory_bytes)
        found = Advice(shortfall=Shortfall(nearest=table.nearest, missing_bytes=lacks, remedies=(), larger=None))
    else:
        found = advice(job, space, table, rules)
    proxy_trials = None
    if request.small_cluster is not None:
        trials = trials_on(request, request.small_cluster, concatenate(list(legal_chunks(request.job, space, rules))))
        refused = tuple(LayoutsWithoutProxy(why=why, num_layouts=count) for why, count in trials.refused)
        proxy_trials = ProxyCoverage(num_layouts=len(trials), refused=refused)
    return SweepPreview(
        space=space,
        sieved=eliminate(job, space, rules),
        predicted=PredictionTable.of_best(request.trial_job, table, found),
        proxy_trials=proxy_trials,
    )


_KEPT = 64
"""Number of previews that are cached, a few kilobytes each."""


class Previews:
    """A cache of previews of sweeps. Helper processes compute the previews. Any thread may use the cache."""

    def __init__(self, compute: ComputeService, kept: int = _KEPT) -> None:
        self._compute = compute
        self._kept = kept
        self._found: OrderedDict[str, SweepPreview | InvalidInput] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, request: SweepRequest, *, with_remedies: bool = True) -> SweepPreview:
        """Return the preview of a sweep. If an equal preview was requested before, it comes from the cache.

        The method raises the same errors as ``preview``. Errors are cached too, because it takes as long to find an
        error as to compute a preview.

        Args:
            request: The sweep request.
            with_remedies: See ``preview``.
        """
        key = _key(request, with_remedies)
        with self._lock:
            found = self._found.get(key)
        if found is None:
            found = self._computed(request, with_remedies)
        with self._lock:
            self._found[key] = found
            self._found.move_to_end(key)
            while len(self._found) > self._kept:
                self._found.popitem(last=False)
        if isinstance(found, InvalidInput):
            raise found
        return found

    def _computed(self, request: SweepRequest, with_remedies: bool) -> SweepPreview | InvalidInput:
        try:
            return self._compute.search(preview, request, with_remedies=with_remedies)
        except InvalidInput as refusal:
            return refusal


def _key(request: SweepRequest, *more: object) -> str:
    """Return a key that is equal for sweeps with the same search.

    Names, budgets and measuring settings do not change the key.
    """
    searched = (request.trial_job, request.space, request.trainer, request.small_cluster, request.fault_trace, *more)
    return json.dumps(to_plain(searched), sort_keys=True)
