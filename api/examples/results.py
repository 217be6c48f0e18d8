"""Examples of what came of a sweep."""

from __future__ import annotations

from dataclasses import replace

from api.examples.sweeps import sweep_rules
from api.examples.trials import SWEEP_ID, trial
from api.schemas import SweepAccuracy, SweepAnswer, SweepChoices, SweepFailures, SweepFront
from autotuner.core.layout import Layout
from autotuner.core.objective import Metric
from autotuner.core.sweep import Prospects
from autotuner.core.trial import FailureKind
from autotuner.search.results.accuracy import ComparedTrial
from autotuner.search.results.answer import Answer, Why
from autotuner.search.results.beaten import Beaten, Rival
from autotuner.search.results.certainty import Certainty, Tie
from autotuner.search.results.choices import Choices, Importance, Level
from autotuner.search.results.failures import FailedTrial, FailureGroup, Shared
from autotuner.search.results.front import Behind, Change, FrontPoint, Reach, Trade
from autotuner.search.results.grid import Cell, Grid
from autotuner.search.results.reached import Reached
from autotuner.search.results.ways_out import WayOut

_SECOND_ID = f"{SWEEP_ID}-0003"


def sweep_answer() -> SweepAnswer:
    """An answer with a tie and one layout that it beats."""
    prospects = Prospects(num_candidates=1204, num_fitting=377, expected_gain=0.007)
    return SweepAnswer(answer=_answer(prospects), prospects=prospects)


def sweep_choices() -> SweepChoices:
    """One choice, one effect and two cells."""
    levels = (
        Level(value="full", num_ranked=9, best_value=0.36, best_trial_id=_SECOND_ID),
        Level(value="none", num_ranked=12, best_value=0.43, best_trial_id=trial().id),
    )
    importance = Importance(
        name="recompute", label="recompute", alone=0.41, beyond_others=0.37, share=0.39, levels=levels
    )
    best = Cell(row=8, column="none", value=0.43, mfu=0.43, trial_id=trial().id, number=0, num_ranked=12, num_failed=0)
    second = replace(best, column="full", value=0.36, mfu=0.36, trial_id=_SECOND_ID, number=3, num_ranked=9)
    return SweepChoices(
        choices=Choices(num_ranked=21, explained=0.84, importance=(importance,), effects=sweep_rules().items),
        grid=Grid(
            row_name="tp",
            row_label="tp",
            column_name="recompute",
            column_label="recompute",
            rows=(8,),
            columns=("full", "none"),
            cells=((second, best),),
            names=("tp", "recompute"),
        ),
    )


def sweep_failures() -> SweepFailures:
    """Two trials that ran out of memory."""
    first = FailedTrial(
        trial_id=f"{SWEEP_ID}-0005",
        number=5,
        label="dp8 mb4 bf16",
        message="rank 3 ran out of memory",
        rank=3,
        has_log=True,
    )
    group = FailureGroup(
        kind=FailureKind.OOM,
        cause="out of memory",
        trials=(first, replace(first, trial_id=f"{SWEEP_ID}-0007", number=7)),
        num_ran=21,
        shared=(Shared(said="tp 1", num_failed=2, num_ran=1),),
        deciding="predicted to need 78.9 GB to 84.2 GB of 80 GB; 1 of 2 were predicted to fit",
        way_out=WayOut(
            sentence="trial 3 ran with recompute none → full, in 61 GB",
            change="recompute none → full",
            trial_id=_SECOND_ID,
            number=3,
            label="dp8 mb4 recompute-full bf16",
        ),
    )
    return SweepFailures(items=(group,))


