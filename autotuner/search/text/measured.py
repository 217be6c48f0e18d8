"""What a trial measured, in words: how well each number is known, where the step went, what else happened."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from autotuner.core.measurement import Breakdown, Measurement
from autotuner.core.units import format_bytes, format_seconds
from autotuner.search.text.footprints import footprint_facts
from autotuner.search.text.links import event_sentence
from autotuner.search.text.sentences import percent

PHASE_WORDS: Mapping[str, str] = {
    "forward_s": "forward",
    "backward_s": "backward",
    "all_reduce_s": "all-reduce",
    "all_gather_s": "all-gather",
    "reduce_scatter_s": "reduce-scatter",
    "all_to_all_s": "all-to-all",
    "send_receive_s": "send and receive",
    "pipeline_idle_s": "pipeline idle",
    "optimizer_s": "optimizer",
    "other_s": "anything else",
}
"""What people call each part of a ``Breakdown``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseShare:
    """One part of a measured step."""

    name: str
    seconds: float
    share: float


def certainty(measured: Measurement) -> str:
    """How well the step time is known: ``± 3 ms``, or how far its quartiles lie apart where the steps are too few."""
    if measured.step_time_interval_s is not None:
        return f"± {format_seconds(measured.step_time_interval_s)}"
    return f"quartiles {format_seconds(measured.step_time_spread_s)} apart"


def has_own_peak(mfu: float, precision_utilization: float | None) -> bool:
    """Whether a layout's precision has another peak than the one behind MFU, so that its utilization says more."""
    if precision_utilization is None or not math.isfinite(precision_utilization):
        return False
    return not math.isclose(precision_utilization, mfu, rel_tol=0.01)


def phases(breakdown: Breakdown) -> tuple[PhaseShare, ...]:
    """The parts of a step that took any time, longest first."""
    found = ((name, float(getattr(breakdown, field))) for field, name in PHASE_WORDS.items())
    shares = [
        PhaseShare(name=name, seconds=seconds, share=seconds / breakdown.step_s) for name, seconds in found if seconds
    ]
    return tuple(sorted(shares, key=lambda phase: -phase.seconds))


def facts(measured: Measurement) -> dict[str, str]:
    """What there is to know about the measurement itself, each fact under its name."""
    return dict(_facts(measured))


def overlap_sentence(predicted: float | None, measured: float | None) -> str:
    """Both shares of the bytes of gradients that are reduced early; empty where nothing is reduced."""
    if predicted is None:
        return ""
    told = f"{percent(predicted)} predicted" + ("" if measured is None else f", {percent(measured)} measured")
    return f"Gradients whose reduction starts before the last backward pass ends: {told}, by bytes."


def source(measured: Measurement) -> str:
    """What a figure is called: measured, or simulated where nothing ran."""
    return "simulated" if measured.is_simulated else "measured"


def _facts(measured: Measurement) -> Iterator[tuple[str, str]]:
    if measured.is_simulated:
        yield "simulated", "nothing ran; these are times of the cost model, with seeded noise"
    yield "steps", _steps(measured)
    if measured.noise_floor is not None:
        yield "equal runs differ by", percent(measured.noise_floor)
    if not measured.is_simulated:
        yield "others used", f"{percent(measured.foreign_cpu_share)} of the machine's CPU time"
    if measured.breakdown_failure:
        yield "no breakdown", measured.breakdown_failure
    if measured.num_disturbed:
        yield "disturbed runs", f"{measured.num_disturbed}, thrown away"
    if measured.link_events:
        yield "links", "; ".join(map(event_sentence, measured.link_events))
    if measured.extrapolated_from:
        layers = " and ".join(map(str, measured.extrapolated_from))
        yield "extrapolated", f"from {layers} layers per stage, not measured on the whole model"
    if measured.overlapped_share is not None:
        yield "reduced under backward", f"{percent(measured.overlapped_share)} of the bytes of gradients"
    if measured.compile_s:
        yield "compilation", f"{format_seconds(measured.compile_s)}, before the steps that count"
    if measured.hfu > measured.mfu:
        yield "HFU", f"{100 * measured.hfu:.1f} %, with what is computed again"
    if measured.sync_payload_bytes is not None:
        yield "sent to other replicas", f"{format_bytes(measured.sync_payload_bytes)} of a rank per step"
    yield "peak memory per rank", _memory(measured)
    yield from _beside_time(measured)


def _beside_time(measured: Measurement) -> Iterator[tuple[str, str]]:
    if measured.power_w is not None:
        yield "power per accelerator", f"{measured.power_w:.0f} W"
    if measured.footprint is not None:
        yield from footprint_facts(measured.footprint, measured.tokens_per_s)


def _steps(measured: Measurement) -> str:
    """An older record does not say how long it warmed up."""
    if measured.num_warmup_steps is None:
        return f"{measured.num_steps} measured"
    return f"{measured.num_steps} {source(measured)} after {measured.num_warmup_steps} to warm up"


def _memory(measured: Measurement) -> str:
    if not measured.peak_bytes:
        return "not reported"
    allocated = f"{format_bytes(max(measured.peak_bytes))} allocated"
    if not measured.reserved_bytes:
        return allocated
    return f"{allocated}, {format_bytes(max(measured.reserved_bytes))} reserved"
