"""TrialSpec: everything that the ranks of one trial job need to know."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import field, replace
from difflib import get_close_matches
from enum import StrEnum
from typing import Annotated, Literal

from autotuner.core.amounts import read_gigabytes, read_share, written_giga, written_share
from autotuner.core.choices import ExportFormat, GradientClip, GradientSync, ShardLevel
from autotuner.core.cluster import Cluster
from autotuner.core.codec import from_plain
from autotuner.core.errors import InvalidInput
from autotuner.core.fault_trace import FaultTrace
from autotuner.core.layout import OPTIONS, Layout
from autotuner.core.measurement import FinishedRun
from autotuner.core.model import TransformerSpec
from autotuner.core.stack import Stack
from autotuner.core.stages import ONE_STAGE_SCHEDULES
from autotuner.core.trial import EngineJob
from autotuner.core.value import (
    Caption,
    Count,
    CountFromZero,
    Flag,
    Hint,
    NonNegative,
    Positive,
    Rare,
    Share,
    Typed,
    value,
)
from autotuner.core.workload import Workload


class OptimizerName(StrEnum):
    """The optimizers that the trial job offers."""

    ADAMW = "adamw"  # arXiv 1711.05101
    LAMB = "lamb"  # arXiv 1904.00962: the step of each tensor is as long as the tensor's norm says
    MADGRAD = "madgrad"  # arXiv 2101.11075: dual averaging, with the cube root of the summed squares


@value
class OptimizerSettings:
    """An optimizer with its learning rate and its other settings."""

    name: OptimizerName = OptimizerName.ADAMW
    learning_rate: Positive
    """Learning rate of every step after the warm-up."""
    beta1: float = 0.9
    """Share of the first moment that stays from step to step; MADGRAD's momentum."""
    beta2: float = 0.999
    """Share of the second moment that stays. MADGRAD sums its squares and has none."""
    weight_decay: NonNegative = 0.01
    """Share of the parameters, times the learning rate, that each step takes away. LAMB makes it a part of the update
    whose length it sets."""
    warmup_steps: CountFromZero = 0
    """Number of first steps over which the learning rate rises linearly to its value."""

    def __post_init__(self) -> None:
        for name in ("beta1", "beta2"):
            share = getattr(self, name)
            if not 0 <= share < 1:
                raise InvalidInput(name, share, "must be 0 or more and below 1", 0.9 if share >= 1 else 0.0)

    def learning_rate_at(self, step: int) -> float:
        """Return the learning rate in this step, counted from 0."""
        return self.learning_rate * min(1.0, (step + 1) / (self.warmup_steps + 1))

    def refuses(self, layout: Layout) -> str | None:
        """Return the reason, as a sentence, why this optimizer cannot train with the layout; None if it can."""
        if layout.gradient_sync != GradientSync.FULL and self.name is not OptimizerName.ADAMW:
            return f"{layout.gradient_sync.label} exchanges less than gradients, for which only AdamW has been tried"
        if self.name is not OptimizerName.LAMB or _holds_whole_tensors(layout):
            return None
        return (
            "LAMB takes a step as long as the norm of each whole tensor says, and ranks of this layout update parts: "
            "it needs shard level none, no tensor or expert ranks, clipping behind the reduction, and one stage per "
            "rank where replicas have pipelines"
        )


def _holds_whole_tensors(layout: Layout) -> bool:
    """Return True if a rank updates each of its tensors as a whole, and not a part of it or a flat bucket."""
    is_split = layout.tensor_parallel_degree * layout.expert_parallel_degree > 1
    num_losses = layout.data_parallel_degree * layout.context_parallel_degree
    is_flat = num_losses > 1 and layout.pipeline_schedule not in ONE_STAGE_SCHEDULES
    is_clipped_flat = layout.gradient_clip != GradientClip.POST
    return layout.shard_level == ShardLevel.NONE and not (is_split or is_flat or is_clipped_flat)


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:+-]{0,63}")


