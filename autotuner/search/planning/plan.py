"""Plan: whole clusters compared for a training run, the one to take, what more would buy, and what to try first."""

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
from autotuner.search.asides import Asides
from autotuner.search.caveats import caveats
from autotuner.search.planning.clusters import Offer, Price, offers, prices_of
from autotuner.search.planning.decision import Decision
from autotuner.search.planning.layouts import Outcome, TrainingRun, job_on, searched_clusters
from autotuner.search.planning.next_steps import PilotSweep, Upgrade, pilot_sweeps, upgrades
from autotuner.search.planning.request import PlanRequest
from autotuner.search.sampler.pareto import non_dominated

T = TypeVar("T")

_NEAR = 1.15
"""Times the least loss up to which a cluster's layouts are all looked through: thin spaces miss less than that."""

_MOST_REFINED = 12
"""Clusters whose layouts are all looked through, beside those on the front."""

_MOST_ROUNDS = 4
"""A cluster that was looked through may take another's place on the front, which then is, too."""

_AT_ONCE = 4
"""Clusters that one aside looks through: of the largest models that takes it 6 seconds."""

_THREADS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanProgress:
    """Progress of a plan: numbers of pieces of work that are done and that are known so far."""

    num_done: int = 0
    num_known: int = 0
    """Pieces that there are as far as is known; more may come."""


Progress = Callable[[int, int], None]
"""Hears how many pieces of work are done, and how many there are as far as is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A cluster in a plan, compared with the other clusters."""

    cluster: str
    """Its name: the short form of one of the catalog."""
    accelerator: str
    num_nodes: int
    num_accelerators: int
    price_per_accelerator_hour: float
    """Price in US dollars."""
    is_hypothetical: bool
    """Nobody sells it: one of the catalog with another network or memory."""
    is_on_front: bool
    """True if no other candidate is both faster and cheaper."""
    is_thorough: bool
    """Its layouts were all looked through; else a thin space of them."""
    chance_kept: float
    """Probability that it keeps the goal's limits, 0..1; 1 if there are none."""
    chance_best: float
    """Probability that it turns out to be the right choice, 0..1."""
    label: str
    """Its best layout in short."""
    layout: Layout
    predicted: TrainingRun


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The result of a plan: which cluster to take for a training run. Nothing here was measured."""

    contenders: tuple[Candidate, ...]
    """Clusters on which a layout fits, the least expected loss first: the first is the one to take."""
    num_compared: int
    """Clusters that were looked at."""
    prices: tuple[Price, ...]
    """Prices and powers of the accelerators, with their sources."""
    regret: float
    """Dollars that the choice is worse by, on average, than if all times were known beforehand."""
    marginals: tuple[Upgrade, ...]
    """Gains of changes of the first candidate."""
    proofs: tuple[PilotSweep, ...]
    """Small sweeps that are worth more than they cost, in the order to run them."""
    caveats: tuple[Caveat, ...]
    """Caveats about the predictions, and about layouts that were too many to search."""


def plan(request: PlanRequest, asides: Asides, progress: Progress = lambda done, known: None) -> Plan:
    """Compare whole clusters for a training run and return the plan.

    Args:
        request: The plan request.
        asides: Helper processes that compute the pieces of work, some of them in parallel.
        progress: Called after each piece with the number of pieces done and the number known so far.

    Raises:
        InvalidInput: There are no clusters to compare, too many, or none on which a layout fits.
        NotFound: The catalog has no accelerator of a given name.
    """
    found = offers(request)
    work = _Work(request, asides, progress)
    known = work.outcomes(found, is_thorough=False)
    if not known:
        clusters = "the one cluster" if len(found) == 1 else f"any of the {len(found)} clusters"
        rule = "; ".join((f"has no layout that fits on {clusters}", *map(_left_out, work.too_large.values())))
        rule = f"{rule}; name larger sizes or other accelerators"
        raise InvalidInput("model", resolved(request.model).name, rule)
    thorough: set[Offer] = set()  # or as thorough as their number of layouts allows
    for _ in range(_MOST_ROUNDS):
        leading = [offer for offer in _leading(request, known) if offer not in thorough]
        if not leading:
            break
        known |= work.outcomes(leading, is_thorough=True)
        thorough.update(leading)
    return work.concluded(found, known)


class _Work:
    """Pieces of a plan, computed aside.

    Attributes:
        thorough: Clusters whose layouts were all looked through.
        too_large: Clusters that have too many for that, each with what it means.
    """

    def __init__(self, request: PlanRequest, asides: Asides, progress: Progress) -> None:
        self._request = request
        self._asides = asides
        self._progress = progress
        self._done, self._known = 0, 0
        self.thorough: set[Offer] = set()
        self.too_large: dict[Offer, Caveat] = {}

    def outcomes(self, found: Sequence[Offer], *, is_thorough: bool) -> dict[Offer, Outcome]:
        """Return what the run takes on each cluster on which a layout fits."""
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
        return pool.submit(copy_context().run, partial(self._asides.search, question, self._request, *of, **how))

    def _count(self) -> None:
        self._done += 1
        self._progress(self._done, self._known)

    def concluded(self, found: Sequence[Offer], known: Mapping[Offer, Outcome]) -> Plan:
        """Return the plan, once all clusters are compared."""
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
            contenders=_contenders(order, known, self.thorough, decision),
            num_compared=len(found),
            prices=prices_of(self._request, found),
            regret=decision.regret,
            marginals=more.result().found,
            proofs=first.result(),
            caveats=(
                *caveats(job, LayoutColumns.from_layouts([layout])),
                *dict.fromkeys((*too_large, *more.result().too_large)),
            ),
        )


def _left_out(cluster: Caveat) -> str:
    return f"{cluster.cluster} was left out: {', '.join(cluster.subjects)}"


@contextmanager
def _threads() -> Iterator[ThreadPoolExecutor]:
    """Ask for pieces; where one fails, or whoever asks stops, those that wait are not begun."""
    with ThreadPoolExecutor(_THREADS) as pool:
        try:
            yield pool
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _leading(request: PlanRequest, known: Mapping[Offer, Outcome]) -> Iterator[Offer]:
    """Clusters whose layouts are worth looking through: near the least loss, on the front, the best of its kind."""
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


def _contenders(
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
    """A plan as a durable run. Its id stays the same for the same question, code and catalog."""

    kind: Literal["plan"] = "plan"
    request: PlanRequest
    progress: PlanProgress
    result: Plan | None = None
    """Result; None until it is computed, and in a list."""


_DIGITS = 16

_PACKAGE = Path(__file__).parents[2]

_READ_BY_PLANS = (".py", ".toml")
"""Endings of code and of the catalog."""


def plan_id_of(request: PlanRequest) -> str:
    """Return the id of a plan: a hash of the question, the code and the catalog.

    A change of any of them gives a new plan.
    """
    read = codec.loads(PlanRequest, codec.dumps(request))  # as whoever computes it reads it
    return codec.content_key(read, _release())[:_DIGITS]


@cache
def _release() -> str:
    """Digest of the package, in 10 milliseconds: a version number stays while somebody works on the cost model."""
    digest = hashlib.sha256()
    for path in sorted(_PACKAGE.rglob("*")):
        if path.suffix in _READ_BY_PLANS:
            digest.update(path.read_bytes())
    return digest.hexdigest()
