"""What a reader of predictions should know about them: sentences that stand beside an answer."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator

from autotuner.catalog.kernels import borrowed_facts
from autotuner.catalog.software import comparisons
from autotuner.core.choices import AttentionKernel, GradientClip, GradientSync, P2PTransport, Precision
from autotuner.core.cluster import Cluster
from autotuner.core.columns import LayoutColumns
from autotuner.core.job import Calibration, Job
from autotuner.core.model import TransformerSpec
from autotuner.costmodel.evidence import LATENT, LINEAR, Familiarity, Where
from autotuner.costmodel.uncertainty import Z80
from autotuner.search.text.links import link_in_words
from autotuner.search.text.sentences import with_interval


def caveats(job: Job, layouts: LayoutColumns) -> tuple[str, ...]:
    """What was compared with measured runs, what is borrowed, what is known of the cluster; without full stops."""
    familiarity = Familiarity.of(job)
    return (
        *_compared(familiarity, job.cluster.accelerator.name),
        *_less_known(familiarity, layouts),
        *_borrowed(job, layouts),
        *_measured(job.cluster),
        *_ailing(job.cluster),
        *_delegated(layouts),
        *_exchanged(layouts),
        *caveats_of_job(job),
        *_counted_whole(job),
        *_drawn(job),
    )


def caveats_of_job(job: Job) -> tuple[str, ...]:
    """Return what predictions were calibrated on, and what of the model is counted or priced as something else."""
    return (*calibrated_on(job), *approximations(job.model))


def _drawn(job: Job) -> Iterator[str]:
    """What is taken for granted of sequences that differ in length."""
    if job.workload.lengths is not None:
        yield (
            "lengths of sequences are drawn independently of each other, as of a shuffled corpus; memory is that of "
            f"micro-batches of sequences of {job.workload.seq_len:,} tokens, and to exchange sequences costs nothing"
        )


def _counted_whole(job: Job) -> Iterator[str]:
    """What MFU counts and nobody computes: keys outside of windows."""
    model = job.model
    if model.num_windowed_layers and 2 * model.attention_window < job.workload.seq_len:
        yield (
            f"MFU counts all keys, of which queries in {model.num_windowed_layers} of {model.num_layers} layers see "
            f"{model.attention_window:,}: it is higher than what devices reach, and may pass 100 %"
        )


def approximations(model: TransformerSpec) -> tuple[str, ...]:
    """What of the model is counted or priced as something else, with the effect; without full stops."""
    return (*_of_shapes(model), *model.approximations)


def _of_shapes(model: TransformerSpec) -> Iterator[str]:
    """What follows from shapes that the cost model knows of and prices as others."""
    if model.num_linear_layers:
        yield (
            f"{model.num_linear_layers} of {model.num_layers} layers attend linearly, priced as fused attention cores "
            "of as many FLOP in chunks of 64 tokens: their kernels may reach less, and what context ranks exchange "
            "does not grow with the sequence as predicted"
        )
    if model.latent_attention and model.latent_attention.indexer_heads:
        yield (
            "queries see the keys that an indexer chooses, priced as all keys, and its scores not: sequences that are "
            "many times longer than what it chooses are faster than predicted"
        )
    if model.parallel_blocks:
        yield (
            "attention and feed-forward block of a layer are parallel, priced one after the other: tensor ranks may "
            "sum both results at once, in half of the predicted collectives"
        )
    if model.attention_sinks:
        yield (
            "attention has sinks, priced without: a kernel that does not support them falls back to one that keeps its "
            "scores in memory"
        )


def _compared(familiarity: Familiarity, accelerator: str) -> Iterator[str]:
    """How many runs of the kind of model were compared on this stack and device, or else where some were."""
    stack, device, kind = familiarity.stack, familiarity.device or "this device", familiarity.kind
    if familiarity.of_kind == Where.HERE:
        runs_here = _runs(sum(one.runs for one in familiarity.here))
        yield f"predictions for {kind} on {stack} with {device} were compared with {runs_here}"
        return
    runs: Counter[str] = Counter()
    for one in comparisons().values():
        if one.model == kind:
            runs[f"on {one.stack} with {one.device}"] += one.runs
    nearest = [(where, count) for where, count in runs.most_common() if where.endswith(f" with {accelerator}")]
    (where, count), *_ = [*nearest, *runs.most_common(), ("", 0)]
    yield f"predictions for {kind} on {stack} with {device} were never compared with a measured run"
    if count:
        yield f"the nearest comparison is with {_runs(count)} {where}"


def _less_known(familiarity: Familiarity, layouts: LayoutColumns) -> Iterator[str]:
    """What some of the layouts have that was not compared here; of the kind of model the sentence before speaks."""
    had = [(subject.name, where) for subject, where in familiarity.less_known if subject.of(layouts).any()]
    if elsewhere := [name for name, where in had if where == Where.ELSEWHERE]:
        yield f"compared on other stacks or devices only: {', '.join(elsewhere)}"
    attention = [name for name in familiarity.never_of_job if name in (LATENT, LINEAR)]
    if never := [*attention, *(name for name, where in had if where == Where.NOWHERE)]:
        yield f"never compared with a measured run, on any stack or device: {', '.join(never)}"


def _borrowed(job: Job, layouts: LayoutColumns) -> Iterator[str]:
    """Constants that were not measured on this device or network."""
    precisions = [precision for precision in Precision if (layouts.precision == precision).any()]
    kernels = [kernel for kernel in AttentionKernel if (layouts.attention_kernel == kernel).any()]
    if borrowed := borrowed_facts(job.cluster, precisions, kernels):
        yield f"not measured on {job.cluster.accelerator.name} but taken from elsewhere: {', '.join(borrowed)}"


def _measured(cluster: Cluster) -> Iterator[str]:
    """Which links are as a profile of the very machines measured them."""
    links = [("within a node", cluster.intra_node_link)]
    if cluster.num_nodes > 1:
        links.append(("between nodes", cluster.inter_node_link))
    if measured := [f"{where} ({link.source})" for where, link in links if link.source]:
        yield f"links {' and '.join(measured)} are as measured on {cluster.name}"


def _ailing(cluster: Cluster) -> Iterator[str]:
    """Which links are not as the cluster says, and who says so."""
    for health in cluster.link_health:
        if not health.is_healthy:
            known = f"as measured ({health.source})" if health.source else "assumed, not measured"
            yield f"{link_in_words(health)}: {known}"


def _delegated(layouts: LayoutColumns) -> Iterator[str]:
    if (layouts.p2p_transport == P2PTransport.DELEGATED).any():
        yield (
            "what delegates take for a transfer is told by published iteration times of one cluster of H800s, not "
            "measured here"
        )


def _exchanged(layouts: LayoutColumns) -> Iterator[str]:
    """What of lossy exchanges and early clips no prediction of time tells."""
    if (layouts.gradient_sync != GradientSync.FULL).any():
        yield (
            "a lossy exchange trains another function: its step time says nothing of its loss, and it is ranked once "
            "its loss gate is passed"
        )
        if (layouts.gradient_sync == GradientSync.DEMO).any():
            yield "what DeMo takes to choose components was measured on cores alone, and is assumed of GPUs"
    if (layouts.gradient_clip != GradientClip.POST).any():
        yield "clipping before the reduction trains another function, and is ranked once its loss gate is passed"


def calibrated_on(job: Job) -> Iterator[str]:
    """What measured runs say of the cluster's speed, where there are any; without a full stop."""
    known = job.calibration
    if known is not None:
        half_width = math.expm1(Z80 * known.deviation)
        factor = with_interval(known.factor, half_width, "{:.2f}".format)
        yield f"calibrated on {' and '.join(_told_by(known))}: factor {factor}"


def _told_by(known: Calibration) -> Iterator[str]:
    """The runs that a calibration is from: trials that are stored, and what a caller sent."""
    if known.num_trials:
        yield f"{_counted(known.num_trials, 'trial')} of {_counted(known.num_sweeps, 'sweep')}"
    if sent := known.num_runs - known.num_trials:
        yield _runs(sent)


def _runs(count: int) -> str:
    return _counted(count, "measured run")


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
