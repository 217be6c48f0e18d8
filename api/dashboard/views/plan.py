"""A plan as its page shows it: figures of the cluster to take, rows of the others, changes, stages, prices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from markupsafe import Markup

from api.dashboard.charts.plan_front import plan_front
from api.schemas import PlanView
from autotuner.core.layout import Layout
from autotuner.search.planning.outcome import Interval
from autotuner.search.planning.pilot_sweeps import PilotSweep
from autotuner.search.planning.plan import Candidate
from autotuner.search.planning.upgrades import Upgrade
from autotuner.search.planning.words import (
    advice_in_words,
    amount,
    days,
    goal_in_words,
    money,
    within,
    workload_in_words,
    worth_in_words,
)

_S_PER_DAY, _S_PER_HOUR = 86_400.0, 3600.0
_BESIDE_FORM = 896
"""Pixels of a picture beside the form."""

_NOTHING = 0.005
"""Of hours, points and shares of them, less than this is what a sum's order makes of nothing."""

_MOST_ROWS = 12
"""Clusters that the table shows beside those on the front."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterRow:
    """A cluster in the table.

    Attributes:
        marks: What it is beside its name: the one to take, on the front, hypothetical.
    """

    cluster: str
    marks: tuple[str, ...]
    price: str
    days: str
    cost: str
    energy: str
    within: str
    mfu: str
    goodput: str
    kept: str
    best: str
    layout: Layout
    is_first: bool

    @classmethod
    def of(cls, one: Candidate, *, is_first: bool) -> Self:
        """The row of a contender."""
        run = one.predicted
        told = (one.is_on_front, "front"), (one.is_hypothetical, "hypothetical"), (not one.is_thorough, "thin space")
        return cls(
            cluster=one.cluster,
            marks=tuple(word for holds, word in told if holds),
            price=f"{one.price_per_accelerator_hour:.2f}",
            days=f"{run.time_s.median / _S_PER_DAY:.3g}",
            cost=money(run.cost.median),
            energy=amount(run.energy_kwh.median / 1e3) if run.energy_kwh else "–",
            within=within(run.time_s.low, run.time_s.high),
            mfu=f"{100 * run.mfu:.1f} %",
            goodput=f"{100 * run.goodput:.1f} %",
            kept=f"{100 * one.chance_kept:.0f} %",
            best=f"{100 * one.chance_best:.0f} %",
            layout=one.layout,
            is_first=is_first,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeRow:
    """A change of the cluster to take; empty texts where nothing is to be said."""

    change: str
    hours: str
    cost: str
    mfu: str
    per_dollar: str
    hours_per_thousand: str
    worth: str

    @classmethod
    def of(cls, one: Upgrade) -> Self:
        """The row of a marginal value."""
        if one.predicted is None:
            nothing = dict.fromkeys(("cost", "mfu", "per_dollar", "hours_per_thousand", "worth"), "")
            return cls(change=one.change, hours="no layout uses it", **nothing)
        per_dollar, hours, worth = one.mfu_per_dollar, one.hours_per_dollar, one.worth_per_accelerator_hour
        return cls(
            change=one.change,
            hours=_signed(one.saved_s / _S_PER_HOUR).removeprefix("+"),
            cost=money(0.0 - one.saved_cost),
            mfu=_signed(round(100 * one.mfu, 2)),
            per_dollar="–" if per_dollar is None else _signed(1e5 * per_dollar),
            hours_per_thousand="–" if hours is None else _signed(1000 * hours).removeprefix("+"),
            worth="–" if worth is None else worth_in_words(worth),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StageRow:
    """A small sweep to run."""

    sweep: str
    target: str
    layout: Layout
    takes: str
    cost: str
    saved: str
    left: str

    @classmethod
    def of(cls, one: PilotSweep) -> Self:
        """The row of a stage."""
        nodes = f"{one.num_nodes} node{'s' if one.num_nodes > 1 else ''}"
        return cls(
            sweep=f"{one.num_trials} trials on {one.num_accelerators} {one.accelerator} ({nodes})",
            target=one.target,
            layout=one.layout,
            takes=f"{one.hours:.1f} h",
            cost=money(one.cost),
            saved=money(one.saved),
            left=f"x/÷ {1 + one.error_after:.2f}",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanPage:
    """Everything that the page says of a plan that is computed.

    Attributes:
        sentence: What to take, in a sentence without a full stop.
        workload: How much is trained, and in which steps.
        limits: What is to be kept; empty where there are no limits.
        has_thin: Of some clusters' layouts only a part was looked through.
        hidden: Clusters that the table leaves out.
        unfit: Clusters on which no layout fits.
    """

    view: PlanView
    first: Candidate
    time: str
    time_spread: str
    cost: str
    cost_spread: str
    energy: str
    sentence: str
    workload: str
    limits: str
    regret: str
    rows: tuple[ClusterRow, ...]
    has_thin: bool
    hidden: int
    unfit: int
    changes: tuple[ChangeRow, ...]
    stages: tuple[StageRow, ...]
    picture: Markup

    @classmethod
    def of(cls, view: PlanView) -> Self:
        """The page of a plan that has an answer."""
        answer = view.answer
        assert answer is not None
        first, contenders = answer.contenders[0], answer.contenders
        run, shown = first.predicted, [one for i, one in enumerate(contenders) if i < _MOST_ROWS or one.is_on_front]
        return cls(
            view=view,
            first=first,
            time=days(run.time_s.median),
            time_spread=_from_to(run.time_s, _S_PER_DAY),
            cost=money(run.cost.median),
            cost_spread=f"80 %: {money(run.cost.low)} to {money(run.cost.high)}",
            energy=f"{amount(run.energy_kwh.median / 1e3)} MWh" if run.energy_kwh else "–",
            sentence=advice_in_words(first.cluster, first.chance_best),
            workload=workload_in_words(view.goal, view.workload),
            limits=goal_in_words(view.goal),
            regret=money(answer.regret),
            rows=tuple(ClusterRow.of(one, is_first=one is first) for one in shown),
            has_thin=not all(one.is_thorough for one in shown),
            hidden=len(contenders) - len(shown),
            unfit=answer.num_compared - len(contenders),
            changes=tuple(map(ChangeRow.of, answer.marginals)),
            stages=tuple(map(StageRow.of, answer.proofs)),
            picture=plan_front(contenders, view.goal, _BESIDE_FORM),
        )


def _from_to(interval: Interval, unit: float) -> str:
    return f"80 %: {interval.low / unit:.3g} to {interval.high / unit:.3g}"


def _signed(value: float) -> str:
    """Three digits with a true sign; what rounds to nothing has none."""
    size = amount(abs(value)) if abs(value) >= _NOTHING else "0"
    return size if size == "0" else f"{'−' if value < 0 else '+'}{size}"
