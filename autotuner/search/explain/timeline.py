"""PredictedTimeline: a predicted step as blocks over time, by the schedule simulator.

The times of the passes come from the cost model. A prediction computes idle time by closed formulas, which are exact if
the ranks of a pipeline are equal. The simulator instead starts every action as soon as possible.
``PredictedTimeline.apart`` states the difference. A step of many micro-batches is not simulated whole: after some
rounds, each further micro-batch takes as long as the one before. Such micro-batches are left out (folded) and their
time is added.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from autotuner.core.choices import PipelineSchedule, ShardLevel
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.rules.legality import require_legal
from autotuner.core.sweep import SweepRequest
from autotuner.core.timeline import (
    Block,
    BlockKind,
    Fold,
    RankSeconds,
    RankTimeline,
    StepTimeline,
    found_folds,
    outside,
)
from autotuner.core.trial import Trial
from autotuner.costmodel.details import StageTimes, stage_times
from autotuner.costmodel.predict import predict_one
from autotuner.costmodel.step.planned import NOTICED
from autotuner.schedules.planner import named_schedule, plan
from autotuner.schedules.schedule import Action, Kind, Schedule
from autotuner.schedules.simulate import BESIDE_COMPUTE, PassTimes, delegated, simulate

_WHOLE = 2_500
"""Largest number of actions of a step that is simulated whole, which takes about 10 ms."""

_FEW_RANKS = 16
"""Largest number of pipeline ranks whose further rounds are exactly equal. For deeper pipelines the error is up to 0.5
%."""

_NUM_FOLDS = {PipelineSchedule.GPIPE: 2}
"""Number of folds, for schedules in which forward and backward passes repeat separately. A step without so many folds
is simulated whole."""

_MOST_BLOCKS = 3_000
"""Maximum number of blocks of a timeline. For a larger pipeline, only the first and the last ranks are kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedTimeline:
    """The timeline of a layout's simulated step, and the step time by the cost model's formulas, to compare the two."""

    timeline: StepTimeline
    """Timeline with one row per pipeline rank, because all ranks of a stage do the same. For a deep pipeline, it has
    only the first and the last rows."""
    predicted_s: float
    """Step time by which the layout is ranked."""
    apart: float
    """Step time of the timeline divided by ``predicted_s``, minus 1."""


def predicted_timeline(
    layout: Layout, job: Job, *, most_actions: int = _WHOLE, most_unfolded: int = 0
) -> PredictedTimeline:
    """Return the simulated timeline of a step of a legal layout: when each pipeline rank computes, sends and waits.

    Args:
        layout: The layout.
        job: The job.
        most_actions: A step with at most this many passes is simulated in full. For a longer step, only the beginning
            and the end are simulated, if all micro-batches between them take equally long.
        most_unfolded: A timeline normally leaves out passes that repeat. A step with at most this many passes shows
            every pass, so that its chart can be compared with that of another step.
    """
    predicted_s = predict_one(layout, job).step_time.total_s
    timeline = _timeline(layout, job, stage_times(layout, job), most_actions, most_unfolded)
    return PredictedTimeline(timeline=timeline, predicted_s=predicted_s, apart=timeline.step_s / predicted_s - 1)


def _timeline(layout: Layout, job: Job, times: StageTimes, most_actions: int, most_unfolded: int) -> StepTimeline:
    num_micro_batches = job.workload.num_micro_batches(layout)
    each_s = _synced_each_s(layout, num_micro_batches, times)
    ran = _Ran.of(layout, num_micro_batches, times, each_s, most_actions)
    if 3 * layout.num_stages * num_micro_batches <= min(most_unfolded, most_actions):
        ran = replace(ran, folds=())
    ends = [_with_end(blocks, rank, times, once=not each_s) for rank, blocks in enumerate(ran.ranks)]
    step_s = max(blocks[-1].end_s for blocks in ends)
    per_pipeline_rank = layout.world_size // layout.pipeline_parallel_degree
    rows = []
    for rank, blocks in enumerate(ends):
        shown, seconds = outside(blocks, ran.folds), _seconds(blocks, ran.folded[rank], step_s)
        rows.append(
            RankTimeline(
                rank=rank * per_pipeline_rank,
                pipeline_rank=rank,
                actions=tuple(b.word for b in shown),
                start_s=tuple(b.start_s for b in shown),
                end_s=tuple(b.end_s for b in shown),
                seconds=seconds,
            )
        )
    return StepTimeline(
        step_s=step_s,
        num_micro_batches=num_micro_batches,
        num_ranks=layout.world_size,
        ranks=_few_enough(rows),
        folds=ran.folds,
    )


