"""The report of a plan: the cluster to choose, the alternatives, the value of more time or money, and pilot sweeps."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from autotuner.core.amounts import written_amount
from autotuner.core.workload import Workload
from autotuner.report.caveats import caveats_in_words
from autotuner.report.charts import Axis, Dot, Dots, Line, Plot, Rule, Unit, stairs
from autotuner.report.report import (
    Cells,
    Chip,
    Column,
    Figure,
    Lines,
    Moment,
    Quantity,
    Report,
    Section,
    Table,
    predicted,
)
from autotuner.report.scale import Scale
from autotuner.report.words import counted, in_sentences, money, number, percent
from autotuner.search.planning.next_steps import PilotSweep, Upgrade, UpgradeKind
from autotuner.search.planning.offers import RECALLED, Price
from autotuner.search.planning.outcomes import Interval
from autotuner.search.planning.plan import Candidate, Plan, PlanRun
from autotuner.search.planning.request import ChangePrices, Failures, Goal, PlanRequest

_S_PER_HOUR, _S_PER_DAY = 3600.0, 86_400.0

MOST_ROWS = 12
"""Number of clusters in the table; clusters on the Pareto front are always shown."""

_UNLIKELY = 0.05
"""Chance below which an outcome is called unlikely."""


def plan_report(run: PlanRun, limit: int = MOST_ROWS) -> Report:
    """Return the report of a computed plan (a comparison of clusters for one training run), the answer first.

    Args:
        run: The request and its computed result.
        limit: Number of clusters to show, the best first; clusters on the Pareto front are always shown.
    """
    plan = run.result
    assert plan is not None, "it is computed"
    first = plan.candidates[0]
    changes = f"Changes of {first.cluster}, each with the best layout that it allows."
    return Report(
        headline=f"{advice_in_words(first.cluster, first.chance_best)}.",
        facts=() if run.finished_at is None else ("Computed", Moment(run.finished_at)),
        sections=(
            Section(blocks=(tuple(_figures(first)), Lines(items=tuple(_answer(run.request, plan))))),
            *_front(plan.candidates, run.request.goal),
            Section(
                title="Clusters",
                note=f"{plan.num_compared} clusters compared; the cluster with the smallest expected loss is first.",
                blocks=(_candidates(plan, limit, has_limits=bool(_limits(run.request.goal))), _notes(plan, limit)),
            ),
            Section(title="Effects of more hardware", note=changes, blocks=(_upgrades(plan.upgrades),)),
            _pilots(plan.pilot_sweeps),
            Section(
                title="Prices and assumptions",
                blocks=(_prices(plan.prices), Lines(items=tuple(_assumed(run.request, plan)))),
            ),
        ),
    )


# ------------------------------------------------------------------ the answer
def _spread(one: Interval, unit: Unit, scale: float = 1.0) -> Quantity:
    return Quantity(value=one.median * scale, unit=unit, low=one.low * scale, high=one.high * scale, source="predicted")


def _figures(first: Candidate) -> Iterator[Figure]:
    run = first.predicted
    yield Figure("time, predicted", _spread(run.time_s, "days"), is_first=True)
    yield Figure("cost", _spread(run.cost, "money"))
    if run.energy_kwh:
        yield Figure("energy", predicted(run.energy_kwh.median / 1e3, "MWh"))
    yield Figure("MFU", predicted(run.mfu, "share"))


def _answer(request: PlanRequest, plan: Plan) -> Iterator[Cells]:
    """Yield the lines of the answer: the run, its layout, and the certainty of the choice."""
    first = plan.candidates[0]
    yield f"The run: {workload_in_words(request.goal, request.workload)}."
    yield ("Its layout:", first.layout)
    if limits := _limits(request.goal):
        likeliest = max(one.chance_kept for one in plan.candidates)
        but = "; no compared cluster is likely to meet it" if likeliest < _UNLIKELY else ""
        yield f"The chance to meet {limits} is {percent(first.chance_kept)}{but}."
    if len(plan.candidates) > 1:
        yield (
            f"The chance that it is the best choice is {percent(first.chance_best)}. If all times were known in "
            f"advance, the best choice would save {money(plan.regret)} on average."
        )


_CLEAR = 0.5
"""Chance to be the best choice from which a cluster is recommended without reservation."""


def advice_in_words(cluster: str, chance_best: float) -> str:
    """Return the advice of a plan: ``Take h100-sxm:64``, or ``No clear choice: h100-sxm:64 leads``.

    Args:
        cluster: Name of the best cluster.
        chance_best: Probability that it is the best choice, 0 to 1; from 0.5 on the choice is clear.
    """
    return f"Take {cluster}" if chance_best >= _CLEAR else f"No clear choice: {cluster} is slightly ahead"


def workload_in_words(goal: Goal, workload: Workload) -> str:
    """Describe how much is trained: ``2T tokens in steps of 1,024 sequences of 8,192 tokens``.

    Args:
        goal: Goal of the training run, with its number of tokens.
        workload: Batch size and sequence length of a step.
    """
    steps = f"steps of {workload.global_batch_size:,} sequences of {workload.seq_len:,} tokens"
    return f"{written_amount(goal.num_tokens)} tokens in {steps}"


def worth_in_words(dollars: float) -> str:
    """Describe the highest price per accelerator-hour that is worth paying for a change of a cluster: ``up to $0.26``.

    The price comes on top of the price of the cluster.
    """
    return f"up to ${dollars:.2f}" if dollars >= 0.005 else "nothing"


def _limits(goal: Goal) -> str:
    limits = [f"the deadline of {_deadline(goal.deadline_s)}"] if goal.deadline_s else []
    limits += [f"the price limit of {money(goal.price_limit)}"] if goal.price_limit else []
    return " and ".join(limits)


def _deadline(seconds: float) -> str:
    return f"{seconds / _S_PER_DAY:.3g} days" if seconds >= 2 * _S_PER_DAY else f"{seconds / _S_PER_HOUR:.3g} h"


# ------------------------------------------------------------------ clusters beside each other
_STEPS = (1, 2, 5)
"""Factors of the round values in each power of ten."""


def _front(candidates: Sequence[Candidate], goal: Goal) -> Iterator[Section]:
    """Yield a chart of time against cost with logarithmic axes; nothing if fewer than two clusters have a price."""
    priced = [one for one in candidates if one.predicted.cost.median > 0]
    if len(priced) < 2:
        return
    note = (
        "The stepped line is the Pareto front: no other cluster is both faster and cheaper. Lines are 80 % intervals; "
        "time and cost are wrong by the same factor. Green: the recommended cluster."
    )
    yield Section(title="Time against cost", note=note, blocks=(front_of(priced, goal),), id="front")


def front_of(candidates: Sequence[Candidate], goal: Goal) -> Plot:
    """Return the chart of clusters by time and cost, with the Pareto front.

    Args:
        candidates: The clusters, the best choice first. All values are predicted, so they are drawn as rings.
        goal: Deadline and price limit, which are drawn as lines.
    """
    first = candidates[0]
    cost, time_s = first.predicted.cost, first.predicted.time_s
    times = [*(one.predicted.time_s.median for one in candidates), time_s.low, time_s.high]
    costs = [*(one.predicted.cost.median for one in candidates), cost.low, cost.high]
    x = Axis.around(times, "time, predicted", unit="days", margin=0.12, log=True)
    y = Axis.around(costs, "cost, predicted", unit="money", margin=0.12, log=True)
    front = sorted((one for one in candidates if one.is_on_front), key=lambda one: one.predicted.time_s.median)
    named = [first, *(one for one in front if one is not first)]
    at = {id(one): (one.predicted.time_s.median, one.predicted.cost.median) for one in candidates}
    return Plot(
        says=f"Time against cost of {len(candidates)} clusters, predicted. {first.cluster}: {_said(first)}.",
        x=x,
        y=replace(y, labels=tuple(_round_dollars(y.low, y.high))),
        marks=(
            *([Rule(at=goal.deadline_s, along="x", label="deadline")] if goal.deadline_s else []),
            *([Rule(at=goal.price_limit, along="y", label="price limit")] if goal.price_limit else []),
            *(Line(points=list(_stroke(one)), look="soft") for one in named),
            Line(points=stairs([at[id(one)] for one in front]), look="predicted"),
            Dots(dots=[_dot(one, is_first=one is first, is_named=one in named) for one in reversed(candidates)]),
        ),
        height=400,
        wide=896,
    )


def _dot(one: Candidate, *, is_first: bool, is_named: bool) -> Dot:
    return Dot(
        x=one.predicted.time_s.median,
        y=one.predicted.cost.median,
        said=f"{one.cluster}: {_said(one)}",
        name=one.cluster if is_named else "",
        look="best_predicted" if is_first else "predicted",
    )


def _stroke(one: Candidate) -> Iterator[tuple[float, float]]:
    """Yield both ends of the 80 % interval of a cluster's time and cost."""
    time_s, cost = one.predicted.time_s, one.predicted.cost
    factor = time_s.high / time_s.median
    yield time_s.median / factor, cost.median / factor
    yield time_s.median * factor, cost.median * factor


