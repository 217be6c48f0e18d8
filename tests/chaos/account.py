"""What is stored of a sweep, as an account that a disturbed one must share with one that nobody disturbed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass

from autotuner.core.sweep import SweepRequest
from autotuner.core.trial import Trial, TrialState
from autotuner.runs.clock import SystemClock
from autotuner.store.options import Page
from autotuner.store.sql import Store, memory_store
from tests.chaos.launcher import instant_launcher
from tests.fake_launcher import sweep_worker


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """How a sweep ended, and what it found."""

    end: str
    """Its state and reason."""
    trials: Mapping[str, str]
    """What came of each, by its number where trials are made in one order, else by its layout."""
    ranking: Sequence[tuple[str, float]]
    """Layouts, the best first, each with its step time."""


def account_of(store: Store, sweep_id: str, *, is_ordered: bool) -> Account:
    """What is stored now; ordered where one trial runs after the other."""
    sweep = store.get_sweep(sweep_id)
    trials = store.all_trials(sweep_id)
    ranked, _ = store.ranking(sweep_id, page=Page(limit=500))
    return Account(
        end=f"{sweep.state.value}, {sweep.stop_reason}",
        trials={
            f"{trial.number} {trial.layout}" if is_ordered else str(trial.layout): _came(trial) for trial in trials
        },
        ranking=[(str(trial.layout), trial.measurement.step_time_s) for trial in ranked if trial.measurement],
    )


def undisturbed(request: SweepRequest, *, is_ordered: bool) -> Account:
    """Of a sweep that nothing happens to, run here and at once: what comes of a trial follows from its layout alone."""
    with closing(memory_store()) as store:
        sweep, _ = store.create_sweep(request, now=0.0)
        assert sweep_worker(store, instant_launcher(), SystemClock(), owner="undisturbed", lease_s=60.0).run_once()
        return account_of(store, sweep.id, is_ordered=is_ordered)


def _came(trial: Trial) -> str:
    step_time = f" {trial.measurement.step_time_s:.6g} s" if trial.measurement else ""
    why = f" {trial.failure.kind}: {trial.failure.message}" if trial.failure else ""
    gate = f", gate {trial.gate.outcome.value}" if trial.gate else ""
    return f"{trial.state.value}{step_time}{why}{gate}"


def differences(found: Account, expected: Account) -> Iterator[str]:
    """Sentences on what is not as in the sweep that nobody disturbed."""
    if found.end != expected.end:
        yield f"it ended as {found.end}, not as {expected.end}"
    for key in sorted({*found.trials, *expected.trials}):
        mine, theirs = found.trials.get(key, "nothing"), expected.trials.get(key, "nothing")
        if mine != theirs:
            yield f"trial {key}: {mine}, not {theirs}"
    if found.ranking != expected.ranking:
        yield f"the ranking is {found.ranking}, not {expected.ranking}"


def lost_or_twice(store: Store, sweep_id: str, seen: Mapping[str, Trial]) -> Iterator[str]:
    """Sentences on completed trials that were seen and are not there now, or not as they were, or told twice."""
    now = {trial.id: trial for trial in store.all_trials(sweep_id)}
    for trial_id, trial in seen.items():
        if (stored := now.get(trial_id)) is None or stored.measurement != trial.measurement:
            yield f"trial {trial.number} was complete, and is {stored and _came(stored)} now"
        elif (stored.attempts, stored.finished_at) != (trial.attempts, trial.finished_at):
            yield f"trial {trial.number} was run again after it was complete"
    told = Counter(_finished(store, sweep_id))
    for trial_id, trial in now.items():
        if trial.state.finished and told[trial_id] != 1:
            yield f"the end of trial {trial.number} was told {told[trial_id]} times"
    if len({trial.number for trial in now.values()}) != len(now):
        yield "two trials have one number"


def run_again(store: Store, sweep_id: str) -> Iterator[str]:
    """Sentences on trials that needed more than one attempt."""
    for trial in store.all_trials(sweep_id):
        if trial.attempts != 1:
            yield f"trial {trial.number} took {trial.attempts} attempts, though nothing that runs it was touched"


def announced(store: Store, sweep_id: str) -> Iterator[str]:
    """A sentence unless the end of the sweep was announced, once."""
    items, _ = store.announcements.feed(page=Page(limit=500))
    if (times := sum(item.subject_id == sweep_id for item in items)) != 1:
        yield f"its end was announced {times} times"


def _finished(store: Store, sweep_id: str) -> Iterator[str]:
    """The trials whose end was told, as often as it was."""
    after = 0
    while events := store.events(sweep_id, after=after):
        after = events[-1].sequence
        yield from (str(event.data["trial_id"]) for event in events if event.kind == "trial.finished")


def completed(store: Store, sweep_id: str) -> dict[str, Trial]:
    """Completed trials by their id, as they are stored now."""
    return {trial.id: trial for trial in store.all_trials(sweep_id) if trial.state is TrialState.COMPLETE}
