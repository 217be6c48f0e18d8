"""A job in words, with the size of its model: the first line of what is said of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from autotuner.search.text.sentences import size_in_words

if TYPE_CHECKING:
    from autotuner.core.model import TransformerSpec


def size_of(model: TransformerSpec) -> dict[str, Any]:
    """The size of a model as the service answers it."""
    return {name: getattr(model, name) for name in ("name", "num_parameters", "num_active_parameters")}


def model_in_words(size: Mapping[str, Any]) -> str:
    """The model with its parameters: ``mixtral-8x7b (46.7B parameters, 12.9B active)``."""
    return f"{size['name']} ({size_in_words(size['num_parameters'], size['num_active_parameters'])})"


def job_in_words(size: Mapping[str, Any], *, cluster: str, global_batch: int, seq_len: int) -> str:
    """The job: ``llama-3-8b (8.03B parameters) on h100:8, 64 sequences of 8192``."""
    return f"{model_in_words(size)} on {cluster}, {global_batch} sequences of {seq_len}"
