"""Job: a model, a cluster, a workload and a software stack, with calibration factors; and jobs in several phases."""

from __future__ import annotations

from dataclasses import field, replace
from typing import Annotated

from autotuner.core.amounts import read_giga, written_giga
from autotuner.core.choices import Precision
from autotuner.core.cluster import Cluster
from autotuner.core.errors import InvalidInput
from autotuner.core.link import LinkHealth
from autotuner.core.model import TransformerSpec
from autotuner.core.stack import Stack
from autotuner.core.value import (
    Count,
    CountFromZero,
    Flag,
    Hint,
    NonNegative,
    Positive,
    PositiveShare,
    Seconds,
    Typed,
    value,
)
from autotuner.core.workload import Workload

BF16_ON_CORES = "bf16_on_cores"
"""Name of the factor for layouts that multiply in bf16 on CPU cores, whose reference precision is fp32. It multiplies
the factors of ``BF16_PARTS``, because some cores have bf16 units and others emulate bf16."""

BF16_PARTS = ("matrix_s", "attention_s", "recompute_s", "bubble_s")
"""Fields of ``StepTime`` that grow with the time of matrix products."""


@value
class PartFactor:
    """A correction factor for the predicted time of one part of a step, on top of the factor of the whole step."""

    part: str
    """Name of the part of a step: a field of ``StepTime``, or ``BF16_ON_CORES``."""
    factor: Positive
    """Measured time of the part divided by its predicted time, on top of the factor of the whole step."""
    deviation: NonNegative
    """Standard deviation of the factor's logarithm that remains after the measured runs."""


@value
class Calibration:
    """Correction factors from measured runs on a cluster, by which predictions for this cluster are multiplied.

    A cluster as a whole may be slower or faster than a typical one, because of clocks, cooling, versions, or other
    users of its network. One common factor corrects this. It is the same for all layouts and does not change their
    order. If stored trials show more, each part of a step has a second factor, by which the common factor is
    multiplied. The second factor is 1 for a part that is as much slower or faster as the whole step.
    """

    factor: Positive
    """Measured step times on this cluster divided by those predicted for a typical cluster of this kind."""
    deviation: NonNegative
    """Standard deviation of the factor's logarithm that remains after the measured runs."""
    num_runs: Count
    """Number of measured runs that the factor was computed from."""
    num_trials: CountFromZero = 0
    """Number of those runs that are stored trials of earlier sweeps."""
    num_sweeps: CountFromZero = 0
    """Number of sweeps that these trials belong to."""
    parts: tuple[PartFactor, ...] = ()
    """Factors of the parts of a step, on top of the common factor; empty: only the factor of the whole step is
    known."""
    correlations: tuple[tuple[float, ...], ...] = ()
    """Correlations between the logarithms of the factors, as a square matrix: the parts in their order, then the whole
    step. Runs that determine the sum of two parts well may leave each of the two uncertain."""
    interval_scale: Positive = 1.0
    """Factor that widens intervals, in logarithms. It is chosen so that intervals contain as many runs as they claim
    when each run is predicted from the runs of other jobs alone."""

    def __post_init__(self) -> None:
        size = len(self.parts) + 1 if self.parts else 0
        if [len(row) for row in self.correlations] != [size] * size:
            shape = [len(row) for row in self.correlations]
            rule = f"must have {size} rows of {size} numbers: one for each part of a step, and one for the whole step"
            raise InvalidInput("correlations", shape, rule)

    def of(self, part: str) -> float:
        """Return the total correction factor of a part of the step: the part's own factor times the common factor.

        Args:
            part: Name of a field of ``StepTime``.
        """
        return self.factor * self._beside(part)

    @property
    def bf16_on_cores(self) -> float:
        """The additional correction factor for layouts that compute in bf16 on CPU cores; 1.0 if it is not known.

        The times of the parts of a step that ``BF16_PARTS`` lists are multiplied by it.
        """
        return self._beside(BF16_ON_CORES)

    def _beside(self, part: str) -> float:
        return next((one.factor for one in self.parts if one.part == part), 1.0)


