"""SweepLook: the values that the templates of a sweep's page need, computed only if a template asks for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

from markupsafe import Markup

from autotuner.api.dashboard.forms import Asked
from autotuner.api.dashboard.views.address import Address, Permalink
from autotuner.api.dashboard.views.choice_grid import HeatView
from autotuner.api.dashboard.views.metric_front import MetricFrontView
from autotuner.api.dashboard.views.ranking import asked_of, taken_along
from autotuner.core.access import Caller
from autotuner.core.comparison import ChallengeFindings
from autotuner.core.errors import Busy, InvalidInput, TooCostly
from autotuner.core.objective import Metric, known_metrics, metrics_text
from autotuner.core.sweep import Sweep
from autotuner.core.sweep_requests import BudgetChange
from autotuner.core.text import inputs_of, to_text
from autotuner.core.trial import Trial, TrialState
from autotuner.report.caveats import caveats_in_words
from autotuner.report.charts import Parallel
from autotuner.report.engine_jobs import engine_in_words
from autotuner.report.html import Html
from autotuner.report.link_faults import slow_links
from autotuner.report.parallel import brushes
from autotuner.report.ranking import ranking
from autotuner.report.report import Lines, Link, Report, Section
from autotuner.report.sweep import charts_report
from autotuner.report.sweep_answer import answer_report, foreseen_report
from autotuner.report.sweep_charts import CloudPoint
from autotuner.report.sweep_trials import compared, ended, run_again, under_way
from autotuner.search.caveats import caveats_of_job
from autotuner.search.results.axis import AXES
from autotuner.search.results.failures import FailureGroup, failures
from autotuner.search.results.sensitivity import Choices, Grid, SweepChoices, grid, sweep_choices, two_that_matter
from autotuner.search.results.sweep_answer import Answer, accuracy, answer
from autotuner.search.results.sweep_tables import SweepTrials
from autotuner.search.results.trial_table import TableRow
from autotuner.service.build import App

LIMITS = inputs_of(BudgetChange)
"""Inputs of the form that changes a sweep's budget."""

Kind = Literal["measured", "simulated", "estimated"]


