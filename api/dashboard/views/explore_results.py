"""What ``/explore`` answers: the verdict, the memory of each stage by part, and what would help."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from api.dashboard import words
from api.dashboard.views.address import Permalink
from autotuner.core.job import Job
from autotuner.core.layout import OPTIONS, Layout
from autotuner.core.prediction import Memory, Prediction
from autotuner.core.rules.rule import Reason
from autotuner.core.units import GIGA, MEGA, TERA
from autotuner.report.charts import Stack, Stacks
from autotuner.report.comparison import free_in_words
from autotuner.report.trial_parts import MEMORY_PARTS, memory_blocks, size_of
from autotuner.search.explain.limits import limit_of
from autotuner.search.space.moves import arranged, with_choice
from autotuner.search.text.sentences import is_wide, likely, value_in_words

_MOST_STAGES = 8
"""Stages that stand side by side; of more, the fullest and some on the way are shown."""

_FEW_STAGES = 4

_SURE = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What is predicted of a layout in one line."""

    mfu: str
    """``39.2 %``."""
    mfu_spread: str
    """Half of the 80 % interval in points, or its ends where they lie far apart."""
    step: str
    step_spread: str
    tokens: str
    peak: str
    limit: str
    standing: str
    """A state of the style sheet: complete, warned or failed."""
    fit: str
    """In words, whether it fits and how sure that is."""
    sentence: str
    """All of it in a sentence, for who hears the page."""

    @classmethod
    def of(cls, prediction: Prediction, job: Job) -> Self:
        """The verdict on a legal layout."""
        predicted, limit = prediction, job.cluster.accelerator.memory_bytes
        standing, fit = _fit(prediction, predicted.peak_bytes - limit)
        mfu, step = words.percent(prediction.mfu), words.seconds(predicted.step_time_s)
        return cls(
            mfu=mfu,
            mfu_spread=_points(predicted),
            step=step,
            step_spread=words.seconds_interval(predicted.step_time_s, predicted.relative_error),
            tokens=words.token_rate(prediction.tokens_per_s),
            peak=words.num_bytes(predicted.peak_bytes),
            limit=words.num_bytes(limit),
            standing=standing,
            fit=fit,
            sentence=f"predicted MFU {mfu}, step {step}, {fit}",
        )


def _points(predicted: Prediction) -> str:
    """What stands behind the MFU: ``± 11.5``, or the ends of an interval that is too wide for that."""
    error = predicted.relative_error
    if error is None:
        return ""
    if is_wide(error):
        return words.predicted_mfu(predicted).partition(", ")[2]
    return f"± {100 * predicted.mfu * error:.1f}"


