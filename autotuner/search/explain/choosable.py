"""WhatIf: a layout that a person composes by hand, its prediction, and the possible values of each of its options."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from autotuner.core.choices import PipelineSchedule, Precision, ShardLevel
from autotuner.core.job import Job
from autotuner.core.layout import DEFAULT_BUCKET_BYTES, OPTIONS, Layout
from autotuner.core.rules.legality import reasons
from autotuner.core.rules.rule import Reason
from autotuner.core.rules.trial_job import TRIAL_RULES
from autotuner.core.value import divisors
from autotuner.search.explain.explanation import Explanation, explain
from autotuner.search.space.moves import arrange, nearest_legal, with_choice

_MOST_VALUES = 7
"""Maximum number of values of an option that are shown side by side. More do not fit next to the label."""

_SPLITTING = ("tensor_parallel_degree", "pipeline_parallel_degree", "context_parallel_degree")
"""Degrees that divide the ranks of the cluster. The data-parallel degrees are the remaining ranks."""

_MOST_DOMAINS = 2
"""Maximum tensor degree that is offered, as a number of NVLink groups: one group more than useful, to show the
effect."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choosable:
    """One value that a layout option could take, with the reasons why this layout cannot take it, if there are any."""

    field: str
    value: int
    is_chosen: bool
    layout: Layout
    """The whole layout with this value, and with the changes that follow from it."""
    reasons: tuple[Reason, ...] = ()
    """Rules that the layout with this value breaks. Rules that the present layout breaks too are left out, unless they
    are about this option."""
    is_idle: bool = False
    """True if the option has no effect with the other values of the layout."""

    @property
    def is_legal(self) -> bool:
        """Return True if the layout can take this value: the option has an effect, and no further rule is broken.

        Rules that the present layout breaks already are ignored, unless they are about this option.
        """
        return not self.reasons and not self.is_idle


def choices_of(layout: Layout, job: Job) -> Mapping[str, tuple[Choosable, ...]]:
    """Return, for each option of a layout, all values that the option may take, legal or not.

    The keys are names of options. The layout must use all ranks of the job's cluster; ``arrange`` makes sure of this.
    ``data_parallel_replicate_degree`` is not a key, because the other degrees decide its value.
    """
    broken = frozenset(reason.rule for reason in reasons(layout, job))
    return {
        field: tuple(_choosable(layout, job, field, value, broken) for value in _offered(layout, job, field))
        for field in OPTIONS
        if field != "data_parallel_replicate_degree"
    }


def _choosable(layout: Layout, job: Job, field: str, value: int, broken: frozenset[str]) -> Choosable:
    own = getattr(layout, field)
    if value == own:
        why = tuple(reason for reason in reasons(layout, job) if _is_about(reason, field))
        return Choosable(field=field, value=value, is_chosen=True, layout=layout, reasons=why)
    asked = with_choice(layout, field, value)
    after = arrange(asked, job)
    if is_idle := getattr(after, field) != value:
        why = tuple(reason for reason in reasons(asked, job) if reason.field == field)
    else:
        why = tuple(one for one in reasons(after, job) if _is_about(one, field) or one.rule not in broken)
    return Choosable(field=field, value=value, is_chosen=False, layout=after, reasons=why, is_idle=is_idle)


def _is_about(reason: Reason, field: str) -> bool:
    """Return True if another value of the field may meet the rule.

    A rule about the number of ranks is about each of the degrees.
    """
    return reason.field == field or (reason.rule == "world-size" and field in _SPLITTING)


def _offered(layout: Layout, job: Job, field: str) -> tuple[int, ...]:
    """Return the values of an option that are worth showing, including the present one.

    Switches and choices are in their own order.
    """
    one, own = OPTIONS[field], getattr(layout, field)
    if field in _NUMBERS:
        return _around(own, _NUMBERS[field](layout, job))
    if one.is_number:
        return _around(own, one.offered or (one.lowest, one.lowest + 1, one.lowest + 2, one.lowest + 3))
    values = one.plainest_first if field == "attention_kernel" else one.values
    return tuple(value for value in values if value == own or _is_offered(field, value, job))


def _is_offered(field: str, value: int, job: Job) -> bool:
    """Return True if the software supports the value.

    Emulated formats are not offered, because they are for losses and never for speed.
    """
    match field:
        case "attention_kernel":
            return value in job.stack.attention_kernels
        case "pipeline_schedule":
            return value == PipelineSchedule.ONE_F_ONE_B or value in job.stack.pipeline_schedules
        case "compiled":
            return job.stack.compiles or not value
        case "precision":
            return value != Precision.FP8_EMULATED
    return True


