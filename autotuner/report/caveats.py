"""The caveats of predictions in words."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from autotuner.core.caveat import Caveat, CaveatKind
from autotuner.core.job import Calibration
from autotuner.core.link import LinkHealth
from autotuner.costmodel.uncertainty import Z80
from autotuner.report.links import link_in_words
from autotuner.report.words import counted, with_interval

_Kind = CaveatKind


def caveats_in_words(caveats: Iterable[Caveat]) -> tuple[str, ...]:
    """Return caveats of a prediction (limits of its validity) in words, each as a statement without a full stop."""
    return tuple(map(caveat_in_words, caveats))


def caveat_in_words(one: Caveat) -> str:  # noqa: PLR0912  # a line for each kind
    """Return one caveat of a prediction (a limit of its validity) in words, without a full stop."""
    names, device = ", ".join(one.subjects), one.device or "this device"
    match one.kind:
        case _Kind.COMPARED:
            return f"predictions for {names} on {one.stack} with {device} were compared with {_runs(one.count)}"
        case _Kind.NEVER_COMPARED:
            return f"predictions for {names} on {one.stack} with {device} were never compared with a measured run"
        case _Kind.NEAREST_COMPARISON:
            return f"the nearest comparison is with {_runs(one.count)} on {one.stack} with {device}"
        case _Kind.COMPARED_ELSEWHERE:
            return f"compared with measured runs only on other stacks or devices: {names}"
        case _Kind.COMPARED_NOWHERE:
            return f"never compared with a measured run, on any stack or device: {names}"
        case _Kind.BORROWED_CONSTANTS:
            return f"not measured on {device}, but taken from other devices: {names}"
        case _Kind.MEASURED_LINKS:
            places = zip(("within a node", "between nodes"), one.subjects, strict=True)
            known = " and ".join(f"{where} ({source})" for where, source in places if source)
            return f"links {known} have the values that were measured on {one.cluster}"
        case _Kind.LINK_FAULT:
            return _link_fault(one.link)
        case _Kind.CALIBRATED:
            return _calibrated(one.calibration)
        case _Kind.LINEAR_ATTENTION:
            return f"{one.count} of {one.total} layers have linear attention, {_STATEMENTS[one.kind]}"
        case _Kind.APPROXIMATED:
            return names
        case _Kind.COUNTED_OUTSIDE_WINDOWS:
            return (
                f"MFU counts all keys, but queries in {one.count} of {one.total} layers see only {one.num_tokens:,} of "
                "them: it is higher than the real use of the devices, and may exceed 100 %"
            )
        case _Kind.DRAWN_LENGTHS:
            return (
                "lengths of sequences are assumed to be independent of each other, as in a shuffled corpus; memory is "
                f"predicted for micro-batches of sequences of {one.num_tokens:,} tokens, and the exchange of sequences "
                "between ranks is assumed to take no time"
            )
        case _Kind.LEFT_OUT:
            return f"{one.cluster} was left out: {names}"
        case _Kind.THIN_SPACE:
            return f"on {one.cluster} only a part of the layouts was predicted: {names}"
        case _:
            return _STATEMENTS[one.kind]


_STATEMENTS = {
    _Kind.PUBLISHED_DELEGATES: (
        "the time that delegates (helper processes) need for a transfer follows from published iteration times of one "
        "cluster of H800s; it was not measured here"
    ),
    _Kind.LOSSY_EXCHANGE: (
        "a lossy exchange is not numerically equivalent: its step time says nothing about its loss, so it gets a rank "
        "only after it passed a convergence gate"
    ),
    _Kind.ASSUMED_DEMO: (
        "the time that DeMo needs to choose components was measured only on CPU cores; for GPUs it is assumed"
    ),
    _Kind.EARLY_CLIP: (
        "clipping before the reduction is not numerically equivalent, so it gets a rank only after it passed "
        "a convergence gate"
    ),
    _Kind.LINEAR_ATTENTION: (
        "predicted like fused attention with the same number of FLOP, in chunks of 64 tokens: their kernels may be "
        "slower, and the data that context ranks exchange does not grow with the sequence as predicted"
    ),
    _Kind.INDEXED_ATTENTION: (
        "queries see only the keys that an indexer selects, but all keys are predicted, without the scores of the "
        "indexer: sequences that are much longer than the number of selected keys are faster than predicted"
    ),
    _Kind.PARALLEL_BLOCKS: (
        "attention and the feed-forward block of a layer run in parallel, but are predicted one after the other: "
        "tensor ranks may sum both results at once, with half of the predicted collectives"
    ),
    _Kind.ATTENTION_SINKS: (
        "attention has sinks, but is predicted without them: instead of a kernel that does not support sinks, a "
        "kernel runs that keeps its scores in memory"
    ),
}


def _link_fault(link: LinkHealth | None) -> str:
    assert link is not None, "the caveat is about one"
    known = f"as measured ({link.source})" if link.source else "assumed, not measured"
    return f"{link_in_words(link)}: {known}"


def _calibrated(known: Calibration | None) -> str:
    assert known is not None, "the caveat is about one"
    factor = with_interval(known.factor, math.expm1(Z80 * known.deviation), "{:.2f}".format)
    return f"calibrated on {' and '.join(_calibrating(known))}: factor {factor}"


def _calibrating(known: Calibration) -> Iterator[str]:
    """Yield the sources of a calibration in words: stored trials, and measurements that the caller sent."""
    if known.num_trials:
        yield f"{counted(known.num_trials, 'trial')} of {counted(known.num_sweeps, 'sweep')}"
    if sent := known.num_runs - known.num_trials:
        yield _runs(sent)


def _runs(count: int | None) -> str:
    return counted(count or 0, "measured run")
