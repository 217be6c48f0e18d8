"""Plans: how far one is computed, and what it says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from autotuner.core.layout import Layout
from autotuner.core.run import Run
from autotuner.core.workload import Workload
from autotuner.search.planning.goal import Failures, Goal
from autotuner.search.planning.marginal import Marginal
from autotuner.search.planning.outcome import Interval, Outcome
from autotuner.search.planning.plan import Contender, Plan
from autotuner.search.planning.proof import Proof
from autotuner.search.planning.request import ChangePrices, PlanRequest
from autotuner.search.planning.whole_clusters import Price


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedRun:
    """A whole training run on a cluster, as the cost model has it. Intervals hold 80 of 100 cases.

    Attributes:
        time_s: Interruptions counted.
        cost: US dollars.
        accelerator_hours: Interruptions counted.
        energy_kwh: Null where nobody knows what the accelerator draws.
        co2_kg: 0 where nobody says what the energy emits.
        num_steps: Optimizer steps.
        step_time_s: Of one of them.
        mfu: Of steps that are not interrupted.
        goodput: Share of the time in which the run makes progress.
    """

    time_s: Interval
    cost: Interval
    accelerator_hours: Interval
    energy_kwh: Interval | None
    co2_kg: Interval
    num_steps: float
    step_time_s: float
    mfu: float
    goodput: float

    @classmethod
    def of(cls, outcome: Outcome) -> Self:
        """The run's figures."""
        return cls(
            time_s=outcome.time_s,
            cost=outcome.cost,
            accelerator_hours=outcome.accelerator_hours,
            energy_kwh=outcome.energy_kwh,
            co2_kg=outcome.co2_kg,
            num_steps=outcome.num_steps,
            step_time_s=outcome.best.prediction.step_time.total_s,
            mfu=outcome.mfu,
            goodput=outcome.goodput,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ContenderView:
    """A cluster beside the others.

    Attributes:
        cluster: Its name: the short form of one of the catalog.
        price_per_accelerator_hour: In US dollars.
        is_hypothetical: Nobody sells it: one of the catalog with another network or memory.
        is_on_front: No other is both faster and cheaper.
        is_thorough: Its layouts were all looked through; else a thin space of them.
        chance_kept: How likely it keeps the goal's limits, 0..1; 1 where there are none.
        chance_best: How likely it turns out to have been the right choice, 0..1.
        label: Its best layout in short.
    """

    cluster: str
    accelerator: str
    num_nodes: int
    num_accelerators: int
    price_per_accelerator_hour: float
    is_hypothetical: bool
    is_on_front: bool
    is_thorough: bool
    chance_kept: float
    chance_best: float
    label: str
    layout: Layout
    predicted: PredictedRun

    @classmethod
    def of(cls, contender: Contender) -> Self:
        """A row of the comparison."""
        cluster, layout = contender.outcome.cluster, contender.outcome.best.layout
        return cls(
            cluster=cluster.name,
            accelerator=cluster.accelerator.name,
            num_nodes=cluster.num_nodes,
            num_accelerators=cluster.world_size,
            price_per_accelerator_hour=cluster.price_per_accelerator_hour,
            is_hypothetical=contender.outcome.is_hypothetical,
            is_on_front=contender.is_on_front,
            is_thorough=contender.is_thorough,
            chance_kept=contender.chance_kept,
            chance_best=contender.chance_best,
            label=str(layout),
            layout=layout,
            predicted=PredictedRun.of(contender.outcome),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MarginalView:
    """What a change of the chosen cluster buys.

    Attributes:
        change: In words.
        num_nodes: Nodes that it adds.
        saved_s: Of the run's time.
        saved_cost: US dollars of the run; below 0 where it costs more.
        mfu: What it adds to the MFU, 0..1.
        price_per_hour: What it adds to the price of an hour of the cluster, in US dollars.
        mfu_per_dollar: ``mfu`` over ``price_per_hour``; null where that is not above 0.
        hours_per_dollar: Hours saved for each dollar that the run costs more; null where it costs no more.
        worth_per_accelerator_hour: Dollars that an accelerator-hour may cost more before the run does; null for nodes.
        predicted: The run with it; null where no layout uses it.
    """

    change: str
    num_nodes: int
    saved_s: float
    saved_cost: float
    mfu: float
    price_per_hour: float
    mfu_per_dollar: float | None
    hours_per_dollar: float | None
    worth_per_accelerator_hour: float | None
    predicted: PredictedRun | None

    @classmethod
    def of(cls, marginal: Marginal) -> Self:
        """The change with what follows of it."""
        return cls(
            change=marginal.change,
            num_nodes=marginal.num_nodes,
            saved_s=marginal.saved_s,
            saved_cost=marginal.saved_cost,
            mfu=marginal.mfu,
            price_per_hour=marginal.price_per_hour,
            mfu_per_dollar=marginal.mfu_per_dollar,
            hours_per_dollar=marginal.hours_per_dollar,
            worth_per_accelerator_hour=marginal.worth_per_accelerator_hour,
            predicted=None if marginal.outcome is None else PredictedRun.of(marginal.outcome),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofView:
    """A small sweep that makes the choice surer, given those before it.

    Attributes:
        accelerator: What it runs on.
        num_nodes: Nodes that it takes.
        num_accelerators: Accelerators that a trial takes.
        target: The cluster that its trials stand for.
        label: The layout of its first trial in short.
        num_layers: Layers of the model that it runs.
        global_batch_size: Sequences of its step.
        parts: Parts of a step that it measures as the target runs them.
        num_trials: Of the sweep.
        hours: That it takes.
        cost: US dollars of it.
        saved: Dollars by which the choice gets better on average.
        error_after: Half-width of the 80 % interval of the target's time that is left.
    """

    accelerator: str
    num_nodes: int
    num_accelerators: int
    target: str
    label: str
    layout: Layout
    num_layers: int
    global_batch_size: int
    parts: tuple[str, ...]
    num_trials: int
    hours: float
    cost: float
    saved: float
    error_after: float

    @classmethod
    def of(cls, proof: Proof) -> Self:
        """The stage with its trial."""
        return cls(
            accelerator=proof.accelerator,
            num_nodes=proof.num_nodes,
            num_accelerators=proof.num_accelerators,
            target=proof.target,
            label=str(proof.trial.layout),
            layout=proof.trial.layout,
            num_layers=proof.trial.num_layers,
            global_batch_size=proof.trial.global_batch_size,
            parts=proof.parts,
            num_trials=proof.num_trials,
            hours=proof.hours,
            cost=proof.cost,
            saved=proof.saved,
            error_after=proof.relative_error,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanAnswer:
    """Where to invest. Nothing of it was measured.

    Attributes:
        contenders: Clusters on which a layout fits, the least expected loss first: the first is the one to take.
        num_compared: Clusters that were looked at.
        prices: What their accelerators cost and draw, and who says so.
        regret: Dollars that the choice is worse by, on average, than if all times were known beforehand.
        marginals: What changes of the first would buy.
        proofs: Small sweeps that are worth more than they cost, in the order to run them.
        caveats: What a reader should know; sentences without full stops.
    """

    contenders: tuple[ContenderView, ...]
    num_compared: int
    prices: tuple[Price, ...]
    regret: float
    marginals: tuple[MarginalView, ...]
    proofs: tuple[ProofView, ...]
    caveats: tuple[str, ...]

    @classmethod
    def of(cls, plan: Plan) -> Self:
        """All of it."""
        return cls(
            contenders=tuple(map(ContenderView.of, plan.contenders)),
            num_compared=plan.num_compared,
            prices=plan.prices,
            regret=plan.regret,
            marginals=tuple(map(MarginalView.of, plan.marginals)),
            proofs=tuple(map(ProofView.of, plan.proofs)),
            caveats=plan.caveats,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanView:
    """A plan, and how far it is computed.

    Attributes:
        id: The same for the same question, as long as nothing changes that it is answered by.
        computed_at: Epoch seconds; null until then.
        num_done: Pieces of work that are done.
        num_known: Pieces of work that there are as far as is known; more may come.
        workload: Of one optimizer step.
        answer: Null until it is computed.
    """

    id: str
    computed_at: float | None
    num_done: int
    num_known: int
    goal: Goal
    workload: Workload
    failures: Failures
    change_prices: ChangePrices
    answer: PlanAnswer | None

    @classmethod
    def of(cls, run: Run) -> Self:
        """The plan as it stands."""
        request: PlanRequest = run.request
        return cls(
            id=run.id,
            computed_at=run.finished_at,
            num_done=run.progress.num_done,
            num_known=run.progress.num_known,
            goal=request.goal,
            workload=request.workload,
            failures=request.failures,
            change_prices=request.change_prices,
            answer=None if run.result is None else PlanAnswer.of(run.result),
        )