def _said(one: Candidate) -> str:
    time_s, cost = one.predicted.time_s, one.predicted.cost
    return f"{number(time_s.median, 'days')}, {money(cost.median)}, ± {percent(time_s.high / time_s.median - 1)}"


def _round_dollars(low: float, high: float) -> Iterator[tuple[float, str]]:
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    values = (step * 10.0**power for power in powers for step in _STEPS)
    yield from ((value, money(value)) for value in values if low <= value <= high)


def _candidates(plan: Plan, limit: int, *, has_limits: bool) -> Table:
    """Return a table of the first ``limit`` clusters by expected loss, and of all clusters on the Pareto front."""
    shown = (one for place, one in enumerate(plan.candidates) if place < limit or one.is_on_front)
    keeps = [Column("keeps limits")] if has_limits else []
    days = Scale(factor=_S_PER_DAY, unit="days", decimals=2)
    return Table(
        columns=(
            Column("cluster", is_number=False),
            Column("layout", is_number=False, may_wrap=True, is_long=True),
            Column("takes", scale=days),
            *map(Column, ("cost", "energy", "MFU", "goodput")),
            *keeps,
            *map(Column, ("is best", "per hour each")),
        ),
        rows=[_cells_of(one, has_limits=has_limits) for one in shown],
        is_compact=True,
    )