@value
class Job:
    """The inputs that stay fixed while a layout is chosen: model, cluster, workload and software stack.

    Raises:
        InvalidInput: The sequence is longer than the model's learned positions.

    Example:
        >>> from autotuner.catalog.hardware import load_cluster
        >>> from autotuner.catalog.models import load_model
        >>> workload = Workload(seq_len=8192, global_batch_size=64)
        >>> job = Job(model=load_model("llama-3.1-8b"), cluster=load_cluster("h100:8"), workload=workload)
        >>> job.workload.tokens_per_step
        524288
    """

    model: TransformerSpec
    cluster: Cluster
    workload: Workload
    stack: Stack = field(default_factory=Stack)
    calibration: Calibration | None = None
    """Factors from measured runs on the cluster; None: predictions are for a typical cluster of this kind."""

    def __post_init__(self) -> None:
        positions, seq_len = self.model.num_learned_positions, self.workload.seq_len
        if 0 < positions < seq_len:
            rule = f"must be at most {positions}, the number of learned positions of {self.model.name}"
            raise InvalidInput("workload.seq_len", seq_len, rule, positions)


MOST_PHASES = 32
"""Most phases of a job, several times those of published trainings. Llama 3 405B lengthened its sequences in six stages
(arXiv 2407.21783, section 3.4.2)."""

_SUMS_WITHIN = 1e-6
"""Tolerance of the sum of shares, because people round the shares that they write."""

_STORAGE_BYTES_PER_S = 2e12 / 24_000
"""Storage bandwidth per accelerator: 2 TB/s sustained for 24,000 of them (arXiv 2407.21783, section 3.3.1)."""

_RESTART_S = 30.0
"""Seconds until the ranks of more than 10,000 accelerators have connected (arXiv 2402.15627, section 3.5). The time to
load the program and its data comes on top, and the caller states it."""

_CORES_STORAGE_BYTES_PER_S = 45e6
_CORES_RESTART_S = 1.0
"""Default costs of a switch on CPU cores: bytes per second of each rank that saves or loads a checkpoint, and seconds
to start new ranks. They were measured on 2026-11-23 (docs/explanation/plans.md)."""


@value
class JobPhase:
    """A phase of a training, such as one with longer sequences. A field that is None has the job's value."""

    name: str
    """Name of the phase in answers."""
    token_share: PositiveShare
    """Share of the job's tokens that this phase trains on."""
    seq_len: Count | None = None
    """Tokens per sequence."""
    global_batch_size: Count | None = None
    """Sequences per optimizer step."""
    bandwidth_bytes_per_s: Positive | None = None
    """Network bandwidth between nodes that one accelerator gets in this phase."""
    link_health: tuple[LinkHealth, ...] = ()
    """Links whose state in this phase differs from the cluster's description."""
    precision: Precision | None = None
    """Number format that the phase must be trained in."""

    def job(self, whole: Job) -> Job:
        """Return the job during this phase: the job of the whole training with the changes that the phase states.

        Args:
            whole: The job of the whole training.

        Raises:
            InvalidInput: The phase's sequences are too long for the model, or the cluster lacks a link that the phase
                names.
        """
        cluster = whole.cluster
        if self.bandwidth_bytes_per_s is not None:
            link = cluster.inter_node_link.with_bandwidth(self.bandwidth_bytes_per_s)
            cluster = replace(cluster, inter_node_link=link)
        workload = replace(
            whole.workload,
            seq_len=self.seq_len or whole.workload.seq_len,
            global_batch_size=self.global_batch_size or whole.workload.global_batch_size,
        )
        return replace(whole, cluster=cluster.with_link_health(self.link_health), workload=workload)


