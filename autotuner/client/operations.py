"""What can be asked of the service: a function per operation of the OpenAPI document, under its name there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeVar

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
from autotuner.client.call import Call
from autotuner.core.access import Token
from autotuner.core.announcement import Delivery, DeliveryState
from autotuner.core.choices import ExportFormat
from autotuner.core.cluster import Cluster
from autotuner.core.cluster_check import CheckRequest
from autotuner.core.model import TransformerSpec
from autotuner.core.run import RunState
from autotuner.store.options import SweepColumn, TrialFilter

T = TypeVar("T")

_Any = TrialFilter()


def _get(path: str, answer: type[T], **params: object) -> Call[T]:
    return Call(method="GET", path=path, answer=answer, params=params)


def _post(path: str, answer: type[T], body: object = None) -> Call[T]:
    return Call(method="POST", path=path, answer=answer, body=body)


def _delete(path: str, answer: type[T]) -> Call[T]:
    return Call(method="DELETE", path=path, answer=answer)


def _passing(where: TrialFilter) -> dict[str, object]:
    return {
        "state": where.state,
        "tensor_parallel_degree": where.tensor_parallel_degree,
        "pipeline_parallel_degree": where.pipeline_parallel_degree,
        "micro_batch_size": where.micro_batch_size,
    }


# ---------------------------------------------------------------- sweeps
def create_sweep(body: SweepCreate, *, idempotency_key: str | None = None) -> Call[schemas.SweepDetail]:
    """Queue a sweep; sent again with the same key, it is the sweep of the first time."""
    key = {"Idempotency-Key": idempotency_key}
    return Call(method="POST", path="/sweeps", answer=schemas.SweepDetail, body=body, headers=key)


def preview_sweep(body: SweepCreate) -> Call[schemas.SweepPreview]:
    """What a sweep would search, without starting it."""
    return _post("/sweeps/preview", schemas.SweepPreview, body)


def list_sweeps(
    *,
    q: str | None = None,
    state: RunState | None = None,
    owner: str | None = None,
    sort: SweepColumn | None = None,
    order: Literal["ascending", "descending"] | None = None,
    limit: int = 50,
    offset: int = 0,
) -> Call[schemas.SweepPage]:
    """Sweeps, newest first unless another order is asked for."""
    asked = {"q": q, "state": state, "owner": owner, "sort": sort, "order": order}
    return _get("/sweeps", schemas.SweepPage, **asked, limit=limit, offset=offset)


def read_sweep(sweep_id: str) -> Call[schemas.SweepDetail]:
    """A sweep: state, stop reason, progress, trials by state, best trial, and all that was asked."""
    return _get(f"/sweeps/{sweep_id}", schemas.SweepDetail)


def cancel_sweep(sweep_id: str) -> Call[schemas.SweepDetail]:
    """Ask for the end of a sweep."""
    return _post(f"/sweeps/{sweep_id}/cancel", schemas.SweepDetail)


def pause_sweep(sweep_id: str) -> Call[schemas.SweepDetail]:
    """Have nobody work on a sweep until it is resumed."""
    return _post(f"/sweeps/{sweep_id}/pause", schemas.SweepDetail)


def resume_sweep(sweep_id: str) -> Call[schemas.SweepDetail]:
    """Have a paused sweep go on."""
    return _post(f"/sweeps/{sweep_id}/resume", schemas.SweepDetail)


def change_budget(sweep_id: str, body: BudgetChange) -> Call[schemas.SweepDetail]:
    """Give a sweep other limits, each in all; a finished one goes on where it ended."""
    return _post(f"/sweeps/{sweep_id}/budget", schemas.SweepDetail, body)


def clone_sweep(sweep_id: str, body: SweepClone, *, idempotency_key: str | None = None) -> Call[schemas.SweepDetail]:
    """Queue a sweep that is asked for as another was, but for what the body says; the key is as for a new sweep."""
    path, key = f"/sweeps/{sweep_id}/clone", {"Idempotency-Key": idempotency_key}
    return Call(method="POST", path=path, answer=schemas.SweepDetail, body=body, headers=key)


def rerun_trial(trial_id: str) -> Call[schemas.SweepDetail]:
    """Have a trial run again, by itself; a finished sweep is opened again to do that alone."""
    return _post(f"/trials/{trial_id}/rerun", schemas.SweepDetail)


def list_trials(
    sweep_id: str, *, where: TrialFilter = _Any, limit: int = 50, offset: int = 0
) -> Call[schemas.TrialPage]:
    """Trials of a sweep by number, without their steps."""
    window = {"limit": limit, "offset": offset}
    return _get(f"/sweeps/{sweep_id}/trials", schemas.TrialPage, **_passing(where), **window)


def rank_sweep(
    sweep_id: str, *, where: TrialFilter = _Any, limit: int = 50, offset: int = 0
) -> Call[schemas.RankingPage]:
    """Trials of a sweep by what it maximises, the best first."""
    window = {"limit": limit, "offset": offset}
    return _get(f"/sweeps/{sweep_id}/ranking", schemas.RankingPage, **_passing(where), **window)


def read_table(
    sweep_id: str,
    *,
    where: str = "",
    sort: str = "",
    columns: str = "",
    rows: Literal["ranked", "untried"] = "ranked",
    limit: int = 50,
    offset: int = 0,
) -> Call[schemas.TablePage]:
    """Trials of a sweep, or the best layouts that none tried, as a table: ``where="tp=4 mfu>40", sort="-tokens"``."""
    path, window = f"/sweeps/{sweep_id}/table", {"limit": limit, "offset": offset}
    return _get(path, schemas.TablePage, where=where, sort=sort, columns=columns, rows=rows, **window)


def read_table_csv(
    sweep_id: str, *, where: str = "", sort: str = "", columns: str = "", rows: Literal["ranked", "untried"] = "ranked"
) -> Call[str]:
    """The same table as CSV, every row."""
    return _get(f"/sweeps/{sweep_id}/table.csv", str, where=where, sort=sort, columns=columns, rows=rows)


def rank_all(*, where: TrialFilter = _Any, limit: int = 50, offset: int = 0) -> Call[schemas.RankingPage]:
    """Trials of all sweeps by measured MFU, highest first."""
    return _get("/ranking", schemas.RankingPage, **_passing(where), limit=limit, offset=offset)


def read_trial(trial_id: str) -> Call[schemas.TrialDetail]:
    """A trial: layout, prediction, measurement or failure, loss gate, and its steps."""
    return _get(f"/trials/{trial_id}", schemas.TrialDetail)


def read_rules(sweep_id: str) -> Call[schemas.SweepRules]:
    """What pairs of trials of a sweep that differ in one option show."""
    return _get(f"/sweeps/{sweep_id}/rules", schemas.SweepRules)


def read_answer(sweep_id: str) -> Call[schemas.SweepAnswer]:
    """What to train with by a sweep, how sure that is, what it beats and why."""
    return _get(f"/sweeps/{sweep_id}/answer", schemas.SweepAnswer)


def read_choices(sweep_id: str, *, rows: str | None = None, columns: str | None = None) -> Call[schemas.SweepChoices]:
    """Which choices mattered in a sweep, and the best of every pair of values of two of them."""
    return _get(f"/sweeps/{sweep_id}/choices", schemas.SweepChoices, rows=rows, columns=columns)


def read_failures(sweep_id: str) -> Call[schemas.SweepFailures]:
    """Trials of a sweep that died, grouped by cause."""
    return _get(f"/sweeps/{sweep_id}/failures", schemas.SweepFailures)


def read_layers(sweep_id: str) -> Call[schemas.SweepLayers]:
    """What each layer of communication gives to a sweep's job, predicted and measured."""
    return _get(f"/sweeps/{sweep_id}/layers", schemas.SweepLayers)


