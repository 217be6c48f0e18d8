"""What forked ranks do in place of a trial: they take a moment, and tell figures that follow from the layout alone."""

from __future__ import annotations

import hashlib
import time

from autotuner.domain import wire
from autotuner.domain.runs.trial import StepReport, TrialSpec
from autotuner.launch.fake import plain_measurement
from trials.process.task import TaskContext
from trials.runtime.report import Reporter

__all__ = ["RANK_TASK", "perform", "step_time_s"]

RANK_TASK = "tests.chaos.rank_task:perform"

_TRIAL_S = 0.4
"""Long enough to be met by a fault."""


def step_time_s(spec: TrialSpec) -> float:
    """Between one and two seconds, whoever asks."""
    digest = hashlib.blake2b(wire.dumps(spec.layout).encode(), digest_size=4).digest()
    return 1.0 + int.from_bytes(digest, "big") / 2**32


def perform(context: TaskContext) -> int:
    """Report the steps of the trial of ``spec.json`` and its measurement."""
    spec = wire.loads(TrialSpec, (context.folder / "spec.json").read_text())
    reporter = Reporter(context.folder / "reports.jsonl", rank=context.rank_info.rank)
    reporter.started(spec, world_size=context.rank_info.world_size)
    measured = plain_measurement(spec, step_time_s=step_time_s(spec))
    for number, loss in enumerate(measured.losses):
        time.sleep(_TRIAL_S / len(measured.losses))
        reporter.step(
            StepReport(
                step=number,
                is_warmup=number < spec.settings.warmup_steps,
                step_time_s=measured.step_time_s,
                loss=loss,
                tokens_per_s=measured.tokens_per_s,
                mfu=measured.mfu,
            )
        )
    _meet(context)
    reporter.measurement(measured)
    return 0


def _meet(context: TaskContext) -> None:
    """Return when all ranks have come so far; as in a collective, one that is dead is waited for in vain."""
    (context.folder / f"met-{context.rank_info.rank}").touch()
    while len(list(context.folder.glob("met-*"))) < context.rank_info.world_size:
        time.sleep(0.005)
