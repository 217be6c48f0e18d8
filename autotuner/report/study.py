"""The reports of optimizer studies: the list, and one study with its loss curves, Pareto front and candidates."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from autotuner.core.study import OptimizerStudyRequest, OptimizerTrial, PruneReason, StudyRun, TargetReached
from autotuner.core.trial import TrialState
from autotuner.report.charts import Axis, Dot, Dots, Line, Look, Mark, Plot, Rule, stairs
from autotuner.report.report import (
    Block,
    Button,
    Cell,
    Cells,
    Code,
    Column,
    Figure,
    Lines,
    Link,
    Moment,
    Pager,
    Quantity,
    Quiet,
    Report,
    Section,
    State,
    Strong,
    Table,
    Words,
    measured,
)
from autotuner.report.words import num_in_all, number, sentence
from autotuner.search.planning.optimizer_study import StudyEnd, StudyLimit

_NONE = (
    "No study yet. After you have chosen a layout, a study trains it with one optimizer after another, and finds the "
    "optimizer that reaches a target loss fastest and with the fewest accelerator-hours:"
)

_MOST_POINTS = 160
"""Maximum number of points of a curve; a picture has no room for more."""

_WIDE, _HIGH = 632, 270
"""Width and height of a picture in pixels; two pictures stand side by side."""


# ------------------------------------------------------------------ the list of studies
def studies_report(studies: Sequence[StudyRun], total: int, server: str = "", pager: Pager | None = None) -> Report:
    """Return the report of optimizer studies (searches for the fastest optimizer settings), newest first.

    Args:
        studies: Studies of this page, newest first.
        total: Number of all studies.
        server: URL for the option ``--server`` of the commands that the report shows; empty: no such option.
        pager: Links to newer and older studies; None: there are none.
    """
    columns = (
        Column("study", is_number=False),
        Column("state", is_number=False),
        Column("job", is_number=False, is_minor=True),
        Column("layout", is_number=False, may_wrap=True),
        Column("target loss"),
        Column("how it ended", is_number=False, may_wrap=True),
        Column("created", is_number=False, is_minor=True),
    )
    table = Table(
        columns=columns,
        rows=[tuple(_cells_of(one)) for one in studies],
        caption=f"{num_in_all(total, 'study', 'studies')}, newest first",
        if_empty=_NONE if not total else "",
    )
    first = (
        "autotuner optimizer tune --model llama-demo --cluster local --seq-len 128 --global-batch-size 16 \\\n"
        f'  --layout "mb1 fp32" --target-loss 8.5{f" --server {server}" if server else ""}'
    )
    below: Sequence[Block] = [pager] if pager else []
    blocks: tuple[Block, ...] = (table, *below) if total else (table, Code(first))
    return Report(headline="Optimizer studies", sections=(Section(blocks=blocks),))


def _cells_of(study: StudyRun) -> Iterator[Cells]:
    asked = study.request
    link = Link(asked.name or study.id, "optimizer-studies", study.id, key=f"link-{study.id}")
    yield (link, Quiet(study.id)) if asked.name else link
    yield State(study.state.value)
    yield (asked.job.model.name, Quiet(f"on {asked.job.cluster.name}"))
    yield Words(str(asked.layout))
    yield _target(study)
    yield sentence(study.detail) if study.detail else None
    yield (Moment(study.created_at), Quiet(f"by {study.created_by}")) if study.created_by else Moment(study.created_at)


# ------------------------------------------------------------------ one study
def study_report(study: StudyRun, *, has_buttons: bool = False) -> Report:
    """Return the report of one optimizer study: its state, best settings, loss curves, Pareto front and candidates.

    Args:
        study: The study with its trials.
        has_buttons: True if the reader may cancel the study.
    """
    best, request = study.best, study.request
    sections = [Section(blocks=tuple(_standing(study, has_buttons=has_buttons)), id="standing")]
    if best:
        sections.append(Section(title="Best settings", blocks=(_settings(best),), id="best"))
    if curves := _curves(study):
        note = (
            f"Mean over {request.window_sequences} sequences that the model had not seen. Green: no other candidate is "
            "better in both time and accelerator-hours. Black: reached the target too. Pale: did not reach it."
        )
        sections.append(
            Section(title="Loss over training time", blocks=(curves,), note=note, id="curves", is_half=True)
        )
    if front := _front(study):
        note = "Every candidate that reached the target. For the numbered ones, no other candidate is better in both."
        title = "Time against accelerator-hours"
        sections.append(Section(title=title, blocks=(front,), note=note, id="front", is_half=True))
    if study.trials:
        sections.append(Section(title="Candidates", blocks=(_candidates(study),), id="tried"))
    return Report(
        headline=request.name or study.id,
        state=State(study.state.value),
        facts=tuple(_facts(study)),
        sections=sections,
    )


def candidate_line(trial: OptimizerTrial) -> str:
    """Return one line on an ended training of an optimizer study: ``3: lamb, learning rate 0.01, ...: pruned, ...``."""
    return f"{trial.number}: {trial.candidate}: {trial.state}, {_ended(trial)}"


def _ended(trial: OptimizerTrial) -> str:
    """Return how a candidate ended, or why it waits; empty if neither applies."""
    if trial.reached is not None:
        return f"reached the target after {trial.reached.num_steps} steps"
    if trial.pruned is not None:
        return prune_in_words(trial.pruned)
    if trial.state is TrialState.COMPLETE:
        return f"did not reach the target within {trial.curve.num_samples} sequences"
    return "cancelled by request" if trial.state is TrialState.CANCELLED else trial.detail


def prune_in_words(why: PruneReason) -> str:
    """Describe why an optimizer study stopped a training before it reached the target loss, without a full stop."""
    if why.beaten_by is not None:
        better = f"number {why.beaten_by} reached the target faster and with fewer accelerator-hours"
        return f"{better}, after {why.time_s:.3g} s"
    return (
        f"its loss of {why.loss:.4g} after {why.time_s:.3g} s is above {why.median:.4g}, the median loss of the other "
        "candidates at that time"
    )


def end_in_words(end: StudyEnd, request: OptimizerStudyRequest) -> str:
    """Describe why an optimizer study ended: ``25 candidates were tried, and 3 came to the target``.

    A candidate is an optimizer with its settings, a batch size and a data-parallel degree. The text has no full stop.
    """
    match end.limit:
        case StudyLimit.ACCELERATOR_HOURS:
            why = f"{end.accelerator_hours:.3g} of {request.budget.accelerator_hours:g} accelerator-hours are spent"
        case StudyLimit.CANDIDATES:
            why = f"{end.num_tried} candidates were tried"
    return f"{why}, and {end.num_reached or 'none'} reached the target"


def _facts(study: StudyRun) -> Iterator[Cell]:
    asked = study.request
    yield f"Study {study.id},"
    yield from (Strong(asked.job.model.name), "on", Strong(asked.job.cluster.name), ",")
    yield f"sequences of {asked.job.workload.seq_len} tokens, trained to a loss of"
    yield from (Strong(f"{asked.target_loss:g}"), f"over {asked.window_sequences} sequences.")
    yield from (Quiet(f"By {study.created_by}."),) if study.created_by else ()


def _standing(study: StudyRun, *, has_buttons: bool) -> Iterator[Block]:
    asked = [] if not study.is_cancel_requested or study.state.is_finished else ["It is being cancelled."]
    if said := [*asked, *([sentence(study.detail)] if study.detail else [])]:
        yield Lines(items=said, is_list=False)
    yield tuple(_figures(study, has_buttons=has_buttons))
    yield (Figure("layout", Words(str(study.request.layout))),)
    if study.progress is not None and study.progress.refusals:
        yield Lines(items=tuple(f"Not tried: {sentence(refusal)}" for refusal in study.progress.refusals))


def _figures(study: StudyRun, *, has_buttons: bool) -> Iterator[Figure]:
    trials = study.trials
    most = Quiet(f"of {study.request.budget.num_trials} candidates at most")
    yield Figure("tried", (Quantity(value=len(trials), unit="count"), most))
    num_reached = sum(trial.reached is not None for trial in trials)
    yield Figure("at the target", Quantity(value=num_reached, unit="count"))
    reached = [trial.reached for trial in study.best if trial.reached is not None]
    if reached:
        soonest, cheapest = reached[0], reached[-1]
        took = Quiet(f"{soonest.num_steps:,} steps, {soonest.num_samples:,} sequences")
        yield Figure("fastest", (measured(soonest.time_s, "s"), took))
        price = "" if cheapest.cost is None else f", {number(cheapest.cost, '')} at the cluster's price"
        yield Figure("cheapest", (measured(cheapest.accelerator_hours, ""), Quiet(f"accelerator-hours{price}")))
    if has_buttons and not study.state.is_finished and not study.is_cancel_requested:
        cancel = Button(
            words="Cancel", path=f"optimizer-studies/{study.id}/cancel", says=f"Cancel the study {study.id}"
        )
        yield Figure("under way", cancel)


def _target(study: StudyRun) -> Quantity:
    return Quantity(value=study.request.target_loss, unit="", is_exact=True)


# ------------------------------------------------------------------ its candidates
def _settings(best: Sequence[OptimizerTrial]) -> Table:
    columns = (
        Column("number", is_number=False),
        Column("optimizer", is_number=False),
        Column("learning rate"),
        Column("betas"),
        Column("weight decay"),
        Column("warm-up"),
        Column("batch"),
        Column("replicas"),
        Column("steps"),
        Column("time"),
        Column("accelerator-hours"),
    )
    caption = "No other candidate reaches the target both sooner and with fewer accelerator-hours."
    pairs = [(trial, trial.reached) for trial in best if trial.reached is not None]
    return Table(columns=columns, rows=[_cells_of_settings(*pair) for pair in pairs], caption=caption)


def _cells_of_settings(trial: OptimizerTrial, reached: TargetReached) -> tuple[Cells, ...]:
    chosen, candidate = trial.candidate.optimizer, trial.candidate
    second = "" if chosen.name == "madgrad" else f" / {chosen.beta2:.4g}"
    return (
        str(trial.number),
        str(chosen.name),
        Quantity(value=chosen.learning_rate, unit=""),
        f"{chosen.beta1:.3g}{second}",
        f"{chosen.weight_decay:.2g}",
        Quantity(value=chosen.warmup_steps, unit="count"),
        Quantity(value=candidate.global_batch_size, unit="count"),
        Quantity(value=candidate.data_parallel_degree, unit="count"),
        measured(reached.num_steps, "count"),
        measured(reached.time_s, "s"),
        measured(reached.accelerator_hours, ""),
    )


def _candidates(study: StudyRun) -> Table:
    columns = (
        Column("number", is_number=False),
        Column("candidate", is_number=False, may_wrap=True),
        Column("state", is_number=False),
        Column("steps"),
        Column("loss"),
        Column("step"),
        Column("to the target"),
        Column("accelerator-hours", is_minor=True),
        Column("cost", is_minor=True),
        Column("how it ended", is_number=False, may_wrap=True),
    )
    trials = sorted(study.trials, key=_soonest_first)
    is_priced = any(trial.reached and trial.reached.cost is not None for trial in trials)
    return Table(
        columns=columns if is_priced else tuple(column for column in columns if column.name != "cost"),
        rows=[tuple(_cells_of_trial(trial, study, is_priced=is_priced)) for trial in trials],
        caption=f"{num_in_all(len(trials), 'candidate')}, the fastest to the target first",
    )


def _soonest_first(trial: OptimizerTrial) -> tuple[float, int]:
    return (trial.reached.time_s if trial.reached else math.inf, trial.number)


def _cells_of_trial(trial: OptimizerTrial, study: StudyRun, *, is_priced: bool) -> Iterator[Cells]:
    reached, losses = trial.reached, trial.curve.smoothed(study.request.window_sequences)
    yield Strong(str(trial.number)) if trial.number in study.front else str(trial.number)
    yield str(trial.candidate)
    yield State(trial.state.value)
    yield measured(trial.curve.num_steps, "count")
    yield measured(losses[-1] if losses else None, "", is_exact=True)
    yield measured(trial.curve.step_time_s if losses else None, "s")
    yield measured(reached.time_s if reached else None, "s")
    yield measured(reached.accelerator_hours if reached else None, "")
    if is_priced:
        yield measured(reached.cost if reached else None, "")
    ended = _ended(trial)
    yield sentence(ended) if ended else None


# ------------------------------------------------------------------ its pictures
def _curves(study: StudyRun) -> Plot | None:
    """Return a chart of the losses over training time; None if no candidate has two losses."""
    window, target = study.request.window_sequences, study.request.target_loss
    known = [(trial, trial.curve.smoothed(window)) for trial in study.trials]
    drawn = [(trial, losses) for trial, losses in known if len(losses) > 1 and trial.curve.step_time_s > 0]
    if not drawn:
        return None
    longest_s = max(trial.curve.num_steps * trial.curve.step_time_s for trial, _ in drawn)
    ends = [target, *(losses[0] for _, losses in drawn), *(min(losses) for _, losses in drawn)]
    marks: list[Mark] = [Rule(at=target, along="y", label=f"target {target:g}")]
    for trial, losses in sorted(drawn, key=lambda one: (one[0].number in study.front, one[0].reached is not None)):
        points, look = _thinned(trial, losses), _look(trial, study)
        marks.append(Line(points=points, look=look))
        if trial.reached:
            at, loss = points[-1]
            marks.append(Dots(dots=[Dot(x=at, y=loss, look=look, said=f"number {trial.number}: {trial.candidate}")]))
    return Plot(
        says=f"Loss over training time of {len(drawn)} candidates, with the target of {target:g}",
        x=Axis(title="training time", unit="s", low=0.0, high=longest_s),
        y=Axis.around(ends, "loss", margin=0.05),
        marks=marks,
        height=_HIGH,
        wide=_WIDE,
    )


def _look(trial: OptimizerTrial, study: StudyRun) -> Look:
    return "best" if trial.number in study.front else "measured" if trial.reached else "soft"


def _thinned(trial: OptimizerTrial, losses: Sequence[float]) -> list[tuple[float, float]]:
    """Return pairs of seconds and losses, thinned to what a picture can show; the last pair is always kept."""
    every = -(-len(losses) // _MOST_POINTS)
    numbers = [*range(0, len(losses) - 1, every), len(losses) - 1]
    return [((number + 1) * trial.curve.step_time_s, losses[number]) for number in numbers]


def _front(study: StudyRun) -> Plot | None:
    """Return a chart of time against accelerator-hours for the candidates that reached the target.

    None for less than two.
    """
    pairs = [(trial, trial.reached) for trial in study.trials if trial.reached is not None]
    if len(pairs) < 2:
        return None
    best = sorted((one.time_s, one.accelerator_hours) for trial, one in pairs if trial.number in study.front)
    dots = [
        Dot(
            x=reached.time_s,
            y=reached.accelerator_hours,
            look="best" if trial.number in study.front else "soft",
            name=str(trial.number) if trial.number in study.front else "",
            said=f"{trial.number}: {trial.candidate}",
        )
        for trial, reached in sorted(pairs, key=lambda pair: pair[0].number in study.front)  # the best lie on top
    ]
    return Plot(
        says=f"Time against accelerator-hours to the target of {len(pairs)} candidates",
        x=Axis(title="time to the target", unit="s", low=0.0, high=1.06 * max(one.time_s for _, one in pairs)),
        y=Axis(title="accelerator-hours", low=0.0, high=1.06 * max(one.accelerator_hours for _, one in pairs)),
        marks=[Line(points=stairs(best), look="front"), Dots(dots=dots)],
        height=_HIGH,
        wide=_WIDE,
    )
