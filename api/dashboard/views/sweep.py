"""SweepLook: what the page of a sweep shows to somebody, worked out as far as its templates need it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from markupsafe import Markup

from api.dashboard.views.address import Address, Permalink
from api.dashboard.views.choice_grid import HeatView
from api.dashboard.views.links import LinkRow, trace_view
from api.dashboard.views.metric_front import MetricFrontView
from api.dashboard.views.ranking import PAGE, Ranking, RowsOf, ranking
from api.dashboard.words import engine, source
from api.schemas.sweeps import SweepDetail
from api.schemas.trials import TrialDetail, TrialView
from autotuner.core.access import Caller
from autotuner.core.errors import Busy, InvalidInput, TooCostly
from autotuner.core.objective import Metric, metrics_text, metrics_told
from autotuner.core.sweep import Sweep
from autotuner.core.trial import Trial, TrialState
from autotuner.report.charts import Parallel
from autotuner.report.html import Html
from autotuner.report.parallel import brushes
from autotuner.report.report import Report
from autotuner.report.sweep import charts_report
from autotuner.report.sweep_answer import answer_report, foreseen_report
from autotuner.report.sweep_charts import CloudPoint
from autotuner.search.results.accuracy import accuracy
from autotuner.search.results.axis import AXES
from autotuner.search.results.failures import FailureGroup, failures
from autotuner.search.results.sensitivity import Choices, Grid, grid, mattered, two_that_matter
from autotuner.search.results.sweep_answer import Answer, answer
from autotuner.search.results.trial_table import TableRow
from autotuner.search.sweep_tables import SweepTrials
from autotuner.search.text.sentences import EMULATED
from autotuner.service.build import App

_MOST_FAILURES = 20
"""Trials of a cause that are listed with their logs."""

_MOST_UNRANKED = 50

_STRIP = 620
"""Pixels of the fault trace."""

Kind = Literal["measured", "simulated", "estimated"]


@dataclass(frozen=True, kw_only=True)
class SweepLook:
    """A look at a sweep."""

    app: App
    caller: Caller
    sweep: Sweep
    address: Address
    """What was chosen of its ranking and its pictures."""
    root: str
    """Path before every address of the service."""

    # ---------------------------------------------------------------- what templates are given
    def of_ranking(self) -> Mapping[str, Any]:
        """For the ranking alone."""
        table = self.ranking
        return {
            "ranking": table,
            "sweep_id": self.sweep.id,
            "is_finished": self.sweep.state.is_finished,
            "page_size": PAGE,
            "not_validated": self._is_not_validated,
        }

    def of_pictures(self, *, with_predicted: bool = False) -> Mapping[str, Any]:
        """For pictures alone."""
        report, drawn = self._pictures(with_predicted=with_predicted)
        lines = report["parallel"]
        charts = [one for one in (lines.blocks if lines else ()) if isinstance(one, Parallel)]
        return {
            "sweep": self.sweep,
            "charts": report,
            "drawn": drawn,
            "brushes": [brush for chart in charts for brush in brushes(chart)],
        }

    def of_pairs(self) -> Mapping[str, Any]:
        """For two choices at a time."""
        asked = (self.address.get("down"), self.address.get("across"))
        down, across = (name if name in AXES else "" for name in asked)  # whatever is asked, few are kept
        found = self._kept.once(("grid", down, across), lambda: self._grid(down, across))
        heat = HeatView.of(found, root=self.root)
        return {"heat": heat, "kind": self._kind, "asked_else": self.address.but("down", "across")}

    def of_front(self) -> Mapping[str, Any]:
        """For what no other layout beats in everything."""
        is_usual = not self.address.get("metrics") and not self.address.get("profile")  # all else may be asked
        found = self._kept.once(("metric front", self.root), self._front) if is_usual else self._front()
        told = metrics_told(self.sweep.request.job.cluster, has_trace=self.sweep.request.fault_trace is not None)
        usual = metrics_text(metric for metric in told if metric is not Metric.TOKENS_PER_S)  # MFU says the same
        return {
            "sweep": self.sweep,
            "metric_front": found,
            "kind": self._kind,
            "html": Html(self.root),
            "front_else": self.address.but("metrics", "profile"),
            "compare_by": self.address.with_(metrics=usual),
        }

    def _front(self) -> MetricFrontView | None:
        return MetricFrontView.of(self.sweep.request, self._trials, self.address, source=self._kind, root=self.root)

    def of_all(self, *, with_predicted: bool) -> Mapping[str, Any]:
        """For the whole page.

        Args:
            with_predicted: What is predicted of the space is shown, too, which may have to be worked out first; else
                it is shown where it is known.
        """
        return {
            **self.of_ranking(),
            **self.of_pictures(with_predicted=with_predicted),
            **self.of_pairs(),
            **self.of_front(),
            **self._of_answer(),
            **self._of_trials(),
            "sweep": SweepDetail.of_sweep(self.app, self.sweep),
            "source": source(self.sweep.request),
            "engine": engine(self.sweep.request.runs_on.engine, self.sweep.request.runs_on.queue),
            "may_change": self.caller.may_change(self.sweep.created_by),
            "why_not": self._why_not,
            "noise": self._noise,
            "emulated": EMULATED,
            "now": self.app.clock.now(),
            "is_partial": not with_predicted and not self.app.sweep_tables.knows(self.sweep),
            "refused": "",
            "trace": trace_view(self.sweep.request.fault_trace, _STRIP),
            "links": LinkRow.of_all(self.sweep.request.job.cluster.link_health),
        }

    # ---------------------------------------------------------------- trials
    @cached_property
    def _kept(self) -> SweepTrials:
        return self.app.kept_trials.of(self.sweep.id)

    @property
    def _trials(self) -> Sequence[Trial]:
        return self._kept.trials

    @cached_property
    def _informed(self) -> Sweep:
        return self.app.informed(self.sweep)

    @property
    def _kind(self) -> Kind:
        return "estimated" if self.sweep.request.trial_cluster else source(self.sweep.request)

    def _of_trials(self) -> Mapping[str, Any]:
        unranked = [trial for trial in self._trials if _ended_otherwise(trial)]
        groups = self._failures
        return {
            "running": [TrialDetail.of(self.app.store.get_trial(trial.id)) for trial in self._started],
            "queued": [TrialView.of(trial) for trial in self._in(TrialState.QUEUED)],
            "repeats": [TrialView.of(trial) for trial in self._trials if _told_apart(trial)],
            "failures": groups,
            "shown_failures": _MOST_FAILURES,
            "logs": self._logs(groups),
            "unranked": [TrialDetail.of(trial) for trial in unranked[:_MOST_UNRANKED]],
            "unranked_total": len(unranked),
            "has_ended": bool(groups or unranked),
        }

    @property
    def _started(self) -> Iterable[Trial]:
        return (trial for trial in self._trials if trial.state in (TrialState.RUNNING, TrialState.WAITING))

    def _in(self, state: TrialState) -> Iterable[Trial]:
        return (trial for trial in self._trials if trial.state is state)

    def _logs(self, groups: Iterable[FailureGroup]) -> Mapping[str, str]:
        """Logs of the trials that are listed."""
        shown = {one.trial_id for group in groups for one in group.trials[:_MOST_FAILURES]}
        return {trial.id: trial.failure.log_tail for trial in self._trials if trial.id in shown and trial.failure}

    @property
    def _noise(self) -> float | None:
        """By how much equal runs differed, at most."""
        floors = [trial.measurement.noise_floor for trial in self._trials if trial.measurement]
        return max((floor for floor in floors if floor is not None), default=None)

    @property
    def _is_not_validated(self) -> bool:
        return any(not trial.prediction.validated for trial in self._trials if trial.is_ranked)

    @property
    def _why_not(self) -> str:
        """Why the one who looks may not change it; empty where they may."""
        if self.caller.may_change(self.sweep.created_by):
            return ""
        owner = self.sweep.created_by
        return (
            f"{owner}, who asked for it, and admins may pause, cancel or extend it" if owner else "admins may change it"
        )

    # ---------------------------------------------------------------- ranking
    @cached_property
    def _ranked(self) -> tuple[TableRow, ...]:
        return self.app.sweep_tables.ranked(self.sweep, self._kept)

    def _untried(self) -> tuple[TableRow, ...]:
        try:
            return self.app.sweep_tables.untried(self._informed, self._kept)
        except (TooCostly, Busy, InvalidInput):  # the page is worth more than what it could foresee
            return ()

    @cached_property
    def ranking(self) -> Ranking:
        """The table: those that were asked for; as long as nothing has a rank, what is predicted."""
        asked = self.address.get("rows")
        rows_of: RowsOf = "untried" if asked == "untried" or (not asked and not self._ranked) else "ranked"
        every = self._untried() if rows_of == "untried" else self._ranked
        best = self._ranked[0] if self._ranked else None
        link = Permalink.of_sweep(self.sweep)
        return ranking(
            self.sweep.request,
            every,
            self.address,
            rows_of=rows_of,
            kind=self._kind,
            best=best,
            explored=lambda layout: self.root + link.with_layout(layout).to("/explore"),
        )

    # ---------------------------------------------------------------- results
    def _of_answer(self) -> Mapping[str, Any]:
        found = self._answer
        ids = [row.trial.id for row in self._ranked[:2] if row.trial]
        foreseen = None if found or self.ranking.rows_of != "untried" else next(iter(self._untried()), None)
        limit_bytes = float(self.sweep.request.trial_job.cluster.accelerator.memory_bytes)
        is_finished = self.sweep.state.is_finished
        card: Report | None = None
        if found is not None:
            card = answer_report(found, is_finished=is_finished)
        elif foreseen is not None:
            card = foreseen_report(foreseen, limit_bytes, is_finished=is_finished)
        return {
            "card": card,
            "card_layout": found.best.layout if found else foreseen.layout if foreseen else None,
            "certainty": found.certainty if found else None,
            "html": Html(self.root),
            "best_id": ids[0] if ids else "",
            "second_id": ids[1] if len(ids) > 1 else "",
        }

    @property
    def _answer(self) -> Answer | None:
        prospects = self.sweep.prospects
        return self._kept.once(("answer", prospects), lambda: answer(self.sweep.request, self._trials, prospects))

    @property
    def _failures(self) -> tuple[FailureGroup, ...]:
        return self._kept.once("failures", lambda: failures(self.sweep.request, self._trials))

    @property
    def _choices(self) -> Choices:
        """What mattered; nothing as long as the service is too busy to tell."""
        try:
            return self._kept.once(("mattered", None, None), self._mattered)[0]
        except (TooCostly, Busy):
            return Choices(num_ranked=0, explained=None, importance=(), effects=())

    def _mattered(self) -> tuple[Choices, Grid]:
        return self.app.asides.ask(mattered, self.sweep.request, self._trials)

    def _grid(self, down: str, across: str) -> Grid:
        """Of what was asked for; of the two that matter where nothing was, or no such choice."""
        first, second = two_that_matter(self._choices.importance, [trial.layout for trial in self._trials])
        row, column = (down if down in AXES else first), (across if across in AXES else second)
        return grid(self.sweep.request, self._trials, row, column)

    def _pictures(self, *, with_predicted: bool) -> tuple[Report, Mapping[str, Markup]]:
        """Return what the trials show, with its sections as HTML; they are drawn once until a trial changes."""
        cloud = self._cloud(with_predicted=with_predicted)
        return self._kept.once(("pictures", len(cloud), self.root), lambda: self._drawn(cloud))

    def _drawn(self, cloud: Sequence[CloudPoint]) -> tuple[Report, Mapping[str, Markup]]:
        report = charts_report(
            self.sweep.request,
            self._trials,
            source=self._kind,
            choices=self._choices,
            accuracy=accuracy(self.sweep.request, self._trials),
            predicted=cloud,
            remaining_gain=self._remaining_gain,
            root=self.root,
        )
        html, every = Html(self.root), dict.fromkeys(("calibration",), Markup())
        drawn = {one.key: html.blocks(one) if one.key == "parallel" else html.section(one) for one in report.sections}
        return report, every | drawn

    @property
    def _remaining_gain(self) -> float | None:
        """Share of the best that one more trial is expected to gain; of a front it is no height of the picture."""
        if self.sweep.prospects is None or self.sweep.request.objective.front:
            return None
        return self.sweep.prospects.expected_gain

    def _cloud(self, *, with_predicted: bool) -> Sequence[CloudPoint]:
        if not with_predicted and not self.app.sweep_tables.knows(self.sweep):
            return ()
        return [
            CloudPoint(peak_bytes=row.prediction.memory.total_bytes, mfu=row.prediction.mfu) for row in self._untried()
        ]


def _told_apart(trial: Trial) -> bool:
    """Whether it is listed with what it is compared with, and not among those that ended without a rank."""
    return trial.repeats is not None and trial.measurement is not None


def _ended_otherwise(trial: Trial) -> bool:
    """Whether it ended without a rank, and did not die."""
    return trial.state.finished and not trial.is_ranked and trial.failure is None and not _told_apart(trial)
