"""What forked ranks do in place of a trial: they take a moment, and tell figures that follow from the layout alone."""

from __future__ import annotations

import time

from autotuner.core import codec
from autotuner.core.measurement import StepReport
from autotuner.core.trial_spec import TrialSpec
from autotuner.trials.process.task import TaskContext
from autotuner.trials.rank import Reporter
from tests.chaos.outcome import measured

_TRIAL_S = 0.4
"""Long enough to be met by a fault."""


def perform(context: TaskContext) -> int:
    """Report the steps of the trial of ``spec.json`` and its measurement."""
    spec = codec.loads(TrialSpec, (context.folder / "spec.json").read_text())
    reporter = Reporter(context.folder / "reports.jsonl", rank=context.rank_info.rank)
    reporter.started(spec, world_size=context.rank_info.world_size)
    measurement = measured(spec)
    for number, loss in enumerate(measurement.losses):
        time.sleep(_TRIAL_S / len(measurement.losses))
        reporter.report(
            StepReport(
                step=number,
                is_warmup=number < spec.settings.warmup_steps,
                step_time_s=measurement.step_time_s,
                loss=loss,
                tokens_per_s=measurement.tokens_per_s,
                mfu=measurement.mfu,
            )
        )
    _meet(context)
    reporter.report(measurement)
    return 0


def _meet(context: TaskContext) -> None:
    """Return when all ranks have come so far; as in a collective, one that is dead is waited for in vain."""
    (context.folder / f"met-{context.rank_info.rank}").touch()
    while len(list(context.folder.glob("met-*"))) < context.rank_info.world_size:
        time.sleep(0.005)
