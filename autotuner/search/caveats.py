"""Caveats of predictions: what was compared with measured runs, and which constants come from other hardware."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from autotuner.catalog.kernels import borrowed_facts
from autotuner.catalog.software import comparisons
from autotuner.core.caveat import Caveat, CaveatKind
from autotuner.core.choices import AttentionKernel, GradientClip, GradientSync, P2PTransport, Precision
from autotuner.core.cluster import Cluster
from autotuner.core.columns import LayoutColumns
from autotuner.core.job import Job
from autotuner.core.model import TransformerSpec
from autotuner.costmodel.evidence import LATENT, LINEAR, Evidence, Where


def caveats(job: Job, layouts: LayoutColumns) -> tuple[Caveat, ...]:
    """Return the caveats that a reader of predictions of these layouts should know.

    They say which parts were compared with measured runs, which constants were taken from other hardware, which links
    are degraded, and what the prediction does not include.
    """
    evidence = Evidence.of(job)
    return (
        *_compared(evidence, job.cluster.accelerator.name),
        *_less_known(evidence, layouts),
        *_borrowed(job, layouts),
        *_links(job.cluster),
        *_choices(layouts),
        *caveats_of_job(job),
        *_workload(job),
    )


def caveats_of_job(job: Job) -> tuple[Caveat, ...]:
    """Return caveats that depend on the job alone: its calibration, and model features that are approximated."""
    known = job.calibration and replace(job.calibration, parts=(), correlations=())
    calibrated = (Caveat(kind=CaveatKind.CALIBRATED, calibration=known),) if known else ()
    return (*calibrated, *approximations(job.model))


def approximations(model: TransformerSpec) -> tuple[Caveat, ...]:
    """Return a caveat for each model feature that the cost model replaces by a simpler feature."""
    return (*_shapes(model), *(Caveat(kind=CaveatKind.APPROXIMATED, subjects=(said,)) for said in model.approximations))


def _shapes(model: TransformerSpec) -> Iterator[Caveat]:
    """Yield caveats about shapes that the cost model computes as if they were other shapes."""
    if model.num_linear_layers:
        yield Caveat(kind=CaveatKind.LINEAR_ATTENTION, count=model.num_linear_layers, total=model.num_layers)
    if model.latent_attention and model.latent_attention.indexer_heads:
        yield Caveat(kind=CaveatKind.INDEXED_ATTENTION)
    if model.parallel_blocks:
        yield Caveat(kind=CaveatKind.PARALLEL_BLOCKS)
    if model.attention_sinks:
        yield Caveat(kind=CaveatKind.ATTENTION_SINKS)


def _compared(evidence: Evidence, accelerator: str) -> Iterator[Caveat]:
    """Yield the number of measured runs of the kind of model on this stack and device, or otherwise on others."""
    kind, stack, device = evidence.kind, evidence.stack, evidence.device
    if evidence.of_kind == Where.HERE:
        runs_here = sum(one.runs for one in evidence.here)
        yield Caveat(kind=CaveatKind.COMPARED, subjects=(kind,), stack=stack, device=device, count=runs_here)
        return
    yield Caveat(kind=CaveatKind.NEVER_COMPARED, subjects=(kind,), stack=stack, device=device)
    runs: Counter[tuple[str, str]] = Counter()
    for one in comparisons().values():
        if one.model == kind:
            runs[one.stack, one.device] += one.runs
    nearest = [(where, count) for where, count in runs.most_common() if where[1] == accelerator]
    for (stack, device), count in [*nearest, *runs.most_common()][:1]:
        yield Caveat(kind=CaveatKind.NEAREST_COMPARISON, stack=stack, device=device, count=count)


def _less_known(evidence: Evidence, layouts: LayoutColumns) -> Iterator[Caveat]:
    """Yield caveats about properties of the layouts that were not compared with runs here.

    ``_compared`` has the caveats about the kind of model.
    """
    had = [(subject.name, where) for subject, where in evidence.less_known if subject.of(layouts).any()]
    if elsewhere := tuple(name for name, where in had if where == Where.ELSEWHERE):
        yield Caveat(kind=CaveatKind.COMPARED_ELSEWHERE, subjects=elsewhere)
    attention = [name for name in evidence.never_of_job if name in (LATENT, LINEAR)]
    if never := (*attention, *(name for name, where in had if where == Where.NOWHERE)):
        yield Caveat(kind=CaveatKind.COMPARED_NOWHERE, subjects=never)


def _borrowed(job: Job, layouts: LayoutColumns) -> Iterator[Caveat]:
    """Yield caveats about constants that were not measured on this device or network."""
    precisions = [precision for precision in Precision if (layouts.precision == precision).any()]
    kernels = [kernel for kernel in AttentionKernel if (layouts.attention_kernel == kernel).any()]
    if borrowed := borrowed_facts(job.cluster, precisions, kernels):
        yield Caveat(kind=CaveatKind.BORROWED_CONSTANTS, subjects=borrowed, device=job.cluster.accelerator.name)


def _links(cluster: Cluster) -> Iterator[Caveat]:
    """Yield caveats about links that a profile measured, and about links that are not as the cluster describes them."""
    between = cluster.inter_node_link.source if cluster.num_nodes > 1 else ""
    if (within := cluster.intra_node_link.source) or between:
        yield Caveat(kind=CaveatKind.MEASURED_LINKS, subjects=(within, between), cluster=cluster.name)
    for health in cluster.link_health:
        if not health.is_healthy:
            yield Caveat(kind=CaveatKind.LINK_FAULT, link=health)


def _choices(layouts: LayoutColumns) -> Iterator[Caveat]:
    """Yield caveats about delegated sends, lossy exchanges and early clips.

    Predictions of time do not cover them completely.
    """
    if (layouts.p2p_transport == P2PTransport.DELEGATED).any():
        yield Caveat(kind=CaveatKind.PUBLISHED_DELEGATES)
    if (layouts.gradient_sync != GradientSync.FULL).any():
        yield Caveat(kind=CaveatKind.LOSSY_EXCHANGE)
        if (layouts.gradient_sync == GradientSync.DEMO).any():
            yield Caveat(kind=CaveatKind.ASSUMED_DEMO)
    if (layouts.gradient_clip != GradientClip.POST).any():
        yield Caveat(kind=CaveatKind.EARLY_CLIP)


def _workload(job: Job) -> Iterator[Caveat]:
    """Yield caveats about the workload.

    They are about keys outside of attention windows, which MFU counts although they are not computed, and about lengths
    that are drawn at random.
    """
    model, seq_len = job.model, job.workload.seq_len
    if model.num_windowed_layers and 2 * model.attention_window < seq_len:
        yield Caveat(
            kind=CaveatKind.COUNTED_OUTSIDE_WINDOWS,
            count=model.num_windowed_layers,
            total=model.num_layers,
            num_tokens=model.attention_window,
        )
    if job.workload.lengths is not None:
        yield Caveat(kind=CaveatKind.DRAWN_LENGTHS, num_tokens=seq_len)
