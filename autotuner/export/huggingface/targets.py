"""accelerate and transformers as targets of exports."""

from __future__ import annotations

from autotuner.core.trial_spec import ExportFormat
from autotuner.export.huggingface import accelerate, transformers
from autotuner.export.huggingface.accelerate import ACCELERATE_RULES, ELSEWHERE, VERSION, write
from autotuner.export.target import Target

ACCELERATE = Target(
    format=ExportFormat.ACCELERATE,
    version=VERSION,
    rules=ACCELERATE_RULES,
    elsewhere=ELSEWHERE,
    write=write,
    read=accelerate.read,
    recognises=accelerate.recognises,
)

TRANSFORMERS = Target(
    format=ExportFormat.TRANSFORMERS,
    version=transformers.VERSION,
    rules=transformers.TRANSFORMERS_RULES,
    elsewhere=transformers.ELSEWHERE,
    write=transformers.write,
    read=transformers.read,
    recognises=transformers.recognises,
)