def _fit(prediction: Prediction, excess_bytes: float) -> tuple[str, str]:
    chance = prediction.fit_probability
    if not prediction.fits:
        return "failed", f"{words.num_bytes(excess_bytes)} too large"
    if chance is None:
        return "complete", "legal, fits"
    return ("complete" if chance >= _SURE else "warned"), f"legal, fits {likely(chance)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """A rule that a layout breaks."""

    subject: str
    """The option, with the value that it has."""
    message: str
    """The rule's words."""
    nearest: str
    """What the rule names as the nearest value; empty where it names none."""
    mended: str
    """Address of the layout with it; empty without one."""

    @classmethod
    def of(cls, reason: Reason, layout: Layout, job: Job, link: Permalink) -> Self:
        """A rule with its way out."""
        if reason.rule == "world-size":
            return cls(subject="degrees", message=reason.message, nearest="", mended="")
        subject = reason.field if reason.is_of_job else OPTIONS[reason.field].label
        value = value_in_words(reason.value(layout, job))
        if reason.nearest is None or reason.is_of_job:
            return cls(subject=f"{subject} {value}", message=reason.message, nearest="", mended="")
        after = with_choice(layout, reason.field, OPTIONS[reason.field].from_plain(reason.nearest))
        return cls(
            subject=f"{subject} {value}",
            message=reason.message,
            nearest=f"{subject} {value_in_words(reason.nearest)}",
            mended=link.with_layout(arranged(after, job)).to("/explore"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRow:
    """A part of the memory on each stage that is shown."""

    part: str
    """Name, and class of the style sheet."""
    sizes: tuple[str, ...]
    """In the table's unit; a dash for nothing."""
    source: str
    """Where it comes from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryTable:
    """Memory by part and stage."""

    unit: str
    """Of all numbers."""
    noun: str
    """What a column is: a stage, or a rank that holds several."""
    stages: tuple[int, ...]
    """Numbers of those that are shown."""
    num_stages: int
    """How many there are."""
    rows: tuple[MemoryRow, ...]
    """One for each part that takes any."""
    peaks: tuple[str, ...]
    """Sums of the columns."""
    free: str
    """What the fullest stage leaves of the limit, in words."""
    picture: Stacks
    """The same as bars."""

    @property
    def is_wide(self) -> bool:
        """Whether so many columns leave no room beside them for where each part comes from."""
        return len(self.stages) > _FEW_STAGES

    @classmethod
    def of(cls, stages: Sequence[Memory], layout: Layout, job: Job) -> Self:
        """The table of a layout's stages."""
        shown = _shown(stages)
        most = max(memory.total_bytes for memory in stages)
        unit, prefix = _unit(most)
        noun = "stage" if layout.virtual_stages_per_rank == 1 else "rank"
        left = job.cluster.accelerator.memory_bytes - most
        return cls(
            unit=prefix,
            noun=noun,
            stages=shown,
            num_stages=len(stages),
            rows=tuple(
                MemoryRow(
                    part=part,
                    sizes=tuple(_three(size_of(stages[rank], part) / unit) for rank in shown),
                    source=limit_of(f"{part}_bytes", layout, job),
                )
                for part in MEMORY_PARTS
                if any(size_of(stages[rank], part) for rank in shown)
            ),
            peaks=tuple(_three(stages[rank].total_bytes / unit) for rank in shown),
            free=free_in_words(left),
            picture=_picture(noun, {rank: stages[rank] for rank in shown}, job.cluster.accelerator.memory_bytes),
        )


def _picture(noun: str, shown: Mapping[int, Memory], limit_bytes: float) -> Stacks:
    fullest = max(memory.total_bytes for memory in shown.values())
    stacks = [
        Stack(
            name=f"{noun} {rank}",
            blocks=memory_blocks(memory, MEMORY_PARTS),
            told=free_in_words(limit_bytes - memory.total_bytes),
            is_strong=memory.total_bytes == fullest,
        )
        for rank, memory in shown.items()
    ]
    says = f"Memory of {len(stacks)} pipeline stage(s) by part, the fullest {words.num_bytes(fullest)} of "
    return Stacks(
        says=f"{says}{words.num_bytes(limit_bytes)}", unit="bytes", rows=stacks, limit=float(limit_bytes), wide=896
    )


def _shown(stages: Sequence[Memory]) -> tuple[int, ...]:
    """All stages, or of many the first ones, the fullest, some between and the last."""
    count = len(stages)
    if count <= _MOST_STAGES:
        return tuple(range(count))
    fullest = max(range(count), key=lambda rank: stages[rank].total_bytes)
    spread = {round(index * (count - 1) / (_MOST_STAGES - 2)) for index in range(_MOST_STAGES - 1)}
    return tuple(sorted({fullest, *spread}))


def _unit(most_bytes: float) -> tuple[float, str]:
    units = ((TERA, "TB"), (GIGA, "GB"), (MEGA, "MB"))
    return next(((float(unit), name) for unit, name in units if most_bytes >= unit), (1000.0, "kB"))


def _three(value: float) -> str:
    if not value:
        return "–"
    return f"{value:,.0f}" if value >= 99.95 else f"{value:.3g}" if value >= 0.01 else "<0.01"