def _few_enough(rows: Sequence[RankTimeline]) -> tuple[RankTimeline, ...]:
    """Return the first and the last rows, half as many until they have few enough blocks."""
    half = len(rows) // 2
    kept = tuple(rows)
    while half > 1 and sum(len(row.actions) for row in kept) > _MOST_BLOCKS:
        half //= 2
        kept = (*rows[:half], *rows[-half:])
    return kept


def _synced_each_s(layout: Layout, num_micro_batches: int, times: StageTimes) -> float:
    """Return the time that data-parallel collectives add to every micro-batch; 0 if they run once per step.

    A pipeline reduces its gradients once. The short time in which its ranks gather weights again is shown with them, at
    the end.
    """
    each = layout.shard_level >= ShardLevel.GRADIENTS and layout.pipeline_parallel_degree == 1
    return times.sync_s[0] / num_micro_batches if each else 0.0


def _with_end(blocks: Sequence[Block], rank: int, times: StageTimes, *, once: bool) -> tuple[Block, ...]:
    passed_s = blocks[-1].end_s
    synced_s = passed_s + times.sync_s[rank] * once
    sync = Block(passed_s, synced_s, BlockKind.SYNC)
    update = Block(synced_s, synced_s + times.optimizer_s[rank], BlockKind.OPTIMIZER)
    return (*blocks, *(one for one in (sync, update) if one.end_s > one.start_s))


def _seconds(blocks: Sequence[Block], folded: Mapping[BlockKind, float], step_s: float) -> RankSeconds:
    """Return the seconds of all blocks by kind, including the time of the folded micro-batches."""
    spent = {kind: folded.get(kind, 0.0) for kind in BlockKind}
    for block in blocks:
        spent[block.kind] += block.end_s - block.start_s
    return RankSeconds(
        forward_s=spent[BlockKind.FORWARD],
        backward_s=spent[BlockKind.BACKWARD] + spent[BlockKind.INPUT],
        weight_s=spent[BlockKind.WEIGHT],
        send_s=spent[BlockKind.SEND],
        sync_s=spent[BlockKind.SYNC],
        optimizer_s=spent[BlockKind.OPTIMIZER],
        idle_s=max(0.0, step_s - sum(spent.values())),
    )


# ---------------------------------------------------------------- the schedule, whole or in its beginning and end
@dataclass(frozen=True, slots=True, kw_only=True)
class _Ran:
    """The actions of each rank in order of time, with the number of each micro-batch and its time in the whole step."""

    ranks: tuple[tuple[Block, ...], ...]
    folds: tuple[Fold, ...]
    """Parts that can be left out of the timeline. The micro-batches that were not simulated are inside."""
    folded: tuple[Mapping[BlockKind, float], ...]
    """Seconds by kind of the micro-batches that were not simulated, for each rank."""

    @classmethod
    def of(cls, layout: Layout, num_micro_batches: int, times: StageTimes, each_s: float, most_actions: int) -> _Ran:
        p, v = layout.pipeline_parallel_degree, layout.virtual_stages_per_rank
        for simulated in _numbers_simulated(p, v, num_micro_batches, most_actions):
            schedule = _schedule(layout, simulated, times)
            ranks = _simulated(schedule, times, each_s)
            folds = found_folds(ranks, simulated)
            if len(folds) == _NUM_FOLDS.get(layout.pipeline_schedule, 1) or simulated == num_micro_batches:
                break
        missing = num_micro_batches - simulated
        ran = cls(ranks=ranks, folds=folds, folded=tuple({} for _ in ranks))
        return ran._longer_by(missing, p) if missing else ran

    def _longer_by(self, missing: int, num_ranks: int) -> _Ran:
        """Return the actions with ``missing`` more micro-batches in the folds.

        Each of these takes as long as the micro-batches there.
        """
        added_s = [  # measured on the slowest rank, over one round of the ranks or the whole fold
            missing * max((_period_s(blocks, fold, num_ranks) for blocks in self.ranks), default=0.0)
            for fold in self.folds
        ]
        before_s = [sum(added_s[:index]) for index in range(len(added_s))]
        return _Ran(
            ranks=tuple(tuple(self._later(b, added_s, missing) for b in blocks) for blocks in self.ranks),
            folds=tuple(
                Fold(
                    start_s=fold.start_s + earlier_s,
                    end_s=fold.end_s + earlier_s + own_s,
                    num_micro_batches=fold.num_micro_batches + missing,
                )
                for fold, earlier_s, own_s in zip(self.folds, before_s, added_s, strict=True)
            ),
            folded=tuple(_more(blocks, self.folds, num_ranks, missing) for blocks in self.ranks),
        )

    def _later(self, block: Block, added_s: Sequence[float], missing: int) -> Block:
        """Return a block after a fold, moved to its later time and numbered after the folded micro-batches."""
        later_s = sum(own_s for fold, own_s in zip(self.folds, added_s, strict=True) if block.end_s > fold.end_s)
        own = self.folds[0 if block.kind is BlockKind.FORWARD else -1]
        number = block.micro_batch
        if number is not None and block.end_s > own.end_s:
            number += missing
        return Block(block.start_s + later_s, block.end_s + later_s, block.kind, block.stage, number)


