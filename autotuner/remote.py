"""A running service: the whole REST API as methods, each operation of the OpenAPI document under its name there.

What each call does: the API's own documentation (docs/reference/rest.md), whose operations have these names.
"""

from __future__ import annotations

import json
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
from autotuner.core.choices import ExportFormat
from autotuner.core.cluster import Cluster
from autotuner.core.cluster_check import CheckRequest, CheckRun
from autotuner.core.codec import to_plain
from autotuner.core.errors import AutotunerError, StoreUnavailable, quoted
from autotuner.core.health import EngineStanding, Health, Readiness, Trouble, WorkerStanding
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
from autotuner.export.target import Export, Format, Imported
from autotuner.search.explain.bandwidth import BandwidthCurve
from autotuner.search.explain.explanation import Explanation, TrialParts
from autotuner.search.explain.layers import LayerReport, SweepLayers
from autotuner.search.explain.links import LinkTimelines
from autotuner.search.explain.timeline import TrialTimelines
from autotuner.search.planning.phases import PhasesPlan
from autotuner.search.planning.plan import PlanRun
from autotuner.search.planning.request import PlanRequest
from autotuner.search.preview import PredictionTable, SweepPreview
from autotuner.search.results.comparison import LayoutComparison
from autotuner.search.results.failures import FailureGroup
from autotuner.search.results.pairs import MeasuredRules
from autotuner.search.results.reached import RankedTrial
from autotuner.search.results.sensitivity import SweepChoices
from autotuner.search.results.sweep_answer import Accuracy, SweepAnswer
from autotuner.search.results.sweep_front import SweepFront
from autotuner.search.results.trial_query import TableSlice
from autotuner.search.sampler.calibration import Lesson
from autotuner.search.upkeep.retune import TrendPoint
from autotuner.store.options import SweepColumn, TrialFilter

PREFIX = "/api/v1"

T = TypeVar("T")
R = TypeVar("R", bound=Run)

_TIMEOUT_S = 60.0
"""A sweep on ``local`` makes the service measure its cores before it answers."""

_AGAIN_S = 1.0
"""Before a stream of events that was cut is opened again."""

_Any = TrialFilter()


class ServiceError(AutotunerError):
    """The service answered with a problem.

    Attributes:
        status: HTTP status.
        problem: The problem document (RFC 9457): ``field``, ``value``, ``rule`` and ``nearest`` of what was refused.
    """

    def __init__(self, status: int, problem: dict[str, Any]) -> None:
        self.status = status
        self.problem = problem
        super().__init__(str(problem.get("detail") or problem.get("title") or f"HTTP {status}"))


def read_answer(response: httpx.Response, answer: type[T]) -> T:
    """The answer as a value, or as text where ``str`` is asked for; what a newer service has more is left out.

    Raises:
        ServiceError: The service answered with a problem, or something else answered in its place.
        InvalidInput: The answer is of another release, and what is known of it does not fit.
    """
    checked(response)
    if answer is str:
        return cast("T", response.text)
    document = _document(response)
    return cast("T", document) if answer is dict else documents.restore(answer, document)