@value
class SwitchCost:
    """The cost of a switch to another layout: the job writes a checkpoint, starts its ranks again, and reads it."""

    restart_s: Annotated[Seconds | None, Hint("30")] = None
    """Seconds from the end of the old ranks until the new ranks can train; None: a published or measured value for such
    accelerators."""
    storage_bytes_per_s: Annotated[
        Positive | None, Flag("storage"), Typed(read_giga, written_giga, "in GB/s"), Hint("as published")
    ] = None
    """Rate at which the whole job writes or reads a checkpoint; None: a published or measured value."""

    def known_for(self, job: Job) -> SwitchCost:
        """Return the cost with a default for its restart time or storage bandwidth if one of them is None.

        The defaults depend on the kind of the job's accelerators, and the bandwidth also on their number.
        """
        on_cores = job.cluster.accelerator.kind == "cpu"
        restart_s = _CORES_RESTART_S if on_cores else _RESTART_S
        each = _CORES_STORAGE_BYTES_PER_S if on_cores else _STORAGE_BYTES_PER_S
        return SwitchCost(
            restart_s=restart_s if self.restart_s is None else self.restart_s,
            storage_bytes_per_s=self.storage_bytes_per_s or each * job.cluster.world_size,
        )

    def seconds(self, job: Job) -> float:
        """Return the seconds that one switch between two layouts takes; it is the same for all layouts."""
        known = self.known_for(job)
        assert known.restart_s is not None
        assert known.storage_bytes_per_s is not None
        return known.restart_s + 2.0 * checkpoint_bytes(job) / known.storage_bytes_per_s


def checkpoint_bytes(job: Job) -> float:
    """Return the bytes of a checkpoint of the job: fp32 master weights and both moments of AdamW.

    Example:
        >>> from autotuner.catalog.hardware import load_cluster
        >>> from autotuner.catalog.models import load_model
        >>> workload = Workload(seq_len=8192, global_batch_size=64)
        >>> job = Job(model=load_model("llama-3.1-8b"), cluster=load_cluster("h100:8"), workload=workload)
        >>> checkpoint_bytes(job)
        96363134976.0
    """
    moment_bytes = 4 if job.workload.optimizer_state_precision == "fp32" else 2
    return float(job.model.num_parameters) * (4 + 2 * moment_bytes)


@value
class PhasedJob:
    """A training in several phases: the job, the phases in order, and the cost of a switch between two layouts.

    Raises:
        InvalidInput: There is no phase, or there are too many; two phases have the same name; their shares do not sum
            to 1; or a phase does not fit the job.
    """

    job: Job
    num_tokens: Positive
    """Number of tokens of the whole training."""
    phases: tuple[JobPhase, ...]
    switch: SwitchCost = field(default_factory=SwitchCost)

    def __post_init__(self) -> None:
        if not 0 < len(self.phases) <= MOST_PHASES:
            raise InvalidInput(
                "phases", len(self.phases), f"must be 1 to {MOST_PHASES} phases", MOST_PHASES if self.phases else 1
            )
        names = [phase.name for phase in self.phases]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise InvalidInput("phases.name", twice, "must be a different name for each phase", f"{twice} 2")
        total = sum(phase.token_share for phase in self.phases)
        if abs(total - 1.0) > _SUMS_WITHIN:
            last = self.phases[-1].token_share + 1.0 - total
            rule = f"is the share of the last phase, and all shares must sum to 1, but they sum to {total:.6g}"
            nearest = round(last, 6) if last >= _SUMS_WITHIN else None
            raise InvalidInput("phases.token_share", self.phases[-1].token_share, rule, nearest)
        for index, phase in enumerate(self.phases):
            try:
                phase.job(self.job)
            except InvalidInput as error:
                raise error.under(f"phases.{index}") from error

    def job_in(self, phase: JobPhase) -> Job:
        """Return the job during one of its phases: the whole job with the changes that the phase states."""
        return phase.job(self.job)

    def num_steps(self, phase: JobPhase) -> float:
        """Return the number of optimizer steps of a phase. It need not be a whole number."""
        return self.num_tokens * phase.token_share / phase.job(self.job).workload.tokens_per_step

    @property
    def switch_s(self) -> float:
        """The seconds that one switch between two layouts takes."""
        return self.switch.seconds(self.job)
