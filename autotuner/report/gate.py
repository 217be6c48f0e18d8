"""The reports of performance gates: the list, a measured gate, a predicted gate, and the baselines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from statistics import fmean

from autotuner.core.comparison import Comparison, RunGroup
from autotuner.core.field_change import difference
from autotuner.core.job import Job
from autotuner.core.upkeep import Baseline, GateRun
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
    Source,
    State,
    Strong,
    Table,
    Words,
    measured,
    predicted,
)
from autotuner.report.verdicts import predicted_verdict
from autotuner.report.words import changes_in_words, counted, environment_change, num_in_all, sentence
from autotuner.search.upkeep.gate_prediction import PredictedGate

_NONE = (
    "No gate yet. A gate measures how fast a changed program trains, and compares this with a stored baseline. The "
    "first gate sets the baseline:"
)


_NEW = "this change"


# ------------------------------------------------------------------ the list of gates
def gates_report(
    gates: Sequence[GateRun],
    total: int,
    baselines: Sequence[Baseline] = (),
    server: str = "",
    pager: Pager | None = None,
) -> Report:
    """Return the report of performance regression gates, newest first, and of the baselines they are compared with.

    Args:
        gates: Gates of this page, newest first.
        total: Number of all gates.
        baselines: Stored baselines; empty: they are not shown.
        server: URL for the option ``--server`` of the commands that the report shows; empty: no such option.
        pager: Links to newer and older gates; None: there are none.
    """
    columns = (
        Column("gate", is_number=False),
        Column("outcome", is_number=False),
        Column("job", is_number=False, is_minor=True),
        Column("compared with", is_number=False),
        Column("change"),
        Column("software", is_number=False, may_wrap=True),
        Column("created", is_number=False, is_minor=True),
    )
    table = Table(
        columns=columns,
        rows=[tuple(_cells_of(one)) for one in gates],
        caption=f"{num_in_all(total, 'gate')}, newest first",
        if_empty=_NONE if not total else "",
    )
    first = (
        "autotuner gate --model llama-demo --cluster local --seq-len 128 --global-batch-size 16 \\\n"
        f'  --layout "mb1 fp32" --baseline main --set-baseline{f" --server {server}" if server else ""}'
    )
    below: Sequence[Block] = [pager] if pager else []
    sections = [Section(blocks=(table, *below) if total else (table, Code(first)))]
    sections += [Section(title="Baselines", blocks=(_baselines(baselines),))] if baselines else []
    return Report(headline="Performance regression gates", sections=sections)


def _cells_of(gate: GateRun) -> Iterator[Cells]:
    asked, job = gate.request.gate, gate.request.gate.sweep.job
    is_reused = gate.result is not None and gate.result.reused_from is not None
    yield Link(gate.id, "gates", gate.id, key=f"link-{gate.id}")
    yield (State(gate.word), Quiet("by earlier runs")) if is_reused else State(gate.word)
    yield (job.model.name, Quiet(f"on {job.cluster.name}"))
    yield (asked.baseline, Quiet("sets it")) if asked.sets_baseline else asked.baseline
    against = _against(gate)
    yield None if against is None else _change(against, _source(gate))
    yield asked.software or None
    yield (Moment(gate.created_at), Quiet(f"by {gate.created_by}")) if gate.created_by else Moment(gate.created_at)


def baselines_report(baselines: Sequence[Baseline], *, is_removed: bool = False) -> Report:
    """Return the report of stored baselines (earlier results that gates compare with), or of those just removed.

    Args:
        baselines: The baselines.
        is_removed: True if the baselines were removed.
    """
    headline = "Forgotten" if is_removed else "Baselines"
    return Report(headline=headline, sections=(Section(blocks=(_baselines(baselines),)),))


def _baselines(baselines: Sequence[Baseline]) -> Table:
    columns = (
        Column("name", is_number=False),
        Column("job", is_number=False),
        Column("layout", is_number=False, may_wrap=True),
        Column("reached"),
        Column("MFU"),
        Column("measurements", is_number=False, is_minor=True),
        Column("set by", is_number=False),
    )
    rows = [
        (
            one.name,
            (one.model, Quiet(f"on {one.cluster}")) if one.model else Quiet(one.key[:12]),
            one.layout,
            measured(one.tokens_per_s, "tokens/s", source=_source_of(one.runs), is_exact=True),
            measured(one.mfu, "share", source=_source_of(one.runs)),
            _how_often(one.runs),
            (Link(one.gate_id, "gates", one.gate_id, key=f"set-{place}"), Moment(one.at)),
        )
        for place, one in enumerate(baselines, 1)
    ]
    none = "no baseline is stored; `autotuner gate --set-baseline` stores one"
    return Table(columns=columns, rows=rows, caption="One for each name and job.", if_empty=none)


# ------------------------------------------------------------------ a measured gate
def gate_report(gate: GateRun, server: str = "", *, has_buttons: bool = False) -> Report:
    """Return the report of one performance regression gate: its outcome, and its runs compared with the baseline.

    It also has the changes of the environment, such as software versions.

    Args:
        gate: The gate as it is stored.
        server: Address of the service, so that readers of a file find the gate's page; empty: no address is shown.
        has_buttons: True if the reader may cancel the gate.
    """
    job, result = gate.request.gate.sweep.job, gate.result
    runs = result.findings.runs if result and result.findings else None
    sections = [Section(blocks=tuple(_standing(gate, runs, has_buttons=has_buttons)), id="standing")]
    if runs is not None or gate.request.baseline is not None:
        sections.append(Section(title=f"What was {_source(gate)}", blocks=(_groups(gate, runs),), id="runs"))
    if result is not None and result.changes:
        changes = Lines(items=tuple(map(environment_change, result.changes)))
        sections.append(Section(title="What differs from the baseline's environment", blocks=(changes,), id="changes"))
    if notes := tuple(_notes(gate, runs, server)):
        sections.append(Section(blocks=(Lines(items=notes, is_quiet=True),)))
    return Report(
        headline=f"MFU of {job.model.name} on {job.cluster.name}",
        state=State(gate.word),
        facts=tuple(_facts(gate)),
        sections=sections,
    )


def _facts(gate: GateRun) -> Iterator[Cell]:
    asked, workload = gate.request.gate, gate.request.gate.sweep.job.workload
    yield f"Gate {gate.id}, {workload.global_batch_size} sequences of {workload.seq_len} tokens per step,"
    if asked.sweep.trainer:
        yield from ("trained by", Strong(asked.sweep.trainer.name), ",")
    yield from ("compared with", Strong(asked.baseline))
    yield from ("; software", Strong(asked.software)) if asked.software else ()
    yield "."
    yield from (Quiet(f"By {gate.created_by}."),) if gate.created_by else ()
    yield from ("Finished", Moment(gate.finished_at), ".") if gate.finished_at is not None else ()


def _standing(gate: GateRun, runs: RunGroup | None, *, has_buttons: bool) -> Iterator[Block]:
    result, test, source = gate.result, gate.request.gate.test, _source(gate)
    said = sentence(gate.detail if result else f"sweep {gate.child_id} measures")
    yield Lines(items=(said,), is_list=False)
    against = _against(gate)
    figures = []
    if against is not None:
        figures.append(Figure("change of the rate", _change(against, source)))
        figures.append(Figure("noise of a measurement", measured(against.noise, "share", source=source)))
    figures.append(Figure("loss accepted", (Quantity(value=test.tolerance, unit="share"), _must_find(test.loss))))
    if runs is not None:
        figures.append(Figure("MFU and rate", _reached((runs,), source)))
    if gate.request.baseline is not None:
        figures.append(
            Figure(f"MFU and rate of {gate.request.baseline.name}", _reached(gate.request.baseline.runs, source))
        )
    if gate.child_id:
        figures.append(Figure("sweep", Link(gate.child_id, "sweeps", gate.child_id)))
    if result is not None and result.reused_from is not None:
        figures.append(Figure("measured by", Link(result.reused_from, "gates", result.reused_from)))
    if has_buttons and result is None:
        figures.append(
            Figure(
                "under way", Button(words="Cancel", path=f"gates/{gate.id}/cancel", says=f"Cancel the gate {gate.id}")
            )
        )
    yield tuple(figures)
    yield tuple(_layouts(gate))


def _must_find(loss: float) -> Quiet:
    return Quiet(f"must be found: {100 * loss:.1f} %")


def _layouts(gate: GateRun) -> Iterator[Figure]:
    found = gate.result.findings if gate.result else None
    layout = found.measured if found and found.measured else gate.request.gate.layout
    yield Figure("layout", (layout, Words(str(layout))) if layout else "the best that a sweep finds")
    if gate.request.baseline is not None and gate.request.baseline.layout != layout:
        name = "the baseline has another layout" if layout else "layout of the baseline"
        yield Figure(name, (gate.request.baseline.layout, Words(str(gate.request.baseline.layout))))


def _groups(gate: GateRun, runs: RunGroup | None) -> Table:
    columns = (
        Column("runs", is_number=False),
        Column("measurements"),
        Column("mean"),
        Column("slowest", is_minor=True),
        Column("fastest", is_minor=True),
        Column("MFU"),
        Column("began", is_number=False, is_minor=True),
    )
    before = (
        []
        if gate.request.baseline is None
        else [(gate.request.baseline.name, group) for group in reversed(gate.request.baseline.runs)]
    )
    groups = [*([(_NEW, runs)] if runs else []), *before]
    return Table(columns=columns, rows=[_cells_of_group(name, group, _source(gate)) for name, group in groups])


def _cells_of_group(name: str, group: RunGroup, source: Source) -> tuple[Cells, ...]:
    return (
        Strong(name) if name == _NEW else name,
        Quantity(value=len(group.rates), unit="count"),
        measured(fmean(group.rates), "tokens/s", source=source, is_exact=True),
        Quantity(value=min(group.rates), unit="tokens/s", is_exact=True),
        Quantity(value=max(group.rates), unit="tokens/s", is_exact=True),
        measured(group.mfu, "share", source=source),
        Moment(group.at),
    )


def _reached(groups: Sequence[RunGroup], source: Source) -> Cells:
    """Return the mean MFU and rate over all runs, and the number of runs."""
    weights = [len(group.rates) for group in groups]
    mfu = fmean((group.mfu for group in groups), weights=weights)
    rate = fmean(rate for group in groups for rate in group.rates)
    reached = measured(rate, "tokens/s", source=source)
    return (measured(mfu, "share", source=source), reached, Quiet(_how_often(groups)))


def _how_often(groups: Sequence[RunGroup]) -> str:
    times = counted(sum(len(group.rates) for group in groups), "run")
    return f"{times} in {counted(len(groups), 'session')}" if len(groups) > 1 else times


def _notes(gate: GateRun, runs: RunGroup | None, server: str) -> Iterator[str]:
    if runs is not None and "simulated" in runs.environment:
        yield sentence(f"simulated: {runs.environment['simulated'].removeprefix('simulated: ')}")
    if gate.result is not None and gate.result.reused_from is not None:
        earlier = gate.result.reused_from
        yield f"Nothing was measured again: {earlier} measured the same layout with the same software."
    if server:
        yield f"Its runs and their trials: {server}/gates/{gate.id}"


def _against(gate: GateRun) -> Comparison | None:
    return gate.result.findings.against_baseline if gate.result and gate.result.findings else None


def _change(against: Comparison, source: Source) -> Quantity:
    return Quantity(value=against.change, unit="signed_share", low=against.low, high=against.high, source=source)


def _source(gate: GateRun) -> Source:
    return gate.request.gate.sweep.runs_on.source


def _source_of(groups: Iterable[RunGroup]) -> Source:
    return "simulated" if any("simulated" in group.environment for group in groups) else "measured"


# ------------------------------------------------------------------ a predicted gate
def predicted_gate_report(gate: PredictedGate, job: Job) -> Report:
    """Return the report of a performance regression gate that only predicts, and measures nothing.

    It says whether the change may be merged.

    Args:
        gate: The predictions and the outcome.
        job: The job that both layouts train.
    """
    notes = ("nothing was measured", *gate.notes)
    blocks: tuple[Block, ...] = (
        Lines(items=(sentence(predicted_verdict(gate, job)),), is_list=False),
        tuple(_predicted_layouts(gate)),
        tuple(_predicted_figures(gate, job)),
        Lines(items=tuple(map(sentence, notes)), is_quiet=True),
    )
    return Report(
        headline=f"{job.model.name} on {job.cluster.name}, predicted",
        state=State(gate.outcome.value),
        sections=(Section(blocks=tuple(block for block in blocks if block)),),
    )


def _predicted_layouts(gate: PredictedGate) -> Iterator[Figure]:
    yield Figure("layout", gate.candidate)
    if gate.reference is not None:
        yield Figure("baseline's layout", gate.reference)
        yield Figure("what changes", changes_in_words(difference(gate.reference, gate.candidate)) or "nothing")


def _predicted_figures(gate: PredictedGate, job: Job) -> Iterator[Figure]:
    if gate.predicted is not None:
        yield Figure("predicted MFU", predicted(gate.predicted.mfu, "share", gate.predicted.relative_error))
    if gate.expected is not None:
        then = predicted(gate.expected.mfu, "share", gate.expected.relative_error)
        yield Figure("predicted MFU of the baseline's layout", then)
    if gate.change is not None:
        change = gate.change
        change_of_rate = Quantity(
            value=change.change, unit="signed_share", low=change.low, high=change.high, source="predicted"
        )
        yield Figure("predicted change of the rate", change_of_rate)
    if gate.peak is not None:
        how = "counted in a dry run" if gate.peak.is_counted else "predicted"
        peak = Quantity(value=gate.peak.peak_bytes, unit="bytes", source="predicted")
        yield Figure("peak memory of the rank that needs most", (peak, Quiet(how)))
        has = Quantity(value=job.cluster.accelerator.memory_bytes, unit="bytes")
        yield Figure("memory of the accelerator", has)
        chance = Quantity(value=gate.peak.fit_probability, unit="chance", source="predicted")
        yield Figure("probability to fit", chance)
