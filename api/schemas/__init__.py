"""What travels over REST, as dataclasses that ``documents`` reads, writes and describes.

A number that the cost model predicts stands under ``predicted``, one that a trial measured under ``measured``;
no object mixes the two.
"""

from api.schemas.access import CallerView, TokenCreate, TokenCreated, TokenList
from api.schemas.accounts import AuditPage
from api.schemas.attention import AttentionList, TroubleView
from api.schemas.calibrations import CalibrationList, CalibrationView, LearntFactor
from api.schemas.clusters import CheckPage, CheckView, EngineList, LinkList, LinkStanding
from api.schemas.comparisons import ComparedLayout, ComparisonRequest, LayoutComparison
from api.schemas.control import BudgetChange, SweepClone
from api.schemas.descriptions import (
    AcceleratorDetail,
    AcceleratorList,
    ClusterList,
    Health,
    ModelList,
    Readiness,
    StackList,
    StackProfileList,
)
from api.schemas.explanations import LayoutChange, LayoutExplanation, SweepRules
from api.schemas.exports import (
    ExportRequest,
    FormatList,
    FormatRule,
    FormatView,
    ImportedLayout,
    ImportRequest,
    LayoutExport,
)
from api.schemas.gates import BaselineList, BaselineView, GateCreate, GatePage, GateView
from api.schemas.job_phases import PhasesRequest
from api.schemas.optimizer_studies import (
    OptimizerStudyCreate,
    OptimizerStudyDetail,
    OptimizerStudyPage,
    OptimizerStudyView,
    OptimizerTrialView,
)
from api.schemas.previews import NotStoodFor, SmallTrials, SweepPreview
from api.schemas.requests import SweepCreate
from api.schemas.results import SweepAccuracy, SweepAnswer, SweepChoices, SweepFailures, SweepLayers
from api.schemas.retunes import (
    Adoption,
    RetuneCreate,
    RetuneDetail,
    RetuneList,
    RetuneRunPage,
    RetuneRunView,
    RetuneTrend,
    RetuneView,
)
from api.schemas.sweeps import Progress, SweepDetail, SweepPage, SweepSummary, TrialCounts
from api.schemas.tables import TableColumn, TableItem, TablePage
from api.schemas.topologies import NetworkList, TopologyReading, TopologyRequest
from api.schemas.trainers import TrainerList, TrainerView
from api.schemas.trials import Estimated, RankedTrial, RankingPage, SmallTrialView, TrialDetail, TrialPage, TrialView
from api.schemas.webhooks import DeliveryPage, WebhookCreate, WebhookCreated, WebhookList, WebhookTest, WebhookView
from api.schemas.workers import WorkerList, WorkerView
from autotuner.requests import (
    AS_CLUSTERS_ARE_WRITTEN,
    ExplanationRequest,
    LayersRequest,
    PlanCreate,
    PredictionRequest,
    as_described,
    named_cluster,
    named_model,
)
from autotuner.search.advice.current import Gain
from autotuner.search.explain.bandwidth_curve import BandwidthCurve
from autotuner.search.explain.layers import LayerReport
from autotuner.search.explain.link_timelines import LinkTimelines
from autotuner.search.explain.trial_parts import TrialParts
from autotuner.search.explain.trial_timelines import TrialTimelines
from autotuner.search.job_phases.plan import PhasesPlan
from autotuner.search.planning.plan_view import (
    PlanView,
)
from autotuner.search.predictions import (
    Current,
    LargerCluster,
    ModelSize,
    NotSearched,
    Predicted,
    PredictedLayout,
    PredictionTable,
    Remedy,
    Shortfall,
)
from autotuner.search.results.front import SweepFront

__all__ = [
    "AS_CLUSTERS_ARE_WRITTEN",
    "AcceleratorDetail",
    "AcceleratorList",
    "Adoption",
    "AttentionList",
    "AuditPage",
    "BandwidthCurve",
    "BaselineList",
    "BaselineView",
    "BudgetChange",
    "CalibrationList",
    "CalibrationView",
    "CallerView",
    "CheckPage",
    "CheckView",
    "ClusterList",
    "ComparedLayout",
    "ComparisonRequest",
    "Current",
    "DeliveryPage",
    "EngineList",
    "Estimated",
    "ExplanationRequest",
    "ExportRequest",
    "FormatList",
    "FormatRule",
    "FormatView",
    "Gain",
    "GateCreate",
    "GatePage",
    "GateView",
    "Health",
    "ImportRequest",
    "ImportedLayout",
    "LargerCluster",
    "LayerReport",
    "LayersRequest",
    "LayoutChange",
    "LayoutComparison",
    "LayoutExplanation",
    "LayoutExport",
    "LearntFactor",
    "LinkList",
    "LinkStanding",
    "LinkTimelines",
    "ModelList",
    "ModelSize",
    "NetworkList",
    "NotSearched",
    "NotStoodFor",
    "OptimizerStudyCreate",
    "OptimizerStudyDetail",
    "OptimizerStudyPage",
    "OptimizerStudyView",
    "OptimizerTrialView",
    "PhasesPlan",
    "PhasesRequest",
    "PlanCreate",
    "PlanView",
    "Predicted",
    "PredictedLayout",
    "PredictionRequest",
    "PredictionTable",
    "Progress",
    "RankedTrial",
    "RankingPage",
    "Readiness",
    "Remedy",
    "RetuneCreate",
    "RetuneDetail",
    "RetuneList",
    "RetuneRunPage",
    "RetuneRunView",
    "RetuneTrend",
    "RetuneView",
    "Shortfall",
    "SmallTrialView",
    "SmallTrials",
    "StackList",
    "StackProfileList",
    "SweepAccuracy",
    "SweepAnswer",
    "SweepChoices",
    "SweepClone",
    "SweepCreate",
    "SweepDetail",
    "SweepFailures",
    "SweepFront",
    "SweepLayers",
    "SweepPage",
    "SweepPreview",
    "SweepRules",
    "SweepSummary",
    "TableColumn",
    "TableItem",
    "TablePage",
    "TokenCreate",
    "TokenCreated",
    "TokenList",
    "TopologyReading",
    "TopologyRequest",
    "TrainerList",
    "TrainerView",
    "TrialCounts",
    "TrialDetail",
    "TrialPage",
    "TrialParts",
    "TrialTimelines",
    "TrialView",
    "TroubleView",
    "WebhookCreate",
    "WebhookCreated",
    "WebhookList",
    "WebhookTest",
    "WebhookView",
    "WorkerList",
    "WorkerView",
    "as_described",
    "named_cluster",
    "named_model",
]