@value
class Trainer:
    """A trainer (a training program) that the operator has registered, so that sweeps can measure it.

    Only the operator's settings know how it is started.
    """

    name: str
    format: ExportFormat
    """Export format of a layout for the trainer."""
    stack: str = "torch"
    """Name of the software that predictions are for, from the catalog."""
    options: tuple[str, ...] = ()
    """Fields of a layout that it reads; empty: all that the format can express."""
    fixed: Mapping[str, object] = field(default_factory=dict)
    """Values that its own code decides, by field of a layout, as in JSON. Every other field that it does not read is at
    its default."""
    values: Mapping[str, tuple[object, ...]] = field(default_factory=dict)
    """Values that it supports, for fields that it reads, as in JSON. It supports all values of other fields."""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            rule = "must be letters, digits and ._:+- only, 64 at most, a letter or a digit first"
            raise InvalidInput("name", self.name, rule)
        if not self.format.is_of_a_trainer:
            raise InvalidInput("format", self.format.value, "starts our own trial, so it is no trainer's")
        for index, name in enumerate(self.options):
            _require_field(name, f"options.{index}")
            if name in self.fixed:
                raise InvalidInput(f"fixed.{name}", self.fixed[name], "is one of the options, so it is not fixed")
        for name in self.fixed:
            _require_field(name, f"fixed.{name}")
        from_plain(Layout, dict(self.fixed), "fixed")
        for name in self.values:
            _require_field(name, f"values.{name}")
            if name in self.fixed or (self.options and name not in self.options):
                raise InvalidInput(f"values.{name}", list(self.values[name]), "is of a field that it does not read")
            if not self.known(name):
                raise InvalidInput(f"values.{name}", [], "must be one value or more")

    def reads(self, name: str, elsewhere: Collection[str]) -> bool:
        """Return True if the value of this layout field reaches the trainer.

        Args:
            name: Name of the field of a layout.
            elsewhere: Fields that the export format leaves to the trainer's own code. The trainer reads them only if
                they are in ``options``.
        """
        return name in self.options if self.options else name not in self.fixed and name not in elsewhere

    def held(self, name: str) -> int | None:
        """Return the value of a layout field that the trainer's own code fixes; None if it fixes none."""
        value: int = getattr(from_plain(Layout, dict(self.fixed)), name)
        return value if name in self.fixed else None

    def known(self, name: str) -> tuple[int, ...]:
        """Return the values of a layout field that the trainer supports; empty if it supports all."""
        plain = self.values.get(name, ())
        return tuple(getattr(from_plain(Layout, {name: value}, "values"), name) for value in plain)


@value
class TrainerOffer(Trainer):
    """A registered trainer as sweeps may request it; ``options`` has every field that a sweep may search."""

    version: str
    """Release of the export format."""


def _require_field(name: str, path: str) -> None:
    if name not in OPTIONS:
        near = get_close_matches(name, OPTIONS, 1, cutoff=0.0)
        raise InvalidInput(path, name, "is no field of a layout", near[0] if near else None)


_CUSTOMARY_NORM = 1.0
"""Customary norm to which gradients of large language models are clipped (arXiv 2005.14165, appendix B; arXiv
2302.13971, section 2.3)."""


_AS_SHARE, _AS_GIGABYTES = Typed(read_share, written_share), Typed(read_gigabytes, written_giga, "in GB")


