"""A plan as its page shows it, and the question that the page's address asks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Self

from markupsafe import Markup

from api.dashboard.charts.plan_front import plan_front
from api.dashboard.views.address import whole_number
from autotuner.catalog.hardware import load_accelerator
from autotuner.core.errors import AutotunerError, InvalidInput, NotFound, quoted
from autotuner.core.layout import Layout
from autotuner.core.workload import Workload
from autotuner.search.planning.layouts import Interval
from autotuner.search.planning.next_steps import PilotSweep, Upgrade
from autotuner.search.planning.plan import Candidate, PlanView
from autotuner.search.planning.request import USUAL_GLOBAL_BATCH, USUAL_SEQ_LEN, Goal, PlanRequest
from autotuner.search.planning.words import (
    advice_in_words,
    amount,
    days,
    goal_in_words,
    money,
    read_amount,
    read_duration_s,
    read_listed,
    read_numbers,
    read_prices,
    within,
    workload_in_words,
    worth_in_words,
)

# A plan as its page shows it: figures of the cluster to take, rows of the others, changes, stages, prices.

_S_PER_DAY, _S_PER_HOUR = 86_400.0, 3600.0
_BESIDE_FORM = 896
"""Pixels of a picture beside the form."""

_NOTHING = 0.005
"""Of hours, points and shares of them, less than this is what a sum's order makes of nothing."""

_MOST_ROWS = 12
"""Clusters that the table shows beside those on the front."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterRow:
    """A cluster in the table."""

    cluster: str
    marks: tuple[str, ...]
    """What it is beside its name: the one to take, on the front, hypothetical."""
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
    """Everything that the page says of a plan that is computed."""

    view: PlanView
    first: Candidate
    time: str
    time_spread: str
    cost: str
    cost_spread: str
    energy: str
    sentence: str
    """What to take, in a sentence without a full stop."""
    workload: str
    """How much is trained, and in which steps."""
    limits: str
    """What is to be kept; empty where there are no limits."""
    regret: str
    rows: tuple[ClusterRow, ...]
    has_thin: bool
    """Of some clusters' layouts only a part was looked through."""
    hidden: int
    """Clusters that the table leaves out."""
    unfit: int
    """Clusters on which no layout fits."""
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


# What the inputs of ``/plan`` say, as the body of a plan, and what is wrong with each of them.

USUAL: Mapping[str, str] = {
    "model": "llama-3-70b",
    "tokens": "2T",
    "deadline": "60d",
    "price_limit": "",
    "seq_len": str(USUAL_SEQ_LEN),
    "global_batch_size": str(USUAL_GLOBAL_BATCH),
    "accelerators": "",
    "sizes": "",
    "network": "1",
    "more_memory": "0",
    "prices": "",
    "stack": "torch",
}
"""What stands in each input before anybody types."""

_MAY_BE_EMPTY = ("deadline", "price_limit")
"""Inputs that say something by saying nothing."""

_INPUTS = {
    "num_tokens": "tokens",
    "deadline_s": "deadline",
    "cluster": "sizes",
    "goal": "deadline",
    "network_factors": "network",
    "extra_memory_bytes": "more_memory",
    "accelerator": "accelerators",
    "max_accelerators": "sizes",
}
"""The input that says a field of the plan where it is called otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanAsked:
    """What the inputs say."""

    texts: Mapping[str, str]
    """What stands in each input."""
    errors: Mapping[str, str] = field(default_factory=dict)
    """What is wrong, by input."""
    body: PlanRequest | None = None
    """The plan that is asked for; None before anybody asked, or where an input is wrong."""

    @classmethod
    def of(cls, query: Mapping[str, str]) -> Self:
        """What a query says; an empty one asks for nothing yet."""
        usual = USUAL if not query else {name: text for name, text in USUAL.items() if name not in _MAY_BE_EMPTY}
        texts = {name: query.get(name, "").strip() or usual.get(name, "") for name in USUAL}
        asked = cls(texts=texts)
        if not query.get("model"):
            return asked
        for error in _wrong(texts):
            asked = asked.with_error(error)
        if asked.errors:
            return asked
        try:
            return replace(asked, body=_body(texts))
        except AutotunerError as error:
            return asked.with_error(error)

    def with_error(self, error: AutotunerError) -> Self:
        """With a complaint beside the input that it is about."""
        match error:
            case InvalidInput():
                last = error.field.removeprefix("goal.").removeprefix("workload.")
                name = "prices" if last.startswith("prices") else _INPUTS.get(last, last)
                nearest = USUAL.get(name) if error.nearest is None else error.nearest
                said = f"{quoted(error.value)}: {error.rule}" + (f"; nearest: {nearest}" if nearest else "")
            case NotFound():
                name, said = _INPUTS.get(error.kind, error.kind), str(error)
            case _:
                name, said = "model", str(error)
        name = name if name in USUAL else "model"
        return replace(self, errors={**self.errors, name: self.errors.get(name, said)}, body=None)


_READERS: Mapping[str, Callable[[str], object]] = {
    "tokens": partial(read_amount, "tokens"),
    "deadline": partial(read_duration_s, "deadline"),
    "price_limit": partial(read_amount, "price_limit"),
    "seq_len": partial(whole_number, "seq_len"),
    "global_batch_size": partial(whole_number, "global_batch_size"),
    "accelerators": lambda text: [load_accelerator(name) for name in read_listed(text)],
    "sizes": partial(read_numbers, "sizes"),
    "network": partial(read_numbers, "network"),
    "more_memory": partial(read_numbers, "more_memory"),
    "prices": lambda text: read_prices("prices", read_listed(text)),
}
"""What reads an input, and raises what is wrong with it."""


def _wrong(texts: Mapping[str, str]) -> Iterator[AutotunerError]:
    """What is wrong with each input by itself."""
    for name, read in _READERS.items():
        if texts[name]:
            try:
                read(texts[name])
            except AutotunerError as error:
                yield error


def _body(texts: Mapping[str, str]) -> PlanRequest:
    return PlanRequest(
        model=texts["model"],
        workload=Workload(
            seq_len=whole_number("seq_len", texts["seq_len"]),
            global_batch_size=whole_number("global_batch_size", texts["global_batch_size"]),
        ),
        goal=Goal(
            num_tokens=read_amount("tokens", texts["tokens"]),
            deadline_s=read_duration_s("deadline", texts["deadline"]) if texts["deadline"] else None,
            price_limit=read_amount("price_limit", texts["price_limit"]) if texts["price_limit"] else None,
        ),
        stack=texts["stack"],
        accelerators=read_listed(texts["accelerators"]),
        sizes=tuple(int(size) for size in read_numbers("sizes", texts["sizes"])),
        network_factors=read_numbers("network", texts["network"]),
        extra_memory_bytes=tuple(round(1e9 * one) for one in read_numbers("more_memory", texts["more_memory"])),
        prices=dict(read_prices("prices", read_listed(texts["prices"]))),
    )