def checked(response: httpx.Response) -> httpx.Response:
    """The response, unless it is a problem, whose body has been read.

    Raises:
        ServiceError: It is.
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
        told = f"what answered is not the service: {quoted(response.text[:200])} is no JSON"
        raise ServiceError(response.status_code, {"detail": told}) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerEvent:
    """An event of a run."""

    sequence: int
    """Reading goes on behind it after a cut."""
    kind: str
    """Such as ``trial.finished``; docs/reference/events.md lists them."""
    data: dict[str, Any]
    """``at``, epoch seconds, and what is said of such an event."""

    @property
    def is_last(self) -> bool:
        """The sweep is finished."""
        return self.kind == "sweep.finished"


class EventLines:
    """Makes events of a stream's lines, as they come."""

    def __init__(self) -> None:
        self._fields: dict[str, str] = {}

    def add(self, line: str) -> Iterator[ServerEvent]:
        """The event that this line ends, if it does; comments keep a connection open and say nothing.

        Raises:
            ServiceError: It is none of ours: something else answers in the place of the service.
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
        told = f"what was streamed is no event of a sweep: {quoted(dict(said))}"
        raise ServiceError(HTTPStatus.OK, {"detail": told}) from error


class Remote:
    """The REST API, each call answered when it returns.

    Raises (every call):
        ServiceError: The service answered with a problem.
        StoreUnavailable: It did not answer.

    Args:
        url: Where the service and its pages are, such as ``http://127.0.0.1:8000``.
        token: Shown to a service that has a login.
        http: In the place of a client of its own, to set proxies, certificates or timeouts.
    """

    def __init__(self, url: str, *, token: str | None = None, http: httpx.Client | None = None) -> None:
        self.url: str | None = url.rstrip("/")
        """Where the service and its pages are; None where it runs in this process, which no browser reaches."""
        self._http = http or httpx.Client(timeout=_TIMEOUT_S)
        self._http.base_url = httpx.URL(url)
        if token is not None:
            self._http.headers["Authorization"] = f"Bearer {token}"

    def __enter__(self) -> Remote:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close its connections."""
        self._http.close()

    def events(self, run_id: str, *, after: int = 0) -> Iterator[ServerEvent]:
        """Events of a run until it is finished, as they happen; a stream that is cut is opened again.

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
        """What has happened to a run since the event with that number, without waiting for more."""
        seen = {"Last-Event-ID": str(after)}
        text = self._send("GET", f"/runs/{run_id}/events", str, headers=seen, params={"wait": False})
        lines = EventLines()
        return [event for line in text.splitlines() for event in lines.add(line)]

    def wait(self, sweep_id: str) -> SweepStanding:
        """The sweep once it is finished; errors as for ``events``."""
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
        """Send a request, of which values that are None are left out, and read the answer."""
        try:
            response = self._http.request(
                method,
                f"{PREFIX}{path}",
                json=None if body is None else to_plain(body),
                params={name: to_plain(value) for name, value in params.items() if value is not None},
                headers={name: value for name, value in headers.items() if value is not None},
            )
        except httpx.TransportError as error:
            raise StoreUnavailable(f"the service at {self.url} does not answer any more: {error}") from error
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
        """Runs of a kind, newest first, or with ``Run`` of every kind."""
        asked = {"kind": kind_of(kind), "subject": subject, "parent": parent, "state": state}
        return self._get("/runs", Listed[kind], **asked, limit=limit, offset=offset)  # type: ignore[valid-type]  # a class

    def read_run(self, kind: type[R], run_id: str, *, wait_s: float | None = None) -> R:
        """A run of a kind, or with ``Run`` of whatever kind it is; a plan once it is computed or the time is over."""
        return self._get(f"/runs/{run_id}", kind, wait_s=wait_s)

    def cancel_run(self, kind: type[R], run_id: str) -> R:
        """Ask for the end of a run."""
        return self._post(f"/runs/{run_id}/cancel", kind)

    def pause_run(self, kind: type[R], run_id: str) -> R:
        """Have nobody work on a sweep until it is resumed."""
        return self._post(f"/runs/{run_id}/pause", kind)

    def resume_run(self, kind: type[R], run_id: str) -> R:
        """Have a paused sweep go on."""
        return self._post(f"/runs/{run_id}/resume", kind)

    # ---------------------------------------------------------------- sweeps
    def create_sweep(self, body: SweepCreate, *, idempotency_key: str | None = None) -> SweepStanding:
        """Queue a sweep; sent again with the same key, it is the sweep of the first time."""
        return self._post("/sweeps", SweepStanding, body, idempotency_key)

    def preview_sweep(self, body: SweepCreate) -> SweepPreview:
        """What a sweep would search, without starting it."""
        return self._post("/sweeps/preview", SweepPreview, body)

    def list_sweeps(
        self,
        *,
        q: str | None = None,
        state: RunState | None = None,
        owner: str | None = None,
        sort: SweepColumn | None = None,
        order: Literal["ascending", "descending"] | None = None,
        limit: int = 50,
        offset: int = 0,
    ) -> Listed[SweepOverview]:
        """Sweeps, newest first unless another order is asked for."""
        asked = {"q": q, "state": state, "owner": owner, "sort": sort, "order": order}
        return self._get("/sweeps", Listed[SweepOverview], **asked, limit=limit, offset=offset)

    def read_sweep(self, sweep_id: str) -> SweepStanding:
        """A sweep: state, stop reason, progress, trials by state, best trial, and all that was asked."""
        return self._get(f"/sweeps/{sweep_id}", SweepStanding)

    def change_budget(self, sweep_id: str, body: BudgetChange) -> SweepStanding:
        """Give a sweep other limits, each in all; a finished one goes on where it ended."""
        return self._post(f"/sweeps/{sweep_id}/budget", SweepStanding, body)

    def clone_sweep(self, sweep_id: str, body: SweepClone, *, idempotency_key: str | None = None) -> SweepStanding:
        """Queue a sweep that is asked for as another was, but for what the body says; the key is as for a new sweep."""
        return self._post(f"/sweeps/{sweep_id}/clone", SweepStanding, body, idempotency_key)

    def rerun_trial(self, trial_id: str) -> SweepStanding:
        """Have a trial run again, by itself; a finished sweep is opened again to do that alone."""
        return self._post(f"/trials/{trial_id}/rerun", SweepStanding)

    def list_trials(
        self, sweep_id: str, *, where: TrialFilter = _Any, limit: int = 50, offset: int = 0
    ) -> Listed[Trial]:
        """Trials of a sweep by number, without their steps."""
        path = f"/sweeps/{sweep_id}/trials"
        return self._get(path, Listed[Trial], **asdict(where), limit=limit, offset=offset)

    def rank_sweep(
        self, sweep_id: str, *, where: TrialFilter = _Any, limit: int = 50, offset: int = 0
    ) -> Listed[RankedTrial]:
        """Trials of a sweep by what it maximises, the best first."""
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
        """Trials of a sweep, or the best that none tried, as a table: ``where="tp=4 mfu>40", sort="-tokens"``."""
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
        """The same table as CSV, every row."""
        return self._get(f"/sweeps/{sweep_id}/table.csv", str, where=where, sort=sort, columns=columns, rows=rows)

    def rank_all(self, *, where: TrialFilter = _Any, limit: int = 50, offset: int = 0) -> Listed[RankedTrial]:
        """Trials of all sweeps by measured MFU, highest first."""
        return self._get("/ranking", Listed[RankedTrial], **asdict(where), limit=limit, offset=offset)

    def read_trial(self, trial_id: str) -> RankedTrial:
        """A trial: layout, prediction, measurement or failure, loss gate, and its steps."""
        return self._get(f"/trials/{trial_id}", RankedTrial)

    def read_rules(self, sweep_id: str) -> MeasuredRules:
        """What pairs of trials of a sweep that differ in one option show."""
        return self._get(f"/sweeps/{sweep_id}/rules", MeasuredRules)

    def read_answer(self, sweep_id: str) -> SweepAnswer:
        """What to train with by a sweep, how sure that is, what it beats and why."""
        return self._get(f"/sweeps/{sweep_id}/answer", SweepAnswer)

    def read_choices(self, sweep_id: str, *, rows: str | None = None, columns: str | None = None) -> SweepChoices:
        """Which choices mattered in a sweep, and the best of every pair of values of two of them."""
        return self._get(f"/sweeps/{sweep_id}/choices", SweepChoices, rows=rows, columns=columns)

    def read_failures(self, sweep_id: str) -> Listed[FailureGroup]:
        """Trials of a sweep that died, grouped by cause."""
        return self._get(f"/sweeps/{sweep_id}/failures", Listed[FailureGroup])

    def read_layers(self, sweep_id: str) -> SweepLayers:
        """What each layer of communication gives to a sweep's job, predicted and measured."""
        return self._get(f"/sweeps/{sweep_id}/layers", SweepLayers)

    def read_accuracy(self, sweep_id: str) -> Accuracy:
        """Predictions of a sweep beside what its trials reached."""
        return self._get(f"/sweeps/{sweep_id}/accuracy", Accuracy)

    def read_front(self, sweep_id: str, *, metrics: str = "", profile: str = "") -> SweepFront:
        """The trials of a sweep that no other beats in everything; ``mfu=2,tokens_per_dollar=1`` is a profile."""
        return self._get(f"/sweeps/{sweep_id}/front", SweepFront, metrics=metrics, profile=profile)

    # ---------------------------------------------------------------- predictions and what explains them
    def predict(self, body: PredictionRequest) -> PredictionTable:
        """Predict one layout, or the best of a space, without running anything."""
        return self._post("/predictions", PredictionTable, body)

    def create_plan(self, body: PlanRequest) -> PlanRun:
        """Compare whole clusters for a training run; ``answer`` is None until ``read_plan`` finds it computed."""
        return self._post("/plans", PlanRun, body)

    def explain_layout(self, body: ExplanationRequest) -> Explanation:
        """Where a layout's time and memory go, and what lies one step away."""
        return self._post("/explanations", Explanation, body)

    def plan_job_phases(self, body: PhasesRequest) -> PhasesPlan:
        """The layout of each phase of a job, where switches cost."""
        return self._post("/job-phases", PhasesPlan, body)

    def report_layers(self, body: LayersRequest) -> LayerReport:
        """What each layer of communication gives to a job, by prediction."""
        return self._post("/layer-reports", LayerReport, body)

    def explain_trial(self, trial_id: str) -> Explanation:
        """The explanation of a trial's layout."""
        return self._get(f"/trials/{trial_id}/explanation", Explanation)

    def draw_bandwidth_curve(self, body: ExplanationRequest) -> BandwidthCurve:
        """Which way to share gradients is fastest, by the bandwidth between nodes."""
        return self._post("/bandwidth-curves", BandwidthCurve, body)

    def read_bandwidth_curve(self, trial_id: str) -> BandwidthCurve:
        """The same of a trial's layout."""
        return self._get(f"/trials/{trial_id}/bandwidth-curve", BandwidthCurve)

    def read_link_timelines(self, trial_id: str) -> LinkTimelines:
        """A trial's step with healthy links beside the same with slow ones."""
        return self._get(f"/trials/{trial_id}/link-timelines", LinkTimelines)

    def read_timeline(self, trial_id: str) -> TrialTimelines:
        """When each pass of a trial's step begins and ends, predicted beside measured."""
        return self._get(f"/trials/{trial_id}/timeline", TrialTimelines)

    def read_parts(self, trial_id: str) -> TrialParts:
        """A trial's step and memory by part, predicted beside measured."""
        return self._get(f"/trials/{trial_id}/parts", TrialParts)

    def list_calibrations(self, *, cluster: str | None = None) -> Listed[Lesson]:
        """What stored trials teach about hardware and software."""
        return self._get("/calibrations", Listed[Lesson], cluster=cluster)

    # ---------------------------------------------------------------- trainers' words
    def list_formats(self) -> Listed[Format]:
        """Trainers whose words a layout can be said in."""
        return self._get("/exports/formats", Listed[Format])

    def export_layout(self, body: ExportRequest) -> Export:
        """A layout in the words of a trainer."""
        return self._post("/exports", Export, body)

    def export_trial(self, trial_id: str, *, format: ExportFormat | None = None) -> Export:  # noqa: A002  # as the API calls it
        """A trial's layout in the words of a trainer."""
        return self._get(f"/trials/{trial_id}/export", Export, format=format)

    def import_configuration(self, body: ImportRequest) -> Imported:
        """The layout that a trainer's configuration describes."""
        return self._post("/imports", Imported, body)

    # ---------------------------------------------------------------- topologies
    def read_topology(self, body: TopologyRequest) -> TopologyReading:
        """What files say of a network or of nodes, and what it means."""
        return self._post("/topologies", TopologyReading, body)

    # ---------------------------------------------------------------- optimizer studies
    def create_optimizer_study(self, body: OptimizerStudyCreate, *, idempotency_key: str | None = None) -> StudyRun:
        """Have optimizers tried with a layout until their losses are at a target."""
        return self._post("/optimizer-studies", StudyRun, body, idempotency_key)

    # ---------------------------------------------------------------- retunes
    def list_retunes(self) -> Listed[Retune]:
        """Retunes by name."""
        return self._get("/retunes", Listed[Retune])

    def create_retune(self, body: RetuneCreate) -> Retune:
        """Have a layout measured again and again, and others searched around it."""
        return self._post("/retunes", Retune, body)

    def read_retune(self, name: str) -> Retune:
        """A retune and how it stands."""
        return self._get(f"/retunes/{name}", Retune)

    def remove_retune(self, name: str) -> Retune:
        """Forget a retune and its runs."""
        return self._delete(f"/retunes/{name}", Retune)

    def pause_retune(self, name: str) -> Retune:
        """Start no runs until it is resumed."""
        return self._post(f"/retunes/{name}/pause", Retune)

    def resume_retune(self, name: str) -> Retune:
        """Start runs when they are due again."""
        return self._post(f"/retunes/{name}/resume", Retune)

    def adopt_layout(self, name: str, body: Adoption) -> Retune:
        """Put a layout in the place of the incumbent."""
        return self._post(f"/retunes/{name}/adopt", Retune, body)

    def run_retune(self, name: str) -> RetuneRun:
        """Start a run now."""
        return self._post(f"/retunes/{name}/runs", RetuneRun)

    def read_retune_trend(self, name: str) -> Listed[TrendPoint]:
        """What the incumbent measured from run to run, over the band of its noise."""
        return self._get(f"/retunes/{name}/trend", Listed[TrendPoint])

    # ---------------------------------------------------------------- MFU gates
    def create_gate(self, body: GateCreate) -> GateRun:
        """Hold a layout to a stored baseline."""
        return self._post("/gates", GateRun, body)

    def read_gate_junit(self, gate_id: str) -> str:
        """The result as JUnit XML."""
        return self._get(f"/gates/{gate_id}/junit.xml", str)

    def read_gate_summary(self, gate_id: str) -> str:
        """The result as Markdown."""
        return self._get(f"/gates/{gate_id}/summary.md", str)

    def read_gate_badge(self, gate_id: str) -> str:
        """The result as an SVG badge."""
        return self._get(f"/gates/{gate_id}/badge.svg", str)

    def list_baselines(self) -> Listed[Baseline]:
        """What MFU gates compare with."""
        return self._get("/baselines", Listed[Baseline])

    def remove_baseline(self, name: str, key: str) -> Baseline:
        """Forget a baseline."""
        return self._delete(f"/baselines/{name}/{key}", Baseline)

    def read_baseline_badge(self, name: str) -> str:
        """The newest gate of a baseline as an SVG badge."""
        return self._get(f"/badges/{name}", str)

    # ---------------------------------------------------------------- announcements
    def list_webhooks(self) -> Listed[WebhookStanding]:
        """Where outcomes are posted."""
        return self._get("/webhooks", Listed[WebhookStanding])

    def create_webhook(self, body: WebhookCreate) -> WebhookCreated:
        """Have outcomes posted somewhere; the answer alone has the secret."""
        return self._post("/webhooks", WebhookCreated, body)

    def read_webhook(self, name: str) -> WebhookStanding:
        """A webhook."""
        return self._get(f"/webhooks/{name}", WebhookStanding)

    def remove_webhook(self, name: str) -> WebhookStanding:
        """Forget a webhook and its deliveries."""
        return self._delete(f"/webhooks/{name}", WebhookStanding)

    def test_webhook(self, name: str) -> WebhookAnswer:
        """Post something to it now."""
        return self._post(f"/webhooks/{name}/test", WebhookAnswer)

    def list_deliveries(
        self, *, webhook: str | None = None, state: DeliveryState | None = None, limit: int = 50, offset: int = 0
    ) -> Listed[Delivery]:
        """Deliveries, newest first."""
        return self._get("/deliveries", Listed[Delivery], webhook=webhook, state=state, limit=limit, offset=offset)

    def send_again(self, delivery_id: str) -> Delivery:
        """Try a delivery again that was given up."""
        return self._post(f"/deliveries/{delivery_id}/send-again", Delivery)

    def json_feed(self, *, limit: int = 50, offset: int = 0) -> dict[str, Any]:
        """Outcomes as a JSON Feed."""
        return self._get("/feed.json", dict, limit=limit, offset=offset)

    def atom_feed(self, *, limit: int = 50, offset: int = 0) -> str:
        """Outcomes as Atom."""
        return self._get("/feed.atom", str, limit=limit, offset=offset)

    # ---------------------------------------------------------------- models and clusters
    def list_models(self) -> Stored[TransformerSpec]:
        """Stored models by name."""
        return self._get("/models", Stored[TransformerSpec])

    def read_model(self, name: str) -> TransformerSpec:
        """A stored model, else one of the catalog."""
        return self._get(f"/models/{name}", TransformerSpec)

    def save_model(self, name: str, body: TransformerSpec | Mapping[str, object]) -> TransformerSpec:
        """Store a model: our own fields, a ``base`` of the catalog with changes, or a ``config.json``."""
        return self._send("PUT", f"/models/{name}", TransformerSpec, body=body)

    def remove_model(self, name: str) -> TransformerSpec:
        """Forget a stored model; sweeps keep what they were given."""
        return self._delete(f"/models/{name}", TransformerSpec)

    def list_clusters(self) -> Stored[Cluster]:
        """Stored clusters by name."""
        return self._get("/clusters", Stored[Cluster])

    def read_cluster(self, name: str) -> Cluster:
        """A stored cluster, ``local``, or an accelerator of the catalog with a count."""
        return self._get(f"/clusters/{name}", Cluster)

    def save_cluster(self, name: str, body: Cluster | Mapping[str, object]) -> Cluster:
        """Store a cluster, whose accelerator and links may be names of the catalog."""
        return self._send("PUT", f"/clusters/{name}", Cluster, body=body)

    def remove_cluster(self, name: str) -> Cluster:
        """Forget a stored cluster, its checks and what they measured."""
        return self._delete(f"/clusters/{name}", Cluster)

    def list_engines(self) -> Listed[EngineStanding]:
        """Engines that clusters may name."""
        return self._get("/engines", Listed[EngineStanding])

    def create_check(self, name: str, body: CheckRequest) -> CheckRun:
        """Ask a cluster's engine, run a small trial on two nodes, and measure the links between them."""
        return self._post(f"/clusters/{name}/checks", CheckRun, body)

    def list_links(self, name: str) -> ClusterLinks:
        """What is known of a cluster's links."""
        return self._get(f"/clusters/{name}/links", ClusterLinks)

    # ---------------------------------------------------------------- who may call
    def read_caller(self) -> CallerUsage:
        """Who the service takes this client for, and what that may take."""
        return self._get("/caller", CallerUsage)

    def list_tokens(self) -> Listed[Token]:
        """Tokens of all callers, without their secrets."""
        return self._get("/tokens", Listed[Token])

    def create_token(self, body: TokenCreate) -> TokenCreated:
        """Let a person or a program in; the answer alone has the token."""
        return self._post("/tokens", TokenCreated, body)

    def revoke_token(self, token_id: str) -> Token:
        """Take a token back, with the sessions that it opened."""
        return self._post(f"/tokens/{token_id}/revoke", Token)

    def read_audit(self, *, caller: str | None = None, limit: int = 50, offset: int = 0) -> Listed[AuditEntry]:
        """Who changed what and who was refused, newest first."""
        return self._get("/audit", Listed[AuditEntry], caller=caller, limit=limit, offset=offset)

    # ---------------------------------------------------------------- what the service knows and is
    def compare_layouts(self, body: ComparisonRequest) -> LayoutComparison:
        """What differs between layouts, which is faster and whether by more than noise, and through which parts."""
        return self._post("/comparisons", LayoutComparison, body)

    def list_attention(self) -> Listed[Trouble]:
        """What went wrong and stands unmended, with the page where to go on with it."""
        return self._get("/attention", Listed[Trouble])

    def list_workers(self) -> Listed[WorkerStanding]:
        """Workers that say that they live."""
        return self._get("/workers", Listed[WorkerStanding])

    def list_accelerators(self) -> Listed[Accelerator]:
        """Accelerators of the catalog."""
        return self._get("/catalog/accelerators", Listed[Accelerator])

    def read_accelerator(self, name: str) -> SourcedAccelerator:
        """An accelerator with its sources."""
        return self._get(f"/catalog/accelerators/{name}", SourcedAccelerator)

    def list_catalog_models(self) -> Listed[TransformerSpec]:
        """Models of the catalog."""
        return self._get("/catalog/models", Listed[TransformerSpec])

    def list_networks(self) -> Listed[NetworkPreset]:
        """Networks that a cluster can name."""
        return self._get("/catalog/networks", Listed[NetworkPreset])

    def list_stacks(self) -> Listed[Stack]:
        """Training software of the catalog."""
        return self._get("/catalog/stacks", Listed[Stack])

    def list_stack_profiles(self) -> Listed[StackProfile]:
        """Of which versions that software is, and what it was fitted to."""
        return self._get("/stacks", Listed[StackProfile])

    def list_trainers(self) -> Listed[TrainerOffer]:
        """Trainers that sweeps may name."""
        return self._get("/trainers", Listed[TrainerOffer])

    def health(self) -> Health:
        """Whether the process answers."""
        return self._get("/health", Health)

    def ready(self) -> Readiness:
        """Whether the database answers and is migrated."""
        return self._get("/ready", Readiness)
