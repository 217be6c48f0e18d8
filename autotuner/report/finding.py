"""The report of a search over all sweeps: sweeps that match, trials with a number, and trials with similar layouts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from autotuner.core.sweep import SweepOverview
from autotuner.core.trial import Trial
from autotuner.report.layouts import chips, degrees, shared_chips
from autotuner.report.report import (
    Block,
    Cells,
    Chip,
    Column,
    Lines,
    Link,
    Quiet,
    Report,
    Section,
    State,
    Table,
    Words,
    measured,
)
from autotuner.report.sweep_charts import half_of
from autotuner.report.sweep_list import called

_EXAMPLES = (
    ("llama h100", "sweeps with both words in their name, model, cluster, engine or owner"),
    ("sw-k3v7q2mxn5-0003", "the sweep or trial with this id"),
    (
        "trial 12",
        "trials with the number 12 of the newest sweeps; with more words, only of sweeps that have these words",
    ),
    ("tp4 pp2 recompute-full", "the fastest trials with all these words in their layouts"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The result of a search: sweeps, trials with a certain number, and trials with certain layouts."""

    number: int | None
    """Trial number that was searched for; None for a search by words."""
    text: str
    """Words that sweeps were searched for."""
    sweeps: Sequence[SweepOverview]
    num_sweeps: int
    """Number of sweeps that match; only the newest of them are listed."""
    numbered: Sequence[tuple[Trial, SweepOverview]]
    """Trials with the requested number, from the newest sweeps that match."""
    alike: Sequence[tuple[Trial, SweepOverview]]
    """The fastest trials whose layouts have all the choices that were searched for."""
    is_cut: bool
    """True if more such trials may exist than are listed."""


def finding_report(asked: str, found: Finding | None) -> Report:
    """Return the report of a search; if nothing was found or searched for, it shows examples of searches.

    Args:
        asked: Text of the search.
        found: Result of the search; None if the text was empty.
    """
    sections = list(_sections(found)) if found else []
    if found and not sections:
        nothing = Lines(items=("No sweep, no trial and no measured layout matches.",), is_list=False)
        sections.append(Section(title="Nothing was found", blocks=(nothing,)))
    if not found or not (found.numbered or found.alike or found.sweeps):
        columns = (Column("", is_number=False), Column("", is_number=False, may_wrap=True))
        rows = [(Words(example), meaning) for example, meaning in _EXAMPLES]
        sections.append(
            Section(title="What can be found", blocks=(Table(columns=columns, rows=rows, is_compact=True),))
        )
    return Report(headline=f"Found for “{asked}”" if asked else "Find", sections=sections)


def _sections(found: Finding) -> Iterator[Section]:
    if found.numbered:
        yield Section(title=f"Trials number {found.number}", blocks=tuple(_trials(found.numbered)))
    if found.alike:
        note = f"The fastest of all sweeps{'; there are more' if found.is_cut else ''}."
        yield Section(title="Trials of such layouts", note=note, blocks=tuple(_trials(found.alike)))
    if found.sweeps:
        columns = (Column("sweep", is_number=False, may_wrap=True), Column("state", is_number=False))
        blocks: list[Block] = [Table(columns=columns, rows=[(_sweep(one), State(one.state)) for one in found.sweeps])]
        if found.num_sweeps > len(found.sweeps):
            every = Link(f"All {found.num_sweeps} in the list", "", query={"q": found.text})
            blocks.append(Lines(items=(every,), is_list=False))
        yield Section(title="Sweeps", blocks=blocks)


def _sweep(one: SweepOverview) -> Cells:
    about = f"{one.model} on {one.cluster}{f', {one.created_by}' if one.created_by else ''}"
    return Link(called(one), "sweeps", one.id), Quiet(about)


def _trials(found: Sequence[tuple[Trial, SweepOverview]]) -> Iterator[Block]:
    """Yield a table of the trials; choices that all their layouts share are said once above it."""
    shared = shared_chips(trial.layout for trial, _ in found)
    if shared:
        yield Lines(items=(f"All of them: {', '.join(shared)}",), is_quiet=True)
    columns = (
        Column("trial", is_number=False),
        *(Column(one.letters, look="degree") for one in degrees(found[0][0].layout)),
        Column("choices", look="choices"),
        Column("layout", is_number=False, is_long=True),
        Column("MFU"),
        Column("sweep", is_number=False, may_wrap=True),
    )
    rows = [
        (
            Link(f"trial\N{NO-BREAK SPACE}{trial.number}", "trials", trial.id),
            *(str(one.value) for one in degrees(trial.layout)),
            tuple(map(Chip, chips(trial.layout, shared))),
            trial.layout,
            _reached(trial),
            Link(called(sweep), "sweeps", sweep.id),
        )
        for trial, sweep in found
    ]
    yield Table(columns=columns, rows=rows)


def _reached(trial: Trial) -> Cells:
    """Return what a trial reached; for a trial without a rank, its state."""
    reached = trial.reached if trial.is_ranked else None
    if reached is None:
        return State(trial.state)
    half = None if reached.source == "estimated" else half_of(reached)
    return measured(reached.mfu, "share", half, reached.source)
