"""Client: the whole REST API as methods, each operation of the OpenAPI document under its name there."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Literal, TypeVar

import httpx

from api import schemas
from api.schemas import (
    Adoption,
    BudgetChange,
    ComparisonRequest,
    ExplanationRequest,
    ExportRequest,
    GateCreate,
    ImportRequest,
    LayersRequest,
    OptimizerStudyCreate,
    PhasesRequest,
    PlanRequest,
    PredictionRequest,
    RetuneCreate,
    SweepClone,
    SweepCreate,
    TokenCreate,
    TopologyRequest,
    WebhookCreate,
)
from autotuner.client.answers import EventLines, ServerEvent, checked, read_answer
from autotuner.core.access import Token
from autotuner.core.announcement import Delivery, DeliveryState
from autotuner.core.choices import ExportFormat
from autotuner.core.cluster import Cluster
from autotuner.core.cluster_check import CheckRequest
from autotuner.core.codec import to_plain
from autotuner.core.model import TransformerSpec
from autotuner.core.run import RunState
from autotuner.store.options import SweepColumn, TrialFilter

PREFIX = "/api/v1"

T = TypeVar("T")

_TIMEOUT_S = 60.0
"""A sweep on ``local`` makes the service measure its cores before it answers."""

_AGAIN_S = 1.0
"""Before a stream of events that was cut is opened again."""

_Any = TrialFilter()


def _passing(where: TrialFilter) -> dict[str, object]:
    return {
        "state": where.state,
        "tensor_parallel_degree": where.tensor_parallel_degree,
        "pipeline_parallel_degree": where.pipeline_parallel_degree,
        "micro_batch_size": where.micro_batch_size,
    }


class Client:
    """The REST API, each call answered when it returns.

    A problem that the service answers with is raised as ``ServiceError``, a service that does not answer as httpx says
    it.

    Args:
        url: Where the service is, such as ``http://127.0.0.1:8000``.
        token: Shown to a service that has a login.
        http: In the place of a client of its own, to set proxies, certificates or timeouts.
    """

    def __init__(self, url: str, *, token: str | None = None, http: httpx.Client | None = None) -> None:
        self._http = http or httpx.Client(timeout=_TIMEOUT_S)
        self._http.base_url = httpx.URL(url)
        if token is not None:
            self._http.headers["Authorization"] = f"Bearer {token}"

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close its connections."""
        self._http.close()

    def events(self, sweep_id: str, *, after: int = 0) -> Iterator[ServerEvent]:
        """Events of a sweep until it is finished, as they happen; a stream that is cut is opened again.

        Raises:
            ServiceError: The service answered with a problem.
        """
        url, patience = f"{PREFIX}/sweeps/{sweep_id}/events", httpx.Timeout(_TIMEOUT_S, read=None)
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

    def wait(self, sweep_id: str) -> schemas.SweepDetail:
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
        response = self._http.request(
            method,
            f"{PREFIX}{path}",
            json=None if body is None else to_plain(body),
            params={name: to_plain(value) for name, value in params.items() if value is not None},
            headers={name: value for name, value in headers.items() if value is not None},
        )
        return read_answer(response, answer)

    def _get(self, path: str, answer: type[T], **params: object) -> T:
        return self._send("GET", path, answer, params=params)

    def _post(self, path: str, answer: type[T], body: object = None) -> T:
        return self._send("POST", path, answer, body=body)

    def _delete(self, path: str, answer: type[T]) -> T:
        return self._send("DELETE", path, answer)

    # ---------------------------------------------------------------- sweeps
    def create_sweep(self, body: SweepCreate, *, idempotency_key: str | None = None) -> schemas.SweepDetail:
        """Queue a sweep; sent again with the same key, it is the sweep of the first time."""
        key = {"Idempotency-Key": idempotency_key}
        return self._send("POST", "/sweeps", schemas.SweepDetail, body=body, headers=key)

    def preview_sweep(self, body: SweepCreate) -> schemas.SweepPreview:
        """What a sweep would search, without starting it."""
        return self._post("/sweeps/preview", schemas.SweepPreview, body)

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
    ) -> schemas.SweepPage:
        """Sweeps, newest first unless another order is asked for."""
        asked = {"q": q, "state": state, "owner": owner, "sort": sort, "order": order}
        return self._get("/sweeps", schemas.SweepPage, **asked, limit=limit, offset=offset)

    def read_sweep(self, sweep_id: str) -> schemas.SweepDetail:
        """A sweep: state, stop reason, progress, trials by state, best trial, and all that was asked."""
        return self._get(f"/sweeps/{sweep_id}", schemas.SweepDetail)

    def cancel_sweep(self, sweep_id: str) -> schemas.SweepDetail:
        """Ask for the end of a sweep."""
        return self._post(f"/sweeps/{sweep_id}/cancel", schemas.SweepDetail)

    def pause_sweep(self, sweep_id: str) -> schemas.SweepDetail:
        """Have nobody work on a sweep until it is resumed."""
        return self._post(f"/sweeps/{sweep_id}/pause", schemas.SweepDetail)

    def resume_sweep(self, sweep_id: str) -> schemas.SweepDetail:
        """Have a paused sweep go on."""
        return self._post(f"/sweeps/{sweep_id}/resume", schemas.SweepDetail)

    def change_budget(self, sweep_id: str, body: BudgetChange) -> schemas.SweepDetail:
        """Give a sweep other limits, each in all; a finished one goes on where it ended."""
        return self._post(f"/sweeps/{sweep_id}/budget", schemas.SweepDetail, body)

    def clone_sweep(
        self, sweep_id: str, body: SweepClone, *, idempotency_key: str | None = None
    ) -> schemas.SweepDetail:
        """Queue a sweep that is asked for as another was, but for what the body says; the key is as for a new sweep."""
        path, key = f"/sweeps/{sweep_id}/clone", {"Idempotency-Key": idempotency_key}
        return self._send("POST", path, schemas.SweepDetail, body=body, headers=key)

    def rerun_trial(self, trial_id: str) -> schemas.SweepDetail:
        """Have a trial run again, by itself; a finished sweep is opened again to do that alone."""
        return self._post(f"/trials/{trial_id}/rerun", schemas.SweepDetail)

    def list_trials(
        self, sweep_id: str, *, where: TrialFilter = _Any, limit: int = 50, offset: int = 0
    ) -> schemas.TrialPage:
        """Trials of a sweep by number, without their steps."""
        window = {"limit": limit, "offset": offset}
        return self._get(f"/sweeps/{sweep_id}/trials", schemas.TrialPage, **_passing(where), **window)

    def rank_sweep(
        self, sweep_id: str, *, where: TrialFilter = _Any, limit: int = 50, offset: int = 0
    ) -> schemas.RankingPage:
        """Trials of a sweep by what it maximises, the best first."""
        window = {"limit": limit, "offset": offset}
        return self._get(f"/sweeps/{sweep_id}/ranking", schemas.RankingPage, **_passing(where), **window)

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
    ) -> schemas.TablePage:
        """Trials of a sweep, or the best that none tried, as a table: ``where="tp=4 mfu>40", sort="-tokens"``."""
        path, window = f"/sweeps/{sweep_id}/table", {"limit": limit, "offset": offset}
        return self._get(path, schemas.TablePage, where=where, sort=sort, columns=columns, rows=rows, **window)

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

    def rank_all(self, *, where: TrialFilter = _Any, limit: int = 50, offset: int = 0) -> schemas.RankingPage:
        """Trials of all sweeps by measured MFU, highest first."""
        return self._get("/ranking", schemas.RankingPage, **_passing(where), limit=limit, offset=offset)

    def read_trial(self, trial_id: str) -> schemas.TrialDetail:
        """A trial: layout, prediction, measurement or failure, loss gate, and its steps."""
        return self._get(f"/trials/{trial_id}", schemas.TrialDetail)

    def read_rules(self, sweep_id: str) -> schemas.SweepRules:
        """What pairs of trials of a sweep that differ in one option show."""
        return self._get(f"/sweeps/{sweep_id}/rules", schemas.SweepRules)

    def read_answer(self, sweep_id: str) -> schemas.SweepAnswer:
        """What to train with by a sweep, how sure that is, what it beats and why."""
        return self._get(f"/sweeps/{sweep_id}/answer", schemas.SweepAnswer)

    def read_choices(
        self, sweep_id: str, *, rows: str | None = None, columns: str | None = None
    ) -> schemas.SweepChoices:
        """Which choices mattered in a sweep, and the best of every pair of values of two of them."""
        return self._get(f"/sweeps/{sweep_id}/choices", schemas.SweepChoices, rows=rows, columns=columns)

    def read_failures(self, sweep_id: str) -> schemas.SweepFailures:
        """Trials of a sweep that died, grouped by cause."""
        return self._get(f"/sweeps/{sweep_id}/failures", schemas.SweepFailures)

    def read_layers(self, sweep_id: str) -> schemas.SweepLayers:
        """What each layer of communication gives to a sweep's job, predicted and measured."""
        return self._get(f"/sweeps/{sweep_id}/layers", schemas.SweepLayers)

    def read_accuracy(self, sweep_id: str) -> schemas.SweepAccuracy:
        """Predictions of a sweep beside what its trials reached."""
        return self._get(f"/sweeps/{sweep_id}/accuracy", schemas.SweepAccuracy)

    def read_front(self, sweep_id: str, *, metrics: str = "", profile: str = "") -> schemas.SweepFront:
        """The trials of a sweep that no other beats in everything; ``mfu=2,tokens_per_dollar=1`` is a profile."""
        return self._get(f"/sweeps/{sweep_id}/front", schemas.SweepFront, metrics=metrics, profile=profile)

    # ---------------------------------------------------------------- predictions and what explains them
    def predict(self, body: PredictionRequest) -> schemas.PredictionTable:
        """Predict one layout, or the best of a space, without running anything."""
        return self._post("/predictions", schemas.PredictionTable, body)

    def create_plan(self, body: PlanRequest) -> schemas.PlanView:
        """Compare whole clusters for a training run; ``answer`` is None until ``read_plan`` finds it computed."""
        return self._post("/plans", schemas.PlanView, body)

    def read_plan(self, plan_id: str, *, wait_s: float = 0.0) -> schemas.PlanView:
        """A plan that was asked for lately, after waiting so long for it at most."""
        return self._get(f"/plans/{plan_id}", schemas.PlanView, wait_s=wait_s)

    def explain_layout(self, body: ExplanationRequest) -> schemas.LayoutExplanation:
        """Where a layout's time and memory go, and what lies one step away."""
        return self._post("/explanations", schemas.LayoutExplanation, body)

    def plan_job_phases(self, body: PhasesRequest) -> schemas.PhasesPlan:
        """The layout of each phase of a job, where switches cost."""
        return self._post("/job-phases", schemas.PhasesPlan, body)

    def report_layers(self, body: LayersRequest) -> schemas.LayerReport:
        """What each layer of communication gives to a job, by prediction."""
        return self._post("/layer-reports", schemas.LayerReport, body)

    def explain_trial(self, trial_id: str) -> schemas.LayoutExplanation:
        """The explanation of a trial's layout."""
        return self._get(f"/trials/{trial_id}/explanation", schemas.LayoutExplanation)

    def draw_bandwidth_curve(self, body: ExplanationRequest) -> schemas.BandwidthCurve:
        """Which way to share gradients is fastest, by the bandwidth between nodes."""
        return self._post("/bandwidth-curves", schemas.BandwidthCurve, body)

    def read_bandwidth_curve(self, trial_id: str) -> schemas.BandwidthCurve:
        """The same of a trial's layout."""
        return self._get(f"/trials/{trial_id}/bandwidth-curve", schemas.BandwidthCurve)

    def read_link_timelines(self, trial_id: str) -> schemas.LinkTimelines:
        """A trial's step with healthy links beside the same with slow ones."""
        return self._get(f"/trials/{trial_id}/link-timelines", schemas.LinkTimelines)

    def read_timeline(self, trial_id: str) -> schemas.TrialTimelines:
        """When each pass of a trial's step begins and ends, predicted beside measured."""
        return self._get(f"/trials/{trial_id}/timeline", schemas.TrialTimelines)

    def read_parts(self, trial_id: str) -> schemas.TrialParts:
        """A trial's step and memory by part, predicted beside measured."""
        return self._get(f"/trials/{trial_id}/parts", schemas.TrialParts)

    def list_calibrations(self, *, cluster: str | None = None) -> schemas.CalibrationList:
        """What stored trials teach about hardware and software."""
        return self._get("/calibrations", schemas.CalibrationList, cluster=cluster)

    # ---------------------------------------------------------------- trainers' words
    def list_formats(self) -> schemas.FormatList:
        """Trainers whose words a layout can be said in."""
        return self._get("/exports/formats", schemas.FormatList)

    def export_layout(self, body: ExportRequest) -> schemas.LayoutExport:
        """A layout in the words of a trainer."""
        return self._post("/exports", schemas.LayoutExport, body)

    def export_trial(self, trial_id: str, *, format: ExportFormat | None = None) -> schemas.LayoutExport:  # noqa: A002  # as the API calls it
        """A trial's layout in the words of a trainer."""
        return self._get(f"/trials/{trial_id}/export", schemas.LayoutExport, format=format)

    def import_configuration(self, body: ImportRequest) -> schemas.ImportedLayout:
        """The layout that a trainer's configuration describes."""
        return self._post("/imports", schemas.ImportedLayout, body)

    # ---------------------------------------------------------------- topologies
    def read_topology(self, body: TopologyRequest) -> schemas.TopologyReading:
        """What files say of a network or of nodes, and what it means."""
        return self._post("/topologies", schemas.TopologyReading, body)

    # ---------------------------------------------------------------- optimizer studies
    def list_optimizer_studies(self, *, limit: int = 50, offset: int = 0) -> schemas.OptimizerStudyPage:
        """Optimizer studies, newest first."""
        return self._get("/optimizer-studies", schemas.OptimizerStudyPage, limit=limit, offset=offset)

    def create_optimizer_study(
        self, body: OptimizerStudyCreate, *, idempotency_key: str | None = None
    ) -> schemas.OptimizerStudyDetail:
        """Have optimizers tried with a layout until their losses are at a target."""
        key = {"Idempotency-Key": idempotency_key}
        return self._send("POST", "/optimizer-studies", schemas.OptimizerStudyDetail, body=body, headers=key)

    def read_optimizer_study(self, study_id: str) -> schemas.OptimizerStudyDetail:
        """A study with its trials and the front."""
        return self._get(f"/optimizer-studies/{study_id}", schemas.OptimizerStudyDetail)

    def cancel_optimizer_study(self, study_id: str) -> schemas.OptimizerStudyDetail:
        """Ask for the end of a study."""
        return self._post(f"/optimizer-studies/{study_id}/cancel", schemas.OptimizerStudyDetail)

    # ---------------------------------------------------------------- retunes
    def list_retunes(self) -> schemas.RetuneList:
        """Retunes by name."""
        return self._get("/retunes", schemas.RetuneList)

    def create_retune(self, body: RetuneCreate) -> schemas.RetuneDetail:
        """Have a layout measured again and again, and others searched around it."""
        return self._post("/retunes", schemas.RetuneDetail, body)

    def read_retune(self, name: str) -> schemas.RetuneDetail:
        """A retune and how it stands."""
        return self._get(f"/retunes/{name}", schemas.RetuneDetail)

    def remove_retune(self, name: str) -> schemas.RetuneDetail:
        """Forget a retune and its runs."""
        return self._delete(f"/retunes/{name}", schemas.RetuneDetail)

    def pause_retune(self, name: str) -> schemas.RetuneDetail:
        """Start no runs until it is resumed."""
        return self._post(f"/retunes/{name}/pause", schemas.RetuneDetail)

    def resume_retune(self, name: str) -> schemas.RetuneDetail:
        """Start runs when they are due again."""
        return self._post(f"/retunes/{name}/resume", schemas.RetuneDetail)

    def adopt_layout(self, name: str, body: Adoption) -> schemas.RetuneDetail:
        """Put a layout in the place of the incumbent."""
        return self._post(f"/retunes/{name}/adopt", schemas.RetuneDetail, body)

    def run_retune(self, name: str) -> schemas.RetuneRun:
        """Start a run now."""
        return self._post(f"/retunes/{name}/runs", schemas.RetuneRun)

    def list_retune_runs(self, name: str, *, limit: int = 50, offset: int = 0) -> schemas.RetuneRunPage:
        """Runs of a retune, newest first."""
        return self._get(f"/retunes/{name}/runs", schemas.RetuneRunPage, limit=limit, offset=offset)

    def read_retune_trend(self, name: str) -> schemas.RetuneTrend:
        """What the incumbent measured from run to run, over the band of its noise."""
        return self._get(f"/retunes/{name}/trend", schemas.RetuneTrend)

    def read_retune_run(self, run_id: str) -> schemas.RetuneRun:
        """A run and its outcome."""
        return self._get(f"/retune-runs/{run_id}", schemas.RetuneRun)

    # ---------------------------------------------------------------- MFU gates
    def create_gate(self, body: GateCreate) -> schemas.GateView:
        """Hold a layout to a stored baseline."""
        return self._post("/gates", schemas.GateView, body)

    def list_gates(self, *, baseline: str | None = None, limit: int = 50, offset: int = 0) -> schemas.GatePage:
        """MFU gates, newest first."""
        return self._get("/gates", schemas.GatePage, baseline=baseline, limit=limit, offset=offset)

    def read_gate(self, gate_id: str) -> schemas.GateView:
        """An MFU gate and its result."""
        return self._get(f"/gates/{gate_id}", schemas.GateView)

    def cancel_gate(self, gate_id: str) -> schemas.GateView:
        """Ask for the end of its sweep."""
        return self._post(f"/gates/{gate_id}/cancel", schemas.GateView)

    def read_gate_junit(self, gate_id: str) -> str:
        """The result as JUnit XML."""
        return self._get(f"/gates/{gate_id}/junit.xml", str)

    def read_gate_summary(self, gate_id: str) -> str:
        """The result as Markdown."""
        return self._get(f"/gates/{gate_id}/summary.md", str)

    def read_gate_badge(self, gate_id: str) -> str:
        """The result as an SVG badge."""
        return self._get(f"/gates/{gate_id}/badge.svg", str)

    def list_baselines(self) -> schemas.BaselineList:
        """What MFU gates compare with."""
        return self._get("/baselines", schemas.BaselineList)

    def remove_baseline(self, name: str, key: str) -> schemas.BaselineView:
        """Forget a baseline."""
        return self._delete(f"/baselines/{name}/{key}", schemas.BaselineView)

    def read_baseline_badge(self, name: str) -> str:
        """The newest gate of a baseline as an SVG badge."""
        return self._get(f"/badges/{name}", str)

    # ---------------------------------------------------------------- announcements
    def list_webhooks(self) -> schemas.WebhookList:
        """Where outcomes are posted."""
        return self._get("/webhooks", schemas.WebhookList)

    def create_webhook(self, body: WebhookCreate) -> schemas.WebhookCreated:
        """Have outcomes posted somewhere; the answer alone has the secret."""
        return self._post("/webhooks", schemas.WebhookCreated, body)

    def read_webhook(self, name: str) -> schemas.WebhookView:
        """A webhook."""
        return self._get(f"/webhooks/{name}", schemas.WebhookView)

    def remove_webhook(self, name: str) -> schemas.WebhookView:
        """Forget a webhook and its deliveries."""
        return self._delete(f"/webhooks/{name}", schemas.WebhookView)

    def test_webhook(self, name: str) -> schemas.WebhookTest:
        """Post something to it now."""
        return self._post(f"/webhooks/{name}/test", schemas.WebhookTest)

    def list_deliveries(
        self, *, webhook: str | None = None, state: DeliveryState | None = None, limit: int = 50, offset: int = 0
    ) -> schemas.DeliveryPage:
        """Deliveries, newest first."""
        return self._get("/deliveries", schemas.DeliveryPage, webhook=webhook, state=state, limit=limit, offset=offset)

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
    def list_models(self) -> schemas.ModelList:
        """Stored models by name."""
        return self._get("/models", schemas.ModelList)

    def read_model(self, name: str) -> TransformerSpec:
        """A stored model, else one of the catalog."""
        return self._get(f"/models/{name}", TransformerSpec)

    def save_model(self, name: str, body: TransformerSpec | Mapping[str, object]) -> TransformerSpec:
        """Store a model: our own fields, a ``base`` of the catalog with changes, or a ``config.json``."""
        return self._send("PUT", f"/models/{name}", TransformerSpec, body=body)

    def remove_model(self, name: str) -> TransformerSpec:
        """Forget a stored model; sweeps keep what they were given."""
        return self._delete(f"/models/{name}", TransformerSpec)

    def list_clusters(self) -> schemas.ClusterList:
        """Stored clusters by name."""
        return self._get("/clusters", schemas.ClusterList)

    def read_cluster(self, name: str) -> Cluster:
        """A stored cluster, ``local``, or an accelerator of the catalog with a count."""
        return self._get(f"/clusters/{name}", Cluster)

    def save_cluster(self, name: str, body: Cluster | Mapping[str, object]) -> Cluster:
        """Store a cluster, whose accelerator and links may be names of the catalog."""
        return self._send("PUT", f"/clusters/{name}", Cluster, body=body)

    def remove_cluster(self, name: str) -> Cluster:
        """Forget a stored cluster, its checks and what they measured."""
        return self._delete(f"/clusters/{name}", Cluster)

    def list_engines(self) -> schemas.EngineList:
        """Engines that clusters may name."""
        return self._get("/engines", schemas.EngineList)

    def create_check(self, name: str, body: CheckRequest) -> schemas.CheckView:
        """Ask a cluster's engine, run a small trial on two nodes, and measure the links between them."""
        return self._post(f"/clusters/{name}/checks", schemas.CheckView, body)

    def list_checks(self, name: str, *, limit: int = 50, offset: int = 0) -> schemas.CheckPage:
        """Checks of a cluster, newest first."""
        return self._get(f"/clusters/{name}/checks", schemas.CheckPage, limit=limit, offset=offset)

    def list_links(self, name: str) -> schemas.LinkList:
        """What is known of a cluster's links."""
        return self._get(f"/clusters/{name}/links", schemas.LinkList)

    def read_check(self, check_id: str) -> schemas.CheckView:
        """A check and what it found."""
        return self._get(f"/checks/{check_id}", schemas.CheckView)

    def cancel_check(self, check_id: str) -> schemas.CheckView:
        """Ask for the end of a check."""
        return self._post(f"/checks/{check_id}/cancel", schemas.CheckView)

    # ---------------------------------------------------------------- who may call
    def read_caller(self) -> schemas.CallerView:
        """Who the service takes this client for, and what that may take."""
        return self._get("/caller", schemas.CallerView)

    def list_tokens(self) -> schemas.TokenList:
        """Tokens of all callers, without their secrets."""
        return self._get("/tokens", schemas.TokenList)

    def create_token(self, body: TokenCreate) -> schemas.TokenCreated:
        """Let a person or a program in; the answer alone has the token."""
        return self._post("/tokens", schemas.TokenCreated, body)

    def revoke_token(self, token_id: str) -> Token:
        """Take a token back, with the sessions that it opened."""
        return self._post(f"/tokens/{token_id}/revoke", Token)

    def read_audit(self, *, caller: str | None = None, limit: int = 50, offset: int = 0) -> schemas.AuditPage:
        """Who changed what and who was refused, newest first."""
        return self._get("/audit", schemas.AuditPage, caller=caller, limit=limit, offset=offset)

    # ---------------------------------------------------------------- what the service knows and is
    def compare_layouts(self, body: ComparisonRequest) -> schemas.LayoutComparison:
        """What differs between layouts, which is faster and whether by more than noise, and through which parts."""
        return self._post("/comparisons", schemas.LayoutComparison, body)

    def list_attention(self) -> schemas.AttentionList:
        """What went wrong and stands unmended, with the page where to go on with it."""
        return self._get("/attention", schemas.AttentionList)

    def list_workers(self) -> schemas.WorkerList:
        """Workers that say that they live."""
        return self._get("/workers", schemas.WorkerList)

    def list_accelerators(self) -> schemas.AcceleratorList:
        """Accelerators of the catalog."""
        return self._get("/catalog/accelerators", schemas.AcceleratorList)

    def read_accelerator(self, name: str) -> schemas.AcceleratorDetail:
        """An accelerator with its sources."""
        return self._get(f"/catalog/accelerators/{name}", schemas.AcceleratorDetail)

    def list_catalog_models(self) -> schemas.ModelList:
        """Models of the catalog."""
        return self._get("/catalog/models", schemas.ModelList)

    def list_networks(self) -> schemas.NetworkList:
        """Networks that a cluster can name."""
        return self._get("/catalog/networks", schemas.NetworkList)

    def list_stacks(self) -> schemas.StackList:
        """Training software of the catalog."""
        return self._get("/catalog/stacks", schemas.StackList)

    def list_stack_profiles(self) -> schemas.StackProfileList:
        """Of which versions that software is, and what it was fitted to."""
        return self._get("/stacks", schemas.StackProfileList)

    def list_trainers(self) -> schemas.TrainerList:
        """Trainers that sweeps may name."""
        return self._get("/trainers", schemas.TrainerList)

    def health(self) -> schemas.Health:
        """Whether the process answers."""
        return self._get("/health", schemas.Health)

    def ready(self) -> schemas.Readiness:
        """Whether the database answers and is migrated."""
        return self._get("/ready", schemas.Readiness)
