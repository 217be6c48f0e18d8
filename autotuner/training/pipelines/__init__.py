"""Pipelines that continue to train when a link becomes slow or fails.

``docs/how-to/use-a-technique-in-your-own-loop.md`` shows how to use them.
"""

from autotuner.training.pipelines.channels import Neighbourhood
from autotuner.training.pipelines.controller import ControlGroup, Controller, Powers, noticed_delays_s, pass_times
from autotuner.training.pipelines.detector import RankObservation
from autotuner.training.pipelines.pipeline import ResilientPipeline, TimedStage
from autotuner.training.pipelines.standby import Standby
from autotuner.training.pipelines.transport import LinkCondition, LinkConditions

__all__ = [
    "ControlGroup",
    "Controller",
    "LinkCondition",
    "LinkConditions",
    "Neighbourhood",
    "Powers",
    "RankObservation",
    "ResilientPipeline",
    "Standby",
    "TimedStage",
    "noticed_delays_s",
    "pass_times",
]
