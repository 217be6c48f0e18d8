"""The trials of a sweep outside its ranking: running trials, trials that ended without a rank, and repeats."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from autotuner.core.comparison import ChallengeFindings, RunGroup
from autotuner.core.field_change import difference
from autotuner.core.layout import Layout
from autotuner.core.sweep import SweepRequest
from autotuner.core.trial import FailureKind, Trial, TrialState, trial_id
from autotuner.core.units import format_bytes, format_duration
from autotuner.report.engine_jobs import engine_job_in_words, latest, waiting_in_words
from autotuner.report.layouts import choice_in_words
from autotuner.report.report import (
    Block,
    Cells,
    Code,
    Column,
    Folded,
    Lines,
    Link,
    Quantity,
    Quiet,
    Section,
    Source,
    State,
    Table,
    Words,
)
from autotuner.report.trial_facts import unranked_in_words
from autotuner.report.verdicts import findings_in_words
from autotuner.report.words import changes_in_words, counted, mfu_quantity, percent, sentence
from autotuner.search.results.failures import FailureGroup, WayOut

if TYPE_CHECKING:  # the sampler imports Optuna, which no explanation of a layout needs
    from autotuner.search.sampler.propose import LongShot, MemoryBelief

_MOST_FAILURES = 20
"""Maximum number of trials with the same cause of failure that are listed with their logs."""

_MOST_UNRANKED = 50

FAILURE_WORDS: Mapping[FailureKind, str] = {
    FailureKind.OOM: "out of memory",
    FailureKind.TIMEOUT: "timed out",
    FailureKind.COMMUNICATION: "communication failed",
    FailureKind.NUMERICS: "the loss is NaN or infinite",
    FailureKind.CRASH: "crashed",
    FailureKind.INTERRUPTED: "the service ended during the trial",
    FailureKind.INFRASTRUCTURE: "its nodes were lost, or its machine had no space",
}
"""Words for each kind of failure."""


# ---------------------------------------------------------------- under way
def under_way(trials: Sequence[Trial], source: Source, now: float) -> Section | None:
    """Return a section with the trials that run, wait for devices or are queued; None if there are none.

    Args:
        trials: The trials, with their steps.
        source: Source of the results of the sweep's trials: measured, simulated or estimated.
        now: Present time in epoch seconds.
    """
    columns = (
        Column("trial", is_number=False),
        Column("state", is_number=False),
        Column("layout", is_number=False, may_wrap=True),
        Column("progress", is_number=False, may_wrap=True),
        Column("predicted MFU"),
        Column("so far"),
    )
    rows: list[Sequence[Cells]] = [
        (_link(one), State(one.state), one.layout, stands(one, now), mfu_quantity(one.prediction), _so_far(one, source))
        for one in trials
    ]
    if not rows:
        return None
    return Section(title="Under way", id="running", blocks=(Table(columns=columns, rows=rows),))


def stands(trial: Trial, now: float) -> str:
    """Describe the progress of a trial: its current step, or the reason why it waits.

    Args:
        trial: The trial.
        now: Present time in epoch seconds.
    """
    said = []
    if trial.steps:
        said.append(f"step {len(trial.steps)}, {'warming up' if trial.steps[-1].is_warmup else 'measuring'}")
    if trial.waiting:
        said.append(waiting_in_words(trial.waiting, trial.jobs, now))
    elif job := latest(trial.jobs):
        said.append(engine_job_in_words(job, now))
    elif not trial.steps and trial.state is TrialState.RUNNING:
        said.append("starting")
    said += [f"attempt {trial.attempts}"] if trial.attempts > 1 else []
    said += [f"runs trial {trial.repeats} again"] if trial.repeats is not None else []
    return ", ".join(said)


def _so_far(trial: Trial, source: Source) -> Cells:
    if not trial.steps:
        return None
    step = trial.steps[-1]
    if trial.proxy:
        return (Quantity(value=step.step_time_s, unit="s", source=source), Quiet("a step of its proxy trial"))
    return Quantity(value=step.mfu, unit="share", source=source)


# ---------------------------------------------------------------- ended without a rank
def ended(groups: Sequence[FailureGroup], trials: Sequence[Trial], sweep_id: str) -> Section | None:
    """Return a section with failed trials by cause, and other trials that ended without a rank; None without any.

    Args:
        groups: Trials that failed, grouped by cause.
        trials: All trials of the sweep.
        sweep_id: Id of the sweep, for links.
    """
    others = [one for one in trials if _ended_otherwise(one)]
    if not groups and not others:
        return None
    blocks = [*_failed(groups, trials, sweep_id), *(_others(others, sweep_id, is_open=not groups) if others else [])]
    return Section(title="Ended without a rank", id="ended", blocks=blocks)


def _ended_otherwise(trial: Trial) -> bool:
    """Return True if the trial ended without a rank, did not fail, and repeats no other trial."""
    return trial.state.finished and not trial.is_ranked and trial.failure is None and not is_repeat(trial)


def is_repeat(trial: Trial) -> bool:
    """Return True if a trial repeats the layout of another trial, to measure noise, and was measured."""
    return trial.repeats is not None and trial.ran_measurement is not None


def _failed(groups: Sequence[FailureGroup], trials: Sequence[Trial], sweep_id: str) -> Iterator[Block]:
    if not groups:
        return
    columns = (
        Column("cause", is_number=False),
        Column("trials"),
        Column("in common", is_number=False, may_wrap=True),
        Column("to do", is_number=False, may_wrap=True),
    )
    rows: list[Sequence[Cells]] = [
        (State(FAILURE_WORDS[group.kind], "failed"), str(len(group.trials)), _shared(group), _to_do(group, sweep_id))
        for group in groups
    ]
    yield Table(columns=columns, rows=rows)
    logs = {one.id: one.failure.log_tail for one in trials if one.failure is not None}
    for place, group in enumerate(groups, 1):
        yield _logs(group, logs, place, sweep_id)


def _shared(group: FailureGroup) -> str:
    num = len(group.trials)
    said = [
        f"{one.num_failed} of the {num} failed trials have {choice_in_words(one.choice, one.value)}, and {one.num_ran} "
        f"of the {group.num_ran} trials that ran have it"
        for one in group.shared
    ]
    said = [*decisive(group), *said] or [group.trials[0].message]
    return " ".join(map(sentence, said))


def _to_do(group: FailureGroup, sweep_id: str) -> Cells:
    words, trial = sentence(way_out(group)), group.way_out.trial
    return words if trial is None else (words, Link(f"Trial {trial}", "trials", trial_id(sweep_id, trial)))


def decisive(group: FailureGroup) -> Iterator[str]:
    """Yield, in words, the number that explains a group of failed trials, such as the bytes needed and their limit.

    It yields nothing if no number explains them.
    """
    if (found := group.decisive) is None:
        return
    limit = found.limit or 0.0
    match found.unit:
        case "bytes":
            ends = dict.fromkeys(format_bytes(peak) for peak in (found.least, found.most) if peak is not None)
            fitting = f"; {group.num_fitting} of {len(group.trials)} were predicted to fit" if group.num_fitting else ""
            yield f"predicted to need {' to '.join(ends)} of {format_bytes(limit)}{fitting}"
        case "s":
            steps = "the smallest number of steps of the slowest layout is predicted to take"
            needed = "" if found.most is None else f"; {steps} {format_duration(found.most)}"
            yield f"not complete after {format_duration(limit)}{needed}"
        case "attempts":
            yield f"started up to {found.most or 1:.0f} times"


def way_out(group: FailureGroup) -> str:
    """Return advice on trials that failed for the same cause, such as a similar layout that ran."""
    match group.kind:
        case FailureKind.OOM:
            return _that_ran(group.way_out) or _more_memory(group)
        case FailureKind.TIMEOUT:
            return _more_time(group)
        case FailureKind.INTERRUPTED | FailureKind.INFRASTRUCTURE:
            return "run them again when the machines are back; the failures say nothing about their layouts"
        case _:
            said = ("read the log of the rank that died first", _that_ran(group.way_out))
            return "; ".join(filter(None, said))


def _that_ran(out: WayOut) -> str:
    if out.layout is None:
        return ""
    if out.layout == out.died:
        return f"trial {out.trial} ran the same layout: it may be run again"
    peak = "" if out.peak_bytes is None else f", in {format_bytes(out.peak_bytes)}"
    return f"trial {out.trial} ran with {changes_in_words(difference(out.died, out.layout))}{peak}"


def _more_memory(group: FailureGroup) -> str:
    """Return advice for a sweep in which everything ran out of memory, with the least amount that a layout lacked."""
    found, most = group.decisive, "use more recomputation, more sharding or more ranks"
    lacks = (found.least or 0.0) - (found.limit or 0.0) if found else 0.0
    if lacks <= 0:
        return f"no trial of the sweep ran; {most}"
    return (
        f"no trial of the sweep ran; the layout that needs least memory, {group.way_out.died}, needs "
        f"{format_bytes(lacks)} more than there is: {most}"
    )


def _more_time(group: FailureGroup) -> str:
    """Return advice on trials that timed out: a longer limit if their steps need it; else something hangs."""
    if group.way_out.timeout_s is not None:
        return f"set the timeout_s of trials to {group.way_out.timeout_s:,.0f}, or take fewer steps"
    if group.decisive is None or group.decisive.most is None:
        return "give trials more time, or take fewer steps"
    return (
        "their steps are predicted to need less time, so something hangs: read the log of the rank that reported last"
    )


def _logs(group: FailureGroup, logs: Mapping[str, str], place: int, sweep_id: str) -> Folded:
    num, head = len(group.trials), group.trials[:_MOST_FAILURES]
    which = "the trial with its log" if num == 1 else f"the {num} trials with their logs"
    inside: list[Block] = []
    for one in head:
        id_of = trial_id(sweep_id, one.trial)
        log = logs.get(id_of, "")
        link = Link(f"trial {one.trial}", "trials", id_of, part="log" if log else "")
        inside.append(Lines(items=((link, one.message),), is_list=False))
        if log:
            of_rank = "" if one.rank is None else f" of rank {one.rank}"
            code = Code(log, id=f"lines-{id_of}")
            inside.append(Folded(summary=f"Log{of_rank}", id=f"log-{id_of}", blocks=(code,)))
    if rest := group.trials[_MOST_FAILURES:]:
        links = (Link(str(one.trial), "trials", trial_id(sweep_id, one.trial)) for one in rest)
        inside.append(Lines(items=(("And", *links),)))
    return Folded(summary=f"{FAILURE_WORDS[group.kind]}: {which}", id=f"failed-{place}", blocks=inside)


def _others(trials: Sequence[Trial], sweep_id: str, *, is_open: bool) -> Iterator[Block]:
    blocks: list[Block] = [trials_table(trials[:_MOST_UNRANKED])]
    if len(trials) > _MOST_UNRANKED:
        all_of_them = Link("all as JSON", f"api/v1/sweeps/{sweep_id}/trials", query={"limit": 500})
        blocks.append(Lines(items=((f"The first {_MOST_UNRANKED} of them;", all_of_them, "."),), is_quiet=True))
    summary = f"{len(trials)} ended for another reason"
    yield Folded(summary=summary, id="unranked", blocks=blocks, is_open=is_open)


def trials_table(trials: Sequence[Trial], said: Mapping[str, str] | None = None) -> Table:
    """Return a table of trials, each with the reason why it has no rank.

    Args:
        trials: The trials, by number.
        said: Further notes by the trial's id; None: none.
    """
    columns = (
        Column("trial", is_number=False),
        Column("state", is_number=False),
        Column("layout", is_number=False, may_wrap=True),
        Column("why", is_number=False, may_wrap=True),
    )
    known = said or {}
    rows = [(_link(one), State(one.state), one.layout, why(one, known.get(one.id, "")) or None) for one in trials]
    return Table(columns=columns, rows=rows, name="Trials without a rank")


def why(trial: Trial, said: str = "") -> str:
    """Describe why a trial has no rank. If no reason is known, return the given note.

    The note is also returned for a measured trial whose convergence gate has no result yet.

    Args:
        trial: The trial.
        said: Last note on the trial; empty: none.
    """
    if failure := trial.failure:
        return f"{failure.kind}: {failure.message}"
    if trial.stopped and trial.stopped.detail:
        return trial.stopped.detail
    if trial.state is TrialState.PRUNED:
        return "its first steps were too slow"
    is_looked_at = trial.ran_measurement is not None and trial.gate is None and bool(said)
    return said if is_looked_at else unranked_in_words(trial) or said


# ---------------------------------------------------------------- run again
def run_again(trials: Sequence[Trial], source: Source) -> Section | None:
    """Return a section with the trials that repeat another trial's layout; None if there are none.

    Args:
        trials: All trials of the sweep.
        source: Source of the trials' results: measured, simulated or estimated.
    """
    found = [one for one in trials if is_repeat(one)]
    return Section(title="Run again", id="again", blocks=(_repeats(found, source),)) if found else None


def _repeats(trials: Sequence[Trial], source: Source) -> Table:
    columns = (
        Column("trial", is_number=False),
        Column("state", is_number=False),
        Column("layout", is_number=False, may_wrap=True),
        Column("runs again", is_number=False),
        Column(f"{source} MFU"),
        Column("throughput"),
        Column("step"),
    )
    rows: list[Sequence[Cells]] = []
    for one in trials:
        found = one.ran_measurement
        figures: Sequence[Cells] = (
            Quantity(value=None if found is None else found.mfu, unit="share", source=source),
            Quantity(value=None if found is None else found.tokens_per_s, unit="tokens/s", source=source),
            Quantity(value=None if found is None else found.step_time_s, unit="s", source=source),
        )
        rows.append((_link(one), State(one.state), one.layout, f"trial {one.repeats}", *figures))
    return Table(columns=columns, rows=rows, name="Trials that ran again", source=source)


# ---------------------------------------------------------------- compared
def compared(
    request: SweepRequest, found: ChallengeFindings, trials: Sequence[Trial], source: Source
) -> Section | None:
    """Return a section that compares the best layout found with the layout in use or with a stored baseline.

    Args:
        request: The request of the sweep.
        found: Results of the compared runs so far.
        trials: All trials of the sweep.
        source: Source of the trials' results: measured, simulated or estimated.

    Returns:
        The section; None if the sweep compares nothing.
    """
    challenge = request.challenge
    if challenge is None:
        return None
    said = findings_in_words(found, is_simulated=source == "simulated")
    nothing = (
        "No trial ran yet; the layout in use is measured first."
        if challenge.incumbent
        else "Nothing is compared yet; the best layout that the search finds runs again, and is compared with the "
        "baseline."
    )
    blocks: list[Block] = [Lines(items=[*map(sentence, said)] or [nothing], is_list=False)]
    rows: list[Sequence[Cells]] = []
    if baseline := challenge.baseline:
        rates = tuple(rate for group in baseline for rate in group.rates)
        mfu = sum(group.mfu for group in baseline) / len(baseline)
        rows.append(_runs(f"Baseline of {counted(len(baseline), 'session')}", None, rates, mfu, source))
    if found.runs:
        rows.append(_group("In use, now" if challenge.incumbent else "Best found", found.measured, found.runs, source))
    if found.challenger_runs:
        rows.append(_group("Best found", found.challenger, found.challenger_runs, source))
    if rows:
        blocks.append(_runs_table(rows, source))
    repeats = [one for one in trials if is_repeat(one)]
    if repeats:
        summary = f"{counted(len(repeats), 'repeated run')} of layouts"
        blocks.append(Folded(summary=summary, id="repeats", blocks=(_repeats(repeats, source),)))
    return Section(title="Compared", id="compared", blocks=blocks)


def _runs_table(rows: Sequence[Sequence[Cells]], source: Source) -> Table:
    columns = (
        Column("layout", is_number=False, may_wrap=True),
        Column("runs"),
        Column("mean MFU"),
        Column("mean throughput"),
        Column("least"),
        Column("most"),
    )
    caption = "All runs of the compared layouts, without the run in which the search found the best layout."
    return Table(columns=columns, rows=rows, caption=caption, source=source)


def _group(name: str, layout: Layout | None, group: RunGroup, source: Source) -> Sequence[Cells]:
    return _runs(name, layout, group.rates, group.mfu, source)


def _runs(name: str, layout: Layout | None, rates: Sequence[float], mfu: float, source: Source) -> Sequence[Cells]:
    mean, least, most = (
        Quantity(value=value, unit="tokens/s", source=source)
        for value in (sum(rates) / len(rates), min(rates), max(rates))
    )
    named: Cells = name if layout is None else (name, Words(str(layout)))
    return (named, str(len(rates)), Quantity(value=mfu, unit="share", source=source), mean, least, most)


def _link(trial: Trial) -> Link:
    return Link(str(trial.number), "trials", trial.id, key=f"trial-{trial.id}")


# ---------------------------------------------------------------- notes
def long_shot_in_words(shot: LongShot, raised: str) -> str:
    """Describe why a layout is tried although it probably does not fit in memory.

    Example: ``only 31 % likely to fit in memory, and tried since …``.

    Args:
        shot: Probabilities and expected gains because of which the search proposed the layout.
        raised: Name of the value that a trial may raise: ``best MFU``.
    """
    chance = f"only {percent(shot.fit_probability)} likely to fit in memory; it is tried because"
    if shot.likely_gain is None:
        return f"{chance} no untried layout is more likely to fit than not"
    gain = "" if math.isinf(shot.expected_gain) else f" by {_gain(shot.expected_gain)}"
    likely = f"a layout that is more likely to fit than not by {_gain(shot.likely_gain)} at most"
    return f"{chance} it is nevertheless expected to raise the {raised}{gain}; {likely}"


def memory_in_words(belief: MemoryBelief) -> str:
    """Describe how the search corrects predicted memory peaks.

    Example: ``peaks are now believed to be 1.06 x the predicted ones …``.
    """
    peaks = f"memory peaks are now estimated as {belief.factor:.2f} x the predicted ones"
    interval = f"8 of 10 layouts between {belief.low:.2f} and {belief.high:.2f} x"
    left = f"{belief.num_likely:,} of {belief.num_untried:,} untried layouts are more likely to fit than not"
    return f"{peaks}, {interval}; {left}"


def _gain(share: float) -> str:
    return f"{100 * share:.2g} %"