def _numbers_simulated(p: int, v: int, num_micro_batches: int, most_actions: int) -> Iterator[int]:
    """Yield the smallest numbers of micro-batches that show beginning, steady state and end, then all.

    They are multiples of the number of ranks.
    """
    few = p * max(4 if p <= _FEW_RANKS else 3, -(-12 // p))
    if few < num_micro_batches and 3 * p * v * num_micro_batches > most_actions:
        yield few
    yield num_micro_batches


def _schedule(layout: Layout, num_micro_batches: int, times: StageTimes) -> Schedule:
    """Return the schedule of the ranks: by name, or planned for the layout's stages and links, as trials plan it."""
    if layout.pipeline_schedule == PipelineSchedule.ADAPTIVE:
        return _planned(_seen(times), num_micro_batches, layout.extra_slack)
    return _named(
        layout.pipeline_schedule, layout.pipeline_parallel_degree, layout.virtual_stages_per_rank, num_micro_batches
    )


_named = lru_cache(maxsize=64)(named_schedule)


def _seen(times: StageTimes) -> PassTimes:
    """Return the times for the planner.

    Sends that are short compared with a forward pass are nominal and no delay.
    """
    sends = zip(times.blocks_s, times.flies_s, times.forward_s, strict=False)
    return PassTimes(
        forward_s=times.forward_s,
        input_s=times.input_s,
        weight_s=times.weight_s,
        send_s=tuple(one + other if one + other > NOTICED * forward else 0.0 for one, other, forward in sends),
    )


@lru_cache(maxsize=64)
def _planned(times: PassTimes, num_micro_batches: int, extra_slack: int) -> Schedule:
    return plan(times, num_micro_batches, extra_slack=extra_slack).schedule


def _period_s(blocks: Sequence[Block], fold: Fold, num_ranks: int) -> float:
    """Return the time that one micro-batch adds to a fold, measured on one rank."""
    starts: dict[tuple[BlockKind, int | None], list[float]] = {}
    for b in blocks:
        if b.kind.is_pass and fold.start_s <= b.start_s < fold.end_s:
            starts.setdefault((b.kind, b.stage), []).append(b.start_s)
    longest = max(starts.values(), key=len, default=[])
    round_size = min(num_ranks, len(longest) - 1)
    return (longest[-1] - longest[-1 - round_size]) / round_size if round_size > 0 else 0.0


def _more(blocks: Sequence[Block], folds: Sequence[Fold], num_ranks: int, missing: int) -> dict[BlockKind, float]:
    """Return the seconds by kind of ``missing`` more micro-batches.

    Each has the passes and waits of the micro-batches in the folds.
    """
    spent: dict[BlockKind, float] = {}
    for fold in folds:
        start_s = fold.end_s - num_ranks * _period_s(blocks, fold, num_ranks)
        latest = [b for b in blocks if max(start_s, fold.start_s) <= b.start_s < fold.end_s]
        for kind, stage in {(b.kind, b.stage) for b in latest}:
            own = [b.end_s - b.start_s for b in latest if (b.kind, b.stage) == (kind, stage)]
            each_s = own[0] if kind.is_pass else sum(own) / num_ranks
            spent[kind] = spent.get(kind, 0.0) + missing * each_s
    return spent


def _simulated(schedule: Schedule, times: StageTimes, each_s: float) -> tuple[tuple[Block, ...], ...]:
    weight_s, blocks_s = tuple(seconds + each_s for seconds in times.weight_s), times.blocks_s
    passes = PassTimes(forward_s=times.forward_s, input_s=times.input_s, weight_s=weight_s, send_s=times.flies_s)
    held_up = replace(  # each pass, followed by the send of its result if the send blocks the rank
        passes,
        forward_s=tuple(map(sum, zip(passes.forward_s, (*blocks_s, 0.0), strict=True))),
        input_s=tuple(map(sum, zip(passes.input_s, (0.0, *blocks_s), strict=True))),
    )
    carriers = delegated(times.num_delegates) if times.num_delegates else BESIDE_COMPUTE
    ran = simulate(schedule, held_up, carriers)
    under_way_s = tuple(map(sum, zip(blocks_s, times.flies_s, strict=True)))
    arriving = replace(passes, send_s=under_way_s)
    return tuple(
        tuple(_blocks(actions, starts, ends, schedule, arriving, each_s))
        for actions, starts, ends in zip(schedule.ranks, ran.start_s, ran.end_s, strict=True)
    )


def _blocks(
    actions: Sequence[Action],
    starts: Sequence[float],
    ends: Sequence[float],
    schedule: Schedule,
    passes: PassTimes,
    each_s: float,
) -> Iterator[Block]:
    """Yield the blocks of one rank: its passes, its sends if they block, and its waits for data on the way."""
    free_s = 0.0
    for action, start_s, end_s in zip(actions, starts, ends, strict=True):
        under_way_s = min(start_s - free_s, _received_s(action, schedule, passes))
        if under_way_s > 0:
            yield Block(start_s - under_way_s, start_s, BlockKind.SEND)
        passed_s = start_s + passes.action_s(action)
        synced_s = each_s * (action.kind in (Kind.BACKWARD, Kind.WEIGHT))
        yield Block(start_s, passed_s - synced_s, BlockKind(action.kind.value), action.stage, action.micro_batch)
        if synced_s:
            yield Block(passed_s - synced_s, passed_s, BlockKind.SYNC)
        if end_s > passed_s:
            yield Block(passed_s, end_s, BlockKind.SEND)
        free_s = end_s


def _received_s(action: Action, schedule: Schedule, passes: PassTimes) -> float:
    """Return the time that the needed result of another rank is on the way."""
    other = action.stage + {Kind.FORWARD: -1, Kind.WEIGHT: 0}.get(action.kind, 1)
    rank_of = schedule.rank_of
    if rank_of.get(other, rank_of[action.stage]) == rank_of[action.stage]:
        return 0.0
    return passes.send_s[min(action.stage, other)]


# ---------------------------------------------------------------- of a trial
def what_ran(trial: Trial, request: SweepRequest) -> tuple[Layout, Job]:
    """Return the layout that a trial ran, or would have run, and the job in which it ran.

    If the trial was a proxy trial, it ran a smaller layout in place of the full-size one. The result is then the
    smaller layout, and the smaller job in which it ran.

    Raises:
        InvalidInput: The layout breaks a rule that was added after the trial.
    """
    require_legal(trial.layout, request.legal_job)
    return trial.ran, request.trial_job if trial.proxy is None else request.job_of(trial.proxy)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialTimelines:
    """The timelines of a trial's step: predicted, and measured if a step of the trial was profiled."""

    is_small: bool
    """True if the timelines are those of a proxy trial on fewer ranks, and not those of the layout itself."""
    predicted: PredictedTimeline
    """Timeline by the schedule simulator, with the present cost model's times of the passes."""
    measured: StepTimeline | None
    """Timeline of a profiled step; None if no step was profiled, and after retention deleted it."""


def trial_timelines(trial: Trial, request: SweepRequest) -> TrialTimelines:
    """Return the predicted and the recorded timeline of the layout that ran as a trial.

    The trial must have been read from the store together with its timeline. The function raises the same errors as
    ``what_ran``.
    """
    return TrialTimelines(
        is_small=trial.proxy is not None,
        predicted=predicted_timeline(*what_ran(trial, request)),
        measured=trial.ran_measurement.timeline if trial.ran_measurement else None,
    )
