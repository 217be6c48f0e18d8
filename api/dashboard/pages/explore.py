"""The page of a layout chosen by hand: its legality, its speed, and the parts of its memory."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response

from autotuner.api.dashboard.render import page
from autotuner.api.dashboard.views.address import DEFAULT, Permalink
from autotuner.api.dashboard.views.explore_asked import Asked
from autotuner.api.dashboard.views.explore_panel import Panel
from autotuner.api.dashboard.views.timelines import Zoomed
from autotuner.api.dependencies import AppOf
from autotuner.catalog.hardware import accelerators, load_accelerator
from autotuner.catalog.models import models
from autotuner.catalog.networks import network_presets
from autotuner.catalog.software import stacks
from autotuner.core.cluster import Cluster
from autotuner.core.errors import AutotunerError, InvalidInput, NotFound, TooCostly
from autotuner.core.job import Job
from autotuner.core.layout import OPTIONS, Layout
from autotuner.core.model import TransformerSpec
from autotuner.core.rules.legality import reasons
from autotuner.core.space import default_space
from autotuner.core.units import format_bytes, format_count, format_rate
from autotuner.report.explanation import bandwidth_section
from autotuner.report.explore import explore_report
from autotuner.report.html import Html
from autotuner.report.lanes import Window
from autotuner.report.links import link_in_words
from autotuner.report.report import Link
from autotuner.report.timelines import link_timelines_section, timeline_section
from autotuner.search.explain.bandwidth import bandwidth_curve
from autotuner.search.explain.choosable import WhatIf, what_if
from autotuner.search.explain.link_timelines import link_timelines
from autotuner.search.explain.timeline import predicted_timeline
from autotuner.search.preview import Question, best_of_space
from autotuner.search.space.moves import arrange
from autotuner.service.build import App

router = APIRouter(include_in_schema=False, default_response_class=Response)

_Part = Annotated[Literal["explore", "timeline", "bandwidth"] | None, Query()]

_Zoom = Annotated[str | None, Query(max_length=32)]

_BESIDE_PANEL = 896
"""Width in pixels of a picture beside the controls."""

_INPUTS = (
    "model",
    "cluster",
    "count",
    "seq_len",
    "lengths",
    "global_batch_size",
    "stack",
    "optimizer_state_precision",
)
"""Inputs of the job; their errors are shown beside them."""


@router.get("/explore")
def explore_page(request: Request, app: AppOf, part: _Part = None, zoom: _Zoom = None) -> Response:
    """Show one layout of a job.

    The query names the job and the layout. If it names no layout, the page shows the layout that is predicted to be the
    best. A browser without scripts sends every input of the form. The page then redirects to the permalink, a shorter
    address of the same layout. A script fetches the timeline separately, because it takes as long as the rest of the
    page. It fetches the bandwidth curve last.
    """
    asked = Asked.of(request.query_params)
    job, asked = _job(app, asked)
    layout = arrange(asked.layout(_best(app, asked, job)), job)
    link = asked.link.with_layout(layout)
    if asked.is_form and not part and not asked.errors:
        return Response(status_code=303, headers={"Location": request.scope.get("root_path", "") + link.to("/explore")})
    is_legal = not asked.errors and not reasons(layout, job)
    has_timeline = is_legal and layout.pipeline_parallel_degree > 1
    has_bandwidth = is_legal and job.cluster.num_nodes > 1 and layout.data_parallel_degree > 1
    shown: dict[str, Any] = {
        "has_bandwidth": has_bandwidth,
        "bandwidth": None,
        "given": asked,
        "permalink": link,
        "has_timeline": has_timeline,
        "timeline": None,
        "html": Html(request.scope.get("root_path", "")),
    }
    if has_bandwidth and part in (None, "bandwidth"):
        curve = app.compute.ask(bandwidth_curve, layout, job)
        shown |= {"bandwidth": bandwidth_section(curve) if curve.ways else None}
    if part == "bandwidth":
        return page(request, "explore/_bandwidth.html", **shown)
    if has_timeline and part != "explore":
        shown["timeline"] = _timeline(app, layout, job, request, link, zoom)
    if part == "timeline":
        return page(request, "explore/_timeline.html", **shown)
    answer = app.compute.ask(what_if, layout, job)
    template = "explore/_explore.html" if part else "explore/explore.html"
    return page(request, template, **shown, **_around(app, link, job), **_answered(answer, job, asked, link))


def _timeline(app: App, layout: Layout, job: Job, request: Request, link: Permalink, zoom: str | None) -> Zoomed | None:
    """Return the timeline of the predicted step; with degraded links, beside the step with nominal links."""
    root, window = request.scope.get("root_path", ""), Window.parse(zoom)

    def address(to: Window) -> str:
        return f"{root}{link.to('/explore')}&zoom={to}"

    section = None
    if job.cluster.link_health:
        found = app.compute.ask(link_timelines, layout, job)
        section = link_timelines_section(found, window=window, wide=_BESIDE_PANEL, key="timeline")
    if section is None:
        predicted = app.compute.ask(predicted_timeline, layout, job)
        section = timeline_section(predicted, None, window=window, wide=_BESIDE_PANEL)
    return Zoomed.of("timeline", section, window, address)


def _job(app: App, asked: Asked) -> tuple[Job, Asked]:
    """Return the requested job; if an input is wrong, a default job for the controls, with the error."""
    try:
        return asked.link.job(app), asked
    except InvalidInput as error:
        hint = "" if error.nearest is None else f"; nearest: {error.nearest}"
        wrong = asked.with_error(_input(error.field), f"{error.rule}{hint}")
    except NotFound as error:
        name = {"model": "model", "stack": "stack", "sweep": "model"}.get(error.kind, "cluster")
        wrong = asked.with_error(name, str(error))
    return DEFAULT.job(app), wrong


def _input(field: str) -> str:
    """Return the name of the input for a field of the job."""
    if field.startswith("link_health"):
        return "link_health"
    last = field.rpartition(".")[2]
    return last if last in _INPUTS else "cluster"


def _best(app: App, asked: Asked, job: Job) -> Layout:
    """Return the best predicted layout that is numerically equivalent.

    Return the plain layout if the address names a layout, if an input is wrong, or if no layout can run.
    """
    if asked.base is not None or asked.errors:
        return Layout()
    changing = OPTIONS["precision"].not_equivalent
    keeping = tuple(value for value in default_space(job).values("precision") or () if value not in changing)
    question = Question(job=job, axes={"precision": keeping}, limit=1)
    try:
        found = app.compute.search(best_of_space, question)
    except (InvalidInput, TooCostly):
        return Layout()
    if found.items:
        return found.items[0].layout
    return Layout() if found.shortfall is None else found.shortfall.nearest.layout


def _answered(answer: WhatIf, job: Job, asked: Asked, link: Permalink) -> dict[str, Any]:
    """Return the values for the template: the controls, and the report unless an input is wrong."""

    def link_to(layout: Layout, words: str) -> Link:
        return Link(words, "explore", query=link.with_layout(layout).asked)

    report = None if asked.errors else explore_report(answer, job, link_to)
    return {"panel": Panel.of(answer, job), "answer": answer, "report": report}


def _around(app: App, link: Permalink, job: Job) -> dict[str, Any]:
    """Return the names of models, clusters and stacks to choose from, and the job in numbers."""
    hardware, _, network = link.cluster.partition("@")
    accelerator, _, count = hardware.partition(":")
    is_counted = _canonical(accelerator) in accelerators()
    cluster, names = _canonical(accelerator) if is_counted else link.cluster, app.store.descriptions.names
    return {
        "models": {"stored here": names(TransformerSpec), "catalog": models()},
        "clusters": {"this service": ("local", *names(Cluster)), "catalog": accelerators()},
        "cluster": cluster,
        "count": count if is_counted else "",
        "network": network,
        "networks": tuple(preset.name for preset in network_presets()) if is_counted else (),
        "stacks": stacks(),
        "world_size": job.cluster.world_size,
        "about_cluster": _cluster_in_words(job),
        "about_links": "; ".join(map(link_in_words, job.cluster.link_health)),
        "about_workload": f"{format_count(job.workload.tokens_per_step)} tokens a step",
    }


def _canonical(accelerator: str) -> str:
    """Return the catalog's name of an accelerator (``h100-sxm`` for ``h100``), or the given name if it is unknown."""
    try:
        return load_accelerator(accelerator).name
    except AutotunerError:
        return accelerator


def _cluster_in_words(job: Job) -> str:
    cluster = job.cluster
    size = f"{cluster.num_nodes} node{'s' if cluster.num_nodes > 1 else ''} of {cluster.accelerators_per_node}"
    rate = format_rate(cluster.intra_node_link.bandwidth_bytes_per_s, "B/s")
    links = f"{cluster.intra_node_link.name} {rate}"
    if cluster.num_nodes > 1:
        between = cluster.inter_node_link
        links += f", {between.name} {format_rate(between.bandwidth_bytes_per_s, 'B/s')}"
    return f"{size} × {format_bytes(cluster.accelerator.memory_bytes)}; {links}"