def _cells_of(one: Candidate, *, has_limits: bool) -> tuple[Cells, ...]:
    run = one.predicted
    marks = (one.is_on_front, "front"), (one.is_hypothetical, "hypothetical"), (not one.is_thorough, "thin space")
    return (
        (one.cluster, *(Chip(word) for holds, word in marks if holds)),
        one.layout,
        _spread(run.time_s, "days"),
        predicted(run.cost.median, "money"),
        predicted(run.energy_kwh.median / 1e3 if run.energy_kwh else None, "MWh"),
        predicted(run.mfu, "share"),
        predicted(run.goodput, "share"),
        *([predicted(one.chance_kept, "chance")] if has_limits else []),
        predicted(one.chance_best, "chance"),
        Quantity(value=one.price_per_accelerator_hour, unit="$"),
    )


def _notes(plan: Plan, limit: int) -> Lines:
    notes = [
        "Front: no other cluster is both faster and cheaper. ± is the 80 % interval; cost and energy have the same "
        "interval as the time. Is best: probability that the cluster is the best choice."
    ]
    if any(not one.is_thorough for one in plan.candidates):
        notes.append(
            "Thin space: only a part of the layouts of this cluster was predicted, because other clusters are "
            "clearly better."
        )
    hidden = sum(not one.is_on_front for one in plan.candidates[limit:])
    unfit = plan.num_compared - len(plan.candidates)
    said = [f"{hidden} more clusters are slower or more expensive and are not shown"] if hidden else []
    said += [f"on {unfit} of {plan.num_compared} clusters no layout fits"] if unfit else []
    return Lines(items=(*notes, *([f"{'; '.join(said)}."] if said else [])), is_quiet=True)


# ------------------------------------------------------------------ effects of more time or money
_UPGRADE = (
    Column("change", is_number=False),
    *map(Column, ("time\nsaved", "costs\nmore", "MFU,\npoints", "points per\n$1,000/h", "time per\n$1,000")),
    Column("worth per\naccelerator\nand hour"),
)

_NOTHING = 0.005
"""Hours, dollars or points below which a difference is only a rounding error."""


def _upgrades(upgrades: Sequence[Upgrade]) -> Table:
    return Table(columns=_UPGRADE, rows=[_cells_of_upgrade(one) for one in upgrades], is_compact=True)