def read_accuracy(sweep_id: str) -> Call[schemas.SweepAccuracy]:
    """Predictions of a sweep beside what its trials reached."""
    return _get(f"/sweeps/{sweep_id}/accuracy", schemas.SweepAccuracy)


def read_front(sweep_id: str, *, metrics: str = "", profile: str = "") -> Call[schemas.SweepFront]:
    """The trials of a sweep that no other beats in everything, and why; ``mfu=2,tokens_per_dollar=1`` is a profile."""
    return _get(f"/sweeps/{sweep_id}/front", schemas.SweepFront, metrics=metrics, profile=profile)


# ---------------------------------------------------------------- predictions and what explains them
def predict(body: PredictionRequest) -> Call[schemas.PredictionTable]:
    """Predict one layout, or the best of a space, without running anything."""
    return _post("/predictions", schemas.PredictionTable, body)


def create_plan(body: PlanRequest) -> Call[schemas.PlanView]:
    """Compare whole clusters for a training run; ``answer`` is None until ``read_plan`` finds it computed."""
    return _post("/plans", schemas.PlanView, body)


def read_plan(plan_id: str, *, wait_s: float = 0.0) -> Call[schemas.PlanView]:
    """A plan that was asked for lately, after waiting so long for it at most."""
    return _get(f"/plans/{plan_id}", schemas.PlanView, wait_s=wait_s)


