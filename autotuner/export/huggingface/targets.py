"""accelerate and transformers as targets of exports."""

from __future__ import annotations

from autotuner.domain.runs.trainer import ExportFormat
from autotuner.export.huggingface import accelerate_read
from autotuner.export.huggingface.accelerate_rules import ACCELERATE_RULES, ELSEWHERE
from autotuner.export.huggingface.accelerate_write import VERSION, write
from autotuner.export.target import Target

__all__ = ["ACCELERATE"]

ACCELERATE = Target(
    format=ExportFormat.ACCELERATE,
    version=VERSION,
    rules=ACCELERATE_RULES,
    elsewhere=ELSEWHERE,
    write=write,
    read=accelerate_read.read,
    recognises=accelerate_read.recognises,
)