def _upgrade(one: Upgrade) -> str:
    match one.change:
        case UpgradeKind.MORE_NODES:
            return counted(one.num_nodes or 1, "more node")
        case UpgradeKind.TWICE_THE_NETWORK:
            return "twice the network"
        case UpgradeKind.MORE_MEMORY:
            return "40 GB more memory"


def _cells_of_upgrade(one: Upgrade) -> tuple[Cells, ...]:
    if one.predicted is None:
        return (_upgrade(one), "no layout uses it", *[""] * 5)
    per_dollar, hours, worth = one.mfu_per_dollar, one.hours_per_dollar, one.worth_per_accelerator_hour
    return (
        _upgrade(one),
        predicted(_cleared(one.saved_s / _S_PER_HOUR), "h"),
        predicted(_cleared(-one.saved_cost), "money"),
        predicted(_cleared(100 * one.mfu), "points"),
        predicted(None if per_dollar is None else _cleared(1e5 * per_dollar), "points"),
        predicted(None if hours is None else _cleared(1000 * hours), "h"),
        "" if worth is None else worth_in_words(worth),
    )


def _cleared(value: float) -> float:
    return value if abs(value) >= _NOTHING else 0.0


_PILOT = (
    Column("stage"),
    Column("sweep", is_number=False, may_wrap=True),
    Column("stands for", is_number=False),
    *map(Column, ("takes", "costs", "choice\nbetter by")),
    Column("time then\nwithin", is_number=False),
)


def _pilots(pilots: Sequence[PilotSweep]) -> Section:
    """Return a section on the small pilot sweeps to run first, or on why none is worth it."""
    note = "Small sweeps that improve the choice by more than they cost. Each is valued after the sweeps before it."
    none = "No small sweep is worth its cost, because its result would hardly change the choice."
    table = Table(
        columns=_PILOT,
        rows=[(f"{stage}", *_cells_of_pilot(one)) for stage, one in enumerate(pilots, 1)],
        is_compact=True,
    )
    blocks = (table,) if pilots else (Lines(items=(none,)),)
    return Section(title="Sweeps to run first", note=note if pilots else "", blocks=blocks)


def _cells_of_pilot(one: PilotSweep) -> tuple[Cells, ...]:
    return (
        f"{one.num_trials} trials on {one.num_accelerators} {one.accelerator} ({counted(one.num_nodes, 'node')})",
        one.target,
        predicted(one.hours, "h"),
        predicted(one.cost, "money"),
        predicted(one.saved, "money"),
        f"± {percent(one.error_after)}",
    )


# ------------------------------------------------------------------ basis of the plan
_PRICE = (
    Column("accelerator", is_number=False),
    Column("per hour"),
    Column("at most"),
    Column("price from", is_number=False, may_wrap=True),
)


def _prices(prices: Sequence[Price]) -> Table:
    return Table(columns=_PRICE, rows=[_cells_of_price(one) for one in prices])


def _cells_of_price(one: Price) -> tuple[Cells, ...]:
    source = f"{one.source}, {one.date}" if one.source else "yours"
    watts = Quantity(value=one.power_w, unit="W")
    return (one.accelerator, Quantity(value=one.per_hour, unit="$"), watts, source)


def _assumed(request: PlanRequest, plan: Plan) -> Iterator[str]:
    if any(RECALLED in one.source for one in plan.prices):
        yield f"A price that is marked '{RECALLED}' may be different today. Give your own prices."
    yield f"Assumed: {_interruptions(request.failures)}. {_changes(request.change_prices)}."
    yield from (in_sentences([caveat]) for caveat in caveats_in_words(plan.caveats))


def _interruptions(failures: Failures) -> str:
    return (
        f"the run is interrupted every {failures.hours_between:,.0f} accelerator-hours and loses "
        f"{failures.lost_s / 60:.1f} minutes each time, within a factor of {failures.spread:g} (Llama 3 405B, "
        "arXiv 2407.21783)"
    )


def _changes(prices: ChangePrices) -> str:
    return (
        f"Twice the network costs {100 * prices.network_share:.0f} % more; 40 GB more memory costs "
        f"${40 * prices.memory_per_gb_hour:.2f} an hour"
    )
