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
    """The optimizers with which the product's own trial job can train."""

    ADAMW = "adamw"  # arXiv 1711.05101
    LAMB = "lamb"  # arXiv 1904.00962: the length of each tensor's step is proportional to the tensor's norm
    MADGRAD = "madgrad"  # arXiv 2101.11075: dual averaging, with the cube root of the summed squares


@value
class OptimizerSettings:
    """An optimizer with its learning rate and its other settings."""

    name: OptimizerName = OptimizerName.ADAMW
    learning_rate: Positive
    """Learning rate of every step after the warm-up."""
    beta1: float = 0.9
    """Share of the first moment that is kept from step to step; for MADGRAD, its momentum."""
    beta2: float = 0.999
    """Share of the second moment that is kept from step to step. MADGRAD sums its squares and has no such decay."""
    weight_decay: NonNegative = 0.01
    """Weight decay: each step reduces the parameters by this share times the learning rate. LAMB adds the decay to its
    update before it normalises the update."""
    warmup_steps: CountFromZero = 0
    """Number of first steps during which the learning rate rises linearly to ``learning_rate``."""

    def __post_init__(self) -> None:
        for name in ("beta1", "beta2"):
            share = getattr(self, name)
            if not 0 <= share < 1:
                raise InvalidInput(name, share, "must be 0 or more and below 1", 0.999 if share >= 1 else 0.0)

    def learning_rate_at(self, step: int) -> float:
        """Return the learning rate in this step, counted from 0."""
        return self.learning_rate * min(1.0, (step + 1) / (self.warmup_steps + 1))

    def refuses(self, layout: Layout) -> str | None:
        """Return the reason, as a sentence, why this optimizer cannot train with the layout; None if it can."""
        if layout.gradient_sync != GradientSync.FULL and self.name is not OptimizerName.ADAMW:
            return (
                f"{layout.gradient_sync.label} exchange sends less than whole gradients, which is supported "
                "only with AdamW; choose AdamW"
            )
        if self.name is not OptimizerName.LAMB or _holds_whole_tensors(layout):
            return None
        return (
            "LAMB needs the norm of each whole tensor, but the ranks of this layout update parts of "
            "tensors: choose shard level none, one tensor rank, one expert rank and clip post, and one "
            "stage per rank if replicas have pipelines"
        )


def _holds_whole_tensors(layout: Layout) -> bool:
    """Return True if a rank updates each of its tensors as a whole, and not a part of a tensor or a flat bucket."""
    is_split = layout.tensor_parallel_degree * layout.expert_parallel_degree > 1
    num_losses = layout.data_parallel_degree * layout.context_parallel_degree
    is_flat = num_losses > 1 and layout.pipeline_schedule not in ONE_STAGE_SCHEDULES
    is_clipped_flat = layout.gradient_clip != GradientClip.POST
    return layout.shard_level == ShardLevel.NONE and not (is_split or is_flat or is_clipped_flat)


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:+-]{0,63}")


@value
class Trainer:
    """A trainer (a training program) that the operator has registered, so that sweeps can measure it.

    The command that starts the trainer is only in the operator's settings.
    """

    name: str
    format: ExportFormat
    """Format in which a layout is exported for the trainer."""
    stack: str = "torch"
    """Name of the software that predictions are for, from the catalog."""
    options: tuple[str, ...] = ()
    """Fields of a layout that the trainer reads; empty: all fields that the format can express."""
    fixed: Mapping[str, object] = field(default_factory=dict)
    """Fields of a layout that the trainer's own code decides, with their values as in JSON. Every other field that the
    trainer does not read has its default."""
    values: Mapping[str, tuple[object, ...]] = field(default_factory=dict)
    """Values that the trainer supports, as in JSON, for fields that it reads. It supports all values of other
    fields."""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            rule = (
                "must have 1 to 64 characters, only letters, digits and . _ : + -, and must begin with a "
                "letter or a digit"
            )
            raise InvalidInput("name", self.name, rule)
        if not self.format.is_of_a_trainer:
            raise InvalidInput(
                "format",
                self.format.value,
                "is reserved for the product's own trial job; choose the format of your trainer, for example "
                "'arguments', which passes each option as a flag",
            )
        for index, name in enumerate(self.options):
            _require_field(name, f"options.{index}")
            if name in self.fixed:
                raise InvalidInput(
                    f"fixed.{name}",
                    self.fixed[name],
                    "must be left out, because options names this field too, so the trainer reads it",
                )
        for name in self.fixed:
            _require_field(name, f"fixed.{name}")
        from_plain(Layout, dict(self.fixed), "fixed")
        for name in self.values:
            _require_field(name, f"values.{name}")
            if name in self.fixed or (self.options and name not in self.options):
                raise InvalidInput(
                    f"values.{name}",
                    list(self.values[name]),
                    "must be left out, because the trainer does not read this field: options does not name "
                    "it, or fixed sets it",
                )
            if not self.known(name):
                raise InvalidInput(f"values.{name}", [], "must have at least one value")

    def reads(self, name: str, elsewhere: Collection[str]) -> bool:
        """Return True if the trainer uses the value of this layout field.

        Args:
            name: Name of the field of a layout.
            elsewhere: Fields that the export format leaves to the trainer's own code. The trainer uses such a field
                only if ``options`` contains it.
        """
        return name in self.options if self.options else name not in self.fixed and name not in elsewhere

    def held(self, name: str) -> int | None:
        """Return the value to which the trainer's own code fixes a layout field; None if the code leaves it free."""
        value: int = getattr(from_plain(Layout, dict(self.fixed)), name)
        return value if name in self.fixed else None

    def known(self, name: str) -> tuple[int, ...]:
        """Return the values of a layout field that the trainer supports; empty if it supports all."""
        plain = self.values.get(name, ())
        return tuple(getattr(from_plain(Layout, {name: value}, "values"), name) for value in plain)


