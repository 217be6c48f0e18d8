"""DeepSpeed as a target of exports."""

from __future__ import annotations

from autotuner.core.trial_spec import ExportFormat
from autotuner.export.deepspeed.read import read, recognises
from autotuner.export.deepspeed.rules import ELSEWHERE, RULES
from autotuner.export.deepspeed.write import VERSION, write
from autotuner.export.slow_links import LAUNCHED
from autotuner.export.target import Target

DEEPSPEED = Target(
    format=ExportFormat.DEEPSPEED,
    version=VERSION,
    rules=RULES,
    elsewhere=ELSEWHERE | LAUNCHED,
    write=write,
    read=read,
    recognises=recognises,
)
