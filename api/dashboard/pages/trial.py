"""The page of one trial: the whole page, its live part, or a zoomed picture."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any, Literal
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, Query, Request, Response

from autotuner.api.dashboard.pages.sweep import comments_on
from autotuner.api.dashboard.render import page
from autotuner.api.dashboard.views.address import Permalink
from autotuner.api.dashboard.views.timelines import Zoomed, choices_of
from autotuner.api.dependencies import AppOf, CallerOf, TrialId
from autotuner.core.choices import ExportFormat
from autotuner.core.documents import MAX_INTEGER
from autotuner.core.errors import InvalidInput
from autotuner.core.sweep import Sweep
from autotuner.core.trial import Trial
from autotuner.exports.formats import FORMATS, export, refusals
from autotuner.exports.shared.target import Export
from autotuner.report.explanation import bandwidth_section
from autotuner.report.export import flags_section
from autotuner.report.lanes import WHOLE, Window
from autotuner.report.rank_groups import ranks_section
from autotuner.report.report import Section
from autotuner.report.timelines import Shown, link_timelines_section, timeline_section
from autotuner.report.trial import TrialResult, trial_report
from autotuner.search.explain.bandwidth import bandwidth_curve
from autotuner.search.explain.communication import rank_groups
from autotuner.search.explain.explanation import explain, trial_parts
from autotuner.search.explain.link_timelines import trial_link_timelines
from autotuner.search.explain.timeline import trial_timelines, what_ran
from autotuner.search.results.failures import FailureGroup, failures
from autotuner.service.build import App

router = APIRouter(include_in_schema=False, default_response_class=Response)

_Part = Annotated[Literal["live", "timeline", "links", "ranks"] | None, Query()]
_Format = Annotated[ExportFormat | None, Query(alias="format")]
_Zoom = Annotated[str | None, Query(max_length=20)]
_Rank = Annotated[int, Query(ge=0, le=MAX_INTEGER)]

_WHOLE_PAGE = 1296
"""Width in pixels of a picture that fills the page on a wide screen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _LookedAt:
    """The reader's choices in the address of a trial's page."""

    format: ExportFormat | None
    """Trainer for which the layout is exported; None: the sweep's trainer, or the default one."""
    show: Shown
    """Measured or predicted timeline, or both."""
    window: Window
    """Window of the timeline that is shown, such as ``0.25-0.5`` of the step."""
    links_window: Window
    """Window of the picture with and without slow links."""
    rank: int
    """Rank whose communication groups are shown."""

    def to(self, anchor: str, **other: object) -> str:
        """Return the address of this page with other choices, at the part ``anchor``."""
        asked = {
            "format": self.format or "",
            "show": self.show,
            "zoom": self.window,
            "near": self.links_window,
            "rank": self.rank,
        } | other
        said = {name: str(value) for name, value in asked.items() if value not in ("", "both", WHOLE, 0)}
        return f"?{urlencode(said)}#{anchor}"


def _looked_at(
    wanted: _Format = None, show: Shown = "both", zoom: _Zoom = None, near: _Zoom = None, rank: _Rank = 0
) -> _LookedAt:
    """Return the reader's choices from the query parameters of the address."""
    window, links_window = Window.parse(zoom), Window.parse(near)
    return _LookedAt(format=wanted, show=show, window=window, links_window=links_window, rank=rank)


_LookedAtOf = Annotated[_LookedAt, Depends(_looked_at)]


@router.get("/trials/{trial_id}")
def trial_page(
    request: Request, app: AppOf, caller: CallerOf, trial_id: TrialId, looked_at: _LookedAtOf, part: _Part = None
) -> Response:
    """Show one trial: its results, the parts of its step, its timeline, neighbouring layouts, and launch flags.

    Args:
        request: The request of the page.
        app: The application.
        caller: The caller.
        trial_id: Id of the trial.
        looked_at: The choices of the reader.
        part: Part of the page that a script asks for; None: the whole page.
    """
    trial = app.store.get_trial(trial_id)
    pictures: dict[str, Any] = {"timeline": _timeline, "links": _links, "ranks": _ranks}
    if part in pictures:
        return page(request, "trial/_zoomed.html", shown=pictures[part](app, trial, looked_at))
    sweep = app.store.get_sweep(trial.sweep_id)
    result, at = _result(app, trial, sweep), Permalink.of_sweep(sweep, trial.layout)
    is_explained = result.explanation is not None
    shown: dict[str, Any] = {
        name: draw(app, trial, looked_at) if is_explained else None for name, draw in pictures.items()
    }
    shown["report"] = trial_report(result, at.asked)
    if part:
        return page(request, "trial/_live.html", **shown)
    compared = [trial.id] if result.rank in (None, 1) else [result.times[0].trial_id, trial.id]
    made = _export(sweep, trial, looked_at.format)
    return page(
        request,
        "trial.html",
        trial=trial,
        sweep=sweep,
        explore=at.to("/explore"),
        compare=f"/compare?{urlencode([('of', one) for one in compared])}",
        bandwidth=_bandwidth(app, trial),
        flags=flags_section(made) if made else None,
        formats=[
            (one, looked_at.to("use", format=one), made and one == made.format)
            for one in ExportFormat
            if one in FORMATS
        ],
        **comments_on(app, caller, sweep.id, trial.number),
        **shown,
    )


