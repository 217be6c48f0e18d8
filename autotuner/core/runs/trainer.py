"""Trainer: software that an operator registered to run as a trial, in place of our own decoder."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import StrEnum

from autotuner.core.layouts.layout import LAYOUT_FIELDS, Layout
from autotuner.core.wire import from_dict
from autotuner.errors import InvalidInput

__all__ = ["ExportFormat", "Trainer"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:+-]{0,63}")


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

    @property
    def is_of_a_trainer(self) -> bool:
        """Whether it tells a trainer its layout; the others are scripts that start our own trial."""
        return self not in (ExportFormat.TORCHRUN, ExportFormat.SBATCH)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trainer:
    """What a sweep knows of a trainer; how it is started stays with the operator.

    Attributes:
        format: What a layout is written as for it.
        stack: Name of the software that predictions are for, from the catalog.
        options: Fields of a layout that it reads; empty: all that the format can say.
        fixed: What its own code decides, by field of a layout, as JSON has it; every other field that it does not read
            is at its default.
        values: Of fields that it reads, the values that it knows, as JSON has them; it knows all of the others.
    """

    name: str
    format: ExportFormat
    stack: str = "torch"
    options: tuple[str, ...] = ()
    fixed: Mapping[str, object] = field(default_factory=dict)
    values: Mapping[str, tuple[object, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            rule = "must be letters, digits and ._:+- only, 64 at most, a letter or a digit first"
            raise InvalidInput("name", self.name, rule)
        if not self.format.is_of_a_trainer:
            raise InvalidInput("format", self.format.value, "starts our own trial, so it is no trainer's")
        for index, name in enumerate(self.options):
            _require_field(name, f"options.{index}")
            if name in self.fixed:
                raise InvalidInput(f"fixed.{name}", self.fixed[name], "is one of the options, so it is not fixed")
        for name in self.fixed:
            _require_field(name, f"fixed.{name}")
        from_dict(Layout, dict(self.fixed), "fixed")
        for name in self.values:
            _require_field(name, f"values.{name}")
            if name in self.fixed or (self.options and name not in self.options):
                raise InvalidInput(f"values.{name}", list(self.values[name]), "is of a field that it does not read")
            if not self.known(name):
                raise InvalidInput(f"values.{name}", [], "must be one value or more")

    def reads(self, name: str, elsewhere: Collection[str]) -> bool:
        """Whether a field of the layout reaches it.

        Args:
            name: Of the field.
            elsewhere: Fields that the format leaves to the trainer's own code; those among ``options`` are read by it.
        """
        return name in self.options if self.options else name not in self.fixed and name not in elsewhere

    def held(self, name: str) -> int | None:
        """The value that its own code decides; None where nobody said which."""
        value: int = getattr(from_dict(Layout, dict(self.fixed)), name)
        return value if name in self.fixed else None

    def known(self, name: str) -> tuple[int, ...]:
        """The values of a field that it knows, where it does not know all."""
        plain = self.values.get(name, ())
        return tuple(getattr(from_dict(Layout, {name: value}, "values"), name) for value in plain)


def _require_field(name: str, path: str) -> None:
    if name not in LAYOUT_FIELDS:
        near = get_close_matches(name, LAYOUT_FIELDS, 1, cutoff=0.0)
        raise InvalidInput(path, name, "is no field of a layout", near[0] if near else None)
