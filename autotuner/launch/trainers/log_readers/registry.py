"""Every log reader, by the name under which a trainer's registration asks for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from autotuner.domain.runs.trial import TrialSpec
from autotuner.launch.trainers.log_readers.deepspeed import DeepspeedLog
from autotuner.launch.trainers.log_readers.megatron import MegatronLog
from autotuner.launch.trainers.log_readers.torchtitan import TorchtitanLog
from autotuner.launch.trainers.log_readers.transformers import TransformersLog
from autotuner.launch.trainers.reported import LogReader

__all__ = ["READERS"]

READERS: Mapping[str, Callable[[TrialSpec], LogReader]] = {
    "megatron-lm": MegatronLog,
    "torchtitan": TorchtitanLog,
    "deepspeed": DeepspeedLog,
    "transformers": TransformersLog,
}
"""A new reader per run: lines are read in the order in which they were printed."""
