"""What travels over REST, as dataclasses; ``dataclass_schema`` and the codec turn them into OpenAPI and JSON.

A number that the cost model predicts stands under ``predicted``, one that a trial measured under ``measured``;
no object mixes the two.
"""

from api.schemas.descriptions import AcceleratorDetail, AcceleratorList, ClusterList, Health, ModelList, Readiness
from api.schemas.predictions import Predicted, PredictedLayout, PredictionTable
from api.schemas.requests import PredictionRequest, SweepCreate
from api.schemas.sweeps import Progress, SweepDetail, SweepPage, SweepSummary, TrialCounts
from api.schemas.trials import RankedTrial, RankingPage, TrialDetail, TrialPage, TrialView

__all__ = [
    "AcceleratorDetail",
    "AcceleratorList",
    "ClusterList",
    "Health",
    "ModelList",
    "Predicted",
    "PredictedLayout",
    "PredictionRequest",
    "PredictionTable",
    "Progress",
    "RankedTrial",
    "RankingPage",
    "Readiness",
    "SweepCreate",
    "SweepDetail",
    "SweepPage",
    "SweepSummary",
    "TrialCounts",
    "TrialDetail",
    "TrialPage",
    "TrialView",
]
