"""The live view of sweeps and checks on the command line."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.padding import Padding
from rich.progress_bar import ProgressBar

from autotuner.cli.console import is_watched
from autotuner.connections import patiently, whole
from autotuner.core import documents
from autotuner.core.cluster_check import CheckRun
from autotuner.core.convergence_gate import GateOutcome
from autotuner.core.measurement import LinkEvent
from autotuner.core.objective import Objective
from autotuner.core.run import RunState
from autotuner.core.sweep import SweepStanding
from autotuner.core.trial import EngineJob, EngineJobPhase, Trial, TrialState, Waiting
from autotuner.remote import Remote, ServerEvent
from autotuner.report.engine_jobs import engine_job_in_words
from autotuner.report.links import event_sentence
from autotuner.report.sweep_standing import reached_beside_predicted, sweep_report
from autotuner.report.sweep_trials import why
from autotuner.report.terminal import render
from autotuner.report.words import gate_in_words

_POLL_S = 0.5
_MOST_RANKED = 10

_OVER = (RunState.COMPLETE, RunState.CANCELLED, RunState.FAILED, RunState.PAUSED)
"""States in which nothing happens until a user requests it."""


def follow(client: Remote, sweep_id: str, console: Console, *, after: int = 0) -> SweepStanding:
    """Show a sweep until it ends or pauses, and return its last state.

    Args:
        client: A client of the service that runs the sweep.
        sweep_id: The id of the sweep.
        console: The console to show it on.
        after: Show only events with a number above this one.
    """
    watch = _Watch(client, sweep_id, after)
    return _live(watch, console) if is_watched(console) else _lines(watch, client.url, console)


def _live(watch: _Watch, console: Console) -> SweepStanding:
    with Live(console=console, transient=True, auto_refresh=False) as live:
        while True:
            watch.look()
            shown = [trial for trial in watch.trials.values() if trial.state is not TrialState.QUEUED]
            bar = ProgressBar(total=1.0, completed=watch.sweep.progress.fraction, width=60)
            report = sweep_report(watch.sweep, shown, time.time(), said=watch.said, most=_MOST_RANKED)
            live.update(Group(Padding(bar), render(report)), refresh=True)  # a bar does not end its own line
            if watch.is_over:
                return watch.sweep
            time.sleep(_POLL_S)


def _lines(watch: _Watch, url: str | None, console: Console) -> SweepStanding:
    at = f"at {url}/sweeps/{watch.sweep_id}" if url else "with `autotuner serve`, in a browser"
    console.print(f"{watch.sweep_id}: watch it {at}", highlight=False, soft_wrap=True)
    waiting: Waiting | None = None
    while True:
        for event in watch.look():
            for line in _lines_of(event, watch):
                console.print(line, highlight=False, soft_wrap=True)
        if watch.sweep.waiting and watch.sweep.waiting != waiting:  # no event says that no worker has the sweep
            console.print(f"the sweep {watch.sweep.waiting.reason}", highlight=False, soft_wrap=True)
        waiting = watch.sweep.waiting
        if watch.is_over:
            return watch.sweep
        time.sleep(_POLL_S)


class _Watch:
    """The last known state of a followed sweep. If the service restarts meanwhile, the watch waits for it."""

    def __init__(self, client: Remote, sweep_id: str, after: int) -> None:
        self.sweep_id = sweep_id
        self.sweep = patiently(lambda: client.read_sweep(sweep_id))
        self.trials: dict[str, Trial] = {}
        self.said: dict[str, str] = {}
        """The last note on each running trial, and the finding where a convergence gate failed."""
        self.printed: set[str] = set()
        """Ids of trials whose end was printed."""
        self.is_over = False
        self._client = client
        self._last_event = after

    def look(self) -> list[ServerEvent]:
        """Read the sweep again, and return the events since the last look."""
        return patiently(self._look)

    def _look(self) -> list[ServerEvent]:
        sweep = self._client.read_sweep(self.sweep_id)  # first, so that a finished sweep's events are complete
        events = self._client.events_so_far(self.sweep_id, after=self._last_event)
        trials = whole(self._client.list_trials, self.sweep_id)
        for event in events:
            self._last_event = event.sequence
            self._hear(event)
        self.sweep, self.trials = sweep, {trial.id: trial for trial in trials}
        self.is_over = sweep.state in _OVER
        return events

    def _hear(self, event: ServerEvent) -> None:
        match event:
            case ServerEvent(kind="trial.note", data={"trial_id": trial, "note": note}):
                self.said[trial] = note
            case ServerEvent(kind="trial.waiting" | "trial.resumed", data={"trial_id": trial}):
                self.said.pop(trial, None)  # the trial itself shows why it waits
            case ServerEvent(kind="trial.link_event", data={"trial_id": trial} as data):
                self.said[trial] = event_sentence(_link_event(data))
            case ServerEvent(kind="trial.gated", data={"trial_id": trial, "outcome": "failed", "detail": detail}):
                self.said[trial] = detail
            case ServerEvent(kind="trial.gated" | "trial.finished" | "trial.interrupted", data={"trial_id": trial}):
                self.said.pop(trial, None)


def _lines_of(event: ServerEvent, watch: _Watch) -> Iterator[str]:
    """Yield the lines that are printed for an event; most events print none."""
    if event.kind == "sweep.estimated":
        ids = [trial_id for trial_id in event.data["step_time_s"] if trial_id not in watch.printed]
        yield from (_end(watch.trials[trial_id], watch) for trial_id in ids if trial_id in watch.trials)
    trial = watch.trials.get(event.data.get("trial_id", ""))
    if trial is None:
        return
    match event.kind:
        case "trial.job" if said := _said_of_job(event.data):
            yield f"{_head(trial, watch)}           {said}"
        case "trial.link_event":
            yield f"{_head(trial, watch)}           {event_sentence(_link_event(event.data))}"
        case "trial.waiting":
            yield f"{_head(trial, watch)}           {event.data['waiting']['reason']}"
        case "trial.note":
            yield f"{_head(trial, watch)}           {event.data['note']}"
        case "trial.gated":
            outcome = gate_in_words(GateOutcome(event.data["outcome"]))
            yield f"{_head(trial, watch)} {outcome}: {event.data['detail']}"
        case "trial.finished" if (
            not trial.proxy or trial.state is not TrialState.COMPLETE
        ):  # otherwise the trial is estimated next
            yield _end(trial, watch)


def _head(trial: Trial, watch: _Watch) -> str:
    if trial.repeats is not None:
        return f"trial {trial.number + 1:>2} (again)"
    if watch.sweep.findings:  # repeats are not part of the budget
        return f"trial {trial.number + 1:>2}"
    return f"trial {trial.number + 1:>2}/{watch.sweep.budget.num_trials}"


def _end(trial: Trial, watch: _Watch) -> str:
    """Describe how a trial ended, and note that it was printed."""
    watch.printed.add(trial.id)
    return f"{_head(trial, watch)} {_result(trial, watch.sweep.objective)}"


def _link_event(data: dict[str, Any]) -> LinkEvent:
    return documents.restore(LinkEvent, {one.name: data[one.name] for one in fields(LinkEvent)})


def _said_of_job(data: dict[str, Any]) -> str:
    """Describe the state of an engine job at an event; empty at its end, which the line of its trial reports."""
    job = documents.restore(EngineJob, {one.name: data[one.name] for one in fields(EngineJob)})
    return "" if job.phase is EngineJobPhase.ENDED else engine_job_in_words(job, data["at"])


def _result(trial: Trial, objective: Objective) -> str:
    seconds = (trial.finished_at or 0.0) - (trial.started_at or 0.0)
    tail = f"  [took {seconds:.1f} s; {trial.id}]"
    if trial.reached:
        return f"{trial.state:<9} {reached_beside_predicted(trial, objective)}  {trial.label}{tail}"
    reason = f"  {why(trial)}" if why(trial) else ""
    return f"{trial.state:<9} {trial.label}{reason}{tail}"


_CHECK_POLL_S = 0.5


def follow_check(client: Remote, check_id: str, console: Console) -> CheckRun:
    """Print the lines of a check of a cluster until it ends, and return its last state.

    Ctrl-C ends a check that runs in this process. A check that runs in another service continues.

    Args:
        client: A client of the service that runs the check.
        check_id: The id of the check.
        console: The console to print on.
    """
    watch = _CheckWatch(client, check_id, console)
    try:
        return watch.to_its_end()
    except KeyboardInterrupt:
        if client.url is not None:
            watch.say(f"{check_id} continues at {client.url}; cancel it with --cancel")
            raise
        watch.say("the check is ending its jobs")
        client.cancel_run(CheckRun, check_id)
        return watch.to_its_end()


class _CheckWatch:
    """Follows a check and prints each of its lines once."""

    def __init__(self, client: Remote, check_id: str, console: Console) -> None:
        self._client = client
        self._check_id = check_id
        self._console = console
        self._num_printed = 0

    def to_its_end(self) -> CheckRun:
        """Read the check again and again until it has ended, and return it."""
        while True:
            check = self._client.read_run(CheckRun, self._check_id)
            lines = check.lines
            for line in lines[self._num_printed :]:
                self.say(f"{datetime.fromtimestamp(line.at, UTC):%H:%M:%S} {line.text}")
            self._num_printed = len(lines)
            if check.state.is_finished:
                self.say(f"{self._check_id} {check.state}")
                return check
            time.sleep(_CHECK_POLL_S)

    def say(self, text: str) -> None:
        """Print one line."""
        self._console.print(text, highlight=False, soft_wrap=True)
