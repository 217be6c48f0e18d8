"""A client of a running service: the whole REST API as methods, named like the OpenAPI operations.

docs/reference/rest.md describes the operations.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from http import HTTPStatus
from types import MappingProxyType
from typing import Any, Literal, TypeVar, cast

import httpx

from autotuner.catalog.hardware import SourcedAccelerator
from autotuner.catalog.networks import NetworkPreset
from autotuner.catalog.software import StackProfile
from autotuner.catalog.topology.reading import TopologyReading, TopologyRequest
from autotuner.core import documents
from autotuner.core.accelerator import Accelerator
from autotuner.core.access import AuditEntry, CallerUsage, Token, TokenCreate, TokenCreated
from autotuner.core.announcement import (
    Delivery,
    DeliveryState,
    WebhookAnswer,
    WebhookCreate,
    WebhookCreated,
    WebhookStanding,
)
from autotuner.core.choices import ExportFormat, ExportLauncher
from autotuner.core.cluster import Cluster
from autotuner.core.cluster_check import CheckRequest, CheckRun
from autotuner.core.codec import to_plain
from autotuner.core.comment import Comment, CommentCreate
from autotuner.core.errors import AutotunerError, StoreUnavailable, quoted
from autotuner.core.health import EngineStanding, Health, Incident, Readiness, WorkerStanding
from autotuner.core.listed import Listed, Stored
from autotuner.core.model import TransformerSpec
from autotuner.core.profile import ClusterLinks
from autotuner.core.requests import (
    ComparisonRequest,
    ExplanationRequest,
    ExportRequest,
    ImportRequest,
    LayersRequest,
    PhasesRequest,
    PredictionRequest,
)
from autotuner.core.run import Run, RunState, kind_of
from autotuner.core.stack import Stack
from autotuner.core.study import StudyRun
from autotuner.core.sweep import SweepOverview, SweepStanding
from autotuner.core.sweep_requests import (
    Adoption,
    BudgetChange,
    GateCreate,
    OptimizerStudyCreate,
    RetuneCreate,
    SweepClone,
    SweepCreate,
)
from autotuner.core.trial import Trial
from autotuner.core.trial_spec import TrainerOffer
from autotuner.core.upkeep import Baseline, GateRun, Retune, RetuneRun
from autotuner.exports.shared.target import Export, Format, Imported
from autotuner.search.explain.bandwidth import BandwidthCurve
from autotuner.search.explain.explanation import Explanation, TrialParts
from autotuner.search.explain.layers import LayerReport, SweepLayers
from autotuner.search.explain.link_timelines import LinkTimelines
from autotuner.search.explain.timeline import TrialTimelines
from autotuner.search.planning.phases import PhasesPlan
from autotuner.search.planning.plan import PlanRun
from autotuner.search.planning.request import PlanRequest
from autotuner.search.preview import PredictionTable, SweepPreview
from autotuner.search.results.failures import FailureGroup
from autotuner.search.results.layout_comparison import LayoutComparison
from autotuner.search.results.pairs import MeasuredRules
from autotuner.search.results.reached import RankedTrial
from autotuner.search.results.sensitivity import SweepChoices
from autotuner.search.results.sweep_answer import Accuracy, SweepAnswer
from autotuner.search.results.sweep_front import SweepFront
from autotuner.search.results.trial_query import TableSlice
from autotuner.search.sampler.learnt_factors import LearntCalibration
from autotuner.search.support import Support
from autotuner.search.upkeep.retune import TrendPoint
from autotuner.store.options import SweepColumn, TrialFilter

_LOG = logging.getLogger("autotuner")

PREFIX = "/api/v1"

T = TypeVar("T")
R = TypeVar("R", bound=Run)

_TIMEOUT_S = 60.0
"""Timeout of a request in seconds. It is long, because a sweep on ``local`` makes the service measure its cores
first."""

_AGAIN_S = 1.0
"""Seconds before an interrupted stream of events is opened again."""

_Any = TrialFilter()


class ServiceError(AutotunerError):
    """Raised when the service answers a request with an error (a problem document).

    Attributes:
        status: HTTP status.
        problem: The problem document (RFC 9457). For a refused value, it has the ``field``, the ``value``, the
            ``rule`` that the value breaks, and the ``nearest`` legal value.
    """

    def __init__(self, status: int, problem: dict[str, Any]) -> None:
        self.status = status
        self.problem = problem
        super().__init__(str(problem.get("detail") or problem.get("title") or f"HTTP {status}"))


def read_answer(response: httpx.Response, answer: type[T]) -> T:
    """Return the body of a response as a value of type ``answer``, or as plain text if the type is ``str``.

    Fields that only a newer release of the service has are ignored.

    Raises:
        ServiceError: The service answered with a problem, or another server answered.
        InvalidInput: The service has another release, and a field of its answer does not fit this release.
    """
    checked(response)
    if answer is str:
        return cast("T", response.text)
    document = _document(response)
    return cast("T", document) if answer is dict else documents.restore(answer, document)


def checked(response: httpx.Response) -> httpx.Response:
    """Return the response, or raise an error if the service answered with a problem.

    The body of the response must have been read.

    Raises:
        ServiceError: The service answered with a problem.
    """
    if not response.is_error:
        return response
    is_problem = response.headers.get("content-type", "").startswith("application/problem+json")
    problem = _document(response) if is_problem else {}
    raise ServiceError(response.status_code, problem if isinstance(problem, dict) else {})


def _document(response: httpx.Response) -> Any:
    try:
        return response.json()
    except (ValueError, RecursionError) as error:
        detail = f"the server that answered is not the service: {quoted(response.text[:200])} is not JSON"
        raise ServiceError(response.status_code, {"detail": detail}) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerEvent:
    """An event of a run that the service reports, such as the end of a trial."""

    sequence: int
    """Number of the event. Reading continues after it when a stream was interrupted."""
    kind: str
    """Kind of the event, such as ``trial.finished``; docs/reference/events.md lists the kinds."""
    data: dict[str, Any]
    """Time ``at`` in epoch seconds, and further facts about the event."""

    @property
    def is_last(self) -> bool:
        """Return True if this is the last event, because the run is finished."""
        return self.kind == "sweep.finished"


class EventLines:
    """A parser that turns the lines of an event stream into events as the lines arrive."""

    def __init__(self) -> None:
        self._fields: dict[str, str] = {}

    def add(self, line: str) -> Iterator[ServerEvent]:
        """Read one line of the stream, and yield the event that ends with it, if any.

        Comment lines are ignored; the service sends them to keep the connection open.

        Raises:
            ServiceError: The line is not from the service; another server answers in its place.
        """
        name, separator, value = line.partition(": ")
        if name and separator:
            self._fields[name] = value
        elif not line and "data" in self._fields:
            said, self._fields = self._fields, {}
            yield _event(said)


def _event(said: Mapping[str, str]) -> ServerEvent:
    try:
        return ServerEvent(sequence=int(said["id"]), kind=said["event"], data=json.loads(said["data"]))
    except (KeyError, ValueError, RecursionError) as error:
        detail = f"the server sent something that is not an event of a sweep: {quoted(dict(said))}"
        raise ServiceError(HTTPStatus.OK, {"detail": detail}) from error


class Remote:
    """A client for the REST API of a running service. Each method returns when the service has answered.

    Raises (every call):
        ServiceError: The service answered with a problem.
        StoreUnavailable: The service did not answer.

    Args:
        url: Address of the service, such as ``http://127.0.0.1:8000``.
        token: Token for a service that has a login.
        http: Client with its own proxies, certificates or timeouts; None: a default client.
    """

    def __init__(self, url: str, *, token: str | None = None, http: httpx.Client | None = None) -> None:
        self.url: str | None = url.rstrip("/")
        """Address of the service and its pages; None if the service runs in this process, where no browser reaches
        it."""
        self._noted = set[str]()
        """Requests that are in the log; equal requests are logged for debugging only."""
        self._http = http or httpx.Client(timeout=_TIMEOUT_S)
        self._http.base_url = httpx.URL(url)
        if token is not None:
            self._http.headers["Authorization"] = f"Bearer {token}"

    def __enter__(self) -> Remote:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections of this client. It must not be used afterwards."""
        self._http.close()

    def events(self, run_id: str, *, after: int = 0) -> Iterator[ServerEvent]:
        """Yield the events of a run as they happen, until it is finished. An interrupted stream is opened again.

        ``after`` is the number of the last event that the caller has; 0: all events.

        Raises:
            ServiceError: The service answered with a problem.
        """
        url, patience = f"{PREFIX}/runs/{run_id}/events", httpx.Timeout(_TIMEOUT_S, read=None)
        while True:
            lines, headers = EventLines(), {"Last-Event-ID": str(after)}
            try:
                with self._http.stream("GET", url, headers=headers, timeout=patience) as response:
                    if response.is_error:
                        response.read()
                    checked(response)
                    for line in response.iter_lines():
                        for event in lines.add(line):
                            after = event.sequence
                            yield event
                    return
            except httpx.TransportError:
                time.sleep(_AGAIN_S)

    def events_so_far(self, run_id: str, *, after: int = 0) -> list[ServerEvent]:
        """Return the events of a run that have happened so far, without waiting for more.

        ``after`` is the number of the last event that the caller has; 0: all events.
        """
        seen = {"Last-Event-ID": str(after)}
        text = self._send("GET", f"/runs/{run_id}/events", str, headers=seen, params={"wait": False})
        lines = EventLines()
        return [event for line in text.splitlines() for event in lines.add(line)]

    def wait(self, sweep_id: str) -> SweepStanding:
        """Wait until the sweep is finished and return it. Errors are those of ``events``."""
        for _ in self.events(sweep_id):
            pass
        return self.read_sweep(sweep_id)

    def _send(
        self,
        method: str,
        path: str,
        answer: type[T],
        *,
        body: object = None,
        headers: Mapping[str, str | None] = MappingProxyType({}),
        params: Mapping[str, object] = MappingProxyType({}),
    ) -> T:
        """Send a request without values that are None, and return the answer."""
        began_at = time.monotonic()
        try:
            response = self._http.request(
                method,
                f"{PREFIX}{path}",
                json=None if body is None else to_plain(body),
                params={name: to_plain(value) for name, value in params.items() if value is not None},
                headers={name: value for name, value in headers.items() if value is not None},
            )
        except httpx.TransportError as error:
            raise StoreUnavailable(
                f"the service at {self.url} no longer answers ({error}); check that it runs"
            ) from error
        line = f"{method} {PREFIX}{path}: {response.status_code}"
        level = logging.DEBUG if line in self._noted else logging.INFO  # a followed run is read twice a second
        _LOG.log(level, "%s in %.2f s", line, time.monotonic() - began_at)
        self._noted.add(line)
        return read_answer(response, answer)

    def _get(self, path: str, answer: type[T], **params: object) -> T:
        return self._send("GET", path, answer, params=params)

    def _post(self, path: str, answer: type[T], body: object = None, key: str | None = None) -> T:
        return self._send("POST", path, answer, body=body, headers={"Idempotency-Key": key})

    def _delete(self, path: str, answer: type[T]) -> T:
        return self._send("DELETE", path, answer)

    # ---------------------------------------------------------------- runs of any kind
    def list_runs(
        self,
        kind: type[R],
        *,
        subject: str | None = None,
        parent: str | None = None,
        state: RunState | None = None,
        limit: int = 50,
        offset: int = 0,
    ) -> Listed[R]:
        """Return runs of one kind, newest first; with the kind ``Run``, runs of all kinds.

        Args:
            kind: Type of the runs.
            subject: Only runs of the cluster, retune or baseline with this name; None: all.
            parent: Only runs that were queued for the run with this id; None: all.
            state: Only runs in this state; None: all.
            limit: Largest number of runs to return.
            offset: Number of runs to skip.
        """
        asked = {"kind": kind_of(kind), "subject": subject, "parent": parent, "state": state}
        return self._get("/runs", Listed[kind], **asked, limit=limit, offset=offset)  # type: ignore[valid-type]  # a class

    def read_run(self, kind: type[R], run_id: str, *, wait_s: float | None = None) -> R:
        """Return the run of that id and kind; with the kind ``Run``, a run of any kind.

        If the run is a plan, the service waits up to ``wait_s`` seconds until it is computed; None: it does not wait.
        """
        return self._get(f"/runs/{run_id}", kind, wait_s=wait_s)

    def cancel_run(self, kind: type[R], run_id: str) -> R:
        """Ask the service to cancel a run, and return the run.

        If a worker executes the run, the run is not cancelled before that worker has ended it.
        """
        return self._post(f"/runs/{run_id}/cancel", kind)

    def pause_run(self, kind: type[R], run_id: str) -> R:
        """Pause a sweep until it is resumed, and return it.

        ``kind`` is the type of the result. The service refuses to pause runs that are not sweeps.
        """
        return self._post(f"/runs/{run_id}/pause", kind)

    def resume_run(self, kind: type[R], run_id: str) -> R:
        """Resume a paused sweep, and return it. ``kind`` is the type of the result."""
        return self._post(f"/runs/{run_id}/resume", kind)

    # ---------------------------------------------------------------- sweeps
    def create_sweep(self, body: SweepCreate, *, idempotency_key: str | None = None) -> SweepStanding:
        """Queue a sweep, and return it. A call with the same idempotency key returns the sweep of the first call."""
        return self._post("/sweeps", SweepStanding, body, idempotency_key)

    def preview_sweep(self, body: SweepCreate) -> SweepPreview:
        """Return a preview of a sweep, without starting it: the number of layouts, and the best predicted ones."""
        return self._post("/sweeps/preview", SweepPreview, body)

    def list_sweeps(
        self,
        *,
        q: str | None = None,
        state: RunState | None = None,
        owner: str | None = None,
        tag: str | None = None,
        sort: SweepColumn | None = None,
        order: Literal["ascending", "descending"] | None = None,
        limit: int = 50,
        offset: int = 0,
    ) -> Listed[SweepOverview]:
        """Return the sweeps that match all given filters, newest first unless another order is requested.

        Args:
            q: Words that must occur in the sweep's name, id, model, cluster, engine or owner.
            state: Only sweeps in this state.
            owner: Only sweeps of this caller.
            tag: Only sweeps that have this tag, or have a trial with this tag.
            sort: Column to sort by.
            order: Direction of the order.
            limit: Largest number of sweeps to return.
            offset: Number of sweeps to skip.
        """
        asked = {"q": q, "state": state, "owner": owner, "tag": tag, "sort": sort, "order": order}
        return self._get("/sweeps", Listed[SweepOverview], **asked, limit=limit, offset=offset)

    def read_sweep(self, sweep_id: str) -> SweepStanding:
        """Return a sweep: state, stop reason, progress, trials by state, best trial, and the request."""
        return self._get(f"/sweeps/{sweep_id}", SweepStanding)

    def change_budget(self, sweep_id: str, body: BudgetChange) -> SweepStanding:
        """Change limits of a sweep's budget. Each limit is a total that includes what the sweep has already used.

        A finished sweep continues where it ended.
        """
        return self._post(f"/sweeps/{sweep_id}/budget", SweepStanding, body)

    def clone_sweep(self, sweep_id: str, body: SweepClone, *, idempotency_key: str | None = None) -> SweepStanding:
        """Queue a copy of a sweep with the changes in ``body``. The idempotency key works as in ``create_sweep``."""
        return self._post(f"/sweeps/{sweep_id}/clone", SweepStanding, body, idempotency_key)

    def create_comment(self, sweep_id: str, body: CommentCreate) -> Comment:
        """Write a comment (a text, tags, or both) on a sweep or on one of its trials, and return it."""
        return self._post(f"/sweeps/{sweep_id}/comments", Comment, body)

    def list_comments(
        self, sweep_id: str, *, trial_number: int | None = None, limit: int = 50, offset: int = 0
    ) -> Listed[Comment]:
        """Return the comments on a sweep and on all its trials, newest first.

        If ``trial_number`` is given, only the comments on that trial are returned.
        """
        asked = {"trial_number": trial_number, "limit": limit, "offset": offset}
        return self._get(f"/sweeps/{sweep_id}/comments", Listed[Comment], **asked)

    def remove_comment(self, comment_id: str) -> Comment:
        """Remove a comment, and return it. Only its author and admins may do this."""
        return self._delete(f"/comments/{comment_id}", Comment)

    def rerun_trial(self, trial_id: str) -> SweepStanding:
        """Run an ended trial again, to see how much equal runs differ, and return its sweep.

        No other trial runs at the same time. A finished sweep is opened again for this trial only.
        """
        return self._post(f"/trials/{trial_id}/rerun", SweepStanding)

    def list_trials(
        self, sweep_id: str, *, where: TrialFilter = _Any, limit: int = 50, offset: int = 0
    ) -> Listed[Trial]:
        """Return the trials of a sweep that match the filter, ordered by number, without their steps."""
        path = f"/sweeps/{sweep_id}/trials"
        return self._get(path, Listed[Trial], **asdict(where), limit=limit, offset=offset)

    def rank_sweep(
        self, sweep_id: str, *, where: TrialFilter = _Any, limit: int = 50, offset: int = 0
    ) -> Listed[RankedTrial]:
        """Return the ranked trials of a sweep, ordered by the value of its objective, best first."""
        path = f"/sweeps/{sweep_id}/ranking"
        return self._get(path, Listed[RankedTrial], **asdict(where), limit=limit, offset=offset)

    def read_table(
        self,
        sweep_id: str,
        *,
        where: str = "",
        sort: str = "",
        columns: str = "",
        rows: Literal["ranked", "untried"] = "ranked",
        limit: int = 50,
        offset: int = 0,
    ) -> TableSlice:
        """Return ranked trials, or the best untried layouts, as a table.

        Args:
            sweep_id: Id of the sweep.
            where: Filter, such as ``tp=4 mfu>40``; empty: all rows.
            sort: Column to sort by, such as ``-tokens`` for the largest first; empty: the order of the ranking.
            columns: Names of the columns; empty: the usual columns.
            rows: ``ranked`` for trials, or ``untried`` for predicted layouts that no trial ran.
            limit: Largest number of rows to return.
            offset: Number of rows to skip.
        """
        path, window = f"/sweeps/{sweep_id}/table", {"limit": limit, "offset": offset}
        return self._get(path, TableSlice, where=where, sort=sort, columns=columns, rows=rows, **window)

    def read_table_csv(
        self,
        sweep_id: str,
        *,
        where: str = "",
        sort: str = "",
        columns: str = "",
        rows: Literal["ranked", "untried"] = "ranked",
    ) -> str:
        """Return every row of a sweep's table as CSV. The arguments are those of ``read_table``."""
        return self._get(f"/sweeps/{sweep_id}/table.csv", str, where=where, sort=sort, columns=columns, rows=rows)

    def rank_all(self, *, where: TrialFilter = _Any, limit: int = 50, offset: int = 0) -> Listed[RankedTrial]:
        """Return the ranked trials of all sweeps, ordered by measured MFU, highest first."""
        return self._get("/ranking", Listed[RankedTrial], **asdict(where), limit=limit, offset=offset)

    def read_trial(self, trial_id: str) -> RankedTrial:
        """Return a trial: its layout, prediction, measurement or failure, convergence gate, and training steps."""
        return self._get(f"/trials/{trial_id}", RankedTrial)

    def read_rules(self, sweep_id: str) -> MeasuredRules:
        """Return the effect of each option on the results of a sweep.

        An effect comes from pairs of trials that differ in this option only.
        """
        return self._get(f"/sweeps/{sweep_id}/rules", MeasuredRules)

    def read_answer(self, sweep_id: str) -> SweepAnswer:
        """Return the recommended layout of a sweep, how certain it is, the layouts that it beats, and why."""
        return self._get(f"/sweeps/{sweep_id}/answer", SweepAnswer)

    def read_choices(self, sweep_id: str, *, rows: str | None = None, columns: str | None = None) -> SweepChoices:
        """Return the options that mattered in a sweep, and the best trial for each pair of values of two options.

        ``rows`` and ``columns`` name these two options; None: the two options that matter most.
        """
        return self._get(f"/sweeps/{sweep_id}/choices", SweepChoices, rows=rows, columns=columns)

    def read_failures(self, sweep_id: str) -> Listed[FailureGroup]:
        """Return the failed trials of a sweep, grouped by cause, with a remedy for each group."""
        return self._get(f"/sweeps/{sweep_id}/failures", Listed[FailureGroup])

    def read_layers(self, sweep_id: str) -> SweepLayers:
        """Return the gain of each layer of communication options for a sweep's job, predicted and measured.

        A layer is a group of options, such as those of collectives.
        """
        return self._get(f"/sweeps/{sweep_id}/layers", SweepLayers)

    def read_accuracy(self, sweep_id: str) -> Accuracy:
        """Return each prediction of a sweep with the result of its trial, and the errors of the predictions."""
        return self._get(f"/sweeps/{sweep_id}/accuracy", Accuracy)

    def read_front(self, sweep_id: str, *, metrics: str = "", profile: str = "") -> SweepFront:
        """Return the Pareto front of a sweep: the trials that no other trial beats in every metric.

        ``metrics`` names the metrics to compare. ``profile`` gives weights, like ``mfu=2,tokens_per_dollar=1``.
        """
        return self._get(f"/sweeps/{sweep_id}/front", SweepFront, metrics=metrics, profile=profile)

    # ---------------------------------------------------------------- predictions and explanations
    def predict(self, body: PredictionRequest) -> PredictionTable:
        """Predict one layout, or the best layouts of a search space, without running anything."""
        return self._post("/predictions", PredictionTable, body)

    def create_plan(self, body: PlanRequest) -> PlanRun:
        """Ask the service to compare whole clusters for a training run, and return this comparison, a plan.

        The plan's ``result`` is None until it is computed; ``read_run`` returns the plan again later.
        """
        return self._post("/plans", PlanRun, body)

    def explain_layout(self, body: ExplanationRequest) -> Explanation:
        """Return the time and memory of a layout by part, and the layouts that differ from it in one option only."""
        return self._post("/explanations", Explanation, body)

    def plan_job_phases(self, body: PhasesRequest) -> PhasesPlan:
        """Return the best layout for each phase of a job, with the cost of switching between layouts."""
        return self._post("/job-phases", PhasesPlan, body)

    def report_layers(self, body: LayersRequest) -> LayerReport:
        """Return the predicted gain of each layer of communication options for a job.

        A layer is a group of options, such as those of collectives.
        """
        return self._post("/layer-reports", LayerReport, body)

    def explain_trial(self, trial_id: str) -> Explanation:
        """Return the time and memory of a trial's layout by part, as ``explain_layout`` does."""
        return self._get(f"/trials/{trial_id}/explanation", Explanation)

    def draw_bandwidth_curve(self, body: ExplanationRequest) -> BandwidthCurve:
        """Return which way of exchanging gradients is fastest for a layout, at each bandwidth between nodes."""
        return self._post("/bandwidth-curves", BandwidthCurve, body)

    def read_bandwidth_curve(self, trial_id: str) -> BandwidthCurve:
        """Return which way of exchanging gradients is fastest for a trial's layout, at each bandwidth between nodes."""
        return self._get(f"/trials/{trial_id}/bandwidth-curve", BandwidthCurve)

    def read_link_timelines(self, trial_id: str) -> LinkTimelines:
        """Return two timelines of a trial's step: one on nominal links and one on degraded links."""
        return self._get(f"/trials/{trial_id}/link-timelines", LinkTimelines)

    def read_timeline(self, trial_id: str) -> TrialTimelines:
        """Return the predicted and the measured timeline of a trial's step: start and end of each pass.

        The measured timeline is missing if the trial was not profiled.
        """
        return self._get(f"/trials/{trial_id}/timeline", TrialTimelines)

    def read_parts(self, trial_id: str) -> TrialParts:
        """Return the step time and the memory of a trial, divided into parts, each predicted and measured."""
        return self._get(f"/trials/{trial_id}/parts", TrialParts)

    def list_calibrations(self, *, cluster: str | None = None) -> Listed[LearntCalibration]:
        """Return the corrections of predictions that stored trials give, for each kind of hardware and software.

        If ``cluster`` names a cluster, only corrections for its accelerator are returned.
        """
        return self._get("/calibrations", Listed[LearntCalibration], cluster=cluster)

    # ---------------------------------------------------------------- configurations of trainers
    def list_formats(self) -> Listed[Format]:
        """Return the export formats, each with its trainer's release and the options that it cannot express."""
        return self._get("/exports/formats", Listed[Format])

    def export_layout(self, body: ExportRequest) -> Export:
        """Return a layout as arguments or configuration files of a trainer, with the options that the trainer lacks."""
        return self._post("/exports", Export, body)

    def export_trial(
        self,
        trial_id: str,
        *,
        format: ExportFormat | None = None,  # noqa: A002  # as the API calls it
        launcher: ExportLauncher | None = None,
    ) -> Export:
        """Return the layout of a trial as arguments or configuration files of a trainer.

        ``format`` is the trainer's format. The service refuses a request without it. ``launcher`` is the program that
        starts the trainer; with it, the answer has scripts.
        """
        return self._get(f"/trials/{trial_id}/export", Export, format=format, launcher=launcher)

    def import_configuration(self, body: ImportRequest) -> Imported:
        """Read a trainer's arguments, script or configuration file, and return the layout in it. Nothing is run."""
        return self._post("/imports", Imported, body)

    # ---------------------------------------------------------------- topologies
    def read_topology(self, body: TopologyRequest) -> TopologyReading:
        """Read files that describe a network or nodes, and return their content.

        If the request names a cluster, the answer also has this cluster with the links of the files.
        """
        return self._post("/topologies", TopologyReading, body)

    # ---------------------------------------------------------------- optimizer studies
    def create_optimizer_study(self, body: OptimizerStudyCreate, *, idempotency_key: str | None = None) -> StudyRun:
        """Queue an optimizer study, which trains one layout with several optimizer settings until a target loss.

        A call with the same idempotency key returns the study of the first call.
        """
        return self._post("/optimizer-studies", StudyRun, body, idempotency_key)

    # ---------------------------------------------------------------- retunes
    def list_retunes(self) -> Listed[Retune]:
        """Return all retunes (jobs that are tuned again on a schedule), ordered by name."""
        return self._get("/retunes", Listed[Retune])

    def create_retune(self, body: RetuneCreate) -> Retune:
        """Create a retune, which measures the layout in use on a schedule and searches for better ones."""
        return self._post("/retunes", Retune, body)

    def read_retune(self, name: str) -> Retune:
        """Return a retune (a job that is tuned again on a schedule): its schedule, layout in use and last run."""
        return self._get(f"/retunes/{name}", Retune)

    def remove_retune(self, name: str) -> Retune:
        """Remove a retune (a job that is tuned again on a schedule) and its runs. The sweeps of the runs stay."""
        return self._delete(f"/retunes/{name}", Retune)

    def pause_retune(self, name: str) -> Retune:
        """Pause a retune (a job that is tuned again on a schedule), so that no runs start until it is resumed."""
        return self._post(f"/retunes/{name}/pause", Retune)

    def resume_retune(self, name: str) -> Retune:
        """Resume a retune (a job that is tuned again on a schedule), so that its runs start again when they are due."""
        return self._post(f"/retunes/{name}/resume", Retune)

    def adopt_layout(self, name: str, body: Adoption) -> Retune:
        """Set the layout in use of a retune. The next runs of the retune compare other layouts with this layout.

        A retune is a job that is tuned again on a schedule.
        """
        return self._post(f"/retunes/{name}/adopt", Retune, body)

    def run_retune(self, name: str) -> RetuneRun:
        """Start a run of a retune (a job that is tuned again on a schedule) now, without changing its next due time."""
        return self._post(f"/retunes/{name}/runs", RetuneRun)

    def read_retune_trend(self, name: str) -> Listed[TrendPoint]:
        """Return the results of a retune's layout in use from run to run, each with the range that noise explains."""
        return self._get(f"/retunes/{name}/trend", Listed[TrendPoint])

    # ---------------------------------------------------------------- performance regression gates
    def create_gate(self, body: GateCreate) -> GateRun:
        """Start a performance regression gate, which measures whether a layout trains slower than a stored baseline."""
        return self._post("/gates", GateRun, body)

    def read_gate_junit(self, gate_id: str) -> str:
        """Return the result of a performance regression gate as JUnit XML, for a CI system."""
        return self._get(f"/gates/{gate_id}/junit.xml", str)

    def read_gate_summary(self, gate_id: str) -> str:
        """Return the result of a performance regression gate as Markdown, for the summary of a CI job."""
        return self._get(f"/gates/{gate_id}/summary.md", str)

    def read_gate_badge(self, gate_id: str) -> str:
        """Return the result of a performance regression gate as an SVG badge with its MFU."""
        return self._get(f"/gates/{gate_id}/badge.svg", str)

    def list_baselines(self) -> Listed[Baseline]:
        """Return the stored baselines, by name: earlier results that performance regression gates compare with."""
        return self._get("/baselines", Listed[Baseline])

    def remove_baseline(self, name: str, key: str) -> Baseline:
        """Remove a baseline, the earlier result that performance regression gates compare with, to accept a slowdown.

        Args:
            name: Name of the baseline.
            key: Key of the job that the baseline belongs to, as ``list_baselines`` returns it.
        """
        return self._delete(f"/baselines/{name}/{key}", Baseline)

    def read_baseline_badge(self, name: str) -> str:
        """Return an SVG badge with the MFU of the newest finished gate that may set the baseline ``name``."""
        return self._get(f"/badges/{name}", str)

    # ---------------------------------------------------------------- announcements
    def list_webhooks(self) -> Listed[WebhookStanding]:
        """Return the webhooks, by name: URLs to which the service posts outcomes, such as the end of a sweep."""
        return self._get("/webhooks", Listed[WebhookStanding])

    def create_webhook(self, body: WebhookCreate) -> WebhookCreated:
        """Create a webhook, to which the service posts outcomes. Only this answer contains its secret."""
        return self._post("/webhooks", WebhookCreated, body)

    def read_webhook(self, name: str) -> WebhookStanding:
        """Return the webhook with that name, and how many of its deliveries wait or were given up."""
        return self._get(f"/webhooks/{name}", WebhookStanding)

    def remove_webhook(self, name: str) -> WebhookStanding:
        """Remove the webhook with that name and its deliveries."""
        return self._delete(f"/webhooks/{name}", WebhookStanding)

    def test_webhook(self, name: str) -> WebhookAnswer:
        """Post a test message to a webhook now, and return the answer of its receiver."""
        return self._post(f"/webhooks/{name}/test", WebhookAnswer)

    def list_deliveries(
        self, *, webhook: str | None = None, state: DeliveryState | None = None, limit: int = 50, offset: int = 0
    ) -> Listed[Delivery]:
        """Return deliveries (posts of announced outcomes to webhooks), newest first.

        ``webhook`` and ``state`` select the deliveries to one webhook, or those in one state; None: all.
        """
        return self._get("/deliveries", Listed[Delivery], webhook=webhook, state=state, limit=limit, offset=offset)

    def send_again(self, delivery_id: str) -> Delivery:
        """Queue a delivery (the post of an outcome to a webhook) again, even if it has arrived or was given up."""
        return self._post(f"/deliveries/{delivery_id}/send-again", Delivery)

    def json_feed(self, *, limit: int = 50, offset: int = 0) -> dict[str, Any]:
        """Return the announced outcomes of sweeps, gates and retunes as a JSON Feed."""
        return self._get("/feed.json", dict, limit=limit, offset=offset)

    def atom_feed(self, *, limit: int = 50, offset: int = 0) -> str:
        """Return the announced outcomes of sweeps, gates and retunes as an Atom feed."""
        return self._get("/feed.atom", str, limit=limit, offset=offset)

    # ---------------------------------------------------------------- models and clusters
    def list_models(self) -> Stored[TransformerSpec]:
        """Return the models that callers have stored, ordered by name; those of the catalog are not among them."""
        return self._get("/models", Stored[TransformerSpec])

    def read_model(self, name: str) -> TransformerSpec:
        """Return a stored model; if none of that name is stored, return the model of that name in the catalog."""
        return self._get(f"/models/{name}", TransformerSpec)

    def save_model(self, name: str, body: TransformerSpec | Mapping[str, object]) -> TransformerSpec:
        """Store a model under a name.

        ``body`` has all fields of the model, the name of a catalog model (``base``) with changed fields, or the
        ``config.json`` of a model that is published on Hugging Face.
        """
        return self._send("PUT", f"/models/{name}", TransformerSpec, body=body)

    def remove_model(self, name: str) -> TransformerSpec:
        """Remove a stored model. Sweeps keep their own copies of it."""
        return self._delete(f"/models/{name}", TransformerSpec)

    def list_clusters(self) -> Stored[Cluster]:
        """Return the clusters that callers have stored, ordered by name."""
        return self._get("/clusters", Stored[Cluster])

    def read_cluster(self, name: str) -> Cluster:
        """Return a stored cluster, this machine (``local``), or catalog accelerators with a count (``h100:64``)."""
        return self._get(f"/clusters/{name}", Cluster)

    def save_cluster(self, name: str, body: Cluster | Mapping[str, object]) -> Cluster:
        """Store a cluster under a name that requests can use. Its accelerator and links may be names of the catalog."""
        return self._send("PUT", f"/clusters/{name}", Cluster, body=body)

    def remove_cluster(self, name: str) -> Cluster:
        """Remove a stored cluster with its checks and their measurements."""
        return self._delete(f"/clusters/{name}", Cluster)

    def list_engines(self) -> Listed[EngineStanding]:
        """Return the engines (such as Slurm) that clusters may name, and whether each answers and has its queues."""
        return self._get("/engines", Listed[EngineStanding])

    def create_check(self, name: str, body: CheckRequest) -> CheckRun:
        """Queue a check of a cluster: it calls the engine, runs a small trial, and measures devices and links."""
        return self._post(f"/clusters/{name}/checks", CheckRun, body)

    def list_links(self, name: str) -> ClusterLinks:
        """Return the links of a cluster, with the described and the measured values of each."""
        return self._get(f"/clusters/{name}/links", ClusterLinks)

    # ---------------------------------------------------------------- access
    def read_caller(self) -> CallerUsage:
        """Return the caller whose credentials this client sends, with its scope and quota."""
        return self._get("/caller", CallerUsage)

    def list_tokens(self) -> Listed[Token]:
        """Return the API tokens of all callers, without their secrets."""
        return self._get("/tokens", Listed[Token])

    def create_token(self, body: TokenCreate) -> TokenCreated:
        """Create an API token for a person or a program. Only this answer contains its text."""
        return self._post("/tokens", TokenCreated, body)

    def revoke_token(self, token_id: str) -> Token:
        """Revoke an API token, and the browser sessions that were opened with it."""
        return self._post(f"/tokens/{token_id}/revoke", Token)

    def read_audit(self, *, caller: str | None = None, limit: int = 50, offset: int = 0) -> Listed[AuditEntry]:
        """Return the audit log: changes and refused requests with their callers, newest first.

        ``caller`` limits it to the requests of one caller; None: all callers.
        """
        return self._get("/audit", Listed[AuditEntry], caller=caller, limit=limit, offset=offset)

    # ---------------------------------------------------------------- the service itself
    def compare_layouts(self, body: ComparisonRequest) -> LayoutComparison:
        """Compare layouts: return which layout is faster, how certain this is, and the parts of a step that differ."""
        return self._post("/comparisons", LayoutComparison, body)

    def list_attention(self) -> Listed[Incident]:
        """Return the incidents that nobody has fixed yet, each with the address of the page where people handle it."""
        return self._get("/attention", Listed[Incident])

    def list_workers(self) -> Listed[WorkerStanding]:
        """Return the workers that sent a heartbeat to the service within a day, each with the sweep that it runs."""
        return self._get("/workers", Listed[WorkerStanding])

    def list_accelerators(self) -> Listed[Accelerator]:
        """Return the accelerators of the catalog, with the constants that predictions use."""
        return self._get("/catalog/accelerators", Listed[Accelerator])

    def read_accelerator(self, name: str) -> SourcedAccelerator:
        """Return an accelerator of the catalog by its name or alias, with the source and the date of every value."""
        return self._get(f"/catalog/accelerators/{name}", SourcedAccelerator)

    def list_catalog_models(self) -> Listed[TransformerSpec]:
        """Return the models of the catalog, which requests can use by name."""
        return self._get("/catalog/models", Listed[TransformerSpec])

    def list_networks(self) -> Listed[NetworkPreset]:
        """Return the networks of the catalog, such as ``fat-tree-2to1``, that a cluster can name."""
        return self._get("/catalog/networks", Listed[NetworkPreset])

    def list_stacks(self) -> Listed[Stack]:
        """Return the training software (stacks) that predictions know, with the constants of each."""
        return self._get("/catalog/stacks", Listed[Stack])

    def list_stack_profiles(self) -> Listed[StackProfile]:
        """Return the training software of the catalog, with its versions and the measured runs it was fitted to."""
        return self._get("/stacks", Listed[StackProfile])

    def read_support(
        self, *, model: str | None = None, accelerator: str | None = None, stack: str | None = None
    ) -> Support:
        """Return what is measured, borrowed and assumed in predictions for accelerators and software stacks.

        Args:
            model: Name of a model; None: all models.
            accelerator: Name or alias of an accelerator of the catalog; None: all accelerators.
            stack: Name of a software stack of the catalog; None: all stacks.
        """
        return self._get("/support", Support, model=model, accelerator=accelerator, stack=stack)

    def list_trainers(self) -> Listed[TrainerOffer]:
        """Return the trainers that an operator registered, with the layout options that a sweep may search."""
        return self._get("/trainers", Listed[TrainerOffer])

    def health(self) -> Health:
        """Ask whether the process of the service runs, and return its answer."""
        return self._get("/health", Health)

    def ready(self) -> Readiness:
        """Ask whether the database of the service is reachable and migrated, and return the service's answer."""
        return self._get("/ready", Readiness)