def explain_layout(body: ExplanationRequest) -> Call[schemas.LayoutExplanation]:
    """Where a layout's time and memory go, and what lies one step away."""
    return _post("/explanations", schemas.LayoutExplanation, body)


def plan_job_phases(body: PhasesRequest) -> Call[schemas.PhasesPlan]:
    """The layout of each phase of a job, where switches cost."""
    return _post("/job-phases", schemas.PhasesPlan, body)


def report_layers(body: LayersRequest) -> Call[schemas.LayerReport]:
    """What each layer of communication gives to a job, by prediction."""
    return _post("/layer-reports", schemas.LayerReport, body)


def explain_trial(trial_id: str) -> Call[schemas.LayoutExplanation]:
    """The explanation of a trial's layout."""
    return _get(f"/trials/{trial_id}/explanation", schemas.LayoutExplanation)


def draw_bandwidth_curve(body: ExplanationRequest) -> Call[schemas.BandwidthCurve]:
    """Which way to share gradients is fastest, by the bandwidth between nodes."""
    return _post("/bandwidth-curves", schemas.BandwidthCurve, body)


def read_bandwidth_curve(trial_id: str) -> Call[schemas.BandwidthCurve]:
    """The same of a trial's layout."""
    return _get(f"/trials/{trial_id}/bandwidth-curve", schemas.BandwidthCurve)


def read_link_timelines(trial_id: str) -> Call[schemas.LinkTimelines]:
    """A trial's step with healthy links beside the same with slow ones."""
    return _get(f"/trials/{trial_id}/link-timelines", schemas.LinkTimelines)


def read_timeline(trial_id: str) -> Call[schemas.TrialTimelines]:
    """When each pass of a trial's step begins and ends, predicted beside measured."""
    return _get(f"/trials/{trial_id}/timeline", schemas.TrialTimelines)


def read_parts(trial_id: str) -> Call[schemas.TrialParts]:
    """A trial's step and memory by part, predicted beside measured."""
    return _get(f"/trials/{trial_id}/parts", schemas.TrialParts)


def list_calibrations(*, cluster: str | None = None) -> Call[schemas.CalibrationList]:
    """What stored trials teach about hardware and software."""
    return _get("/calibrations", schemas.CalibrationList, cluster=cluster)


# ---------------------------------------------------------------- trainers' words
def list_formats() -> Call[schemas.FormatList]:
    """Trainers whose words a layout can be said in."""
    return _get("/exports/formats", schemas.FormatList)


def export_layout(body: ExportRequest) -> Call[schemas.LayoutExport]:
    """A layout in the words of a trainer."""
    return _post("/exports", schemas.LayoutExport, body)


def export_trial(trial_id: str, *, format: ExportFormat | None = None) -> Call[schemas.LayoutExport]:  # noqa: A002  # as the API calls it
    """A trial's layout in the words of a trainer."""
    return _get(f"/trials/{trial_id}/export", schemas.LayoutExport, format=format)


def import_configuration(body: ImportRequest) -> Call[schemas.ImportedLayout]:
    """The layout that a trainer's configuration describes."""
    return _post("/imports", schemas.ImportedLayout, body)


# ---------------------------------------------------------------- topologies
def read_topology(body: TopologyRequest) -> Call[schemas.TopologyReading]:
    """What files say of a network or of nodes, and what it means."""
    return _post("/topologies", schemas.TopologyReading, body)


# ---------------------------------------------------------------- optimizer studies
def list_optimizer_studies(*, limit: int = 50, offset: int = 0) -> Call[schemas.OptimizerStudyPage]:
    """Optimizer studies, newest first."""
    return _get("/optimizer-studies", schemas.OptimizerStudyPage, limit=limit, offset=offset)


