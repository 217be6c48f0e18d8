"""The report of a plan: the cluster to take, those beside it, what more would buy, what to try first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from autotuner.report.report import Cells, Column, Lines, Quiet, Report, Section, Table
from autotuner.search.planning.clusters import RECALLED, Price
from autotuner.search.planning.layouts import Interval
from autotuner.search.planning.next_steps import PilotSweep, Upgrade
from autotuner.search.planning.plan import Candidate, Plan, PlanView
from autotuner.search.planning.request import ChangePrices, Failures, Goal
from autotuner.search.planning.words import advice_in_words, amount, money, workload_in_words, worth_in_words
from autotuner.search.text.sentences import in_sentences, percent

_S_PER_HOUR, _S_PER_DAY = 3600.0, 86_400.0

_UNLIKELY = 0.05
"""A chance that is called so."""


def plan_report(view: PlanView, plan: Plan, limit: int) -> Report:
    """All that a computed plan says, the answer first.

    Args:
        view: What was asked.
        plan: The answer.
        limit: Clusters to show, the best first; those on the front are always shown.
    """
    first = plan.contenders[0]
    return Report(
        headline=f"{advice_in_words(first.cluster, first.chance_best)}.",
        sections=(
            Section(blocks=(Lines(items=tuple(_answer(view, plan))),)),
            Section(blocks=(_candidates(plan, limit), Lines(items=tuple(_notes(plan, limit))))),
            Section(title="What more would buy", blocks=(_upgrades(plan.marginals),)),
            _pilots(plan.proofs),
            Section(title="Prices", blocks=(_prices(plan.prices), Lines(items=tuple(_assumed(view, plan))))),
        ),
    )


# ------------------------------------------------------------------ the answer
def _answer(view: PlanView, plan: Plan) -> Iterator[str]:
    """What the first takes, how sure the choice is, and for which run."""
    first = plan.contenders[0]
    run = first.predicted
    energy = f" and {_megawatt_hours(run.energy_kwh)} MWh" if run.energy_kwh else ""
    mfu = f"at {100 * run.mfu:.1f} % MFU with {first.label}"
    yield f"It takes {_days(run.time_s)}, {_dollars(run.cost)}{energy}, {mfu}."
    yield f"The run: {workload_in_words(view.goal, view.workload)} (--tokens, --global-batch, --seq-len)."
    if limits := _limits(view.goal):
        likeliest = max(one.chance_kept for one in plan.contenders)
        but = "; no cluster that was compared is likely to" if likeliest < _UNLIKELY else ""
        yield f"The chance to meet {limits} is {percent(first.chance_kept)}{but}."
    if len(plan.contenders) > 1:
        yield (
            f"The chance that it is the best choice is {percent(first.chance_best)}. If all times were known before, "
            f"the best choice would save {money(plan.regret)} on average."
        )


def _limits(goal: Goal) -> str:
    limits = [f"the deadline of {_deadline(goal.deadline_s)}"] if goal.deadline_s else []
    limits += [f"the price limit of {money(goal.price_limit)}"] if goal.price_limit else []
    return " and ".join(limits)


def _deadline(seconds: float) -> str:
    return f"{seconds / _S_PER_DAY:.3g} days" if seconds >= 2 * _S_PER_DAY else f"{seconds / _S_PER_HOUR:.3g} h"


def _days(time_s: Interval) -> str:
    low, median, high = (one / _S_PER_DAY for one in (time_s.low, time_s.median, time_s.high))
    return f"{median:.3g} days ({low:.3g} to {high:.3g})"


def _dollars(cost: Interval) -> str:
    return f"{money(cost.median)} ({money(cost.low)} to {money(cost.high)})"


def _megawatt_hours(energy_kwh: Interval) -> str:
    return amount(energy_kwh.median / 1e3)


# ------------------------------------------------------------------ clusters beside each other
_CANDIDATE = (
    Column(""),
    Column("cluster", is_number=False),
    Column("layout", is_number=False, may_wrap=True),
    *map(Column, ("$/h", "days", "cost", "MWh", "x/÷", "MFU", "goodput", "keeps", "best")),
)


def _candidates(plan: Plan, limit: int) -> Table:
    """The front, and beside it what comes next by expected loss, up to so many rows."""
    shown = (one for place, one in enumerate(plan.contenders) if place < limit or one.is_on_front)
    return Table(columns=_CANDIDATE, rows=[_cells_of(one) for one in shown])


def _cells_of(one: Candidate) -> tuple[Cells, ...]:
    run = one.predicted
    return (
        ("*" if one.is_on_front else "") + ("" if one.is_thorough else "~"),
        one.cluster,
        (one.layout, Quiet("hypothetical")) if one.is_hypothetical else one.layout,
        f"{one.price_per_accelerator_hour:.2f}",
        amount(run.time_s.median / _S_PER_DAY),
        money(run.cost.median),
        _megawatt_hours(run.energy_kwh) if run.energy_kwh else "",
        f"{run.time_s.high / run.time_s.median:.2f}",
        f"{100 * run.mfu:.1f} %",
        f"{100 * run.goodput:.1f} %",
        f"{100 * one.chance_kept:.0f} %",
        f"{100 * one.chance_best:.0f} %",
    )


def _notes(plan: Plan, limit: int) -> Iterator[str]:
    yield (
        "* No other cluster is both faster and cheaper. x/÷ is the 80 % interval of days, cost and MWh: from the "
        "figure divided by it to the figure times it. Keeps: the chance to keep the limits. Best: the chance to be "
        "the best choice."
    )
    if any(not one.is_thorough for one in plan.contenders):
        yield "~ Not all of its layouts were predicted."
    hidden = sum(not one.is_on_front for one in plan.contenders[limit:])
    unfit = plan.num_compared - len(plan.contenders)
    said = [f"{hidden} more clusters are not shown (--limit)"] if hidden else []
    said += [f"on {unfit} of {plan.num_compared} clusters no layout fits"] if unfit else []
    if said:
        yield f"{'; '.join(said)}."


# ------------------------------------------------------------------ what else money buys
_UPGRADE = (
    Column("change", is_number=False),
    *map(Column, ("hours\nsaved", "costs\nmore", "MFU,\npoints", "points per\n$1,000/h", "hours per\n$1,000")),
    Column("worth per\naccelerator\nand hour"),
)


def _upgrades(upgrades: Sequence[Upgrade]) -> Table:
    return Table(columns=_UPGRADE, rows=[_cells_of_upgrade(one) for one in upgrades])


def _cells_of_upgrade(one: Upgrade) -> tuple[str, ...]:
    if one.predicted is None:
        return (one.change, "no layout uses it", *[""] * 5)
    worth = one.worth_per_accelerator_hour
    return (
        one.change,
        f"{one.saved_s / _S_PER_HOUR:,.1f}",
        money(-one.saved_cost),
        f"{100 * one.mfu:+.2f}",
        "" if one.mfu_per_dollar is None else f"{1e5 * one.mfu_per_dollar:+.3g}",
        "" if one.hours_per_dollar is None else amount(1000 * one.hours_per_dollar),
        "" if worth is None else worth_in_words(worth),
    )


_PILOT = (
    Column(""),
    Column("sweep", is_number=False, may_wrap=True),
    Column("for", is_number=False),
    *map(Column, ("takes", "costs", "better\nby", "then\nwithin")),
)


def _pilots(pilots: Sequence[PilotSweep]) -> Section:
    """The small sweeps to run first, or why there are none."""
    if not pilots:
        none = "No small sweep is worth its cost: whatever it said, the choice would hardly change."
        return Section(blocks=(Lines(items=(none,)),))
    meaning = (
        "Better by: how much better the choice is expected to be. Then within: the 80 % interval of the time then."
    )
    table = Table(columns=_PILOT, rows=[(f"{stage}", *_cells_of_pilot(one)) for stage, one in enumerate(pilots, 1)])
    return Section(title="What to try first, in this order", blocks=(table, Lines(items=(meaning,))))


def _cells_of_pilot(one: PilotSweep) -> tuple[str, ...]:
    nodes = f"{one.num_nodes} node{'s' if one.num_nodes > 1 else ''}"
    return (
        f"{one.num_trials} trials on {one.num_accelerators} {one.accelerator} ({nodes})",
        one.target,
        f"{one.hours:.1f} h",
        money(one.cost),
        money(one.saved),
        f"x/÷ {1 + one.error_after:.2f}",
    )


# ------------------------------------------------------------------ what it rests on
_PRICE = (
    Column("accelerator", is_number=False),
    Column("$/h"),
    Column("W"),
    Column("source", is_number=False, may_wrap=True),
)


def _prices(prices: Sequence[Price]) -> Table:
    return Table(columns=_PRICE, rows=[_cells_of_price(one) for one in prices])


def _cells_of_price(one: Price) -> tuple[str, ...]:
    source = f"{one.source}, {one.date}" if one.source else "yours"
    return (one.accelerator, f"{one.per_hour:.2f}", f"{one.power_w:.0f}", source)


def _assumed(view: PlanView, plan: Plan) -> Iterator[str]:
    if any(RECALLED in one.source for one in plan.prices):
        yield f"A price that is '{RECALLED}' may differ today. Give yours with --price."
    yield f"Assumed: {_interruptions(view.failures)}. {_changes(view.change_prices)}."
    yield from (in_sentences([caveat]) for caveat in plan.caveats)


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