def sweep_front() -> SweepFront:
    """Two trials on the front, of which each says what it costs beside the other, and one behind them."""
    best = trial()
    more = Change(metric=Metric.TOKENS_PER_JOULE, share=0.091)
    less = Change(metric=Metric.MFU, share=-0.07)
    fast = FrontPoint(
        trial_id=best.id,
        number=0,
        label=str(best.layout),
        values=(0.43, 0.55),
        relative_error=0.006,
        best_in=(Metric.MFU,),
        trades=(Trade(number=3, trial_id=_SECOND_ID, gains=(more,), costs=(less,)),),
        num_beaten=1,
        volume_share=0.31,
        is_knee=False,
        is_first=True,
        why=(
            "the best of 3 in MFU",
            "trial 3 has +9.1 % tokens per joule for −7.0 % MFU",
            "1 other is better in nothing",
        ),
    )
    back = Trade(
        number=0,
        trial_id=best.id,
        gains=(Change(metric=Metric.MFU, share=0.075),),
        costs=(Change(metric=Metric.TOKENS_PER_JOULE, share=-0.083),),
    )
    frugal = replace(
        fast,
        trial_id=_SECOND_ID,
        number=3,
        label="dp8 mb4 recompute-full bf16",
        values=(0.4, 0.6),
        best_in=(Metric.TOKENS_PER_JOULE,),
        trades=(back,),
        num_beaten=0,
        is_first=False,
        why=("the best of 3 in tokens per joule", "trial 0 has +7.5 % MFU for −8.3 % tokens per joule"),
    )
    behind = Behind(
        trial_id=f"{SWEEP_ID}-0002",
        number=2,
        label="dp8 mb2 bf16",
        values=(0.41, 0.53),
        by=0,
        changes=(Change(metric=Metric.MFU, share=0.049), Change(metric=Metric.TOKENS_PER_JOULE, share=0.038)),
        may_belong=False,
    )
    return SweepFront(
        metrics=(Metric.MFU, Metric.TOKENS_PER_JOULE),
        profile=(),
        points=(fast, frugal),
        behind=(behind,),
        num_untold=0,
        progress=(Reach(number=0, volume_share=0.62), Reach(number=3, volume_share=1.0)),
    )


def sweep_accuracy() -> SweepAccuracy:
    """One prediction beside its measurement."""
    best = trial()
    compared = ComparedTrial(
        trial_id=best.id,
        number=0,
        label=str(best.layout),
        source="measured",
        predicted_step_s=4.65,
        reached_step_s=5.0,
        predicted_mfu=0.46,
        reached_mfu=0.43,
        reached_error=0.006,
        relative_error=0.12,
        error=0.075,
        is_within=True,
        predicted_bytes=38e9,
        reached_bytes=39e9,
    )
    return SweepAccuracy(
        trials=(compared,),
        num_intervals=1,
        num_within=1,
        median_error=0.075,
        bias=0.075,
        memory_error=0.026,
        sentences=(
            "1 of 1 step times lie within the 80 % interval of their prediction",
            "half of the step times are off by less than 8 %; in the median they are 7.5 % longer than predicted",
            "half of the peaks are off by less than 3 %",
        ),
    )


def _answer(prospects: Prospects) -> Answer:
    best, change = _best(), "recompute full → none"
    second = Layout(tensor_parallel_degree=8, sequence_parallel=True)
    tie = Tie(
        rank=2, trial_id=_SECOND_ID, number=3, label=str(second), layout=second, change=change, probability_best=0.29
    )
    rival = Beaten(
        rival=Rival.NEXT,
        without=(),
        said="rank 2",
        rank=2,
        trial_id=_SECOND_ID,
        number=3,
        label=str(second),
        layout=second,
        change=change,
        gain=0.006,
        gain_error=0.014,
        is_tie=True,
    )
    sentences = (
        "the chance that it is the best of the 21 ranked layouts is 71 %",
        f"it is tied with rank 2 ({change}; its chance is 29 %)",
    )
    return Answer(
        sentence=f"{best.label}: 43.0 ± 0.3 % MFU, measured, 104 ktoken/s; tied with rank 2",
        best=best,
        is_in_use=False,
        gate=None,
        certainty=Certainty(
            probability_best=0.71,
            ties=(tie,),
            num_ranked=21,
            num_tried=24,
            num_legal=prospects.num_candidates,
            num_fitting=prospects.num_fitting,
            expected_gain=prospects.expected_gain,
            sentences=sentences,
        ),
        beaten=(rival,),
        why=Why(
            than="rank 2",
            trial_id=_SECOND_ID,
            label=str(second),
            is_tie=True,
            sentences=("its step is predicted to spend 210 ms less on recomputation",),
        ),
    )


def _best() -> Reached:
    best = trial()
    return Reached(
        trial_id=best.id,
        number=0,
        label=str(best.layout),
        layout=best.layout,
        source="measured",
        said="",
        value=0.43,
        mfu=0.43,
        tokens_per_s=104e3,
        step_time_s=5.0,
        relative_error=0.006,
        confidence=0.95,
        peak_bytes=39e9,
        limit_bytes=80e9,
        price_per_million_tokens=0.05,
    )
