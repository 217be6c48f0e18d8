"""How long a plan takes, and what its thin spaces miss: ``python -m bench.plan_speed`` prints a line for each run.

Four runs of dense and sparse models over all accelerators with a list price, computed in this process: its processor
time says the same on a busy machine. A service computes pieces side by side, one fewer than it has asides.
The thin space's loss is how much longer its best layout takes than that of the whole space, of the clusters that were
looked through twice: the median and the largest.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from statistics import median

from autotuner.catalog.models import load_model
from autotuner.core.stack import Stack
from autotuner.core.workload import Workload
from autotuner.search.asides import Inline
from autotuner.search.planning.clusters import Offer, offers
from autotuner.search.planning.layouts import searched_cluster
from autotuner.search.planning.plan import plan
from autotuner.search.planning.request import Goal, PlanRequest

_DAY_S = 86_400.0

_RUNS = (
    ("llama-3-8b", 1e12, 30, Workload(seq_len=8192, global_batch_size=512)),
    ("llama-3-70b", 2e12, 60, Workload(seq_len=8192, global_batch_size=1024)),
    ("llama-3.1-405b", 15.6e12, 90, Workload(seq_len=8192, global_batch_size=2048)),
    ("mixtral-8x7b", 2e12, 30, Workload(seq_len=4096, global_batch_size=2048)),
)

_MOST_COMPARED = 8
"""Clusters whose thin and whole spaces are compared."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the times."""
    del arguments
    sys.stdout.write("run | clusters | processor seconds | thin space: median and largest loss of time\n")
    for model, tokens, days, workload in _RUNS:
        goal = Goal(num_tokens=tokens, deadline_s=days * _DAY_S)
        request = PlanRequest(model=load_model(model), workload=workload, goal=goal, stack=Stack())
        started = time.process_time()
        found = plan(request, Inline())
        seconds = time.process_time() - started
        named = {offer.cluster.name: offer for offer in offers(request)}
        thorough = [named[one.cluster] for one in found.contenders if one.is_thorough]
        losses = [_loss(request, offer) for offer in thorough[:_MOST_COMPARED]]
        said = f"{100 * median(losses):.1f} %, {100 * max(losses):.1f} %"
        sys.stdout.write(f"{model}, {tokens:.3g} tokens, {days} days | {found.num_compared} | {seconds:.1f} | {said}\n")
        sys.stdout.flush()
    return 0


def _loss(request: PlanRequest, offer: Offer) -> float:
    """How much longer the best of the thin space takes than that of the whole one."""
    thin, whole = (searched_cluster(request, offer, is_thorough=is_thorough).outcome for is_thorough in (False, True))
    assert thin is not None
    assert whole is not None
    return thin.time_s.median / whole.time_s.median - 1


if __name__ == "__main__":
    sys.exit(main())
