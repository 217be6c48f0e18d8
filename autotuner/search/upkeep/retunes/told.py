"""Outcomes of retunes as announcements."""

from __future__ import annotations

from collections.abc import Iterator

from autotuner.core.announcement import Announcement, AnnouncementKind
from autotuner.core.upkeep import RetuneOutcome, RetuneRun, Verdict
from autotuner.search.upkeep.facts import measured_facts

_KINDS = {
    Verdict.UNCHANGED: AnnouncementKind.RETUNE_UNCHANGED,
    Verdict.BETTER_FOUND: AnnouncementKind.RETUNE_BETTER_FOUND,
    Verdict.REGRESSION: AnnouncementKind.RETUNE_REGRESSION,
    Verdict.COULD_NOT_RUN: AnnouncementKind.RETUNE_COULD_NOT_RUN,
}

_TITLES = {
    Verdict.UNCHANGED: "unchanged",
    Verdict.BETTER_FOUND: "a better layout was found",
    Verdict.REGRESSION: "the layout in use has become slower",
    Verdict.COULD_NOT_RUN: "could not run",
}


def told(run: RetuneRun, outcome: RetuneOutcome, *, at: float) -> Announcement:
    """What the feed and the webhooks say of the run; a run has one announcement, which has its id."""
    return Announcement(
        id=f"an-{run.id}",
        at=at,
        kind=_KINDS[outcome.verdict],
        title=f"{run.retune}: {'the baseline is set' if outcome.sets_baseline else _TITLES[outcome.verdict]}",
        text=". ".join([outcome.detail, *outcome.explanation]),
        path=f"/retunes/{run.retune}",
        subject_id=run.id,
        facts=dict(_facts(run, outcome)),
    )


def _facts(run: RetuneRun, outcome: RetuneOutcome) -> Iterator[tuple[str, object]]:
    yield "retune", run.retune
    yield "run", run.id
    yield "sweep", run.sweep_id
    yield "trigger", run.trigger.value
    yield "due_at", run.due_at
    yield "verdict", outcome.verdict.value
    found = outcome.findings
    if found is None:
        return
    yield from measured_facts(found)
    if outcome.verdict is Verdict.BETTER_FOUND and found.gain is not None:
        yield "challenger", str(found.challenger)
        yield "gain", found.gain.change
