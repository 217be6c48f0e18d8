"""Plan: compares clusters for a training run, and proposes one, changes to it, and pilot sweeps to run first."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np

from autotuner.core import codec
from autotuner.core.caveat import Caveat
from autotuner.core.columns import LayoutColumns
from autotuner.core.errors import InvalidInput
from autotuner.core.layout import Layout
from autotuner.core.named import resolved
from autotuner.core.run import Run
from autotuner.core.value import value
from autotuner.search.caveats import caveats
from autotuner.search.compute import ComputeService
from autotuner.search.planning.decision import Decision
from autotuner.search.planning.next_steps import PilotSweep, Upgrade, pilot_sweeps, upgrades
from autotuner.search.planning.offers import Offer, Price, offers, prices_of
from autotuner.search.planning.outcomes import Outcome, TrainingRun, job_on, searched_clusters
from autotuner.search.planning.request import PlanRequest
from autotuner.search.sampler.pareto import non_dominated

T = TypeVar("T")

_NEAR = 1.15
"""Ratio to the least loss up to which all layouts of a cluster are searched. Thin spaces miss less than that."""

_MOST_REFINED = 12
"""Largest number of clusters whose layouts are all searched, in addition to those on the Pareto front."""

_MOST_ROUNDS = 4
"""Largest number of rounds of searching. A searched cluster may reach the front in another's place, and is then
searched too."""

_AT_ONCE = 4
"""Number of clusters that one subprocess searches. For the largest models that takes 6 seconds."""

_THREADS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanProgress:
    """The progress of a plan's computation: how many pieces of work are done, and how many are known so far.

    A piece of work is, for example, the search of the layouts of a few clusters.
    """

    num_done: int = 0
    num_known: int = 0
    """Number of pieces of work that are known so far. More may follow."""


Progress = Callable[[int, int], None]
"""A function that is called with the number of finished pieces of work and the number of known pieces."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A cluster in a plan, with its best layout, its predicted run, and its chance to be the best cluster."""

    cluster: str
    """Name of the cluster, such as the short form of a catalog cluster."""
    accelerator: str
    num_nodes: int
    num_accelerators: int
    price_per_accelerator_hour: float
    """Price in US dollars."""
    is_hypothetical: bool
    """True if the cluster is one of the catalog with another network or memory, which no provider sells."""
    is_on_front: bool
    """True if no other candidate is both faster and cheaper."""
    is_thorough: bool
    """True if all layouts of the cluster were searched; otherwise only a reduced space of them."""
    chance_kept: float
    """Probability that a run on the cluster meets the goal's limits, 0..1; 1 if there are no limits."""
    chance_best: float
    """Probability that the cluster turns out to be the best choice, 0..1."""
    label: str
    """Short text for the best layout of the cluster."""
    layout: Layout
    predicted: TrainingRun


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The result of a plan: clusters for a training run, the recommended one first. Nothing here was measured."""

    candidates: tuple[Candidate, ...]
    """Clusters on which a layout fits. The cluster with the least expected loss comes first, and is the recommended
    one."""
    num_compared: int
    """Number of clusters that were compared."""
    prices: tuple[Price, ...]
    """Prices and powers of the accelerators, with their sources."""
    regret: float
    """Mean dollars by which the choice is worse than a choice with all times known."""
    upgrades: tuple[Upgrade, ...]
    """Gains of changes to the first candidate."""
    pilot_sweeps: tuple[PilotSweep, ...]
    """Pilot sweeps that are worth more than they cost, in the order to run them."""
    caveats: tuple[Caveat, ...]
    """Caveats about the predictions, and about clusters with too many layouts to search."""


def plan(request: PlanRequest, compute: ComputeService, progress: Progress = lambda done, known: None) -> Plan:
    """Compare clusters for a training run, and return a plan that says which cluster to take.

    Args:
        request: The plan request.
        compute: Helper processes that compute the pieces of work, some of them in parallel.
        progress: Called after each piece of work, with the number of pieces done and the number of pieces known so far.

    Raises:
        InvalidInput: There are no clusters to compare, too many, or none on which a layout fits.
        NotFound: The catalog has no accelerator of a given name.
    """
    found = offers(request)
    work = _Work(request, compute, progress)
    known = work.outcomes(found, is_thorough=False)
    if not known:
        clusters = "the one cluster" if len(found) == 1 else f"any of the {len(found)} clusters"
        rule = "; ".join(
            (f"has no layout that fits into the memory of {clusters}", *map(_left_out, work.too_large.values()))
        )
        rule = f"{rule}; name larger sizes or other accelerators"
        raise InvalidInput("model", resolved(request.model).name, rule)
    thorough: set[Offer] = set()  # or searched as far as their number of layouts allows
    for _ in range(_MOST_ROUNDS):
        leading = [offer for offer in _leading(request, known) if offer not in thorough]
        if not leading:
            break
        known |= work.outcomes(leading, is_thorough=True)
        thorough.update(leading)
    return work.concluded(found, known)


class _Work:
    """Computes the pieces of a plan in compute subprocesses.

    Attributes:
        thorough: Clusters whose layouts were all searched.
        too_large: Clusters with too many layouts to search, each with a caveat.
    """

    def __init__(self, request: PlanRequest, compute: ComputeService, progress: Progress) -> None:
        self._request = request
        self._compute = compute
        self._progress = progress
        self._done, self._known = 0, 0
        self.thorough: set[Offer] = set()
        self.too_large: dict[Offer, Caveat] = {}

    def outcomes(self, found: Sequence[Offer], *, is_thorough: bool) -> dict[Offer, Outcome]:
        """Return the outcome of the run on each cluster on which a layout fits."""
        pieces = [tuple(found[first : first + _AT_ONCE]) for first in range(0, len(found), _AT_ONCE)]
        self._known += len(pieces)
        answers: dict[Offer, Outcome] = {}
        with _threads() as pool:
            asked = {self._ask(pool, searched_clusters, piece, is_thorough=is_thorough): piece for piece in pieces}
            for future in as_completed(asked):
                for offer, searched in zip(asked[future], future.result(), strict=True):
                    if searched.outcome is not None:
                        answers[offer] = searched.outcome
                    if searched.is_thorough:
                        self.thorough.add(offer)
                    if searched.too_large:
                        self.too_large[offer] = searched.too_large
                self._count()
        return {offer: answers[offer] for offer in found if offer in answers}

    def _ask(self, pool: ThreadPoolExecutor, question: Callable[..., T], *of: Any, **how: Any) -> Future[T]:
        return pool.submit(copy_context().run, partial(self._compute.search, question, self._request, *of, **how))

    def _count(self) -> None:
        self._done += 1
        self._progress(self._done, self._known)

    def concluded(self, found: Sequence[Offer], known: Mapping[Offer, Outcome]) -> Plan:
        """Return the plan, after all clusters have been compared."""
        losses = Decision.among(self._request, list(known.values())).losses
        order = [list(known)[row] for row in np.argsort(losses, kind="stable")]
        chosen, outcomes = order[0], tuple(known[offer] for offer in order)
        self._known += 2
        with _threads() as pool:
            more = self._ask(pool, upgrades, chosen, known[chosen])
            first = self._ask(pool, pilot_sweeps, outcomes)
            for future in as_completed((more, first)):
                future.result()
                self._count()
        decision = Decision.among(self._request, outcomes)
        job, layout = job_on(self._request, known[chosen].cluster), known[chosen].best.layout
        too_large = [self.too_large[offer] for offer in found if offer in self.too_large]
        return Plan(
            candidates=_candidates(order, known, self.thorough, decision),
            num_compared=len(found),
            prices=prices_of(self._request, found),
            regret=decision.regret,
            upgrades=more.result().found,
            pilot_sweeps=first.result(),
            caveats=(
                *caveats(job, LayoutColumns.from_layouts([layout])),
                *dict.fromkeys((*too_large, *more.result().too_large)),
            ),
        )


def _left_out(cluster: Caveat) -> str:
    return f"{cluster.cluster} was left out: {', '.join(cluster.subjects)}"


@contextmanager
def _threads() -> Iterator[ThreadPoolExecutor]:
    """Run pieces of work in threads.

    If one piece fails or the caller stops, waiting pieces are not begun.
    """
    with ThreadPoolExecutor(_THREADS) as pool:
        try:
            yield pool
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _leading(request: PlanRequest, known: Mapping[Offer, Outcome]) -> Iterator[Offer]:
    """Yield the clusters whose layouts are worth searching.

    These are near the least loss, on the Pareto front, or the best of their kind of accelerator.
    """
    losses = Decision.among(request, list(known.values())).losses
    on_front = _on_front(list(known.values()))
    order = np.argsort(losses, kind="stable")
    kinds: set[str] = set()
    for place, row in enumerate(order):
        offer = list(known)[row]
        is_near = place < _MOST_REFINED and losses[row] <= _NEAR * losses[order[0]]
        is_first_of_kind = offer.cluster.accelerator.name not in kinds
        kinds.add(offer.cluster.accelerator.name)
        if is_near or on_front[row] or is_first_of_kind:
            yield offer


def _on_front(found: Sequence[Outcome]) -> list[bool]:
    values = np.array([[-one.time_s.median, -one.cost.median] for one in found])
    return [bool(one) for one in non_dominated(values)]


def _candidates(
    order: Sequence[Offer], known: Mapping[Offer, Outcome], thorough: set[Offer], decision: Decision
) -> tuple[Candidate, ...]:
    outcomes = [known[offer] for offer in order]
    on_front, kept, best = _on_front(outcomes), decision.chances_kept, decision.chances_best()
    return tuple(
        Candidate(
            cluster=outcome.cluster.name,
            accelerator=outcome.cluster.accelerator.name,
            num_nodes=outcome.cluster.num_nodes,
            num_accelerators=outcome.cluster.world_size,
            price_per_accelerator_hour=outcome.cluster.price_per_accelerator_hour,
            is_hypothetical=outcome.is_hypothetical,
            is_on_front=on_front[row],
            is_thorough=offer in thorough,
            chance_kept=float(kept[row]),
            chance_best=float(best[row]),
            label=str(outcome.best.layout),
            layout=outcome.best.layout,
            predicted=TrainingRun.of(outcome),
        )
        for row, (offer, outcome) in enumerate(zip(order, outcomes, strict=True))
    )


@value
class PlanRun(Run):
    """A plan that is computed in the background and stored. Its id is a hash of request, code and catalog."""

    kind: Literal["plan"] = "plan"
    request: PlanRequest
    progress: PlanProgress
    result: Plan | None = None
    """Result of the plan; None until it is computed. A list of runs leaves it out."""


_DIGITS = 16

_PACKAGE = Path(__file__).parents[2]

_READ_BY_PLANS = (".py", ".toml")
"""Endings of the files that plans depend on: code and the catalog."""


def plan_id_of(request: PlanRequest) -> str:
    """Return the id of a plan: a hash of the request, the code and the catalog.

    A change of any of them gives a new plan. An equal request finds the stored plan.
    """
    read = codec.loads(PlanRequest, codec.dumps(request))  # as the process that computes the plan reads it
    return codec.content_key(read, _release())[:_DIGITS]


@cache
def _release() -> str:
    """Return a digest of the package, in 10 milliseconds.

    A version number would not change during work on the cost model.
    """
    digest = hashlib.sha256()
    for path in sorted(_PACKAGE.rglob("*")):
        if path.suffix in _READ_BY_PLANS:
            digest.update(path.read_bytes())
    return digest.hexdigest()
