"""The report of a trial: its result, the parts of its time and memory, its neighbours, steps, losses and jobs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Literal

from autotuner.core.measurement import Measurement
from autotuner.core.prediction import Prediction, TrialEstimate
from autotuner.core.sweep import Sweep
from autotuner.core.trial import RankedTime, Trial, trial_id
from autotuner.core.units import format_bytes, format_seconds
from autotuner.report.caveats import caveats_in_words
from autotuner.report.charts import BarCell, Unit
from autotuner.report.engine_jobs import engine_in_words, waiting_in_words
from autotuner.report.explanation import alternative_in_words, refusal_in_words
from autotuner.report.parts import PART_WORDS, loss_in_words
from autotuner.report.report import (
    Block,
    Cell,
    Cells,
    Chip,
    Code,
    Column,
    Figure,
    Folded,
    Lines,
    Link,
    Notice,
    Quantity,
    Quiet,
    Report,
    Section,
    Source,
    State,
    Strong,
    Table,
    Words,
    measured,
    predicted,
)
from autotuner.report.sweep_trials import FAILURE_WORDS, decisive, way_out
from autotuner.report.trial_facts import EMULATED, certainty, facts, has_own_peak, unranked_in_words
from autotuner.report.trial_parts import (
    Ran,
    loss_curves,
    losses_section,
    memory_section,
    step_section,
    steps_section,
)
from autotuner.report.words import (
    changes_in_words,
    counted,
    estimate_in_words,
    fit_in_words,
    gate_in_words,
    mfu_quantity,
    percent,
    plain,
    sentence,
    size_in_words,
)
from autotuner.search.explain.explanation import Explanation, TrialParts
from autotuner.search.results.failures import FailureGroup
from autotuner.search.results.reached import standings
from autotuner.search.space.moves import Alternative

_TIGHT = 0.95
"""Share of the memory limit from which a peak counts as close to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialResult:
    """The content of a trial's report: the trial with its sweep, its parts, its explanation and similar failures."""

    trial: Trial
    sweep: Sweep
    times: Sequence[RankedTime]
    """Times of the ranked trials of the sweep, the best first."""
    parts: TrialParts | None
    """Parts of the trial; None if a rule that was added later forbids its layout. Then the explanation is None too."""
    explanation: Explanation | None
    failure: FailureGroup | None
    """Trials of the sweep that failed for the same reason; None if the trial did not fail."""
    now: float
    """Present time in epoch seconds."""

    @property
    def source(self) -> Source:
        """Source of the results of the sweep's trials: measured or simulated."""
        return self.sweep.request.runs_on.source

    @property
    def rank(self) -> int | None:
        """Place of the trial in the ranking of its sweep, from 1; None if it has no rank."""
        ids = [time.trial_id for time in self.times]
        return ids.index(self.trial.id) + 1 if self.trial.id in ids else None


def trial_report(result: TrialResult, explore: Mapping[str, str] | None = None) -> Report:
    """Return the report of a trial: its result, the parts of its step and memory, and the neighbours of its layout.

    Neighbours are layouts that differ in one option. Further sections, such as loss curves and engine jobs, appear if
    the trial has them.

    Args:
        result: The trial and what is known about it.
        explore: Query parameters with which ``/explore`` shows the trial's job; None: neighbours of the layout have no
            links.
    """
    trial = result.trial
    sections = [_standing(result)]
    if result.parts is not None and result.explanation is not None:
        ran = Ran(trial=trial, source=result.source, parts=result.parts, explanation=result.explanation)
        sections += [step_section(ran), memory_section(ran), _neighbours(result.explanation, explore)]
    if trial.proxy is not None:
        sections.append(_proxy(result))
    if trial.steps:
        sections.append(steps_section(trial))
    if trial.gate is not None and (chart := loss_curves(trial.gate)) is not None:
        sections.append(losses_section(trial, trial.gate, chart))
    if trial.ran_measurement is not None:
        sections.append(_how(result, trial.ran_measurement))
    if trial.jobs:
        sections.append(_jobs(result))
    headline = f"Trial {trial.number} of {result.sweep.request.name or result.sweep.id}"
    return Report(headline=headline, state=State(trial.state), facts=[*_facts(result)], sections=sections)


