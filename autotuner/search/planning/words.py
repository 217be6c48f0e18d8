"""Figures of plans as people read them: money, days, intervals."""

from __future__ import annotations

from autotuner.core.units import format_count
from autotuner.core.workload import Workload
from autotuner.search.planning.amounts import written_amount
from autotuner.search.planning.goal import Goal

_S_PER_DAY = 86_400.0

_CLEAR = 0.5
"""A cluster with a lower chance to be the best choice is likelier not to be it."""


def advice_in_words(cluster: str, chance_best: float) -> str:
    """Return what to take, as sure as that is: ``Take h100-sxm:64``, or that the cluster only leads."""
    return f"Take {cluster}" if chance_best >= _CLEAR else f"No clear choice: {cluster} leads"


def workload_in_words(goal: Goal, workload: Workload) -> str:
    """Return how much is trained: ``2T tokens in steps of 1,024 sequences of 8,192 tokens``."""
    steps = f"steps of {workload.global_batch_size:,} sequences of {workload.seq_len:,} tokens"
    return f"{written_amount(goal.num_tokens)} tokens in {steps}"


def amount(value: float) -> str:
    """Three digits, all of them before the point where there are more: ``22.6``, ``41,800``."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def money(dollars: float) -> str:
    """Dollars with three digits: ``$3.86M``, ``−$410k``."""
    sign = "−" if dollars < 0 else ""
    size = abs(dollars)
    return f"{sign}${size:,.0f}" if size < 1000 else f"{sign}${format_count(size)}"


def days(seconds: float) -> str:
    """Days with three digits: ``22.6 days``."""
    return f"{seconds / _S_PER_DAY:.3g} days"


def within(low: float, high: float) -> str:
    """The 80 % interval by its factor, of ends that lie as many times below and above the median: ``x/÷ 1.27``."""
    return f"x/÷ {(high / low) ** 0.5:.2f}"


def goal_in_words(goal: Goal) -> str:
    """The limits: ``the deadline of 60 days and the price limit of $3M``; empty where there are none."""
    limits = [f"the deadline of {days(goal.deadline_s)}"] if goal.deadline_s else []
    limits += [f"the price limit of {money(goal.price_limit)}"] if goal.price_limit else []
    return " and ".join(limits)


def worth_in_words(dollars: float) -> str:
    """What an accelerator-hour may cost more: ``up to $0.26``, ``nothing``."""
    return f"up to ${dollars:.2f}" if dollars >= 0.005 else "nothing"
