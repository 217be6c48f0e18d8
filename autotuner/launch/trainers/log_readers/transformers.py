"""Lines of Hugging Face's Trainer.

Shapes: transformers 5.23.0, src/transformers/trainer_callback.py (ProgressCallback, PrinterCallback); as printed, with
numbers in place of their texts, in h2oai/h2ogpt pull request 86, modal-labs/llm-finetuning pull request 82 and
hiyouga/LlamaFactory issue 3529 (2024-04).
"""

from __future__ import annotations

import re

from autotuner.core.trial_spec import TrialSpec
from autotuner.launch.trainers.log_readers.figures import COUNT, NUMBER, number
from autotuner.launch.trainers.reported import ReportedStep

_LOSS = re.compile(rf"\{{'loss': '?({NUMBER})'?[,}}]")
_BAR = re.compile(rf"\b({COUNT})/{COUNT} \[")


class TransformersLog:
    """Reads the dictionaries that the first rank prints every ``logging_steps``, 500 unless it is told otherwise.

    They say neither their step nor its time. Steps are counted; how many lie between two lines is seen where the
    progress bar is in the same stream, which shows where it stands after each line. Elsewhere every line is taken for
    one step, so that ``logging_steps`` must be 1.
    """

    def __init__(self, spec: TrialSpec) -> None:
        del spec  # a line says all
        self._step = 0
        self._num_steps = 1
        self._seen_at = 0
        self._awaits_bar = False

    def read(self, line: str) -> ReportedStep | None:
        """What a line says, without its end; None where it says nothing of a step."""
        found = _LOSS.search(line)
        self._follow(_BAR.search(line, 0, found.start() if found else len(line)))
        if found is None:
            return None
        self._step += self._num_steps
        self._awaits_bar = True
        return ReportedStep(step=self._step, num_steps=self._num_steps, loss=number(found[1]))

    def _follow(self, bar: re.Match[str] | None) -> None:
        """Take the first bar after a line for the step of that line; later ones may lag behind."""
        if bar is None or not self._awaits_bar:
            return
        self._awaits_bar = False
        step = int(bar[1])
        self._num_steps = max(1, step - self._seen_at)
        self._step = self._seen_at = step