def create_optimizer_study(
    body: OptimizerStudyCreate, *, idempotency_key: str | None = None
) -> Call[schemas.OptimizerStudyDetail]:
    """Have optimizers tried with a layout until their losses are at a target."""
    key = {"Idempotency-Key": idempotency_key}
    return Call(method="POST", path="/optimizer-studies", answer=schemas.OptimizerStudyDetail, body=body, headers=key)


def read_optimizer_study(study_id: str) -> Call[schemas.OptimizerStudyDetail]:
    """A study with its trials and the front."""
    return _get(f"/optimizer-studies/{study_id}", schemas.OptimizerStudyDetail)


def cancel_optimizer_study(study_id: str) -> Call[schemas.OptimizerStudyDetail]:
    """Ask for the end of a study."""
    return _post(f"/optimizer-studies/{study_id}/cancel", schemas.OptimizerStudyDetail)


# ---------------------------------------------------------------- retunes
def list_retunes() -> Call[schemas.RetuneList]:
    """Retunes by name."""
    return _get("/retunes", schemas.RetuneList)


def create_retune(body: RetuneCreate) -> Call[schemas.RetuneDetail]:
    """Have a layout measured again and again, and others searched around it."""
    return _post("/retunes", schemas.RetuneDetail, body)


def read_retune(name: str) -> Call[schemas.RetuneDetail]:
    """A retune and how it stands."""
    return _get(f"/retunes/{name}", schemas.RetuneDetail)


def remove_retune(name: str) -> Call[schemas.RetuneDetail]:
    """Forget a retune and its runs."""
    return _delete(f"/retunes/{name}", schemas.RetuneDetail)


def pause_retune(name: str) -> Call[schemas.RetuneDetail]:
    """Start no runs until it is resumed."""
    return _post(f"/retunes/{name}/pause", schemas.RetuneDetail)


def resume_retune(name: str) -> Call[schemas.RetuneDetail]:
    """Start runs when they are due again."""
    return _post(f"/retunes/{name}/resume", schemas.RetuneDetail)


def adopt_layout(name: str, body: Adoption) -> Call[schemas.RetuneDetail]:
    """Put a layout in the place of the incumbent."""
    return _post(f"/retunes/{name}/adopt", schemas.RetuneDetail, body)


def run_retune(name: str) -> Call[schemas.RetuneRun]:
    """Start a run now."""
    return _post(f"/retunes/{name}/runs", schemas.RetuneRun)


def list_retune_runs(name: str, *, limit: int = 50, offset: int = 0) -> Call[schemas.RetuneRunPage]:
    """Runs of a retune, newest first."""
    return _get(f"/retunes/{name}/runs", schemas.RetuneRunPage, limit=limit, offset=offset)


def read_retune_trend(name: str) -> Call[schemas.RetuneTrend]:
    """What the incumbent measured from run to run, over the band of its noise."""
    return _get(f"/retunes/{name}/trend", schemas.RetuneTrend)


def read_retune_run(run_id: str) -> Call[schemas.RetuneRun]:
    """A run and its outcome."""
    return _get(f"/retune-runs/{run_id}", schemas.RetuneRun)


# ---------------------------------------------------------------- MFU gates
def create_gate(body: GateCreate) -> Call[schemas.GateView]:
    """Hold a layout to a stored baseline."""
    return _post("/gates", schemas.GateView, body)


def list_gates(*, baseline: str | None = None, limit: int = 50, offset: int = 0) -> Call[schemas.GatePage]:
    """MFU gates, newest first."""
    return _get("/gates", schemas.GatePage, baseline=baseline, limit=limit, offset=offset)


def read_gate(gate_id: str) -> Call[schemas.GateView]:
    """An MFU gate and its result."""
    return _get(f"/gates/{gate_id}", schemas.GateView)


def cancel_gate(gate_id: str) -> Call[schemas.GateView]:
    """Ask for the end of its sweep."""
    return _post(f"/gates/{gate_id}/cancel", schemas.GateView)


def read_gate_junit(gate_id: str) -> Call[str]:
    """The result as JUnit XML."""
    return _get(f"/gates/{gate_id}/junit.xml", str)


