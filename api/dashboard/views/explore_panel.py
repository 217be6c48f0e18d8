"""Controls of ``/explore``: each option with its legal values, and its illegal values struck through with the rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from autotuner.api.dashboard.views.explore_asked import ALL_RANKS
from autotuner.core.choices import P2PTransport, PipelineSchedule, Recompute, ShardLevel
from autotuner.core.job import Job
from autotuner.core.layout import OPTIONS, Layout
from autotuner.core.option import Kind
from autotuner.report.layouts import option_value
from autotuner.search.explain.choosable import Choosable, WhatIf

_ROOM = 30
"""Maximum number of letters of values beside a label; longer lists become a menu."""

_DEGREES = {
    "tensor_parallel_degree": "tp",
    "pipeline_parallel_degree": "pp",
    "context_parallel_degree": "cp",
    "expert_parallel_degree": "ep",
}

_USUAL = (
    "micro_batch_size",
    "shard_level",
    "data_parallel_shard_degree",
    "reshard_after_forward",
    "recompute",
    "recompute_every",
    "pipeline_schedule",
    "virtual_stages_per_rank",
    "extra_slack",
    "p2p_transport",
    "num_delegates",
    "rank_order",
    "stage_rotation",
    "sequence_parallel",
    "precision",
    "attention_kernel",
    "compiled",
)
"""Options that most people set, in the usual order; the other options are folded."""

_WORLD_SIZE = "world-size"
_RANKS_LEFT = "multiplied by the other degrees, these values do not divide the number of ranks"
"""Text for the rule of the number of ranks, because the product in its message differs from value to value."""

_SHORT = {
    "data_parallel_shard_degree": "shard over",
    "reshard_after_forward": "reshard",
    "recompute_every": "every … layers",
    "virtual_stages_per_rank": "stages per rank",
    "sequence_parallel": "sequence par.",
    "attention_kernel": "attention",
    "first_stage_less_layers": "first stage less",
    "last_stage_less_layers": "last stage less",
    "fp32_gradient_reduce": "fp32 reduce",
    "async_tensor_parallel": "async tensor",
    "offload_activations": "offload",
    "gradient_bucket_bytes": "bucket",
    "collective_algorithm": "NCCL algorithm",
    "collective_protocol": "NCCL protocol",
    "collective_channels": "NCCL channels",
    "p2p_transport": "sends",
    "stage_rotation": "rotate stages",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """One value of an option of layouts, as a control of the page ``/explore`` offers it.

    A value that is not legal is struck out. A value that would change nothing cannot be chosen.
    """

    sent: str
    """Value that the form sends when this value is chosen."""
    text: str
    """Text of the value on the page."""
    is_chosen: bool
    is_legal: bool
    is_idle: bool
    """True if the value cannot be chosen because it would change nothing together with the other choices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """The control of one option of layouts on the page ``/explore``, with the values to choose from."""

    field: str
    """Field of the layout."""
    label: str
    """Text before the control."""
    name: str
    """Full name of the option."""
    letters: str
    """Short name of a degree, as in tables; empty for other options."""
    values: tuple[Value, ...]
    is_menu: bool
    """True if the values are shown as a menu, because they are too many or too long."""
    notes: tuple[str, ...]
    """Reasons why values are struck through, one for each rule."""

    @classmethod
    def of(cls, field: str, choices: Sequence[Choosable], layout: Layout) -> Self:
        """Return the control with which the page ``/explore`` changes an option of a layout.

        Args:
            field: Field of the layout.
            choices: Values of the option, each with the rules that a layout with this value would break.
            layout: The layout that the page shows.
        """
        values = tuple(_value(choice, layout) for choice in choices)
        name, letters = OPTIONS[field].label, _DEGREES.get(field, "")
        return cls(
            field=field,
            label=_SHORT.get(field, name),
            name=name,
            letters=letters,
            values=values,
            is_menu=sum(len(value.text) + 2 for value in values) > _ROOM + 7 * (len(values) < 4),
            notes=tuple(_notes(choices, values, letters)),
        )

    @property
    def is_changed(self) -> bool:
        """True if the chosen value is not the default of the option."""
        chosen = next((value.sent for value in self.values if value.is_chosen), None)
        one = OPTIONS[self.field]
        return chosen is not None and chosen != str(one.to_plain(one.default))

    @property
    def says_something(self) -> bool:
        """True if at least one value that is not chosen would change something."""
        return any(not value.is_idle for value in self.values if not value.is_chosen)


def _value(choice: Choosable, layout: Layout) -> Value:
    one = OPTIONS[choice.field]
    text, sent = option_value(choice.field, choice.value), str(one.to_plain(choice.value))
    if one.kind is Kind.SWITCH:
        sent = text
    if choice.field == "data_parallel_shard_degree" and choice.value == layout.data_parallel_degree:
        text, sent = f"all {choice.value}", ALL_RANKS
    return Value(sent=sent, text=text, is_chosen=choice.is_chosen, is_legal=choice.is_legal, is_idle=choice.is_idle)


