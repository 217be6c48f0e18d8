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
            return f"compared on other stacks or devices only: {names}"
        case _Kind.COMPARED_NOWHERE:
            return f"never compared with a measured run, on any stack or device: {names}"
        case _Kind.BORROWED_CONSTANTS:
            return f"not measured on {device} but taken from elsewhere: {names}"
        case _Kind.MEASURED_LINKS:
            places = zip(("within a node", "between nodes"), one.subjects, strict=True)
            known = " and ".join(f"{where} ({source})" for where, source in places if source)
            return f"links {known} are as measured on {one.cluster}"
        case _Kind.LINK_FAULT:
            return _link_fault(one.link)
        case _Kind.CALIBRATED:
            return _calibrated(one.calibration)
        case _Kind.LINEAR_ATTENTION:
            return f"{one.count} of {one.total} layers attend linearly, {_STATEMENTS[one.kind]}"
        case _Kind.APPROXIMATED:
            return names
        case _Kind.COUNTED_OUTSIDE_WINDOWS:
            return (
                f"MFU counts all keys, of which queries in {one.count} of {one.total} layers see {one.num_tokens:,}: "
                "it is higher than what devices reach, and may pass 100 %"
            )
        case _Kind.DRAWN_LENGTHS:
            return (
                "lengths of sequences are drawn independently of each other, as of a shuffled corpus; memory is that "
                f"of micro-batches of sequences of {one.num_tokens:,} tokens, and to exchange sequences costs nothing"
            )
        case _Kind.LEFT_OUT:
            return f"{one.cluster} was left out: {names}"
        case _Kind.THIN_SPACE:
            return f"on {one.cluster} a thin space of layouts was looked through: {names}"
        case _:
            return _STATEMENTS[one.kind]


_STATEMENTS = {
    _Kind.PUBLISHED_DELEGATES: (
        "what delegates take for a transfer is told by published iteration times of one cluster of H800s, not measured "
        "here"
    ),
    _Kind.LOSSY_EXCHANGE: (
        "a lossy exchange trains another function: its step time says nothing of its loss, and it is ranked once its "
        "convergence gate is passed"
    ),
    _Kind.ASSUMED_DEMO: "what DeMo takes to choose components was measured on cores alone, and is assumed of GPUs",
    _Kind.EARLY_CLIP: (
        "clipping before the reduction trains another function, and is ranked once its convergence gate is passed"
    ),
    _Kind.LINEAR_ATTENTION: (
        "predicted as fused attention cores of as many FLOP in chunks of 64 tokens: their kernels may reach less, and "
        "what context ranks exchange does not grow with the sequence as predicted"
    ),
    _Kind.INDEXED_ATTENTION: (
        "queries see the keys that an indexer chooses, predicted as all keys, and its scores not: sequences that are "
        "many "
        "times longer than what it chooses are faster than predicted"
    ),
    _Kind.PARALLEL_BLOCKS: (
        "attention and feed-forward block of a layer are parallel, priced one after the other: tensor ranks may sum "
        "both results at once, in half of the predicted collectives"
    ),
    _Kind.ATTENTION_SINKS: (
        "attention has sinks, predicted without them: a kernel that does not support them falls back to one that keeps "
        "its "
        "scores in memory"
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