def _facts(result: TrialResult) -> Iterator[Cell]:
    request, job = result.sweep.request, result.sweep.request.job
    size = size_in_words(job.model.num_parameters, job.model.num_active_parameters)
    engine = engine_in_words(request.runs_on.engine, request.runs_on.queue)
    yield Words(str(result.trial.layout))
    yield from ("·", Strong(job.model.name), f"({size}) on", Strong(job.cluster.name))
    yield from [f"({engine})"] if engine else []
    yield from (", tried on", Strong(request.trial_cluster.name)) if request.trial_cluster else ()
    yield f"· {job.workload.global_batch_size:,} sequences of {job.workload.seq_len:,} tokens per step"
    if request.trainer:
        yield from ("· trained by", Strong(request.trainer.name), f"({request.trainer.format.value})")


# ------------------------------------------------------------------ result
def _standing(result: TrialResult) -> Section:
    trial = result.trial
    head: list[Cell] = [State(trial.state)]
    if result.rank is not None:
        head.append(Strong(f"rank {result.rank} of {len(result.times)}"))
        head += [Chip(words, "tie" if result.rank > 1 else "") for words in filter(None, [_place(result, result.rank)])]
    head += [Chip(gate_in_words(result.trial.gate_outcome))] if result.trial.gate_outcome else []
    blocks: list[Block] = [Lines(items=(tuple(head),), is_list=False)]
    blocks += _failure(result)
    blocks.append([*_figures(result)])
    blocks += _notices(result)
    blocks.append(Lines(items=(tuple(_sources(result)),), is_quiet=True))
    return Section(id="standing", title="Result", is_silent=True, blocks=blocks)


def _place(result: TrialResult, rank: int) -> str:
    """Return how sure the trial's rank is: its chance to be the fastest, or a tie with the first.

    Empty if it is certain.
    """
    standing = standings(result.times)[result.trial.id]
    chance = standing.probability_best
    words = f"{percent(chance)} likely the fastest" if chance < 0.995 else ""
    if rank == 1:
        return words
    return ", ".join(filter(None, ("tied with the first", words))) if standing.tied_with_best else ""


def _failure(result: TrialResult) -> Iterator[Block]:
    failure, group = result.trial.failure, result.failure
    if failure is None:
        return
    more: list[Cells] = []
    if group is not None:
        ran = group.way_out.trial
        link = () if ran is None else (Link(f"Open trial {ran}", "trials", trial_id(result.sweep.id, ran)),)
        more += map(sentence, decisive(group))
        more.append((Strong("What to do:"), sentence(way_out(group)), *link))
        more += [f"{len(group.trials)} trials of this sweep failed for this reason."] if len(group.trials) > 1 else []
    cause = FAILURE_WORDS[failure.kind] if group else plain(failure.kind)
    yield Notice(words=(failure.message,), look="bad", title=cause.capitalize(), more=more)
    if failure.log_tail:
        summary = "Log" if failure.rank is None else f"Log of rank {failure.rank}"
        yield Folded(summary=summary, blocks=(Code(failure.log_tail, id="log"),), id=f"log-{result.trial.id}")


def _notices(result: TrialResult) -> Iterator[Block]:
    trial = result.trial
    if trial.layout.is_emulated:
        words = ": fp8 values multiplied in bf16 show the losses of fp8, but never its speed."
        yield Notice(words=(Strong(EMULATED), words), look="warn")
    if trial.waiting:
        waits = sentence(waiting_in_words(trial.waiting, trial.jobs, result.now))
        yield Notice(words=f"{waits} Waiting takes no accelerator-hours.")
    if trial.stopped and trial.stopped.detail:
        yield Notice(words=(trial.stopped.detail,))
    if trial.repeats is not None:
        words = f"It repeats the layout of trial {trial.repeats} for a comparison and has no rank of its own."
        yield Notice(words=words)
    yield from _gate_notice(result)
    if result.parts is not None and result.explanation is not None:
        look: Literal["good", ""] = "good" if result.rank == 1 else ""
        yield Notice(words=_verdict(result.parts, result.explanation), look=look)
    else:
        words = "A newer rule forbids the layout of this trial, so there is no explanation of it."
        yield Notice(words=words, look="warn")