def _around(own: int, values: tuple[int, ...]) -> tuple[int, ...]:
    """Return as many of the values as can be shown: the present one, and those nearest to it."""
    rising = sorted({own, *values})
    first = min(max(0, rising.index(own) - _MOST_VALUES // 2), max(0, len(rising) - _MOST_VALUES))
    return tuple(rising[first : first + _MOST_VALUES])


# ---------------------------------------------------------------- numbers that suit the job
def _stages(layout: Layout, job: Job) -> tuple[int, ...]:
    ends = layout.first_stage_less_layers + layout.last_stage_less_layers
    return divisors(max(1, (job.model.num_layers + ends) // layout.pipeline_parallel_degree))


def _splits(job: Job, most: float) -> tuple[int, ...]:
    """Return the degrees up to ``most`` that divide the number of ranks of the cluster."""
    return tuple(value for value in divisors(job.cluster.world_size) if value <= most)


def _experts(_: Layout, job: Job) -> tuple[int, ...]:
    experts = job.model.experts.num_experts if job.model.experts else 1
    return tuple(value for value in divisors(experts) if value <= job.cluster.world_size)


def _intervals(layout: Layout, job: Job) -> tuple[int, ...]:
    most = max(1, job.model.num_layers // layout.num_stages)
    return tuple(value for value in (1, 2, 3, 4, 6, 8) if value <= most)


def _doublings(first: int, count: int) -> tuple[int, ...]:
    return tuple(first << power for power in range(count))


_NUMBERS: Mapping[str, Callable[[Layout, Job], tuple[int, ...]]] = {
    "tensor_parallel_degree": lambda layout, job: _splits(job, _MOST_DOMAINS * job.cluster.accelerators_per_domain),
    "pipeline_parallel_degree": lambda layout, job: _splits(job, job.model.num_layers + 2),
    "context_parallel_degree": lambda layout, job: _splits(job, job.workload.seq_len / 2),
    "expert_parallel_degree": _experts,
    "data_parallel_shard_degree": lambda layout, job: (
        () if layout.shard_level == ShardLevel.NONE else divisors(layout.data_parallel_degree)[1:]
    ),
    "virtual_stages_per_rank": _stages,
    "micro_batch_size": lambda layout, job: divisors(
        max(1, job.workload.global_batch_size // layout.data_parallel_degree)
    ),
    "recompute_every": _intervals,
    "num_delegates": lambda layout, job: divisors(max(1, job.workload.num_micro_batches(layout))),
    "stage_rotation": lambda layout, job: tuple(range(layout.pipeline_parallel_degree)),
    "gradient_bucket_bytes": lambda layout, job: _doublings(DEFAULT_BUCKET_BYTES, 6),
    "sync_sparsity": lambda layout, job: _doublings(1, 6),
    "sync_chunk": lambda layout, job: _doublings(16, 6),
    "sync_top_k": lambda layout, job: tuple(value for value in _doublings(1, 6) if value <= layout.sync_chunk),
    "sync_period": lambda layout, job: _doublings(2, 6),
    "sync_decay_permille": lambda layout, job: (900, 950, 990, 995, 999),
    "num_dealing_ranks": lambda layout, job: (0, *divisors(layout.data_parallel_degree)[1:]),
    "collective_channels": lambda layout, job: (0, *_doublings(2, 6)),
    "queue_pairs": lambda layout, job: _doublings(1, 5),
}


# ---------------------------------------------------------------- what it would do
@dataclass(frozen=True, slots=True, kw_only=True)
class LegalLayout:
    """The prediction of a layout that can run, and reasons why a sweep would not try it."""

    explanation: Explanation
    untried: tuple[Reason, ...]
    """Rules of our own trial job that the layout breaks. A sweep does not try such a layout, but other software may run
    it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """The answer about a layout chosen by hand: whether it can run, its prediction, and the values of each option."""

    layout: Layout
    """Layout on all ranks of the cluster, without options that have no effect with its other values."""
    choices: Mapping[str, tuple[Choosable, ...]]
    """Values of each option with the rest of the layout unchanged, and the reasons why some values are not possible.
    The keys are field names."""
    reasons: tuple[Reason, ...]
    """All rules that the layout breaks; empty if it can run."""
    nearest: Layout | None
    """A similar layout that can run; None if the layout itself can run, or if none was found within a few steps."""
    legal: LegalLayout | None
    """Prediction of the layout; None if it cannot run."""


def what_if(layout: Layout, job: Job) -> WhatIf:
    """Return whether a layout chosen by hand can run, its prediction, and the values that each of its options may take.

    First, the layout is changed so that it uses all ranks of the job's cluster.
    """
    layout = arrange(layout, job)
    broken = reasons(layout, job)
    return WhatIf(
        layout=layout,
        choices=choices_of(layout, job),
        reasons=broken,
        nearest=nearest_legal(layout, job) if broken else None,
        legal=None
        if broken
        else LegalLayout(explanation=explain(layout, job), untried=reasons(layout, job, TRIAL_RULES)),
    )
