"""Every log that is understood, and how a reader of each is made."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from autotuner.core.trial_spec import TrialSpec
from autotuner.launch.trainers.log_readers.deepspeed import DeepspeedLog
from autotuner.launch.trainers.log_readers.megatron import MegatronLog
from autotuner.launch.trainers.log_readers.torchtitan import TorchtitanLog
from autotuner.launch.trainers.log_readers.transformers import TransformersLog
from autotuner.launch.trainers.reported import LogReader

NewReader = Callable[[TrialSpec], LogReader]
"""Makes a reader for one run, since lines are read in the order in which they were printed."""

READERS: Mapping[str, NewReader] = {
    "megatron-lm": MegatronLog,
    "torchtitan": TorchtitanLog,
    "deepspeed": DeepspeedLog,
    "transformers": TransformersLog,
}
"""By the name that a registration says (``reports = "megatron-lm"``)."""