def _gate_notice(result: TrialResult) -> Iterator[Notice]:
    trial, outcome = result.trial, result.trial.gate_outcome
    if outcome is None:
        return
    said, unranked = Strong(gate_in_words(outcome).capitalize()), unranked_in_words(trial)
    if trial.gate is not None and loss_curves(trial.gate) is None:
        yield Notice(words=(said, f": {trial.gate.detail}"))
    elif unranked and not trial.layout.is_emulated:
        yield Notice(words=unranked, look="warn")
    elif trial.gate is None:
        words = ": the layout is not numerically equivalent, and its losses were not compared with a reference."
        yield Notice(words=(said, words), look="warn")


def _verdict(parts: TrialParts, explanation: Explanation) -> str:
    whose = "About the proxy trial: " if parts.is_small else ""
    lost = loss_in_words(parts.step if parts.step.rank is not None else parts.predicted_step)
    if not explanation.helpful:
        return f"{whose}{lost} No single change that fits in memory is predicted to save 1 % of the step time."
    first = explanation.helpful[0]
    saved = f"{100 * abs(first.saved_share):.1f} % {'less' if first.saved_share >= 0 else 'more'} step time"
    how = saved if abs(first.saved_share) >= 0.001 else "it fits more surely"
    return f"{whose}{lost} Best predicted single change: {changes_in_words(first.changes)}, {how}."


def _sources(result: TrialResult) -> Iterator[Cell]:
    trial, prediction = result.trial, result.trial.prediction
    if trial.estimate is not None:
        num_trials = trial.estimate.full_size.num_proxy_trials
        corrected = f"corrected by all {num_trials} proxy trials of the sweep"
        said = estimate_in_words(trial.estimate).capitalize()
        yield f"{said}, and {corrected}; not measured at this size, ± is its 80 % interval."
    elif trial.ran_measurement is not None:
        if result.source == "simulated":
            yield from (
                Strong("Simulated: nothing ran"),
                "; times come from the cost model with random noise (fixed seed).",
            )
        yield f"{result.source.capitalize()} values: ± is the 95 % interval of the median step."
    yield "Predicted values: from before the trial, ± is their 80 % interval"
    if prediction.never_compared:
        names = ", ".join(prediction.never_compared)
        yield from (",", Strong(f"never compared with a measured run: {names}"))
    elif not prediction.validated:
        yield from (",", Strong("not validated on this stack and device"))
    yield "."
    yield from map(sentence, caveats_in_words(result.explanation.caveats if result.explanation else ()))


# ------------------------------------------------------------------ its figures
def _figures(result: TrialResult) -> Iterator[Figure]:
    """Yield the figures that the trial reached beside the predicted ones; only the predicted ones without a result."""
    trial = result.trial
    limit = f"of {format_bytes(result.parts.limit_bytes)}" if result.parts and not result.parts.is_small else ""
    if trial.measurement is not None:
        yield from _measured(trial, trial.measurement, result.source, limit)
    elif trial.estimate is not None:
        yield from _estimated(trial, trial.estimate, limit)
    else:
        yield from _predicted(trial, limit)


def _measured(trial: Trial, found: Measurement, source: Source, limit: str) -> Iterator[Figure]:
    prediction, off = trial.prediction, found.step_time_error_s / found.step_time_s
    yield Figure(f"MFU, {source}", measured(found.mfu, "share", off * found.mfu, source), is_first=True)
    if (robust := found.robust) is not None:
        half = robust.mfu * robust.step_time_error_s / robust.step_time_s
        yield Figure("robust MFU", measured(robust.mfu, "share", half, source))
    yield Figure("MFU, predicted", mfu_quantity(prediction))
    yield from _own_peak(trial, found.mfu, found.precision_utilization, source)
    yield Figure("step", Quantity(value=found.step_time_s, unit="s", source=source, beside=certainty(found)))
    yield Figure("step, predicted", _predicted_step(prediction))
    yield Figure("throughput", Quantity(value=found.tokens_per_s, unit="tokens/s", source=source))
    if found.peak_bytes:
        peak = Quantity(value=float(max(found.peak_bytes)), unit="bytes", source=source, beside=limit)
        yield Figure("peak memory", peak)