@value
class TrialSettings:
    """The settings that decide how long and how precisely each trial of a sweep is measured."""

    warmup_steps: Annotated[CountFromZero, Caption("Warm-up steps, at least")] = 2
    """Fewest steps before timing starts; more are run until the step time is stationary."""
    max_warmup_steps: Annotated[CountFromZero, Caption("Warm-up steps, at most"), Rare()] = 20
    """Most steps before timing starts, unless the fewest are more."""
    measured_steps: Annotated[Count, Caption("Measured steps, at least")] = 5
    """Fewest steps whose times are kept; more are run until their median is known well enough."""
    max_measured_steps: Annotated[CountFromZero, Caption("Measured steps, at most"), Rare()] = 40
    """Most steps whose times are kept, unless the fewest are more."""
    target_interval: Annotated[NonNegative, _AS_SHARE, Caption("Interval to reach")] = 0.01
    """Precision to reach: half the 95 % confidence interval of the median step time, as a share of it."""
    measuring_budget_s: Annotated[Positive, Flag("measuring-seconds"), Caption("Measure for")] = 5.0
    """Seconds of steps after which no more are run than the fewest, to warm up and to measure."""
    profiled_steps: Annotated[CountFromZero, Rare()] = 1
    """Steps run after the timed ones, under the profiler, for the breakdown by phase; 0: none."""
    timeout_s: Positive = 300.0
    """Seconds from launch to the last report after which a trial is ended, without steps under a fault trace."""
    faulty_step_timeout_s: Annotated[Positive, Caption("Timeout of a step under faults"), Rare()] = 10.0
    """Seconds that each step of the sweep's fault trace adds to the timeout, so that a long trace runs to its end."""
    memory_budget_bytes: Annotated[
        Count | None, _AS_GIGABYTES, Caption("Memory of a rank"), Hint("all of it"), Rare()
    ] = None
    """Limit of memory per rank; on a CPU it makes an out-of-memory failure possible. None: all of the memory."""
    learning_rate: Annotated[Positive, Rare()] = 1e-3
    """Learning rate of every step of a trial."""
    max_gradient_norm: Annotated[Positive | None, Caption("Gradient norm"), Hint("not clipped"), Rare()] = None
    """Norm to which gradients of the whole model are scaled down before each update; None: they are not."""
    num_languages: Annotated[Count, Caption("Languages of sequences"), Rare()] = 1
    """Number of languages of the sequences. Each data-parallel rank reads one, so that it learns the others only from
    other ranks. 1: all ranks read the same."""
    num_validation_batches: Annotated[CountFromZero, Rare()] = 0
    """Number of batches after the last step whose loss is computed without an update. Each rank reads all languages by
    turns. 0: none."""
    max_foreign_share: Annotated[Share, _AS_SHARE, Caption("Disturbed above"), Rare()] = 0.1
    """Share of the machine's CPU time above which use by other processes disturbs a trial."""
    max_repeats: Annotated[CountFromZero, Caption("Repeats of disturbed ones"), Rare()] = 1
    """Number of times a disturbed trial is run again before the least disturbed run is taken."""
    num_runs: Annotated[Count, Caption("Runs of each trial"), Rare()] = 1
    """Number of runs of the same trial on fresh ranks; from two on, their medians tell the noise floor (A/A)."""
    proxy_layers_per_stage: Annotated[
        tuple[int, ...], Caption("Layers of proxies"), Hint("two numbers; whole model"), Rare()
    ] = ()
    """Two numbers of layers per stage to run instead of the whole model, whose figures are then extrapolated; empty:
    the whole model runs."""

    def __post_init__(self) -> None:
        proxy = self.proxy_layers_per_stage
        if proxy and not (len(proxy) == 2 and 0 < proxy[0] < proxy[1]):
            rule = "must be two rising numbers of layers, 1 or more, or be left out"
            raise InvalidInput("proxy_layers_per_stage", list(proxy), rule)

    @classmethod
    def default_for(cls, layout: Layout) -> TrialSettings:
        """Return the default settings for trials of a layout.

        If the layout clips gradients before their reduction, a customary maximum norm is set.
        """
        return cls(max_gradient_norm=None if layout.gradient_clip == GradientClip.POST else _CUSTOMARY_NORM)

    def require_norm(self, clips: Iterable[GradientClip]) -> None:
        """Check that a maximum norm is set if one of these ways to clip gradients needs it.

        Args:
            clips: Ways to clip gradients that trials use.

        Raises:
            InvalidInput: Gradients are clipped before their reduction, and no norm is set.
        """
        early = next((one for one in clips if one != GradientClip.POST), None)
        if early is not None and self.max_gradient_norm is None:
            rule = f"must be set where clip {early} is tried, because nothing is clipped without a norm"
            raise InvalidInput("max_gradient_norm", None, rule, _CUSTOMARY_NORM)

    def just_steps(self, num_steps: int) -> TrialSettings:
        """Return settings for a training of exactly this number of steps, without warm-up, repeats and profiling."""
        return replace(
            self,
            warmup_steps=0,
            max_warmup_steps=0,
            measured_steps=num_steps,
            max_measured_steps=num_steps,
            profiled_steps=0,
            max_repeats=0,
            num_runs=1,
            proxy_layers_per_stage=(),
        )