@value
class TrainerOffer(Trainer):
    """A registered trainer that sweeps may use; ``options`` has every layout field that such a sweep may search."""

    version: str
    """Release of the software that the export format is for."""


def _require_field(name: str, path: str) -> None:
    if name not in OPTIONS:
        near = get_close_matches(name, OPTIONS, 1, cutoff=0.0)
        raise InvalidInput(path, name, "is not a field of a layout", near[0] if near else None)


_CUSTOMARY_NORM = 1.0
"""Norm to which gradients of large language models are usually clipped (arXiv 2005.14165, appendix B; arXiv 2302.13971,
section 2.3)."""


_AS_SHARE, _AS_GIGABYTES = Typed(read_share, written_share), Typed(read_gigabytes, written_giga, "in GB")


@value
class TrialSettings:
    """The settings that decide how long and how precisely each trial of a sweep is measured."""

    warmup_steps: Annotated[CountFromZero, Caption("Minimum warm-up steps")] = 2
    """Fewest steps before timing starts. More steps are run until the step time is stationary."""
    max_warmup_steps: Annotated[CountFromZero, Caption("Maximum warm-up steps"), Rare()] = 20
    """Most steps before timing starts, unless ``warmup_steps`` is larger."""
    measured_steps: Annotated[Count, Caption("Minimum measured steps")] = 5
    """Fewest steps whose times are kept. More steps are run until their median is precise enough."""
    max_measured_steps: Annotated[CountFromZero, Caption("Maximum measured steps"), Rare()] = 40
    """Most steps whose times are kept, unless ``measured_steps`` is larger."""
    target_interval: Annotated[NonNegative, _AS_SHARE, Caption("Target interval")] = 0.01
    """Precision that ends the measurement: half of the 95 % confidence interval of the median step time, as a share of
    the median."""
    measuring_budget_s: Annotated[Positive, Flag("measuring-seconds"), Caption("Measuring time")] = 5.0
    """Seconds for warming up and measuring. After this time, no steps beyond the fewest are run."""
    profiled_steps: Annotated[CountFromZero, Rare()] = 1
    """Number of steps that run under the profiler after the timed ones, for the breakdown by phase; 0: none."""
    timeout_s: Positive = 300.0
    """Seconds from launch to the last report after which a trial is ended. Steps under a fault trace have time on
    top."""
    faulty_step_timeout_s: Annotated[Positive, Caption("Extra time per faulty step"), Rare()] = 10.0
    """Seconds by which each step of the sweep's fault trace extends the timeout, so that a long trace runs to its
    end."""
    memory_budget_bytes: Annotated[
        Count | None, _AS_GIGABYTES, Caption("Memory limit per rank"), Hint("all memory"), Rare()
    ] = None
    """Limit of the memory of each rank. On a CPU, it makes out-of-memory failures possible. None: all of the memory."""
    learning_rate: Annotated[Positive, Rare()] = 1e-3
    """Learning rate of every step of a trial."""
    max_gradient_norm: Annotated[Positive | None, Caption("Maximum gradient norm"), Hint("no clipping"), Rare()] = None
    """Maximum norm of the gradients of the whole model. Larger gradients are scaled down before each update. None: they
    are not."""
    num_languages: Annotated[Count, Caption("Languages of the data"), Rare()] = 1
    """Number of languages of the sequences. Each data-parallel rank reads one language, so that it learns the others
    only from other ranks. 1: all ranks read the same language."""
    num_validation_batches: Annotated[CountFromZero, Rare()] = 0
    """Number of batches after the last step whose loss is computed without an update. Each rank reads all languages in
    turn. 0: none."""
    max_foreign_share: Annotated[Share, _AS_SHARE, Caption("Other processes, at most"), Rare()] = 0.1
    """Share of the machine's CPU time that other processes may use. Above it, the trial counts as disturbed."""
    max_repeats: Annotated[CountFromZero, Caption("Repeats of disturbed trials"), Rare()] = 1
    """Number of times a disturbed trial is run again. After that, the least disturbed run counts."""
    num_runs: Annotated[Count, Caption("Runs per trial"), Rare()] = 1
    """Number of runs of the same trial on new ranks. With two or more, their medians give the noise floor (A/A
    test)."""
    proxy_layers_per_stage: Annotated[
        tuple[int, ...], Caption("Layers per proxy stage"), Hint("two numbers; empty: whole model"), Rare()
    ] = ()
    """Two numbers of layers per stage, both of which run instead of the whole model. The whole model's figures are
    extrapolated from them. Empty: the whole model runs."""

    def __post_init__(self) -> None:
        proxy = self.proxy_layers_per_stage
        if proxy and not (len(proxy) == 2 and 0 < proxy[0] < proxy[1]):
            rule = "must be two numbers of layers, 1 or more, with the smaller number first, or be left out"
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
            rule = (
                f"must be set, for example to {_CUSTOMARY_NORM}, if gradient_clip {early} is tried, because without a "
                "largest norm no gradient is clipped"
            )
            raise InvalidInput("max_gradient_norm", None, rule)

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
    """Peak of one rank, which is the reference of MFU and the same for all trials of a sweep. None: the matrix-product
    rate of the ranks' cores is measured and used."""
    precision_flop_per_s: float | None = None
    """Dense peak of one rank in the layout's precision; None if it is not known."""
    memory_bytes: int | None = None
    """Memory of one rank's device, which limits extrapolated figures; None if it is not known."""
    trainer: Trainer | None = None
    """Trainer that runs the trial; None: the product's own decoder."""
    cluster: Cluster | None = None
    """Cluster on which the trial runs. It decides the engine and parts of a trainer's configuration. None: this
    machine."""
    run: CountFromZero = 0
    """Number of the run inside the trial, if the trial consists of several runs."""
    repeat: CountFromZero = 0
    """Number of the trial, if it repeats another one, so that simulated figures differ from repeat to repeat; otherwise
    0."""
    jobs: tuple[EngineJob, ...] = ()
    """Jobs that were submitted to engines for the trial before, so that they are found again."""
    runs: tuple[FinishedRun, ...] = ()
    """Runs that finished before. They are not repeated."""
    stack: Stack | None = None
    """Software stack of the predictions for a simulated trial; None: the product's own."""
    fault_trace: FaultTrace | None = None
    """Faults of the links that are injected into further steps after the measured ones; None: there are none."""
    optimizer: OptimizerSettings | None = None
    """Optimizer that updates the parameters; None: AdamW of torch, with the learning rate of the settings."""

    def __post_init__(self) -> None:
        if self.trainer is not None and self.cluster is None:
            raise InvalidInput(
                "cluster",
                None,
                "must be given if a trainer is given, because the cluster decides where the trainer starts",
            )
        if self.settings.num_languages > self.model.vocab_size:
            rule = (
                f"must be at most the size of the vocabulary, {self.model.vocab_size}, because each "
                "language needs a word"
            )
            raise InvalidInput("num_languages", self.settings.num_languages, rule, self.model.vocab_size)
        if self.fault_trace is not None and self.cluster is None:
            raise InvalidInput(
                "cluster",
                None,
                "must be given if a fault_trace is given, because the cluster decides which devices a link joins",
            )
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
        """True if links are artificially slowed in some step, by a fault trace (injected faults) or assumed states."""
        assumed = self.cluster.link_health if self.cluster else ()
        return self.fault_trace is not None or any(not (one.source or one.is_healthy) for one in assumed)