def read_gate_summary(gate_id: str) -> Call[str]:
    """The result as Markdown."""
    return _get(f"/gates/{gate_id}/summary.md", str)


def read_gate_badge(gate_id: str) -> Call[str]:
    """The result as an SVG badge."""
    return _get(f"/gates/{gate_id}/badge.svg", str)


def list_baselines() -> Call[schemas.BaselineList]:
    """What MFU gates compare with."""
    return _get("/baselines", schemas.BaselineList)


def remove_baseline(name: str, key: str) -> Call[schemas.BaselineView]:
    """Forget a baseline."""
    return _delete(f"/baselines/{name}/{key}", schemas.BaselineView)


def read_baseline_badge(name: str) -> Call[str]:
    """The newest gate of a baseline as an SVG badge."""
    return _get(f"/badges/{name}", str)


# ---------------------------------------------------------------- announcements
def list_webhooks() -> Call[schemas.WebhookList]:
    """Where outcomes are posted."""
    return _get("/webhooks", schemas.WebhookList)


def create_webhook(body: WebhookCreate) -> Call[schemas.WebhookCreated]:
    """Have outcomes posted somewhere; the answer alone has the secret."""
    return _post("/webhooks", schemas.WebhookCreated, body)


def read_webhook(name: str) -> Call[schemas.WebhookView]:
    """A webhook."""
    return _get(f"/webhooks/{name}", schemas.WebhookView)


def remove_webhook(name: str) -> Call[schemas.WebhookView]:
    """Forget a webhook and its deliveries."""
    return _delete(f"/webhooks/{name}", schemas.WebhookView)


def test_webhook(name: str) -> Call[schemas.WebhookTest]:
    """Post something to it now."""
    return _post(f"/webhooks/{name}/test", schemas.WebhookTest)


def list_deliveries(
    *, webhook: str | None = None, state: DeliveryState | None = None, limit: int = 50, offset: int = 0
) -> Call[schemas.DeliveryPage]:
    """Deliveries, newest first."""
    return _get("/deliveries", schemas.DeliveryPage, webhook=webhook, state=state, limit=limit, offset=offset)


def send_again(delivery_id: str) -> Call[Delivery]:
    """Try a delivery again that was given up."""
    return _post(f"/deliveries/{delivery_id}/send-again", Delivery)


def json_feed(*, limit: int = 50, offset: int = 0) -> Call[dict[str, Any]]:
    """Outcomes as a JSON Feed."""
    return _get("/feed.json", dict, limit=limit, offset=offset)


def atom_feed(*, limit: int = 50, offset: int = 0) -> Call[str]:
    """Outcomes as Atom."""
    return _get("/feed.atom", str, limit=limit, offset=offset)


# ---------------------------------------------------------------- models and clusters
def list_models() -> Call[schemas.ModelList]:
    """Stored models by name."""
    return _get("/models", schemas.ModelList)


def read_model(name: str) -> Call[TransformerSpec]:
    """A stored model, else one of the catalog."""
    return _get(f"/models/{name}", TransformerSpec)


def save_model(name: str, body: TransformerSpec | Mapping[str, object]) -> Call[TransformerSpec]:
    """Store a model: our own fields, a ``base`` of the catalog with changes, or a ``config.json``."""
    return Call(method="PUT", path=f"/models/{name}", answer=TransformerSpec, body=body)


def remove_model(name: str) -> Call[TransformerSpec]:
    """Forget a stored model; sweeps keep what they were given."""
    return _delete(f"/models/{name}", TransformerSpec)


def list_clusters() -> Call[schemas.ClusterList]:
    """Stored clusters by name."""
    return _get("/clusters", schemas.ClusterList)


def read_cluster(name: str) -> Call[Cluster]:
    """A stored cluster, ``local``, or an accelerator of the catalog with a count."""
    return _get(f"/clusters/{name}", Cluster)


def save_cluster(name: str, body: Cluster | Mapping[str, object]) -> Call[Cluster]:
    """Store a cluster, whose accelerator and links may be names of the catalog."""
    return Call(method="PUT", path=f"/clusters/{name}", answer=Cluster, body=body)


def remove_cluster(name: str) -> Call[Cluster]:
    """Forget a stored cluster, its checks and what they measured."""
    return _delete(f"/clusters/{name}", Cluster)


