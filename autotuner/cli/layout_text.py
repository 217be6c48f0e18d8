"""What a user writes after --layout: the words that tables print, or JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from autotuner.domain.choice import (
    AttentionKernel,
    ContextExchange,
    Fp8Recipe,
    OptimizerKernel,
    PipelineSchedule,
    Precision,
    Recompute,
)
from autotuner.domain.layout import Layout
from autotuner.domain.wire import from_dict
from autotuner.errors import InvalidInput

__all__ = ["read_layout"]

_DEGREES: Mapping[str, Mapping[str, Any]] = {
    "dp": {"data_parallel_replicate_degree": int},
    "zero": {"data_parallel_shard_degree": int, "shard_level": "optimizer"},
    "fsdp": {"data_parallel_shard_degree": int, "shard_level": "parameters"},
    "tp": {"tensor_parallel_degree": int},
    "cp": {"context_parallel_degree": int},
    "ep": {"expert_parallel_degree": int},
    "pp": {"pipeline_parallel_degree": int},
    "v": {"virtual_stages_per_rank": int},
    "mb": {"micro_batch_size": int},
    "lessfirst": {"first_stage_less_layers": int},
    "lesslast": {"last_stage_less_layers": int},
    "every": {"recompute_every": int},
    "bucket": {"gradient_bucket_bytes": int},
}
"""Words with a number: the fields they set, ``int`` standing for the number."""

_SWITCHES: Mapping[str, Mapping[str, Any]] = {
    "sp": {"sequence_parallel": True},
    "reshard": {"reshard_after_forward": True},
    "unfused-norm": {"fused_norm": False},
    "async-tp": {"async_tensor_parallel": True},
    "gathered-logits": {"loss_parallel": False},
    "fp32-reduce": {"fp32_gradient_reduce": True},
    "offload": {"offload_activations": True},
    "compiled": {"compiled": True},
    **{f"cp-{choice.label}": {"context_exchange": choice.label} for choice in ContextExchange},
    **{f"recompute-{choice}": {"recompute": choice.label} for choice in Recompute},
    **{choice.label: {"pipeline_schedule": choice.label} for choice in PipelineSchedule},
    **{choice.label: {"attention_kernel": choice.label} for choice in AttentionKernel},
    **{choice.label: {"precision": choice.label} for choice in Precision},
    **{choice.label: {"fp8_recipe": choice.label} for choice in Fp8Recipe},
    **{choice.label: {"optimizer_kernel": choice.label} for choice in OptimizerKernel},
}
"""Words without one."""


def read_layout(text: str) -> dict[str, Any]:
    """The fields of a layout that the text names, as the service takes them; others take their defaults.

    The words are those of ``Layout``: ``fsdp8 tp4 pp2 1f1b mb1 sp recompute-full every2 flash bf16``. ``zero8`` shards
    the optimizer over 8 ranks; other shard levels are written as JSON.

    Raises:
        InvalidInput: A word or a field is unknown; with the nearest that is known. Or one is given twice.
    """
    is_file = text.endswith(".json")
    if is_file or text.lstrip().startswith("{"):
        return _document(_read(text) if is_file else text)
    fields: dict[str, Any] = {}
    for word in text.split():
        for name, value in _fields(word).items():
            if name in fields:
                raise InvalidInput("layout", word, f"says {name} again")
            fields[name] = value
    return fields


def _fields(word: str) -> dict[str, Any]:
    if word in _SWITCHES:
        return dict(_SWITCHES[word])
    found = re.fullmatch(r"([a-z]+)([1-9][0-9]{0,11})", word)
    if found is None or found[1] not in _DEGREES:
        known = ", ".join((*(f"{name}N" for name in _DEGREES), *_SWITCHES))
        raise InvalidInput("layout", word, f"is no word of a layout; it has {known}", _nearest(word))
    return {name: int(found[2]) if value is int else value for name, value in _DEGREES[found[1]].items()}


def _nearest(word: str) -> str | None:
    """The closest word there is, with the number that was given."""
    number = "".join(re.findall("[1-9][0-9]*$", word)) or "1"
    near = get_close_matches(word, (*_SWITCHES, *(f"{name}{number}" for name in _DEGREES)), 1)
    return near[0] if near else None


def _document(text: str) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except ValueError as error:
        raise InvalidInput("layout", text[:60], f"must be words or JSON ({error})") from error
    from_dict(Layout, document, "layout")
    return document  # type: ignore[no-any-return]  # from_dict refuses what is no object


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError as error:
        raise InvalidInput("layout", path, f"cannot be read: {error.strerror}") from error