def _notes(choices: Sequence[Choosable], values: Sequence[Value], letters: str) -> list[str]:
    """Return why values are illegal: the first rule that each value breaks, with all values that break it."""
    by_rule: dict[str, list[tuple[str, str]]] = {}
    for choice, value in zip(choices, values, strict=True):
        for reason in sorted(choice.reasons, key=lambda reason: reason.rule == _WORLD_SIZE)[:1]:
            message = _RANKS_LEFT if reason.rule == _WORLD_SIZE else reason.message
            by_rule.setdefault(reason.rule, []).append((value.text, message))
    idle = all(choice.is_idle or choice.is_chosen for choice in choices)
    return [broken[0][1] if idle else _note(broken, letters) for broken in by_rule.values()]


def _note(broken: Sequence[tuple[str, str]], letters: str) -> str:
    """Return the values that break a rule, followed by the rule's message for the first of them."""
    (_, message), *_ = broken
    values = ", ".join(value for value, _ in broken)
    return f"{f'{letters} ' if letters else ''}{values}: {message}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """All controls of the page ``/explore``, with which a reader changes the options of one layout."""

    degrees: tuple[Control, ...]
    """Degrees that split ranks, in the order of the columns; expert parallelism is only shown for a model with
    experts."""
    usual: tuple[Control, ...]
    """Options that most people set."""
    rare: tuple[Control, ...]
    """All other options."""
    unusual: tuple[str, ...]
    """Rare options that differ from their default, in words: ``last stage less 1``."""
    product: str
    """The degrees as a product: ``8 × 4 × 1 × 2 = 64 ranks``."""
    is_whole: bool
    """True if the product equals the number of ranks of the cluster."""
    data: int
    """Number of data-parallel ranks that remain beside the other degrees."""
    words: str
    """The layout in its short form."""

    @classmethod
    def of(cls, answer: WhatIf, job: Job) -> Self:
        """Return all controls of the page ``/explore`` for one layout of a job.

        Args:
            answer: The prediction of the layout, or the rules that it breaks.
            job: The job.
        """
        layout = answer.layout
        controls = {field: Control.of(field, values, layout) for field, values in answer.choices.items()}
        is_late = bool(job.cluster.link_health)
        degrees = [field for field in _DEGREES if job.model.experts or field != "expert_parallel_degree"]
        usual = [field for field in _USUAL if _is_asked(field, layout, controls, is_late=is_late)]
        shown = {*degrees, *usual, *_DEGREES, "data_parallel_shard_degree"}
        rare = [field for field in controls if field not in shown]
        factors = " × ".join(
            str(degree)
            for degree in (
                layout.tensor_parallel_degree,
                layout.pipeline_parallel_degree,
                layout.data_parallel_degree,
                layout.context_parallel_degree,
            )
        )
        return cls(
            degrees=tuple(controls[field] for field in degrees),
            usual=tuple(controls[field] for field in usual),
            rare=tuple(controls[field] for field in rare),
            unusual=tuple(
                f"{controls[field].label} {option_value(field, getattr(layout, field))}"
                for field in rare
                if controls[field].says_something and getattr(layout, field) != OPTIONS[field].default
            ),
            product=f"{factors} = {layout.world_size} ranks",
            is_whole=layout.world_size == job.cluster.world_size,
            data=layout.data_parallel_degree,
            words=str(layout),
        )


def _is_asked(field: str, layout: Layout, controls: Mapping[str, Control], *, is_late: bool) -> bool:
    """Return True if an option that depends on another one should be shown beside it."""
    match field:
        case "data_parallel_shard_degree":
            return layout.shard_level is not ShardLevel.NONE and len(controls[field].values) > 1
        case "reshard_after_forward":
            return layout.shard_level is ShardLevel.PARAMETERS
        case "recompute_every":
            return layout.recompute is not Recompute.NONE
        case "pipeline_schedule":
            return layout.pipeline_parallel_degree > 1
        case "virtual_stages_per_rank":
            return layout.pipeline_schedule in (PipelineSchedule.INTERLEAVED_1F1B, PipelineSchedule.ZERO_BUBBLE)
        case "extra_slack":
            return layout.pipeline_schedule is PipelineSchedule.ADAPTIVE
        case "p2p_transport":
            return layout.pipeline_parallel_degree > 1 and (is_late or controls[field].is_changed)
        case "num_delegates":
            return layout.p2p_transport is P2PTransport.DELEGATED
        case "rank_order":
            both = layout.pipeline_parallel_degree > 1 and layout.data_parallel_replicate_degree > 1
            return both and (is_late or controls[field].is_changed)
        case "stage_rotation":
            return is_late and layout.pipeline_parallel_degree > 1
        case "sequence_parallel":
            return layout.tensor_parallel_degree > 1
    return True