def _estimated(trial: Trial, estimate: TrialEstimate, limit: str) -> Iterator[Figure]:
    whole = estimate.full_size
    fit = fit_in_words(whole.fit_probability >= 0.5, whole.fit_probability)
    mfu = _around(estimate.mfu, "share", whole.relative_error, highest=max(1.0, estimate.mfu))
    yield Figure("MFU, estimated", mfu, is_first=True)
    yield Figure("MFU, predicted", mfu_quantity(trial.prediction))
    yield Figure("step", _around(whole.step_time_s, "s", whole.relative_error))
    yield Figure("step, predicted", _predicted_step(trial.prediction))
    yield Figure("throughput", Quantity(value=estimate.tokens_per_s, unit="tokens/s", source="estimated"))
    beside = ", ".join(filter(None, (limit, fit)))
    peak = Quantity(value=whole.peak_bytes, unit="bytes", source="estimated", beside=beside)
    yield Figure("peak memory", peak)


def _around(value: float, unit: Unit, error: float, highest: float | None = None) -> Quantity:
    return replace(predicted(value, unit, error, highest), source="estimated")


def _predicted(trial: Trial, limit: str) -> Iterator[Figure]:
    prediction = trial.prediction
    yield Figure("MFU, predicted", mfu_quantity(prediction), is_first=True)
    yield from _own_peak(trial, prediction.mfu, prediction.precision_utilization, "predicted")
    yield Figure("step", _predicted_step(prediction))
    yield Figure("throughput", Quantity(value=prediction.tokens_per_s, unit="tokens/s", source="predicted"))
    beside = ", ".join(filter(None, (limit, fit_in_words(prediction.fits, prediction.fit_probability))))
    peak = Quantity(value=prediction.memory.total_bytes, unit="bytes", source="predicted", beside=beside)
    yield Figure("peak memory", peak)


def _predicted_step(prediction: Prediction) -> Quantity:
    return predicted(prediction.step_time.total_s, "s", prediction.relative_error)


def _own_peak(trial: Trial, mfu: float, utilization: float | None, source: Source) -> Iterator[Figure]:
    """Yield the utilization of the precision's own peak, if MFU refers to another peak."""
    if has_own_peak(mfu, utilization):
        own = Quantity(value=utilization, unit="share", source=source)
        yield Figure(f"of its {plain(trial.layout.precision)} peak", own)


# ------------------------------------------------------------------ one step away
def _neighbours(explanation: Explanation, explore: Mapping[str, str] | None) -> Section:
    found = [*explanation.helpful, *explanation.too_large]
    most = max((abs(change.saved_share) for change in found), default=0.0)
    columns = (
        Column("Change", is_number=False),
        Column("Step time, drawn", is_drawn=True, is_minor=True),
        Column("Step time"),
        Column("Memory", is_number=False),
        *([Column("", is_number=False)] if explore is not None else []),
    )
    table = Table(
        columns=columns,
        rows=[tuple(_cells_of_change(one, most, explanation.limit_bytes, explore)) for one in found],
        if_empty="No single change that fits in memory is predicted to save 1 % of the step time.",
        is_compact=True,
    )
    blocks: list[Block] = [table]
    if found:
        effects = Lines(items=[alternative_in_words(one, explanation.prediction) for one in found])
        blocks.append(Folded(id="effects", summary="Effect of each change on time and memory", blocks=(effects,)))
    if explanation.illegal:
        refused = [*map(refusal_in_words, explanation.illegal)]
        summary = f"{counted(len(refused), 'change')} that cannot run"
        blocks.append(Folded(id="illegal", summary=summary, blocks=(Lines(items=refused),)))
    note = "Predicted effect of each single change. The differences are more certain than the step times themselves."
    return Section(id="changes", title="Effects of single changes", note=note, blocks=blocks)


def _cells_of_change(
    change: Alternative, most: float, limit_bytes: float, explore: Mapping[str, str] | None
) -> Iterator[Cells]:
    fits, gains, then = change.excess_bytes == 0, change.saved_share >= 0, change.prediction
    yield changes_in_words(change.changes)
    look = ("gain" if gains else "loss") if fits else "p-band"
    yield BarCell(value=abs(change.saved_share), most=most, look=look) if most else ""
    moves = round(1000 * change.saved_share) != 0
    yield Quantity(
        value=-change.saved_share if moves else 0.0, unit="signed_share" if moves else "share", source="predicted"
    )
    if fits:
        is_tight = then.memory.total_bytes > _TIGHT * limit_bytes
        yield Chip(fit_in_words(then.fits, then.fit_probability), "tight" if is_tight else "")
    else:
        yield Chip(f"{format_bytes(change.excess_bytes)} too large", "oom")
    if explore is not None:
        yield Link("try", "explore", query={**explore, "layout": str(change.layout)})


