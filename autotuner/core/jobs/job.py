"""Job: what is given while layouts are chosen."""

from __future__ import annotations

from dataclasses import dataclass, field

from autotuner.core.jobs.calibration import Calibration
from autotuner.core.jobs.cluster import Cluster
from autotuner.core.jobs.model import TransformerSpec
from autotuner.core.jobs.stack import Stack
from autotuner.core.jobs.workload import Workload
from autotuner.errors import InvalidInput

__all__ = ["Job"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What is given while layouts are chosen: model, cluster, workload, and the software that will run them.

    Attributes:
        calibration: What measured runs on the cluster say of its speed; None: it is taken to be typical.

    Raises:
        InvalidInput: The sequence is longer than the model's learned positions.
    """

    model: TransformerSpec
    cluster: Cluster
    workload: Workload
    stack: Stack = field(default_factory=Stack)
    calibration: Calibration | None = None

    def __post_init__(self) -> None:
        positions, seq_len = self.model.num_learned_positions, self.workload.seq_len
        if 0 < positions < seq_len:
            rule = f"must not exceed the {positions} learned positions of {self.model.name}"
            raise InvalidInput("workload.seq_len", seq_len, rule, positions)
