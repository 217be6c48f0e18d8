"""What a sweep would search, before it is asked for: how many layouts, which of them fit, what the best promises."""

from __future__ import annotations

from dataclasses import dataclass

from autotuner.core.columns import concatenate
from autotuner.core.job import Job
from autotuner.core.sweep import SweepRequest
from autotuner.search.answers import PredictedBest
from autotuner.search.expressible import trial_rules
from autotuner.search.ranking import ComparedBy, PredictedLayout, best_predicted
from autotuner.search.sampler.proxies import small_trials
from autotuner.search.sieve import Sieved, sieved
from autotuner.search.space import empty_space, legal_chunks
from autotuner.search.suggestions import Advice, Shortfall, advice


@dataclass(frozen=True, slots=True, kw_only=True)
class StandIns:
    """How far trials on a smaller cluster reach.

    Attributes:
        num_layouts: Of the job, for which a trial stands.
        refused: Why none stands for others, and for how many of them; the most frequent first.
    """

    num_layouts: int
    refused: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """What a sweep would search; nothing of it was measured.

    Attributes:
        sieved: Why other layouts are illegal; None of a space too large to say it.
        best: The best predicted layouts, and what would help where none fits.
        stand_ins: Where trials run on a smaller cluster.
    """

    sieved: Sieved | None
    best: PredictedBest
    stand_ins: StandIns | None


def outlook(request: SweepRequest, *, limit: int = 3, with_remedies: bool = True) -> Outlook:
    """What the sweep would search.

    Args:
        request: The sweep.
        limit: Layouts that are predicted whole.
        with_remedies: Where nothing fits, look for what would help: that takes several times as long as all the rest.

    Raises:
        InvalidInput: It holds no layout that a trial can run, with why.
        SpaceTooLarge: It cannot be looked through.
    """
    job, space, rules = request.legal_job, request.space, trial_rules(request.trainer)
    compared = ComparedBy(objective=request.objective, trace=request.fault_trace)
    table = best_predicted(request.trial_job, space, limit=limit, rules=rules, compared_by=compared)
    if not table.num_legal:
        raise empty_space(job, space, rules, "holds no layout that a trial can run")
    if table.nearest is not None and not with_remedies:
        found = Advice(shortfall=_bare(table.nearest, job))
    else:
        found = advice(job, space, table, rules)
    best = PredictedBest(table=table, advice=found, current=None, caveats=table.caveats)
    return Outlook(sieved=sieved(job, space, rules), best=best, stand_ins=_stand_ins(request))


def _bare(nearest: PredictedLayout, job: Job) -> Shortfall:
    """What the layout with the smallest peak lacks, and nothing of what would help."""
    missing = max(0.0, nearest.prediction.memory.total_bytes - job.cluster.accelerator.memory_bytes)
    return Shortfall(nearest=nearest, missing_bytes=missing, remedies=(), larger=None)


def _stand_ins(request: SweepRequest) -> StandIns | None:
    if request.small_cluster is None:
        return None
    rules = trial_rules(request.trainer)
    layouts = concatenate(list(legal_chunks(request.job, request.space, rules)))
    is_whole = request.trainer is not None
    trials = small_trials(request.trial_job, layouts, request.small_cluster, rules, whole_model=is_whole)
    return StandIns(num_layouts=len(trials), refused=tuple(trials.refused))
