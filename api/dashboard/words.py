"""Template filters: numbers with their units, layouts in words. What is unknown reads as a dash."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import TypeGuard

from api.schemas import Predicted
from autotuner.domain.choice import ContextExchange, Fp8Recipe, OptimizerKernel, Recompute, ShardLevel
from autotuner.domain.layout import DEFAULT_BUCKET_BYTES, Layout
from autotuner.search.explain.bottlenecks import PART_WORDS
from autotuner.search.text.measured import certainty, facts, phases
from autotuner.search.text.sentences import expected_mfu, expected_seconds, fit_in_words
from autotuner.search.text.sentences import percent as rounded
from autotuner.units import format_bytes, format_rate, format_seconds

__all__ = [
    "certainty",
    "date",
    "duration",
    "facts",
    "fit",
    "gain",
    "in_words",
    "num_bytes",
    "part_name",
    "percent",
    "phases",
    "plain",
    "predicted_mfu",
    "predicted_seconds",
    "rounded",
    "seconds",
    "tick",
    "token_rate",
]

_UNKNOWN = "–"

_SHARDING = {
    ShardLevel.NONE: "sharded",
    ShardLevel.OPTIMIZER: "optimizer-sharded",
    ShardLevel.GRADIENTS: "gradient-sharded",
    ShardLevel.PARAMETERS: "fully sharded",
}


def percent(share: float | None) -> str:
    """``41.3 %``."""
    return f"{100 * share:.1f} %" if _known(share) else _UNKNOWN


def tick(share: float) -> str:
    """``40 %``: a round share, for an axis."""
    return f"{100 * share:g} %"


def seconds(value: float | None) -> str:
    """``512 ms``."""
    return format_seconds(value) if _known(value) else _UNKNOWN


def num_bytes(value: float | None) -> str:
    """``39 GB``."""
    return format_bytes(value) if _known(value) else _UNKNOWN


def token_rate(per_s: float | None) -> str:
    """``104 ktoken/s``."""
    return format_rate(per_s, "token/s") if _known(per_s) else _UNKNOWN


def predicted_seconds(predicted: Predicted) -> str:
    """The predicted step time with its 80 % interval: ``1.23 s ± 11 %``."""
    value = predicted.step_time_s
    return expected_seconds(value, predicted.relative_error) if _known(value) else _UNKNOWN


def predicted_mfu(predicted: Predicted) -> str:
    """The predicted MFU with its 80 % interval, in points: ``41.0 ± 4.5 %``."""
    return expected_mfu(predicted.mfu, predicted.relative_error) if _known(predicted.mfu) else _UNKNOWN


def fit(predicted: Predicted) -> str:
    """Whether the layout is predicted to fit, and how sure that is: ``fits, 97 % sure``."""
    return fit_in_words(predicted.fits, predicted.fit_probability)


def part_name(part: str) -> str:
    """A part of ``StepTime`` or ``Memory`` as people say it."""
    return PART_WORDS[part]


def duration(value: float) -> str:
    """``3 min 20 s``."""
    minutes, rest = divmod(round(value), 60)
    hours, minutes = divmod(minutes, 60)
    parts = ((hours, "h"), (minutes, "min"), (rest, "s"))
    return " ".join(f"{count} {unit}" for count, unit in parts if count) or "0 s"


def date(epoch_s: float) -> str:
    """``2026-11-20 15:51 UTC``."""
    return datetime.fromtimestamp(epoch_s, UTC).strftime("%Y-%m-%d %H:%M UTC")


def plain(word: object) -> str:
    """A word of the wire format as people write it: ``no_improvement`` is ``no improvement``."""
    return str(word).replace("_", " ")


def gain(share: float) -> str:
    """``+12.3 %``."""
    return f"{100 * share:+.1f} %"


def in_words(layout: Layout) -> str:
    """The layout as a person would say it."""
    parts = [f"{name} {degree}" for name, degree in _degrees(layout) if degree > 1]
    if layout.pipeline_parallel_degree > 1:
        parts.append(f"schedule {plain(layout.pipeline_schedule)}")
    parts.append(f"micro-batch {layout.micro_batch_size}")
    parts += [words for words, is_said in _choices(layout) if is_said]
    prefix = "one rank · " if layout.world_size == 1 else ""
    return prefix + " · ".join([*parts, _precision(layout), f"{plain(layout.attention_kernel)} attention"])


def _choices(layout: Layout) -> tuple[tuple[str, bool], ...]:
    """Words of choices, and whether the layout differs from plain in them."""
    first, last, every = layout.first_stage_less_layers, layout.last_stage_less_layers, layout.recompute_every
    recompute = f"recompute {layout.recompute}" + (f" every {every} layers" if every > 1 else "")
    bucket = layout.gradient_bucket_bytes
    return (
        (f"{first} layers fewer on the first stage", first > 0),
        (f"{last} layers fewer on the last stage", last > 0),
        ("sequence parallel", layout.sequence_parallel),
        ("async tensor parallel", layout.async_tensor_parallel),
        ("gathered logits", not layout.loss_parallel),
        (f"context by {plain(layout.context_exchange)}", layout.context_exchange != ContextExchange.RING),
        ("reshard after forward", layout.reshard_after_forward),
        (f"buckets of {format_bytes(bucket)}", bucket != DEFAULT_BUCKET_BYTES),
        ("gradients summed in fp32", layout.fp32_gradient_reduce),
        (recompute, layout.recompute != Recompute.NONE),
        ("activations offloaded", layout.offload_activations),
        ("unfused norm", not layout.fused_norm),
        ("compiled", layout.compiled),
        (f"{layout.optimizer_kernel} optimizer", layout.optimizer_kernel != OptimizerKernel.FUSED),
    )


def _precision(layout: Layout) -> str:
    recipe = "" if layout.fp8_recipe == Fp8Recipe.TENSORWISE else f" {layout.fp8_recipe}"
    return f"{plain(layout.precision)}{recipe}"


def _degrees(layout: Layout) -> tuple[tuple[str, int], ...]:
    return (
        ("tensor", layout.tensor_parallel_degree),
        ("pipeline", layout.pipeline_parallel_degree),
        ("stages per rank", layout.virtual_stages_per_rank),
        ("data", layout.data_parallel_replicate_degree),
        (f"{_SHARDING[layout.shard_level]} data", layout.data_parallel_shard_degree),
        ("context", layout.context_parallel_degree),
        ("expert", layout.expert_parallel_degree),
    )


def _known(value: float | None) -> TypeGuard[float]:
    return value is not None and math.isfinite(value)
