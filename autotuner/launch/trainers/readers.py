"""Which logs are understood: how a reader of each is made, one per run."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from autotuner.launch.trainers.reported import LogReader

__all__ = ["LOG_READERS"]

LOG_READERS: Mapping[str, Callable[[], LogReader]] = {}
"""By the name that a registration says (``reports = "megatron"``)."""
