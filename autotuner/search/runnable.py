"""Whether a sweep can be run at all: whether its space holds a layout that a trial can try."""

from __future__ import annotations

from collections.abc import Sequence

from autotuner.costmodel.columns import LayoutColumns
from autotuner.domain.jobs.cluster import Cluster
from autotuner.domain.jobs.job import Job
from autotuner.domain.layouts.search_space import SearchSpace
from autotuner.domain.rules.legality import Rule
from autotuner.domain.runs.sweep import SweepRequest
from autotuner.errors import InvalidInput
from autotuner.search.expressible import trial_rules
from autotuner.search.scaling.table import small_trials
from autotuner.search.space import explain_empty, legal_layouts

__all__ = ["empty_space", "require_layouts"]

_NUM_REASONS = 3
"""Of an empty space; the rules that remove most come first, the others rarely matter."""


def require_layouts(request: SweepRequest) -> None:
    """Return if the space holds a layout that a trial can run, or that a trial on the smaller cluster stands for.

    Raises:
        InvalidInput: With why it holds none.
    """
    rules = trial_rules(request.trainer)
    layouts = legal_layouts(request.job, request.space, rules)
    if not len(layouts):
        raise empty_space(request.job, request.space, rules, "holds no layout that a trial can run")
    if request.small_cluster:
        _require_small_trials(request, layouts, request.small_cluster)


def empty_space(job: Job, space: SearchSpace, rules: Sequence[Rule], what: str) -> InvalidInput:
    """What to raise of a space without a layout, with the rules that remove most."""
    broken = explain_empty(job, space, rules)[:_NUM_REASONS]
    return InvalidInput("space", "as given", f"{what}: " + "; ".join(reason.message for reason in broken))


def _require_small_trials(request: SweepRequest, layouts: LayoutColumns, cluster: Cluster) -> None:
    is_whole = request.trainer is not None
    trials = small_trials(request.trial_job, layouts, cluster, trial_rules(request.trainer), whole_model=is_whole)
    if not len(trials):
        whys = "; ".join(f"{count} layouts: {why}" for why, count in trials.refused[:_NUM_REASONS])
        raise InvalidInput("trial_cluster", cluster.name, f"holds no trial that stands for a layout of the job: {whys}")