def _result(app: App, trial: Trial, sweep: Sweep) -> TrialResult:
    request = app.informed(sweep).request
    explanation = parts = None
    with suppress(InvalidInput):  # a rule that was added later forbids the layout
        parts = app.compute.ask(trial_parts, trial, request)
        explanation = explain(trial.layout, request.trial_job)
    return TrialResult(
        trial=trial,
        sweep=sweep,
        times=app.store.ranked_times(sweep.id),
        parts=parts,
        explanation=explanation,
        failure=_failure(app, trial, sweep),
        now=app.clock.now(),
    )


def _failure(app: App, trial: Trial, sweep: Sweep) -> FailureGroup | None:
    """Return the trial's failure together with failures of the same cause in its sweep; None if it did not fail."""
    if trial.failure is None:
        return None
    others = app.kept_trials.of(sweep.id).trials
    groups = failures(sweep.request, [trial, *(one for one in others if one.id != trial.id)])
    return next((group for group in groups if any(died.trial == trial.number for died in group.trials)), None)


def _export(sweep: Sweep, trial: Trial, wanted: ExportFormat | None) -> Export | None:
    """Return the layout exported for the requested trainer, else for the sweep's own trainer.

    None if a rule that was added after the trial forbids the layout.
    """
    request, layout = sweep.request, trial.layout
    chosen = wanted or (request.trainer.format if request.trainer else ExportFormat.TORCHTITAN)
    try:
        if refused := refusals(request.job, layout, chosen):
            usage = "No script is written, because the trial job cannot run this layout"
            version = FORMATS[chosen].version
            return Export(format=chosen, layout=layout, version=version, unsupported=refused, usage=usage)
        return export(request.job, layout, chosen)
    except InvalidInput:
        return None


# ------------------------------------------------------------------ pictures that can be zoomed
def _timeline(app: App, trial: Trial, looked_at: _LookedAt) -> Zoomed | None:
    """Return the timeline of the layout that ran, in the window of the address.

    Raises:
        InvalidInput: A rule that was added after the trial forbids its layout.
    """
    request = app.informed(app.store.get_sweep(trial.sweep_id)).request
    found = app.compute.ask(trial_timelines, trial, request)
    show, window, has_both = looked_at.show, looked_at.window, None not in (found.measured, found.predicted)
    section = timeline_section(found.predicted, found.measured, shown=show, window=window)
    choices = choices_of(show, lambda one: looked_at.to("timeline", show=one)) if has_both else ()
    return Zoomed.of("timeline", section, window, lambda to: looked_at.to("timeline", zoom=to), choices)


def _links(app: App, trial: Trial, looked_at: _LookedAt) -> Zoomed | None:
    """Return the steps with nominal links beside those with slow ones; None if no link is known to be slow.

    Raises:
        InvalidInput: A rule that was added after the trial forbids its layout.
    """
    request = app.informed(app.store.get_sweep(trial.sweep_id)).request
    if request.fault_trace is None and not request.runs_on.link_health:
        return None
    window = looked_at.links_window
    section = link_timelines_section(app.compute.ask(trial_link_timelines, trial, request), window=window)
    return Zoomed.of("links", section, window, lambda to: looked_at.to("links", near=to))


def _ranks(app: App, trial: Trial, looked_at: _LookedAt) -> Zoomed:
    """Return the communication groups of the chosen rank; of the last rank if the number is too high.

    Raises:
        InvalidInput: A rule that was added after the trial forbids its layout.
    """
    request = app.informed(app.store.get_sweep(trial.sweep_id)).request
    rank = min(looked_at.rank, trial.ran.world_size - 1)
    groups = app.compute.ask(rank_groups, *what_ran(trial, request), rank)
    return Zoomed(part="ranks", section=ranks_section(groups, lambda other: looked_at.to("ranks", rank=other)))


def _bandwidth(app: App, trial: Trial) -> Section | None:
    """Return the bandwidth curve of the trial's layout.

    None on a single node, or if a rule that was added after the trial forbids the layout.
    """
    request = app.informed(app.store.get_sweep(trial.sweep_id)).request
    try:
        curve = app.compute.ask(bandwidth_curve, trial.layout, request.job)
    except InvalidInput:
        return None
    return bandwidth_section(curve, _WHOLE_PAGE) if curve.ways else None