@value
class TrialSpec:
    """Everything that a trial job needs to know. It is sent to the job as JSON."""

    trial_id: str
    model: TransformerSpec
    workload: Workload
    layout: Layout
    device: Literal["cpu", "cuda"]
    settings: TrialSettings = field(default_factory=TrialSettings)
    seed: int = 0
    reference_flop_per_s: float | None = None
    """Peak of one rank that MFU is a share of, the same for all trials of a sweep; None: the GEMM rate of the ranks'
    cores is measured."""
    precision_flop_per_s: float | None = None
    """Dense peak of one rank in the layout's precision, if it is known."""
    memory_bytes: int | None = None
    """Memory of one rank's device, if it is known, which limits extrapolated figures."""
    trainer: Trainer | None = None
    """Trainer that runs; None: the product's own decoder."""
    cluster: Cluster | None = None
    """Cluster where it runs, which decides its engine and parts of a trainer's configuration; None: this machine."""
    run: CountFromZero = 0
    """Number of the run, if a trial consists of several."""
    repeat: CountFromZero = 0
    """Number of a trial that repeats another, so that simulated figures differ from run to run; otherwise 0."""
    jobs: tuple[EngineJob, ...] = ()
    """Jobs that engines were given for the trial before, so that they are found again."""
    runs: tuple[FinishedRun, ...] = ()
    """Runs that finished before and are not repeated."""
    stack: Stack | None = None
    """Software of the prediction for a simulated trial; None: the product's own."""
    fault_trace: FaultTrace | None = None
    """Faults of its links in further steps after the measured ones; None: there are none."""
    optimizer: OptimizerSettings | None = None
    """Optimizer that updates the parameters; None: AdamW as in torch, at the learning rate of the settings."""

    def __post_init__(self) -> None:
        if self.trainer is not None and self.cluster is None:
            raise InvalidInput("cluster", None, "must be given with a trainer")
        if self.settings.num_languages > self.model.vocab_size:
            rule = f"must not exceed the vocabulary of {self.model.vocab_size}: each language needs a word"
            raise InvalidInput("num_languages", self.settings.num_languages, rule, self.model.vocab_size)
        if self.fault_trace is not None and self.cluster is None:
            raise InvalidInput("cluster", None, "must be given with a fault_trace: it says what a link joins")
        try:
            self.settings.require_norm((self.layout.gradient_clip,))
        except InvalidInput as error:
            raise error.under("settings") from error

    @property
    def trained_by(self) -> OptimizerSettings:
        """The optimizer that the trial trains with: the given one, or the default with the trial's learning rate."""
        return self.optimizer or OptimizerSettings(learning_rate=self.settings.learning_rate)

    @property
    def has_slow_links(self) -> bool:
        """True if links are artificially slowed in some step, by a fault trace or by assumed link states."""
        assumed = self.cluster.link_health if self.cluster else ()
        return self.fault_trace is not None or any(not (one.source or one.is_healthy) for one in assumed)


@value
class NodeTask:
    """A task that runs on every node of a job: a trial, the command of a trainer, or a module that measures."""

    job_name: str
    """Name that marks each of its processes (``AUTOTUNER_ATTEMPT_ID``)."""
    num_nodes: Count
    """Number of nodes that run it."""
    ranks_per_node: Count
    """Number of ranks on each node."""
    time_limit_s: Positive
    """Time limit from a node's start. Then ranks write their stacks and are ended, whoever still listens."""
    spec: TrialSpec | None = None
    """Trial; None if ``module`` is not a trial."""
    module: str = "trials"
    """Module that torchrun runs without a command, as ``python -m module --spec FILE --reports FILE``."""
    request: str = ""
    """Spec of ``module`` as JSON, if it is not a trial."""
    command: tuple[str, ...] = ()
    """Command of a trainer, once per node, instead of torchrun. It may contain ``{folder}`` (of ``files``),
    ``{python}``, ``{num_nodes}``, ``{node_rank}``, ``{ranks_per_node}``, ``{master_address}`` and ``{master_port}``,
    which only the node knows."""
    working_directory: str = ""
    """Folder in which the command is started; empty: the node's own folder for the job."""
    passed: tuple[str, ...] = ()
    """Names of the node's variables that the command gets. The product's own task gets all of them."""
    variables: dict[str, str] = field(default_factory=dict)
    """Further variables of the task."""
    files: dict[str, str] = field(default_factory=dict)
    """Texts by file name, written to ``{folder}`` before the command is started."""