@value
class NodeTask:
    """A task that runs on every node of a job: a trial, the command of a trainer, or a module that measures nodes."""

    job_name: str
    """Name that marks each process of the task (``AUTOTUNER_ATTEMPT_ID``)."""
    num_nodes: Count
    """Number of nodes that run the task."""
    ranks_per_node: Count
    """Number of ranks on each node."""
    time_limit_s: Positive
    """Time limit, counted from the start of each node. After it, ranks write their stacks and are ended, even if no
    launcher watches them."""
    spec: TrialSpec | None = None
    """Trial that the task runs; None if the task runs another module."""
    module: str = "autotuner.trials"
    """Module that torchrun runs without a command, as ``python -m module --spec FILE --reports FILE``."""
    request: str = ""
    """JSON request for ``module``, if it is not a trial."""
    command: tuple[str, ...] = ()
    """Command of a trainer that runs once per node, instead of torchrun. It may contain ``{folder}`` (of ``files``),
    ``{python}``, ``{num_nodes}``, ``{node_rank}``, ``{ranks_per_node}``, ``{master_address}`` and ``{master_port}``,
    which only the node knows."""
    working_directory: str = ""
    """Folder in which the command is started; empty: the node's own folder for the job."""
    passed: tuple[str, ...] = ()
    """Names of the node's environment variables that the command gets. The product's own task gets all of them."""
    variables: dict[str, str] = field(default_factory=dict)
    """Additional environment variables of the task."""
    files: dict[str, str] = field(default_factory=dict)
    """Contents of files by name. They are written to ``{folder}`` before the command is started."""
