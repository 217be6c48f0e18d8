"""A plan as people read it: the cluster to take, those beside it, what more would buy, what to try first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from autotuner.cli.console import plain_table
from autotuner.cli.views.layout_table import LayoutRow, LayoutTable
from autotuner.core import documents
from autotuner.core.workload import Workload
from autotuner.search.planning.clusters import RECALLED
from autotuner.search.planning.request import Goal
from autotuner.search.planning.words import advice_in_words, amount, money, workload_in_words, worth_in_words
from autotuner.search.text.sentences import in_sentences, percent

Document = Mapping[str, Any]

_S_PER_HOUR, _S_PER_DAY = 3600.0, 86_400.0

_UNLIKELY = 0.05
"""A chance that is called so."""


def plan_view(plan: Document, *, limit: int) -> RenderableType:
    """All of it, the answer first."""
    answer = plan["answer"]
    parts: list[RenderableType] = [Text(line) for line in _answer(plan)]
    parts += [Text(), _contenders(answer["contenders"], limit), *map(Text, _notes(answer, limit))]
    parts += [Text(), Text("What more would buy"), _marginals(answer["marginals"])]
    parts += [Text(), *_proofs(answer)]
    parts += [Text(), Text("Prices"), _prices(answer["prices"])]
    parts += [Text(line) for line in _assumed(plan)]
    return Group(*parts)


def _answer(plan: Document) -> Iterator[str]:
    """Return the advice: the cluster to take, how sure the choice is, and for which run."""
    first = plan["answer"]["contenders"][0]
    run = first["predicted"]
    advice = advice_in_words(first["cluster"], first["chance_best"])
    yield (
        f"{advice}. It takes {_days(run['time_s'])}, {_dollars(run['cost'])}"
        + (f" and {_energy(run['energy_kwh'])}" if run["energy_kwh"] else "")
        + f", at {100 * run['mfu']:.1f} % MFU with {first['label']}."
    )
    goal, workload = documents.restore(Goal, plan["goal"]), documents.restore(Workload, plan["workload"])
    yield f"The run: {workload_in_words(goal, workload)} (--tokens, --global-batch, --seq-len)."
    if wanted := _wanted(plan["goal"]):
        yield f"The chance to meet {wanted} is {percent(first['chance_kept'])}{_but(plan['answer'])}."
    if len(plan["answer"]["contenders"]) == 1:
        return
    yield (
        f"The chance that it is the best choice is {percent(first['chance_best'])}. If all times were known before, "
        f"the best choice would save {money(plan['answer']['regret'])} on average."
    )


def _but(answer: Document) -> str:
    """That nothing else does, where nothing that was compared is likely to."""
    likeliest = max(one["chance_kept"] for one in answer["contenders"])
    return "; no cluster that was compared is likely to" if likeliest < _UNLIKELY else ""


def _wanted(goal: Document) -> str:
    limits = [f"the deadline of {_deadline(goal['deadline_s'])}"] if goal["deadline_s"] else []
    limits += [f"the price limit of {money(goal['price_limit'])}"] if goal["price_limit"] else []
    return " and ".join(limits)


def _deadline(seconds: float) -> str:
    return f"{seconds / _S_PER_DAY:.3g} days" if seconds >= 2 * _S_PER_DAY else f"{seconds / _S_PER_HOUR:.3g} h"


def _contenders(contenders: Sequence[Document], limit: int) -> RenderableType:
    """The front, and beside it what comes next by expected loss, up to so many rows."""
    shown = [one for place, one in enumerate(contenders) if place < limit or one["is_on_front"]]
    heads = ("$/h", "days", "cost", "MWh", "x/÷", "MFU", "goodput", "keeps", "best")
    return LayoutTable(keys=("", "cluster"), heads=heads, rows=[_row(one) for one in shown])


def _row(one: Document) -> LayoutRow:
    run = one["predicted"]
    mark = ("*" if one["is_on_front"] else "") + ("~" if not one["is_thorough"] else "")
    cells = (
        f"{one['price_per_accelerator_hour']:.2f}",
        amount(run["time_s"]["median"] / _S_PER_DAY),
        money(run["cost"]["median"]),
        amount(run["energy_kwh"]["median"] / 1e3) if run["energy_kwh"] else "",
        f"{run['time_s']['high'] / run['time_s']['median']:.2f}",
        f"{100 * run['mfu']:.1f} %",
        f"{100 * run['goodput']:.1f} %",
        f"{100 * one['chance_kept']:.0f} %",
        f"{100 * one['chance_best']:.0f} %",
    )
    remarks = ("hypothetical",) if one["is_hypothetical"] else ()
    return LayoutRow(keys=(mark, one["cluster"]), layout=one["label"], remarks=remarks, cells=cells)


def _notes(answer: Document, limit: int) -> Iterator[str]:
    contenders = answer["contenders"]
    yield (
        "* No other cluster is both faster and cheaper. x/÷ is the 80 % interval of days, cost and MWh: from the "
        "figure divided by it to the figure times it. Keeps: the chance to keep the limits. Best: the chance to be "
        "the best choice."
    )
    if any(not one["is_thorough"] for one in contenders):
        yield "~ Not all of its layouts were predicted."
    hidden = sum(not one["is_on_front"] for one in contenders[limit:])
    unfit = answer["num_compared"] - len(contenders)
    said = [f"{hidden} more clusters are not shown (--limit)"] if hidden else []
    said += [f"on {unfit} of {answer['num_compared']} clusters no layout fits"] if unfit else []
    if said:
        yield f"{'; '.join(said)}."


def _marginals(marginals: Sequence[Document]) -> RenderableType:
    table = plain_table(
        "change",
        "hours\nsaved",
        "costs\nmore",
        "MFU,\npoints",
        "points per\n$1,000/h",
        "hours per\n$1,000",
        "worth per\naccelerator\nand hour",
    )
    for one in marginals:
        if one["predicted"] is None:
            table.add_row(one["change"], "no layout uses it", *[""] * 5)
            continue
        per_dollar, hours, worth = one["mfu_per_dollar"], one["hours_per_dollar"], one["worth_per_accelerator_hour"]
        table.add_row(
            one["change"],
            f"{one['saved_s'] / _S_PER_HOUR:,.1f}",
            money(-one["saved_cost"]),
            f"{100 * one['mfu']:+.2f}",
            "" if per_dollar is None else f"{1e5 * per_dollar:+.3g}",
            "" if hours is None else amount(1000 * hours),
            "" if worth is None else worth_in_words(worth),
        )
    return table


def _proofs(answer: Document) -> Iterator[RenderableType]:
    """The stages, or why there are none."""
    if not answer["proofs"]:
        yield Text("No small sweep is worth its cost: whatever it said, the choice would hardly change.")
        return
    yield Text("What to try first, in this order")
    table = plain_table("", "sweep", "for", "takes", "costs", "better\nby", "then\nwithin")
    table.columns[1].no_wrap = False
    for stage, one in enumerate(answer["proofs"], 1):
        nodes = f"{one['num_nodes']} node{'s' if one['num_nodes'] > 1 else ''}"
        table.add_row(
            f"{stage}",
            f"{one['num_trials']} trials on {one['num_accelerators']} {one['accelerator']} ({nodes})",
            one["target"],
            f"{one['hours']:.1f} h",
            money(one["cost"]),
            money(one["saved"]),
            f"x/÷ {1 + one['error_after']:.2f}",
        )
    yield table
    yield Text(
        "Better by: how much better the choice is expected to be. Then within: the 80 % interval of the time then."
    )


def _prices(prices: Sequence[Document]) -> RenderableType:
    table = plain_table("accelerator", "$/h", "W", "source")
    for one in prices:
        source = f"{one['source']}, {one['date']}" if one["source"] else "yours"
        table.add_row(one["accelerator"], f"{one['per_hour']:.2f}", f"{one['power_w']:.0f}", source)
    return table


def _assumed(plan: Document) -> Iterator[str]:
    if any(RECALLED in one["source"] for one in plan["answer"]["prices"]):
        yield f"A price that is '{RECALLED}' may differ today. Give yours with --price."
    failures, changes = plan["failures"], plan["change_prices"]
    yield (
        f"Assumed: the run is interrupted every {failures['hours_between']:,.0f} accelerator-hours and loses "
        f"{failures['lost_s'] / 60:.1f} minutes each time, within a factor of {failures['spread']:g} (Llama 3 405B, "
        f"arXiv 2407.21783). Twice the network costs {100 * changes['network_share']:.0f} % more; 40 GB more memory "
        f"costs ${40 * changes['memory_per_gb_hour']:.2f} an hour."
    )
    yield from (in_sentences([caveat]) for caveat in plan["answer"]["caveats"])


def _days(interval: Document) -> str:
    low, median, high = (interval[name] / _S_PER_DAY for name in ("low", "median", "high"))
    return f"{median:.3g} days ({low:.3g} to {high:.3g})"


def _energy(interval: Document) -> str:
    return f"{amount(interval['median'] / 1e3)} MWh"


def _dollars(interval: Document) -> str:
    return f"{money(interval['median'])} ({money(interval['low'])} to {money(interval['high'])})"
