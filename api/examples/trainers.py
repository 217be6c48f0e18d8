"""Examples of trainers that an operator registered."""

from __future__ import annotations

from api.schemas import TrainerList, TrainerView
from autotuner.core.trial_spec import ExportFormat


def trainer_list() -> TrainerList:
    """One trainer, and the options that it understands."""
    trainer = TrainerView(
        name="finetune",
        format=ExportFormat.DEEPSPEED,
        version="0.19.8",
        stack="torch",
        options=("data_parallel_shard_degree", "shard_level", "micro_batch_size", "recompute"),
        fixed={"attention_kernel": "math"},
        values={"recompute": ("none", "full")},
    )
    return TrainerList(items=(trainer,))
