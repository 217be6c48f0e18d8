"""accelerate and transformers as targets of exports."""

from __future__ import annotations

from autotuner.core.trial_spec import ExportFormat
from autotuner.export.huggingface import accelerate_read, transformers_read, transformers_rules, transformers_write
from autotuner.export.huggingface.accelerate_rules import ACCELERATE_RULES, ELSEWHERE
from autotuner.export.huggingface.accelerate_write import VERSION, write
from autotuner.export.target import Target

ACCELERATE = Target(
    format=ExportFormat.ACCELERATE,
    version=VERSION,
    rules=ACCELERATE_RULES,
    elsewhere=ELSEWHERE,
    write=write,
    read=accelerate_read.read,
    recognises=accelerate_read.recognises,
)

TRANSFORMERS = Target(
    format=ExportFormat.TRANSFORMERS,
    version=transformers_write.VERSION,
    rules=transformers_rules.TRANSFORMERS_RULES,
    elsewhere=transformers_rules.ELSEWHERE,
    write=transformers_write.write,
    read=transformers_read.read,
    recognises=transformers_read.recognises,
)
