"""Whether a sweep can be run at all: whether its space holds a layout that a trial can try."""

from __future__ import annotations

from collections.abc import Sequence

from autotuner.core.cluster import Cluster
from autotuner.core.columns import LayoutColumns, concatenate
from autotuner.core.errors import InvalidInput
from autotuner.core.rules.rule import Rule
from autotuner.core.sweep import SweepRequest
from autotuner.search.expressible import trial_rules
from autotuner.search.modest import require_modest
from autotuner.search.sampler.proxies import small_trials
from autotuner.search.space import MOST_REASONS, empty_space, legal_chunks
from autotuner.search.splits import SpaceTooLarge

MAX_SEARCHED = 2_000_000
"""Legal layouts of a sweep: it holds each with its prediction, half a kilobyte, and looks at all before each trial."""


def require_layouts(request: SweepRequest, *, most: int = MAX_SEARCHED) -> None:
    """Return if the space holds a layout that a trial can run, or that a trial on the smaller cluster stands for.

    Raises:
        InvalidInput: With why it holds none, or what of the request is beyond use.
        SpaceTooLarge: It holds more than ``most``, or cannot be looked through at all.
    """
    require_modest(request)
    rules = trial_rules(request.trainer)
    layouts = _few_layouts(request, rules, most)
    if not len(layouts):
        raise empty_space(request.job, request.space, rules, "holds no layout that a trial can run")
    if request.small_cluster:
        _require_small_trials(request, layouts, request.small_cluster)


def _few_layouts(request: SweepRequest, rules: Sequence[Rule], most: int) -> LayoutColumns:
    chunks, num_legal = [], 0
    for chunk in legal_chunks(request.job, request.space, rules):
        chunks.append(chunk)
        num_legal += len(chunk)
        if num_legal > most:
            rule = "legal layouts are more than a sweep searches; name fewer values"
            raise SpaceTooLarge("space", f"more than {most}", rule, most)
    return concatenate(chunks)


def _require_small_trials(request: SweepRequest, layouts: LayoutColumns, cluster: Cluster) -> None:
    is_whole = request.trainer is not None
    trials = small_trials(request.trial_job, layouts, cluster, trial_rules(request.trainer), whole_model=is_whole)
    if not len(trials):
        whys = "; ".join(f"{count} layouts: {why}" for why, count in trials.refused[:MOST_REASONS])
        raise InvalidInput("trial_cluster", cluster.name, f"holds no trial that stands for a layout of the job: {whys}")
