"""What a trial is asked to run, and how it measures."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Literal

from autotuner.core import check
from autotuner.core.jobs.cluster import Cluster
from autotuner.core.jobs.fault_trace import FaultTrace
from autotuner.core.jobs.model import TransformerSpec
from autotuner.core.jobs.stack import Stack
from autotuner.core.jobs.workload import Workload
from autotuner.core.layouts.choice import GradientClip
from autotuner.core.layouts.layout import Layout
from autotuner.core.runs.engine_job import EngineJob
from autotuner.core.runs.measurement import FinishedRun
from autotuner.core.runs.optimizer import OptimizerSettings
from autotuner.core.runs.trainer import Trainer
from autotuner.errors import InvalidInput

__all__ = ["TrialSettings", "TrialSpec"]

_CUSTOMARY_NORM = 1.0
"""What large language models are clipped to (arXiv 2005.14165, appendix B; arXiv 2302.13971, section 2.3)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialSettings:
    """How long and how strictly each trial of a sweep runs.

    Attributes:
        warmup_steps: Fewest steps before timing starts; more are run until the step time is stationary.
        max_warmup_steps: Most steps before timing starts, unless the fewest are more.
        measured_steps: Fewest steps whose times are kept; more are run until their median is known well enough.
        max_measured_steps: Most steps whose times are kept, unless the fewest are more.
        target_interval: Well enough: half the 95 % confidence interval of the median, as a share of it.
        measuring_budget_s: Seconds of steps after which no more are run than the fewest, to warm up and to measure.
        profiled_steps: Steps run after the timed ones, under the profiler, for the breakdown by phase; 0: none.
        timeout_s: Wall clock from launch to the last report, but for steps under a fault trace.
        faulty_step_timeout_s: What each step of the sweep's fault trace adds to that: a long trace runs to its end.
        memory_budget_bytes: Limit per rank; on a CPU the way to have a real out-of-memory. None: all there is.
        max_gradient_norm: Gradients of the whole model are scaled down to this norm before each update; None: never.
        num_languages: Sequences are of so many languages, and each data-parallel rank reads one: what no rank tells the
            others, these do not learn. 1: all read the same.
        num_validation_batches: Batches behind the last step whose loss is taken without an update, each rank reading
            all languages by turns; 0: none.
        max_foreign_share: A trial is disturbed where others used more of the machine's CPU time than this share.
        max_repeats: How often a disturbed trial is run again before the least disturbed run is taken.
        num_runs: Runs of the same trial on fresh ranks; from two on, their medians tell the noise floor (A/A).
        proxy_layers_per_stage: Two numbers of layers per stage to run instead of the whole model, whose figures are
            then extrapolated; empty: the whole model runs.
    """

    warmup_steps: int = 2
    max_warmup_steps: int = 20
    measured_steps: int = 5
    max_measured_steps: int = 40
    target_interval: float = 0.01
    measuring_budget_s: float = 5.0
    profiled_steps: int = 1
    timeout_s: float = 300.0
    faulty_step_timeout_s: float = 10.0
    memory_budget_bytes: int | None = None
    learning_rate: float = 1e-3
    max_gradient_norm: float | None = None
    num_languages: int = 1
    num_validation_batches: int = 0
    max_foreign_share: float = 0.1
    max_repeats: int = 1
    num_runs: int = 1
    proxy_layers_per_stage: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        check.non_negative(self, "warmup_steps", "max_warmup_steps", "max_measured_steps", "profiled_steps")
        check.non_negative(self, "max_repeats", "target_interval", "num_validation_batches")
        check.positive(self, "measured_steps", "timeout_s", "learning_rate", "measuring_budget_s", "num_runs")
        check.positive(self, "faulty_step_timeout_s", "num_languages")
        check.fraction(self, "max_foreign_share")
        for name in ("memory_budget_bytes", "max_gradient_norm"):
            if getattr(self, name) is not None:
                check.positive(self, name)
        proxy = self.proxy_layers_per_stage
        if proxy and not (len(proxy) == 2 and 0 < proxy[0] < proxy[1]):
            rule = "must be two rising numbers of layers, 1 or more, or be left out"
            raise InvalidInput("proxy_layers_per_stage", list(proxy), rule)

    @classmethod
    def default_for(cls, layout: Layout) -> TrialSettings:
        """What a sweep's trials have where nothing is said, and the customary norm where the layout clips to one."""
        return cls(max_gradient_norm=None if layout.gradient_clip == GradientClip.POST else _CUSTOMARY_NORM)

    def require_norm(self, clips: Iterable[GradientClip]) -> None:
        """Return if gradients can be clipped in all these ways.

        Raises:
            InvalidInput: They are clipped before their reduction, and no norm is set.
        """
        early = next((one for one in clips if one != GradientClip.POST), None)
        if early is not None and self.max_gradient_norm is None:
            rule = f"must be set where clip {early} is tried: without a norm nothing is clipped, before or behind"
            raise InvalidInput("max_gradient_norm", None, rule, _CUSTOMARY_NORM)

    def just_steps(self, num_steps: int) -> TrialSettings:
        """With just so many steps, of a training whose losses count: nothing is warmed up, repeated or profiled."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialSpec:
    """All that a trial job needs to know; travels as JSON.

    Attributes:
        reference_flop_per_s: Peak of one rank that MFU is a share of, one for all trials of a sweep; None: measure the
            GEMM rate of the cores the ranks have.
        precision_flop_per_s: Dense peak of one rank in the layout's precision, where it is known.
        memory_bytes: What one rank's device holds, where that is known: the limit of what was extrapolated.
        trainer: What runs; None: our own decoder.
        cluster: Where it runs, which tells its engine, and a trainer's configuration what it may have to say; None:
            on this machine.
        run: Which of the trial's runs it is, where one is run again to be believed.
        repeat: Number of a trial that repeats another, so that what is simulated differs from run to run; else 0.
        jobs: Those that engines were given for the trial before, to be found again.
        runs: Those of its runs that finished before, which are not repeated.
        stack: Software that it was predicted for, where a trial is simulated; None: our own.
        fault_trace: What befalls its links in further steps behind the measured ones; None: there are none.
        optimizer: What updates the parameters; None: AdamW as torch has it, at the learning rate of the settings.
    """

    trial_id: str
    model: TransformerSpec
    workload: Workload
    layout: Layout
    device: Literal["cpu", "cuda"]
    settings: TrialSettings = field(default_factory=TrialSettings)
    seed: int = 0
    reference_flop_per_s: float | None = None
    precision_flop_per_s: float | None = None
    memory_bytes: int | None = None
    trainer: Trainer | None = None
    cluster: Cluster | None = None
    run: int = 0
    repeat: int = 0
    jobs: tuple[EngineJob, ...] = ()
    runs: tuple[FinishedRun, ...] = ()
    stack: Stack | None = None
    fault_trace: FaultTrace | None = None
    optimizer: OptimizerSettings | None = None

    def __post_init__(self) -> None:
        check.one_of("device", self.device, ("cpu", "cuda"))
        check.non_negative(self, "run", "repeat")
        if self.trainer is not None and self.cluster is None:
            raise InvalidInput("cluster", None, "must be given with a trainer")
        if self.settings.num_languages > self.model.vocab_size:
            rule = f"must leave each language a word of the model's {self.model.vocab_size}"
            raise InvalidInput("num_languages", self.settings.num_languages, rule, self.model.vocab_size)
        if self.fault_trace is not None and self.cluster is None:
            raise InvalidInput("cluster", None, "must be given with a fault_trace: it says what a link joins")
        try:
            self.settings.require_norm((self.layout.gradient_clip,))
        except InvalidInput as error:
            raise error.under("settings") from error

    @property
    def trained_by(self) -> OptimizerSettings:
        """The optimizer that updates the parameters."""
        return self.optimizer or OptimizerSettings(learning_rate=self.settings.learning_rate)

    @property
    def has_slow_links(self) -> bool:
        """Whether links are to be slower in some step than they really are."""
        assumed = self.cluster.link_health if self.cluster else ()
        return self.fault_trace is not None or any(not (one.source or one.is_healthy) for one in assumed)