# ------------------------------------------------------------------ what ran
def _proxy(result: TrialResult) -> Section:
    trial, source, job = result.trial, result.source, result.sweep.request.job
    small, found = trial.proxy, trial.ran_measurement
    assert small is not None, "a proxy trial ran"
    step = Quantity(
        value=found.step_time_s if found else None, unit="s", source=source, beside=certainty(found) if found else ""
    )
    peak_bytes = float(max(found.peak_bytes)) if found and found.peak_bytes else None
    figures = (
        Figure("Ranks", f"{small.num_ranks} of {trial.layout.world_size}"),
        Figure("Layers", f"{small.num_layers} of {job.model.num_layers}"),
        Figure("Sequences per step", f"{small.global_batch_size} of {job.workload.global_batch_size}"),
        Figure(f"Its step time, {source}", step),
        Figure(f"Its peak per rank, {source}", Quantity(value=peak_bytes, unit="bytes", source=source)),
    )
    head = Lines(items=((small.layout,), (Words(str(small.layout)),)), is_list=False)
    blocks: list[Block] = [head, figures]
    if trial.estimate is not None:
        blocks.append(_known_from(trial, trial.estimate))
    return Section(id="small", title="The proxy trial that ran in its place", blocks=blocks)


def _known_from(trial: Trial, estimate: TrialEstimate) -> Table:
    """Return a table of the parts of the full-size step, the longest first, with the source of each."""
    step_time, whole = trial.prediction.step_time, estimate.full_size
    shares = {one.name: getattr(step_time, one.name) / step_time.total_s for one in fields(step_time)}
    rows = [
        (
            PART_WORDS[part],
            Quantity(value=share, unit="chance", source="predicted"),
            "the proxy trial" if part in whole.measured_parts else Quiet("the cost model"),
        )
        for part, share in sorted(shares.items(), key=lambda pair: -pair[1])
        if share >= 0.01
    ]
    caption = (
        "Parts of the full-size step from the cost model. The proxy trial (a smaller trial that stands for it) ran "
        f"{percent(whole.measured_share)} of the step unchanged; the rest is predicted, and corrected by all proxy "
        "trials."
    )
    columns = (Column("Part", is_number=False), Column("Share, predicted"), Column("Known from", is_number=False))
    return Table(columns=columns, rows=rows, caption=caption, is_compact=True)


def _how(result: TrialResult, found: Measurement) -> Section:
    whose = "the proxy trial" if result.trial.proxy else "it"
    figures = [
        Figure(name.capitalize() if name == name.lower() else name, text)
        for name, text in facts(found).items()
        if name != "links"
    ]
    blocks: list[Block] = [figures]
    if found.phases:
        times = (found.phases.forward_backward_s, found.phases.gradient_sync_s, found.phases.optimizer_s)
        whole, sync, update = map(format_seconds, times)
        words = f"forward and backward {whole}, waiting for gradients {sync}, optimizer {update}"
        blocks.append(Lines(items=(f"Phases of the timed steps, each on its slowest rank: {words}.",), is_quiet=True))
    elif not found.breakdown:
        blocks.append(Lines(items=("Steps of a registered trainer are timed as a whole.",), is_quiet=True))
    columns = (Column("Name", is_number=False), Column("Value", is_number=False, may_wrap=True))
    table = Table(columns=columns, rows=[*found.environment.items()], name="Environment", is_compact=True)
    blocks.append(Folded(id="environment", summary="Environment", blocks=(table,)))
    return Section(id="measured", title=f"How {whose} was {result.source}", blocks=blocks)


def _jobs(result: TrialResult) -> Section:
    rows = [
        (
            (f"{job.engine} {job.handle}", Quiet(job.name)),
            str(job.phase),
            Quantity(value=job.queued_s(result.now), unit="duration"),
            Quantity(value=None if job.started_at is None else job.running_s(result.now), unit="duration"),
            job.detail,
        )
        for job in result.trial.jobs
    ]
    columns = (
        Column("Job", is_number=False),
        Column("State", is_number=False),
        Column("Waited"),
        Column("Ran"),
        Column("Why", is_number=False, may_wrap=True),
    )
    note = (
        "Jobs that engines ran for it. Waiting in a queue counts neither towards its time limit nor its "
        "accelerator-hours."
    )
    return Section(id="jobs", title="Jobs", note=note, blocks=(Table(columns=columns, rows=rows),))