def list_engines() -> Call[schemas.EngineList]:
    """Engines that clusters may name."""
    return _get("/engines", schemas.EngineList)


def create_check(name: str, body: CheckRequest) -> Call[schemas.CheckView]:
    """Ask a cluster's engine, run a small trial on two nodes, and measure the links between them."""
    return _post(f"/clusters/{name}/checks", schemas.CheckView, body)


def list_checks(name: str, *, limit: int = 50, offset: int = 0) -> Call[schemas.CheckPage]:
    """Checks of a cluster, newest first."""
    return _get(f"/clusters/{name}/checks", schemas.CheckPage, limit=limit, offset=offset)


def list_links(name: str) -> Call[schemas.LinkList]:
    """What is known of a cluster's links."""
    return _get(f"/clusters/{name}/links", schemas.LinkList)


def read_check(check_id: str) -> Call[schemas.CheckView]:
    """A check and what it found."""
    return _get(f"/checks/{check_id}", schemas.CheckView)


def cancel_check(check_id: str) -> Call[schemas.CheckView]:
    """Ask for the end of a check."""
    return _post(f"/checks/{check_id}/cancel", schemas.CheckView)


# ---------------------------------------------------------------- who may call
def read_caller() -> Call[schemas.CallerView]:
    """Who the service takes this client for, and what that may take."""
    return _get("/caller", schemas.CallerView)


def list_tokens() -> Call[schemas.TokenList]:
    """Tokens of all callers, without their secrets."""
    return _get("/tokens", schemas.TokenList)


def create_token(body: TokenCreate) -> Call[schemas.TokenCreated]:
    """Let a person or a program in; the answer alone has the token."""
    return _post("/tokens", schemas.TokenCreated, body)


def revoke_token(token_id: str) -> Call[Token]:
    """Take a token back, with the sessions that it opened."""
    return _post(f"/tokens/{token_id}/revoke", Token)


def read_audit(*, caller: str | None = None, limit: int = 50, offset: int = 0) -> Call[schemas.AuditPage]:
    """Who changed what and who was refused, newest first."""
    return _get("/audit", schemas.AuditPage, caller=caller, limit=limit, offset=offset)


# ---------------------------------------------------------------- what the service knows and is
def compare_layouts(body: ComparisonRequest) -> Call[schemas.LayoutComparison]:
    """What differs between layouts, which is faster and whether by more than noise, and through which parts."""
    return _post("/comparisons", schemas.LayoutComparison, body)


def list_attention() -> Call[schemas.AttentionList]:
    """What went wrong and stands unmended, with the page where to go on with it."""
    return _get("/attention", schemas.AttentionList)


def list_workers() -> Call[schemas.WorkerList]:
    """Workers that say that they live."""
    return _get("/workers", schemas.WorkerList)


def list_accelerators() -> Call[schemas.AcceleratorList]:
    """Accelerators of the catalog."""
    return _get("/catalog/accelerators", schemas.AcceleratorList)


def read_accelerator(name: str) -> Call[schemas.AcceleratorDetail]:
    """An accelerator with its sources."""
    return _get(f"/catalog/accelerators/{name}", schemas.AcceleratorDetail)


def list_catalog_models() -> Call[schemas.ModelList]:
    """Models of the catalog."""
    return _get("/catalog/models", schemas.ModelList)


def list_networks() -> Call[schemas.NetworkList]:
    """Networks that a cluster can name."""
    return _get("/catalog/networks", schemas.NetworkList)


def list_stacks() -> Call[schemas.StackList]:
    """Training software of the catalog."""
    return _get("/catalog/stacks", schemas.StackList)


def list_stack_profiles() -> Call[schemas.StackProfileList]:
    """Of which versions that software is, and what it was fitted to."""
    return _get("/stacks", schemas.StackProfileList)


def list_trainers() -> Call[schemas.TrainerList]:
    """Trainers that sweeps may name."""
    return _get("/trainers", schemas.TrainerList)


def health() -> Call[schemas.Health]:
    """Whether the process answers."""
    return _get("/health", schemas.Health)


def ready() -> Call[schemas.Readiness]:
    """Whether the database answers and is migrated."""
    return _get("/ready", schemas.Readiness)