@dataclass(frozen=True, kw_only=True)
class SweepLook:
    """The values that the templates of a sweep's page show, for one caller and one query of the page."""

    app: App
    caller: Caller
    sweep: Sweep
    address: Address
    """The reader's choices for the ranking and the charts."""
    root: str
    """Path of the service, which precedes all addresses."""

    # ---------------------------------------------------------------- values for templates
    def of_ranking(self) -> Mapping[str, Any]:
        """Return the values for the template of the table that ranks the sweep's trials."""
        asked, problem = asked_of(self.address, self.sweep.id, is_untried=self._is_untried)
        link = Permalink.of_sweep(self.sweep)
        found = ranking(
            self.sweep.request,
            self._untried() if asked.is_untried else self._ranked,
            source=self._kind,
            asked=replace(
                asked, explored=lambda row: Link("explore", "explore", query=link.with_layout(row.layout).asked)
            ),
            best=self._ranked[0] if self._ranked else None,
        )
        return {
            "ranking": found,
            "problem": problem,
            "address": self.address,
            "csv": taken_along(asked, "table.csv"),
            "json": taken_along(asked, "table", limit=10_000),
            "sweep_id": self.sweep.id,
            "is_untried": asked.is_untried,
            "is_finished": self.sweep.state.is_finished,
        }

    def of_pictures(self, *, with_predicted: bool = False) -> Mapping[str, Any]:
        """Return the values for the template of the charts of the sweep's trials.

        Args:
            with_predicted: True to draw the predictions of untried layouts, even if they must be computed first. If
                False, the charts have these predictions only if they are computed already.
        """
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
        """Return the values for the template of the heat map: the best result for each pair of values of two options.

        The query parameters ``down`` and ``across`` of the address name the two options.
        """
        asked = (self.address.get("down"), self.address.get("across"))
        down, across = (name if name in AXES else "" for name in asked)  # only known names, so that few grids are kept
        found = self._kept.once(("grid", down, across), lambda: self._grid(down, across))
        heat = HeatView.of(found, self.sweep.id, root=self.root)
        return {"heat": heat, "kind": self._kind, "asked_else": self.address.but("down", "across")}

    def of_front(self) -> Mapping[str, Any]:
        """Return the values for the template of the Pareto front: the trials that no other trial beats in every metric.

        The query parameters ``metrics`` and ``profile`` of the address name the metrics and their weights.
        """
        is_usual = not self.address.get("metrics") and not self.address.get("profile")  # only then
        found = self._kept.once(("metric front", self.root), self._front) if is_usual else self._front()
        known = known_metrics(self.sweep.request.job.cluster, has_trace=self.sweep.request.fault_trace is not None)
        usual = metrics_text(metric for metric in known if metric is not Metric.TOKENS_PER_S)  # MFU has the same order
        return {
            "sweep": self.sweep,
            "metric_front": found,
            "kind": self._kind,
            "front_else": self.address.but("metrics", "profile"),
            "compare_by": self.address.with_(metrics=usual),
        }

    def _front(self) -> MetricFrontView | None:
        return MetricFrontView.of(self.sweep, self._trials, self.address, source=self._kind, root=self.root)

    def of_all(self, *, with_predicted: bool) -> Mapping[str, Any]:
        """Return the values for the template of the whole page.

        Args:
            with_predicted: True to draw the predictions of untried layouts, even if they must be computed first. If
                False, the charts have these predictions only if they are computed already.
        """
        standing = self.app.standing(self.sweep)
        return {
            **self.of_ranking(),
            **self.of_pictures(with_predicted=with_predicted),
            **self.of_pairs(),
            **self.of_front(),
            **self._of_answer(),
            **self._of_trials(standing.findings),
            "sweep": standing,
            "caveats": _caveats(caveats_in_words(caveats_of_job(standing.request.job))),
            "source": self.sweep.request.runs_on.source,
            "engine": engine_in_words(self.sweep.request.runs_on.engine, self.sweep.request.runs_on.queue),
            "may_change": self.caller.may_change(self.sweep.created_by),
            "why_not": self._why_not,
            "now": self.app.clock.now(),
            "is_partial": not with_predicted and not self.app.sweep_tables.knows(self.sweep),
            "refused": "",
            "links": slow_links(self.sweep.request),
            "limits": LIMITS,
            "given": Asked(texts={one.name: to_text(getattr(standing.budget, one.path[-1]), one) for one in LIMITS}),
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
        return "estimated" if self.sweep.request.trial_cluster else self.sweep.request.runs_on.source

    def _of_trials(self, found: ChallengeFindings | None) -> Mapping[str, Any]:
        started = [trial for trial in self._trials if trial.state in (TrialState.RUNNING, TrialState.WAITING)]
        started = [self.app.store.get_trial(trial.id) for trial in started]  # cached trials have no steps
        queued = [trial for trial in self._trials if trial.state is TrialState.QUEUED]
        request, ran = self.sweep.request, self.sweep.request.runs_on.source
        return {
            "under_way": under_way([*started, *queued], ran, self.app.clock.now()),
            "ended": ended(self._failures, self._trials, self.sweep.id),
            "compared": compared(request, found or ChallengeFindings(), self._trials, ran),
            "again": run_again(self._trials, ran),
        }

    @property
    def _why_not(self) -> str:
        """Return why the caller may not change the sweep; empty if they may."""
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
        except (TooCostly, Busy, InvalidInput):  # the page is shown without the forecast
            return ()

    @property
    def _is_untried(self) -> bool:
        """Return True if the ranking shows predictions: the user requested them, or no trial has a rank yet."""
        asked = self.address.get("rows")
        return asked == "untried" or (not asked and not self._ranked)

    # ---------------------------------------------------------------- results
    def _of_answer(self) -> Mapping[str, Any]:
        found, expected_improvement = self._answer, self.sweep.expected_improvement
        ids = [row.trial.id for row in self._ranked[:2] if row.trial]
        foreseen = None if found or not self._is_untried else next(iter(self._untried()), None)
        limit_bytes = float(self.sweep.request.trial_job.cluster.accelerator.memory_bytes)
        is_finished = self.sweep.state.is_finished
        card: Report | None = None
        if found is not None:
            card = answer_report(
                found,
                self.sweep.request,
                sweep_id=self.sweep.id,
                expected_improvement=expected_improvement,
                is_finished=is_finished,
            )
        elif foreseen is not None:
            card = foreseen_report(foreseen, limit_bytes, is_finished=is_finished)
        return {
            "card": card,
            "card_layout": found.best.layout if found else foreseen.layout if foreseen else None,
            "expected_gain": expected_improvement.expected_gain if found and expected_improvement else None,
            "best_id": ids[0] if ids else "",
            "second_id": ids[1] if len(ids) > 1 else "",
        }

    @property
    def _answer(self) -> Answer | None:
        return self._kept.once("answer", lambda: answer(self.sweep.request, self._trials))

    @property
    def _failures(self) -> tuple[FailureGroup, ...]:
        return self._kept.once("failures", lambda: failures(self.sweep.request, self._trials))

    @property
    def _choices(self) -> Choices:
        """Return how much each option matters; empty while the service is too busy to compute it."""
        try:
            return self._kept.once(("mattered", None, None), self._mattered).choices
        except (TooCostly, Busy):
            return Choices(num_ranked=0, explained=None, importance=(), effects=())

    def _mattered(self) -> SweepChoices:
        return self.app.compute.ask(sweep_choices, self.sweep.request, self._trials)

    def _grid(self, down: str, across: str) -> Grid:
        """Return the grid of the two given options; a missing option is replaced by the most important one."""
        first, second = two_that_matter(self._choices.importance, [trial.layout for trial in self._trials])
        row, column = (down if down in AXES else first), (across if across in AXES else second)
        return grid(self.sweep.request, self._trials, row, column)

    def _pictures(self, *, with_predicted: bool) -> tuple[Report, Mapping[str, Markup]]:
        """Return the report of the trials, with its sections as HTML.

        They are drawn again only when a trial changes.
        """
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
        """Return the relative gain over the best that is expected of one more trial.

        None if a Pareto front is searched.
        """
        if self.sweep.expected_improvement is None or self.sweep.request.objective.front:
            return None
        return self.sweep.expected_improvement.expected_gain

    def _cloud(self, *, with_predicted: bool) -> Sequence[CloudPoint]:
        if not with_predicted and not self.app.sweep_tables.knows(self.sweep):
            return ()
        return [
            CloudPoint(peak_bytes=row.prediction.memory.total_bytes, mfu=row.prediction.mfu) for row in self._untried()
        ]


def _caveats(sentences: Sequence[str]) -> Section | None:
    if not sentences:
        return None
    return Section(title="About the predictions", id="caveats", blocks=(Lines(items=sentences),))
