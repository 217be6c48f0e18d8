"""Trainer: software that an operator registered to run as a trial, in place of our own decoder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from autotuner.domain.layouts.layout import LAYOUT_FIELDS
from autotuner.errors import InvalidInput

__all__ = ["ExportFormat", "Trainer"]


class ExportFormat(StrEnum):
    """What a layout can be written as."""

    MEGATRON_LM = "megatron-lm"  # command-line arguments
    MEGATRON_BRIDGE = "megatron-bridge"  # section.field=value overrides of a recipe
    NEMO = "nemo"  # the same of NeMo 2
    TORCHTITAN = "torchtitan"  # TOML, as far as 0.2
    TORCHTITAN_CONFIG = "torchtitan-config"  # a Python module, from 0.3
    DEEPSPEED = "deepspeed"  # ds_config.json
    ACCELERATE = "accelerate"  # YAML of ``accelerate launch``
    TRANSFORMERS = "transformers"  # arguments of Hugging Face's Trainer
    TORCHRUN = "torchrun"  # a shell script that starts our own trial
    SBATCH = "sbatch"  # the same for Slurm
    ARGUMENTS = "arguments"  # --tensor-parallel-degree 2 ...: for a training loop of one's own


@dataclass(frozen=True, slots=True, kw_only=True)
class Trainer:
    """What a sweep knows of a trainer; how it is started stays with the operator.

    Attributes:
        format: What a layout is written as for it.
        stack: Name of the software that predictions are for, from the catalog.
        options: Fields of a layout that it reads; empty: all that the format can say.
        fixed: What its own code decides, by field of a layout; every other field that the format leaves to the code is
            at its default.
    """

    name: str
    format: ExportFormat
    stack: str = "torch"
    options: tuple[str, ...] = ()
    fixed: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in (*self.options, *self.fixed):
            if name not in LAYOUT_FIELDS:
                raise InvalidInput("options" if name in self.options else "fixed", name, "is no field of a layout")
