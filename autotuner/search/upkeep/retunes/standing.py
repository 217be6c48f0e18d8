"""What a retune's incumbent and baseline become by a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from autotuner.core.comparison import RunGroup
from autotuner.core.layout import Layout
from autotuner.core.upkeep import Retune, RetuneOutcome, Verdict
from autotuner.search.upkeep.baselines import longer_baseline
from autotuner.search.upkeep.retunes.outcome import is_faster, is_open


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What a retune is held to.

    Attributes:
        incumbent: The layout in use; None: still none.
        baseline: What it reached, a group for each run.
    """

    incumbent: Layout | None
    baseline: tuple[RunGroup, ...]

    @classmethod
    def after(cls, retune: Retune, outcome: RetuneOutcome) -> Self:
        """The retune's, once a run of it has ended so.

        A regression changes nothing, so that the next run is held to the same; and nothing is adopted by it, since the
        machine is not what it was. Where another layout was adopted while the run went on, that one stays.
        """
        now = cls(incumbent=retune.incumbent, baseline=retune.baseline)
        found = outcome.findings
        if found is None or found.runs is None or outcome.verdict in (Verdict.REGRESSION, Verdict.COULD_NOT_RUN):
            return now
        if retune.incumbent not in (None, found.measured):
            return now
        if outcome.verdict is Verdict.BETTER_FOUND and retune.request.adopts and found.challenger_runs is not None:
            return cls(incumbent=found.challenger, baseline=(found.challenger_runs,))
        if found.against_baseline is None:  # it was held to nothing: the first run, or the first of a new phase
            return cls(incumbent=found.measured, baseline=(found.runs,))
        if is_open(found.against_baseline):
            return now  # a disturbed run would blur what the next is held to
        if is_faster(retune.request, found.against_baseline):  # so that it may not fall back to what it was unseen
            return cls(incumbent=found.measured, baseline=(found.runs,))
        return cls(incumbent=found.measured, baseline=longer_baseline(retune.baseline, found.runs))
